//! Long lists of addresses, asked of a capture some of whose frames columns cannot decide.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::io::BufWriter;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use anyhow::ensure;
use tapdex_engine::capture::{CaptureReader, CaptureWriter, FileFormat, Interface};
use tapdex_engine::traffic::{Profile, Traffic};
use tapdex_report::Sheet;

use super::{Contestant, Times, cells, timed};
use crate::archive::captures::Folder;
use crate::archive::indexing::Job;
use crate::archive::process;

/// How many addresses a list has, and whether tcpdump is asked as well, to whom long ones take
/// minutes.
const LENS: [(usize, bool); 4] = [(100, true), (400, true), (1_000, false), (10_000, false)];
/// One frame in so many is cut off.
const CUT: u64 = 1_000;
/// To so many bytes, in turn: behind both addresses of IPv4, and before them.
const CUT_LENS: [usize; 2] = [36, 24];
/// Addresses from here on are in no packet: 100.64.0.0/10.
const NOBODY: u32 = 0x6440_0000;

/// The four bytes at a place, if they are there.
fn word(frame: &[u8], at: usize) -> Option<u32> {
    let bytes = frame.get(at..at + 4)?;
    Some(bytes.iter().fold(0, |word, &byte| word << 8 | u32::from(byte)))
}

/// Source and target of a frame, where `host` looks for them.
fn ends(frame: &[u8]) -> Option<[u32; 2]> {
    match frame.get(12..14)? {
        [0x08, 0x00] => Some([word(frame, 26)?, word(frame, 30)?]),
        [0x08, 0x06] | [0x80, 0x35] => Some([word(frame, 28)?, word(frame, 38)?]),
        _ => None,
    }
}

/// Writes a capture of short frames of which some with IPv4 are cut off; says how many.
fn write(path: &Path, packets: u64, seed: u64) -> anyhow::Result<u64> {
    let target = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let ethernet = Interface::new(1, 1_000_000_000);
    let mut writer = CaptureWriter::new(target, FileFormat::Pcap, &[ethernet], "")?;
    let profile = Profile { seed, packets, mean_len: Some(64), ..Profile::default() };
    let mut traffic = Traffic::new(&profile);
    let (mut number, mut cut) = (0, 0);
    while let Some(packet) = traffic.next() {
        let mut data = packet.data;
        if number % CUT == 0 && data.get(12..14) == Some(&[0x08, 0x00]) {
            data = &data[..CUT_LENS[usize::from(cut % 2 == 1)]];
            cut += 1;
        }
        writer.packet(0, packet.time_ns, packet.wire_len, data)?;
        number += 1;
    }
    writer.finish()?;
    Ok(cut)
}

/// Calls somebody for every frame of a capture.
fn each(path: &Path, mut call: impl FnMut(&[u8])) -> anyhow::Result<()> {
    let mut reader = CaptureReader::open(File::open(path)?)?;
    while let Some(record) = reader.next()? {
        call(record.data);
    }
    Ok(())
}

/// Addresses of which half have packets, as far as there are so many.
fn list(hosts: &[u32], len: usize) -> Vec<u32> {
    let step = (hosts.len() / len.div_ceil(2)).max(1);
    let there = hosts.iter().copied().step_by(step).take(len.div_ceil(2));
    there.chain(NOBODY..).take(len).collect()
}

