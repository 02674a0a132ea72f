//! libhoma: Homa for programs in C and C++, by opaque handles and plain functions. `include/homa.h` is made from this source, whose
//! comments are written for its readers.
//!
//! Each entry checks its arguments, and no panic crosses it: see [`border`]. What C holds of our objects is never followed: see [`handle`].

#![expect(non_camel_case_types, reason = "the names are those of C")]

mod address;
mod border;
mod handle;
mod host;
mod message;
mod options;
mod result;
mod socket;
mod statistics;
mod trace;
