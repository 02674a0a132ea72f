//! Programs made of bytes, whatever the bytes are: the fuzz targets in `fuzz/` run them, and so do the tests beside this
//! module, without a fuzzer. A program panics where the code breaks a promise.
#![allow(dead_code, reason = "each fuzz target uses its part")]

pub mod decode;
pub mod endpoint;
mod forge;
mod host;
mod input;
mod settings;
