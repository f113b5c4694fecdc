//! Frames changed at random: tags, labels, tunnels and extension headers put in, bytes flipped and
//! cut off; and capture files of such frames in every format.

#![allow(clippy::big_endian_bytes, reason = "network headers are big-endian")]

use tapdex_bitmap::sample::Random;

use crate::packet::LinkType;

/// A frame: its length on the wire, and its captured bytes.
pub type Frame = (u32, Vec<u8>);

/// The format of a capture file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// pcap with microseconds.
    PcapMicro,
    /// pcap with nanoseconds.
    PcapNano,
    /// pcapng with one interface.
    Pcapng,
}

/// The bytes of a capture file of one link, in either byte order.
pub fn capture_file(format: Format, big: bool, link: LinkType, frames: &[Frame]) -> Vec<u8> {
    let word = |value: u32| if big { value.swap_bytes() } else { value }.to_le_bytes();
    let half = |value: u16| if big { value.swap_bytes() } else { value }.to_le_bytes();
    let snap_len = frames.iter().map(|(_, data)| len(data)).max().unwrap_or(0).max(64);
    let mut bytes = Vec::new();
    if format == Format::Pcapng {
        for part in [0x0A0D_0D0A, 28, 0x1A2B_3C4D] {
            bytes.extend(word(part));
        }
        bytes.extend(half(1));
        bytes.extend(half(0));
        bytes.extend([0xFF; 8]);
        bytes.extend(word(28));
        bytes.extend(word(1));
        bytes.extend(word(20));
        bytes.extend(half(link.0));
        bytes.extend(half(0));
        bytes.extend(word(snap_len));
        bytes.extend(word(20));
    } else {
        bytes.extend(word(if format == Format::PcapNano { 0xA1B2_3C4D } else { 0xA1B2_C3D4 }));
        bytes.extend(half(2));
        bytes.extend(half(4));
        bytes.extend([0; 8]);
        bytes.extend(word(snap_len));
        bytes.extend(word(u32::from(link.0)));
    }
    for (at, (wire_len, data)) in (0_u32..).zip(frames) {
        if format == Format::Pcapng {
            let micros = 1_700_000_000_000_000 + 700 * u64::from(at);
            let padding = data.len().next_multiple_of(4) - data.len();
            let total = 32 + len(data) + u32::try_from(padding).unwrap();
            let [high, low] = [micros >> 32, micros & 0xFFFF_FFFF].map(|n| n.try_into().unwrap());
            for part in [6, total, 0, high, low, len(data), *wire_len] {
                bytes.extend(word(part));
            }
            bytes.extend(data);
            bytes.resize(bytes.len() + padding, 0);
            bytes.extend(word(total));
        } else {
            for part in [1_700_000_000 + at / 1000, at % 1000 * 999, len(data), *wire_len] {
                bytes.extend(word(part));
            }
            bytes.extend(data);
        }
    }
    bytes
}

fn len(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap()
}

fn of<T: Copy>(random: &mut Random, list: &[T]) -> T {
    list[random.below(u32::try_from(list.len()).unwrap()) as usize]
}

fn insert(frame: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if at <= frame.len() {
        frame.splice(at..at, bytes.iter().copied());
    }
}

fn half_at(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?))
}

/// The same frame with something put in, exchanged, flipped or cut off, or as it is.
pub fn mutated(link: LinkType, frame: &[u8], random: &mut Random) -> Frame {
    let mut frame = frame.to_vec();
    for _ in 0..of(random, &[0, 0, 1, 1, 1, 2, 2, 3]) {
        if link == LinkType::ETHERNET && random.below(3) > 0 {
            on_ethernet(&mut frame, random);
        } else {
            on_network(link, &mut frame, random);
        }
    }
    if random.below(5) == 0 {
        for _ in 0..=random.below(3) {
            let at = random.below(len(&frame).clamp(1, 80)) as usize;
            if let Some(byte) = frame.get_mut(at) {
                *byte = match random.below(3) {
                    0 => of(random, &[0, 1, 4, 6, 17, 44, 58, 255]),
                    _ => *byte ^ 1 << random.below(8),
                };
            }
        }
    }
    let mut wire_len = len(&frame) + of(random, &[0, 0, 0, 1, 1000]);
    if random.below(4) == 0 {
        let cut = random.below(len(&frame).clamp(1, 100)) as usize;
        frame.truncate(cut);
        if random.below(2) == 0 {
            wire_len = len(&frame);
        }
    }
    (wire_len, frame)
}

