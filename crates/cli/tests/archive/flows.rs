//! `tapdex flows`, beside tshark, which knows Community IDs, too.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// What an end of a conversation has sent, by ID, VLAN and address: packets and bytes.
type Sums = BTreeMap<(String, String, String), (u64, u64)>;

/// The lines of a table that starts with headings, as cells by their headings.
fn rows(csv: &str) -> Vec<BTreeMap<&str, &str>> {
    let mut lines = csv.lines();
    let headings: Vec<&str> = lines.next().unwrap().split(',').collect();
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            assert_eq!(cells.len(), headings.len(), "{line}");
            headings.iter().copied().zip(cells).collect()
        })
        .collect()
}

fn number(row: &BTreeMap<&str, &str>, name: &str) -> u64 {
    row[name].parse().unwrap()
}

fn ours(place: &Place, args: &str) -> Sums {
    let table = place.words(&format!("flows -n 0 --csv {args}")).done();
    let mut sums = Sums::new();
    for row in rows(&table) {
        for end in ["client", "server"] {
            let key = [row["community_id"], row["vlan"], row[end]].map(str::to_owned);
            let sum = sums.entry(key.into()).or_default();
            sum.0 += number(&row, &format!("{end}_packets"));
            sum.1 += number(&row, &format!("{end}_bytes"));
        }
    }
    sums.retain(|_, sum| sum.0 > 0);
    sums
}

/// The same by tshark.
fn by_tshark(capture: &Path, filter: &str) -> Sums {
    let fields = ["frame.len", "communityid", "ieee8021ad.id", "vlan.id", "ip.src", "ipv6.src"];
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "--enable-protocol", "communityid", "-T", "fields"]);
    tshark.args(["-E", "separator=;", "-E", "occurrence=a"]);
    tshark.args(["-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE"]);
    for field in fields {
        tshark.args(["-e", field]);
    }
    let output = tshark.arg("-r").arg(capture).args(["-Y", filter]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut sums = Sums::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let [len, id, outer, inner, ip, ip6] = line.split(';').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let tags: Vec<&str> = [outer, inner].into_iter().filter(|tag| !tag.is_empty()).collect();
        let (vlan, address) = (tags.join(".").replace(',', "."), format!("{ip}{ip6}"));
        let sum = sums.entry((id.to_owned(), vlan, address)).or_default();
        *sum = (sum.0 + 1, sum.1 + len.parse::<u64>().unwrap());
    }
    sums
}

#[track_caller]
fn assert_same(found: &Sums, expected: &Sums) {
    let differs = |key: &&(String, String, String)| found.get(*key) != expected.get(*key);
    for key in found.keys().chain(expected.keys()).filter(differs).take(5) {
        eprintln!("{key:?}: {:?}, tshark {:?}", found.get(key), expected.get(key));
    }
    assert!(found == expected);
}

#[test]
fn conversations_are_those_of_tshark() {
    let place = Place::new();
    place.words("gen -c 20000 --tunnel 0 --vlan 0.2 --ipv6 0.3 --other 0.2 -w a.pcap").done();
    // Several segments have packets of the same conversations.
    place.words("gen -c 5000 --tunnel 0 --seed 3 -w b.pcap").done();
    place.words("index -q a.pcap").done();
    let expected = by_tshark(&place.path("a.pcap"), "ip or ipv6");
    assert!(expected.len() > 1_000, "{}", expected.len());
    assert_same(&ours(&place, ""), &expected);
    place.sh("cp a.pcap c.pcap && tapdex index -q b.pcap c.pcap").done();
    let mut twice = expected;
    twice.values_mut().for_each(|sum| *sum = (2 * sum.0, 2 * sum.1));
    for (key, (packets, bytes)) in by_tshark(&place.path("b.pcap"), "ip or ipv6") {
        let sum = twice.entry(key).or_default();
        *sum = (sum.0 + packets, sum.1 + bytes);
    }
    assert_same(&ours(&place, ""), &twice);
}

/// Captures of the folder that TAPDEX_TRACES names, if it does: those without tunnels and the like,
/// which Wireshark looks into.
#[test]
fn conversations_of_real_captures_are_those_of_tshark() {
    let Some(folder) = std::env::var_os("TAPDEX_TRACES") else { return };
    for name in ["4SICS-GeekLounge-151020", "nfsv4-posix", "smallFlows", "westermo-right"] {
        let path = Path::new(&folder).join(format!("large/{name}.pcap.zst"));
        let place = Place::new();
        place.run(&["index", "-q", path.to_str().unwrap()]).done();
        place.words("extract -w a.pcap").done();
        // The packet that an ICMP error quotes is no other conversation.
        let expected = by_tshark(&place.path("a.pcap"), "(tcp or udp) and not icmp");
        assert_same(&ours(&place, "(tcp.port or udp.port)"), &expected);
    }
}

