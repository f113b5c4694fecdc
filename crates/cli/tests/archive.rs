//! Archives as people use them: the real binary, on made-up traffic, beside tcpdump.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "archive/completeness.rs"]
mod completeness;
#[path = "archive/counts.rs"]
mod counts;
#[path = "archive/damage.rs"]
mod damage;
#[path = "archive/filter_files.rs"]
mod filter_files;
#[path = "archive/flows.rs"]
mod flows;
#[path = "archive/progress.rs"]
mod progress;
#[path = "archive/surroundings.rs"]
mod surroundings;
#[path = "archive/terminal.rs"]
mod terminal;
#[path = "archive/upgrade.rs"]
mod upgrade;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tapdex_engine::capture::{self, CaptureWriter, FileFormat, Interface};
use tapdex_engine::packet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, Headers, decode};

/// How a run ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ended {
    /// The output of a run that went well.
    #[track_caller]
    fn done(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self.out
    }

    /// What a run said that ended with that code.
    #[track_caller]
    fn failed(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        self.err
    }
}

/// A folder to work in.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tapdex"));
        command.args(args).current_dir(self.0.path()).env_remove("TAPDEX_ARCHIVE");
        command
    }

    fn run(&self, args: &[&str]) -> Ended {
        let output = self.command(args).stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Runs it with words as a shell has them, without quotes.
    fn words(&self, words: &str) -> Ended {
        self.run(&words.split_whitespace().collect::<Vec<_>>())
    }

    fn sh(&self, script: &str) -> Ended {
        let bin = Path::new(env!("CARGO_BIN_EXE_tapdex")).parent().unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("sh");
        let command = command.args(["-c", script]).current_dir(self.0.path()).env("PATH", path);
        let output = command.env_remove("TAPDEX_ARCHIVE").stdin(Stdio::null()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// How many packets match.
    #[track_caller]
    fn count(&self, filter: &str) -> u64 {
        let out = self.run(&["search", "--count", filter]).done();
        out.trim_end().parse().unwrap()
    }

    /// The only index file there is.
    fn index_files(&self) -> Vec<PathBuf> {
        let entries = self.path("tapdex-archive/segments").read_dir().unwrap();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }
}

/// What tcpdump counts in captures.
fn tcpdump(paths: &[PathBuf], filter: &str) -> u64 {
    let count = |path: &PathBuf| -> u64 {
        let mut command = Command::new("tcpdump");
        let output = command.args(["--count", "-nn", "-r"]).arg(path).arg(filter).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{filter}: {err}");
        let out = String::from_utf8(output.stdout).unwrap();
        out.split_whitespace().next().unwrap().parse().unwrap()
    };
    paths.iter().map(count).sum()
}

/// Time, length on the wire and bytes of each packet of a capture.
fn packets(path: &Path) -> Vec<(u64, u32, Vec<u8>)> {
    let mut reader = capture::open(path).unwrap();
    let mut found = vec![];
    while let Some(record) = reader.next().unwrap() {
        found.push((record.time_ns, record.wire_len, record.data.to_vec()));
    }
    found
}

/// A folder with two captures, indexed.
fn indexed() -> Place {
    let place = Place::new();
    place.words("gen -c 20000 -w a.pcap").done();
    place.words("gen -c 10000 --seed 7 --ipv6 0.4 --rate 50000 -w b.pcapng").done();
    place.words("index a.pcap b.pcapng").done();
    place
}

mod search {
    use super::*;

    /// Each has to be found by both.
    const FILTERS: [&str; 44] = [
        "",
        "ip",
        "ip6",
        "arp",
        "tcp",
        "udp",
        "icmp",
        "icmp6",
        "sctp",
        "ip proto 47",
        "ether proto 0x88cc",
        "vlan",
        "vlan 32",
        "vlan and vlan",
        "vlan 10 and tcp port 443",
        "vlan and ip6",
        "port 53",
        "src port 53",
        "udp dst port 53",
        "tcp port 443",
        "portrange 1-1023",
        "tcp portrange 8000-9000",
        "host 203.0.113.1",
        "src host 203.0.113.1",
        "dst host 203.0.113.1",
        "net 10.0.0.0/8",
        "src net 192.168.0.0/16 and dst net 198.18.0.0/15",
        "not net 10.0.0.0/8",
        "ip6 net 2001:db8::/32",
        "ip6 and udp",
        "tcp[tcpflags] & tcp-syn != 0",
        "tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn",
        "tcp[13] == 0x12",
        "icmp[icmptype] == icmp-echo",
        "icmp6[icmp6type] == 128",
        "less 100",
        "greater 1000",
        "len == 60",
        "ip[8] < 64",
        "udp[10:2] & 0x8000 != 0 and port 53",
        "ether broadcast",
        "ether multicast",
        "ip[6:2] & 0x1fff != 0",
        "(tcp port 80 or tcp port 443) and not src net 10.0.0.0/8 or arp",
    ];

    #[test]
    fn as_many_packets_match_as_tcpdump_finds() {
        let place = indexed();
        let captures = ["a.pcap", "b.pcapng"].map(|name| place.path(name));
        let mut found = 0;
        for filter in FILTERS {
            let expected = tcpdump(&captures, filter);
            assert_eq!(place.count(filter), expected, "{filter}");
            found += u64::from(expected > 0);
        }
        assert!(found >= 40, "only {found} filters find anything");
    }

    #[test]
    fn lines_are_the_packets_in_the_order_of_their_times() {
        let place = indexed();
        let text = place.run(&["search", "udp port 53"]).done();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len() as u64, place.count("udp port 53"));
        let times = lines.iter().map(|line| line.split_whitespace().next().unwrap());
        assert!(times.is_sorted());
        assert!(lines.iter().all(|line| line.contains(".53 ") && line.contains("UDP")));
        let few = place.run(&["search", "-c", "3", "udp port 53"]).done();
        assert_eq!(few.lines().collect::<Vec<_>>(), lines[..3]);
        let csv = place.run(&["search", "--csv", "udp port 53"]).done();
        let heading = csv.lines().next().unwrap();
        let columns = heading.split(',').count();
        assert_eq!((csv.lines().count(), columns), (lines.len() + 1, 13));
        assert!(csv.lines().all(|line| line.split(',').count() == columns));
        let json = place.run(&["search", "--json", "udp port 53"]).done();
        for (line, text) in json.lines().zip(&lines) {
            let time = text.split_whitespace().next().unwrap();
            assert!(line.starts_with(&format!("{{\"time\":\"{time}\",")), "{line}");
            assert!(line.ends_with('}') && line.contains("\"protocol\":\"UDP\""), "{line}");
        }
        // The place that is named is the packet's.
        let last = json.lines().last().unwrap();
        let number = last.split("\"number\":").nth(1).unwrap().split(',').next().unwrap();
        let file = last.split("\"file\":\"").nth(1).unwrap().split('"').next().unwrap();
        let all = packets(&place.path(file));
        let packet = &all[number.parse::<usize>().unwrap() - 1];
        assert!(last.contains(&format!("\"length\":{}", packet.1)), "{last}");
    }

    #[test]
    fn times_are_from_the_first_to_before_the_last() {
        let place = indexed();
        let mut all = packets(&place.path("a.pcap"));
        all.extend(packets(&place.path("b.pcapng")));
        let mut times: Vec<u64> = all.iter().map(|packet| packet.0).collect();
        times.sort_unstable();
        let (from, to) = (times[5_000], times[15_000]);
        let expected = times.iter().filter(|time| (from..to).contains(time)).count();
        let text = |time: u64| format!("{}.{:09}", time / 1_000_000_000, time % 1_000_000_000);
        let args = ["search", "--count", "--from", &text(from), "--to", &text(to)];
        assert_eq!(place.run(&args).done(), format!("{expected}\n"));
        let args = ["search", "--count", "--to", "2026-01-05T08:00:00Z"];
        assert_eq!(place.run(&args).done(), "0\n");
        let args = ["search", "--count", "--utc", "--from", "2026-01-05 08:00:00"];
        assert_eq!(place.run(&args).done(), "30000\n");
        // Words in the filter do the same.
        let filter = format!("udp and after {}", text(from));
        let args = ["search", "--count", "--from", &text(from), "udp"];
        assert_eq!(place.count(&filter).to_string(), place.run(&args).done().trim_end());
    }

    #[test]
    fn wireshark_filters_look_behind_tags() {
        let place = indexed();
        let (both, pcap) = (place.count("udp.port == 53"), place.count("udp port 53"));
        // A second `vlan` asks for a second tag, so all tagged packets are among the first.
        let once = place.count("vlan and udp port 53");
        let tagged = once + place.count("vlan and vlan and udp port 53");
        assert!(tagged > 0 && both == pcap + tagged, "{both} {pcap} {tagged}");
        let through = "udp port 53 or (vlan and udp port 53) or (vlan and vlan and udp port 53)";
        let tagged = place.count(through) - pcap;
        let said = place.run(&["search", "--count", "udp port 53"]).err;
        assert!(said.contains(&format!("{tagged} packets behind VLAN tags would match")), "{said}");
        for filter in ["udp.port == 53", "vlan and udp port 53", "ether multicast", "less 100"] {
            let said = place.run(&["search", "--count", filter]).err;
            assert!(!said.contains("behind VLAN tags"), "{filter}: {said}");
        }
        // Nothing is said where nothing is missed.
        let said = place.run(&["search", "--count", "udp port 53 and host 203.0.113.77"]).err;
        assert!(!said.contains("VLAN"), "{said}");
    }

    #[test]
    fn through_tags_is_what_libpcap_makes_of_it() {
        let place = indexed();
        let captures = [place.path("a.pcap"), place.path("b.pcapng")];
        for f in ["udp port 53", "tcp or icmp", "not net 10.0.0.0/8", "ip[8] < 64 and udp", "arp"] {
            let whole = format!("({f}) or (vlan and ({f})) or (vlan and vlan and ({f}))");
            let found = place.run(&["search", "--count", "--through-tags", f]).done();
            assert_eq!(found.trim_end(), tcpdump(&captures, &whole).to_string(), "{f}");
            let said = place.run(&["search", "--count", f]).err;
            let unseen = tcpdump(&captures, &whole) - tcpdump(&captures, f);
            assert_eq!(
                said.contains(&format!("{unseen} packets behind VLAN")),
                unseen > 0,
                "{said}"
            );
        }
        let all = place.words("search --count --through-tags").done();
        assert_eq!(all, place.words("search --count").done());
        place.run(&["search", "--through-tags", "udp.port == 53"]).failed(2);
    }

    #[test]
    fn empty_answers_explain_themselves() {
        let place = indexed();
        for command in ["search", "search --count", "extract -w none.pcapng", "top port", "hist"] {
            let said = place.words(&format!("{command} --from 2030-01-01T00:00:00Z")).failed(0);
            let text = "0 packets; the archive covers 2026-01-05T08:00:00";
            assert!(said.contains(text) && said.contains("you asked from 2030-01-01"), "{said}");
        }
        let said = place.words("search --count --to 2020-01-01T00:00:00Z").failed(0);
        assert!(said.contains("you asked to 2020-01-01"), "{said}");
        // There are packets from then, and none of them matches.
        let said = place.words("search --count --from 2020-01-01T00:00:00Z port 9").failed(0);
        assert!(!said.contains("covers"), "{said}");
        let said = place.words("search --from 2026-01-06T00:00:00Z --to 2026-01-05T00:00:00Z");
        assert!(said.failed(2).contains("is not before --to"));
        let said = place.words("search --from 1767600000000").failed(2);
        assert!(said.contains("after the year 9999") && said.contains("milliseconds"), "{said}");
        let ask = |zone: &str| {
            place.sh(&format!("TZ={zone} tapdex search --count --from '2026-01-05 08:00:00'"))
        };
        assert!(ask("Atlantis/Poseidonis").failed(2).contains("TZ=Atlantis/Poseidonis"));
        ask("Europe/Berlin").done();
        ask("UTC0").done();
    }

    #[test]
    fn the_rest_is_said_after_a_limit() {
        let place = indexed();
        let all = place.count("udp port 53");
        let said = place.words("search -c 2 udp port 53").failed(0);
        assert!(said.contains("stopped after 2 packets; more may match"), "{said}");
        let said = place.words(&format!("search -c {all} udp port 53")).failed(0);
        assert!(!said.contains("more may match"), "{said}");
        let said = place.words("search -c 1 udp port 53 and ether[6] & 1 = 0").failed(0);
        assert!(said.contains("stopped after 1 packet; more may match"), "{said}");
        let said = place.words("extract -c 2 -w two.pcapng udp port 53").failed(0);
        assert!(said.contains(&format!("2 written of {all} that match")), "{said}");
    }

    #[test]
    fn nothing_found_is_told_by_the_exit_code_if_asked() {
        let place = indexed();
        let none = "host 192.0.2.77";
        assert_eq!(place.run(&["search", none]).done(), "");
        place.run(&["search", "--fail-if-empty", none]).failed(1);
        assert_eq!(place.run(&["search", "-q", none]).failed(1), "");
        assert_eq!(place.run(&["search", "-q", "tcp"]).failed(0), "");
    }

    #[test]
    fn what_is_wrong_with_a_filter_is_shown() {
        let place = indexed();
        let said = place.run(&["search", "tcp port and host 10.0.0.1"]).failed(2);
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines[0].starts_with("tapdex: expected a port"), "{said}");
        assert_eq!(lines[1..], ["  tcp port and host 10.0.0.1", "           ^^^"]);
        let said = place.run(&["search", "--from", "yesterday", "tcp"]).failed(2);
        assert!(said.starts_with("tapdex: --from 'yesterday': "), "{said}");
    }

    #[test]
    fn what_is_no_archive_is_refused() {
        let place = Place::new();
        let said = place.words("search -r nowhere tcp").failed(2);
        assert_eq!(
            said,
            "tapdex: nowhere is not an archive: it has no archive.toml; tapdex index makes one\n"
        );
        std::fs::create_dir(place.path("bad")).unwrap();
        std::fs::write(place.path("bad/archive.toml"), "version = 9").unwrap();
        place.words("search -r bad tcp").failed(2);
        let said = place.words("index missing.pcap").failed(4);
        place.words("index -o made missing.pcap").failed(4);
        std::fs::write(place.path("text.pcap"), "no capture").unwrap();
        place.words("index -o made text.pcap missing.pcap").failed(3);
        assert!(!place.path("made").exists(), "nothing is left behind");
        assert!(said.contains("cannot open missing.pcap"), "{said}");
    }
}

