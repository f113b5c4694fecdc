//! Roles: what a file says, what a role may ask, and that no filter widens it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod place;

use std::collections::BTreeSet;
use std::time::Duration;

use place::{MINUTE, NOW, Place, SECOND};
use proptest::prelude::*;
use tapdex_engine::capture::{CaptureReader, CaptureWriter, FileFormat, Interface};
use tapdex_engine::packet::Headers;
use tapdex_engine::query::Query;
use tapdex_engine::query::filter::Filter;
use tapdex_engine::time::TimeRange;
use tapdex_engine::traffic::{Profile, Traffic};
use tapdex_server::door::read_roles;
use tapdex_server::door::roles::{ForceError, May, RoleMistake, Roles};
use tapdex_server::door::tokens::{Presented, Tokens};

/// What is wrong with a text, and on which line.
#[track_caller]
fn mistake(text: &str) -> (usize, RoleMistake) {
    let error = Roles::parse(text).unwrap_err();
    (error.line, error.what)
}

#[test]
fn roles_are_read_strictly_and_mistakes_have_a_line() {
    let with = |line: &str| format!("# roles\n[role.dmz]\nmay = \"search\"\n{line}\n");
    for (line, expected) in [
        ("fliter = 'tcp'", "unknown field `fliter`"),
        ("filter = 'net 10.2.0.0/33'", "the filter is not understood"),
        ("filter = 'tcp and'", "the filter is not understood"),
        ("filter = ''", "the filter is empty"),
        ("filter = '  '", "the filter is empty"),
        ("filter = 'after 3h ago and tcp'", "the filter has times in it"),
        ("filter = 1", "invalid type"),
        ("wireshark-filter = 'net 10.0.0.0/8'", "the filter is not understood"),
        ("from = 'yesterday'", "is not a time"),
        ("to = '2026-13-01'", "is not a time"),
        ("packets = 0", "packets is 0"),
        ("bytes = -1", "invalid"),
        ("seconds = 1.5", "invalid type"),
        ("at-once = 0", "at-once is 0"),
        ("at-once = 4294967296", "invalid"),
        ("per-minute = '1'", "invalid type"),
        ("at_once = 1", "unknown field"),
        ("may = 'admin'", "duplicate"),
        ("filter = 'tcp", "string"),
    ] {
        let (number, what) = mistake(&with(line));
        assert!(what.to_string().contains(expected), "{line}: {what}");
        assert_eq!(number, 4, "{line}: {what}");
    }
    let two = with("filter = 'ip.addr == 10.0.0.1'\nwireshark-filter = 'tcp.port == 1'");
    assert_eq!(mistake(&two).0, 5);
    let turned = with("from = '2026-02-01'\nto = '2026-01-01'");
    assert_eq!(mistake(&turned), (2, RoleMistake::NoTime));
    assert_eq!(mistake(&with("from = '-1h'\nto = '-2h'")), (2, RoleMistake::NoTime));
    for (name, expected) in [
        ("search", "is built in"),
        ("extract", "is built in"),
        ("admin", "is built in"),
        ("DMZ", "is no name"),
        ("'a b'", "is no name"),
        ("''", "is no name"),
        ("'a\\\"'", "is no name"),
    ] {
        let (number, what) = mistake(&format!("\n\n[role.{name}]\nmay = 'admin'\n"));
        assert!(what.to_string().contains(expected), "{name}: {what}");
        assert_eq!(number, 3, "{name}");
    }
    for text in ["[role.dmz]\n", "[roles.dmz]\nmay = 'search'\n", "may = 'search'\n", "role = 1"] {
        assert!(Roles::parse(text).is_err(), "{text}");
    }
    assert!(Roles::parse("[role.dmz]\nmay = 'all'\n").is_err());
}

#[test]
fn roles_have_what_is_written() {
    let text = "[role.dmz]\nmay = 'extract'\nfilter = 'net 10.2.0.0/16'\n\
                wireshark-filter = 'ip.addr == 10.2.0.0/16'\nfrom = '-30d'\nto = '-1h'\n\
                packets = 10\nbytes = 20\nseconds = 30\nat-once = 4\nper-minute = 60\n\
                [role.old]\nmay = 'search'\nto = '2020-01-01'\n";
    let roles = Roles::parse(text).unwrap();
    let names: Vec<&str> = roles.names().collect();
    assert_eq!(names, ["admin", "dmz", "extract", "old", "search"]);
    let dmz = roles.get("dmz").unwrap();
    assert_eq!((dmz.name(), dmz.may()), ("dmz", May::Extract));
    assert_eq!(dmz.forced_filters(), ["net 10.2.0.0/16", "ip.addr == 10.2.0.0/16"]);
    let limits = dmz.limits();
    assert_eq!((limits.packets, limits.bytes), (Some(10), Some(20)));
    assert_eq!(limits.time, Some(Duration::from_secs(30)));
    assert_eq!((limits.at_once, limits.per_minute), (Some(4), Some(60)));
    // Times count from each question.
    let hour = 60 * MINUTE;
    for now in [NOW, NOW + hour] {
        let to_ns = Some(now - hour);
        assert_eq!(dmz.times(now), TimeRange { from_ns: now - 30 * 24 * hour, to_ns });
    }
    let old = roles.get("old").unwrap();
    assert_eq!(old.times(NOW).to_ns, Some(1_577_836_800 * SECOND), "UTC, wherever the server is");
    assert_eq!(roles.get("admin").unwrap().times(NOW), TimeRange::ALL);
}

