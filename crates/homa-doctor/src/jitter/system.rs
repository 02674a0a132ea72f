//! System settings that affect gaps.

use serde::Serialize;

use crate::machine::{CPUS, Root};

/// A setting of the system, or the reason why it could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// The name in the JSON.
    pub name: &'static str,
    /// The name in the text.
    #[serde(skip)]
    pub title: &'static str,
    /// The setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The reason why the setting could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

impl Fact {
    fn new(name: &'static str, title: &'static str, setting: Result<String, String>) -> Fact {
        let (value, unreadable) = match setting {
            Ok(value) => (Some(value), None),
            Err(why) => (None, Some(why)),
        };
        Fact { name, title, value, unreadable }
    }
}

/// Returns all facts about the system.
pub fn facts(root: &Root) -> Vec<Fact> {
    let cpu = |file: &str| root.read(&format!("{CPUS}/{file}")).map(|text| non_empty(&text));
    vec![
        Fact::new("virtual_machine", "virtual machine", virtual_machine(root)),
        Fact::new("clock_source", "the kernel's clock", clock_source(root)),
        Fact::new("idle_states", "idle states", idle_states(root)),
        Fact::new("governor", "frequency governor", governor(root)),
        Fact::new("nohz_full", "processors without a tick (nohz_full)", cpu("nohz_full")),
        Fact::new("isolated", "isolated processors", cpu("isolated")),
        Fact::new("hwlat_tracer", "tracer for hardware latency (hwlat)", hwlat(root)),
    ]
}

fn non_empty(text: &str) -> String {
    // Linux writes this for an empty list.
    if text.is_empty() || text == "(null)" { "none".to_owned() } else { text.to_owned() }
}

/// Returns whether the processor reports a hypervisor.
pub fn is_virtual(root: &Root) -> Result<bool, String> {
    let text = root.read("proc/cpuinfo")?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags")?.split_once(':'));
    let (_, flags) = flags.ok_or("/proc/cpuinfo has no flags of the processor")?;
    Ok(flags.split_ascii_whitespace().any(|flag| flag == "hypervisor"))
}

fn virtual_machine(root: &Root) -> Result<String, String> {
    let kind = root.read("sys/hypervisor/type").ok();
    let maker =
        ["sys_vendor", "product_name"].map(|file| root.read(&format!("sys/class/dmi/id/{file}")).ok());
    let maker: Vec<String> =
        maker.into_iter().flatten().chain(kind).filter(|text| !text.is_empty()).collect();
    let maker = if maker.is_empty() { String::new() } else { format!(" ({})", maker.join(" ")) };
    let says = if is_virtual(root)? { "yes" } else { "no" };
    Ok(format!("{says}{maker}"))
}

fn clock_source(root: &Root) -> Result<String, String> {
    let read =
        |which: &str| root.read(&format!("sys/devices/system/clocksource/clocksource0/{which}_clocksource"));
    let others = read("available").unwrap_or_default();
    Ok(format!("{} (of {others})", read("current")?))
}

/// An idle state of processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleState {
    /// The name that the driver gives to the state.
    pub name: String,
    /// Time to leave the state, in microseconds.
    pub exit_us: u64,
    /// Whether the state is enabled.
    pub enabled: bool,
}

/// Returns the idle states of the first processor.
pub fn idle(root: &Root) -> Result<Vec<IdleState>, String> {
    let directory = format!("{CPUS}/cpu0/cpuidle");
    let states = root.list(&directory).into_iter().filter(|name| name.starts_with("state"));
    let state = |name: String| {
        let path = format!("{directory}/{name}");
        Some(IdleState {
            name: root.read(&format!("{path}/name")).ok()?,
            exit_us: root.number(&format!("{path}/latency")).ok()?,
            enabled: root.read(&format!("{path}/disable")).is_ok_and(|text| text == "0"),
        })
    };
    let states: Vec<IdleState> = states.filter_map(state).collect();
    if states.is_empty() {
        return Err(format!("there are none in /{directory}: a hypervisor or the boot options decide"));
    }
    Ok(states)
}

fn idle_states(root: &Root) -> Result<String, String> {
    let words: Vec<String> = idle(root)?
        .iter()
        .map(|state| {
            let off = if state.enabled { "" } else { ", off" };
            format!("{} ({} us to leave{off})", state.name, state.exit_us)
        })
        .collect();
    let driver = root
        .read(&format!("{CPUS}/cpuidle/current_driver"))
        .map_or(String::new(), |name| format!("; {name}"));
    Ok(format!("{}{driver}", words.join(", ")))
}

/// Returns the governors in use, without duplicates.
pub fn governors(root: &Root) -> Result<Vec<String>, String> {
    let mut names: Vec<String> =
        root.of_cpus("cpufreq/scaling_governor").into_iter().map(|(_, name)| name).collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        return Err(format!("there is none in /{CPUS}/cpu*/cpufreq: a hypervisor or the firmware decides"));
    }
    Ok(names)
}

fn governor(root: &Root) -> Result<String, String> {
    governors(root).map(|names| names.join(", "))
}

fn hwlat(root: &Root) -> Result<String, String> {
    let text = root.read("sys/kernel/tracing/available_tracers")?;
    let there = text.split_ascii_whitespace().any(|name| name == "hwlat");
    Ok(if there { "there" } else { "not in this kernel (CONFIG_HWLAT_TRACER)" }.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fake_root::FakeRoot;

    fn value(facts: &[Fact], name: &str) -> Option<String> {
        facts.iter().find(|fact| fact.name == name).and_then(|fact| fact.value.clone())
    }

    #[test]
    fn a_machine_that_tells_everything() {
        let fake_root = FakeRoot::new(&[
            ("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu tsc hypervisor lm\n"),
            ("sys/class/dmi/id/sys_vendor", "QEMU\n"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
            ("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/name", "POLL"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "0"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/disable", "0"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/name", "C6"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "133"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "1"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave"),
            ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave"),
            ("sys/devices/system/cpu/nohz_full", "(null)\n"),
            ("sys/devices/system/cpu/isolated", "2-3\n"),
            ("sys/kernel/tracing/available_tracers", "hwlat function nop\n"),
        ]);
        let facts = facts(&fake_root.root());
        for (name, says) in [
            ("virtual_machine", "yes (QEMU)"),
            ("clock_source", "tsc (of tsc hpet)"),
            ("idle_states", "POLL (0 us to leave), C6 (133 us to leave, off)"),
            ("governor", "powersave"),
            ("nohz_full", "none"),
            ("isolated", "2-3"),
            ("hwlat_tracer", "there"),
        ] {
            assert_eq!(value(&facts, name).as_deref(), Some(says), "{name}");
        }
    }

    #[test]
    fn unreadable_facts_state_the_reason() {
        let facts = facts(&FakeRoot::new(&[]).root());
        assert!(facts.iter().all(|fact| fact.value.is_none()), "{facts:?}");
        assert!(
            facts.iter().all(|fact| fact.unreadable.as_ref().is_some_and(|why| why.contains('/'))),
            "{facts:?}"
        );
    }
}
