//! Runs of neighbouring ids, found without looking at each of them.

use crate::cast::len32;

/// How many ids the slice starts with that follow each other without a gap; not for no ids.
///
/// The ids ascend strictly, so `n` of them lie without a gap exactly when the last is `n - 1`
/// above the first: the end of the run is found in steps that double, then by halves.
#[inline(always)]
pub(crate) fn run_len(ids: &[u32]) -> usize {
    let first = ids[0];
    let joined = |n: usize| ids.get(n - 1).is_some_and(|&id| id - first == len32(n) - 1);
    if !joined(2) {
        return 1;
    }
    let mut step = 2;
    while joined(2 * step) {
        step *= 2;
    }
    let (mut inside, mut outside) = (step, 2 * step);
    while outside - inside > 1 {
        let middle = inside + (outside - inside) / 2;
        if joined(middle) {
            inside = middle;
        } else {
            outside = middle;
        }
    }
    inside
}
