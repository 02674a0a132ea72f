//! Runs an incast of 100 senders of 40 KB into a 200 KB buffer at 10 Gbit/s, cold and warm.
//!
//! `cargo run --release -p homa-sim --example incast -- --kind requests --senders 100`

use std::process::ExitCode;

use homa_sim::{Incast, IncastKind};

const USAGE: &str = "usage: incast [--kind requests|responses] [--senders N] [--bytes N] [--buffer BYTES] \
                     [--rounds N] [--kernel-senders yes|no] [--seed N]";

fn parse(args: impl Iterator<Item = String>) -> Result<Incast, String> {
    let mut incast = Incast::new(1, IncastKind::Requests);
    let mut args = args;
    while let Some(name) = args.next() {
        let value = args.next().ok_or_else(|| format!("{name} wants a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name}: {value} is no such number"));
        match name.as_str() {
            "--kind" if value == "requests" => incast.kind = IncastKind::Requests,
            "--kind" if value == "responses" => incast.kind = IncastKind::Responses,
            "--senders" => incast.senders = number()? as usize,
            "--bytes" => incast.bytes = u32::try_from(number()?).map_err(|error| error.to_string())?,
            "--buffer" => incast.buffer_bytes = number()?,
            "--rounds" => incast.rounds = number()? as usize,
            "--seed" => incast.seed = number()?,
            "--kernel-senders" => incast.kernel_senders = value == "yes",
            _ => return Err(format!("{name} {value}: no such option")),
        }
    }
    Ok(incast)
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(incast) => {
            print!("{}", incast.run());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}
