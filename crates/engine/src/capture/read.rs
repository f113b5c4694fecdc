//! Reading capture files: the buffer, and the records of pcap.

use std::borrow::Cow;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

use super::blocks::Statistics;
use super::error::CaptureError;
use super::pcapng::{self, Clock, Gathered};
use super::{
    BLOCK_MAX, Interface, Layout, Lengths, RecordForm, Section, block_max, frame_max, link_type,
    pseudo,
};
use crate::error::Expected;
use crate::packet::LinkType;

/// A packet, as it is in a capture.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Where its record or block starts in the file.
    pub offset: u64,
    /// When it was captured, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Its interface in [`Layout::interfaces`].
    pub interface: u32,
    /// The link type of its interface.
    pub link: LinkType,
    /// Whether its file or section has another byte order than this machine.
    pub swapped: bool,
    /// How long it was on the wire.
    pub wire_len: u32,
    /// Its captured bytes.
    pub data: &'a [u8],
}

impl<'a> Record<'a> {
    /// Its captured bytes, as a file in the byte order of this machine would have them: the address
    /// family before packets of the loopback interface is in the byte order of the file.
    pub fn data(&self) -> Cow<'a, [u8]> {
        match self.data.split_first_chunk::<4>() {
            Some((family, rest)) if self.swapped && self.link == LinkType::NULL => {
                let family: Vec<u8> = family.iter().rev().copied().collect();
                Cow::Owned([&family, rest].concat())
            }
            _ => Cow::Borrowed(self.data),
        }
    }
}

/// Bytes that are read first, after a start or a jump.
const WINDOW_MIN: usize = 16 << 10;
/// Bytes that are read at a time once reading goes on: few enough that they, and what their packets
/// are looked up in, stay in the cache of a core.
const WINDOW_MAX: usize = 128 << 10;
/// Bytes that are read at once for a checksum, at most.
const AHEAD_MAX: usize = 1 << 20;

const MAGIC_MICRO: u32 = 0xA1B2_C3D4;
const MAGIC_NANO: u32 = 0xA1B2_3C4D;
const MAGIC_MODIFIED: u32 = 0xA1B2_CD34;
const HEADER_LEN: usize = 24;
pub(super) const RECORD_LEN: usize = 16;
pub(super) const RECORD_LEN_LONG: usize = 24;

/// Whether a file that starts with these bytes may be a capture.
pub fn is_capture(first: &[u8]) -> bool {
    let magics = [MAGIC_MICRO, MAGIC_NANO, MAGIC_MODIFIED];
    let magic = word(first, 0, false);
    magic == pcapng::SECTION_HEADER
        || magics.contains(&magic)
        || magics.contains(&magic.swap_bytes())
}

/// Four bytes as a number; zero if there are fewer.
pub(super) fn word(bytes: &[u8], at: usize, big_endian: bool) -> u32 {
    let Some(bytes) = bytes.get(at..).and_then(|rest| rest.first_chunk()) else {
        return 0;
    };
    let number = u32::from_le_bytes(*bytes);
    if big_endian { number.swap_bytes() } else { number }
}

/// Two bytes as a number; zero if there are fewer.
pub(super) fn short(bytes: &[u8], at: usize, big_endian: bool) -> u16 {
    let Some(bytes) = bytes.get(at..).and_then(|rest| rest.first_chunk()) else {
        return 0;
    };
    let number = u16::from_le_bytes(*bytes);
    if big_endian { number.swap_bytes() } else { number }
}

/// A number that is certain to fit: it counts bytes that are in memory or may be.
pub(super) fn size(number: u32) -> usize {
    number as usize
}

/// A packet, by its place in the buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) offset: u64,
    pub(super) time_ns: u64,
    pub(super) interface: u32,
    pub(super) link: LinkType,
    pub(super) wire_len: u32,
    pub(super) start: usize,
    pub(super) len: usize,
    /// The bytes are those in `fixed`, not those in the buffer.
    pub(super) fixed: bool,
}

/// What is known about an interface while its packets are read.
#[derive(Debug, Clone)]
pub(super) struct InterfaceState {
    pub(super) clock: Clock,
    /// The most bytes of a frame.
    pub(super) frame_max: u32,
    pub(super) link: LinkType,
    /// Whether frames hold numbers that the file's byte order or an old mistake may have changed.
    pub(super) fixes: bool,
}

