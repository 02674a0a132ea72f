//! The programs: a frame is classified, a policy selects a core for it, and the frame is sent to that core.
//!
//! Registers pass values between the parts: R7 is the flow's hash, R8 the time, and R9 the address of the
//! state. R6 is a further input of the policy (the device, or the core of arrival). A policy leaves its
//! choice in R1 and the reason in R2.

mod by_hash;
mod frame;
mod gen2;
mod sparse;

use std::os::fd::RawFd;

use homa_bpf::assembler::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use homa_bpf::assembler::{Assembler, Instruction, Label, Register, Width};
use homa_bpf::xdp::{REDIRECT_MAP, XDP_PASS, context};
use homa_steer::{CORE_NUMBERS, Core, PolicyName, Reason};

use crate::config::SteerConfig;
use crate::state::{FLOW_ENTRIES, FLOW_TIME_SHIFT, counter, shared_state};

// Kernel helpers.
const MAP_LOOK_UP: u32 = 1;
const TIME_NS: u32 = 5;
const THIS_CORE: u32 = 8;
/// Like `TIME_NS`, with a resolution of a few milliseconds and at a quarter of the cost.
const COARSE_TIME_NS: u32 = 160;

// Offsets on the stack.
const HASH: i16 = -8;
const REASON: i16 = -16;
const KEY: i16 = -20;

/// Descriptors of a program's maps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Maps {
    pub(super) state: RawFd,
    pub(super) counters: RawFd,
    pub(super) cores: RawFd,
}

/// Builds the program for a device.
pub(super) fn build(config: &SteerConfig, maps: Maps) -> Vec<Instruction> {
    let mut program = Assembler::default();
    let (steered, pass, decided) = (program.label(), program.label(), program.label());
    frame::classify(&mut program, config, steered, pass);
    program.place(steered);
    program.store(Width::Eight, R10, HASH, R7);
    program.store(Width::Eight, R10, REASON, R9);
    query_kernel(&mut program, config, pass);
    program.load_value_address(R9, maps.state);
    decide(&mut program, config, &|program| program.call(TIME_NS), decided);
    program.place(decided);
    note_flow(&mut program);
    hand_over(&mut program, maps);
    program.place(pass);
    count(&mut program, maps.counters, |program| increment(program, R0, counter::OTHERS));
    program.set(R0, XDP_PASS);
    program.exit();
    program.finish()
}

/// Queries the kernel for the time, the device and the core of arrival.
fn query_kernel(program: &mut Assembler, config: &SteerConfig, pass: Label) {
    match config.policy {
        PolicyName::Sparse => program.load(Width::Four, R6, R6, context::DEVICE),
        PolicyName::Gen2 => {
            program.call(THIS_CORE);
            program.jump_if_above(R0, CORE_NUMBERS as u32 - 1, pass);
            program.copy(R6, R0);
        }
        _ => {}
    }
    // Only `gen2` has limits of microseconds, and it reads the exact time where necessary. The patch that
    // introduced `sparse` also uses ticks of the kernel.
    program.call(COARSE_TIME_NS);
    program.copy(R8, R0);
}

/// Leaves the exact time in R0, and may overwrite R1 to R5.
type Clock<'a> = &'a dyn Fn(&mut Assembler);

fn decide(program: &mut Assembler, config: &SteerConfig, clock: Clock<'_>, decided: Label) {
    match config.policy {
        PolicyName::Sparse => sparse::decide(program, config, decided),
        PolicyName::Gen2 => gen2::decide(program, config, clock, decided),
        _ => by_hash::decide(program, config),
    }
}

/// Stores the destination and time of this flow's packet in the flow table. Only changes are written, so that
/// cores do not take cache lines from each other.
fn note_flow(program: &mut Assembler) {
    let same = program.label();
    program.copy(R3, R8);
    program.shift_right(R3, FLOW_TIME_SHIFT);
    program.shift_left(R3, 40);
    program.shift_right(R3, 32);
    program.or_register(R3, R1);
    program.load(Width::Eight, R4, R10, HASH);
    program.and(R4, FLOW_ENTRIES as u32 - 1);
    program.shift_left(R4, 2);
    program.add_register(R4, R9);
    program.load(Width::Four, R5, R4, shared_state::FLOWS as i16);
    program.jump_if_same(R5, R3, same);
    program.store(Width::Four, R4, shared_state::FLOWS as i16, R3);
    program.place(same);
}

