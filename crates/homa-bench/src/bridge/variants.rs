//! The ways of building a bridge that are compared.

/// Where packets are stored between the receiving and the sending device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// In the memory shared by both devices, where the kernel has written the packet: nothing is copied.
    Shared,
    /// In a new allocation per packet, with a copy in and a copy out.
    Allocator,
    /// In reused buffers, with a copy in and a copy out.
    Pool,
    /// Like [`Memory::Pool`], but the headers are also copied to a dense array from which the lookup reads.
    Apart,
}

/// Granularity of the locks around shared state: the address table, and the packet queue between two threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// No lock: the table has one owner, and the packet queue is a channel.
    None,
    /// A lock for each burst.
    Burst,
    /// A lock for each packet.
    Packet,
}

/// The threads that forward packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardingThreads {
    /// One thread receives a burst, looks up destinations, and sends.
    One,
    /// One thread receives bursts and looks up destinations. Another thread on the same processor sends.
    HandOver,
    /// Two threads on two processors, one per device. The second thread shares the source's processor.
    HandOverApart,
    /// The kernel's bridge.
    Kernel,
}

/// A way to build a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Name on the command line and in the JSON.
    pub name: &'static str,
    /// Description in the table.
    pub text: &'static str,
    /// Maximum number of packets received at a time.
    pub burst: usize,
    /// Where packets are stored.
    pub memory: Memory,
    /// Granularity of the locks.
    pub lock: Lock,
    /// Whether the headers of a burst are prefetched.
    pub prefetch: bool,
    /// Whether frames arrive from both sides.
    pub both: bool,
    /// The threads that forward packets.
    pub work: ForwardingThreads,
}

/// The variant with which all others are compared.
pub const BASELINE: Variant = Variant {
    name: "burst-32",
    text: "bursts of 32, to completion, no lock",
    burst: 32,
    memory: Memory::Shared,
    lock: Lock::None,
    prefetch: false,
    both: false,
    work: ForwardingThreads::One,
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

const fn separate(name: &'static str, text: &'static str, burst: usize, lock: Lock) -> Variant {
    Variant {
        name,
        text,
        burst,
        lock,
        memory: Memory::Pool,
        work: ForwardingThreads::HandOverApart,
        ..BASELINE
    }
}

/// All variants, in the order of the table.
pub const VARIANTS: [Variant; 19] = [
    BASELINE,
    burst("burst-1", "bursts of 1", 1),
    burst("burst-8", "bursts of 8", 8),
    burst("burst-64", "bursts of 64", 64),
    locked("lock-burst", "a lock for each burst", Lock::Burst),
    locked("lock-packet", "a lock for each packet", Lock::Packet),
    memory("pool", "copied to pooled buffers", Memory::Pool),
    memory("allocator", "copied to allocated buffers", Memory::Allocator),
    memory("apart", "pooled buffers, headers apart", Memory::Apart),
    Variant { name: "prefetch", text: "headers prefetched", prefetch: true, ..BASELINE },
    Variant { name: "both", text: "both directions", both: true, ..BASELINE },
    Variant {
        name: "handover",
        text: "handed to a second thread, same core",
        memory: Memory::Pool,
        work: ForwardingThreads::HandOver,
        ..BASELINE
    },
    separate("handover-2", "handed to the other core", 32, Lock::None),
    separate("handover-2-burst-1", "  one by one", 1, Lock::None),
    separate("handover-2-lock-burst", "  a lock for each burst", 32, Lock::Burst),
    separate("handover-2-lock-packet", "  a lock for each packet", 32, Lock::Packet),
    Variant { both: true, ..separate("both-2", "both directions, two cores", 32, Lock::Burst) },
    Variant { both: true, ..separate("both-2-lock-packet", "  a lock for each packet", 32, Lock::Packet) },
    Variant { name: "linux", text: "the kernel's bridge", work: ForwardingThreads::Kernel, ..BASELINE },
];

/// Published results (2004, dual-processor machines) for the same questions. The kernel's bridge forwarded
/// half a million packets per second at that time. Entries without figures were not measured.
pub const THEN: [(&str, &str); 7] = [
    (
        "bursts",
        "A driver that passed lists instead of single packets to the kernel raised a bridge from 500,000 to 540,000 packets per second, \
         slightly more than its lock had cost: fewer locks, fewer calls, and loops that fit the instruction cache.",
    ),
    (
        "locks",
        "Without the locks of the bridge's path, which is unsafe, it reached 700,000: 40 % more. The previous release, which had no fine-grained \
         locks, was still faster.",
    ),
    (
        "packet memory",
        "Most of the remaining time went into allocating and freeing packets and preparing them for the device. Pools for each processor, and \
         taking several buffers at once, were expected to help.",
    ),
    (
        "headers apart",
        "Bridge-like applications profited from allocating a packet's descriptor separately from its data, and only after the data had arrived: \
         few descriptors are in use, they stay in the cache, and data is loaded into the cache once instead of twice.",
    ),
    ("prefetch", "Expected to help if packets arrive as lists; not measured."),
    (
        "a second thread",
        "It was an open question whether to finish packets in the receiving thread or to hand them to other threads. The sizes of batches at \
         each hand-over were considered relevant; they are counted here.",
    ),
    (
        "both directions",
        "Measured with both directions at once, by polling, which used one processor at a time. Interrupts were equally fast, but livelocked \
         under overload.",
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
