//! Display filters of Wireshark, for the fields that are indexed.
//!
//! ```text
//! expression  = alternative *( ("or" | "||") alternative )
//! alternative = operand *( ("and" | "&&") operand )
//! operand     = ("not" | "!") operand | "(" expression ")" | condition
//! condition   = field | field comparison value | field "in" "{" set "}"
//!             | ("communityid" | "community_id") ("==" | "!=") id | "flow" id
//! comparison  = "==" | "eq" | "!=" | "ne" | "<" | "lt" | "<=" | "le" | ">" | "gt" | ">=" | "ge"
//!             | "===" | "all_eq" | "!==" | "any_ne"
//! set         = value [".." value] *( "," value [".." value] )
//! ```
//!
//! A field alone asks whether the packet has it; so `tcp.flags.syn` holds for all of TCP, and
//! `tcp.flags.syn == 1` for packets with the flag. If a packet has a field twice, such as
//! `ip.addr`, the comparison must hold for one of the values; with `!=` and `===` it must hold for
//! all, and the packet must have the field, as in Wireshark 4. `frame.time` and `frame.time_epoch`
//! limit the whole filter, so they stand outside of parentheses, joined with `and`.
//!
//! Source: the manual page wireshark-filter(4).

use super::filter::{Expr, FieldTest, Filter, FilterError, Shift, Syntax, Term, Test};
use crate::community_id::{CommunityId, NotCommunityId};
use crate::fields::{self, Ask, FieldKind, NAMES, Name, Shown};
use crate::packet::Tunnel;
use crate::time::{TimeRange, parse_time};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::{Range, RangeInclusive};

/// The names of a Community ID: that of Wireshark, and one that Zeek and Suricata use.
const COMMUNITY_ID: [&str; 2] = ["communityid", "community_id"];
/// A shorter way to ask for one.
const FLOW: &str = "flow";

/// The most nested parentheses and negations.
const NESTING_MAX: usize = 200;

/// Parses a display filter.
pub(super) fn parse(text: &str, now_ns: u64) -> Result<Filter, FilterError> {
    let mut parser = Parser {
        text,
        now_ns,
        next: Token::End,
        span: 0..0,
        end: 0,
        nesting: 0,
        times: TimeRange::ALL,
    };
    parser.look(0)?;
    let expr = match parser.next {
        Token::End => None,
        _ => parser.any(true)?,
    };
    match parser.next {
        Token::End => {}
        Token::Sign(")") => return parser.error("this parenthesis was not opened"),
        _ => return parser.error("expected `and`, `or` or the end of the filter"),
    }
    let times = parser.times;
    Ok(Filter { syntax: Syntax::Wireshark, expr, times })
}

/// Whether a text has a word that only display filters have: a field with a dot, of a protocol that
/// is known here, the name of a Community ID, or the protocols `ipv6` and `icmpv6`. These two do
/// not count if the text has `proto` or `protochain`: pcap filters have them as well, behind these
/// words and what inherits them.
pub(super) fn is_likely(text: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && !"_.-".contains(c));
    // `ipv6-icmp` is one word, and the name of a protocol.
    let by_number = words.clone().any(|word| matches!(word, "proto" | "protochain"));
    words.any(|word| match word.split_once('.') {
        Some((protocol, rest)) => {
            rest.starts_with(|c: char| c.is_ascii_lowercase())
                && names()
                    .any(|name| name.split_once('.').is_some_and(|(first, _)| first == protocol))
        }
        None if COMMUNITY_ID.contains(&word) => true,
        None if word == FLOW => has_flow(text),
        None => !by_number && (word == "ipv6" || word == "icmpv6"),
    })
}

/// Whether a text has an ID behind the word `flow`; otherwise that may be the name of a host.
fn has_flow(text: &str) -> bool {
    text.match_indices(FLOW).any(|(at, _)| {
        let rest = text[at + FLOW.len()..].trim_start();
        rest.strip_prefix('"').unwrap_or(rest).starts_with("1:")
    })
}

/// The names of all fields.
fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().filter_map(|name| name.wireshark)
}

