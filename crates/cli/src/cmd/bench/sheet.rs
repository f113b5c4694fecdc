//! A table of results: as text, as Markdown, and as CSV.

use std::io;

use crate::cmd::table::{self, Align};

/// A table of results.
#[derive(Debug, Clone)]
pub(super) struct Sheet {
    /// The stem of its files.
    pub(super) name: String,
    /// What it shows.
    pub(super) title: String,
    headings: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
    /// What else is to be said, a line each.
    pub(super) remarks: Vec<String>,
}

impl Sheet {
    /// A table with these headings and no rows. Its first column has words, the others numbers.
    pub(super) fn new(name: &str, title: &str, headings: &[&'static str]) -> Self {
        let aligns = std::iter::once(Align::Left).chain(std::iter::repeat(Align::Right));
        Self {
            name: name.to_owned(),
            title: title.to_owned(),
            headings: headings.iter().copied().zip(aligns).collect(),
            rows: vec![],
            remarks: vec![],
        }
    }

    /// The table, with words in all columns.
    pub(super) fn of_words(mut self) -> Self {
        self.headings.iter_mut().for_each(|(_, align)| *align = Align::Left);
        self
    }

    /// Appends a row, with a cell for each heading.
    pub(super) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.headings.len(), "a cell for each heading");
        self.rows.push(cells);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Title, columns one below the other, remarks.
    pub(super) fn text(&self) -> io::Result<String> {
        let mut bytes = format!("{}\n\n", self.title).into_bytes();
        if !self.is_empty() {
            table::write(&mut bytes, &self.headings, || self.rows.iter().cloned())?;
        }
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        self.remarks.iter().for_each(|remark| text.push_str(&format!("{remark}\n")));
        Ok(text)
    }

    /// A section with a table.
    pub(super) fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let plain = |cell: &str| cell.replace('|', "\\|");
        let mut text = format!("## {}\n\n", self.title);
        text.push_str(&line(self.headings.iter().map(|(name, _)| plain(name)).collect()));
        let rules = self.headings.iter().map(|(_, align)| match align {
            Align::Left => "---",
            Align::Right => "---:",
        });
        text.push_str(&format!("|{}|\n", rules.collect::<Vec<_>>().join("|")));
        for row in &self.rows {
            text.push_str(&line(row.iter().map(|cell| plain(cell)).collect()));
        }
        self.remarks.iter().for_each(|remark| text.push_str(&format!("\n{remark}\n")));
        text
    }

    /// Headings and rows.
    pub(super) fn csv(&self) -> String {
        let quoted = |cell: &str| match cell.contains(['"', ',', '\n']) {
            true => format!("\"{}\"", cell.replace('"', "\"\"")),
            false => cell.to_owned(),
        };
        let line = |cells: Vec<String>| format!("{}\n", cells.join(","));
        let mut text = line(self.headings.iter().map(|(name, _)| quoted(name)).collect());
        for row in &self.rows {
            text.push_str(&line(row.iter().map(|cell| quoted(cell)).collect()));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet() -> Sheet {
        let mut sheet = Sheet::new("gpu-a", "What it is", &["codec", "G/s"]);
        sheet.row(vec!["wah".to_owned(), "1.50".to_owned()]);
        sheet.row(vec!["a|b, \"c\"".to_owned(), "12.25".to_owned()]);
        sheet.remarks.push("left out: hipes".to_owned());
        sheet
    }

    #[test]
    fn one_table_in_three_forms() {
        let text = "What it is\n\ncodec       G/s\nwah        1.50\na|b, \"c\"  12.25\n\
                    left out: hipes\n";
        assert_eq!(sheet().text().unwrap(), text);
        let markdown = "## What it is\n\n| codec | G/s |\n|---|---:|\n| wah | 1.50 |\n\
                        | a\\|b, \"c\" | 12.25 |\n\nleft out: hipes\n";
        assert_eq!(sheet().markdown(), markdown);
        assert_eq!(sheet().csv(), "codec,G/s\nwah,1.50\n\"a|b, \"\"c\"\"\",12.25\n");
    }

    #[test]
    fn a_table_without_rows_has_no_headings_as_text() {
        let mut sheet = Sheet::new("gpu-a", "Nothing", &["codec"]);
        sheet.remarks.push("left out: all".to_owned());
        assert_eq!(sheet.text().unwrap(), "Nothing\n\nleft out: all\n");
    }
}
