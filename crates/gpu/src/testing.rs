//! The device that tests run on.

use std::sync::Arc;

use crate::choice::DeviceChoice;
use crate::cuda::CudaDevice;
use crate::device::{Device, DeviceError};
use crate::host::HostDevice;

/// The number of the GPU that the environment variable `TAPDEX_DEVICE` names, as `cuda` or
/// `cuda:N`; none if it names none.
fn gpu_number() -> Option<usize> {
    match std::env::var("TAPDEX_DEVICE").ok()?.parse().ok()? {
        DeviceChoice::Cuda(number) => Some(number),
        _ => None,
    }
}

/// Whether tests run on a GPU.
pub fn on_gpu() -> bool {
    gpu_number().is_some()
}

/// The GPU that `TAPDEX_DEVICE` names, or else the kernels compiled for the CPU, whose threads take
/// turns by the seed in `TAPDEX_SHIM_SEED`, or else by this one.
pub fn device(seed: u64) -> Result<Arc<dyn Device>, DeviceError> {
    match gpu_number() {
        Some(number) => Ok(CudaDevice::open(number)?),
        None => Ok(HostDevice::from_env(seed)?),
    }
}

/// Whether there is time for large data: on a GPU, unless `TAPDEX_PARITY` is `small`.
pub fn is_large() -> bool {
    on_gpu() && !std::env::var("TAPDEX_PARITY").is_ok_and(|size| size == "small")
}