/// A capture of made-up traffic, some of it with tags.
fn capture() -> Vec<u8> {
    let ethernet = Interface::new(1, 1_000_000_000);
    let mut writer = CaptureWriter::new(Vec::new(), FileFormat::Pcap, &[ethernet], "").unwrap();
    let mut traffic = Traffic::new(&Profile { packets: 4_000, ..Profile::default() });
    while let Some(packet) = traffic.next() {
        writer.packet(0, packet.time_ns, packet.wire_len, packet.data).unwrap();
    }
    writer.finish().unwrap()
}

/// The numbers of the packets that match.
fn matching(capture: &[u8], query: &Query) -> BTreeSet<u32> {
    let mut reader = CaptureReader::open(capture).unwrap();
    let mut headers = Headers::default();
    let mut found = BTreeSet::new();
    let mut number = 0;
    while let Some(record) = reader.next().unwrap() {
        if query.scan(&record, &mut headers).unwrap() {
            found.insert(number);
        }
        number += 1;
    }
    found
}

/// Filters that somebody might try, to see more than a role may.
fn attempts() -> Vec<String> {
    let simple = [
        "",
        "tcp",
        "udp or tcp",
        "ip or ip6 or arp",
        "not net 10.0.0.0/8",
        "less 65535",
        "greater 0",
        "len >= 0",
        "vlan or not vlan",
        "ether[0] >= 0",
        "1 == 1",
        "not 1 == 2",
        "ip.addr == 0.0.0.0/0",
        "frame",
        "frame.len >= 0",
        "tcp.port == 443 || udp",
        "!(ip.addr == 10.0.0.0/8)",
        "ether proto 0x0800 or ether proto 0x86dd",
        "vlan",
        "vlan and vlan",
        "ip proto 6 or ip proto 17",
        "port 443",
        "host 10.1.1.173",
    ];
    let wrapped = [
        "{}",
        "({})",
        "not ({})",
        "{} or tcp",
        "tcp or {}",
        "({}) or (ip)",
        "{} or not {}",
        "vlan or {}",
        "vlan and {}",
        "not not {}",
        ") or ({}",
        "{}) or (ip",
        "{} # or",
        "{} //",
        "{}\nor ip",
        "{}\0or ip",
        "({}) || ip",
        "{} or net 0.0.0.0/0",
        "1==1 or {}",
        "{};ip",
        "after 1970-01-01 and {}",
        "before 2100-01-01 and ({})",
        "/* */ {}",
        "{} --",
        "{} and ip or ip",
    ];
    let wrap = |text: &&str| {
        let text = (*text).to_owned();
        wrapped.map(|form| form.replace("{}", &text))
    };
    simple.iter().flat_map(wrap).collect()
}

#[test]
fn no_filter_sees_more_than_the_role() {
    let capture = capture();
    let role = "may = 'extract'\nfilter = 'net 10.1.0.0/16'\n\
                wireshark-filter = 'ip.addr == 10.1.0.0/16'\n\
                from = '2026-01-05T08:00:00.01Z'\nto = '2026-01-05T08:00:00.03Z'\n";
    let roles = Roles::parse(&format!("[role.dmz]\n{role}")).unwrap();
    let role = roles.get("dmz").unwrap();
    let own = |text: &str| {
        let filter = Filter::parse(text, NOW).unwrap();
        matching(&capture, &Query::new(filter, role.times(NOW)))
    };
    // What the role may see in either language: that of Wireshark looks behind tags, too.
    let may =
        own(&role.forced_filters()[0]).union(&own(&role.forced_filters()[1])).copied().collect();
    let all = matching(&capture, &Query::new(Filter::parse("", NOW).unwrap(), TimeRange::ALL));
    let may: BTreeSet<u32> = may;
    assert!(may.len() > 20 && may.len() < all.len() / 2, "{} of {}", may.len(), all.len());
    let (mut tried, mut some, mut widened) = (0, 0, 0);
    for text in attempts() {
        let Ok(asked) = Filter::parse(&text, NOW) else { continue };
        for asked in [Some(asked.clone()), asked.through_tags().ok()].into_iter().flatten() {
            for times in [TimeRange::ALL, TimeRange { from_ns: 1, to_ns: Some(u64::MAX) }] {
                let query = role.force(&asked, times, NOW).unwrap();
                let seen = matching(&capture, &query);
                assert!(seen.is_subset(&may), "{text:?} sees more");
                let free = matching(&capture, &Query::new(asked.clone(), times));
                widened += u32::from(!free.is_subset(&may));
                some += u32::from(!seen.is_empty());
                tried += 1;
            }
        }
    }
    assert!(tried >= 400 && some >= 200 && widened >= 200, "{tried} {some} {widened}");
}

