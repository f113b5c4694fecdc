//! Servers that misbehave, one at a time and among others.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod fake;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fake::{Fake, Folders, Made, START_NS, Way, made};
use tapdex_answers::ask::{Answer, SpanLen};
use tapdex_answers::deliver::{Delivered, Delivery};
use tapdex_answers::json;
use tapdex_answers::lines::By;
use tapdex_answers::question::Question;
use tapdex_client::credentials::Sources;
use tapdex_client::nodes::{Nodes, Options};
use tapdex_client::{ClientError, HttpError};
use tapdex_engine::capture::CaptureReader;
use tapdex_engine::fields;
use tapdex_engine::query::{Control, FlowOrder, Query};

const STALL: Duration = Duration::from_millis(400);
/// No question takes longer, whatever servers do.
const BOUND: Duration = Duration::from_secs(20);

fn options() -> Options {
    Options { credentials: Sources::default(), timeout: STALL, ..Options::default() }
}

fn open(places: &[String]) -> Nodes {
    Nodes::open(places, &options()).unwrap()
}

fn query(q: &str) -> Query {
    Question { q: q.to_owned(), ..Question::default() }.query(0).unwrap()
}

/// A query for a part of the packets, by time.
fn query_of_times(from_ns: u64, to_ns: u64) -> Query {
    let text = |ns: u64| Some(tapdex_engine::time::format_time(ns));
    let question = Question { from: text(from_ns), to: text(to_ns), ..Question::default() };
    question.query(0).unwrap()
}

/// The times of the packets that are found.
fn times(nodes: &Nodes, query: &Query) -> Result<(Vec<u64>, Answer<Delivered>), ClientError> {
    let mut times = Vec::new();
    let mut each = |packet: Option<tapdex_answers::lines::Packet<'_>>| {
        times.extend(packet.map(|packet| packet.time.0));
        Ok(true)
    };
    let answer = nodes.ask(query).packets(None, false, &mut each, &|| false)?;
    Ok((times, answer))
}

type Extracted = (Vec<u64>, Vec<u8>, Answer<Delivered>);

/// The times of the packets of a capture, and the capture.
fn extracted(nodes: &Nodes, query: &Query) -> Result<Extracted, ClientError> {
    let mut bytes = Vec::new();
    let answer = nodes.ask(query).capture(&Delivery::default(), &mut bytes, &|| false)?;
    let mut reader = CaptureReader::open(bytes.as_slice()).unwrap();
    let mut times = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        times.push(record.time_ns);
    }
    Ok((times, bytes, answer))
}

fn sorted(packets: &[Vec<Made>]) -> Vec<u64> {
    let mut times: Vec<u64> = packets.iter().flatten().map(|packet| packet.time_ns).collect();
    times.sort_unstable();
    times
}

fn http_error(error: ClientError) -> HttpError {
    match error {
        ClientError::Server { error, .. } => *error,
        error => panic!("{error:?}"),
    }
}

#[test]
fn an_honest_server_answers_as_its_folder() {
    let folders = Folders::new();
    let (one, two) = (made(1, 300), made(2, 200));
    let folder = folders.archive("a", &[&one, &two]);
    let server = Fake::of(&folder, Way::Honest);
    let there = open(&[server.url()]);
    let here = open(&[folder.display().to_string()]);
    for q in ["", "host 10.0.0.1", "udp src port 1003", "greater 60", "tcp"] {
        let query = query(q);
        let (there, here) = (there.ask(&query), here.ask(&query));
        let count = there.count().unwrap();
        assert_eq!(count.value, here.count().unwrap().value);
        assert!(count.complete && count.nodes.is_empty());
        let names = [fields::for_top("src").unwrap(), fields::for_top("port.src").unwrap()];
        for by in [By::Packets, By::Bytes] {
            let [there, here] = [&there, &here].map(|ask| ask.top(&names, by, 3).unwrap());
            // Shares have six digits on their way.
            assert_eq!(json::text(&there.value), json::text(&here.value));
        }
        for len in [SpanLen::AtMost(10), SpanLen::Each(7_000_000)] {
            let [there, here] = [&there, &here].map(|ask| ask.histogram(len).unwrap());
            assert_eq!(there.value, here.value);
        }
        let [flows, same] =
            [&there, &here].map(|ask| ask.flows(FlowOrder::Packets, 4, false).unwrap());
        assert_eq!(flows.value, same.value);
        let explained = there.explain().unwrap();
        assert_eq!(explained.value.explain[0].value.matches, count.value.count);
    }
    let query = query("udp src port 1003");
    assert_eq!(times(&there, &query).unwrap().0, times(&here, &query).unwrap().0);
    // Passed on as it is.
    assert_eq!(extracted(&there, &query).unwrap().1, extracted(&here, &query).unwrap().1);
    let inventories = there.inventories(&Control::default()).unwrap();
    assert_eq!(inventories.value.nodes[0].archive.archive, server.url());
    assert_eq!(inventories.matched, 500);
}

