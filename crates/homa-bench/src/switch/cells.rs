//! The measurements of the switch.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use homa_driver::frames::FramesConfig;
use homa_switch::{BridgeConfig, Buffer, ETHERNET_OVERHEAD_BYTES, Forwarding, SwitchConfig};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::choices::PortPath;
use super::gate::Gate;
use super::load::{FULL, Load, SINK, SMALL, bulk_frame, probe_sent};
use super::place::{HOST_DEVICES, Place, SWITCH_DEVICES, received_frames};
use super::running_switch::{Mode, RunningSwitch, idle_history};
use super::windows::{Deviation, Slice, TransmitHistory};

/// Link rates: their names in metrics, and their values in bits per second.
pub const RATES: [(&str, u64); 3] = [("100m", 100_000_000), ("1g", 1_000_000_000), ("5g", 5_000_000_000)];

/// Frames that a source at its maximum rate sends per call.
const BURST: usize = 32;

/// Number of frames queued for a switch when its gate opens: nearly the capacity.
const HEAP: usize = 960;

/// Frames that the source sends per call while probes are sent: few, so that a probe does not wait long
/// behind them.
const SMALL_BURST: usize = 4;

/// Ratio of the offered rate to the link's rate, chosen so that a backlog persists.
const SURPLUS: f64 = 1.1;

/// Window over which a rate is computed.
const WINDOW: Duration = Duration::from_millis(10);

/// Mean time between two probes.
const PROBE_EVERY: Duration = Duration::from_micros(100);

/// Time that an overloaded switch spends on a frame, in nanoseconds. Artificial work makes the switch that
/// slow.
const OVERLOADED_NS: f64 = 1e9 / 0.4e6;

/// Offered rates in the search for the maximum forwarded rate, as fractions of the capacity with
/// [`OVERLOADED_NS`].
const PARTS: [f64; 4] = [0.8, 0.9, 1.0, 1.1];

/// The name of a metric, and its value in one repetition.
pub type Value = (String, f64);

/// The environment of the measurements, and their duration.
pub struct Bench<'a> {
    pub place: &'a Place,
    pub load: &'a mut Load,
    pub slice: Duration,
}

/// The receiver of frames at the sink. With a veth, the receiver's work is done on the sender's processor,
/// here the switch's.
#[derive(Clone, Copy)]
enum Receiver {
    /// An AF_XDP socket.
    Socket,
    /// No receiver, as if the port had a physical wire.
    Nobody,
}

/// Rates of sent frames and of arrived frames, per second.
struct Flow {
    offered: f64,
    forwarded: f64,
}