/// How long lists take.
pub fn measure(
    folder: &Folder,
    tapdex: &Path,
    (packets, seed): (u64, u64),
    rounds: usize,
) -> anyhow::Result<Sheet> {
    let scratch = folder.scratch();
    fs::create_dir_all(scratch.path())?;
    let [capture, archive, hosts_path, filter_path] =
        ["cut.pcap", "archive", "hosts", "filter"].map(|name| scratch.path().join(name));
    let cut = write(&capture, packets, seed)?;
    Contestant { name: "", program: tapdex, has_sums: false }.index(&capture, &archive, 0)?;
    let mut hosts = BTreeSet::new();
    each(&capture, |frame| hosts.extend(ends(frame).into_iter().flatten()))?;
    let hosts: Vec<u32> = hosts.into_iter().collect();

    let headings =
        ["addresses, who", "with packets", "packets found", "ms", "from", "to", "CPU ms"];
    let title = "Lists of addresses, as a process";
    let mut sheet = Sheet::new("lists", title, &headings);
    for (len, asks_tcpdump) in LENS {
        eprintln!("a list of {len} addresses");
        let listed = list(&hosts, len);
        let there = listed.iter().filter(|host| hosts.binary_search(host).is_ok()).count();
        let names: Vec<String> =
            listed.iter().map(|&host| Ipv4Addr::from(host).to_string()).collect();
        fs::write(&hosts_path, names.join("\n") + "\n")?;
        fs::write(&filter_path, format!("host {}\n", names.join(" or host ")))?;
        let listed: HashSet<u32> = listed.into_iter().collect();
        let mut expected = 0;
        each(&capture, |frame| {
            let is_listed = |ends: [u32; 2]| ends.iter().any(|end| listed.contains(end));
            expected += u64::from(ends(frame).is_some_and(is_listed));
        })?;

        let mut tapdex = Command::new(tapdex);
        tapdex.args(["search", "--count", "-r"]).arg(&archive);
        tapdex.arg("--filter-file").arg(&hosts_path);
        let mut tcpdump = Command::new("tcpdump");
        tcpdump.args(["-n", "--count", "-r"]).arg(&capture).arg("-F").arg(&filter_path);
        let mut commands = vec![("tapdex search --count --filter-file", tapdex)];
        if asks_tcpdump {
            commands.push(("tcpdump --count -F", tcpdump));
        }
        let mut jobs: Vec<Job<'_, ()>> = Vec::new();
        for (name, command) in &mut commands {
            let call = move || {
                let found = process::number_after(&process::run(command)?.stdout, None)?;
                ensure!(found == expected, "{len} addresses: {name}: {found}, not {expected}");
                Ok(())
            };
            jobs.push(Job { rounds: 0..rounds + 1, call: Box::new(call) });
        }
        let times = timed(&mut jobs)?;
        drop(jobs);
        for ((name, _), Times { wall, cpu }) in commands.iter().zip(times) {
            let mut row = vec![format!("{len}, `{name}`"), there.to_string(), expected.to_string()];
            row.extend(cells(wall, 1e3));
            row.push(format!("{:.3}", 1e3 * cpu.median));
            sheet.row(row);
        }
    }
    let [long, short] = CUT_LENS;
    sheet.remarks.push(format!(
        "Of {packets} short frames {cut} are cut off, to {long} and to {short} bytes in turn: \
         columns cannot decide them. {} hosts have packets.",
        hosts.len()
    ));
    Ok(sheet)
}

#[cfg(test)]
mod tests {
    use tapdex_engine::packet::{Headers, LinkType, decode};

    use super::*;

    #[test]
    fn what_is_cut_off_is_odd() {
        let folder = Folder::new(Some(&std::env::temp_dir())).unwrap();
        let scratch = folder.scratch();
        fs::create_dir_all(scratch.path()).unwrap();
        let path = scratch.path().join("cut.pcap");
        let cut = write(&path, 20_000, 1).unwrap();
        let (mut odd, mut headers) = (0, Headers::default());
        each(&path, |frame| {
            decode(LinkType::ETHERNET, false, frame, &mut headers);
            odd += u64::from(headers.odd);
        })
        .unwrap();
        assert!(cut > 5 && odd == cut, "{odd} of {cut}");
    }

    #[test]
    fn lists_have_as_many_as_they_are_asked_for() {
        let hosts: Vec<u32> = (1..=1_000).collect();
        assert_eq!(list(&hosts, 4), [1, 501, NOBODY, NOBODY + 1]);
        assert_eq!(list(&hosts, 10_000).into_iter().collect::<HashSet<_>>().len(), 10_000);
    }
}
