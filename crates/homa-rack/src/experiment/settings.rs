//! Settings by name, for `config` and for `--set`. Settings of the protocol have the same names as the fields
//! of its configuration. The other settings, which are defined here, belong to a host, a driver or the
//! switch, or combine several fields.

use std::ops::RangeInclusive;
use std::str::FromStr;

use homa::HostConfig;
use homa_bench::driver::Driver;
use homa_bench::host_options::HostSetting;
use homa_proto::Config;
use homa_proto::wire::PRIORITIES;
use homa_steer::PolicyName;

use super::agent_protocol::Setup;
use crate::spec::BuildOptions;
use homa_settings::{FIELDS, set_field};

/// The settings that are not fields of the protocol's configuration, each with its values and its meaning.
pub const OWN: &[(&str, &str)] = &[
    (
        "priorities",
        "1 to 8: Homa's priority levels; half of them, rounded down but at least one, are for unscheduled packets",
    ),
    (
        "switch_priorities",
        "1 to 8: the switch's queues; the lowest of Homa's eight levels share one. Needs a rack for each value",
    ),
    (
        "fifo_share",
        "percent, below 50: share of the oldest message in the granted bytes and in the scheduled bytes sent",
    ),
    (
        "duty_cycle",
        "percent, 1 to 100: maximum share of its link for one message, by a window of that share of a round trip",
    ),
    ("endpoints", "1 to 64: endpoints of a host, over which its RPCs are distributed"),
    ("client_threads", "1 to 64: threads of a host that send, each with a client port"),
    (
        "port_receivers",
        "0 to 64: threads that receive answers at each client port; 0: the sending thread receives them",
    ),
    ("server_ports", "1 to 64: server ports of a host"),
    (
        "server_threads",
        "0 to 64: threads that answer, for each server port; 0: one. Over Homa, 0 lets the only sending thread answer, with one port and one endpoint",
    ),
    ("wake_order", "lifo, fifo, least-recent: which of several equal sleeping threads is woken"),
    (
        "endpoint_policy",
        "same-core, rss-hash, sparse, idle, least-loaded: the policy that chooses the endpoint of a client port; without it the endpoints take turns",
    ),
    ("poll_us", "0 to 10000: time that an idle thread polls before it sleeps, in microseconds"),
    (
        "max_segmented_bytes",
        "1 to 65487: maximum batch in bytes that the kernel segments; 1: none. Needs --driver udp",
    ),
    (
        "batch_cap",
        "1 to 32: maximum receive batch in packets. Grants are sent after a whole batch: 1 means a grant per packet",
    ),
];

/// Settings of other implementations that do not exist here, with the reason.
pub const MISSING: &[(&str, &str)] = &[
    (
        "ready_order",
        "complete requests reach a server's threads only in the order of their completion: a thread receives up to 32 \
                     at once, and answers leave shortest first in any order of arrival",
    ),
    ("gro_policy", "the kernel and the setting `endpoints` choose the core of a packet here"),
];

/// The change that a value of a setting makes.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Fields of the protocol's configuration and their values, in this order.
    Protocol(Vec<(String, String)>),
    /// Window in percent of a round trip.
    DutyCycle(f64),
    SwitchPriorities(u16),
    /// An option of the Homa host.
    Host(HostSetting),
    ClientThreads(u16),
    PortReceivers(u16),
    ServerPorts(u16),
    ServerThreads(u16),
    EndpointPolicy(PolicyName),
    PollUs(u64),
    MaxSegmentedBytes(usize),
}

impl Change {
    /// Parses a setting's value.
    ///
    /// # Errors
    /// There is no such setting, or it has no such value.
    pub fn read(name: &str, value: &str) -> Result<Change, String> {
        if let Some(setting) = HostSetting::read(name, value) {
            return setting.map(Change::Host).map_err(|error| format!("{name}: {error}"));
        }
        let threads = || number(name, value, 1..=64);
        Ok(match name {
            "priorities" => levels(number(name, value, 1..=PRIORITIES as u8)?),
            "switch_priorities" => Change::SwitchPriorities(number(name, value, 1..=PRIORITIES as u16)?),
            "fifo_share" => fifo_share(number(name, value, 0.0..=49.9)?),
            "duty_cycle" => Change::DutyCycle(number(name, value, 1.0..=100.0)?),
            "client_threads" => Change::ClientThreads(threads()?),
            "port_receivers" => Change::PortReceivers(number(name, value, 0..=64)?),
            "server_ports" => Change::ServerPorts(threads()?),
            "server_threads" => Change::ServerThreads(number(name, value, 0..=64)?),
            "endpoint_policy" => Change::EndpointPolicy(endpoint_policy(name, value)?),
            "poll_us" => Change::PollUs(number(name, value, 0..=10_000)?),
            "max_segmented_bytes" => {
                let most = homa_driver::udp::MAX_SEGMENTED_BYTES;
                Change::MaxSegmentedBytes(number(name, value, 1..=most)?)
            }
            "unsched_bytes" => unscheduled(number(name, value, 1..=u32::MAX)?),
            _ => field(name, value)?,
        })
    }