impl InterfaceState {
    pub(super) fn new(interface: &Interface, big_endian: bool) -> Self {
        Self {
            clock: Clock::new(interface.ticks, interface.offset_s),
            frame_max: interface.frame_max(),
            link: LinkType(interface.link),
            fixes: pseudo::is_fixed(interface.link, big_endian),
        }
    }
}

/// Reads the packets of a capture, one after the other.
///
/// There is one buffer, of 128 KiB. It grows only for a record that is longer, and only as far as
/// the file has bytes for it: no more than twice what the record has.
///
/// After an error there are no more packets, until [`seek`](Self::seek) goes elsewhere.
#[derive(Debug)]
pub struct CaptureReader<R> {
    pub(super) source: R,
    pub(super) buffer: Vec<u8>,
    /// The bytes in the buffer that are still to be used are those from `at` to `end`.
    pub(super) at: usize,
    pub(super) end: usize,
    /// The offset of the buffer's first byte in the file.
    base: u64,
    window: usize,
    pub(super) layout: Layout,
    pub(super) sources: Vec<InterfaceState>,
    /// Byte order and interfaces of the section that is being read.
    pub(super) big_endian: bool,
    pub(super) first: u32,
    pub(super) count: u32,
    /// Records have 16 bytes of header with the captured length first, and frames stay as they are.
    plain: bool,
    /// The longest frame of a plain record.
    plain_max: u32,
    /// The link type of a pcap file.
    pcap_link: LinkType,
    /// Nanoseconds of a tick.
    tick_ns: u32,
    pub(super) block_max: u32,
    pub(super) fixed: Vec<u8>,
    /// Interface statistics, if they are wanted.
    pub(super) gathered: Option<Gathered>,
    /// The same, block by block.
    pub(super) listed: Option<Vec<(u32, Statistics)>>,
    /// Blocks of a pcapng file from here on are not read.
    pub(super) stop: u64,
    over: bool,
    /// A checksum of the bytes that were used, if one is wanted.
    summed: Option<Summed>,
}

/// A checksum of bytes that were used.
#[derive(Debug, Clone, Copy)]
struct Summed {
    sum: u32,
    /// Where the bytes that the checksum does not cover yet start in the buffer.
    from: usize,
}

impl<R: Read> CaptureReader<R> {
    /// Reads the head of a capture: pcap or pcapng, not packed.
    pub fn open(source: R) -> Result<Self, CaptureError> {
        let layout = Layout {
            pcapng: false,
            records: RecordForm::default(),
            sections: Vec::new(),
            interfaces: Vec::new(),
            known: 0,
        };
        let mut reader = Self::with_layout(source, layout);
        let got = reader.require(4)?;
        if got < 4 {
            return Err(reader.truncated("the file's header", 4, got));
        }
        let magic = word(reader.rest(), 0, false);
        match (magic, magic.swap_bytes()) {
            (pcapng::SECTION_HEADER, _) => reader.open_pcapng()?,
            (MAGIC_MICRO | MAGIC_NANO | MAGIC_MODIFIED, _) => reader.open_pcap(magic, false)?,
            (_, magic @ (MAGIC_MICRO | MAGIC_NANO | MAGIC_MODIFIED)) => {
                reader.open_pcap(magic, true)?;
            }
            _ => return Err(CaptureError::NotACapture { found: magic.to_le_bytes() }),
        }
        Ok(reader)
    }

    fn with_layout(source: R, layout: Layout) -> Self {
        let mut reader = Self {
            source,
            buffer: Vec::new(),
            at: 0,
            end: 0,
            base: 0,
            window: WINDOW_MIN,
            layout,
            sources: Vec::new(),
            big_endian: false,
            first: 0,
            count: 0,
            plain: false,
            plain_max: 0,
            pcap_link: LinkType::ETHERNET,
            tick_ns: 0,
            block_max: BLOCK_MAX,
            fixed: Vec::new(),
            gathered: None,
            listed: None,
            stop: u64::MAX,
            over: false,
            summed: None,
        };
        reader.prepare();
        reader
    }

