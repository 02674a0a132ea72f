//! Several processes that share one host's address, over raw IP and Linux Homa's UDP encapsulation, against
//! one peer. Each process is another instance of this test program, with its role in its environment.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use super::common::{PATIENCE, be_patient, eventually, message, until_idle};
use homa::driver::LINUX_UDP_PORT;
use homa::error::{CallError, RecvError};
use homa::{Bytes, DriverChoice, Host, HostBuilder, Server, ServerAddr};
use homa_testkit::namespace::{Namespace, V4, pair};

const PORT: &str = "HOMA_TEST_PORT";
const DIR: &str = "HOMA_TEST_SEGMENT_DIR";
/// The driver of a process's host.
const DRIVER: &str = "HOMA_TEST_DRIVER";
/// Set for a process that reports when a request arrives, but does not answer.
const HOLDS: &str = "HOMA_TEST_HOLDS";

/// Lengths of one packet and of several packets; some need no grants, others many.
const LENGTHS: [usize; 6] = [100, 5_000, 200, 60_000, 1_000, 300_000];

/// The drivers whose processes share an address, and the UDP port of all peers.
const DRIVERS: [(DriverChoice, u16); 2] = [(DriverChoice::Raw, 0), (DriverChoice::LinuxUdp, LINUX_UDP_PORT)];

/// The driver of this test's hosts.
#[derive(Clone, Copy)]
struct Form(usize);

const RAW: Form = Form(0);
const UDP: Form = Form(1);

impl Form {
    fn of_environment() -> Form {
        Form(std::env::var(DRIVER).unwrap().parse().unwrap())
    }

    fn config(self, ip: &str, segment_dir: &Path) -> HostBuilder {
        let bind = SocketAddr::new(ip.parse::<IpAddr>().unwrap(), 0);
        let builder = Host::builder().driver(DRIVERS[self.0].0).address(bind);
        builder.segment_dir(segment_dir.to_owned()).configure(be_patient)
    }

    fn address(self, ip: &str, port: u16) -> ServerAddr {
        ServerAddr::new(SocketAddr::new(ip.parse().unwrap(), DRIVERS[self.0].1), port)
    }
}

