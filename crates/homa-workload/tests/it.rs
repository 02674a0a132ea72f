//! All tests of this crate, linked into one program.

mod arrivals;
mod csv;
mod dist;
mod published;
mod slowdown;