    /// Derives from the layout what is needed at every packet.
    fn prepare(&mut self) {
        let (mut section, mut big_endian) = (0, false);
        for (i, interface) in (0..).zip(&self.layout.interfaces) {
            while let Some(next) = self.layout.sections.get(section)
                && next.first_interface <= i
            {
                (section, big_endian) = (section + 1, next.big_endian);
            }
            self.sources.push(InterfaceState::new(interface, big_endian));
            self.block_max = self.block_max.max(block_max(interface.link));
        }
        if let (false, Some(interface)) = (self.layout.pcapng, self.layout.interfaces.first()) {
            self.big_endian = big_endian;
            self.plain = self.layout.records == RecordForm::default()
                && !pseudo::is_fixed(interface.link, big_endian);
            self.plain_max = interface.frame_max().min(frame_max(interface.link));
            self.pcap_link = LinkType(interface.link);
            self.tick_ns = if interface.ticks > 1_000_000 { 1 } else { 1000 };
        }
    }

    fn open_pcap(&mut self, magic: u32, big_endian: bool) -> Result<(), CaptureError> {
        let got = self.require(HEADER_LEN)?;
        if got < HEADER_LEN {
            return Err(self.truncated("the file's header", HEADER_LEN, got));
        }
        let header = self.rest();
        let version = (short(header, 4, big_endian), short(header, 6, big_endian));
        let snaplen = word(header, 16, big_endian);
        // The six high bits are about checksums behind the frames.
        let link = link_type(word(header, 20, big_endian) & 0x03FF_FFFF);
        let lengths = match version {
            (2, 0..=2) | (543, 0) => Lengths::Wire,
            (2, 3) => Lengths::Smaller,
            (2, 4) => Lengths::Captured,
            (2, minor) => return Err(bad("minor version", 0, Expected::AtMost(4), minor)),
            (543, minor) => return Err(bad("minor version", 0, Expected::Exactly(0), minor)),
            (major, _) => return Err(bad("major version", 0, Expected::Exactly(2), major)),
        };
        let long = magic == MAGIC_MODIFIED;
        let ticks = if magic == MAGIC_NANO { 1_000_000_000 } else { 1_000_000 };
        let mut interface = Interface { snaplen, ..Interface::new(link, ticks) };
        if long && link == LinkType::ETHERNET.0 {
            // A header may have been added to a frame that had already been cut.
            interface.snaplen = interface.frame_max().saturating_add(14).min(i32::MAX as u32);
        }
        self.layout.records = RecordForm { long, lengths };
        self.layout.sections.push(Section { offset: 0, big_endian, first_interface: 0 });
        self.layout.interfaces.push(interface);
        self.layout.known = HEADER_LEN as u64;
        self.at += HEADER_LEN;
        self.prepare();
        Ok(())
    }

