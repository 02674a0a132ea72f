//! Self-contained HTML pages.

use std::fmt::Write;

use crate::chart::escape;
use crate::table::TableRow;

/// The style sheet that all pages share: text, tables and colours, for light and dark mode.
pub const BASE_STYLE: &str = include_str!("base.css");

/// Returns the start of a page, up to and including its heading.
pub fn head(title: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>\n{}{}</style>\n\
         </head>\n<body>\n<h1>{title}</h1>\n",
        BASE_STYLE,
        include_str!("page.css")
    )
}

/// The end of a page.
pub const FOOT: &str = "</body>\n</html>\n";

/// Returns a table with a header row.
pub fn table(head: &[String], rows: &[TableRow]) -> String {
    let mut out = "<div class=\"scroll\"><table>\n<tr><th></th>".to_owned();
    for name in head {
        let _ = write!(out, "<th>{}</th>", escape(name));
    }
    out.push_str("</tr>\n");
    for (label, cells) in rows {
        let _ = write!(out, "<tr><td>{}</td>", escape(label));
        for cell in cells {
            let _ = write!(out, "<td>{}</td>", escape(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
    out
}