/// Returns a request that contains its sender and number.
fn request(sender: u64, number: u64) -> Bytes {
    let length = LENGTHS[(number % 6) as usize];
    let mut bytes = message(length, sender << 32 | number).to_vec();
    bytes[..8].copy_from_slice(&sender.to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes.into()
}

fn sender_of(request: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_le_bytes(request[at..at + 8].try_into().unwrap());
    (word(0), word(8))
}

/// Answers every request with its own bytes, after calling `look` with them.
fn echo(server: Server, mut look: impl FnMut(&[u8]) + Send + 'static) -> JoinHandle<()> {
    thread::spawn(move || {
        loop {
            match server.recv().wait() {
                Ok(mut rpc) => {
                    let request = rpc.take_payload();
                    look(&request);
                    // The client may have been killed.
                    let _ = rpc.reply(request);
                }
                Err(RecvError::Closed) => return,
                Err(error) => panic!("{error}"),
            }
        }
    })
}

/// Main program of a process of the shared host: it serves its port, and calls the peer until its input ends.
#[test]
fn child() {
    let Ok(port) = std::env::var(PORT) else { return };
    let port: u16 = port.parse().unwrap();
    let say = |text: &str| {
        println!("@{text}");
        io::stdout().flush().unwrap();
    };
    let dir = PathBuf::from(std::env::var(DIR).unwrap());
    let form = Form::of_environment();
    let host = form.config(V4[0], &dir).bind().unwrap();
    let server = match host.server(port) {
        Ok(server) => server,
        Err(error) => return say(&error.to_string()),
    };
    if std::env::var(HOLDS).is_ok() {
        say("ready");
        let _request = server.recv().wait().unwrap();
        say("got it");
        io::stdin().read_line(&mut String::new()).unwrap();
        return;
    }
    // The log shows which requests the process had executed before it died.
    let mut log = File::create(dir.join(format!("executed-{port}-{}", std::process::id()))).unwrap();
    let served = echo(server, move |bytes| log.write_all(&bytes[8..16]).unwrap());
    let client = host.client().unwrap();
    say("ready");
    let over = Arc::new(AtomicBool::new(false));
    let caller = thread::spawn({
        let over = Arc::clone(&over);
        move || {
            let mut number = 0;
            while !over.load(SeqCst) {
                let request = request(port.into(), number);
                let answer =
                    client.call(form.address(V4[1], 99), request.clone()).timeout(PATIENCE).wait().unwrap();
                assert_eq!(answer, request);
                number += 1;
            }
            number
        }
    });
    io::stdin().read_line(&mut String::new()).unwrap();
    over.store(true, SeqCst);
    let calls = caller.join().unwrap();
    until_idle(&host);
    let metrics = host.metrics();
    let shared = &metrics.host;
    say(&format!(
        "{calls} {} {} {} {} {}",
        metrics.endpoint.rpcs_failed,
        metrics.endpoint.foreign_received,
        shared.shared_found_dead,
        shared.shared_grant_lease_bytes,
        shared.shared_grant_budget_bytes,
    ));
    assert!(host.shutdown(PATIENCE));
    served.join().unwrap();
}

struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    /// Starts a process that serves and calls.
    fn start(namespace: &Namespace, form: Form, port: u16, dir: &Path) -> Process {
        Process::with(namespace, form, port, dir, &[])
    }

    fn with(
        namespace: &Namespace,
        form: Form,
        port: u16,
        dir: &Path,
        more: &'static [(&str, &str)],
    ) -> Process {
        let dir = dir.to_owned();
        namespace.run(move || {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "several_processes::child", "--nocapture"])
                .envs([(PORT, port.to_string()), (DRIVER, form.0.to_string())])
                .env(DIR, dir)
                .envs(more.iter().copied())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let stdin = child.stdin.take();
            let stdout = BufReader::new(child.stdout.take().unwrap());
            Process { child, stdin, stdout }
        })
    }

    /// Returns the next line that the process writes.
    fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "the child ended");
            if let Some((_, text)) = line.split_once('@') {
                return text.trim_end().to_owned();
            }
        }
    }

    /// Shuts the process down normally, and returns the numbers that it reported.
    fn end(mut self) -> [u64; 6] {
        drop(self.stdin.take());
        let heard = self.hear();
        let numbers: Vec<u64> = heard.split(' ').map(|number| number.parse().unwrap()).collect();
        assert!(self.child.wait().unwrap().success());
        numbers.try_into().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The peer: an echo server, and a thread that calls each port of the shared host.
struct Peer {
    form: Form,
    host: Host,
    /// Number of executions of each request, by its sender and number.
    executed: Arc<Mutex<HashMap<(u64, u64), u32>>>,
    served: JoinHandle<()>,
    callers: Vec<Caller>,
    over: Arc<AtomicBool>,
}

struct Caller {
    answered: Arc<AtomicU64>,
    /// Errors, by call number.
    errors: Arc<Mutex<Vec<(u64, CallError)>>>,
    thread: JoinHandle<()>,
}

impl Peer {
    fn new(form: Form, dir: &Path) -> Peer {
        let host = form.config(V4[1], dir).bind().unwrap();
        let executed = Arc::new(Mutex::new(HashMap::new()));
        let seen = Arc::clone(&executed);
        let look = move |bytes: &[u8]| *seen.lock().unwrap().entry(sender_of(bytes)).or_default() += 1;
        let served = echo(host.server(99).unwrap(), look);
        Peer { form, host, executed, served, callers: Vec::new(), over: Arc::default() }
    }

    fn call(&mut self, port: u16) {
        self.callers.push(Caller::new(&self.host, self.form.address(V4[0], port), &self.over));
    }

    /// Returns the number of executed calls from the process at this port.
    fn executed_for(&self, port: u16) -> usize {
        self.executed.lock().unwrap().keys().filter(|(sender, _)| *sender == u64::from(port)).count()
    }

    /// Ends the calls, and returns their errors.
    fn stop(&mut self) -> Vec<Vec<(u64, CallError)>> {
        self.over.store(true, SeqCst);
        let errors = self.callers.drain(..).map(|caller| {
            caller.thread.join().unwrap();
            std::mem::take(&mut *caller.errors.lock().unwrap())
        });
        errors.collect()
    }

    /// Must be called after all calls to the peer have ended.
    fn end(self) {
        until_idle(&self.host);
        assert_eq!(self.host.metrics().endpoint.peer_restarts, 0, "HOST-2");
        assert!(self.host.shutdown(PATIENCE));
        self.served.join().unwrap();
    }
}

impl Caller {
    fn new(host: &Host, to: ServerAddr, over: &Arc<AtomicBool>) -> Caller {
        let (client, over) = (host.client().unwrap(), Arc::clone(over));
        let (answered, errors) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (count, failed) = (Arc::clone(&answered), Arc::clone(&errors));
        let thread = thread::spawn(move || {
            for number in 0.. {
                if over.load(SeqCst) {
                    return;
                }
                let request = request(7, number);
                match client.call(to, request.clone()).timeout(PATIENCE).wait() {
                    Ok(answer) => {
                        assert_eq!(answer, request);
                        count.fetch_add(1, SeqCst);
                    }
                    Err(error) => failed.lock().unwrap().push((number, error)),
                }
            }
        });
        Caller { answered, errors, thread }
    }

    fn answered(&self) -> u64 {
        self.answered.load(SeqCst)
    }
}

/// A directory for segments, removed when dropped.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Dir(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the calls that any process executed at this port, and those that more than one process executed.
fn executed_by_servers(dir: &Path, port: u16) -> (HashSet<u64>, Vec<u64>) {
    let (mut ran, mut twice) = (HashSet::new(), Vec::new());
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if entry.file_name().to_string_lossy().starts_with(&format!("executed-{port}-")) {
            let log = std::fs::read(entry.path()).unwrap();
            let numbers = log.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
            twice.extend(numbers.filter(|&number| !ran.insert(number)));
        }
    }
    (ran, twice)
}

