//! Programs for long lists: compiled with few values, and then widened.
//!
//! libpcap's optimiser takes minutes for some thousands of addresses, and the result only tests one
//! after the other. So a list is compiled with placeholders in it, and the tests for these are
//! replaced by tests for the values that they stand for. The program is the one that libpcap would
//! have made: if conditions compare one word, it moves the tests of that word together, and all
//! sources of a list are compared before a destination is loaded. Together they are a test for a
//! set, and its placeholder is a single condition. Conditions of several words (IPv6, MAC) are not
//! treated as lists here, and stay.
//!
//! The optimiser knows that a word which equals one number equals no other. So what a placeholder
//! stands for must have no word in common with anything else that the filter compares. Values of
//! several lists are grouped by the lists that they are in, with a placeholder for each group, and
//! words that are compared outside of lists stay as they are. Compiling twice, with different
//! placeholders, shows which instructions belong to a placeholder.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Ask, BpfError, Code, OPTIMIZED_LEN_MAX, Program, Step};
use crate::packet::LinkType;
use crate::query::filter::{Expr, Term};
use crate::query::lists::{Shape, Value, listed};

/// The least number of adjacent conditions that count as a list. libpcap is quick with fewer.
pub(super) const LIST_MIN: usize = 64;
/// The most placeholders and unreplaced values, taken together; with more of them the filter is not
/// shorter.
const KEPT_MAX: usize = 256;

/// Lists of a filter.
struct Lists<'t> {
    lists: Vec<List<'t>>,
    least: usize,
}

/// A list: adjacent conditions.
#[derive(Default)]
struct List<'t> {
    /// The words of its conditions, by shape, in the order in which they first occur; for each
    /// word its first place in the list.
    sets: Vec<(Shape<'t>, HashMap<u32, usize>)>,
}

/// A part of a list of operands.
enum Piece<'e> {
    Other(&'e Expr),
    List(&'e [Expr]),
}

/// Cuts operands into lists and others.
fn pieces(parts: &[Expr], or: bool, least: usize) -> Vec<Piece<'_>> {
    let key = |part| {
        let value = Value::of(listed(part, or)?)?;
        Some((value.shape.family()?, value.shape.shift))
    };
    let mut pieces = Vec::new();
    let mut rest = parts;
    while let Some(first) = rest.first() {
        let own = key(first);
        let len = match own {
            None => 0,
            Some(_) => rest.iter().take_while(|part| key(part) == own).count(),
        };
        let (taken, behind) = rest.split_at(len.max(1));
        match len >= least {
            true => pieces.push(Piece::List(taken)),
            false => pieces.extend(taken.iter().map(Piece::Other)),
        }
        rest = behind;
    }
    pieces
}

impl<'t> Lists<'t> {
    /// The lists of an expression.
    fn of(expr: &'t Expr, least: usize) -> Option<Self> {
        let mut lists = Self { lists: Vec::new(), least };
        lists.collect(expr);
        (!lists.lists.is_empty()).then_some(lists)
    }

    fn collect(&mut self, expr: &'t Expr) {
        let (parts, or) = match expr {
            Expr::Term(_) => return,
            Expr::Not(inner) => return self.collect(inner),
            Expr::And(parts) => (parts, false),
            Expr::Or(parts) => (parts, true),
        };
        for piece in pieces(parts, or, self.least) {
            match piece {
                Piece::Other(part) => self.collect(part),
                Piece::List(parts) => {
                    let values = parts.iter().filter_map(|part| Value::of(listed(part, or)?));
                    self.lists.push(List::of(values));
                }
            }
        }
    }

    /// The expression with other conditions in place of the lists.
    fn short(&self, expr: &Expr, placeholders: &mut dyn Iterator<Item = Vec<String>>) -> Expr {
        let (parts, or) = match expr {
            Expr::Term(_) => return expr.clone(),
            Expr::Not(inner) => return Expr::Not(Box::new(self.short(inner, placeholders))),
            Expr::And(parts) => (parts, false),
            Expr::Or(parts) => (parts, true),
        };
        let mut short = Vec::new();
        for piece in pieces(parts, or, self.least) {
            match piece {
                Piece::Other(part) => short.push(self.short(part, placeholders)),
                Piece::List(parts) => {
                    let first = parts.first().and_then(|part| listed(part, or));
                    for text in placeholders.next().unwrap_or_default() {
                        let term = first.map(|first| Term { text, ..first.clone() });
                        short.extend(term.map(|term| match or {
                            true => Expr::Term(term),
                            false => Expr::Not(Box::new(Expr::Term(term))),
                        }));
                    }
                }
            }
        }
        if or { Expr::Or(short) } else { Expr::And(short) }
    }
}

