//! A source of packets that a test makes.

use std::sync::atomic::{AtomicBool, Ordering};

use tapdex_engine::capture::Interface;

use super::{CaptureOptions, Kind, Source, SourceName};
use crate::queue::{Feeder, Pressure};

/// What a test makes: packets with their times, or the wish that what came before be written now.
pub type Packets = Box<dyn Iterator<Item = Option<(u64, Vec<u8>)>> + Send>;

pub(super) struct Made {
    packets: Packets,
    pub(super) pressure: Pressure,
}

impl Source {
    /// A source of packets that a test makes. It waits as a stream does, or loses packets as an
    /// interface does.
    pub fn made(name: &str, loses: bool, packets: Packets) -> Self {
        let pressure = if loses { Pressure::Lose } else { Pressure::Wait };
        Self {
            name: SourceName::Interface(name.to_owned()),
            kind: Kind::Made(Made { packets, pressure }),
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
            feeder.tick();
        }
    }
}
