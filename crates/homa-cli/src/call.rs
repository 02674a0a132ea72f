//! `homa call`: one RPC.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use clap::Args;
use homa::{Host, ServerAddr};
use homa_bench::addresses::{client_bind, host_config, on_device};
use homa_bench::driver::{Driver, XdpMode};
use homa_bench::host_report::HostReport;
use homa_bench::recording::Recorder;
use homa_report::output::{Output, print};
use serde::Serialize;

use crate::addr;
use crate::choice::choice;
use crate::recording::RecordingArgs;
use crate::values::{Queues, message_bytes, positive, queues};

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa call 127.0.0.1:14600 --text hello
  homa call --driver raw 10.0.0.1/99 --size 500000  in IP protocol 146, to Linux Homa too; as root
  homa call --driver linux-udp 10.0.0.1/99          at UDP port 54321, to Linux Homa's UDP form too
  homa call 10.0.0.1 --trace c.trace                and a time trace of it
  homa call 10.0.0.1 --size 500000 --link-mbps 10000 --metrics
                                                    and the counters and the state of the peer

Only messages long enough to need a grant measure a round-trip time.")]
pub struct CallArgs {
    /// Driver of Homa's packets
    #[arg(long, value_name = "HOW", default_value = "udp", value_parser = choice::<Driver>())]
    pub driver: Driver,
    /// The network device for --driver packet or xdp [default: that of the route to the server]
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// Receive queues for --driver xdp, as in 0-3,6 [default: all]. Packets on other queues are lost
    #[arg(long, value_name = "LIST", value_parser = queues)]
    pub queues: Option<Queues>,
    /// Where the kernel runs the program of --driver xdp
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = choice::<XdpMode>())]
    pub xdp_mode: XdpMode,
    /// The server: `ADDRESS[:UDP_PORT][/HOMA_PORT]`, by default UDP port 14600 and Homa port 99. Raw IP has
    /// no UDP port, and with --driver linux-udp it is always 54321
    #[arg(value_name = "ADDR")]
    pub addr: String,
    /// Send the content of this file
    #[arg(long, value_name = "FILE", group = "request")]
    pub file: Option<PathBuf>,
    /// Send this text
    #[arg(long, value_name = "TEXT", group = "request")]
    pub text: Option<String>,
    /// Send this many bytes of a pattern (the default, with 100 bytes)
    #[arg(long, value_name = "BYTES", group = "request", value_parser = message_bytes)]
    pub size: Option<u32>,
    /// Save the response in this file; with `-`, standard output is the response and nothing else
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Link speed, Mbit/s [default: as reported by the network device; many virtual ones report none].
    /// Without it nothing is paced, and unscheduled bytes do not depend on the round-trip time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub link_mbps: Option<u32>,
    /// After the call, also after a failed one, print on standard error (with --json: in the result) every
    /// counter that is not 0 and the state of the peer: round-trip time, unscheduled bytes of a message to
    /// it, and its limit for them
    #[arg(long)]
    pub metrics: bool,
    /// Give up after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = positive)]
    pub deadline: f64,
    #[command(flatten)]
    pub recording: RecordingArgs,
}

/// Bytes of the default request.
const DEFAULT_SIZE: u32 = 100;

/// Maximum length of a response in bytes. If the request is longer, its length is the limit.
const MAX_ANSWER: u32 = 64 << 20;

#[derive(Serialize)]
struct CallJson<'a> {
    schema: u32,
    addr: String,
    request_bytes: usize,
    response_bytes: usize,
    same_as_request: bool,
    time_us: f64,
    /// The response, if it is text and was not saved to a file.
    text: Option<&'a str>,
    output: Option<&'a Path>,
    /// Present only with --metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<&'a HostReport>,
}

/// The outcome of a call.
struct CallOutcome {
    answer: Result<Bytes, homa::error::CallError>,
    time: Duration,
    seen: HostReport,
}

/// Makes the call, and prints or saves the response.
pub fn run(args: &CallArgs) -> Result<()> {
    let mut to = server(&args.addr)?;
    if let Some(port) = args.driver.peers_port() {
        to.host.set_port(port);
    }
    let request = request(args)?;
    let to_stdout = args.output.as_deref() == Some(Path::new("-"));
    ensure!(!(to_stdout && args.json), "--json and --output - both write to standard output: choose one");
    let output = args.output.as_deref().filter(|_| !to_stdout).map(Output::check).transpose()?;
    let CallOutcome { answer, time, seen } = call(args, to, &request)?;
    let seen = args.metrics.then_some(seen);
    if let (Err(_), Some(seen)) = (&answer, &seen) {
        // The counters may show why the call failed.
        eprint!("{seen}");
    }
    let answer = answer?;
    if let Some(output) = &output {
        output.write(&answer)?;
    }
    if to_stdout {
        print(&answer)?;
    }
    let time_us = time.as_nanos() as f64 / 1e3;
    let saved = args.output.is_some();
    if args.json {
        let text = printable(&answer).filter(|_| !saved && args.size.is_none());
        let answered = CallJson {
            schema: 1,
            addr: to.to_string(),
            request_bytes: request.len(),
            response_bytes: answer.len(),
            same_as_request: answer == request,
            time_us,
            text,
            output: args.output.as_deref(),
            metrics: seen.as_ref(),
        };
        return print(format!("{}\n", serde_json::to_string_pretty(&answered)?).as_bytes());
    }
    let same = if answer == request { ", the same as sent" } else { "" };
    let pattern = args.file.is_none() && args.text.is_none();
    match printable(&answer) {
        Some(text) if !saved && !pattern => print(format!("{}\n", text.trim_end_matches('\n')).as_bytes())?,
        None if !saved && !pattern => eprintln!("the answer is not text: save it with --output FILE"),
        _ => {}
    }
    eprintln!("{} bytes{same}, in {time_us:.1} µs from {to}", answer.len());
    if let Some(seen) = seen {
        eprint!("{seen}");
    }
    Ok(())
}

