//! Memory that a device owns, and memory that it shares with the host.

#![allow(unsafe_code, reason = "the host reads memory that the device handed out")]

use std::sync::Arc;

use crate::device::{Address, Device, DeviceError};

/// Memory on the device.
#[derive(Debug)]
pub struct Memory {
    device: Arc<dyn Device>,
    address: Address,
    len: usize,
}

impl Memory {
    /// This many bytes, their content unknown.
    pub fn new(device: &Arc<dyn Device>, len: usize) -> Result<Self, DeviceError> {
        Ok(Self { address: device.alloc(len.max(1))?, device: Arc::clone(device), len })
    }

    /// Where it starts.
    pub fn address(&self) -> Address {
        self.address
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.device.free(self.address);
    }
}

/// Memory on the host that the device copies from and to by itself.
///
/// Before reading it, wait until the device has finished writing to it.
#[derive(Debug)]
pub struct Pinned {
    device: Arc<dyn Device>,
    address: Address,
    len: usize,
}

impl Pinned {
    /// This many bytes, all 0.
    pub fn new(device: &Arc<dyn Device>, len: usize) -> Result<Self, DeviceError> {
        Ok(Self { address: device.pin(len.max(1))?, device: Arc::clone(device), len })
    }

    /// Where it starts, on the host.
    pub fn address(&self) -> Address {
        self.address
    }

    /// The bytes as numbers of 16 bits; one byte too many is left out.
    pub fn shorts(&self) -> &[u16] {
        // SAFETY: the address is aligned to 64 bytes, any two bytes are a number, and as many as
        // that are there.
        unsafe { std::slice::from_raw_parts(self.as_ptr().cast(), self.len / 2) }
    }
}

impl std::ops::Deref for Pinned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `pin` gave that many bytes, which were zeroed, and they are given back in `drop`.
        #[allow(clippy::cast_possible_truncation, reason = "an address of this machine")]
        unsafe {
            std::slice::from_raw_parts(self.address as usize as *const u8, self.len)
        }
    }
}

impl std::ops::DerefMut for Pinned {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and nobody else has them while `self` is borrowed.
        #[allow(clippy::cast_possible_truncation, reason = "an address of this machine")]
        unsafe {
            std::slice::from_raw_parts_mut(self.address as usize as *mut u8, self.len)
        }
    }
}

impl AsRef<[u8]> for Pinned {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.device.unpin(self.address);
    }
}

/// Memory that grows and never shrinks.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Option<Memory>);

impl Buffer {
    /// Makes room for this many bytes; `true` if the memory is new, and the old content lost.
    pub(crate) fn grow(
        &mut self,
        device: &Arc<dyn Device>,
        bytes: usize,
    ) -> Result<bool, DeviceError> {
        if self.0.is_some() && self.len() >= bytes {
            return Ok(false);
        }
        // The old memory is freed first, so that both need not fit.
        self.0 = None;
        self.0 = Some(Memory::new(device, with_slack(bytes))?);
        Ok(true)
    }

    /// Where it starts; 0 if there is none.
    pub(crate) fn address(&self) -> Address {
        self.0.as_ref().map_or(0, Memory::address)
    }

    /// How many bytes it has.
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, Memory::len)
    }

    /// Makes room for this many bytes; returns where it starts.
    pub(crate) fn reserve(
        &mut self,
        device: &Arc<dyn Device>,
        bytes: usize,
    ) -> Result<Address, DeviceError> {
        self.grow(device, bytes)?;
        Ok(self.address())
    }
}

/// A little more than needed, so that a slightly larger next column fits, too: allocating and
/// freeing memory stops the device.
fn with_slack(bytes: usize) -> usize {
    bytes + bytes / 16
}

/// Pinned memory that grows and never shrinks, and that others may go on reading.
#[derive(Debug, Default)]
pub(crate) struct HostBuffer(Option<Arc<Pinned>>);

impl HostBuffer {
    pub(crate) fn reserve(
        &mut self,
        device: &Arc<dyn Device>,
        bytes: usize,
    ) -> Result<Address, DeviceError> {
        if let Some(pinned) = &mut self.0
            && pinned.len() >= bytes
            && Arc::get_mut(pinned).is_some()
        {
            return Ok(pinned.address());
        }
        self.0 = None;
        let pinned = Pinned::new(device, with_slack(bytes))?;
        let address = pinned.address();
        self.0 = Some(Arc::new(pinned));
        Ok(address)
    }

    pub(crate) fn get(&self) -> Option<&Arc<Pinned>> {
        self.0.as_ref()
    }
}

/// A number without padding, for which all byte patterns are valid.
pub(crate) trait Number: Copy {}
impl Number for u16 {}
impl Number for u32 {}
impl Number for u64 {}

/// The bytes of numbers, as this machine and the device keep them.
pub(crate) fn bytes_of<N: Number>(numbers: &[N]) -> &[u8] {
    // SAFETY: a number has no padding, and the bytes are as long as the numbers are.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}