impl Bench<'_> {
    fn warmup(&self) -> Duration {
        self.slice / 4
    }

    fn start(
        &mut self,
        port_path: PortPath,
        switch: SwitchConfig,
        planted_work: Duration,
        mode: Mode,
    ) -> Result<RunningSwitch> {
        let devices = SWITCH_DEVICES.map(str::to_owned).into();
        let config = BridgeConfig {
            frames: FramesConfig { path: port_path.path(), ..FramesConfig::new(devices) },
            switch,
            poll: Duration::from_secs(10),
            nap: Duration::ZERO,
            planted_work,
            trace_records: 0,
        };
        let running_switch = RunningSwitch::start(self.place, config, mode)?;
        match self.load.await_forwarding(|| ()) {
            Ok(()) => Ok(running_switch),
            Err(error) => Err(running_switch.end().err().unwrap_or(error)),
        }
    }

    /// Offers `rate` frames per second for a slice, or as many as possible if `rate` is `None`.
    fn flow(&mut self, bytes: &[u8], rate: Option<f64>) -> Flow {
        let began = self.load.now();
        let mut slice = Slice::after(began + self.warmup(), self.slice);
        let (mut now, mut sent, mut arrived, mut before) = (began, 0, 0, (began, 0, 0));
        while !slice.is_over(now) {
            let due = rate.map_or(BURST, |rate| {
                ((rate * (now - began).as_secs_f64()) as usize).saturating_sub(sent).min(BURST)
            });
            // Smaller bursts would cost more per frame.
            if due >= BURST / 4 {
                // Frames for which there is no room count as offered, and are not sent later.
                self.load.offer(bytes, due);
                sent += due;
            }
            arrived += self.load.drain_sink(|_| ());
            now = self.load.now();
            if slice.begins(now) {
                before = (now, sent, arrived);
            }
        }
        let (since, sent_before, arrived_before) = before;
        let seconds = (now - since).as_secs_f64();
        Flow {
            offered: (sent - sent_before) as f64 / seconds,
            forwarded: (arrived - arrived_before) as f64 / seconds,
        }
    }

    /// Measures the maximum rate of frames through a switch without rate limits.
    pub fn capacity(&mut self, port_path: PortPath) -> Result<Vec<Value>> {
        let mut values = Vec::new();
        for (name, bytes) in [("small", SMALL), ("full", FULL)] {
            let bytes = bulk_frame(bytes);
            for (kind, mode) in [("", Mode::Gated as fn(_) -> _), ("_bare", Mode::Bare)] {
                for (sink, receiver) in [("", Receiver::Socket), ("_unreceived", Receiver::Nobody)] {
                    let rate = self.drain(port_path, &bytes, mode, receiver)?;
                    values.push((format!("{name}{sink}{kind}_mpps"), rate / 1e6));
                }
            }
            let running_switch = self.start(port_path, unlimited(), Duration::ZERO, Mode::Plain)?;
            let flow = self.flow(&bytes, None);
            running_switch.end()?;
            values.push((format!("{name}_flow_mpps"), flow.forwarded / 1e6));
            values.push((format!("{name}_flow_offered_mpps"), flow.offered / 1e6));
        }
        Ok(values)
    }

    /// Measures the rate of frames through a switch (or its replacement) that always has frames to forward.
    fn drain(
        &mut self,
        port_path: PortPath,
        bytes: &[u8],
        mode: fn(Arc<Gate>) -> Mode,
        receiver: Receiver,
    ) -> Result<f64> {
        let gate = Arc::new(Gate::free());
        let running_switch = self.start(port_path, unlimited(), Duration::ZERO, mode(Arc::clone(&gate)))?;
        gate.shut();
        let slice = self.slice;
        let heaps = |load: &mut Load| {
            let before = received_frames(HOST_DEVICES[SINK])?;
            heaps(load, &gate, bytes, slice);
            Ok(received_frames(HOST_DEVICES[SINK])? - before)
        };
        let came = match receiver {
            Receiver::Socket => {
                ensure!(self.load.has_sink(), "the sink could not be opened again");
                heaps(self.load)?
            }
            Receiver::Nobody => self.load.without_sink(heaps)?,
        };
        let drained = running_switch.end()?.drained;
        ensure!(came > 0, "nothing was forwarded");
        // Frames that the kernel lost in transit do not count.
        Ok(drained.frames.min(came) as f64 / drained.time.as_secs_f64())
    }

    /// Measures the accuracy of a link's rate.
    pub fn rate(&mut self, port_path: PortPath, (name, bps): (&str, u64)) -> Result<Vec<Value>> {
        let switch = SwitchConfig { buffer: time_of(bps, WINDOW), ..limited(bps) };
        let running_switch =
            self.start(port_path, switch, Duration::ZERO, Mode::Followed(self.load.epoch()))?;
        let mut sink = TransmitHistory::new();
        let (from, to) = self.saturate(bps, |load, _| {
            let mut bytes = 0;
            if load.drain_sink(|frame| bytes += on_the_wire(frame.len())) > 0 {
                sink.note(load.now(), sink.bytes() + bytes);
            }
        });
        let ended = running_switch.end()?;
        let dropped: u64 =
            ended.snapshot.ports.iter().flat_map(|port| &port.queues).map(|q| q.dropped_frames).sum();
        ensure!(dropped > 0, "the source offered less than {bps} bit/s");
        let of = |history: &TransmitHistory| {
            let rates = history.rates((from, to), WINDOW);
            Deviation::of(&rates, bps).with_context(|| {
                format!("too few frames arrived at {bps} bit/s, or no backlog lasted for {WINDOW:?}")
            })
        };
        let (switch, sink) = (of(&ended.history)?, of(&sink)?);
        let mut values = vec![
            (format!("rate_{name}_worst"), switch.worst),
            (format!("rate_{name}_p99"), switch.p99),
            (format!("rate_{name}_mean"), switch.mean),
            (format!("rate_{name}_sink_worst"), sink.worst),
            (format!("rate_{name}_sink_p99"), sink.p99),
            (format!("rate_{name}_gaps"), ended.history.gaps.share((from, to)) * 100.0),
            (format!("rate_{name}_dry"), ended.history.dry.share((from, to)) * 100.0),
        ];
        // On a busy machine, every window may contain a gap.
        if let Some(clear) = Deviation::of(&ended.history.clear_rates((from, to), WINDOW), bps) {
            values.push((format!("rate_{name}_clear_worst"), clear.worst));
        }
        Ok(values)
    }

    /// Measures the share of time that the machine takes away from a thread that runs in place of the switch.
    /// No switch can compensate for this share.
    pub fn machine(&mut self) -> Result<Vec<Value>> {
        let (history, length) = idle_history(self.place, self.slice)?;
        let lost = [history.gaps.max_share(WINDOW), history.gaps.share((Duration::ZERO, length))];
        Ok(["machine_lost_worst", "machine_lost"]
            .map(str::to_owned)
            .into_iter()
            .zip(lost.map(|share| share * 100.0))
            .collect())
    }

    /// Measures the latency of high-priority probes through a saturated port.
    pub fn probe(
        &mut self,
        port_path: PortPath,
        (name, bps): (&str, u64),
        forwarding: Forwarding,
    ) -> Result<Vec<Value>> {
        let switch = SwitchConfig { forwarding, ..limited(bps) };
        let running_switch = self.start(port_path, switch, Duration::ZERO, Mode::Plain)?;
        let mut random = Pcg64::seed_from_u64(bps);
        let mut next = Duration::ZERO;
        let mut times = Vec::new();
        self.saturate(bps, |load, warm| {
            if warm && load.now() >= next {
                load.probe();
                // The interval is random, so that probes do not synchronize with periodic activity of the
                // switch.
                next = load.now() + PROBE_EVERY.mul_f64(random.random_range(0.5..1.5));
            }
            let mut sent = None;
            load.drain_sink(|frame| sent = probe_sent(frame).or(sent));
            times.extend(sent.map(|sent| load.now() - sent));
        });
        running_switch.end()?;
        ensure!(!times.is_empty(), "no probe arrived");
        times.sort_unstable();
        let us = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
        let name = match forwarding {
            Forwarding::CutThrough => format!("probe_{name}"),
            Forwarding::StoreAndForward => format!("probe_{name}_store"),
        };
        Ok(vec![(format!("{name}_p50_us"), us(0.5)), (format!("{name}_p99_us"), us(0.99))])
    }

    /// Keeps a link of this rate busy with full frames for a slice. Calls `between` after each burst, with a
    /// flag that says whether the backlog has built up. Returns the start and the end of the slice.
    fn saturate(&mut self, bps: u64, mut between: impl FnMut(&mut Load, bool)) -> (Duration, Duration) {
        let bytes = bulk_frame(FULL);
        let each = Duration::from_nanos(on_the_wire(FULL) * 8_000_000_000 / bps).div_f64(SURPLUS);
        let began = self.load.now();
        let warm = began + self.warmup().max(3 * WINDOW);
        let end = warm + self.slice.max(3 * WINDOW);
        // The source acts as if it had started earlier and were late, which fills the buffer immediately.
        let mut due = began.saturating_sub(2 * WINDOW);
        let mut now = began;
        while now < end {
            for _ in 0..SMALL_BURST {
                if due > now {
                    break;
                }
                self.load.offer_later(&bytes);
                due += each;
            }
            self.load.flush();
            between(self.load, now >= warm);
            now = self.load.now();
        }
        (warm, end)
    }

    /// Measures throughput under overload, relative to the maximum.
    pub fn overload(&mut self, port_path: PortPath) -> Result<Vec<Value>> {
        let small = bulk_frame(SMALL);
        let free = self.drain(port_path, &small, Mode::Gated, Receiver::Socket)?;
        let planted = Duration::from_nanos((OVERLOADED_NS - 1e9 / free).max(0.0) as u64);
        let running_switch = self.start(port_path, unlimited(), planted, Mode::Plain)?;
        let peak = PARTS
            .map(|part| self.flow(&small, Some(part * 1e9 / OVERLOADED_NS)).forwarded)
            .into_iter()
            .fold(0.0, f64::max);
        let twice = self.flow(&small, Some(2.0 * peak));
        let flood = self.flow(&small, None);
        running_switch.end()?;
        ensure!(peak > 0.0, "nothing was forwarded");
        Ok(vec![
            ("overload_peak_mpps".to_owned(), peak / 1e6),
            ("overload_twice_offered".to_owned(), twice.offered / peak),
            ("overload_twice".to_owned(), twice.forwarded / peak),
            ("overload_flood_offered".to_owned(), flood.offered / peak),
            ("overload_flood".to_owned(), flood.forwarded / peak),
        ])
    }
}

