//! Reading pcapng: blocks, sections and interfaces.

use std::collections::BTreeMap;
use std::io::Read;

use super::blocks::Statistics;
use super::error::CaptureError;
use super::layout::{INTERFACES_MAX, NAME_LEN_MAX, SECTIONS_MAX};
use super::read::{CaptureReader, Found, InterfaceState, bad, short, size, word};
use super::{Interface, Section, block_max, link_type};
use crate::error::Expected;

/// Its bytes are the same in both orders.
pub(super) const SECTION_HEADER: u32 = 0x0A0D_0D0A;
pub(super) const INTERFACE: u32 = 1;

const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
pub(super) const STATISTICS: u32 = 5;
pub(super) const ENHANCED_PACKET: u32 = 6;

pub(super) const BYTE_ORDER_MAGIC: u32 = 0x1A2B_3C4D;
/// Kind, length, and the length again at the end.
pub(super) const BLOCK_MIN: u32 = 12;
const HEAD_LEN: usize = 8;
/// An enhanced packet block up to its packet, and one without bytes.
const ENHANCED_HEAD_LEN: usize = 28;
const ENHANCED_LEN_MIN: u32 = 32;
const SECTION_LEN_MIN: u32 = 28;
const SECTION_LEN_MAX: u32 = 1 << 20;

pub(super) const OPTION_END: u16 = 0;
pub(super) const OPTION_NAME: u16 = 2;
pub(super) const OPTION_DESCRIPTION: u16 = 3;
pub(super) const OPTION_TICKS: u16 = 9;
const OPTION_OFFSET: u16 = 14;
const STATISTICS_START: u16 = 2;
const STATISTICS_END: u16 = 3;
const STATISTICS_RECEIVED: u16 = 4;
const STATISTICS_LOST_BY_INTERFACE: u16 = 5;
const STATISTICS_LOST_BY_KERNEL: u16 = 7;
const STATISTICS_DELIVERED: u16 = 8;
/// The most statistics that are kept until they are taken; further ones are added to the last.
const STATISTICS_MAX: usize = 4_096;

const NANO: u64 = 1_000_000_000;

/// How the times of an interface become nanoseconds.
#[derive(Debug, Clone)]
pub(super) struct Clock {
    scale: Scale,
    ticks: u64,
    offset_s: i64,
}

#[derive(Debug, Clone)]
enum Scale {
    /// A tick is this many nanoseconds.
    Times(u64),
    /// This many ticks are a nanosecond.
    Over(u64),
    /// Neither.
    Ratio,
}

impl Clock {
    pub(super) fn new(ticks: u64, offset_s: i64) -> Self {
        let ticks = ticks.max(1);
        let scale = if NANO.is_multiple_of(ticks) {
            Scale::Times(NANO / ticks)
        } else if ticks.is_multiple_of(NANO) {
            Scale::Over(ticks / NANO)
        } else {
            Scale::Ratio
        };
        Self { scale, ticks, offset_s }
    }

    #[inline]
    fn time_ns(&self, time: u64) -> u64 {
        if self.offset_s == 0 {
            match self.scale {
                Scale::Times(factor) => {
                    if let Some(time) = time.checked_mul(factor) {
                        return time;
                    }
                }
                Scale::Over(divisor) => return time / divisor,
                Scale::Ratio => {}
            }
        }
        self.time_ns_any(time)
    }

    #[inline(never)]
    fn time_ns_any(&self, time: u64) -> u64 {
        let seconds = (time / self.ticks).wrapping_add(self.offset_s.cast_unsigned());
        let fraction = time % self.ticks;
        let fraction = match self.scale {
            Scale::Times(factor) => fraction * factor,
            Scale::Over(divisor) => fraction / divisor,
            // With more than 2^34 ticks in a second the product may not fit. libpcap lets it wrap
            // around, and a search has to find the times that tcpdump shows.
            Scale::Ratio => fraction.wrapping_mul(NANO) / self.ticks,
        };
        match u64::try_from(seconds.cast_signed()) {
            Err(_) => 0,
            Ok(seconds) => seconds
                .checked_mul(NANO)
                .and_then(|time| time.checked_add(fraction))
                .unwrap_or(u64::MAX),
        }
    }
}

/// Interface statistics that a reader has come across.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    list: Vec<Statistics>,
    /// What the last block of each interface says. Blocks count from their start time, so one with
    /// the same start as the one before continues its counters.
    last: BTreeMap<u32, Statistics>,
}

