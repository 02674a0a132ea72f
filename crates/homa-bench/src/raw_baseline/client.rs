//! The client ports of one thread over raw packets. Each port has its own packet path.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use bytes::Bytes;

use super::frame::PacketKind;
use super::path::Path;
use super::{PATIENCE, open};
use crate::driver::Driver;
use crate::engine::link::{Answer, Link};
use crate::tcp::IdlePolling;

/// Number of queued requests that triggers a send: one burst.
const BATCH: usize = homa_driver::BURST_PACKETS;

/// The client ports of one thread, and their servers.
#[derive(Clone, Debug)]
pub struct RawBaselineLinkConfig {
    /// The packet driver.
    pub driver: Driver,
    /// The bind addresses of this thread's client ports.
    pub binds: Vec<SocketAddr>,
    /// Addresses of all server ports of all servers.
    pub servers: Vec<SocketAddr>,
    /// Time that an idle thread polls before it sleeps.
    pub poll: Duration,
    /// Maximum length of a response in bytes.
    pub max_message: u32,
    /// Whether the kernel segments and merges runs of packets of equal length.
    pub offload: bool,
}

/// The client ports of one thread over raw packets.
pub struct RawBaselineLink {
    servers: Vec<SocketAddr>,
    paths: Vec<Path>,
    spin: IdlePolling,
    waiting: OpenRpcs,
}

impl RawBaselineLink {
    /// Opens a path for each client port.
    ///
    /// # Errors
    /// There is no client port, or a path cannot be opened.
    pub fn open(config: RawBaselineLinkConfig) -> Result<RawBaselineLink> {
        ensure!(!config.binds.is_empty(), "a link over bare packets needs a client port");
        let path = |&bind: &SocketAddr| {
            Ok(Path::new(open(config.driver, bind, config.offload)?, config.max_message))
        };
        Ok(RawBaselineLink {
            paths: config.binds.iter().map(path).collect::<Result<_>>()?,
            servers: config.servers,
            spin: IdlePolling::new(config.poll),
            waiting: OpenRpcs::default(),
        })
    }

    /// Sends queued requests and receives responses.
    fn poll(&mut self, answers: &mut Vec<Answer>) -> Result<()> {
        for path in &mut self.paths {
            path.flush()?;
            let waiting = &mut self.waiting;
            path.receive(|message| {
                if message.kind != PacketKind::Answer {
                    return;
                }
                // A response to an RPC that was given up is ignored.
                if let Some(cookie) = waiting.take(message.id) {
                    answers.push(Answer { cookie, at: Instant::now(), result: Ok(message.payload) });
                }
            })?;
            if let Some(peer) = path.refused() {
                bail!("there is no server of bare packets at {peer}");
            }
        }
        Ok(())
    }

    fn give_up(&mut self, now: Instant, answers: &mut Vec<Answer>) {
        let mut due = false;
        for path in &mut self.paths {
            due |= path.sweep(now);
        }
        if due {
            self.waiting.expire(|cookie| {
                let patience = PATIENCE.as_millis();
                let why =
                    format!("lost: no answer within {patience} ms, and bare packets are not retransmitted");
                answers.push(Answer { cookie, at: now, result: Err(why) });
            });
        }
    }
}

impl Link for RawBaselineLink {
    fn submit(&mut self, port: usize, server: usize, cookie: u64, request: Bytes) -> Result<(), String> {
        let path = &mut self.paths[port];
        path.push(self.servers[server], PacketKind::Request, self.waiting.add(cookie), request);
        if path.queued() >= BATCH {
            path.flush().map_err(|error| format!("{error:#}"))?;
        }
        Ok(())
    }

