//! Assembles programs for the kernel's virtual machine (eBPF). A program is written as calls, one per
//! instruction, with labels for jumps.

/// A register. R1 to R5 are the arguments of a helper and are clobbered by the call; R0 is its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// Result of a helper, and of the program.
    R0,
    /// First argument. When the program starts, its context.
    R1,
    /// Second argument.
    R2,
    /// Third argument.
    R3,
    /// Fourth argument.
    R4,
    /// Fifth argument.
    R5,
    /// Preserved by calls.
    R6,
    /// Preserved by calls.
    R7,
    /// Preserved by calls.
    R8,
    /// Preserved by calls.
    R9,
    /// The upper end of the stack. Read-only.
    R10,
}

impl Register {
    fn number(self) -> u8 {
        match self {
            Register::R0 => 0,
            Register::R1 => 1,
            Register::R2 => 2,
            Register::R3 => 3,
            Register::R4 => 4,
            Register::R5 => 5,
            Register::R6 => 6,
            Register::R7 => 7,
            Register::R8 => 8,
            Register::R9 => 9,
            Register::R10 => 10,
        }
    }
}

/// Number of bytes of a load or a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 8 bits.
    One,
    /// 16 bits.
    Two,
    /// 32 bits.
    Four,
    /// 64 bits.
    Eight,
}

impl Width {
    fn code(self) -> u8 {
        match self {
            Width::Four => 0x00,
            Width::Two => 0x08,
            Width::One => 0x10,
            Width::Eight => WIDTH_DOUBLE,
        }
    }
}

/// An instruction in the kernel's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

const _: () = assert!(size_of::<Instruction>() == 8);

/// A jump target. It is created before it is placed, because programs only jump forward.
#[derive(Clone, Copy, Debug)]
pub struct Label(usize);

// Instruction classes, from linux/bpf_common.h and linux/bpf.h; libc defines only those of classic BPF.
const CLASS_LOAD_DOUBLE: u8 = 0x00;
const CLASS_LOAD: u8 = 0x01;
const CLASS_STORE: u8 = 0x03;
const CLASS_JUMP: u8 = 0x05;
/// Operates on the lower 32 bits and zeroes the upper 32.
const CLASS_ALU: u8 = 0x04;
/// Compares the lower 32 bits.
const CLASS_JUMP32: u8 = 0x06;
const CLASS_ALU64: u8 = 0x07;

const SOURCE_REGISTER: u8 = 0x08;
const MODE_MEMORY: u8 = 0x60;
const WIDTH_DOUBLE: u8 = 0x18;
const OP_ADD: u8 = 0x00;
const OP_SUBTRACT: u8 = 0x10;
const OP_MULTIPLY: u8 = 0x20;
const OP_OR: u8 = 0x40;
const OP_AND: u8 = 0x50;
const OP_SHIFT_LEFT: u8 = 0x60;
const OP_SHIFT_RIGHT: u8 = 0x70;
const OP_MODULO: u8 = 0x90;
const OP_XOR: u8 = 0xa0;
const OP_MOVE: u8 = 0xb0;
const OP_TO_LITTLE_ENDIAN: u8 = 0xd0;
const OP_TO_NETWORK: u8 = 0xd8;
const JUMP_ALWAYS: u8 = 0x00;
const JUMP_EQUAL: u8 = 0x10;
const JUMP_GREATER: u8 = 0x20;
const JUMP_GREATER_OR_EQUAL: u8 = 0x30;
const JUMP_UNEQUAL: u8 = 0x50;
const JUMP_CALL: u8 = 0x80;
const JUMP_EXIT: u8 = 0x90;

// Values of the source register field. The immediate of the load is the descriptor of a map; the instruction
// loads the map, or the address of the map's first value.
const PSEUDO_MAP_FD: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;

/// A program under construction.
#[derive(Debug, Default)]
pub struct Assembler {
    code: Vec<Instruction>,
    /// Position of each placed label.
    places: Vec<Option<usize>>,
    /// Jumps whose offsets are not filled in yet, with their targets.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    /// Creates a new label, to be placed once.
    pub fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// Places a label before the next instruction.
    ///
    /// # Panics
    /// The label has already been placed.
    pub fn place(&mut self, label: Label) {
        let before = self.places[label.0].replace(self.code.len());
        assert!(before.is_none(), "a label is placed once");
    }

