//! `homa rack disturb`: what makes RPCs slow on purpose, as a process of its own in a host.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Signal, set_parent_process_death_signal, setpriority_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

/// The subcommand of [`RACK_COMMAND`](crate::RACK_COMMAND) that calls [`serve`] with its only argument.
pub const CHILD_COMMAND: &str = "disturb";

/// What such a process does, as JSON on its command line. It ends with the process that started it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Disturbance {
    /// Compute on one processor
    Spin {
        /// Its number
        processor: usize,
    },
    /// Send packets of the highest priority, in bursts
    Flood {
        /// To whom
        to: IpAddr,
        /// Bits per second
        rate_bps: u64,
    },
}

/// The scheduling priority ("nice") of a process that computes: three quarters of a processor that it shares with one other. Among equals, one
/// that sleeps most of the time hardly waits for another that computes.
const GREEDY: i32 = -5;

/// UDP payload of a packet of a flood, which fits every MTU that a rack may have, and what it takes on the link.
const FLOOD_BYTES: usize = 1_200;
const FLOOD_FRAME_BYTES: u64 = FLOOD_BYTES as u64 + 66;

/// Packets of a burst.
const BURST: u32 = 40;

/// Nobody listens there.
const DISCARD: u16 = 9;

/// The highest class of service (CS7), as the field of the IP header has it.
const HIGHEST: u8 = 0xe0;

/// Disturbs until somebody ends this process.
///
/// # Errors
/// There is no such processor, or no way there.
pub fn serve(order: &str) -> Result<()> {
    let disturbance = serde_json::from_str(order).context("an order makes no sense")?;
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot be bound to the parent process")?;
    match disturbance {
        Disturbance::Spin { processor } => {
            let mut set = CpuSet::new();
            set.set(processor);
            sched_setaffinity(None, &set).with_context(|| format!("cannot run on processor {processor}"))?;
            // Who may not do that computes as one among equals.
            let _ = setpriority_process(None, GREEDY);
            loop {
                std::hint::spin_loop();
            }
        }
        Disturbance::Flood { to, rate_bps } => flood(to, rate_bps),
    }
}

fn flood(to: IpAddr, rate_bps: u64) -> Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("cannot open a UDP socket")?;
    rustix::net::sockopt::set_ip_tos(&socket, HIGHEST).context("cannot choose a priority")?;
    let pause =
        Duration::from_nanos(u64::from(BURST) * FLOOD_FRAME_BYTES * 8 * 1_000_000_000 / rate_bps.max(1));
    let begin = Instant::now();
    for burst in 1_u32.. {
        for _ in 0..BURST {
            // The other end says that nobody listens, and a full device is what a flood is for.
            let _ = socket.send_to(&[0; FLOOD_BYTES], (to, DISCARD));
        }
        thread::sleep((pause * burst).saturating_sub(begin.elapsed()));
    }
    Ok(())
}