    /// Applies the change to a host's setup.
    pub fn apply(&self, setup: &mut Setup) {
        match *self {
            Change::Protocol(ref fields) => setup.settings.extend(fields.iter().cloned()),
            Change::DutyCycle(percent) => {
                let trip = setup.host.link_mbps.map_or_else(Config::default, Config::for_link).unsched_bytes;
                let window = (f64::from(trip) * percent / 100.0).ceil();
                setup.settings.push(("window".to_owned(), window.to_string()));
            }
            Change::SwitchPriorities(_) => {}
            Change::Host(setting) => setting.apply(&mut setup.host),
            Change::ClientThreads(count) => setup.threads.client_threads = count,
            Change::PortReceivers(count) => setup.threads.port_receivers = count,
            Change::ServerPorts(count) => setup.threads.server_ports = count,
            Change::ServerThreads(count) => setup.threads.server_threads = count,
            Change::EndpointPolicy(policy) => setup.endpoint_policy = Some(policy.to_string()),
            Change::PollUs(us) => setup.poll_us = us,
            Change::MaxSegmentedBytes(bytes) => setup.max_segmented_bytes = Some(bytes),
        }
    }

    /// Returns whether the setting's values determine if a host is [single-threaded](Setup::is_one_thread).
    pub fn divides_hosts(&self) -> bool {
        matches!(
            self,
            Change::ClientThreads(_)
                | Change::PortReceivers(_)
                | Change::ServerPorts(_)
                | Change::Host(HostSetting::Endpoints(_))
        )
    }

    /// Returns the description of the rack that the change needs, or `None` if any rack is suitable.
    pub fn rack(&self, build: &BuildOptions) -> Option<BuildOptions> {
        let Change::SwitchPriorities(queues) = self else { return None };
        let mut build = build.clone();
        build.switch_option.push(format!("--priorities={queues}"));
        Some(build)
    }

