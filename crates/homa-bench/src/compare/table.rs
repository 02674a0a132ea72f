//! The results as text for a terminal.

use std::fmt::Write;

use homa_report::number::{ratio, short_number};

use crate::compare::results::{Results, Run};

/// The caveat of a comparison over loopback.
pub const LOOPBACK: &str = "Loopback has no congestion: processors are the only queue. `homa bench` without options compares in a network.";

/// Renders the slowdown by size, the short messages, and the totals of each protocol.
pub fn render(results: &Results, workload: &str) -> String {
    let mut text = String::new();
    let out = &mut text;
    // Writing to a string cannot fail.
    let _ = head(out, results, workload)
        .and_then(|()| slowdowns(out, results))
        .and_then(|()| shorts(out, results))
        .and_then(|()| totals(out, results));
    text
}

fn head(out: &mut String, results: &Results, workload: &str) -> std::fmt::Result {
    writeln!(out)?;
    if results.config.servers.is_empty() {
        writeln!(out, "{LOOPBACK}\n")?;
    }
    writeln!(out, "{workload}, {}", load(results))?;
    writeln!(
        out,
        "Slowdown: a message's round trip divided by Homa's median round trip for that size without load.\n"
    )
}

/// Describes the load.
pub fn load(results: &Results) -> String {
    let config = &results.config;
    match (config.gbps, config.outstanding) {
        (Some(gbps), _) => {
            let share = match config.load {
                Some(load) => format!(" ({:.0} % of the slower protocol's maximum)", load * 100.0),
                None => String::new(),
            };
            format!("{gbps:.2} Gbps offered{share}, open loop")
        }
        (None, Some(1)) => "closed loop, 1 RPC open per client port".to_owned(),
        (None, Some(count)) => format!("closed loop, {count} RPCs open per client port"),
        (None, None) => "closed loop".to_owned(),
    }
}

/// Protocols side by side: as many as fit the width of a terminal.
const SIDE_BY_SIDE: usize = 2;

fn slowdowns(out: &mut String, results: &Results) -> std::fmt::Result {
    for (index, runs) in results.runs.chunks(SIDE_BY_SIDE).enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        let has = |wanted: &Run| runs.iter().any(|run| run.protocol == wanted.protocol);
        let compared = results.pair().filter(|(homa, tcp)| has(homa) && has(tcp));
        slowdowns_of(out, runs, compared)?;
    }
    Ok(())
}

