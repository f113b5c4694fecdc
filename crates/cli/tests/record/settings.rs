//! What a recorder is told: by options, by a file, by signals; as whom it runs, and what it tells.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;

use crate::net::{WAIT_MAX, comes, root, until};
use crate::wire::{Recorder, TAPDEX, Wire};

#[test]
fn what_is_missing_or_wrong_is_said() {
    let Some(wire) = Wire::new() else { return };
    let none = "no interface: give one with -i; tapdex record -D lists them";
    wire.run("record").with(2, &[none]);
    let there = ["there is no interface nosuch; there are: ", "v0", "v1", "lo", "any"];
    wire.run("record -i nosuch").with(2, &there);
    wire.run("record -i v1 -i nosuch").with(2, &there);
    wire.run("record -i v1 -f 'udp prot 53'").with(2, &["\"udp prot 53\"", "v1", "syntax error"]);
    wire.run("record -i v1 --rotate 5parsecs").with(2, &["--rotate", "5parsecs", "1GiB,15min"]);
    wire.run("record -i v1 --limit much").with(2, &["--limit", "much"]);
    wire.run("record -i v1 --limit 80").with(2, &["--limit", "80%"]);
    wire.run("record -i v1 --buffer 65536").with(2, &["--buffer", "64MiB"]);
    wire.run("record -i v1 --buffer 2GiB").with(2, &["2 GiB"]);
    wire.run("record -i v1 --rotate 60").with(2, &["--rotate", "15min"]);
    wire.run("record -i v1 port 53").with(2, &["-f 'port 53'"]);
    wire.run("record -i v1 --buffer x").with(2, &["--buffer", "64MiB"]);
    wire.run("record -i v1 --metrics here").with(2, &["--metrics 'here'", "127.0.0.1:9740"]);
    wire.run("record -i v1 --user no-such-user").with(2, &["there is no user \"no-such-user\""]);
    wire.run("record -i - -i -").with(2, &["standard input is given twice"]);
    wire.run("record -i v1 --config none.toml").with(4, &["cannot read none.toml"]);
    wire.space.inside("ip link set v1 down");
    wire.run("record -i v1").with(4, &["cannot capture on v1: ", "not up"]);
    // None of it has left anything.
    assert!(!wire.path("tapdex-archive").exists());
    let listed = wire.sh("tapdex record -D");
    for name in ["v0", "v1", "lo", "any"] {
        assert!(listed.lines().any(|line| line == name), "{listed}");
    }
}

#[test]
fn a_file_has_the_settings_and_options_win() {
    let Some(wire) = Wire::new() else { return };
    wire.sh("tapdex gen -c 2000 --mean-len 200 --vlan 0 -w sent.pcap");
    let all = "interfaces = ['v1']\narchive = 'archive'\nfilter = 'udp'\nsnaplen = 80\n\
               promiscuous = false\nbuffer = '8MiB'\nqueue = '8MiB'\nrotate = '1GiB,500packets'\n\
               limit = ['100%', '1GiB']\nmax-age = '30d'\nmax-segments = 1000\nuser = 'root'\n\
               metrics = '127.0.0.1:0'\ndevice = 'cpu'\nthreads = 1\n";
    std::fs::write(wire.path("all.toml"), all).unwrap();
    let udp = wire.frames("sent.pcap", "udp").count() as u64;
    let tcp = wire.frames("sent.pcap", "tcp").count() as u64;
    assert!(udp > 100 && tcp > 100);
    let mut recorder = Recorder::start(&wire, "record --config all.toml");
    recorder.says("tapdex: recording v1 into archive");
    recorder.says("tapdex: metrics at http://127.0.0.1:");
    let is_recorded = |all: u64| {
        let came = wire.send("--file sent.pcap --pps 10000");
        // Of those that did not come nobody knows which they were.
        let least = all.saturating_sub(came.missing);
        until(&format!("{least} to {all} packets"), || wire.settled() >= least);
        least..=all
    };
    let udp = is_recorded(udp);
    recorder.stop();
    assert!(udp.contains(&wire.count("")), "{udp:?}");
    assert!(wire.recorded().all(|(data, len)| data.len() == 80.min(len as usize)));
    let files = wire.sealed().len();
    // Filter and length are what the options say, all else is as in the file.
    let mut recorder = Recorder::start(&wire, "record --config all.toml -f tcp -s 0");
    recorder.says("tapdex: recording v1 into archive");
    let tcp = is_recorded(tcp);
    recorder.stop();
    let counts = (wire.count("udp"), wire.count("tcp"));
    assert!(udp.contains(&counts.0) && tcp.contains(&counts.1), "{counts:?}: {udp:?}, {tcp:?}");
    assert_eq!(wire.count(""), counts.0 + counts.1);
    assert!(wire.sealed().len() > files);
    wire.sh("tapdex extract -r archive --allow-incomplete -w tcp.pcapng tcp");
    assert!(wire.frames("tcp.pcapng", "").all(|(data, len)| data.len() == len as usize));

    std::fs::write(wire.path("bad.toml"), "interfaces = ['v1']\n\nsnaplan = 80\n").unwrap();
    wire.run("record --config bad.toml").with(2, &["bad.toml", "line 3", "`snaplan`"]);
    std::fs::write(wire.path("bad.toml"), "interfaces = 'v1'\n").unwrap();
    wire.run("record --config bad.toml").with(2, &["bad.toml", "line 1", "interfaces"]);
    std::fs::write(wire.path("bad.toml"), "interfaces = [\n").unwrap();
    wire.run("record --config bad.toml").with(2, &["bad.toml", "line "]);
}