mod extract {
    use super::*;

    /// The packets of both captures that tcpdump finds, by time.
    fn expected(place: &Place, filter: &str) -> Vec<(u64, u32, Vec<u8>)> {
        let mut all = vec![];
        for name in ["a.pcap", "b.pcapng"] {
            let (source, target) = (place.path(name), place.path("expected.pcap"));
            let mut command = Command::new("tcpdump");
            let command = command.args(["--nano", "-nn", "-r"]).arg(source).arg("-w").arg(&target);
            assert!(command.arg(filter).output().unwrap().status.success());
            all.extend(packets(&target));
        }
        all.sort_by_key(|packet| packet.0);
        all
    }

    #[test]
    fn captures_have_the_bytes_and_times_of_the_packets() {
        let place = indexed();
        for filter in ["tcp port 443 and greater 500", "ip6 and udp", ""] {
            let expected = expected(&place, filter);
            for name in ["out.pcapng", "out.pcap"] {
                place.run(&["extract", filter, "-w", name, "--force"]).done();
                assert!(packets(&place.path(name)) == expected, "{filter} {name}");
                assert_eq!(tcpdump(&[place.path(name)], ""), expected.len() as u64);
            }
        }
        let start = std::fs::read(place.path("out.pcapng")).unwrap()[..4].to_vec();
        assert_eq!(start, [0x0A, 0x0D, 0x0D, 0x0A]);
        let start = std::fs::read(place.path("out.pcap")).unwrap()[..4].to_vec();
        assert_eq!(start, [0x4D, 0x3C, 0xB2, 0xA1]);
    }

