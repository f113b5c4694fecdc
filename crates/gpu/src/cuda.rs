//! A CUDA device: NVIDIA's driver and its compiler, each loaded when first needed.
//!
//! Nothing of CUDA is needed to build or to start the program. [`CudaDevice::open`] looks for two
//! libraries, `libcuda` (it comes with the NVIDIA driver) and `libnvrtc` (the compiler; it comes
//! with the CUDA toolkit or the Python wheel `nvidia-cuda-nvrtc`), then for the device, and last
//! compiles and loads a kernel that does nothing. If something is missing or does not fit, the
//! error is a [`Missing`](DeviceError::Missing) that says what to install.
//!
//! The kernels are compiled for the card at hand, each file when one of its kernels is first
//! launched, and are then kept on disk; the folder is `$TAPDEX_CACHE`, or `$XDG_CACHE_HOME/tapdex`,
//! or `~/.cache/tapdex`.
//!
//! The driver ties a *context*, which holds all that we own on a device, to the calling thread. So
//! each call here first makes our context the current one, and any thread may make the call.

#![allow(unsafe_code, reason = "the driver and the compiler are C libraries")]
// True of every call of the libraries below: the function is there, because `driver_ready` or
// `compiler_ready` went before, and it writes to local variables of the types it wants. The notes
// say what else a call relies on.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUdevice_attribute_enum as Attribute, CUresult};

use crate::device::{Address, Arg, Device, DeviceError, Facts, Lack, Launch, Sealed, Stream};
use crate::sources;
use cache::Cache;
pub use compiler::{Compiled, compile};
use compiler::{PROBE, compiler_ready, cubin, source_of};
use lent::Lent;

mod cache;
mod compiler;
mod lent;

/// The driver's functions that are used here.
const DRIVER_CALLS: &[&str] = &[
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxSetFlags_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime_v2",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuGetErrorString",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAlloc_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamWaitEvent",
];

/// A CUDA device.
#[derive(Debug)]
pub struct CudaDevice {
    facts: Facts,
    /// The card's architecture, as the compiler names it.
    arch: String,
    /// The compiler's version.
    compiler: String,
    cache: Cache,
    device: sys::CUdevice,
    context: sys::CUcontext,
    /// Null while the device is being opened.
    streams: [sys::CUstream; 3],
    loaded: Mutex<Loaded>,
    /// Memory on the device, and pinned memory.
    memory: Lent,
    pinned: Lent,
    /// Events that nobody uses: making one takes as long as a launch.
    events: Mutex<Vec<u64>>,
}

/// The kernels that are on the device.
#[derive(Debug, Default)]
struct Loaded {
    /// By stem.
    modules: HashMap<&'static str, sys::CUmodule>,
    /// By stem and name.
    kernels: HashMap<(&'static str, &'static str), Kernel>,
}

#[derive(Debug)]
struct Kernel {
    function: sys::CUfunction,
    /// Bytes of shared memory that a launch may ask for, until the limit is raised.
    shared_max: u32,
    /// Bytes of each parameter.
    parameters: Vec<usize>,
}

// SAFETY: the handles are names that the driver resolves by itself; its functions may be called
// from any thread once the context is current there, and every method makes it so.
unsafe impl Send for CudaDevice {}
// SAFETY: as above; the driver locks what it shares, and `loaded` is behind a lock of ours.
unsafe impl Sync for CudaDevice {}

impl CudaDevice {
    /// Opens the device of this number, from 0.
    ///
    /// [`DeviceError::Missing`] says what is missing and how to get it.
    pub fn open(number: usize) -> Result<Arc<Self>, DeviceError> {
        driver_ready()?;
        let compiler = compiler_ready()?;
        let mut opened = Self::retain(device_of(number)?, compiler)?;
        opened.facts.memory_free = opened.memory_free()?;
        for index in 0..opened.streams.len() {
            opened.streams[index] = opened.new_stream()?;
        }
        opened.probe()?;
        Ok(Arc::new(opened))
    }

