//! Captures made for the comparison.

use std::io::Write;
use std::path::{Path, PathBuf};

use tapdex_bitmap::sample::Random;
use tapdex_engine::capture::{CaptureWriter, FileFormat, Interface};
use tapdex_engine::packet::LinkType;
use tapdex_engine::traffic::{Profile, Traffic};

use crate::frames;

pub(crate) const WIFI: LinkType = LinkType(105);
pub(crate) const PPP: LinkType = LinkType(9);
/// A header that says what link the frame behind it is of.
pub(crate) const PPI: LinkType = LinkType(192);

/// A frame to be written: its length on the wire and what was captured of it.
pub(crate) type Frame = (u32, Vec<u8>);

const NANO: u64 = 1_000_000_000;
const START_NS: u64 = 1_700_000_000 * NANO;

fn len(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap()
}

/// Times of packets.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Times {
    /// One later than the other, by about a millisecond; some are equal.
    Rising,
    /// Every so often they go back by some seconds, or leap ahead.
    Jumping,
}

fn times(kind: Times) -> impl FnMut() -> u64 {
    let mut random = Random::new(7);
    let mut time = START_NS;
    move || {
        time += u64::from(random.below(3)) * 700_001;
        if kind == Times::Jumping && random.below(50) == 0 {
            time = time + u64::from(random.below(3_000_000)) * 1000 - 1_500_000_000;
        }
        time
    }
}

/// Writes a pcap file in either byte order, with times in nanoseconds.
pub(crate) fn pcap(path: PathBuf, link: LinkType, big: bool, frames: &[Frame]) -> PathBuf {
    let word = |value: u32| if big { value.swap_bytes() } else { value }.to_le_bytes();
    let mut bytes = Vec::new();
    bytes.extend(word(0xA1B2_3C4D));
    bytes.extend(if big { [0, 2, 0, 4] } else { [2, 0, 4, 0] });
    bytes.extend([0; 8]);
    bytes.extend(word(65_535));
    bytes.extend(word(link.0.into()));
    let mut time = times(Times::Rising);
    for (wire_len, data) in frames {
        let time = time();
        let [seconds, rest] = [time / NANO, time % NANO].map(|part| u32::try_from(part).unwrap());
        bytes.extend([seconds, rest, len(data), *wire_len].into_iter().flat_map(word));
        bytes.extend(data);
    }
    std::fs::File::create(&path).unwrap().write_all(&bytes).unwrap();
    path
}

/// Writes a pcapng file: each frame with the number of its interface.
pub(crate) fn pcapng(
    path: PathBuf,
    links: &[LinkType],
    kind: Times,
    frames: &[(u32, Frame)],
) -> PathBuf {
    let interfaces: Vec<_> = links.iter().map(|link| Interface::new(link.0, NANO)).collect();
    let file = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
    let mut writer = CaptureWriter::new(file, FileFormat::Pcapng, &interfaces, "").unwrap();
    let mut time = times(kind);
    for (interface, (wire_len, data)) in frames {
        writer.packet(*interface, time(), *wire_len, data).unwrap();
    }
    writer.finish().unwrap().flush().unwrap();
    path
}

/// Made-up traffic of all kinds.
pub(crate) fn traffic(packets: u64, seed: u64, snap_len: u32) -> Vec<Frame> {
    let mut traffic = Traffic::new(&Profile {
        seed,
        packets,
        snap_len,
        ipv6_share: 0.2,
        vlan_share: 0.15,
        tunnel_share: 0.1,
        scan_share: 0.02,
        flood_share: 0.02,
        other_share: 0.25,
        concurrent_flows: 100,
        ..Profile::default()
    });
    let mut frames = Vec::new();
    while let Some(packet) = traffic.next() {
        frames.push((packet.wire_len, packet.data.to_vec()));
    }
    frames
}

/// Each frame whole, and some of its beginnings.
fn with_cuts(whole: Vec<Vec<u8>>, cuts: usize, random: &mut Random) -> Vec<Frame> {
    let mut frames = Vec::new();
    for frame in whole {
        let wire_len = len(&frame);
        for _ in 0..cuts {
            let cut = 16 + random.below(49) as usize;
            if cut < frame.len() {
                frames.push((wire_len, frame[..cut].to_vec()));
                // As short on the wire.
                frames.push((u32::try_from(cut).unwrap(), frame[..cut].to_vec()));
            }
        }
        let cut = random.below(16) as usize;
        frames.push((wire_len, frame[..cut.min(frame.len())].to_vec()));
        frames.push((wire_len, frame));
    }
    frames.push((0, vec![]));
    frames.push((60, vec![]));
    frames
}

fn shuffle<T>(list: &mut [T], random: &mut Random) {
    for at in (1..list.len()).rev() {
        list.swap(at, random.below(u32::try_from(at).unwrap() + 1) as usize);
    }
}