    #[test]
    fn what_was_asked_is_in_the_file() {
        let place = indexed();
        let args = "extract --from 2026-01-05T08:00:00.1Z -w out.pcapng udp port domain";
        let said = place.words(args).err;
        assert!(said.contains("tapdex: matched ") && said.contains("2/2 segments read"), "{said}");
        let info = place.sh("capinfos out.pcapng").done();
        assert!(
            info.contains("filter: udp port 53; from 2026-01-05T08:00:00.100000000Z"),
            "{info}"
        );
        assert!(info.contains("Name = gen0") && info.contains("nanoseconds (9)"), "{info}");
        assert!(info.contains("Strict time order:   True"), "{info}");
    }

    #[test]
    fn a_pipe_is_written_to_and_a_reader_may_stop_early() {
        let place = indexed();
        let out = place.sh("tapdex extract 'udp port 53' -w - | tcpdump -nn -r - | wc -l").done();
        assert_eq!(out.trim(), place.count("udp port 53").to_string());
        let ended = place.sh("tapdex extract -w - | head -c 1000 | wc -c");
        assert_eq!(ended.out.trim(), "1000");
        place.words("extract -w /dev/null tcp").done();
        assert!(!Path::new("/dev/null").is_file());
    }

    #[test]
    fn limits_hold() {
        let place = indexed();
        let said = place.words("extract -c 7 -w seven.pcapng tcp").err;
        assert!(said.contains("7 written of") && said.contains("matched 7 packets"), "{said}");
        assert_eq!(packets(&place.path("seven.pcapng")).len(), 7);
        place.words("extract --limit-bytes 5000 -w few.pcapng tcp").done();
        let bytes: usize = packets(&place.path("few.pcapng")).iter().map(|p| p.2.len()).sum();
        assert!((3_400..=5_000).contains(&bytes), "{bytes}");
        let all = place.count("arp").to_string();
        let said = place.words(&format!("extract -c {all} -w arp.pcapng arp")).err;
        assert!(!said.contains("more packets match"), "{said}");
    }