type Parsed<T> = Result<T, FilterError>;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Token<'t> {
    /// A field, a value, or an operator in letters.
    Word(&'t str),
    /// The text in quotes.
    Quoted(&'t str),
    /// A sign; the words for `and`, `or`, `not` and the comparisons are signs too.
    Sign(&'static str),
    End,
}

const SIGNS: [(&str, &str); 19] = [
    ("===", "==="),
    ("!==", "!=="),
    ("==", "=="),
    ("!=", "!="),
    ("<=", "<="),
    (">=", ">="),
    ("&&", "and"),
    ("||", "or"),
    ("<", "<"),
    (">", ">"),
    ("!", "not"),
    ("(", "("),
    (")", ")"),
    ("{", "{"),
    ("}", "}"),
    (",", ","),
    ("=", "="),
    ("&", "&"),
    ("~", "~"),
];

const WORDS: [(&str, &str); 15] = [
    ("and", "and"),
    ("or", "or"),
    ("not", "not"),
    ("in", "in"),
    ("eq", "=="),
    ("any_eq", "=="),
    ("ne", "!="),
    ("all_ne", "!="),
    ("all_eq", "==="),
    ("any_ne", "!=="),
    ("lt", "<"),
    ("le", "<="),
    ("gt", ">"),
    ("ge", ">="),
    ("matches", "~"),
];

struct Parser<'t> {
    text: &'t str,
    now_ns: u64,
    next: Token<'t>,
    span: Range<usize>,
    end: usize,
    nesting: usize,
    times: TimeRange,
}

impl<'t> Parser<'t> {
    fn look(&mut self, at: usize) -> Parsed<()> {
        let rest = self.text.get(at..).unwrap_or("");
        let body = rest.trim_start();
        let start = at + rest.len() - body.len();
        let is_word = |c: char| c.is_ascii_alphanumeric() || "_.:/-+".contains(c);
        let len = body.find(|c: char| !is_word(c)).unwrap_or(body.len());
        (self.next, self.span) = if body.is_empty() {
            (Token::End, self.text.len()..self.text.len())
        } else if len > 0 {
            let word = body.get(..len).unwrap_or("");
            let sign = WORDS.iter().find(|(name, _)| *name == word);
            let token = sign.map_or(Token::Word(word), |(_, sign)| Token::Sign(sign));
            (token, start..start + len)
        } else if let Some(quoted) = body.strip_prefix('"') {
            let Some(len) = quoted.find('"') else {
                self.span = start..start + 1;
                return self.error("this quote is not closed");
            };
            (Token::Quoted(quoted.get(..len).unwrap_or("")), start..start + len + 2)
        } else if let Some((sign, name)) = SIGNS.iter().find(|(sign, _)| body.starts_with(sign)) {
            (Token::Sign(name), start..start + sign.len())
        } else {
            let first = body.chars().next().unwrap_or(' ');
            self.span = start..start + first.len_utf8();
            let message = format!("`{}` has no meaning in a filter", first.escape_default());
            return self.error(message);
        };
        Ok(())
    }

    fn step(&mut self) -> Parsed<()> {
        self.end = self.span.end;
        self.look(self.span.end)
    }

    fn take(&mut self, sign: &str) -> Parsed<bool> {
        let is = matches!(self.next, Token::Sign(next) if next == sign);
        if is {
            self.step()?;
        }
        Ok(is)
    }

    fn error<T>(&self, message: impl Into<String>) -> Parsed<T> {
        Err(FilterError { message: message.into(), span: self.span.clone() })
    }

    /// Alternatives. `None` if there was nothing but times.
    fn any(&mut self, top: bool) -> Parsed<Option<Expr>> {
        let start = self.span.start;
        let (first, timed) = self.all(top)?;
        if !matches!(self.next, Token::Sign("or")) {
            return Ok(first);
        }
        if timed {
            let span = start..self.end;
            return Err(FilterError { message: TIME_PLACE.to_owned(), span });
        }
        let mut list = Vec::new();
        push(&mut list, first, false);
        while self.take("or")? {
            let (next, _) = self.all(false)?;
            push(&mut list, next, false);
        }
        Ok(Some(Expr::Or(list)))
    }

    /// Conditions that all hold, and whether a time was among them.
    fn all(&mut self, top: bool) -> Parsed<(Option<Expr>, bool)> {
        let mut list = Vec::new();
        let mut timed = false;
        loop {
            let operand = self.operand(top)?;
            timed |= operand.is_none();
            push(&mut list, operand, true);
            if !self.take("and")? {
                break;
            }
        }
        let expr = if list.len() > 1 { Some(Expr::And(list)) } else { list.pop() };
        Ok((expr, timed))
    }

    /// A condition, with the negations before it; `None` for a time.
    fn operand(&mut self, top: bool) -> Parsed<Option<Expr>> {
        if self.nesting > NESTING_MAX {
            return self.error(too_deep());
        }
        self.nesting += 1;
        let open = self.span.clone();
        let operand = if self.take("not")? {
            self.operand(false)?.map(|expr| Expr::Not(Box::new(expr)))
        } else if self.take("(")? {
            let inner = self.any(false)?;
            if !self.take(")")? {
                return match self.next {
                    Token::End => Err(FilterError {
                        message: "this parenthesis is not closed".to_owned(),
                        span: open,
                    }),
                    _ => self.error("expected `and`, `or` or `)`"),
                };
            }
            inner
        } else {
            self.condition(top)?
        };
        self.nesting -= 1;
        Ok(operand)
    }

    fn condition(&mut self, top: bool) -> Parsed<Option<Expr>> {
        let span = self.span.clone();
        let Token::Word(word) = self.next else {
            return self.error("expected a field, such as `ip.addr`");
        };
        if COMMUNITY_ID.contains(&word) || word == FLOW {
            return self.flow(word).map(Some);
        }
        let Some(name) = fields::wireshark(word) else {
            let nearest = nearest(word);
            return self.error(format!("there is no field `{word}`; do you mean `{nearest}`?"));
        };
        self.step()?;
        let Token::Sign(sign) = self.next else {
            return Ok(Some(present(name, span)?));
        };
        if !matches!(sign, "==" | "!=" | "===" | "!==" | "<" | "<=" | ">" | ">=" | "in") {
            if sign == "=" {
                return self.error("write `==` to compare");
            }
            if matches!(sign, "&" | "~") {
                return self.error("only `==`, `!=`, `<`, `<=`, `>`, `>=` and `in` are known here");
            }
            return Ok(Some(present(name, span)?));
        }
        if name.ask == Ask::Presence {
            return self.error(format!("`{word}` is a protocol: it has no value to compare"));
        }
        self.step()?;
        if name.ask == Ask::Time {
            if !top {
                return Err(FilterError { message: TIME_PLACE.to_owned(), span });
            }
            return self.time(word, sign).map(|()| None);
        }
        let values = if sign == "in" { self.set(name)? } else { self.value(name, sign)? };
        let span = span.start..self.end;
        if matches!(sign, "!=" | "===") && self.nesting + 3 > NESTING_MAX {
            // The expression that it expands to needs parentheses of its own.
            return Err(FilterError { message: too_deep(), span });
        }
        let field = |values: Vec<RangeInclusive<u128>>, text: String| {
            let test = Test::Field(FieldTest { field: name, values });
            Expr::Term(Term { span: span.clone(), shift: Shift::Tags(0), test, text })
        };
        let all = || field(vec![0..=u128::MAX], word.to_owned());
        let equal = |values: Vec<RangeInclusive<u128>>| {
            let text = shown(name, &values);
            field(values, text)
        };
        Ok(Some(match sign {
            "!=" => Expr::And(vec![all(), Expr::Not(Box::new(equal(values)))]),
            "===" => {
                let others = complement(&values, most(name));
                Expr::And(vec![all(), Expr::Not(Box::new(equal(others)))])
            }
            "!==" => equal(complement(&values, most(name))),
            _ => equal(values),
        }))
    }

    /// A Community ID behind its name, which is next.
    fn flow(&mut self, name: &str) -> Parsed<Expr> {
        let start = self.span.start;
        self.step()?;
        let equal = match self.next {
            _ if name == FLOW => true,
            Token::Sign("==" | "===") => true,
            Token::Sign("!=" | "!==") => false,
            _ => return self.error(format!("expected `==` or `!=` after `{name}`")),
        };
        if name != FLOW {
            self.step()?;
        }
        let (Token::Word(word) | Token::Quoted(word)) = self.next else {
            return self.error(NotCommunityId.to_string());
        };
        // Without quotes, the sign at its end is a token of its own.
        let is_open = matches!(self.next, Token::Word(_));
        let id: Result<CommunityId, _> = match is_open {
            true => format!("{word}=").parse(),
            false => word.parse(),
        };
        let Ok(id) = id else { return self.error(NotCommunityId.to_string()) };
        self.step()?;
        if is_open && !self.take("=")? {
            return self.error(NotCommunityId.to_string());
        }
        let sign = if equal { "==" } else { "!=" };
        let text = format!("{} {sign} \"{id}\"", COMMUNITY_ID[0]);
        let (span, test) = (start..self.end, Test::Flow { id, equal });
        Ok(Expr::Term(Term { span, shift: Shift::Tags(0), test, text }))
    }

    /// The value behind a comparison, as the values that compare so.
    fn value(&mut self, name: &Name, sign: &str) -> Parsed<Vec<RangeInclusive<u128>>> {
        let word = match self.next {
            Token::Word(word) | Token::Quoted(word) => word,
            _ => return self.error(format!("expected {} after `{sign}`", form(name))),
        };
        let range = match range(name, word) {
            Ok(range) => range,
            Err(message) => return self.error(message),
        };
        let (least, greatest) = (*range.start(), *range.end());
        if least != greatest && !matches!(sign, "==" | "!=" | "===" | "!==") {
            return self.error(format!("a network has no order: `{sign}` needs an address"));
        }
        self.step()?;
        let most = most(name);
        let values = match sign {
            "<" => (least > 0).then(|| 0..=least - 1),
            "<=" => Some(0..=least),
            ">" => (least < most).then(|| least + 1..=most),
            ">=" => Some(least..=most),
            _ => Some(range),
        };
        Ok(values.into_iter().collect())
    }

    /// A set in braces.
    fn set(&mut self, name: &Name) -> Parsed<Vec<RangeInclusive<u128>>> {
        if !self.take("{")? {
            return self.error("expected `{` and values, such as `{80, 443, 8000..8080}`");
        }
        let mut values = Vec::new();
        loop {
            let word = match self.next {
                Token::Word(word) | Token::Quoted(word) => word,
                _ => return self.error(format!("expected {} or `}}`", form(name))),
            };
            let parsed = match word.split_once("..") {
                Some((first, last)) => range(name, first).and_then(|first| {
                    let last = range(name, last)?;
                    if first.start() > last.end() {
                        return Err("the range ends before it starts".to_owned());
                    }
                    Ok(*first.start()..=*last.end())
                }),
                None => range(name, word),
            };
            match parsed {
                Ok(range) => values.push(range),
                Err(message) => return self.error(message),
            }
            self.step()?;
            self.take(",")?;
            if self.take("}")? {
                return Ok(merged(values));
            }
        }
    }

    /// A time behind a comparison.
    fn time(&mut self, name: &str, sign: &str) -> Parsed<()> {
        let word = match self.next {
            Token::Word(word) | Token::Quoted(word) => word,
            _ => {
                return self.error(format!("expected a time after `{name}`, in quotes"));
            }
        };
        let time = match parse_time(word, self.now_ns, false) {
            Ok(time) => time,
            Err(error) => return self.error(error.to_string()),
        };
        let behind = time.saturating_add(1);
        let (from_ns, to_ns) = match sign {
            "==" | "===" => (time, Some(behind)),
            "<" => (0, Some(time)),
            "<=" => (0, Some(behind)),
            ">" => (behind, None),
            ">=" => (time, None),
            _ => return self.error("times go with `==`, `<`, `<=`, `>` and `>=`"),
        };
        self.step()?;
        self.times = self.times.and(TimeRange { from_ns, to_ns });
        Ok(())
    }
}

const TIME_PLACE: &str = "times limit the whole filter: join `frame.time` to it with `and`, \
                          outside of parentheses, and put parentheses around an `or`";

fn too_deep() -> String {
    format!("more than {NESTING_MAX} parentheses and negations within each other")
}

/// Adds an expression to a list; the parts of an inner list with the same operator are added one by
/// one.
fn push(list: &mut Vec<Expr>, expr: Option<Expr>, and: bool) {
    match (expr, and) {
        (Some(Expr::And(inner)), true) | (Some(Expr::Or(inner)), false) => list.extend(inner),
        (Some(expr), _) => list.push(expr),
        (None, _) => {}
    }
}

/// A field that has to be there.
fn present(name: &'static Name, span: Range<usize>) -> Parsed<Expr> {
    let text = name.wireshark.unwrap_or_default();
    if name.ask == Ask::Time {
        let message = format!("every packet has a time: compare `{text}` with one");
        return Err(FilterError { message, span });
    }
    let test = Test::Field(FieldTest { field: name, values: vec![0..=u128::MAX] });
    Ok(Expr::Term(Term { span, shift: Shift::Tags(0), test, text: text.to_owned() }))
}

/// The greatest value of a field.
fn most(name: &Name) -> u128 {
    name.kind().map_or(u128::MAX, FieldKind::most)
}

/// What is written behind a field.
fn form(name: &Name) -> &'static str {
    match (name.ask, name.kind()) {
        (Ask::Bit(_), _) => "1 or 0",
        (Ask::Time, _) => "a time",
        (_, Some(FieldKind::Ipv4)) => "an IPv4 address or network",
        (_, Some(FieldKind::Ipv6)) => "an IPv6 address or network",
        (_, Some(FieldKind::Mac)) => "a MAC address",
        (_, Some(FieldKind::Tunnel)) => "`ip`, `gre`, `vxlan`, `gtp` or a number",
        _ => "a number",
    }
}