    fn push(&mut self, code: u8, destination: Register, source: u8, offset: i16, immediate: i32) {
        let destination = destination.number();
        // The kernel's structure stores the two registers as bit fields, whose order depends on the byte
        // order.
        let registers = if cfg!(target_endian = "little") {
            destination | source << 4
        } else {
            destination << 4 | source
        };
        self.code.push(Instruction { code, registers, offset, immediate });
    }

    fn push_jump(&mut self, code: u8, left: Register, right: u8, number: u32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(code, left, right, 0, number as i32);
    }

    /// `to = from[offset..]`, zero-extended, in the byte order of this machine.
    pub fn load(&mut self, width: Width, to: Register, from: Register, offset: i16) {
        self.push(CLASS_LOAD | width.code() | MODE_MEMORY, to, from.number(), offset, 0);
    }

    /// `to[offset..] = from`, in the byte order of this machine.
    pub fn store(&mut self, width: Width, to: Register, offset: i16, from: Register) {
        self.push(CLASS_STORE | width.code() | MODE_MEMORY, to, from.number(), offset, 0);
    }

    /// `to = from`.
    pub fn copy(&mut self, to: Register, from: Register) {
        self.push(CLASS_ALU64 | OP_MOVE | SOURCE_REGISTER, to, from.number(), 0, 0);
    }

    /// `to = number`, where the number is a signed 32-bit integer.
    pub fn set(&mut self, to: Register, number: u32) {
        self.push(CLASS_ALU64 | OP_MOVE, to, 0, 0, number as i32);
    }

    /// `to += number`.
    pub fn add(&mut self, to: Register, number: u32) {
        self.push(CLASS_ALU64 | OP_ADD, to, 0, 0, number as i32);
    }

    /// `to &= number`.
    pub fn and(&mut self, to: Register, number: u32) {
        self.push(CLASS_ALU64 | OP_AND, to, 0, 0, number as i32);
    }

    /// `to += from`.
    pub fn add_register(&mut self, to: Register, from: Register) {
        self.push(CLASS_ALU64 | OP_ADD | SOURCE_REGISTER, to, from.number(), 0, 0);
    }

    /// `to -= from`.
    pub fn subtract_register(&mut self, to: Register, from: Register) {
        self.push(CLASS_ALU64 | OP_SUBTRACT | SOURCE_REGISTER, to, from.number(), 0, 0);
    }

    /// `to |= from`.
    pub fn or_register(&mut self, to: Register, from: Register) {
        self.push(CLASS_ALU64 | OP_OR | SOURCE_REGISTER, to, from.number(), 0, 0);
    }

    /// `to <<= bits`.
    pub fn shift_left(&mut self, to: Register, bits: u32) {
        self.push(CLASS_ALU64 | OP_SHIFT_LEFT, to, 0, 0, bits as i32);
    }

    /// XORs the lower 32 bits of `from` into those of `to`. The upper bits of `to` become 0.
    pub fn xor_register_32(&mut self, to: Register, from: Register) {
        self.push(CLASS_ALU | OP_XOR | SOURCE_REGISTER, to, from.number(), 0, 0);
    }

    /// Sets `to` to the lower 32 bits of `to * number`.
    pub fn multiply_32(&mut self, to: Register, number: u32) {
        self.push(CLASS_ALU | OP_MULTIPLY, to, 0, 0, number as i32);
    }

    /// Sets `to` to this 32-bit number, zero-extended. [`Assembler::set`] sign-extends.
    pub fn set_32(&mut self, to: Register, number: u32) {
        self.push(CLASS_ALU | OP_MOVE, to, 0, 0, number as i32);
    }

    /// `to *= number`.
    pub fn multiply(&mut self, to: Register, number: u32) {
        self.push(CLASS_ALU64 | OP_MULTIPLY, to, 0, 0, number as i32);
    }

    /// `to >>= bits`.
    pub fn shift_right(&mut self, to: Register, bits: u32) {
        self.push(CLASS_ALU64 | OP_SHIFT_RIGHT, to, 0, 0, bits as i32);
    }

    /// `to %= number`. The number must not be 0.
    pub fn modulo(&mut self, to: Register, number: u32) {
        self.push(CLASS_ALU64 | OP_MODULO, to, 0, 0, number as i32);
    }

    /// Converts four loaded bytes from little-endian order.
    pub fn read_lowest_first(&mut self, register: Register) {
        if cfg!(target_endian = "big") {
            self.push(CLASS_ALU | OP_TO_LITTLE_ENDIAN, register, 0, 0, 32);
        }
    }

