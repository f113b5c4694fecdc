//! `tapdex token` and `tapdex audit`: the real binary, whole outputs and exit codes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tapdex_server::audit::{Audit, Entry, Question};
use tapdex_server::door::{Door, WhenEmpty};
use tapdex_server::state::State;

const NOW: u64 = 1_800_000_000_000_000_000;

/// A folder for a state folder, and for what commands write.
struct Place(tempfile::TempDir);

#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ended {
    /// What a run printed that went well.
    #[track_caller]
    fn done(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// What a run said that did not go well, in a line.
    #[track_caller]
    fn failed(self, code: i32) -> String {
        assert_eq!((self.code, self.out.as_str()), (Some(code), ""), "{self:?}");
        let text = self.err.strip_prefix("tapdex: ").unwrap().to_owned();
        assert_eq!(text.lines().count(), 1, "{text}");
        text
    }
}

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a line of the shell.
    fn sh(&self, line: &str) -> Ended {
        let bin = Path::new(env!("CARGO_BIN_EXE_tapdex")).parent().unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(&self.0).env("PATH", path);
        let command = command.env("TAPDEX_STATE", "state").env("HOME", self.0.path());
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Runs tapdex with these words.
    fn tapdex(&self, words: &str) -> Ended {
        self.sh(&format!("tapdex {words}"))
    }

    fn state(&self) -> State {
        State::create(&self.path("state")).unwrap()
    }

    /// A log of so many lines.
    fn log(&self, lines: u64) -> PathBuf {
        let audit = Audit::open(&self.state(), NOW).unwrap();
        for n in 0..lines {
            let who = if n % 2 == 0 { "soc" } else { "glue" };
            let question = Question { filter: format!("port {n}"), ..Question::default() };
            let entry = Entry {
                who: who.to_owned(),
                role: Some("extract".to_owned()),
                question: Some(question),
                reason: Some("ticket\u{1b}[31m 17".to_owned()),
                packets: Some(n),
                bytes: Some(100 * n),
                ..Entry::stranger("10.0.0.9:5000".parse().unwrap(), "extract", "done")
            };
            audit.append(&entry, NOW).unwrap();
        }
        self.path("state/audit.jsonl")
    }
}

#[test]
fn a_token_is_printed_once_and_opens_the_door() {
    let place = Place::new();
    let ended = place.tapdex("token add --name soc --role search");
    let told = ended.err.clone();
    let out = ended.done();
    let token = out.strip_suffix('\n').unwrap();
    assert!(!token.contains(char::is_whitespace), "{token}");
    let id = &token[7..15];
    assert!(
        told.starts_with(&format!("tapdex: token {id} of soc, role search, expires 2")),
        "{told}"
    );
    assert!(!told.contains(&token[16..]), "{told}");
    let door = Door::open(&place.state(), WhenEmpty::Locked).unwrap();
    let now = || u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos()).unwrap();
    let peer = "10.0.0.9:5000".parse().unwrap();
    assert_eq!(door.admit(Some(token), None, peer, now()).unwrap().name(), "soc");
    // For 90 days, unless somebody says otherwise.
    let day = 86_400_000_000_000;
    assert!(door.admit(Some(token), None, peer, now() + 89 * day).is_ok());
    assert!(door.admit(Some(token), None, peer, now() + 91 * day).is_err());
    let mode = place.path("state").metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o700);
    let ended = place.tapdex(&format!("token revoke {id}"));
    assert_eq!(ended.err, format!("tapdex: token {id} of soc is revoked\n"));
    assert_eq!(ended.done(), "");
    assert!(door.admit(Some(token), None, peer, now()).is_err());
    let forever = place.tapdex("token add --name x --role admin --expires never").done();
    assert!(door.admit(Some(forever.trim()), None, peer, u64::MAX).is_ok());
}

