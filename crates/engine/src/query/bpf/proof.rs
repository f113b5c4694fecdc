//! Whether libpcap's optimiser kept the meaning of a filter.
//!
//! It does not always. It may treat a dropped load as done, and conditions get lost if others test
//! the same: `not port 77 and not ip6 and not len = 31 and not ip` finds IPv4 packets. The right
//! answer is what `tcpdump` finds, with the optimised program, so columns may answer a filter only
//! if that program still means what the filter says.
//!
//! So both programs, the optimised one and the original, are run symbolically, on a packet about
//! which nothing is known. A value is the expression that it was computed from. If a jump depends
//! on the packet, both branches are followed, each with what the jump implies. For each path
//! through the first program to its end, all paths through the second one are followed, and have to
//! end alike.
//!
//! No load fails here. If columns say anything about a packet, it has all bytes that the original
//! program loads. So the optimised one must not load anything else before it accepts a packet: for
//! `not len >= ip6[16]` it loads the IPv6 byte first, and so rejects short packets of other
//! protocols.

use std::collections::HashMap;

use super::{Alu, Ask, Code, MEMORY, Program, Size, Step};

/// Instructions that are tried for a filter before giving up without an answer.
pub(super) const STEPS_MAX: usize = 10_000;

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sameness {
    /// Both programs answer alike for all packets.
    Same,
    /// They may differ.
    Differs,
    /// There are too many paths to tell.
    Open,
}

/// A value, by its number in [`Values`].
type Id = u32;

/// How a value is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Value {
    Number(u32),
    Length,
    Load(Size, Id),
    /// A value that is not a number, and a number.
    Sum(Id, u32),
    Alu(Alu, Id, Id),
    Negative(Id),
}

/// All values that occur.
#[derive(Default)]
struct Values {
    list: Vec<Value>,
    ids: HashMap<Value, Id>,
}

impl Values {
    fn id(&mut self, value: Value) -> Id {
        let next = Id::try_from(self.list.len()).unwrap_or(Id::MAX);
        *self.ids.entry(value).or_insert_with(|| {
            self.list.push(value);
            next
        })
    }

    fn get(&self, id: Id) -> Value {
        self.list.get(id as usize).copied().unwrap_or(Value::Length)
    }

    fn number(&mut self, number: u32) -> Id {
        self.id(Value::Number(number))
    }

    fn sum(&mut self, value: Id, number: u32) -> Id {
        match self.get(value) {
            Value::Number(own) => self.number(own.wrapping_add(number)),
            _ if number == 0 => value,
            Value::Sum(inner, own) => self.sum(inner, own.wrapping_add(number)),
            _ => self.id(Value::Sum(value, number)),
        }
    }

    /// The result of an operation; `None` if it ends the program.
    fn alu(&mut self, alu: Alu, a: Id, b: Id) -> Option<Id> {
        Some(match (alu, self.get(a), self.get(b)) {
            (_, Value::Number(a), Value::Number(b)) => {
                let result = alu.apply(a, b)?;
                self.number(result)
            }
            (Alu::Add, _, Value::Number(b)) => self.sum(a, b),
            (Alu::Add, Value::Number(a), _) => self.sum(b, a),
            (Alu::Sub, _, Value::Number(b)) => self.sum(a, b.wrapping_neg()),
            (Alu::And | Alu::Mul, Value::Number(0), _)
            | (Alu::And | Alu::Mul, _, Value::Number(0)) => self.number(0),
            (Alu::Or | Alu::Xor | Alu::Lsh | Alu::Rsh, _, Value::Number(0))
            | (Alu::Mul | Alu::Div, _, Value::Number(1)) => a,
            (Alu::Or | Alu::Xor, Value::Number(0), _) | (Alu::Mul, Value::Number(1), _) => b,
            (Alu::Add, Value::Sum(inner, own), _) => {
                let rest = self.alu(Alu::Add, inner, b)?;
                self.sum(rest, own)
            }
            (Alu::Add, _, Value::Sum(inner, own)) => {
                let rest = self.alu(Alu::Add, a, inner)?;
                self.sum(rest, own)
            }
            (Alu::Add | Alu::Mul | Alu::Or | Alu::And | Alu::Xor, ..) => {
                self.id(Value::Alu(alu, a.min(b), a.max(b)))
            }
            _ => self.id(Value::Alu(alu, a, b)),
        })
    }
}

