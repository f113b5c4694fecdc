//! The door: who comes in and who does not, and what a role may ask.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod place;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use place::{MINUTE, NOW, Place, SECOND, far, near};
use proptest::prelude::*;
use tapdex_engine::capture::{CaptureReader, CaptureWriter, FileFormat, Interface};
use tapdex_engine::packet::Headers;
use tapdex_engine::query::Query;
use tapdex_engine::query::filter::Filter;
use tapdex_engine::time::TimeRange;
use tapdex_engine::traffic::{Profile, Traffic};
use tapdex_server::door::roles::{ForceError, May, RoleMistake, Roles};
use tapdex_server::door::tokens::{NewToken, Presented, Standing, TokenError, Tokens};
use tapdex_server::door::{Door, DoorError, Refusal, WhenEmpty, read_roles};
use tapdex_server::state::{State, StateError};
use tapdex_server::tls::Fingerprint;

impl Place {
    fn door(&self) -> Door {
        Door::open(&self.state, WhenEmpty::Locked).unwrap()
    }
}

/// The refusal of a request from another machine.
#[track_caller]
fn refused(door: &Door, bearer: Option<&str>, now: u64) -> Refusal {
    door.admit(bearer, None, far(), now).unwrap_err()
}

/// The token with another last digit.
fn forged(token: &str) -> String {
    let (rest, last) = token.split_at(token.len() - 1);
    format!("{rest}{}", if last == "0" { "1" } else { "0" })
}

#[test]
fn whoever_has_a_token_comes_in_with_its_name_and_role() {
    let place = Place::new();
    let (id, token) = place.add("soc", "search");
    let (_, other) = place.add("glue", "extract");
    let door = place.door();
    let identity = door.admit(Some(&token), None, far(), NOW).unwrap();
    assert_eq!((identity.name(), identity.token(), identity.peer()), ("soc", Some(id), far()));
    assert_eq!((identity.role().name(), identity.role().may()), ("search", May::Search));
    let identity = door.admit(Some(&format!(" {other} ")), None, near(), NOW).unwrap();
    assert_eq!((identity.name(), identity.role().may()), ("glue", May::Extract));
}

#[test]
fn a_client_is_told_the_same_whatever_is_wrong_with_its_token() {
    let place = Place::new();
    let (_, token) = place.add("soc", "search");
    let (_, expiring) = place.add_until("short", "search", Some(NOW + SECOND));
    let (_, gone) = place.add("gone", "search");
    Tokens::revoke(&place.state, "gone", NOW).unwrap();
    let door = place.door();
    assert!(door.admit(Some(&expiring), None, far(), NOW).is_ok());
    // The right secret of another's id, and the right id with a wrong secret.
    let (id, secret) = token.rsplit_once('_').unwrap();
    let swapped = format!("{}_{secret}", gone.rsplit_once('_').unwrap().0);
    let unknown = format!("tapdex_zzzzzzzz_{secret}");
    let cases: Vec<(Option<String>, &str)> = vec![
        (None, "no token"),
        (Some(String::new()), "not known"),
        (Some("tapdex".to_owned()), "not known"),
        (Some(forged(&token)), "not known"),
        (Some(swapped), "not known"),
        (Some(unknown), "not known"),
        (Some(token.to_uppercase()), "not known"),
        (Some(format!("{token}0")), "not known"),
        (Some(format!("{id}_")), "not known"),
        (Some(expiring), "has expired"),
        (Some(gone), "was revoked"),
    ];
    let mut told = BTreeSet::new();
    for (bearer, why) in cases {
        let refusal = refused(&door, bearer.as_deref(), NOW + SECOND);
        assert!(refusal.to_string().contains(why), "{bearer:?}: {refusal}");
        told.insert((refusal.status(), refusal.told(), refusal.retry_after()));
    }
    assert_eq!(told.into_iter().map(|(status, ..)| status).collect::<Vec<_>>(), [401]);
    assert!(door.admit(Some(&token), None, far(), NOW + SECOND).is_ok());
}