/// What a single server has to be refused for.
fn refused(way: Way, is_expected: fn(&HttpError) -> bool) {
    let folders = Folders::new();
    let folder = folders.archive("a", &[&made(1, 2_000)]);
    let server = Fake::of(&folder, way);
    let nodes = open(&[server.url()]);
    let query = query("udp");
    let started = Instant::now();
    let check = |what: &str, error: ClientError| {
        assert!(error.to_string().contains(&server.url()), "{error}");
        let error = http_error(error);
        assert!(is_expected(&error), "{way:?}, {what}: {error:?}");
        // Whoever reads it knows what to do, and sees no control characters.
        assert!(!error.to_string().contains(|c: char| c.is_control() && c != '\n'));
    };
    check("count", nodes.ask(&query).count().unwrap_err());
    check("search", times(&nodes, &query).unwrap_err());
    check("extract", extracted(&nodes, &query).unwrap_err());
    assert!(started.elapsed() < BOUND);
}

#[test]
fn a_server_that_is_killed_is_noticed() {
    refused(Way::Killed(0), |error| matches!(error, HttpError::Broken(_)));
    refused(Way::Killed(100), |error| matches!(error, HttpError::Broken(_)));
}

#[test]
fn a_server_that_stalls_or_drips_is_noticed() {
    let is_stalled = |error: &HttpError| matches!(error, HttpError::Stalled(_));
    refused(Way::Stalled(0), is_stalled);
    refused(Way::Stalled(100), is_stalled);
    refused(Way::Dripping, is_stalled);
}

#[test]
fn what_servers_say_becomes_an_error_that_says_what_to_do() {
    refused(Way::Says(401, r#"{"error":"no token"}"#), |error| {
        let text = error.to_string();
        text.starts_with("no token") && text.contains("TAPDEX_TOKEN")
    });
    refused(Way::Says(403, "not JSON"), |error| matches!(error, HttpError::Forbidden { .. }));
    refused(Way::Says(429, r#"{"error":"too many"}"#), |error| {
        error.to_string() == "too many; try again in 7 s"
    });
    refused(Way::Says(400, r#"{"error":"unknown word","offset":0,"length":3}"#), |error| {
        let text = error.to_string();
        text.contains("unknown word") && text.contains("udp\n") && text.contains("^^^")
    });
    refused(Way::Says(503, ""), |error| matches!(error, HttpError::Status { code: 503, .. }));
    refused(Way::Garbage, |error| matches!(error, HttpError::Damaged(_) | HttpError::Capture(_)));
}

#[test]
fn answers_without_an_end_are_cut_off() {
    refused(Way::Endless, |error| matches!(error, HttpError::Damaged(_) | HttpError::Capture(_)));
}

