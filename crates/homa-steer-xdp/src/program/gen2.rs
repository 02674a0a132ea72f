//! The policy `gen2`: like `homa_steer::Gen2` with the batches of `homa_steer::batch::Arrivals` and the loads
//! of `homa_steer::load::ObservedLoads`.

use homa_bpf::assembler::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use homa_bpf::assembler::{Assembler, Label, Register, Width};
use homa_steer::batch::Arrivals;
use homa_steer::{CORE_NUMBERS, Reason};

use super::Clock;
use crate::config::SteerConfig;
use crate::state::{core_state, shared_state};

/// Decides for a packet. R6 is the core of arrival, and `clock` leaves the exact time in R0. Overwrites R7,
/// and leaves the known time in R8.
pub(super) fn decide(program: &mut Assembler, config: &SteerConfig, clock: Clock<'_>, decided: Label) {
    let [lone, choose, chosen, given] = std::array::from_fn(|_| program.label());
    arrive(program, config, clock);
    program.jump_if(R4, 1, lone);
    program.jump_if(R3, 0, choose);
    program.load(Width::Four, R1, R0, core_state::BATCH_CORE as i16);
    program.jump_if(R1, 0, choose);
    program.add(R1, -1_i32 as u32);
    program.set(R2, Reason::SameBatch as u32);
    program.jump(given);
    program.place(choose);
    least_recent(program, config);
    program.jump_if(R7, 0, lone);
    program.store(Width::Four, R0, core_state::BATCH_CORE as i16, R7);
    program.copy(R1, R7);
    program.add(R1, -1_i32 as u32);
    program.jump(chosen);
    program.place(lone);
    program.set(R1, 0);
    program.store(Width::Four, R0, core_state::BATCH_CORE as i16, R1);
    program.copy(R1, R6);
    program.set(R2, Reason::Stays as u32);
    program.jump(given);
    program.place(chosen);
    program.set(R2, Reason::LeastRecent as u32);
    program.place(given);
    program.copy(R3, R1);
    address_of_core(program, R3, shared_state::LAST_SENT);
    // Other cores read this value. If it is unchanged it is not written, so that its cache line stays with
    // them.
    program.load(Width::Eight, R4, R3, 0);
    program.jump_if_same(R4, R8, decided);
    program.store(Width::Eight, R3, 0, R8);
    program.jump(decided);
}

const _: () = assert!(Arrivals::EVERY.is_power_of_two());

/// Sets `number` to the address of the state of the core with this number, in the table at this offset.
fn address_of_core(program: &mut Assembler, number: Register, table: usize) {
    program.and(number, CORE_NUMBERS as u32 - 1);
    program.shift_left(number, core_state::BYTES.ilog2());
    program.add_register(number, R9);
    program.add(number, table as u32);
}

/// Sets R0 to the address of the state of the core of arrival, and R3 to the position of this packet in its
/// batch. R4 is the number of packets in the batch, and R8 the known time.
fn arrive(program: &mut Assembler, config: &SteerConfig, clock: Clock<'_>) {
    let [look, paused, placed, known] = std::array::from_fn(|_| program.label());
    next_of_core(program);
    program.set(R2, config.batching.cap.packets());
    program.jump_if_not_less(R3, R2, look);
    (1..Arrivals::FIRST).for_each(|place| program.jump_if(R3, place, look));
    program.copy(R1, R3);
    program.and(R1, Arrivals::EVERY - 1);
    program.jump_if(R1, 0, look);
    program.load(Width::Eight, R1, R0, core_state::TICK as i16);
    program.jump_unless_same(R1, R8, look);
    program.store(Width::Four, R0, core_state::POSITION as i16, R3);
    program.load(Width::Eight, R8, R0, core_state::RECEIVED as i16);
    program.set(R4, 2);
    program.jump(known);
    program.place(look);
    program.store(Width::Eight, R0, core_state::TICK as i16, R8);
    clock(program);
    program.copy(R8, R0);
    next_of_core(program);
    program.load(Width::Eight, R1, R0, core_state::RECEIVED as i16);
    program.store(Width::Eight, R0, core_state::RECEIVED as i16, R8);
    program.set(R4, 1);
    program.load(Width::Four, R2, R0, core_state::READ_AT as i16);
    program.copy(R5, R3);
    program.subtract_register(R5, R2);
    program.multiply(R5, config.batching.gap_ns.min(i32::MAX as u64) as u32);
    jump_unless_recent(program, paused);
    // A batch of at least 2: a packet that follows another without a pause did not arrive alone.
    program.set(R4, 2);
    program.set(R2, config.batching.cap.packets());
    program.jump_if_greater(R2, R3, placed);
    program.place(paused);
    program.set(R3, 0);
    program.place(placed);
    program.store(Width::Four, R0, core_state::POSITION as i16, R3);
    program.store(Width::Four, R0, core_state::READ_AT as i16, R3);
    program.place(known);
}