#[test]
fn an_expiry_is_the_first_moment_that_is_too_late() {
    let place = Place::new();
    let (_, token) = place.add_until("soc", "search", Some(NOW + SECOND));
    let door = place.door();
    assert!(door.admit(Some(&token), None, far(), NOW + SECOND - 1).is_ok());
    assert!(matches!(refused(&door, Some(&token), NOW + SECOND), Refusal::Expired { .. }));
    assert!(matches!(refused(&door, Some(&token), u64::MAX), Refusal::Expired { .. }));
}

#[test]
fn revoking_works_at_once_also_on_answers_that_are_being_given() {
    let place = Place::new();
    let (id, token) = place.add("soc", "search");
    let (_, other) = place.add("other", "search");
    let door = place.door();
    let identity = door.admit(Some(&token), None, far(), NOW).unwrap();
    assert!(door.recheck(&identity, NOW).is_ok());
    Tokens::revoke(&place.state, &id.to_string(), NOW).unwrap();
    assert!(matches!(refused(&door, Some(&token), NOW), Refusal::Revoked { .. }));
    assert!(matches!(door.recheck(&identity, NOW), Err(Refusal::Revoked { .. })));
    assert!(door.admit(Some(&other), None, far(), NOW).is_ok());
    // What was added meanwhile comes in, and what has expired meanwhile goes.
    let (_, late) = place.add_until("late", "search", Some(NOW + SECOND));
    let late = door.admit(Some(&late), None, far(), NOW).unwrap();
    assert!(matches!(door.recheck(&late, NOW + SECOND), Err(Refusal::Expired { .. })));
}

#[test]
fn a_role_may_do_what_it_may_and_no_more() {
    let place = Place::new();
    for (n, role) in May::ALL.into_iter().enumerate() {
        let (_, token) = place.add(&format!("of {}", role.name()), role.name());
        let identity = place.door().admit(Some(&token), None, far(), NOW).unwrap();
        for (m, needed) in May::ALL.into_iter().enumerate() {
            match identity.check(needed) {
                Ok(()) => assert!(n >= m),
                Err(refusal) => {
                    assert!(n < m);
                    assert_eq!(refusal.status(), 403);
                    assert!(matches!(refusal, Refusal::RoleTooSmall { .. }));
                }
            }
        }
    }
}

#[test]
fn a_role_that_there_is_not_lets_nobody_in() {
    let place = Place::new();
    let (_, token) = place.add("soc", "dmz");
    let door = place.door();
    let refusal = refused(&door, Some(&token), NOW);
    assert_eq!(refusal.status(), 403);
    assert!(refusal.to_string().contains("dmz"), "{refusal}");
    place.write("roles.toml", "[role.dmz]\nmay = 'search'\nfilter = 'net 10.2.0.0/16'\n");
    let identity = door.admit(Some(&token), None, far(), NOW).unwrap();
    assert!(door.recheck(&identity, NOW).is_ok());
    // Whoever is let in has the role as it was then: it is not widened or narrowed half-way.
    place.write("roles.toml", "[role.dmz]\nmay = 'search'\nfilter = 'net 10.2.1.0/24'\n");
    assert!(matches!(door.recheck(&identity, NOW), Err(Refusal::RoleChanged { .. })));
    place.write("roles.toml", "");
    assert!(matches!(door.recheck(&identity, NOW), Err(Refusal::RoleChanged { .. })));
    assert!(matches!(refused(&door, Some(&token), NOW), Refusal::RoleUnknown { .. }));
}

