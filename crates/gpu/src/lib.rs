//! Bitmap indexes built on a CUDA device, byte for byte those of the CPU.
//!
//! A column is copied to the device, its runs are sorted there by value, and for each value the
//! rows are written as a bitmap in one of the nine codecs of [`tapdex_bitmap`]; only the finished
//! index comes back. [`CpuBuilder`] is the reference: tests compare every byte. Nothing of CUDA is
//! needed to build or to start a program with this crate in it. The driver and NVIDIA's compiler
//! are looked for when a device is opened, and an error says what is missing.
//!
//! # In short
//!
//! With `auto`, a device or the CPU is used, and the index is the same either way:
//!
//! ```
//! use tapdex_bitmap::Codec;
//! use tapdex_engine::index::{Builder, ColumnIndex, CpuBuilder, Digits};
//! use tapdex_gpu::GpuBuilder;
//! use tapdex_gpu::choice::{DeviceChoice, Opened};
//!
//! let ports = [443, 443, 53, 80, 443];
//! let column = Digits::Shorts(&ports);
//! let mut index = ColumnIndex::default();
//!
//! match DeviceChoice::Auto.open()? {
//!     Opened::Device(device) => {
//!         GpuBuilder::new(device).build(column, Codec::Roaring, &mut index)?;
//!     }
//!     Opened::Cpu { note } => {
//!         // Such as: no CUDA device (...), using the CPU
//!         note.iter().for_each(|why| eprintln!("{why}"));
//!         CpuBuilder::new(0).build(column, Codec::Roaring, &mut index)?;
//!     }
//! }
//! assert_eq!(index.keys, [53, 80, 443]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! For many columns, [`GpuBuilder::build_sources`] and [`Builder::build_each`] keep several in
//! flight. Columns that were written into memory from [`GpuBuilder::pinned`] are read by the device
//! itself. If the device runs out of memory or fails, the columns at hand are built on the CPU, and
//! [`GpuBuilder::trouble`] says why.
//!
//! # The way of a column
//!
//! The modules, in the order in which a column meets them:
//!
//! 1. [`choice`] turns words such as `auto` or `cuda:1` into a device.
//! 2. [`device`] is the seam: the trait [`Device`](device::Device) has memory, three streams,
//!    kernels and events. All that follows works with any device.
//! 3. [`cuda`] is the one for GPUs. It loads the libraries, compiles kernels for the card at hand,
//!    and keeps them on disk.
//! 4. [`sources`] carries the kernels as text, each with the headers that it includes.
//! 5. [`memory`] owns what a device hands out: [`Memory`](memory::Memory) there,
//!    [`Pinned`](memory::Pinned) here.
//! 6. `column` has one column on the device: which kernels run, in which order, on which memory.
//!    First it is measured, and when its size is known, written; no step waits for the device.
//! 7. `builder` has several columns in flight: [`GpuBuilder`].
//!
//! The kernels are in `kernels/`, a file for each codec and some that they share; `docs/gpu.md` in
//! the repository goes through them step by step.
//!
//! Beside columns, [`flow`] does the whole index step of a segment in flow order, sorting included:
//! [`SegmentIndexer`](flow::SegmentIndexer). [`packets`] decodes frames, groups packets into flows
//! and sorts them: [`GpuPackets`](packets::GpuPackets). [`sets`] encodes single sets of ids in
//! HiPES and WAH: [`SetBuilder`](sets::SetBuilder). [`measure`] measures the speed of all of this,
//! compared with the limit of the bus.
//!
//! # Without a GPU
//!
//! With the feature `testing` there is a `host` module: a device that is this machine's CPU. It
//! runs the same kernels, in an order that a seed determines, checks their memory accesses, and
//! fails when a test wants it to. A device of another kind would be one more
//! [`Device`](device::Device).
//!
//! # To add a codec
//!
//! Write `kernels/NAME.cu`, list it in [`sources::STEMS`], and give it an arm in `measure_list` and
//! in `write` of `src/column.rs`, or a line in `merging` there if it joins words of WAH. The parity
//! tests take it from [`ALL_CODECS`](tapdex_bitmap::ALL_CODECS).
//!
//! [`CpuBuilder`]: tapdex_engine::index::CpuBuilder
//! [`Builder::build_each`]: tapdex_engine::index::Builder::build_each

pub mod choice;
pub mod cuda;
#[cfg(feature = "testing")]
pub mod decode;
pub mod device;
pub mod flow;
#[cfg(feature = "testing")]
pub mod host;
pub mod measure;
pub mod memory;
pub mod packets;
pub mod sets;
pub mod sources;
#[cfg(feature = "testing")]
pub mod testing;

mod builder;
mod column;
#[cfg(test)]
mod constants;
mod radix;

pub use builder::{Built, GpuBuilder};
pub use column::{ColumnSource, Form, Steps};
