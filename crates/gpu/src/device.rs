//! The interface of a device; everything above works with any device.

use std::sync::Arc;

/// An address in a device's memory.
pub type Address = u64;

/// What is known about a device.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Its product name.
    pub name: String,
    /// Bytes of its memory that were free when it was opened.
    pub memory_free: usize,
    /// Multiprocessors.
    pub processors: u32,
    /// Bytes of memory that the threads of a block can share.
    pub shared_max: u32,
    /// Bytes of its second-level cache.
    pub cache: usize,
}

/// The queues of a device. Work in one queue is done in order; the queues run in parallel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Copies to the device.
    In,
    /// Kernels.
    Compute,
    /// Copies from the device.
    Out,
}

/// A value that a kernel is called with.
#[derive(Debug, Clone, Copy)]
pub enum Arg {
    /// A pointer into the device's memory, or a number of 64 bits.
    Wide(u64),
    /// A number of 32 bits.
    Narrow(u32),
}

impl From<u64> for Arg {
    fn from(value: u64) -> Self {
        Arg::Wide(value)
    }
}

impl From<u32> for Arg {
    fn from(value: u32) -> Self {
        Arg::Narrow(value)
    }
}

/// A kernel, and how many threads run it.
#[derive(Debug, Clone, Copy)]
pub struct Launch {
    /// The file it is in, without folder and extension.
    pub stem: &'static str,
    /// Its name.
    pub kernel: &'static str,
    /// Blocks. None at all is allowed, and does nothing.
    pub blocks: u32,
    /// Threads of a block, a multiple of 32.
    pub threads: u32,
    /// Bytes that the threads of a block share, besides those the kernel declares.
    pub shared: u32,
}

/// A point in a stream that can be waited for.
#[derive(Debug)]
pub struct Event {
    /// The device's own name of it.
    pub(crate) handle: u64,
    pub(crate) device: Arc<dyn Device>,
}

impl Event {
    /// Milliseconds from an earlier event to this one, both waited for.
    pub fn since(&self, earlier: &Event) -> Result<f32, DeviceError> {
        self.device.elapsed_ms(earlier.handle, self.handle)
    }

    /// Waits until the device has reached it. The thread sleeps.
    pub fn wait(&self) -> Result<(), DeviceError> {
        self.device.wait_for(self.handle)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.device.drop_event(self.handle);
    }
}

/// A device. Addresses, events and pinned memory are handed out raw here; [`memory`](crate::memory)
/// owns them.
///
/// Calls that copy, fill or launch return at once, and the device works through its streams by
/// itself; but a kernel is compiled when it is first launched, and bytes that are not pinned are
/// first copied to a staging area. Giving memory back waits for all requested work.
///
/// Copies outside of allocated memory are refused, and memory can be given back only once. The
/// arguments of kernels are not checked: the launches of this crate's builders are correct, and no
/// others should be made. Only this crate implements devices.
#[expect(private_bounds, reason = "memory is read where a device says that it is")]
pub trait Device: Sealed + std::fmt::Debug + Send + Sync {
    /// What is known about it.
    fn facts(&self) -> &Facts;

    /// Memory on the device, its content unknown, aligned to 256 bytes.
    fn alloc(&self, bytes: usize) -> Result<Address, DeviceError>;
    /// Gives memory back, after all work requested before is done.
    fn free(&self, address: Address);
    /// Memory on the host that the device reads and writes by itself, zeroed, aligned to 64 bytes;
    /// the address is the host's.
    fn pin(&self, bytes: usize) -> Result<Address, DeviceError>;
    /// Gives such memory back, after all work requested before is done.
    fn unpin(&self, address: Address);

    /// Copies from the host. The bytes must not change until the stream has done it.
    fn copy_in(&self, stream: Stream, from: &[u8], to: Address) -> Result<(), DeviceError>;
    /// Copies to pinned memory, which must not be read until the stream has done it.
    fn copy_out(
        &self,
        stream: Stream,
        from: Address,
        to: Address,
        bytes: usize,
    ) -> Result<(), DeviceError>;
    /// Sets bytes to a value.
    fn fill(&self, stream: Stream, at: Address, value: u8, bytes: usize)
    -> Result<(), DeviceError>;
    /// Runs a kernel.
    fn launch(&self, stream: Stream, launch: Launch, args: &[Arg]) -> Result<(), DeviceError>;

