//! What libpcap reads of a file, and what it would read if it allowed for different interfaces.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use pcap::{Capture, Error, Precision};
use tapdex_engine::capture::{CaptureReader, Layout};
use tapdex_engine::testing::fuzz_pcap_read;

/// Seconds and fraction as libpcap has them; length on the wire; bytes.
pub(crate) type Packet = (i64, i64, u32, Vec<u8>);

/// The packets that libpcap reads of the bytes, and its error.
pub(crate) fn libpcap(bytes: &[u8], folder: &Path) -> (Vec<Packet>, Option<String>) {
    let path = folder.join("capture");
    // Some file systems wait for the disk when a file is emptied and written again.
    let mut file = File::options().create(true).truncate(false).write(true).open(&path).unwrap();
    file.write_all(bytes).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    libpcap_file(&path)
}

fn text(error: Error) -> String {
    match error {
        Error::PcapError(text) => text,
        other => panic!("{other}"),
    }
}

pub(crate) fn libpcap_file(path: &Path) -> (Vec<Packet>, Option<String>) {
    let mut packets = Vec::new();
    let mut capture = match Capture::from_file_with_precision(path, Precision::Nano) {
        Ok(capture) => capture,
        Err(error) => return (packets, Some(text(error))),
    };
    loop {
        match capture.next_packet() {
            Ok(packet) => {
                let (time, len) = (packet.header.ts, packet.header.len);
                assert_eq!(packet.header.caplen as usize, packet.data.len());
                packets.push((time.tv_sec, time.tv_usec, len, packet.data.to_vec()));
            }
            Err(Error::NoMorePackets) => return (packets, None),
            Err(error) => return (packets, Some(text(error))),
        }
    }
}

/// A packet of ours: time, length on the wire, bytes.
pub(crate) type Ours = (u64, u32, Vec<u8>);

pub(crate) struct Read {
    pub(crate) packets: Vec<Ours>,
    pub(crate) layout: Option<Layout>,
    pub(crate) error: Option<String>,
}

