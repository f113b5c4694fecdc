//! A device for tests: the kernels, compiled for this machine's CPU.
//!
//! [`HostDevice`] compiles the same sources that a GPU gets against `kernels/shim/shim.hpp`, with
//! the C++ compiler that `CXX` names, or else `c++`, on Linux. A fault of a kernel is reported as
//! [`DeviceError::Lost`] with the kernel, the thread and the line; after that the device is lost,
//! as a GPU would be. These faults are found:
//!
//! - a barrier that not all threads reach, a warp's collective that some of its lanes miss;
//! - a read or write outside of an allocation, of shared memory, of an array; an address that is
//!   not aligned; a shift too far; a division by 0; a block that never ends;
//! - a launch with too many threads, or with arguments of another number or size.
//!
//! A seed determines the order in which blocks, warps and lanes run, and when another thread gets
//! its turn in the middle of a computation. A missing barrier or atomic operation shows as another
//! result with some seeds, so tests compare results with several. Fresh memory is garbage.
//!
//! The work of a stream is delayed until an event after it is waited for, or memory is given back;
//! some of it is done earlier, at any call. The seed also determines how far each stream is, so
//! that a stream that fails to wait for another, or a host that fails to wait for a stream, gives
//! another result with some seeds. Failures are reported by a later call.
//!
//! Tests of the layers above can make the device run out of memory, or lose it, at any point.

#![allow(unsafe_code, reason = "kernels compiled at run time read and write raw memory")]

mod build;
mod heap;
mod streams;

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::device::{Address, Arg, Device, DeviceError, Facts, Launch, Sealed, Stream};
use heap::{Heap, MemoryKind, Range};
use streams::{Bytes, Point, Streams, Work};

/// The environment variable that names the seed of [`HostDevice::from_env`].
pub const SEED_VARIABLE: &str = "TAPDEX_SHIM_SEED";

/// What the target of a copy holds until the copy is done.
const NOT_YET: u8 = 0xA5;

/// A device that runs on this machine's CPU.
#[derive(Debug)]
pub struct HostDevice {
    facts: Facts,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    heap: Heap,
    streams: Streams,
    seed: u64,
    /// Total bytes on the device that may be allocated.
    memory_max: usize,
    launches: u64,
    /// The launch at which the device is lost.
    lose_at: Option<u64>,
    calls: u64,
    /// The call at which the device is lost.
    lose_at_call: Option<u64>,
    allocations: u64,
    /// The allocations that fail: the first one, and the one after the last.
    failing: [u64; 2],
    lost: Option<DeviceError>,
    events: HashMap<u64, Event>,
    events_made: u64,
}

#[derive(Debug, Clone, Copy)]
struct Event {
    point: Point,
    /// When its stream reached it, if it has.
    reached: Option<Instant>,
}

impl HostDevice {
    /// A device whose threads run in an order that the seed determines. It looks like a data-centre
    /// GPU with little memory.
    pub fn new(seed: u64) -> Result<Arc<Self>, DeviceError> {
        let facts = Facts {
            name: "the host".to_owned(),
            memory_free: 4 << 30,
            processors: 4,
            shared_max: 227 << 10,
            cache: 50 << 20,
        };
        Self::with_facts(seed, facts)
    }

    /// A device with other facts.
    pub fn with_facts(seed: u64, facts: Facts) -> Result<Arc<Self>, DeviceError> {
        build::compiler()?;
        let state = State {
            heap: Heap::new(seed),
            streams: Streams::new(seed),
            seed,
            memory_max: facts.memory_free,
            launches: 0,
            lose_at: None,
            calls: 0,
            lose_at_call: None,
            allocations: 0,
            failing: [0; 2],
            lost: None,
            events: HashMap::new(),
            events_made: 0,
        };
        Ok(Arc::new(Self { facts, state: Mutex::new(state) }))
    }

    /// A device with the seed in the environment variable `TAPDEX_SHIM_SEED`, or else with the one
    /// given.
    pub fn from_env(seed: u64) -> Result<Arc<Self>, DeviceError> {
        let named = std::env::var(SEED_VARIABLE).ok().and_then(|text| text.trim().parse().ok());
        Self::new(named.unwrap_or(seed))
    }

    /// Limits the bytes that may be allocated on the device, in total.
    pub fn fail_alloc_above(&self, bytes: usize) {
        self.lock().memory_max = bytes;
    }

    /// Loses the device at the launch with this number, counted from now on; 1 is the next one.
    pub fn lose_at(&self, launch: u64) {
        let mut state = self.lock();
        state.lose_at = Some(state.launches.saturating_add(launch.max(1)));
    }