#[test]
fn signals_rotate_and_end_it() {
    let Some(wire) = Wire::new() else { return };
    wire.sh("tapdex gen -c 500 --mean-len 200 -w sent.pcap");
    let mut packets = 0;
    for (run, signal) in ["TERM", "INT"].into_iter().enumerate() {
        let mut recorder = wire.record("-i v1");
        let mut of_run = 0;
        for part in 1..4 {
            of_run += wire.send("--file sent.pcap --pps 10000").packets;
            wire.settles(of_run);
            recorder.signal("HUP");
            let files = 3 * run + part;
            until(&format!("{files} complete files"), || wire.sealed().len() == files);
        }
        packets += of_run;
        // With nothing to be closed there is no other file.
        recorder.signal("HUP");
        recorder.signal(signal);
        let ended = recorder.wait();
        let recorded = format!("tapdex: recorded {of_run} packets");
        ended.with(0, &[&recorded, "3 recordings, all indexed", "lost 0"]);
        assert_eq!(wire.unfinished(), [""; 0]);
        assert_eq!((wire.sealed().len(), wire.count("")), (3 * run + 3, packets));
    }
    let indexes = wire.path("archive/segments").read_dir().unwrap().count();
    assert_eq!(indexes, 6);
    wire.sh("tapdex verify -r archive --allow-incomplete");
}

#[test]
fn more_signals_do_not_do_harm() {
    let Some(wire) = Wire::new() else { return };
    wire.sh("tapdex gen -c 50000 --mean-len 100 -w sent.pcap");
    let mut recorder = wire.record("-i v1");
    let sent = wire.send("--file sent.pcap --pps 50000").packets;
    wire.settles(sent);
    recorder.signal("TERM");
    // It may have ended by now.
    root(&format!("kill -TERM {}", recorder.pid()));
    recorder.wait().with(0, &[&format!("tapdex: recorded {sent} packets")]);
    assert_eq!(wire.unfinished(), [""; 0]);
    assert_eq!(wire.count(""), sent);
    // Stopped at once, with nothing recorded: no file, and no harm to those that are there.
    for _ in 0..3 {
        wire.record("-i v1").stop();
    }
    assert_eq!((wire.sealed().len(), wire.count("")), (1, sent));
}

#[test]
fn an_archive_has_one_recorder() {
    let Some(wire) = Wire::new() else { return };
    let recorder = wire.record("-i v1");
    until("a status", || wire.status().is_some());
    let busy = format!("archive is being recorded into already, by process {}", recorder.pid());
    let ended = wire.run("record -i v1 -w archive");
    assert_ne!(ended.code, Some(0));
    assert!(ended.err.contains(&busy), "{}", ended.err);
    recorder.stop();
    wire.record("-i v1").stop();
}

#[test]
fn it_ends_by_itself_when_it_was_asked_to() {
    let Some(wire) = Wire::new() else { return };
    // More than it is to take.
    wire.sh("tapdex gen -c 4000 --mean-len 100 -w sent.pcap");
    let mut recorder = wire.record("-i v1 -c 2000");
    wire.send("--file sent.pcap --pps 10000");
    recorder.wait().with(0, &["tapdex: recorded 2000 packets"]);
    let mut recorder = wire.record("-i v1 --duration 1s");
    recorder.wait().with(0, &["tapdex: recorded 0 packets"]);
}

/// Whoever may not capture is told how to.
#[test]
fn without_permission_it_exits_with_5() {
    let Some(wire) = Wire::new() else { return };
    let without = "setpriv --bounding-set=-net_raw --inh-caps=-net_raw --";
    if !root(&format!("{without} true")) {
        eprintln!("passed over: no way to give up a capability here");
        return;
    }
    let said = wire.sh(&format!("{without} tapdex record -i v1 2>&1; test $? = 5"));
    assert!(said.contains("tapdex: no permission to capture on v1: be root, or "), "{said}");
    assert!(!wire.path("tapdex-archive").exists());
}

