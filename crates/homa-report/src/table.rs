//! Plain-text tables.

use std::fmt::Write;

/// A row: its label, and one cell for each column.
pub type TableRow = (String, Vec<String>);

/// Formats a table with a header row. Columns are as wide as needed.
pub fn columns(head: &[String], rows: &[TableRow]) -> String {
    let label = rows.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|(_, cells)| cells.get(column));
        cells.chain(head.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0) + 2
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut out = format!("{:label$}", "");
    let line = |out: &mut String, cells: &[String]| {
        for (cell, width) in cells.iter().zip(&widths) {
            // Writing to a string cannot fail.
            let _ = write!(out, "{cell:>width$}");
        }
        out.push('\n');
    };
    line(&mut out, head);
    for (name, cells) in rows {
        let _ = write!(out, "{name:label$}");
        line(&mut out, cells);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_need_be() {
        let rows = [("a".to_owned(), vec!["1".to_owned(), "22222".to_owned()])];
        let head = ["homa".to_owned(), "b".to_owned()];
        assert_eq!(columns(&head, &rows), "   homa      b\na     1  22222\n");
    }
}
