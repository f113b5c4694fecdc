//! The memory that a device has handed out, so that no copy goes past it and none is freed twice.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::device::{Address, DeviceError};

/// Memory of one kind: where each piece starts, and how many bytes it has.
#[derive(Debug, Default)]
pub(super) struct Lent(Mutex<BTreeMap<Address, usize>>);

impl Lent {
    fn pieces(&self) -> std::sync::MutexGuard<'_, BTreeMap<Address, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a piece that was handed out.
    pub(super) fn add(&self, address: Address, bytes: usize) {
        self.pieces().insert(address, bytes);
    }

    /// Removes a piece that was given back; `false` if none starts there.
    pub(super) fn take(&self, address: Address) -> bool {
        self.pieces().remove(&address).is_some()
    }

    /// An error unless the bytes lie in one piece.
    pub(super) fn check(
        &self,
        address: Address,
        bytes: usize,
        at: &'static str,
    ) -> Result<(), DeviceError> {
        let pieces = self.pieces();
        let piece = pieces.range(..=address).next_back();
        let is_inside = piece.is_some_and(|(start, &len)| {
            let before = usize::try_from(address - start).ok();
            before.and_then(|before| before.checked_add(bytes)).is_some_and(|end| end <= len)
        });
        match is_inside {
            true => Ok(()),
            false => {
                let why = format!("{bytes} bytes at {address:#x} were not handed out");
                Err(DeviceError::Lost { at, why })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_lie_in_one_piece_or_are_refused() {
        let lent = Lent::default();
        lent.add(1_000, 100);
        lent.add(1_100, 50);
        let holds = |address, bytes| lent.check(address, bytes, "test").is_ok();
        for (address, bytes) in [(1_000, 100), (1_000, 0), (1_040, 60), (1_099, 1), (1_100, 50)] {
            assert!(holds(address, bytes), "{address} {bytes}");
        }
        for (address, bytes) in
            [(999, 1), (1_000, 101), (1_050, 60), (1_150, 1), (0, 0), (1_010, usize::MAX)]
        {
            assert!(!holds(address, bytes), "{address} {bytes}");
        }
        assert!(!lent.take(1_001) && lent.take(1_000) && !lent.take(1_000));
        assert!(!holds(1_000, 1) && holds(1_100, 50));
    }
}
