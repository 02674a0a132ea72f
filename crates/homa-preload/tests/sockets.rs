//! Runs C programs written for Linux Homa, with the library preloaded, over UDP.

use std::path::Path;
use std::process::Command;

use super::common::{Running, library, ports, preloaded, program, run};
use homa::{Host, ServerAddr};

const FAMILIES: [&str; 2] = ["127.0.0.1", "::1"];

/// Starts a preloaded echo server with this number of threads.
fn echo(program: &Path, host: &str, port: u16, threads: &str) -> Running {
    Running::server(preloaded(program, &["echo", host, &port.to_string(), threads]))
}

fn client(program: &Path, what: &str, host: &str, port: u16, more: &[&str]) -> Command {
    let mut command = preloaded(program, &[what, host, &port.to_string()]);
    command.args(more);
    command
}

#[test]
fn wrong_arguments_get_the_kernels_errors() {
    let Some(errors) = program("errors") else { return };
    run(preloaded(&errors, &[&ports(3).to_string()]));
}

#[test]
fn messages_of_all_sizes_go_and_come_back() {
    let Some(program) = program("program") else { return };
    for host in FAMILIES {
        let port = ports(1);
        let _echo = echo(&program, host, port, "1");
        run(client(&program, "sizes", host, port, &[]));
    }
}

#[test]
fn eight_threads_share_sockets_with_twenty_calls_in_flight_each() {
    let Some(program) = program("program") else { return };
    let port = ports(1);
    let _echo = echo(&program, FAMILIES[0], port, "8");
    run(client(&program, "threads", FAMILIES[0], port, &["8", "20", "100"]));
}

#[test]
fn calls_are_given_up_and_sockets_closed_while_eight_threads_call() {
    let Some(program) = program("program") else { return };
    let port = ports(1);
    let _echo = echo(&program, FAMILIES[0], port, "2");
    run(client(&program, "storm", FAMILIES[0], port, &["8", "20", "200"]));
}

#[test]
fn descriptors_are_readable_exactly_while_there_is_a_message() {
    let Some((program, waits)) = program("program").zip(program("waits")) else { return };
    for host in FAMILIES {
        let port = ports(1);
        let _echo = echo(&program, host, port, "1");
        run(client(&waits, "polls", host, port, &[]));
    }
}

#[test]
fn every_call_sees_a_message_that_poll_has_reported() {
    let Some((program, looks)) = program("program").zip(program("looks")) else { return };
    for host in FAMILIES {
        let port = ports(1);
        let _echo = echo(&program, host, port, "1");
        run(that_drives(client(&looks, "sees-all", host, port, &[])));
        run(that_drives(client(&looks, "sees-all-in-epoll", host, port, &[])));
    }
}

/// A batch used to grow for as long as messages arrived while it was received.
#[test]
fn a_batch_is_what_has_arrived() {
    let Some((program, looks)) = program("program").zip(program("looks")) else { return };
    let port = ports(1);
    let _echo = echo(&program, FAMILIES[0], port, "1");
    run(that_drives(client(&looks, "batches", FAMILIES[0], port, &[])));
}

#[test]
fn a_signal_ends_a_call_that_waits() {
    let Some((program, waits)) = program("program").zip(program("waits")) else { return };
    let (port, silent) = (ports(1), ports(1));
    let _echo = echo(&program, FAMILIES[0], port, "1");
    let _silent = Running::server(preloaded(&program, &["swallow", FAMILIES[0], &silent.to_string()]));
    run(client(&waits, "signals", FAMILIES[0], port, &[&silent.to_string()]));
}

#[test]
fn a_signal_ends_calls_that_waited_before_there_was_a_handler() {
    let Some((program, waits)) = program("program").zip(program("waits")) else { return };
    let silent = ports(1);
    let _silent = Running::server(preloaded(&program, &["swallow", FAMILIES[0], &silent.to_string()]));
    for _ in 0..10 {
        run(client(&waits, "first-handler", FAMILIES[0], 1, &[&silent.to_string()]));
        run(client(&waits, "first-handler-after-child", FAMILIES[0], 1, &[&silent.to_string()]));
    }
}

