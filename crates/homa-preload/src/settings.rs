//! Settings from the environment: `HOMA_` and the name of a kernel sysctl (net.homa.*) in capitals, and the
//! driver.

use std::env;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use homa::{DriverChoice, HostConfig};

/// The driver: `udp` (the default), `raw` or `linux-udp`.
const DRIVER: &str = "HOMA_DRIVER";

/// Sets how long a peer may be silent before its RPCs are given up. The resulting number of RESENDs depends
/// on other settings.
const TIMEOUT: &str = "HOMA_TIMEOUT_TICKS";

/// Maximum number of unanswered RESENDs: the counter is a byte.
const MOST_RESENDS: u32 = 255;

/// The directory of the memory that processes share with the drivers `raw` and `linux-udp`: see
/// [`HostConfig::segment_dir`].
const SEGMENT_DIR: &str = "HOMA_SEGMENT_DIR";

/// Other environment variables of this project, which are not host settings.
const OTHERS: [&str; 4] = ["HOMA_HOST", "HOMA_PRELOAD", "HOMA_RACK", "HOMA_RACK_DIR"];

/// A function that applies a sysctl's value to the settings.
type Set = fn(&mut HostConfig, u64);

/// The length of a timer tick of the kernel's Homa.
const TICK_NS: u64 = 1_000_000;