#[test]
fn redirects_are_not_followed() {
    let folders = Folders::new();
    let other = Fake::of(&folders.archive("other", &[&made(1, 1)]), Way::Honest);
    refused(Way::Redirects(other.address), |error| {
        matches!(error, HttpError::Status { code: 307, .. })
    });
    assert_eq!(other.asked.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[test]
fn nobody_there_is_an_error_of_its_own() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let nodes = open(&[address]);
    let error = http_error(nodes.ask(&query("udp")).count().unwrap_err());
    assert!(matches!(error, HttpError::Connect(_)), "{error:?}");
}

#[test]
fn what_was_changed_on_its_way_is_noticed() {
    let folders = Folders::new();
    let folder = folders.archive("a", &[&made(1, 100)]);
    // In the bytes of a packet, far from what a reader checks.
    let server = Fake::of(&folder, Way::Changed(700));
    let query = query("udp");
    let error = http_error(extracted(&open(&[server.url()]), &query).unwrap_err());
    assert!(matches!(error, HttpError::Hash { .. }), "{error:?}");
    let error = http_error(times(&open(&[server.url()]), &query).unwrap_err());
    assert!(matches!(error, HttpError::Hash { .. }), "{error:?}");
    // Among others it is named.
    let other = folders.archive("b", &[&made(2, 10)]);
    let nodes = open(&[server.url(), other.display().to_string()]);
    let (_, _, answer) = extracted(&nodes, &query).unwrap();
    assert!(!answer.complete);
    assert_eq!(answer.incomplete[0].node, server.url());
    assert!(answer.incomplete[0].what.contains("SHA-256"), "{:?}", answer.incomplete);
}

#[test]
fn addresses_and_places_are_checked_before_anybody_is_asked() {
    let folders = Folders::new();
    let folder = folders.archive("a", &[&made(1, 1)]);
    let path = folder.display().to_string();
    let error = |places: &[&str]| Nodes::open(places, &options()).unwrap_err();
    assert!(matches!(error(&[&path, &format!("{path}/../a")]), ClientError::Twice { .. }));
    let twice = ["http://127.0.0.1:9", "HTTP://127.0.0.1:9/"];
    assert!(matches!(error(&twice), ClientError::Twice { .. }));
    assert!(matches!(error(&["http://sensor1:9"]), ClientError::Server { .. }));
    assert!(matches!(error(&[&path, "/nowhere"]), ClientError::Archive(_)));
}

/// 50 nodes, of which some misbehave: they are named, and all others' packets are there.
fn among_fifty(ways: &[Way], named: &str) {
    const NODES: u8 = 50;
    let folders = Folders::new();
    let packets: Vec<Vec<Made>> = (0..NODES).map(|node| made(node, 60)).collect();
    let archives: Vec<PathBuf> = (0..NODES)
        .map(|node| folders.archive(&format!("n{node}"), &[&packets[usize::from(node)]]))
        .collect();
    let way_of = |node: u8| ways.get(usize::from(node) / 20).copied().filter(|_| node % 20 == 7);
    let serve =
        |(node, folder): (u8, &PathBuf)| Fake::of(folder, way_of(node).unwrap_or(Way::Honest));
    let servers: Vec<Fake> = (0..NODES).zip(&archives).map(serve).collect();
    let urls: Vec<String> = servers.iter().map(Fake::url).collect();
    let bad: Vec<&String> =
        (0..).zip(&urls).filter(|(n, _)| way_of(*n).is_some()).map(|(_, url)| url).collect();
    let nodes = open(&urls);
    let honest = (0..).zip(&packets).filter(|(n, _)| way_of(*n).is_none());
    let honest: Vec<Vec<Made>> = honest.map(|(_, packets)| packets.clone()).collect();
    let started = Instant::now();
    // A part of the times, so that packets of others can be told.
    let query = query_of_times(START_NS + 5_000_000, START_NS + 50_000_000);
    let of_times = |time: &u64| query.times().contains(*time);
    let expected: Vec<u64> = sorted(&honest).into_iter().filter(of_times).collect();
    let check = |what: &str, answer: &Answer<Delivered>, found: &[u64]| {
        let mut missing: Vec<&String> = answer.incomplete.iter().map(|one| &one.node).collect();
        missing.sort_unstable();
        let mut bad = bad.clone();
        bad.sort_unstable();
        assert_eq!(missing, bad, "{what}: {:?}", answer.incomplete);
        assert!(answer.incomplete.iter().all(|one| one.cause == "unreachable"));
        assert!(
            answer.incomplete.iter().all(|one| one.what.contains(named)),
            "{:?}",
            answer.incomplete
        );
        assert_eq!(
            answer.nodes.iter().filter(|share| share.error.is_none()).count(),
            urls.len() - bad.len()
        );
        // What the bad ones have sent before may be there, too.
        assert!(found.is_sorted() && found.iter().all(of_times));
        let mut found = found.iter();
        assert!(expected.iter().all(|time| found.any(|other| other == time)), "{what}");
    };
    let (found, answer) = times(&nodes, &query).unwrap();
    check("search", &answer, &found);
    let (found, _, answer) = extracted(&nodes, &query).unwrap();
    check("extract", &answer, &found);
    assert!(started.elapsed() < BOUND, "{:?}", started.elapsed());
}

#[test]
fn of_fifty_some_are_killed() {
    among_fifty(&[Way::Killed(0), Way::Killed(1_500), Way::Killed(10)], "broke off");
}

#[test]
fn of_fifty_some_stall() {
    among_fifty(&[Way::Stalled(0), Way::Stalled(1_500), Way::Dripping], "nothing has come");
}

#[test]
fn of_fifty_some_lie_about_times() {
    among_fifty(&[Way::OtherTimes, Way::OtherTimes], "which was not asked for");
    among_fifty(&[Way::OutOfOrder], "not in order of time");
}

#[test]
fn slow_servers_are_waited_for() {
    let folders = Folders::new();
    let packets = [made(1, 500), made(2, 500)];
    let servers = [("a", Way::Slow, &packets[0]), ("b", Way::Honest, &packets[1])]
        .map(|(name, way, packets)| Fake::of(&folders.archive(name, &[packets]), way));
    let nodes = open(&servers.each_ref().map(Fake::url));
    let query = query("");
    let (found, answer) = times(&nodes, &query).unwrap();
    assert!(answer.complete);
    assert_eq!(found, sorted(&packets));
    assert_eq!(extracted(&nodes, &query).unwrap().0, found);
    assert_eq!(nodes.ask(&query).count().unwrap().value.count, 1_000);
}

#[test]
fn counts_of_the_others_are_right_if_one_does_not_answer() {
    let folders = Folders::new();
    let ways = [Way::Honest, Way::Says(401, ""), Way::Garbage, Way::Stalled(3)];
    let servers: Vec<Fake> = (0_u8..)
        .zip(ways)
        .map(|(n, way)| Fake::of(&folders.archive(&format!("n{n}"), &[&made(n, 100)]), way))
        .collect();
    let mut places: Vec<String> = servers.iter().map(Fake::url).collect();
    places.push(folders.archive("here", &[&made(9, 11)]).display().to_string());
    let nodes = open(&places);
    let query = query("udp");
    let ask = nodes.ask(&query);
    let count = ask.count().unwrap();
    assert_eq!((count.value.count, count.matched, count.complete), (111, 111, false));
    assert_eq!(count.incomplete.len(), 3);
    assert_eq!(count.nodes.len(), 5);
    let src = fields::for_top("src").unwrap();
    let top = ask.top(&[src], By::Packets, 10).unwrap().value.top.remove(0);
    assert_eq!((top.total, top.distinct), (111, 2));
    let histogram = ask.histogram(SpanLen::AtMost(5)).unwrap();
    assert_eq!(histogram.value.spans.iter().map(|span| span.packets).sum::<u64>(), 111);
    let flows = ask.flows(FlowOrder::Bytes, 3, false).unwrap();
    assert_eq!((flows.value.packets, flows.value.flows.len()), (111, 3));
    assert_eq!(ask.explain().unwrap().value.explain.len(), 2);
    let inventories = nodes.inventories(&Control::default()).unwrap();
    assert_eq!((inventories.value.nodes.len(), inventories.incomplete.len()), (2, 3));
    // If nobody answers, all of them are named.
    let nodes = open(&places[1..3]);
    let error = nodes.ask(&query).count().unwrap_err().to_string();
    assert!(places[1..3].iter().all(|place| error.contains(place)), "{error}");
}

#[test]
fn a_limit_ends_all_of_them() {
    let folders = Folders::new();
    let packets = [made(1, 5_000), made(2, 5_000)];
    let here = folders.archive("a", &[&packets[0]]);
    let server = Fake::of(&folders.archive("b", &[&packets[1]]), Way::Honest);
    let nodes = open(&[here.display().to_string(), server.url()]);
    let query = query("");
    let all = sorted(&packets);
    for limit in [0_u64, 1, 10, 4_999, 9_999, 10_000, 20_000] {
        let mut found = Vec::new();
        let mut each = |packet: Option<tapdex_answers::lines::Packet<'_>>| {
            found.extend(packet.map(|packet| packet.time.0));
            Ok(true)
        };
        let ask = nodes.ask(&query);
        let answer = ask.packets(Some(limit), false, &mut each, &|| false).unwrap();
        let most = usize::try_from(limit).unwrap().min(all.len());
        assert_eq!(found, all[..most], "{limit}");
        assert!(answer.complete && answer.nodes.len() == 2, "{answer:?}");
        assert_eq!(answer.value.stopped, most < all.len(), "{limit}");
        let mut delivery = Delivery::default();
        delivery.limits.packets = Some(limit);
        let mut bytes = Vec::new();
        let answer = ask.capture(&delivery, &mut bytes, &|| false).unwrap();
        assert_eq!((answer.value.packets, answer.value.stopped), (most as u64, most < all.len()));
    }
}

