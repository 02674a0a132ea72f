//! Derives the causes of gaps from properties that the gaps of all processors share.

use super::common_stops::{CommonStop, by_chance, common_stops};
use super::counters::CounterChanges;
use super::gaps::{CLASSES, Gap};
use super::spin::{Core, Measurement};
use super::tick::{self, Tick};

/// Common causes of gaps: timer ticks and stops of all processors.
#[derive(Clone, Debug)]
pub struct GapCauses {
    /// The timer ticks of each processor, in the order of the cores.
    pub ticks: Vec<Vec<Tick>>,
    /// Stops of all processors at once, excluding ticks: on many machines, ticks happen on all processors at
    /// the same time.
    pub common_stops: Vec<CommonStop>,
    /// The number of such stops expected by chance alone.
    pub by_chance: f64,
}

/// Finds timer ticks and stops of all processors.
pub fn explain(measure: &Measurement) -> GapCauses {
    let ticks: Vec<Vec<Tick>> =
        measure.cores.iter().map(|core| tick::find(&core.gaps, &measure.spans)).collect();
    let others: Vec<Vec<Gap>> =
        measure.cores.iter().zip(&ticks).map(|(core, ticks)| without_ticks(&core.gaps, ticks)).collect();
    let span_ns = measure.spans.last().map_or(0, |&(_, end)| end);
    GapCauses { common_stops: common_stops(&others), by_chance: by_chance(&others, span_ns), ticks }
}

/// A gap of up to this multiple of the median tick length counts as nothing but a tick.
const ONLY_A_TICK: u64 = 4;

/// Returns the gaps without ticks. A gap that is much longer than its tick is kept, because the tick
/// coincided with another interruption.
fn without_ticks(gaps: &[Gap], ticks: &[Tick]) -> Vec<Gap> {
    let mut is_tick = vec![false; gaps.len()];
    for tick in ticks {
        let usual = |index: &&usize| gaps[**index].length_ns <= ONLY_A_TICK * tick.median_ns;
        tick.gaps.iter().filter(usual).for_each(|&index| is_tick[index] = true);
    }
    gaps.iter().zip(is_tick).filter_map(|(gap, is_tick)| (!is_tick).then_some(*gap)).collect()
}

/// Stops of all processors are reported if there are at least this many times as many as expected by chance.
const ABOVE_CHANCE: f64 = 3.0;
/// Minimum share of the lost time for a cause to be worth a sentence.
const MUCH: f64 = 0.1;

/// Returns the conclusions, one sentence each.
pub fn conclusions(
    measure: &Measurement,
    explained: &GapCauses,
    counted: &CounterChanges,
    is_virtual: bool,
) -> Vec<String> {
    let mut out = Vec::new();
    out.extend(at_once(explained, counted, is_virtual));
    out.extend(ticks(measure, explained, counted));
    out.extend(programs(measure));
    out.extend(stolen(counted));
    out.extend(network(counted));
    let unkept: u64 = measure.cores.iter().map(|core| core.unkept).sum();
    if unkept > 0 {
        out.push(format!("{unkept} gaps exceeded the memory limit: they are counted, but not classified."));
    }
    out
}

fn at_once(explained: &GapCauses, counted: &CounterChanges, is_virtual: bool) -> Option<String> {
    let count = explained.common_stops.len();
    if count == 0 || (count as f64) < ABOVE_CHANCE * explained.by_chance {
        return None;
    }
    let total: u64 = explained.common_stops.iter().map(|moment| moment.length_ns).sum();
    let managed = counted.management_interrupts.as_ref().ok().and_then(|counts| counts.iter().max());
    let why = match managed {
        Some(0) if is_virtual => "no management interrupts were counted: the hypervisor stops the machine",
        Some(0) => "no management interrupts were counted, so the cause is another one",
        Some(_) => {
            "management interrupts were counted: see the firmware's settings (power, memory and fan monitoring)"
        }
        None if is_virtual => {
            "the hypervisor stops the machine, or the firmware below it does (management interrupts)"
        }
        None => "management interrupts of the firmware may be the cause; their counter cannot be read",
    };
    Some(format!(
        "All processors stopped at once {count} times, {} in all ({:.1} by chance): {why}.",
        time(total),
        explained.by_chance
    ))
}

/// A tick whose rate is at least this multiple of the kernel's timer rate is a hypervisor's.
const NOT_OURS: f64 = 1.5;

