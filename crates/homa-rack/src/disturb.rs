//! `homa rack disturb`: a process in a host that deliberately slows RPCs down.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Signal, set_parent_process_death_signal, setpriority_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

/// The subcommand of [`RACK_COMMAND`](crate::RACK_COMMAND) that calls [`serve`] with its only argument.
pub const CHILD_COMMAND: &str = "disturb";

/// The settings of a disturbing process, as JSON on its command line. The process ends with its parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Disturbance {
    /// Compute on one processor without pause.
    Spin {
        /// Number of the processor.
        processor: usize,
    },
    /// Send bursts of packets of the highest priority.
    Flood {
        /// The destination.
        to: IpAddr,
        /// Rate in bits per second.
        rate_bps: u64,
    },
}

/// Scheduling priority ("nice") of a computing process. With this priority, the process gets three quarters
/// of a processor that it shares with one other process. With equal priorities, a process that sleeps most of
/// the time would hardly have to wait.
const GREEDY: i32 = -5;

/// UDP payload of a flood packet, which fits every MTU of a rack.
const FLOOD_BYTES: usize = 1_200;
const FLOOD_FRAME_BYTES: u64 = FLOOD_BYTES as u64 + 66;

/// Number of packets in a burst.
const BURST: u32 = 40;

/// A UDP port on which no process listens.
const DISCARD: u16 = 9;

/// The highest class of service (CS7), as a field of the IP header.
const HIGHEST: u8 = 0xe0;

/// Disturbs until this process is ended.
///
/// # Errors
/// The processor does not exist, or the destination has no route.
pub fn serve(order: &str) -> Result<()> {
    let disturbance = serde_json::from_str(order).context("the settings of a disturbance are invalid")?;
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot be bound to the parent process")?;
    match disturbance {
        Disturbance::Spin { processor } => {
            let mut set = CpuSet::new();
            set.set(processor);
            sched_setaffinity(None, &set).with_context(|| format!("cannot run on processor {processor}"))?;
            // Without the privilege, the process computes at normal priority.
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
            // Errors are ignored: the peer reports that no process listens, and a flood fills the device on
            // purpose.
            let _ = socket.send_to(&[0; FLOOD_BYTES], (to, DISCARD));
        }
        thread::sleep((pause * burst).saturating_sub(begin.elapsed()));
    }
    Ok(())
}
