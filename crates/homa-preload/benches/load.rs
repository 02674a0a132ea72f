//! Compares the RPC rate of preloaded C programs (`load.c`) with that of `homa bench`, over a veth between
//! two network namespaces. For the options: `cargo bench -p homa-preload --bench load -- --help`.

#[path = "../tests/common/mod.rs"]
mod common;

use std::env;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use common::{Running, library, run};
use homa_testkit::namespace::{Namespace, V4, pair};

const HELP: &str = "\
Compares RPCs per second of preloaded C programs with those of `homa bench`, with the same sizes and open RPCs,
over a veth between two network namespaces, in turns. Servers run on processor 0 and clients on processor 1.
Needs root, a C compiler, and `homa`: cargo build --release -p homa-cli

usage: cargo bench -p homa-preload --bench load -- [OPTION...]

  --driver HOW        raw (the default), udp or linux-udp, for all programs
  --size A,B          bytes of requests and answers (default 100,100000,1000000)
  --open A,B          RPCs open at all times, at most 32 (default 1,8)
  --ways A,B          how programs wait and send: recv, poll, epoll, and with -batch several messages a call
                      (default recv,poll,recv-batch; see `load --help` in the source, benches/load.c)
  --library A,B       the libraries to preload (default: the one of this build)
  --seconds S         measured time of each cell (default 1)
  --rounds N          rounds over all cells (default 5)
  --homa PATH         the `homa` command (default target/release/homa)
  --json              print one JSON object for each cell instead of a table
  --help              print this
";

/// The Homa port of preloaded servers, which is also the port of `homa serve`.
const PORT: &str = "99";

struct Options {
    driver: String,
    sizes: Vec<u64>,
    open: Vec<u32>,
    ways: Vec<String>,
    libraries: Vec<PathBuf>,
    seconds: String,
    rounds: usize,
    homa: PathBuf,
    json: bool,
}

