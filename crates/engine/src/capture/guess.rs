//! Where the next record or block starts behind some place in the middle of a capture: a guess.
//!
//! Nothing marks where a packet starts, so only a reader that comes from the start of the file
//! knows. A place is guessed if records that follow each other without a gap start there, for
//! longer than usual frames are, and another record behind them: a frame that has a capture in it
//! does not deceive then, nor do bytes that look like one long record. Packets can be made that
//! deceive any rule. So whoever uses a guess has to find out whether it was right, as soon as the
//! reader of what comes before gets there.

use super::pcapng::{BLOCK_MIN, ENHANCED_PACKET, SECTION_HEADER};
use super::read::{RECORD_LEN, RECORD_LEN_LONG, size, word};
use super::{Layout, Lengths, block_max, frame_max};

/// Bytes that have to be there for a guess.
pub(crate) const GUESS_LEN: usize = 384 << 10;
/// Bytes in which records have to follow each other without a gap.
const CHAIN_LEN: usize = 128 << 10;
/// Records of a chain at least, if what is behind it is not there to look at: a long record may be
/// anything.
const RECORDS_MIN: u32 = 3;
/// Records that are looked at, at most: the time that a guess may take.
const LOOKS_MAX: u32 = 1 << 19;
/// Seconds between a record and the next one, at most.
const PAUSE_MAX_S: u32 = 7 * 86_400;

/// The place of the first record or block in these bytes, which start at a multiple of four in the
/// file; `is_end` says that the file ends with them. `None` if there is no place that looks right.
pub(crate) fn next_start(layout: &Layout, bytes: &[u8], is_end: bool) -> Option<usize> {
    let mut looks = 0;
    let step = if layout.pcapng { 4 } else { 1 };
    let length = |at: usize, before: Option<usize>| match layout.pcapng {
        true => block_len(layout, bytes, at),
        false => record_len(layout, bytes, at, before),
    };
    let candidates =
        (0..bytes.len().saturating_sub(CHAIN_LEN) + usize::from(is_end) * CHAIN_LEN).step_by(step);
    for first in candidates {
        let (mut at, mut before, mut records) = (first, None, 0);
        loop {
            looks += 1;
            if looks > LOOKS_MAX {
                return None;
            }
            if is_end && at == bytes.len() && at > first {
                return Some(first);
            }
            let is_long = at - first >= CHAIN_LEN;
            match length(at, before) {
                Looks::Right(_) if is_long => return Some(first),
                Looks::Right(len) => (at, before, records) = (at + len, Some(at), records + 1),
                // The chain is longer than what there is to look at.
                Looks::Unknown if is_long && records >= RECORDS_MIN => return Some(first),
                Looks::Unknown | Looks::Wrong => break,
            }
        }
    }
    None
}

/// What some bytes look like.
enum Looks {
    /// A record of so many bytes.
    Right(usize),
    /// They are too few to tell.
    Unknown,
    Wrong,
}

/// Bytes of a record of a pcap file; `before` is where the record before it starts.
#[inline(always)]
fn record_len(layout: &Layout, bytes: &[u8], at: usize, before: Option<usize>) -> Looks {
    let header_len = if layout.records.long { RECORD_LEN_LONG } else { RECORD_LEN };
    let (Some(header), Some(interface)) =
        (bytes.get(at..at + RECORD_LEN), layout.interfaces.first())
    else {
        return Looks::Unknown;
    };
    let big_endian = layout.sections.first().is_some_and(|section| section.big_endian);
    let number = |at| word(header, at, big_endian);
    let (seconds, ticks) = (number(0), number(4));
    let (len, wire_len) = match layout.records.lengths {
        Lengths::Wire => (number(12), number(8)),
        Lengths::Captured | Lengths::Smaller => (number(8), number(12)),
    };
    let is_right = seconds != 0
        && u64::from(ticks) < interface.ticks
        && len <= interface.frame_max().min(frame_max(interface.link))
        && len <= wire_len
        && before.is_none_or(|before| {
            let then = word(bytes, before, big_endian);
            seconds.abs_diff(then) <= PAUSE_MAX_S
        });
    if is_right { Looks::Right(header_len + size(len)) } else { Looks::Wrong }
}

