//! Programs for long filters: put together from those of their conditions.
//!
//! libpcap takes minutes for filters of thousands of conditions, with its optimiser and without. So
//! each kind of condition is compiled once, without the optimiser, and the program of the whole
//! filter is put together from those: conditions in the order of the text, each jumping to the next
//! one that matters. That is the program that `tcpdump -O` makes. On packets that have all the
//! bytes it loads, the optimised program gives the same answer: the optimiser drops tests whose
//! answer is known, and moves tests to places where their value has been loaded.
//!
//! On packets that end too early the two may differ: a load that the optimiser dropped no longer
//! rejects the packet. The optimised program matches such a packet only if it would match with any
//! bytes appended, because it looks at none of them. So bytes are appended, and if the packet does
//! not match with some of them, it does not match. Only for packets that this does not settle is
//! the optimised program compiled and run.
//!
//! On links that are not decoded, the optimised program is run on all packets.
//!
//! For lists of IPv6 or MAC addresses the two match the same packets, cut or not: the optimiser
//! moves a test past others only if all of them jump to the same place, and they do not if each
//! condition compares several words. Whether anything else in the filter makes a difference is
//! found with a filter that has few of these conditions: if both of its programs load the same
//! before they accept a packet, so do those of the long filter.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::proof::{Sameness, compare};
use super::{Alu, Ask, BpfError, COMPARED_LEN_MAX, Code, Program, SNAPLEN, Step, joined};
use crate::packet::LinkType;
use crate::query::filter::{Expr, Shift, Term};
use crate::query::lists::{Shape, Value, Words};

/// The most tests of a program that libpcap is asked to optimise: it takes several bits for each
/// pair of them.
const OPTIMIZED_ASKS_MAX: usize = 32 << 10;

/// With this many tests or more, it takes seconds.
const SLOW_ASKS: usize = 8 << 10;

/// The most instructions that are tried to find out whether the optimiser matters.
const SETTLED_STEPS_MAX: usize = 200_000;

/// The bytes that are appended to a packet to see whether they matter.
const FILLS: [u8; 3] = [0, 0xFF, 0x5A];

/// Called with a message about what takes long or cannot be done.
pub(crate) type Notice = fn(&str);

/// A long filter.
#[derive(Debug)]
pub(crate) struct Long {
    text: String,
    link: LinkType,
    swapped: bool,
    /// The program that libpcap makes without its optimiser.
    plain: Program,
    /// The most bytes of a packet that it loads from, arithmetic aside.
    reach: usize,
    /// The optimiser changes nothing that matters.
    is_settled: bool,
    whole: OnceLock<Option<Program>>,
    notice: Option<Notice>,
}

impl Long {
    /// Puts the program of a filter together.
    pub(super) fn of(
        expr: &Expr,
        link: LinkType,
        swapped: bool,
        notice: Option<Notice>,
    ) -> Result<Self, BpfError> {
        let text = expr.to_string();
        let steps = match plain(expr, link, swapped)? {
            Some(steps) => steps,
            None => Step::compile(&text, link, swapped, false)?,
        };
        let reach = steps.iter().map(reach).max().unwrap_or(0);
        let plain = Program { steps: joined(steps), sets: Vec::new() };
        Ok(Self {
            text,
            link,
            swapped,
            plain,
            reach,
            is_settled: is_settled(expr, link, swapped)?,
            whole: OnceLock::new(),
            notice,
        })
    }

    /// Whether the optimised program matches a frame.
    pub(crate) fn matches(&self, frame: &[u8], wire_len: u32) -> bool {
        let run = |frame: &[u8]| self.plain.run(frame, wire_len, &mut [0; super::MEMORY]);
        // If a program has to find out where headers start, as with PPI, the optimiser changes more
        // than that.
        if self.link.name().is_none() {
            return match self.whole() {
                Some(whole) => whole.matches(frame, wire_len),
                None => run(frame).is_some_and(|taken| taken != 0),
            };
        }
        if let Some(taken) = run(frame) {
            return taken != 0;
        }
        if self.is_settled {
            return false;
        }
        let mut filled = frame.to_vec();
        for fill in FILLS {
            filled.truncate(frame.len());
            filled.resize(frame.len().max(self.reach), fill);
            if run(&filled) == Some(0) {
                return false;
            }
        }
        self.whole().is_some_and(|whole| whole.matches(frame, wire_len))
    }

