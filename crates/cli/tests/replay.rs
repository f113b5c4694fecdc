//! `tapdex replay`, with an interface at the other end of which tcpdump and the kernel count.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod net;
mod place;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use net::{Namespace, hand_on, packets_in, root, signal, until, wait};
use place::{Place, TAPDEX};
use tapdex_engine::capture::{CaptureWriter, FileFormat, Interface};

/// How a run ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    err: String,
}

impl Ended {
    fn new(output: std::process::Output) -> Self {
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "");
        Self { code: output.status.code(), err: String::from_utf8(output.stderr).unwrap() }
    }

    /// The run went well and said that it sent so many packets and bytes, and what else it said.
    #[track_caller]
    fn sent(self, packets: u64, bytes: u64) -> String {
        assert_eq!(self.code, Some(0), "{}", self.err);
        let s = if packets == 1 { "" } else { "s" };
        let start = format!("tapdex: sent {packets} packet{s}, {bytes} bytes, ");
        assert!(self.err.contains(&start), "{start}: {}", self.err);
        self.err
    }

    #[track_caller]
    fn refused(self, code: i32, message: &str) {
        assert!(self.err.contains(message), "{message}: {}", self.err);
        assert_eq!(self.code, Some(code), "{}", self.err);
    }
}

impl Place {
    /// What tcpdump finds in a capture, to the last byte, but for the times.
    fn dump(&self, name: &str, filter: &str) -> String {
        self.sh(&format!("tcpdump -t -nn -xx -r {name} '{filter}'"))
    }

    /// Packets and bytes of a capture, as tcpdump counts them.
    fn size(&self, name: &str, filter: &str) -> (u64, u64) {
        // -e says the length of each frame behind its addresses and type.
        let lines = self.sh(&format!("tcpdump -e -q -t -nn -r {name} '{filter}'"));
        let length = |line: &str| -> Option<u64> {
            let rest = line.split_once(", length ")?.1;
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        };
        let lengths: Vec<u64> = lines.lines().filter_map(length).collect();
        (lengths.len() as u64, lengths.iter().sum())
    }

    fn run(&self, args: &str) -> Ended {
        let mut command = Command::new(TAPDEX);
        let command = command.arg("replay").args(args.split_whitespace());
        Ended::new(command.current_dir(self.folder()).output().unwrap())
    }

    /// Writes a capture of frames with a length on the wire each.
    fn write(&self, name: &str, frames: &[(u16, u32, &[u8])]) {
        let mut links: Vec<u16> = frames.iter().map(|frame| frame.0).collect();
        links.dedup();
        let interfaces: Vec<_> =
            links.iter().map(|&link| Interface::new(link, 1_000_000)).collect();
        let format = FileFormat::Pcapng;
        let mut writer = CaptureWriter::new(Vec::new(), format, &interfaces, "").unwrap();
        for (time, &(link, wire_len, data)) in (1..).zip(frames) {
            let interface = links.iter().position(|&other| other == link).unwrap();
            let interface = u32::try_from(interface).unwrap();
            writer.packet(interface, time * 1_000_000, wire_len, data).unwrap();
        }
        std::fs::write(self.path(name), writer.finish().unwrap()).unwrap();
    }
}

/// A network of its own, with a cable from `near` to `far`. It is gone when this is dropped.
struct Net {
    space: Namespace,
    folder: Place,
}

impl Net {
    /// Nothing where namespaces cannot be made, which is said.
    fn new() -> Option<Self> {
        let space = Namespace::new("replay")?;
        space.cable("near", "far");
        Some(Self { space, folder: Place::new() })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.space.command(program);
        command.current_dir(self.folder.folder());
        command
    }

    #[track_caller]
    fn inside(&self, line: &str) -> String {
        self.space.inside(line)
    }

    fn replay(&self, args: &[&str]) -> Ended {
        let mut command = self.command(TAPDEX);
        Ended::new(command.args(["replay", "-i", "near"]).args(args).output().unwrap())
    }

    /// Packets and bytes that have come to `far`, as the kernel counts them.
    fn arrived(&self) -> (u64, u64) {
        self.space.arrived("far")
    }

    /// So many packets and bytes have come to `far`, but for those that the kernel has counted as
    /// thrown away. How many of them are missing.
    #[track_caller]
    fn came(&self, packets: u64, bytes: u64) -> u64 {
        let arrived = self.arrived();
        let thrown_away = self.space.thrown_away("near");
        let missing = packets.checked_sub(arrived.0);
        let missing = missing.unwrap_or_else(|| panic!("{arrived:?} of {packets} packets"));
        assert!(missing <= thrown_away, "{arrived:?} of {packets} packets");
        assert!(missing > 0 || arrived.1 == bytes, "{arrived:?} of {bytes} bytes");
        missing
    }

