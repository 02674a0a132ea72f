//! Leaves a packet on the core where it arrived if processing it there is faster than handing it over.
//! Another policy decides about all other packets.

use crate::cores::Core;
use crate::load::Loads;
use crate::packet::{Packet, PacketKind};
use crate::policy::{Choice, Policy, Reason};

/// Which packets stay on the core where they arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BypassRules {
    /// Packets that arrived alone, which shows that the core is not busy.
    pub lone: bool,
    /// Packets of messages of up to this many bytes; 0 means none. The default is the payload of one packet
    /// at an MTU of 1500.
    pub short_bytes: u32,
    /// Grants, since a sender waits for each one.
    pub grants: bool,
}

impl Default for BypassRules {
    fn default() -> BypassRules {
        BypassRules { lone: true, short_bytes: 1_400, grants: true }
    }
}

impl BypassRules {
    fn apply(self, packet: &Packet) -> bool {
        let is_short = |bytes| bytes > 0 && bytes <= self.short_bytes;
        self.lone && packet.batch.is_lone()
            || packet.homa.is_some_and(|homa| match homa.kind {
                PacketKind::Grant => self.grants,
                PacketKind::Data => is_short(homa.message_bytes),
                PacketKind::Control => false,
            })
    }
}

/// The policy `bypass` of [`POLICIES`](crate::POLICIES).
#[derive(Debug)]
pub struct Bypass {
    rules: BypassRules,
    otherwise: Box<dyn Policy>,
}

impl Bypass {
    /// Creates a policy that applies these rules, and uses `otherwise` for the remaining packets.
    #[must_use]
    pub fn new(rules: BypassRules, otherwise: Box<dyn Policy>) -> Bypass {
        Bypass { rules, otherwise }
    }
}

impl Policy for Bypass {
    fn choose(&mut self, packet: &Packet, loads: Loads<'_>) -> Choice {
        if self.rules.apply(packet) {
            return Choice::new(packet.arrival, Reason::Stays);
        }
        self.otherwise.choose(packet, loads)
    }

    fn consumed(&mut self, flow_hash: u32, core: Core) {
        self.otherwise.consumed(flow_hash, core);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::cores::Cores;
    use crate::packet::HomaPacket;
    use crate::policies::rss_hash::RssHash;

    const NOTHING: BypassRules = BypassRules { lone: false, short_bytes: 0, grants: false };

    fn stays(rules: BypassRules, packet: Packet) -> bool {
        let otherwise = Box::new(RssHash::new(Cores::first(2).unwrap()));
        let choice = Bypass::new(rules, otherwise).choose(&packet, Loads::default());
        assert_eq!(choice.core, if choice.reason == Reason::Stays { 7 } else { 0 });
        choice.reason == Reason::Stays
    }

    fn packet(kind: PacketKind, message_bytes: u32) -> Packet {
        let homa = Some(HomaPacket { rpc_id: 2, kind, message_bytes });
        Packet { homa, arrival: 7, batch: Batch { position: 0, size: 2 }, ..Packet::default() }
    }

    #[test]
    fn each_rule_keeps_what_it_names_and_nothing_else() {
        let (lone, short, grants) = (
            BypassRules { lone: true, ..NOTHING },
            BypassRules { short_bytes: 100, ..NOTHING },
            BypassRules { grants: true, ..NOTHING },
        );
        let alone = Packet { batch: Batch::LONE, ..packet(PacketKind::Data, 1_000_000) };
        for (packet, by) in [
            (alone, [true, false, false]),
            (packet(PacketKind::Data, 100), [false, true, false]),
            (packet(PacketKind::Data, 101), [false, false, false]),
            (packet(PacketKind::Data, 0), [false, false, false]),
            (packet(PacketKind::Grant, 0), [false, false, true]),
            (packet(PacketKind::Control, 50), [false, false, false]),
            (Packet { homa: None, ..packet(PacketKind::Data, 50) }, [false, false, false]),
        ] {
            assert_eq!([lone, short, grants].map(|rules| stays(rules, packet)), by, "{packet:?}");
            assert!(!stays(NOTHING, packet));
        }
    }
}