/// Returns one sentence per rate of ticks.
fn ticks(measure: &Measurement, explained: &GapCauses, counted: &CounterChanges) -> Vec<String> {
    let mut rates: Vec<u64> = explained.ticks.iter().flatten().map(|tick| tick.hz).collect();
    rates.sort_unstable();
    rates.dedup();
    let timer_hz = timer_hz(measure, counted);
    let sentence = |hz: u64| {
        let of_rate = measure.cores.iter().zip(&explained.ticks).filter_map(|(core, ticks)| {
            let its: Vec<&Tick> = ticks.iter().filter(|tick| tick.hz == hz).collect();
            let total =
                its.iter().flat_map(|tick| &tick.gaps).map(|&index| core.gaps[index].length_ns).sum::<u64>();
            Some((its.first()?.median_ns, total as f64 / core.measured_ns.max(1) as f64))
        });
        let of_rate: Vec<(u64, f64)> = of_rate.collect();
        let (count, all) = (of_rate.len(), measure.cores.len());
        let cost = of_rate.iter().map(|(_, share)| share).sum::<f64>() / count.max(1) as f64 * 100.0;
        let median = time(of_rate.first().map_or(0, |(median, _)| *median));
        let whose = match timer_hz {
            Some(timer) if hz as f64 > NOT_OURS * timer => format!(
                "The kernel's own timer has {timer:.0} ticks per second, so this one is a hypervisor's."
            ),
            _ => "It is the kernel's timer tick, which nohz_full removes from processors with one thread, or a hypervisor's."
                .to_owned(),
        };
        format!(
            "A tick of {hz} Hz shows on {count} of {all} processors: {median} each (median), {cost:.2} % of the time including \
             coinciding gaps. {whose}"
        )
    };
    rates.into_iter().map(sentence).collect()
}

/// Returns the timer interrupts per second of the processor that had the most of them.
fn timer_hz(measure: &Measurement, counted: &CounterChanges) -> Option<f64> {
    let interrupts = counted.timer_interrupts.as_ref().ok()?;
    let rates = interrupts.iter().zip(&measure.cores);
    let rates = rates.map(|(&count, core)| count as f64 * 1e9 / core.measured_ns.max(1) as f64);
    // On processors other than x86, this counter has another name.
    rates.reduce(f64::max).filter(|&hz| hz > 0.0)
}

fn programs(measure: &Measurement) -> Option<String> {
    let lost: u64 = measure.cores.iter().map(|core| core.tally.sum().total_ns).sum();
    let waited: Option<u64> = measure.cores.iter().map(|core| core.waited_ns).sum();
    let waited = waited?;
    let share = waited as f64 / lost.max(1) as f64;
    (share > MUCH).then(|| {
        format!(
            "Other programs ran for {} meanwhile, {:.0} % of the time lost: measure on a machine that does nothing else, or keep \
             processors free (isolcpus, cpusets).",
            time(waited),
            share.min(1.0) * 100.0
        )
    })
}

fn stolen(counted: &CounterChanges) -> Option<String> {
    let total: u64 = counted.steal_ms.as_ref().ok()?.iter().sum();
    (total > 0).then(|| format!("A hypervisor gave {total} ms of these processors' time to others (steal)."))
}

fn network(counted: &CounterChanges) -> Option<String> {
    let softnet = counted.softnet.as_ref().ok()?;
    let squeezes: u64 = softnet.iter().map(|one| one.time_squeeze).sum();
    let dropped: u64 = softnet.iter().map(|one| one.dropped).sum();
    (squeezes + dropped > 0).then(|| {
        format!(
            "Soft interrupts of the network left work undone {squeezes} times (time_squeeze), and dropped {dropped} packets: see \
             net.core.netdev_budget and net.core.netdev_max_backlog."
        )
    })
}

/// Returns the share of time that a processor lost.
pub fn lost_share(core: &Core) -> f64 {
    core.tally.sum().total_ns as f64 / core.measured_ns.max(1) as f64
}