    #[test]
    fn nothing_found_is_a_capture_without_packets() {
        let place = indexed();
        for name in ["none.pcapng", "none.pcap"] {
            place.run(&["extract", "host 192.0.2.77", "-w", name]).done();
            assert_eq!(tcpdump(&[place.path(name)], ""), 0);
            place
                .run(&["extract", "--force", "--fail-if-empty", "host 192.0.2.77", "-w", name])
                .failed(1);
        }
    }

    #[test]
    fn a_file_is_replaced_only_if_asked() {
        let place = indexed();
        std::fs::write(place.path("mine.pcapng"), "precious").unwrap();
        let said = place.words("extract -w mine.pcapng tcp").failed(2);
        assert_eq!(said, "tapdex: mine.pcapng exists; --force replaces it\n");
        assert_eq!(std::fs::read(place.path("mine.pcapng")).unwrap(), b"precious");
        place.words("extract -w mine.pcapng tcp --force").done();
        assert_eq!(packets(&place.path("mine.pcapng")).len() as u64, place.count("tcp"));
        place.words("extract -w . tcp --force").failed(2);
        place.words("extract -w no/such/folder.pcap tcp").failed(4);
        let left = place.0.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name());
        assert!(left.into_iter().all(|name| !name.to_string_lossy().starts_with('.')));
    }

    /// Two ends and the protocol of an IP packet, in either direction.
    fn conversation(data: &[u8]) -> Option<([(u128, u16); 2], u8)> {
        let mut headers = Headers::default();
        decode(tapdex_engine::packet::LinkType::ETHERNET, false, data, &mut headers);
        let [src, dst] = match headers.eth_type {
            ETHERTYPE_IPV4 => [headers.ip_src.into(), headers.ip_dst.into()],
            ETHERTYPE_IPV6 => [headers.ip6_src, headers.ip6_dst],
            _ => return None,
        };
        let mut ends = [(src, headers.port_src), (dst, headers.port_dst)];
        ends.sort_unstable();
        Some((ends, headers.l4))
    }

    #[test]
    fn conversations_are_whole() {
        let place = indexed();
        let filter = "tcp.flags.reset == 1";
        place.run(&["extract", filter, "-w", "hits.pcapng"]).done();
        place.run(&["extract", "--flow", filter, "-w", "flows.pcapng"]).done();
        let hits = packets(&place.path("hits.pcapng"));
        let wanted: std::collections::BTreeSet<_> =
            hits.iter().filter_map(|packet| conversation(&packet.2)).collect();
        let mut all = packets(&place.path("a.pcap"));
        all.extend(packets(&place.path("b.pcapng")));
        all.sort_by_key(|packet| packet.0);
        all.retain(|packet| conversation(&packet.2).is_some_and(|c| wanted.contains(&c)));
        let found = packets(&place.path("flows.pcapng"));
        assert!(found.len() > 2 * hits.len() && hits.len() > 50, "{}", hits.len());
        assert!(found == all, "{} {}", found.len(), all.len());
        // Packets without ports: by addresses and protocol. What is not IP comes alone.
        for (filter, wider) in [("icmp.type == 0", "ip.proto == 1"), ("arp", "arp")] {
            let args = ["extract", "--flow", filter, "-w", "some.pcapng", "--force"];
            place.run(&args).done();
            let found = packets(&place.path("some.pcapng")).len() as u64;
            assert!(found >= place.count(filter) && found <= place.count(wider), "{filter}");
            assert!(found > 0);
        }
    }

    #[test]
    fn links_stay_what_they_are() {
        let place = Place::new();
        let ethernet = packets_of(&place, "gen -c 100 --other 0 --vlan 0 --ipv6 0 -w e.pcap");
        // The same without their Ethernet headers.
        let raw = Interface { name: "tun0".into(), ..Interface::new(101, 1_000_000_000) };
        let mut writer = CaptureWriter::new(vec![], FileFormat::Pcapng, &[raw], "").unwrap();
        for (time, len, data) in &ethernet {
            writer.packet(0, time + 1, len - 14, &data[14..]).unwrap();
        }
        std::fs::write(place.path("raw.pcapng"), writer.finish().unwrap()).unwrap();
        place.words("index e.pcap raw.pcapng").done();
        assert_eq!(place.count("ip"), 200);
        place.words("extract -w both.pcapng ip").done();
        let info = place.sh("capinfos both.pcapng").done();
        assert!(info.contains("Number of interfaces in file: 2"), "{info}");
        assert!(info.contains("Encapsulation = Raw IP") && info.contains("Name = tun0"), "{info}");
        assert_eq!(packets(&place.path("both.pcapng")).len(), 200);
        let said = place.words("extract -w both.pcap ip").failed(2);
        assert!(said.contains("one link type") && said.contains("-F pcapng"), "{said}");
        assert!(!place.path("both.pcap").exists());
        // What is of one link fits.
        place.words("extract -w one.pcap eth.addr and ip").done();
        assert_eq!(packets(&place.path("one.pcap")), ethernet);
    }

    fn packets_of(place: &Place, generate: &str) -> Vec<(u64, u32, Vec<u8>)> {
        place.words(generate).done();
        packets(&place.path(generate.split_whitespace().last().unwrap()))
    }
}