#[test]
fn a_forced_filter_takes_nothing_else_away() {
    let capture = capture();
    let text = "[role.dmz]\nmay = 'search'\nfilter = 'net 10.1.0.0/16'\n";
    let roles = Roles::parse(text).unwrap();
    let (dmz, free) = (roles.get("dmz").unwrap(), roles.get("search").unwrap());
    let filter = |text: &str| Filter::parse(text, NOW).unwrap();
    let times = TimeRange { from_ns: 0, to_ns: Some(u64::MAX) };
    let seen = |role: &tapdex_server::door::roles::Role, text: &str| {
        matching(&capture, &role.force(&filter(text), times, NOW).unwrap())
    };
    let may = seen(free, "net 10.1.0.0/16");
    for text in ["", "tcp", "udp port 53 or icmp", "not tcp", "net 172.16.0.0/12"] {
        let expected: BTreeSet<u32> = seen(free, text).intersection(&may).copied().collect();
        assert_eq!(seen(dmz, text), expected, "{text}");
        assert!(!expected.is_empty(), "{text}");
    }
    // Asking for all packets is asking in no language.
    let other = "[role.dmz]\nmay = 'search'\nfilter = 'ip.addr == 10.1.0.0/16'\n";
    let other = Roles::parse(other).unwrap();
    let expected = seen(free, "ip.addr == 10.1.0.0/16");
    assert_eq!(seen(other.get("dmz").unwrap(), ""), expected);
    let asked = filter("after 2026-01-05T08:00:00.01Z");
    let later = other.get("dmz").unwrap().force(&asked, times, NOW).unwrap();
    let later = matching(&capture, &later);
    assert!(later.is_subset(&expected) && later.len() < expected.len() && !later.is_empty());
    // The other language would not be restricted, so it is refused.
    let asked = filter("ip.addr == 10.1.0.0/16");
    let error = dmz.force(&asked, times, NOW).unwrap_err();
    assert!(matches!(error, ForceError::Language { .. }));
    assert!(error.to_string().contains("tcpdump's"), "{error}");
    assert!(!matching(&capture, &free.force(&asked, times, NOW).unwrap()).is_empty());
}

#[test]
fn the_roles_of_a_server_are_those_of_its_file() {
    let place = Place::new();
    assert_eq!(read_roles(&place.state).unwrap().names().count(), 3);
    place.write("roles.toml", "[role.dmz]\nmay = 'search'\n");
    assert!(read_roles(&place.state).unwrap().get("dmz").is_some());
}

proptest! {
    #[test]
    fn a_token_has_one_form(text in ".{0,90}") {
        prop_assert!(Presented::parse(&text).is_none());
    }

    #[test]
    fn what_looks_like_a_token_is_one_or_not(
        text in "(tapdex_|tapdex|Tapdex_)[a-z0-9A-Z_]{7,9}_?[0-9a-fA-F]{63,65}"
    ) {
        if let Some(presented) = Presented::parse(&text) {
            prop_assert_eq!(presented.text(), text);
        }
    }

    #[test]
    fn a_token_comes_back(id in "[a-z0-9]{8}", secret in "[0-9a-f]{64}") {
        let text = format!("tapdex_{id}_{secret}");
        prop_assert_eq!(Presented::parse(&text).map(|token| token.text()), Some(text));
    }

    #[test]
    fn any_text_is_roles_or_an_error(text in "\\PC{0,200}") {
        if let Ok(roles) = Roles::parse(&text) {
            prop_assert!(roles.names().count() >= 3);
        }
    }

    #[test]
    fn roles_with_a_changed_byte_are_no_wider(at in 0_usize..200, byte in any::<u8>()) {
        let text = "[role.dmz]\nmay = 'search'\nfilter = 'net 10.2.0.0/16'\nfrom = '-30d'\n";
        let mut bytes = text.as_bytes().to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        let Ok(text) = String::from_utf8(bytes) else { return Ok(()) };
        let Ok(roles) = Roles::parse(&text) else { return Ok(()) };
        // A line may have become a comment. What is left is understood as a whole.
        for role in roles.names().filter_map(|name| roles.get(name)) {
            let is_built_in = May::ALL.iter().any(|may| may.name() == role.name());
            prop_assert!(is_built_in || role.may() == May::Search);
            prop_assert_ne!(role.times(NOW), TimeRange::NONE);
        }
    }

    #[test]
    fn any_text_is_tokens_or_an_error(text in "\\PC{0,200}") {
        if let Ok(tokens) = Tokens::parse(&text, "tokens.toml") {
            prop_assert!(tokens.is_empty());
        }
    }
}