fn small(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// The sysctls that have an equivalent setting here.
const SETTINGS: [(&str, Set); 21] = [
    ("defer_min_bytes", |config, value| config.protocol.defer_min_bytes = small(value)),
    // The earlier name of defer_min_bytes.
    ("throttle_min_bytes", |config, value| config.protocol.defer_min_bytes = small(value)),
    ("fifo_grant_increment", |config, value| config.protocol.fifo_grant_increment = small(value)),
    ("grant_fifo_fraction", |config, value| config.protocol.grant_fifo_fraction = small(value)),
    ("link_mbps", |config, value| config.protocol.link_mbps = Some(small(value))),
    ("max_incoming", |config, value| config.protocol.max_incoming = small(value)),
    ("max_nic_est_backlog_usecs", |config, value| {
        config.protocol.max_nic_backlog_ns = value.saturating_mul(1_000);
    }),
    // The earlier name of the same sysctl.
    ("max_nic_queue_ns", |config, value| config.protocol.max_nic_backlog_ns = value),
    ("max_overcommit", |config, value| config.protocol.max_overcommit = small(value)),
    ("max_sched_prio", |config, value| {
        config.protocol.max_sched_prio = u8::try_from(value).unwrap_or(u8::MAX)
    }),
    ("num_priorities", |config, value| {
        config.protocol.num_priorities = u8::try_from(value).unwrap_or(u8::MAX)
    }),
    ("pacer_fifo_fraction", |config, value| config.protocol.pacer_fifo_fraction = small(value)),
    ("poll_usecs", |config, value| config.poll = Duration::from_micros(value)),
    ("reap_limit", |config, value| config.protocol.reap_limit = small(value)),
    ("request_ack_ticks", |config, value| {
        config.protocol.need_ack_interval_ns = value.saturating_mul(TICK_NS)
    }),
    ("resend_interval", |config, value| {
        config.protocol.resend_interval_max_ns = value.saturating_mul(TICK_NS)
    }),
    ("resend_ticks", |config, value| config.protocol.resend_interval_ns = value.saturating_mul(TICK_NS)),
    ("timeout_resends", |config, value| config.protocol.max_resends = small(value)),
    ("unsched_bytes", |config, value| {
        config.protocol.unsched_bytes = small(value);
        config.protocol.unsched_from_rtt = false;
    }),
    ("window", |config, value| config.protocol.window = small(value)),
    ("wmem_max", |config, value| config.protocol.max_outgoing_bytes = value),
];

/// The sysctls without an equivalent here: they concern the kernel's queues, buffers, cores and tests.
const WITHOUT_MEANING: [&str; 34] = [
    "accept_bits",
    "action",
    "bpage_lease_usecs",
    "busy_usecs",
    "cutoff_version",
    "dead_buffs_limit",
    "drop_bits",
    "flags",
    "freeze_type",
    "gen3_softirq_cores",
    "gro_busy_usecs",
    "gro_policy",
    "gso_force_software",
    "hijack_tcp",
    "hijack_udp",
    "homa_share",
    "max_dead_buffs",
    "max_grantable_rpcs",
    "max_gro_skbs",
    "max_gso_size",
    "max_link_usage",
    "max_nic_queue_usecs",
    "max_rpcs_per_peer",
    "next_id",
    "peer_gc_threshold",
    "peer_idle_secs_max",
    "peer_idle_secs_min",
    "peer_net_max",
    "priority_map",
    "recalc_usecs",
    "skb_page_frees_per_sec",
    "skb_page_pool_min_kb",
    "temp",
    "verbose",
];

/// The kernel's default of `net.homa.wmem_max`: a socket may start a message while its messages in flight
/// total fewer bytes.
const SEND_MEMORY: u64 = 100_000_000;

/// Additional bytes that the transport permits, since several threads may start messages of a megabyte at the
/// same time.
const BEYOND: u64 = 1 << 32;

/// The settings of this process.
pub(crate) struct Settings {
    pub(crate) config: HostConfig,
    pub(crate) send_memory: u64,
}

impl Settings {
    /// Reads the settings from the environment. Reports each invalid variable with a line on standard error.
    pub(crate) fn from_environment() -> Settings {
        let variables = env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            name.starts_with("HOMA_").then(|| (name, value.to_string_lossy().into_owned()))
        });
        let (settings, complaints) = Settings::from_variables(variables);
        // A forked child reads the settings again, and must not repeat the warnings.
        static SAID: AtomicBool = AtomicBool::new(false);
        if !SAID.swap(true, Relaxed) {
            for complaint in complaints {
                eprintln!("libhoma_preload: {complaint}");
            }
        }
        settings
    }

    fn from_variables(variables: impl Iterator<Item = (String, String)>) -> (Settings, Vec<String>) {
        // close must not wait for acknowledgements.
        let mut config = HostConfig::default();
        config.linger = Duration::ZERO;
        config.protocol.max_outgoing_bytes = SEND_MEMORY;
        let mut complaints = Vec::new();
        let mut timeout_ticks: Option<u64> = None;
        for (name, value) in variables {
            if OTHERS.contains(&name.as_str()) {
                continue;
            }
            if name == TIMEOUT {
                timeout_ticks = value.trim().parse().ok();
                let complaint = || format!("{name} is ignored: its value is not a number");
                complaints.extend(timeout_ticks.is_none().then(complaint));
                continue;
            }
            complaints.extend(apply(&mut config, &name, &value).err());
        }
        let protocol = &mut config.protocol;
        // The kernel sends RESENDs at a constant interval, however long the first interval was.
        protocol.resend_interval_max_ns = protocol.resend_interval_max_ns.max(protocol.resend_interval_ns);
        if let Some(ticks) = timeout_ticks {
            protocol.max_resends = resends_within(
                ticks.saturating_mul(TICK_NS),
                protocol.resend_interval_ns,
                protocol.resend_interval_max_ns,
            );
        }
        complaints.sort();
        let send_memory = config.protocol.max_outgoing_bytes;
        config.protocol.max_outgoing_bytes = send_memory.saturating_add(BEYOND);
        (Settings { config, send_memory }, complaints)
    }
}

/// Returns the number of RESENDs that go unanswered during a silence of this length, at least 1. The
/// intervals between RESENDs double from the first one up to the maximum.
fn resends_within(silence_ns: u64, first_ns: u64, longest_ns: u64) -> u32 {
    let (mut silent_ns, mut interval_ns, mut count) = (0_u64, first_ns.max(1), 0);
    while silent_ns < silence_ns && count < MOST_RESENDS {
        silent_ns = silent_ns.saturating_add(interval_ns);
        interval_ns = interval_ns.saturating_mul(2).min(longest_ns.max(1));
        count += 1;
    }
    count.max(1)
}