mod index {
    use super::*;

    #[test]
    fn compressed_captures_and_pipes_are_taken_in() {
        let place = Place::new();
        place.words("gen -c 5000 -w a.pcap").done();
        let expected = tcpdump(&[place.path("a.pcap")], "udp port 53");
        assert!(expected > 20);
        place.sh("gzip -k a.pcap && tapdex index a.pcap.gz && rm a.pcap.gz").done();
        assert_eq!(place.count("udp port 53"), expected);
        place.sh("tapdex index - --name tap < a.pcap").done();
        assert_eq!(place.count("udp port 53"), 2 * expected);
        if place.sh("zstd -q a.pcap").code == Some(0) {
            place.words("index a.pcap.zst").done();
            assert_eq!(place.count("udp port 53"), 3 * expected);
        }
        place.words("verify").done();
    }

    #[test]
    fn what_is_unchanged_is_passed_over_and_what_has_changed_is_not() {
        let place = Place::new();
        place.words("gen -c 3000 -w a.pcap").done();
        place.words("index a.pcap").done();
        let said = place.words("index a.pcap").err;
        assert!(said.contains("indexed 0 packets") && said.contains("1 unchanged"), "{said}");
        place.words("gen -c 4000 --seed 9 -w a.pcap --force").done();
        let said = place.words("search --count tcp").failed(3);
        assert!(said.contains("a.pcap: the file has changed since it was indexed"), "{said}");
        // Packets that are to be shown are not those that were indexed.
        let said = place.words("search tcp").failed(3);
        assert!(said.contains("a.pcap: the file has changed since it was indexed"), "{said}");
        let said = place.words("index a.pcap").err;
        assert!(said.contains("indexed 4000 packets"), "{said}");
        assert_eq!(place.count("tcp"), tcpdump(&[place.path("a.pcap")], "tcp"));
        assert_eq!(place.index_files().len(), 1);
    }