impl Options {
    /// Parses the command line. The error is the text to print.
    fn read(args: impl Iterator<Item = String>) -> Result<Options, String> {
        let target = env::current_exe().ok().and_then(|own| own.ancestors().nth(2).map(Path::to_owned));
        let mut options = Options {
            driver: "raw".to_owned(),
            sizes: vec![100, 100_000, 1_000_000],
            open: vec![1, 8],
            ways: ["recv", "poll", "recv-batch"].map(str::to_owned).into(),
            libraries: vec![library()],
            seconds: "1".to_owned(),
            rounds: 5,
            homa: target.unwrap_or_default().join("homa"),
            json: false,
        };
        let mut args = args.filter(|arg| arg != "--bench");
        while let Some(name) = args.next() {
            match name.as_str() {
                "--help" => return Err(HELP.to_owned()),
                "--json" => options.json = true,
                _ => {
                    let value = args
                        .next()
                        .ok_or_else(|| format!("{name} needs a value; --help lists the options\n"))?;
                    options
                        .set(&name, value)
                        .ok_or_else(|| format!("{name} is no option here, or its value is wrong\n"))?;
                }
            }
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: String) -> Option<()> {
        let words = || value.split(',');
        match name {
            "--driver" => self.driver = value,
            "--size" => self.sizes = words().map(|word| word.parse().ok()).collect::<Option<_>>()?,
            "--open" => self.open = words().map(|word| word.parse().ok()).collect::<Option<_>>()?,
            "--ways" => self.ways = words().map(str::to_owned).collect(),
            "--library" => self.libraries = words().map(PathBuf::from).collect(),
            "--seconds" => self.seconds = value,
            "--rounds" => self.rounds = value.parse().ok().filter(|rounds| *rounds > 0)?,
            "--homa" => self.homa = value.into(),
            _ => return None,
        }
        Some(())
    }
}

/// Pins the command to processor `number`, if the machine has it.
fn on_processor(mut command: Command, number: usize) -> Command {
    // SAFETY: the function runs in the child between fork and exec. It modifies only its own set and makes
    // one system call, both of which are permitted there. If it fails, the command runs anywhere.
    unsafe {
        command.pre_exec(move || {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(number, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
            Ok(())
        });
    }
    command
}

/// One kind of client program, and its running server. Each contestant has its own pair of network
/// namespaces.
struct Contestant {
    name: String,
    library: Option<PathBuf>,
    words: Vec<String>,
    client: Namespace,
    _server: (Namespace, Running),
}

impl Contestant {
    /// Returns the contestant `homa bench`, with `homa serve` as its server.
    fn bench(options: &Options) -> Option<Contestant> {
        let mut serve = Command::new(&options.homa);
        serve.args(["serve", "--driver", &options.driver, "--bind", V4[1]]);
        Contestant::start("homa bench".to_owned(), None, Vec::new(), serve)
    }

    /// Returns the contestant `load.c`, with the library preloaded.
    fn preloaded(options: &Options, program: &Path, way: &str, library: &Path) -> Option<Contestant> {
        let (wait, batch) = way.strip_suffix("-batch").map_or((way, false), |wait| (wait, true));
        let mut words = vec!["--wait".to_owned(), wait.to_owned()];
        words.extend(batch.then(|| "--batch".to_owned()));
        let mut serve = Command::new(program);
        serve.args(["serve", V4[1], PORT]).args(&words);
        serve.env("LD_PRELOAD", library).env("HOMA_DRIVER", &options.driver);
        let several = options.libraries.len() > 1;
        let name = if several { format!("{way}, {}", library.display()) } else { way.to_owned() };
        Contestant::start(name, Some(library.to_owned()), words, serve)
    }

    fn start(
        name: String,
        library: Option<PathBuf>,
        words: Vec<String>,
        serve: Command,
    ) -> Option<Contestant> {
        let [client, there] = pair(1_500)?;
        let mut server = there.run(move || Running::start(on_processor(serve, 0)));
        loop {
            let line = server.line();
            assert!(!line.is_empty(), "the server of {name} does not start");
            if line == "ready" {
                break;
            }
        }
        Some(Contestant { name, library, words, client, _server: (there, server) })
    }

    /// Runs the client and returns its RPCs per second.
    fn measure(&self, options: &Options, program: &Path, size: u64, open: u32) -> f64 {
        let (size_text, open_text) = (size.to_string(), open.to_string());
        let mut command = Command::new(if self.library.is_some() { program } else { &options.homa });
        if let Some(library) = &self.library {
            command.args(["call", V4[1], PORT, "--size", &size_text, "--open", &open_text]);
            command.args(["--seconds", &options.seconds]).args(&self.words);
            command.env("LD_PRELOAD", library).env("HOMA_DRIVER", &options.driver);
        } else {
            command.args(["bench", "--driver", &options.driver, "--servers", V4[1], "--protocol", "homa"]);
            command.args(["--placement", "free", "--size", &size_text, "--outstanding", &open_text]);
            command.args(["--duration", &options.seconds, "--json", "-"]);
        }
        let command = on_processor(command, 1);
        let text = self.client.run(move || run(command));
        let rate = match self.library {
            Some(_) => number(&text, "rpcs_per_s"),
            None => number(&text, "achieved_gbps").map(|gbps| gbps * 1e9 / 8.0 / size as f64),
        };
        rate.unwrap_or_else(|| panic!("{} prints its rate: {text}", self.name))
    }
}

/// Returns the first number with this key in a JSON text.
fn number(json: &str, name: &str) -> Option<f64> {
    let rest = json.split_once(&format!("\"{name}\":"))?.1.trim_start();
    rest[..rest.find([',', '}', '\n'])?].trim().parse().ok()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Compiles `load.c`.
fn compile() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/load.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("load");
    let mut cc = Command::new("cc");
    run({
        cc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(source);
        cc
    });
    program
}

fn print(options: &Options, (size, open): (u64, u32), name: &str, rates: &[f64], baseline: &[f64]) {
    let mut ratios: Vec<f64> = rates.iter().zip(baseline).map(|(rate, baseline)| rate / baseline).collect();
    let mut rates = rates.to_vec();
    let (rate, ratio) = (median(&mut rates), median(&mut ratios));
    let (from, to) = (ratios[0], ratios[ratios.len() - 1]);
    let gbps = rate * size as f64 * 8.0 / 1e9;
    if options.json {
        println!(
            "{{\"driver\": \"{}\", \"size\": {size}, \"open\": {open}, \"way\": \"{name}\", \"rpcs_per_s\": {rate:.1}, \
             \"rpcs_per_s_range\": [{:.1}, {:.1}], \"gbps\": {gbps:.4}, \"ratio\": {ratio:.3}, \
             \"ratio_range\": [{from:.3}, {to:.3}], \"rounds\": {}}}",
            options.driver,
            rates[0],
            rates[rates.len() - 1],
            options.rounds
        );
    } else {
        println!(
            "{size:>8} {open:>4} {rate:>11.0} {:>20} {gbps:>7.3} {ratio:>6.2} {:>13}  {name}",
            format!("{:.0} to {:.0}", rates[0], rates[rates.len() - 1]),
            format!("{from:.2} to {to:.2}")
        );
    }
}

fn compare(options: &Options) -> Option<()> {
    if !options.homa.is_file() {
        eprintln!(
            "there is no {}: cargo build --release -p homa-cli, or --homa PATH",
            options.homa.display()
        );
        return None;
    }
    let program = compile();
    let mut contestants = vec![Contestant::bench(options)?];
    for way in &options.ways {
        for library in &options.libraries {
            contestants.push(Contestant::preloaded(options, &program, way, library)?);
        }
    }
    let cells: Vec<(u64, u32)> =
        options.sizes.iter().flat_map(|size| options.open.iter().map(|open| (*size, *open))).collect();
    let mut rates = vec![vec![Vec::new(); contestants.len()]; cells.len()];
    for _ in 0..options.rounds {
        for (&(size, open), rates) in cells.iter().zip(&mut rates) {
            for (contestant, rates) in contestants.iter().zip(rates) {
                rates.push(contestant.measure(options, &program, size, open));
            }
        }
    }
    if !options.json {
        println!(
            "{:>8} {:>4} {:>11} {:>20} {:>7} {:>6} {:>13}  over {}",
            "bytes", "open", "RPC/s", "range", "Gbit/s", "ratio", "range", options.driver
        );
    }
    for (&cell, rates) in cells.iter().zip(&rates) {
        for (contestant, own) in contestants.iter().zip(rates) {
            print(options, cell, &contestant.name, own, &rates[0]);
        }
    }
    Some(())
}

fn main() -> ExitCode {
    match Options::read(env::args().skip(1)) {
        Ok(options) => match compare(&options) {
            Some(()) => ExitCode::SUCCESS,
            None => ExitCode::FAILURE,
        },
        Err(text) if text == HELP => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(text) => {
            eprint!("{text}");
            ExitCode::from(2)
        }
    }
}
