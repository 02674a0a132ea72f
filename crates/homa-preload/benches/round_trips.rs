//! Compares round-trip times of a preloaded C program with those of the Rust API, in alternating turns over
//! loopback: `cargo bench -p homa-preload` (or `-- --quick`). Client and server are separate processes.

#[path = "../tests/common/mod.rs"]
mod common;

use std::env;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use common::{Running, ports, preloaded, program, run};
use homa::{Bytes, Host, ServerAddr};

/// Message size in bytes, calls per turn, and maximum time of the C program relative to the Rust API.
const SIZES: [(usize, usize, f64); 3] = [(100, 20_000, 1.2), (100_000, 2_000, 1.1), (1_000_000, 400, 1.1)];

/// Number of turns of each side.
const TURNS: usize = 7;

fn udp_port(port: u16) -> u16 {
    ServerAddr::DEFAULT_UDP_PORT - ServerAddr::DEFAULT_PORT + port
}

/// Does the same as the C program's `echo`.
fn serve(port: u16) {
    let bind = format!("[::]:{}", udp_port(port)).parse().unwrap();
    let host = Host::builder().address(bind).bind().unwrap();
    let server = host.server(port).unwrap();
    println!("ready");
    while let Ok(mut rpc) = server.recv().wait() {
        let request = rpc.take_payload();
        // A reply fails if its client is gone.
        let _ = rpc.reply(request);
    }
}

/// Does the same as the C program's `round-trips`.
fn call(port: u16, length: usize, count: usize) {
    let host = Host::builder().bind().unwrap();
    let client = host.client().unwrap();
    let to = ServerAddr::new(format!("127.0.0.1:{}", udp_port(port)).parse().unwrap(), port);
    let request = Bytes::from(vec![7; length]);
    let mut times: Vec<f64> = (0..count)
        .map(|_| {
            let start = Instant::now();
            assert_eq!(client.call(to, request.clone()).wait().unwrap().len(), length);
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    println!("{:.3}", median(&mut times));
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

fn own(args: &[&str]) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(args);
    command
}

fn compare(program: &Path, quick: bool) {
    let port = ports(2);
    let (rust, c) = (port.to_string(), (port + 1).to_string());
    let _servers = [
        Running::server(own(&["serve", &rust])),
        Running::server(preloaded(program, &["echo", "127.0.0.1", &c, "1"])),
    ];
    println!(
        "{:>9} {:>12} {:>24} {:>12} {:>24} {:>6}",
        "bytes", "Rust µs", "range", "C µs", "range", "C/Rust"
    );
    for (length, count, most) in SIZES {
        let (turns, count) = if quick { (1, count / 10) } else { (TURNS, count) };
        let (length_text, count_text) = (length.to_string(), count.to_string());
        let words = [&*length_text, &*count_text];
        let turn = |_| {
            let rust = run(own(&["call", &rust, words[0], words[1]]));
            let c = run(preloaded(program, &["round-trips", "127.0.0.1", &c, words[0], words[1], "0"]));
            let time = |text: String| text.trim().parse::<f64>().unwrap();
            (time(rust), time(c))
        };
        let (mut rust, mut c): (Vec<f64>, Vec<f64>) = (0..turns).map(turn).unzip();
        let (rust_us, c_us) = (median(&mut rust), median(&mut c));
        let range = |times: &[f64]| format!("{:.1} to {:.1}", times[0], times[times.len() - 1]);
        let verdict = if c_us <= rust_us * most { "" } else { "above what is asked for" };
        let ratio = c_us / rust_us;
        println!(
            "{length:>9} {rust_us:>12.1} {:>24} {c_us:>12.1} {:>24} {ratio:>6.2} {verdict}",
            range(&rust),
            range(&c)
        );
    }
}

fn main() {
    let args: Vec<String> = env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let number = |at: usize| args[at].parse::<usize>().unwrap();
    match args.first().map(String::as_str) {
        Some("serve") => serve(number(1) as u16),
        Some("call") => call(number(1) as u16, number(2), number(3)),
        first => {
            if let Some(program) = program("program") {
                compare(&program, first == Some("--quick"));
            }
        }
    }
}