    #[test]
    fn after_ctrl_c_it_goes_on_where_it_was() {
        let place = Place::new();
        place.words("gen -c 20000 -w 0.pcap").done();
        let names: Vec<String> = (0..40).map(|n| format!("{n}.pcap")).collect();
        for name in &names[1..] {
            std::fs::copy(place.path("0.pcap"), place.path(name)).unwrap();
        }
        let mut args = vec!["index", "-j", "1"];
        args.extend(names.iter().map(String::as_str));
        let mut command = place.command(&args);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        // Once the first ones are done.
        let segments = place.path("tapdex-archive/segments");
        let is_done = || segments.read_dir().is_ok_and(|entries| entries.count() >= 3);
        while !is_done() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        kill.unwrap();
        let code = child.wait().unwrap().code();
        let there = place.index_files();
        assert!(there.iter().all(|path| path.extension().is_some_and(|e| e == "tdx")), "{there:?}");
        // It may have been done before.
        assert!(code == Some(130) || code == Some(0) && there.len() == 40, "{code:?}");
        let said = place.run(&args).err;
        assert!(said.contains("unchanged"), "{said}");
        let expected = tcpdump(&[place.path("0.pcap")], "udp port 53");
        assert_eq!(place.count("udp port 53"), 40 * expected);
        assert_eq!(place.index_files().len(), 40);
    }

