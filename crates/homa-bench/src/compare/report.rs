//! `report.html`: a self-contained page for readers who are not familiar with the bench.

use std::fmt::Write;

use homa_report::number::{ratio, short_number, size};

use crate::compare::results::{Results, Run};
use crate::compare::svg;
use crate::compare::table::{LOOPBACK, load};

/// Renders the whole page.
pub fn render(results: &Results, workload: &str) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = head(&mut out, results, workload)
        .and_then(|()| figure(&mut out, results))
        .and_then(|()| shorts(&mut out, results))
        .and_then(|()| slowdowns(&mut out, results))
        .and_then(|()| totals(&mut out, results))
        .and_then(|()| settings(&mut out, results, workload));
    out.push_str("</body>\n</html>\n");
    out
}

fn head(out: &mut String, results: &Results, workload: &str) -> std::fmt::Result {
    let names: Vec<&str> = results.runs.iter().map(|run| run.protocol.title()).collect();
    let title = format!("{}: how long RPCs take under load", names.join(" and "));
    writeln!(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">")?;
    writeln!(out, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")?;
    writeln!(
        out,
        "<title>{title}</title>\n<style>\n{}</style>\n</head>\n<body>",
        homa_report::page::BASE_STYLE
    )?;
    writeln!(out, "<h1>{title}</h1>")?;
    if results.config.servers.is_empty() {
        writeln!(out, "<p class=\"warn\">{}</p>", escape(LOOPBACK))?;
    }
    writeln!(
        out,
        "<p class=\"quiet\">Workload: {}; {}; {}.</p>",
        escape(workload),
        load(results),
        place(results)
    )?;
    if let Some((homa, tcp)) =
        results.pair().filter(|(homa, tcp)| homa.short.count > 0 && tcp.short.count > 0)
    {
        let which = if homa.short.count == homa.rpcs {
            "all messages".to_owned()
        } else {
            format!("the short messages (up to {})", size(homa.short.max_bytes))
        };
        let (homa, tcp) = (homa.short.p99_us, tcp.short.p99_us);
        let verdict = if tcp >= homa {
            format!("TCP takes {} times as long", ratio(tcp, homa))
        } else {
            format!("Homa takes {} times as long", ratio(homa, tcp))
        };
        writeln!(
            out,
            "<p class=\"finding\">Of {which}, 99 % are answered within <b>{homa:.0} µs over \
             Homa</b> and <b>{tcp:.0} µs over TCP</b>: {verdict}.</p>"
        )?;
    }
    for run in results.runs.iter().filter(|run| run.offered_gbps.is_some() && run.closed_loop) {
        writeln!(
            out,
            "<p class=\"warn\">{}: {} of {} arrivals had to wait for an open RPC to end, so the offered load was not reached \
             (closed loop).</p>",
            run.protocol.title(),
            run.capped + run.unsent,
            run.started + run.unsent
        )?;
    }
    writeln!(
        out,
        "<p><b>Slowdown</b> is the time from a message's due time to its complete answer, divided by the median round \
         trip of a message of that size over Homa without load. 1 is ideal; 10 means that a message took \
         ten times as long as necessary.</p>"
    )
}

fn place(results: &Results) -> String {
    let config = &results.config;
    let answers = if config.one_way { "answers of 100 bytes" } else { "each answer as long as its request" };
    if config.servers.is_empty() {
        format!(
            "clients and servers on one machine with {} processors, over loopback; {answers}",
            config.cpus
        )
    } else {
        format!("servers {}; {answers}", escape(&config.servers.join(", ")))
    }
}

fn figure(out: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(out, "<h2>Slowdown by message size</h2>\n<figure>\n<div class=\"legend\">")?;
    for run in &results.runs {
        for (class, text) in [("p99", "P99 (1 message in 100 is slower)"), ("p50", "median")] {
            let (name, title) = (run.protocol.name(), run.protocol.title());
            writeln!(
                out,
                "<span><svg viewBox=\"0 0 34 12\"><line class=\"curve {name} {class}\" x1=\"0\" x2=\"34\" y1=\"6\" \
                 y2=\"6\"/></svg>{title} {text}</span>"
            )?;
        }
    }
    writeln!(out, "</div>\n{}", svg::chart(results))?;
    writeln!(
        out,
        "<figcaption>Lower is better. Short messages are on the left, long ones on the right; each point stands for all \
         messages between the two sizes beside it. Point at one for its numbers.</figcaption>\n</figure>"
    )
}

fn shorts(out: &mut String, results: &Results) -> std::fmt::Result {
    let Some(first) = results.runs.first().filter(|run| run.short.max_bytes < 1_500) else { return Ok(()) };
    writeln!(out, "<h2>Short messages</h2>")?;
    writeln!(
        out,
        "<p>Round trips of messages up to {} bytes: under 1500 bytes and among the shortest tenth.</p>",
        first.short.max_bytes
    )?;
    writeln!(
        out,
        "<div class=\"scroll\"><table>\n<tr><th></th><th>count</th><th>P50</th><th>P99</th><th>P99.9</th></tr>"
    )?;
    for run in &results.runs {
        let short = &run.short;
        write!(out, "<tr><td>{}</td><td>{}</td>", run.protocol.title(), short.count)?;
        for us in [short.p50_us, short.p99_us, short.p999_us] {
            write!(out, "<td>{us:.1} µs</td>")?;
        }
        writeln!(out, "</tr>")?;
    }
    for (homa, other) in results.against_homa() {
        write!(out, "<tr><td>{} / Homa</td><td></td>", other.protocol.title())?;
        let (homa, other) = (&homa.short, &other.short);
        let pairs = [(other.p50_us, homa.p50_us), (other.p99_us, homa.p99_us), (other.p999_us, homa.p999_us)];
        for (other, homa) in pairs {
            write!(out, "<td>{}</td>", ratio(other, homa))?;
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</table></div>")
}

fn slowdowns(out: &mut String, results: &Results) -> std::fmt::Result {
    let Some(first) = results.runs.first() else { return Ok(()) };
    writeln!(out, "<h2>Slowdown in numbers</h2>\n<div class=\"scroll\"><table>\n<tr><th></th>")?;
    for run in &results.runs {
        let (name, title) = (run.protocol.name(), run.protocol.title());
        writeln!(out, "<th class=\"first {name}\" colspan=\"5\">{title}</th>")?;
    }
    writeln!(out, "</tr>\n<tr><th>messages up to</th>")?;
    for _ in &results.runs {
        writeln!(out, "<th class=\"first\">count</th><th>mean</th><th>P50</th><th>P99</th><th>P99.9</th>")?;
    }
    writeln!(out, "</tr>")?;
    for row in 0..first.bins.len() {
        let label = if first.largest_row && row + 1 == first.bins.len() {
            "the largest 1 %".to_owned()
        } else {
            format!("{} bytes", first.bins[row].max_bytes)
        };
        write!(out, "<tr><td>{label}</td>")?;
        for bin in results.runs.iter().map(|run| &run.bins[row]) {
            write!(out, "<td class=\"first\">{}</td>", bin.count)?;
            for value in [bin.slowdown_mean, bin.slowdown_p50, bin.slowdown_p99, bin.slowdown_p999] {
                write!(out, "<td>{}</td>", short_number(value))?;
            }
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</table></div>")
}

/// A line of the table of runs: its label, and its value for a run.
type TotalRow<'a> = (&'a str, &'a dyn Fn(&Run) -> String);

fn totals(out: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(out, "<h2>The runs</h2>\n<div class=\"scroll\"><table>\n<tr><th></th>")?;
    for run in &results.runs {
        writeln!(out, "<th>{}</th>", run.protocol.title())?;
    }
    writeln!(out, "</tr>")?;
    let maximum = |run: &Run| {
        let max = results.max.iter().find(|max| max.protocol == run.protocol);
        max.map_or("not measured".to_owned(), |max| format!("{:.2} Gbps", max.gbps))
    };
    let rows: [TotalRow<'_>; 10] = [
        ("offered load", &|run| {
            run.offered_gbps.map_or("closed loop".to_owned(), |gbps| format!("{gbps:.2} Gbps"))
        }),
        ("achieved", &|run| format!("{:.2} Gbps", run.achieved_gbps)),
        ("maximum goodput", &maximum),
        ("RPCs measured", &|run| run.rpcs.to_string()),
        ("mean slowdown", &|run| short_number(run.slowdown_mean)),
        ("processors busy", &|run| format!("{:.2}", run.cpu_busy)),
        ("errors", &|run| run.errors.to_string()),
        ("lost", &|run| run.lost.to_string()),
        ("duplicated", &|run| run.duplicated.to_string()),
        ("arrivals delayed by the limit", &|run| (run.capped + run.unsent).to_string()),
    ];
    for (label, value) in rows {
        write!(out, "<tr><td>{label}</td>")?;
        for run in &results.runs {
            write!(out, "<td>{}</td>", value(run))?;
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</table></div>")?;
    writeln!(
        out,
        "<p class=\"quiet\">Gbps are 10<sup>9</sup> bits of request payload per second. Busy processors include clients and, \
         if they run on this machine, servers; clients poll while the next message is due soon.</p>"
    )
}

fn settings(out: &mut String, results: &Results, workload: &str) -> std::fmt::Result {
    let config = &results.config;
    let pairs = [
        ("workload", escape(workload)),
        ("load", load(results)),
        (
            "clients",
            counts(&[
                (usize::from(config.clients), "client host"),
                (usize::from(config.ports), "port per host"),
                (config.client_threads, "thread"),
                (usize::from(config.port_receivers), "receiver thread per port"),
            ]),
        ),
        (
            "servers",
            counts(&[
                (config.servers.len().max(1), "server host"),
                (usize::from(config.server_ports), "port per host and protocol"),
                (usize::from(config.server_threads), "thread per protocol"),
            ]),
        ),
        (
            "Homa",
            match (config.driver, config.host.link_mbps) {
                ("raw", None) => "directly over IP, protocol 146".to_owned(),
                ("raw", Some(mbps)) => format!("directly over IP, protocol 146, for a link of {mbps} Mbit/s"),
                ("packet", None) => "over UDP, through packet sockets".to_owned(),
                ("packet", Some(mbps)) => {
                    format!("over UDP, through packet sockets, for a link of {mbps} Mbit/s")
                }
                ("xdp", None) => "over UDP, through AF_XDP".to_owned(),
                ("xdp", Some(mbps)) => format!("over UDP, through AF_XDP, for a link of {mbps} Mbit/s"),
                (_, None) => "over UDP".to_owned(),
                (_, Some(mbps)) => format!("over UDP, for a link of {mbps} Mbit/s"),
            },
        ),
        (
            "TCP",
            "one connection per client port and server port, NODELAY, framed by length, epoll".to_owned(),
        ),
        ("polling before sleeping", format!("{} µs, every protocol, both sides", config.poll_us)),
        (
            "processors",
            match config.placement {
                "apart" => format!("{}: clients and servers each on half of them", config.cpus),
                _ => format!("{}, placed by the scheduler", config.cpus),
            },
        ),
        (
            "open RPCs per client port",
            format!("at most {}", config.outstanding.unwrap_or(config.max_outstanding)),
        ),
        ("measured", format!("{} s per protocol, in {} slices in turn", config.duration_s, config.slices)),
        ("seed", results.seed.to_string()),
        ("version", format!("homa {}", config.version)),
    ];
    writeln!(out, "<h2>Settings</h2>\n<div class=\"scroll\"><table class=\"settings\">")?;
    for (label, value) in pairs {
        writeln!(out, "<tr><td>{label}</td><td>{value}</td></tr>")?;
    }
    writeln!(out, "</table></div>")
}

/// Formats counts with plurals, such as "2 hosts, 1 port per host": the word before "per" takes the plural.
fn counts(parts: &[(usize, &str)]) -> String {
    let one = |&(count, name): &(usize, &str)| match (count, name.split_once(" per ")) {
        (1, _) => format!("1 {name}"),
        (_, Some((thing, place))) => format!("{count} {thing}s per {place}"),
        (_, None) => format!("{count} {name}s"),
    };
    parts.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Escapes text for HTML: names come from files and from the command line.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::samples;

    #[test]
    fn the_page_needs_nothing_else() {
        let page = render(&samples::both(), "W4");
        for outside in ["http:", "https:", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn the_page_explains_itself() {
        let page = render(&samples::both(), "W4");
        for text in ["<b>Slowdown</b> is", "Lower is better", "Short messages", "Settings", "seed", "<svg"] {
            assert!(page.contains(text), "{text}");
        }
    }

    #[test]
    fn names_are_not_markup() {
        let page = render(&samples::both(), "<script>alert(1)</script>");
        assert!(!page.contains("<script>"));
    }

    #[test]
    fn counts_have_plurals() {
        assert_eq!(counts(&[(1, "client host"), (2, "port per host")]), "1 client host, 2 ports per host");
        assert_eq!(counts(&[(2, "server host"), (3, "thread")]), "2 server hosts, 3 threads");
    }
}
