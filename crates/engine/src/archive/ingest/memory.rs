//! How much memory there is for packets that wait to be written.

use std::path::Path;

/// The share of the machine's memory that is used if nobody says how much.
const SHARE: u64 = 4;
/// What is used if the machine does not say how much it has.
const UNKNOWN: u64 = 1 << 30;
/// While a segment is written, it takes about as much again as its chunks.
const WRITING: u64 = 2;

/// Bytes that chunks may take.
pub(super) fn for_chunks(memory: Option<u64>) -> usize {
    let bytes = memory.unwrap_or_else(|| of_machine().map_or(UNKNOWN, |bytes| bytes / SHARE));
    usize::try_from(bytes / WRITING).unwrap_or(usize::MAX)
}

/// Bytes of memory that this process may take: those of the machine, or of its control group.
fn of_machine() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(Path::new(path)).ok();
    let line = read("/proc/meminfo")?;
    let kib = line.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let all = kib.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10;
    let group = read("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse().ok());
    Some(all.min(group.unwrap_or(u64::MAX)))
}