    #[test]
    fn captures_and_archive_can_be_moved_together() {
        let place = indexed();
        std::fs::create_dir(place.path("before")).unwrap();
        for name in ["a.pcap", "b.pcapng", "tapdex-archive"] {
            std::fs::rename(place.path(name), place.path("before").join(name)).unwrap();
        }
        std::fs::rename(place.path("before"), place.path("after")).unwrap();
        let captures = ["a.pcap", "b.pcapng"].map(|name| place.path("after").join(name));
        let args = ["extract", "-r", "after/tapdex-archive", "udp port 53", "-w", "dns.pcap"];
        place.run(&args).done();
        let expected = tcpdump(&captures, "udp port 53");
        assert_eq!(packets(&place.path("dns.pcap")).len() as u64, expected);
        place.words("verify -r after/tapdex-archive").done();
        // One that changes there is indexed again, under another name: once, and not twice.
        place.words("gen -c 500 --seed 3 -w after/a.pcap --force").done();
        place.words("index -q -o after/tapdex-archive after/a.pcap").done();
        let count = place.words("search -r after/tapdex-archive --count").done();
        assert_eq!(count, "10500\n");
        place.words("verify -r after/tapdex-archive").done();
    }

    #[test]
    fn a_capture_that_breaks_off_is_indexed_up_to_there() {
        let place = Place::new();
        place.words("gen -c 2000 -w whole.pcap").done();
        let bytes = std::fs::read(place.path("whole.pcap")).unwrap();
        std::fs::write(place.path("cut.pcap"), &bytes[..bytes.len() / 2]).unwrap();
        let said = place.words("index cut.pcap").failed(3);
        assert!(said.contains("cut.pcap: indexed ") && said.contains("is cut off"), "{said}");
        let mut reader = capture::open(place.path("cut.pcap")).unwrap();
        let mut readable = 0;
        while let Ok(Some(_)) = reader.next() {
            readable += 1;
        }
        assert!(readable > 500);
        let count = place.words("search --count --allow-incomplete").done();
        assert_eq!(count, format!("{readable}\n"));
        let info = place.words("info --segments --allow-incomplete").done();
        assert!(info.contains("is cut off"), "{info}");
        place.words("verify --allow-incomplete").done();
        std::fs::write(place.path("none.pcap"), "this is no capture at all").unwrap();
        place.words("index none.pcap").failed(3);
    }
}

mod made_up {
    use super::*;

    #[test]
    fn options_decide_what_is_made() {
        let place = Place::new();
        place.words("gen -c 3000 --vlan 0 --ipv6 0.5 --seed 4 -w a.pcap").done();
        place.words("gen -c 3000 --vlan 0 --ipv6 0.5 --seed 4 -F pcapng -w b.cap").done();
        let a = packets(&place.path("a.pcap"));
        assert!(a == packets(&place.path("b.cap")) && a.len() == 3_000);
        let path = [place.path("a.pcap")];
        assert_eq!(tcpdump(&path, "vlan"), 0);
        let wide = tcpdump(&path, "ip6");
        assert!((1_000..2_000).contains(&wide), "{wide}");
        place.words("gen -c 100 -s 60 --mean-len 300 -w cut.pcap").done();
        assert!(packets(&place.path("cut.pcap")).iter().all(|p| p.2.len() <= 60));
        let out = place.sh("tapdex gen -c 100 | tcpdump -nn -r - | wc -l").out;
        assert_eq!(out.trim(), "100");
        let said = place.words("gen -c 1 -w a.pcap").failed(2);
        assert!(said.contains("--force replaces it"), "{said}");
        place.words("gen --vlan 2 -w c.pcap").failed(2);
        assert!(!place.path("c.pcap").exists());
    }

