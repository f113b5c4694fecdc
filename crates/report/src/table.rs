//! Text tables with columns as wide as they need to be.

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

/// The alignment of the cells of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// At the left, as words do.
    Left,
    /// At the right, as numbers do.
    Right,
}

/// Writes headings and rows. Rows are asked for twice, to measure and to print, so that a long
/// table need not be in memory; both times they have a cell for each heading.
pub fn write<I>(
    out: &mut dyn Write,
    headings: &[(&str, Align)],
    rows: impl Fn() -> I,
) -> io::Result<()>
where
    I: Iterator<Item = Vec<String>>,
{
    let mut widths: Vec<usize> = headings.iter().map(|(name, _)| name.width()).collect();
    let rows = || rows().map(|row| row.iter().map(|cell| escaped(cell)).collect::<Vec<String>>());
    for row in rows() {
        for (width, cell) in widths.iter_mut().zip(&row) {
            *width = cell.width().max(*width);
        }
    }
    let head = headings.iter().map(|&(name, _)| name.to_owned()).collect();
    for row in std::iter::once(head).chain(rows()) {
        let mut line = String::new();
        for ((cell, &width), (_, align)) in row.iter().zip(&widths).zip(headings) {
            // By the columns of a terminal; a formatter would count characters.
            let blanks = " ".repeat(width.saturating_sub(cell.width()));
            match align {
                Align::Left => line.extend([cell.as_str(), &blanks]),
                Align::Right => line.extend([&blanks, cell.as_str()]),
            }
            line.push_str("  ");
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Text on one line that does nothing to a terminal: control characters are escaped.
pub fn escaped(text: &str) -> String {
    if !text.contains(char::is_control) {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter.is_control() {
            true => shown.extend(letter.escape_debug()),
            false => shown.push(letter),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let headings = [("id", Align::Right), ("name", Align::Left), ("", Align::Left)];
        let rows = || {
            let rows = [["1", "a", "*"], ["100", "longer", ""]];
            rows.into_iter().map(|row| row.map(str::to_owned).to_vec())
        };
        let mut out = vec![];
        write(&mut out, &headings, rows).unwrap();
        let expected = " id  name\n  1  a       *\n100  longer\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn cells_are_as_wide_as_a_terminal_shows_them() {
        // A letter with an accent of its own, and two letters that take two columns each.
        let rows = || {
            let rows = [["e\u{301}", "1"], ["\u{6771}\u{4eac}", "22"], ["abcde", "3"]];
            rows.into_iter().map(|row| row.map(str::to_owned).to_vec())
        };
        let mut out = vec![];
        write(&mut out, &[("name", Align::Left), ("n", Align::Right)], rows).unwrap();
        let expected = "name    n\ne\u{301}       1\n\u{6771}\u{4eac}   22\nabcde   3\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn cells_do_nothing_to_a_terminal() {
        let rows = || std::iter::once(vec!["a\u{1b}[31m\nb\u{9b}c".to_owned()]);
        let mut out = vec![];
        write(&mut out, &[("name", Align::Left)], rows).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "name\na\\u{1b}[31m\\nb\\u{9b}c\n");
    }
}