    /// The device with its context. Whatever fails from here on, `drop` gives it back.
    fn retain(device: sys::CUdevice, compiler: String) -> Result<Self, DeviceError> {
        let (facts, arch) = (facts_of(device)?, arch_of(device)?);
        let mut context = ptr::null_mut();
        let sleep = sys::CUctx_flags_enum::CU_CTX_SCHED_BLOCKING_SYNC as u32;
        // SAFETY: the driver gave the device. Waiting threads should sleep; if that is not
        // possible, waiting still works.
        let _ = unsafe { sys::cuDevicePrimaryCtxSetFlags_v2(device, sleep) };
        // SAFETY: as above.
        check(unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) }, "opening", 0)?;
        Ok(Self {
            facts,
            arch,
            compiler,
            cache: Cache::of_user(),
            device,
            context,
            streams: [ptr::null_mut(); 3],
            events: Mutex::default(),
            loaded: Mutex::default(),
            memory: Lent::default(),
            pinned: Lent::default(),
        })
    }

    fn memory_free(&self) -> Result<usize, DeviceError> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: nothing else.
        check(unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) }, "asking for its memory", 0)?;
        Ok(free)
    }

    fn new_stream(&self) -> Result<sys::CUstream, DeviceError> {
        self.enter()?;
        let mut stream = ptr::null_mut();
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: nothing else.
        check(unsafe { sys::cuStreamCreate(&mut stream, flags) }, "making a stream", 0)?;
        Ok(stream)
    }

    /// Checks whether kernels can be compiled and loaded: better now than in the middle of the
    /// work.
    fn probe(&self) -> Result<(), DeviceError> {
        let cubin = self.cubin("probe", PROBE).map_err(|log| {
            let (compiler, arch) = (self.compiler.clone(), self.arch.clone());
            DeviceError::Missing(Lack::Arch { compiler, arch, log: one_line(&log) })
        })?;
        match self.load(&cubin) {
            // SAFETY: the module was loaded just now, and nobody else knows it.
            Ok(module) => check(unsafe { sys::cuModuleUnload(module) }, "unloading", 0),
            Err(DeviceError::Lost { why, .. }) => {
                let (cuda, compiler) = (driver_version(), self.compiler.clone());
                Err(DeviceError::Missing(Lack::OldDriver { cuda, compiler, why }))
            }
            Err(error) => Err(error),
        }
    }

    /// Makes the context the current one of this thread.
    fn enter(&self) -> Result<(), DeviceError> {
        // SAFETY: the context is retained until `drop`.
        check(unsafe { sys::cuCtxSetCurrent(self.context) }, "entering", 0)
    }

    /// Waits until all requested work is done.
    fn settle(&self) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: the context is current.
        check(unsafe { sys::cuCtxSynchronize() }, "waiting for all", 0)
    }

    fn stream(&self, stream: Stream) -> sys::CUstream {
        self.streams[match stream {
            Stream::In => 0,
            Stream::Compute => 1,
            Stream::Out => 2,
        }]
    }

    fn loaded(&self) -> MutexGuard<'_, Loaded> {
        // A panicking thread leaves it consistent: entries are added when they are ready.
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The compiled kernels of a source, from disk if they are there; or the compiler's message.
    fn cubin(&self, stem: &str, text: &str) -> Result<Vec<u8>, String> {
        cubin(&self.cache, stem, text, &self.arch, &self.compiler)
    }

    /// Puts compiled kernels onto the device.
    fn load(&self, cubin: &[u8]) -> Result<sys::CUmodule, DeviceError> {
        self.enter()?;
        let mut module = ptr::null_mut();
        // SAFETY: the bytes are what the compiler wrote (the cache checks them), and they say
        // themselves where they end.
        let result = unsafe { sys::cuModuleLoadData(&mut module, cubin.as_ptr().cast()) };
        check(result, "loading kernels", cubin.len())?;
        Ok(module)
    }

    /// The module of a stem, compiled and loaded if it is not yet.
    fn module(
        &self,
        loaded: &mut Loaded,
        stem: &'static str,
    ) -> Result<sys::CUmodule, DeviceError> {
        if let Some(module) = loaded.modules.get(stem) {
            return Ok(*module);
        }
        let failed = |log| DeviceError::Compile { stem: stem.to_owned(), log };
        let cubin = self.cubin(stem, &source_of(stem)?).map_err(failed)?;
        let module = self.load(&cubin)?;
        loaded.modules.insert(stem, module);
        Ok(module)
    }

    /// The function of a kernel, ready to be launched like this.
    fn function(&self, launch: Launch, args: &[Arg]) -> Result<sys::CUfunction, DeviceError> {
        let mut loaded = self.loaded();
        let name = (launch.stem, launch.kernel);
        if !loaded.kernels.contains_key(&name) {
            let module = self.module(&mut loaded, launch.stem)?;
            let kernel = Kernel::find(module, launch)?;
            loaded.kernels.insert(name, kernel);
        }
        match loaded.kernels.get_mut(&name) {
            Some(kernel) => kernel.ready(launch, args),
            None => unreachable!("it was put there"),
        }
    }
}