impl Gathered {
    /// Takes in a block about an interface.
    pub(crate) fn add(&mut self, interface: u32, told: Statistics) {
        let before =
            self.last.insert(interface, told).filter(|last| last.start_ns == told.start_ns);
        let mut new = told;
        if let Some(before) = before {
            let since = |now: u64, then: u64| now.saturating_sub(then);
            new.start_ns = before.end_ns.min(told.end_ns);
            new.received = since(told.received, before.received);
            new.lost_by_interface = since(told.lost_by_interface, before.lost_by_interface);
            new.lost_by_kernel = since(told.lost_by_kernel, before.lost_by_kernel);
            new.delivered = since(told.delivered, before.delivered);
        }
        let full = self.list.len() >= STATISTICS_MAX;
        match self.list.last_mut().filter(|_| full) {
            Some(last) => last.add(&new),
            None => self.list.push(new),
        }
    }

    /// The counters of the last block of each interface that has lost packets: later blocks may
    /// continue them.
    pub(crate) fn counting(&self) -> impl Iterator<Item = (u32, Statistics)> {
        let lossy = self.last.iter().filter(|(_, last)| last.lost() > 0);
        lossy.map(|(&interface, &last)| (interface, last))
    }

    /// Continues from the counters of the last block of an interface.
    pub(crate) fn count_on(&mut self, interface: u32, last: Statistics) {
        self.last.insert(interface, last);
    }

    /// What was told since the last such call.
    pub(crate) fn take(&mut self) -> Vec<Statistics> {
        std::mem::take(&mut self.list)
    }
}

impl<R: Read> CaptureReader<R> {
    /// Reads the first section header, which has rules of its own.
    pub(super) fn open_pcapng(&mut self) -> Result<(), CaptureError> {
        let got = self.require(12)?;
        if got < 12 {
            return Err(self.truncated("the section header", size(SECTION_LEN_MIN), got));
        }
        let magic = word(self.rest(), 8, false);
        let big_endian = magic != BYTE_ORDER_MAGIC;
        if big_endian && magic.swap_bytes() != BYTE_ORDER_MAGIC {
            let expected = Expected::Exactly(BYTE_ORDER_MAGIC.into());
            return Err(bad("byte-order magic", 0, expected, magic));
        }
        let len = word(self.rest(), 4, big_endian);
        if len < SECTION_LEN_MIN {
            let expected = Expected::AtLeast(SECTION_LEN_MIN.into());
            return Err(bad("length of the section header", 0, expected, len));
        }
        if len > SECTION_LEN_MAX {
            let expected = Expected::AtMost(SECTION_LEN_MAX.into());
            return Err(bad("length of the section header", 0, expected, len));
        }
        let got = self.require(size(len))?;
        if got < size(len) {
            return Err(self.truncated("the section header", size(len), got));
        }
        let (major, minor) =
            (short(self.rest(), 12, big_endian), short(self.rest(), 14, big_endian));
        if major != 1 {
            return Err(bad("major version", 0, Expected::Exactly(1), major));
        }
        if !matches!(minor, 0 | 2) {
            return Err(bad("minor version", 0, Expected::Exactly(0), minor));
        }
        self.layout.pcapng = true;
        self.layout.sections.push(Section { offset: 0, big_endian, first_interface: 0 });
        self.layout.known = len.into();
        self.at += size(len);
        self.enter(0);
        Ok(())
    }

    /// The next block, if it is in the buffer, has a packet, and nothing is special about it.
    #[inline]
    pub(super) fn next_enhanced(&mut self) -> Option<Found> {
        let rest = self.buffer.get(self.at..self.end)?;
        let head = rest.first_chunk::<ENHANCED_HEAD_LEN>()?;
        let number = |at| word(head, at, self.big_endian);
        let (block_len, id, len) = (number(4), number(8), number(20));
        let room = block_len.checked_sub(ENHANCED_LEN_MIN)?;
        let again = rest.get(size(block_len) - 4..size(block_len))?;
        let sound = number(0) == ENHANCED_PACKET
            && block_len.is_multiple_of(4)
            && block_len <= self.block_max
            && word(again, 0, self.big_endian) == block_len
            && id < self.count;
        let source = self.sources.get(size(self.first) + size(id))?;
        if !sound || len > source.frame_max.min(room) || source.fixes {
            return None;
        }
        let found = Found {
            offset: self.position(),
            time_ns: source.clock.time_ns(u64::from(number(12)) << 32 | u64::from(number(16))),
            interface: self.first + id,
            link: source.link,
            wire_len: number(24),
            start: self.at + ENHANCED_HEAD_LEN,
            len: size(len),
            fixed: false,
        };
        self.at += size(block_len);
        Some(found)
    }

