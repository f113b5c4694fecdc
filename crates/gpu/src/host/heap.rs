//! The memory of a [`HostDevice`](super::HostDevice): allocations lie between zones that must not
//! be written to, and start as garbage.

use std::alloc::Layout;
use std::collections::BTreeMap;

use crate::device::Address;

/// Bytes before and after an allocation that must not be written to.
const ZONE: usize = 256;

/// What an allocation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryKind {
    /// The device's own.
    Device,
    /// The host's, and the device writes to it.
    Pinned,
}

impl MemoryKind {
    fn name(self) -> &'static str {
        match self {
            MemoryKind::Device => "device memory",
            MemoryKind::Pinned => "pinned memory",
        }
    }
}

/// The first byte of an allocation, and the one after its last, in the shim's layout.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Range {
    start: usize,
    end: usize,
}

#[derive(Debug)]
struct Block {
    kind: MemoryKind,
    len: usize,
    layout: Layout,
    /// What the zones are filled with.
    garbage: u8,
}

/// All allocations, by address.
#[derive(Debug)]
pub(super) struct Heap {
    blocks: BTreeMap<usize, Block>,
    random: u64,
    used: [usize; 2],
}

impl Heap {
    pub(super) fn new(seed: u64) -> Self {
        Self { blocks: BTreeMap::new(), random: seed, used: [0; 2] }
    }

    /// Bytes that are allocated, without the zones.
    pub(super) fn used(&self, kind: MemoryKind) -> usize {
        self.used[usize::from(kind == MemoryKind::Pinned)]
    }

    /// Memory: garbage if it is the device's, zeroed if it is pinned.
    pub(super) fn alloc(&mut self, kind: MemoryKind, len: usize) -> Option<Address> {
        let layout = Layout::from_size_align(len.checked_add(2 * ZONE)?, ZONE).ok()?;
        // SAFETY: the layout has the zones, so that it is not empty.
        let start = unsafe { std::alloc::alloc(layout) };
        if start.is_null() {
            return None;
        }
        let garbage = self.garbage();
        let inside = if kind == MemoryKind::Pinned { 0 } else { self.garbage() };
        // SAFETY: the layout has a zone, `len` bytes and another zone.
        let at = unsafe {
            std::ptr::write_bytes(start, garbage, ZONE);
            std::ptr::write_bytes(start.add(ZONE), inside, len);
            std::ptr::write_bytes(start.add(ZONE + len), garbage, ZONE);
            start.add(ZONE)
        };
        let address = at.expose_provenance();
        self.blocks.insert(address, Block { kind, len, layout, garbage });
        self.used[usize::from(kind == MemoryKind::Pinned)] += len;
        Address::try_from(address).ok()
    }

    /// Gives memory back that `alloc` gave.
    pub(super) fn free(&mut self, kind: MemoryKind, address: Address) -> Result<(), String> {
        let unknown = || format!("{address:#x} is not the start of {}", kind.name());
        let at = usize::try_from(address).map_err(|_| unknown())?;
        match self.blocks.get(&at) {
            Some(block) if block.kind == kind => {}
            _ => return Err(unknown()),
        }
        if let Some(block) = self.blocks.remove(&at) {
            self.used[usize::from(kind == MemoryKind::Pinned)] -= block.len;
            release(at, &block);
        }
        Ok(())
    }

    /// The place of a range that lies inside one allocation of the kind.
    pub(super) fn range(
        &self,
        kind: MemoryKind,
        address: Address,
        bytes: usize,
    ) -> Result<*mut u8, String> {
        let end = usize::try_from(address).ok().and_then(|at| Some((at, at.checked_add(bytes)?)));
        if let Some((at, end)) = end
            && let Some((start, block)) = self.blocks.range(..=at).next_back()
            && block.kind == kind
            && end <= start + block.len
        {
            return Ok(std::ptr::with_exposed_provenance_mut(at));
        }
        Err(format!("{bytes} bytes at {address:#x} are not inside of one {}", kind.name()))
    }

    /// Where each allocation starts and ends, in order.
    pub(super) fn ranges(&self) -> Vec<Range> {
        self.blocks.iter().map(|(&at, block)| Range { start: at, end: at + block.len }).collect()
    }

    /// An error if a zone was written to, with the first place found.
    pub(super) fn check(&self, kernel: &str) -> Result<(), String> {
        for (&at, block) in &self.blocks {
            for (zone, side) in [(at - ZONE, "before"), (at + block.len, "behind")] {
                let place: *const u8 = std::ptr::with_exposed_provenance(zone);
                // SAFETY: a zone of that many bytes, written by `alloc`, lies on both sides of
                // each block, and the block is not freed while it is in the map.
                let bytes = unsafe { std::slice::from_raw_parts(place, ZONE) };
                let Some(first) = bytes.iter().position(|&byte| byte != block.garbage) else {
                    continue;
                };
                let far = if side == "before" { ZONE - first } else { first + 1 };
                return Err(format!(
                    "kernel {kernel}: a write {far} bytes {side} {} of {} bytes at {at:#x}",
                    block.kind.name(),
                    block.len
                ));
            }
        }
        Ok(())
    }

    /// A byte that is not 0, another each time.
    fn garbage(&mut self) -> u8 {
        self.random =
            self.random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767);
        0x80 | self.random.to_le_bytes()[6]
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        for (&at, block) in &self.blocks {
            release(at, block);
        }
    }
}

fn release(at: usize, block: &Block) {
    let start: *mut u8 = std::ptr::with_exposed_provenance_mut(at - ZONE);
    // SAFETY: `alloc` got it with this layout and put the block behind the first zone; the block
    // is taken out of the map, or the map ends here, so that this happens once.
    unsafe { std::alloc::dealloc(start, block.layout) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_changed_in_a_zone_is_found() {
        let places: [(isize, &str); 4] = [
            (-1, "1 bytes before"),
            (-256, "256 bytes before"),
            (10, "1 bytes behind"),
            (265, "256 bytes behind"),
        ];
        for (far, part) in places {
            let mut heap = Heap::new(1);
            heap.alloc(MemoryKind::Pinned, 10).unwrap();
            let address = heap.alloc(MemoryKind::Device, 10).unwrap();
            let start = heap.range(MemoryKind::Device, address, 10).unwrap();
            // SAFETY: all ten bytes are inside the allocation.
            unsafe { std::ptr::write_bytes(start, 0, 10) };
            heap.check("test").unwrap();
            // SAFETY: the zones are 256 bytes on both sides.
            unsafe { *start.offset(far) ^= 1 };
            let said = heap.check("test").unwrap_err();
            assert!(said.contains(part) && said.contains("kernel test"), "{said}");
        }
    }

    #[test]
    fn only_what_was_given_is_taken_back() {
        let mut heap = Heap::new(1);
        let address = heap.alloc(MemoryKind::Device, 10).unwrap();
        heap.free(MemoryKind::Device, address + 1).unwrap_err();
        heap.free(MemoryKind::Pinned, address).unwrap_err();
        heap.free(MemoryKind::Device, address).unwrap();
        heap.free(MemoryKind::Device, address).unwrap_err();
        assert_eq!(heap.used(MemoryKind::Device), 0);
    }
}
