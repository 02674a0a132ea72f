//! All tests of this crate in one program, which is linked once.

mod arrivals;
mod csv;
mod dist;
mod published;
mod slowdown;
