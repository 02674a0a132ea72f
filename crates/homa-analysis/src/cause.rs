//! Causes of an RPC's duration.

macro_rules! causes {
    ($($(#[doc = $doc:literal])+ $name:ident, $label:literal, $kind:ident, $says:literal, $hint:literal;)+) => {
        /// The cause to which a nanosecond of an RPC's duration is attributed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Cause {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Cause {
            /// All causes, in the order of an RPC's path.
            pub const ALL: &'static [Cause] = &[$(Cause::$name),+];
            /// Number of causes.
            pub const COUNT: usize = Cause::ALL.len();

            /// Returns the stable name, in lower case with underscores.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Cause::$name => $label,)+ }
            }

            /// Returns how much of this cause an undisturbed RPC has.
            #[must_use]
            pub const fn kind(self) -> Kind {
                match self { $(Cause::$name => Kind::$kind,)+ }
            }

            /// Returns the cause as the end of a sentence that states its share of the delay.
            #[must_use]
            pub const fn says(self) -> &'static str {
                match self { $(Cause::$name => $says,)+ }
            }

            /// Returns the remedy.
            #[must_use]
            pub const fn hint(self) -> &'static str {
                match self { $(Cause::$name => $hint,)+ }
            }
        }
    };
}

impl Cause {
    /// Returns whether the cause is a symptom of a late driving thread. Which of these causes appears depends
    /// on what the thread was doing at that time, so they count as one cause for each host.
    #[must_use]
    pub const fn is_late_thread(self) -> bool {
        use Cause::{GrantLate, NotRunning, ReadGap, SenderLate, Submit, Wakeup};
        matches!(self, Submit | SenderLate | GrantLate | ReadGap | NotRunning | Wakeup)
    }
}

/// How much of a cause an undisturbed RPC has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All of it: the cause is unavoidable.
    Inherent,
    /// As much as the least disturbed RPCs of its size.
    Usual,
    /// None of it.
    Avoidable,
}

causes! {
    /// Time from the application's call until the endpoint has the message.
    Submit, "submit", Usual,
        "a message waited between the application's call and the endpoint",
        "the driving thread was busy or asleep: give it a core of its own, or configure more endpoints";
    /// The packet could have been sent, but packets of other messages had precedence on a busy link, because
    /// of SRPT or the FIFO share.
    SenderQueue, "sender_queue", Avoidable,
        "packets of other messages went first at the sender (SRPT)",
        "the sender's link is busy: spread its load over more hosts or a faster link; long messages wait by design";
    /// Transmission of the message's own earlier packets, at the rate of the link.
    Transmit, "transmit", Inherent,
        "the message's own packets took their time on the link",
        "only a faster link or smaller messages help";
    /// The pacer held packets back for longer than the link needed.
    Pacer, "pacer", Avoidable,
        "the pacer held packets back although the link was free",
        "the sender's configured link rate is too low, or its margin too large: compare link_mbps with the real rate";
    /// The driver accepted no more packets.
    DriverFull, "driver_full", Avoidable,
        "the driver took no more packets",
        "enlarge the socket's send buffer or the device's transmit ring";
    /// Nothing held the packet back, but the sender sent nothing.
    SenderLate, "sender_late", Usual,
        "the sender could have sent and did not: its endpoint was not driven",
        "the driving thread was busy or not scheduled: see `homa jitter` and `homa doctor` on that host";
    /// The sender had used up its grant, and the next grant was sent as soon as the granted bytes had
    /// arrived: one round trip per window.
    GrantWindow, "grant_window", Avoidable,
        "the sender had sent its whole window and the next grant was still on its way: the window is too small",
        "raise the window and the unscheduled bytes to those of a round trip: see `homa trace rtt-bytes`";
    /// The receiver granted to other messages first, or was at its limit on incoming bytes.
    GrantChoice, "grant_receiver_choice", Avoidable,
        "the receiver granted to other messages first, or was at its limit (SRPT, overcommitment)",
        "long messages wait by design; a larger overcommitment or max_incoming keeps more senders busy";
    /// The receiver could have granted, but did nothing: it did not grant to other messages either.
    GrantLate, "grant_receiver_late", Avoidable,
        "the receiver could have granted and did not: its endpoint was not driven",
        "the driving thread was busy or not scheduled: see `homa jitter` and `homa doctor` on that host";
    /// Time from the creation of a packet in the endpoint until the driver has accepted its burst.
    SendBatch, "send_batch", Usual,
        "packets waited in the sender for their burst to go to the driver",
        "the driver's send call is slow: see `homa trace delays`";
    /// Time from the end of [`Cause::SendBatch`] until the device sent the packet.
    DeviceOut, "device_out", Usual,
        "packets waited in the sender's kernel or device",
        "other traffic fills the device's queue (lower max_nic_backlog_ns, or configure the right link rate), or another process occupies the core on which the kernel sends: see `homa jitter`";
    /// Propagation and serialization: the minimum time of similar packets on the same path.
    Network, "network", Inherent,
        "the network's own delay",
        "only a shorter or faster network helps";
    /// Time in excess of the minimum in a switch's port.
    SwitchQueue, "switch_queue", Avoidable,
        "packets waited in a switch's queue",
        "that port is overloaded by unscheduled traffic, or by traffic of a wrong priority: check its senders, and whether the switch keeps priorities";
    /// Time in excess of the minimum on a part of the path where no trace separates the switch from the
    /// hosts.
    NetworkQueue, "network_queue", Avoidable,
        "packets waited in a queue between sender and receiver",
        "record a switch's trace or device time stamps to find the queue";
    /// The packet was at the receiver's device, but the driver was not being read.
    ReadGap, "read_gap", Usual,
        "packets waited at the receiver until its driver was read",
        "the driving thread polls too seldom, sleeps, or shares its core: busy-poll, or give it a core of its own";
    /// The driving thread was not running although it was not asleep.
    NotRunning, "not_running", Avoidable,
        "the driving thread was stopped or preempted",
        "another process has that core, or it was stopped: pin the process to cores of its own, see `homa jitter`";
    /// Processing of the packet, and of the packets before it in its burst.
    Processing, "processing", Usual,
        "packets were processed slowly, or behind many others of their burst",
        "run more endpoints, each on its own core: their bursts are shorter";
    /// A lost packet: from its first transmission until its retransmission.
    LossWait, "loss_wait", Avoidable,
        "a packet was lost, and its receiver waited before it sent RESEND",
        "find where packets are dropped: `homa trace lost`";
    /// The whole message had arrived, but the application had not yet requested it.
    AppQueue, "app_queue", Usual,
        "complete messages waited for the application to take them",
        "the application is busy: more threads or more servers";
    /// Time from the wake-up of a thread until it ran.
    Wakeup, "wakeup", Usual,
        "a woken thread took long to run",
        "deep C-states or a busy core: poll instead of sleeping, or see `homa doctor`";
    /// The server's application, from receiving the request to submitting the response.
    ServerApp, "server_app", Usual,
        "the server's application took long",
        "look at the application itself";
    /// The traces do not show the cause.
    Unexplained, "unexplained", Usual,
        "the traces do not show the cause",
        "record traces on every host, and with more records";
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Nanoseconds of each cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amounts(pub [u64; Cause::COUNT]);

impl Default for Amounts {
    fn default() -> Amounts {
        Amounts([0; Cause::COUNT])
    }
}

impl Amounts {
    /// Returns the sum in nanoseconds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds the amounts of `other`.
    pub fn add(&mut self, other: &Amounts) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, ns)| *sum += ns);
    }

    /// Returns the largest cause and its amount.
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