/// Bytes of a block of a pcapng file.
#[inline(always)]
fn block_len(layout: &Layout, bytes: &[u8], at: usize) -> Looks {
    let big_endian = layout.sections.last().is_some_and(|section| section.big_endian);
    let Some(head) = bytes.get(at..at + 12) else { return Looks::Unknown };
    let (kind, len) = (word(head, 0, big_endian), word(head, 4, big_endian));
    let link = layout.interfaces.iter().map(|one| block_max(one.link)).max();
    let is_kind = (1..0x20).contains(&kind) || kind == SECTION_HEADER || kind >> 16 != 0;
    if !is_kind || len < BLOCK_MIN || len % 4 != 0 || len > link.unwrap_or(0) {
        return Looks::Wrong;
    }
    let first = layout.sections.last().map_or(0, |section| section.first_interface);
    let interfaces = u32::try_from(layout.interfaces.len()).unwrap_or(0) - first;
    if kind == ENHANCED_PACKET && word(head, 8, big_endian) >= interfaces {
        return Looks::Wrong;
    }
    let end = at + size(len);
    match bytes.get(end - 4..end) {
        Some(again) if word(again, 0, big_endian) == len => Looks::Right(size(len)),
        Some(_) => Looks::Wrong,
        None => Looks::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{CaptureReader, CaptureWriter, FileFormat, Interface};
    use crate::traffic::{Profile, Traffic};

    /// A capture of made-up traffic, and where each of its packets starts and the last one ends.
    fn capture(format: FileFormat, packets: u64, ticks: u64) -> (Vec<u8>, Layout, Vec<usize>) {
        let interface = Interface::new(1, ticks);
        let mut writer = CaptureWriter::new(Vec::new(), format, &[interface], "").unwrap();
        let mut traffic = Traffic::new(&Profile { packets, ..Profile::default() });
        while let Some(packet) = traffic.next() {
            writer.packet(0, packet.time_ns, packet.wire_len, packet.data).unwrap();
        }
        let bytes = writer.finish().unwrap();
        let mut reader = CaptureReader::open(&bytes[..]).unwrap();
        let mut starts = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            starts.push(usize::try_from(record.offset).unwrap());
        }
        starts.push(bytes.len());
        let layout = reader.layout().clone();
        (bytes, layout, starts)
    }

    #[test]
    fn the_next_packet_is_found_from_every_place() {
        for (format, ticks) in
            [(FileFormat::Pcap, MICRO), (FileFormat::Pcap, NANO), (FileFormat::Pcapng, NANO)]
        {
            let (bytes, layout, starts) = capture(format, 3_000, ticks);
            assert!(bytes.len() > 2 * GUESS_LEN, "{}", bytes.len());
            for place in (starts[0]..bytes.len()).step_by(4_092) {
                let end = bytes.len().min(place + GUESS_LEN);
                let found = next_start(&layout, &bytes[place..end], end == bytes.len());
                let next = starts[starts.partition_point(|&start| start < place)];
                // The end of the file is the start of nothing.
                let expected = Some(next - place).filter(|_| next < bytes.len());
                assert_eq!(found, expected, "{format:?} from {place} of {}", bytes.len());
            }
        }
    }

    #[test]
    fn what_is_no_capture_takes_few_looks_and_gives_no_place() {
        for format in [FileFormat::Pcap, FileFormat::Pcapng] {
            let (_, layout, _) = capture(format, 1, NANO);
            for byte in [0, 1, 0xFF] {
                assert_eq!(next_start(&layout, &vec![byte; GUESS_LEN], false), None);
                assert_eq!(next_start(&layout, &vec![byte; 1_000], true), None);
            }
            assert_eq!(next_start(&layout, &[], true), None);
        }
    }

    #[test]
    fn a_capture_in_a_packet_does_not_deceive_if_it_is_shorter_than_a_frame() {
        let (inner, _, _) = capture(FileFormat::Pcap, 100, NANO);
        let (bytes, layout, starts) = capture(FileFormat::Pcap, 3_000, NANO);
        let mut data = vec![0; 14];
        data.extend(&inner[24..]);
        data.truncate(60_000);
        let mut record = bytes[starts[0]..starts[0] + 8].to_vec();
        let len = u32::try_from(data.len()).unwrap().to_le_bytes();
        record.extend(len.iter().chain(&len));
        record.extend(&data);
        let whole = [&bytes[..starts[0]], &record, &bytes[starts[0]..]].concat();
        let end = starts[0] + record.len();
        let found = next_start(&layout, &whole[starts[0] + 30..][..GUESS_LEN], false);
        assert_eq!(found, Some(end - starts[0] - 30));
    }

    const MICRO: u64 = 1_000_000;
    const NANO: u64 = 1_000_000_000;
}