impl Kernel {
    fn find(module: sys::CUmodule, launch: Launch) -> Result<Self, DeviceError> {
        let name = CString::new(launch.kernel).unwrap_or_default();
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded, and the name ends with 0.
        let found = unsafe { sys::cuModuleGetFunction(&mut function, module, name.as_ptr()) };
        check(found, launch.kernel, 0)?;
        let mut shared_max = 0;
        // SAFETY: the function was found.
        let asked = unsafe { sys::cuFuncGetAttribute(&mut shared_max, SHARED_MAX, function) };
        check(asked, launch.kernel, 0)?;
        let parameters = sources::parameters(launch.stem, launch.kernel);
        let parameters = parameters.ok_or_else(|| DeviceError::Compile {
            stem: launch.stem.to_owned(),
            log: format!("what {} takes cannot be read from its source", launch.kernel),
        })?;
        Ok(Self { function, shared_max: unsigned(shared_max), parameters })
    }

    fn ready(&mut self, launch: Launch, args: &[Arg]) -> Result<sys::CUfunction, DeviceError> {
        // The driver would read as many values as the kernel takes, however many we pass.
        assert!(
            self.parameters.iter().copied().eq(args.iter().map(width_of)),
            "{} takes values of {:?} bytes, and is called with {args:?}",
            launch.kernel,
            self.parameters,
        );
        if launch.shared > self.shared_max {
            let bytes = c_int::try_from(launch.shared).unwrap_or(c_int::MAX);
            // SAFETY: the function was found.
            let raised = unsafe { sys::cuFuncSetAttribute(self.function, SHARED_MAX, bytes) };
            check(raised, launch.kernel, 0)?;
            self.shared_max = launch.shared;
        }
        Ok(self.function)
    }
}

const SHARED_MAX: sys::CUfunction_attribute_enum =
    sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;

fn width_of(arg: &Arg) -> usize {
    match arg {
        Arg::Wide(_) => 8,
        Arg::Narrow(_) => 4,
    }
}

/// Events that are kept, at most.
const IDLE_EVENTS_MAX: usize = 256;

impl Sealed for CudaDevice {}

impl Device for CudaDevice {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn alloc(&self, bytes: usize) -> Result<Address, DeviceError> {
        self.enter()?;
        let mut address = 0;
        // SAFETY: the context is current.
        check(unsafe { sys::cuMemAlloc_v2(&mut address, bytes) }, "getting memory", bytes)?;
        self.memory.add(address, bytes);
        Ok(address)
    }

    fn free(&self, address: Address) {
        if !self.memory.take(address) {
            return;
        }
        // A failure cannot be reported here; a device that fails here fails elsewhere as well.
        let _ = self.settle();
        // SAFETY: `alloc` gave the address, which comes back once; all work on it is done.
        let _ = unsafe { sys::cuMemFree_v2(address) };
    }

    fn pin(&self, bytes: usize) -> Result<Address, DeviceError> {
        self.enter()?;
        let mut at: *mut c_void = ptr::null_mut();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: the context is current.
        check(unsafe { sys::cuMemHostAlloc(&mut at, bytes, flags) }, "pinning memory", bytes)?;
        // SAFETY: that many bytes are there, and nobody else knows them yet.
        unsafe { at.cast::<u8>().write_bytes(0, bytes) };
        self.pinned.add(number_of(at), bytes);
        Ok(number_of(at))
    }