/// Sets R0 to the address of the state of the core of arrival, and R3 to the next position in its batch.
fn next_of_core(program: &mut Assembler) {
    program.copy(R0, R6);
    address_of_core(program, R0, shared_state::CORE);
    program.load(Width::Four, R3, R0, core_state::POSITION as i16);
    program.add(R3, 1);
}

/// Jumps to the label unless the time in R1 is less than R5 ago. "Never" and future times count as not
/// recent. Overwrites R2.
fn jump_unless_recent(program: &mut Assembler, otherwise: Label) {
    program.jump_if_is(R1, 0, otherwise);
    program.jump_if_greater(R1, R8, otherwise);
    program.copy(R2, R8);
    program.subtract_register(R2, R1);
    program.jump_if_not_less(R2, R5, otherwise);
}

/// Sets R7 to one more than the least recently used of the next few cores; 0: there is no other core.
fn least_recent(program: &mut Assembler, config: &SteerConfig) {
    let count = config.cores.len();
    program.set(R7, 0);
    // The minimum so far: the highest bit is whether the core just received, and the remaining bits are the
    // time when it was last given a packet.
    program.set(R3, -1_i32 as u32);
    program.load(Width::Four, R4, R0, core_state::NEXT as i16);
    for _ in 0..config.settings.neighbours.min(count) {
        let [next, quiet, inside] = std::array::from_fn(|_| program.label());
        program.and(R4, homa_steer::MAX_CORES as u32 - 1);
        program.copy(R2, R4);
        program.shift_left(R2, 2);
        program.add_register(R2, R9);
        program.load(Width::Four, R2, R2, shared_state::CORES as i16);
        program.jump_if_same(R2, R6, next);
        take_if_better(program, config, quiet);
        program.place(next);
        program.add(R4, 1);
        program.set(R5, count as u32);
        program.jump_if_greater(R5, R4, inside);
        program.set(R4, 0);
        program.place(inside);
    }
}

/// Replaces the core in R3 and R7 with the core in R2 if that is better. Overwrites R1, R5 and the stack's
/// key.
fn take_if_better(program: &mut Assembler, config: &SteerConfig, quiet: Label) {
    // R4 is the index among the cores and must be preserved, and R0 belongs to the core of arrival.
    const NUMBER: i16 = super::KEY;
    const PLACE: i16 = super::KEY - 12;
    const LAST_SENT: i16 = (shared_state::LAST_SENT - shared_state::CORE) as i16;
    program.store(Width::Four, R10, NUMBER, R2);
    program.store(Width::Eight, R10, PLACE, R4);
    program.copy(R4, R2);
    address_of_core(program, R4, shared_state::CORE);
    program.load(Width::Eight, R1, R4, core_state::RECEIVED as i16);
    program.load(Width::Eight, R4, R4, LAST_SENT);
    program.set(R5, config.settings.receive_busy_ns.min(i32::MAX as u64) as u32);
    jump_unless_recent(program, quiet);
    program.set(R5, 1);
    program.shift_left(R5, 63);
    program.or_register(R4, R5);
    program.place(quiet);
    let worse = program.label();
    program.jump_if_not_less(R4, R3, worse);
    program.copy(R3, R4);
    program.load(Width::Four, R7, R10, NUMBER);
    program.add(R7, 1);
    program.place(worse);
    program.load(Width::Eight, R4, R10, PLACE);
}
