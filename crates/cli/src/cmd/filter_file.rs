//! `--filter-file`: a filter, or a list of addresses, one per line.

use std::fs::File;
use std::io::{self, Read};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use tapdex_engine::query::filter::{Filter, FilterError, Syntax};
use tapdex_engine::time::TimeRange;

/// The most bytes that are read; that is about a million addresses.
const FILE_LEN_MAX: u64 = 16 << 20;

/// Parses a filter from the command line; if no language is given, it is recognised from the text.
pub(super) fn parse(text: &str, syntax: Option<Syntax>, now_ns: u64) -> anyhow::Result<Filter> {
    understood(text, syntax, now_ns).map_err(|error| anyhow::anyhow!(rendered(&error, text)))
}

/// Parses a filter file, joined to the filter of the command line by `and`.
pub(super) fn read(
    path: &Path,
    words: &str,
    syntax: Option<Syntax>,
    now_ns: u64,
) -> anyhow::Result<Filter> {
    let own = match words.trim().is_empty() {
        true => None,
        false => Some(parse(words, syntax, now_ns)?),
    };
    let syntax = syntax.or(own.as_ref().map(Filter::syntax));
    let name = match path.as_os_str() == "-" {
        true => "standard input".to_owned(),
        false => path.display().to_string(),
    };
    let text = without_comments(&text_of(path, &name)?);
    let text = text.trim_end();
    let located = |error: FilterError| {
        let (line, column) = place(text, error.span.start);
        anyhow::anyhow!("{name}:{line}:{column}: {}", rendered(&error, text))
    };
    let filter = match list(text).map_err(located)? {
        Some(list) => list.filter(syntax.unwrap_or(Syntax::Pcap), now_ns).map_err(located)?,
        None => understood(text, syntax, now_ns).map_err(located)?,
    };
    ensure!(
        filter.expr().is_some() || filter.times() != TimeRange::ALL,
        "{name} contains no filter and no address"
    );
    let Some(own) = own else { return Ok(filter) };
    if own.syntax() != filter.syntax() {
        bail!("the filter in {name} and the filter argument are in different languages");
    }
    Ok(own.and(&filter)?)
}

fn understood(text: &str, syntax: Option<Syntax>, now_ns: u64) -> Result<Filter, FilterError> {
    match syntax {
        None => Filter::parse(text, now_ns),
        Some(syntax) => Filter::parse_as(syntax, text, now_ns),
    }
}

fn rendered(error: &FilterError, text: &str) -> String {
    let text = error.render(text);
    text.strip_prefix("error: ").unwrap_or(&text).to_owned()
}

fn text_of(path: &Path, name: &str) -> anyhow::Result<String> {
    let mut text = Vec::new();
    let cannot = || format!("cannot read {name}");
    let read = match path.as_os_str() == "-" {
        true => io::stdin().lock().take(FILE_LEN_MAX + 1).read_to_end(&mut text),
        false => {
            File::open(path).with_context(cannot)?.take(FILE_LEN_MAX + 1).read_to_end(&mut text)
        }
    };
    let len = read.with_context(cannot)? as u64;
    ensure!(len <= FILE_LEN_MAX, "{name} is larger than {} MiB", FILE_LEN_MAX >> 20);
    match String::from_utf8(text) {
        Ok(text) => Ok(text),
        Err(error) => {
            let before = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or(&[]);
            let (line, column) = place(&String::from_utf8_lossy(before), before.len());
            bail!("{name}:{line}:{column}: not UTF-8 text");
        }
    }
}

/// Blanks comments: from a `#` that starts a word to the end of its line.
fn without_comments(text: &str) -> String {
    let mut blank = String::with_capacity(text.len());
    let (mut before, mut inside) = ('\n', false);
    for letter in text.chars() {
        inside = letter != '\n' && (inside || letter == '#' && before.is_whitespace());
        match inside {
            // As many bytes, so that offsets stay the same.
            true => blank.extend(std::iter::repeat_n(' ', letter.len_utf8())),
            false => blank.push(letter),
        }
        before = letter;
    }
    blank
}

