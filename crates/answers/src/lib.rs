//! Questions to archives as text, and answers as JSON and captures: the same for the command line,
//! the server and its clients.
//!
//! | module | what it has |
//! |---|---|
//! | [`ask`] | asks an archive, and gives what is known about the answer with it |
//! | [`question`] | a filter, its language and times as text, and the query that they make |
//! | [`lines`] | a type for each kind of line that `--json` prints |
//! | [`missing`] | what an answer lacks, summed up by cause |
//! | [`capture`] | packets as a capture, with their interfaces, the question and statistics |
//! | [`deliver`] | packets as lines or as a capture, also as they are recorded |
//! | [`inventory`] | what is in an archive |
//! | [`layers`] | the headers of a packet, field by field, with their bytes |
//! | [`json`] | JSON that is safe to show in a terminal |
//!
//! Every line can be written and read again:
//!
//! ```
//! use tapdex_answers::lines::TopValue;
//!
//! let line = r#"{"value":"tcp","count":7,"share":0.700000}"#;
//! let value: TopValue = serde_json::from_str(line)?;
//! assert_eq!((value.value.as_str(), value.count), ("tcp", Some(7)));
//! assert_eq!(tapdex_answers::json::text(&value), line);
//! # Ok::<(), serde_json::Error>(())
//! ```

#![forbid(unsafe_code)]

pub mod ask;
pub mod capture;
pub mod deliver;
pub mod inventory;
pub mod json;
pub mod layers;
pub mod lines;
pub mod missing;
pub mod packet;
pub mod question;

/// A number with its noun: 1 packet, 2 packets.
pub fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
