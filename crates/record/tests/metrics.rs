//! The page of metrics against the rules of its format, and the server against its clients.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "metrics/parser.rs"]
mod parser;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tapdex_record::metrics::{
    ANSWERS_MAX, CONNECTIONS_MAX, Exposition, HEAD_BYTES_MAX, Histogram, Listening, MetricsServer,
    is_label_name, is_metric_name,
};

mod format {
    use super::*;

    /// A page with all that is hard to write.
    fn page() -> String {
        let histogram = Histogram::new(&[0.1, 0.5, 1.0]);
        for value in [0.05, 0.1, 0.3, 0.7, 20.0, f64::NAN] {
            histogram.observe(value);
        }
        let mut text = Exposition::default();
        let help = "Packets, C:\\ and\nanother line.";
        text.counter("tapdex_a_total", help, &[("iface", "eth0"), ("stage", "kernel")], 7_u64);
        text.gauge("tapdex_ratio", "A share.", &[], 0.25);
        text.counter("tapdex_a_total", help, &[("iface", "a\\b\"c\nd{},= ")], u64::MAX);
        text.gauge("tapdex_edge", "Edges.", &[("of", "up")], f64::INFINITY);
        text.gauge("tapdex_edge", "Edges.", &[("of", "down")], f64::NEG_INFINITY);
        text.gauge("tapdex_edge", "Edges.", &[("of", "none")], f64::NAN);
        text.gauge("tapdex_edge", "Edges.", &[("of", "small")], -1e-300);
        text.histogram("tapdex_build_seconds", "Time.", &[("device", "cpu")], &histogram);
        text.histogram("tapdex_build_seconds", "Time.", &[("device", "gpu")], &Histogram::new(&[]));
        text.finish()
    }

    #[test]
    fn a_page_keeps_the_rules_and_says_what_was_put_in() {
        let families = parser::parse(&page()).unwrap();
        let names: Vec<&str> = families.iter().map(|(name, _)| name.as_str()).collect();
        let expected = ["tapdex_a_total", "tapdex_ratio", "tapdex_edge", "tapdex_build_seconds"];
        assert_eq!(names, expected);
        let (_, first) = &families[0];
        assert_eq!(first.kind, "counter");
        assert_eq!(first.help, "Packets, C:\\ and\nanother line.");
        assert_eq!(first.samples[1].1["iface"], "a\\b\"c\nd{},= ");
        // Not by way of a float, which would round it.
        assert_eq!(first.samples[1].2, u64::MAX.to_string());
        let edges: Vec<f64> =
            families[2].1.samples.iter().map(|edge| parser::number(&edge.2).unwrap()).collect();
        assert_eq!(edges[..2], [f64::INFINITY, f64::NEG_INFINITY]);
        assert!(edges[2].is_nan());
        assert_eq!(edges[3], -1e-300);
    }