#[test]
fn without_tokens_this_machine_alone_comes_in_and_only_if_that_is_wanted() {
    let place = Place::new();
    let open = Door::open(&place.state, WhenEmpty::Open).unwrap();
    let locked = place.door();
    for peer in ["127.0.0.1:9", "127.9.9.9:9", "[::1]:9", "[::ffff:127.0.0.1]:9"] {
        let peer = peer.parse().unwrap();
        let identity = open.admit(None, None, peer, NOW).unwrap();
        assert_eq!((identity.name(), identity.token()), ("local", None));
        assert_eq!(identity.role().may(), May::Admin);
        assert!(open.recheck(&identity, NOW).is_ok());
        assert_eq!(locked.admit(None, None, peer, NOW).unwrap_err().status(), 401);
    }
    for peer in ["10.0.0.9:9", "[::ffff:10.0.0.9]:9", "[2001:db8::1]:9", "0.0.0.0:9", "[::]:9"] {
        let refusal = open.admit(None, None, peer.parse().unwrap(), NOW).unwrap_err();
        assert!(matches!(refusal, Refusal::Missing), "{peer}");
    }
    assert!(open.is_open() && !locked.is_open());
}

#[test]
fn the_first_token_closes_the_open_door_for_good() {
    let place = Place::new();
    let door = Door::open(&place.state, WhenEmpty::Open).unwrap();
    let local = door.admit(None, None, near(), NOW).unwrap();
    let (_, token) = place.add("soc", "search");
    assert!(matches!(door.admit(None, None, near(), NOW), Err(Refusal::Missing)));
    assert!(door.recheck(&local, NOW).is_err() && !door.is_open());
    // Not by revoking the last one, nor by losing the file, nor by emptying it.
    Tokens::revoke(&place.state, "soc", NOW).unwrap();
    let again = || Door::open(&place.state, WhenEmpty::Open);
    assert!(matches!(door.admit(None, None, near(), NOW), Err(Refusal::Missing)));
    assert!(again().unwrap().admit(None, None, near(), NOW).is_err());
    let text = fs::read(place.path("tokens.toml")).unwrap();
    place.state.remove("tokens.toml").unwrap();
    assert!(matches!(door.admit(None, None, near(), NOW), Err(Refusal::Closed(_))));
    assert!(matches!(again(), Err(DoorError::Tokens(TokenError::Gone { .. }))));
    place.write("tokens.toml", "");
    assert_eq!(door.admit(None, None, near(), NOW).unwrap_err().status(), 503);
    // Not even by removing all there is, as long as the server runs.
    for name in ["tokens.toml", ".tokens.toml.made", ".tokens.toml.lock"] {
        place.state.remove(name).unwrap();
    }
    assert_eq!(door.admit(Some(&token), None, near(), NOW).unwrap_err().status(), 503);
    place.write("tokens.toml", &text);
    assert!(matches!(refused(&door, Some(&token), NOW), Refusal::Revoked { .. }));
}

#[test]
fn whoever_is_vouched_for_needs_no_token_but_has_to_be_near() {
    let place = Place::new();
    place.add("soc", "search");
    let door = place.door();
    let viewer = door.admit_vouched("viewer", near()).unwrap();
    assert_eq!((viewer.name(), viewer.token()), ("viewer", None));
    assert_eq!(viewer.role().may(), May::Extract);
    assert!(door.recheck(&viewer, NOW).is_ok());
    assert!(matches!(door.admit_vouched("viewer", far()), Err(Refusal::Missing)));
    // It is no way in for anybody else.
    assert!(matches!(door.admit(None, None, near(), NOW), Err(Refusal::Missing)));
    // What cannot be understood closes the door for these, too.
    place.write("roles.toml", "[role.x");
    assert!(matches!(door.recheck(&viewer, NOW), Err(Refusal::Closed(_))));
    assert!(matches!(door.admit_vouched("viewer", near()), Err(Refusal::Closed(_))));
}

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

