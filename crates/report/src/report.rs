//! Where results go: to standard output, and to the files of a folder.

use std::io::{self, Write};
use std::path::Path;

use crate::{Bars, Lines, Sheet};

/// A picture of a table.
#[derive(Debug, Clone)]
pub enum Plot {
    /// Bars.
    Bars(Bars),
    /// Lines.
    Lines(Lines),
}

impl Plot {
    fn svg(&self) -> Option<String> {
        match self {
            Self::Bars(bars) => (!bars.bars.is_empty()).then(|| bars.svg()),
            Self::Lines(lines) => {
                lines.lines.iter().any(|line| !line.points.is_empty()).then(|| lines.svg())
            }
        }
    }
}

/// Takes tables and plots as they come.
pub struct Report<'a> {
    out: &'a mut dyn Write,
    folder: Option<&'a Path>,
    page: String,
    files: usize,
}

impl std::fmt::Debug for Report<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { folder, files, .. } = self;
        f.debug_struct("Report").field("folder", folder).field("files", files).finish()
    }
}

fn with_path<T>(path: &Path, done: io::Result<T>) -> io::Result<T> {
    done.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

impl<'a> Report<'a> {
    /// Prints to `out`, and also writes files if a folder is given, which is created.
    pub fn new(out: &'a mut dyn Write, folder: Option<&'a Path>) -> io::Result<Self> {
        if let Some(folder) = folder {
            with_path(folder, std::fs::create_dir_all(folder))?;
        }
        Ok(Self { out, folder, page: String::new(), files: 0 })
    }

    /// Words before the next table, as Markdown.
    pub fn words(&mut self, words: &str) -> io::Result<()> {
        writeln!(self.out, "{words}\n")?;
        self.page.push_str(&format!("{words}\n\n"));
        Ok(())
    }

    /// A table, and a plot of it: NAME.csv, NAME.svg, and a section of the page.
    pub fn table(&mut self, sheet: &Sheet, plot: Option<&Plot>) -> io::Result<()> {
        writeln!(self.out, "{}", sheet.text()?)?;
        // Results are shown while the rest is still being measured.
        self.out.flush()?;
        self.file(&format!("{}.csv", sheet.name), &sheet.csv()?)?;
        self.page.push_str(&sheet.markdown());
        self.page.push('\n');
        if let Some(svg) = plot.and_then(Plot::svg) {
            self.page.push_str(&format!("![{}]({}.svg)\n\n", sheet.title, sheet.name));
            self.file(&format!("{}.svg", sheet.name), &svg)?;
        }
        Ok(())
    }

    fn file(&mut self, name: &str, text: &str) -> io::Result<()> {
        let Some(folder) = self.folder else { return Ok(()) };
        let path = folder.join(name);
        with_path(&path, std::fs::write(&path, text))?;
        self.files += 1;
        Ok(())
    }

    /// Writes the page, tables.md; returns how many files there are.
    pub fn finish(mut self) -> io::Result<usize> {
        let page = std::mem::take(&mut self.page);
        self.file("tables.md", &format!("{}\n", page.trim_end()))?;
        Ok(self.files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bar, Line};

    #[test]
    fn every_table_is_on_the_page_and_in_files() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("a/b");
        let mut out = vec![];
        let mut report = Report::new(&mut out, Some(&inside)).unwrap();
        report.words("# What this is").unwrap();
        let mut sheet = Sheet::new("first", "First", &["codec", "bytes"]);
        sheet.row(vec!["wah".to_owned(), "12".to_owned()]);
        let bar = Bar { label: "wah".to_owned(), value: 12.0, mark: None };
        let (title, unit) = ("First".to_owned(), "bytes".to_owned());
        let plot = Plot::Bars(Bars { title, unit, mark: None, bars: vec![bar] });
        report.table(&sheet, Some(&plot)).unwrap();
        let line = Line { label: "wah".to_owned(), points_only: false, points: vec![] };
        let empty = Plot::Lines(Lines { lines: vec![line], ..Lines::default() });
        report.table(&Sheet::new("second", "Second", &["codec"]), Some(&empty)).unwrap();
        assert_eq!(report.finish().unwrap(), 4);
        let read = |name: &str| std::fs::read_to_string(inside.join(name)).unwrap();
        let page = "# What this is\n\n## First\n\n| codec | bytes |\n|---|---:|\n| wah | 12 |\n\n\
                    ![First](first.svg)\n\n## Second\n\n| codec |\n|---|\n";
        assert_eq!(read("tables.md"), page);
        assert_eq!(read("first.csv"), "codec,bytes\nwah,12\n");
        assert!(read("first.svg").contains("wah") && !inside.join("second.svg").exists());
        assert!(String::from_utf8(out).unwrap().starts_with("# What this is\n\nFirst\n\ncodec"));
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let error = Report::new(&mut vec![], Some(&folder.path().join("file/x"))).unwrap_err();
        assert!(error.to_string().contains("file/x"), "{error}");
    }
}