    #[test]
    fn a_histogram_counts_up_to_each_bound() {
        let families = parser::parse(&page()).unwrap();
        let (_, histogram) = &families[3];
        let found: Vec<(&str, Option<&str>, &str)> = histogram
            .samples
            .iter()
            .filter(|(_, labels, _)| labels["device"] == "cpu")
            .map(|(name, labels, value)| {
                let ending = name.strip_prefix("tapdex_build_seconds").unwrap();
                (ending, labels.get("le").map(String::as_str), value.as_str())
            })
            .collect();
        // A value on a bound belongs below it.
        let expected = [
            ("_bucket", Some("0.1"), "2"),
            ("_bucket", Some("0.5"), "3"),
            ("_bucket", Some("1"), "4"),
            ("_bucket", Some("+Inf"), "5"),
            ("_sum", None, "21.15"),
            ("_count", None, "5"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn threads_lose_no_observation() {
        let histogram = Histogram::new(&[1.0, 2.0]);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|at| histogram.observe(f64::from(at % 4))));
            }
        });
        assert_eq!((histogram.count(), histogram.sum()), (40_000, 60_000.0));
    }

    #[test]
    fn names_are_as_the_format_has_them() {
        for name in ["a", "_", ":", "tapdex_capture_packets_total", "A9:b"] {
            assert!(is_metric_name(name), "{name}");
        }
        for name in ["", "9a", "a-b", "a b", "a.b", "\u{e4}", "a{", "a\n"] {
            assert!(!is_metric_name(name) && !is_label_name(name), "{name}");
        }
        assert!(is_label_name("iface") && is_label_name("_a9"));
        assert!(!is_label_name("a:b") && !is_label_name("__name__"));
    }

    /// The parser is of use only if it refuses.
    #[test]
    fn the_parser_refuses_what_breaks_the_rules() {
        let head = "# HELP a A.\n# TYPE a gauge\n";
        let buckets = "# HELP h H.\n# TYPE h histogram\n";
        for (text, sound) in [
            (format!("{head}a 1\n"), true),
            (format!("{head}a{{x=\"\\\\\\\"\\n\"}} -1.5e3\n"), true),
            (format!("{head}a 1"), false),
            (format!("{head}a  1\n"), false),
            (format!("{head}a 1\n\n"), false),
            (format!("{head}a inf\n"), false),
            (format!("{head}a 1\na 2\n"), false),
            (format!("{head}b 1\n"), false),
            (format!("{head}{head}a 1\n"), false),
            (format!("{head}a{{x=\"\\t\"}} 1\n"), false),
            (format!("{head}a{{x=\"1\",x=\"2\"}} 1\n"), false),
            (format!("{head}a{{x=\"1\" 1\n"), false),
            (format!("{head}a{{9=\"1\"}} 1\n"), false),
            ("a 1\n".into(), false),
            ("# HELP a A.\na 1\n".into(), false),
            ("# HELP a A.\n# TYPE a counter\na -1\n".into(), false),
            (format!("{buckets}h_bucket{{le=\"+Inf\"}} 2\nh_sum 1\nh_count 2\n"), true),
            (format!("{buckets}h_bucket{{le=\"+Inf\"}} 2\nh_sum 1\nh_count 3\n"), false),
            (format!("{buckets}h_bucket{{le=\"1\"}} 2\nh_sum 1\nh_count 2\n"), false),
            (format!("{buckets}h_sum 1\nh_count 2\n"), false),
            (
                format!(
                    "{buckets}h_bucket{{le=\"1\"}} 3\nh_bucket{{le=\"+Inf\"}} 2\nh_sum 1\n\
                     h_count 2\n"
                ),
                false,
            ),
        ] {
            let result = parser::parse(&text);
            assert_eq!(result.is_ok(), sound, "{text}{result:?}");
        }
    }

    /// The judge of others, where it is installed.
    #[test]
    fn promtool_accepts_the_page() {
        let mut command = Command::new("promtool");
        command.args(["check", "metrics"]).stdin(Stdio::piped());
        let Ok(mut child) = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() else {
            eprintln!("promtool is not installed: passed over");
            return;
        };
        child.stdin.take().unwrap().write_all(page().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        // 3 is for advice on names, which the odd ones of this page ask for.
        let code = output.status.code();
        assert!(code == Some(0) || code == Some(3), "{output:?}");
    }
}

/// No wait of a test is longer; what is reached sooner goes on at once.
const PATIENCE: Duration = Duration::from_secs(120);

fn server() -> MetricsServer {
    server_with(Arc::new(|| "# HELP a A.\n# TYPE a gauge\na 1\n".to_owned()), Arc::new(|| true))
}