/// Makes threads poll the network for longer than a test lasts.
fn that_drives(mut command: Command) -> Command {
    command.env("HOMA_POLL_USECS", "900000000");
    command
}

#[test]
fn a_signal_ends_polls_that_waited_before_there_was_a_handler() {
    let Some((program, waits)) = program("program").zip(program("waits")) else { return };
    let silent = ports(1);
    let _silent = Running::server(preloaded(&program, &["swallow", FAMILIES[0], &silent.to_string()]));
    for by in ["1", "4"] {
        let command = || client(&waits, "first-handler", FAMILIES[0], 1, &[&silent.to_string(), by]);
        run(command());
        run(that_drives(command()));
    }
}

#[test]
fn a_thread_in_poll_drives_the_network_itself() {
    let Some((program, waits)) = program("program").zip(program("waits")) else { return };
    let silent = ports(1);
    let _silent = Running::server(preloaded(&program, &["swallow", FAMILIES[0], &silent.to_string()]));
    run(that_drives(client(&waits, "polls-drive", FAMILIES[0], 1, &[&silent.to_string()])));
}

#[test]
fn a_thread_that_drives_in_poll_ends_by_signals_time_limits_and_other_descriptors() {
    let Some((program, waits)) = program("program").zip(program("waits")) else { return };
    for host in FAMILIES {
        let silent = ports(1);
        let _silent = Running::server(preloaded(&program, &["swallow", host, &silent.to_string()]));
        for what in ["polls-end", "polls-others"] {
            run(that_drives(client(&waits, what, host, 1, &[&silent.to_string()])));
            run(client(&waits, what, host, 1, &[&silent.to_string()]));
        }
    }
}

#[test]
fn a_thread_that_drives_is_cancelled_as_one_that_sleeps() {
    let Some((program, ends)) = program("program").zip(program("ends")) else { return };
    let (port, silent) = (ports(1), ports(1));
    let _echo = echo(&program, FAMILIES[0], port, "1");
    let _silent = Running::server(preloaded(&program, &["swallow", FAMILIES[0], &silent.to_string()]));
    run(that_drives(client(&ends, "cancels-driving", FAMILIES[0], port, &[&silent.to_string()])));
}

#[test]
fn a_thread_that_is_cancelled_in_a_call_ends_and_leaves_its_socket_well() {
    let Some((program, ends)) = program("program").zip(program("ends")) else { return };
    let (port, silent) = (ports(1), ports(1));
    let _echo = echo(&program, FAMILIES[0], port, "1");
    let _silent = Running::server(preloaded(&program, &["swallow", FAMILIES[0], &silent.to_string()]));
    run(client(&ends, "cancels", FAMILIES[0], port, &[&silent.to_string()]));
}

#[test]
fn a_handler_may_end_a_thread_that_waits() {
    let Some((program, ends)) = program("program").zip(program("ends")) else { return };
    let (port, silent) = (ports(1), ports(1));
    let _echo = echo(&program, FAMILIES[0], port, "1");
    let _silent = Running::server(preloaded(&program, &["swallow", FAMILIES[0], &silent.to_string()]));
    run(client(&ends, "exits", FAMILIES[0], port, &[&silent.to_string()]));
}

/// Returns a command of the program `memory`, with memory for two messages of 1 MB.
fn with_little_memory(memory: &Path, what: &str, host: &str, port: u16) -> Command {
    let mut command = client(memory, what, host, port, &[]);
    command.env("HOMA_WMEM_MAX", "2000000");
    command
}

#[test]
fn poll_tells_of_memory_for_requests() {
    let Some((program, memory)) = program("program").zip(program("memory")) else { return };
    for host in FAMILIES {
        let port = ports(1);
        let _silent = Running::server(preloaded(&program, &["swallow", host, &port.to_string()]));
        run(with_little_memory(&memory, "requests", host, port));
    }
}