    /// The next packet, or `None` at the end of the file and after an error.
    ///
    /// At the end of a file that is still being written, the next call looks again.
    // Inlined, so that what it returns stays in registers.
    #[allow(clippy::should_implement_trait, reason = "an iterator cannot lend its buffer")]
    #[inline(always)]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, CaptureError> {
        let found = match self.next_plain() {
            Some(found) => found,
            None => match self.next_any()? {
                Some(found) => found,
                None => return Ok(None),
            },
        };
        let data = if found.fixed {
            &self.fixed
        } else {
            self.buffer.get(found.start..found.start + found.len).unwrap_or_default()
        };
        let Found { offset, time_ns, interface, link, wire_len, .. } = found;
        let swapped = self.big_endian != cfg!(target_endian = "big");
        Ok(Some(Record { offset, time_ns, interface, link, swapped, wire_len, data }))
    }

    /// The next record of a pcap file, if it is in the buffer and nothing is special about it.
    #[inline(always)]
    fn next_plain(&mut self) -> Option<Found> {
        if !self.plain {
            return None;
        }
        let rest = self.buffer.get(self.at..self.end)?;
        let (header, rest) = rest.split_first_chunk::<RECORD_LEN>()?;
        let len = word(header, 8, self.big_endian);
        if len > self.plain_max || size(len) > rest.len() {
            return None;
        }
        let found = Found {
            offset: self.base + self.at as u64,
            time_ns: pcap_time(header, self.big_endian, self.tick_ns),
            interface: 0,
            link: self.pcap_link,
            wire_len: word(header, 12, self.big_endian),
            start: self.at + RECORD_LEN,
            len: size(len),
            fixed: false,
        };
        self.at += RECORD_LEN + size(len);
        Some(found)
    }

    #[inline(never)]
    fn next_any(&mut self) -> Result<Option<Found>, CaptureError> {
        if self.layout.pcapng
            && let Some(found) = self.next_enhanced()
        {
            return Ok(Some(found));
        }
        if self.over {
            return Ok(None);
        }
        let found = if self.layout.pcapng { self.next_block() } else { self.next_record() };
        self.over = found.is_err();
        found
    }

    /// The next record of a pcap file of any form.
    fn next_record(&mut self) -> Result<Option<Found>, CaptureError> {
        let RecordForm { long, lengths } = self.layout.records;
        let header_len = if long { RECORD_LEN_LONG } else { RECORD_LEN };
        let got = self.require(header_len)?;
        if got == 0 {
            return Ok(None);
        }
        if got < header_len {
            return Err(self.truncated("the header of a record", header_len, got));
        }
        let (header, offset) = (self.rest(), self.position());
        let time_ns = pcap_time(header, self.big_endian, self.tick_ns);
        let (first, second) = (word(header, 8, self.big_endian), word(header, 12, self.big_endian));
        let (len, wire_len) = match lengths {
            Lengths::Wire => (second, first),
            Lengths::Smaller if first > second => (second, first),
            Lengths::Captured | Lengths::Smaller => (first, second),
        };
        let Some(source) = self.sources.first() else {
            return Ok(None);
        };
        // A frame longer than the file's limit is cut; one longer than any frame can be is damage.
        let (kept, most) = (source.frame_max.min(len), frame_max(source.link.0));
        if len > most {
            return Err(bad("captured length", offset, Expected::AtMost(most.into()), len));
        }
        let whole = header_len + size(len);
        let got = self.require(whole)?;
        if got < whole {
            return Err(self.truncated("a record", whole, got));
        }
        let start = self.at + header_len;
        let found = Found {
            offset,
            time_ns,
            interface: 0,
            link: self.pcap_link,
            wire_len,
            start,
            len: size(kept),
            fixed: false,
        };
        self.at += whole;
        Ok(Some(self.fix(found)))
    }

    /// Corrects numbers in the frame that are in the byte order of the writing machine.
    pub(super) fn fix(&mut self, mut found: Found) -> Found {
        let interface = self.sources.get(size(found.interface));
        if let Some(source) = interface.filter(|source| source.fixes) {
            let data = self.buffer.get(found.start..found.start + found.len).unwrap_or_default();
            self.fixed.clear();
            self.fixed.extend_from_slice(data);
            found.wire_len =
                pseudo::fix(source.link.0, self.big_endian, found.wire_len, &mut self.fixed);
            found.fixed = true;
        }
        found
    }

    /// All sections and interfaces found so far.
    ///
    /// A pcapng file may have more of them further on.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Keeps the interface statistics of a pcapng file, from here on.
    pub fn gather_statistics(&mut self) {
        self.gathered.get_or_insert_default();
    }

    /// Ends before the first block of a pcapng file that starts there or behind, where otherwise
    /// the blocks up to the next packet are read.
    pub(crate) fn stop_at(&mut self, offset: u64) {
        self.stop = offset;
    }

    /// Keeps the interface statistics of a pcapng file as the blocks have them, from here on.
    pub(crate) fn list_statistics(&mut self) {
        self.listed = Some(Vec::new());
    }

    /// The statistics that were listed, each with its interface.
    pub(crate) fn take_listed(&mut self) -> Vec<(u32, Statistics)> {
        self.listed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The statistics found since the last such call, or since
    /// [`gather_statistics`](Self::gather_statistics).
    pub fn take_statistics(&mut self) -> Vec<Statistics> {
        self.gathered.as_mut().map(Gathered::take).unwrap_or_default()
    }

    /// What it reads from.
    pub fn source(&self) -> &R {
        &self.source
    }

    /// What it read from, alone.
    pub(crate) fn into_source(self) -> R {
        self.source
    }

    /// Where the next record or block starts.
    #[inline]
    pub fn position(&self) -> u64 {
        self.base + self.at as u64
    }

    pub(super) fn rest(&self) -> &[u8] {
        self.buffer.get(self.at..self.end).unwrap_or_default()
    }

    /// Reads until `need` bytes are in the buffer, or the file ends. Returns how many there are.
    #[inline]
    pub(super) fn require(&mut self, need: usize) -> Result<usize, CaptureError> {
        let got = self.end - self.at;
        if got >= need { Ok(got) } else { self.fill(need) }
    }

    #[inline(never)]
    fn fill(&mut self, need: usize) -> Result<usize, CaptureError> {
        if let Some(Summed { sum, from }) = &mut self.summed {
            *sum = crc32c::crc32c_append(*sum, self.buffer.get(*from..self.at).unwrap_or_default());
            *from = 0;
        }
        self.buffer.copy_within(self.at..self.end, 0);
        self.base += self.at as u64;
        self.end -= self.at;
        self.at = 0;
        while self.end < need {
            // A record may claim any length: make room only as its bytes come.
            let goal = need.min(2 * self.end).max(self.window);
            if self.buffer.len() < goal {
                self.buffer.reserve_exact(goal - self.buffer.len());
                self.buffer.resize(goal, 0);
            }
            let target = self.buffer.get_mut(self.end..goal).unwrap_or_default();
            match self.source.read(target) {
                Ok(0) => break,
                Ok(len) => self.end += len.min(target.len()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => {
                    let offset = self.base + self.end as u64;
                    return Err(CaptureError::io("read the capture", offset, source));
                }
            }
            self.window = WINDOW_MAX.min(2 * self.window);
        }
        Ok(self.end)
    }

    /// Starts a checksum of the bytes that are used from an offset on. The offset has to be in the
    /// buffer: where the reader is, or the start of a file if only its head was read.
    pub(crate) fn start_sum(&mut self, offset: u64) {
        self.summed = Some(Summed { sum: 0, from: self.in_buffer(offset) });
    }

    /// The CRC-32C of the bytes used since [`start_sum`](Self::start_sum) up to an offset: where
    /// the reader is, or the start of the packet that it returned last.
    pub(crate) fn sum_to(&mut self, offset: u64) -> u32 {
        let end = self.in_buffer(offset);
        let Some(Summed { sum, from }) = &mut self.summed else { return 0 };
        *sum = crc32c::crc32c_append(*sum, self.buffer.get(*from..end).unwrap_or_default());
        *from = end;
        *sum
    }

    /// An offset in the file as a place in the buffer, at most where the reader is.
    fn in_buffer(&self, offset: u64) -> usize {
        let place = usize::try_from(offset.saturating_sub(self.base));
        place.map_or(self.at, |place| place.min(self.at))
    }

    /// The error for something that starts at the next byte.
    pub(super) fn truncated(
        &self,
        what: &'static str,
        expected: usize,
        got: usize,
    ) -> CaptureError {
        let (offset, expected, got) = (self.position(), expected as u64, got as u64);
        CaptureError::Truncated { what, offset, expected, got }
    }
}

impl<R: Read + Seek> CaptureReader<R> {
    /// Reads packets from the middle of a file whose layout is known.
    ///
    /// The layout must have the sections and interfaces before the offset, so it has to come from a
    /// reader that got that far. Offsets count from the start of the source. A packed capture
    /// cannot be read this way.
    pub fn resume(source: R, layout: Layout, offset: u64) -> Result<Self, CaptureError> {
        let lists = [
            ("number of sections in the layout", layout.sections.is_empty()),
            ("number of interfaces in the layout", layout.interfaces.is_empty() && !layout.pcapng),
        ];
        if let Some((what, _)) = lists.into_iter().find(|&(_, missing)| missing) {
            return Err(bad(what, offset, Expected::AtLeast(1), 0_u16));
        }
        let mut reader = Self::with_layout(source, layout);
        reader.jump(offset)?;
        Ok(reader)
    }

    /// Goes to the start of a record or block.
    ///
    /// Inside the buffer that costs nothing. Elsewhere 16 KiB are read first, and more when reading
    /// goes on from there, or goes on in small jumps.
    #[inline]
    pub fn seek(&mut self, offset: u64) -> Result<(), CaptureError> {
        self.over = false;
        match offset.checked_sub(self.base) {
            Some(at) if at <= self.end as u64 => {
                self.at = usize::try_from(at).unwrap_or(self.end);
                if self.layout.pcapng {
                    self.enter_at(offset);
                }
                Ok(())
            }
            _ => self.jump(offset),
        }
    }

    /// Goes to the start of a record or block of a file that is being written, and reads it again
    /// from there: there may be more, or something else.
    pub fn reread(&mut self, offset: u64) -> Result<(), CaptureError> {
        self.over = false;
        // Statistics that were already taken in are read again.
        self.gathered = self.gathered.take().map(|_| Gathered::default());
        self.jump(offset)
    }

    /// The CRC-32C of a range that starts where the reader is or later; `None` if the file ends
    /// before the range does. The reader stays where it is. A range of up to 1 MiB is in the buffer
    /// after that.
    pub(crate) fn sum_ahead(&mut self, bytes: &Range<u64>) -> Result<Option<u32>, CaptureError> {
        let here = self.position();
        let (before, need) = (bytes.start.saturating_sub(here), bytes.end.saturating_sub(here));
        if let (Ok(before), Ok(need)) = (usize::try_from(before), usize::try_from(need))
            && need <= AHEAD_MAX
        {
            // With one read.
            self.window = self.window.max(need);
            self.require(need)?;
            return Ok(self.rest().get(before..need).map(crc32c::crc32c));
        }
        self.sum_far(bytes)
    }

    #[inline(never)]
    fn sum_far(&mut self, bytes: &Range<u64>) -> Result<Option<u32>, CaptureError> {
        let back = self.position();
        self.jump(bytes.start)?;
        let (mut sum, mut left) = (0, bytes.end.saturating_sub(bytes.start));
        while left > 0 {
            let len = self.require(1)?.min(usize::try_from(left).unwrap_or(usize::MAX));
            if len == 0 {
                break;
            }
            sum = crc32c::crc32c_append(sum, &self.rest()[..len]);
            self.at += len;
            left -= len as u64;
        }
        self.jump(back)?;
        Ok((left == 0).then_some(sum))
    }

    fn jump(&mut self, offset: u64) -> Result<(), CaptureError> {
        let from = self.base + self.end as u64;
        if offset.checked_sub(from).is_none_or(|gap| gap > self.window as u64) {
            self.window = WINDOW_MIN;
        }
        (self.base, self.at, self.end) = (offset, 0, 0);
        if self.layout.pcapng {
            self.enter_at(offset);
        }
        match self.source.seek(SeekFrom::Start(offset)) {
            Ok(_) => Ok(()),
            Err(source) => {
                self.over = true;
                Err(CaptureError::io("seek in the capture", offset, source))
            }
        }
    }
}

/// Seconds, and then a fraction.
#[inline]
fn pcap_time(header: &[u8], big_endian: bool, tick_ns: u32) -> u64 {
    let (seconds, ticks) = (word(header, 0, big_endian), word(header, 4, big_endian));
    u64::from(seconds) * 1_000_000_000 + u64::from(ticks) * u64::from(tick_ns)
}

/// The error for an invalid number in the record or block at the offset.
pub(super) fn bad(
    what: &'static str,
    offset: u64,
    expected: Expected,
    got: impl Into<u64>,
) -> CaptureError {
    CaptureError::BadField { what, offset, expected, got: got.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a file of this head and these bytes; returns the most memory that its reader took.
    fn room(head: &[&[u8]], len: usize) -> usize {
        let mut bytes = head.concat();
        bytes.resize(bytes.len() + len, 0);
        let mut reader = CaptureReader::open(&bytes[..]).unwrap();
        while reader.next().is_ok_and(|record| record.is_some()) {}
        reader.buffer.capacity()
    }

    #[test]
    fn a_claim_takes_no_room() {
        let header = |link: u8| {
            let words = [MAGIC_MICRO, 0x0004_0002, 0, 0, 0x7FFF_FFFF, link.into()];
            words.map(u32::to_le_bytes).concat()
        };
        let record = |len: u32| [0, 0, len, len].map(u32::to_le_bytes).concat();
        // Two gigabytes are refused. A D-Bus message may have 128 MiB, if the file has them.
        assert!(room(&[&header(1), &record(1 << 31)], 100) <= WINDOW_MAX);
        assert!(room(&[&header(231), &record(1 << 31)], 100) <= WINDOW_MAX);
        assert!(room(&[&header(231), &record(128 << 20)], 100) <= WINDOW_MAX);
        let taken = room(&[&header(231), &record(128 << 20)], 5 << 20);
        assert!((5 << 20..=2 * ((5 << 20) + RECORD_LEN)).contains(&taken), "{taken}");
        let taken = room(&[&header(231), &record(3 << 20)], 20 << 20);
        assert!((3 << 20..=6 << 20).contains(&taken), "{taken}");
        let section = [0x0A0D_0D0A, 28, 0x1A2B_3C4D, 1, 0, 0, 28].map(u32::to_le_bytes).concat();
        for len in [1_u32 << 31, 16 << 20] {
            let block = [6, len].map(u32::to_le_bytes).concat();
            assert!(room(&[&section, &block], 100) <= WINDOW_MAX);
        }
    }
}
