//! Columns without borders, as on the seed's screens: each as wide as it needs, and at least as wide as
//! drawn there. Colours do not count as width.

use anstyle::Style;
use unicode_width::UnicodeWidthStr;

use super::text::{PLAIN, clean, cut, painted};

/// Between a column's longest cell and the next column.
const GAP: usize = 3;
const NARROW_GAP: usize = 2;

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
    narrow: bool,
    columns: Vec<(&'static str, usize)>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Titles, and the least width of each column with the space behind it.
    pub(crate) fn new(columns: &[(&'static str, usize)]) -> Self {
        Self { narrow: false, columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Each column as wide as it must be, and no wider.
    pub(crate) fn narrow(mut self) -> Self {
        self.narrow = true;
        self
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Whether it fits into `width` with at least `last` columns of its last column (or all of it, if that is less).
    pub(crate) fn fits(&self, width: usize, last: usize) -> bool {
        let mut widths = self.widths();
        let gap = self.gap();
        let longest = widths.pop().map_or(0, |width| width.saturating_sub(gap));
        widths.iter().sum::<usize>() + longest.min(last) <= width
    }

    pub(crate) fn render(&self) -> String {
        self.render_within(None)
    }

    /// What does not fit into `width` is cut, with an ellipsis.
    pub(crate) fn render_within(&self, width: Option<usize>) -> String {
        let widths = self.widths();
        let titles: Vec<Cell> = self.columns.iter().map(|(title, _)| cell(title)).collect();
        let mut out = String::new();
        for row in std::iter::once(&titles).chain(&self.rows) {
            let used = row.iter().rposition(|cell| !cell.text.is_empty()).map_or(0, |last| last + 1);
            let mut left = width.unwrap_or(usize::MAX);
            for (i, (cell, width)) in row.iter().zip(&widths).take(used).enumerate() {
                let text = cut(&cell.text, left);
                out.push_str(&painted(&text, cell.style));
                left = left.saturating_sub(*width);
                if i + 1 < used && left > 0 {
                    out.extend(std::iter::repeat_n(' ', width.saturating_sub(text.width())));
                }
            }
            out.push('\n');
        }
        out
    }

    fn gap(&self) -> usize {
        if self.narrow { NARROW_GAP } else { GAP }
    }

    fn widths(&self) -> Vec<usize> {
        self.columns.iter().enumerate().map(|(i, column)| self.width(i, column)).collect()
    }

    fn width(&self, index: usize, (title, least): &(&'static str, usize)) -> usize {
        let longest = self.rows.iter().filter_map(|row| row.get(index)).map(|cell| cell.text.width()).max();
        let least = if self.narrow { 0 } else { *least };
        (longest.unwrap_or(0).max(title.width()) + self.gap()).max(least)
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
        assert!(table.fits(21, 2) && !table.fits(20, 2));
        let cut = anstream::adapter::strip_str(&table.render_within(Some(22))).to_string();
        assert_eq!(cut, "ID          名     LA…\na           漢字\nlonger-id   x      y\\…\n");
        let narrow = anstream::adapter::strip_str(&table.narrow().render_within(Some(13))).to_string();
        assert_eq!(narrow, "ID         名\na          …\nlonger-id  x\n");
    }
}
