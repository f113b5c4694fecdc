//! Filters and lists from files.

use std::fmt::Write;

use super::*;

#[test]
fn a_list_is_what_its_entries_ask() {
    let place = indexed();
    let list = "# ours\n10.1.0.0/16\n\n 203.0.113.1 # the server\n2001:db8::1\r\n\
                2001:db8:5::/48\n02:00:00:00:00:01\n";
    std::fs::write(place.path("list"), list).unwrap();
    let filter = "net 10.1.0.0/16 or host 203.0.113.1 or host 2001:db8::1 or \
                  net 2001:db8:5::/48 or ether host 02:00:00:00:00:01";
    let all = place.run(&["search", "--count", filter]).done();
    assert_eq!(place.run(&["search", "--count", "--filter-file", "list"]).done(), all);
    assert_ne!(all.trim(), "0");
    assert_eq!(place.sh("cat list | tapdex search --count --filter-file -").done(), all);
    assert_eq!(
        place.sh("mkfifo p; cat list > p & tapdex search --count --filter-file p").done(),
        all
    );
    for beside in ["tcp port 443", "vlan", "vlan and udp", "not ip"] {
        let both = format!("({beside}) and ({filter})");
        let expected = place.run(&["search", "--count", &both]).done();
        let found = place.run(&["search", "--count", "--filter-file", "list", beside]);
        assert_eq!(found.done(), expected, "{beside}");
    }
    let fields = "ip.addr in {10.1.0.0/16, 203.0.113.1} or ipv6.addr in {2001:db8::1, \
                  2001:db8:5::/48} or eth.addr == 02:00:00:00:00:01";
    let expected = place.run(&["search", "--count", &format!("({fields}) and tcp.port == 443")]);
    let found = place.run(&["search", "--count", "--filter-file", "list", "tcp.port == 443"]);
    assert_eq!(found.done(), expected.done());
    // The other commands, too.
    let top = |args: &[&str]| place.run(&[&["top", "dst", "--csv"], args].concat()).done();
    assert_eq!(top(&["--filter-file", "list"]), top(&[filter]));
}

#[test]
fn a_filter_in_a_file_is_as_on_the_command_line() {
    let place = indexed();
    std::fs::write(place.path("f"), "# web\ntcp port 80 # or\n  or 443\n").unwrap();
    let expected = place.run(&["search", "--count", "tcp port 80 or 443"]).done();
    assert_eq!(place.run(&["search", "--count", "--filter-file", "f"]).done(), expected);
    let timed = ["search", "--count", "after 2020-01-01T00:00:00Z and net 10.0.0.0/8"];
    let found = place.run(&[&timed[..], &["--filter-file", "f"]].concat()).done();
    let both = "(net 10.0.0.0/8) and (tcp port 80 or 443)";
    assert_eq!(found, place.run(&["search", "--count", both]).done());
    let late = ["search", "--count", "before 2020-01-01T00:00:00Z", "--filter-file", "f"];
    assert_eq!(place.run(&late).done().trim(), "0");
}

#[test]
fn errors_of_files_name_the_place() {
    let place = indexed();
    let fails = |text: &[u8]| {
        std::fs::write(place.path("f"), text).unwrap();
        place.run(&["search", "--filter-file", "f"]).failed(2)
    };
    let said = fails(b"tcp\n and port\n");
    assert!(said.contains("f:2:10: expected a port"), "{said}");
    let said = fails(b"# x\n10.0.0.1\n  tcp # y\n");
    assert!(said.contains("f:3:3: expected an address"), "{said}");
    let said = fails(b"10.0.0.1\n10.0.0.1/8\n");
    assert!(said.contains("f:2:1: the address has bits set"), "{said}");
    let said = fails(b"10.0.0.1\n10.0.0.1/33\n");
    assert!(said.contains("f:2:1: expected an address"), "{said}");
    let said = fails(b"# nothing\n\n");
    assert!(said.contains("contains no filter and no address"), "{said}");
    let said = fails(b"tcp\n \xFFx");
    assert!(said.contains("f:2:2: not UTF-8 text"), "{said}");
    // Of a long line, only what is around the place is shown.
    let long = format!("{} or port", vec!["host 10.0.0.1"; 5_000].join(" or "));
    assert!(fails(long.as_bytes()).len() < 1_000);
    let said = place.run(&["search", "--filter-file", "none"]).failed(4);
    assert!(said.contains("cannot read none"), "{said}");
    let said = place.run(&["search", "--filter-file", "f", "ip.addr == 1.2.3.4"]).failed(2);
    assert!(said.contains("f:1:"), "{said}");
    place.sh("head -c 20000000 /dev/zero > f").done();
    let said = place.run(&["search", "--filter-file", "f"]).failed(2);
    assert!(said.contains("larger than 16 MiB"), "{said}");
}

