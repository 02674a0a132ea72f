//! Counters of the kernel, before and after a measurement.

use serde::Serialize;

use crate::machine::Root;

/// Counters of the kernel at one point in time. A counter that cannot be read is replaced by a sentence with
/// the reason.
#[derive(Clone, Debug)]
pub struct Counters {
    steal_ticks: Result<Vec<u64>, String>,
    softnet: Result<Vec<Softnet>, String>,
    ksoftirqd_ns: Result<Vec<u64>, String>,
    interrupts: Result<Interrupts, String>,
    management: Result<Vec<u64>, String>,
}

/// Counters of the network's soft interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Softnet {
    /// Packets taken from devices.
    pub processed: u64,
    /// Packets dropped because the backlog was full.
    pub dropped: u64,
    /// Runs that ended although work was left.
    pub time_squeeze: u64,
}

/// Interrupts by processor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Interrupts {
    all: Vec<u64>,
    timer: Vec<u64>,
}

/// Changes of the kernel's counters during a measurement, for each measured processor, or the reason why they
/// are unknown.
#[derive(Clone, Debug)]
pub struct CounterChanges {
    /// Time that a hypervisor gave to other machines (steal), in milliseconds, by processor.
    pub steal_ms: Result<Vec<u64>, String>,
    /// Soft interrupts of the network, by processor.
    pub softnet: Result<Vec<Softnet>, String>,
    /// Time for which ksoftirqd ran, in nanoseconds, by processor.
    pub ksoftirqd_ns: Result<Vec<u64>, String>,
    /// Interrupts of all kinds, by processor.
    pub interrupts: Result<Vec<u64>, String>,
    /// Interrupts of the local timer, by processor.
    pub timer_interrupts: Result<Vec<u64>, String>,
    /// Management interrupts that the processor counted, by processor.
    pub management_interrupts: Result<Vec<u64>, String>,
}

impl Counters {
    /// Reads the counters of these processors.
    pub fn read(root: &Root, cpus: &[usize]) -> Counters {
        let parsed = |path: &str, parse: fn(&str) -> Vec<Option<u64>>| {
            let values = parse(&root.read(path)?);
            pick(&values, cpus).ok_or_else(|| format!("/{path} does not tell it of every processor"))
        };
        Counters {
            steal_ticks: parsed("proc/stat", steal),
            softnet: root.read("proc/net/softnet_stat").and_then(|text| {
                pick(&softnet(&text), cpus)
                    .ok_or_else(|| "/proc/net/softnet_stat does not tell it of every processor".to_owned())
            }),
            ksoftirqd_ns: ksoftirqd(root, cpus),
            interrupts: root.read("proc/interrupts").and_then(|text| {
                interrupts(&text, cpus)
                    .ok_or_else(|| "/proc/interrupts does not tell it of every processor".to_owned())
            }),
            management: cpus.iter().map(|&cpu| management(root, cpu)).collect(),
        }
    }

    /// Returns the changes from these counters to later ones.
    pub fn until(&self, later: &Counters) -> CounterChanges {
        let since = |from: &Result<Vec<u64>, String>, to: &Result<Vec<u64>, String>| {
            Ok(from.clone()?.into_iter().zip(to.clone()?).map(|(from, to)| to.saturating_sub(from)).collect())
        };
        let of = |counters: &Counters, what: fn(&Interrupts) -> &Vec<u64>| {
            counters.interrupts.as_ref().map(|all| what(all).clone()).map_err(Clone::clone)
        };
        let steal = since(&self.steal_ticks, &later.steal_ticks);
        CounterChanges {
            // Linux fixes the unit of /proc/stat at 10 ms, regardless of its own tick.
            steal_ms: steal.map(|all: Vec<u64>| all.into_iter().map(|ticks| ticks * 10).collect()),
            softnet: match (&self.softnet, &later.softnet) {
                (Ok(from), Ok(to)) => Ok(from.iter().zip(to).map(|(from, to)| to.since(*from)).collect()),
                (Err(error), _) | (_, Err(error)) => Err(error.clone()),
            },
            ksoftirqd_ns: since(&self.ksoftirqd_ns, &later.ksoftirqd_ns),
            interrupts: since(&of(self, |all| &all.all), &of(later, |all| &all.all)),
            timer_interrupts: since(&of(self, |all| &all.timer), &of(later, |all| &all.timer)),
            management_interrupts: since(&self.management, &later.management),
        }
    }
}

