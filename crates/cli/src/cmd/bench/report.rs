//! Where results go: to standard output, and to the files of a folder.

use std::io::Write;
use std::path::Path;

use anyhow::Context;

use super::bars::Bars;
use super::sheet::Sheet;
use crate::cmd::CANNOT_WRITE;

/// Takes tables and plots as they come.
pub(super) struct Report<'a> {
    out: &'a mut dyn Write,
    folder: Option<&'a Path>,
    files: usize,
}

impl<'a> Report<'a> {
    /// Prints to `out`, and also writes files if there is a folder, which is made.
    pub(super) fn new(out: &'a mut dyn Write, folder: Option<&'a Path>) -> anyhow::Result<Self> {
        if let Some(folder) = folder {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
        Ok(Self { out, folder, files: 0 })
    }

    /// A table, and a plot of it: NAME.md, NAME.csv and NAME.svg.
    pub(super) fn table(&mut self, sheet: &Sheet, bars: Option<&Bars>) -> anyhow::Result<()> {
        let text = sheet.text().context(CANNOT_WRITE)?;
        writeln!(self.out, "{text}").context(CANNOT_WRITE)?;
        // What was measured is worth seeing while the rest is measured.
        self.out.flush().context(CANNOT_WRITE)?;
        let bars = bars.filter(|bars| !bars.bars.is_empty());
        let mut page = sheet.markdown();
        if bars.is_some() {
            page.push_str(&format!("\n![{}]({}.svg)\n", sheet.title, sheet.name));
        }
        self.file(&format!("{}.md", sheet.name), &page)?;
        self.file(&format!("{}.csv", sheet.name), &sheet.csv())?;
        match bars {
            Some(bars) => self.file(&format!("{}.svg", sheet.name), &bars.svg()),
            None => Ok(()),
        }
    }

    fn file(&mut self, name: &str, text: &str) -> anyhow::Result<()> {
        let Some(folder) = self.folder else { return Ok(()) };
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        self.files += 1;
        Ok(())
    }

    /// How many files were written.
    pub(super) fn files(&self) -> usize {
        self.files
    }
}
