//! The captures that are indexed: made up, or unpacked.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, ensure};
use tapdex_engine::capture::{CaptureReader, CaptureWriter, FileFormat, Interface, decompress};
use tapdex_engine::traffic::{Profile, Traffic};

use super::process;

/// Packets of the capture whose index is made in every way.
const MILLION: u64 = 1_000_000;
/// Bytes on the disk for each packet of a mixed and of a small capture, at most.
const MIXED_BYTES: u64 = 730;
const SMALL_BYTES: u64 = 100;
/// Bytes for each packet that the indexes of both captures take, at most, with some to spare.
const INDEX_BYTES: u64 = 100;
/// Bytes for unpacked traces and the indexes of one of them.
const OTHER_BYTES: u64 = 1_000_000_000;

/// What is measured, and where.
#[derive(Debug, clap::Args)]
pub struct Setting {
    /// Seed of made-up packets.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where captures and archives go, to be removed at the end; without it, a temporary folder. It
    /// should be on a disk, not in memory.
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// The program that is measured as a process.
    #[arg(long, value_name = "FILE", default_value = "target/release/tapdex")]
    pub tapdex: PathBuf,
}

/// Where captures and archives go.
pub struct Folder {
    path: PathBuf,
    keep: bool,
    scratches: AtomicU32,
}

