//! The door: who comes in, who does not, and for how long.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod place;

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use place::{MINUTE, NOW, Place, SECOND, far, forged, near, refused};
use tapdex_server::door::roles::May;
use tapdex_server::door::tokens::{NewToken, TokenError, Tokens};
use tapdex_server::door::{Door, DoorError, Refusal, WhenEmpty};
use tapdex_server::tls::Fingerprint;

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