#[test]
fn a_question_can_be_ended() {
    let folders = Folders::new();
    let folder = folders.archive("a", &[&made(1, 2_000)]);
    let servers = [Way::Stalled(0), Way::Stalled(500)].map(|way| Fake::of(&folder, way));
    let places = servers.each_ref().map(Fake::url);
    let long = Options { timeout: Duration::from_secs(600), ..options() };
    let nodes = Nodes::open(&places, &long).unwrap();
    let query = query("udp");
    let started = Instant::now();
    let control = Control::default();
    let ender = {
        let control = control.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            control.cancel();
        })
    };
    let ended = nodes.ask(&query).with_control(&control).count();
    assert!(ended.unwrap_err().is_cancelled());
    ender.join().unwrap();
    let stop = || started.elapsed() > Duration::from_millis(300);
    let mut each = |_: Option<tapdex_answers::lines::Packet<'_>>| Ok(true);
    nodes.ask(&query).packets(None, false, &mut each, &stop).unwrap();
    let one = Nodes::open(&places[1..], &long).unwrap();
    let stop = || started.elapsed() > Duration::from_millis(600);
    one.ask(&query).capture(&Delivery::default(), Vec::new(), &stop).unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[test]
fn packets_go_on_as_they_are_recorded() {
    let folders = Folders::new();
    let packets = [made(1, 100), made(2, 100), made(3, 100)];
    let servers = [("a", 30, &packets[0]), ("b", 7, &packets[1])]
        .map(|(name, live, of)| Fake::of(&folders.archive(name, &[of]), Way::Live(live)));
    let mut places = servers.each_ref().map(Fake::url).to_vec();
    places.push(folders.archive("here", &[&packets[2]]).display().to_string());
    let nodes = open(&places);
    let query = query("udp");
    let found = std::cell::RefCell::new(Vec::new());
    let mut each = |packet: Option<tapdex_answers::lines::Packet<'_>>| {
        found.borrow_mut().extend(packet.map(|packet| packet.time.0));
        Ok(true)
    };
    let started = Instant::now();
    let all = 300 + 30 + 7;
    let is_over = |len: usize| len >= all || started.elapsed() > BOUND;
    let stop = || is_over(found.borrow().len());
    let ask = nodes.ask(&query);
    let answer = ask.packets(None, true, &mut each, &stop).unwrap();
    assert!(answer.complete, "{:?}", answer.incomplete);
    let found = found.into_inner();
    assert_eq!(found.len(), all);
    assert_eq!(found[..300], sorted(&packets));
    // The same as a capture; what is written is known when it is flushed.
    let written = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    struct Shared(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);
    impl std::io::Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let read = |bytes: &[u8]| {
        let mut reader = CaptureReader::open(bytes).unwrap();
        let mut times = Vec::new();
        while let Ok(Some(record)) = reader.next() {
            times.push(record.time_ns);
        }
        times
    };
    let started = Instant::now();
    let stop = || {
        let bytes = written.lock().unwrap();
        !bytes.is_empty() && read(&bytes).len() >= all || started.elapsed() > BOUND
    };
    let delivery = Delivery { follow: true, ..Delivery::default() };
    let target = Shared(std::sync::Arc::clone(&written));
    ask.capture(&delivery, target, &stop).unwrap();
    let times = read(&written.lock().unwrap());
    assert_eq!((times.len(), &times[..300]), (all, sorted(&packets).as_slice()));
}