/// Formats a time in a suitable unit.
pub fn time(ns: u64) -> String {
    let ns = ns as f64;
    let (value, unit) = match ns {
        ns if ns < 1e3 => return format!("{ns} ns"),
        ns if ns < 1e6 => (ns / 1e3, "us"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

/// Returns the classes in which any of these processors has a gap, plus all classes of 1 us and more.
pub fn shown_classes(cores: &[Core]) -> Vec<usize> {
    (0..CLASSES.len())
        .filter(|&class| class > 0 || cores.iter().any(|core| core.tally.classes[0].gaps > 0))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jitter::gaps::Tally;

    const SECOND: u64 = 1_000_000_000;

    fn core(cpu: usize, mut gaps: Vec<Gap>, waited_ns: u64) -> Core {
        gaps.sort_by_key(|gap| gap.start_ns);
        let mut tally = Tally::default();
        gaps.iter().for_each(|gap| tally.add(*gap));
        Core { cpu, measured_ns: SECOND, gaps, tally, unkept: 0, waited_ns: Some(waited_ns) }
    }

    /// Creates a measurement with a tick of 250 Hz at the same times on both processors, and planted gaps.
    fn measure(planted: [&[(u64, u64)]; 2], waited_ns: u64) -> Measurement {
        let cores = planted.iter().enumerate().map(|(cpu, planted)| {
            let ticks = (0..250).map(|tick| (1_000_000 + tick * 4_000_000, 3_000 + tick % 7));
            let gaps = ticks.chain(planted.iter().copied());
            core(cpu, gaps.map(|(start_ns, length_ns)| Gap { start_ns, length_ns }).collect(), waited_ns)
        });
        Measurement { cores: cores.collect(), spans: vec![(0, SECOND)], clock_hz: SECOND }
    }

    fn counted(management: Option<u64>) -> CounterChanges {
        let unread = || Err("not here".to_owned());
        CounterChanges {
            steal_ms: Err("not here".to_owned()),
            softnet: Err("not here".to_owned()),
            ksoftirqd_ns: unread(),
            interrupts: unread(),
            timer_interrupts: unread(),
            management_interrupts: management.map_or_else(unread, |count| Ok(vec![count, count])),
        }
    }

    #[test]
    fn ticks_at_the_same_moment_are_no_stop_of_all() {
        let measure = measure([&[], &[]], 0);
        let explained = explain(&measure);
        assert!(explained.common_stops.is_empty(), "{:?}", explained.common_stops);
        assert!(explained.ticks.iter().all(|ticks| ticks.len() == 1 && ticks[0].hz == 250));
        let sentences = conclusions(&measure, &explained, &counted(None), true);
        assert!(
            sentences.len() == 1
                && sentences[0].contains("A tick of 250 Hz shows on 2 of 2 processors: 3.00 us each"),
            "{sentences:?}"
        );
    }

    #[test]
    fn a_stop_of_all_is_found_also_where_it_swallows_a_tick_and_its_cause_is_named() {
        let measure = measure([&[(402_000_000, 250_000)], &[(402_000_200, 249_700)]], 0);
        let explained = explain(&measure);
        assert_eq!(explained.common_stops, [CommonStop { start_ns: 402_000_200, length_ns: 249_700 }]);
        for (management, is_virtual, part) in [
            (Some(1), false, "management interrupts were counted"),
            (Some(0), true, "the hypervisor stops"),
            (None, false, "counter cannot be read"),
        ] {
            let sentences = conclusions(&measure, &explained, &counted(management), is_virtual);
            assert!(sentences[0].contains("1 times") && sentences[0].contains(part), "{sentences:?}");
        }
        let mut late = measure;
        for core in &mut late.cores {
            core.gaps.retain(|gap| gap.start_ns < 400_000_000 || gap.start_ns > 402_000_300);
            core.gaps.push(Gap { start_ns: 401_000_000, length_ns: 300_000 });
            core.gaps.sort_by_key(|gap| gap.start_ns);
        }
        assert_eq!(explain(&late).common_stops.len(), 1);
    }

    #[test]
    fn other_programs_are_said_to_have_run() {
        let measure = measure([&[(10_500_000, 3_000_000)], &[]], 1_500_000);
        let sentences = conclusions(&measure, &explain(&measure), &counted(None), false);
        assert!(
            sentences.iter().any(|line| line.contains("Other programs ran for 3.00 ms")),
            "{sentences:?}"
        );
    }

    #[test]
    fn times_have_their_own_unit() {
        assert_eq!(
            [999, 1_500, 45_670, 123_456, 7_000_000].map(time),
            ["999 ns", "1.50 us", "45.7 us", "123 us", "7.00 ms"]
        );
    }
}