/// Counts the frame and hands it over to the core in R1. If that is the current core, the kernel processes
/// the frame immediately.
fn hand_over(program: &mut Assembler, maps: Maps) {
    let (same, counted, stays) = (program.label(), program.label(), program.label());
    program.copy(R8, R1);
    program.copy(R9, R2);
    program.call(THIS_CORE);
    program.copy(R7, R0);
    count(program, maps.counters, |program| {
        program.and(R9, 15);
        place_of(program, R9, 8);
        increment(program, R9, counter::REASONS);
        program.copy(R1, R8);
        program.and(R1, CORE_NUMBERS as u32 - 1);
        place_of(program, R1, 8);
        program.jump_if_same(R7, R8, same);
        increment(program, R1, counter::HANDED);
        program.jump(counted);
        program.place(same);
        increment(program, R1, counter::KEPT);
        program.place(counted);
    });
    program.jump_if_same(R7, R8, stays);
    program.load_map(R1, maps.cores);
    program.copy(R2, R8);
    // The helper's result for a core that is not in the map.
    program.set(R3, XDP_PASS);
    program.call(REDIRECT_MAP);
    program.exit();
    program.place(stays);
    program.set(R0, XDP_PASS);
    program.exit();
}

/// Runs `with` with the address of this core's counters in R0.
fn count(program: &mut Assembler, counters: RawFd, with: impl FnOnce(&mut Assembler)) {
    let none = program.label();
    program.set(R1, 0);
    program.store(Width::Four, R10, KEY, R1);
    program.load_map(R1, counters);
    program.copy(R2, R10);
    program.add(R2, i32::from(KEY) as u32);
    program.call(MAP_LOOK_UP);
    program.jump_if_is(R0, 0, none);
    with(program);
    program.place(none);
}

/// Sets `index` to `R0 + index * bytes`. `bytes` is a power of two.
fn place_of(program: &mut Assembler, index: Register, bytes: u32) {
    program.shift_left(index, bytes.ilog2());
    program.add_register(index, R0);
}

/// Adds 1 to the 64 bits at this offset. Overwrites R2.
fn increment(program: &mut Assembler, from: Register, offset: usize) {
    program.load(Width::Eight, R2, from, offset as i16);
    program.add(R2, 1);
    program.store(Width::Eight, from, offset as i16, R2);
}

/// Sets the reason and jumps to `decided`.
fn set_reason(program: &mut Assembler, reason: Reason, decided: Label) {
    program.set(R2, reason as u32);
    program.jump(decided);
}

/// Builds the program that counts the frames handed over to this core by others.
pub(super) fn build_on_core(counters: RawFd, core: Core) -> Vec<Instruction> {
    let mut program = Assembler::default();
    let counter = counter::CAME + 8 * usize::from(core);
    count(&mut program, counters, |program| increment(program, R0, counter));
    program.set(R0, XDP_PASS);
    program.exit();
    program.finish()
}

/// For the comparison with the library: a program that reads its inputs from a map, and stores its choice
/// there.
#[cfg(test)]
pub(super) mod test_io {
    use super::*;

    pub(crate) const NOW: usize = 0;
    pub(crate) const DEVICE: usize = 8;
    pub(crate) const ARRIVAL: usize = 12;
    pub(crate) const HASH: usize = 16;
    /// 0: use the hash of the frame.
    pub(crate) const IS_HASH: usize = 20;
    pub(crate) const CORE: usize = 24;
    pub(crate) const REASON: usize = 28;
    /// The coarse clock, if the policy uses both.
    pub(crate) const TICK: usize = 32;
    pub(crate) const BYTES: usize = 40;

    pub(crate) fn build(config: &SteerConfig, state: RawFd, inputs: RawFd) -> Vec<Instruction> {
        let mut program = Assembler::default();
        let (steered, pass, decided) = (program.label(), program.label(), program.label());
        frame::classify(&mut program, config, steered, pass);
        program.place(steered);
        program.store(Width::Eight, R10, super::HASH, R7);
        program.store(Width::Eight, R10, super::REASON, R9);
        program.load_value_address(R1, inputs);
        let time = if config.policy == PolicyName::Gen2 { TICK } else { NOW };
        program.load(Width::Eight, R8, R1, time as i16);
        let wanted = if config.policy == PolicyName::Sparse { DEVICE } else { ARRIVAL };
        program.load(Width::Four, R6, R1, wanted as i16);
        program.jump_if_above(R6, CORE_NUMBERS as u32 - 1, pass);
        let own = program.label();
        program.load(Width::Four, R2, R1, IS_HASH as i16);
        program.jump_if(R2, 0, own);
        program.load(Width::Four, R7, R1, HASH as i16);
        program.place(own);
        program.load_value_address(R9, state);
        let clock = |program: &mut Assembler| {
            program.load_value_address(R1, inputs);
            program.load(Width::Eight, R0, R1, NOW as i16);
        };
        decide(&mut program, config, &clock, decided);
        program.place(decided);
        program.load_value_address(R3, inputs);
        program.store(Width::Four, R3, CORE as i16, R1);
        program.store(Width::Four, R3, REASON as i16, R2);
        program.store(Width::Four, R3, HASH as i16, R7);
        program.place(pass);
        program.set(R0, XDP_PASS);
        program.exit();
        program.finish()
    }
}