/// Applies one variable to the configuration. The error is the text to report.
fn apply(config: &mut HostConfig, name: &str, value: &str) -> Result<(), String> {
    if name == DRIVER {
        config.driver = match value {
            "udp" => DriverChoice::Udp,
            "raw" => DriverChoice::Raw,
            "linux-udp" => DriverChoice::LinuxUdp,
            _ => return Err(format!("{name}={value} is ignored: use udp, raw or linux-udp")),
        };
        return Ok(());
    }
    if name == SEGMENT_DIR {
        config.segment_dir = value.into();
        return Ok(());
    }
    let sysctl = name.trim_start_matches("HOMA_").to_ascii_lowercase();
    if sysctl == "unsched_cutoffs" {
        let cutoffs: Option<Vec<u32>> = value.split_whitespace().map(|word| word.parse().ok()).collect();
        let cutoffs = cutoffs.and_then(|cutoffs| cutoffs.try_into().ok());
        config.protocol.unsched_cutoffs = cutoffs
            .ok_or_else(|| format!("{name}={value} is ignored: use eight numbers separated by spaces"))?;
        return Ok(());
    }
    if let Some((_, set)) = SETTINGS.iter().find(|(known, _)| *known == sysctl) {
        let value = value.trim().parse();
        set(config, value.map_err(|_| format!("{name} is ignored: its value is not a number"))?);
        return Ok(());
    }
    if WITHOUT_MEANING.contains(&sysctl.as_str()) {
        return Err(format!("{name} is ignored: net.homa.{sysctl} has no equivalent outside the kernel"));
    }
    Err(format!("{name} is ignored: there is no net.homa.{sysctl}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> (HostConfig, Vec<String>) {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let (settings, complaints) = Settings::from_variables(variables);
        (settings.config, complaints)
    }

    #[test]
    fn sysctls_are_settings_by_name() {
        let (config, complaints) = from(&[
            ("HOMA_DRIVER", "raw"),
            ("HOMA_LINK_MBPS", "25000"),
            ("HOMA_POLL_USECS", " 7 "),
            ("HOMA_UNSCHED_BYTES", "30000"),
            ("HOMA_RESEND_TICKS", "5"),
            ("HOMA_UNSCHED_CUTOFFS", "0 0 0 7 6 5 4 3"),
            ("HOMA_PRELOAD", "/lib/libhoma_preload.so"),
        ]);
        assert_eq!(complaints, Vec::<String>::new());
        assert_eq!((config.driver, config.poll), (DriverChoice::Raw, Duration::from_micros(7)));
        assert_eq!(
            (config.protocol.link_mbps, config.protocol.resend_interval_ns),
            (Some(25_000), 5_000_000)
        );
        assert_eq!((config.protocol.unsched_bytes, config.protocol.unsched_from_rtt), (30_000, false));
        assert_eq!(config.protocol.unsched_cutoffs, [0, 0, 0, 7, 6, 5, 4, 3]);
    }

    #[test]
    fn the_time_after_which_rpcs_end_follows_from_the_intervals() {
        let (config, _) =
            from(&[("HOMA_TIMEOUT_TICKS", "100"), ("HOMA_RESEND_TICKS", "5"), ("HOMA_RESEND_INTERVAL", "5")]);
        assert_eq!((config.protocol.max_resends, config.protocol.resend_interval_max_ns), (20, 5_000_000));
        let (config, complaints) = from(&[("HOMA_RESEND_TICKS", "90"), ("HOMA_TIMEOUT_TICKS", "soon")]);
        assert_eq!(config.protocol.resend_interval_max_ns, 90_000_000, "no less than the first");
        assert_eq!(complaints.len(), 1);
        assert_eq!(
            [resends_within(0, 5, 5), resends_within(70, 10, 40), resends_within(u64::MAX, 1, 1)],
            [1, 3, 255]
        );
    }

    #[test]
    fn what_cannot_be_set_is_named() {
        let (_, complaints) = from(&[
            ("HOMA_DRIVER", "tcp"),
            ("HOMA_GRO_POLICY", "1"),
            ("HOMA_LINK_MBPS", "fast"),
            ("HOMA_LINK_SPEED", "1"),
            ("HOMA_UNSCHED_CUTOFFS", "1 2"),
        ]);
        let about = [
            "udp, raw or linux-udp",
            "no equivalent",
            "not a number",
            "no net.homa.link_speed",
            "eight numbers",
        ];
        assert_eq!(complaints.len(), about.len());
        assert!(
            complaints.iter().zip(about).all(|(complaint, about)| complaint.contains(about)),
            "{complaints:?}"
        );
    }
}