#[test]
fn tokens_are_sent_to_servers_and_nowhere_else() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heard = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = vec![0; 4096];
        let read = stream.read(&mut head).unwrap();
        stream.write_all(b"HTTP/1.1 401 X\r\nContent-Length: 0\r\n\r\n").unwrap();
        String::from_utf8_lossy(&head[..read]).into_owned()
    });
    let token = Some("tapdex_1_secret".to_owned().into());
    let options = Options {
        credentials: Sources { token, ..Sources::default() },
        reason: Some("ticket 7".to_owned()),
        ..options()
    };
    let nodes = Nodes::open(&[format!("http://{address}")], &options).unwrap();
    let error = nodes.ask(&query("udp")).count().unwrap_err();
    assert!(!format!("{error} {error:?} {nodes:?}").contains("secret"));
    let head = heard.join().unwrap().to_ascii_lowercase();
    assert!(head.contains("authorization: bearer tapdex_1_secret\r\n"), "{head}");
    assert!(head.starts_with("post /api/v1/count http/1.1\r\n"), "{head}");
}

/// Not asked for by anybody, but a path that every node has to survive.
#[test]
fn paths_that_are_not_text_are_folders() {
    use std::os::unix::ffi::OsStrExt;
    let path = Path::new(std::ffi::OsStr::from_bytes(b"https://\xFF"));
    let error = Nodes::open(&[path], &options()).unwrap_err();
    assert!(matches!(error, ClientError::Archive(_)));
}
