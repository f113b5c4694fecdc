//! The eight scenarios that HiPES was published with, and how fast a device does them.
//!
//! The ids are drawn as the paper says, with a seed of our own: the paper's was not fixed. A
//! megabyte is 10^6 bytes, speeds are of the input, and ratios are input over output.

use std::sync::Arc;
use std::time::Instant;

use tapdex_bitmap::Codec;
use tapdex_bitmap::codec::hipes::Width;
use tapdex_bitmap::sample::Family;

use super::{Form, IdSource, Path, PinnedWords, SetBuilder, SetError, Target};
use crate::device::Device;

/// The seed of the ids.
pub const SEED: u64 = 2026;

/// Sets of a pipelined run.
pub const PIPELINED_SETS: usize = 8;

/// The sweep leaves out widths whose output could have more bytes than this.
const SWEEP_BYTES_MAX: u64 = 2 << 30;

/// What was published for a scenario, on an RTX 2060.
#[derive(Debug, Clone, Copy)]
pub struct Published {
    /// HiPES, megabytes a second, copies included.
    pub hipes: f64,
    /// HiPES, input over output.
    pub hipes_ratio: f64,
    /// GPU-WAH, megabytes a second, copies included.
    pub wah: f64,
    /// GPU-WAH, input over output.
    pub wah_ratio: f64,
}

/// A number of ids below a number of rows, uniform or mostly in clusters.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// Its name in the paper.
    pub name: &'static str,
    /// How many ids.
    pub ids: u32,
    /// All of them are below this.
    pub rows: u32,
    /// How many clusters; 0 for uniform ids.
    pub clusters: u32,
    /// What was published.
    pub published: Published,
}

const fn scenario(
    name: &'static str,
    (ids, rows, clusters): (u32, u32, u32),
    (hipes, hipes_ratio): (f64, f64),
    (wah, wah_ratio): (f64, f64),
) -> Scenario {
    let published = Published { hipes, hipes_ratio, wah, wah_ratio };
    Scenario { name, ids, rows, clusters, published }
}

/// The scenarios of the paper's second table.
pub const SCENARIOS: [Scenario; 8] = [
    scenario("S1", (1_000_000, 100_000_000, 0), (1714.24, 0.32), (142.07, 0.67)),
    scenario("S2", (10_000_000, 100_000_000, 0), (7761.41, 3.20), (951.47, 3.10)),
    scenario("S3", (1_000_000, 1_000_000_000, 0), (753.75, 0.03), (16.97, 0.52)),
    scenario("S4", (10_000_000, 1_000_000_000, 0), (4812.82, 0.32), (157.05, 0.67)),
    scenario("S5", (1_000_000, 100_000_000, 10), (1710.11, 0.32), (151.93, 1.33)),
    scenario("S6", (10_000_000, 100_000_000, 10), (7797.72, 3.20), (1012.51, 5.09)),
    scenario("S7", (1_000_000, 1_000_000_000, 50), (751.66, 0.03), (19.10, 0.59)),
    scenario("S8", (10_000_000, 1_000_000_000, 50), (4689.17, 0.32), (172.29, 1.34)),
];

impl Scenario {
    /// The ids, ascending and all different.
    pub fn ids(&self) -> Vec<u32> {
        Family::Hipes { ids: self.ids, clusters: self.clusters }.ids(self.rows, SEED)
    }
}

/// The median, the least and the greatest value of several runs.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Of at least one value.
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |place: usize| values.get(place).copied().unwrap_or(0.0);
        Self { median: at(values.len() / 2), min: at(0), max: at(values.len().saturating_sub(1)) }
    }
}

/// How fast a set was encoded, and how small it got.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Megabytes a second from host to host, one set at a time.
    pub single: Spread,
    /// Megabytes a second from host to host, several sets in flight.
    pub pipelined: Spread,
    /// Megabytes a second of the kernels alone.
    pub device: Spread,
    /// Milliseconds of each phase of the kernels, the medians.
    pub phases: Vec<(&'static str, f64)>,
    /// Bytes of the output.
    pub bytes: usize,
    /// Bytes of the input over those of the output.
    pub ratio: f64,
}

/// A scenario, encoded in every way.
#[derive(Debug, Clone)]
pub struct ScenarioResult {
    /// Which.
    pub scenario: Scenario,
    /// HiPES the direct way.
    pub direct: Measured,
    /// HiPES the published way.
    pub published: Measured,
    /// GPU-WAH.
    pub wah: Measured,
}

