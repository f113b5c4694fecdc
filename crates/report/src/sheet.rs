//! A table of results: as text, as Markdown, and as CSV.

use std::io;

use crate::table::{self, Align};

/// A table of results.
#[derive(Debug, Clone)]
pub struct Sheet {
    /// The stem of its files.
    pub name: String,
    /// What it shows.
    pub title: String,
    headings: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
    /// Remarks, one per line.
    pub remarks: Vec<String>,
}

impl Sheet {
    /// A table with these headings and no rows. Its first column has words, the others numbers.
    pub fn new(name: &str, title: &str, headings: &[&str]) -> Self {
        let aligns = std::iter::once(Align::Left).chain(std::iter::repeat(Align::Right));
        Self {
            name: name.to_owned(),
            title: title.to_owned(),
            headings: headings.iter().map(|&name| name.to_owned()).zip(aligns).collect(),
            rows: vec![],
            remarks: vec![],
        }
    }

    /// The table, with words in all columns.
    pub fn of_words(mut self) -> Self {
        self.headings.iter_mut().for_each(|(_, align)| *align = Align::Left);
        self
    }

    /// Appends a row, with a cell for each heading.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.headings.len(), "a cell for each heading");
        self.rows.push(cells);
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Title, columns one below the other, remarks.
    pub fn text(&self) -> io::Result<String> {
        let mut bytes = format!("{}\n\n", self.title).into_bytes();
        if !self.is_empty() {
            let headings: Vec<(&str, Align)> =
                self.headings.iter().map(|(name, align)| (name.as_str(), *align)).collect();
            table::write(&mut bytes, &headings, || self.rows.iter().cloned())?;
        }
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        self.remarks.iter().for_each(|remark| text.push_str(&format!("{remark}\n")));
        Ok(text)
    }

    /// A section with a table.
    pub fn markdown(&self) -> String {
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
    pub fn csv(&self) -> io::Result<String> {
        let mut target = csv::Writer::from_writer(vec![]);
        target.write_record(self.headings.iter().map(|(name, _)| name))?;
        for row in &self.rows {
            target.write_record(row)?;
        }
        let bytes = target.into_inner().map_err(csv::IntoInnerError::into_error)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
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
        assert_eq!(sheet().csv().unwrap(), "codec,G/s\nwah,1.50\n\"a|b, \"\"c\"\"\",12.25\n");
    }

    #[test]
    fn a_table_without_rows_has_no_headings_as_text() {
        let mut sheet = Sheet::new("gpu-a", "Nothing", &["codec"]);
        sheet.remarks.push("left out: all".to_owned());
        assert_eq!(sheet.text().unwrap(), "Nothing\n\nleft out: all\n");
    }
}
