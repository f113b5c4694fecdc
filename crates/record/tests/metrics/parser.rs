//! The text format of Prometheus, version 0.0.4, read as strictly as its description allows.

use std::collections::{BTreeMap, BTreeSet};

/// The labels of a sample.
pub(crate) type Labels = BTreeMap<String, String>;

/// A family of samples.
#[derive(Debug, Default)]
pub(crate) struct Family {
    pub(crate) help: String,
    pub(crate) kind: String,
    /// The whole name, the labels and the number of each sample, as they stand there.
    pub(crate) samples: Vec<(String, Labels, String)>,
}

/// The families in their order; what is wrong, with the line, if the text breaks a rule.
pub(crate) fn parse(text: &str) -> Result<Vec<(String, Family)>, String> {
    let Some(lines) = text.strip_suffix('\n') else {
        return Err("the last line does not end".into());
    };
    let mut families: Vec<(String, Family)> = vec![];
    for (index, line) in lines.split('\n').enumerate() {
        take(line, &mut families)
            .map_err(|wrong| format!("line {}: {wrong}: {line}", index + 1))?;
    }
    for (name, family) in &families {
        check(name, family).map_err(|wrong| format!("{name}: {wrong}"))?;
    }
    Ok(families)
}

fn take(line: &str, families: &mut Vec<(String, Family)>) -> Result<(), String> {
    if let Some(rest) = line.strip_prefix("# HELP ") {
        let (name, help) = rest.split_once(' ').ok_or("no help")?;
        metric_name(name)?;
        if families.iter().any(|(known, _)| known == name) {
            return Err("named twice".into());
        }
        let help = unescape(help, false)?;
        families.push((name.to_owned(), Family { help, ..Family::default() }));
        return Ok(());
    }
    let (current, family) = families.last_mut().ok_or("a line before the first HELP")?;
    if let Some(rest) = line.strip_prefix("# TYPE ") {
        let (name, kind) = rest.split_once(' ').ok_or("no type")?;
        if name != current || !family.kind.is_empty() || !family.samples.is_empty() {
            return Err("a TYPE that belongs elsewhere".into());
        }
        if !["counter", "gauge", "histogram", "summary", "untyped"].contains(&kind) {
            return Err("no such type".into());
        }
        family.kind = kind.to_owned();
        return Ok(());
    }
    let (name, labels, value) = sample(line)?;
    let endings: &[&str] = match &*family.kind {
        "" => return Err("a sample before its TYPE".into()),
        "histogram" => &["_bucket", "_sum", "_count"],
        _ => &[""],
    };
    if !endings.iter().any(|ending| *name == format!("{current}{ending}")) {
        return Err("a sample outside its family".into());
    }
    family.samples.push((name, labels, value));
    Ok(())
}

fn sample(line: &str) -> Result<(String, Labels, String), String> {
    let end = line.find(['{', ' ']).ok_or("no value")?;
    let (name, mut rest) = line.split_at(end);
    metric_name(name)?;
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").ok_or("no label")?;
            label_name(label)?;
            let (value, after) = quoted(after)?;
            if labels.insert(label.to_owned(), value).is_some() {
                return Err("a label twice".into());
            }
            rest = &after[1..];
            match after.as_bytes().first() {
                Some(b',') => {}
                Some(b'}') => break,
                _ => return Err("labels do not end".into()),
            }
        }
    }
    let value = rest.strip_prefix(' ').ok_or("no space before the value")?;
    number(value)?;
    Ok((name.to_owned(), labels, value.to_owned()))
}

/// The text up to the closing quote, and what follows that.
fn quoted(text: &str) -> Result<(String, &str), String> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Ok((unescape(&text[..at], true)?, &text[at + 1..])),
            _ => {}
        }
    }
    Err("a label's value does not end".into())
}

fn unescape(text: &str, quotes: bool) -> Result<String, String> {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        plain.push(match c {
            '\\' => match chars.next() {
                Some('\\') => '\\',
                Some('n') => '\n',
                Some('"') if quotes => '"',
                other => return Err(format!("a backslash before {other:?}")),
            },
            c => c,
        });
    }
    Ok(plain)
}

pub(crate) fn number(text: &str) -> Result<f64, String> {
    match text {
        "NaN" => Ok(f64::NAN),
        "+Inf" => Ok(f64::INFINITY),
        "-Inf" => Ok(f64::NEG_INFINITY),
        // What Rust reads besides, as inf and infinity, has letters the format does not have.
        _ if text.bytes().all(|c| c.is_ascii_digit() || b"+-.eE".contains(&c)) => {
            text.parse().map_err(|error| format!("{error}"))
        }
        _ => Err("no number".into()),
    }
}

fn metric_name(name: &str) -> Result<(), String> {
    let letter = |c: char| matches!(c, 'a'..='z' | 'A'..='Z' | '_' | ':');
    let sound = name.starts_with(letter) && name.chars().all(|c| letter(c) || c.is_ascii_digit());
    if sound { Ok(()) } else { Err(format!("{name:?} is no name")) }
}

fn label_name(name: &str) -> Result<(), String> {
    if name.contains(':') || name.starts_with("__") {
        return Err(format!("{name:?} is no label"));
    }
    metric_name(name)
}

fn check(name: &str, family: &Family) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for (name, labels, _) in &family.samples {
        if !seen.insert((name, labels)) {
            return Err(format!("{name} {labels:?} stands there twice"));
        }
    }
    if family.kind == "counter" && !family.samples.iter().all(|(_, _, value)| counts(value)) {
        return Err("a counter below zero".into());
    }
    if family.kind == "histogram" { histogram(name, family) } else { Ok(()) }
}

fn counts(value: &str) -> bool {
    number(value).is_ok_and(|value| value >= 0.0)
}

/// Buckets ascend, in bound and in count, and end with all there is.
fn histogram(name: &str, family: &Family) -> Result<(), String> {
    let mut series: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    let mut counts: BTreeMap<Labels, f64> = BTreeMap::new();
    let mut sums = BTreeSet::new();
    for (sample, labels, value) in &family.samples {
        let mut labels = labels.clone();
        let le = labels.remove("le");
        match (sample.strip_prefix(name), le) {
            (Some("_bucket"), Some(le)) => {
                series.entry(labels).or_default().push((number(&le)?, number(value)?));
            }
            (Some("_count"), None) => drop(counts.insert(labels, number(value)?)),
            (Some("_sum"), None) => drop(sums.insert(labels)),
            _ => return Err(format!("{sample} has a bound where none belongs, or lacks it")),
        }
    }
    if series.keys().ne(counts.keys()) || series.keys().ne(sums.iter()) {
        return Err("buckets, sums and counts do not go together".into());
    }
    for (labels, buckets) in series {
        if !buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1) {
            return Err(format!("buckets of {labels:?} do not ascend"));
        }
        if buckets.last() != Some(&(f64::INFINITY, counts[&labels])) {
            return Err(format!("the last bucket of {labels:?} does not have all"));
        }
    }
    Ok(())
}