/// A scenario at one width of chunks.
#[derive(Debug, Clone)]
pub struct WidthResult {
    /// Which.
    pub scenario: Scenario,
    /// The rows of a chunk as a power of two.
    pub width: Width,
    /// HiPES the direct way.
    pub direct: Measured,
    /// HiPES the published way.
    pub published: Measured,
}

/// Measures one scenario at the default width. Every output is compared with the CPU's.
pub fn measure_scenario(
    device: &Arc<dyn Device>,
    scenario: Scenario,
    runs: usize,
) -> Result<ScenarioResult, SetError> {
    let mut bench = Bench::new(device, scenario, runs)?;
    Ok(ScenarioResult {
        scenario,
        direct: bench.hipes(Width::DEFAULT, Path::Direct)?,
        published: bench.hipes(Width::DEFAULT, Path::Published)?,
        wah: bench.measure(Target::Wah(Form::Canonical), Codec::Wah)?,
    })
}

/// Measures a scenario at every width whose output is not too large.
pub fn measure_widths(
    device: &Arc<dyn Device>,
    scenario: Scenario,
    runs: usize,
) -> Result<Vec<WidthResult>, SetError> {
    let mut bench = Bench::new(device, scenario, runs)?;
    let fits = |width: &Width| {
        let chunks = (scenario.rows.saturating_sub(1) >> width.get()) + 1;
        u64::from(chunks.min(scenario.ids)) * width.chunk_bytes() as u64 <= SWEEP_BYTES_MAX
    };
    let widths = (7..=29).filter_map(Width::new).filter(fits);
    widths
        .map(|width| {
            Ok(WidthResult {
                scenario,
                width,
                direct: bench.hipes(width, Path::Direct)?,
                published: bench.hipes(width, Path::Published)?,
            })
        })
        .collect()
}

/// A scenario's ids, ready to be encoded again and again.
struct Bench {
    builder: SetBuilder,
    name: &'static str,
    ids: Vec<u32>,
    input: PinnedWords,
    runs: usize,
}

impl Bench {
    fn new(device: &Arc<dyn Device>, scenario: Scenario, runs: usize) -> Result<Self, SetError> {
        let mut builder = SetBuilder::new(Arc::clone(device));
        builder.set_rows(scenario.rows);
        let ids = scenario.ids();
        let mut input = builder.input(ids.len())?;
        input.put(0, &ids);
        Ok(Self { builder, name: scenario.name, ids, input, runs: runs.max(1) })
    }

    fn hipes(&mut self, width: Width, path: Path) -> Result<Measured, SetError> {
        self.measure(Target::Hipes(width, path), Codec::Hipes(width))
    }

    fn measure(&mut self, target: Target, codec: Codec) -> Result<Measured, SetError> {
        // The first runs allocate memory and load the kernels.
        let bytes = self.check(target, codec)?;
        let sources = vec![IdSource::from(&self.input); PIPELINED_SETS];
        self.builder.build_many(&sources, target, |_, _| {})?;
        let input_mb = 4e-6 * self.ids.len() as f64;
        let (mut single, mut pipelined, mut device) = (vec![], vec![], vec![]);
        let mut phases: Vec<(&'static str, Vec<f64>)> = vec![];
        for _ in 0..self.runs {
            let start = Instant::now();
            drop(self.builder.build(&self.input, target)?);
            single.push(input_mb / start.elapsed().as_secs_f64());
            let start = Instant::now();
            self.builder.build_many(&sources, target, |_, _| {})?;
            let sets = PIPELINED_SETS as f64;
            pipelined.push(sets * input_mb / start.elapsed().as_secs_f64());
            let (_, timings) = self.builder.build_timed(&self.input, target)?;
            device.push(1e3 * input_mb / f64::from(timings.device()));
            for (at, &(name, ms)) in timings.kernels.iter().enumerate() {
                match phases.get_mut(at) {
                    Some(phase) => phase.1.push(ms.into()),
                    None => phases.push((name, vec![ms.into()])),
                }
            }
        }
        Ok(Measured {
            single: Spread::of(single),
            pipelined: Spread::of(pipelined),
            device: Spread::of(device),
            phases: phases.into_iter().map(|(name, ms)| (name, Spread::of(ms).median)).collect(),
            bytes,
            ratio: 4.0 * self.ids.len() as f64 / bytes.max(1) as f64,
        })
    }

    /// The size of the output, if it equals the CPU's.
    fn check(&mut self, target: Target, codec: Codec) -> Result<usize, SetError> {
        let encoded = self.builder.build(&self.input, target)?;
        let mut expected = Vec::new();
        codec.encode(&self.ids, &mut expected);
        if *encoded != *expected {
            return Err(SetError::Differs { scenario: self.name, target });
        }
        Ok(encoded.len())
    }
}
