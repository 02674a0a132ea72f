//! Tests that need machine-wide resources: network namespaces, devices, privileges. They are a separate
//! program because cargo runs one test program at a time. A test that lacks its resources calls
//! `homa_testkit::skip`.

#[path = "../common/mod.rs"]
mod common;
mod raw;