    /// The next packet block; blocks before it are taken in or skipped.
    pub(super) fn next_block(&mut self) -> Result<Option<Found>, CaptureError> {
        loop {
            if self.position() >= self.stop {
                return Ok(None);
            }
            let got = self.require(HEAD_LEN)?;
            if got == 0 {
                return Ok(None);
            }
            if got < HEAD_LEN {
                return Err(self.truncated("the head of a block", HEAD_LEN, got));
            }
            let (offset, mut big_endian) = (self.position(), self.big_endian);
            let kind = word(self.rest(), 0, big_endian);
            // The length of a section header is in the section's own order.
            if kind == SECTION_HEADER
                && self.require(HEAD_LEN + 4)? >= HEAD_LEN + 4
                && word(self.rest(), 8, !big_endian) == BYTE_ORDER_MAGIC
            {
                big_endian = !big_endian;
            }
            let len = word(self.rest(), 4, big_endian);
            self.check_len(offset, len)?;
            let got = self.require(size(len))?;
            if got < size(len) {
                return Err(self.truncated("a block", size(len), got));
            }
            let again = word(self.rest(), size(len) - 4, big_endian);
            if again != len {
                let expected = Expected::Exactly(len.into());
                return Err(bad("length at the end of the block", offset, expected, again));
            }
            match kind {
                ENHANCED_PACKET | OLD_PACKET | SIMPLE_PACKET => {
                    let found = self.packet(kind, offset, len)?;
                    self.at += size(len);
                    return Ok(Some(self.fix(found)));
                }
                SECTION_HEADER => self.section(offset, len, big_endian)?,
                INTERFACE if offset >= self.layout.known => self.interface(offset, len)?,
                STATISTICS if self.gathered.is_some() || self.listed.is_some() => {
                    self.statistics(len)
                }
                _ => {}
            }
            self.at += size(len);
        }
    }

    #[inline]
    fn check_len(&self, offset: u64, len: u32) -> Result<(), CaptureError> {
        let expected = if len < BLOCK_MIN {
            Expected::AtLeast(BLOCK_MIN.into())
        } else if len > self.block_max {
            Expected::AtMost(self.block_max.into())
        } else if !len.is_multiple_of(4) {
            Expected::Exactly(len.next_multiple_of(4).into())
        } else {
            return Ok(());
        };
        Err(bad("length of the block", offset, expected, len))
    }

    /// The bytes between the head of the next block and its end.
    #[inline]
    fn body(&self, len: u32) -> &[u8] {
        let start = self.at + HEAD_LEN;
        self.buffer.get(start..start + size(len - BLOCK_MIN)).unwrap_or_default()
    }

    #[inline]
    fn packet(&self, kind: u32, offset: u64, block_len: u32) -> Result<Found, CaptureError> {
        let (body, big_endian) = (self.body(block_len), self.big_endian);
        let head_len: u32 = if kind == SIMPLE_PACKET { 4 } else { 20 };
        if body.len() < size(head_len) {
            let expected = Expected::AtLeast((BLOCK_MIN + head_len).into());
            return Err(bad("length of a packet's block", offset, expected, block_len));
        }
        let number = |at| word(body, at, big_endian);
        let id = match kind {
            ENHANCED_PACKET => number(0),
            OLD_PACKET => short(body, 0, big_endian).into(),
            _ => 0,
        };
        let known = self.sources.get(size(self.first) + size(id)).filter(|_| id < self.count);
        let Some(source) = known else {
            let expected = match self.count.checked_sub(1) {
                Some(last) => Expected::AtMost(last.into()),
                None => Expected::Listed,
            };
            return Err(bad("a packet's interface", offset, expected, id));
        };
        let (time, len, wire_len) = if kind == SIMPLE_PACKET {
            (0, number(0).min(source.frame_max), number(0))
        } else {
            (u64::from(number(4)) << 32 | u64::from(number(8)), number(12), number(16))
        };
        // The body was found to have the head, so this does not wrap.
        let most = source.frame_max.min(block_len - BLOCK_MIN - head_len);
        if len > most {
            return Err(bad("captured length", offset, Expected::AtMost(most.into()), len));
        }
        Ok(Found {
            offset,
            time_ns: source.clock.time_ns(time),
            interface: self.first + id,
            link: source.link,
            wire_len,
            start: self.at + HEAD_LEN + size(head_len),
            len: size(len),
            fixed: false,
        })
    }