/// The value of a line of `/proc/PID/status`.
fn of_process(recorder: &Recorder, name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{}/status", recorder.pid())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn another_user_records() {
    let Some(wire) = Wire::new() else { return };
    if !root("id nobody") {
        eprintln!("passed over: there is no user nobody");
        return;
    }
    wire.sh("tapdex gen -c 3000 --mean-len 200 -w sent.pcap");
    // The folder of the test is root's alone, as folders of tests are.
    wire.sh("chmod 711 .");
    let mut recorder = wire.record("-i v1 --user nobody --rotate 1000packets");
    let uid = wire.sh("id -u nobody").trim().to_owned();
    let gid = wire.sh("id -g nobody").trim().to_owned();
    assert_eq!(of_process(&recorder, "Uid"), [uid.as_str(); 4].join(" "));
    assert_eq!(of_process(&recorder, "Gid"), [gid.as_str(); 4].join(" "));
    // CAP_NET_RAW is number 13.
    for set in ["CapPrm", "CapEff"] {
        assert_eq!(of_process(&recorder, set), format!("{:016x}", 1 << 13), "{set}");
    }
    for set in ["CapInh", "CapAmb"] {
        assert_eq!(of_process(&recorder, set), "0000000000000000", "{set}");
    }
    assert_eq!(of_process(&recorder, "NoNewPrivs"), "1");
    let first = wire.send("--file sent.pcap --pps 10000").packets;
    wire.settles(first);
    // What it is allowed to is enough to open an interface that was gone.
    wire.space.inside("ip link del v1");
    recorder.says("v1 gives no more packets");
    wire.space.cable("v0", "v1");
    recorder.says("v1 is back");
    let all = first + wire.send("--file sent.pcap --pps 10000").packets;
    wire.settles(all);
    recorder.stop();
    assert_eq!(wire.count(""), all);
    let mut owners = String::new();
    for folder in ["archive", "archive/packets", "archive/segments"] {
        let entries = wire.path(folder).read_dir().unwrap();
        let paths = entries.map(|entry| entry.unwrap().path()).chain([wire.path(folder)]);
        for path in paths {
            let data = path.symlink_metadata().unwrap();
            if data.uid().to_string() != uid || data.gid().to_string() != gid {
                writeln!(owners, "{}: {} {}", path.display(), data.uid(), data.gid()).unwrap();
            }
        }
    }
    assert_eq!(owners, "");
}

/// What an HTTP server answers: the status line and the body.
#[track_caller]
fn get(wire: &Wire, address: &str, path: &str) -> (String, String) {
    let mut answer = None;
    // Who comes while all places are taken is sent away without a word.
    until(&format!("an answer from {address}{path}"), || {
        answer = get_once(wire, address, path);
        answer.is_some()
    });
    answer.unwrap()
}

fn get_once(wire: &Wire, address: &str, path: &str) -> Option<(String, String)> {
    // The address is in the network of the test; a shell there hands the bytes on.
    let mut ask = wire.space.command(std::env::current_exe().unwrap());
    let ask = ask.args(["--exact", "settings::ask_a_server", "--nocapture"]);
    let ask = ask.env("TAPDEX_TEST_ASK", format!("{address} {path}"));
    let output = ask.output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let answer = out.split_once(ANSWER).unwrap_or_else(|| panic!("{out}")).1;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let body = body.split(ANSWER).next().unwrap();
    Some((head.lines().next().unwrap().to_owned(), body.to_owned()))
}

const ANSWER: &str = "--- answer ---";

/// No test: run by [`get`] inside of a network.
#[test]
fn ask_a_server() {
    let Ok(what) = std::env::var("TAPDEX_TEST_ASK") else { return };
    let (address, path) = what.split_once(' ').unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
    // Either fails where the server has closed the connection: then there is no answer.
    let _ = write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    println!("{ANSWER}{answer}{ANSWER}");
}

