//! The interface between a transport and its host.

use homa_proto::Time;
use homa_steer::HomaPacket;

use crate::cluster::config::ClusterConfig;
use crate::cluster::messages::{Message, Messages};
use crate::fabric::SwitchConfig;
use crate::packet::{Body, Packet, PacketInfo};
use crate::topology::Spread;

/// A host's end of a transport for messages.
///
/// After every call the host asks for its timer, and for packets while its card takes them. What a transport does may depend on nothing but
/// its arguments and its own state, which a seed determines.
pub trait Transport: Sized {
    /// Its name, as on the command line.
    const NAME: &'static str;
    /// Whether it runs RPCs itself, where a cluster asks for them ([`Exchange::Echo`](crate::Exchange::Echo)): it then answers each
    /// message itself, and [`Ctx::deliver`] says that the answer is whole at the client. For others the harness starts the answer, as a
    /// message of its own.
    const RUNS_RPCS: bool = false;
    /// What a packet carries.
    type Body: Body;
    /// Settings, the same for all hosts.
    type Config: Clone;

    /// What the switches must be like for it, where a cluster says otherwise.
    fn switch(config: &Self::Config, cluster: &ClusterConfig) -> SwitchConfig {
        let _ = config;
        cluster.switch
    }

    /// How packets must be spread over the spines for it; `None`: as the topology says.
    fn spread() -> Option<Spread> {
        None
    }

    /// The transport of a host.
    fn new(config: &Self::Config, host: u32, cluster: &ClusterConfig) -> Self;

    /// A message is to be sent.
    fn send(&mut self, ctx: &mut Ctx<'_>, message: u32);

    /// A packet has arrived. A message of which everything is there is said to [`Ctx::deliver`], by its number.
    fn receive(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<Self::Body>);

    /// A server's thread answers the RPC of this message, where hosts have cores ([`ClusterConfig::cores`]) and the transport runs RPCs:
    /// then
    /// [`Ctx::deliver`] is said of a request as well, and the answer waits for this.
    fn answer(&mut self, ctx: &mut Ctx<'_>, message: u32) {
        let _ = (ctx, message);
    }

    /// Source and destination port of a packet, and what a steering policy sees of it if it is of Homa.
    fn steered(packet: &Packet<Self::Body>) -> ([u16; 2], Option<HomaPacket>) {
        let _ = packet;
        ([0; 2], None)
    }

    /// The moment of [`Transport::next_timeout`] has come.
    fn timeout(&mut self, ctx: &mut Ctx<'_>);

    /// When [`Transport::timeout`] is to be called; asked after every call.
    fn next_timeout(&self) -> Option<Time>;

    /// The next packet for the card; its body is written over what an earlier packet left in `body`.
    fn transmit(&mut self, ctx: &mut Ctx<'_>, body: &mut Self::Body) -> Option<PacketInfo>;

    /// A message that this host sent has arrived, or the RPC that it started has ended: the harness tells, and no packet does.
    fn delivered(&mut self, ctx: &mut Ctx<'_>, message: u32);

    /// Whether some message to this host waits for nothing but this host's leave to come.
    fn withholds(&self, now: Time) -> bool {
        let _ = now;
        false
    }

    /// Stops its time trace, where it has one. `token`: of the message that is the reason, where this host began it.
    fn freeze_trace(&mut self, now: Time, token: Option<u64>) {
        let _ = (now, token);
    }

    /// The dump of its time trace, where it has one and [`ClusterConfig::trace_records`] asks for it.
    fn trace_dump(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// Calls `count` with what it counted, by name.
    fn counters(&self, count: &mut dyn FnMut(&str, u64)) {
        let _ = count;
    }
}

/// What a transport sees of its surroundings.
#[derive(Debug)]
pub struct Ctx<'a> {
    /// The time.
    pub now: Time,
    /// Index of this host.
    pub host: u32,
    pub(crate) messages: &'a mut Messages,
}

impl Ctx<'_> {
    /// A message under way.
    pub fn message(&self, number: u32) -> Message {
        self.messages.get(number)
    }

    /// The message with this number that started then; `None`: it has arrived, and a packet that is about it came late.
    pub fn under_way(&self, number: u32, started: Time) -> Option<Message> {
        self.messages.under_way(number, started)
    }

    /// Keeps a token with a message that this host sends.
    pub fn set_token(&mut self, message: u32, token: u64) {
        self.messages.get_mut(message).token = token;
    }

    /// Keeps a token with a message that this host receives.
    pub fn set_receiver_token(&mut self, message: u32, token: u64) {
        self.messages.get_mut(message).receiver_token = Some(token);
    }

    /// Says that all of a message is here.
    pub fn deliver(&mut self, message: u32) {
        self.messages.deliver(message);
    }
}
