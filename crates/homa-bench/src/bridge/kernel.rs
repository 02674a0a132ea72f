//! The kernel's bridge on the same devices.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::run::{BURST, Bench, HEAP, RepetitionResult};
use crate::switch::load::{SINK, SOURCE, bulk_frame_from};
use crate::switch::place::SWITCH_DEVICES;

const NAME: &str = "br0";

/// Number of alternations between measuring with and without the bridge.
const TURNS: u32 = 3;

impl Bench<'_> {
    /// Measures one repetition.
    ///
    /// # Errors
    /// The kernel has no bridge, or it forwards nothing.
    pub fn measure_kernel(&mut self) -> Result<RepetitionResult> {
        let made = self.place.ip_at_switch(&format!("link add {NAME} type bridge"));
        made.context("the kernel has no bridge")?;
        let seen = self.alternate();
        // If the deletion fails, the bridge is removed together with its namespace.
        let _ = self.place.ip_at_switch(&format!("link del {NAME}"));
        seen
    }

    fn alternate(&mut self) -> Result<RepetitionResult> {
        self.place.ip_at_switch(&format!("link set {NAME} up"))?;
        self.place.keep_packet_filter_out()?;
        let (mut with, mut without, mut flow) = (Duration::ZERO, Duration::ZERO, 0.0);
        let (mut sent_with, mut sent_without, mut forwarded) = (0, 0, 0);
        for _ in 0..TURNS {
            self.join(false)?;
            let (time, sent, through) = self.send();
            ensure!(through == 0, "frames pass between devices outside the bridge");
            (without, sent_without) = (without + time, sent_without + sent);
            self.join(true)?;
            self.load.await_forwarding(|| ())?;
            let (time, sent, through) = self.send();
            (with, sent_with, forwarded) = (with + time, sent_with + sent, forwarded + through);
            let part = self.slice / TURNS;
            let slice = std::mem::replace(&mut self.slice, part);
            flow += self.flow_with(&[SOURCE], || ()) / f64::from(TURNS);
            self.slice = slice;
        }
        ensure!(forwarded > 0 && flow > 0.0, "the kernel's bridge forwarded nothing");
        let each = with.as_secs_f64() / sent_with as f64 - without.as_secs_f64() / sent_without as f64;
        ensure!(
            each > 0.0,
            "the kernel's bridge took no measurable time: other processes disturb the machine"
        );
        Ok(RepetitionResult { mpps: 1e-6 / each, flow_mpps: Some(flow), ..RepetitionResult::default() })
    }

    fn join(&self, joined: bool) -> Result<()> {
        let master = if joined { format!("master {NAME}") } else { "nomaster".to_owned() };
        SWITCH_DEVICES
            .iter()
            .try_for_each(|device| self.place.ip_at_switch(&format!("link set {device} {master}")))
    }

    /// Sends for a part of the slice. Returns the time spent sending, excluding the sink's work, and the
    /// number of frames sent and arrived.
    fn send(&mut self) -> (Duration, usize, usize) {
        // Discards frames of an earlier variant.
        while self.load.arrived_at(SINK) > 0 {}
        let bytes = bulk_frame_from(SOURCE, self.bytes);
        let end = self.load.now() + self.slice / (2 * TURNS);
        let (mut time, mut sent, mut arrived) = (Duration::ZERO, 0, 0);
        while self.load.now() < end {
            let began = self.load.now();
            for _ in 0..HEAP / BURST {
                sent += self.load.offer_by(SOURCE, &bytes, BURST);
            }
            time += self.load.now() - began;
            loop {
                match self.load.arrived_at(SINK) {
                    0 => break,
                    count => arrived += count,
                }
            }
        }
        (time, sent, arrived)
    }
}
