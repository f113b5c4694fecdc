//! How fast a device indexes a segment, and how busy the host is meanwhile.

use std::sync::Arc;
use std::time::Instant;

use tapdex_bitmap::Codec;
use tapdex_bitmap::sample::Random;
use tapdex_engine::archive::device::{
    KEY_WORDS, SegmentColumn, SegmentDevice, SegmentFailed, SegmentKeys,
};
use tapdex_engine::index::{Digits, Width};

use super::SegmentIndexer;
use crate::device::Device;
use crate::measure::median;

/// The measurements of a segment.
#[derive(Debug, Clone)]
pub struct SegmentMeasured {
    /// Records of the segment.
    pub rows: usize,
    /// Flows of the segment.
    pub flows: usize,
    /// Columns that were built.
    pub columns: usize,
    /// Bytes of their indexes, keys and offsets.
    pub bytes_out: u64,
    /// Seconds that sorting took, from the keys on the host to the order on the host: the median.
    pub sort: f64,
    /// Seconds that the columns took, until the last index was on the host: the median.
    pub build: f64,
    /// Seconds of all runs together.
    pub seconds: f64,
    /// Seconds of CPU time of all threads of the process, in all runs together; `None` if the
    /// system does not report it.
    pub cpu: Option<f64>,
}

impl SegmentMeasured {
    /// Cores that were busy on average; `None` if the system does not report it.
    pub fn cores(&self) -> Option<f64> {
        self.cpu.map(|cpu| cpu / self.seconds)
    }
}

/// Sorts a generated segment and builds its columns, a number of times: the bytes of the
/// five-tuple, TCP flags and length classes, in Roaring.
///
/// There are `flows` flows, or as many as there are records if that is less, and at least one.
pub fn measure_segment(
    device: &Arc<dyn Device>,
    rows: usize,
    flows: usize,
    runs: usize,
    seed: u64,
) -> Result<SegmentMeasured, SegmentFailed> {
    let made = Made::new(rows, flows, seed);
    let columns = columns();
    let mut indexer = SegmentIndexer::new(Arc::clone(device));
    let (mut sorts, mut builds) = (Vec::new(), Vec::new());
    let mut bytes_out = 0;
    let mut begun = (Instant::now(), cpu_seconds());
    for run in 0..=runs {
        let start = Instant::now();
        indexer.sort(&made.keys())?;
        let sorted = start.elapsed().as_secs_f64();
        bytes_out = 0;
        indexer.columns(&columns, &mut |index| {
            let bytes = index.parts.iter().map(|part| part.len() as u64).sum::<u64>();
            bytes_out += bytes + 6 * index.keys.len() as u64 + 4;
            Ok(())
        })?;
        // The first run allocates memory and compiles kernels.
        if run == 0 {
            begun = (Instant::now(), cpu_seconds());
            continue;
        }
        sorts.push(sorted);
        builds.push(start.elapsed().as_secs_f64() - sorted);
    }
    let cpu = cpu_seconds().zip(begun.1).map(|(end, start)| end - start);
    Ok(SegmentMeasured {
        rows: made.flow_of.len(),
        flows: made.words[0].len(),
        columns: columns.len(),
        bytes_out,
        sort: median(&mut sorts),
        build: median(&mut builds),
        seconds: begun.0.elapsed().as_secs_f64(),
        cpu,
    })
}

/// The columns that are measured.
fn columns() -> Vec<(SegmentColumn<'static>, Codec)> {
    // Source and destination address, the ports, the protocol.
    let places = [(1, [56, 48, 40, 32, 24, 16, 8, 0].as_slice()), (2, &[24, 16, 8, 0]), (0, &[0])];
    let keys = places.into_iter().flat_map(|(word, shifts)| {
        shifts.iter().map(move |&shift| SegmentColumn::Key { word, shift, width: Width::Byte })
    });
    let all = keys.chain([SegmentColumn::Own(0), SegmentColumn::Own(1)]);
    all.map(|column| (column, Codec::Roaring)).collect()
}

/// A generated segment.
#[derive(Debug)]
struct Made {
    words: [Vec<u64>; KEY_WORDS],
    flow_of: Vec<u32>,
    flags: Vec<u8>,
    classes: Vec<u8>,
}

