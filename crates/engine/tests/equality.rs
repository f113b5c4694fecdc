//! Answers of archives against libpcap's own, packet by packet.
//!
//! A filter is asked of the segments of a capture, for each codec, and of libpcap, which
//! gets the same text and the same file. The packets have to be the same. What libpcap does not
//! read, and questions that it does not know, are compared with a scan of all packets.
//!
//! With `TAPDEX_TRACES`, a folder with `zoo`, `zoo-derived` and `large`, all captures in there are
//! compared as well. Archives that an older version of the program has written are in `version1`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::big_endian_bytes,
    reason = "a test fails by panicking, and frames are big-endian"
)]

#[path = "equality/compare.rs"]
mod compare;
#[path = "decode/frames.rs"]
#[allow(dead_code, reason = "shared with the tests of the decoder")]
mod frames;
#[path = "equality/known.rs"]
mod known;
#[path = "equality/long_lists.rs"]
mod long_lists;
#[path = "equality/made.rs"]
mod made;
#[path = "equality/oracle.rs"]
mod oracle;
#[path = "equality/pairs.rs"]
mod pairs;
#[path = "equality/questions.rs"]
mod questions;
#[path = "equality/tags.rs"]
mod tags;
#[path = "equality/traces.rs"]
mod traces;
#[path = "equality/version1.rs"]
mod version1;

use compare::{Tally, asked, compare, index, index_all};
use made::{PPI, PPP, Times, WIFI, mixed, odd_frames, pcap, pcapng, traffic};
use oracle::Truth;
use tapdex_engine::packet::LinkType;

/// Frames by hand on every link, with all codecs.
#[test]
fn odd_captures() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut captures = vec![
        pcap(
            path("ethernet"),
            LinkType::ETHERNET,
            false,
            &odd_frames(LinkType::ETHERNET, false, 1),
        ),
        mixed(folder.path()),
    ];
    let two = [LinkType::ETHERNET, LinkType::ETHERNET];
    let frames = (0..).map(|at| at % 2).zip(traffic(1_500, 9, 60)).collect::<Vec<_>>();
    captures.push(pcapng(path("two.pcapng"), &two, Times::Rising, &frames));
    let links = [
        (LinkType::NULL, false),
        (LinkType::NULL, true),
        (LinkType::LOOP, false),
        (LinkType::LOOP, true),
        (LinkType::RAW, false),
        (LinkType::LINUX_SLL, false),
        (LinkType::LINUX_SLL, true),
        (LinkType::LINUX_SLL2, false),
        (LinkType::IPV4, false),
        (LinkType::IPV6, false),
        (WIFI, false),
        (PPP, true),
        (PPI, false),
    ];
    for (link, swapped) in links {
        let name = format!("link-{}-{swapped}", link.0);
        let big = swapped == cfg!(target_endian = "little");
        captures.push(pcap(path(&name), link, big, &odd_frames(link, swapped, 2)));
    }
    let tally = Tally::default();
    for capture in captures {
        let truth = Truth::read(&capture);
        let records_max = (truth.packets.len() / 3).clamp(1, 1000);
        compare(&truth, &index_all(&capture, records_max), &asked(&truth, 80), &tally);
    }
    tally.finish("odd captures", 30_000, 10_000);
}

/// Traffic of 20,000 packets.
#[test]
fn made_up_traffic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("traffic.pcap");
    let capture = pcap(path, LinkType::ETHERNET, false, &traffic(20_000, 5, 200));
    let truth = Truth::read(&capture);
    let indexed = [index(&capture, "auto", 7_000), index(&capture, "roaring", 1_000)];
    let tally = Tally::default();
    compare(&truth, &indexed, &asked(&truth, 300), &tally);
    tally.finish("made-up traffic", 1_200, 500);
}