impl<'t> List<'t> {
    fn of(values: impl Iterator<Item = Value<'t>>) -> Self {
        let mut list = Self::default();
        for (place, Value { shape, words }) in values.enumerate() {
            for &word in words.as_slice() {
                match list.sets.iter_mut().find(|(other, _)| *other == shape) {
                    Some((_, set)) => drop(set.entry(word).or_insert(place)),
                    None => list.sets.push((shape, HashMap::from([(word, place)]))),
                }
            }
        }
        list
    }
}

/// Words that stand for others.
#[derive(Default)]
struct Placeholders {
    /// The groups of words: which sets they are in, as places in lists, and the words.
    parts: BTreeMap<Vec<(usize, usize)>, Vec<u32>>,
    /// Words that stay as they are.
    kept: HashSet<u32>,
}

/// One choice of words for all placeholders.
struct Choice {
    /// The text of the filter.
    text: String,
    /// The part that each word stands for.
    parts: HashMap<u32, usize>,
}

/// Pseudo-random numbers, the same each time.
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        u32::try_from(self.0 >> 32).unwrap_or(0)
    }

    /// A number within the bits of a mask that was not taken yet, and is not zero.
    fn fresh(&mut self, mask: u32, taken: &mut HashSet<u32>) -> Option<u32> {
        const TRIES: usize = 1000;
        let numbers = (0..TRIES).map(|_| self.next() & mask);
        let found = { numbers }.find(|number| *number != 0 && !taken.contains(number))?;
        taken.insert(found);
        Some(found)
    }
}

impl Program {
    /// Compiles a filter with lists of at least `least` conditions. The program is the one that
    /// [`compile`](Program::compile) makes from its text, but long lists of IPv4 addresses,
    /// networks or ports take no longer than short ones. `None` if the filter has no lists, or they
    /// cannot be compiled this way.
    pub(super) fn widened(
        expr: &Expr,
        least: usize,
        link: LinkType,
        swapped: bool,
    ) -> Result<Option<Self>, BpfError> {
        let Some(lists) = Lists::of(expr, least) else { return Ok(None) };
        let mut numbers = Numbers(1);
        // No word is chosen twice: a word that is the same in both programs is no placeholder.
        let mut taken = HashSet::new();
        // All words that are compared outside of lists; only the unoptimised program has all of
        // them. A word that is hidden by an equal placeholder shows with the next choice.
        let mut besides = HashSet::new();
        let all = Placeholders::new(&lists, &besides);
        for _ in 0..2 {
            let choice = all.choose(&lists, expr, &mut numbers, &mut taken);
            let Some(choice) = choice.filter(|choice| choice.text.len() < OPTIMIZED_LEN_MAX) else {
                return Ok(None);
            };
            let steps = Step::compile(&choice.text, link, swapped, false)?;
            let asked = steps.iter().filter(|step| matches!(step.code, Code::AskNumber(_)));
            let asked = asked.map(|step| step.k).filter(|word| !choice.parts.contains_key(word));
            besides.extend(asked);
        }
        taken.extend(&besides);
        let placeholders = Placeholders::new(&lists, &besides);
        let mut choices = Vec::new();
        for _ in 0..2 {
            let choice = placeholders.choose(&lists, expr, &mut numbers, &mut taken);
            let Some(choice) = choice.filter(|choice| choice.text.len() < OPTIMIZED_LEN_MAX) else {
                return Ok(None);
            };
            let steps = Step::compile(&choice.text, link, swapped, true)?;
            choices.push((choice, steps));
        }
        let [(first, steps), (second, others)] = choices.as_slice() else { return Ok(None) };
        let Some(steps) = widen(first, steps, second, others) else { return Ok(None) };
        let sets = placeholders.parts.into_values().map(|mut words| {
            words.sort_unstable();
            words.into_boxed_slice()
        });
        Ok(Some(Self { steps: super::joined(steps), sets: sets.collect() }))
    }
}

impl Placeholders {
    /// Groups the words of all sets; those that are compared `besides` are kept.
    fn new(lists: &Lists<'_>, besides: &HashSet<u32>) -> Self {
        let mut of_word: BTreeMap<u32, Vec<(usize, usize)>> = BTreeMap::new();
        for (at, list) in lists.lists.iter().enumerate() {
            for (set, (_, words)) in list.sets.iter().enumerate() {
                for &word in words.keys() {
                    of_word.entry(word).or_default().push((at, set));
                }
            }
        }
        let mut this = Self::default();
        for (word, sets) in of_word {
            match besides.contains(&word) {
                true => drop(this.kept.insert(word)),
                false => this.parts.entry(sets).or_default().push(word),
            }
        }
        this
    }