impl Softnet {
    fn since(self, before: Softnet) -> Softnet {
        Softnet {
            // The kernel's counters are 32 bits wide and wrap around.
            processed: u64::from((self.processed as u32).wrapping_sub(before.processed as u32)),
            dropped: u64::from((self.dropped as u32).wrapping_sub(before.dropped as u32)),
            time_squeeze: u64::from((self.time_squeeze as u32).wrapping_sub(before.time_squeeze as u32)),
        }
    }
}

fn pick<T: Copy>(values: &[Option<T>], cpus: &[usize]) -> Option<Vec<T>> {
    cpus.iter().map(|&cpu| values.get(cpu).copied().flatten()).collect()
}

/// Sets the value for a processor in a list that is indexed by processor number.
fn set<T: Copy>(values: &mut Vec<Option<T>>, cpu: usize, value: T) {
    if values.len() <= cpu {
        values.resize(cpu + 1, None);
    }
    values[cpu] = Some(value);
}

/// Parses the steal time of each processor: the eighth number of its line in `/proc/stat`.
fn steal(text: &str) -> Vec<Option<u64>> {
    let mut values = Vec::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("cpu")) {
        let mut words = line.split_ascii_whitespace();
        let Some(Ok(cpu)) = words.next().map(str::parse::<u16>).filter(|_| !line.starts_with(' ')) else {
            continue;
        };
        if let Some(Ok(ticks)) = words.nth(7).map(str::parse) {
            set(&mut values, usize::from(cpu), ticks);
        }
    }
    values
}

/// Parses `/proc/net/softnet_stat`, which has a line of hexadecimal numbers per processor: packets, drops,
/// squeezes, and others. From Linux 5.10 on, the thirteenth number is the processor. In earlier versions, the
/// lines are in the order of the processors.
fn softnet(text: &str) -> Vec<Option<Softnet>> {
    let mut values = Vec::new();
    for (place, line) in text.lines().enumerate() {
        let words: Option<Vec<u64>> =
            line.split_ascii_whitespace().map(|word| u64::from_str_radix(word, 16).ok()).collect();
        if let Some([processed, dropped, time_squeeze, rest @ ..]) = words.as_deref() {
            let cpu = rest.get(9).map_or(place, |&cpu| cpu as usize);
            let counted = Softnet { processed: *processed, dropped: *dropped, time_squeeze: *time_squeeze };
            if cpu < usize::from(u16::MAX) {
                set(&mut values, cpu, counted);
            }
        }
    }
    values
}

/// Returns the time for which ksoftirqd has run on each processor.
fn ksoftirqd(root: &Root, cpus: &[usize]) -> Result<Vec<u64>, String> {
    let mut values = Vec::new();
    for process in root.list("proc").into_iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    {
        let Ok(name) = root.read(&format!("proc/{process}/comm")) else { continue };
        let Some(Ok(cpu)) = name.strip_prefix("ksoftirqd/").map(str::parse::<u16>) else { continue };
        let times = root.read(&format!("proc/{process}/schedstat"))?;
        if let Some(Ok(ran)) = times.split_ascii_whitespace().next().map(str::parse) {
            set(&mut values, usize::from(cpu), ran);
        }
    }
    pick(&values, cpus)
        .ok_or_else(|| "the threads ksoftirqd are not in /proc (a container may hide them)".to_owned())
}

/// Parses `/proc/interrupts`: a header line that lists the processors, then lines with a name, one number per
/// processor, and a description.
fn interrupts(text: &str, cpus: &[usize]) -> Option<Interrupts> {
    let mut lines = text.lines();
    let heads = lines.next()?.split_ascii_whitespace().map(|head| head.strip_prefix("CPU")?.parse().ok());
    let heads: Vec<usize> = heads.collect::<Option<_>>()?;
    let places: Vec<usize> =
        cpus.iter().map(|cpu| heads.iter().position(|head| head == cpu)).collect::<Option<_>>()?;
    let mut sums = Interrupts { all: vec![0; cpus.len()], timer: vec![0; cpus.len()] };
    for line in lines {
        let Some((name, rest)) = line.split_once(':') else { continue };
        let counts: Vec<u64> = rest.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
        for (index, place) in places.iter().enumerate() {
            let count = counts.get(*place).copied().unwrap_or(0);
            sums.all[index] += count;
            // The name of the local timer on x86.
            if name.trim() == "LOC" {
                sums.timer[index] += count;
            }
        }
    }
    Some(sums)
}