    /// Converts four loaded bytes from network order.
    pub fn read_network_order(&mut self, register: Register) {
        self.push(CLASS_ALU | OP_TO_NETWORK, register, 0, 0, 32);
    }

    /// Jumps to the label.
    pub fn jump(&mut self, to: Label) {
        self.push_jump(CLASS_JUMP | JUMP_ALWAYS, Register::R0, 0, 0, to);
    }

    /// Jumps to the label if the register's lower 32 bits are this number.
    pub fn jump_if(&mut self, register: Register, number: u32, to: Label) {
        self.push_jump(CLASS_JUMP32 | JUMP_EQUAL, register, 0, number, to);
    }

    /// Jumps to the label unless the register's lower 32 bits are this number.
    pub fn jump_unless(&mut self, register: Register, number: u32, to: Label) {
        self.push_jump(CLASS_JUMP32 | JUMP_UNEQUAL, register, 0, number, to);
    }

    /// Jumps to the label if the left register is greater than the right one (unsigned).
    pub fn jump_if_greater(&mut self, left: Register, right: Register, to: Label) {
        self.push_jump(CLASS_JUMP | JUMP_GREATER | SOURCE_REGISTER, left, right.number(), 0, to);
    }

    /// Jumps to the label if the left register is greater than or equal to the right one (unsigned).
    pub fn jump_if_not_less(&mut self, left: Register, right: Register, to: Label) {
        self.push_jump(CLASS_JUMP | JUMP_GREATER_OR_EQUAL | SOURCE_REGISTER, left, right.number(), 0, to);
    }

    /// Jumps to the label if the registers are equal.
    pub fn jump_if_same(&mut self, left: Register, right: Register, to: Label) {
        self.push_jump(CLASS_JUMP | JUMP_EQUAL | SOURCE_REGISTER, left, right.number(), 0, to);
    }

    /// Jumps to the label unless the registers are equal.
    pub fn jump_unless_same(&mut self, left: Register, right: Register, to: Label) {
        self.push_jump(CLASS_JUMP | JUMP_UNEQUAL | SOURCE_REGISTER, left, right.number(), 0, to);
    }

    /// Jumps to the label if the whole 64-bit register equals this number, which must be below 2^31.
    pub fn jump_if_is(&mut self, register: Register, number: u32, to: Label) {
        self.push_jump(CLASS_JUMP | JUMP_EQUAL, register, 0, number, to);
    }

    /// Jumps to the label if the register is greater (unsigned) than this number, which must be below 2^31.
    pub fn jump_if_above(&mut self, register: Register, number: u32, to: Label) {
        self.push_jump(CLASS_JUMP | JUMP_GREATER, register, 0, number, to);
    }

    /// Sets `to` to the address of the value in this map, which is an array with one element. Takes two
    /// instructions.
    pub fn load_value_address(&mut self, to: Register, descriptor: i32) {
        let code = CLASS_LOAD_DOUBLE | WIDTH_DOUBLE;
        self.push(code, to, PSEUDO_MAP_VALUE, 0, descriptor);
        self.push(0, Register::R0, 0, 0, 0);
    }

    /// Sets `to` to the map with this descriptor. Takes two instructions.
    pub fn load_map(&mut self, to: Register, descriptor: i32) {
        let code = CLASS_LOAD_DOUBLE | WIDTH_DOUBLE;
        self.push(code, to, PSEUDO_MAP_FD, 0, descriptor);
        self.push(0, Register::R0, 0, 0, 0);
    }

    /// Calls a helper of the kernel by its number.
    pub fn call(&mut self, helper: u32) {
        self.push(CLASS_JUMP | JUMP_CALL, Register::R0, 0, 0, helper as i32);
    }

    /// Ends the program. Its result is R0.
    pub fn exit(&mut self) {
        self.push(CLASS_JUMP | JUMP_EXIT, Register::R0, 0, 0, 0);
    }

    /// Returns the program, with every jump resolved.
    ///
    /// # Panics
    /// The label of a jump was not placed after the jump, or a jump is too long for 16 bits.
    #[must_use]
    pub fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let target = self.places[label.0].expect("a label that is jumped to is placed");
            assert!(target > at && target < self.code.len(), "jumps go forward, to an instruction");
            self.code[at].offset =
                i16::try_from(target - at - 1).expect("a program of less than 32,768 instructions");
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
    use super::*;