    /// Checks that the change is available with this driver.
    ///
    /// # Errors
    /// The change is not available.
    pub fn check(&self, driver: Driver) -> Result<(), String> {
        match self {
            Change::MaxSegmentedBytes(_) if driver != Driver::Udp => {
                Err("max_segmented_bytes is a setting of a UDP socket: use --driver udp".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// A setting of the hosts with its value, `NAME=VALUE`.
#[derive(Clone, Debug)]
pub struct Setting {
    text: String,
    change: Change,
}

impl Setting {
    /// Returns the setting as the user wrote it.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the parsed change.
    pub(super) fn change(&self) -> &Change {
        &self.change
    }
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Setting, String> {
        let (name, value) = text.split_once('=').ok_or("use NAME=VALUE")?;
        match Change::read(name, value)? {
            Change::SwitchPriorities(_) => Err("use --switch-option=--priorities=N".to_owned()),
            change => Ok(Setting { text: text.to_owned(), change }),
        }
    }
}

/// Returns the names of all settings.
#[cfg(test)]
pub fn names() -> impl Iterator<Item = &'static str> {
    OWN.iter().map(|&(name, _)| name).chain(FIELDS.iter().copied())
}

fn number<T: FromStr + PartialOrd + std::fmt::Display>(
    name: &str,
    value: &str,
    range: RangeInclusive<T>,
) -> Result<T, String> {
    let number = value.trim().parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("{name}: `{value}` is not {} to {}", range.start(), range.end()))
}

/// Parses a policy by which a host can choose its endpoints.
fn endpoint_policy(name: &str, value: &str) -> Result<PolicyName, String> {
    let policy = value.parse().ok().filter(|policy| HostConfig::ENDPOINT_POLICIES.contains(policy));
    let names = || HostConfig::ENDPOINT_POLICIES.map(|policy| policy.entry().name).join(", ");
    policy.ok_or_else(|| format!("{name}: `{value}` is not one of {}", names()))
}

fn field(name: &str, value: &str) -> Result<Change, String> {
    if let Some((_, why)) = MISSING.iter().find(|(missing, _)| *missing == name) {
        return Err(format!("{name} cannot be set: {why}"));
    }
    set_field(&mut Config::default(), name, value).map_err(|error| {
        let unknown = !FIELDS.contains(&name);
        let own = OWN.iter().map(|&(name, _)| name).collect::<Vec<_>>().join(", ");
        if unknown { format!("{error}; or {own}") } else { error }
    })?;
    Ok(Change::Protocol(vec![(name.to_owned(), value.to_owned())]))
}

fn fields<const N: usize>(pairs: [(&str, String); N]) -> Change {
    Change::Protocol(pairs.map(|(name, value)| (name.to_owned(), value)).into())
}

/// Returns the change to this many priority levels. Levels are divided as Linux Homa divides eight levels,
/// and the highest levels have Linux Homa's sizes.
fn levels(count: u8) -> Change {
    let unscheduled = (count / 2).max(1);
    let sizes = Config::default().unsched_cutoffs;
    let mut cutoffs = [0; PRIORITIES];
    for step in 0..usize::from(unscheduled) {
        cutoffs[usize::from(count) - 1 - step] = sizes[PRIORITIES - 1 - step];
    }
    cutoffs[usize::from(count - unscheduled)] = u32::MAX;
    fields([
        ("max_sched_prio", count.saturating_sub(1 + unscheduled).to_string()),
        ("num_priorities", count.to_string()),
        ("unsched_cutoffs", cutoffs.map(|size| size.to_string()).join(" ")),
    ])
}

fn fifo_share(percent: f64) -> Change {
    let thousandths = (percent * 10.0).round().to_string();
    fields([("grant_fifo_fraction", thousandths.clone()), ("pacer_fifo_fraction", thousandths)])
}

/// Returns the change to the same number of unscheduled bytes for each peer, independent of the peer's round
/// trip.
fn unscheduled(bytes: u32) -> Change {
    let base = Config::default();
    fields([
        ("unsched_from_rtt", "false".to_owned()),
        ("min_unsched_bytes", base.min_unsched_bytes.min(bytes).to_string()),
        ("max_unsched_bytes", base.max_unsched_bytes.max(bytes).to_string()),
        ("unsched_bytes", bytes.to_string()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(name: &str, value: &str) -> Config {
        let Ok(Change::Protocol(fields)) = Change::read(name, value) else { panic!("{name} = {value}") };
        let mut config = Config::for_link(100);
        for (name, value) in fields {
            set_field(&mut config, &name, &value).expect("a field");
        }
        config.validate().expect("a configuration");
        config
    }

    #[test]
    fn levels_are_divided_and_every_message_has_one() {
        for count in 1..=8 {
            let config = config("priorities", &count.to_string());
            assert_eq!(config.num_priorities, count);
            let longest = config.unsched_cutoffs.iter().position(|&size| size == u32::MAX).expect("a level");
            assert!(count == 1 || longest == usize::from(config.max_sched_prio) + 1, "{config:?}");
        }
        assert_eq!(config("priorities", "8").max_sched_prio, Config::default().max_sched_prio);
        assert_eq!(config("priorities", "4").unsched_cutoffs, [0, 0, u32::MAX, 200, 0, 0, 0, 0]);
    }

    #[test]
    fn what_is_one_thing_sets_all_of_its_fields() {
        let config_of = config("fifo_share", "2.5");
        assert_eq!((config_of.grant_fifo_fraction, config_of.pacer_fifo_fraction), (25, 25));
        for bytes in ["1", "200", "500000"] {
            let config = config("unsched_bytes", bytes);
            assert_eq!(
                (config.unsched_bytes.to_string(), config.unsched_from_rtt),
                (bytes.to_owned(), false)
            );
        }
    }

    #[test]
    fn values_beyond_a_setting_are_refused_by_name() {
        for (name, value) in [
            ("priorities", "9"),
            ("switch_priorities", "0"),
            ("fifo_share", "50"),
            ("duty_cycle", "0"),
            ("endpoints", "65"),
            ("batch_cap", "33"),
            ("wake_order", "random"),
            ("endpoint_policy", "gen3"),
            ("max_segmented_bytes", "65488"),
            ("max_overcommit", "many"),
            ("ready_order", "srpt"),
        ] {
            let error = Change::read(name, value).expect_err(name);
            assert!(error.contains(name), "{error}");
        }
        let error = Change::read("overcommitment", "4").expect_err("no setting");
        assert!(error.contains("max_overcommit") && error.contains("duty_cycle"), "{error}");
        let check = |name, driver| Change::read(name, "4").expect("a setting").check(driver);
        assert!(
            check("max_segmented_bytes", Driver::Udp).is_ok()
                && check("max_segmented_bytes", Driver::Raw).is_err()
        );
        assert!(check("batch_cap", Driver::Raw).is_ok());
    }

    #[test]
    fn what_decides_whether_one_thread_does_all_is_compared_with_threads_that_answer() {
        let divides = |name, value| Change::read(name, value).expect("a setting").divides_hosts();
        for name in ["client_threads", "port_receivers", "server_ports", "endpoints"] {
            assert!(divides(name, "1"), "{name}");
        }
        assert!(!divides("server_threads", "0") && !divides("poll_us", "0") && !divides("window", "1"));
    }

    #[test]
    fn a_name_is_one_setting() {
        let mut all: Vec<&str> = names().chain(MISSING.iter().map(|&(name, _)| name)).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
