//! Tests that need machine-wide resources such as network namespaces, devices and privileges. They are a
//! separate program because cargo runs one test program at a time. A test that lacks a resource calls
//! `homa_testkit::skip`.

#[path = "../common/mod.rs"]
mod common;
mod frames;
mod freed_port;
mod groups;
mod linux_udp;
mod narrow_path;
mod packet;
mod raw;
mod stuck_link;
mod xdp;