impl Made {
    fn new(rows: usize, flows: usize, seed: u64) -> Self {
        let flows = flows.clamp(rows.min(1), rows);
        let mut random = Random::new(seed);
        let mut made = Self {
            words: std::array::from_fn(|_| Vec::with_capacity(flows)),
            flow_of: Vec::with_capacity(rows),
            flags: Vec::with_capacity(rows),
            classes: Vec::with_capacity(rows),
        };
        for _ in 0..flows {
            made.push_flow(&mut random);
        }
        let mut met = 0;
        for row in 0..rows {
            // Flows are numbered as they come, evenly over the segment; of the flows so far, recent
            // ones occur more often.
            let is_new = met * rows <= row * flows;
            let back = random.number() % (1 << (random.number() % 24));
            met += usize::from(is_new);
            let flow = if is_new { 0 } else { back % met as u64 };
            made.flow_of.push(u32::try_from(met as u64 - 1 - flow).unwrap_or(0));
            let bits = random.number();
            made.flags.push(if bits.is_multiple_of(8) { 0x18 } else { 0x10 });
            made.classes.push((bits >> 32).trailing_zeros().to_le_bytes()[0]);
        }
        made
    }

    /// Adds a flow of TCP or UDP between hosts, some of which occur more often.
    fn push_flow(&mut self, random: &mut Random) {
        let host = |random: &mut Random| {
            let bits = random.number() % 20;
            Random::new(random.number() & ((1 << bits) - 1)).number()
        };
        let (source, target) = (host(random), host(random));
        let bits = random.number();
        let service =
            [80, 443, 53, 22, 25, 123, 8_080, 3_389][usize::from(bits.to_le_bytes()[0] & 7)];
        let protocol = if bits & 0x300 == 0 { 17 } else { 6 };
        let low = |word: u64| word & 0xFFFF_FFFF;
        let key = [
            0x0800 << 16 | protocol,
            low(source) << 32 | low(target),
            (bits >> 48) << 16 | service,
            // A card for each of few routers.
            (0x02_00_00_00_00_00 | source >> 62) << 16,
            0x02_00_00_00_01_00 << 16,
            4 << 56,
        ];
        self.words.iter_mut().zip(key).for_each(|(words, word)| words.push(word));
    }

    fn keys(&self) -> SegmentKeys<'_> {
        SegmentKeys {
            words: std::array::from_fn(|word| &self.words[word][..]),
            flow_of: &self.flow_of,
            own: vec![Digits::Bytes(&self.flags), Digits::Bytes(&self.classes)],
        }
    }
}

/// Seconds of CPU time of this process so far, to a hundredth; `None` if the system does not report
/// it.
fn cpu_seconds() -> Option<f64> {
    const TICKS: f64 = 100.0;
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in brackets, may have blanks; times are the 12th and 13th fields
    // after it.
    let (_, rest) = text.rsplit_once(')')?;
    let mut numbers = rest.split_whitespace().skip(11).map(str::parse::<u32>);
    let (user, system) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some((f64::from(user) + f64::from(system)) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_made_up_flow_has_a_record() {
        for (rows, flows) in [(0, 5), (1, 0), (1, 1), (1_000, 1_000), (1_000, 37), (1_000, 1)] {
            let made = Made::new(rows, flows, 3);
            let count = made.words[0].len();
            assert_eq!(made.flow_of.len(), rows);
            let mut met: Vec<u32> = made.flow_of.clone();
            met.sort_unstable();
            met.dedup();
            assert_eq!(met, (0..u32::try_from(count).unwrap()).collect::<Vec<_>>(), "{rows}");
            assert_eq!(count, flows.max(1).min(rows));
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn computing_takes_seconds() {
        let start = cpu_seconds().unwrap();
        let begun = Instant::now();
        let mut random = Random::new(1);
        while begun.elapsed().as_millis() < 10_000 && cpu_seconds().unwrap() < start + 0.05 {
            (0..1_000_000).for_each(|_| {
                std::hint::black_box(random.number());
            });
        }
        assert!(cpu_seconds().unwrap() >= start + 0.05);
    }
}