    fn receive(&mut self, wait: Duration, answers: &mut Vec<Answer>) -> Result<()> {
        let before = answers.len();
        self.poll(answers)?;
        if answers.len() > before {
            self.spin.record_work();
            return Ok(());
        }
        let begin = Instant::now();
        loop {
            let now = Instant::now();
            self.give_up(now, answers);
            let left = wait.saturating_sub(now - begin);
            if answers.len() > before || left.is_zero() {
                return Ok(());
            }
            let timeout = self.spin.timeout(Some(left)).unwrap_or_default();
            if let ([path], false) = (&self.paths[..], timeout.is_zero()) {
                path.sleep(timeout.min(left))?;
            }
            self.poll(answers)?;
            if answers.len() > before {
                self.spin.record_work();
                return Ok(());
            }
        }
    }

    fn packets(&self) -> Option<u64> {
        Some(self.paths.iter().map(Path::packets).sum())
    }
}

/// RPCs that wait for their responses, in reusable slots. An ID on the wire consists of the slot's index in
/// the lower 32 bits and the slot's generation in the upper 32 bits.
#[derive(Debug, Default)]
struct OpenRpcs {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    users: u32,
    /// `None` if the slot is free.
    cookie: Option<u64>,
    /// Number of sweeps since the RPC began.
    age: u32,
}

impl OpenRpcs {
    fn add(&mut self, cookie: u64) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { users: 0, cookie: None, age: 0 });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        *slot = Slot { users: slot.users.wrapping_add(1), cookie: Some(cookie), age: 0 };
        u64::from(slot.users) << 32 | u64::from(index)
    }

    fn take(&mut self, id: u64) -> Option<u64> {
        let slot = self.slots.get_mut(id as u32 as usize)?;
        if u64::from(slot.users) != id >> 32 {
            return None;
        }
        let cookie = slot.cookie.take()?;
        self.free.push(id as u32);
        Some(cookie)
    }

    /// Counts a sweep, and calls `end` with the cookie of each RPC that has waited too long.
    fn expire(&mut self, mut end: impl FnMut(u64)) {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            slot.age += 1;
            if slot.age > SWEEPS_OF_PATIENCE
                && let Some(cookie) = slot.cookie.take()
            {
                self.free.push(index as u32);
                end(cookie);
            }
        }
    }
}

/// Number of sweeps that an RPC survives. It is given up at the next sweep. The RPC is then at least
/// [`PATIENCE`] old, regardless of when it began between two sweeps.
const SWEEPS_OF_PATIENCE: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw_baseline::server::{RawBaselineServer, RawBaselineServerConfig};

    fn link(one_way: bool) -> RawBaselineLink {
        let server = RawBaselineServer::start(RawBaselineServerConfig {
            driver: Driver::Udp,
            bind: "127.0.0.1:0".parse().expect("an address"),
            ports: 2,
            poll: Duration::ZERO,
            max_message: 1 << 20,
            one_way,
            offload: true,
        })
        .expect("a server on any port");
        RawBaselineLink::open(RawBaselineLinkConfig {
            driver: Driver::Udp,
            binds: vec!["127.0.0.1:0".parse().expect("an address"); 2],
            servers: server.addrs().to_vec(),
            poll: Duration::from_micros(10),
            max_message: 1 << 20,
            offload: true,
        })
        .expect("sockets")
    }

    fn check_all_come_back(one_way: bool) {
        let mut link = link(one_way);
        crate::engine::link::check_all_come_back(&mut link, 8, one_way);
    }

    #[test]
    fn all_come_back() {
        check_all_come_back(false);
    }

    #[test]
    fn one_way_answers_are_short() {
        check_all_come_back(true);
    }

    #[test]
    fn a_number_works_once_and_a_silent_rpc_ends() {
        let mut waiting = OpenRpcs::default();
        let (first, second) = (waiting.add(11), waiting.add(12));
        assert_eq!(waiting.take(first), Some(11));
        assert_eq!(waiting.take(first), None);
        let third = waiting.add(13);
        let mut ended = Vec::new();
        for _ in 0..SWEEPS_OF_PATIENCE {
            waiting.expire(|cookie| ended.push(cookie));
        }
        assert!(ended.is_empty());
        waiting.expire(|cookie| ended.push(cookie));
        assert_eq!(ended, [13, 12]);
        assert_eq!((waiting.take(second), waiting.take(third)), (None, None));
    }
}