#[test]
fn tokens_are_listed() {
    let place = Place::new();
    place.tapdex("token add --name 'the soc' --role search").done();
    place.tapdex("token add --name glue --role extract --expires never").done();
    place.tapdex("token add --name old --role extract --expires 0s").done();
    place.tapdex("token revoke glue").done();
    let table = place.tapdex("token list").done();
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows.len(), 4, "{table}");
    let heading: Vec<&str> = rows[0].split_whitespace().collect();
    let names = ["id", "name", "role", "kind", "standing", "created", "expires", "revoked"];
    assert_eq!(heading, names);
    for (row, expected) in rows[1..].iter().zip([
        ["the soc", "search", "valid"],
        ["glue", "extract", "revoked"],
        ["old", "extract", "expired"],
    ]) {
        assert!(expected.iter().all(|cell| row.contains(cell)), "{row}");
    }
    let json = place.tapdex("token list --json").done();
    let values: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(values.len(), 3);
    let of = |n: usize, name: &str| values[n][name].as_str().map(str::to_owned);
    assert_eq!(of(0, "name").unwrap(), "the soc");
    assert_eq!([of(1, "expires"), of(0, "revoked")], [None, None]);
    assert!(of(0, "expires").is_some() && of(1, "revoked").is_some());
    assert_eq!(
        (of(2, "standing").unwrap(), of(2, "kind").unwrap()),
        ("expired".into(), "token".into())
    );
    // Nothing of the secrets, in any form.
    let file = fs::read_to_string(place.path("state/tokens.toml")).unwrap();
    let hash = file.split("sha256:").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(hash.len(), 64);
    assert!(!json.contains(hash) && !table.contains(hash));
}

#[test]
fn a_certificate_takes_the_place_of_a_secret() {
    let place = Place::new();
    let made =
        place.sh("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 \
         -subj /CN=desk -keyout desk.key -out desk.pem 2> /dev/null && \
         openssl x509 -in desk.pem -noout -fingerprint -sha256");
    let printed = made.done();
    let digits = printed.trim().split_once('=').unwrap().1.replace(':', "").to_lowercase();
    let ended = place.tapdex("token add --name desk --role extract --certificate desk.pem");
    assert!(ended.err.ends_with(&format!(": SHA256:{digits}\n")), "{}", ended.err);
    assert_eq!(ended.done(), "");
    let json = place.tapdex("token list --json").done();
    let expected = r#""kind":"certificate","#;
    assert!(json.contains(expected) && json.contains(&format!("SHA256:{digits}")), "{json}");
    let again = place.tapdex("token add --name second --role extract --certificate desk.pem");
    assert!(again.failed(2).contains("known already, as \"desk\""));
    let key = place.tapdex("token add --name key --role extract --certificate desk.key");
    assert!(key.failed(2).contains("desk.key: no certificate in it"));
    let missing = place.tapdex("token add --name none --role extract --certificate none.pem");
    assert!(missing.failed(4).contains("cannot read none.pem"));
}

#[test]
fn what_is_wrong_with_a_token_is_told() {
    let place = Place::new();
    let fails = |words: &str, code: i32, expected: &str| {
        let text = place.tapdex(words).failed(code);
        assert!(text.contains(expected), "{words}: {text}");
    };
    fails("token list", 4, "cannot open the state folder state: No such file");
    fails("token revoke soc", 4, "cannot open the state folder");
    fails("token add --name soc --role boss", 2, "there is no role \"boss\"; there are admin, ext");
    fails("token add --name '' --role search", 2, "is no name for a token");
    fails("token add --name local --role search", 2, "is no name for a token");
    fails("token add --name soc --role search --expires soon", 2, "--expires");
    fails("token add --name soc --role search --expires 999999w", 2, "is too long; write never");
    fails("token revoke soc", 2, "there is no valid token \"soc\"");
    place.tapdex("token add --name soc --role search").done();
    fails("token add --name soc --role search", 2, "there is a token named \"soc\" already");
    let roles = "[role.dmz]\nmay = \"search\"\nfilter = \"net 10.0.0.0/99\"\n";
    fs::write(place.path("state/roles.toml"), roles).unwrap();
    fails("token add --name x --role search", 2, "state/roles.toml, line 3: the filter is not");
    fs::write(place.path("state/roles.toml"), "[role.dmz]\nmay = \"search\"\n").unwrap();
    place.tapdex("token add --name x --role dmz").done();
    let tokens = place.path("state/tokens.toml");
    let good = fs::read(&tokens).unwrap();
    fs::write(&tokens, "[[token]]\nid = 1\n").unwrap();
    for words in ["token list", "token revoke x", "token add --name y --role dmz"] {
        fails(words, 3, "state/tokens.toml, line 2: invalid type");
    }
    fs::remove_file(&tokens).unwrap();
    fails("token add --name y --role dmz", 3, "state/tokens.toml is missing, although there were");
    fs::write(&tokens, good).unwrap();
    fs::set_permissions(place.path("state"), fs::Permissions::from_mode(0o750)).unwrap();
    fails("token list", 2, "state is open to others (mode 750)");
}