fn server_with(
    answer: Arc<dyn Fn() -> String + Send + Sync>,
    ready: Arc<dyn Fn() -> bool + Send + Sync>,
) -> MetricsServer {
    let listening = Listening::at("127.0.0.1:0".parse().unwrap()).unwrap();
    MetricsServer::serve(listening, answer, ready).unwrap()
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// All that comes until the other side closes; a reset is a close.
fn rest(mut stream: &TcpStream) -> Vec<u8> {
    let mut bytes = vec![];
    match stream.read_to_end(&mut bytes) {
        Ok(_) => bytes,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => bytes,
        Err(error) => panic!("{error}"),
    }
}

/// The status, the head and the body of the answer to some bytes.
#[track_caller]
fn ask(address: SocketAddr, request: &[u8]) -> (u16, String, String) {
    let end = Instant::now() + PATIENCE;
    let mut answer = Vec::new();
    // Without a word goes who comes while the places of those before are not free yet, or who is
    // too slow.
    while answer.is_empty() {
        assert!(Instant::now() < end, "no answer: {:?}", String::from_utf8_lossy(request));
        let mut stream = connect(address);
        // Who is refused early may be closed before all is sent.
        let _ = stream.write_all(request);
        answer = rest(&stream);
    }
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    let status = head.strip_prefix("HTTP/1.1 ").unwrap()[..3].parse().unwrap();
    let len: usize = header(head, "Content-Length").unwrap().parse().unwrap();
    assert!(body.is_empty() || body.len() == len, "{head}");
    assert_eq!(header(head, "Connection"), Some("close"));
    (status, head.to_owned(), body.to_owned())
}

#[track_caller]
fn get(address: SocketAddr, path: &str) -> (u16, String, String) {
    ask(address, format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Asks until the server has a place free.
fn wait_until_served(address: SocketAddr) {
    let end = Instant::now() + PATIENCE;
    loop {
        let mut stream = connect(address);
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\n\r\n");
        if rest(&stream).starts_with(b"HTTP/1.1 200 ") {
            return;
        }
        assert!(Instant::now() < end, "no answer any more");
        thread::sleep(Duration::from_millis(20));
    }
}

mod pages {
    use super::*;

    #[test]
    fn each_path_has_its_answer() {
        let ready = Arc::new(AtomicBool::new(false));
        let asked = ready.clone();
        let server = server_with(
            Arc::new(|| "a 1\n".to_owned()),
            Arc::new(move || asked.load(Ordering::Relaxed)),
        );
        let address = server.local_addr();
        assert_ne!(address.port(), 0);
        let (status, head, body) = get(address, "/metrics");
        assert_eq!((status, body.as_str()), (200, "a 1\n"));
        assert_eq!(header(&head, "Content-Type"), Some("text/plain; version=0.0.4"));
        assert_eq!(get(address, "/metrics?name=a").0, 200);
        assert_eq!(get(address, "http://host:1/metrics").2, "a 1\n");
        assert_eq!(get(address, "/healthz").0, 200);
        assert_eq!(get(address, "/readyz").0, 503);
        ready.store(true, Ordering::Relaxed);
        assert_eq!(get(address, "/readyz").0, 200);
        for path in ["/", "/metrics/", "/../metrics", "//metrics", "/Metrics"] {
            assert_eq!(get(address, path).0, 404, "{path}");
        }
    }

    #[test]
    fn head_is_get_without_the_body() {
        let server = server();
        let address = server.local_addr();
        for path in ["/metrics", "/healthz", "/none"] {
            let (status, head, body) = get(address, path);
            assert!(!body.is_empty());
            let request = format!("HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n");
            assert_eq!(ask(address, request.as_bytes()), (status, head, String::new()));
        }
    }

    #[test]
    fn other_methods_are_refused() {
        let server = server();
        let address = server.local_addr();
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"] {
            let request = format!("{method} /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc");
            let (status, head, _) = ask(address, request.as_bytes());
            assert_eq!((status, header(&head, "Allow")), (405, Some("GET, HEAD")));
        }
    }

    #[test]
    fn lines_may_end_in_either_way_and_come_in_pieces() {
        let server = server();
        let address = server.local_addr();
        assert_eq!(ask(address, b"GET /healthz HTTP/1.0\n\n").0, 200);
        let mut stream = connect(address);
        stream.set_nodelay(true).unwrap();
        for byte in b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" {
            stream.write_all(&[*byte]).unwrap();
        }
        assert!(rest(&stream).starts_with(b"HTTP/1.1 200 OK\r\n"));
    }

    #[test]
    fn curl_reads_the_page() {
        let server = server();
        let url = format!("http://{}/metrics", server.local_addr());
        let mut command = Command::new("curl");
        let Ok(output) = command.args(["-sSf", "-m", "60", "--noproxy", "*", &url]).output() else {
            eprintln!("curl is not installed: passed over");
            return;
        };
        assert!(output.status.success(), "{output:?}");
        assert_eq!(parser::parse(&String::from_utf8(output.stdout).unwrap()).unwrap().len(), 1);
    }

    #[test]
    fn an_address_in_use_is_an_error() {
        let server = server();
        let error = Listening::at(server.local_addr()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
    }
}

mod hostile {
    use super::*;

    #[test]
    fn garbage_is_refused() {
        let server = server();
        let address = server.local_addr();
        let requests: [&[u8]; 9] = [
            b"\r\n\r\n",
            b"\0\xff\xfe\n\n",
            b"GET\r\n\r\n",
            b"GET /metrics\r\n\r\n",
            b"GET  /metrics HTTP/1.1\r\n\r\n",
            b"GET /metrics HTTP/2.0\r\n\r\n",
            b"GET /metrics HTTP/1.1 x\r\n\r\n",
            b"get /metrics HTTP/1.1\r\n\r\n",
            b"GET metrics HTTP/1.1\r\n\r\n",
        ];
        for request in requests {
            assert_eq!(ask(address, request).0, 400, "{:?}", String::from_utf8_lossy(request));
        }
        wait_until_served(address);
    }

    #[test]
    fn long_heads_are_refused_at_the_limit() {
        let server = server();
        let address = server.local_addr();
        let of_len = |len: usize| {
            let start = "GET /healthz HTTP/1.1\r\nX: ";
            format!("{start}{}\r\n\r\n", "x".repeat(len - start.len() - 4))
        };
        assert_eq!(ask(address, of_len(HEAD_BYTES_MAX).as_bytes()).0, 200);
        assert_eq!(ask(address, of_len(HEAD_BYTES_MAX + 1).as_bytes()).0, 431);
        assert_eq!(ask(address, of_len(HEAD_BYTES_MAX * 8).as_bytes()).0, 431);
        assert_eq!(ask(address, &vec![b'G'; HEAD_BYTES_MAX * 2]).0, 431);
        assert_eq!(ask(address, "X: y\r\n".repeat(5000).as_bytes()).0, 431);
    }

    /// Connections that say nothing, or too little.
    fn hold(address: SocketAddr, count: usize) -> Vec<TcpStream> {
        let starts: [&[u8]; 3] = [b"", b"GET /metrics HT", b"GET /metrics HTTP/1.1\r\nA: b\r\n"];
        let held = starts.iter().cycle().take(count).map(|start| {
            let mut stream = connect(address);
            stream.write_all(start).unwrap();
            stream
        });
        held.collect()
    }

    /// However many say nothing: who asks is answered, and at the first try.
    #[test]
    fn idle_connections_keep_nobody_from_an_answer() {
        let server = server();
        let address = server.local_addr();
        for count in [8, CONNECTIONS_MAX, 3 * CONNECTIONS_MAX] {
            let held = hold(address, count);
            for _ in 0..3 {
                let mut stream = connect(address);
                stream.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
                assert!(rest(&stream).starts_with(b"HTTP/1.1 200 "), "beside {count}");
            }
            drop(held);
        }
    }

    #[test]
    fn who_says_nothing_is_thrown_out_in_the_end() {
        let server = server();
        let address = server.local_addr();
        let held = hold(address, 8);
        // Bytes that come slowly do not extend the time.
        let mut slow = held[3].try_clone().unwrap();
        let dripping = thread::spawn(move || {
            let end = Instant::now() + PATIENCE;
            while slow.write_all(b"x").is_ok() {
                assert!(Instant::now() < end, "bytes were taken for ever");
                thread::sleep(Duration::from_millis(50));
            }
        });
        for stream in &held {
            assert_eq!(rest(stream), b"");
        }
        wait_until_served(address);
        dripping.join().unwrap();
    }

    /// Clients that ask for a long page and never read it.
    #[test]
    fn who_does_not_read_is_thrown_out() {
        let page = "a 1\n".repeat(1 << 23);
        let server = server_with(Arc::new(move || page.clone()), Arc::new(|| true));
        let address = server.local_addr();
        let mut held: Vec<TcpStream> = (0..2 * ANSWERS_MAX).map(|_| connect(address)).collect();
        for stream in &mut held {
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        }
        let (status, _, _) = get(address, "/healthz");
        assert_eq!(status, 200);
    }

    #[test]
    fn fifty_at_once_get_an_answer_or_are_closed() {
        let server = server();
        let address = server.local_addr();
        let ask = move || {
            let mut stream = connect(address);
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
            rest(&stream)
        };
        let clients: Vec<_> = (0..50).map(|_| thread::spawn(ask)).collect();
        let answers: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        let answered = answers.iter().filter(|answer| !answer.is_empty()).count();
        for answer in answers.iter().filter(|answer| !answer.is_empty()) {
            assert!(answer.starts_with(b"HTTP/1.1 200 ") && answer.ends_with(b"a 1\n"));
        }
        assert!(answered >= 1);
        wait_until_served(address);
    }

    #[test]
    fn a_panic_in_the_answer_costs_no_place() {
        let answer = || -> String { panic!("as the test wants it") };
        let server = server_with(Arc::new(answer), Arc::new(|| true));
        for _ in 0..8 {
            wait_until_served(server.local_addr());
            let mut stream = connect(server.local_addr());
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            assert_eq!(rest(&stream), b"");
        }
        wait_until_served(server.local_addr());
    }

    #[test]
    fn a_stopped_server_lets_go_of_its_port_and_its_clients() {
        let server = server();
        let address = server.local_addr();
        let held: Vec<TcpStream> = (0..8).map(|_| connect(address)).collect();
        // Once another one is answered, all before it were taken.
        wait_until_served(address);
        server.stop();
        for stream in &held {
            assert_eq!(rest(stream), b"");
        }
        let refused = TcpStream::connect_timeout(&address, PATIENCE).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
}
