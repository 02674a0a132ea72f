//! Answers every request with its own bytes: `cargo run -p homa --example echo_server -- 127.0.0.1:14600`.

use homa::{Host, ServerAddr};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bind = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:14600".to_owned());
    let host = Host::builder().address(bind.parse()?).bind()?;
    let server = host.server(ServerAddr::DEFAULT_PORT)?;
    println!("echo server at {}/{}", host.local_addr(), server.port());
    loop {
        let mut request = server.recv().wait()?;
        let answer = request.take_payload();
        if let Err(error) = request.reply(answer) {
            eprintln!("{error}");
        }
    }
}