/// A question that depends on the packet: whether the first value is equal to the second one, or
/// greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Question {
    greater: bool,
    left: Id,
    right: Id,
}

/// What is known from the branches taken so far.
#[derive(Debug, Clone, Default)]
struct Facts(Vec<(Question, bool)>);

impl Facts {
    /// The number that a value is, if that is known.
    fn number(&self, values: &Values, id: Id) -> Option<u32> {
        let known = self.0.iter().find_map(|(question, holds)| {
            match (*holds && !question.greater && question.left == id, values.get(question.right)) {
                (true, Value::Number(number)) => Some(number),
                _ => None,
            }
        });
        known.or_else(|| match values.get(id) {
            Value::Number(number) => Some(number),
            Value::Sum(inner, own) => Some(self.number(values, inner)?.wrapping_add(own)),
            Value::Alu(alu, a, b) => alu.apply(self.number(values, a)?, self.number(values, b)?),
            Value::Negative(inner) => Some(self.number(values, inner)?.wrapping_neg()),
            Value::Length | Value::Load(..) => None,
        })
    }

    /// The answer, if it is known.
    fn answer(&self, values: &Values, asked: Question) -> Option<bool> {
        let (left, right) = (self.number(values, asked.left), self.number(values, asked.right));
        if let (Some(left), Some(right)) = (left, right) {
            return Some(if asked.greater { left > right } else { left == right });
        }
        if asked.left == asked.right {
            return Some(!asked.greater);
        }
        if asked.greater && (left == Some(0) || right == Some(u32::MAX)) {
            return Some(false);
        }
        self.0.iter().find_map(|&(known, holds)| {
            if known == asked {
                return Some(holds);
            }
            if known.left != asked.left {
                return None;
            }
            let (Value::Number(limit), Some(number)) = (values.get(known.right), right) else {
                return None;
            };
            match (known.greater, holds, asked.greater) {
                // It is above the limit.
                (true, true, true) => (number <= limit).then_some(true),
                (true, true, false) => (number <= limit).then_some(false),
                // It is the limit, or below.
                (true, false, true) => (number >= limit).then_some(false),
                (true, false, false) => (number > limit).then_some(false),
                (false, ..) => None,
            }
        })
    }
}

/// A place on a path through a program, and what is known there.
#[derive(Clone)]
struct Way {
    at: usize,
    a: Id,
    x: Id,
    memory: [Id; MEMORY],
    facts: Facts,
    /// How the first program ended, while the second one is being followed.
    first: Option<bool>,
    /// What the first program has loaded and the second one has not.
    loads: Vec<Id>,
}

impl Way {
    fn load(&mut self, values: &mut Values, size: Size, at: Id) -> Id {
        let id = values.id(Value::Load(size, at));
        match self.first {
            Some(_) => self.loads.retain(|load| *load != id),
            None if self.loads.contains(&id) => {}
            None => self.loads.push(id),
        }
        id
    }
}

