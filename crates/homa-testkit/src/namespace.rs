//! Network namespaces for tests. Each has a loopback device and its own thread; two can be joined by a veth.

use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// IPv4 addresses of the two ends of a [`pair`].
pub const V4: [&str; 2] = ["10.146.0.1", "10.146.0.2"];
/// IPv6 addresses of the two ends of a [`pair`].
pub const V6: [&str; 2] = ["fd00:146::1", "fd00:146::2"];

/// How long to wait for a new path. A busy kernel may need many seconds to bring up a device or to resolve a
/// neighbour.
const PATIENCE: Duration = Duration::from_secs(60);

type Work = Box<dyn FnOnce() + Send>;

/// A network namespace. The kernel removes it once this value and all its sockets and processes are gone.
pub struct Namespace {
    work: mpsc::Sender<Work>,
    /// ID of the thread in the namespace; `ip` accepts it as a name for the namespace.
    thread_id: i32,
}

impl Namespace {
    /// Creates a namespace with a loopback device that is up.
    ///
    /// # Errors
    /// The reason why the namespace cannot be created.
    pub fn new() -> Result<Namespace, String> {
        let (work, inbox) = mpsc::channel::<Work>();
        let (began, begun) = mpsc::channel();
        thread::spawn(move || {
            // SAFETY: `unshare` takes flags by value and has no memory requirements. It affects only this
            // thread, which opens its sockets afterwards.
            let result = match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
                // SAFETY: `gettid` has no arguments, touches no memory and cannot fail.
                0 => Ok(unsafe { libc::gettid() }),
                _ => Err(format!("no network namespace: {}", std::io::Error::last_os_error())),
            };
            let failed = result.is_err();
            if began.send(result).is_err() || failed {
                return;
            }
            inbox.into_iter().for_each(|work| work());
        });
        let thread_id = begun.recv().map_err(|_| "the namespace's thread died".to_owned())??;
        let namespace = Namespace { work, thread_id };
        namespace.ip("link set lo up")?;
        namespace.run(|| {
            // By default, the kernel sends only a limited number of ICMP errors per second. Packets that
            // probe a path would use up that limit before a test begins.
            for limit in ["ipv4/icmp_ratelimit", "ipv6/icmp/ratelimit"] {
                // IPv6 may be missing. If the file cannot be written, some ICMP errors may be missing.
                let _ = std::fs::write(format!("/proc/sys/net/{limit}"), "0");
            }
        });
        Ok(namespace)
    }

    /// Runs `work` in the namespace. The sockets, threads and processes that `work` creates stay in the
    /// namespace.
    ///
    /// # Panics
    /// Panics if `work` panics.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = mpsc::channel();
        let work = move || {
            let _ = done.send(work());
        };
        self.work.send(Box::new(work)).expect("the namespace's thread lives");
        result.recv().expect("what ran in the namespace did not panic")
    }

    /// Joins the namespace to `other` by a veth whose two ends have these names and are up.
    ///
    /// # Errors
    /// A command of `ip` fails.
    pub fn join(&self, name: &str, other: &Namespace, other_name: &str) -> Result<(), String> {
        let (near, far, netns) = (next_index(), next_index(), other.thread_id);
        self.ip(&format!(
            "link add {name} index {near} type veth peer name {other_name} index {far} netns {netns}"
        ))?;
        self.ip(&format!("link set {name} up"))?;
        other.ip(&format!("link set {other_name} up"))
    }

    /// Runs `ip` with these arguments in the namespace.
    ///
    /// # Errors
    /// The command cannot be run, or fails.
    pub fn ip(&self, words: &str) -> Result<(), String> {
        self.command("ip", words)
    }

    /// Runs `tc` with these arguments in the namespace, to configure queues and rates of its devices.
    ///
    /// # Errors
    /// The command cannot be run, or fails.
    pub fn tc(&self, words: &str) -> Result<(), String> {
        self.command("tc", words)
    }

    fn command(&self, program: &'static str, words: &str) -> Result<(), String> {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let output = self.run(move || Command::new(program).args(&words).output().map(|out| (words, out)));
        let (words, output) = output.map_err(|error| format!("cannot run `{program}`: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(()) } else { Err(format!("{program} {}: {said}", words.join(" "))) }
    }
}

/// Returns a unique interface index for a device. After a link has come up, the kernel delays packets for up
/// to a second unless the two ends have different indexes (`linkwatch_urgent_event` in
/// net/core/link_watch.c). In two new namespaces, the default indexes would be equal.
fn next_index() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(100);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Waits until packets pass, because a new device loses packets for up to a second, and neighbours must be
/// resolved. `ips` are the addresses of the sender and of the receiver.
///
/// # Errors
/// No packet passes within a minute, or an address is missing.
pub fn await_path(from: &Namespace, to: &Namespace, ips: [&'static str; 2]) -> Result<(), String> {
    let open = |namespace: &Namespace, ip: &'static str| {
        namespace.run(move || UdpSocket::bind((ip, 0)).map_err(|error| format!("{ip}: {error}")))
    };
    let [from, to] = [open(from, ips[0])?, open(to, ips[1])?];
    let fail = |error: std::io::Error| format!("no path to {}: {error}", ips[1]);
    to.set_read_timeout(Some(Duration::from_millis(20))).map_err(fail)?;
    let there = to.local_addr().map_err(fail)?;
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        // An error means the same as no answer: there is no path yet.
        let _ = from.send_to(b"?", there);
        if to.recv(&mut [0]).is_ok() {
            return Ok(());
        }
    }
    Err(format!("no path to {} within {PATIENCE:?}", ips[1]))
}

/// Makes two namespaces joined by a veth (`v0` in the first, `v1` in the second) with this MTU and the
/// addresses [`V4`] and [`V6`]. Returns `None`, and prints the reason, if a privilege or a tool is missing.
pub fn pair(mtu: u32) -> Option<[Namespace; 2]> {
    pair_with(mtu, 1)
}

/// Like [`pair`], with this number of queues for each direction at each end of the veth.
pub fn pair_with(mtu: u32, queues: u32) -> Option<[Namespace; 2]> {
    let join = || {
        let pair = [Namespace::new()?, Namespace::new()?];
        let end = || format!("index {} numtxqueues {queues} numrxqueues {queues}", next_index());
        let netns = pair[1].thread_id;
        pair[0].ip(&format!("link add v0 {} type veth peer name v1 {} netns {netns}", end(), end()))?;
        for (i, namespace) in pair.iter().enumerate() {
            namespace.ip(&format!("link set v{i} mtu {mtu}"))?;
            namespace.ip(&format!("addr add {}/24 dev v{i}", V4[i]))?;
            namespace.ip(&format!("-6 addr add {}/64 dev v{i} nodad", V6[i]))?;
            namespace.ip(&format!("link set v{i} up"))?;
        }
        Ok(pair)
    };
    match join() {
        Ok(pair) => {
            for ips in [V4, V6] {
                await_path(&pair[0], &pair[1], ips).expect("a veth between two namespaces");
            }
            Some(pair)
        }
        Err::<_, String>(why) => {
            crate::skip(why);
            None
        }
    }
}