impl Folder {
    /// A folder that is there or is made, and kept; or else a temporary one.
    pub fn new(path: Option<&Path>) -> anyhow::Result<Self> {
        let temporary =
            || std::env::temp_dir().join(format!("tapdex-bench-{}", std::process::id()));
        let folder = Self {
            path: path.map_or_else(temporary, Path::to_owned),
            keep: path.is_some(),
            scratches: AtomicU32::new(0),
        };
        fs::create_dir_all(&folder.path)
            .with_context(|| format!("cannot make {}", folder.path.display()))?;
        Ok(folder)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A place in it that is removed when it is dropped.
    pub fn scratch(&self) -> Scratch {
        let number = self.scratches.fetch_add(1, Ordering::Relaxed);
        Scratch(self.path.join(format!("scratch-{}-{number}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.keep {
            drop(fs::remove_dir_all(&self.path));
        }
    }
}

/// A folder that is removed when this is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Where it is, or is to be.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A capture file, unpacked.
#[derive(Debug, Clone)]
pub struct Capture {
    /// What tables call it.
    pub name: String,
    pub path: PathBuf,
    pub packets: u64,
    /// Bytes of all frames, and those of them that were captured.
    pub wire_bytes: u64,
    pub captured_bytes: u64,
    pub file_bytes: u64,
}

impl Capture {
    /// Reads a capture once: it is in the page cache then, as far as there is room.
    pub fn read(name: &str, path: &Path) -> anyhow::Result<Self> {
        let failed = || format!("cannot read {}", path.display());
        let file = File::open(path).with_context(failed)?;
        let file_bytes = file.metadata().with_context(failed)?.len();
        let mut reader = CaptureReader::open(file).with_context(failed)?;
        let (mut packets, mut wire_bytes, mut captured_bytes) = (0, 0, 0);
        while let Some(record) = reader.next().with_context(failed)? {
            packets += 1;
            wire_bytes += u64::from(record.wire_len);
            captured_bytes += record.data.len() as u64;
        }
        ensure!(packets > 0, "{} has no packets", path.display());
        let (name, path) = (name.to_owned(), path.to_owned());
        Ok(Self { name, path, packets, wire_bytes, captured_bytes, file_bytes })
    }
}

/// A capture, and the first tenth of it.
pub struct Pair {
    pub whole: Capture,
    pub tenth: Capture,
}

/// How many packets the made-up captures can have so that everything fits on the disk: as many as
/// asked for, or fewer.
pub fn packets_that_fit(folder: &Folder, packets: u64, seed: u64) -> anyhow::Result<u64> {
    let free = process::free_bytes(folder.path())?;
    // What is there already is used again, and what is not as it should be is replaced.
    let is_made = |name: &str| {
        let path = folder.path().join(name);
        let known = fs::read_to_string(stamp_path(&path))
            .is_ok_and(|text| text.starts_with(&format!("seed {seed}, {packets} packets")));
        if known { path.metadata().map_or(0, |data| data.len()) } else { 0 }
    };
    let there = is_made("small.pcap") + is_made("mixed.pcap");
    let million = MILLION.min(packets) * MIXED_BYTES;
    let each = (MIXED_BYTES + SMALL_BYTES) * 11 / 10 + INDEX_BYTES;
    let other = million + OTHER_BYTES;
    if packets * each + other <= free + there {
        return Ok(packets);
    }
    let fit = free.saturating_sub(other) / each / 100_000 * 100_000;
    ensure!(fit > 0, "{} has {free} bytes free, too few", folder.path().display());
    eprintln!("{free} bytes are free: {fit} packets instead of {packets}");
    Ok(fit)
}

/// A made-up capture and its first tenth.
pub fn pair(
    folder: &Folder,
    name: &str,
    mean_len: Option<u32>,
    packets: u64,
    seed: u64,
) -> anyhow::Result<Pair> {
    let tenth = format!("{name}-tenth");
    Ok(Pair {
        whole: made(folder, name, mean_len, packets, seed)?,
        tenth: made(folder, &tenth, mean_len, packets / 10, seed)?,
    })
}

/// The first million packets of the mixed capture.
pub fn million(folder: &Folder, packets: u64, seed: u64) -> anyhow::Result<Capture> {
    made(folder, "million", None, packets.min(MILLION), seed)
}

/// What says how a capture was made; it is written when the capture is complete.
fn stamp_path(capture: &Path) -> PathBuf {
    capture.with_extension("made")
}

/// A made-up capture: the one that is there, if it was made in the same way.
pub fn made(
    folder: &Folder,
    name: &str,
    mean_len: Option<u32>,
    packets: u64,
    seed: u64,
) -> anyhow::Result<Capture> {
    let path = folder.path().join(format!("{name}.pcap"));
    let stamp = format!("seed {seed}, {packets} packets, mean {mean_len:?}\n");
    let is_there = fs::read_to_string(stamp_path(&path)).is_ok_and(|text| text == stamp);
    if !is_there || !path.is_file() {
        eprintln!("making up {packets} packets: {name}");
        drop(fs::remove_file(stamp_path(&path)));
        let profile = Profile { seed, packets, mean_len, ..Profile::default() };
        write(&profile, &path).with_context(|| format!("cannot write {}", path.display()))?;
        fs::write(stamp_path(&path), stamp)?;
    }
    let capture = Capture::read(name, &path)?;
    ensure!(capture.packets == packets, "{} has {} packets", path.display(), capture.packets);
    Ok(capture)
}

/// SYNs to one host and port, each from a random address and port: every packet is a flow.
pub fn flood(folder: &Folder, packets: u64, seed: u64) -> anyhow::Result<Capture> {
    let path = folder.path().join("flood.pcap");
    let target = BufWriter::with_capacity(1 << 20, File::create(&path)?);
    let ethernet = Interface::new(1, 1_000_000_000);
    let mut writer = CaptureWriter::new(target, FileFormat::Pcap, &[ethernet], "")?;
    // Two addresses of Ethernet, IPv4, TCP; source and its port are filled in.
    let mut frame = [0_u8; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    frame[14..26].copy_from_slice(&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
    frame[30..34].copy_from_slice(&[10, 0, 0, 1]);
    frame[36..38].copy_from_slice(&80_u16.to_be_bytes());
    frame[46..50].copy_from_slice(&[0x50, 2, 4, 0]);
    for number in 0..packets {
        let mut word = (seed ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        word = (word ^ word >> 31).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let word = (word ^ word >> 29).to_le_bytes();
        frame[26..30].copy_from_slice(&word[..4]);
        frame[34..36].copy_from_slice(&word[4..6]);
        writer.packet(0, 1_700_000_000_000_000_000 + 1_000 * number, 60, &frame)?;
    }
    writer.finish()?;
    Capture::read("flood", &path)
}

/// Writes a made-up capture.
pub fn write(profile: &Profile, path: &Path) -> anyhow::Result<()> {
    let target = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let ethernet = Interface::new(1, 1_000_000_000);
    let mut writer = CaptureWriter::new(target, FileFormat::Pcap, &[ethernet], "")?;
    let mut traffic = Traffic::new(profile);
    while let Some(packet) = traffic.next() {
        writer.packet(0, packet.time_ns, packet.wire_len, packet.data)?;
    }
    writer.finish()?;
    Ok(())
}

/// The real captures, unpacked; none if nobody says where they are.
pub fn traces(folder: &Folder, given: Option<&Path>) -> anyhow::Result<Vec<Capture>> {
    let variable = std::env::var_os("TAPDEX_TRACES").filter(|path| !path.is_empty());
    let Some(source) = given.map(Path::to_owned).or(variable.map(PathBuf::from)) else {
        return Ok(Vec::new());
    };
    let source = source.join("large");
    let failed = || format!("cannot list {}", source.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(&source).with_context(failed)? {
        paths.push(entry.with_context(failed)?.path());
    }
    paths.sort();
    let mut traces = Vec::new();
    for packed in paths.iter().filter(|path| path.extension().is_some_and(|end| end == "zst")) {
        let failed = || format!("cannot unpack {}", packed.display());
        let file = packed.file_stem().with_context(failed)?;
        let path = folder.path().join(file);
        if !path.is_file() {
            // Not under its name before it is complete.
            let part = path.with_extension("part");
            let mut source = decompress(File::open(packed).with_context(failed)?)?;
            io::copy(&mut source, &mut File::create(&part)?).with_context(failed)?;
            fs::rename(&part, &path)?;
        }
        let name = Path::new(file).file_stem().unwrap_or(file).to_string_lossy();
        traces.push(Capture::read(&name, &path)?);
    }
    Ok(traces)
}
