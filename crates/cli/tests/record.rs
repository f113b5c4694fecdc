//! `tapdex record`, at the end of a cable in a network of its own. What was sent is compared with
//! what libpcap reads in the files, to the byte.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "modules of a test")]
#![allow(clippy::big_endian_bytes, reason = "packets are big-endian")]

#[path = "record/log.rs"]
mod log;
mod net;
#[path = "record/sandbox.rs"]
mod sandbox;
#[path = "record/serving.rs"]
mod serving;
#[path = "record/settings.rs"]
mod settings;
#[path = "record/streams.rs"]
mod streams;
#[path = "record/wire.rs"]
mod wire;

use std::fmt::Write;
use std::time::Instant;

use net::until;
use tapdex_engine::capture::{CaptureWriter, FileFormat, Interface};
use tapdex_record::status::Losses;
use wire::{Wire, same, sent};

/// A number that can be set for a larger test.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Writes Ethernet frames as a capture.
fn write(wire: &Wire, name: &str, frames: &[Vec<u8>]) {
    let interface = Interface::new(1, 1_000_000_000);
    let format = FileFormat::Pcapng;
    let mut writer = CaptureWriter::new(Vec::new(), format, &[interface], "").unwrap();
    for (time, frame) in (1..).zip(frames) {
        writer.packet(0, time * 1_000_000, u32::try_from(frame.len()).unwrap(), frame).unwrap();
    }
    std::fs::write(wire.path(name), writer.finish().unwrap()).unwrap();
}

