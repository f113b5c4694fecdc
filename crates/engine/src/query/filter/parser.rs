//! The grammar of pcap-filter(7), as libpcap parses it.
//!
//! `not` binds tightest; `and` and `or` bind alike, and to the left. An id that follows `and` or
//! `or` without qualifiers inherits those of the condition before it; a parenthesis inherits those
//! before it, and what follows a parenthesis inherits them too.

use super::arithmetic::{self, Arithmetic, Operator};
use super::lexer::{Token, token};
use super::primitive::{self, End, Id, Made, Place, Qualifiers, TypeQualifier};
use super::{Expr, Filter, FilterError, Shift, Syntax, Term, Test};
use crate::query::deep::on_large_stack;
use crate::time::{TimeRange, parse_time};
use std::ops::Range;

/// The most nested parentheses, brackets and negations. libpcap has room for 10,000 of them and
/// what is between them.
const NESTING_MAX: usize = 5_000;
/// This many of them fit on any stack.
const NESTING_SMALL: usize = 100;
/// The most nested expressions. A filter that alternates `and` and `or` is nested as deeply as it
/// has turns.
const TURNS_MAX: usize = 5_000;
/// How many of those levels are parsed into an expression. Deeper ones are left to libpcap's
/// program.
const DEPTH_MAX: usize = 500;
/// The most operators in a comparison.
const OPERATORS_MAX: usize = 2_000;

/// Parses a filter.
pub(super) fn parse(text: &str, now_ns: u64) -> Result<Filter, FilterError> {
    let signs = text.bytes().filter(|byte| b"([!".contains(byte)).count();
    if signs + text.matches("not").count() <= NESTING_SMALL {
        return parse_here(text, now_ns);
    }
    on_large_stack(|| parse_here(text, now_ns)).unwrap_or_else(|error| {
        let message = format!("no thread for a filter with so many parentheses: {error}");
        Err(FilterError { message, span: 0..text.len() })
    })
}

fn parse_here(text: &str, now_ns: u64) -> Result<Filter, FilterError> {
    let mut parser = Parser::new(text, now_ns)?;
    let expr = parser.filter()?;
    Ok(Filter { syntax: Syntax::Pcap, expr, times: parser.times })
}

pub(super) type Parsed<T> = Result<T, FilterError>;

/// An expression, and how deeply it is nested: as far as parsed, and in all.
pub(super) struct Node {
    expr: Expr,
    depth: usize,
    turns: usize,
}

/// Where ids may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ids {
    /// They may not.
    None,
    /// They may, but not in parentheses of their own.
    Bare,
    /// They may.
    Any,
}

/// What is allowed at a place.
#[derive(Debug, Clone, Copy)]
struct Allowed {
    terms: bool,
    ids: Ids,
}

/// What was found there.
pub(super) enum Operand {
    /// A condition of its own, and the qualifiers that it passes on.
    Term(Node, Option<Qualifiers>),
    /// An id with the qualifiers that it inherited.
    Id(Node),
    /// A number, which may be an id.
    Number(u32, Range<usize>),
    /// Arithmetic without a comparison so far.
    Arithmetic(Arithmetic),
    /// A time, which is kept elsewhere.
    Time,
}

/// The contents of parentheses, or the whole text.
enum Chain {
    /// Conditions; none if there were only times.
    Terms(Option<Node>),
    /// Ids, all with the qualifiers that they inherited.
    Ids(Node),
    /// A single number.
    Number(u32, Range<usize>),
    /// Arithmetic without a comparison so far.
    Arithmetic(Arithmetic),
}

/// An operator that waits for its right side.
enum Waiting {
    Negation,
    Left(Arithmetic, Operator),
}

