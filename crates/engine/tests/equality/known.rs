//! Pairs of packets and filters that once had another answer than libpcap's.

use crate::frames::{MACS, arp, dns, eth, ip4, ip4_with, ip6, join, tag, tcp, udp};
use crate::pairs::{Made, Outcome};
use tapdex_engine::testing::mutate::Frame;

fn whole(frames: Vec<Vec<u8>>) -> Vec<Frame> {
    frames.into_iter().map(|frame| (u32::try_from(frame.len()).unwrap(), frame)).collect()
}

/// Asks filters of frames of Ethernet. Each finds some packets and not all, as with libpcap.
fn same(frames: Vec<Frame>, texts: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let pair = Made::ethernet(frames).open(&folder.path().join("known.pcap"));
    for text in texts {
        match pair.ask(text) {
            Outcome::Same(true) => {}
            Outcome::Same(false) => panic!("`{text}` does not tell packets apart"),
            Outcome::Refused => panic!("`{text}` is refused"),
            Outcome::Chance => panic!("`{text}` has no certain answer"),
            Outcome::Differs(what) => panic!("`{text}`: {what}"),
        }
    }
}

/// Frames with and without labels, sessions and a Geneve tunnel, from and to several stations.
fn moved() -> Vec<Frame> {
    let label = [0, 1, 1, 64];
    let from = |mut frame: Vec<u8>, station: u8| {
        frame[11] = station;
        frame
    };
    let inner = |station| from(eth(0x800, &ip4(6, &tcp(2))), station);
    let mut group = inner(7);
    group[..6].fill(0xFF);
    let geneve = |frame: &[u8]| {
        let carried = join(&[&[0, 0, 0x65, 0x58, 0, 0, 7, 0], frame]);
        eth(0x800, &ip4(17, &udp(40_000, 6081, &carried)))
    };
    whole(vec![
        eth(0x8847, &join(&[&label, &ip4(6, &tcp(2))])),
        from(eth(0x8847, &join(&[&label, &ip6(6, &tcp(2))])), 9),
        eth(0x800, &ip4(17, &dns())),
        from(eth(0x800, &ip4(6, &tcp(16))), 9),
        geneve(&inner(2)),
        geneve(&inner(9)),
        geneve(&group),
        from(geneve(&inner(9)), 9),
        eth(0x8864, &join(&[&[0x11, 0, 0, 1, 0, 30, 0, 0x21], &ip4(6, &tcp(2))])),
        eth(0x8100, &tag(5, 0x800, &ip4(17, &dns()))),
        from(eth(0x8100, &tag(5, 0x8847, &join(&[&label, &ip4(6, &tcp(2))]))), 9),
    ])
}

/// The place of MAC addresses is not known to columns after `mpls` and `geneve`.
#[test]
fn mac_addresses_behind_labels_and_tunnels() {
    let mac = "02:00:00:00:00:02";
    assert_eq!(MACS[1], 0x0200_0000_0002);
    let texts = [
        format!("mpls and ether src {mac}"),
        format!("mpls and not ether src {mac}"),
        format!("not mpls and ether host {mac}"),
        format!("not mpls and not ether host {mac}"),
        format!("mpls or ether src {mac}"),
        format!("geneve and ether host {mac}"),
        format!("geneve and not ether host {mac}"),
        "geneve and ether broadcast".to_owned(),
        "geneve and ether multicast".to_owned(),
        "geneve and broadcast".to_owned(),
        format!("vlan and mpls and ether src {}", "02:00:00:00:00:09"),
        format!("vlan and ether src {mac}"),
        format!("geneve 7 and ether src {mac}"),
    ];
    same(moved(), &texts.each_ref().map(String::as_str));
}

/// What is asked behind labels, sessions and tunnels is unknown to columns.
#[test]
fn headers_behind_labels_and_tunnels() {
    let texts = [
        "mpls and ip",
        "mpls and ip6",
        "mpls and tcp[tcpflags] & tcp-syn != 0",
        "pppoes and ip",
        "pppoes and ip[9] = 6",
        "pppoes 1 and tcp port 443",
        "geneve and ip[9] = 6",
        "geneve and tcp",
        "vlan and mpls",
        "vlan and not mpls",
        "vlan and mpls and ip proto 6",
        "mpls and ip protochain 6",
    ];
    same(moved(), &texts);
}

/// Where a part of a comparison is always 0, libpcap's optimiser changes what other conditions
/// find; all packets follow its program.
#[test]
fn comparisons_that_do_not_depend_on_the_packet() {
    let frames = whole(vec![
        eth(0x800, &ip4(6, &tcp(2))),
        eth(0x800, &ip4_with(6, 2, 0, &tcp(16))),
        eth(0x800, &ip4(17, &dns())),
        eth(0x800, &ip4(17, &udp(443, 443, &[]))),
        eth(0x86DD, &ip6(6, &tcp(2))),
        eth(0x86DD, &ip6(17, &dns())),
        eth(0x800, &ip4(6, &tcp(2)))[..40].to_vec(),
    ]);
    let texts = [
        "not ((tcp[tcpflags] & 0 > 16) or (dst port 443))",
        "(tcp[tcpflags] & 0 > 16) or (dst port 443)",
        "(0 & tcp[tcpflags] > 16) or (dst port 443)",
        "(tcp[tcpflags] * 0 > 16) or (dst port 443)",
        "(ip[0] & 0 > 16) or (dst port 443)",
        "(icmp[icmptype] & 0 = 0) or (dst port 443)",
    ];
    same(frames, &texts);
}

/// Filters a thousand deep, asked on a small stack.
#[test]
fn a_thousand_within_each_other() {
    let texts = [
        format!("{}tcp{}", "(".repeat(1_000), ")".repeat(1_000)),
        "not ".repeat(1_001) + "tcp",
        format!("{}port 53{}", "not (ip6 or ".repeat(1_000), ")".repeat(1_000)),
        "tcp and ip6 or ".repeat(500) + "tcp port 443",
    ];
    let stack = std::thread::Builder::new().stack_size(2 << 20);
    let work = || same(moved(), &texts.each_ref().map(String::as_str));
    std::thread::scope(|scope| stack.spawn_scoped(scope, work).unwrap().join().unwrap());
}

/// Filters that libpcap's optimiser changes find what its program does.
#[test]
fn filters_that_the_optimiser_changes() {
    let texts = [
        "not port 77 and not ip6 and not len = 31 and not ip",
        "tcp and host 10.0.0.7 or host 10.0.0.7 or host 10.0.1.2",
        "not host 10.0.0.7 and not arp and not len = 31 and not ip",
        "greater 77 or not len >= ip6[16] or port 0",
    ];
    let mut frames = moved();
    frames.extend(whole(vec![
        eth(0x86DD, &ip6(6, &tcp(2))),
        eth(0x800, &ip4(6, &tcp(2))),
        eth(0x806, &arp()),
        eth(0x9000, &[0; 10]),
    ]));
    same(frames, &texts);
}