    /// Chooses words for placeholders that were not taken yet.
    fn choose(
        &self,
        lists: &Lists<'_>,
        expr: &Expr,
        numbers: &mut Numbers,
        taken: &mut HashSet<u32>,
    ) -> Option<Choice> {
        if self.parts.len() + self.kept.len() > KEPT_MAX {
            return None;
        }
        let mut meant = HashMap::new();
        let mut chosen = Vec::with_capacity(self.parts.len());
        for (part, sets) in self.parts.keys().enumerate() {
            let masks =
                sets.iter().filter_map(|(list, set)| lists.lists.get(*list)?.sets.get(*set));
            let masks = masks.flat_map(|(shape, _)| shape.masks.as_slice());
            let word = numbers.fresh(masks.fold(u32::MAX, |all, mask| all & mask), taken)?;
            meant.insert(word, part);
            chosen.push(word);
        }
        let mut texts = Vec::with_capacity(lists.lists.len());
        for (at, list) in lists.lists.iter().enumerate() {
            let mut conditions = Vec::new();
            for (set, (shape, words)) in list.sets.iter().enumerate() {
                let place = |word: &u32| words.get(word).copied();
                let parts = self.parts.iter().zip(&chosen);
                let parts = parts.filter(|((sets, _), _)| sets.contains(&(at, set)));
                let parts =
                    parts.map(|((_, all), word)| (all.iter().filter_map(place).min(), word));
                let kept = self.kept.iter().filter(|word| words.contains_key(word));
                // In the order of the text: if a word is known to be another, what follows need not
                // be loaded.
                let mut order: Vec<(Option<usize>, &u32)> =
                    parts.chain(kept.map(|word| (place(word), word))).collect();
                order.sort_unstable();
                for (_, &word) in order {
                    conditions.push(shape.with(shape.masks.map(|_| Some(word))?));
                }
            }
            texts.push(conditions);
        }
        let text = lists.short(expr, &mut texts.into_iter()).to_string();
        Some(Choice { text, parts: meant })
    }
}

/// The first program, with tests for sets in place of those for placeholders; `None` if the two
/// programs differ in more than placeholders.
fn widen(first: &Choice, steps: &[Step], second: &Choice, others: &[Step]) -> Option<Vec<Step>> {
    if steps.len() != others.len() {
        return None;
    }
    let widened = |step: &Step, other: &Step| {
        if (step.code, step.yes, step.no) != (other.code, other.yes, other.no) {
            return None;
        }
        if step.k == other.k {
            return Some(*step);
        }
        let (part, same) = (first.parts.get(&step.k)?, second.parts.get(&other.k)?);
        if step.code != Code::AskNumber(Ask::Eq) || part != same {
            return None;
        }
        Some(Step { code: Code::AskSet, k: u32::try_from(*part).ok()?, ..*step })
    };
    steps.iter().zip(others).map(|(step, other)| widened(step, other)).collect()
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "what is made up is small")]
mod tests {
    use super::super::Compiled;
    use super::super::made::Made;
    use super::*;
    use crate::query::filter::Filter;

    /// Compares with libpcap's program for the whole text, on whole frames and cut ones.
    fn check(text: &str, made: &mut Made, links: &[LinkType], frames: usize, must: bool) {
        let filter = Filter::parse(text, 0).unwrap();
        let expr = filter.expr.unwrap();
        for &link in links {
            let widened = Program::widened(&expr, 16, link, false);
            let program = match Program::compile(&expr.to_string(), link, false) {
                Ok(program) => program,
                Err(error) => {
                    // The text may have no lists that are handled here.
                    let ours = match widened {
                        Ok(None) if Lists::of(&expr, 16).is_none() => {
                            Compiled::of(&expr, link, false, None).map(drop)
                        }
                        other => other.map(drop),
                    };
                    assert_eq!(ours.unwrap_err().to_string(), error.to_string(), "{text}");
                    continue;
                }
            };
            let Some(widened) = widened.unwrap() else {
                // On other links libpcap tests the IP version again and again.
                let must = must && link == LinkType::ETHERNET;
                assert!(!must, "{link}: not compiled in short: {text}");
                continue;
            };
            made.cuts(frames, link, &mut |frame, wire_len| {
                let (ours, theirs) =
                    (widened.matches(frame, wire_len), program.matches(frame, wire_len));
                assert_eq!(ours, theirs, "{link}: {frame:02x?}: {text}");
            });
        }
    }

