//! Tests with several processes: each is another instance of this test program, with its role in its
//! environment.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use homa_proto::wire::PRIORITIES;

use super::lease_share::LEADER_PATIENCE_NS;
use super::membership::INCARNATIONS;
use super::*;
use crate::types::limits::MAX_PROCESSES;
use crate::types::segment_error::SegmentError;

const ROLE: &str = "HOMA_SEGMENT_TEST_ROLE";
const FILE: &str = "HOMA_SEGMENT_TEST_FILE";

/// A separate directory for each test, removed when dropped.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new() -> Dir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        let dir = std::env::temp_dir().join(format!("homa-segment-{}-{number}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        Dir(dir)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    fn file(&self) -> PathBuf {
        self.0.join("segment")
    }

    pub(crate) fn open(&self) -> Segment {
        Segment::open(&self.file(), &initial(1_000)).unwrap()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn initial(incarnation: u64) -> SegmentParameters {
    SegmentParameters {
        incarnation,
        seed: 7,
        cutoffs: CutoffSet::initial([9; PRIORITIES], 77),
        budget: 400_000,
    }
}

fn cutoffs(level: u32, version: u16) -> CutoffSet {
    CutoffSet { levels: [level; PRIORITIES], version, unsched_limit: None }
}

/// The main program of a child process.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let path = PathBuf::from(std::env::var(FILE).unwrap());
    let say = |text: String| {
        println!("@{text}");
        io::stdout().flush().unwrap();
    };
    let wait = || io::stdin().read_line(&mut String::new()).unwrap();
    let segment = Segment::open(&path, &initial(5_000)).unwrap();
    match role.as_str() {
        "serve" => {
            segment.tick(0, &mut LeaseWatch::default());
            segment.bind(99).unwrap();
            let port = segment.open_client().unwrap();
            let lease = segment.lease_share().lease_grants(400_000, 0);
            say(format!("{port} {lease} {}", segment.is_leader()));
            wait();
        }
        "lock" => {
            let _registry = segment.registry().unwrap();
            say(String::new());
            wait();
        }
        "lease" => {
            let ids: Vec<String> = (0..2_000).map(|_| segment.lease_ids().to_string()).collect();
            let ports: Vec<String> = (0..50).map(|_| segment.open_client().unwrap().to_string()).collect();
            say(format!("{} {}", ids.join(","), ports.join(",")));
            wait();
        }
        role => panic!("{role}?"),
    }
}

impl Segment {
    fn is_foreign(&self, port: u16) -> bool {
        self.owner_of(port) == PacketOwner::Foreign
    }
}

struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    fn start(role: &str, file: &Path) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tenancy::process_group::tests::child", "--nocapture"])
            .envs([(ROLE, role.as_ref()), (FILE, file.as_os_str())])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Process { child, stdin, stdout }
    }

    /// Returns the next line that the child writes.
    fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "the child ended");
            if let Some((_, text)) = line.split_once('@') {
                return text.trim_end().to_owned();
            }
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn end(mut self) {
        drop(self.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn who_joins_a_living_host_has_its_incarnation_and_a_slot_of_its_own() {
    let dir = Dir::new();
    // This time is ahead of the clock, so the file is kept.
    let now = in_an_hour();
    let open = |incarnation| Segment::open(&dir.file(), &initial(incarnation)).unwrap();
    let first = open(now);
    let second = open(now + 1_000);
    assert_eq!((first.incarnation(), second.incarnation()), (now, now));
    assert_ne!(first.slot, second.slot);
    assert_eq!(second.counts().processes, 2);
    drop(first);
    let third = open(now + 2_000);
    assert_eq!(third.incarnation(), now, "the second still lives");
    drop((second, third));
    assert_eq!(open(now + 3_000).incarnation(), now + 3_000);
    assert_eq!(open(now + 1_000).incarnation(), now + 3_001, "newer although the clock went back");
}

#[test]
fn ids_go_on_after_the_last_process_ended() {
    let dir = Dir::new();
    let first = Segment::open(&dir.file(), &initial(in_an_hour())).unwrap();
    let (one, two, seed) = (first.lease_ids(), first.lease_ids(), first.id_seed());
    assert_eq!((one % (2 * IDS_PER_LEASE), two), (0, one + 2 * IDS_PER_LEASE));
    drop(first);
    let next = dir.open();
    assert_eq!((next.lease_ids(), next.id_seed()), (two + 2 * IDS_PER_LEASE, seed));
}

/// Milliseconds of the wall clock one hour from now.
fn in_an_hour() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    (since_1970.as_millis() as u64 + 3_600_000) & INCARNATIONS
}

#[test]
fn the_last_process_removes_the_file() {
    let dir = Dir::new();
    let an_hour_ago = in_an_hour().wrapping_sub(2 * 3_600_000) & INCARNATIONS;
    let [first, second] = [0, 1].map(|_| Segment::open(&dir.file(), &initial(an_hour_ago)).unwrap());
    drop(first);
    assert!(dir.file().exists(), "the second still lives");
    drop(second);
    assert!(!dir.file().exists());
    let ahead = Segment::open(&dir.file(), &initial(in_an_hour())).unwrap();
    drop(ahead);
    assert!(dir.file().exists(), "the next incarnation is to be newer than this one");
}

/// Reading the file neither panics nor overflows, whatever it contains.
#[test]
fn a_damaged_file_ends_no_process() {
    let dir = Dir::new();
    let (first, second) = (dir.open(), dir.open());
    for value in [0, 1, u64::MAX] {
        let map = &*first.map;
        map.registry.slots_used.store(value as u32, Relaxed);
        map.registry.leader.store(value as u32, Relaxed);
        map.registry.next_client_port.store(value as u32, Relaxed);
        map.registry.incarnation.store(value, Relaxed);
        map.registry.budget.store(value, Relaxed);
        map.pool.uplink_idle_at.0.store(value, Relaxed);
        map.pool.cutoffs_published.0.store(value, Relaxed);
        map.ports.iter().for_each(|port| port.store(value as u8, Relaxed));
        map.pool.observed.iter().for_each(|bytes| bytes.store(value, Relaxed));
        for slot in &map.pool.slots {
            slot.lease.store(value, Relaxed);
            slot.wants.store(value, Relaxed);
            slot.waiting.store(value, Relaxed);
            slot.pid.store(value as u32, Relaxed);
        }
        for segment in [&first, &second] {
            let mut watch = LeaseWatch::default();
            segment.tick(0, &mut watch);
            segment.tick(1 << 40, &mut watch);
            let lease_share = segment.lease_share();
            lease_share.lease_grants(400_000, 1_000);
            lease_share.lease_grants(u64::MAX, 0);
            lease_share.lease_grants(0, 0);
            lease_share.leased_bytes();
            lease_share.uplink_backlog_ns(5);
            lease_share.shortest_elsewhere(5);
            lease_share.cutoffs();
            lease_share.take_observed(|_, _| ());
            lease_share.add_observed(usize::MAX, 5);
            segment.owner_of(99);
            segment.counts();
            let _ = segment.bind(99);
            let _ = segment.open_client();
        }
    }
}

#[test]
fn a_port_has_one_owner_whom_the_error_names() {
    let dir = Dir::new();
    let (one, other) = (dir.open(), dir.open());
    assert_eq!(one.bind(99).unwrap(), PortClaim { inherited: false });
    let pid = std::process::id();
    assert!(matches!(other.bind(99), Err(SegmentError::PortTaken { port: 99, pid: owner }) if owner == pid));
    assert!(one.bind(99).is_ok(), "what this host has it judges itself");
    let ports: Vec<u16> = [&one, &other, &one].iter().map(|segment| segment.open_client().unwrap()).collect();
    assert_eq!(ports, [32_768, 32_769, 32_770]);
    assert_eq!(one.ports(), (vec![99, 32_768, 32_770], vec![32_769]));
    assert!(!one.is_foreign(99) && other.is_foreign(99));
    assert!(other.try_release(&[99]) && other.is_foreign(99), "only the owner gives it up");
    assert!(one.try_release(&[99, 32_768]));
    assert_eq!(other.bind(99).unwrap(), PortClaim { inherited: false });
    assert_eq!(other.open_client().unwrap(), 32_771, "in turn");
}

/// HOST-8: exactly one process answers for ports that no process has.
#[test]
fn ports_nobody_has_are_the_leaders_business() {
    let dir = Dir::new();
    let (one, other) = (dir.open(), dir.open());
    let mut watch = LeaseWatch::default();
    assert!(one.tick(0, &mut watch) && one.is_leader());
    assert!(!one.tick(0, &mut watch), "nothing new");
    other.tick(0, &mut LeaseWatch::default());
    assert!(!other.is_leader());
    assert!(!one.is_foreign(5) && other.is_foreign(5));
    drop(one);
    other.tick(0, &mut LeaseWatch::default());
    assert!(other.is_leader() && !other.is_foreign(5));
    drop(other);
    let alone = dir.open();
    assert!(alone.is_foreign(5), "it may never drive");
    alone.open_client().unwrap();
    assert!(alone.is_leader() && !alone.is_foreign(5), "no tick is needed");
}

#[test]
fn a_leader_that_stands_still_is_replaced() {
    let dir = Dir::new();
    let (one, other) = (dir.open(), dir.open());
    one.tick(0, &mut LeaseWatch::default());
    let mut watch = LeaseWatch::default();
    other.tick(0, &mut watch);
    one.tick(0, &mut LeaseWatch::default());
    other.tick(LEADER_PATIENCE_NS, &mut watch);
    other.tick(2 * LEADER_PATIENCE_NS, &mut watch);
    assert!(one.is_leader(), "it gave a sign of life");
    other.tick(2 * LEADER_PATIENCE_NS + 1, &mut watch);
    assert!(other.is_leader() && !one.is_leader());
}

#[test]
fn what_a_killed_process_had_is_free_again() {
    let dir = Dir::new();
    let mut child = Process::start("serve", &dir.file());
    assert_eq!(child.hear(), "32768 400000 true");
    let segment = dir.open();
    let mut watch = LeaseWatch::default();
    segment.tick(0, &mut watch);
    assert!(segment.is_foreign(99) && segment.is_foreign(5), "the child lives and leads");
    assert_eq!((segment.lease_share().lease_grants(100_000, 0), segment.incarnation()), (0, 5_000));
    child.kill();
    assert!(segment.tick(0, &mut watch));
    assert!(segment.is_leader() && !segment.is_foreign(99) && segment.is_orphan(99));
    assert!(!segment.is_orphan(32_768), "no client's port is missed");
    assert_eq!(segment.owner_of(99), PacketOwner::Unowned { orphan: true });
    assert_eq!(segment.lease_share().lease_grants(100_000, 0), 100_000);
    assert_eq!(segment.ports(), (vec![], vec![]));
    assert_eq!((segment.counts().processes, segment.counts().found_dead), (1, 1));
    assert_eq!(segment.bind(99).unwrap(), PortClaim { inherited: true });
    assert_eq!(segment.incarnation(), 5_000, "the host lives on");
}

#[test]
fn a_dead_processes_port_can_be_bound_before_anybody_has_noticed() {
    let dir = Dir::new();
    let mut child = Process::start("serve", &dir.file());
    child.hear();
    let segment = dir.open();
    child.kill();
    assert_eq!(segment.bind(99).unwrap(), PortClaim { inherited: true });
    assert_eq!(segment.counts().leased_bytes, 0);
}

#[test]
fn a_process_killed_with_the_lock_in_hand_blocks_nobody() {
    let dir = Dir::new();
    let segment = dir.open();
    let mut child = Process::start("lock", &dir.file());
    child.hear();
    assert!(!segment.try_release(&[99]) && !segment.publish_cutoffs(cutoffs(1, 2)));
    let pid = child.child.id();
    let error = segment.bind(99).unwrap_err();
    assert!(matches!(error, SegmentError::LockHeld { pid: holder, .. } if holder == pid), "{error}");
    child.kill();
    segment.bind(99).unwrap();
}

#[test]
fn processes_that_lease_at_a_time_get_different_ids_and_ports() {
    let dir = Dir::new();
    let _founder = dir.open();
    let mut children: Vec<Process> = (0..4).map(|_| Process::start("lease", &dir.file())).collect();
    let (mut ids, mut ports) = (Vec::new(), Vec::new());
    for child in &mut children {
        let reply = child.hear();
        let (some_ids, some_ports) = reply.split_once(' ').unwrap();
        ids.extend(some_ids.split(',').map(|id| id.parse::<u64>().unwrap()));
        ports.extend(some_ports.split(',').map(|port| port.parse::<u16>().unwrap()));
    }
    ids.sort_unstable();
    ports.sort_unstable();
    assert!(ids.windows(2).all(|pair| pair[1] - pair[0] >= 2 * IDS_PER_LEASE) && ids.len() == 8_000);
    assert_eq!(ports, (32_768..32_968).collect::<Vec<u16>>());
    children.into_iter().for_each(Process::end);
}

#[test]
fn a_file_of_another_version_is_made_new_unless_it_is_in_use() {
    let dir = Dir::new();
    let segment = dir.open();
    segment.map.header.version.store(77, Relaxed);
    let error = Segment::open(&dir.file(), &initial(1)).unwrap_err();
    assert!(matches!(error, SegmentError::Version { .. }) && error.to_string().contains("version 77"));
    drop(segment);
    assert_eq!(dir.open().counts().processes, 1);
    fs::write(dir.file(), [1; 5_000]).unwrap();
    assert_eq!(dir.open().counts().processes, 1);
}

#[test]
fn a_segment_half_made_is_made_again() {
    let dir = Dir::new();
    let segment = dir.open();
    segment.bind(99).unwrap();
    segment.map.header.made.store(0, Relaxed);
    // This is the state that a founder leaves if it dies: it unlocks nothing in an orderly way.
    let Segment { map, file, .. } = &segment;
    assert!(map.header.made.load(Relaxed) == 0 && lock::try_lock(file, lock::slot(0)).unwrap());
    lock::unlock(file, lock::slot(0));
    let next = Segment::open(&dir.file(), &initial(9_000)).unwrap();
    assert_eq!((next.incarnation(), next.counts().processes, next.ports().1.len()), (9_000, 1, 0));
}

#[test]
fn only_a_plain_file_of_this_user_alone_is_trusted() {
    let dir = Dir::new();
    fs::write(dir.file(), "").unwrap();
    fs::set_permissions(dir.file(), fs::Permissions::from_mode(0o622)).unwrap();
    let open = || Segment::open(&dir.file(), &initial(1));
    assert!(matches!(open(), Err(SegmentError::Untrusted { .. })));
    fs::remove_file(dir.file()).unwrap();
    symlink(dir.path().join("elsewhere"), dir.file()).unwrap();
    assert!(matches!(open(), Err(SegmentError::Untrusted { .. })));
    fs::remove_file(dir.file()).unwrap();
    drop(open().unwrap());
    assert_eq!(fs::metadata(dir.file()).unwrap().permissions().mode() & 0o777, 0o600);
    // SAFETY: the call only returns a number.
    if unsafe { libc::geteuid() } != 0 {
        homa_testkit::skip("only root can give a file to another user");
        return;
    }
    std::os::unix::fs::chown(dir.file(), Some(4_711), None).unwrap();
    let error = open().unwrap_err();
    assert!(matches!(error, SegmentError::Denied { .. }) && error.to_string().contains("as one user"));
}

#[test]
fn a_host_too_many_gets_an_error() {
    let dir = Dir::new();
    let mut hosts: Vec<Segment> = (0..MAX_PROCESSES).map(|_| dir.open()).collect();
    let open = || Segment::open(&dir.file(), &initial(1));
    assert!(matches!(open(), Err(SegmentError::Full { .. })));
    assert_eq!(hosts[0].counts().processes, MAX_PROCESSES as u64, "nobody lost a slot to it");
    hosts.pop();
    assert_eq!(open().unwrap().slot, MAX_PROCESSES - 1);
}

/// A forked child shares the open file, and therefore the locks, until it executes another program.
#[test]
fn a_dropped_host_frees_its_slot_while_a_forked_child_has_its_file() {
    let dir = Dir::new();
    let (_stays, goes) = (dir.open(), dir.open());
    let slot = goes.slot;
    let file_of_child = goes.file.try_clone().unwrap();
    drop(goes);
    assert_eq!(dir.open().slot, slot);
    drop(file_of_child);
}

#[test]
fn cutoffs_are_the_leaders_to_change() {
    let dir = Dir::new();
    let (one, other) = (dir.open(), dir.open());
    one.tick(0, &mut LeaseWatch::default());
    assert_eq!(other.lease_share().cutoffs(), Some((1, cutoffs(9, 77))));
    assert!(!other.publish_cutoffs(cutoffs(3, 2)));
    assert!(one.publish_cutoffs(cutoffs(4, 2)));
    assert_eq!(other.lease_share().cutoffs(), Some((2, cutoffs(4, 2))));
    other.lease_share().add_observed(3, 500);
    other.lease_share().add_observed(3, 20);
    let mut seen = Vec::new();
    one.lease_share().take_observed(|bucket, bytes| seen.push((bucket, bytes)));
    one.lease_share().take_observed(|bucket, bytes| seen.push((bucket, bytes)));
    assert_eq!(seen, [(3, 520)]);
}

#[test]
fn the_uplink_is_one() {
    let dir = Dir::new();
    let (one, other) = (dir.open(), dir.open());
    one.lease_share().uplink_sent(1_000, 300);
    other.lease_share().uplink_sent(1_000, 300);
    assert_eq!(one.lease_share().uplink_backlog_ns(1_100), 500);
}

#[test]
fn the_file_is_named_for_the_network_namespace_of_the_thread() {
    let dir = Dir::new();
    let path = path_in(dir.path()).unwrap();
    let name = path.strip_prefix(dir.path()).unwrap().to_str().unwrap();
    let number = name.strip_prefix("homa-net-").unwrap();
    let link = fs::read_link("/proc/thread-self/ns/net").unwrap();
    assert_eq!(link.to_str().unwrap(), format!("net:[{number}]"));
}