    /// Loses the device at the call with this number, counted from now on; 1 is the next one. Calls
    /// are all that the device is asked to do, but for giving back memory and events.
    pub fn lose_at_call(&self, call: u64) {
        let mut state = self.lock();
        state.lose_at_call = Some(state.calls.saturating_add(call.max(1)));
    }

    /// Has so many allocations fail, of pinned memory as well, from that with this number on,
    /// counted from now on; 1 is the next one.
    pub fn fail_allocations(&self, first: u64, count: u64) {
        let mut state = self.lock();
        let first = state.allocations.saturating_add(first);
        state.failing = [first, first.saturating_add(count)];
    }

    /// How many calls there were.
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    /// How many times memory was asked for, pinned memory included.
    pub fn allocations(&self) -> u64 {
        self.lock().allocations
    }

    /// Bytes that are allocated on the device.
    pub fn memory_used(&self) -> usize {
        self.lock().heap.used(MemoryKind::Device)
    }

    /// Bytes of pinned memory.
    pub fn memory_pinned(&self) -> usize {
        self.lock().heap.used(MemoryKind::Pinned)
    }

    /// How many kernels were launched.
    pub fn launches(&self) -> u64 {
        self.lock().launches
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of a device that is not lost, after its streams may have done some work.
    fn alive(&self) -> Result<MutexGuard<'_, State>, DeviceError> {
        let mut state = self.lock();
        state.go_on();
        state.check()?;
        state.calls += 1;
        if state.lose_at_call.is_some_and(|at| state.calls >= at) {
            return Err(state.lose("a call", "the test asked for this".to_owned()));
        }
        Ok(state)
    }

    /// Gives memory back once all requested work is done.
    fn give_back(&self, at: &'static str, kind: MemoryKind, address: Address) {
        let mut state = self.lock();
        while let Some(stream) = state.streams.next_ready() {
            state.step(stream);
        }
        if let Err(why) = state.heap.free(kind, address) {
            state.lose(at, why);
        }
    }
}

impl State {
    /// The device is lost from now on, and its pending work is not done.
    fn lose(&mut self, at: &'static str, why: String) -> DeviceError {
        let error = DeviceError::Lost { at, why };
        self.lost = Some(error.clone());
        self.streams.clear();
        error
    }

