//! The bytes of a program, read from the front. Changing a byte changes one choice, and no choice before it.

pub struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the next byte; 0 beyond the end.
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        first
    }

    /// Returns the next `N` bytes as a number, big-endian.
    pub fn number<const N: usize>(&mut self) -> u64 {
        (0..N).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    /// Returns up to `len` bytes.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(len.min(self.bytes.len()));
        self.bytes = rest;
        taken
    }

    /// Returns a number below `end`, which is at most 256.
    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end.max(1)
    }

    /// Returns one of `choices`, at most 256 of them.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Returns a length, offset or end: mostly a boundary value, else any.
    pub fn size(&mut self) -> u32 {
        const SIZES: [u32; 14] =
            [1, 0, 2, 99, 1_000, 1_424, 1_425, 5_000, 10_000, 20_000, 40_000, 65_536, 100_000, 1_000_001];
        match self.byte() {
            at @ 0..=223 => SIZES[usize::from(at) % SIZES.len()],
            224..=251 => self.number::<2>() as u32,
            _ => self.number::<4>() as u32,
        }
    }
}
