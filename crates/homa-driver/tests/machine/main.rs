//! Tests that need machine-wide things: network namespaces, devices, privileges. They are a program of their
//! own because cargo runs one test program at a time. A test that lacks something says so by
//! `homa_testkit::skip`.

#[path = "../common/mod.rs"]
mod common;
mod groups;
mod narrow_path;
mod packet;
mod raw;
mod stuck_link;
mod xdp;