    /// tcpdump at `far`. Its ring has room for all that is sent.
    fn tcpdump(&self, name: &str) -> Tcpdump {
        let args = ["-Z", "root", "-i", "far", "-U", "-B", "65536", "-s", "0"];
        let mut command = self.command("tcpdump");
        command.args(args).args(["-w", name]).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        // It ends at once if it cannot listen, and so does this.
        let listens = lines.any(|line| line.unwrap().contains("listening on"));
        let dump = Tcpdump(child, lines, self.folder.path(name));
        assert!(listens, "tcpdump does not listen");
        dump
    }
}

/// A tcpdump, with its messages kept open so that it can write them.
struct Tcpdump(Child, std::io::Lines<BufReader<std::process::ChildStderr>>, PathBuf);

impl Tcpdump {
    /// Waits until it has written so many packets, and ends it.
    #[track_caller]
    fn finish(mut self, packets: u64) {
        hand_on();
        until(&format!("{packets} packets at tcpdump"), || packets_in(&self.2) >= packets);
        signal(&self.0, "INT");
        assert_eq!(wait(&mut self.0), Some(0), "tcpdump did not end");
        let dropped = self.1.by_ref().map(Result::unwrap);
        let dropped: Vec<_> = dropped.filter(|line| line.contains("dropped by kernel")).collect();
        assert_eq!(dropped, ["0 packets dropped by kernel"]);
    }
}

