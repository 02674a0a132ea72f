//! The policy `sparse`: like `homa_steer::Sparse`, with the search unrolled slot by slot.

use homa_bpf::assembler::Register::{R1, R2, R3, R6, R7, R8, R9};
use homa_bpf::assembler::{Assembler, Label, Width};
use homa_steer::{ACTIVE_NS, Core, Reason};

use super::{by_hash, set_reason};
use crate::config::SteerConfig;
use crate::state::{shared_state, slot};

const _: () = assert!(ACTIVE_NS < i32::MAX as u64, "it is an immediate");

/// Decides for a packet. R6 is the device.
pub(super) fn decide(program: &mut Assembler, config: &SteerConfig, decided: Label) {
    program.shift_left(R6, 32);
    program.or_register(R6, R7);
    for (core, at) in slots(config) {
        let next = program.label();
        program.load(Width::Eight, R1, R9, at + slot::FLOW as i16);
        program.jump_unless_same(R1, R6, next);
        let same = program.label();
        program.load(Width::Eight, R2, R9, at + slot::SEEN as i16);
        // Otherwise cores would take the slots' cache lines from each other for every packet; the clock ticks
        // much less often.
        program.jump_if_same(R2, R8, same);
        jump_if_over(program, next);
        program.store(Width::Eight, R9, at + slot::SEEN as i16, R8);
        program.place(same);
        program.set(R1, core.into());
        set_reason(program, Reason::KnownFlow, decided);
        program.place(next);
    }
    let (search, hash) = (program.label(), program.label());
    program.load(Width::Eight, R2, R9, shared_state::HASH_USED as i16);
    jump_if_over(program, search);
    program.jump(hash);
    program.place(search);
    for (core, at) in slots(config) {
        let (take, next) = (program.label(), program.label());
        program.load(Width::Eight, R1, R9, at + slot::FLOW as i16);
        program.shift_right(R1, 32);
        program.jump_if_is(R1, 0, take);
        program.load(Width::Eight, R2, R9, at + slot::SEEN as i16);
        jump_if_over(program, take);
        program.jump(next);
        program.place(take);
        program.store(Width::Eight, R9, at + slot::FLOW as i16, R6);
        program.store(Width::Eight, R9, at + slot::SEEN as i16, R8);
        program.set(R1, core.into());
        set_reason(program, Reason::NewFlow, decided);
        program.place(next);
    }
    program.place(hash);
    let same = program.label();
    program.load(Width::Eight, R2, R9, shared_state::HASH_USED as i16);
    program.jump_if_same(R2, R8, same);
    program.store(Width::Eight, R9, shared_state::HASH_USED as i16, R8);
    program.place(same);
    by_hash::decide(program, config);
}

/// Jumps to the label if the time in R2 has expired or is in the future. Overwrites R3.
fn jump_if_over(program: &mut Assembler, over: Label) {
    program.jump_if_greater(R2, R8, over);
    program.copy(R3, R8);
    program.subtract_register(R3, R2);
    program.jump_if_above(R3, ACTIVE_NS as u32, over);
}

/// Returns cores and the offsets of their slots, in search order.
fn slots(config: &SteerConfig) -> Vec<(Core, i16)> {
    let cores = config.cores.as_slice();
    (0..config.settings.levels as usize)
        .flat_map(|level| {
            let place = move |place| shared_state::SLOTS + (level * cores.len() + place) * slot::BYTES;
            cores.iter().enumerate().rev().map(move |(i, &core)| (core, place(i) as i16))
        })
        .collect()
}
