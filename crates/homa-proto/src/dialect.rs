//! The dialect of each peer: three forms of Linux Homa, distinguished by their packets (PROTOCOL.md DIALECT).
//!
//! This module sends no packets. A wrong belief costs an interval between RESENDs, but never a message:
//! `start_msg` opens messages in a way that every dialect can complete.

use crate::wire::Evidence;

/// Longest message that Linux Homa accepts.
pub(crate) const KERNEL_MAX_MESSAGE: u32 = 1_000_000;

/// The dialect of Homa that a peer uses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[non_exhaustive]
pub enum Dialect {
    /// Unknown: no packet has shown the dialect yet.
    #[default]
    Unknown,
    /// Linux Homa until September 2026: the first bytes of each message are sent without a grant, and the
    /// others need grants.
    One,
    /// Linux Homa since September 2026: START_MSG opens a message that needs grants, and no byte of the
    /// message is sent before its first grant.
    Two,
    /// Linux Homa's build for net-next: no grants and no priorities, and RESEND without a priority.
    Three,
    /// This implementation.
    Ours,
}

impl Dialect {
    /// Returns a short name: `?`, `1`, `2`, `3` or `ours`.
    pub const fn name(self) -> &'static str {
        match self {
            Dialect::Unknown => "?",
            Dialect::One => "1",
            Dialect::Two => "2",
            Dialect::Three => "3",
            Dialect::Ours => "ours",
        }
    }

    /// Returns the dialect's number in metrics: 0 for unknown, 1 to 3 for the dialects of those names, 4 for
    /// this implementation.
    pub const fn number(self) -> u8 {
        match self {
            Dialect::Unknown => 0,
            Dialect::One => 1,
            Dialect::Two => 2,
            Dialect::Three => 3,
            Dialect::Ours => 4,
        }
    }
}

/// The presumed dialect of one peer, according to the packets received from it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Belief {
    dialect: Dialect,
    /// Whether a packet that only this dialect sends has arrived.
    is_certain: bool,
}

impl Belief {
    /// The belief before the first packet, and after a sign that the peer's kernel may have changed.
    pub(crate) const UNKNOWN: Belief = Belief { dialect: Dialect::Unknown, is_certain: false };

    pub(crate) const fn certain_of(dialect: Dialect) -> Belief {
        Belief { dialect, is_certain: true }
    }

    const fn likely(dialect: Dialect) -> Belief {
        Belief { dialect, is_certain: false }
    }

    /// Returns the presumed dialect.
    pub(crate) fn dialect(self) -> Dialect {
        self.dialect
    }

    /// Returns whether a dialect is presumed.
    pub(crate) fn is_known(self) -> bool {
        self.dialect != Dialect::Unknown
    }

    /// Returns the belief after one more packet (DIALECT-2): the newest evidence takes precedence. `is_udp`
    /// is set for Linux Homa's UDP encapsulation, which has no marks in any dialect.
    pub(crate) fn after(self, evidence: Evidence, is_udp: bool) -> Belief {
        match evidence {
            Evidence::Ours => Belief::UNKNOWN,
            Evidence::StartMsg => Belief::certain_of(Dialect::Two),
            Evidence::ShortResend => Belief::certain_of(Dialect::Three),
            Evidence::OffsetInSequence => Belief::certain_of(Dialect::One),
            // Dialect 2 may send any value in the field `incoming`, so an earlier START_MSG takes precedence.
            Evidence::Announced if self == Belief::certain_of(Dialect::Two) => self,
            Evidence::Announced => Belief::likely(Dialect::One),
            Evidence::Unannounced if self.dialect == Dialect::Two => self,
            Evidence::Unannounced => Belief::likely(Dialect::Two),
            Evidence::UnmarkedUnannounced => {
                let dialect = if is_udp { Dialect::Two } else { Dialect::Three };
                if self.dialect == dialect { self } else { Belief::likely(dialect) }
            }
            Evidence::Full if self.dialect == Dialect::Three => Belief::UNKNOWN,
            Evidence::Full | Evidence::Nothing => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BELIEFS: [Belief; 7] = [
        Belief::UNKNOWN,
        Belief::likely(Dialect::One),
        Belief::certain_of(Dialect::One),
        Belief::likely(Dialect::Two),
        Belief::certain_of(Dialect::Two),
        Belief::likely(Dialect::Three),
        Belief::certain_of(Dialect::Three),
    ];

    fn shown(belief: Belief) -> String {
        let certainty = if belief.is_certain { "!" } else { "" };
        format!("{}{certainty}", belief.dialect.name())
    }

    // DIALECT-2
    #[test]
    fn the_table_of_beliefs() {
        let mut table = format!("{:<20}", "");
        BELIEFS.iter().for_each(|&belief| table += &format!(" {:<3}", shown(belief)));
        for is_udp in [false, true] {
            table += if is_udp { "\nUDP form" } else { "\nraw IP" };
            for evidence in Evidence::ALL {
                table += &format!("\n{:<20}", format!("{evidence:?}"));
                for belief in BELIEFS {
                    table += &format!(" {:<3}", shown(belief.after(evidence, is_udp)));
                }
            }
        }
        let table: Vec<&str> = table.lines().map(str::trim_end).collect();
        insta::assert_snapshot!(table.join("\n"), @r"
                             ?   1   1!  2   2!  3   3!
        raw IP
        Ours                 ?   ?   ?   ?   ?   ?   ?
        StartMsg             2!  2!  2!  2!  2!  2!  2!
        ShortResend          3!  3!  3!  3!  3!  3!  3!
        OffsetInSequence     1!  1!  1!  1!  1!  1!  1!
        Announced            1   1   1   1   2!  1   1
        Unannounced          2   2   2   2   2!  2   2
        UnmarkedUnannounced  3   3   3   3   3   3   3!
        Full                 ?   1   1!  2   2!  ?   ?
        Nothing              ?   1   1!  2   2!  3   3!
        UDP form
        Ours                 ?   ?   ?   ?   ?   ?   ?
        StartMsg             2!  2!  2!  2!  2!  2!  2!
        ShortResend          3!  3!  3!  3!  3!  3!  3!
        OffsetInSequence     1!  1!  1!  1!  1!  1!  1!
        Announced            1   1   1   1   2!  1   1
        Unannounced          2   2   2   2   2!  2   2
        UnmarkedUnannounced  2   2   2   2   2!  2   2
        Full                 ?   1   1!  2   2!  ?   ?
        Nothing              ?   1   1!  2   2!  3   3!
        ");
    }
}
