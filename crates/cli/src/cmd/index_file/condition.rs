//! Conditions of `tapdex index-file get`: text such as `port=53,1000..2000`.

use std::ops::RangeInclusive;

use tapdex_bitmap::{Chunks, union};
use tapdex_engine::IndexError;
use tapdex_engine::index::{FieldIndex, Index, Rows};

use super::value;
use crate::cmd::shown;

/// A field and the values that rows must have in it, or must not have.
#[derive(Debug)]
pub(super) struct Condition<'i> {
    field: FieldIndex<'i>,
    negated: bool,
    values: Vec<u128>,
    ranges: Vec<RangeInclusive<u128>>,
    prefixes: Vec<(u128, u32)>,
}

/// What is wrong with a condition, and at which of its bytes.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    at: usize,
    what: String,
}

impl Fault {
    fn new(at: usize, what: impl Into<String>) -> Self {
        Self { at, what: what.into() }
    }
}

/// Longest condition that is shown with a mark below it.
const SHOWN_CHARS_MAX: usize = 72;

impl<'i> Condition<'i> {
    /// Reads a condition on the fields of an index.
    pub(super) fn parse(index: &'i Index, text: &str) -> anyhow::Result<Self> {
        Self::try_parse(index, text).map_err(|fault| {
            let before = text.as_bytes().get(..fault.at).unwrap_or_default();
            let before = String::from_utf8_lossy(before);
            let (whole, what) = (text.escape_debug().to_string(), fault.what);
            let place = before.chars().count() + 1;
            if whole.chars().count() > SHOWN_CHARS_MAX {
                let text = shown(text.as_bytes());
                return anyhow::anyhow!("condition '{text}', character {place}: {what}");
            }
            let mark = " ".repeat(before.escape_debug().count());
            anyhow::anyhow!("condition, character {place}: {what}\n    {whole}\n    {mark}^")
        })
    }

    fn try_parse(index: &'i Index, text: &str) -> Result<Self, Fault> {
        let start = text.len() - text.trim_start().len();
        let (name, negated, at) = split(index, text, start)?;
        let field = index.field(name).map_err(|_| {
            let fields = &index.schema().fields;
            let known: Vec<String> = fields.iter().map(|f| shown(f.name.as_bytes())).collect();
            let what = format!("no field '{}', expected one of: ", shown(name.as_bytes()));
            Fault::new(start, what + &known.join(", "))
        })?;
        let mut condition =
            Self { field, negated, values: vec![], ranges: vec![], prefixes: vec![] };
        let mut at = at;
        for item in text[at..].split(',') {
            condition.item(item, at)?;
            at += item.len() + 1;
        }
        Ok(condition)
    }

    /// Reads a value, a range or a prefix, which starts at a byte of the condition.
    fn item(&mut self, item: &str, at: usize) -> Result<(), Fault> {
        if let Some(dots) = item.find("..") {
            let (first, last) = (self.value(&item[..dots], at)?, &item[dots + 2..]);
            let last = self.value(last, at + dots + 2)?;
            if last < first {
                return Err(Fault::new(at + dots + 2, "the range ends before it starts"));
            }
            self.ranges.push(first..=last);
        } else if let Some(slash) = item.find('/') {
            let value = self.value(&item[..slash], at)?;
            let bits = &item[slash + 1..];
            let max = self.field.field().bits();
            let bits = bits.trim().parse().ok().filter(|&bits| bits <= max);
            let bits = bits.ok_or_else(|| {
                let what = format!("expected the bits of a prefix, from 0 to {max}");
                Fault::new(at + slash + 1, what)
            })?;
            self.prefixes.push((value, bits));
        } else {
            let value = self.value(item, at)?;
            self.values.push(value);
        }
        Ok(())
    }

    fn value(&self, text: &str, at: usize) -> Result<u128, Fault> {
        let at = at + text.len() - text.trim_start().len();
        let value = value::parse(text.trim().as_bytes());
        let value = value.map_err(|bad| Fault::new(at + bad.at, bad.what))?;
        let misfit = value.misfit(self.field.field().bits());
        misfit.map_or(Ok(value.number), |what| Err(Fault::new(at, what)))
    }

    /// The rows for which it holds.
    pub(super) fn rows(&self, rows: u32) -> Result<Rows<'i>, IndexError> {
        let mut parts: Vec<Rows<'i>> = Vec::new();
        match self.values.as_slice() {
            [] => {}
            &[only] => parts.push(self.field.equals(only)?),
            several => parts.push(self.field.any_of(several)?),
        }
        for range in &self.ranges {
            parts.push(self.field.range(range.clone())?);
        }
        for &(value, bits) in &self.prefixes {
            parts.push(self.field.prefix(value, bits)?);
        }
        let found = match parts.len() {
            1 => parts.remove(0),
            _ => Box::new(union(parts)),
        };
        Ok(if self.negated { Box::new(found.complement(rows)) } else { found })
    }
}

/// The name of the field, whether the condition is negated, and where the values start. If several
/// names fit, such as `a` and `a=b`, the longest is taken.
fn split<'t>(index: &Index, text: &'t str, start: usize) -> Result<(&'t str, bool, usize), Fault> {
    let operator = |at: usize| {
        let rest = text[at..].trim_start();
        let at = text.len() - rest.len();
        match rest.as_bytes() {
            [b'=', ..] => Some((false, at + 1)),
            [b'!', b'=', ..] => Some((true, at + 2)),
            _ => None,
        }
    };
    let names = index.schema().fields.iter().map(|field| field.name.as_str());
    let known = names.filter(|name| text[start..].starts_with(name));
    let known = known.filter_map(|name| {
        let end = start + name.len();
        operator(end).map(|(negated, at)| (end, negated, at))
    });
    if let Some((end, negated, at)) = known.max_by_key(|&(end, ..)| end) {
        return Ok((&text[start..end], negated, at));
    }
    let end = text[start..].find(['=', '!']).map_or(text.len(), |end| start + end);
    match operator(end) {
        Some((negated, at)) => Ok((text[start..end].trim_end(), negated, at)),
        None => Err(Fault::new(end, "expected = or != and a value")),
    }
}