/// A value, or all values of a network.
fn range(name: &Name, word: &str) -> Result<RangeInclusive<u128>, String> {
    let error = || format!("expected {}", form(name));
    let one = |value: Option<u128>| value.map(|value| value..=value).ok_or_else(error);
    let prefix = |len: Option<&str>, bits: u32| -> Result<u128, String> {
        let Some(len) = len else { return Ok(0) };
        let len = len.parse::<u32>().ok().filter(|len| *len <= bits);
        let len = len.ok_or_else(|| format!("the prefix has at most {bits} bits"))?;
        Ok(1_u128.checked_shl(bits - len).map_or(u128::MAX, |size| size - 1))
    };
    let (address, len) = match word.split_once('/') {
        Some((address, len)) => (address, Some(len)),
        None => (word, None),
    };
    match (name.ask, name.kind()) {
        (Ask::Bit(_), _) => one(match word {
            "true" | "True" | "TRUE" => Some(1),
            "false" | "False" | "FALSE" => Some(0),
            _ => number(word).filter(|value| *value <= 1),
        }),
        (_, Some(FieldKind::Ipv4)) => {
            let address: Ipv4Addr = address.parse().map_err(|_| error())?;
            let rest = prefix(len, 32)?;
            let first = u128::from(address.to_bits()) & !rest;
            Ok(first..=first | rest)
        }
        (_, Some(FieldKind::Ipv6)) => {
            let address: Ipv6Addr = address.parse().map_err(|_| error())?;
            let rest = prefix(len, 128)?;
            let first = address.to_bits() & !rest;
            Ok(first..=first | rest)
        }
        (_, Some(FieldKind::Mac)) => one(mac(word)),
        (_, Some(FieldKind::Tunnel)) => {
            let named = Tunnel::of_name(word).map(|tunnel| tunnel as u128);
            one(named.or_else(|| number(word).filter(|value| *value <= most(name))))
        }
        _ => match number(word) {
            Some(value) if value > most(name) => {
                Err(format!("`{word}` is too large: the field ends at {}", most(name)))
            }
            value => one(value),
        },
    }
}