/// A data frame, from or to the distribution system or neither, with an 802.2 header.
fn wifi(eth_type: u16, payload: &[u8], random: &mut Random) -> Vec<u8> {
    let flags = u8::try_from(random.below(4)).unwrap();
    let subtype = [0x08, 0x88, 0x80, 0x48][random.below(4) as usize];
    let mut frame = vec![subtype, flags, 0, 0];
    frame.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 3, 0x10, 0]);
    if subtype == 0x88 {
        frame.extend([0, 0]);
    }
    frame.extend([0xAA, 0xAA, 3, 0, 0, 0]);
    frames::join(&[&frame, &eth_type.to_be_bytes(), payload])
}

/// Frames by hand, of a link: whole and cut.
pub(crate) fn odd_frames(link: LinkType, swapped: bool, seed: u64) -> Vec<Frame> {
    let mut random = Random::new(seed);
    let mut whole = Vec::new();
    let payloads = frames::payloads();
    for (_, eth_type, payload, _) in &payloads {
        match link {
            LinkType::ETHERNET => {
                whole.push(frames::eth(*eth_type, payload));
                let tag = |id, kind, rest: &[u8]| frames::tag(id, kind, rest);
                for outer in [0x8100, 0x88A8, 0x9100] {
                    whole.push(frames::eth(outer, &tag(5, *eth_type, payload)));
                }
                let inner = tag(100, *eth_type, payload);
                whole.push(frames::eth(0x8100, &tag(5, 0x8100, &inner)));
                whole.push(frames::eth(0x88A8, &tag(0xFFE, 0x8100, &inner)));
                whole.push(frames::eth(0x9100, &tag(0, 0x88A8, &tag(7, 0x8100, &inner))));
            }
            WIFI => whole.push(wifi(*eth_type, payload, &mut random)),
            PPI => {
                let frame = wifi(*eth_type, payload, &mut random);
                whole.push(frames::join(&[&[0, 0, 8, 0, 105, 0, 0, 0], &frame]));
                let frame = frames::eth(*eth_type, payload);
                whole.push(frames::join(&[&[0, 0, 8, 0, 1, 0, 0, 0], &frame]));
            }
            PPP => {
                let protocol = match eth_type {
                    0x800 => 0x21_u16,
                    0x86DD => 0x57,
                    other => *other,
                };
                whole.push(frames::join(&[&[0xFF, 3], &protocol.to_be_bytes(), payload]));
            }
            _ => whole.extend(frames::framed(link, swapped, *eth_type, payload)),
        }
    }
    if link == LinkType::ETHERNET {
        whole.extend(frames::ethernet_only().into_iter().map(|(_, frame, _)| frame));
        // Groups, broadcast, and addresses that differ in one place.
        for macs in [[0xFF; 12], [1, 0, 0x5E, 0, 0, 1, 2, 0, 0, 0, 0, 2]] {
            let mut frame = frames::eth(0x800, &frames::ip4(17, &frames::dns()));
            frame[..12].copy_from_slice(&macs);
            whole.push(frame);
        }
        // 802.2 headers of all kinds of control fields.
        for control in (0..=255).step_by(7) {
            let body = frames::join(&[&[0xE0, 0xE0, control, control ^ 0x55], &[0x83; 12]]);
            whole.push(frames::eth(16, &body));
            let body = frames::join(&[&[0xFE, 0xFE, 3, 0x81 + control % 3], &[control; 12]]);
            whole.push(frames::eth(16, &body));
        }
        // IPX in its four forms, spanning tree, NetBEUI.
        whole.push(frames::eth(0x8137, &[0xFF; 30]));
        whole.push(frames::eth(30, &[0xFF; 30]));
        whole.push(frames::eth(30, &frames::join(&[&[0xE0, 0xE0, 3], &[0xFF; 30]])));
        whole.push(frames::eth(
            38,
            &frames::join(&[&[0xAA, 0xAA, 3, 0, 0, 0, 0x81, 0x37], &[0xFF; 30]]),
        ));
        whole.push(frames::eth(38, &frames::join(&[&[0xF0, 0xF0, 3], &[0; 35]])));
    }
    // Headers with random bytes in places that filters look at.
    let made = whole.len();
    for _ in 0..made / 2 {
        let mut frame = whole[random.below(u32::try_from(made).unwrap()) as usize].clone();
        for _ in 0..=random.below(3) {
            let at = random.below(len(&frame).clamp(1, 64)) as usize;
            if let Some(byte) = frame.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        whole.push(frame);
    }
    let mut frames = with_cuts(whole, 2, &mut random);
    shuffle(&mut frames, &mut random);
    frames
}

/// Frames of several links, which take turns.
pub(crate) fn mixed(folder: &Path) -> PathBuf {
    let links = [LinkType::ETHERNET, LinkType::RAW, LinkType::LINUX_SLL, WIFI, LinkType::ETHERNET];
    let mut random = Random::new(3);
    let mut frames = Vec::new();
    for (number, link) in (0..).zip(links) {
        let of_link = odd_frames(link, false, number.into()).into_iter().take(500);
        frames.extend(of_link.map(|frame| (number, frame)));
    }
    shuffle(&mut frames, &mut random);
    pcapng(folder.join("mixed.pcapng"), &links, Times::Jumping, &frames)
}