/// The text, and how far it was read.
pub(super) struct Parser<'t> {
    pub(super) text: &'t str,
    now_ns: u64,
    /// The token that is next, and its place.
    pub(super) next: Token<'t>,
    pub(super) span: Range<usize>,
    /// The end of the token before it.
    end: usize,
    pub(super) place: Place,
    nesting: usize,
    times: TimeRange,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str, now_ns: u64) -> Parsed<Self> {
        let mut parser = Self {
            text,
            now_ns,
            next: Token::End,
            span: 0..0,
            end: 0,
            place: Place::new(),
            nesting: 0,
            times: TimeRange::ALL,
        };
        parser.look(0)?;
        Ok(parser)
    }

    /// Makes the token at or behind `at` the next one.
    pub(super) fn look(&mut self, at: usize) -> Parsed<()> {
        (self.next, self.span) = token(self.text, at)?;
        Ok(())
    }

    pub(super) fn step(&mut self) -> Parsed<()> {
        self.end = self.span.end;
        self.look(self.span.end)
    }

    pub(super) fn is_key(&self, key: &str) -> bool {
        matches!(self.next, Token::Key(next) if next == key)
    }

    pub(super) fn is_sign(&self, sign: &str) -> bool {
        matches!(self.next, Token::Sign(next) if next == sign)
    }

    pub(super) fn take_sign(&mut self, sign: &str) -> Parsed<bool> {
        let is = self.is_sign(sign);
        if is {
            self.step()?;
        }
        Ok(is)
    }

    pub(super) fn error<T>(&self, message: impl Into<String>) -> Parsed<T> {
        Err(FilterError { message: message.into(), span: self.span.clone() })
    }

    pub(super) fn expected<T>(&self, what: &str) -> Parsed<T> {
        self.error(format!("expected {what}"))
    }

    fn since(&self, start: usize) -> Range<usize> {
        start..self.end.max(start)
    }

    /// The whole text.
    fn filter(&mut self) -> Parsed<Option<Expr>> {
        if self.next == Token::End {
            return Ok(None);
        }
        let chain = self.chain(Allowed { terms: true, ids: Ids::None }, None, true)?;
        if self.next != Token::End {
            return match self.is_sign(")") {
                true => self.error("this parenthesis was not opened"),
                false => self.expected("`and`, `or` or the end of the filter"),
            };
        }
        match chain {
            Chain::Terms(node) => Ok(node.map(|node| node.expr)),
            Chain::Ids(node) => Ok(Some(node.expr)),
            Chain::Number(_, span) => {
                let message = "put `port`, `host` or `net` before the number, or compare it";
                Err(FilterError { message: message.to_owned(), span })
            }
            Chain::Arithmetic(_) => self.expected(COMPARISON),
        }
    }

    /// Operands with `and` and `or` between them.
    fn chain(
        &mut self,
        allowed: Allowed,
        inherited: Option<Qualifiers>,
        top: bool,
    ) -> Parsed<Chain> {
        let start = self.span.start;
        let mut timed: Option<Range<usize>> = None;
        let (mut chain, mut qualifiers, only_ids) = match self.operand(allowed, inherited, top)? {
            Operand::Term(node, qualifiers) => (Some(node), qualifiers, false),
            Operand::Id(node) => (Some(node), inherited, true),
            Operand::Time => {
                timed = Some(self.since(start));
                (None, inherited, false)
            }
            Operand::Arithmetic(arithmetic) => return Ok(Chain::Arithmetic(arithmetic)),
            Operand::Number(value, span) => {
                let joined = self.is_key("and") || self.is_key("or");
                if !joined || allowed.ids == Ids::None {
                    return Ok(Chain::Number(value, span));
                }
                (Some(self.id_node(Id::Number(value), inherited, span)?), inherited, true)
            }
        };
        loop {
            let and = self.is_key("and");
            if !and && !self.is_key("or") {
                break;
            }
            if let (false, Some(span)) = (and, timed.clone()) {
                return Err(FilterError { message: TIME_PLACE.to_owned(), span });
            }
            self.step()?;
            let allowed = Allowed { terms: !only_ids, ids: Ids::Any };
            let start = self.span.start;
            let (node, handed) = match self.operand(allowed, qualifiers, top && and)? {
                Operand::Term(node, handed) => (node, handed),
                Operand::Id(node) => (node, qualifiers),
                Operand::Number(value, span) => {
                    (self.id_node(Id::Number(value), qualifiers, span)?, qualifiers)
                }
                Operand::Arithmetic(_) => return self.expected(COMPARISON),
                Operand::Time => {
                    timed = Some(self.since(start));
                    continue;
                }
            };
            qualifiers = handed;
            chain = Some(match chain {
                Some(chain) => self.join(chain, node, and)?,
                None => node,
            });
        }
        Ok(match chain {
            Some(node) if only_ids => Chain::Ids(node),
            chain => Chain::Terms(chain),
        })
    }

    /// A condition, an id or arithmetic, with the negations before it.
    fn operand(
        &mut self,
        allowed: Allowed,
        inherited: Option<Qualifiers>,
        top: bool,
    ) -> Parsed<Operand> {
        match self.next {
            Token::Key("not") => {
                let start = self.span.start;
                self.enter()?;
                self.step()?;
                let ids = if allowed.ids == Ids::None { Ids::None } else { Ids::Any };
                let inner = self.operand(Allowed { ids, ..allowed }, inherited, false)?;
                self.nesting -= 1;
                match inner {
                    Operand::Term(node, handed) => Ok(Operand::Term(self.not(node)?, handed)),
                    Operand::Id(node) => Ok(Operand::Id(self.not(node)?)),
                    Operand::Number(value, span) if ids == Ids::Any => {
                        let node = self.id_node(Id::Number(value), inherited, span)?;
                        Ok(Operand::Id(self.not(node)?))
                    }
                    Operand::Number(..) | Operand::Arithmetic(_) => self.expected(COMPARISON),
                    Operand::Time => {
                        let (message, span) = (TIME_PLACE.to_owned(), self.since(start));
                        Err(FilterError { message, span })
                    }
                }
            }
            Token::Sign("(") => self.parentheses(allowed, inherited),
            Token::Number(value) => {
                let span = self.span.clone();
                self.step()?;
                self.after_number(value, span, allowed)
            }
            Token::Name(word @ ("after" | "before" | "start" | "end")) => {
                if !top {
                    return self.error(TIME_PLACE);
                }
                self.time(word)
            }
            Token::Dotted(_)
            | Token::Six(_)
            | Token::Mac(_)
            | Token::Arcnet(_)
            | Token::Name(_)
                if allowed.ids != Ids::None =>
            {
                let start = self.span.start;
                let id = self.id_token()?;
                let span = self.since(start);
                Ok(Operand::Id(self.id_node(id, inherited, span)?))
            }
            Token::Name(name) if allowed.terms => self.error(format!(
                "`{name}` is not the start of a condition: put `host`, `port` or another \
                 qualifier before it"
            )),
            Token::Dotted(_) | Token::Six(_) if allowed.terms => {
                self.error("put `host` or `net` before the address")
            }
            Token::Mac(_) | Token::Arcnet(_) if allowed.terms => {
                self.error("put `ether host` before the address")
            }
            Token::Key("len") | Token::Sign("-") if allowed.terms => {
                let start = self.span.start;
                let first = self.arithmetic(None)?;
                self.relation(first, start)
            }
            Token::Proto(name) if allowed.terms => self.after_proto(name),
            Token::Key(key) if allowed.terms && key != "and" && key != "or" && key != "mask" => {
                let start = self.span.start;
                self.primitive(key, start)
            }
            _ => match inherited {
                Some(qualifiers) if !allowed.terms => {
                    self.expected(primitive::expected(qualifiers.kind))
                }
                _ => self.expected("a condition, such as `tcp` or `host 10.0.0.1`"),
            },
        }
    }

    /// The contents of parentheses: conditions, ids or arithmetic.
    fn parentheses(&mut self, allowed: Allowed, inherited: Option<Qualifiers>) -> Parsed<Operand> {
        let open = self.span.clone();
        self.enter()?;
        self.step()?;
        let ids = if allowed.ids == Ids::Any { Ids::Bare } else { Ids::None };
        let chain = self.chain(Allowed { ids, ..allowed }, inherited, false)?;
        if !self.is_sign(")") {
            return match self.next {
                Token::End => Err(FilterError {
                    message: "this parenthesis is not closed".to_owned(),
                    span: open,
                }),
                _ => self.expected("`and`, `or` or `)`"),
            };
        }
        self.step()?;
        self.nesting -= 1;
        match chain {
            Chain::Terms(Some(node)) => Ok(Operand::Term(node, inherited)),
            Chain::Terms(None) => self.error(TIME_PLACE),
            Chain::Ids(node) => Ok(Operand::Id(node)),
            Chain::Number(value, _) => {
                let span = self.since(open.start);
                self.after_number(value, span, allowed)
            }
            Chain::Arithmetic(first) => {
                let rest = self.arithmetic(Some(first))?;
                self.relation(rest, open.start)
            }
        }
    }

    /// A number is an id, or the start of arithmetic.
    fn after_number(
        &mut self,
        value: u32,
        span: Range<usize>,
        allowed: Allowed,
    ) -> Parsed<Operand> {
        let goes_on = matches!(self.next, Token::Sign(sign)
            if Operator::of(sign).is_some() || arithmetic::comparison(sign).is_some());
        if !allowed.terms || !goes_on {
            return Ok(Operand::Number(value, span));
        }
        self.register(&span)?;
        let first = self.arithmetic(Some(Arithmetic::number(value)))?;
        self.relation(first, span.start)
    }

    /// The comparison behind arithmetic, if there is one.
    fn relation(&mut self, left: Arithmetic, start: usize) -> Parsed<Operand> {
        let Token::Sign(sign) = self.next else { return Ok(Operand::Arithmetic(left)) };
        let Some(comparison) = arithmetic::comparison(sign) else {
            return Ok(Operand::Arithmetic(left));
        };
        self.step()?;
        let right = self.arithmetic(None)?;
        self.place.free_register();
        self.place.free_register();
        let span = self.since(start);
        if self.nesting + left.nesting().max(right.nesting()) > NESTING_MAX {
            return Err(FilterError { message: too_deep(), span });
        }
        let shift = self.place.shift;
        let (test, text) = left.compared(comparison, &right);
        Ok(condition(span, shift, test, text))
    }

    /// Arithmetic, up to a sign that is no operator.
    fn arithmetic(&mut self, first: Option<Arithmetic>) -> Parsed<Arithmetic> {
        let start = self.span.start;
        let mut first = first;
        let mut waiting = Vec::new();
        loop {
            let mut value = match first.take() {
                Some(first) => first,
                None => {
                    while self.take_sign("-")? {
                        waiting.push(Waiting::Negation);
                    }
                    self.atom()?
                }
            };
            let operator = match self.next {
                Token::Sign(sign) => Operator::of(sign),
                _ => None,
            };
            while let Some(before) = waiting.pop() {
                let goes_first = match (&before, operator) {
                    (_, None) => true,
                    (Waiting::Negation, Some(next)) => next.follows_negation(),
                    (Waiting::Left(_, own), Some(next)) => own.goes_before(next),
                };
                if !goes_first {
                    waiting.push(before);
                    break;
                }
                value = match before {
                    Waiting::Negation => value.negated(),
                    Waiting::Left(left, operator) => {
                        self.place.free_register();
                        let span = self.since(start);
                        let joined = left.joined(operator, &value);
                        joined.map_err(|message| FilterError { message: message.into(), span })?
                    }
                };
                if value.operators() > OPERATORS_MAX {
                    return self.error(format!(
                        "a comparison has at most {OPERATORS_MAX} operators: cut it into several"
                    ));
                }
            }
            let Some(operator) = operator else { return Ok(value) };
            self.step()?;
            waiting.push(Waiting::Left(value, operator));
        }
    }

    /// A number, `len`, bytes of a header, or arithmetic in parentheses.
    fn atom(&mut self) -> Parsed<Arithmetic> {
        let span = self.span.clone();
        match self.next {
            Token::Number(value) => {
                self.step()?;
                self.register(&span)?;
                Ok(Arithmetic::number(value))
            }
            Token::Key("len") => {
                self.step()?;
                self.register(&span)?;
                Ok(Arithmetic::length())
            }
            Token::Sign("(") => {
                self.enter()?;
                self.step()?;
                let inner = self.arithmetic(None)?;
                if !self.is_sign(")") {
                    return self.expected("an operator or `)`");
                }
                self.step()?;
                self.nesting -= 1;
                Ok(inner)
            }
            Token::Proto(proto) => {
                self.step()?;
                if !self.is_sign("[") {
                    return self.expected(&format!("`[` and an offset after `{proto}`"));
                }
                self.bytes(proto, span)
            }
            _ => self.expected("a number, `len` or bytes of a header, such as `ip[8]`"),
        }
    }

    /// Bytes of a header, from the `[` on.
    fn bytes(&mut self, proto: &'static str, named: Range<usize>) -> Parsed<Arithmetic> {
        self.enter()?;
        self.step()?;
        let index = self.arithmetic(None)?;
        let mut size = 1;
        if self.take_sign(":")? {
            size = match self.next {
                Token::Number(size @ (1 | 2 | 4)) => size,
                _ => return self.expected("1, 2 or 4 bytes"),
            };
            self.step()?;
        }
        if !self.is_sign("]") {
            return self.expected("an operator, `:` and a number of bytes, or `]`");
        }
        self.step()?;
        self.nesting -= 1;
        let span = self.since(named.start);
        self.register(&span)?;
        self.place.free_register();
        self.place.index(proto).map_err(|message| FilterError { message, span })?;
        Arithmetic::bytes(proto, &index, size).ok_or_else(|| FilterError {
            message: format!("libpcap does not look into the bytes of `{proto}`"),
            span: named,
        })
    }

    fn register(&mut self, span: &Range<usize>) -> Parsed<()> {
        let taken = self.place.take_register();
        taken.map_err(|message| FilterError { message, span: span.clone() })
    }

    fn enter(&mut self) -> Parsed<()> {
        if self.nesting == NESTING_MAX {
            return self.error(too_deep());
        }
        self.nesting += 1;
        Ok(())
    }

    /// What starts with the name of a protocol.
    fn after_proto(&mut self, proto: &'static str) -> Parsed<Operand> {
        let span = self.span.clone();
        self.step()?;
        match self.next {
            Token::Sign("[") => {
                let first = self.bytes(proto, span.clone())?;
                let first = self.arithmetic(Some(first))?;
                self.relation(first, span.start)
            }
            Token::Key(
                "src" | "dst" | "addr1" | "addr2" | "addr3" | "addr4" | "ra" | "ta" | "host"
                | "net" | "port" | "portrange" | "proto" | "protochain" | "gateway",
            ) => self.qualified(Some(proto), span.start),
            Token::Key(key @ ("broadcast" | "multicast")) => {
                self.step()?;
                self.cast(key, Some(proto), span.start)
            }
            Token::Key("type" | "subtype" | "dir") => self.wlan(span.start),
            _ => {
                let made = self.place.abbreviation(proto);
                self.made(made, self.place.shift, span.start)
            }
        }
    }

    /// Qualifiers, the protocol aside, and an id.
    pub(super) fn qualified(
        &mut self,
        proto: Option<&'static str>,
        start: usize,
    ) -> Parsed<Operand> {
        let mut end = End::Default;
        let mut kind = TypeQualifier::Default;
        let mut directed = true;
        match self.next {
            Token::Key(one @ ("src" | "dst")) => {
                self.step()?;
                end = if one == "src" { End::Src } else { End::Dst };
                if let Token::Key(joint @ ("or" | "and")) = self.next {
                    self.step()?;
                    let other = if one == "src" { "dst" } else { "src" };
                    if !self.is_key(other) {
                        return self.expected(&format!(
                            "an address after `{one}`, or `{one} {joint} {other}`"
                        ));
                    }
                    self.step()?;
                    end = if joint == "or" { End::Or } else { End::And };
                }
            }
            Token::Key(word @ ("addr1" | "addr2" | "addr3" | "addr4" | "ra" | "ta")) => {
                self.step()?;
                end = End::Wlan(word);
            }
            _ => directed = false,
        }
        if let Token::Key(word) = self.next
            && let Some(named) = TypeQualifier::of(word)
        {
            let plain = matches!(
                named,
                TypeQualifier::Host
                    | TypeQualifier::Net
                    | TypeQualifier::Port
                    | TypeQualifier::Portrange
            );
            if directed && !plain {
                return self.error(format!("`{word}` has no `src` or `dst`"));
            }
            self.step()?;
            kind = named;
        }
        let qualifiers = Qualifiers { proto, end, kind };
        let allowed = Allowed { terms: false, ids: Ids::Any };
        let mut node = match self.operand(allowed, Some(qualifiers), false)? {
            Operand::Id(node) => node,
            Operand::Number(..) if kind == TypeQualifier::Net && self.is_sign("/") => {
                return self.error("write all bytes of the network before its prefix: 10.0.0.0/8");
            }
            Operand::Number(value, span) => {
                self.id_node(Id::Number(value), Some(qualifiers), span)?
            }
            _ => return self.expected(primitive::expected(kind)),
        };
        // The first id's condition starts with the qualifiers.
        let mut first = &mut node.expr;
        loop {
            match first {
                Expr::Not(inner) => first = inner,
                Expr::And(list) | Expr::Or(list) => match list.first_mut() {
                    Some(inner) => first = inner,
                    None => break,
                },
                Expr::Term(term) => {
                    term.span.start = start;
                    break;
                }
            }
        }
        Ok(Operand::Term(node, Some(qualifiers)))
    }

    /// An id, with what belongs to it.
    fn id_token(&mut self) -> Parsed<Id<'t>> {
        let next = self.next;
        self.step()?;
        Ok(match next {
            Token::Dotted(text) if self.take_sign("/")? => Id::Prefix(text, self.prefix_len()?),
            Token::Dotted(text) if self.is_key("mask") => {
                self.step()?;
                let Token::Dotted(mask) = self.next else {
                    return self.expected("a mask, such as 255.255.0.0");
                };
                self.step()?;
                Id::Masked(text, mask)
            }
            Token::Six(address) if self.take_sign("/")? => {
                Id::SixPrefix(address, self.prefix_len()?)
            }
            Token::Dotted(text) => Id::Dotted(text),
            Token::Six(address) => Id::Six(address),
            Token::Mac(address) => Id::Mac(address),
            Token::Arcnet(station) => Id::Arcnet(station),
            Token::Name(name) => Id::Name(name),
            _ => return self.expected("an address, a name or a number"),
        })
    }

    fn prefix_len(&mut self) -> Parsed<u32> {
        self.number("the length of the prefix")
    }

    pub(super) fn number(&mut self, what: &str) -> Parsed<u32> {
        let Token::Number(value) = self.next else { return self.expected(what) };
        self.step()?;
        Ok(value)
    }

    /// A number in any parentheses, if there is one.
    pub(super) fn number_in_parentheses(&mut self, what: &str) -> Parsed<Option<u32>> {
        let mut open = 0;
        while self.is_sign("(") {
            self.step()?;
            open += 1;
        }
        let value = match self.next {
            Token::Number(_) => Some(self.number(what)?),
            _ if open > 0 => return self.expected(what),
            _ => None,
        };
        for _ in 0..open {
            if !self.take_sign(")")? {
                return self.expected("`)`");
            }
        }
        Ok(value)
    }

    fn id_node(
        &mut self,
        id: Id<'_>,
        qualifiers: Option<Qualifiers>,
        span: Range<usize>,
    ) -> Parsed<Node> {
        let shift = self.place.shift;
        let made = match qualifiers {
            Some(qualifiers) => self.place.id(qualifiers, id),
            None => Err("there are no qualifiers before it to inherit: write `host`, `port` or \
                         the like"
                .to_owned()),
        };
        match made {
            Ok((test, text)) => Ok(leaf(span, shift, test, text)),
            Err(message) => Err(FilterError { message, span }),
        }
    }

    pub(super) fn made(&self, made: Made, shift: Shift, start: usize) -> Parsed<Operand> {
        let span = self.since(start);
        match made {
            Ok((test, text)) => Ok(condition(span, shift, test, text)),
            Err(message) => Err(FilterError { message, span }),
        }
    }

    pub(super) fn opaque(&self, text: String, start: usize) -> Parsed<Operand> {
        self.made(Ok((Test::Opaque { within: None }, text)), self.place.shift, start)
    }

    /// A time word, from the word on.
    fn time(&mut self, word: &str) -> Parsed<Operand> {
        let at = self.span.end;
        let rest = self.text.get(at..).unwrap_or("");
        let len = time_len(rest);
        let written = rest.get(..len).unwrap_or("");
        let trimmed = written.trim();
        let start = at + written.len() - written.trim_start().len();
        let span = start..start + trimmed.len();
        if trimmed.is_empty() {
            let message = format!("expected a time after `{word}`, such as `3h ago`");
            return Err(FilterError { message, span: self.span.clone() });
        }
        let time = parse_time(trimmed, self.now_ns, false)
            .map_err(|error| FilterError { message: error.to_string(), span: span.clone() })?;
        self.times = self.times.and(match word {
            "after" | "start" => TimeRange { from_ns: time, to_ns: None },
            _ => TimeRange { from_ns: 0, to_ns: Some(time) },
        });
        self.end = span.end;
        self.look(at + len)?;
        Ok(Operand::Time)
    }

    fn join(&self, left: Node, right: Node, and: bool) -> Parsed<Node> {
        let (mut depth, mut turns) = (0, 0);
        let mut list = Vec::new();
        for node in [left, right] {
            match (node.expr, and) {
                (Expr::And(inner), true) | (Expr::Or(inner), false) => {
                    depth = depth.max(node.depth);
                    turns = turns.max(node.turns);
                    if list.is_empty() {
                        list = inner;
                    } else {
                        list.extend(inner);
                    }
                }
                (expr, _) => {
                    depth = depth.max(node.depth + 1);
                    turns = turns.max(node.turns + 1);
                    list.push(expr);
                }
            }
        }
        let expr = if and { Expr::And(list) } else { Expr::Or(list) };
        self.deep(Node { expr, depth, turns })
    }

    fn not(&self, node: Node) -> Parsed<Node> {
        let (depth, turns) = (node.depth + 1, node.turns + 1);
        self.deep(Node { expr: Expr::Not(Box::new(node.expr)), depth, turns })
    }

    fn deep(&self, node: Node) -> Parsed<Node> {
        if node.turns > TURNS_MAX {
            return self.error(format!(
                "the filter takes turns with `and` and `or` more than {TURNS_MAX} times: put what \
                 belongs together in parentheses"
            ));
        }
        if node.depth <= DEPTH_MAX {
            return Ok(node);
        }
        let text = format!("({})", node.expr);
        let opaque = leaf(0..self.end, Shift::Elsewhere, Test::Opaque { within: None }, text);
        Ok(Node { turns: node.turns, ..opaque })
    }
}

const COMPARISON: &str = "a comparison, such as `> 100`";

const TIME_PLACE: &str = "times belong to the whole filter: join them to it with `and`, outside of \
                          parentheses, and put parentheses around an `or`";

fn too_deep() -> String {
    format!("more than {NESTING_MAX} parentheses, brackets and negations within each other")
}

fn leaf(span: Range<usize>, shift: Shift, test: Test, text: String) -> Node {
    Node { expr: Expr::Term(Term { span, shift, test, text }), depth: 0, turns: 0 }
}

fn condition(span: Range<usize>, shift: Shift, test: Test, text: String) -> Operand {
    Operand::Term(leaf(span, shift, test, text), None)
}

/// How much of a text belongs to the time that it starts with: up to the next `and`, `or` or
/// parenthesis.
fn time_len(text: &str) -> usize {
    let mut at = 0;
    for word in text.split_inclusive([' ', '\t', '\r', '\n']) {
        let bare = word.trim_end();
        if bare == "and" || bare == "or" {
            return at;
        }
        if let Some(sign) = bare.find(['&', '|', '(', ')', '!']) {
            return at + sign;
        }
        at += word.len();
    }
    at
}