#[test]
fn prometheus_gets_the_counts() {
    let Some(wire) = Wire::new() else { return };
    wire.space.inside("ip link set lo up");
    wire.sh("tapdex gen -c 20000 --mean-len 200 -w sent.pcap");
    let mut recorder = wire.record("-i v1 --metrics 127.0.0.1:0 --rotate 6000packets");
    recorder.says("tapdex: metrics at http://");
    let said = recorder.said();
    let address = said.split_once("http://").unwrap().1.split('/').next().unwrap().to_owned();
    until("that it is ready", || get(&wire, &address, "/readyz").0 == "HTTP/1.1 200 OK");
    assert_eq!(get(&wire, &address, "/healthz").0, "HTTP/1.1 200 OK");
    assert_eq!(get(&wire, &address, "/other").0, "HTTP/1.1 404 Not Found");
    let came = wire.send("--file sent.pcap --pps 20000");
    wire.settles(came.packets);
    let mut page = String::new();
    let sample = |page: &str, name: &str| -> Option<f64> {
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map(|value| value.parse().unwrap())
    };
    let on_disk = |folder: &str| -> f64 {
        let files = wire.path(folder).read_dir().unwrap();
        // One may get its name in the meantime.
        files.filter_map(|entry| Some(entry.unwrap().metadata().ok()?.len() as f64)).sum()
    };
    let stored = "tapdex_capture_packets_total{iface=\"v1\"}";
    // Parts of the page are up to a second old: it is looked at when it has come to rest.
    comes(|| {
        page = get(&wire, &address, "/metrics").1;
        let sealed = wire.sealed().len() as f64;
        let bytes = |kind: &str| sample(&page, &format!("tapdex_storage_bytes{{kind=\"{kind}\"}}"));
        sample(&page, stored) == Some(came.packets as f64)
            && sample(&page, "tapdex_index_build_seconds_count") == Some(sealed)
            && sample(&page, "tapdex_storage_segments") == Some(sealed + 1.0)
            && sample(&page, "tapdex_index_waiting_segments") == Some(0.0)
            && bytes("packets") == Some(on_disk("archive/packets"))
            && bytes("index") == Some(on_disk("archive/segments"))
    });
    let files = wire.sealed();
    assert!(files.len() >= 2, "{files:?}");
    let indexed =
        files.iter().map(|file| wire.frames(&format!("archive/packets/{file}"), "").count() as u64);
    let (indexed, files) = (indexed.sum(), files.len() as u64);
    let lost =
        |stage| format!("tapdex_capture_dropped_packets_total{{iface=\"v1\",stage=\"{stage}\"}}");
    for (name, value) in [
        (stored.to_owned(), came.packets),
        ("tapdex_capture_bytes_total{iface=\"v1\"}".to_owned(), came.bytes),
        ("tapdex_capture_received_packets_total{iface=\"v1\"}".to_owned(), came.packets),
        (lost("nic"), 0),
        (lost("kernel"), 0),
        (lost("writer"), 0),
        (lost("indexer"), 0),
        ("tapdex_storage_segments".to_owned(), files + 1),
        ("tapdex_index_build_seconds_count".to_owned(), files),
        ("tapdex_index_waiting_segments".to_owned(), 0),
        ("tapdex_index_records_total{device=\"cpu\"}".to_owned(), indexed),
        ("tapdex_capture_up{iface=\"v1\"}".to_owned(), 1),
    ] {
        #[allow(clippy::cast_precision_loss, reason = "small numbers")]
        let value = value as f64;
        assert_eq!(sample(&page, &name), Some(value), "{name}: {page}");
    }
    for name in [
        "tapdex_capture_last_packet_timestamp_seconds",
        "tapdex_ring_fill_ratio{iface=\"v1\"}",
        "tapdex_writer_bytes_total",
        "tapdex_index_lag_seconds",
        "tapdex_index_bytes{field=\"row map\",codec=\"none\"}",
        "tapdex_storage_free_bytes{disk=\"archive\"}",
        "tapdex_storage_oldest_packet_timestamp_seconds",
        "tapdex_retention_deleted_segments_total{reason=\"age\"}",
    ] {
        assert!(sample(&page, name).is_some(), "{name}: {page}");
    }
    assert!(page.contains("tapdex_build_info{version="));
    // That which is open counts, too.
    let packets = sample(&page, "tapdex_storage_bytes{kind=\"packets\"}");
    assert_eq!(packets, Some(on_disk("archive/packets")));
    let index = on_disk("archive/segments");
    assert_eq!(sample(&page, "tapdex_storage_bytes{kind=\"index\"}"), Some(index));
    let by_field = page.lines().filter_map(|line| line.strip_prefix("tapdex_index_bytes{"));
    let by_field = by_field.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap());
    assert_eq!(by_field.sum::<f64>(), index);
    recorder.stop();
    assert_eq!(wire.status().unwrap().run.packets, came.packets);
    // What was in use is free again, and a place that is taken is an error.
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = busy.local_addr().unwrap();
    let said = std::process::Command::new(TAPDEX)
        .args(["record", "-i", "-", "-w"])
        .arg(wire.path("other"))
        .args(["--metrics", &address.to_string()])
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert_eq!(said.status.code(), Some(4));
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains(&format!("cannot listen on {address}")), "{said}");
}
