//! Programs encoded as arbitrary bytes. The fuzz targets in `fuzz/` run them, and the tests next to this
//! module run them without a fuzzer. A program panics if the code violates a guarantee.
#![allow(dead_code, reason = "each fuzz target uses its part")]

pub mod decode;
pub mod endpoint;
mod forge;
mod host;
mod input;
mod settings;
