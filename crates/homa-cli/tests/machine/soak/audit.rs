//! Checks the ledger of a soak test: no call may be lost, executed twice, answered wrongly, or hung.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use homa::ServerAddr;
use homa::error::CallError;
use homa_proto::Config;

use super::ledger::{ANSWERED, BEGUN, DEADLINE, Failure, Ledger, OUTCOMES, Outcome, PEER_RESTARTED, WRONG};
use super::message::CallId;
use super::process::{Carrier, Stream, Target};

/// The cause of a disturbance during which calls may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    Cut,
    /// The server was killed and restarted.
    Kill,
    /// The two ends of the link have different MTUs, and the receiving end silently drops packets longer than
    /// its MTU.
    MtuMismatch,
}

/// A period in which calls may fail.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub cause: Cause,
    pub begin_ns: u64,
    pub end_ns: u64,
}

impl Window {
    fn explains(&self, failure: &Failure, stream: Stream) -> bool {
        self.concerns(stream) && failure.begin_ns <= self.end_ns && self.begin_ns <= failure.end_ns
    }

    /// Returns whether a call that began after this kill may end with `PeerRestarted`.
    ///
    /// If a client sent its request before the first packet of the new incarnation arrived, it cannot know
    /// which incarnation received the request (PEER-6). If processes share a host, a process that takes over
    /// a port does not know which requests its predecessor executed, so a lost packet has the same effect
    /// (HOST-10).
    fn may_confuse(&self, failure: &Failure, stream: Stream) -> bool {
        let restarted = failure.outcome.code() == PEER_RESTARTED && self.cause == Cause::Kill;
        let end_ns = self.end_ns + Config::default().max_packet_lifetime_ns;
        restarted && self.concerns(stream) && (self.begin_ns..end_ns).contains(&failure.begin_ns)
    }

    fn concerns(&self, stream: Stream) -> bool {
        self.cause != Cause::Kill || stream.target == Target::Killed
    }
}

/// Counts of outcomes, updated by reading the ledger incrementally.
#[derive(Default)]
pub struct Progress {
    next: BTreeMap<u32, u32>,
    pub outcomes: [u64; OUTCOMES.len()],
}

impl Progress {
    pub fn read(&mut self, ledger: &Ledger, streams: u32) {
        for stream in 0..streams {
            let next = self.next.entry(stream).or_default();
            loop {
                let outcomes = ledger.outcomes(stream, *next);
                let ended = outcomes.iter().take_while(|outcome| outcome.code() != BEGUN);
                let read = ended.map(|outcome| self.outcomes[usize::from(outcome.code())] += 1).count();
                *next += read as u32;
                if read == 0 {
                    break;
                }
            }
        }
    }
}

/// Lists the kinds of failures, each with its number of calls.
pub fn kinds(outcomes: &[u64]) -> String {
    let failed = OUTCOMES.iter().zip(outcomes).skip(usize::from(WRONG)).filter(|(_, count)| **count > 0);
    let kinds: Vec<String> = failed.map(|(name, count)| format!("{name} {count}")).collect();
    if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") }
}

/// A stream, with whether its client was killed.
#[derive(Clone, Copy, Debug)]
pub struct AuditedStream {
    pub stream: Stream,
    pub killed: bool,
}

/// The results of checking the ledger.
#[derive(Default)]
pub struct Audit {
    pub outcomes: [u64; OUTCOMES.len()],
    pub executed: u64,
    /// Defects, one line each.
    pub defects: Vec<String>,
    /// Number of requests executed by two incarnations of a server, which AMO-11 permits.
    pub twice_over_lives: u64,
    /// Failures by cause; the cause is `None` for calls that were not disturbed.
    pub failures: BTreeMap<Option<Cause>, [u64; OUTCOMES.len()]>,
    pub answered_by: BTreeMap<String, u64>,
    /// Streams in which a call ended with `PeerRestarted`, each with the index (among the windows) of the
    /// kill before that call.
    confused: BTreeSet<(u32, usize)>,
}

impl Audit {
    pub fn of(ledger: &Ledger, streams: &[AuditedStream], failures: &[Failure], windows: &[Window]) -> Audit {
        let mut audit = Audit::default();
        for streamed in streams {
            audit.read(ledger, streamed);
        }
        for failure in failures {
            let stream = streams[failure.id.stream as usize].stream;
            audit.explain(failure, stream, windows);
        }
        audit
    }