    fn unpin(&self, address: Address) {
        if !self.pinned.take(address) {
            return;
        }
        let _ = self.settle();
        // SAFETY: `pin` gave the address, which comes back once; all work on it is done.
        let _ = unsafe { sys::cuMemFreeHost(pointer_of(address)) };
    }

    fn copy_in(&self, stream: Stream, from: &[u8], to: Address) -> Result<(), DeviceError> {
        self.memory.check(to, from.len(), "copying in")?;
        self.enter()?;
        let source = from.as_ptr().cast();
        // SAFETY: there is room at `to`. Bytes that are not pinned are read before the driver
        // returns; those that are cannot go before this is done, since `unpin` waits for it.
        let result =
            unsafe { sys::cuMemcpyHtoDAsync_v2(to, source, from.len(), self.stream(stream)) };
        check(result, "copying in", 0)
    }

    fn copy_out(
        &self,
        stream: Stream,
        from: Address,
        to: Address,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        self.memory.check(from, bytes, "copying out")?;
        self.pinned.check(to, bytes, "copying out")?;
        self.enter()?;
        // SAFETY: the bytes are at `from` and the room at `to`, neither of which goes before this
        // is done, since `free` and `unpin` wait for it.
        let result =
            unsafe { sys::cuMemcpyDtoHAsync_v2(pointer_of(to), from, bytes, self.stream(stream)) };
        check(result, "copying out", 0)
    }

    fn fill(
        &self,
        stream: Stream,
        at: Address,
        value: u8,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        self.memory.check(at, bytes, "filling")?;
        self.enter()?;
        // SAFETY: the room is there, and does not go before this is done.
        check(unsafe { sys::cuMemsetD8Async(at, value, bytes, self.stream(stream)) }, "filling", 0)
    }

    fn launch(&self, stream: Stream, launch: Launch, args: &[Arg]) -> Result<(), DeviceError> {
        if launch.blocks == 0 {
            return Ok(());
        }
        self.enter()?;
        let function = self.function(launch, args)?;
        let mut values: Vec<*mut c_void> = args
            .iter()
            .map(|arg| match arg {
                Arg::Wide(value) => ptr::from_ref(value).cast_mut().cast(),
                Arg::Narrow(value) => ptr::from_ref(value).cast_mut().cast(),
            })
            .collect();
        // SAFETY: there are as many values as the kernel takes, each as wide as it takes them
        // (`Kernel::ready`); the driver only reads them, before it returns.
        let result = unsafe {
            sys::cuLaunchKernel(
                function,
                launch.blocks,
                1,
                1,
                launch.threads,
                1,
                1,
                launch.shared,
                self.stream(stream),
                values.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        check(result, launch.kernel, 0)
    }

    fn record(&self, stream: Stream) -> Result<u64, DeviceError> {
        self.enter()?;
        let event = match self.idle_events().pop() {
            Some(event) => event,
            None => self.make_event()?,
        };
        // SAFETY: both are ours. What waits for the event since an earlier time waits for what was
        // recorded then.
        let recorded = unsafe { sys::cuEventRecord(pointer_of(event), self.stream(stream)) };
        if recorded != CUresult::CUDA_SUCCESS {
            self.destroy_event(event);
        }
        check(recorded, "recording an event", 0)?;
        Ok(event)
    }

    fn wait_in(&self, stream: Stream, event: u64) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: `record` gave the event, and it is not dropped yet.
        let result = unsafe { sys::cuStreamWaitEvent(self.stream(stream), pointer_of(event), 0) };
        check(result, "waiting in a stream", 0)
    }

    fn wait_for(&self, event: u64) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: as in `wait_in`.
        check(unsafe { sys::cuEventSynchronize(pointer_of(event)) }, "waiting", 0)
    }

    fn elapsed_ms(&self, from: u64, to: u64) -> Result<f32, DeviceError> {
        self.enter()?;
        let mut ms = 0.0;
        // SAFETY: as in `wait_in`, for both.
        let result =
            unsafe { sys::cuEventElapsedTime_v2(&mut ms, pointer_of(from), pointer_of(to)) };
        check(result, "taking the time", 0)?;
        Ok(ms)
    }

