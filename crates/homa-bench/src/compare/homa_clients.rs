//! The client hosts of a comparison over Homa.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use anyhow::{Context, Result};
use homa::{Host, ServerAddr};

use super::plan::Plan;
use crate::addresses::{client_bind, host_config};
use crate::engine::link::Link;
use crate::homa_link::HomaLink;
use crate::hosts::Hosts;
use crate::recording::RecordedHost;

/// Opens the client ports of all threads. The first [`Plan::client_ports`] ports belong to the first client
/// host, the next ports to the second, and so on.
pub fn open(plan: &Plan, servers: &[ServerAddr], watched: &Hosts) -> Result<Vec<Box<dyn Link>>> {
    let bind = |number| bind(plan, servers, number, &format!("client-{}", number + 1)).map(Arc::new);
    let hosts: Vec<Arc<RecordedHost>> = (0..plan.options.clients).map(bind).collect::<Result<_>>()?;
    hosts.iter().for_each(|recorded| watched.add(&recorded.host));
    let mut next = 0;
    let mut links: Vec<Box<dyn Link>> = Vec::new();
    for &ports in &plan.ports {
        let hosts =
            (next..next + ports).map(|port| Arc::clone(&hosts[port / usize::from(plan.client_ports)]));
        next += ports;
        let receivers = usize::from(plan.options.port_receivers);
        links.push(Box::new(HomaLink::new(hosts.collect(), servers, receivers, plan.poll())?));
    }
    Ok(links)
}

/// Opens one port on a host of its own, without receiver threads.
pub fn open_one(plan: &Plan, servers: &[ServerAddr], watched: &Hosts) -> Result<Box<dyn Link>> {
    let host = Arc::new(bind(plan, servers, 0, "unloaded")?);
    watched.add(&host.host);
    Ok(Box::new(HomaLink::new(vec![host], servers, 0, plan.poll())?))
}

/// Makes client host `number`, 0 to 63. `name` is its name in traces.
fn bind(plan: &Plan, servers: &[ServerAddr], number: u16, name: &str) -> Result<RecordedHost> {
    let to = servers.first().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |server| server.host.ip());
    let driver = plan.options.driver;
    let bind = client_bind(driver, to, number as u8);
    let mut config = host_config(driver, bind, plan.workload.max_bytes(), plan.poll());
    plan.options.host.apply(&mut config);
    plan.options.trace.apply(&mut config);
    let host = Host::builder().config(config).bind().context("cannot make a Homa client")?;
    RecordedHost::new(host, plan.options.trace_dir.as_deref(), name)
}
