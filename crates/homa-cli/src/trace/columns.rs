//! Tables, formatted as text or as HTML.

use std::fmt::Write;

use homa_report::chart::escape;

/// A table whose first columns contain words and whose other columns contain numbers.
#[derive(Clone, Debug, Default)]
pub struct Table {
    head: Vec<String>,
    /// Whether each column is left-aligned.
    words: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these column names. A `<` at the start of a name makes the column left-aligned.
    pub fn new(head: &[&str]) -> Table {
        Table {
            head: head.iter().map(|name| name.trim_start_matches('<').to_owned()).collect(),
            words: head.iter().map(|name| name.starts_with('<')).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, which must have as many cells as there are columns.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Formats the table as text for a terminal.
    pub fn text(&self) -> String {
        let lines = || std::iter::once(&self.head).chain(&self.rows);
        let width = |column: usize| {
            lines().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let mut out = String::new();
        for line in lines() {
            let mut text = String::new();
            for ((cell, width), words) in line.iter().zip(&widths).zip(&self.words) {
                // Writing to a string cannot fail.
                let _ = match words {
                    true => write!(text, "{cell:<width$}  "),
                    false => write!(text, "{cell:>width$}  "),
                };
            }
            out.push_str(text.trim_end());
            out.push('\n');
        }
        out
    }

    /// Formats the table as HTML.
    pub fn html(&self) -> String {
        let mut out = "<div class=\"scroll\"><table>\n".to_owned();
        for (tag, line) in std::iter::once(("th", &self.head)).chain(self.rows.iter().map(|row| ("td", row)))
        {
            out.push_str("<tr>");
            for (cell, words) in line.iter().zip(&self.words) {
                let class = if *words { " class=\"words\"" } else { "" };
                let _ = write!(out, "<{tag}{class}>{}</{tag}>", escape(cell));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</table></div>\n");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_left_and_numbers_right() {
        let mut table = Table::new(&["<cause", "us"]);
        table.row(["pacer".to_owned(), "12.0".to_owned()]);
        table.row(["a<b".to_owned(), "3.5".to_owned()]);
        assert_eq!(table.text(), "cause    us\npacer  12.0\na<b     3.5\n");
        assert!(table.html().contains("<td class=\"words\">a&lt;b</td><td>3.5</td>"));
    }
}
