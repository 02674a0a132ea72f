//! What the time of an RPC goes to.

macro_rules! causes {
    ($($(#[doc = $doc:literal])+ $name:ident, $label:literal, $kind:ident, $says:literal, $hint:literal;)+) => {
        /// What a nanosecond of an RPC's duration went to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Cause {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Cause {
            /// Every cause, in the order of an RPC's way.
            pub const ALL: &'static [Cause] = &[$(Cause::$name),+];
            /// How many there are.
            pub const COUNT: usize = Cause::ALL.len();

            /// Its stable name, in lower case with underscores.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Cause::$name => $label,)+ }
            }

            /// Whether an RPC that nothing disturbs has some of it.
            #[must_use]
            pub const fn kind(self) -> Kind {
                match self { $(Cause::$name => Kind::$kind,)+ }
            }

            /// What happened, as the end of a sentence that says how much of the delay it is.
            #[must_use]
            pub const fn says(self) -> &'static str {
                match self { $(Cause::$name => $says,)+ }
            }

            /// What to do about it.
            #[must_use]
            pub const fn hint(self) -> &'static str {
                match self { $(Cause::$name => $hint,)+ }
            }
        }
    };
}

impl Cause {
    /// Whether it is how it shows that the thread that drives a host runs too late: which of these it is depends on what was to be done just
    /// then, so that at one host they have one cause.
    #[must_use]
    pub const fn is_late_thread(self) -> bool {
        use Cause::{GrantLate, NotRunning, ReadGap, SenderLate, Submit, Wakeup};
        matches!(self, Submit | SenderLate | GrantLate | ReadGap | NotRunning | Wakeup)
    }
}

/// How much of a cause an RPC has that nothing disturbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All of it: it is defined as what cannot be avoided.
    Inherent,
    /// As much as the least disturbed RPCs of its size.
    Usual,
    /// Nothing of it.
    Avoidable,
}

