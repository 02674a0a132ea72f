//! The setup of a host's agent, derived from an experiment's options.

use std::time::Duration;

use anyhow::{Result, ensure};
use homa_bench::host_options::HostOptions;
use homa_bench::protocol::Protocol;
use homa_bench::recording::TraceSettings;
use homa_bench::workloads::Truncation;
use homa_switch::{Buffer, SwitchConfig};

use super::agent_protocol::{MessageSetup, Setup, ThreadSetup};
use super::options::{CommonOptions, MessageOptions, Program};
use crate::spec::{Spec, SwitchKind, ipv4};

/// The protocols that experiments compare.
pub(super) const PROTOCOLS: [Protocol; 2] = [Protocol::Homa, Protocol::Tcp];

/// Homa's UDP port and the TCP port at every host.
pub(super) const PORT: u16 = homa::ServerAddr::DEFAULT_UDP_PORT;

/// Number of events that a host's time trace keeps; they occupy 8 MB.
pub(super) const TRACE_RECORDS: u32 = 1 << 18;

/// Returns the setup of each host's agent for one protocol.
pub(super) fn setup(
    spec: &Spec,
    common: &CommonOptions,
    messages: &MessageOptions,
    protocol: Protocol,
) -> Setup {
    let mut setup = Setup {
        protocol,
        driver: common.driver,
        xdp_mode: common.xdp_mode,
        address: ipv4(0),
        udp_port: PORT,
        port_bytes: port_bytes(common.program, spec),
        mtu: spec.mtu,
        messages: MessageSetup {
            workload: messages.workload.clone(),
            max_message: match messages.max_message {
                Truncation::At(bytes) => Some(bytes),
                Truncation::Off => None,
            },
            longest: 0,
            one_way: messages.one_way,
            seed: common.seed,
        },
        threads: ThreadSetup {
            server_ports: 1,
            server_threads: common.server_threads,
            client_threads: 1,
            port_receivers: 0,
            connections: common.connections,
        },
        host: HostOptions { link_mbps: Some(spec.rate_mbps()), ..HostOptions::default() },
        max_segmented_bytes: None,
        endpoint_policy: None,
        poll_us: common.poll_us,
        congestion: common.cc.first().copied().filter(|_| protocol == Protocol::Tcp),
        settings: Vec::new(),
        recording: TraceSettings {
            records: Some(match (common.recording.records, &common.trace) {
                (Some(records), _) => records,
                (None, Some(_)) => TRACE_RECORDS,
                // Hosts share processors, and the trace would not be read.
                (None, None) => 0,
            }),
            ..common.recording.clone()
        },
    };
    common.set.iter().for_each(|setting| setting.change().apply(&mut setup));
    setup
}

/// Returns the bytes that a switch port may queue while all ports are congested, or `None` if unknown, as for
/// the kernel's bridge.
fn port_bytes(program: Program, spec: &Spec) -> Option<u64> {
    if spec.switch != SwitchKind::Homa {
        return None;
    }
    match switch_of(program, spec).ok()?.buffer {
        Buffer::PerPort { bytes } => Some(bytes),
        Buffer::Shared { bytes, alpha } => {
            let alpha = alpha.multiple();
            Some((bytes as f64 * alpha / (1.0 + alpha * f64::from(spec.hosts))) as u64)
        }
    }
}

/// Checks the value in seconds of the option `name`.
///
/// # Errors
/// The value is outside 0.01 to 3600 seconds.
pub(super) fn seconds(name: &str, value: f64) -> Result<Duration> {
    ensure!((0.01..=3600.0).contains(&value), "--{name} must be 0.01 to 3600 seconds");
    Ok(Duration::from_secs_f64(value))
}

/// Returns the configuration of a rack's switch, if the switch is `homa switch`.
///
/// # Errors
/// The switch lacks these options, or they contradict each other.
pub fn switch_of(program: Program, spec: &Spec) -> Result<SwitchConfig> {
    let rate = format!("--rate={}mbit", spec.rate_mbps());
    let words = ["--ports=a,b".to_owned(), rate, format!("--buffer={}", spec.buffer)];
    let words: Vec<String> = words.into_iter().chain(spec.switch_options.iter().cloned()).collect();
    let switch = (program.switch_config)(&words)?;
    switch.check()?;
    Ok(switch)
}
