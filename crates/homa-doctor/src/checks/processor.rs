//! Checks of processors: power management, isolation, timers and clock.

use std::fs;

use super::finding::{Finding, Severity};
use super::host::{Host, NOT_MEASURED, NOTES_RAMCLOUD};
use crate::jitter::system::{governors, idle, is_virtual};
use crate::machine::CPUS;

/// Returns the findings about processors.
pub fn check(host: &Host) -> Vec<Finding> {
    vec![governor(host), deep_sleep(host), isolated(host), timer_slack(host), clock(host)]
}

fn governor(host: &Host) -> Finding {
    let path = format!("{CPUS}/cpu*/cpufreq/scaling_governor");
    let finding = Finding::ok("governor", "processors run at full speed").source(NOT_MEASURED);
    match governors(host.root) {
        Ok(names) if names == ["performance"] => finding.read(&path, "performance"),
        Ok(names) => finding.read(&path, &names.join(", ")).with_severity(
            Severity::Cost,
            "an idle processor starts at a low frequency, which delays the first short message after a pause",
            "cpupower frequency-set --governor performance",
        ),
        Err(error) => finding
            .read(&path, &error)
            .unknown("who chooses the frequency is not known", "cpupower frequency-info"),
    }
}

/// Maximum acceptable wake-up time in microseconds: less than a round trip.
const SHORT_WAKE_US: u64 = 10;

fn deep_sleep(host: &Host) -> Finding {
    let path = format!("{CPUS}/cpu0/cpuidle/state*/latency");
    let finding = Finding::ok("deep_sleep", "idle processors wake up quickly").source(NOTES_RAMCLOUD);
    let states = match idle(host.root) {
        Ok(states) => states,
        Err(error) => {
            let finding = finding.read(&path, &error);
            return if is_virtual(host.root) == Ok(true) {
                finding.unknown(
                    "a virtual machine: the hypervisor determines how deeply its processors sleep",
                    "",
                )
            } else {
                finding.unknown("which idle states there are is not known", "cpupower idle-info")
            };
        }
    };
    let words: Vec<String> = states
        .iter()
        .filter(|state| state.enabled)
        .map(|state| format!("{} {} us", state.name, state.exit_us))
        .collect();
    let finding = finding.read(&path, &words.join(", "));
    let bound = latency_bound_us(host);
    let finding = match bound {
        Some(bound) => finding.read("dev/cpu_dma_latency", &format!("{bound} us")),
        None => finding,
    };
    let slow = states.iter().any(|state| {
        state.enabled && state.exit_us > SHORT_WAKE_US && bound.is_none_or(|bound| state.exit_us <= bound)
    });
    if !slow {
        return finding;
    }
    finding.with_severity(
        Severity::Cost,
        "sleeping threads are woken that much later, and gaps of 15 us in spinning threads disappeared without deep sleep states. A host with \
         low_latency (--low-latency) holds /dev/cpu_dma_latency open while RPCs are in flight",
        &format!("cpupower idle-set --disable-by-latency {SHORT_WAKE_US}"),
    )
}

/// Returns the latency limit in microseconds that a process holds in `/dev/cpu_dma_latency`, or `None` if it
/// cannot be read. The file contains four bytes.
fn latency_bound_us(host: &Host) -> Option<u64> {
    use std::io::Read;
    let mut bytes = [0; 4];
    fs::File::open(host.root.path("dev/cpu_dma_latency")).ok()?.read_exact(&mut bytes).ok()?;
    u64::try_from(i32::from_ne_bytes(bytes)).ok()
}

fn isolated(host: &Host) -> Finding {
    let path = format!("{CPUS}/isolated");
    let finding = Finding::ok("isolated_processors", "some processors are kept free").source(NOTES_RAMCLOUD);
    let nohz = host.root.read(&format!("{CPUS}/nohz_full")).unwrap_or_default();
    match host.root.read(&path) {
        Ok(list) if list.is_empty() => finding.read(&path, "none").with_severity(
            Severity::Note,
            "other programs and the timer tick run on the processors of polling threads. Isolation needs processors that the rest of the \
             machine can do without",
            "boot with isolcpus=LIST nohz_full=LIST rcu_nocbs=LIST, then taskset -c LIST homa serve",
        ),
        Ok(list) if nohz.is_empty() || nohz == "(null)" => {
            finding.read(&path, &list).read(&format!("{CPUS}/nohz_full"), "none").with_severity(
                Severity::Note,
                "no other programs run on them, but the timer tick does",
                &format!("boot with nohz_full={list} rcu_nocbs={list}"),
            )
        }
        Ok(list) => finding.read(&path, &list).read(&format!("{CPUS}/nohz_full"), &nohz),
        Err(error) => finding.read(&path, &error).unknown("it is unknown", ""),
    }
}