/// Returns the number of management interrupts, which Intel processors count in register 0x34.
fn management(root: &Root, cpu: usize) -> Result<u64, String> {
    use std::os::unix::fs::FileExt;
    const SMI_COUNT: u64 = 0x34;
    let path = format!("dev/cpu/{cpu}/msr");
    let file = std::fs::File::open(root.path(&path)).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            format!("there is no /{path}: `modprobe msr`, where the kernel has that (CONFIG_X86_MSR)")
        }
        _ => format!("/{path} may not be read ({error}): run it as root"),
    })?;
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, SMI_COUNT)
        .map_err(|_| format!("the processor does not count them (register {SMI_COUNT:#x} in /{path})"))?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fake_root::FakeRoot;

    const STAT: &str =
        "cpu  1 2 3 4 5 6 7 99 0 0\ncpu0 1 2 3 4 5 6 7 10 0 0\ncpu1 1 2 3 4 5 6 7 20 0 0\nintr 5";
    const SOFTNET: &str = "000000ff 00000001 00000002 0 0 0 0 0 0 0 0 0 00000000 0 0\n\
                           fffffffe 00000000 00000003 0 0 0 0 0 0 0 0 0 00000001 0 0";
    const INTERRUPTS: &str =
        "       CPU0  CPU1\n 0:  5  6  IO-APIC timer\nLOC: 100 200 Local timer interrupts\nERR: 0\n";

    fn fake_root() -> FakeRoot {
        FakeRoot::new(&[
            ("proc/stat", STAT),
            ("proc/net/softnet_stat", SOFTNET),
            ("proc/interrupts", INTERRUPTS),
            ("proc/9/comm", "ksoftirqd/0\n"),
            ("proc/9/schedstat", "1000 5 3\n"),
            ("proc/17/comm", "ksoftirqd/1\n"),
            ("proc/17/schedstat", "2000 5 3\n"),
            ("proc/20/comm", "bash\n"),
        ])
    }

    #[test]
    fn what_came_in_between_is_counted_by_processor() {
        let fake_root = fake_root();
        let before = Counters::read(&fake_root.root(), &[0, 1]);
        fake_root.write("proc/stat", &STAT.replace("7 20 0", "7 25 0"));
        fake_root.write(
            "proc/net/softnet_stat",
            &SOFTNET.replace("fffffffe", "00000003").replace("00000002", "00000004"),
        );
        fake_root.write("proc/interrupts", &INTERRUPTS.replace("200 Local", "260 Local"));
        fake_root.write("proc/9/schedstat", "1500 5 3\n");
        let counted = before.until(&Counters::read(&fake_root.root(), &[0, 1]));
        assert_eq!(counted.steal_ms, Ok(vec![0, 50]));
        let softnet = counted.softnet.expect("there");
        assert_eq!((softnet[0].time_squeeze, softnet[1].processed, softnet[1].dropped), (2, 5, 0));
        assert_eq!((counted.interrupts, counted.timer_interrupts), (Ok(vec![0, 60]), Ok(vec![0, 60])));
        assert_eq!(counted.ksoftirqd_ns, Ok(vec![500, 0]));
    }

    #[test]
    fn only_the_processors_that_were_measured_count() {
        let fake_root = fake_root();
        let counters = Counters::read(&fake_root.root(), &[1]);
        assert_eq!((counters.steal_ticks, counters.ksoftirqd_ns), (Ok(vec![20]), Ok(vec![2_000])));
        assert_eq!(counters.softnet.map(|all| all[0].time_squeeze), Ok(3));
        assert_eq!(counters.interrupts.map(|all| all.timer), Ok(vec![200]));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let counters = Counters::read(&FakeRoot::new(&[("proc/stat", "cpu0 1 2")]).root(), &[0]);
        let counted = counters.until(&counters);
        assert_eq!(counted.steal_ms, Err("/proc/stat does not tell it of every processor".to_owned()));
        assert_eq!(counted.softnet, Err("there is no /proc/net/softnet_stat".to_owned()));
        assert!(counted.ksoftirqd_ns.is_err() && counted.interrupts.is_err());
        assert!(counted.management_interrupts.is_err_and(|error| error.contains("modprobe msr")));
    }

    #[test]
    fn the_counter_of_management_interrupts_is_at_its_register() {
        let mut register = vec![0; 0x34];
        register.extend_from_slice(&7u64.to_le_bytes());
        let fake_root = FakeRoot::new(&[]);
        fake_root.write("dev/cpu/0/msr", &String::from_utf8(register).expect("ASCII"));
        assert_eq!(management(&fake_root.root(), 0), Ok(7));
    }
}
