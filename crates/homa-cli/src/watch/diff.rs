//! `homa metrics diff`.

use std::fmt::Write;

use anyhow::{Context, Result, bail};
use homa_report::output::print;

use super::args::DiffArgs;
use super::ask::Place;
use super::change::{Change, Changes, between};
use super::show::{duration, named, plain, tail};
use super::state::State;

/// Prints what changed.
pub fn run(args: &DiffArgs) -> Result<()> {
    let first = Place::of(&args.a);
    let Some(second) = &args.b else { return since_last_time(args, &first) };
    let before = first.read()?;
    let now = Place::of(second).read()?;
    show(args, &between(Some(&before), &now), None)
}

fn since_last_time(args: &DiffArgs, place: &Place) -> Result<()> {
    let Place::Live(addr) = place else {
        bail!(
            "{} is no address of metrics: give a second snapshot to compare it with, or an address as in 127.0.0.1:9100",
            args.a
        );
    };
    let state = State::of(addr, args.state.as_deref())?;
    let before = state.last(addr)?;
    let now = place.read()?;
    let changes = between(before.as_ref(), &now);
    let first = before.is_none().then(|| {
        format!("no earlier snapshot in {}: everything is since the process began\n", state.path().display())
    });
    show(args, &changes, first)?;
    // What could not be shown is not lost for the next time.
    state.keep(&now)
}

fn show(args: &DiffArgs, changes: &Changes, first: Option<String>) -> Result<()> {
    let text = if args.json {
        serde_json::to_string_pretty(changes).context("cannot write the changes as JSON")? + "\n"
    } else {
        first.unwrap_or_default() + &as_text(changes)
    };
    print(text.as_bytes())
}

fn as_text(changes: &Changes) -> String {
    let mut text = String::new();
    for host in &changes.restarted {
        let _ = writeln!(
            text,
            "{host} has begun anew in between (counters went back): its numbers are since then"
        );
    }
    match changes.seconds {
        Some(seconds) => {
            let _ = writeln!(text, "time in between: {}", duration(seconds));
        }
        None => text.push_str("time in between: unknown, the snapshots do not say\n"),
    }
    if changes.metrics.is_empty() {
        text.push_str("nothing changed\n");
        return text;
    }
    let head = ["", "now", "change", "per second", "share", "unit", ""].map(str::to_owned);
    let lines: Vec<[String; 7]> = std::iter::once(head).chain(changes.metrics.iter().map(line)).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    for [name, now, difference, rate, share, unit, help] in &lines {
        let line = format!(
            "{name:a$}  {now:>b$}  {difference:>c$}  {rate:>d$}  {share:>e$}  {unit:f$}  {help}",
            a = widths[0],
            b = widths[1],
            c = widths[2],
            d = widths[3],
            e = widths[4],
            f = widths[5],
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn line(change: &Change) -> [String; 7] {
    let help = match (&change.histogram, change.went_back) {
        (Some(times), _) => tail(times, &change.unit),
        (None, true) => format!("(went back: since then) {}", change.help),
        (None, false) => change.help.clone(),
    };
    let unit = if change.histogram.is_some() { "times".to_owned() } else { change.unit.clone() };
    let sign = if change.difference > 0.0 { "+" } else { "" };
    [
        named(&change.name, &change.labels_text),
        plain(change.now),
        format!("{sign}{}", plain(change.difference)),
        change.per_second.map(plain).unwrap_or_default(),
        change.utilisation.map(|share| format!("{:.1} %", share * 100.0)).unwrap_or_default(),
        unit,
        help,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::ask::Told;

    #[test]
    fn a_table_of_what_changed() {
        let told = |uptime: u32, sent: u32, wait: f64| {
            let text = format!(
                "homa_uptime_seconds{{host=\"a\"}} {uptime}\n\
                 # HELP homa_sent_total Sent.\n# TYPE homa_sent_total counter\nhoma_sent_total{{host=\"a\"}} {sent}\n\
                 # HELP homa_wait_seconds_total Waited.\n# TYPE homa_wait_seconds_total counter\n\
                 homa_wait_seconds_total{{host=\"a\"}} {wait}\n"
            );
            Told::saved(text.as_bytes()).expect("metrics")
        };
        assert_eq!(
            as_text(&between(Some(&told(1, 10, 0.5)), &told(3, 1_010, 1.0))),
            "time in between: 2.00 s\n\
             \x20                                   now  change  per second   share  unit\n\
             homa_sent_total{host=\"a\"}          1010   +1000         500                Sent.\n\
             homa_wait_seconds_total{host=\"a\"}     1  +0.500       0.250  25.0 %  s     Waited.\n"
        );
        let anew = as_text(&between(Some(&told(9, 10, 0.5)), &told(1, 5, 1.0)));
        assert!(anew.starts_with("a has begun anew in between"), "{anew}");
        assert!(anew.contains("+5 ") && anew.contains("went back"), "{anew}");
        assert!(as_text(&between(Some(&told(1, 1, 1.0)), &told(2, 1, 1.0))).ends_with("\nnothing changed\n"));
    }
}
