//! Our builder on a GPU, as a contestant.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, ensure};
use tapdex_bench::builders::{self, Product};
use tapdex_bitmap::Codec;
use tapdex_engine::index::{BuildError, Builder, ColumnIndex, CpuBuilder, Digits};
use tapdex_gpu::choice::{DeviceChoice, Opened};
use tapdex_gpu::device::Device;
use tapdex_gpu::memory::Pinned;
use tapdex_gpu::{ColumnSource, Form, GpuBuilder, Steps};

/// What tables say where there is none.
pub const MISSING: &str = "-: no GPU was found.";
/// Builds that load the kernels and make room.
const WARM_UPS: usize = 2;

/// Opens the GPU; why there is none goes to standard error.
pub fn open(choice: DeviceChoice) -> anyhow::Result<Option<Arc<dyn Device>>> {
    match choice.open().with_context(|| format!("--device {choice}"))? {
        Opened::Device(device) => Ok(Some(device)),
        Opened::Cpu { note } => {
            note.iter().for_each(|note| eprintln!("{note}"));
            Ok(None)
        }
    }
}

/// A column where the device copies from by itself.
pub struct Column {
    device: Arc<dyn Device>,
    memory: Pinned,
    is_short: bool,
}

impl Column {
    /// A copy of a column.
    pub fn new(device: &Arc<dyn Device>, column: Digits<'_>) -> anyhow::Result<Self> {
        let bytes = column.rows() * column.width().bits() as usize / 8;
        let mut memory = Pinned::new(device, bytes)?;
        match column {
            Digits::Bytes(digits) => memory.copy_from_slice(digits),
            Digits::Shorts(digits) => {
                let pairs = memory.chunks_exact_mut(2).zip(digits);
                pairs.for_each(|(pair, digit)| pair.copy_from_slice(&digit.to_le_bytes()));
            }
        }
        let is_short = matches!(column, Digits::Shorts(_));
        Ok(Self { device: Arc::clone(device), memory, is_short })
    }

    fn digits(&self) -> Digits<'_> {
        match self.is_short {
            true => Digits::Shorts(self.memory.shorts()),
            false => Digits::Bytes(&self.memory),
        }
    }

    /// A builder with one column in flight, that has built the same index as the CPU's.
    pub fn contestant(&self, codec: Codec) -> anyhow::Result<Contestant<'_>> {
        let mut builder = GpuBuilder::new(Arc::clone(&self.device)).with_in_flight(1);
        let column = [(ColumnSource::Rows(self.digits()), Form::Whole(codec))];
        let mut expected = ColumnIndex::default();
        CpuBuilder::new(0).build(self.digits(), codec, &mut expected)?;
        let mut is_same = false;
        builder.build_sources::<BuildError>(&column, |index| {
            is_same = *index == expected;
            Ok(())
        })?;
        ensure!(is_same, "{codec}: the GPU gives another index than the CPU");
        let bytes = builders::len_bytes(&expected);
        Ok(Contestant { builder: Rc::new(RefCell::new(builder)), column, bytes })
    }
}

/// Builds an index on the device, from host to host.
pub struct Contestant<'a> {
    builder: Rc<RefCell<GpuBuilder>>,
    column: [(ColumnSource<'a>, Form); 1],
    /// Bytes of the bitmaps.
    pub bytes: usize,
}

impl<'a> Contestant<'a> {
    /// A call that builds.
    pub fn job(&self) -> Box<dyn FnMut() -> Product + 'a> {
        let (builder, column) = (Rc::clone(&self.builder), self.column);
        Box::new(move || {
            let built = builder.borrow_mut().build_sources::<BuildError>(&column, |_| Ok(()));
            Box::new(built)
        })
    }

    /// Fails if the device did not build all that it was asked for.
    pub fn check(&self) -> anyhow::Result<()> {
        let builder = self.builder.borrow();
        if let Some(trouble) = builder.trouble() {
            return Err(trouble.clone().into());
        }
        ensure!(builder.built().cpu == 0, "the CPU had to build for the GPU");
        Ok(())
    }

    /// Seconds of each step, the mean of some builds.
    pub fn steps(&self, runs: usize) -> anyhow::Result<Steps> {
        let mut job = self.job();
        (0..WARM_UPS).for_each(|_| drop(job()));
        let before = self.builder.borrow().steps();
        (0..runs).for_each(|_| drop(job()));
        let after = self.builder.borrow().steps();
        self.check()?;
        let mean = |from: f64, to: f64| (to - from) / runs.max(1) as f64;
        Ok(Steps {
            copy_in: mean(before.copy_in, after.copy_in),
            measure: mean(before.measure, after.measure),
            write: mean(before.write, after.write),
            copy_out: mean(before.copy_out, after.copy_out),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_as_a_device_builds_the_same() {
        let device: Arc<dyn Device> = tapdex_gpu::host::HostDevice::new(1).unwrap();
        let shorts: Vec<u16> = (0..3_000_u32).map(|row| (row * row % 700) as u16).collect();
        let bytes: Vec<u8> = shorts.iter().map(|&digit| digit as u8).collect();
        for column in [Digits::Shorts(&shorts), Digits::Bytes(&bytes)] {
            let column = Column::new(&device, column).unwrap();
            let contestant = column.contestant(Codec::Plwah).unwrap();
            assert!(contestant.bytes > 0);
            drop(contestant.job()());
            let steps = contestant.steps(2).unwrap();
            assert!(steps.kernels() > 0.0, "{steps:?}");
            contestant.check().unwrap();
        }
    }
}
