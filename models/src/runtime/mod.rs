//! The part of the runtime that the models replace.

pub(crate) mod sleep;