    fn check(&self) -> Result<(), DeviceError> {
        self.lost.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// An error if the test wants this allocation to fail.
    fn count_allocation(&mut self, bytes: usize) -> Result<(), DeviceError> {
        self.allocations += 1;
        let [first, end] = self.failing;
        match (first..end).contains(&self.allocations) {
            true => Err(DeviceError::OutOfMemory { bytes }),
            false => Ok(()),
        }
    }

    fn event(&mut self, at: &'static str, event: u64) -> Result<Event, DeviceError> {
        let known = self.events.get(&event).copied();
        known.ok_or_else(|| self.lose(at, format!("there is no event {event}")))
    }

    /// When an event was reached.
    fn reached(&mut self, at: &'static str, event: u64) -> Result<Instant, DeviceError> {
        let reached = self.event(at, event)?.reached;
        reached.ok_or_else(|| self.lose(at, format!("event {event} was not waited for")))
    }

    /// Lets streams do some work that they need not do yet.
    fn go_on(&mut self) {
        while let Some(stream) = self.streams.next_eager() {
            self.step(stream);
        }
    }

    /// Lets a stream do its next piece of work. If that fails, the device is lost.
    fn step(&mut self, stream: usize) {
        let Some(work) = self.streams.take(stream) else { return };
        let (at, done) = match work {
            Work::CopyIn { from, to } => ("copy_in", self.do_copy_in(&from, to)),
            Work::CopyOut { from, to, bytes } => ("copy_out", self.do_copy_out(from, to, bytes)),
            Work::Fill { at, value, bytes } => ("fill", self.do_fill(at, value, bytes)),
            Work::Launch { library, launch, args, seed } => {
                let ran = library.launch(launch, &args, seed, &self.heap.ranges());
                let ran = ran.and_then(|()| self.heap.check(launch.kernel));
                ("launch", ran.map_err(|why| format!("{why} (device seed {})", self.seed)))
            }
            Work::Record(event) => {
                if let Some(event) = self.events.get_mut(&event) {
                    event.reached = Some(Instant::now());
                }
                return;
            }
            // Taken only when the point is reached.
            Work::Wait(_) => return,
        };
        if let Err(why) = done {
            self.lose(at, why);
        }
    }

    fn do_copy_in(&self, from: &Bytes, to: Address) -> Result<(), String> {
        let (from, bytes) = match from {
            Bytes::Staged(bytes) => (bytes.as_ptr(), bytes.len()),
            Bytes::Pinned(address, bytes) => {
                (self.heap.range(MemoryKind::Pinned, *address, *bytes)?.cast_const(), *bytes)
            }
        };
        let to = self.heap.range(MemoryKind::Device, to, bytes)?;
        // SAFETY: `from` has that many bytes, staged or pinned, and `range` gives a place with that
        // many inside an allocation of the device, which they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
        Ok(())
    }

    fn do_copy_out(&self, from: Address, to: Address, bytes: usize) -> Result<(), String> {
        let from = self.heap.range(MemoryKind::Device, from, bytes)?;
        let to = self.heap.range(MemoryKind::Pinned, to, bytes)?;
        // SAFETY: `range` gives places with that many bytes inside two allocations.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
        Ok(())
    }

    fn do_fill(&self, at: Address, value: u8, bytes: usize) -> Result<(), String> {
        let at = self.heap.range(MemoryKind::Device, at, bytes)?;
        // SAFETY: `range` gives a place with that many bytes inside an allocation.
        unsafe { std::ptr::write_bytes(at, value, bytes) };
        Ok(())
    }

    /// The place of a range that lies inside an allocation of the kind.
    fn range(
        &mut self,
        at: &'static str,
        kind: MemoryKind,
        address: Address,
        bytes: usize,
    ) -> Result<*mut u8, DeviceError> {
        self.heap.range(kind, address, bytes).map_err(|why| self.lose(at, why))
    }
}

impl Sealed for HostDevice {}

impl Device for HostDevice {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn alloc(&self, bytes: usize) -> Result<Address, DeviceError> {
        let mut state = self.alive()?;
        state.count_allocation(bytes)?;
        let used = state.heap.used(MemoryKind::Device);
        if used.saturating_add(bytes) > state.memory_max {
            return Err(DeviceError::OutOfMemory { bytes });
        }
        state.heap.alloc(MemoryKind::Device, bytes).ok_or(DeviceError::OutOfMemory { bytes })
    }

    fn free(&self, address: Address) {
        self.give_back("free", MemoryKind::Device, address);
    }

    fn pin(&self, bytes: usize) -> Result<Address, DeviceError> {
        let mut state = self.alive()?;
        state.count_allocation(bytes)?;
        state.heap.alloc(MemoryKind::Pinned, bytes).ok_or(DeviceError::OutOfMemory { bytes })
    }

    fn unpin(&self, address: Address) {
        self.give_back("unpin", MemoryKind::Pinned, address);
    }

    fn copy_in(&self, stream: Stream, from: &[u8], to: Address) -> Result<(), DeviceError> {
        let mut state = self.alive()?;
        state.range("copy_in", MemoryKind::Device, to, from.len())?;
        // Bytes that are not pinned are copied before the driver returns.
        let address = Address::try_from(from.as_ptr().addr()).unwrap_or(0);
        let from = match state.heap.range(MemoryKind::Pinned, address, from.len()) {
            Ok(_) => Bytes::Pinned(address, from.len()),
            Err(_) => Bytes::Staged(from.to_vec()),
        };
        state.streams.push(stream, Work::CopyIn { from, to });
        Ok(())
    }

    fn copy_out(
        &self,
        stream: Stream,
        from: Address,
        to: Address,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        let mut state = self.alive()?;
        state.range("copy_out", MemoryKind::Device, from, bytes)?;
        let target = state.range("copy_out", MemoryKind::Pinned, to, bytes)?;
        // SAFETY: `range` gives a place with that many bytes inside an allocation.
        unsafe { std::ptr::write_bytes(target, NOT_YET, bytes) };
        state.streams.push(stream, Work::CopyOut { from, to, bytes });
        Ok(())
    }

    fn fill(
        &self,
        stream: Stream,
        at: Address,
        value: u8,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        let mut state = self.alive()?;
        state.range("fill", MemoryKind::Device, at, bytes)?;
        state.streams.push(stream, Work::Fill { at, value, bytes });
        Ok(())
    }