    fn section(&mut self, offset: u64, len: u32, big_endian: bool) -> Result<(), CaptureError> {
        if offset < self.layout.known {
            let known = self.layout.sections.binary_search_by_key(&offset, |known| known.offset);
            known.into_iter().for_each(|section| self.enter(section));
            return Ok(());
        }
        let body = self.body(len);
        let (magic, major) = (word(body, 0, big_endian), short(body, 4, big_endian));
        let wrong = if len < SECTION_LEN_MIN {
            let expected = Expected::AtLeast(SECTION_LEN_MIN.into());
            Some(bad("length of the section header", offset, expected, len))
        } else if magic != BYTE_ORDER_MAGIC {
            let expected = Expected::Exactly(BYTE_ORDER_MAGIC.into());
            Some(bad("byte-order magic", offset, expected, magic))
        } else if major != 1 {
            Some(bad("major version", offset, Expected::Exactly(1), major))
        } else {
            None
        };
        match wrong {
            // Before the first interface, libpcap skips every block that is not an interface,
            // including this one.
            Some(error) if !self.layout.interfaces.is_empty() => return Err(error),
            Some(_) => {}
            None => {
                let first_interface = u32::try_from(self.sources.len()).unwrap_or(u32::MAX);
                let section = Section { offset, big_endian, first_interface };
                self.add_section(section)?;
                self.enter(self.layout.sections.len() - 1);
            }
        }
        self.layout.known = offset + u64::from(len);
        Ok(())
    }

    /// Remembers a section. One that differs from the one before only in its offset counts as part
    /// of that one: no packet can come before its first interface.
    fn add_section(&mut self, section: Section) -> Result<(), CaptureError> {
        let of = |section: &Section| (section.big_endian, section.first_interface);
        if self.layout.sections.last().is_some_and(|last| of(last) == of(&section)) {
            return Ok(());
        }
        if self.layout.sections.len() >= SECTIONS_MAX {
            let most = SECTIONS_MAX as u64;
            return Err(bad(
                "number of sections",
                section.offset,
                Expected::AtMost(most),
                most + 1,
            ));
        }
        self.layout.sections.push(section);
        Ok(())
    }

    /// Switches to the byte order and interfaces of a section.
    fn enter(&mut self, section: usize) {
        let mut sections = self.layout.sections.iter().skip(section);
        let Some(section) = sections.next() else {
            return;
        };
        let all = u32::try_from(self.sources.len()).unwrap_or(u32::MAX);
        let end = sections.next().map_or(all, |next| next.first_interface);
        self.big_endian = section.big_endian;
        self.first = section.first_interface;
        self.count = end.saturating_sub(self.first);
    }

    /// Switches to the section that an offset is in.
    pub(super) fn enter_at(&mut self, offset: u64) {
        let after = self.layout.sections.partition_point(|section| section.offset <= offset);
        self.enter(after.saturating_sub(1));
    }

    /// Takes in the statistics of an interface. Reading packets does not depend on them, so a block
    /// that is not understood is skipped.
    fn statistics(&mut self, len: u32) {
        let (body, big_endian) = (self.body(len), self.big_endian);
        let id = word(body, 0, big_endian);
        let known = self.sources.get(size(self.first) + size(id)).filter(|_| id < self.count);
        let Some(source) = known.filter(|_| body.len() >= 12) else { return };
        let time = |at: &[u8]| {
            let halves = [word(at, 0, big_endian), word(at, 4, big_endian)].map(u64::from);
            source.clock.time_ns(halves[0] << 32 | halves[1])
        };
        let mut told =
            Statistics { end_ns: time(body.get(4..).unwrap_or_default()), ..Statistics::default() };
        let mut options = body.get(12..).unwrap_or_default();
        while options.len() >= 4 {
            let (code, len) = (short(options, 0, big_endian), short(options, 2, big_endian));
            let Some(value) = options.get(4..4 + usize::from(len)) else { break };
            let halves = [word(value, 0, big_endian), word(value, 4, big_endian)].map(u64::from);
            let [low, high] = if big_endian { [halves[1], halves[0]] } else { halves };
            let number = high << 32 | low;
            match code {
                OPTION_END => break,
                _ if len != 8 => {}
                STATISTICS_START => told.start_ns = time(value),
                STATISTICS_END => told.end_ns = time(value),
                STATISTICS_RECEIVED => told.received = number,
                STATISTICS_LOST_BY_INTERFACE => told.lost_by_interface = number,
                STATISTICS_LOST_BY_KERNEL => told.lost_by_kernel = number,
                STATISTICS_DELIVERED => told.delivered = number,
                _ => {}
            }
            options = options.get(4 + usize::from(len).next_multiple_of(4)..).unwrap_or_default();
        }
        told.start_ns = told.start_ns.min(told.end_ns);
        let interface = self.first + id;
        if let Some(gathered) = &mut self.gathered {
            gathered.add(interface, told);
        }
        if let Some(listed) = &mut self.listed {
            listed.push((interface, told));
        }
    }