    fn drop_event(&self, event: u64) {
        let mut idle = self.idle_events();
        if idle.len() < IDLE_EVENTS_MAX {
            idle.push(event);
            return;
        }
        drop(idle);
        self.destroy_event(event);
    }
}

impl CudaDevice {
    fn idle_events(&self) -> MutexGuard<'_, Vec<u64>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make_event(&self) -> Result<u64, DeviceError> {
        let mut event: sys::CUevent = ptr::null_mut();
        // Waiting threads sleep; times are recorded, since the flag that turns that off is not set.
        let flags = sys::CUevent_flags_enum::CU_EVENT_BLOCKING_SYNC as u32;
        // SAFETY: the context is current.
        check(unsafe { sys::cuEventCreate(&mut event, flags) }, "making an event", 0)?;
        Ok(number_of(event))
    }

    fn destroy_event(&self, event: u64) {
        let _ = self.enter();
        // SAFETY: `make_event` made it, and nobody uses it any more. The driver keeps it until the
        // device has come to it.
        let _ = unsafe { sys::cuEventDestroy_v2(pointer_of(event)) };
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        let _ = self.settle();
        for event in std::mem::take(&mut *self.idle_events()) {
            self.destroy_event(event);
        }
        for module in self.loaded().modules.values() {
            // SAFETY: nothing runs any more, and the functions in it go with `self`.
            let _ = unsafe { sys::cuModuleUnload(*module) };
        }
        for stream in self.streams.iter().filter(|stream| !stream.is_null()) {
            // SAFETY: nothing runs any more.
            let _ = unsafe { sys::cuStreamDestroy_v2(*stream) };
        }
        // SAFETY: `retain` had it; memory and events hold the device, so there are none left.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// An address as the number that the trait uses.
fn number_of<T>(pointer: *mut T) -> u64 {
    pointer.expose_provenance() as u64
}

#[allow(clippy::cast_possible_truncation, reason = "it was made of a pointer of this machine")]
fn pointer_of<T>(number: u64) -> *mut T {
    ptr::with_exposed_provenance_mut(number as usize)
}

/// Whether there is a driver at all. This is quick; opening a device takes half a second.
pub fn has_driver() -> bool {
    // SAFETY: loading the driver runs its own start, which asks nothing of us.
    unsafe { sys::is_culib_present() }
}

/// Makes sure that the driver is there, is not too old, and runs.
fn driver_ready() -> Result<(), DeviceError> {
    if !has_driver() {
        return Err(DeviceError::Missing(Lack::Driver));
    }
    for name in DRIVER_CALLS {
        // SAFETY: the library is there; the address is asked for, and not used.
        if unsafe { sys::culib().get::<*const c_void>(name.as_bytes()) }.is_err() {
            return Err(DeviceError::Missing(Lack::DriverCall { name }));
        }
    }
    // SAFETY: nothing else.
    match unsafe { sys::cuInit(0) } {
        CUresult::CUDA_SUCCESS => Ok(()),
        CUresult::CUDA_ERROR_NO_DEVICE => Err(no_card()),
        failed => Err(DeviceError::Missing(Lack::DriverStart { why: words(failed) })),
    }
}

fn no_card() -> DeviceError {
    DeviceError::Missing(Lack::Card)
}

fn device_of(number: usize) -> Result<sys::CUdevice, DeviceError> {
    let mut count = 0;
    // SAFETY: nothing else.
    check(unsafe { sys::cuDeviceGetCount(&mut count) }, "counting devices", 0)?;
    if count == 0 {
        return Err(no_card());
    }
    let ordinal = c_int::try_from(number).ok().filter(|ordinal| *ordinal < count);
    let Some(ordinal) = ordinal else { return Err(no_such_device(number, count)) };
    let mut device = 0;
    // SAFETY: nothing else.
    check(unsafe { sys::cuDeviceGet(&mut device, ordinal) }, "finding the device", 0)?;
    Ok(device)
}

fn no_such_device(number: usize, count: c_int) -> DeviceError {
    DeviceError::Missing(Lack::Number { number, count })
}

fn facts_of(device: sys::CUdevice) -> Result<Facts, DeviceError> {
    let cache = attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?;
    let shared = Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    let processors = Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    Ok(Facts {
        name: name_of(device)?,
        memory_free: 0,
        processors: attribute(device, processors)?,
        shared_max: attribute(device, shared)?,
        cache: usize::try_from(cache).unwrap_or(0),
    })
}

fn name_of(device: sys::CUdevice) -> Result<String, DeviceError> {
    let mut name = [0_u8; 256];
    // SAFETY: the driver gave the device; the room is as large as said.
    let result = unsafe { sys::cuDeviceGetName(name.as_mut_ptr().cast(), 256, device) };
    check(result, "asking for its name", 0)?;
    Ok(text_of(&name))
}

fn arch_of(device: sys::CUdevice) -> Result<String, DeviceError> {
    let major = attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    Ok(format!("sm_{major}{minor}"))
}

fn attribute(device: sys::CUdevice, which: Attribute) -> Result<u32, DeviceError> {
    let mut value = 0;
    // SAFETY: the driver gave the device.
    let result = unsafe { sys::cuDeviceGetAttribute(&mut value, which, device) };
    check(result, "asking what it is", 0)?;
    Ok(unsigned(value))
}

/// A count that the driver returns as a signed number.
fn unsigned(value: c_int) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

/// The CUDA version that the driver supports.
fn driver_version() -> String {
    let mut version = 0;
    // SAFETY: nothing else.
    let _ = unsafe { sys::cuDriverGetVersion(&mut version) };
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// Turns the result of a driver call into an error. `bytes` is what it needed, if it asked for
/// memory.
fn check(result: CUresult, at: &'static str, bytes: usize) -> Result<(), DeviceError> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(DeviceError::OutOfMemory { bytes }),
        failed => Err(DeviceError::Lost { at, why: words(failed) }),
    }
}

/// The name of a failure, and the driver's message about it.
fn words(failed: CUresult) -> String {
    let mut text = ptr::null();
    // SAFETY: nothing else.
    let result = unsafe { sys::cuGetErrorString(failed, &mut text) };
    if result != CUresult::CUDA_SUCCESS || text.is_null() {
        return format!("{failed:?}");
    }
    // SAFETY: the driver's own text, which ends with 0 and is always there.
    format!("{failed:?}: {}", unsafe { CStr::from_ptr(text) }.to_string_lossy())
}

/// The text up to the first 0.
fn text_of(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// A compiler's log in one line.
fn one_line(log: &str) -> String {
    log.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The functions of a library that a source calls.
#[cfg(test)]
fn called<'a>(source: &'a str, path: &str, prefix: &str) -> Vec<&'a str> {
    let is_name = |name: &&str| {
        name.starts_with(prefix)
            && !name.starts_with("culib")
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let calls = source.split(path).skip(1).filter_map(|rest| rest.split_once('('));
    let mut names: Vec<&str> = calls.map(|halves| halves.0).filter(is_name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_called_is_looked_for() {
        assert_eq!(called(include_str!("cuda.rs"), "sys::", "cu"), DRIVER_CALLS);
    }

    #[test]
    fn only_memory_can_run_out() {
        assert!(check(CUresult::CUDA_SUCCESS, "test", 1).is_ok());
        let out = check(CUresult::CUDA_ERROR_OUT_OF_MEMORY, "test", 17);
        assert!(matches!(out, Err(DeviceError::OutOfMemory { bytes: 17 })));
    }

    #[test]
    fn a_number_too_high_is_told_how_many_there_are() {
        assert!(no_such_device(5, 4).to_string().contains("no device 5: there are 4"));
        assert!(no_such_device(1, 1).to_string().contains("one only"));
    }

    #[test]
    fn a_device_opens_or_says_what_is_missing() {
        match CudaDevice::open(0) {
            Ok(device) => assert!(device.facts().memory_free > 0 && device.facts().processors > 0),
            Err(DeviceError::Missing(lack)) => {
                let why = lack.to_string();
                assert!(why.contains("install") || why.contains("nvidia-smi"), "{why}");
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn texts_end_at_the_first_0() {
        assert_eq!(text_of(b"NVIDIA H200\0\0x"), "NVIDIA H200");
        assert_eq!(text_of(b"whole"), "whole");
        assert_eq!(one_line("a:\n  b\n"), "a: b");
    }
}
