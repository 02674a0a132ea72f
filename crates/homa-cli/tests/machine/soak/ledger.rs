//! Outcomes of calls and executions at servers, in files that outlive all processes of a soak test.
//!
//! Both files have a slot for each call. The files are sparse, so unused slots cost nothing. A SIGKILL does
//! not lose any write.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;

use homa::error::CallError;
use rustix::time::{ClockId, clock_gettime};

use super::message::CallId;

/// Number of slots per stream.
const STREAM_CALLS: u64 = 1 << 24;

/// Code for a call that has begun but not ended.
pub const BEGUN: u8 = 1;
pub const ANSWERED: u8 = 2;
/// Code for a response whose bytes differ from those that the server sends.
pub const WRONG: u8 = 3;
pub const DEADLINE: u8 = 4;
pub const PEER_RESTARTED: u8 = 9;

/// Names of the outcomes, indexed by their codes.
pub const OUTCOMES: [&str; 16] = [
    "none",
    "unfinished",
    "answered",
    "wrong bytes",
    "deadline exceeded",
    "timed out",
    "unreachable",
    "protocol unreachable",
    "no such port",
    "peer restarted",
    "response lost",
    "too large",
    "limit reached",
    "aborted",
    "closed",
    "other error",
];

const CODE: u8 = 0x1f;
/// Set if the request had a header, so that its execution is recorded.
const RECORDED: u8 = 0x20;
/// Set if the call ended later than its deadline.
const LATE: u8 = 0x40;
/// Set if the error states that the request has not been executed.
const NOT_RUN: u8 = 0x80;

fn code(error: &CallError) -> u8 {
    match error {
        CallError::TimedOut { .. } => DEADLINE,
        CallError::NoAnswer { .. } => 5,
        CallError::Unreachable { .. } => 6,
        CallError::ProtocolUnreachable { .. } => 7,
        CallError::NoSuchPort { .. } => 8,
        CallError::PeerRestarted { .. } => PEER_RESTARTED,
        CallError::ResponseLost { .. } => 10,
        CallError::TooLargeForReceiver { .. } | CallError::MessageTooLarge { .. } => 11,
        CallError::LimitReached { .. } => 12,
        CallError::Aborted { .. } => 13,
        CallError::Closed => 14,
        _ => 15,
    }
}

/// The outcome of a call, stored in a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome(u8);

impl Outcome {
    pub fn begun(recorded: bool) -> Outcome {
        Outcome(BEGUN | if recorded { RECORDED } else { 0 })
    }

    pub fn answered(self, right: bool) -> Outcome {
        Outcome(self.0 & !CODE | if right { ANSWERED } else { WRONG })
    }

    pub fn failed(self, error: &CallError) -> Outcome {
        Outcome(self.0 & !CODE | code(error) | if error.may_have_run() { 0 } else { NOT_RUN })
    }

    pub fn late(self) -> Outcome {
        Outcome(self.0 | LATE)
    }

    pub fn code(self) -> u8 {
        self.0 & CODE
    }

    pub fn is_recorded(self) -> bool {
        self.0 & RECORDED != 0
    }

    pub fn is_late(self) -> bool {
        self.0 & LATE != 0
    }

    pub fn says_not_run(self) -> bool {
        self.0 & NOT_RUN != 0
    }
}

/// The executions of a request: how many there were, and the last incarnation of the server that executed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutionRecord([u8; 2]);

impl ExecutionRecord {
    const WRONG: u8 = 0x80;
    const TWICE_IN_A_LIFE: u8 = 0x40;
    const COUNT: u8 = 0x3f;

    fn again(self, life: u8, right: bool) -> ExecutionRecord {
        let ExecutionRecord([mut flags, last]) = self;
        if self.count() > 0 && last == life {
            flags |= ExecutionRecord::TWICE_IN_A_LIFE;
        }
        if !right {
            flags |= ExecutionRecord::WRONG;
        }
        ExecutionRecord([
            flags & !ExecutionRecord::COUNT | (self.count() + 1).min(ExecutionRecord::COUNT),
            life,
        ])
    }

    pub fn count(self) -> u8 {
        self.0[0] & ExecutionRecord::COUNT
    }

    pub fn twice_in_a_life(self) -> bool {
        self.0[0] & ExecutionRecord::TWICE_IN_A_LIFE != 0
    }

    pub fn had_wrong_bytes(self) -> bool {
        self.0[0] & ExecutionRecord::WRONG != 0
    }
}