    /// Returns each instruction's opcode, destination, source, offset and immediate.
    fn fields(program: &[Instruction]) -> Vec<(u8, u8, u8, i16, i32)> {
        let half =
            |byte: u8, low: bool| if low == cfg!(target_endian = "little") { byte & 15 } else { byte >> 4 };
        let of = |i: &Instruction| {
            (i.code, half(i.registers, true), half(i.registers, false), i.offset, i.immediate)
        };
        program.iter().map(of).collect()
    }

    #[test]
    fn each_call_is_the_instruction_that_the_kernel_documents() {
        // Opcodes as in the kernel's "BPF Instruction Set Architecture".
        let mut program = Assembler::default();
        program.load(Width::One, R1, R7, 23);
        program.load(Width::Two, R1, R7, 12);
        program.load(Width::Four, R8, R6, 4);
        program.copy(R2, R7);
        program.set(R0, 2);
        program.add(R2, 42);
        program.and(R1, 0xff3f);
        program.load_map(R1, 9);
        program.load_value_address(R9, 10);
        program.load(Width::Eight, R4, R9, 24);
        program.store(Width::Eight, R10, -8, R5);
        program.store(Width::Four, R9, 8, R1);
        program.subtract_register(R1, R2);
        program.or_register(R1, R2);
        program.shift_left(R1, 63);
        program.xor_register_32(R3, R1);
        program.multiply_32(R3, 0x9e37_79b1);
        program.set_32(R3, u32::MAX);
        program.call(51);
        program.exit();
        let expected = [
            (0x71, 1, 7, 23, 0),
            (0x69, 1, 7, 12, 0),
            (0x61, 8, 6, 4, 0),
            (0xbf, 2, 7, 0, 0),
            (0xb7, 0, 0, 0, 2),
            (0x07, 2, 0, 0, 42),
            (0x57, 1, 0, 0, 0xff3f),
            (0x18, 1, 1, 0, 9),
            (0x00, 0, 0, 0, 0),
            (0x18, 9, 2, 0, 10),
            (0x00, 0, 0, 0, 0),
            (0x79, 4, 9, 24, 0),
            (0x7b, 10, 5, -8, 0),
            (0x63, 9, 1, 8, 0),
            (0x1f, 1, 2, 0, 0),
            (0x4f, 1, 2, 0, 0),
            (0x67, 1, 0, 0, 63),
            (0xac, 3, 1, 0, 0),
            (0x24, 3, 0, 0, 0x9e37_79b1_u32 as i32),
            (0xb4, 3, 0, 0, -1),
            (0x85, 0, 0, 0, 51),
            (0x95, 0, 0, 0, 0),
        ];
        assert_eq!(fields(&program.finish()), expected);
    }

    #[test]
    fn jumps_count_the_instructions_that_they_skip() {
        let mut program = Assembler::default();
        let (near, far) = (program.label(), program.label());
        program.jump_if(R1, 7, near);
        program.jump_unless(R1, u32::MAX, far);
        program.jump_if_greater(R2, R8, far);
        program.jump_if_not_less(R2, R8, far);
        program.jump_if_same(R2, R8, far);
        program.jump_unless_same(R2, R8, far);
        program.jump_if_is(R2, 5, far);
        program.jump_if_above(R2, 5, far);
        program.place(near);
        program.jump(far);
        program.set(R0, 0);
        program.place(far);
        program.exit();
        let expected = [
            (0x16, 1, 0, 7, 7),
            (0x56, 1, 0, 8, -1),
            (0x2d, 2, 8, 7, 0),
            (0x3d, 2, 8, 6, 0),
            (0x1d, 2, 8, 5, 0),
            (0x5d, 2, 8, 4, 0),
            (0x15, 2, 0, 3, 5),
            (0x25, 2, 0, 2, 5),
            (0x05, 0, 0, 1, 0),
            (0xb7, 0, 0, 0, 0),
            (0x95, 0, 0, 0, 0),
        ];
        assert_eq!(fields(&program.finish()), expected);
    }

    #[test]
    #[should_panic(expected = "is placed")]
    fn a_jump_to_nowhere_is_a_mistake() {
        let mut program = Assembler::default();
        let nowhere = program.label();
        program.jump(nowhere);
        let _ = program.finish();
    }
}
