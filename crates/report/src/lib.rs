//! Tables and plots of results.
//!
//! A [`Sheet`] is a table of cells that are already text. A [`Report`] takes sheets one by one:
//! each is printed for people, and written as CSV, as SVG if it has a [`Plot`], and into one page
//! of Markdown.
//!
//! ```
//! use tapdex_report::{Bar, Bars, Plot, Report, Sheet};
//!
//! let mut sheet = Sheet::new("sizes", "Bytes of an index", &["codec", "bytes"]);
//! sheet.row(vec!["wah".to_owned(), "1200".to_owned()]);
//! sheet.row(vec!["roaring".to_owned(), "900".to_owned()]);
//! let bar = |label: &str, value| Bar { label: label.to_owned(), value, mark: None };
//! let plot = Plot::Bars(Bars {
//!     title: sheet.title.clone(),
//!     unit: "bytes".to_owned(),
//!     mark: None,
//!     bars: vec![bar("wah", 1200.0), bar("roaring", 900.0)],
//! });
//! let mut shown = Vec::new();
//! let mut report = Report::new(&mut shown, None)?;
//! report.table(&sheet, Some(&plot))?;
//! report.finish()?;
//! assert!(String::from_utf8(shown).unwrap().contains("roaring    900"));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Not useful for: tables that do not fit in memory; those are what [`table::write`] is for.

mod bars;
mod lines;
mod report;
mod scale;
mod sheet;
pub mod table;

pub use bars::{Bar, Bars};
pub use lines::{Line, Lines};
pub use report::{Plot, Report};
pub use sheet::Sheet;
