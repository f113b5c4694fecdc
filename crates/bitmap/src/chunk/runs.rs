//! Lists of runs: intersection, union and difference of two of them.

use super::{CHUNK_ROWS, Ids16, Runs16, gallop, run_bounds, run_of};

pub(super) fn is_full(runs: &Runs16) -> bool {
    matches!(runs, [run] if run_bounds(*run) == (0, CHUNK_ROWS - 1))
}

/// Calls `each` with the slices of `ids` that lie in the runs.
pub(super) fn ids_in_runs<'a>(mut ids: &'a Ids16, runs: &Runs16, mut each: impl FnMut(&'a Ids16)) {
    for (first, last) in runs.iter().map(|&run| run_bounds(run)) {
        ids = &ids[gallop(ids, first)..];
        let (inside, rest) = ids.split_at(gallop(ids, last + 1));
        each(inside);
        ids = rest;
        if ids.is_empty() {
            return;
        }
    }
}

/// Calls `each` with the common parts of two lists of runs.
#[inline(always)]
pub(super) fn common_runs(a: &Runs16, b: &Runs16, mut each: impl FnMut(u32, u32)) {
    let bounds = |run: Option<&[u8; 4]>| run.map(|&run| run_bounds(run));
    let (mut a, mut b) = (a.iter(), b.iter());
    let (mut left, mut right) = (bounds(a.next()), bounds(b.next()));
    while let (Some(x), Some(y)) = (left, right) {
        // Runs that lie apart are the common case in sparse sets, so they are checked first.
        if x.1 < y.0 {
            left = bounds(a.next());
        } else if y.1 < x.0 {
            right = bounds(b.next());
        } else {
            each(x.0.max(y.0), x.1.min(y.1));
            if x.1 <= y.1 {
                left = bounds(a.next());
            } else {
                right = bounds(b.next());
            }
        }
    }
}

/// Writes the runs of ids that are in a run of either list.
pub(super) fn join_runs(a: &Runs16, b: &Runs16, target: &mut Vec<[u8; 4]>) {
    target.clear();
    target.resize(a.len() + b.len(), [0; 4]);
    // The end of a list counts as a run that comes after all others.
    const END: (u32, u32) = (u32::MAX, u32::MAX);
    let bounds = |run: Option<&[u8; 4]>| run.map_or(END, |&run| run_bounds(run));
    let (mut i, mut j, mut written) = (0, 0, 0);
    let mut open: Option<(u32, u32)> = None;
    // Which list is next, and whether its run joins the open one, cannot be predicted, so neither
    // is a branch. Every turn writes the open run; it counts once the next run does not join it.
    for _ in 0..a.len() + b.len() {
        let (left, right) = (bounds(a.get(i)), bounds(b.get(j)));
        let take_left = left.0 <= right.0;
        let run = if take_left { left } else { right };
        i += usize::from(take_left);
        j += usize::from(!take_left);
        let (first, last) = open.unwrap_or(run);
        let joins = run.0 <= last + 1;
        target[written] = run_of(first, last);
        written += usize::from(!joins);
        open = Some((if joins { first } else { run.0 }, last.max(run.1)));
    }
    if let Some((first, last)) = open {
        target[written] = run_of(first, last);
        written += 1;
    }
    target.truncate(written);
}

/// Calls `each` with the runs of ids that lie in no run, up to and including `last`.
pub(super) fn gaps(runs: &Runs16, last: u32, mut each: impl FnMut(u32, u32)) {
    let mut from = 0;
    for (a, b) in runs.iter().map(|&run| run_bounds(run)).take_while(|run| run.0 <= last) {
        if a > from {
            each(from, a - 1);
        }
        from = b + 1;
    }
    if from <= last {
        each(from, last);
    }
}

/// Appends the runs of ids that are in a run of `a` and in none of `b`.
pub(super) fn subtract_runs(a: &Runs16, b: &Runs16, target: &mut Vec<[u8; 4]>) {
    let mut rest = Vec::with_capacity(b.len() + 1);
    gaps(b, CHUNK_ROWS - 1, |first, last| rest.push(run_of(first, last)));
    common_runs(a, &rest, |first, last| target.push(run_of(first, last)));
}