#[test]
fn answers_wait_for_memory_and_poll_tells_of_it() {
    let Some(memory) = program("memory") else { return };
    for host in FAMILIES {
        run(with_little_memory(&memory, "answers", host, ports(1)));
    }
}

#[test]
fn a_signal_handler_may_poll_whatever_its_thread_was_doing() {
    let Some((program, waits)) = program("program").zip(program("waits")) else { return };
    let port = ports(2);
    let _echo = echo(&program, FAMILIES[0], port, "1");
    run(client(&waits, "polls-in-handlers", FAMILIES[0], port, &[&(port + 1).to_string()]));
}

#[test]
fn poll_speaks_all_words_and_rpcs_that_wait_are_told() {
    let Some((program, waits)) = program("program").zip(program("waits")) else { return };
    for host in FAMILIES {
        let port = ports(1);
        let _echo = echo(&program, host, port, "1");
        run(client(&waits, "words", host, port, &[]));
    }
}

#[test]
fn epoll_sets_nest_and_have_edges() {
    let Some((program, waits)) = program("program").zip(program("waits")) else { return };
    for host in FAMILIES {
        let port = ports(1);
        let _echo = echo(&program, host, port, "1");
        run(client(&waits, "sets", host, port, &[]));
    }
}

#[test]
fn signals_that_are_held_back_come_in_calls_that_let_them_through() {
    let Some((program, waits)) = program("program").zip(program("waits")) else { return };
    let port = ports(1);
    let _silent = Running::server(preloaded(&program, &["swallow", FAMILIES[0], &port.to_string()]));
    run(client(&waits, "masks", FAMILIES[0], 1, &[&port.to_string()]));
}

#[test]
fn of_a_program_that_becomes_another_no_socket_is_left() {
    let Some(program) = program("program") else { return };
    let port = ports(2);
    let _echo = echo(&program, FAMILIES[0], port, "1");
    run(client(&program, "execs", FAMILIES[0], port, &[]));
}

#[test]
fn messages_wait_for_buffers() {
    let Some((program, buffers)) = program("program").zip(program("buffers")) else { return };
    let port = ports(1);
    let _echo = echo(&program, FAMILIES[0], port, "1");
    run(client(&buffers, "starves", FAMILIES[0], port, &[]));
    run(client(&buffers, "starves-another", FAMILIES[0], port, &[]));
    run(client(&buffers, "holds-many", FAMILIES[0], port, &[]));
    run(client(&buffers, "private-for-two", FAMILIES[0], port, &[]));
}

#[test]
fn buffers_that_the_program_takes_away_are_not_written_to() {
    let Some((program, buffers)) = program("program").zip(program("buffers")) else { return };
    let port = ports(1);
    let _echo = echo(&program, FAMILIES[0], port, "1");
    run(client(&buffers, "unmaps", FAMILIES[0], port, &[]));
    run(client(&buffers, "unmaps-in-part", FAMILIES[0], port, &[]));
}

#[test]
fn a_call_has_its_socket_until_it_returns_also_when_that_is_closed() {
    let Some((program, buffers)) = program("program").zip(program("buffers")) else { return };
    let port = ports(1);
    let _echo = echo(&program, FAMILIES[0], port, "1");
    run(client(&buffers, "closes", FAMILIES[0], port, &[]));
    run(client(&buffers, "closes-and-unmaps", FAMILIES[0], port, &[]));
}

#[test]
fn calls_are_aborted_and_sockets_shut_down() {
    let Some(program) = program("program") else { return };
    for host in FAMILIES {
        let port = ports(1);
        let _silent = Running::server(preloaded(&program, &["swallow", host, &port.to_string()]));
        run(client(&program, "aborts", host, port, &[]));
    }
}

