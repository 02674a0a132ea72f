//! Tests that need machine-wide resources such as network namespaces, devices and privileges. They are a
//! separate program because cargo runs one test program at a time. A test that lacks a resource calls
//! `homa_testkit::skip`.

mod attack;
mod bench_bridge;
mod bench_switch;
#[path = "../common/mod.rs"]
mod common;
mod linux_udp;
mod rack;
mod rack_refusals;
mod raw;
mod serve;
mod soak;
mod steer;
mod switch;
mod trace;