    fn launch(&self, stream: Stream, launch: Launch, args: &[Arg]) -> Result<(), DeviceError> {
        let library = build::library(launch.stem)?;
        let mut state = self.alive()?;
        state.launches += 1;
        if state.lose_at.is_some_and(|at| state.launches >= at) {
            return Err(state.lose("launch", "the test asked for this".to_owned()));
        }
        if launch.shared > self.facts.shared_max {
            let why = format!(
                "kernel {} asks for {} bytes of shared memory, of {}",
                launch.kernel, launch.shared, self.facts.shared_max
            );
            return Err(state.lose("launch", why));
        }
        let seed = state.seed.wrapping_add(state.launches.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let args = args.to_vec();
        state.streams.push(stream, Work::Launch { library, launch, args, seed });
        Ok(())
    }

    fn record(&self, stream: Stream) -> Result<u64, DeviceError> {
        let mut state = self.alive()?;
        state.events_made += 1;
        let event = state.events_made;
        let point = state.streams.push(stream, Work::Record(event));
        state.events.insert(event, Event { point, reached: None });
        Ok(event)
    }

    fn wait_in(&self, stream: Stream, event: u64) -> Result<(), DeviceError> {
        let mut state = self.alive()?;
        let point = state.event("wait_in", event)?.point;
        state.streams.push(stream, Work::Wait(point));
        Ok(())
    }

    fn wait_for(&self, event: u64) -> Result<(), DeviceError> {
        let mut state = self.alive()?;
        let point = state.event("wait_for", event)?.point;
        while let Some(stream) = state.streams.next_for(point) {
            state.step(stream);
            state.go_on();
        }
        state.check()
    }

    fn elapsed_ms(&self, from: u64, to: u64) -> Result<f32, DeviceError> {
        let mut state = self.alive()?;
        let (from, to) = (state.reached("elapsed_ms", from)?, state.reached("elapsed_ms", to)?);
        Ok(to.duration_since(from).as_secs_f32() * 1000.0)
    }

    fn drop_event(&self, event: u64) {
        self.lock().events.remove(&event);
    }
}

/// What the shim exports: see `shim::launch` there.
type Entry = unsafe extern "C" fn(
    *const std::ffi::c_char,
    u32,
    u32,
    u32,
    u64,
    *mut *mut std::ffi::c_void,
    *const u32,
    u32,
    *const Range,
    usize,
) -> *const std::ffi::c_char;

/// The kernels of a stem. Its fibres and shared memory are its own, and one launch uses them at a
/// time.
#[derive(Debug)]
struct Library {
    path: PathBuf,
    /// Points into `_loaded`.
    entry: Mutex<Entry>,
    _loaded: libloading::Library,
}

impl Library {
    fn launch(
        &self,
        launch: Launch,
        args: &[Arg],
        seed: u64,
        known: &[Range],
    ) -> Result<(), String> {
        let name = CString::new(launch.kernel).map_err(|error| error.to_string())?;
        let mut values = Vec::with_capacity(args.len());
        let mut sizes = Vec::with_capacity(args.len());
        for arg in args {
            let (value, size) = match *arg {
                Arg::Wide(value) => (value.to_le_bytes(), 8),
                Arg::Narrow(value) => (u64::from(value).to_le_bytes(), 4),
            };
            values.push(Value(value));
            sizes.push(size);
        }
        let mut places: Vec<_> =
            values.iter_mut().map(|value| (&raw mut *value).cast::<std::ffi::c_void>()).collect();
        let count = u32::try_from(args.len()).map_err(|error| error.to_string())?;
        let entry = self.entry.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: `entry` is a function of the library, which is loaded as long as `self` is, and
        // has this type. `name` ends with a zero; `places` points to `count` values that live
        // until the call returns, and `sizes` has as many; `known` has as many as its length says.
        // The lock keeps other launches out. What the kernel does with the addresses among the
        // values is up to the kernel, the code under test: the shim checks each access before it
        // is made, and zones around allocations are checked afterwards.
        let said = unsafe {
            entry(
                name.as_ptr(),
                launch.blocks,
                launch.threads,
                launch.shared,
                seed,
                places.as_mut_ptr(),
                sizes.as_ptr(),
                count,
                known.as_ptr(),
                known.len(),
            )
        };
        if said.is_null() {
            return Ok(());
        }
        // SAFETY: what is said ends with a zero and stays until the next launch of the library,
        // which the lock keeps out.
        let said = unsafe { CStr::from_ptr(said) }.to_string_lossy();
        Err(build::with_line(&self.path, &said))
    }
}

/// An argument as the kernel reads it, aligned for the widest type.
#[repr(align(8))]
struct Value(#[allow(dead_code, reason = "the kernel reads it")] [u8; 8]);
