//! How fast a device builds indexes, compared with the limit of its bus.

use std::sync::Arc;
use std::time::Instant;

use tapdex_bitmap::Codec;
use tapdex_bitmap::sample::Random;
use tapdex_engine::index::{BuildError, Digits, Width};

use crate::builder::GpuBuilder;
use crate::column::{ColumnSource, Form};
use crate::device::{Device, DeviceError, Stream, record};
use crate::memory::{Memory, Pinned};

pub mod papers;
pub mod peer;

/// The bandwidth of the bus, in bytes a second.
#[derive(Debug, Clone, Copy)]
pub struct Bus {
    /// To the device, with nothing else going on.
    pub to_device: f64,
    /// From the device, with nothing else going on.
    pub from_device: f64,
    /// Each way, both at the same time.
    pub both_ways: f64,
    /// Within the device, for filling memory.
    pub on_device: f64,
}

impl Bus {
    /// The least seconds that it takes to copy these numbers of bytes to the device and back.
    pub fn least(&self, to_device: u64, from_device: u64) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "bytes, for people")]
        let (to, from) = (to_device as f64, from_device as f64);
        // Both ways as long as there is something to copy both ways, then the rest alone.
        let both = to.min(from) / self.both_ways;
        let rest = (to - from).max(0.0) / self.to_device + (from - to).max(0.0) / self.from_device;
        both + rest
    }

    /// Seconds that it takes if each direction has the bandwidth it has when both are busy.
    pub fn both_busy(&self, to_device: u64, from_device: u64) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "bytes, for people")]
        let most = to_device.max(from_device) as f64;
        most / self.both_ways
    }

    /// Measures it: the fastest of some copies of 256 MiB each way, since it serves as a limit.
    pub fn measure(device: &Arc<dyn Device>, runs: usize) -> Result<Self, DeviceError> {
        const BYTES: usize = 1 << 28;
        let host = [Pinned::new(device, BYTES)?, Pinned::new(device, BYTES)?];
        let on_device = [Memory::new(device, BYTES)?, Memory::new(device, BYTES)?];
        let copy_in = || device.copy_in(Stream::In, &host[0], on_device[0].address());
        let copy_out =
            || device.copy_out(Stream::Out, on_device[1].address(), host[1].address(), BYTES);
        let wait = |stream| record(device, stream)?.wait();
        let rate = |work: &dyn Fn() -> Result<(), DeviceError>| -> Result<f64, DeviceError> {
            let mut seconds = Vec::new();
            for _ in 0..=runs {
                let start = Instant::now();
                work()?;
                wait(Stream::In)?;
                wait(Stream::Compute)?;
                wait(Stream::Out)?;
                seconds.push(start.elapsed().as_secs_f64());
            }
            #[allow(clippy::cast_precision_loss, reason = "bytes, for people")]
            Ok(BYTES as f64 / seconds.into_iter().fold(f64::INFINITY, f64::min))
        };
        Ok(Self {
            to_device: rate(&copy_in)?,
            from_device: rate(&copy_out)?,
            both_ways: rate(&|| copy_in().and_then(|()| copy_out()))?,
            on_device: rate(&|| device.fill(Stream::Compute, on_device[0].address(), 1, BYTES))?,
        })
    }
}

/// The middle one of some numbers, which are sorted; for an even number of them, the higher of the
/// two.
pub fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(0.0)
}

/// Columns in pinned memory.
#[derive(Debug)]
pub struct Columns {
    /// What they are like.
    pub name: &'static str,
    width: Width,
    columns: Vec<Pinned>,
}

/// The next number in 0..1, of 53 bits, since the sizes of flows have a long tail.
fn unit(random: &mut Random) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "53 bits are exact")]
    let bits = (random.number() >> 11) as f64;
    bits / (1_u64 << 53) as f64
}

/// Bytes of the five-tuple of a flow.
pub const TUPLE: usize = 13;

impl Columns {
    fn new(
        device: &Arc<dyn Device>,
        name: &'static str,
        width: Width,
        columns: usize,
        rows: usize,
    ) -> Result<Self, DeviceError> {
        let bytes = rows * width.bits() as usize / 8;
        let columns = (0..columns).map(|_| Pinned::new(device, bytes));
        Ok(Self { name, width, columns: columns.collect::<Result<_, _>>()? })
    }