    /// The optimised program; `None` if it is too long for libpcap.
    fn whole(&self) -> Option<&Program> {
        let compile = || {
            let say = |text: &str| self.notice.iter().for_each(|notice| notice(text));
            let asks = self.plain.steps.iter().filter(|step| step.is_ask()).count();
            if asks > OPTIMIZED_ASKS_MAX {
                say("the filter is too long for libpcap's optimiser; packets that end within \
                     their headers are judged without it");
                return None;
            }
            if asks > SLOW_ASKS {
                say("libpcap optimises the filter for packets that end within their headers, \
                     which may take minutes");
            }
            let whole = Program::compile(&self.text, self.link, self.swapped);
            whole.inspect_err(|error| say(&error.to_string())).ok()
        };
        self.whole.get_or_init(compile).as_ref()
    }
}

/// The program of a filter without the optimiser; `None` if it has to be compiled as a whole.
fn plain(expr: &Expr, link: LinkType, swapped: bool) -> Result<Option<Vec<Step>>, BpfError> {
    let mut maker = Maker { link, swapped, kinds: Vec::new(), texts: HashMap::new() };
    let mut steps = Vec::new();
    let Some(ends) = maker.put(expr, &mut steps)? else { return Ok(None) };
    for (k, open) in [(SNAPLEN, ends.yes), (0, ends.no)] {
        close(&mut steps, &open);
        steps.push(Step { code: Code::Return, yes: 0, no: 0, k, equal: 0 });
    }
    Ok(Some(steps))
}

/// How many bytes of a frame a step may need, with a header of any length before.
fn reach(step: &Step) -> usize {
    /// The longest header, and a word.
    const HEADER: usize = 60 + 4;
    match step.code {
        Code::LoadAt(_) | Code::LoadFrom(_) | Code::LoadHeaderLen => {
            (step.k as usize).saturating_add(HEADER).min(SNAPLEN as usize)
        }
        _ => 0,
    }
}

/// Whether a part of a list compares several words.
fn has_several_words(part: &Expr) -> bool {
    match part {
        Expr::Term(term) => Value::of(term).is_some_and(|value| value.words.as_slice().len() > 1),
        Expr::Not(part) => has_several_words(part),
        Expr::And(_) | Expr::Or(_) => false,
    }
}

/// Whether a filter has the same answers with the optimiser and without, also for packets cut
/// anywhere, as far as a shorter filter shows that.
fn is_settled(expr: &Expr, link: LinkType, swapped: bool) -> Result<bool, BpfError> {
    let short = outline(expr, has_several_words);
    let text = short.to_string();
    if text.len() > COMPARED_LEN_MAX {
        return Ok(false);
    }
    let optimised = Program::compile(&text, link, swapped)?;
    let Some(steps) = plain(&short, link, swapped)? else { return Ok(false) };
    let plain = Program { steps: joined(steps), sets: Vec::new() };
    // Each loads no more than the other.
    Ok(compare(&optimised, &plain, SETTLED_STEPS_MAX) == Sameness::Same
        && compare(&plain, &optimised, SETTLED_STEPS_MAX) == Sameness::Same)
}

/// Jumps whose targets are not known yet.
#[derive(Debug, Default)]
struct Ends {
    yes: Vec<Open>,
    no: Vec<Open>,
}

/// One of them: the step, and which of its jumps.
#[derive(Debug, Clone, Copy)]
struct Open {
    at: usize,
    yes: bool,
}

/// Makes jumps go to the step that is added next.
fn close(steps: &mut [Step], open: &[Open]) {
    let next = u32::try_from(steps.len()).unwrap_or(u32::MAX);
    for open in open {
        if let Some(step) = steps.get_mut(open.at) {
            *(if open.yes { &mut step.yes } else { &mut step.no }) = next;
        }
    }
}

/// The program of a condition, without its end.
#[derive(Debug, Clone, Default)]
struct Template {
    steps: Vec<Step>,
    /// Jumps that leave it, by what they mean.
    yes: Vec<Open>,
    no: Vec<Open>,
    /// Which steps compare a word of the condition, and which word.
    words: Vec<(usize, usize)>,
}

