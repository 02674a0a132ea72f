//! Fixtures for the unit tests of several modules.

use std::net::{Ipv4Addr, SocketAddr};

use homa_driver::udp::{UdpConfig, UdpDriver};
use homa_proto::{Config, Endpoint};
use homa_trace::Trace;

use super::{Engine, Limits};

/// Creates an endpoint over loopback whose time the test controls.
pub(crate) fn engine() -> Engine {
    let bind = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let driver = UdpDriver::bind(&UdpConfig { bind, ..UdpConfig::default() }).unwrap();
    let config = Config { incarnation: 1, ..Config::default() };
    let endpoint = Endpoint::new(config, Trace::off()).unwrap();
    Engine::new(endpoint, Box::new(driver), Limits { completions: 100, queued_request_bytes: 100 })
}
