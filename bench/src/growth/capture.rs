//! A capture that grows: what is there at any time is the first packets of the whole.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, ensure};
use tapdex_engine::capture::{CaptureWriter, FileFormat, Interface};
use tapdex_engine::packet::LinkType;
use tapdex_engine::query::bpf::Program;
use tapdex_engine::traffic::{Profile, Traffic};

use crate::archive::captures::{Capture, Folder};
use crate::archive::process;

/// Bytes on the disk for each packet, at most: the capture, and two indexes of it at a time.
const PACKET_BYTES: u64 = 80 + 2 * 16;
/// Bytes to be left free.
const SPARE_BYTES: u64 = 1_000_000_000;

/// The sizes for which the disk has room; all, or some of them and a word about the others.
pub fn sizes_that_fit(folder: &Folder, sizes: &[u64]) -> anyhow::Result<Vec<u64>> {
    let free = process::free_bytes(folder.path())?;
    let fit: Vec<u64> = sizes.iter().copied().filter(|&size| need(size) <= free).collect();
    let least = sizes.iter().copied().min().unwrap_or(0);
    ensure!(
        !fit.is_empty(),
        "{} bytes are free where captures go, and {} are needed for {least} packets; name another \
         folder with --folder, or fewer packets with --packets",
        free,
        need(least)
    );
    if fit.len() < sizes.len() {
        eprintln!("{free} bytes are free: no more than {} packets", fit[fit.len() - 1]);
    }
    Ok(fit)
}

fn need(packets: u64) -> u64 {
    packets.saturating_mul(PACKET_BYTES).saturating_add(SPARE_BYTES)
}

/// The profile of all packets: short frames.
pub fn profile(packets: u64, seed: u64) -> Profile {
    Profile { seed, packets, mean_len: Some(64), ..Profile::default() }
}

/// A file that its writer keeps hold of, so that what is in the buffer can be written at any time.
#[derive(Clone)]
struct Shared(Rc<RefCell<BufWriter<File>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.borrow_mut().flush()
    }
}

/// A capture that grows, and how many of its packets some filters take.
pub struct Growing {
    path: PathBuf,
    seed: u64,
    traffic: Traffic,
    file: Shared,
    writer: CaptureWriter<Shared>,
    filters: Vec<(Program, u64)>,
    packets: u64,
    wire_bytes: u64,
    captured_bytes: u64,
}

impl Growing {
    /// A capture without packets that may have so many.
    pub fn new(path: &Path, packets_max: u64, seed: u64) -> anyhow::Result<Self> {
        let made =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let file = Shared(Rc::new(RefCell::new(BufWriter::with_capacity(1 << 20, made))));
        let ethernet = Interface::new(1, 1_000_000_000);
        let writer = CaptureWriter::new(file.clone(), FileFormat::Pcap, &[ethernet], "")?;
        Ok(Self {
            path: path.to_owned(),
            seed,
            traffic: Traffic::new(&profile(packets_max, seed)),
            file,
            writer,
            filters: Vec::new(),
            packets: 0,
            wire_bytes: 0,
            captured_bytes: 0,
        })
    }

    /// Lets the capture have so many packets. They are on the disk then, and have been read once.
    pub fn grow(&mut self, packets: u64) -> anyhow::Result<Capture> {
        let failed = || format!("cannot write {}", self.path.display());
        while self.packets < packets {
            let packet = self.traffic.next().context("too few packets are made up")?;
            self.writer.packet(0, packet.time_ns, packet.wire_len, packet.data)?;
            self.packets += 1;
            self.wire_bytes += u64::from(packet.wire_len);
            self.captured_bytes += packet.data.len() as u64;
            for (program, count) in &mut self.filters {
                *count += u64::from(program.matches(packet.data, packet.wire_len));
            }
        }
        self.file.flush().with_context(failed)?;
        // So that no writing goes on behind the measurements.
        self.file.0.borrow().get_ref().sync_all().with_context(failed)?;
        let file_bytes = io::copy(&mut File::open(&self.path)?, &mut io::sink())?;
        ensure!(file_bytes == self.writer.written(), "{} is not complete", self.path.display());
        Ok(Capture {
            name: format!("{} M", packets / super::MILLION),
            path: self.path.clone(),
            packets,
            wire_bytes: self.wire_bytes,
            captured_bytes: self.captured_bytes,
            file_bytes,
        })
    }

    /// Counts what these filters take, of the packets that are there and of those to come.
    pub fn count(&mut self, filters: &[&str]) -> anyhow::Result<()> {
        self.filters.clear();
        for filter in filters {
            self.filters.push((Program::compile(filter, LinkType::ETHERNET, false)?, 0));
        }
        let mut again = Traffic::new(&profile(self.packets, self.seed));
        while let Some(packet) = again.next() {
            for (program, count) in &mut self.filters {
                *count += u64::from(program.matches(packet.data, packet.wire_len));
            }
        }
        Ok(())
    }

    /// How many packets each filter takes.
    pub fn counts(&self) -> Vec<u64> {
        self.filters.iter().map(|(_, count)| *count).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::archive::captures;

    #[test]
    fn what_is_there_is_a_capture_of_the_first_packets() {
        let folder = Folder::new(None).unwrap();
        let scratch = folder.scratch();
        fs::create_dir_all(scratch.path()).unwrap();
        let [path, whole] = ["growing.pcap", "whole.pcap"].map(|name| scratch.path().join(name));
        let mut growing = Growing::new(&path, 3_000, 5).unwrap();
        let mut counts = Vec::new();
        for packets in [1_000, 3_000] {
            growing.grow(packets).unwrap();
            if counts.is_empty() {
                growing.count(&["tcp", "greater 1"]).unwrap();
            }
            counts.push(growing.counts());
            captures::write(&profile(packets, 5), &whole).unwrap();
            assert_eq!(fs::read(&path).unwrap(), fs::read(&whole).unwrap(), "{packets}");
        }
        assert_eq!((counts[0][1], counts[1][1]), (1_000, 3_000));
        assert!(0 < counts[0][0] && counts[0][0] < counts[1][0] && counts[1][0] < 3_000);
    }
}
