//! Calls a server and prints the answer: `cargo run -p homa --example echo_client -- 127.0.0.1:14600 hello
//! 1000`. The last argument is the number of calls.

use std::time::{Duration, Instant};

use homa::{Host, ServerAddr};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let to: ServerAddr = arguments.next().unwrap_or_else(|| "127.0.0.1:14600".to_owned()).parse()?;
    let text = arguments.next().unwrap_or_else(|| "hello".to_owned());
    let calls: usize = arguments.next().map_or(Ok(1), |number| number.parse())?;

    let host = Host::builder().bind()?;
    let client = host.client()?;
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls.max(1) {
        let start = Instant::now();
        let answer = client.call(to, text.clone()).timeout(Duration::from_secs(5)).wait()?;
        times.push(start.elapsed());
        if calls <= 1 {
            println!("{}", String::from_utf8_lossy(&answer));
        }
    }
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!("{} calls: median {:?}, P99 {:?}, longest {:?}", times.len(), at(50), at(99), at(100));
    Ok(())
}
