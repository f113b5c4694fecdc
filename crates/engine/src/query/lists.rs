//! Long lists: conditions that ask the same question about different values, such as `host A or
//! host B or ...`.
//!
//! Such conditions differ only in a value in their texts. One of them shows what the others ask, so
//! a list is looked up as one condition with many values, and compiled as one if a condition
//! compares one word.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::filter::{Direction, Expr, Shift, Term, Test};

/// Families of one-word conditions that are compiled as one list if they are adjacent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// `host` and `net` of IPv4.
    Four,
    /// `net` with an IPv6 prefix of 32 bits at most.
    Six,
    Port,
}

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListKind {
    Four,
    Six,
    Port,
    Mac,
}

/// A condition, split into what it asks and the value that it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Value<'t> {
    pub(super) shape: Shape<'t>,
    /// The words that libpcap's program compares.
    pub(super) words: Words,
}

/// What a condition asks, without its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape<'t> {
    pub(super) shift: Shift,
    kind: ListKind,
    /// Its text before and behind the value.
    before: &'t str,
    behind: &'t str,
    /// The bits of each word that count.
    pub(super) masks: Words,
}

/// Up to four words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Words {
    words: [u32; 4],
    len: usize,
}

impl Words {
    fn new(words: &[u32]) -> Self {
        let mut all = [0; 4];
        let len = words.len().min(all.len());
        for (to, from) in all.iter_mut().zip(words) {
            *to = *from;
        }
        Self { words: all, len }
    }

    pub(super) fn as_slice(&self) -> &[u32] {
        self.words.get(..self.len).unwrap_or(&[])
    }

    /// The same number of words, each made from the old one.
    pub(super) fn map(&self, mut make: impl FnMut(u32) -> Option<u32>) -> Option<Self> {
        let words: Option<Vec<u32>> = self.as_slice().iter().map(|&word| make(word)).collect();
        Some(Self::new(&words?))
    }
}

impl<'t> Value<'t> {
    /// The value of a term; `None` if terms of its kind do not form lists.
    pub(super) fn of(term: &'t Term) -> Option<Self> {
        let (kind, words, masks) = match &term.test {
            Test::Host4 { direction, address, mask, .. }
                if *direction != Direction::Both && *mask != 0 =>
            {
                (ListKind::Four, Words::new(&[*address]), Words::new(&[*mask]))
            }
            Test::Host6 { direction, address, mask } if *direction != Direction::Both => {
                let mask = words_of(*mask);
                let count = mask.iter().filter(|&&word| word != 0).count();
                let mask = mask.get(..count).filter(|mask| !mask.contains(&0))?;
                if mask.is_empty() {
                    return None;
                }
                (ListKind::Six, Words::new(words_of(*address).get(..count)?), Words::new(mask))
            }
            Test::Mac { direction, address } if *direction != Direction::Both => {
                let low = u32::try_from(address & 0xFFFF_FFFF).ok()?;
                let high = u32::try_from(address >> 32).ok()?;
                (ListKind::Mac, Words::new(&[low, high]), Words::new(&[u32::MAX, 0xFFFF]))
            }
            Test::Port { direction, ports, .. }
                if *direction != Direction::Both && ports.start() == ports.end() =>
            {
                (ListKind::Port, Words::new(&[(*ports.start()).into()]), Words::new(&[0xFFFF]))
            }
            _ => return None,
        };
        let shown = kind.show(words);
        let at = term.text.find(&format!(" {shown}"))? + 1;
        let (before, rest) = term.text.split_at_checked(at)?;
        let behind = rest.get(shown.len()..)?;
        // `portrange 5-5`.
        if kind == ListKind::Port && !behind.is_empty() {
            return None;
        }
        let shape = Shape { shift: term.shift, kind, before, behind, masks };
        Some(Self { shape, words })
    }
}

