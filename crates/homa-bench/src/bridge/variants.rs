//! The ways to build a bridge that are compared.

/// Where a packet lies between the device that it came by and the one that it leaves by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Where the kernel has put it, in memory that both devices share: nothing is copied.
    Shared,
    /// In memory asked for and given back for each packet, with a copy in and a copy out.
    Allocator,
    /// The same in buffers that are used again.
    Pool,
    /// The same with a second copy of its headers in a dense array, which the decision reads instead.
    Apart,
}

/// How often the lock of what all threads need is taken: of the table of addresses, or of the line between two threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Never: the table has one owner, the line is a channel.
    None,
    /// For each burst.
    Burst,
    /// For each packet.
    Packet,
}

/// Who does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// One thread takes a burst, decides, and sends.
    Complete,
    /// One thread takes bursts and decides, another sends, both on one processor.
    HandOver,
    /// The same on two processors, a device each. The second one is that of the source.
    HandOverApart,
    /// The kernel.
    Kernel,
}

/// A way to build a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// On the command line and in the JSON.
    pub name: &'static str,
    /// In the table.
    pub text: &'static str,
    /// Packets taken at a time, at most.
    pub burst: usize,
    /// Where packets lie.
    pub memory: Memory,
    /// How often a lock is taken.
    pub lock: Lock,
    /// The headers of a burst are asked for before they are read.
    pub prefetch: bool,
    /// Frames come from both sides.
    pub both: bool,
    /// Who does it.
    pub work: Work,
}

/// What all others are held against.
pub const BASELINE: Variant = Variant {
    name: "burst-32",
    text: "bursts of 32, to completion, no lock",
    burst: 32,
    memory: Memory::Shared,
    lock: Lock::None,
    prefetch: false,
    both: false,
    work: Work::Complete,
};

const fn burst(name: &'static str, text: &'static str, burst: usize) -> Variant {
    Variant { name, text, burst, ..BASELINE }
}

const fn locked(name: &'static str, text: &'static str, lock: Lock) -> Variant {
    Variant { name, text, lock, ..BASELINE }
}

const fn memory(name: &'static str, text: &'static str, memory: Memory) -> Variant {
    Variant { name, text, memory, ..BASELINE }
}

const fn apart(name: &'static str, text: &'static str, burst: usize, lock: Lock) -> Variant {
    Variant { name, text, burst, lock, memory: Memory::Pool, work: Work::HandOverApart, ..BASELINE }
}

/// All of them, in the order of the table.
pub const VARIANTS: [Variant; 19] = [
    BASELINE,
    burst("burst-1", "bursts of 1", 1),
    burst("burst-8", "bursts of 8", 8),
    burst("burst-64", "bursts of 64", 64),
    locked("lock-burst", "a lock for each burst", Lock::Burst),
    locked("lock-packet", "a lock for each packet", Lock::Packet),
    memory("pool", "copied to memory of a pool", Memory::Pool),
    memory("allocator", "copied to memory of the allocator", Memory::Allocator),
    memory("apart", "the pool, headers apart", Memory::Apart),
    Variant { name: "prefetch", text: "headers prefetched", prefetch: true, ..BASELINE },
    Variant { name: "both", text: "both directions", both: true, ..BASELINE },
    Variant {
        name: "handover",
        text: "handed to a second thread, same core",
        memory: Memory::Pool,
        work: Work::HandOver,
        ..BASELINE
    },
    apart("handover-2", "handed to the other core", 32, Lock::None),
    apart("handover-2-burst-1", "  one by one", 1, Lock::None),
    apart("handover-2-lock-burst", "  a lock for each burst", 32, Lock::Burst),
    apart("handover-2-lock-packet", "  a lock for each packet", 32, Lock::Packet),
    Variant { both: true, ..apart("both-2", "both directions, two cores", 32, Lock::Burst) },
    Variant { both: true, ..apart("both-2-lock-packet", "  a lock for each packet", 32, Lock::Packet) },
    Variant { name: "linux", text: "the kernel's bridge", work: Work::Kernel, ..BASELINE },
];

/// What was found of the same question on machines of two processors in 2004, with a kernel's bridge that forwarded half a million packets a
/// second, and where nothing is named, nobody had measured it.
pub const THEN: [(&str, &str); 7] = [
    (
        "bursts",
        "A driver that handed the kernel lists instead of single packets took a bridge from 500,000 packets a second to 540,000, a \
         little more than its lock alone had cost: fewer locks, fewer calls, and loops that fit the instruction cache.",
    ),
    (
        "locks",
        "Without the locks of the bridge's path, unsafely, it was 700,000: 40 % more. Even so it stayed below the release before, which had \
         no fine locks.",
    ),
    (
        "packet memory",
        "Most of what was left was to allocate and free packets and to prepare them for the device. Pools for each processor, several \
         buffers taken at once, were expected to help.",
    ),
    (
        "headers apart",
        "In applications like a bridge it worked well to allocate what describes a packet apart from its data, and only once the data had \
         come: few descriptions are in use, they stay in the cache, and data is brought there once instead of twice.",
    ),
    ("prefetch", "Expected to help once packets come as lists; not measured."),
    (
        "a second thread",
        "Whether to finish packets where they come or to hand them to threads of their own was an open question, for which somebody asked \
         for the sizes of batches at each place where packets are handed over: they are counted here.",
    ),
    (
        "both directions",
        "Measured with both at once, by polling, which used one processor at a time. Interrupts were as fast, and livelocked when more came \
         than could be handled.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_their_own_and_every_variant_differs_from_the_baseline_in_something() {
        let mut names: Vec<&str> = VARIANTS.iter().map(|variant| variant.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), VARIANTS.len());
        for variant in &VARIANTS[1..] {
            let same = Variant { name: BASELINE.name, text: BASELINE.text, ..*variant };
            assert_ne!(same, BASELINE, "{}", variant.name);
        }
    }
}
