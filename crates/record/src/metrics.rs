//! Numbers for Prometheus, in its text format, version 0.0.4, and a small HTTP server for them.
//!
//! ```
//! use tapdex_record::metrics::{Exposition, Histogram};
//!
//! let seconds = Histogram::new(&[0.1, 1.0]);
//! seconds.observe(0.25);
//! let mut text = Exposition::default();
//! text.counter("x_packets_total", "Packets.", &[("iface", "eth0")], 7_u64);
//! text.histogram("x_build_seconds", "Time to build.", &[], &seconds);
//! assert!(text.finish().contains("x_packets_total{iface=\"eth0\"} 7\n"));
//! ```

mod server;

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};

pub use server::{ANSWERS_MAX, CONNECTIONS_MAX, HEAD_BYTES_MAX, Listening, MetricsServer};

/// The value of a sample. Counts stay exact however large they are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A whole number.
    Count(u64),
    /// Any other number.
    Real(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Value::Count(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Value::Count(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Value::Real(value)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Value::Count(value) => write!(f, "{value}"),
            // The format has other words for these than Rust.
            Value::Real(value) if value.is_nan() => f.write_str("NaN"),
            Value::Real(f64::INFINITY) => f.write_str("+Inf"),
            Value::Real(f64::NEG_INFINITY) => f.write_str("-Inf"),
            Value::Real(value) => write!(f, "{value}"),
        }
    }
}

/// The kind of a family of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl MetricKind {
    fn word(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// The samples of one name.
#[derive(Debug)]
struct Family {
    name: String,
    help: String,
    kind: MetricKind,
    samples: String,
}

/// A page of metrics under construction.
///
/// Families are in the order in which they were first named, and all samples of a family are
/// together, in whatever order they were added.
#[derive(Debug, Default)]
pub struct Exposition {
    families: Vec<Family>,
}

impl Exposition {
    /// Adds a sample of a value that only grows; the name ends in `_total`.
    pub fn counter(
        &mut self,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        value: impl Into<Value>,
    ) {
        self.sample(MetricKind::Counter, name, help, labels, value.into());
    }

    /// Adds a sample of a value that grows and shrinks.
    pub fn gauge(
        &mut self,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        value: impl Into<Value>,
    ) {
        self.sample(MetricKind::Gauge, name, help, labels, value.into());
    }

    /// Adds the buckets, the sum and the count of a histogram.
    pub fn histogram(
        &mut self,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        value: &Histogram,
    ) {
        let family = self.family(MetricKind::Histogram, name, help);
        let mut count = 0;
        for (bound, in_bucket) in value.buckets() {
            count += in_bucket;
            let bound = Value::Real(bound).to_string();
            let with_bound: Vec<_> = labels.iter().copied().chain([("le", &*bound)]).collect();
            family.line("_bucket", &with_bound, count.into());
        }
        family.line("_sum", labels, value.sum().into());
        // From the same reading of the buckets, so that it equals the last of them.
        family.line("_count", labels, count.into());
    }

    /// The text.
    pub fn finish(self) -> String {
        let mut text = String::new();
        for family in self.families {
            let help = family.help.replace('\\', "\\\\").replace('\n', "\\n");
            let (name, kind) = (&family.name, family.kind.word());
            // Writing to a string cannot fail.
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
            text.push_str(&family.samples);
        }
        text
    }

    fn sample(
        &mut self,
        kind: MetricKind,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        value: Value,
    ) {
        self.family(kind, name, help).line("", labels, value);
    }

    fn family(&mut self, kind: MetricKind, name: &str, help: &str) -> &mut Family {
        debug_assert!(is_metric_name(name), "{name:?} cannot be the name of a metric");
        let found = self.families.iter().position(|family| family.name == name);
        let place = found.unwrap_or_else(|| {
            let (name, help) = (name.to_owned(), help.to_owned());
            self.families.push(Family { name, help, kind, samples: String::new() });
            self.families.len() - 1
        });
        let family = &mut self.families[place];
        debug_assert_eq!(family.kind, kind, "{name} is a {} already", family.kind.word());
        family
    }
}

impl Family {
    fn line(&mut self, ending: &str, labels: &[(&str, &str)], value: Value) {
        self.samples.push_str(&self.name);
        self.samples.push_str(ending);
        for (index, (label, value)) in labels.iter().enumerate() {
            debug_assert!(is_label_name(label), "{label:?} cannot be the name of a label");
            self.samples.push(if index == 0 { '{' } else { ',' });
            self.samples.push_str(label);
            self.samples.push_str("=\"");
            for c in value.chars() {
                match c {
                    '\\' => self.samples.push_str("\\\\"),
                    '"' => self.samples.push_str("\\\""),
                    '\n' => self.samples.push_str("\\n"),
                    c => self.samples.push(c),
                }
            }
            self.samples.push('"');
        }
        if !labels.is_empty() {
            self.samples.push('}');
        }
        let _ = writeln!(self.samples, " {value}");
    }
}

/// Whether a metric may have this name: letters, digits, `_` and `:`, no digit first.
pub fn is_metric_name(name: &str) -> bool {
    is_name(name, |c| c == b':')
}

/// Whether a label may have this name: like a metric, but without `:`, and two `_` in front are
/// for Prometheus itself.
pub fn is_label_name(name: &str) -> bool {
    is_name(name, |_| false) && !name.starts_with("__")
}

fn is_name(name: &str, also: impl Fn(u8) -> bool) -> bool {
    let letter = |c: u8| c.is_ascii_alphabetic() || c == b'_' || also(c);
    name.bytes().next().is_some_and(letter) && name.bytes().all(|c| letter(c) || c.is_ascii_digit())
}

/// How often values fell into fixed buckets; many threads may add to it at once.
#[derive(Debug)]
pub struct Histogram {
    /// The greatest value of each bucket but the last, which takes the rest.
    bounds: Vec<f64>,
    counts: Vec<AtomicU64>,
    /// The bits of an `f64`.
    sum: AtomicU64,
}

impl Histogram {
    /// A histogram with these upper bounds, which must ascend, and a bucket for greater values.
    pub fn new(bounds: &[f64]) -> Self {
        debug_assert!(bounds.is_sorted_by(|a, b| a < b), "bounds do not ascend: {bounds:?}");
        debug_assert!(bounds.iter().all(|bound| bound.is_finite()), "not finite: {bounds:?}");
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds: bounds.to_vec(), counts, sum: AtomicU64::new(0.0_f64.to_bits()) }
    }

    /// Counts a value. NaN belongs to no bucket and is left out.
    pub fn observe(&self, value: f64) {
        if value.is_nan() {
            return;
        }
        let bucket = self.bounds.partition_point(|&bound| bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let add = |sum: u64| Some((f64::from_bits(sum) + value).to_bits());
        // The closure always returns a value, so this cannot fail.
        let _ = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// How many values there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// The sum of the values.
    pub fn sum(&self) -> f64 {
        f64::from_bits(self.sum.load(Ordering::Relaxed))
    }

    /// The upper bound of each bucket and how many values are in it alone.
    fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().map(|count| count.load(Ordering::Relaxed)))
    }
}
