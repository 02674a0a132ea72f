//! Tests the binary over raw IP, between two network namespaces.

use std::process::{Command, Stdio};

use homa_testkit::namespace::{V4, V6, pair};

use super::serve::{Serve, assert_clean, bench_alone, bench_to, homa, host, run};

#[test]
fn a_bench_between_two_machines_ends_without_an_error() {
    let Some(namespaces) = pair(1_500) else { return };
    for ips in [V4, V6] {
        let host = host(ips[1]);
        let (_server, said) =
            Serve::start(&namespaces[1], &format!("serve --driver raw --protocol homa --bind {host}"));
        assert_eq!(said, format!("serving homa {host}/99"));
        bench_to(&namespaces[0], "raw", &host);
    }
}

#[test]
fn a_call_reaches_its_server_and_says_where_there_is_none() {
    let Some(namespaces) = pair(1_500) else { return };
    let (_server, _) =
        Serve::start(&namespaces[1], &format!("serve --driver raw --protocol homa --bind {}", V4[1]));
    let call = |to: &str| run(&namespaces[0], &format!("call --driver raw {to} --text hello"));
    let output = call(&format!("{}/99", V4[1]));
    assert_clean(&output);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\n");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.trim_end().ends_with("from 10.146.0.2/99"), "{said}");
    for (to, part) in [
        (format!("{}/98", V4[1]), "10.146.0.2/98 has no server on Homa port 98"),
        // The host at this address has no socket for that IP version.
        (format!("{}/99", V6[1]), "does not speak Homa over IP protocol 146"),
    ] {
        let output = call(&to);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(part) && said.trim_end().lines().count() == 1, "{said}");
    }
}

#[test]
fn a_bench_alone_has_its_clients_at_other_addresses_than_its_servers() {
    bench_alone("raw");
}

#[test]
fn without_the_capability_one_line_says_what_to_do() {
    // Run the command as an unprivileged user: if the test itself is unprivileged, as the same user.
    let program = env!("CARGO_BIN_EXE_homa");
    let words = ["--reuid=65534", "--clear-groups", "--bounding-set=-net_raw", program];
    let commands = [homa(&["serve", "--driver", "raw"]), {
        let mut command = Command::new("setpriv");
        command.args(words).args(["serve", "--driver", "raw"]).stdin(Stdio::null());
        command
    }];
    // SAFETY: geteuid has no requirements.
    let privileged = unsafe { libc::geteuid() } == 0;
    let [plain, without] = commands;
    let mut command = if privileged { without } else { plain };
    let Ok(output) = command.output() else { return homa_testkit::skip("no setpriv on this machine") };
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("Permission denied") {
        return homa_testkit::skip(format_args!("another user cannot run {program}"));
    }
    // In a user namespace, the user may not exist.
    if said.starts_with("setpriv") {
        return homa_testkit::skip(said);
    }
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    assert!(
        said.contains("CAP_NET_RAW") && said.contains("setcap") && said.contains("--driver udp"),
        "{said}"
    );
}

#[test]
fn a_call_on_a_device_reaches_a_server_on_one() {
    let Some(namespaces) = pair(1_500) else { return };
    let (_server, said) = Serve::start(
        &namespaces[1],
        "serve --driver packet --interface v1 --protocol homa --bind 0.0.0.0:14600",
    );
    assert_eq!(said, format!("serving homa {}:14600/99", V4[1]));
    for words in ["--driver packet", "--driver packet --interface v0", "--driver udp"] {
        let output = run(&namespaces[0], &format!("call {} --size 500000 {words}", V4[1]));
        assert_clean(&output);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("500000 bytes, the same as sent"), "{said}");
    }
    let output = run(&namespaces[0], &format!("call {} --driver packet --interface v7", V4[1]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("there is no interface v7: choose one of lo, v0"), "{said}");
}

#[test]
fn where_the_program_runs_can_be_chosen() {
    // At this MTU, a veth rejects programs in the device's driver.
    let Some(namespaces) = pair(9_000) else { return };
    let serve = "serve --driver xdp --xdp-mode generic --protocol homa --interface v1 --bind 0.0.0.0:14600";
    let (_server, _) = Serve::start(&namespaces[1], serve);
    let call = |mode: &str| run(&namespaces[0], &format!("call {} --driver xdp --xdp-mode {mode}", V4[1]));
    assert_clean(&call("generic"));
    let auto = call("auto");
    let said = String::from_utf8_lossy(&auto.stderr);
    assert!(auto.status.success() && said.contains("generic mode"), "{said}");
    let native = call("native");
    let said = String::from_utf8_lossy(&native.stderr);
    assert!(!native.status.success() && said.contains("attaching the XDP program"), "{said}");
}

#[test]
fn a_call_on_the_queues_of_a_device_reaches_a_server_on_some() {
    let Some(namespaces) = pair(1_500) else { return };
    let serve = "serve --driver xdp --interface v1 --queues 0 --protocol homa --bind 0.0.0.0:14600";
    let (_server, said) = Serve::start(&namespaces[1], serve);
    assert_eq!(said, format!("serving homa {}:14600/99", V4[1]));
    for words in
        ["--driver xdp", "--driver xdp --interface v0 --queues 0-0", "--driver packet", "--driver udp"]
    {
        let output = run(&namespaces[0], &format!("call {} --size 500000 {words}", V4[1]));
        assert_clean(&output);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("500000 bytes, the same as sent"), "{said}");
    }
    for (words, part) in [
        ("--queues 1-3", "interface v0 has no receive queue 3: its queues are 0 to 0"),
        ("--queues 3-1", "use numbers and ranges of them, as in 0-3,6"),
    ] {
        let output = run(&namespaces[0], &format!("call {} --driver xdp {words}", V4[1]));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(part), "{said}");
    }
}