/// Whether two programs answer alike, and the first one loads nothing else before it accepts a
/// packet; at most `steps_max` instructions are tried.
pub(super) fn compare(one: &Program, other: &Program, steps_max: usize) -> Sameness {
    if one == other {
        return Sameness::Same;
    }
    let mut values = Values::default();
    let zero = values.number(0);
    let start = |facts, first, loads| {
        let memory = [zero; MEMORY];
        Way { at: 0, a: zero, x: zero, memory, facts, first, loads }
    };
    let mut ways = vec![start(Facts::default(), None, Vec::new())];
    let mut steps_left = steps_max;
    while let Some(mut way) = ways.pop() {
        let program = if way.first.is_none() { one } else { other };
        let ended = loop {
            let Some(left) = steps_left.checked_sub(1) else { return Sameness::Open };
            steps_left = left;
            let Some(step) = program.steps.get(way.at) else { break Some(false) };
            match next(&mut values, step, &mut way) {
                Next::On => {}
                Next::Ends(taken) => break Some(taken),
                Next::Asks(question, yes, no) => match way.facts.answer(&values, question) {
                    Some(holds) => way.at = if holds { yes } else { no },
                    None => {
                        for (holds, at) in [(true, yes), (false, no)] {
                            let mut way = Way { at, ..way.clone() };
                            way.facts.0.push((question, holds));
                            ways.push(way);
                        }
                        break None;
                    }
                },
                Next::Unclear => return Sameness::Differs,
            }
        };
        match (ended, way.first) {
            (None, _) => {}
            (Some(taken), None) => ways.push(start(way.facts, Some(taken), way.loads)),
            (Some(false), Some(false)) => {}
            (Some(true), Some(true)) if way.loads.is_empty() => {}
            _ => return Sameness::Differs,
        }
    }
    Sameness::Same
}

/// What an instruction does.
enum Next {
    On,
    Ends(bool),
    /// Goes to one of two places.
    Asks(Question, usize, usize),
    /// Depends on something that is not tracked here.
    Unclear,
}

fn next(values: &mut Values, step: &Step, way: &mut Way) -> Next {
    let k = step.k;
    way.at += 1;
    let place = k as usize;
    match step.code {
        Code::LoadAt(size) => {
            let at = values.number(k);
            way.a = way.load(values, size, at);
        }
        Code::LoadAtAsk(size) => {
            let at = values.number(k);
            way.a = way.load(values, size, at);
            let number = values.number(step.equal);
            return asks(values, Ask::Eq, way.a, number, step);
        }
        Code::LoadFrom(size) => {
            let at = values.sum(way.x, k);
            way.a = way.load(values, size, at);
        }
        Code::LoadLen => way.a = values.id(Value::Length),
        Code::LoadLenX => way.x = values.id(Value::Length),
        Code::LoadNumber => way.a = values.number(k),
        Code::LoadNumberX => way.x = values.number(k),
        Code::LoadMemory => match way.memory.get(place) {
            Some(&value) => way.a = value,
            None => return Next::Ends(false),
        },
        Code::LoadMemoryX => match way.memory.get(place) {
            Some(&value) => way.x = value,
            None => return Next::Ends(false),
        },
        Code::LoadHeaderLen => {
            let (at, mask, two) = (values.number(k), values.number(15), values.number(2));
            let byte = way.load(values, Size::Byte, at);
            let low = values.alu(Alu::And, byte, mask);
            match low.and_then(|low| values.alu(Alu::Lsh, low, two)) {
                Some(value) => way.x = value,
                None => return Next::Ends(false),
            }
        }
        Code::Store => match way.memory.get_mut(place) {
            Some(word) => *word = way.a,
            None => return Next::Ends(false),
        },
        Code::StoreX => match way.memory.get_mut(place) {
            Some(word) => *word = way.x,
            None => return Next::Ends(false),
        },
        Code::AluNumber(alu) => {
            let number = values.number(k);
            match values.alu(alu, way.a, number) {
                Some(value) => way.a = value,
                None => return Next::Ends(false),
            }
        }
        Code::AluX(alu) => match values.alu(alu, way.a, way.x) {
            Some(value) => way.a = value,
            None => return Next::Ends(false),
        },
        Code::Negate => {
            way.a = match values.get(way.a) {
                Value::Number(number) => values.number(number.wrapping_neg()),
                _ => values.id(Value::Negative(way.a)),
            };
        }
        Code::Jump => way.at = step.yes as usize,
        Code::AskNumber(ask) => {
            let number = values.number(k);
            return asks(values, ask, way.a, number, step);
        }
        Code::AskX(ask) => return asks(values, ask, way.a, way.x, step),
        Code::Return => return Next::Ends(k != 0),
        Code::ReturnA | Code::AskSet => return Next::Unclear,
        Code::AToX => way.x = way.a,
        Code::XToA => way.a = way.x,
    }
    Next::On
}