#[test]
fn conversations_come_in_the_order_asked_for() {
    let place = indexed();
    let ids = |table: &str| -> Vec<String> {
        rows(table).iter().map(|row| row["community_id"].to_owned()).collect()
    };
    let all = place.words("flows -n 0 --csv").done();
    let len = rows(&all).len();
    assert!(len > 1_000);
    let size = |row: &BTreeMap<&str, &str>, what: &str| {
        number(row, &format!("client_{what}")) + number(row, &format!("server_{what}"))
    };
    for order in ["bytes", "packets", "duration", "start"] {
        let table = place.words(&format!("flows -n 0 --csv --sort {order}")).done();
        let sorted = rows(&table);
        assert_eq!(sorted.len(), len);
        assert!(match order {
            "start" => sorted.is_sorted_by_key(|row| row["start"]),
            "duration" => sorted.is_sorted_by(|a, b| {
                a["duration"].parse::<f64>().unwrap() >= b["duration"].parse::<f64>().unwrap()
            }),
            what => sorted.is_sorted_by(|a, b| size(a, what) >= size(b, what)),
        });
        let first = place.words(&format!("flows -n 7 --csv --sort {order}")).done();
        assert_eq!(ids(&first), ids(&table)[..7]);
    }
    // The default is the ten largest, and the three forms agree.
    let ten = place.words("flows").done();
    assert_eq!(ten.lines().count(), 11);
    let json = place.words("flows --json").done();
    for ((line, text), id) in json.lines().zip(ten.lines().skip(1)).zip(ids(&all)) {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(value["community_id"], id.as_str());
        assert!(text.ends_with(&id), "{text}");
    }
    let said = place.words("flows -n 3 arp").err;
    assert!(said.contains(" in no conversation: no IP header was found\n"), "{said}");
    assert!(said.contains("0 of 0 conversations shown; all: 0 packets, 0 bytes\n"), "{said}");
}

#[test]
fn whole_conversations_have_packets_that_do_not_match() {
    let place = indexed();
    let filter = "tcp[tcpflags]&tcp-fin!=0";
    let all = ours(&place, "");
    let part = ours(&place, filter);
    let whole = ours(&place, &format!("--whole {filter}"));
    assert!(part.len() > 20 && part.keys().all(|key| whole.contains_key(key)));
    assert!(whole.iter().all(|(key, sum)| all.get(key) == Some(sum)));
    assert!(part.iter().any(|(key, sum)| whole[key].0 > sum.0));
    assert_eq!(ours(&place, "--whole"), all);
    // No conversations but those that match: others have another VLAN, or another type of ICMP.
    for filter in ["vlan and tcp", "icmp[0]==8", "tcp[tcpflags]&tcp-fin!=0"] {
        let names = |sums: &Sums| -> BTreeSet<(String, String)> {
            sums.keys().map(|(id, vlan, _)| (id.clone(), vlan.clone())).collect()
        };
        let (part, whole) = (ours(&place, filter), ours(&place, &format!("--whole {filter}")));
        assert!(!part.is_empty() && names(&part) == names(&whole), "{filter}");
    }
}

/// What is missing is told once, however often it is looked for.
#[test]
fn what_is_missing_from_whole_conversations_is_told_once() {
    let place = indexed();
    std::fs::remove_file(place.path("b.pcapng")).unwrap();
    let said = |args: &str| {
        let err = place.words(args).failed(3);
        err.lines().filter(|line| line.contains("missing")).map(str::to_owned).collect::<Vec<_>>()
    };
    let plain = said("flows udp port 53");
    assert!(plain.iter().any(|line| line.contains("10000 packets")), "{plain:?}");
    assert_eq!(said("flows --whole udp port 53"), plain);
}

#[test]
fn a_community_id_finds_its_packets() {
    let place = indexed();
    let all = ours(&place, "");
    // As in Wireshark, a packet without an ID has no other ID.
    let total: u64 = all.values().map(|(packets, _)| packets).sum();
    let table = place.words("flows -n 40 --csv --sort packets").done();
    for row in rows(&table).iter().step_by(7) {
        let id = row["community_id"];
        let same = all.iter().filter(|((other, ..), _)| other == id);
        let packets: u64 = same.map(|(_, (packets, _))| packets).sum();
        let count = |filter: String| -> u64 {
            place.run(&["search", "--count", &filter]).done().trim().parse().unwrap()
        };
        assert_eq!(count(format!("communityid == \"{id}\"")), packets, "{id}");
        assert_eq!(count(format!("community_id == {id}")), packets, "{id}");
        assert_eq!(count(format!("flow {id}")), packets, "{id}");
        assert_eq!(count(format!("flow  \"{id}\"")), packets, "{id}");
        assert_eq!(count(format!("community_id != \"{id}\"")), total - packets, "{id}");
        assert_eq!(count(format!("flow {id} and not (ip or ipv6)")), 0, "{id}");
        let [client, server] = [row["client"], row["server"]].map(|address| {
            let name = if address.contains(':') { "ipv6.src" } else { "ip.src" };
            count(format!("flow {id} and {name} == {address}"))
        });
        assert_eq!(client + server, packets, "{id}");
    }
    for filter in ["flow 1:abc", "community_id == \"2:LQU9qZlK+B5F3KDmev6m5PMibrg=\""] {
        let said = place.run(&["search", filter]).failed(2);
        assert!(said.contains("expected a Community ID, such as 1:"), "{said}");
    }
    place.run(&["search", "community_id < \"1:abc\""]).failed(2);
}

/// By bytes, `top` adds up what `flows` does.
#[test]
fn top_by_bytes_is_what_conversations_add_up_to() {
    let place = indexed();
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for ((_, _, address), (_, bytes)) in ours(&place, "tcp.port or udp.port") {
        *expected.entry(address).or_default() += bytes;
    }
    let by_bytes = "top src --by bytes -n 1000000";
    let table = place.words(&format!("{by_bytes} --csv tcp.port or udp.port")).done();
    let found: BTreeMap<String, u64> =
        rows(&table).iter().map(|row| (row["value"].to_owned(), number(row, "bytes"))).collect();
    assert!(found.len() > 100 && found == expected);
    assert!(rows(&table).is_sorted_by(|a, b| number(a, "bytes") >= number(b, "bytes")));
    let json = place.words("top src --by bytes -n 1 --json tcp.port or udp.port").done();
    let value: serde_json::Value = serde_json::from_str(json.trim()).unwrap();
    assert_eq!(value["bytes"].as_u64(), expected.values().max().copied());
    assert!(value.get("count").is_none());
}