/// A call that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    pub id: CallId,
    pub outcome: Outcome,
    /// Time in nanoseconds, from [`now_ns`].
    pub begin_ns: u64,
    pub end_ns: u64,
    pub request_bytes: usize,
    pub response_bytes: usize,
}

/// Returns the time of the monotonic clock, which is the same for all processes of the machine.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

pub struct Ledger {
    outcomes: File,
    executions: File,
    failures: File,
    /// Held while an execution is recorded: if two threads of a server receive the same request, only one of
    /// them may find that it has not been executed.
    executing: Mutex<()>,
}

fn slot(id: CallId) -> u64 {
    assert!(u64::from(id.number) < STREAM_CALLS, "a stream has more calls than slots");
    u64::from(id.stream) * STREAM_CALLS + u64::from(id.number)
}

impl Ledger {
    /// Opens the ledger in this directory, creating it if it is missing.
    pub fn open(directory: &Path) -> Ledger {
        let mut options = OpenOptions::new();
        options.read(true).create(true);
        let mut both = options.clone();
        both.write(true).truncate(false);
        let open = |options: &OpenOptions, name: &str| options.open(directory.join(name)).expect("a file");
        Ledger {
            outcomes: open(&both, "outcomes"),
            executions: open(&both, "executions"),
            failures: open(options.append(true), "failures"),
            executing: Mutex::new(()),
        }
    }

    pub fn note(&self, id: CallId, outcome: Outcome) {
        self.outcomes.write_all_at(&[outcome.0], slot(id)).expect("writable");
    }

    pub fn note_failure(&self, failure: &Failure) {
        let Failure { id, outcome, begin_ns, end_ns, request_bytes, response_bytes } = failure;
        let line = format!(
            "{} {} {} {begin_ns} {end_ns} {request_bytes} {response_bytes}\n",
            id.stream, id.number, outcome.0
        );
        (&self.failures).write_all(line.as_bytes()).expect("writable");
    }

    pub fn note_execution(&self, id: CallId, life: u8, right: bool) {
        let _executing = self.executing.lock().expect("no thread panicked");
        let executed = self.executed(id).again(life, right);
        self.executions.write_all_at(&executed.0, slot(id) * 2).expect("writable");
    }

    pub fn executed(&self, id: CallId) -> ExecutionRecord {
        let mut bytes = [0; 2];
        // Nothing has been recorded beyond the end of the file.
        let _ = self.executions.read_exact_at(&mut bytes, slot(id) * 2);
        ExecutionRecord(bytes)
    }

    /// Returns the outcomes of a stream, starting with this call number: all that are available, but at most
    /// a few thousand.
    pub fn outcomes(&self, stream: u32, from: u32) -> Vec<Outcome> {
        let mut bytes = vec![0; 4_096];
        let length =
            self.outcomes.read_at(&mut bytes, slot(CallId { stream, number: from })).expect("readable");
        bytes[..length].iter().take_while(|byte| **byte != 0).map(|byte| Outcome(*byte)).collect()
    }
}

/// Returns all failures recorded in this directory.
pub fn failures(directory: &Path) -> Vec<Failure> {
    let text = std::fs::read_to_string(directory.join("failures")).expect("readable");
    text.lines()
        .map(|line| {
            let words: Vec<u64> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
            let [stream, number, outcome, begin_ns, end_ns, request, response] = words[..] else {
                panic!("a failure has seven words: {line}");
            };
            Failure {
                id: CallId { stream: stream as u32, number: number as u32 },
                outcome: Outcome(outcome as u8),
                begin_ns,
                end_ns,
                request_bytes: request as usize,
                response_bytes: response as usize,
            }
        })
        .collect()
}

#[test]
fn a_second_execution_is_recorded_with_the_life_in_which_it_was() {
    let scratch = homa_testkit::Scratch::new("ledger");
    let ledger = Ledger::open(&scratch.0);
    let id = CallId { stream: 2, number: 9 };
    assert_eq!(ledger.executed(id).count(), 0);
    ledger.note_execution(id, 1, true);
    ledger.note_execution(id, 2, true);
    let executed = ledger.executed(id);
    assert_eq!((executed.count(), executed.twice_in_a_life()), (2, false));
    ledger.note_execution(id, 2, false);
    let executed = ledger.executed(id);
    assert!(executed.twice_in_a_life() && executed.had_wrong_bytes());
}
