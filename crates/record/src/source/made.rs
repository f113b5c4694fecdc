//! A source of packets that a test generates.

use std::sync::atomic::{AtomicBool, Ordering};

use tapdex_engine::capture::Interface;

use super::{CaptureOptions, PacketSource, SourceKind, SourceName};
use crate::queue::{Feeder, Pressure};

/// What a test generates: packets with their times, or `None` to have all packets before it written
/// now.
pub type Packets = Box<dyn Iterator<Item = Option<(u64, Vec<u8>)>> + Send>;

/// Where the number of a numbered packet is; the bytes after it are derived from it.
const NUMBER: std::ops::Range<usize> = 42..50;

/// A UDP packet of `len` bytes, at least 50, with a number in it that all bytes are derived from.
pub fn numbered_frame(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let [low, high] = u16::try_from(len.saturating_sub(bytes.len())).unwrap_or(0).to_le_bytes();
    bytes.extend([0x45, 0, high, low, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let [low, high] = (1_024 + u16::try_from(number % 5_000).unwrap_or(0)).to_le_bytes();
    bytes.extend([high, low, 0, 53, 0, 0, 0, 0]);
    bytes.extend(number.to_le_bytes());
    let filler = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    bytes.extend(filler.iter().cycle().take(len.saturating_sub(NUMBER.end)));
    bytes
}

/// The number of such a packet; `None` if any of its bytes is not as it was made.
pub fn frame_number(data: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(data.get(NUMBER)?.try_into().ok()?);
    (data == numbered_frame(number, data.len())).then_some(number)
}

pub(super) struct Made {
    packets: Packets,
    pub(super) pressure: Pressure,
}

impl PacketSource {
    /// A source of packets that a test generates. It waits like a stream, or loses packets like an
    /// interface.
    pub fn made(name: &str, loses: bool, packets: Packets) -> Self {
        let pressure = if loses { Pressure::Lose } else { Pressure::Wait };
        Self {
            name: SourceName::Interface(name.to_owned()),
            kind: SourceKind::Made(Made { packets, pressure }),
            options: CaptureOptions::default(),
        }
    }
}

impl Made {
    pub(super) fn run(self, feeder: &mut Feeder, stop: &AtomicBool) {
        feeder.counters.up.store(true, Ordering::Relaxed);
        let interface = Interface::new(1, 1_000_000_000);
        let Some(number) = feeder.add_interface(interface, "") else { return };
        for packet in self.packets {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let Some((time_ns, data)) = packet else {
                feeder.hand_over();
                continue;
            };
            feeder.counters.received.fetch_add(1, Ordering::Relaxed);
            feeder.packet(number, time_ns, u32::try_from(data.len()).unwrap_or(0), &data);
        }
    }
}