    const LINKS: [LinkType; 3] = [LinkType::ETHERNET, LinkType::RAW, LinkType::NULL];

    #[test]
    fn lists_have_the_programs_that_libpcap_gives_them() {
        for (seed, count) in [(1, 20), (2, 45), (3, 90)] {
            let mut made = Made::new(seed, count);
            let kinds = [
                "host",
                "src host",
                "dst host",
                "ip host",
                "arp host",
                "nets",
                "mixed",
                "port",
                "tcp port",
                "udp dst port",
                "src port",
                "six host",
                "src six host",
                "dst six host",
                "six nets",
                "ether host",
                "ether src",
            ];
            for kind in kinds {
                // Those with conditions of several words are not, or not all of them.
                let must = !(["six", "ether", "mixed"].iter().any(|word| kind.contains(word)));
                let list = made.list(kind).join(" or ");
                for text in [
                    list.clone(),
                    format!("not ({list})"),
                    format!("tcp and ({list})"),
                    format!("({list}) and not udp"),
                    format!("len > 40 or {list} or icmp"),
                    format!("vlan and ({list})"),
                ] {
                    check(&text, &mut made, &LINKS, 60, must);
                }
                let none = format!("not {}", made.list(kind).join(" and not "));
                check(&none, &mut made, &LINKS, 60, must);
            }
        }
    }

    #[test]
    fn lists_beside_what_they_have_in_common_with_others() {
        let mut made = Made::new(5, 40);
        let (hosts, ports) = (made.list("src host"), made.list("port"));
        let (one, two) = (hosts[..30].join(" or "), hosts[10..].join(" or "));
        let first = &hosts[12];
        let [a, b, c, d] = made.fours[12];
        let (word, mac) =
            (format!("{a:x}{b:02x}:{c:x}{d:02x}"), format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}"));
        let any = made.macs[3].map(|byte| format!("{byte:02x}")).join(":");
        for text in [
            format!("({one}) and not ({two})"),
            format!("({first} and tcp) or {one}"),
            format!("{first} and ({one})"),
            format!("({one}) and ({})", ports.join(" or ")),
            format!("({one}) and ({}) and port 80", ports.join(" or ")),
            format!("ip[12:4] = 0x0a010101 or ({two})"),
            format!("({}) and ({})", hosts.join(" or "), made.list("dst host").join(" or ")),
            // Words of IPv6 that also occur in IPv4.
            format!("({one}) or host 2001:db8::{word} or host 2001:db8:{word}::1"),
            format!("host {word}::1 or {one} or ether host 02:01:{mac} or net {word}::/32"),
            format!("{} or {}", hosts.join(" or "), made.list("six host")[..10].join(" or ")),
            format!("({}) and not ({one})", made.list("six host")[..10].join(" or ")),
            format!("ether src {any} or ({one}) or ether dst {any}"),
            format!("{} or ip6 net 2001:db8::/32", made.list("six host").join(" or ")),
            format!("({}) and tcp[13] & 2 = 0", made.list("six host").join(" or ")),
        ] {
            check(&text, &mut made, &[LinkType::ETHERNET], 400, false);
        }
    }

    /// Few words fit the mask of these networks, so that one is easily chosen twice.
    #[test]
    fn lists_of_large_networks() {
        let mut made = Made::new(6, 40);
        let nets = |word: &str| {
            let nets: Vec<String> = (1..60).map(|n| format!("{word} {n}.0.0.0/8")).collect();
            nets.join(" or ")
        };
        for besides in 0..=255 {
            let (src, one) = (nets("src net"), format!("dst net {besides}.0.0.0/8"));
            check(&format!("({src}) and {one}"), &mut made, &LINKS[..1], 4, false);
            let other = format!("src net {besides}.0.0.0/8");
            check(&format!("({other} and tcp) or {src}"), &mut made, &LINKS[..1], 4, false);
        }
    }

    /// If the rest of a filter is long, it is not given to the optimiser.
    #[test]
    fn a_list_beside_much_else() {
        let mut made = Made::new(7, 900);
        let (fours, sixes) = (made.list("host"), made.list("six host"));
        let text = format!("{} or {}", fours.join(" or "), sixes.join(" or "));
        let expr = Filter::parse(&text, 0).unwrap().expr.unwrap();
        assert!(Program::widened(&expr, 16, LinkType::ETHERNET, false).unwrap().is_none());
    }
}
