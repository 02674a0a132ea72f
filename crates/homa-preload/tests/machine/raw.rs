//! Runs C programs written for Linux Homa, with the library preloaded, over raw IP and Linux Homa's UDP
//! encapsulation, between two network namespaces joined by a veth.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::common::{Running, preloaded, program, run};
use homa_testkit::namespace::{Namespace, V4, V6, pair};

/// A driver whose processes share an address, and the error of a call if the peer's machine runs no Homa. The
/// errors differ because the kernel's ICMP report for a closed UDP port does not name the protocol.
#[derive(Clone, Copy)]
struct Form {
    driver: &'static str,
    no_homa: &'static str,
}

const FORMS: [Form; 2] =
    [Form { driver: "raw", no_homa: "EPROTONOSUPPORT" }, Form { driver: "linux-udp", no_homa: "ENOTCONN" }];

impl Form {
    fn command(self, program: &Path, args: &[&str]) -> Command {
        let mut command = preloaded(program, args);
        // Not the directory that other hosts on this machine use.
        command.env("HOMA_DRIVER", self.driver).env("HOMA_SEGMENT_DIR", env!("CARGO_TARGET_TMPDIR"));
        command
    }

    fn server_in(self, namespace: &Namespace, program: &Path, args: &[&str]) -> Running {
        let command = self.command(program, args);
        namespace.run(move || Running::server(command))
    }

    fn run_in(self, namespace: &Namespace, program: &Path, args: &[&str]) -> String {
        let command = self.command(program, args);
        namespace.run(move || run(command))
    }
}

fn setting() -> Option<([Namespace; 2], PathBuf)> {
    Some((pair(1_500)?, program("program")?))
}

#[test]
fn programs_of_two_machines_call_each_other_over_both_ip_versions() {
    let Some((([here, there], program), waits)) = setting().zip(program("waits")) else { return };
    for form in FORMS {
        for ips in [V4, V6] {
            let _echo = form.server_in(&there, &program, &["echo", ips[1], "4000", "2"]);
            form.run_in(&here, &program, &["sizes", ips[1], "4000"]);
            form.run_in(&here, &program, &["threads", ips[1], "4000", "8", "20", "30"]);
            form.run_in(&here, &waits, &["polls", ips[1], "4000"]);
            form.run_in(&here, &program, &["copies", ips[1], "4000"]);
            form.run_in(&here, &program, &["execs", ips[1], "4000"]);
        }
    }
}

#[test]
fn calls_end_as_the_kernel_has_them_end() {
    let Some(([here, there], program)) = setting() else { return };
    for form in FORMS {
        {
            let _silent = form.server_in(&there, &program, &["swallow", V4[1], "4000"]);
            form.run_in(&here, &program, &["aborts", V4[1], "4000"]);
            // The machine runs Homa, but the port has no server.
            assert_eq!(form.run_in(&here, &program, &["fails", V4[1], "4001"]), "sent\nENOTCONN\n");
        }
        // The machine's last Homa process has ended, so the machine no longer runs Homa.
        assert_eq!(
            form.run_in(&here, &program, &["fails", V4[1], "4000"]),
            format!("sent\n{}\n", form.no_homa)
        );
    }
}

#[test]
fn processes_share_the_ports_of_a_machine_and_the_dead_give_theirs_back() {
    let Some(([here, there], program)) = setting() else { return };
    for form in FORMS {
        let mut one = form.server_in(&there, &program, &["swallow", V4[1], "4000"]);
        let _other = form.server_in(&there, &program, &["echo", V4[1], "4001", "1"]);
        let taken = form.command(&program, &["echo", V4[1], "4000", "1"]);
        let output = there.run(move || { taken }.output().unwrap());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains("Address already in use"), "{errors}");

        let waits = form.command(&program, &["fails", V4[1], "4000"]);
        let mut waits = here.run(move || Running::start(waits));
        assert_eq!((waits.line(), one.line()), ("sent".to_owned(), "taken".to_owned()));
        one.kill();
        assert_eq!(waits.line(), "ENOTCONN");
        form.run_in(&here, &program, &["sizes", V4[1], "4001"]);
        let _again = form.server_in(&there, &program, &["echo", V4[1], "4000", "1"]);
        form.run_in(&here, &program, &["round-trips", V4[1], "4000", "100", "20", "0"]);
    }
}

#[test]
fn sockets_accept_requests_while_they_are_told_to_bound_or_not() {
    let Some(([here, there], program)) = setting() else { return };
    for form in FORMS {
        for ips in [V4, V6] {
            form.run_in(&there, &program, &["serves", ips[1], "4000"]);
            let mut server = form.server_in(&there, &program, &["echo-unbound", ips[1]]);
            // Another process, which keeps Homa running on the machine when the first server is killed.
            let _other = form.server_in(&there, &program, &["swallow", ips[1], "4002"]);
            let port = server.line();
            form.run_in(&here, &program, &["sizes", ips[1], &port]);
            server.kill();
            assert_eq!(form.run_in(&here, &program, &["fails", ips[1], &port]), "sent\nENOTCONN\n");
        }
    }
}

#[test]
fn wrong_arguments_get_the_kernels_errors() {
    let Some(([here, _], errors)) = pair(1_500).zip(program("errors")) else { return };
    for form in FORMS {
        form.run_in(&here, &errors, &[]);
    }
}