    fn interface(&mut self, offset: u64, len: u32) -> Result<(), CaptureError> {
        let (body, big_endian) = (self.body(len), self.big_endian);
        if body.len() < 8 {
            let expected = Expected::AtLeast((BLOCK_MIN + 8).into());
            return Err(bad("length of an interface's block", offset, expected, len));
        }
        let link = link_type(short(body, 0, big_endian).into());
        let mut interface = Interface::new(link, 1_000_000);
        interface.snaplen = word(body, 4, big_endian);
        let options = body.get(8..).unwrap_or_default();
        read_options(&mut interface, options, big_endian, offset)?;
        if self.sources.len() >= INTERFACES_MAX {
            let expected = Expected::AtMost(INTERFACES_MAX as u64);
            return Err(bad("number of interfaces", offset, expected, INTERFACES_MAX as u64 + 1));
        }
        for text in [&mut interface.name, &mut interface.description] {
            text.truncate(text.floor_char_boundary(NAME_LEN_MAX));
        }
        self.sources.push(InterfaceState::new(&interface, big_endian));
        self.layout.interfaces.push(interface);
        self.layout.known = offset + u64::from(len);
        self.block_max = self.block_max.max(block_max(link));
        self.count += 1;
        Ok(())
    }
}

fn read_options(
    interface: &mut Interface,
    mut options: &[u8],
    big_endian: bool,
    offset: u64,
) -> Result<(), CaptureError> {
    let (mut ticks_seen, mut offset_seen) = (false, false);
    while !options.is_empty() {
        let (code, len) = (short(options, 0, big_endian), short(options, 2, big_endian));
        let padded = usize::from(len).next_multiple_of(4);
        let Some(rest) = options.get(4..).filter(|rest| rest.len() >= padded) else {
            let most = options.len().saturating_sub(4) as u64;
            return Err(bad("length of an option", offset, Expected::AtMost(most), len));
        };
        let (value, rest) = rest.split_at(padded);
        let value = value.get(..len.into()).unwrap_or_default();
        options = rest;
        let exactly = |what, expected| match u64::from(len) == expected {
            true => Ok(()),
            false => Err(bad(what, offset, Expected::Exactly(expected), len)),
        };
        let once = |what, seen| match seen {
            false => Ok(true),
            true => Err(bad(what, offset, Expected::Exactly(1), 2_u16)),
        };
        match code {
            OPTION_END => return exactly("length of the end of options", 0),
            OPTION_NAME => interface.name = String::from_utf8_lossy(value).into_owned(),
            OPTION_DESCRIPTION => {
                interface.description = String::from_utf8_lossy(value).into_owned();
            }
            OPTION_TICKS => {
                exactly("length of if_tsresol", 1)?;
                ticks_seen = once("number of if_tsresol options", ticks_seen)?;
                interface.ticks = read_ticks(value.first().copied().unwrap_or(6), offset)?;
            }
            OPTION_OFFSET => {
                exactly("length of if_tsoffset", 8)?;
                offset_seen = once("number of if_tsoffset options", offset_seen)?;
                let halves =
                    [word(value, 0, big_endian), word(value, 4, big_endian)].map(u64::from);
                let [low, high] = if big_endian { [halves[1], halves[0]] } else { halves };
                interface.offset_s = (high << 32 | low).cast_signed();
            }
            _ => {}
        }
    }
    Ok(())
}

/// Ticks in a second: a power of two if the high bit is set, else one of ten.
fn read_ticks(value: u8, offset: u64) -> Result<u64, CaptureError> {
    let exponent = u32::from(value & 0x7F);
    let (ticks, most) = match value & 0x80 {
        0 => (10_u64.checked_pow(exponent), 19),
        _ => (1_u64.checked_shl(exponent), 63),
    };
    ticks.ok_or_else(|| bad("exponent of if_tsresol", offset, Expected::AtMost(most), exponent))
}
