//! The decisions of `rss-hash`, `homa-hash` and the fallback of `sparse`, which differ only in the hash they
//! use.

use homa_bpf::assembler::Register::{R1, R2, R7, R9, R10};
use homa_bpf::assembler::{Assembler, Width};

use super::REASON;
use crate::config::SteerConfig;
use crate::state::shared_state;

/// Scales the hash like `homa_steer::hash::place`.
pub(super) fn decide(program: &mut Assembler, config: &SteerConfig) {
    program.copy(R1, R7);
    program.multiply(R1, config.cores.len() as u32);
    program.shift_right(R1, 32);
    program.shift_left(R1, 2);
    program.add_register(R1, R9);
    program.load(Width::Four, R1, R1, shared_state::CORES as i16);
    program.load(Width::Eight, R2, R10, REASON);
}