#[test]
fn a_certificate_stands_for_its_owner() {
    let place = Place::new();
    let (ours, others) = (b"certificate".as_slice(), b"another".as_slice());
    let fingerprint = Fingerprint::of(ours);
    let add = |name| {
        let certificate = Some(fingerprint);
        let new = NewToken { name, role: "extract", certificate, expires_ns: None };
        Tokens::add(&place.state, &new, NOW)
    };
    let (id, token) = add("desk").unwrap();
    assert!(token.is_none());
    assert!(matches!(add("second"), Err(TokenError::Known(name)) if name == "desk"));
    let (_, bearer) = place.add("soc", "search");
    let door = place.door();
    let admit = |bearer: Option<&str>, der: &[u8]| door.admit(bearer, Some(der), far(), NOW);
    let identity = admit(None, ours).unwrap();
    assert_eq!((identity.name(), identity.token()), ("desk", Some(id)));
    assert!(matches!(admit(None, others), Err(Refusal::Unknown { .. })));
    // A token beside it decides alone, be it good or bad.
    assert_eq!(admit(Some(&bearer), ours).unwrap().name(), "soc");
    assert!(admit(Some(&forged(&bearer)), ours).is_err());
    // The id of a certificate has no secret.
    let guess = format!("tapdex_{id}_{}", "0".repeat(64));
    assert!(matches!(refused(&door, Some(&guess), NOW), Refusal::Unknown { .. }));
    Tokens::revoke(&place.state, "desk", NOW).unwrap();
    assert!(matches!(admit(None, ours), Err(Refusal::Revoked { .. })));
    add("desk").unwrap();
    assert!(admit(None, ours).is_ok());
}

#[test]
fn limits_are_those_of_the_token() {
    let place = Place::new();
    let roles = "[role.slow]\nmay = 'search'\nat-once = 2\nper-minute = 6\n";
    place.write("roles.toml", roles);
    let (_, token) = place.add("soc", "slow");
    let (_, other) = place.add("other", "slow");
    let (_, free) = place.add("free", "search");
    let door = place.door();
    let admit = |token: &str| door.admit(Some(token), None, far(), NOW).unwrap();
    let (first, second) = (admit(&token), admit(&token));
    let turns = [first.begin(NOW).unwrap(), second.begin(NOW).unwrap()];
    let refusal = admit(&token).begin(NOW).unwrap_err();
    assert!(matches!(refusal, Refusal::TooMany { most: 2 }) && refusal.status() == 429);
    assert!(refusal.retry_after().is_some());
    assert!(admit(&other).begin(NOW).is_ok());
    drop(turns);
    // Four more in this minute, then one every ten seconds.
    for _ in 0..4 {
        drop(first.begin(NOW).unwrap());
    }
    let refusal = first.begin(NOW).unwrap_err();
    assert_eq!((refusal.status(), refusal.retry_after()), (429, Some(Duration::from_secs(10))));
    assert!(first.begin(NOW + 10 * SECOND - 1).is_err());
    assert!(first.begin(NOW + 10 * SECOND).is_ok());
    assert!(first.begin(NOW + 10 * SECOND).is_err());
    // After a pause all of them again, and not more.
    let later = NOW + 5 * MINUTE;
    assert_eq!((0..20).filter(|_| first.begin(later).is_ok()).count(), 6);
    // A clock that is set back stops nobody for longer than a minute.
    assert!(first.begin(NOW - 5 * MINUTE).is_ok());
    let turns: Vec<_> = (0..1_000).map(|_| admit(&free).begin(NOW).unwrap()).collect();
    assert_eq!(turns.len(), 1_000);
}

#[test]
fn a_changed_file_keeps_counting() {
    let place = Place::new();
    place.write("roles.toml", "[role.slow]\nmay = 'search'\nat-once = 1\n");
    let (_, token) = place.add("soc", "slow");
    let door = place.door();
    let admit = || door.admit(Some(&token), None, far(), NOW).unwrap();
    let turn = admit().begin(NOW).unwrap();
    place.add("another", "search");
    assert!(admit().begin(NOW).is_err());
    drop(turn);
    assert!(admit().begin(NOW).is_ok());
}

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