    /// The columns as digits.
    pub fn digits(&self) -> impl Iterator<Item = Digits<'_>> {
        self.columns.iter().map(|column| match self.width {
            Width::Byte => Digits::Bytes(column),
            Width::Short => Digits::Shorts(column.shorts()),
        })
    }

    /// All values equally often, as in an attack with spoofed addresses.
    pub fn uniform(
        device: &Arc<dyn Device>,
        width: Width,
        columns: usize,
        rows: usize,
        values: u64,
        seed: u64,
    ) -> Result<Self, DeviceError> {
        let mut made = Self::new(device, "uniform", width, columns, rows)?;
        let threads: Vec<_> = made.columns.iter_mut().zip(1..).collect();
        std::thread::scope(|scope| {
            for (column, number) in threads {
                scope.spawn(move || {
                    let mut random = Random::new(seed.wrapping_mul(1_000_003).wrapping_add(number));
                    fill(column, width, || {
                        // Of 32 bits each: no value is favoured by more than one in 65,536.
                        ((random.number() >> 32) * values) >> 32
                    });
                });
            }
        });
        Ok(made)
    }

    /// Value `i` in proportion to 1 / (i + 1).
    pub fn zipf(
        device: &Arc<dyn Device>,
        width: Width,
        columns: usize,
        rows: usize,
        seed: u64,
    ) -> Result<Self, DeviceError> {
        let values = 1_usize << width.bits();
        #[allow(clippy::cast_precision_loss, reason = "at most 65,536")]
        let weights = (1..=values).map(|value| 1.0 / value as f64);
        let mut sums: Vec<f64> = weights
            .scan(0.0, |sum, weight| {
                *sum += weight;
                Some(*sum)
            })
            .collect();
        let all = sums.last().copied().unwrap_or(1.0);
        sums.iter_mut().for_each(|sum| *sum /= all);
        let mut made = Self::new(device, "zipf", width, columns, rows)?;
        let threads: Vec<_> = made.columns.iter_mut().zip(1..).collect();
        let sums = &sums;
        std::thread::scope(|scope| {
            for (column, number) in threads {
                scope.spawn(move || {
                    let mut random = Random::new(seed.wrapping_mul(2_000_003).wrapping_add(number));
                    fill(column, width, || {
                        let draw = unit(&mut random);
                        sums.partition_point(|&sum| sum < draw).min(values - 1) as u64
                    });
                });
            }
        });
        Ok(made)
    }

    /// The bytes, or for 16 bits the pairs of neighbours, of five-tuples in flow order: flows with
    /// heavy-tailed sizes, between hosts some of which occur more often.
    pub fn flows(
        device: &Arc<dyn Device>,
        width: Width,
        rows: usize,
        seed: u64,
    ) -> Result<Self, DeviceError> {
        let columns = if width == Width::Byte { TUPLE } else { TUPLE - 1 };
        let mut made = Self::new(device, "flow order", width, columns, rows)?;
        let flows = draw_flows(rows, seed);
        let threads: Vec<_> = made.columns.iter_mut().enumerate().collect();
        let flows = &flows;
        std::thread::scope(|scope| {
            for (number, column) in threads {
                scope.spawn(move || {
                    let mut rest = &mut column[..];
                    for (tuple, packets) in flows {
                        let bytes = width.bits() as usize / 8;
                        let (run, behind) = rest.split_at_mut(bytes * packets);
                        let digit = &tuple[number..][..bytes];
                        run.chunks_exact_mut(bytes).for_each(|row| row.copy_from_slice(digit));
                        rest = behind;
                    }
                });
            }
        });
        Ok(made)
    }
}

/// Writes digits of some width.
fn fill(column: &mut [u8], width: Width, mut next: impl FnMut() -> u64) {
    match width {
        Width::Byte => column.iter_mut().for_each(|byte| *byte = next().to_le_bytes()[0]),
        Width::Short => column.chunks_exact_mut(2).for_each(|pair| {
            let [low, high, ..] = next().to_le_bytes();
            pair.copy_from_slice(&[low, high]);
        }),
    }
}