/// Tags, labels, sessions and tunnels.
fn on_ethernet(frame: &mut Vec<u8>, random: &mut Random) {
    let Some(kind) = half_at(frame, 12) else { return };
    match random.below(8) {
        0..3 => {
            let [a, b] = of(random, &[0x8100_u16, 0x8100, 0x88A8, 0x9100, 0x9200]).to_be_bytes();
            let [c, d] = of(random, &[0_u16, 5, 100, 0x6005, 0xFFFE]).to_be_bytes();
            insert(frame, 12, &[a, b, c, d]);
        }
        3..5 => {
            let labels = random.below(3) + 1;
            for label in 0..labels {
                let bottom = u32::from(label == 0 && random.below(6) > 0);
                let value = of(random, &[0, 16, 3, 100_000, 0xABCDE, 0xF_FFFF]);
                insert(frame, 14, &(value << 12 | bottom << 8 | 64).to_be_bytes());
            }
            frame[12..14].copy_from_slice(&of(random, &[[0x88, 0x47], [0x88, 0x47], [0x88, 0x48]]));
        }
        5 => {
            let protocol = match kind {
                0x800 => [0, 0x21],
                0x86DD => [0, 0x57],
                _ => [0xC0, 0x21],
            };
            let [a, b] = of(random, &[1_u16, 17, 0x27]).to_be_bytes();
            insert(frame, 14, &[0x11, 0, a, b, 0, 60, protocol[0], protocol[1]]);
            frame[12..14].copy_from_slice(&of(random, &[[0x88, 0x64], [0x88, 0x64], [0x88, 0x63]]));
        }
        6 => {
            let inner = if random.below(3) == 0 { kind } else { 0x6558 };
            let words = of(random, &[0, 0, 1, 3]);
            let mut carried = vec![of(random, &[0, 0, 0, 0x40]) | words, 0];
            carried.extend(inner.to_be_bytes());
            carried.extend([0, 0, of(random, &[5, 7]), 0]);
            carried.extend(vec![9; 4 * usize::from(words)]);
            carried.extend(if inner == 0x6558 { &frame[..] } else { &frame[14..] });
            let port = of(random, &[6081_u16, 6081, 6081, 4789]).to_be_bytes();
            let mut outer = frame[..12].to_vec();
            if random.below(4) == 0 {
                outer.extend([0x86, 0xDD, 0x60, 0, 0, 0, 0, 60, 17, 64]);
                outer.extend([0x20, 1, 0xD, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
                outer.extend([0x20, 1, 0xD, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
            } else {
                let words = of(random, &[5, 5, 6]);
                outer.extend([8, 0, 0x40 | words, 0, 0, 80, 0, 1, 0, 0, 64, 17, 0, 0]);
                outer.extend([10, 0, 0, 1, 10, 0, 1, 2]);
                outer.extend(vec![1; 4 * usize::from(words - 5)]);
            }
            outer.extend([0x9C, 0x40, port[0], port[1], 0, 60, 0, 0]);
            outer.extend(carried);
            *frame = outer;
        }
        _ => {
            let kinds = [0x800, 0x806, 0x86DD, 0x8035, 0x8847, 0x8864, 0x88CC, 40, 0x6003];
            frame[12..14].copy_from_slice(&of::<u16>(random, &kinds).to_be_bytes());
        }
    }
}

/// Where the network header of a frame starts, behind its tags.
fn network_at(link: LinkType, frame: &[u8]) -> Option<usize> {
    Some(match link {
        LinkType::ETHERNET => {
            let mut at = 12;
            while let 0x8100 | 0x88A8 | 0x9100 = half_at(frame, at)? {
                at += 4;
            }
            at + 2
        }
        LinkType::LINUX_SLL => 16,
        LinkType::LINUX_SLL2 => 20,
        LinkType::NULL | LinkType::LOOP | LinkType(9 | 104) => 4,
        LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => 0,
        _ => return None,
    })
}

/// Options, extension headers, fragments and other protocols.
fn on_network(link: LinkType, frame: &mut Vec<u8>, random: &mut Random) {
    let Some(at) = network_at(link, frame) else { return };
    let version = frame.get(at).map(|byte| byte >> 4);
    match version {
        Some(4) if frame.len() >= at + 20 => match random.below(6) {
            0 => {
                let words = of(random, &[1_u8, 2, 10]);
                let behind = (frame[at] & 15).saturating_add(words).min(15);
                let added = 4 * usize::from(behind - (frame[at] & 15));
                frame[at] = 0x40 | behind;
                insert(frame, at + 20, &vec![1; added]);
            }
            1 => {
                let word = of(random, &[0_u16, 0x2000, 1, 0x20B9, 0x4000, 0x8000]);
                frame[at + 6..at + 8].copy_from_slice(&word.to_be_bytes());
            }
            2 => {
                let header = 4 * usize::from(frame[at] & 15);
                let next = std::mem::replace(&mut frame[at + 9], 51);
                insert(frame, at + header, &[next, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]);
                insert(frame, at + header + 12, &[7; 12]);
            }
            3 => frame[at] = 0x40 | of(random, &[0, 1, 4, 5, 15]),
            4 => {
                let bytes = of(random, &[[0, 0, 0, 0], [255; 4], [224, 0, 0, 1], [10, 0, 0, 1]]);
                let end = of(random, &[12, 16]);
                frame[at + end..at + end + 4].copy_from_slice(&bytes);
            }
            _ => frame[at + 9] = of(random, &[1, 2, 6, 9, 17, 47, 50, 51, 58, 103, 112, 132]),
        },
        Some(6) if frame.len() >= at + 40 => {
            let kind = of(random, &[0_u8, 43, 44, 44, 51, 60, 6]);
            let next = std::mem::replace(&mut frame[at + 6], kind);
            let word = of(random, &[0_u16, 1, 8, 0xB9]).to_be_bytes();
            match kind {
                6 => {}
                44 => insert(frame, at + 40, &[next, 0, word[0], word[1], 0, 0, 0, 9]),
                51 => insert(frame, at + 40, &[next, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]),
                _ => insert(frame, at + 40, &[next, 0, 1, 4, 0, 0, 0, 0]),
            }
        }
        _ => {
            if let Some(byte) = frame.get_mut(at) {
                *byte = of(random, &[0x45, 0x46, 0x60, 0]);
            }
        }
    }
}