/// Starts three processes with servers and clients; the process at index `victim` is killed under load, and
/// another process takes its port.
fn one_is_killed(form: Form, victim: usize) {
    const PORTS: [u16; 3] = [101, 102, 103];
    let Some(namespaces) = pair(1_500) else { return };
    let dir = Dir::new(&format!("victim-{victim}-{}", form.0));
    let mut peer = namespaces[1].run({
        let dir = dir.0.clone();
        move || Peer::new(form, &dir)
    });
    let mut processes: Vec<Option<Process>> = Vec::new();
    for port in PORTS {
        let mut process = Process::start(&namespaces[0], form, port, &dir.0);
        assert_eq!(process.hear(), "ready");
        processes.push(Some(process));
        peer.call(port);
    }
    // HOST-1: another process that requests a port gets the ID of its owner.
    let mut other = Process::start(&namespaces[0], form, 103, &dir.0);
    let owner = processes[2].as_ref().unwrap().child.id();
    assert_eq!(
        other.hear(),
        format!(
            "Homa port 103 is taken by process {owner} of this host: choose another, or end that process"
        )
    );
    assert!(other.child.wait().unwrap().success());
    let all_do = |more: u64, which: &[usize]| {
        let before: Vec<_> =
            which.iter().map(|&i| (peer.callers[i].answered(), peer.executed_for(PORTS[i]))).collect();
        eventually("calls both ways", || {
            which.iter().zip(&before).all(|(&i, (answered, executed))| {
                peer.callers[i].answered() >= answered + more
                    && peer.executed_for(PORTS[i]) >= executed + more as usize
            })
        });
    };
    all_do(30, &[0, 1, 2]);
    drop(processes[victim].take()); // kill -9
    let others: Vec<usize> = (0..3).filter(|&i| i != victim).collect();
    eventually("the call to the killed server ends", || {
        !peer.callers[victim].errors.lock().unwrap().is_empty()
    });
    all_do(30, &others); // HOST-9: the other processes' RPCs continue.
    // The killed process's port is free again.
    let mut heir = Process::start(&namespaces[0], form, PORTS[victim], &dir.0);
    assert_eq!(heir.hear(), "ready");
    let before = peer.callers[victim].answered();
    eventually("calls to its successor", || peer.callers[victim].answered() >= before + 30);
    all_do(30, &others);

    let executed = Arc::clone(&peer.executed);
    let errors = peer.stop();
    let reports = processes.into_iter().flatten().chain([heir]).map(Process::end).collect::<Vec<_>>();
    peer.end();
    for report @ [calls, failed, foreign, found_dead, lease, budget] in reports {
        assert!(calls >= 30 && failed == 0, "{report:?}");
        assert!(foreign > 0, "acknowledgements for others' ports passed by: {report:?}");
        assert_eq!((found_dead, lease, budget), (1, 0, 400_000), "HOST-9, HOST-5: {report:?}");
    }
    let (ran, twice) = executed_by_servers(&dir.0, PORTS[victim]);
    assert!(twice.is_empty(), "HOST-10: requests executed by two processes: {twice:?}");
    for (i, errors) in errors.into_iter().enumerate() {
        for (number, error) in &errors {
            let none = matches!(error, CallError::NoSuchPort { .. });
            assert!(!none || !ran.contains(number), "HOST-10: call {number} ran, and ended in {error}");
        }
        let actionable = |(_, error): &(u64, CallError)| {
            matches!(
                error,
                CallError::NoSuchPort { .. }
                    | CallError::PeerRestarted { .. }
                    | CallError::ResponseLost { .. }
            )
        };
        assert!(errors.iter().all(|error| i == victim && actionable(error)), "port {}: {errors:?}", PORTS[i]);
    }
    // Each ID belonged to only one process: a request with another process's ID would have been dropped, or
    // answered by the wrong process.
    let executed = executed.lock().unwrap();
    let twice =
        executed.iter().filter(|((sender, _), times)| **times > 1 && *sender != u64::from(PORTS[victim]));
    assert_eq!(twice.count(), 0, "requests executed twice");
}