/// What our reader reads of the bytes.
pub(crate) fn read(bytes: &[u8]) -> Read {
    let mut packets = Vec::new();
    let mut reader = match CaptureReader::open(bytes) {
        Ok(reader) => reader,
        Err(error) => return Read { packets, layout: None, error: Some(error.to_string()) },
    };
    let error = loop {
        match reader.next() {
            Ok(Some(record)) => {
                packets.push((record.time_ns, record.wire_len, record.data.to_vec()));
            }
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    Read { packets, layout: Some(reader.layout().clone()), error }
}

/// The time of one of libpcap's packets, as the reader's documentation has it.
fn time_ns(layout: &Layout, seconds: i64, fraction: i64) -> u64 {
    let unsigned = |number: i64| u64::from(u32::try_from(number & 0xFFFF_FFFF).unwrap());
    if layout.pcapng {
        let time = i128::from(seconds) * 1_000_000_000 + i128::from(fraction);
        u64::try_from(time.clamp(0, u64::MAX.into())).unwrap()
    } else if layout.interfaces[0].ticks == 1_000_000 {
        unsigned(seconds) * 1_000_000_000 + unsigned(fraction / 1000) * 1000
    } else {
        unsigned(seconds) * 1_000_000_000 + unsigned(fraction)
    }
}

fn converted(layout: Option<&Layout>, packets: Vec<Packet>) -> Vec<Ours> {
    let convert =
        |(seconds, fraction, len, data)| (time_ns(layout.unwrap(), seconds, fraction), len, data);
    packets.into_iter().map(convert).collect()
}

/// What libpcap gives up at although the file is sound.
pub(crate) fn is_refusal(error: &str) -> bool {
    error.contains("different from the type of the first interface")
        || error.contains("different from the snapshot length of the first interface")
}

/// Checks our reader on the bytes against libpcap. Gives whether libpcap refused them.
pub(crate) fn check(bytes: &[u8], folder: &Path) -> bool {
    fuzz_pcap_read(bytes);
    let ours = read(bytes);
    let (packets, error) = libpcap(bytes, folder);
    let refused = error.as_deref().is_some_and(is_refusal);
    let (expected, error) = if refused {
        let (expected, error) = tolerant(bytes, &ours, folder);
        assert!(expected.starts_with(&converted(ours.layout.as_ref(), packets)));
        (expected, error)
    } else {
        (converted(ours.layout.as_ref(), packets), error)
    };
    for (i, (ours, expected)) in ours.packets.iter().zip(&expected).enumerate() {
        assert_eq!(ours, expected, "packet {i}");
    }
    let (count, expected) = (ours.packets.len(), expected.len());
    assert_eq!(count, expected, "ours: {:?}, libpcap's: {error:?}", ours.error);
    // A file without interfaces is not worth an error: it has no packets.
    let error = error.filter(|error| !error.contains("no Interface Description Blocks"));
    assert_eq!(ours.error.is_some(), error.is_some(), "{:?}, libpcap: {error:?}", ours.error);
    refused
}

/// What libpcap reads when all interfaces are made equal, up to the first packet that is longer
/// than the snapshot length that its own interface has in truth.
fn tolerant(bytes: &[u8], ours: &Read, folder: &Path) -> (Vec<Ours>, Option<String>) {
    let mut bytes = bytes.to_vec();
    let big = bytes[8] == 0x1A;
    let get = |bytes: &[u8], at: usize, len: usize| {
        let Some(field) = bytes.get(at..at + len) else { return 0 };
        let push = |sum: usize, &byte: &u8| sum << 8 | usize::from(byte);
        if big { field.iter().fold(0, push) } else { field.iter().rev().fold(0, push) }
    };
    let put = |bytes: &mut [u8], at: usize, len: usize, number: usize| {
        let mut field = number.to_le_bytes()[..len].to_vec();
        if big {
            field.reverse();
        }
        bytes[at..at + len].copy_from_slice(&field);
    };
    // Of each packet block, whether it is a simple one, its length and its snapshot length.
    let mut blocks = Vec::new();
    let mut snaplens = Vec::new();
    let mut at = 0;
    while at + 12 <= bytes.len() {
        let (kind, len) = (get(&bytes, at, 4), get(&bytes, at + 4, 4));
        if len < 12 || at + len > bytes.len() {
            break;
        }
        let most = |id: usize| snaplens.get(id).copied().unwrap_or(0);
        match kind {
            0x0A0D_0D0A => snaplens.clear(),
            1 if len >= 20 => {
                let snaplen = get(&bytes, at + 12, 4);
                let usual = snaplen == 0 || snaplen > 0x7FFF_FFFF;
                snaplens.push(if usual { 262_144 } else { snaplen });
                put(&mut bytes, at + 8, 2, 1);
                put(&mut bytes, at + 12, 4, 0);
            }
            2 => blocks.push((None, most(get(&bytes, at + 8, 2)))),
            3 if len >= 16 => {
                let (wire_len, most) = (get(&bytes, at + 8, 4), most(0));
                blocks.push((Some(wire_len), most));
                put(&mut bytes, at + 8, 4, wire_len.min(most));
            }
            6 => blocks.push((None, most(get(&bytes, at + 8, 4)))),
            _ => {}
        }
        at += len;
    }
    let (packets, mut error) = libpcap(&bytes, folder);
    let mut packets = converted(ours.layout.as_ref(), packets);
    assert!(!error.as_deref().is_some_and(is_refusal), "{error:?}");
    for (i, (simple, most)) in blocks.into_iter().take(packets.len()).enumerate() {
        if let Some(wire_len) = simple {
            packets[i].1 = u32::try_from(wire_len).unwrap();
        } else if packets[i].2.len() > most {
            packets.truncate(i);
            error = Some("longer than the snapshot length".into());
            break;
        }
    }
    (packets, error)
}
