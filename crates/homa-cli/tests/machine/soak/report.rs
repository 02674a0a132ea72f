//! Progress output of a soak test.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use homa_testkit::resident_bytes;

use super::audit::{Progress, kinds};
use super::ledger::{ANSWERED, Ledger};

/// Interval between two progress lines.
const INTERVAL: Duration = Duration::from_secs(10);

/// Counters for the progress lines.
pub struct Status {
    pub streams: AtomicU32,
    pub server_kills: AtomicU64,
    pub client_kills: AtomicU64,
    pub cuts: AtomicU64,
    pub mtus: AtomicU64,
    pub mismatches: AtomicU64,
    attacks: AtomicU64,
    attack: Mutex<Option<&'static str>>,
    server: u32,
}

impl Status {
    /// Creates counters for a soak test with this number of streams and this server process.
    pub fn new(streams: u32, server: u32) -> Status {
        let zero = || AtomicU64::new(0);
        Status {
            streams: AtomicU32::new(streams),
            server_kills: zero(),
            client_kills: zero(),
            cuts: zero(),
            mtus: zero(),
            mismatches: zero(),
            attacks: zero(),
            attack: Mutex::new(None),
            server,
        }
    }

    pub fn attack_begins(&self, name: &'static str) {
        self.attacks.fetch_add(1, Ordering::Relaxed);
        *self.attack.lock().expect("no thread panicked") = Some(name);
    }

    pub fn attack_ends(&self) {
        *self.attack.lock().expect("no thread panicked") = None;
    }

    fn done(&self) -> String {
        let counts = [
            (&self.server_kills, "kills of the server"),
            (&self.client_kills, "of a client"),
            (&self.cuts, "cuts"),
            (&self.mtus, "MTU changes"),
            (&self.mismatches, "MTU mismatches"),
            (&self.attacks, "attacks"),
        ];
        let counts = counts.map(|(count, name)| format!("{} {name}", count.load(Ordering::Relaxed)));
        counts.join(", ")
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<36} {}", "disturbances", self.done())
    }
}

/// A thread that periodically prints a progress line.
pub struct Reporter {
    thread: JoinHandle<u64>,
    over: Arc<AtomicBool>,
}

pub fn start(status: &Arc<Status>, directory: &Path) -> Reporter {
    let (status, ledger) = (Arc::clone(status), Ledger::open(directory));
    let over = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&over);
    let thread = std::thread::spawn(move || report(&status, &ledger, &seen));
    Reporter { thread, over }
}

impl Reporter {
    /// Stops the thread. Returns the server's maximum memory use.
    pub fn end(self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("the reporter reports")
    }
}

fn report(status: &Status, ledger: &Ledger, over: &AtomicBool) -> u64 {
    let begin = Instant::now();
    let (mut most, mut due) = (0, Duration::from_secs(1));
    let mut progress = Progress::default();
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
        // Once the server has exited, its memory use is unknown.
        let resident = resident_bytes(status.server).unwrap_or(0);
        most = most.max(resident);
        if begin.elapsed() < due {
            continue;
        }
        due += INTERVAL;
        progress.read(ledger, status.streams.load(Ordering::Relaxed));
        let attack = status.attack.lock().expect("no thread panicked").unwrap_or("none");
        println!(
            "{:5.0} s: answered {}; failed: {}; {}; attack now: {attack}; RSS {:.1} MB",
            begin.elapsed().as_secs_f64(),
            progress.outcomes[usize::from(ANSWERED)],
            kinds(&progress.outcomes),
            status.done(),
            resident as f64 / f64::from(1 << 20)
        );
    }
    most
}
