//! Bitmap indexes built on a CUDA device.

pub mod choice;
pub mod cuda;
pub mod device;
pub mod flow;
#[cfg(feature = "testing")]
pub mod host;
pub mod measure;
pub mod memory;
pub mod sets;
pub mod sources;

mod builder;
mod column;

pub use builder::{Built, GpuBuilder};
pub use column::{Form, Source, Steps};
