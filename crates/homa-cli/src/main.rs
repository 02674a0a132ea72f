//! The homa command.
fn main() {}