/// Flows of this many packets in total, sorted: addresses, ports and protocol, and the packets.
fn draw_flows(rows: usize, seed: u64) -> Vec<([u8; TUPLE], usize)> {
    let mut random = Random::new(seed);
    let mut flows = Vec::new();
    let mut left = rows;
    while left > 0 {
        // Of a Pareto distribution with a mean of about ten.
        let packets = (1.0 / (1.0 - unit(&mut random))).powf(1.0 / 1.1).min(1e6);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 1e6")]
        let packets = (packets as usize).clamp(1, left);
        left -= packets;
        let mut tuple = [0; TUPLE];
        let host = |random: &mut Random| {
            // A few hosts often, many seldom.
            let bits = random.number() % 20;
            let number = random.number() & ((1 << bits) - 1);
            let mixed = Random::new(number).number();
            mixed.to_le_bytes()
        };
        tuple[..4].copy_from_slice(&host(&mut random)[..4]);
        tuple[4..8].copy_from_slice(&host(&mut random)[..4]);
        let service = [80_u16, 443, 53, 22, 25, 123, 8_080, 3_389];
        let bits = random.number();
        let port = (bits >> 32).to_le_bytes();
        tuple[8..10].copy_from_slice(&port[..2]);
        let number = service[(bits % 8) as usize & 7];
        tuple[10..12].copy_from_slice(&number.to_le_bytes());
        tuple[12] = if bits & 0x300 == 0 { 17 } else { 6 };
        flows.push((tuple, packets));
    }
    flows.sort_unstable();
    flows
}

/// Runs that are not counted: they take memory and compile kernels.
const WARM_UPS: usize = 2;
/// Runs in which the kernels alone are timed, the first of which is not counted.
const KERNEL_RUNS: usize = 4;

/// The measurements of a codec on some columns.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The codec.
    pub codec: Codec,
    /// Records: rows of all columns.
    pub records: u64,
    /// Bytes that went to the device.
    pub bytes_in: u64,
    /// Bytes of the indexes, keys and offsets.
    pub bytes_out: u64,
    /// Seconds from the columns on the host to the indexes on the host, of each run.
    pub seconds: Vec<f64>,
    /// Seconds that the kernels alone took.
    pub kernels: f64,
}

impl Measured {
    /// Records a second, in the median, the slowest and the fastest run.
    pub fn rates(&self) -> (f64, f64, f64) {
        let mut seconds = self.seconds.clone();
        let middle = median(&mut seconds);
        #[allow(clippy::cast_precision_loss, reason = "records, for people")]
        let rate = |seconds: f64| self.records as f64 / seconds;
        let (first, last) = (seconds.first().copied(), seconds.last().copied());
        (rate(middle), rate(last.unwrap_or(0.0)), rate(first.unwrap_or(0.0)))
    }
}

/// Builds the indexes of columns in a number of runs; each run repeats the columns `rounds` times.
pub fn measure(
    device: &Arc<dyn Device>,
    columns: &Columns,
    codec: Codec,
    rounds: usize,
    runs: usize,
) -> Result<Measured, DeviceError> {
    let sources: Vec<_> = (0..rounds.max(1))
        .flat_map(|_| columns.digits())
        .map(|digits| (ColumnSource::Rows(digits), Form::Whole(codec)))
        .collect();
    let records = sources.iter().map(|(source, _)| source.rows() as u64).sum();
    let bytes_in = columns.columns.iter().map(|column| column.len() as u64).sum::<u64>()
        * rounds.max(1) as u64;
    let mut measured =
        Measured { codec, records, bytes_in, bytes_out: 0, seconds: Vec::new(), kernels: 0.0 };
    let mut builder = GpuBuilder::new(Arc::clone(device));
    for run in 0..WARM_UPS + runs {
        measured.bytes_out = 0;
        let start = Instant::now();
        let built = builder.build_sources::<BuildError>(&sources, |index| {
            let bytes = index.parts.iter().map(|part| part.len() as u64).sum::<u64>();
            measured.bytes_out += bytes + 6 * index.keys.len() as u64 + 4;
            Ok(())
        });
        let seconds = start.elapsed().as_secs_f64();
        check(&builder, built)?;
        if run >= WARM_UPS {
            measured.seconds.push(seconds);
        }
    }
    let mut alone = GpuBuilder::new(Arc::clone(device)).with_in_flight(1);
    let once = &sources[..sources.len() / rounds.max(1)];
    let mut kernels = Vec::new();
    for run in 0..KERNEL_RUNS {
        let before = alone.steps().kernels();
        let built = alone.build_sources::<BuildError>(once, |_| Ok(()));
        check(&alone, built)?;
        if run > 0 {
            kernels.push((alone.steps().kernels() - before) * rounds.max(1) as f64);
        }
    }
    measured.kernels = median(&mut kernels);
    Ok(measured)
}

fn check(builder: &GpuBuilder, built: Result<(), BuildError>) -> Result<(), DeviceError> {
    let failed = |why: String| DeviceError::Lost { at: "building", why };
    built.map_err(|error| failed(error.to_string()))?;
    builder.trouble().map_or(Ok(()), |trouble| Err(trouble.clone()))
}
