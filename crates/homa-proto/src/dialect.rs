//! The dialect of each peer: three forms of Linux Homa, told apart by what their packets show (PROTOCOL.md
//! DIALECT).
//!
//! Nothing here sends a packet. A wrong belief costs an interval of RESENDs, and never a message: `start_msg`
//! opens messages so that each dialect completes them.

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
    /// Linux Homa until September 2026: the first bytes of each message are sent without a grant, the rest by
    /// grants.
    One,
    /// Linux Homa since then: START_MSG opens a message that needs grants, and no byte of it is sent before
    /// the first grant.
    Two,
    /// Linux Homa's build for net-next: no grants and no priorities, and RESEND without a priority.
    Three,
    /// This implementation.
    Ours,
}

impl Dialect {
    /// A short name: `?`, `1`, `2`, `3` or `ours`.
    pub const fn name(self) -> &'static str {
        match self {
            Dialect::Unknown => "?",
            Dialect::One => "1",
            Dialect::Two => "2",
            Dialect::Three => "3",
            Dialect::Ours => "ours",
        }
    }

    /// The number of the dialect in metrics: 0 unknown, 1 to 3 as named, 4 this implementation.
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

/// What the packets of one peer have shown so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Belief {
    dialect: Dialect,
    /// Whether a packet has arrived that only this dialect sends.
    is_certain: bool,
}

impl Belief {
    /// What is known before the first packet, and after a sign that the peer's kernel may have changed.
    pub(crate) const UNKNOWN: Belief = Belief { dialect: Dialect::Unknown, is_certain: false };

    pub(crate) const fn certain_of(dialect: Dialect) -> Belief {
        Belief { dialect, is_certain: true }
    }

    const fn likely(dialect: Dialect) -> Belief {
        Belief { dialect, is_certain: false }
    }

    /// The dialect that is believed.
    pub(crate) fn dialect(self) -> Dialect {
        self.dialect
    }

    /// Whether anything is believed.
    pub(crate) fn is_known(self) -> bool {
        self.dialect != Dialect::Unknown
    }

    /// The belief after one more packet (DIALECT-2): the newest evidence wins. `is_udp` is set for Linux
    /// Homa's UDP form, which has no marks in any dialect.
    pub(crate) fn after(self, evidence: Evidence, is_udp: bool) -> Belief {
        match evidence {
            Evidence::Ours => Belief::UNKNOWN,
            Evidence::StartMsg => Belief::certain_of(Dialect::Two),
            Evidence::ShortResend => Belief::certain_of(Dialect::Three),
            Evidence::OffsetInSequence => Belief::certain_of(Dialect::One),
            // Dialect 2 may have anything in the place of `incoming`, so START_MSG outweighs it.
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
