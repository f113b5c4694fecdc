//! The files of the door: broken, lost and replaced ones, and two processes at once.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod place;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use place::{NOW, Place, far, forged, refused};
use tapdex_server::door::tokens::{NewToken, Presented, Standing, TokenError, Tokens};
use tapdex_server::door::{Door, Refusal, WhenEmpty};
use tapdex_server::state::{State, StateError};

/// Tokens and roles that are no such.
fn broken(good: &str) -> Vec<(&'static str, String)> {
    let replaced = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        good.replacen(from, to, 1)
    };
    let created = good.lines().find(|line| line.starts_with("created")).unwrap();
    let secret = good.lines().find(|line| line.starts_with("secret")).unwrap();
    vec![
        ("no TOML", "[[token]".to_owned()),
        ("cut", good[..good.len() - 30].to_owned()),
        ("another list", format!("{good}\n[[tokens]]\n")),
        ("an unknown setting", replaced("created", "valid = true\ncreated")),
        ("a time that moves", replaced(created, "created = \"now\"")),
        ("an expiry that moves", format!("{good}expires = \"-1h\"\n")),
        ("an expiry in words", format!("{good}expires = \"never\"\n")),
        ("revoked in words", format!("{good}revoked = false\n")),
        ("no name", replaced("name = \"soc\"", "name = \"\"")),
        ("the name of an open door", replaced("name = \"soc\"", "name = \"local\"")),
        ("no secret", replaced(secret, "")),
        ("a short secret", replaced(secret, "secret = \"sha256:00\"")),
        ("another hash", replaced("sha256:", "md5:")),
        ("both keys", format!("{good}certificate = \"SHA256:{}\"\n", "0".repeat(64))),
        ("twice", format!("{good}\n{good}")),
        ("not text", "\0\u{1}".to_owned()),
        ("too long", format!("{good}#{}", " ".repeat(5 << 20))),
    ]
}

#[test]
fn tokens_that_cannot_be_understood_close_the_door() {
    let place = Place::new();
    let (_, token) = place.add("soc", "search");
    let good = fs::read_to_string(place.path("tokens.toml")).unwrap();
    let door = place.door();
    let admits = || door.admit(Some(&token), None, far(), NOW);
    assert!(admits().is_ok());
    for (what, text) in broken(&good) {
        place.write("tokens.toml", text);
        for bearer in [Some(token.as_str()), None] {
            let refusal = refused(&door, bearer, NOW);
            assert_eq!((refusal.status(), bearer), (503, bearer), "{what}: {refusal}");
            let path = place.path("tokens.toml");
            assert!(refusal.to_string().contains(path.to_str().unwrap()), "{what}: {refusal}");
        }
        assert!(Door::open(&place.state, WhenEmpty::Open).is_err(), "{what}");
        // Nor does a command write over what it does not understand.
        let new = NewToken { name: "new", role: "admin", certificate: None, expires_ns: None };
        assert!(Tokens::add(&place.state, &new, NOW).is_err(), "{what}");
        assert!(Tokens::revoke(&place.state, "soc", NOW).is_err(), "{what}");
        place.write("tokens.toml", &good);
        assert!(admits().is_ok(), "{what}");
    }
}

#[test]
fn roles_that_cannot_be_understood_close_the_door() {
    let place = Place::new();
    let (_, token) = place.add("soc", "search");
    let door = place.door();
    place.write("roles.toml", "[role.dmz]\nmay = 'search'\nfilter = 'net 10.2.0.0/33'\n");
    let refusal = refused(&door, Some(&token), NOW);
    assert_eq!(refusal.status(), 503);
    assert!(refusal.to_string().contains("roles.toml, line 3: the filter"), "{refusal}");
    assert!(Door::open(&place.state, WhenEmpty::Open).is_err());
    place.write("roles.toml", "# none\n");
    assert!(door.admit(Some(&token), None, far(), NOW).is_ok());
}