/// A jump, with its question in one form.
fn asks(values: &mut Values, ask: Ask, a: Id, b: Id, step: &Step) -> Next {
    let (yes, no) = (step.yes as usize, step.no as usize);
    match ask {
        Ask::Gt => match values.get(a) {
            // `3 > b` is `b > 2` turned around.
            Value::Number(number) if number > 0 => {
                let right = values.number(number - 1);
                Next::Asks(Question { greater: true, left: b, right }, no, yes)
            }
            _ => Next::Asks(Question { greater: true, left: a, right: b }, yes, no),
        },
        // `a >= b` is `a > b - 1`, or `b > a` turned around.
        Ask::Ge => match values.get(b) {
            Value::Number(number) if number > 0 => {
                let right = values.number(number - 1);
                Next::Asks(Question { greater: true, left: a, right }, yes, no)
            }
            _ => Next::Asks(Question { greater: true, left: b, right: a }, no, yes),
        },
        Ask::Set => {
            let zero = values.number(0);
            match values.alu(Alu::And, a, b) {
                Some(left) => Next::Asks(equal(values, left, zero), no, yes),
                None => Next::Ends(false),
            }
        }
        Ask::Eq => Next::Asks(equal(values, a, b), yes, no),
    }
}

/// Whether two values are equal, with a number on the right if there is one, and nothing added to
/// the left.
fn equal(values: &mut Values, a: Id, b: Id) -> Question {
    let (left, right) = match (values.get(a), values.get(b)) {
        (Value::Number(_), _) => (b, a),
        (_, Value::Number(_)) => (a, b),
        _ => (a.min(b), a.max(b)),
    };
    match (values.get(left), values.get(right)) {
        (Value::Sum(inner, own), Value::Number(number)) => {
            let right = values.number(number.wrapping_sub(own));
            equal(values, inner, right)
        }
        // `a - b = 0`
        (Value::Alu(Alu::Sub, a, b), Value::Number(0)) => equal(values, a, b),
        _ => Question { greater: false, left, right },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::LinkType;

    fn kept(text: &str) -> Sameness {
        let optimised = Program::compile(text, LinkType::ETHERNET, false).unwrap();
        optimised.compare_with_plain(text, LinkType::ETHERNET, false).unwrap()
    }

    #[test]
    fn most_filters_keep_their_meaning() {
        for text in [
            "tcp",
            "host 10.0.0.1 or host 10.0.0.2",
            "tcp port 80 and host 10.0.0.1",
            "not (udp port 53 or icmp) and net 10.0.0.0/8",
            "tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn and not src net 10.0.0.0/8",
            "vlan 5 and (tcp dst portrange 1000-2000 or udp)",
            "icmp[icmptype] != icmp-echo and icmp[icmptype] != icmp-echoreply",
            "ip[((ip[0] & 0xf) << 2) + 3] != 0 or less 100",
            "tcp port 80 and (((ip[2:2] - ((ip[0]&0xf)<<2)) - ((tcp[12]&0xf0)>>2)) != 0)",
            "ether host 02:00:00:00:00:01 and not broadcast and len > 100",
            "mpls and tcp port 80",
            "ip and arp",
        ] {
            assert_eq!(kept(text), Sameness::Same, "{text}");
        }
    }

    #[test]
    fn filters_that_lose_their_meaning_are_found() {
        for text in [
            "not ((tcp[tcpflags] & 0 > 16) or (dst port 80))",
            "not port 77 and not ip6 and not len = 31 and not ip",
            "greater 77 or not len >= ip6[16] or port 0",
        ] {
            assert_eq!(kept(text), Sameness::Differs, "{text}");
        }
    }
}