impl Shape<'_> {
    /// The family of a condition; `None` if it compares several words.
    pub(super) fn family(&self) -> Option<Family> {
        match (self.kind, self.masks.len) {
            (ListKind::Four, 1) => Some(Family::Four),
            (ListKind::Six, 1) => Some(Family::Six),
            (ListKind::Port, 1) => Some(Family::Port),
            _ => None,
        }
    }

    /// The condition with another value.
    pub(super) fn with(&self, words: Words) -> String {
        format!("{}{}{}", self.before, self.kind.show(words), self.behind)
    }
}

impl ListKind {
    fn show(self, words: Words) -> String {
        let [first, second, third, fourth] = words.words;
        match self {
            Self::Four => Ipv4Addr::from_bits(first).to_string(),
            Self::Six => {
                let join = |sum: u128, word: u32| sum << 32 | u128::from(word);
                Ipv6Addr::from_bits([first, second, third, fourth].into_iter().fold(0, join))
                    .to_string()
            }
            Self::Port => first.to_string(),
            Self::Mac => {
                let address = u64::from(second) << 32 | u64::from(first);
                let byte = |at: u32| format!("{:02x}", address >> (40 - 8 * at) & 0xFF);
                (0..6).map(byte).collect::<Vec<_>>().join(":")
            }
        }
    }
}

/// An IPv6 address as words.
fn words_of(address: u128) -> [u32; 4] {
    [96, 64, 32, 0].map(|shift| u32::try_from(address >> shift & 0xFFFF_FFFF).unwrap_or(0))
}

/// The least number of terms that are looked up as one.
const ALIKE_MIN: usize = 8;
/// The most shapes that are told apart.
const SHAPES_MAX: usize = 64;

/// The groups of terms among the operands that differ only in their values, and all other operands.
pub(super) fn alike(parts: &[Expr]) -> (Vec<Vec<&Term>>, Vec<&Expr>) {
    if parts.len() < ALIKE_MIN {
        return (Vec::new(), parts.iter().collect());
    }
    let mut lists: Vec<(Shape<'_>, Vec<(&Term, &Expr)>)> = Vec::new();
    let mut others = Vec::new();
    for part in parts {
        let term = listed(part, true);
        let Some((term, value)) = term.and_then(|term| Some((term, Value::of(term)?))) else {
            others.push(part);
            continue;
        };
        let full = lists.len() == SHAPES_MAX;
        match lists.iter_mut().find(|(shape, _)| *shape == value.shape) {
            Some((_, list)) => list.push((term, part)),
            None if full => others.push(part),
            None => lists.push((value.shape, vec![(term, part)])),
        }
    }
    let (long, short): (Vec<_>, Vec<_>) =
        lists.into_iter().map(|(_, list)| list).partition(|list| list.len() >= ALIKE_MIN);
    others.extend(short.into_iter().flatten().map(|(_, part)| part));
    (
        long.into_iter().map(|list| list.into_iter().map(|(term, _)| term).collect()).collect(),
        others,
    )
}

/// Groups adjacent terms that differ only in their values, if there are enough of them; other terms
/// are on their own.
pub(super) fn rows_alike<'t>(terms: Vec<&'t Term>) -> Vec<Vec<&'t Term>> {
    let mut rows: Vec<(Option<Shape<'t>>, Vec<&'t Term>)> = Vec::new();
    for term in terms {
        let shape = Value::of(term).map(|value| value.shape);
        match rows.last_mut() {
            Some((last, row)) if last.is_some() && *last == shape => row.push(term),
            _ => rows.push((shape, vec![term])),
        }
    }
    let mut cut = Vec::new();
    for (_, row) in rows {
        match row.len() >= ALIKE_MIN * 2 {
            true => cut.push(row),
            false => cut.extend(row.into_iter().map(|term| vec![term])),
        }
    }
    cut
}

/// The term of a part of a list: in an `or` a condition, in an `and` one that must not hold.
pub(super) fn listed(part: &Expr, or: bool) -> Option<&Term> {
    match (part, or) {
        (Expr::Term(term), true) => Some(term),
        (Expr::Not(inner), false) => match &**inner {
            Expr::Term(term) => Some(term),
            _ => None,
        },
        _ => None,
    }
}