impl Drop for Tcpdump {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Two dumps have the same packets in the same order, but for so many that the first one lacks.
#[track_caller]
fn same(found: &str, all: &str, missing: u64) {
    // A packet is a line, and lines of its bytes that begin with a tab.
    let packets = |dump: &str| -> Vec<String> {
        let text = dump.replace("\n\t", "\t");
        text.lines().map(str::to_owned).collect()
    };
    let (found, all) = (packets(found), packets(all));
    let mut rest = all.iter();
    for packet in &found {
        assert!(rest.any(|sent| sent == packet), "not sent, or in another order: {packet}");
    }
    assert_eq!(found.len() as u64 + missing, all.len() as u64);
}

#[test]
fn bad_usage_is_refused() {
    let folder = Place::new();
    folder.run("--file a.pcap").refused(2, "--interface <IFACE>");
    for paces in ["--top --pps 5", "--pps 5 --mbps 5", "--speed 2x --top", "--mbps 1 --speed 1x"] {
        folder.run(&format!("-i lo {paces}")).refused(2, "cannot be used with");
    }
    for speed in ["2", "x", "0x", "-1x", "infx", "NaNx", "1e999x", "fast"] {
        folder.run(&format!("-i lo --speed={speed}")).refused(2, "expected recorded, or a factor");
    }
    for rate in ["0", "-1", "inf", "many"] {
        folder.run(&format!("-i lo --mbps={rate}")).refused(2, "expected a number above 0");
    }
    folder.run("-i lo --pps 0").refused(2, "0 is not in 1..");
    folder.run("-i lo --loop 0").refused(2, "0 is not in 1..");
    folder.run("-i lo --file a.pcap --from -5m").refused(2, "cannot be used with");
    folder.run("-i lo udp port").refused(2, "udp port");
}

#[test]
fn what_is_not_there_is_named() {
    let folder = Place::new();
    folder.sh("tapdex gen -c 10 -w a.pcap");
    folder.run("-i no-such-if --file a.pcap").refused(2, "there is no interface 'no-such-if'");
    folder.run("-i lo --file b.pcap").refused(4, "tapdex: b.pcap: cannot open the file");
    std::fs::write(folder.path("c.pcap"), "not a capture at all").unwrap();
    folder.run("-i lo --file a.pcap c.pcap").refused(3, "c.pcap: not a pcap or pcapng file");
}

#[test]
fn without_permission_it_exits_with_5() {
    let folder = Place::new();
    folder.sh("tapdex gen -c 10 -w a.pcap");
    // Root without the capability, so that it can read what root can.
    let without = "setpriv --bounding-set=-net_raw --inh-caps=-net_raw --";
    let without = if root("test $(id -u) = 0") { without } else { "" };
    if !root(&format!("{without} true")) {
        eprintln!("passed over: no way to give up a capability here");
        return;
    }
    let line = format!("{without} {} replay -i lo --file a.pcap; test $? = 5", TAPDEX);
    let mut command = Command::new("sh");
    let output = command.args(["-c", &line]).current_dir(folder.folder()).output().unwrap();
    let message = "tapdex: no permission to send on lo: run as root, or with CAP_NET_RAW\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), message);
    assert!(output.status.success());
}

#[test]
fn tcpdump_gets_every_byte() {
    let Some(net) = Net::new() else { return };
    let folder = &net.folder;
    folder.sh("tapdex gen -c 3000 --vlan 0.3 --tunnel 0.1 -w a.pcap");
    folder.sh("tapdex gen -c 500 --seed 2 -w b.pcapng && gzip b.pcapng");
    let (packets, bytes) = folder.size("a.pcap", "");
    assert_eq!(packets, 3000);
    let tcpdump = net.tcpdump("one.pcap");
    net.replay(&["--file", "a.pcap", "--pps", "20000"]).sent(packets, bytes);
    let missing = net.came(packets, bytes);
    tcpdump.finish(packets - missing);
    same(&folder.dump("one.pcap", ""), &folder.dump("a.pcap", ""), missing);
    assert!(folder.dump("one.pcap", "vlan").lines().count() > 100);

    // Another file behind it, and read ahead.
    let tcpdump = net.tcpdump("two.pcap");
    let args = ["--file", "a.pcap", "b.pcapng.gz", "--mbps", "100", "--preload"];
    let err = net.replay(&args);
    assert!(err.err.starts_with("tapdex: read 3500 packets into "), "{}", err.err);
    folder.sh("gunzip b.pcapng.gz");
    let missing = net.came(6500, 2 * bytes + folder.size("b.pcapng", "").1) - missing;
    tcpdump.finish(3500 - missing);
    let both = folder.dump("a.pcap", "") + &folder.dump("b.pcapng", "");
    same(&folder.dump("two.pcap", ""), &both, missing);
}

#[test]
fn a_part_of_an_archive_is_sent_in_the_order_of_times() {
    let Some(net) = Net::new() else { return };
    let folder = &net.folder;
    folder.sh("tapdex gen -c 4000 --vlan 0 --rate 20000 -w all.pcap");
    // Two captures of the same time, in which no two packets have the same one.
    let split = "tcpdump -r all.pcap --time-stamp-precision=nano";
    folder.sh(&format!("{split} -w y.pcap 'less 100' && {split} -w x.pcap 'greater 101'"));
    folder.sh("tapdex index y.pcap x.pcap -o archive");
    let (mut sent, mut missing) = ((0, 0), 0);
    for (filter, speed) in [("tcp port 443", "2x"), ("udp", "0.5x"), ("", "recorded")] {
        let (packets, bytes) = folder.size("all.pcap", filter);
        assert!(packets > 50, "{filter}: {packets}");
        let tcpdump = net.tcpdump("out.pcap");
        let ended = net.replay(&["-r", "archive", "--speed", speed, filter]);
        ended.sent(packets, bytes);
        sent = (sent.0 + packets, sent.1 + bytes);
        let before = std::mem::replace(&mut missing, net.came(sent.0, sent.1));
        tcpdump.finish(packets - (missing - before));
        let (found, all) = (folder.dump("out.pcap", ""), folder.dump("all.pcap", filter));
        same(&found, &all, missing - before);
    }
    let before = net.arrived();
    let ended = net.replay(&["-r", "archive", "--to", "2001-01-01T00:00:00Z"]);
    assert!(ended.sent(0, 0).contains(" 0 skipped, 0 retried, "));
    assert_eq!(net.arrived(), before);
}

#[test]
fn limits_and_passes_are_exact() {
    let Some(net) = Net::new() else { return };
    let folder = &net.folder;
    folder.sh("tapdex gen -c 100 -w a.pcap && tapdex index a.pcap -o archive");
    folder.sh("tcpdump -c 50 -r a.pcap -w half.pcap && tcpdump -c 1 -r a.pcap -w one.pcap");
    let (_, all) = folder.size("a.pcap", "");
    let (_, half) = folder.size("half.pcap", "");
    let (_, one) = folder.size("one.pcap", "");
    let mut expected = (0, 0);
    let cases: [(&str, u64, u64); 9] = [
        ("--top", 100, all),
        ("--loop 3 --pps 10000", 300, 3 * all),
        ("--loop 3 --speed 1000x", 300, 3 * all),
        ("--loop 3 -c 250 --mbps 500", 250, 2 * all + half),
        ("-c 50 --top", 50, half),
        ("-c 1 --speed recorded", 1, one),
        ("-c 0 --top", 0, 0),
        ("-c 100 --top", 100, all),
        ("-c 101 --top", 100, all),
    ];
    for (options, packets, bytes) in cases {
        for source in ["--file a.pcap", "-r archive"] {
            for preload in ["", "--preload"] {
                let line = format!("{source} {options} {preload}");
                let args: Vec<&str> = line.split_whitespace().collect();
                net.replay(&args).sent(packets, bytes);
                expected = (expected.0 + packets, expected.1 + bytes);
                net.came(expected.0, expected.1);
            }
        }
    }
}

#[test]
fn what_cannot_be_sent_is_counted_and_said() {
    let Some(net) = Net::new() else { return };
    let folder = &net.folder;
    net.inside("ip link set near mtu 500");
    let frame = |len: usize| -> Vec<u8> { (0..len).map(|i| [2, 0, 0, 0, 0, 7][i % 6]).collect() };
    let (fits, long, short) = (frame(514), frame(515), frame(13));
    let mut frames: Vec<(u16, u32, &[u8])> = vec![
        (1, 515, &long),
        (1, 514, &fits),
        (1, 13, &short),
        (1, 0, &[]),
        (101, 514, &fits),
        (1, 1500, &fits),
        (1, 515, &long),
        (1, 515, &long),
        (1, 60, &fits[..60]),
        (1, 70, &fits[..60]),
    ];
    folder.write("odd.pcapng", &frames);
    let mut arrived = (0, 0);
    for preload in [false, true] {
        let mut args = vec!["--file", "odd.pcapng", "--loop", "2", "--top"];
        args.extend(preload.then_some("--preload"));
        let said = net.replay(&args).sent(8, 2 * (2 * 514 + 2 * 60));
        for line in [
            " 12 skipped, ",
            "tapdex: 4 packets were truncated in the capture, and sent truncated\n",
            "tapdex: 2 packets were skipped: not Ethernet\n",
            "tapdex: 6 packets were skipped: longer than the interface's MTU",
            "tapdex: 4 packets were skipped: incomplete Ethernet header\n",
        ] {
            assert!(said.contains(line), "{line}: {said}");
        }
        arrived = (arrived.0 + 8, arrived.1 + 2 * (2 * 514 + 2 * 60));
        net.came(arrived.0, arrived.1);
    }
    // Those that are left out do not count for the limit.
    let said = net.replay(&["--file", "odd.pcapng", "--top", "-c", "2"]).sent(2, 2 * 514);
    assert!(said.contains("tapdex: 1 packet was truncated in the capture"), "{said}");
    // More than go with one call.
    frames.rotate_left(1);
    let many: Vec<_> = frames.iter().copied().cycle().take(1000).collect();
    folder.write("many.pcapng", &many);
    let said = net.replay(&["--file", "many.pcapng", "--top"]).sent(400, 100 * (1028 + 120));
    assert!(said.contains(" 600 skipped, "), "{said}");
    net.came(arrived.0 + 402, arrived.1 + 2 * 514 + 100 * (1028 + 120));
}

#[test]
fn a_damaged_capture_is_sent_up_to_the_damage() {
    let Some(net) = Net::new() else { return };
    net.folder.sh("tapdex gen -c 100 -w a.pcap && head -c -1 a.pcap > cut.pcap");
    net.folder.sh("tcpdump -c 99 -r a.pcap -w but_one.pcap");
    let ended = net.replay(&["--file", "cut.pcap", "--top"]);
    assert!(ended.err.contains("tapdex: sent 99 packets, "), "{}", ended.err);
    ended.refused(3, "is cut off");
    let (packets, bytes) = net.folder.size("but_one.pcap", "");
    net.came(packets, bytes);
}

#[test]
fn an_interface_that_is_down_is_an_error() {
    let Some(net) = Net::new() else { return };
    net.folder.sh("tapdex gen -c 10 -w a.pcap");
    net.inside("ip link set near down");
    let ended = net.replay(&["--file", "a.pcap", "--top"]);
    assert!(ended.err.contains("tapdex: sent 0 packets, 0 bytes, "), "{}", ended.err);
    ended.refused(4, "tapdex: near is down; `ip link set near up` brings it up");
}

#[test]
fn ctrl_c_ends_it_with_a_summary() {
    let Some(net) = Net::new() else { return };
    // A packet in 80 minutes: it would sleep for long.
    let frame = [7; 60];
    net.folder.write("slow.pcapng", &[(1, 60, &frame)]);
    for (sent, name) in [(1, "INT"), (2, "TERM")] {
        let mut command = net.command(TAPDEX);
        let args =
            ["replay", "-i", "near", "--file", "slow.pcapng", "--loop", "9", "--mbps", "0.0000001"];
        let mut child = command.args(args).stderr(Stdio::piped()).spawn().unwrap();
        until("a packet", || net.arrived().0 + net.space.thrown_away("near") >= sent);
        // `ip netns exec` has become tapdex, so this is its number.
        signal(&child, name);
        let code = wait(&mut child);
        drop(child.kill());
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(code, Some(130), "{err}");
        assert!(err.starts_with("tapdex: sent 1 packet, 60 bytes, 0 skipped, "), "{err}");
        net.came(sent, 60 * sent);
    }
}