struct Maker<'t> {
    link: LinkType,
    swapped: bool,
    /// Conditions that differ in their values only.
    kinds: Vec<(Shape<'t>, Template)>,
    /// All others.
    texts: HashMap<(u8, &'t str), Template>,
}

impl<'t> Maker<'t> {
    /// Appends the steps of an expression; `None` if that cannot be done.
    fn put(&mut self, expr: &'t Expr, steps: &mut Vec<Step>) -> Result<Option<Ends>, BpfError> {
        let (parts, or) = match expr {
            Expr::Term(term) => return self.put_term(term, steps),
            Expr::Not(part) => {
                let ends = self.put(part, steps)?;
                return Ok(ends.map(|Ends { yes, no }| Ends { yes: no, no: yes }));
            }
            Expr::And(parts) => (parts, false),
            Expr::Or(parts) => (parts, true),
        };
        let mut all = Ends::default();
        for part in parts {
            // The open jumps of the parts before it go here.
            let open = std::mem::take(if or { &mut all.no } else { &mut all.yes });
            close(steps, &open);
            let Some(ends) = self.put(part, steps)? else { return Ok(None) };
            all.yes.extend(ends.yes);
            all.no.extend(ends.no);
        }
        Ok(Some(all))
    }

    fn put_term(
        &mut self,
        term: &'t Term,
        steps: &mut Vec<Step>,
    ) -> Result<Option<Ends>, BpfError> {
        let Shift::Tags(tags) = term.shift else { return Ok(None) };
        let value = Value::of(term);
        let known = value.as_ref().and_then(|value| {
            self.kinds.iter().find(|(shape, _)| *shape == value.shape).map(|(_, kind)| kind)
        });
        let known = known.or_else(|| self.texts.get(&(tags, term.text.as_str())));
        let template = match known {
            Some(known) => known,
            None => {
                let made = match &value {
                    Some(value) => self.kind(&value.shape, tags)?,
                    None => None,
                };
                match (value, made) {
                    (Some(value), Some(template)) => {
                        self.kinds.push((value.shape, template));
                        return self.put_term(term, steps);
                    }
                    _ => {
                        let template = self.compile(&term.text, tags)?;
                        let Some(template) = template else { return Ok(None) };
                        self.texts.entry((tags, term.text.as_str())).or_insert(template)
                    }
                }
            }
        };
        let (first, base) = (steps.len(), u32::try_from(steps.len()).unwrap_or(u32::MAX));
        let moved = |step: &Step| {
            let (yes, no) = (step.yes.saturating_add(base), step.no.saturating_add(base));
            Step { yes, no, ..*step }
        };
        steps.extend(template.steps.iter().map(moved));
        if let Some(value) = Value::of(term) {
            for &(at, word) in &template.words {
                let step = steps.get_mut(first + at).zip(value.words.as_slice().get(word));
                if let Some((step, word)) = step {
                    step.k = *word;
                }
            }
        }
        let open =
            |open: &[Open]| open.iter().map(|open| Open { at: first + open.at, ..*open }).collect();
        Ok(Some(Ends { yes: open(&template.yes), no: open(&template.no) }))
    }

    /// The template of conditions that differ only in their values; `None` if their programs differ
    /// in anything else.
    fn kind(&self, shape: &Shape<'_>, tags: u8) -> Result<Option<Template>, BpfError> {
        let placeholder = |start: u32| -> Option<Words> {
            let mut word = start;
            shape.masks.map(|mask| {
                word = word.wrapping_mul(0x0101_0101).wrapping_add(0x1357_9BDF);
                Some(word & mask)
            })
        };
        let (Some(one), Some(two)) = (placeholder(0x5D3B_9A71), placeholder(0xC36E_4F8D)) else {
            return Ok(None);
        };
        let first = self.compile(&shape.with(one), tags)?;
        let second = self.compile(&shape.with(two), tags)?;
        let (Some(mut first), Some(second)) = (first, second) else { return Ok(None) };
        if first.steps.len() != second.steps.len() {
            return Ok(None);
        }
        for (at, (step, other)) in first.steps.iter().zip(&second.steps).enumerate() {
            if (step.code, step.yes, step.no) != (other.code, other.yes, other.no) {
                return Ok(None);
            }
            if step.k == other.k {
                continue;
            }
            let mut words = one.as_slice().iter().zip(two.as_slice());
            let Some(word) = words.position(|pair| pair == (&step.k, &other.k)) else {
                return Ok(None);
            };
            if step.code != Code::AskNumber(Ask::Eq) {
                return Ok(None);
            }
            first.words.push((at, word));
        }
        Ok(Some(first))
    }

    /// The program of a condition behind `tags` VLAN tags; `None` if it cannot be separated from
    /// the tests for the tags.
    fn behind(&self, text: &str, tags: u8) -> Result<Option<Vec<Step>>, BpfError> {
        let compile = |text: &str| Step::compile(text, self.link, self.swapped, false);
        if tags == 0 {
            return compile(text).map(Some);
        }
        let before = vec!["vlan"; tags.into()].join(" and ");
        let (tests, all) = (compile(&before)?, compile(&format!("{before} and ({text})"))?);
        // They end with two returns.
        let skip = tests.len().saturating_sub(2);
        let Some((first, rest)) = all.split_at_checked(skip) else { return Ok(None) };
        let start = u32::try_from(skip).unwrap_or(u32::MAX);
        let is_test = |(step, other): (&Step, &Step)| {
            let is_out = |to: u32| {
                to <= start
                    || matches!(all.get(to as usize), Some(Step { code: Code::Return, k: 0, .. }))
            };
            (step.code, step.k) == (other.code, other.k)
                && (!step.is_ask() || (is_out(step.yes) && is_out(step.no)))
        };
        if !first.iter().zip(&tests).all(is_test) {
            return Ok(None);
        }
        let moved = |step: &Step| {
            let (yes, no) = (step.yes.saturating_sub(start), step.no.saturating_sub(start));
            Step { yes, no, ..*step }
        };
        Ok(Some(rest.iter().map(moved).collect()))
    }

    /// The program of a condition; `None` if it has an end that cannot be continued.
    fn compile(&self, text: &str, tags: u8) -> Result<Option<Template>, BpfError> {
        let Some(mut steps) = self.behind(text, tags)? else { return Ok(None) };
        drop_idle_loads(&mut steps);
        let mut template = Template::default();
        let end = |at: u32| match steps.get(at as usize) {
            Some(Step { code: Code::Return, k, .. }) => Some(*k != 0),
            _ => None,
        };
        for (at, step) in steps.iter().enumerate() {
            let mut step = *step;
            match step.code {
                Code::ReturnA => return Ok(None),
                // A return becomes a test with the same target for both answers.
                Code::Return => {
                    let taken = step.k != 0;
                    step.code = Code::AskNumber(Ask::Eq);
                    let open = if taken { &mut template.yes } else { &mut template.no };
                    open.extend([Open { at, yes: true }, Open { at, yes: false }]);
                }
                Code::AskNumber(_) | Code::AskX(_) => {
                    for (yes, to) in [(true, step.yes), (false, step.no)] {
                        match end(to) {
                            Some(true) => template.yes.push(Open { at, yes }),
                            Some(false) => template.no.push(Open { at, yes }),
                            None => {}
                        }
                    }
                }
                _ => {}
            }
            template.steps.push(step);
        }
        Ok(Some(template))
    }
}

/// Removes loads that no bit is used of, as the optimiser always does: libpcap compares all words
/// of an IPv6 network, even those that the mask makes 0.
fn drop_idle_loads(steps: &mut [Step]) {
    for at in 2..steps.len() {
        let (load, and, ask) = (steps[at - 2], steps[at - 1], steps[at]);
        let idle = matches!(load.code, Code::LoadAt(_) | Code::LoadFrom(_))
            && (and.code, and.k) == (Code::AluNumber(Alu::And), 0)
            && (ask.code, ask.k) == (Code::AskNumber(Ask::Eq), 0);
        if idle {
            steps[at - 2] = Step { no: ask.yes, ..ask };
        }
    }
}

/// A shorter filter: of adjacent conditions that differ only in their values, it has the first two
/// and the last. Only conditions that `may_go` are dropped.
pub(super) fn outline(expr: &Expr, may_go: fn(&Expr) -> bool) -> Expr {
    /// The most kinds that are told apart.
    const KINDS_MAX: usize = 16;
    let few = |parts: &[Expr]| {
        let mut kinds: Vec<(&Expr, Vec<usize>)> = Vec::new();
        let mut kept = vec![true; parts.len()];
        for (at, part) in parts.iter().enumerate().filter(|(_, part)| may_go(part)) {
            let full = kinds.len() == KINDS_MAX;
            match kinds.iter_mut().find(|(kind, _)| is_alike(kind, part)) {
                Some((_, places)) => places.push(at),
                None if full => {}
                None => kinds.push((part, vec![at])),
            }
        }
        for place in kinds.iter().flat_map(|(_, places)| match places.as_slice() {
            [_, _, between @ .., _] => between,
            _ => &[],
        }) {
            kept[*place] = false;
        }
        let few = parts.iter().zip(kept).filter(|(_, kept)| *kept);
        few.map(|(part, _)| outline(part, may_go)).collect()
    };
    match expr {
        Expr::And(parts) => Expr::And(few(parts)),
        Expr::Or(parts) => Expr::Or(few(parts)),
        Expr::Not(part) => Expr::Not(Box::new(outline(part, may_go))),
        Expr::Term(_) => expr.clone(),
    }
}

/// Whether two expressions differ in values only.
fn is_alike(one: &Expr, other: &Expr) -> bool {
    match (one, other) {
        (Expr::And(some), Expr::And(others)) | (Expr::Or(some), Expr::Or(others)) => {
            some.len() == others.len() && some.iter().zip(others).all(|(a, b)| is_alike(a, b))
        }
        (Expr::Not(one), Expr::Not(other)) => is_alike(one, other),
        (Expr::Term(one), Expr::Term(other)) => match (Value::of(one), Value::of(other)) {
            (Some(one), Some(other)) => one.shape == other.shape,
            _ => one.text == other.text && one.shift == other.shift,
        },
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "what is made up is small")]
mod tests {
    use super::super::made::Made;
    use super::*;
    use crate::query::filter::Filter;

    fn expr(text: &str) -> Expr {
        Filter::parse(text, 0).unwrap().expr.unwrap()
    }

    /// What matters of a program: the steps that are reached, in the order in which they are
    /// reached.
    fn reached(steps: &[Step]) -> Vec<(Code, u32)> {
        let (mut seen, mut open) = (vec![false; steps.len()], vec![0]);
        let mut found = Vec::new();
        while let Some(mut at) = open.pop() {
            while !std::mem::replace(&mut seen[at], true) {
                let step = steps[at];
                let always = matches!(step.code, Code::AskNumber(Ask::Eq)) && step.yes == step.no;
                // Words of memory are assigned in turn, and do not matter.
                let memory = [Code::Store, Code::LoadMemory, Code::LoadMemoryX];
                if !always {
                    found.push((step.code, if memory.contains(&step.code) { 0 } else { step.k }));
                }
                at = match step.code {
                    Code::Return | Code::ReturnA => break,
                    Code::AskNumber(_) | Code::AskX(_) => {
                        open.push(step.no as usize);
                        step.yes as usize
                    }
                    Code::Jump => step.yes as usize,
                    _ => at + 1,
                };
            }
        }
        found
    }

    #[test]
    fn programs_put_together_are_those_of_libpcap() {
        let more = "host 10.0.0.1 and host 10.0.0.2 and tcp port 80 and port 1025";
        for text in [
            "tcp",
            "not tcp",
            "host ::1 or host 2001:db8::5 or ether host 02:00:00:00:00:01",
            "not (host ::1 or host ::2) and not ether src 02:00:00:00:00:01",
            "(port 80 or portrange 5-7) and (net 10.0.0.0/8 or src net 2001:db8:5:6:7:8:9::/112)",
            "len > 40 and (tcp[13] & 2 != 0 or icmp or not (udp and dst port 53))",
            "ip6 protochain 6 or (host 10.0.0.1 or (arp and not host 10.0.0.2))",
            "vlan and (host ::1 or port 80 or vlan 5) and not vlan and (tcp or host 10.0.0.1)",
            "tcp or vlan 6 or (ether host 02:00:00:00:00:01 and vlan and tcp[13] = 5)",
            &format!("({more}) or (host 10.0.0.7 and {more}) or ip broadcast"),
        ] {
            let expr = expr(text);
            for link in [LinkType::ETHERNET, LinkType::RAW, LinkType::NULL] {
                let Ok(theirs) = Step::compile(&expr.to_string(), link, false, false) else {
                    assert!(plain(&expr, link, false).is_err(), "{link}: {text}");
                    continue;
                };
                let ours = plain(&expr, link, false).unwrap().unwrap();
                assert_eq!(reached(&ours), reached(&theirs), "{link}: {text}");
            }
        }
    }

    /// Compares with the optimised program of the whole text, on whole frames and cut ones. Returns
    /// whether that program was needed, and how often it matched where the other one did not.
    fn check(text: &str, made: &mut Made, link: LinkType, frames: usize) -> (bool, usize) {
        let expr = expr(text);
        let text = expr.to_string();
        let long = Long::of(&expr, link, false, None);
        let program = Program::compile(&text, link, false);
        let (long, program) = match (long, program) {
            (Ok(long), Ok(program)) => (long, program),
            (Err(ours), Err(theirs)) => {
                assert_eq!(ours.to_string(), theirs.to_string());
                return (false, 0);
            }
            (ours, theirs) => panic!("{link}: {:?}, libpcap: {:?}", ours.err(), theirs.err()),
        };
        let mut saved = 0;
        made.cuts(frames, link, &mut |frame, wire_len| {
            let (ours, theirs) = (long.matches(frame, wire_len), program.matches(frame, wire_len));
            assert_eq!(ours, theirs, "{link}: {frame:02x?}: {text}");
            saved += usize::from(theirs != long.plain.matches(frame, wire_len));
        });
        (long.whole.get().is_some(), saved)
    }

    const KINDS: [&str; 13] = [
        "six host",
        "src six host",
        "dst six host",
        "six nets",
        "ether host",
        "ether src",
        "ends",
        "host",
        "nets",
        "mixed",
        "port",
        "tcp port",
        "arp host",
    ];

    #[test]
    fn long_filters_answer_as_if_optimised() {
        let (mut saved, mut needed) = (0, 0);
        for (seed, count) in [(1, 4), (2, 20), (3, 50)] {
            let mut made = Made::new(seed, count);
            for kind in KINDS {
                let list = made.list(kind).join(" or ");
                let none = format!("not {}", made.list(kind).join(" and not "));
                let several = kind.contains("six") || kind.contains("ether");
                for (at, text) in [
                    list.clone(),
                    format!("not ({list})"),
                    none,
                    format!("tcp and ({list})"),
                    format!("({list}) and not udp"),
                    format!("len > 40 or {list} or icmp"),
                    format!("({list}) and tcp[13] & 2 = 0"),
                    format!("port 80 or {list}"),
                    format!("vlan and ({list})"),
                ]
                .iter()
                .enumerate()
                {
                    let link = [LinkType::ETHERNET, LinkType::RAW, LinkType::NULL];
                    let link = if at % 3 == 0 { link[at / 3] } else { link[0] };
                    let (asked, took) = check(text, &mut made, link, 40);
                    assert!(!(several && asked && link == LinkType::ETHERNET), "{text}");
                    (saved, needed) = (saved + took, needed + usize::from(asked));
                }
            }
        }
        assert!(saved > 1_000 && needed > 50, "{saved} {needed}");
    }

    /// Two lists of different kinds, and what they have in common.
    #[test]
    fn long_filters_of_several_lists() {
        let mut made = Made::new(4, 14);
        for (at, one) in KINDS.iter().enumerate() {
            for two in KINDS.iter().skip(at % 3).step_by(3) {
                let (a, b) = (made.list(one).join(" or "), made.list(two).join(" or "));
                let half = made.list(two)[7..].join(" or ");
                for text in [
                    format!("{a} or {b}"),
                    format!("({a}) and not ({b})"),
                    format!("({a}) and ({half})"),
                    format!("({half}) or ({a} and tcp) or {b}"),
                ] {
                    if super::super::Compiled::is_kept(&expr(&text), LinkType::ETHERNET, false) {
                        check(&text, &mut made, LinkType::ETHERNET, 12);
                    }
                }
            }
        }
    }

    #[test]
    fn lists_of_several_words_need_no_optimiser() {
        let mut made = Made::new(5, 400);
        for kind in ["six host", "six nets", "ether host"] {
            let list = made.list(kind).join(" or ");
            assert!(list.len() > super::super::OPTIMIZED_LEN_MAX);
            for text in [list.clone(), format!("tcp and not ({list})")] {
                assert!(!check(&text, &mut made, LinkType::ETHERNET, 10).0, "{kind}");
            }
        }
    }

    #[test]
    fn what_is_too_long_for_the_optimiser_is_said() {
        static SAID: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
        let mut made = Made::new(6, 800);
        let text = format!("not ({})", made.list("ends").join(" or "));
        let notice: Notice = |text| SAID.lock().unwrap().push(text.to_owned());
        let long = Long::of(&expr(&text), LinkType::ETHERNET, false, Some(notice)).unwrap();
        // Whole, and cut behind its source: nobody knows whether it matches.
        let mut frame = vec![9; 12];
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 1, 0, 0, 9, 1, 1, 1, 9, 1, 1, 2]);
        assert!(long.matches(&frame, 34) && SAID.lock().unwrap().is_empty());
        assert!(!long.matches(&frame[..30], 34) && !long.matches(&frame[..32], 34));
        let said = SAID.lock().unwrap();
        assert!(said.len() == 1 && said[0].contains("too long"), "{said:?}");
    }
}
