//! Questions: filters, the times they are limited to, and how they are answered.
//!
//! A [`Filter`](filter::Filter) and a [`TimeRange`](crate::time::TimeRange) make a [`Query`].
//! [`Archive::search`](crate::archive::Archive::search) asks it of an archive: see [`Search`].

pub mod bpf;
pub mod filter;

mod answer;
mod control;
mod conversations;
mod deep;
mod explain;
mod fields;
mod flows;
mod follow;
mod groups;
mod lists;
mod packets;
mod plan;
mod question;
mod search;
mod stacked;
mod unseen;
mod whole_flows;
mod wireshark;

pub use answer::Answer;
pub use control::{Control, Progress};
pub use conversations::CONVERSATIONS_MAX;
pub use explain::{Explained, TermPlan};
pub use flows::{Endpoint, FLOWS_MAX, Flow, FlowOrder, Flows, Sent};
pub use follow::{Follow, Fresh};
pub use groups::{OverTime, Top, Value, count_name, count_times, count_values, rows_of};
pub use packets::{Found, PacketStream};
pub use question::{Query, Refusal};
pub use search::{Answers, Search, SearchError};
pub use stacked::{OverTimeBy, Stack};
pub use unseen::BehindTags;
