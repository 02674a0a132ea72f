//! The interface between a transport and its host.

use homa_proto::Time;
use homa_steer::HomaPacket;

use crate::cluster::config::ClusterConfig;
use crate::cluster::messages::{Message, Messages};
use crate::fabric::SwitchConfig;
use crate::packet::{Body, Packet, PacketInfo};
use crate::topology::Spread;

/// A host's end of a message transport.
///
/// After every call, the host queries the transport's timer, and takes packets while the host's card has
/// room. The behaviour of a transport may depend only on its arguments and its own state, both determined by
/// the seed.
pub trait Transport: Sized {
    /// Name on the command line.
    const NAME: &'static str;
    /// Whether the transport itself runs the RPCs of a cluster ([`Exchange::Echo`](crate::Exchange::Echo)).
    /// If so, it answers each message, and [`Ctx::deliver`] reports that the answer is complete at the
    /// client. For other transports, the harness starts the answer as a separate message.
    const RUNS_RPCS: bool = false;
    /// Contents of a packet.
    type Body: Body;
    /// Settings, the same for all hosts.
    type Config: Clone;

    /// Returns the switches that the transport requires, which may differ from those of the cluster.
    fn switch(config: &Self::Config, cluster: &ClusterConfig) -> SwitchConfig {
        let _ = config;
        cluster.switch
    }

    /// Returns how the transport requires packets to be spread over the spines; `None`: as configured in the
    /// topology.
    fn spread() -> Option<Spread> {
        None
    }

    /// Creates the transport of a host.
    fn new(config: &Self::Config, host: u32, cluster: &ClusterConfig) -> Self;

    /// Sends a message.
    fn send(&mut self, ctx: &mut Ctx<'_>, message: u32);

    /// Handles a packet. A message that is now complete is reported to [`Ctx::deliver`].
    fn receive(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<Self::Body>);

    /// Answers the RPC of this message, on behalf of a server's thread. Called if hosts have cores
    /// ([`ClusterConfig::cores`]) and the transport runs RPCs. The transport then reports complete requests
    /// to [`Ctx::deliver`] as well, and answers them only here.
    fn answer(&mut self, ctx: &mut Ctx<'_>, message: u32) {
        let _ = (ctx, message);
    }

    /// Returns the source and destination port of a packet and, if it is a Homa packet, the fields that a
    /// steering policy uses.
    fn steered(packet: &Packet<Self::Body>) -> ([u16; 2], Option<HomaPacket>) {
        let _ = packet;
        ([0; 2], None)
    }

    /// Handles the timeout of [`Transport::next_timeout`].
    fn timeout(&mut self, ctx: &mut Ctx<'_>);

    /// Returns the time at which to call [`Transport::timeout`]; queried after every call.
    fn next_timeout(&self) -> Option<Time>;

    /// Returns the next packet for the card. Its body overwrites `body`, which has the contents of an earlier
    /// packet.
    fn transmit(&mut self, ctx: &mut Ctx<'_>, body: &mut Self::Body) -> Option<PacketInfo>;

    /// Handles the arrival of a message that this host sent, or the end of an RPC that it started. The
    /// harness reports this without a packet.
    fn delivered(&mut self, ctx: &mut Ctx<'_>, message: u32);

    /// Returns whether some message to this host waits only for a grant from this host.
    fn withholds(&self, now: Time) -> bool {
        let _ = now;
        false
    }

    /// Stops the transport's time trace, if it has one. If the message that caused the stop started at this
    /// host, `token` is its token.
    fn freeze_trace(&mut self, now: Time, token: Option<u64>) {
        let _ = (now, token);
    }

    /// Returns the dump of the transport's time trace, if it has one and [`ClusterConfig::trace_records`] is
    /// above 0.
    fn trace_dump(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// Calls `count` with the name and value of each of the transport's counters.
    fn counters(&self, count: &mut dyn FnMut(&str, u64)) {
        let _ = count;
    }
}

/// The environment of a transport.
#[derive(Debug)]
pub struct Ctx<'a> {
    /// Current time.
    pub now: Time,
    /// Index of this host.
    pub host: u32,
    pub(crate) messages: &'a mut Messages,
}

impl Ctx<'_> {
    /// Returns a message in flight.
    pub fn message(&self, number: u32) -> Message {
        self.messages.get(number)
    }

    /// Returns the message with this number that started at `started`; `None`: the message has already
    /// arrived, and this packet of it is late.
    pub fn under_way(&self, number: u32, started: Time) -> Option<Message> {
        self.messages.under_way(number, started)
    }

    /// Stores a token with a message that this host sends.
    pub fn set_token(&mut self, message: u32, token: u64) {
        self.messages.get_mut(message).token = token;
    }

    /// Stores a token with a message that this host receives.
    pub fn set_receiver_token(&mut self, message: u32, token: u64) {
        self.messages.get_mut(message).receiver_token = Some(token);
    }

    /// Reports that a message is complete at this host.
    pub fn deliver(&mut self, message: u32) {
        self.messages.deliver(message);
    }
}