#[test]
fn links_and_what_is_no_file_close_the_door() {
    let place = Place::new();
    let (_, token) = place.add("soc", "search");
    let door = place.door();
    let path = place.path("tokens.toml");
    let kept = place.folder.path().join("kept");
    fs::rename(&path, &kept).unwrap();
    let closed = |what: &str| {
        let refusal = refused(&door, Some(&token), NOW);
        assert!(matches!(refusal, Refusal::Closed(_)), "{what}: {refusal}");
        assert!(Door::open(&place.state, WhenEmpty::Open).is_err(), "{what}");
    };
    symlink(&kept, &path).unwrap();
    closed("a link to the very file");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    closed("a folder");
    fs::remove_dir(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    closed("a FIFO");
    fs::remove_file(&path).unwrap();
    symlink("/dev/null", &path).unwrap();
    closed("a link to a device");
    fs::remove_file(&path).unwrap();
    fs::rename(&kept, &path).unwrap();
    assert!(door.admit(Some(&token), None, far(), NOW).is_ok());
    // A file that others may write says nothing about who may come in.
    for mode in [0o620, 0o602, 0o666] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        closed("a file that others may write");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(door.admit(Some(&token), None, far(), NOW).is_ok());
}

#[test]
fn links_in_the_state_folder_are_not_written_through() {
    let place = Place::new();
    let precious = place.folder.path().join("precious");
    for name in [".tokens.toml.tmp", ".tokens.toml.lock"] {
        fs::write(&precious, "precious").unwrap();
        place.state.remove(name).unwrap();
        symlink(&precious, place.path(name)).unwrap();
        let new = NewToken { name: "soc", role: "search", certificate: None, expires_ns: None };
        assert!(Tokens::add(&place.state, &new, NOW).is_err(), "{name}");
        assert_eq!(fs::read(&precious).unwrap(), b"precious", "{name}");
        fs::remove_file(place.path(name)).unwrap();
    }
    symlink(place.folder.path(), place.path("tls")).unwrap();
    assert!(place.state.folder("tls").is_err());
    place.add("soc", "search");
}

#[test]
fn the_state_is_its_owners_alone() {
    let place = Place::new();
    place.add("soc", "search");
    place.write("roles.toml", "");
    place.state.folder("tls").unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(place.state.path()), 0o700);
    let mut files = 0;
    for entry in place.state.path().read_dir().unwrap() {
        let path = entry.unwrap().path();
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&path), expected, "{path:?}");
        files += 1;
    }
    assert!(files >= 5, "{files}");
    for wrong in [0o755, 0o710, 0o701, 0o770] {
        fs::set_permissions(place.state.path(), fs::Permissions::from_mode(wrong)).unwrap();
        for open in [State::open, State::create] {
            let error = open(place.state.path()).unwrap_err();
            assert!(matches!(error, StateError::Open { .. }), "{error}");
            assert!(error.to_string().contains("chmod 700"), "{error}");
        }
    }
}

#[test]
fn a_secret_is_nowhere_but_in_its_token() {
    let place = Place::new();
    let (id, token) = place.add("soc", "search");
    let secret = token.rsplit_once('_').unwrap().1;
    for entry in place.state.path().read_dir().unwrap() {
        let text = fs::read(entry.unwrap().path()).unwrap();
        assert!(!String::from_utf8_lossy(&text).contains(&secret[..16]));
    }
    let presented = Presented::parse(&token).unwrap();
    assert_eq!(format!("{presented:?}"), format!("tapdex_{id}_.."));
    let door = place.door();
    let identity = door.admit(Some(&token), None, far(), NOW).unwrap();
    let refusal = refused(&door, Some(&forged(&token)), NOW);
    let texts = [format!("{identity:?}{door:?}"), format!("{refusal:?}{refusal}")];
    assert!(texts.iter().all(|text| !text.contains(&secret[..16])));
    // 256 bits that do not repeat.
    assert_eq!(secret.len(), 64);
    let tokens: BTreeSet<_> = (0..50).map(|n| place.add(&format!("n{n}"), "search").1).collect();
    let secrets: BTreeSet<_> = tokens.iter().map(|t| t.rsplit_once('_').unwrap().1).collect();
    assert_eq!((tokens.len(), secrets.len()), (50, 50));
}

#[test]
fn names_are_checked_and_can_be_used_again() {
    let place = Place::new();
    let add = |name: &str, expires_ns| {
        let new = NewToken { name, role: "search", certificate: None, expires_ns };
        Tokens::add(&place.state, &new, NOW)
    };
    let long = "n".repeat(65);
    for name in ["", " ", "a\nb", "a\u{1b}[2J", "a\u{9b}", " a", "local", &long] {
        assert!(matches!(add(name, None), Err(TokenError::Name(_))), "{name:?}");
    }
    add("soc", None).unwrap();
    assert!(matches!(add("soc", None), Err(TokenError::Taken(_))));
    let revoke = |which: &str| Tokens::revoke(&place.state, which, NOW + 1);
    assert_eq!(revoke("soc").unwrap().revoked_ns, Some(NOW + 1));
    assert!(matches!(revoke("soc"), Err(TokenError::Unknown(_))));
    add("soc", Some(NOW)).unwrap();
    add("soc", None).unwrap();
    // The one that is valid, not the one that has expired.
    let revoked = revoke("soc").unwrap();
    assert_eq!((revoked.expires_ns, revoked.standing(NOW)), (None, Standing::Revoked));
    assert_eq!(Tokens::read(&place.state).unwrap().iter().count(), 3);
}