#[test]
fn no_command_takes_a_token() {
    let place = Place::new();
    // Not even by mistake is it repeated: what is on a command line is in the history, too.
    let token = place.tapdex("token add --name soc --role search").done();
    let ended = place.tapdex(&format!("token revoke {token}"));
    assert_eq!(ended.code, Some(2));
    for command in ["token", "token add", "token list", "token revoke", "audit", "audit show"] {
        let help = place.tapdex(&format!("{command} --help")).done();
        assert!(!help.contains("--token") && !help.contains("--secret"), "{help}");
    }
}

#[test]
fn the_audit_log_is_verified() {
    let place = Place::new();
    let log = place.log(4);
    let sound = place.tapdex("audit verify").done();
    let lines: Vec<&str> = sound.lines().collect();
    assert_eq!((lines[0], lines.len()), ("sound: 4 lines", 2));
    let last = lines[1].strip_prefix("last: ").unwrap();
    assert!(last.starts_with("4:") && last.len() == 66, "{last}");
    assert_eq!(place.tapdex(&format!("audit verify --has {last}")).done(), sound);
    assert_eq!(place.tapdex("audit verify state/audit.jsonl").done(), sound);
    let text = place.tapdex(&format!("audit verify --has {}", last.replace("4:", "3:"))).failed(3);
    assert!(
        text.contains("line 3 has the hash") && text.contains("the log was replaced"),
        "{text}"
    );
    assert!(place.tapdex(&format!("audit verify --has 9{last}")).failed(3).contains("no line 94"));
    assert!(place.tapdex("audit verify --has x").failed(2).contains("write NUMBER:HASH"));
    let good = fs::read_to_string(&log).unwrap();
    for (text, expected) in [
        (good.replacen("port 2", "port 9", 1), ", line 3: it was edited"),
        (
            good.lines().skip(1).map(|line| format!("{line}\n")).collect(),
            ", line 1: it has number 2",
        ),
        (good.lines().take(3).map(|line| format!("{line}\n")).collect(), ": the end is missing"),
        (String::new(), ": the end is missing: the log had 4 lines and has 0"),
    ] {
        fs::write(&log, text).unwrap();
        let text = place.tapdex("audit verify").failed(3);
        assert!(text.starts_with("state/audit.jsonl") && text.contains(expected), "{text}");
    }
    fs::write(&log, &good).unwrap();
    fs::rename(place.path("state/audit.head"), place.path("head")).unwrap();
    assert!(place.tapdex("audit verify").failed(3).contains("audit.head is missing"));
    fs::rename(place.path("head"), place.path("state/audit.head")).unwrap();
    // What somebody appends is no crash: the server was not about to write anything.
    fs::write(&log, format!("{good}{{\"seq\":5,")).unwrap();
    assert!(place.tapdex("audit verify").failed(3).contains("there is more behind line 4"));
    // A crash is no tampering, but is told.
    let (hash, bytes) = (&last[2..], good.len());
    let (mark, most) = ("ab".repeat(16), bytes + 100);
    let check = format!("printf '%s' '4 {hash} {bytes} {mark} {most}' | sha256sum | cut -c 1-16");
    let check = place.sh(&check).done();
    let end = format!(r#""seq":4,"hash":"{hash}","bytes":{bytes}"#);
    let next = format!(r#""next":["{mark}"],"most":{most}"#);
    let head = format!(r#"{{{end},{next},"check":"{}"}}"#, check.trim());
    fs::write(place.path("state/audit.head"), format!("{head:<511}\n")).unwrap();
    let ended = place.tapdex("audit verify");
    assert!(ended.err.contains("the last line is not complete"), "{}", ended.err);
    assert_eq!(ended.done(), sound);
    drop(Audit::open(&place.state(), NOW).unwrap());
    assert!(place.tapdex("audit verify").done().starts_with("sound: 5 lines, 1 torn by a crash\n"));
    assert!(place.tapdex("audit verify none.jsonl").failed(4).contains("cannot read none"));
}

#[test]
fn the_audit_log_is_shown() {
    let place = Place::new();
    let log = place.log(4);
    let shown = place.tapdex("audit show").done();
    let rows: Vec<&str> = shown.lines().collect();
    assert_eq!(rows.len(), 5, "{shown}");
    let row: Vec<&str> = rows[3].split_whitespace().collect();
    let expected = [
        "3",
        "2027-01-15T08:00:00.000000000Z",
        "soc",
        "extract",
        "10.0.0.9:5000",
        "extract",
        "done",
        "2",
        "200",
        "port",
        "2",
        "ticket\\u{1b}[31m",
        "17",
    ];
    assert_eq!(row, expected);
    let of_soc = place.tapdex("audit show --who soc").done();
    assert_eq!(of_soc.lines().count(), 3);
    assert!(!of_soc.contains("glue"));
    let last = place.tapdex("audit show --who soc -n 1").done();
    assert!(last.lines().count() == 2 && last.contains("port 2"), "{last}");
    let text = fs::read_to_string(&log).unwrap();
    assert_eq!(place.tapdex("audit show --json").done(), text);
    assert!(!text.contains('\u{1b}'));
    let json = place.tapdex("audit show --json -n 2").done();
    assert_eq!(json, text.lines().skip(2).map(|line| format!("{line}\n")).collect::<String>());
    // A long log: the end of it, or all.
    let long = Place::new();
    long.log(105);
    let ended = long.tapdex("audit show");
    assert_eq!(ended.err, "tapdex: 5 lines before these; -n shows more\n");
    assert_eq!(ended.done().lines().count(), 101);
    assert_eq!(long.tapdex("audit show -n 999").done().lines().count(), 106);
    assert_eq!(long.tapdex("audit show --json").done().lines().count(), 105);
    // What somebody has put there is not sent to a terminal as it is.
    fs::write(&log, format!("{text}{{\"who\":\"x\u{9b}31m\"}}\n\u{1b}[2J\n")).unwrap();
    for words in ["audit show", "audit show --json"] {
        let ended = place.tapdex(words);
        assert!(ended.err.contains("1 line left out that cannot be read"), "{}", ended.err);
        assert!(ended.done().chars().all(|letter| letter == '\n' || !letter.is_control()));
    }
}

#[test]
fn the_state_folder_is_where_it_is_said_to_be() {
    let place = Place::new();
    let add = "token add --role search --name";
    place.tapdex(&format!("{add} a --state other")).done();
    place.tapdex(&format!("{add} b")).done();
    place.sh(&format!("unset TAPDEX_STATE XDG_STATE_HOME; tapdex {add} c")).done();
    let xdg = "unset TAPDEX_STATE; XDG_STATE_HOME=$PWD/xdg tapdex";
    place.sh(&format!("{xdg} {add} d")).done();
    for folder in ["other", "state", ".local/state/tapdex", "xdg/tapdex"] {
        assert!(place.path(folder).join("tokens.toml").is_file(), "{folder}");
    }
    let homeless = place.sh("unset TAPDEX_STATE XDG_STATE_HOME HOME; tapdex token list");
    assert!(homeless.failed(2).contains("give --state DIR"));
}

#[test]
fn the_examples_of_the_help_run() {
    let place = Place::new();
    place.log(3);
    place.sh("mkdir copy-of-the-log && cp state/audit.* copy-of-the-log").done();
    let mut shown = 0;
    let commands =
        ["token", "token add", "token list", "token revoke", "audit", "audit verify", "audit show"];
    for command in commands {
        let help = place.tapdex(&format!("{command} --help")).done();
        assert_eq!(place.tapdex(&format!("help {command}")).done(), help);
        let description = help.split("\nUsage:").next().unwrap();
        for example in description.lines().filter_map(|line| line.strip_prefix("    ")) {
            shown += 1;
            place.sh(example).done();
        }
    }
    assert!(shown >= 12, "{shown}");
}
