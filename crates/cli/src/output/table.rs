//! Columns without borders, as on the seed's screens: each as wide as it needs, and at least as wide as
//! drawn there. Colours do not count as width.

use anstyle::Style;
use unicode_width::UnicodeWidthStr;

use super::text::{PLAIN, clean, painted};

/// Between a column's longest cell and the next column.
const GAP: usize = 3;

#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

/// A plain cell.
pub(crate) fn cell(text: impl AsRef<str>) -> Cell {
    styled(text, PLAIN)
}

pub(crate) fn styled(text: impl AsRef<str>, style: Style) -> Cell {
    Cell { text: clean(text.as_ref()), style }
}

#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, usize)>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Titles, and the least width of each column with the space behind it.
    pub(crate) fn new(columns: &[(&'static str, usize)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    pub(crate) fn render(&self) -> String {
        let widths: Vec<usize> =
            self.columns.iter().enumerate().map(|(i, column)| self.width(i, column)).collect();
        let titles: Vec<Cell> = self.columns.iter().map(|(title, _)| cell(title)).collect();
        let mut out = String::new();
        for row in std::iter::once(&titles).chain(&self.rows) {
            let used = row.iter().rposition(|cell| !cell.text.is_empty()).map_or(0, |last| last + 1);
            for (i, (cell, width)) in row.iter().zip(&widths).take(used).enumerate() {
                out.push_str(&painted(&cell.text, cell.style));
                if i + 1 < used {
                    out.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.text.width())));
                }
            }
            out.push('\n');
        }
        out
    }

    fn width(&self, index: usize, (title, least): &(&'static str, usize)) -> usize {
        let longest = self.rows.iter().filter_map(|row| row.get(index)).map(|cell| cell.text.width()).max();
        (longest.unwrap_or(0).max(title.width()) + GAP).max(*least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_grow_and_line_ends_are_bare() {
        let mut table = Table::new(&[("ID", 6), ("名", 0), ("LAST", 0)]);
        table.row(vec![cell("a"), styled("漢字", super::super::text::GREEN), cell("")]);
        table.row(vec![cell("longer-id"), cell("x"), cell("y\x1b[2J")]);
        let plain = anstream::adapter::strip_str(&table.render()).to_string();
        assert_eq!(plain, "ID          名     LAST\na           漢字\nlonger-id   x      y\\u{1b}[2J\n");
    }
}