#[test]
fn several_messages_are_sent_and_received_at_once() {
    let Some(program) = program("program") else { return };
    let port = ports(1);
    let _echo = echo(&program, FAMILIES[0], port, "1");
    run(client(&program, "at-once", FAMILIES[0], port, &[]));
}

#[test]
fn copies_of_descriptors_and_children_do_as_they_should() {
    let Some(program) = program("program") else { return };
    let port = ports(1);
    let _echo = echo(&program, FAMILIES[0], port, "1");
    run(client(&program, "copies", FAMILIES[0], port, &[]));
}

#[test]
fn a_program_may_close_what_it_does_not_know() {
    let Some((program, descriptors)) = program("program").zip(program("descriptors")) else { return };
    let port = ports(1);
    let _echo = echo(&program, FAMILIES[0], port, "1");
    run(client(&descriptors, "closes-all", FAMILIES[0], port, &[]));
    run(client(&descriptors, "closes-past", FAMILIES[0], port, &[]));
}

#[test]
fn a_call_beside_close_has_the_socket_or_no_descriptor() {
    let Some(descriptors) = program("descriptors") else { return };
    run(client(&descriptors, "closes-beside-calls", FAMILIES[0], 1, &[]));
}

#[test]
fn nobody_at_a_port_is_an_error_and_so_is_a_server_that_is_killed() {
    let Some(program) = program("program") else { return };
    let port = ports(1);
    assert_eq!(run(client(&program, "fails", FAMILIES[0], port, &[])), "sent\nENOTCONN\n");

    let mut server = Running::server(preloaded(&program, &["swallow", FAMILIES[0], &port.to_string()]));
    let mut waits = Running::start(client(&program, "fails", FAMILIES[0], port, &[]));
    assert_eq!((waits.line(), server.line()), ("sent".to_owned(), "taken".to_owned()));
    server.kill();
    assert_eq!(waits.line(), "ENOTCONN");
    // The killed server's port is free for the next server.
    let _echo = echo(&program, FAMILIES[0], port, "1");
    run(client(&program, "round-trips", FAMILIES[0], port, &["100", "10", "0"]));
}

#[test]
fn sockets_accept_requests_while_they_are_told_to_bound_or_not() {
    let Some(program) = program("program") else { return };
    for host in FAMILIES {
        run(client(&program, "serves", host, ports(2), &[]));
        let mut server = Running::server(preloaded(&program, &["echo-unbound", host]));
        let port = server.line().parse().unwrap();
        run(client(&program, "sizes", host, port, &[]));
        run(client(&program, "threads", host, port, &["4", "20", "50"]));
        server.kill();
        assert_eq!(run(client(&program, "fails", host, port, &[])), "sent\nENOTCONN\n");
    }
}

#[test]
fn a_server_that_stands_still_is_a_timeout() {
    let Some(program) = program("program") else { return };
    let port = ports(1);
    let server = echo(&program, FAMILIES[0], port, "1");
    // The stopped server's machine is reachable, but does not answer.
    run({
        let mut stop = Command::new("kill");
        stop.args(["-STOP", &server.child.id().to_string()]);
        stop
    });
    let mut command = client(&program, "fails", FAMILIES[0], port, &[]);
    command.env("HOMA_RESEND_TICKS", "1").env("HOMA_TIMEOUT_RESENDS", "3");
    assert_eq!(run(command), "sent\nETIMEDOUT\n");
}

#[test]
fn a_killed_client_among_several_leaves_the_others_and_the_server_alone() {
    let Some(program) = program("program") else { return };
    let port = ports(1);
    let _echo = echo(&program, FAMILIES[0], port, "2");
    let mut killed = Running::start(client(&program, "threads", FAMILIES[0], port, &["4", "20", "1000000"]));
    let mut other = client(&program, "threads", FAMILIES[0], port, &["4", "20", "50"]);
    let other = std::thread::spawn(move || other.output().unwrap());
    run(client(&program, "round-trips", FAMILIES[0], port, &["100", "50", "0"]));
    killed.kill();
    run(client(&program, "sizes", FAMILIES[0], port, &[]));
    assert!(other.join().unwrap().status.success());
}