/// A number: `0x` makes it hexadecimal, a leading zero octal.
fn number(word: &str) -> Option<u128> {
    let (digits, radix) = match word.as_bytes() {
        [b'0', b'x' | b'X', ..] => (word.get(2..)?, 16),
        [b'0', _, ..] => (word.get(1..)?, 8),
        _ => (word, 10),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    u128::from_str_radix(digits, radix).ok()
}

/// Six bytes with `:`, `-` or `.` between them, or twelve digits with dots.
fn mac(word: &str) -> Option<u128> {
    let parts: Vec<&str> = word.split([':', '-', '.']).collect();
    let sizes = match parts.len() {
        6 => 1..=2,
        3 => 4..=4,
        _ => return None,
    };
    let step = if parts.len() == 6 { 8 } else { 16 };
    parts.iter().try_fold(0, |sum, part| {
        let hex = sizes.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = u128::from_str_radix(part, 16).ok().filter(|_| hex)?;
        Some(sum << step | value)
    })
}

/// Ranges in order, those that touch made one.
fn merged(mut values: Vec<RangeInclusive<u128>>) -> Vec<RangeInclusive<u128>> {
    values.sort_by_key(|range| *range.start());
    let mut merged: Vec<RangeInclusive<u128>> = Vec::with_capacity(values.len());
    for range in values {
        match merged.last_mut() {
            Some(last) if *range.start() <= last.end().saturating_add(1) => {
                *last = *last.start()..=*last.end().max(range.end());
            }
            _ => merged.push(range),
        }
    }
    merged
}

/// All values up to `most` that are in none of the ranges.
fn complement(values: &[RangeInclusive<u128>], most: u128) -> Vec<RangeInclusive<u128>> {
    let mut rest = Vec::new();
    let mut next = Some(0);
    for range in values {
        if let Some(start) = next.filter(|start| start < range.start()) {
            rest.push(start..=range.start() - 1);
        }
        next = range.end().checked_add(1);
    }
    if let Some(start) = next.filter(|start| *start <= most) {
        rest.push(start..=most);
    }
    rest
}

/// The text of a field that has one of the values.
fn shown(name: &Name, values: &[RangeInclusive<u128>]) -> String {
    let value = |value: u128| match name.kind() {
        Some(kind @ (FieldKind::Ipv4 | FieldKind::Ipv6 | FieldKind::Mac)) => {
            Shown(kind, value).to_string()
        }
        _ => value.to_string(),
    };
    let (most, name) = (most(name), name.wireshark.unwrap_or_default());
    match values {
        // No value is less than 0: this matches nothing, like the original text.
        [] => format!("{name} < {}", value(0)),
        [range] if range.start() == range.end() => format!("{name} == {}", value(*range.start())),
        [range] if *range.start() == 0 => format!("{name} <= {}", value(*range.end())),
        [range] if *range.end() == most => format!("{name} >= {}", value(*range.start())),
        _ => {
            let range = |range: &RangeInclusive<u128>| match range.start() == range.end() {
                true => value(*range.start()),
                false => format!("{}..{}", value(*range.start()), value(*range.end())),
            };
            format!("{name} in {{{}}}", values.iter().map(range).collect::<Vec<_>>().join(", "))
        }
    }
}

/// The known field whose name differs in the fewest letters.
fn nearest(word: &str) -> &'static str {
    // Nobody mistypes more than this, and the work grows with both lengths.
    let word: Vec<char> = word.chars().take(40).collect();
    let distance = |name: &str| {
        let mut row: Vec<usize> = (0..=word.len()).collect();
        for (at, letter) in name.chars().enumerate() {
            let mut diagonal = at;
            let mut left = at + 1;
            for (typed, above) in word.iter().zip(row.iter_mut().skip(1)) {
                let change = diagonal + usize::from(*typed != letter);
                diagonal = *above;
                left = change.min(*above + 1).min(left + 1);
                *above = left;
            }
            if let Some(first) = row.first_mut() {
                *first = at + 1;
            }
        }
        row.last().copied().unwrap_or(usize::MAX)
    };
    names().min_by_key(|name| distance(name)).unwrap_or("ip.addr")
}