causes! {
    /// From the application's call until the endpoint has the message.
    Submit, "submit", Usual,
        "a message waited between the application's call and the endpoint",
        "the thread that drives was busy or asleep: give it a core of its own, or more endpoints";
    /// Its packet could have gone, and packets of other messages went first: SRPT or the FIFO share, on a busy link.
    SenderQueue, "sender_queue", Avoidable,
        "packets of other messages went first at the sender (SRPT)",
        "the sender's link is busy: spread its load over more hosts or a faster link; long messages wait by design";
    /// Its own packets before, at the rate of the link.
    Transmit, "transmit", Inherent,
        "its own packets took their time on the link",
        "only a faster link or smaller messages help";
    /// The pacer held packets back for longer than the link needed.
    Pacer, "pacer", Avoidable,
        "the pacer held packets back although the link was free",
        "the link rate that the sender was told is too low, or its margin too large: compare link_mbps with the real rate";
    /// The driver took no more packets.
    DriverFull, "driver_full", Avoidable,
        "the driver took no more packets",
        "enlarge the socket's send buffer or the device's transmit ring";
    /// Nothing held the packet back, and the sender sent nothing.
    SenderLate, "sender_late", Usual,
        "the sender could have sent and did not: its endpoint was not driven",
        "the thread that drives was busy or not scheduled: see `homa jitter` and `homa doctor` on that host";
    /// The sender had used up its grant, and the next came as soon as its bytes had arrived: a round trip for a window.
    GrantWindow, "grant_window", Avoidable,
        "the sender had sent its whole window and the next grant was still on its way: the window is too small",
        "raise the window and the unscheduled bytes to those of a round trip: see `homa trace rtt-bytes`";
    /// The receiver granted to other messages first, or was at its limit of incoming bytes.
    GrantChoice, "grant_receiver_choice", Avoidable,
        "the receiver granted to other messages first, or was at its limit (SRPT, overcommitment)",
        "long messages wait by design; a larger overcommitment or max_incoming keeps more senders busy";
    /// The receiver had all that it needed to grant, granted nothing to others, and did nothing.
    GrantLate, "grant_receiver_late", Avoidable,
        "the receiver could have granted and did not: its endpoint was not driven",
        "the thread that drives was busy or not scheduled: see `homa jitter` and `homa doctor` on that host";
    /// From the endpoint's making of a packet until the driver has taken its burst.
    SendBatch, "send_batch", Usual,
        "packets waited in the sender for their burst to go to the driver",
        "the driver's send call is slow: see `homa trace delays`";
    /// From the driver until the device sent it.
    DeviceOut, "device_out", Usual,
        "packets waited in the sender's kernel or device",
        "other traffic fills the device's queue (lower max_nic_backlog_ns, or tell the pacer the right link rate), or another process has the core on which the kernel sends: see `homa jitter`";
    /// Propagation and serialisation: the least time of such packets on that way.
    Network, "network", Inherent,
        "the network's own delay",
        "only a shorter or faster network helps";
    /// More than the least time in a switch's port.
    SwitchQueue, "switch_queue", Avoidable,
        "packets stood in a switch's queue",
        "that port is overloaded by traffic that is not granted, or not in its priority: see who sends through it, and whether the switch keeps priorities";
    /// More than the least time on a way on which no trace tells the switch from the hosts.
    NetworkQueue, "network_queue", Avoidable,
        "packets stood in a queue between sender and receiver",
        "a switch's trace or device time stamps would tell which queue: record them";
    /// The packet was at the receiver's device, and its driver was not read.
    ReadGap, "read_gap", Usual,
        "packets waited at the receiver until its driver was read",
        "the thread that drives polls too seldom, sleeps, or shares its core: busy-poll, or give it a core of its own";
    /// The thread that drives was not running although it was not asleep.
    NotRunning, "not_running", Avoidable,
        "the thread that drives was stopped or preempted",
        "another process has that core, or it was stopped: pin the process to cores of its own, see `homa jitter`";
    /// Packets before it in its burst, and its own.
    Processing, "processing", Usual,
        "packets were processed slowly, or behind many others of their burst",
        "more endpoints, each on its core, take shorter bursts";
    /// A packet was lost; from its first sending until it was sent again.
    LossWait, "loss_wait", Avoidable,
        "a packet was lost, and its receiver waited before it asked again",
        "find where packets are dropped: `homa trace lost`";
    /// The whole message was there and the application had not yet asked for it.
    AppQueue, "app_queue", Usual,
        "complete messages waited for the application to take them",
        "the application is busy: more threads or more servers";
    /// A thread was woken and did not yet run.
    Wakeup, "wakeup", Usual,
        "a woken thread took long to run",
        "deep C-states or a busy core: poll instead of sleeping, or see `homa doctor`";
    /// The server's application, from taking the request to handing over the response.
    ServerApp, "server_app", Usual,
        "the server's application took long",
        "look at the application itself";
    /// The traces do not say.
    Unexplained, "unexplained", Usual,
        "the traces do not say",
        "record traces on every host, and with more records";
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// An amount of each cause, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amounts(pub [u64; Cause::COUNT]);

impl Default for Amounts {
    fn default() -> Amounts {
        Amounts([0; Cause::COUNT])
    }
}

impl Amounts {
    /// All of it, in nanoseconds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds another's to each.
    pub fn add(&mut self, other: &Amounts) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, ns)| *sum += ns);
    }

    /// The largest, and how much that is.
    #[must_use]
    pub fn largest(&self) -> (Cause, u64) {
        let pairs = Cause::ALL.iter().map(|cause| (*cause, self[*cause]));
        pairs.fold((Cause::Unexplained, 0), |most, one| if one.1 > most.1 { one } else { most })
    }
}

impl std::ops::Index<Cause> for Amounts {
    type Output = u64;

    fn index(&self, cause: Cause) -> &u64 {
        &self.0[cause as usize]
    }
}

impl std::ops::IndexMut<Cause> for Amounts {
    fn index_mut(&mut self, cause: Cause) -> &mut u64 {
        &mut self.0[cause as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_their_own_and_plain() {
        let names: std::collections::BTreeSet<&str> = Cause::ALL.iter().map(|cause| cause.name()).collect();
        assert_eq!(names.len(), Cause::COUNT);
        assert!(names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')));
    }

    #[test]
    fn the_largest_is_found_and_everything_is_summed() {
        let mut amounts = Amounts::default();
        assert_eq!(amounts.largest(), (Cause::Unexplained, 0));
        amounts[Cause::Pacer] = 3;
        amounts[Cause::LossWait] = 7;
        assert_eq!((amounts.largest(), amounts.total()), ((Cause::LossWait, 7), 10));
    }
}