#[test]
fn processes_share_the_ports_of_the_machine() {
    let Some(program) = program("program") else { return };
    let port = ports(1);
    let _echo = echo(&program, FAMILIES[0], port, "1");
    let output = preloaded(&program, &["echo", FAMILIES[1], &port.to_string(), "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("bind") && errors.contains("Address already in use"), "{errors}");
}

#[test]
fn programs_of_the_rust_api_are_peers() {
    let Some(program) = program("program") else { return };
    // A server on the UDP port that belongs to its Homa port, like `homa serve` at Homa port 99.
    let port = ports(2);
    let udp_port = ServerAddr::DEFAULT_UDP_PORT - ServerAddr::DEFAULT_PORT + port;
    let bind = format!("127.0.0.1:{udp_port}").parse().unwrap();
    let host = Host::builder().address(bind).bind().unwrap();
    let server = host.server(port).unwrap();
    let echo = std::thread::spawn(move || {
        while let Ok(mut rpc) = server.recv().wait() {
            let request = rpc.take_payload();
            rpc.reply(request).unwrap();
        }
    });
    run(client(&program, "sizes", FAMILIES[0], port, &[]));
    drop(host);
    echo.join().unwrap();

    let _echo = self::echo(&program, FAMILIES[0], port + 1, "1");
    let to = ServerAddr::new(format!("127.0.0.1:{}", udp_port + 1).parse().unwrap(), port + 1);
    let host = Host::builder().bind().unwrap();
    assert_eq!(host.client().unwrap().call(to, vec![7; 300_000]).wait().unwrap(), vec![7; 300_000]);
}

#[test]
fn settings_that_nobody_understands_are_reported_once() {
    let Some(program) = program("program") else { return };
    let port = ports(1);
    let _echo = echo(&program, FAMILIES[0], port, "1");
    let mut command = client(&program, "round-trips", FAMILIES[0], port, &["100", "5", "0"]);
    command.env("HOMA_NO_SUCH_THING", "1").env("HOMA_MAX_INCOMING", "500000");
    let output = command.output().unwrap();
    assert!(output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("HOMA_NO_SUCH_THING"), "{errors}");
}

#[test]
fn programs_without_homa_are_as_ever() {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "echo one | cat; exec 9</dev/null; exec 9<&-; ls / >/dev/null"])
        .env("LD_PRELOAD", library());
    assert_eq!(run(shell), "one\n");
}

/// Makes this number of calls, and checks that the second half leaves no additional descriptors and little
/// additional memory.
fn soak(calls: &str) {
    let Some(program) = program("program") else { return };
    let port = ports(1);
    let server = echo(&program, FAMILIES[0], port, "1");
    let resident = |id: u32| -> u64 {
        let statm = std::fs::read_to_string(format!("/proc/{id}/statm")).unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4
    };
    let lines = run(client(&program, "soak", FAMILIES[0], port, &[calls]));
    let halves: Vec<Vec<u64>> =
        lines.lines().map(|line| line.split(' ').map(|word| word.parse().unwrap()).collect()).collect();
    println!(
        "{calls} calls: descriptors and KiB of the client by halves {halves:?}; the server's KiB {}",
        resident(server.child.id())
    );
    assert_eq!(halves[0][0], halves[1][0], "descriptors");
    assert!(halves[1][1] < halves[0][1] + 8 * 1024, "memory in KiB: {halves:?}");
}

#[test]
fn many_calls_leave_nothing_behind() {
    soak("20000");
}

/// `cargo test -p homa-preload --release -- --ignored --nocapture a_million`
#[test]
#[ignore = "takes a minute"]
fn a_million_calls_leave_nothing_behind() {
    soak("1000000");
}