    fn read(&mut self, ledger: &Ledger, &AuditedStream { stream, killed }: &AuditedStream) {
        let mut number = 0;
        loop {
            let outcomes = ledger.outcomes(stream.number, number);
            if outcomes.is_empty() {
                return;
            }
            for outcome in outcomes {
                let id = CallId { stream: stream.number, number };
                number += 1;
                let executed = ledger.executed(id);
                let code = outcome.code();
                self.outcomes[usize::from(code)] += 1;
                self.executed += u64::from(executed.count());
                self.twice_over_lives += u64::from(executed.count() > 1 && !executed.twice_in_a_life());
                if code == ANSWERED {
                    let from = format!("{:?} {:?}", stream.target, stream.carrier);
                    *self.answered_by.entry(from).or_default() += 1;
                }
                let defects = [
                    (executed.twice_in_a_life(), "executed twice by one life of its server"),
                    (executed.had_wrong_bytes(), "reached its server with wrong bytes"),
                    (code == WRONG, "was answered with wrong bytes"),
                    (code == DEADLINE || outcome.is_late(), "hung"),
                    (code == BEGUN && !killed, "never ended"),
                    (
                        code == ANSWERED && outcome.is_recorded() && executed.count() == 0,
                        "was answered and not executed",
                    ),
                    (
                        outcome.says_not_run() && executed.count() > 0,
                        "ran, and its error says that it has not",
                    ),
                ];
                for (_, what) in defects.into_iter().filter(|(is, _)| *is) {
                    self.defects.push(format!("{id:?} of {stream:?} {what}: {outcome:?}, {executed:?}"));
                }
            }
        }
    }

    fn explain(&mut self, failure: &Failure, stream: Stream, windows: &[Window]) {
        let explains = |window: &&Window| window.explains(failure, stream);
        let cause = windows.iter().filter(explains).map(|window| window.cause).min();
        let cause = cause.or_else(|| {
            let kill = windows.iter().rposition(|window| window.may_confuse(failure, stream))?;
            // PEER-6: over UDP, the stream's host knows the new incarnation after the first such call.
            let first = self.confused.insert((stream.number, kill));
            (first || stream.carrier.shares_host()).then_some(Cause::Kill)
        });
        let code = usize::from(failure.outcome.code());
        self.failures.entry(cause).or_default()[code] += 1;
        if cause.is_none() {
            self.defects.push(format!(
                "{stream:?} lost a call that nothing disturbed: {}: {failure:?}",
                OUTCOMES[code]
            ));
        }
    }

    /// Panics with the first defects, if there are any.
    pub fn assert_clean(&self) {
        let shown = self.defects.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
        assert!(self.defects.is_empty(), "{} defects, the first of them:\n{shown}", self.defects.len());
    }
}

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |f: &mut fmt::Formatter<'_>, what: &str, value: &str| writeln!(f, "{what:<36} {value}");
        row(f, "calls answered", &self.outcomes[usize::from(ANSWERED)].to_string())?;
        for (from, count) in &self.answered_by {
            row(f, &format!("  by {from}"), &count.to_string())?;
        }
        for (name, cause) in [
            ("calls failed during cuts", Some(Cause::Cut)),
            ("calls failed by a killed server", Some(Cause::Kill)),
            ("calls failed at MTUs that differ", Some(Cause::MtuMismatch)),
            ("calls failed that nothing disturbed", None),
        ] {
            row(f, name, &self.failures.get(&cause).map_or("none".to_owned(), |counts| kinds(counts)))?;
        }
        row(f, "calls of clients that were killed", &self.outcomes[usize::from(BEGUN)].to_string())?;
        row(f, "requests executed", &self.executed.to_string())?;
        row(f, "executed by two lives of a server", &self.twice_over_lives.to_string())?;
        row(f, "defects", &self.defects.len().to_string())
    }
}

#[test]
fn a_failure_is_explained_by_what_happened_during_the_call_alone() {
    let failure = failure(CallError::NoAnswer { to: server() });
    let defects = |cause, begin_ns, end_ns, target| {
        let mut audit = Audit::default();
        audit.explain(&failure, udp_stream(target), &[Window { cause, begin_ns, end_ns }]);
        audit.defects.len()
    };
    assert_eq!(defects(Cause::Cut, 150, 300, Target::Steady), 0);
    assert_eq!(defects(Cause::Cut, 10, 99, Target::Steady), 1);
    assert_eq!(defects(Cause::Cut, 201, 300, Target::Steady), 1);
    assert_eq!(defects(Cause::Kill, 150, 300, Target::Steady), 1, "another server was killed");
    assert_eq!(defects(Cause::Kill, 150, 300, Target::Killed), 0);
    assert_eq!(defects(Cause::Kill, 10, 99, Target::Killed), 1);
}

#[test]
fn a_stream_learns_of_a_restart_once() {
    let failure = failure(CallError::PeerRestarted { to: server() });
    let mut audit = Audit::default();
    let kill = Window { cause: Cause::Kill, begin_ns: 10, end_ns: 99 };
    for defects in [0, 1] {
        audit.explain(&failure, udp_stream(Target::Killed), &[kill]);
        assert_eq!(audit.defects.len(), defects);
    }
    audit.explain(&failure, udp_stream(Target::Steady), &[kill]);
    assert_eq!(audit.defects.len(), 2);
}

fn server() -> ServerAddr {
    ServerAddr::new(Target::Killed.address(Carrier::Udp), 98)
}

fn udp_stream(target: Target) -> Stream {
    Stream { number: 0, carrier: Carrier::Udp, target }
}

/// Returns a failure of a call that ran from 100 to 200 ns.
fn failure(error: CallError) -> Failure {
    let id = CallId { stream: 0, number: 0 };
    let outcome = Outcome::begun(true).failed(&error);
    Failure { id, outcome, begin_ns: 100, end_ns: 200, request_bytes: 1, response_bytes: 1 }
}