/// The kernel's default timer slack.
const USUAL_SLACK_NS: u64 = 50_000;

fn timer_slack(host: &Host) -> Finding {
    let path = "proc/self/timerslack_ns";
    let finding = Finding::ok("timer_slack", "timers of sleeping threads are exact").source(NOT_MEASURED);
    match host.root.number(path) {
        Ok(slack) if slack >= USUAL_SLACK_NS => finding.read(path, &slack.to_string()).with_severity(
            Severity::Note,
            "timers of sleeping threads may expire that many nanoseconds late, so the pacer of a host that does not poll sends late. \
             Polling threads are not affected",
            "echo 1 > /proc/PID/timerslack_ns, for each thread of the process",
        ),
        Ok(slack) => finding.read(path, &slack.to_string()),
        Err(error) => finding.read(path, &error).unknown("it is unknown", ""),
    }
}

fn clock(host: &Host) -> Finding {
    let path = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    let finding = Finding::ok("clock_source", "the clock is read without a system call").source(NOT_MEASURED);
    match host.root.read(path) {
        // These clocks are read by the vDSO without a system call; the first three exist on x86.
        Ok(name)
            if ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"]
                .contains(&name.as_str()) =>
        {
            finding.read(path, &name)
        }
        Ok(name) => finding.read(path, &name).with_severity(
            Severity::Cost,
            "each read of this clock is a system call or accesses a slow device, and polling threads read it constantly",
            &format!("echo tsc > /{path}, if it is in available_clocksource"),
        ),
        Err(error) => finding.read(path, &error).unknown("it is unknown", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::host::fake_root::found;

    fn severity(files: &[(&str, &str)], name: &str) -> Severity {
        found(check, files, name).severity
    }

    #[test]
    fn a_saving_governor_costs() {
        let of =
            |name| severity(&[("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", name)], "governor");
        assert_eq!([of("performance"), of("powersave")], [Severity::Fine, Severity::Cost]);
        assert_eq!(severity(&[], "governor"), Severity::Unknown);
    }

    #[test]
    fn deep_states_cost_unless_they_are_off_or_somebody_forbids_them() {
        let state = "sys/devices/system/cpu/cpu0/cpuidle/state1";
        let names = ["name", "latency", "disable"].map(|file| format!("{state}/{file}"));
        let of = |latency, disable, held: &str| {
            let mut files = vec![(names[0].as_str(), "C6"), (&names[1], latency), (&names[2], disable)];
            if !held.is_empty() {
                files.push(("dev/cpu_dma_latency", held));
            }
            severity(&files, "deep_sleep")
        };
        assert_eq!([of("133", "0", ""), of("133", "0", "zzzz")], [Severity::Cost; 2]);
        assert_eq!([of("133", "1", ""), of("2", "0", ""), of("133", "0", "\0\0\0\0")], [Severity::Fine; 3]);
        assert_eq!(severity(&[], "deep_sleep"), Severity::Unknown);
    }

    #[test]
    fn processors_that_nobody_keeps_free_may_cost() {
        let (isolated, nohz) = ("sys/devices/system/cpu/isolated", "sys/devices/system/cpu/nohz_full");
        assert_eq!(severity(&[(isolated, "")], "isolated_processors"), Severity::Note);
        assert_eq!(severity(&[(isolated, "2-3"), (nohz, "(null)")], "isolated_processors"), Severity::Note);
        assert_eq!(severity(&[(isolated, "2-3"), (nohz, "2-3")], "isolated_processors"), Severity::Fine);
    }

    #[test]
    fn slack_and_slow_clocks_are_found() {
        let slack = "proc/self/timerslack_ns";
        assert_eq!(severity(&[(slack, "50000")], "timer_slack"), Severity::Note);
        assert_eq!(severity(&[(slack, "1")], "timer_slack"), Severity::Fine);
        let clock = "sys/devices/system/clocksource/clocksource0/current_clocksource";
        assert_eq!(severity(&[(clock, "hpet")], "clock_source"), Severity::Cost);
        assert_eq!(severity(&[(clock, "tsc")], "clock_source"), Severity::Fine);
    }
}