/// For one slice, repeatedly queues frames for a gated switch and lets the switch forward them.
fn heaps(load: &mut Load, gate: &Gate, bytes: &[u8], slice: Duration) {
    let end = load.now() + slice;
    while load.now() < end {
        for _ in 0..HEAP / BURST {
            load.offer(bytes, BURST);
        }
        gate.open();
        // The sink has room for all of them. Polling the sink in the meantime would contend for the memory to
        // which the switch's processor writes.
        while !gate.is_shut() && load.now() < end + WINDOW {
            std::hint::spin_loop();
        }
        while load.drain_sink(|_| ()) > 0 {}
    }
}

fn on_the_wire(bytes: usize) -> u64 {
    bytes as u64 + u64::from(ETHERNET_OVERHEAD_BYTES)
}

fn unlimited() -> SwitchConfig {
    SwitchConfig { rate_bps: None, buffer: Buffer::PerPort { bytes: 1_000_000 }, ..SwitchConfig::default() }
}

/// Returns a configuration with a limited rate and the default buffer of 1 ms.
fn limited(bps: u64) -> SwitchConfig {
    SwitchConfig {
        rate_bps: Some(bps),
        buffer: time_of(bps, Duration::from_millis(1)),
        ..SwitchConfig::default()
    }
}

fn time_of(bps: u64, time: Duration) -> Buffer {
    let bytes = (bps as f64 / 8.0 * time.as_secs_f64()) as u64;
    Buffer::PerPort { bytes: bytes.max(4 * FULL as u64) }
}
