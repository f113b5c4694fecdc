//! Several folders answer as one archive of all their captures does.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod fake;

use fake::{Fake, Folders, Made, START_NS, Way};
use proptest::collection::vec;
use proptest::prelude::*;
use tapdex_answers::ask::SpanLen;
use tapdex_answers::deliver::Delivery;
use tapdex_answers::json;
use tapdex_answers::lines::By;
use tapdex_answers::question::Question;
use tapdex_client::credentials::Sources;
use tapdex_client::nodes::{AskAll, Nodes, Options};
use tapdex_engine::capture::CaptureReader;
use tapdex_engine::fields;
use tapdex_engine::query::FlowOrder;

/// Packets of a capture, in order of time; `src` keeps the flows of captures apart.
fn captures() -> impl Strategy<Value = Vec<Vec<Made>>> {
    let packet = (0_u64..40, 0_u8..3, 0_u16..4, 0_u16..3);
    vec(vec(packet, 1..30), 1..6).prop_map(|captures| {
        let one = |(number, packets): (u8, Vec<(u64, u8, u16, u16)>)| {
            let of = |(time, src, port, len)| Made {
                // Many of the same time, and of the same time as those of others.
                time_ns: START_NS + time * 250_000_000,
                src: 40 * number + src,
                port: 8_000 + port,
                len: 10 * len,
            };
            let mut packets: Vec<Made> = packets.into_iter().map(of).collect();
            packets.sort_by_key(|packet| packet.time_ns);
            packets
        };
        (0..).zip(captures).map(one).collect()
    })
}

fn options() -> Options {
    Options { credentials: Sources::default(), ..Options::default() }
}

/// Packets as text, in order; those of the same time are sorted, since places have no order.
fn packets(ask: &AskAll<'_>) -> Vec<(u64, String)> {
    let mut packets = Vec::new();
    let mut each = |packet: Option<tapdex_answers::lines::Packet<'_>>| {
        packets.extend(packet.map(|packet| (packet.time.0, packet.text())));
        Ok(true)
    };
    ask.packets(None, false, &mut each, &|| false).unwrap();
    assert!(packets.is_sorted_by_key(|packet| packet.0));
    packets.sort();
    packets
}

/// The packets of a capture with their interfaces.
fn extracted(ask: &AskAll<'_>, whole_conversations: bool) -> Vec<(u64, String, u32, Vec<u8>)> {
    let mut bytes = Vec::new();
    let delivery = Delivery { whole_conversations, ..Delivery::default() };
    let answer = ask.capture(&delivery, &mut bytes, &|| false).unwrap();
    let mut reader = CaptureReader::open(bytes.as_slice()).unwrap();
    let mut packets = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        packets.push((record.time_ns, record.interface, record.wire_len, record.data.to_vec()));
    }
    assert_eq!(answer.value.packets, packets.len() as u64);
    assert!(packets.is_sorted_by_key(|packet| packet.0));
    let interfaces = &reader.layout().interfaces;
    let name = |interface: u32| interfaces[interface as usize].name.clone();
    let named = |(time, interface, len, data)| (time, name(interface), len, data);
    let mut packets: Vec<_> = packets.into_iter().map(named).collect();
    packets.sort();
    packets
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn places_together_answer_as_one(captures in captures(), split in 1_usize..4, serve: bool) {
        let folders = Folders::new();
        let all: Vec<&[Made]> = captures.iter().map(Vec::as_slice).collect();
        let one = folders.archive("x", &all);
        let mut places = Vec::new();
        let mut servers = Vec::new();
        for (number, part) in all.chunks(split).enumerate() {
            // The names of interfaces follow from that of the archive, so they are given again.
            let folder = folders.part(&format!("part{number}"), number * split, part);
            if serve && number % 2 == 1 {
                servers.push(Fake::of(&folder, Way::Honest));
                places.push(servers.last().unwrap().url());
            } else {
                places.push(folder.display().to_string());
            }
        }
        let several = Nodes::open(&places, &options()).unwrap();
        let one = Nodes::open(&[one], &options()).unwrap();
        let filters = ["", "port 8001", "host 10.0.0.1 or greater 60", "tcp", "src host 10.0.0.40"];
        for (q, from, to) in filters.iter().map(|q| (*q, None, None))
            .chain([("udp", Some(3), None), ("", Some(2), Some(7))])
        {
            let time = |s: u64| tapdex_engine::time::format_time(START_NS + s * 1_000_000_000);
            let question = Question {
                q: q.to_owned(), from: from.map(time), to: to.map(time), ..Question::default()
            };
            let query = question.query(0).unwrap();
            let (several, one) = (several.ask(&query), one.ask(&query));
            let [count, same] = [&several, &one].map(|ask| ask.count().unwrap());
            prop_assert_eq!(count.value, same.value);
            prop_assert_eq!((count.first, count.last), (same.first, same.last));
            prop_assert_eq!(count.segments, same.segments);
            for by in [By::Packets, By::Bytes] {
                let names = ["src", "port", "proto", "length", "eth.src", "iface", "frame.len"]
                    .map(|name| fields::for_top(name).unwrap());
                for most in [2, usize::MAX] {
                    let [top, same] =
                        [&several, &one].map(|ask| ask.top(&names, by, most).unwrap());
                    prop_assert_eq!(json::text(&top.value), json::text(&same.value));
                }
            }
            for len in [SpanLen::AtMost(1), SpanLen::AtMost(9), SpanLen::Each(1_000_000_000)] {
                let [histogram, same] = [&several, &one].map(|ask| ask.histogram(len).unwrap());
                prop_assert_eq!(&histogram.value, &same.value);
            }
            let orders =
                [FlowOrder::Bytes, FlowOrder::Packets, FlowOrder::Duration, FlowOrder::Start];
            for order in orders {
                // Equal ones may come in another order, so all are compared.
                let [flows, same] = [&several, &one].map(|ask| {
                    let mut flows = ask.flows(order, usize::MAX, q == "port 8001").unwrap().value;
                    flows.flows.sort_by_key(json::text);
                    flows
                });
                prop_assert_eq!(flows, same);
            }
            prop_assert_eq!(packets(&several), packets(&one));
            prop_assert_eq!(extracted(&several, false), extracted(&one, false));
        }
        let query = Question { q: "port 8001".into(), ..Question::default() }.query(0).unwrap();
        let [whole, same] =
            [several.ask(&query), one.ask(&query)].map(|ask| extracted(&ask, true));
        prop_assert_eq!(whole, same);
    }
}
