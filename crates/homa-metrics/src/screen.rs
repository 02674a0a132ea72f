//! The screen of a live view, which has a column for each host.

use std::fmt::Write;

use crate::figures::Figures;
use crate::format::duration;

/// Width in characters of a host's column, and of the column with the names.
const COLUMN: usize = 18;
const FIRST: usize = 30;

/// A column of the screen.
pub struct Column<'a> {
    /// The address of the host, or of its metrics.
    pub title: String,
    /// The figures; `None` if the process does not respond.
    pub figures: Option<&'a Figures>,
}

/// A row: its name, and a function that formats a host's value.
type Row = (&'static str, fn(&Figures) -> String);

const ROWS: &[Row] = &[
    ("RPCs open", |f| count(f.open_rpcs)),
    ("calls answered /s", |f| count(f.calls_per_s)),
    ("calls failed /s", |f| count(f.failed_per_s)),
    ("requests taken in /s", |f| count(f.requests_per_s)),
    ("requests answered /s", |f| count(f.answered_per_s)),
    ("bytes in /s", |f| bytes(f.bytes_in_per_s)),
    ("bytes out /s", |f| bytes(f.bytes_out_per_s)),
    ("", |_| String::new()),
    ("granted, not received", |f| bytes(f.granted_bytes)),
    ("grants sent /s", |f| count(f.grants_sent_per_s)),
    ("grants received /s", |f| count(f.grants_received_per_s)),
    ("waits for the pacer /s", |f| count(f.pacer_waits_per_s)),
    ("", |_| String::new()),
    ("requests queued", |f| count(f.queued_requests)),
    ("bytes of them", |f| bytes(f.queued_bytes)),
    ("bytes of incoming messages", |f| bytes(f.incoming_bytes)),
    ("bytes of outgoing messages", |f| bytes(f.outgoing_bytes)),
    ("", |_| String::new()),
    ("packets dropped /s", |f| count(f.drops_per_s)),
    ("RESENDs sent /s", |f| count(f.resends_sent_per_s)),
    ("RESENDs received /s", |f| count(f.resends_received_per_s)),
    ("packets sent again /s", |f| count(f.retransmits_per_s)),
    ("", |_| String::new()),
    ("calls, P50", |f| time(f.calls.p50_s)),
    ("calls, P99", |f| time(f.calls.p99_s)),
    ("calls, max", |f| time(f.calls.max_s)),
    ("calls to 1000 bytes, P99", |f| time(short(f))),
    ("request whole to answer, P50", |f| time(f.answers.p50_s)),
    ("request whole to answer, P99", |f| time(f.answers.p99_s)),
    ("request whole to answer, max", |f| time(f.answers.max_s)),
    ("", |_| String::new()),
    ("lock found taken", |f| format!("{:.2} %", f.lock_missed * 100.0)),
    ("threads waiting for it", |f| format!("{:.3}", f.lock_waiting)),
    ("processors busy (process)", |f| f.processors_busy.map_or("-".to_owned(), |busy| format!("{busy:.2}"))),
];

/// Renders the screen for a terminal of `width` characters. Hosts are shown side by side or, if the width is
/// not sufficient, in blocks below each other.
pub fn render(columns: &[Column<'_>], notes: &[String], width: usize) -> String {
    let abreast = (width.saturating_sub(FIRST) / COLUMN).max(1);
    let mut text = String::new();
    for block in columns.chunks(abreast) {
        let _ = write!(text, "{:FIRST$}", "");
        for column in block {
            let _ = write!(text, "{:>COLUMN$}", cut(&column.title));
        }
        text.push('\n');
        for (name, value) in ROWS {
            let mut line = format!("{name:FIRST$}");
            for column in block {
                let away = if name.is_empty() { "" } else { "away" };
                let value = column.figures.map_or_else(|| away.to_owned(), value);
                let _ = write!(line, "{value:>COLUMN$}");
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text.push('\n');
    }
    for note in notes {
        let _ = writeln!(text, "{note}");
    }
    text
}

/// Shortens a long title by removing its start, because addresses differ at the end.
fn cut(title: &str) -> String {
    let length = title.chars().count();
    if length < COLUMN {
        return title.to_owned();
    }
    "…".chars().chain(title.chars().skip(length + 2 - COLUMN)).collect()
}

fn short(figures: &Figures) -> Option<f64> {
    figures.calls_by_bytes.iter().find(|tail| tail.bytes.as_deref() == Some("0-1000"))?.p99_s
}

fn time(seconds: Option<f64>) -> String {
    seconds.map_or("-".to_owned(), duration)
}

fn count(value: f64) -> String {
    scaled(value, "")
}

fn bytes(value: f64) -> String {
    scaled(value, "B")
}

/// Formats a value with three or four digits and a metric prefix.
fn scaled(value: f64, unit: &str) -> String {
    let space = if unit.is_empty() { "" } else { " " };
    for (prefix, scale) in [("G", 1e9), ("M", 1e6), ("k", 1e4)] {
        if value >= scale {
            let thousands = if prefix == "k" { 1e3 } else { scale };
            return format!("{:.2} {prefix}{unit}", value / thousands);
        }
    }
    if value.fract() == 0.0 || value >= 100.0 {
        format!("{value:.0}{space}{unit}")
    } else {
        format!("{value:.1}{space}{unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_stand_side_by_side_and_below_where_there_is_no_room() {
        let figures = Figures { open_rpcs: 12.0, bytes_in_per_s: 1_234_567.0, ..Figures::default() };
        let column = |title: &str, figures| Column { title: title.to_owned(), figures };
        let columns = [
            column("10.0.0.1:14600", Some(&figures)),
            column("10.0.0.2:14600", None),
            column("c", Some(&figures)),
        ];
        let text = render(&columns, &["10.0.0.2:9100 is away".to_owned()], FIRST + 2 * COLUMN);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("10.0.0.1:14600") && lines[0].contains("10.0.0.2:14600"), "{text}");
        assert!(lines[1].starts_with("RPCs open") && lines[1].ends_with("  away"), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= FIRST + 2 * COLUMN), "{text}");
        assert_eq!(text.matches("RPCs open").count(), 2);
        assert!(text.contains("1.23 MB") && text.ends_with("10.0.0.2:9100 is away\n"), "{text}");
        assert_eq!(render(&columns, &[], 0).matches("RPCs open").count(), 3);
    }

    #[test]
    fn numbers_fit_their_column() {
        for value in [0.0, 0.04, 9_999.0, 12_345.6, 999_999.0, 1e15] {
            assert!(bytes(value).chars().count() < COLUMN, "{value}");
        }
        assert_eq!([0.0, 12.0, 0.5, 9_999.4, 12_340.0].map(count), ["0", "12", "0.5", "9999", "12.34 k"]);
        assert_eq!(bytes(2e6), "2.00 MB");
        assert_eq!(cut("[fd00:1:2:3:4:5:6:7]:14600").chars().count(), COLUMN - 1);
        assert!(cut("[fd00:1:2:3:4:5:6:7]:14600").ends_with(":7]:14600"));
    }
}