/// Parses `HOST[:UDP_PORT][/HOMA_PORT]`, where the host may be a name.
fn server(text: &str) -> Result<ServerAddr> {
    let (host, port) = match text.split_once('/') {
        Some((host, port)) => {
            let port = port.parse().ok().filter(|port| *port > 0);
            (host, port.with_context(|| format!("`{text}`: a Homa port is 1 to 65535"))?)
        }
        None => (text, ServerAddr::DEFAULT_PORT),
    };
    Ok(ServerAddr { host: addr::resolve(host, ServerAddr::DEFAULT_UDP_PORT)?, port })
}

fn request(args: &CallArgs) -> Result<Bytes> {
    if let Some(path) = &args.file {
        let content = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        if content.is_empty() {
            bail!("{} is empty: a Homa message has at least one byte", path.display());
        }
        return Ok(content.into());
    }
    if let Some(text) = &args.text {
        ensure!(!text.is_empty(), "the text is empty: a Homa message has at least one byte");
        return Ok(Bytes::copy_from_slice(text.as_bytes()));
    }
    Ok((0..args.size.unwrap_or(DEFAULT_SIZE)).map(|at| (at % 251) as u8).collect::<Vec<u8>>().into())
}

fn call(args: &CallArgs, to: ServerAddr, request: &Bytes) -> Result<CallOutcome> {
    let deadline = Duration::try_from_secs_f64(args.deadline)?;
    let mut bind = client_bind(args.driver, to.host.ip(), 0);
    if args.interface.is_some() {
        // The driver binds to the address of the device, which may differ from the route's source address.
        bind.set_ip(if bind.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() });
    }
    let length = u32::try_from(request.len()).ok().filter(|&length| length <= i32::MAX as u32);
    let length = length.context("the request is longer than a Homa message can be: 2147483647 bytes")?;
    // A single call benefits from polling while it waits, and occupies a processor only while it lasts.
    let poll = Duration::from_millis(1);
    let mut config = host_config(args.driver, bind, length.max(MAX_ANSWER), poll);
    config.protocol.link_mbps = args.link_mbps;
    on_device(
        &mut config,
        args.interface.as_deref(),
        args.queues.as_ref().map(|queues| &queues.0[..]),
        args.xdp_mode,
    );
    args.recording.settings.to_settings().apply(&mut config);
    let host = Arc::new(Host::builder().config(config).bind()?);
    let path = args.recording.trace.as_deref();
    let recorder = path.map(|path| Recorder::start(path, &host, None)).transpose()?;
    let client = host.client()?;
    let begin = Instant::now();
    let answer = client.call(to, request.clone()).timeout(deadline).wait();
    let time = begin.elapsed();
    let seen = HostReport::of(&host);
    recorder.map_or(Ok(()), Recorder::finish)?;
    drop(client);
    if let Some(host) = Arc::into_inner(host) {
        host.shutdown(Duration::from_millis(100));
    }
    Ok(CallOutcome { answer, time, seen })
}

/// Returns the response as text, if it is printable.
fn printable(answer: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(answer).ok()?;
    text.chars().all(|char| !char.is_control() || matches!(char, '\n' | '\t' | '\r')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_and_without_a_homa_port() {
        assert_eq!(server("127.0.0.1").expect("valid").to_string(), "127.0.0.1:14600/99");
        assert_eq!(server("127.0.0.1:7/8").expect("valid").to_string(), "127.0.0.1:7/8");
        assert!(server("127.0.0.1/0").is_err());
        assert_eq!(server("[::1]/40000").expect("valid").port, 40_000);
        assert!(server("127.0.0.1/65536").is_err());
    }

    #[test]
    fn only_text_is_shown() {
        assert_eq!(printable("größe\n".as_bytes()), Some("größe\n"));
        assert_eq!(printable(b"\x1b[2J"), None);
        assert_eq!(printable(&[0xff]), None);
    }
}