#[test]
fn tokens_that_would_be_too_many_are_not_written() {
    let place = Place::new();
    let (_, token) = place.add("soc", "search");
    let mut text = fs::read_to_string(place.path("tokens.toml")).unwrap();
    let entry = text.split_once("[[token]]").unwrap().1.to_owned();
    let id = entry.split('"').nth(1).unwrap().to_owned();
    let most = (4 << 20) - 40;
    for n in 0.. {
        let more = entry.replacen(&id, &format!("{n:08}"), 1);
        if text.len() + more.len() + 9 > most {
            break;
        }
        text.push_str("[[token]]");
        text.push_str(&more);
    }
    place.write("tokens.toml", &text);
    let door = place.door();
    let new = NewToken { name: "one more", role: "search", certificate: None, expires_ns: None };
    assert!(matches!(Tokens::add(&place.state, &new, NOW), Err(TokenError::Full { .. })));
    assert_eq!(fs::read_to_string(place.path("tokens.toml")).unwrap(), text);
    assert!(door.admit(Some(&token), None, far(), NOW).is_ok());
}

#[test]
fn what_root_writes_belongs_to_the_owner_of_the_folder() {
    let place = Place::new();
    let owner = 65_534;
    if std::os::unix::fs::chown(place.state.path(), Some(owner), Some(owner)).is_err() {
        return eprintln!("not tried: only root can give a folder away");
    }
    let state = State::open(place.state.path()).unwrap();
    let new = NewToken { name: "soc", role: "search", certificate: None, expires_ns: None };
    Tokens::add(&state, &new, NOW).unwrap();
    drop(tapdex_server::audit::Audit::open(&state, NOW).unwrap());
    state.folder("tls").unwrap().write("file", b"").unwrap();
    let mut folders = vec![place.state.path().to_owned()];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().unwrap() {
            let path = entry.unwrap().path();
            let found = path.metadata().unwrap();
            assert_eq!((found.uid(), found.gid()), (owner, owner), "{path:?}");
            seen += 1;
            if found.is_dir() {
                folders.push(path);
            }
        }
    }
    assert!(seen >= 8, "{seen}");
    // A file of a third user is nobody's word.
    std::os::unix::fs::chown(place.path("tokens.toml"), Some(owner - 1), None).unwrap();
    let error = Tokens::read(&state).unwrap_err();
    assert!(error.to_string().contains("belongs to another user"), "{error}");
}

/// How many tokens a process adds.
const ADDED: usize = 25;

#[test]
fn several_processes_lose_nothing() {
    const NAME: &str = "several_processes_lose_nothing";
    let add = |state: &State, who: &str| {
        for n in 0..ADDED {
            let name = format!("{who} {n}");
            let new = NewToken { name: &name, role: "search", certificate: None, expires_ns: None };
            Tokens::add(state, &new, NOW).unwrap();
            if n % 2 == 0 {
                Tokens::revoke(state, &name, NOW).unwrap();
            }
        }
    };
    // The other processes are this test again.
    if let (Ok(path), Ok(who)) = (std::env::var("TEST_STATE"), std::env::var("TEST_WHO")) {
        return add(&State::open(Path::new(&path)).unwrap(), &who);
    }
    let place = Place::new();
    let others: Vec<_> = ["a", "b", "c"]
        .map(|who| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", NAME, "--test-threads=1", "--quiet"])
                .env("TEST_STATE", place.state.path())
                .env("TEST_WHO", who)
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap()
        })
        .into();
    add(&place.state, "d");
    for mut other in others {
        assert!(other.wait().unwrap().success());
    }
    let tokens = Tokens::read(&place.state).unwrap();
    let names: BTreeSet<_> = tokens.iter().map(|token| token.name.clone()).collect();
    assert_eq!((tokens.iter().count(), names.len()), (4 * ADDED, 4 * ADDED));
    let revoked = tokens.iter().filter(|token| token.revoked_ns.is_some()).count();
    assert_eq!(revoked, 4 * ADDED.div_ceil(2));
}
