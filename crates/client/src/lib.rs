//! Archives asked as one: folders of this machine, and servers over HTTP.
//!
//! | module | what it has |
//! |---|---|
//! | [`nodes`] | asks one or several places at the same time, and puts their answers together |
//! | [`http`] | asks one server |
//! | [`credentials`] | whom servers get to know, and which servers are trusted |
//! | [`merge`] | answers of several places become one |
//!
//! ```no_run
//! use tapdex_answers::question::Question;
//! use tapdex_client::nodes::{Nodes, Options};
//!
//! let places = ["tapdex-archive".to_owned(), "https://sensor1:8443".to_owned()];
//! let nodes = Nodes::open(&places, &Options::default())?;
//! let query = Question { q: "udp port 53".into(), ..Question::default() }.query(0)?;
//! let answer = nodes.ask(&query).count()?;
//! println!("{} packets, complete: {}", answer.value.count, answer.complete);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod error;
mod stream;
mod tls;

pub mod credentials;
pub mod http;
pub mod merge;
pub mod nodes;

pub use error::{ClientError, HttpError};