fn slowdowns_of(out: &mut String, runs: &[Run], compared: Option<(&Run, &Run)>) -> std::fmt::Result {
    write!(out, "{:>14}", "")?;
    for run in runs {
        write!(out, " |{:^40}", run.protocol.title())?;
    }
    writeln!(out, "{}", if compared.is_some() { " | TCP / Homa" } else { "" })?;
    write!(out, "{:>14}", "bytes up to")?;
    for _ in runs {
        write!(out, " |{:>9}{:>7}{:>8}{:>8}{:>8}", "count", "mean", "P50", "P99", "P99.9")?;
    }
    writeln!(out, "{}", if compared.is_some() { " |   P50    P99" } else { "" })?;
    let rows = runs.first().map_or(0, |run| run.bins.len());
    for row in 0..rows {
        let Some(first) = runs.first() else { break };
        let label = if first.largest_row && row + 1 == rows {
            "largest 1 %".to_owned()
        } else {
            first.bins[row].max_bytes.to_string()
        };
        write!(out, "{label:>14}")?;
        for run in runs {
            let bin = &run.bins[row];
            write!(out, " |{:>9}", bin.count)?;
            let values = [bin.slowdown_mean, bin.slowdown_p50, bin.slowdown_p99, bin.slowdown_p999];
            for (value, width) in values.into_iter().zip([7, 8, 8, 8]) {
                write!(out, "{:>width$}", short_number(value))?;
            }
        }
        if let Some((homa, tcp)) = compared {
            let (homa, tcp) = (&homa.bins[row], &tcp.bins[row]);
            let p50 = ratio(tcp.slowdown_p50, homa.slowdown_p50);
            write!(out, " |{p50:>6}{:>7}", ratio(tcp.slowdown_p99, homa.slowdown_p99))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn shorts(out: &mut String, results: &Results) -> std::fmt::Result {
    let Some(first) = results.runs.first() else { return Ok(()) };
    if results.runs.iter().all(|run| run.short.count == 0) {
        return Ok(());
    }
    writeln!(out, "\nShort messages (up to {} bytes), round trip in microseconds:", first.short.max_bytes)?;
    writeln!(out, "{:>14}{:>9}{:>10}{:>10}{:>10}", "", "count", "P50", "P99", "P99.9")?;
    for run in &results.runs {
        let short = &run.short;
        write!(out, "{:>14}{:>9}", run.protocol.title(), short.count)?;
        writeln!(out, "{:>10.1}{:>10.1}{:>10.1}", short.p50_us, short.p99_us, short.p999_us)?;
    }
    for (homa, other) in results.against_homa() {
        let label = format!("{} / Homa", other.protocol.title());
        let (homa, other) = (&homa.short, &other.short);
        let pairs = [(other.p50_us, homa.p50_us), (other.p99_us, homa.p99_us), (other.p999_us, homa.p999_us)];
        let ratios = pairs.map(|(other, homa)| ratio(other, homa));
        writeln!(out, "{label:>15}{:>8}{:>10}{:>10}{:>10}", "", ratios[0], ratios[1], ratios[2])?;
    }
    Ok(())
}

fn totals(out: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(out)?;
    for max in &results.max {
        let (title, gbps) = (max.protocol.title(), max.gbps);
        writeln!(
            out,
            "{title:<4} maximum {gbps:.2} Gbps, with {} RPCs open per client port",
            max.outstanding
        )?;
    }
    for run in &results.runs {
        writeln!(out, "{}", total(run))?;
    }
    Ok(())
}

/// Formats the totals of a run in one line.
pub fn total(run: &Run) -> String {
    let Run { achieved_gbps, rpcs, errors, lost, duplicated, cpu_busy, .. } = run;
    let mut line = format!(
        "{:<4} {achieved_gbps:.2} Gbps achieved, {rpcs} RPCs, mean slowdown {:.2}, {cpu_busy:.2} processors busy; \
         errors {errors}, lost {lost}, duplicated {duplicated}",
        run.protocol.title(),
        run.slowdown_mean,
    );
    if run.offered_gbps.is_some() && run.closed_loop {
        let _ = write!(
            line,
            "; CLOSED-LOOP: {} of {} arrivals had to wait for an open RPC to end",
            run.capped + run.unsent,
            run.started + run.unsent
        );
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::samples;
    use crate::protocol::Protocol;

    #[test]
    fn both_protocols_stand_side_by_side() {
        let text = render(&samples::both(), "W4");
        for word in
            ["Homa", "TCP", "largest 1 %", "Short messages", "P99.9", "TCP / Homa", "errors 0, lost 0"]
        {
            assert!(text.contains(word), "{word} is missing:\n{text}");
        }
        assert!(!text.contains("CLOSED-LOOP"));
    }

    #[test]
    fn more_than_two_protocols_stand_below_each_other_and_each_is_compared() {
        let mut results = samples::both();
        let mut bare = results.runs[1].clone();
        bare.protocol = Protocol::Udp;
        results.runs.push(bare);
        let text = render(&results, "W4");
        assert!(text.contains("TCP / Homa") && text.contains("bare UDP / Homa"), "{text}");
        assert_eq!(text.matches("bytes up to").count(), 2, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    }

    #[test]
    fn one_protocol_has_no_ratios() {
        let mut results = samples::both();
        results.runs.truncate(1);
        assert!(!render(&results, "W4").contains("TCP / Homa"));
    }

    #[test]
    fn too_many_waiting_arrivals_are_said() {
        let mut results = samples::both();
        results.runs[0].closed_loop = true;
        assert!(render(&results, "W4").contains("CLOSED-LOOP"));
    }

    #[test]
    fn numbers_keep_their_digits() {
        assert_eq!(
            [1.234, 12.34, 1234.5].map(short_number),
            ["1.23".to_owned(), "12.3".to_owned(), "1234".to_owned()]
        );
        assert_eq!(ratio(1.0, 0.0), "-");
    }
}