/// Line and column of a place in a text, from 1.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.rfind('\n').map_or(0, |end| end + 1);
    let column = before.get(line..).unwrap_or("").chars().count();
    (before.matches('\n').count() + 1, column + 1)
}

/// Addresses and networks.
#[derive(Default)]
struct List<'t> {
    four: Vec<&'t str>,
    six: Vec<&'t str>,
    mac: Vec<&'t str>,
}

/// The list in a text, if it is one: its first word is an address, which no filter starts with.
fn list(text: &str) -> Result<Option<List<'_>>, FilterError> {
    let mut list = List::default();
    let mut first = true;
    for line in text.split_inclusive('\n') {
        let entry = line.trim();
        if entry.is_empty() {
            continue;
        }
        let kind = entry_kind(entry);
        if first && kind.is_none() {
            return Ok(None);
        }
        first = false;
        let error = |message: &str| {
            let start = entry.as_ptr().addr() - text.as_ptr().addr();
            FilterError { message: message.to_owned(), span: start..start + entry.len() }
        };
        match kind {
            Some((Entry::Four, true)) => list.four.push(entry),
            Some((Entry::Six, true)) => list.six.push(entry),
            Some((Entry::Mac, true)) => list.mac.push(entry),
            Some((_, false)) => {
                return Err(error("the address has bits set behind the prefix: clear them"));
            }
            None => {
                return Err(error(
                    "expected an address, a network or a MAC address, as on the lines before",
                ));
            }
        }
    }
    Ok((!first).then_some(list))
}

/// What an entry of a list is.
enum Entry {
    Four,
    Six,
    Mac,
}

/// The kind of an entry, and whether no bit is set after its prefix.
fn entry_kind(entry: &str) -> Option<(Entry, bool)> {
    let (address, len) = match entry.split_once('/') {
        Some((address, len)) => (address, Some(len.parse::<u32>().ok()?)),
        None => (entry, None),
    };
    if let Ok(address) = address.parse::<Ipv4Addr>() {
        let rest = u32::MAX.checked_shr(len.unwrap_or(32)).unwrap_or(0);
        return (len.unwrap_or(32) <= 32).then_some((Entry::Four, address.to_bits() & rest == 0));
    }
    if let Ok(address) = address.parse::<Ipv6Addr>() {
        let rest = u128::MAX.checked_shr(len.unwrap_or(128)).unwrap_or(0);
        return (len.unwrap_or(128) <= 128).then_some((Entry::Six, address.to_bits() & rest == 0));
    }
    let bytes: Vec<&str> = entry.split([':', '-']).collect();
    let is_byte = |byte: &&str| {
        (1..=2).contains(&byte.len()) && byte.bytes().all(|digit| digit.is_ascii_hexdigit())
    };
    (bytes.len() == 6 && bytes.iter().all(is_byte)).then_some((Entry::Mac, true))
}

impl List<'_> {
    /// The filter for packets that have one of them at either end.
    fn filter(&self, syntax: Syntax, now_ns: u64) -> Result<Filter, FilterError> {
        let text = match syntax {
            Syntax::Pcap => {
                let ip = self.four.iter().chain(&self.six).map(|entry| {
                    let word = if entry.contains('/') { "net" } else { "host" };
                    format!("{word} {entry}")
                });
                let mac = self.mac.iter().map(|entry| format!("ether host {entry}"));
                ip.chain(mac).collect::<Vec<_>>().join(" or ")
            }
            Syntax::Wireshark => {
                let sets = [("ip", &self.four), ("ipv6", &self.six), ("eth", &self.mac)];
                let sets = sets.iter().filter(|(_, entries)| !entries.is_empty());
                let sets =
                    sets.map(|(name, entries)| format!("{name}.addr in {{{}}}", entries.join(",")));
                sets.collect::<Vec<_>>().join(" or ")
            }
        };
        Filter::parse_as(syntax, &text, now_ns)
    }
}