#[test]
fn a_long_list_is_looked_up_and_compiled_as_one() {
    let place = indexed();
    let mut list = String::new();
    for n in 0..10_000 {
        let _ = writeln!(list, "10.{}.{}.{}", n % 7, n / 200, n % 200);
    }
    std::fs::write(place.path("list"), &list).unwrap();
    let mut sum = std::collections::BTreeSet::new();
    for part in list.lines().collect::<Vec<_>>().chunks(2_500) {
        std::fs::write(place.path("part"), part.join("\n")).unwrap();
        let found = place.run(&["search", "--csv", "--filter-file", "part"]).done();
        sum.extend(found.lines().skip(1).map(str::to_owned));
    }
    let found = place.run(&["search", "--csv", "--filter-file", "list"]).done();
    let found: std::collections::BTreeSet<String> =
        found.lines().skip(1).map(str::to_owned).collect();
    assert!(!found.is_empty() && found == sum);
    let explained = place.run(&["explain", "--filter-file", "list"]).done();
    assert!(explained.contains("host 10.0.0.0 and 9999 more like it"), "{explained}");
    place.run(&["extract", "--filter-file", "list", "-w", "list.pcapng"]).done();
}

#[test]
fn a_filter_that_rejects_all_is_called_so() {
    let place = indexed();
    let ended = place.run(&["search", "--count", "ip and arp"]);
    assert!(ended.err.contains("the filter rejects all packets (libpcap: "), "{}", ended.err);
    assert_eq!(ended.done().trim(), "0");
    // Nothing of it is in the capture, which is another matter.
    for filter in ["host 192.0.2.77", "tcp port 1 and udp port 1 or host 192.0.2.77"] {
        let ended = place.run(&["search", "--count", filter]);
        assert!(!ended.err.contains("rejects all"), "{filter}: {}", ended.err);
        assert_eq!(ended.done().trim(), "0");
    }
    let found = place.run(&["search", "--fail-if-empty", "ip and arp"]);
    assert!(found.failed(1).contains("rejects all"));
    assert_eq!(place.run(&["search", "--quiet", "ip and arp"]).failed(1), "");
}

/// An IPv4 packet in an Ethernet frame.
fn four(proto: u8, payload: &[u8]) -> Vec<u8> {
    let len = u8::try_from(20 + payload.len()).unwrap();
    let mut packet = vec![0x45, 0, 0, len, 0, 0, 0, 0, 64, proto, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    packet.extend(payload);
    packet
}

fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
    [&[2; 12][..], &[kind >> 8, kind & 0xFF].map(|byte| u8::try_from(byte).unwrap()), payload]
        .concat()
}

#[test]
fn what_wireshark_would_look_into_is_counted() {
    let place = Place::new();
    let udp = [0x04, 0x57, 0x08, 0xAE, 0, 12, 0, 0, 1, 2, 3, 4];
    let inner = four(17, &udp);
    let frames = [
        ethernet(0x0800, &four(17, &udp)),
        ethernet(0x0800, &four(4, &inner)),
        ethernet(0x0800, &four(1, &[&[3, 1, 0, 0, 0, 0, 0, 0], &inner[..]].concat())),
        ethernet(0x0800, &four(1, &[8, 0, 0, 0, 0, 1, 0, 1])),
        ethernet(0x8847, &[&[0, 6, 0x41, 0x40], &inner[..]].concat()),
        ethernet(0x8864, &[&[0x11, 0, 0, 1, 0, 34, 0, 0x21], &inner[..]].concat()),
    ];
    let mut file = std::fs::File::create(place.path("a.pcap")).unwrap();
    let interface = Interface::new(1, 1_000_000_000);
    let mut writer = CaptureWriter::new(&mut file, FileFormat::Pcap, &[interface], "").unwrap();
    for (time, frame) in (0..).zip(&frames) {
        writer.packet(0, time, u32::try_from(frame.len()).unwrap(), frame).unwrap();
    }
    writer.finish().unwrap();
    place.words("index a.pcap").done();
    let inside = "in tunnels, ICMP errors or PPPoE, or behind MPLS, were judged by outer headers";
    let ended = place.words("search --count udp.port == 1111");
    assert!(ended.err.contains(&format!("4 packets {inside}")), "{}", ended.err);
    assert_eq!(ended.done().trim(), "1");
    // They are the ones that Wireshark counts besides.
    let fields = "-Y udp.port==1111 -T fields -e frame.number";
    assert_eq!(place.sh(&format!("tshark -r a.pcap {fields}")).done(), "1\n2\n3\n5\n6\n");
    for outer in ["frame.len > 10", "eth.type == 0x0800", "udp port 1111"] {
        let ended = place.run(&["search", "--count", outer]);
        assert!(!ended.err.contains("outer headers"), "{outer}: {}", ended.err);
    }
}