    /// Records an event after all work of the stream so far; returns its handle.
    fn record(&self, stream: Stream) -> Result<u64, DeviceError>;
    /// Makes a stream wait for an event of another.
    fn wait_in(&self, stream: Stream, event: u64) -> Result<(), DeviceError>;
    /// Waits for an event. The thread sleeps.
    fn wait_for(&self, event: u64) -> Result<(), DeviceError>;
    /// Milliseconds between two events that have been waited for.
    fn elapsed_ms(&self, from: u64, to: u64) -> Result<f32, DeviceError>;
    /// Forgets an event.
    fn drop_event(&self, event: u64);
}

/// A trait that only this crate can implement.
pub(crate) trait Sealed {}

/// Records an event after all work of the stream so far.
pub(crate) fn record(device: &Arc<dyn Device>, stream: Stream) -> Result<Event, DeviceError> {
    Ok(Event { handle: device.record(stream)?, device: Arc::clone(device) })
}

/// What is missing to use a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Lack {
    /// There is no driver.
    #[error("the NVIDIA driver (libcuda.so.1) was not found: install it")]
    Driver,
    /// The driver is too old.
    #[error("the NVIDIA driver has no {name}: install one for CUDA 12.8 or later")]
    DriverCall {
        /// The function that it lacks.
        name: &'static str,
    },
    /// The driver does not start.
    #[error("the NVIDIA driver does not start ({why}): see what nvidia-smi says")]
    DriverStart {
        /// What it says.
        why: String,
    },
    /// The driver finds no card.
    #[error("the NVIDIA driver finds no card: see what nvidia-smi says")]
    Card,
    /// There is no card of this number.
    #[error("there is no device {number}: {}", counted(*count))]
    Number {
        /// The number that was asked for.
        number: usize,
        /// How many cards there are.
        count: i32,
    },
    /// There is no compiler for kernels.
    #[error(
        "NVIDIA's compiler library (libnvrtc.so.13) was not found: install the CUDA 13 toolkit, or \
         the Python wheel nvidia-cuda-nvrtc, and put the folder with the library into \
         LD_LIBRARY_PATH"
    )]
    Compiler,
    /// The compiler is too old.
    #[error("libnvrtc has no {name}: install the one of CUDA 12 or later")]
    CompilerCall {
        /// The function that it lacks.
        name: &'static str,
    },
    /// The compiler does not start.
    #[error("libnvrtc does not start ({why}): install it anew")]
    CompilerStart {
        /// What it says.
        why: String,
    },
    /// The compiler does not know the card.
    #[error("NVRTC {compiler} cannot compile for this card ({arch}), install one that does: {log}")]
    Arch {
        /// Its version.
        compiler: String,
        /// The compiler's name for the card.
        arch: String,
        /// What it says.
        log: String,
    },
    /// The driver is too old for the compiler.
    #[error(
        "the driver, for CUDA {cuda}, does not load what NVRTC {compiler} compiles ({why}): \
         install a newer driver or an older NVRTC"
    )]
    OldDriver {
        /// The version that the driver is for.
        cuda: String,
        /// The compiler's version.
        compiler: String,
        /// What the driver says.
        why: String,
    },
    /// There is no compiler for kernels that run on the host.
    #[error(
        "kernels run on the host need a C++ compiler, and `{command} --version` {why}: install \
         one, or name it with CXX"
    )]
    HostCompiler {
        /// How it was called.
        command: String,
        /// Why that failed.
        why: String,
    },
}

fn counted(devices: i32) -> String {
    match devices {
        1 => "there is one only, and its number is 0".to_owned(),
        _ => format!("there are {devices}, numbered from 0"),
    }
}

/// Why a device did not do what it was asked to.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is no device, or what is needed to use it is missing.
    #[error("no CUDA device: {0}")]
    Missing(Lack),
    /// The device has no room for more.
    #[error("the device has no {bytes} bytes left")]
    OutOfMemory {
        /// How many were asked for.
        bytes: usize,
    },
    /// A kernel does not compile.
    #[error("the kernels in {stem} cannot be compiled: {log}")]
    Compile {
        /// The file it is in.
        stem: String,
        /// What the compiler says.
        log: String,
    },
    /// The device failed, and may not answer any more.
    #[error("the device failed at {at}: {why}")]
    Lost {
        /// What it was asked to do.
        at: &'static str,
        /// What the driver says.
        why: String,
    },
}