/// An Ethernet frame with these tags, and in it a UDP datagram to a port; all of it so long.
fn frame(tags: &[(u16, u16)], port: u16, len: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for (kind, tag) in tags {
        frame.extend(kind.to_be_bytes());
        frame.extend(tag.to_be_bytes());
    }
    frame.extend([8, 0]);
    let ip_len = u16::try_from(len - frame.len()).unwrap();
    frame.extend([0x45, 0]);
    frame.extend(ip_len.to_be_bytes());
    frame.extend([0, 7, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(4242_u16.to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend((ip_len - 20).to_be_bytes());
    frame.extend([0, 0]);
    let rest = (0..len - frame.len()).map(|i| u8::try_from(i % 251).unwrap());
    frame.extend(rest.collect::<Vec<_>>());
    frame
}

/// Frames with none, one and two tags, from short to jumbo.
fn tagged_frames() -> Vec<Vec<u8>> {
    let tags: [&[(u16, u16)]; 8] = [
        &[],
        &[(0x8100, 5)],
        &[(0x8100, 0xE005)],
        // A priority and no VLAN.
        &[(0x8100, 0x6000)],
        &[(0x88A8, 100), (0x8100, 5)],
        &[(0x8100, 100), (0x8100, 5)],
        &[(0x88A8, 4095)],
        &[(0x88A8, 1), (0x88A8, 2), (0x8100, 3)],
    ];
    let lengths = [60, 61, 99, 100, 101, 1000, 1518, 9000];
    let mut frames = Vec::new();
    for len in lengths {
        frames.extend(tags.iter().zip(1000..).map(|(tags, port)| frame(tags, port, len)));
    }
    // As long as the cable takes them: the tag that the kernel knows does not count.
    frames.push(frame(&[], 2000, 9014));
    frames.push(frame(&[(0x8100, 7)], 2001, 9018));
    frames
}

/// The statistics of a file's interfaces.
fn statistics(wire: &Wire, file: &str) -> Vec<Statistics> {
    let bytes = std::fs::read(wire.path(&format!("archive/packets/{file}"))).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        let (kind, len) = (word(at), word(at + 4) as usize);
        if kind == 5 {
            let mut statistics = Statistics { interface: word(at + 8), ..Statistics::default() };
            let mut option = at + 20;
            while option + 4 <= at + len - 4 {
                let (code, size) = (word(option) & 0xFFFF, (word(option) >> 16) as usize);
                let place = match code {
                    4 => &mut statistics.received,
                    5 => &mut statistics.lost_by_interface,
                    7 => &mut statistics.lost_by_system,
                    8 => &mut statistics.delivered,
                    _ => &mut statistics.other,
                };
                if size == 8 {
                    let value = bytes[option + 4..option + 12].try_into().unwrap();
                    *place = u64::from_le_bytes(value);
                }
                option += 4 + size.next_multiple_of(4);
            }
            found.push(statistics);
        }
        at += len;
    }
    found
}

/// An interface statistics block.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Statistics {
    interface: u32,
    received: u64,
    lost_by_interface: u64,
    lost_by_system: u64,
    delivered: u64,
    other: u64,
}

/// The sums over all files, of an interface.
fn all_statistics(wire: &Wire, interface: u32) -> Statistics {
    let mut sum = Statistics { interface, ..Statistics::default() };
    for file in wire.sealed() {
        for one in statistics(wire, &file).iter().filter(|one| one.interface == interface) {
            sum.received += one.received;
            sum.lost_by_interface += one.lost_by_interface;
            sum.lost_by_system += one.lost_by_system;
            sum.delivered += one.delivered;
        }
    }
    sum
}

/// What capinfos says of a file: the value behind a name.
#[track_caller]
fn capinfos(wire: &Wire, file: &str, name: &str) -> Vec<String> {
    let said = wire.sh(&format!("capinfos -M archive/packets/{file}"));
    let values = said.lines().filter_map(|line| {
        let line = line.trim();
        let rest = line.strip_prefix(name)?.trim_start();
        rest.strip_prefix(['=', ':']).map(|value| value.trim().to_owned())
    });
    values.collect()
}

/// Sends so many packets at a rate at which none is lost, and looks at all that there is then.
#[test]
fn every_packet_is_stored_and_found() {
    let Some(wire) = Wire::new() else { return };
    let packets = setting("TAPDEX_RECORD_PACKETS", 200_000);
    let rate = setting("TAPDEX_RECORD_PPS", 50_000);
    wire.sh(&format!("tapdex gen -c {packets} --mean-len 256 --vlan 0.2 -w sent.pcap"));
    // Several files, and none so large that the test would be about the disk.
    let rotate = format!("{}", packets / 5 + 1);
    let recorder =
        wire.record(&format!("-i v1 --buffer 256MiB --queue 256MiB --rotate {rotate}packets"));
    let started = Instant::now();
    let came = wire.send(&format!("--file sent.pcap --pps {rate}"));
    let seconds = started.elapsed().as_secs_f64();
    let packets = came.packets;
    wire.settles(packets);
    let said = recorder.stop();
    println!("{packets} packets, {:.0} a second: {said}", packets as f64 / seconds);

    let status = wire.status().unwrap();
    assert_eq!(status.run.lost, Losses::default(), "{said}");
    assert_eq!((status.run.packets, status.run.wire_bytes), (packets, came.bytes));
    assert_eq!((status.sources[0].received, status.sources[0].stored), (packets, packets));
    assert!(status.ended && !status.paused);
    assert_eq!(wire.unfinished(), [""; 0]);

    assert_eq!(same(wire.frames("sent.pcap", ""), wire.recorded(), came.missing), packets);
    let files = wire.sealed();
    assert!(files.len() >= 4, "{files:?}");
    let counted = |name: &str| -> u64 {
        let values = files.iter().flat_map(|file| capinfos(&wire, file, name));
        values.map(|value| value.parse::<u64>().unwrap()).sum()
    };
    assert_eq!(counted("Number of packets"), 2 * packets, "of the file and of its interface");
    for (n, file) in files.iter().enumerate() {
        // The first one also says when the run began.
        let entries = if n == 0 { "2" } else { "1" };
        assert_eq!(capinfos(&wire, file, "Name"), ["v1"]);
        assert_eq!(capinfos(&wire, file, "Encapsulation"), ["Ethernet (1 - ether)"]);
        assert_eq!(capinfos(&wire, file, "Number of stat entries"), [entries]);
        assert_eq!(capinfos(&wire, file, "Time precision"), ["nanoseconds (9)"]);
        assert_eq!(capinfos(&wire, file, "Strict time order"), ["True"]);
    }
    let expected = Statistics { received: packets, delivered: packets, ..Statistics::default() };
    assert_eq!(all_statistics(&wire, 0), expected);

    for filter in ["", "tcp port 443", "udp", "vlan", "vlan and ip", "net 10.0.0.0/9", "arp"] {
        let found: u64 = files
            .iter()
            .map(|file| wire.frames(&format!("archive/packets/{file}"), filter).count() as u64)
            .sum();
        assert_eq!(wire.count(filter), found, "{filter}");
        assert!(found > packets / 1000, "{filter}: {found}");
    }
    assert!(wire.sh("tapdex verify -r archive 2>&1").contains(&packets.to_string()));
}

/// The recorder cannot keep up: what is not in the files is in the counts, to the last packet.
#[test]
fn losses_are_counted_to_the_packet() {
    let Some(wire) = Wire::new() else { return };
    let packets = setting("TAPDEX_LOSS_PACKETS", 60_000);
    wire.sh(&format!("tapdex gen -c {packets} --mean-len 256 -w sent.pcap"));
    let (mut all, mut lost) = (0, 0);
    for (round, senders) in [(1, 1), (2, 2), (3, 3), (4, 2)] {
        let recorder = wire.record("-i v1 --buffer 1MiB --queue 4MiB --rotate 8MiB");
        let cable = wire.watch("v0", "v1");
        // It holds still until more has come than the kernel's buffer has room for.
        recorder.signal("STOP");
        let sending = || wire.sending("v0", "--file sent.pcap --top --preload");
        let mut senders: Vec<_> = (0..senders).map(|_| sending()).collect();
        until("more packets than there is room for", || cable.packets() > packets / 4);
        recorder.signal("CONT");
        // And for moments, of which the buffer is filled in a small part.
        for (signal, more) in [("STOP", 1_000 * round), ("CONT", 2_000)].repeat(5) {
            let wanted = cable.packets() + more;
            until("more packets, or all of them", || {
                let mut is_over = senders.iter_mut().map(|one| one.try_wait().unwrap().is_some());
                cable.packets() >= wanted || is_over.all(|is_over| is_over)
            });
            recorder.signal(signal);
        }
        let sent = senders.into_iter().map(sent).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        let sent = cable.came(sent).packets;
        wire.settles(sent);
        let said = recorder.stop();
        let status = wire.status().unwrap();
        let run = status.run;
        println!("{sent} sent, {} stored, {:?}", run.packets, run.lost);
        assert_eq!(run.packets + run.lost.sum(), sent, "{said}");
        assert!(run.lost.kernel > 0, "{said}");
        assert_eq!(status.sources[0].received, sent);
        (all, lost) = (all + sent, lost + run.lost.sum());
        // The counts of all runs together, and what is there.
        assert_eq!(status.total.packets + status.total.lost.sum(), all);
        assert_eq!(wire.count(""), all - lost);
    }
    let counts = all_statistics(&wire, 0);
    assert_eq!((counts.received, counts.delivered), (all, all - lost));
    assert_eq!(counts.lost_by_interface + counts.lost_by_system, lost);
    // Who asks is told.
    let said = wire.sh("tapdex search -r archive --count 2>&1 || echo exit code $?");
    assert!(said.contains(&format!("{lost} packets lost while recording")), "{said}");
    assert!(said.contains("exit code 3"), "{said}");
    for command in ["info", "verify", "verify --quick"] {
        let again = wire.sh(&format!("tapdex {command} -r archive || true"));
        assert!(again.contains(&format!("{lost} packets lost while recording")), "{again}");
    }
}

/// Those that read the files of others find the losses, too.
#[test]
fn wireshark_finds_the_losses() {
    let Some(wire) = Wire::new() else { return };
    wire.sh("tapdex gen -c 30000 --mean-len 64 -w sent.pcap");
    let recorder = wire.record("-i v1 --buffer 1MiB -s 64");
    recorder.signal("STOP");
    let sent = wire.send("--file sent.pcap --top").packets;
    recorder.signal("CONT");
    wire.settles(sent);
    recorder.stop();
    let lost = wire.status().unwrap().run.lost.sum();
    assert!(lost > 0);
    let [file] = &wire.sealed()[..] else { panic!("{:?}", wire.sealed()) };
    let said = wire.sh(&format!(
        "tshark -r archive/packets/{file} -X 'read_format:MIME Files Format' -V | \
         grep -A400 'Interface Statistics Block'"
    ));
    // Each block speaks for a time of its own.
    let sum = |name: &str| -> u64 {
        let lines = said.lines().filter(|line| line.contains(name));
        let values = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
        values.reduce(|a, b| a + b).unwrap_or_else(|| panic!("{name}: {said}"))
    };
    assert_eq!(sum("Number of Received Packets:"), sent, "{said}");
    assert_eq!(sum("Number of Dropped Packets:"), 0, "{said}");
    assert_eq!(sum("Number of Dropped Packets by OS:"), lost, "{said}");
    assert_eq!(sum("Number of Delivered to the User Packets:"), sent - lost, "{said}");
}

#[test]
fn tags_and_long_frames_are_kept_to_the_byte() {
    let Some(wire) = Wire::new() else { return };
    write(&wire, "sent.pcapng", &tagged_frames());
    let recorder = wire.record("-i v1");
    let came = wire.send("--file sent.pcapng --pps 5000");
    assert_eq!(came.packets + came.missing, 66);
    wire.settles(came.packets);
    recorder.stop();
    let sent = wire.frames("sent.pcapng", "");
    assert_eq!(same(sent, wire.recorded(), came.missing), came.packets);
    assert_eq!(wire.status().unwrap().run.lost, Losses::default());
    for filter in ["vlan", "vlan and vlan", "vlan 5", "not vlan", "vlan and udp port 1003"] {
        assert_eq!(wire.count(filter), wire.frames("recorded.pcapng", filter).count() as u64);
    }
}

#[test]
fn packets_are_cut_and_their_lengths_kept() {
    let Some(wire) = Wire::new() else { return };
    write(&wire, "sent.pcapng", &tagged_frames());
    let recorder = wire.record("-i v1 -s 96");
    let came = wire.send("--file sent.pcapng --pps 5000");
    wire.settles(came.packets);
    recorder.stop();
    let cut = wire.frames("sent.pcapng", "").map(|(mut data, len)| {
        data.truncate(96);
        (data, len)
    });
    assert_eq!(same(cut, wire.recorded(), came.missing), came.packets);
    assert_eq!(wire.status().unwrap().run.wire_bytes, came.bytes);
    assert_eq!(capinfos(&wire, &wire.sealed()[0], "Capture length"), ["96"]);
}

/// The kernel takes tags off before it filters, so that `udp` finds tagged frames, too. Whoever
/// captures has it so; another tcpdump at the same interface is what to compare with.
#[test]
fn a_capture_filter_lets_through_what_tcpdump_would() {
    let Some(wire) = Wire::new() else { return };
    wire.sh("tapdex gen -c 20000 --mean-len 200 --vlan 0.4 -w made.pcap");
    write(&wire, "tags.pcapng", &tagged_frames());
    wire.sh("mergecap -a -F pcap -w sent.pcap made.pcap tags.pcapng");
    let filters = ["udp port 53", "vlan and tcp", "not vlan and ip", "vlan and vlan 5 and udp"];
    for filter in filters {
        std::fs::remove_dir_all(wire.path("archive")).ok();
        let recorder = wire.record(&format!("-i v1 -f '{filter}'"));
        let tcpdump = wire.tcpdump("live.pcap", filter);
        let sent = wire.send("--file sent.pcap --pps 40000").packets;
        until(&format!("{filter}: the recorder has as many as tcpdump"), || {
            let expected = tcpdump.packets();
            expected > 5 && wire.settled() == expected
        });
        recorder.stop();
        let status = wire.status().unwrap();
        let expected = status.run.packets;
        assert!(expected > 5 && expected < sent, "{filter}: {expected}");
        tcpdump.end(expected);
        assert_eq!(same(wire.frames("live.pcap", ""), wire.recorded(), 0), expected);
        assert_eq!(status.run.lost.sum(), 0, "{filter}");
        let file = &wire.sealed()[0];
        let said = capinfos(&wire, file, "Filter string");
        assert_eq!(said, [filter]);
    }
}

#[test]
fn interfaces_are_recorded_together() {
    let Some(wire) = Wire::new() else { return };
    wire.space.cable("w0", "w1");
    wire.sh("tapdex gen -c 20000 --mean-len 200 -w one.pcap");
    wire.sh("tapdex gen -c 30000 --mean-len 200 --seed 2 -w two.pcap");
    let recorder = wire.record("-i v1 -i w1 --rotate 4MiB");
    let cables = [wire.watch("v0", "v1"), wire.watch("w0", "w1")];
    let one = wire.sending("v0", "--file one.pcap --pps 10000");
    let two = wire.sending("w0", "--file two.pcap --pps 15000");
    let [one, two] = [cables[0].came(sent(one)), cables[1].came(sent(two))];
    let all = one.packets + two.packets;
    assert_eq!(all + one.missing + two.missing, 50_000);
    wire.settles(all);
    recorder.stop();
    let status = wire.status().unwrap();
    assert_eq!((status.run.packets, status.run.lost.sum()), (all, 0));
    let stored: Vec<_> = status.sources.iter().map(|s| (s.name.as_str(), s.stored)).collect();
    assert_eq!(stored, [("v1", one.packets), ("w1", two.packets)]);
    // Whoever was ready first is the first one, in all files.
    let names = capinfos(&wire, &wire.sealed()[0], "Name");
    for file in wire.sealed() {
        assert_eq!(capinfos(&wire, &file, "Name"), names);
    }
    assert_eq!(names.len(), 2);
    for (name, number) in names.iter().zip(0..) {
        let expected = if name == "v1" { one } else { two };
        assert_eq!(all_statistics(&wire, number).delivered, expected.packets, "{name}");
    }
    // tcpdump does not tell interfaces apart, tshark does.
    wire.sh("tapdex extract -r archive -w all.pcapng");
    for (name, capture, came) in [("v1", "one.pcap", one), ("w1", "two.pcap", two)] {
        wire.sh(&format!("tshark -r all.pcapng -Y 'frame.interface_name == {name}' -w of.pcapng"));
        same(wire.frames(capture, ""), wire.frames("of.pcapng", ""), came.missing);
        let counts = wire.sh("tapdex top -r archive iface");
        let line = counts.lines().find(|line| line.contains(name)).unwrap();
        assert!(line.contains(&came.packets.to_string()), "{counts}");
    }
}

/// All interfaces at once: a frame is seen where it leaves and where it comes.
#[test]
fn any_interface_is_recorded() {
    let Some(wire) = Wire::new() else { return };
    wire.space.inside("ip link set lo up");
    wire.sh("tapdex gen -c 2000 --mean-len 200 --vlan 0 -w sent.pcap");
    let recorder = wire.record("-i any");
    let came = wire.send("--file sent.pcap --pps 5000");
    let around = wire.watch("lo", "lo");
    let around = around.came(sent(wire.sending("lo", "--file sent.pcap --pps 5000")));
    let seen = came.left + came.packets + around.packets;
    wire.settles(seen);
    recorder.stop();
    let status = wire.status().unwrap();
    assert_eq!((status.run.packets, status.run.lost.sum()), (seen, 0));
    assert_eq!(status.sources[0].received, seen);
    let sent = 2000;
    if [came.left, came.packets, around.packets] != [sent; 3] {
        eprintln!("the kernel threw packets away, and of the others only the number is known");
        return;
    }
    let udp = wire.frames("sent.pcap", "udp").count() as u64;
    assert!(udp > 100);
    assert_eq!(wire.count("udp"), 3 * udp);
    // Cooked: in place of the Ethernet header are 16 bytes, and what follows is the same.
    let mut recorded = wire.recorded();
    assert_eq!(recorded.link, 113);
    let mut expected = wire.frames("sent.pcap", "").map(|frame| frame.0[14..].to_vec());
    for _ in 0..sent {
        let wanted = expected.next().unwrap();
        for _ in 0..2 {
            assert_eq!(recorded.next().unwrap().0[16..], wanted[..]);
        }
    }
}

/// On the loopback the kernel shows each packet twice, and libpcap leaves one out.
#[test]
fn the_loopback_has_no_losses_of_its_own() {
    let Some(wire) = Wire::new() else { return };
    wire.space.inside("ip link set lo up");
    wire.sh("tapdex gen -c 3000 --mean-len 200 -w sent.pcap");
    let recorder = wire.record("-i lo");
    let around = wire.watch("lo", "lo");
    let came = around.came(sent(wire.sending("lo", "--file sent.pcap --pps 5000"))).packets;
    wire.settles(came);
    // Nothing is counted later, either.
    wire.tells_again(2);
    let said = recorder.stop();
    let status = wire.status().unwrap();
    assert_eq!((status.run.packets, status.run.lost.sum()), (came, 0), "{said}");
    assert_eq!(status.sources[0].received, came);
    assert_eq!(status.sources[0].ring_fill, 0.0);
}

#[test]
fn a_packet_is_found_before_its_file_is_complete() {
    let Some(wire) = Wire::new() else { return };
    wire.sh("tapdex gen -c 5000 --mean-len 200 -w before.pcap");
    let recorder = wire.record("-i v1");
    let before = wire.send("--file before.pcap --pps 10000").packets;
    let mut took = String::new();
    for port in 61_000..61_005_u16 {
        write(&wire, "one.pcapng", &[frame(&[], port, 100)]);
        let filter = format!("src 10.0.0.1 and udp dst port {port}");
        assert_eq!(wire.count(&filter), 0);
        let started = Instant::now();
        // Once more if the kernel has thrown it away.
        until("a packet that comes", || wire.send("--file one.pcapng --top").packets == 1);
        until(&format!("port {port} in an answer"), || wire.count(&filter) == 1);
        write!(took, " {:.2} s", started.elapsed().as_secs_f64()).unwrap();
        assert_eq!(wire.sealed(), [""; 0]);
        assert_eq!(wire.unfinished().len(), 1);
    }
    println!("found after{took}");
    // What is found can be had.
    wire.sh("tapdex extract -r archive -w found.pcapng 'udp dst port 61004'");
    assert_eq!(same(wire.frames("one.pcapng", ""), wire.frames("found.pcapng", ""), 0), 1);
    recorder.stop();
    assert_eq!(wire.count(""), before + 5);
}

/// The interface goes down and up, and goes away and comes back.
#[test]
fn an_interface_may_go_and_come_back() {
    let Some(wire) = Wire::new() else { return };
    wire.sh("tapdex gen -c 1000 --mean-len 200 -w sent.pcap");
    let mut recorder = wire.record("-i v1");
    let (mut all, mut missing) = (0, 0);
    let mut send = |wire: &Wire| {
        let came = wire.send("--file sent.pcap --pps 5000");
        (all, missing) = (all + came.packets, missing + came.missing);
        wire.settles(all);
    };
    send(&wire);
    wire.space.inside("ip link set v1 down");
    wire.tells_again(2);
    wire.space.inside("ip link set v1 up");
    wire.space.connects("v0", "v1");
    // Nothing was closed for that.
    send(&wire);
    assert_eq!(wire.status().unwrap().sources[0].reopened, 0);
    for gone in 1..3 {
        wire.space.inside("ip link del v1");
        recorder.says_times("v1 gives no more packets", gone);
        until("a status that says so", || {
            wire.status().is_some_and(|status| !status.sources[0].up)
        });
        wire.space.cable("v0", "v1");
        recorder.says_times("v1 is back", gone);
        send(&wire);
    }
    recorder.says("The interface disappeared");
    recorder.stop();
    let status = wire.status().unwrap();
    assert_eq!((status.run.packets, status.run.lost.sum()), (all, 0));
    assert_eq!(all + missing, 4000);
    assert_eq!(status.sources[0].reopened, 2);
    let sent: Vec<_> = wire.frames("sent.pcap", "").collect();
    let expected = sent.iter().cycle().take(4000).cloned();
    assert_eq!(same(expected, wire.recorded(), missing), all);
    let file = &wire.sealed()[0];
    assert_eq!(capinfos(&wire, file, "Name"), ["v1"], "one interface, however often it came");
}

/// What was in the kernel's ring when the interface went is stored all the same.
#[test]
fn an_interface_that_goes_takes_no_packets_along() {
    let Some(wire) = Wire::new() else { return };
    wire.sh("tapdex gen -c 3000 --mean-len 200 -w sent.pcap");
    let mut recorder = wire.record("-i v1");
    let mut all = 0;
    for gone in 1..3 {
        // It holds still, so that all of them are in the ring.
        recorder.signal("STOP");
        all += wire.send("--file sent.pcap --top").packets;
        wire.space.inside("ip link del v1");
        recorder.signal("CONT");
        recorder.says_times("v1 gives no more packets", gone);
        wire.space.cable("v0", "v1");
        recorder.says_times("v1 is back", gone);
    }
    recorder.says("The interface disappeared");
    recorder.stop();
    let status = wire.status().unwrap();
    assert_eq!((status.run.packets, status.run.lost.sum()), (all, 0));
}

/// However many packets come, it ends when it is told to, with what had come until then.
#[test]
fn it_ends_while_packets_come() {
    let Some(wire) = Wire::new() else { return };
    wire.sh("tapdex gen -c 20000 --mean-len 100 -w sent.pcap");
    let sending = || wire.sending("v0", "--file sent.pcap --top --preload --loop 1000000");
    let mut senders: Vec<_> = (0..3).map(|_| sending()).collect();
    let recorder = wire.record("-i v1 --buffer 4MiB --rotate 16MiB");
    until("100,000 packets", || wire.status().is_some_and(|s| s.run.packets > 100_000));
    let said = recorder.stop();
    for sender in &mut senders {
        drop(sender.kill());
        drop(sender.wait());
    }
    let status = wire.status().unwrap();
    let stored = status.run.packets;
    assert_eq!(status.sources[0].received, stored + status.run.lost.sum(), "{said}");
    assert_eq!(wire.count(""), stored);
    assert_eq!(wire.unfinished(), [""; 0]);
    let found = wire
        .sealed()
        .into_iter()
        .map(|file| wire.frames(&format!("archive/packets/{file}"), "").count() as u64);
    assert_eq!(found.sum::<u64>(), stored);
}
