//! Questions: filters, the times they are limited to, and how they are answered.

pub mod bpf;
pub mod filter;
pub mod time;

mod counts;
mod deep;
mod fields;
mod follow;
mod lists;
mod ordered;
mod plan;
mod search;
mod tags;
mod wireshark;

pub use counts::{count_name, count_times, count_values};
pub use follow::{Follow, Fresh};
pub use ordered::{Found, in_time_order};
pub use search::{Answer, Query, TermPlan};
