//! The honest client, whose calls must not be affected by attacks.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use homa::error::CallError;
use homa::{Host, ServerAddr};
use homa_testkit::namespace::{Namespace, V4};

use super::Form;

/// Lengths of the requests in the order in which they are sent. The server echoes them.
const LENGTHS: [usize; 12] = [100, 100, 3_000, 100, 20_000, 100, 1, 100, 300_000, 100, 1_400, 100];

/// A call that is not answered within this time has failed.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Client {
    host: Host,
    to: ServerAddr,
}

/// The calls made during a period.
pub struct HonestCalls {
    /// Request length in bytes and duration of each answered call.
    times: Vec<(usize, Duration)>,
    pub failed: Vec<String>,
}

impl Client {
    pub fn new(namespace: &Namespace, form: Form, server: SocketAddr) -> Client {
        // Do not use the directory that is shared with other hosts of this machine.
        let segment_dir = env!("CARGO_TARGET_TMPDIR").into();
        let config = Host::builder()
            .driver(form.driver())
            .address(SocketAddr::new(V4[0].parse().unwrap(), 0))
            .segment_dir(segment_dir);
        let host = namespace.run(move || config.bind().expect("a host"));
        Client { host, to: ServerAddr::new(server, 99) }
    }

    pub fn address(&self) -> SocketAddr {
        self.host.local_addr()
    }

    /// Makes calls one after another for this long.
    pub fn call_for(&self, lasting: Duration) -> HonestCalls {
        let client = self.host.client().expect("a port");
        let begin = Instant::now();
        let mut honest = HonestCalls { times: Vec::new(), failed: Vec::new() };
        for length in LENGTHS.into_iter().cycle() {
            if begin.elapsed() > lasting {
                break;
            }
            let request = Bytes::from(vec![length as u8; length]);
            let called = Instant::now();
            match client.call(self.to, request.clone()).timeout(PATIENCE).wait() {
                Ok(response) if response == request => honest.times.push((length, called.elapsed())),
                Ok(_) => honest.failed.push(format!("{length} bytes: a wrong response")),
                Err(error) => honest.failed.push(describe(length, &error)),
            }
        }
        honest
    }
}

fn describe(length: usize, error: &CallError) -> String {
    format!("{length} bytes: {error}")
}

impl HonestCalls {
    pub fn answered(&self) -> usize {
        self.times.len()
    }

    /// Returns the 99th percentile of the durations of 100-byte calls, in microseconds.
    pub fn short_p99_us(&self) -> f64 {
        let mut times: Vec<Duration> =
            self.times.iter().filter(|(length, _)| *length == 100).map(|(_, time)| *time).collect();
        times.sort_unstable();
        let index = (times.len() * 99).div_ceil(100).saturating_sub(1);
        times.get(index).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
    }
}