#[test]
fn a_process_that_is_killed_costs_the_others_nothing() {
    one_is_killed(RAW, 1);
}

#[test]
fn a_leader_that_is_killed_costs_the_others_nothing() {
    one_is_killed(RAW, 0);
}

/// HOST-13: the process gets its packets from the process that receives for all.
#[test]
fn a_process_that_shares_a_udp_port_and_is_killed_costs_the_others_nothing() {
    one_is_killed(UDP, 1);
}

/// HOST-12: another process then receives for all.
#[test]
fn the_process_that_receives_for_all_is_killed_and_costs_the_others_nothing() {
    one_is_killed(UDP, 0);
}

#[test]
fn a_request_in_the_hands_of_a_process_that_dies_goes_to_no_other() {
    a_process_dies_with_a_request(RAW);
}

#[test]
fn a_request_in_the_hands_of_a_process_that_shares_a_udp_port_goes_to_no_other() {
    a_process_dies_with_a_request(UDP);
}

/// HOST-10. Either the leader or the next process that binds the port may answer. In both cases the client
/// learns that its request may have been executed, and no other process executes it.
fn a_process_dies_with_a_request(form: Form) {
    let Some(namespaces) = pair(1_500) else { return };
    for heir_at_once in [false, true] {
        let dir = Dir::new(&format!("in-hand-{heir_at_once}-{}", form.0));
        let peer = namespaces[1].run({
            let dir = dir.0.clone();
            move || Peer::new(form, &dir)
        });
        let mut leader = Process::start(&namespaces[0], form, 102, &dir.0);
        assert_eq!(leader.hear(), "ready");
        let mut victim = Process::with(&namespaces[0], form, 101, &dir.0, &[(HOLDS, "1")]);
        assert_eq!(victim.hear(), "ready");
        let client = peer.host.client().unwrap();
        let to = form.address(V4[0], 101);
        let call = client.call(to, request(7, 0)).start().unwrap();
        assert_eq!(victim.hear(), "got it");
        drop(victim); // kill -9
        let mut heir = heir_at_once.then(|| Process::start(&namespaces[0], form, 101, &dir.0));
        assert_eq!(call.timeout(PATIENCE).wait(), Err(CallError::PeerRestarted { to }));
        match &mut heir {
            // The request of a call that starts now is not executed, and the error says so.
            None => {
                let refused = client.call(to, request(7, 1)).timeout(PATIENCE).wait();
                assert_eq!(refused, Err(CallError::NoSuchPort { to }));
            }
            Some(heir) => {
                assert_eq!(heir.hear(), "ready");
                assert_eq!(client.call(to, request(7, 1)).timeout(PATIENCE).wait(), Ok(request(7, 1)));
            }
        }
        let (ran, _) = executed_by_servers(&dir.0, 101);
        assert_eq!(ran, if heir_at_once { HashSet::from([1]) } else { HashSet::new() });
        leader.end();
        if let Some(heir) = heir {
            heir.end();
        }
        peer.end();
    }
}
