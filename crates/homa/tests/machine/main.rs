//! Tests that need machine-wide resources: network namespaces, devices, privileges. These tests are a
//! separate program because cargo runs one test program at a time. A test that lacks a resource calls
//! `homa_testkit::skip`.

#[path = "../common/mod.rs"]
mod common;
mod linux_udp;
mod linux_udp_kernel;
mod narrow_path;
mod packet;
mod raw;
mod several_processes;
mod stuck_link;
