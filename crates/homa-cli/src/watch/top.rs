//! `homa top`: a live view of one or more processes.

use std::io::{IsTerminal, stdout};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use homa_metrics::{LiveView, MetricsAddr};
use homa_report::output;

use super::args::TopArgs;

/// Prints the view after each interval.
pub fn run(args: &TopArgs) -> Result<()> {
    let addr = |text: &String| text.parse::<MetricsAddr>().map_err(|error| anyhow!(error));
    let addrs = args.addrs.iter().map(addr).collect::<Result<Vec<_>>>()?;
    let mut top = LiveView::start(addrs)?;
    let count = if args.once { Some(1) } else { args.count };
    let mut updates = 0;
    while count.is_none_or(|count| updates < count) {
        thread::sleep(Duration::from_nanos(args.interval));
        // A process that does not respond is shown as unreachable.
        top.update();
        if args.json {
            output::print(top.json()?.as_bytes())?;
        } else {
            output::redraw(&top.screen(width()))?;
        }
        updates += 1;
    }
    Ok(())
}

/// Returns the width of the terminal in characters, or a fixed width if standard output is a file.
fn width() -> usize {
    let out = stdout();
    let size = if out.is_terminal() { rustix::termios::tcgetwinsize(&out).ok() } else { None };
    size.map_or(100, |size| usize::from(size.ws_col))
}
