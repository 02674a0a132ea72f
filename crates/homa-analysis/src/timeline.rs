//! The mean durations of the stages of short RPCs.

use homa_trace::EventKind;

use crate::model::{Direction, Model, ModelTime, Packet, Rpc};
use crate::tail::Cost;

/// The side of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client.
    Client,
    /// The server.
    Server,
}

/// Names of the stages of an RPC, each with whether the stage is on the sending side.
pub const STAGES: [(&str, bool); 15] = [
    ("application to endpoint", true),
    ("endpoint to packet", true),
    ("packet to burst handed over", true),
    ("burst to device sent", true),
    ("to the switch", true),
    ("in the switch", false),
    ("to the device", false),
    ("device to burst read", false),
    ("burst read to packet processed", false),
    ("packet to message complete", false),
    ("complete to wake-up", false),
    ("wake-up to application", false),
    ("the server's application", false),
    ("unseen", false),
    ("total", false),
];
/// Stages after those of a message in [`STAGES`].
const SERVER_APP: usize = 12;
const UNSEEN: usize = 13;
const TOTAL: usize = 14;

/// Mean times of a group of RPCs, in nanoseconds; `None` if no trace has both ends of the stage.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Band {
    /// Number of RPCs.
    pub rpcs: usize,
    /// For each stage, the client's and the server's time. The stages after those of a message have only one
    /// value, the client's.
    pub stages: Vec<[Option<f64>; 2]>,
}

/// Mean stages of the fastest tenth of the RPCs, of those around the median, and of those from P99 on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Number of short RPCs: one packet in each direction, and no retransmission.
    pub rpcs: usize,
    /// The bands up to P10, P45 to P55, and from P99 on.
    pub bands: [Band; 3],
}

/// Returns means over those chosen RPCs whose request and response are one packet each.
#[must_use]
pub fn timeline(model: &Model, chosen: &[Cost]) -> Timeline {
    let one = |rpc: &Rpc, direction| matches!(model.data_of(rpc.message(direction)), [_]);
    let mut short: Vec<Cost> = chosen
        .iter()
        .filter(|cost| {
            let rpc = &model.rpcs[cost.rpc as usize];
            one(rpc, Direction::ToServer) && one(rpc, Direction::ToClient)
        })
        .copied()
        .collect();
    short.sort_by_key(|cost| (cost.duration_ns, cost.rpc));
    let count = short.len();
    let band = |from: usize, until: usize| {
        let until = (count * until).div_ceil(100).min(count);
        let from = (count * from / 100).min(until.saturating_sub(1));
        average(model, &short[from..until])
    };
    Timeline { rpcs: count, bands: [band(0, 10), band(45, 55), band(99, 100)] }
}

fn average(model: &Model, band: &[Cost]) -> Band {
    let mut sums = [[(0_u64, 0_u32); 2]; STAGES.len()];
    let mut add = |stage: usize, side: usize, ns: u64| {
        let (sum, count) = &mut sums[stage][side];
        (*sum, *count) = (*sum + ns, *count + 1);
    };
    for cost in band {
        let rpc = &model.rpcs[cost.rpc as usize];
        let mut last = rpc.start.ns().unwrap_or(0);
        for (direction, sender, receiver) in [(Direction::ToServer, 0, 1), (Direction::ToClient, 1, 0)] {
            let [packet] = model.data_of(rpc.message(direction)) else { continue };
            for ((stage, (_, sends)), moment) in STAGES.iter().enumerate().zip(moments(model, rpc, packet)) {
                let Some(ns) = moment.ns() else { continue };
                add(stage, if *sends { sender } else { receiver }, ns.saturating_sub(last));
                last = last.max(ns);
            }
            if direction == Direction::ToServer
                && let Some(ns) = rpc.response.submitted.ns()
            {
                add(SERVER_APP, 0, ns.saturating_sub(last));
                last = last.max(ns);
            }
        }
        add(UNSEEN, 0, rpc.end.ns().unwrap_or(0).saturating_sub(last));
        add(TOTAL, 0, cost.duration_ns);
    }
    let mean = |(sum, count): (u64, u32)| (count > 0).then(|| sum as f64 / f64::from(count));
    Band { rpcs: band.len(), stages: sums.iter().map(|sides| sides.map(mean)).collect() }
}

/// Returns the end of each stage of a message.
fn moments(model: &Model, rpc: &Rpc, packet: &Packet) -> [ModelTime; SERVER_APP] {
    let message = rpc.message(packet.direction);
    let starts = |at_client: bool| {
        let mut events = model.events_of(rpc).filter(move |(_, record)| {
            record.event() == Some(EventKind::RpcStart) && (record.id & 1 == 0) == at_client
        });
        events.next().map_or(ModelTime::NONE, |(_, record)| ModelTime::new(record.time))
    };
    [
        if packet.direction == Direction::ToServer { starts(true) } else { ModelTime::NONE },
        packet.sent,
        packet.handed,
        packet.device_sent,
        packet.entered,
        packet.left,
        packet.device_received,
        packet.read,
        packet.received,
        message.complete,
        message.woken,
        message.taken,
    ]
}