    #[test]
    fn ctrl_c_leaves_nothing_half_written() {
        let place = Place::new();
        // Packets are cut, so that the disk is not full before it is told to stop.
        let args = ["gen", "-c", "1000000000", "--snaplen", "14", "-w", "big.pcap"];
        let mut command = place.command(&args);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        while !place.path(".big.pcap.tmp").exists() {
            assert!(child.try_wait().unwrap().is_none());
            std::thread::sleep(Duration::from_millis(1));
        }
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_eq!(place.0.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn the_demo_finds_what_tcpdump_finds_and_clears_up() {
        let place = Place::new();
        let temporary = place.path("tmp");
        std::fs::create_dir(&temporary).unwrap();
        let mut command = place.command(&["demo", "--packets", "20000"]);
        let output = command.env("TMPDIR", &temporary).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        assert!(text.contains("found the same number of packets every time"), "{text}");
        assert_eq!(text.lines().filter(|line| line.contains("port")).count(), 3, "{text}");
        assert_eq!(temporary.read_dir().unwrap().count(), 0);
        place.words("demo --packets 2000 --keep kept").done();
        let count = place.words("search -r kept/archive --count").done();
        assert_eq!(count, "2000\n");
    }

    #[test]
    fn the_demo_is_served_and_clears_up() {
        let place = Place::new();
        let temporary = place.path("tmp");
        std::fs::create_dir(&temporary).unwrap();
        let args = ["demo", "--serve", "--packets", "20000", "--listen", "127.0.0.1:0"];
        let mut command = place.command(&args);
        let command = command.env("TMPDIR", &temporary).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let mut url = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut url).unwrap();
        let url = url.trim_end();
        let get = |path: &str| place.sh(&format!("curl -sf '{url}{path}'")).done();
        assert!(get("api/v1/status").contains("\"demo\":true"));
        for (q, packets) in [
            // One in 25, of which every third is an answer; one in 16; one in 40.
            ("src+host+10.1.66.6", 534),
            ("udp+and+dst+host+10.1.0.2", 1250),
            ("host+10.1.4.23+and+port+8443", 500),
        ] {
            let count = get(&format!("api/v1/count?q={q}"));
            assert!(count.starts_with(&format!("{{\"count\":{packets},")), "{q}: {count}");
        }
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert_eq!(temporary.read_dir().unwrap().count(), 0);
    }
}

/// Captures of the folder that TAPDEX_TRACES names, if it does.
#[test]
fn real_captures_come_out_as_they_went_in() {
    let Some(folder) = std::env::var_os("TAPDEX_TRACES") else { return };
    let place = Place::new();
    let mut expected = vec![];
    let mut args = vec!["index".to_owned(), "-q".to_owned()];
    for entry in Path::new(&folder).join("zoo").read_dir().unwrap() {
        let path = entry.unwrap().path();
        let Ok(mut reader) = capture::open(&path) else { continue };
        while let Ok(Some(record)) = reader.next() {
            expected.push((record.time_ns, record.wire_len, record.link, record.data.len()));
        }
        args.push(path.to_str().unwrap().to_owned());
    }
    assert!(args.len() > 100);
    // Some are damaged on purpose.
    place.run(&args.iter().map(String::as_str).collect::<Vec<_>>()).failed(3);
    place.words("verify --allow-incomplete").done();
    place.words("extract --allow-incomplete -w all.pcapng").done();
    let mut found = vec![];
    let mut reader = capture::open(place.path("all.pcapng")).unwrap();
    while let Some(record) = reader.next().unwrap() {
        found.push((record.time_ns, record.wire_len, record.link, record.data.len()));
    }
    assert!(found.is_sorted_by_key(|packet| packet.0));
    expected.sort();
    found.sort();
    assert_eq!(found.len(), expected.len());
    assert!(found == expected);
}

mod help {
    use super::*;

    const COMMANDS: [&str; 13] = [
        "index", "search", "extract", "top", "hist", "flows", "info", "explain", "verify",
        "repair", "upgrade", "gen", "demo",
    ];

    #[test]
    fn examples_run() {
        let place = Place::new();
        // What the examples take for granted.
        place.sh("mkdir captures more-captures && tapdex gen -c 1000 -w captures/a.pcap").done();
        place.sh("tapdex index captures/a.pcap -o archive && tapdex index captures/a.pcap").done();
        let mut shown = 0;
        for command in COMMANDS {
            let help = place.words(&format!("{command} --help")).done();
            assert_eq!(place.words(&format!("help {command}")).done(), help);
            let lines = help.lines().filter_map(|line| line.strip_prefix("    "));
            let is_command = |line: &&str| line.starts_with("tapdex ") || line.starts_with("gzip ");
            // What goes on until Ctrl-C, or needs a server, has tests of its own.
            let on = ["--follow", "https://", "--serve"];
            let ends = |line: &&str| !on.iter().any(|word| line.contains(word));
            for example in lines.filter(is_command).filter(ends) {
                shown += 1;
                let ended = place.sh(example);
                assert!(ended.code == Some(0), "{command}: {example}\n{}", ended.err);
            }
        }
        assert!(shown >= 30, "only {shown} examples found");
    }
}
