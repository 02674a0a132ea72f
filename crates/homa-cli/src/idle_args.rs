//! Options of `homa serve` and `homa bench`: how idle threads wait, and what a woken one takes.

use std::time::Duration;

use clap::Args;
use homa::HostConfig;
use homa_bench::host_options::{HostOptions, batch_cap, wake_order};
use homa_steer::batch::BatchCap;
use homa_steer::wake::WakeOrder;

use crate::values::{DEFAULT_POLL_US, poll_us};

#[derive(Args, Clone, Copy, Debug)]
pub struct IdleArgs {
    /// How long an idle thread polls before it sleeps in the kernel, microseconds; 0: sleep at once
    #[arg(long, value_name = "US", default_value_t = DEFAULT_POLL_US, value_parser = poll_us)]
    pub poll_us: u64,
    /// Which sleeping Homa thread is woken if several could do the work: lifo, fifo or least-recent (the one
    /// whose core was idle for longest)
    #[arg(long, value_name = "ORDER", default_value_t, value_parser = wake_order)]
    pub wake_order: WakeOrder,
    /// Maximum receive batch, 1 to 32 datagrams or frames; replies are sent after the whole batch
    #[arg(long, value_name = "PACKETS", default_value_t = HostConfig::default().batch_cap, value_parser = batch_cap)]
    pub batch_cap: BatchCap,
}

impl IdleArgs {
    pub fn poll(&self) -> Duration {
        Duration::from_micros(self.poll_us)
    }

    /// Returns the options of a host with these numbers of endpoints and of Mbit/s.
    pub fn host(&self, endpoints: u16, link_mbps: Option<u32>) -> HostOptions {
        HostOptions { endpoints, wake_order: self.wake_order, batch_cap: self.batch_cap, link_mbps }
    }
}
