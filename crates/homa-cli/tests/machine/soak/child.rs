//! A process of a soak test, as seen by its parent.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout};
use std::time::{Duration, Instant};

use homa_testkit::namespace::Namespace;
use homa_testkit::resident_bytes;

use super::process::{Role, Site};

/// A child process. Dropping it sends SIGKILL, unless [`finish`](Process::finish) has ended it.
pub struct Process {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    /// Starts the process in a namespace and waits until it is ready.
    pub fn start(namespace: &Namespace, site: &Site, role: &Role) -> Process {
        let mut command = site.command(role);
        command.stdout(std::process::Stdio::piped());
        let mut child = namespace.run(move || command.spawn().expect("this program starts"));
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        while line.trim_end() != "ready" {
            line.clear();
            let length = stdout.read_line(&mut line).expect("text");
            assert!(length > 0, "a process ended before it was ready: {role:?}");
        }
        Process { child, stdout }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn resident_bytes(&self) -> u64 {
        resident_bytes(self.id()).expect("it runs")
    }

    /// Stops the process and returns the lines that it printed.
    ///
    /// # Panics
    /// The process fails, or does not exit within this time.
    pub fn finish(mut self, within: Duration) -> Vec<String> {
        drop(self.child.stdin.take());
        let end = Instant::now() + within;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(Instant::now() < end, "a process hung: it did not end within {within:?}");
            std::thread::sleep(Duration::from_millis(10));
        };
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).expect("text");
        assert!(status.success(), "a process failed: {status}\n{text}");
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
