//! What a process may do after it gave up its privileges, as the kernel and the kernel's refusals
//! tell it. Each test that does so has a process of its own: itself, started once more.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::Command;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::unistd::{Group, Uid, User, setresuid, setuid};
use tapdex_record::privileges::{Account, Keep, PrivilegeError, give};

/// Set in the process that gives up its privileges.
const INSIDE: &str = "TAPDEX_TEST_INSIDE";
/// A user that every system has and that owns nothing.
const USER: &str = "nobody";

const CAP_NET_RAW: &str = "0000000000002000";
const NO_CAPABILITY: &str = "0000000000000000";

/// Whether there is anything to give up; says so if not.
fn is_root() -> bool {
    let root = Uid::effective().is_root();
    if !root {
        eprintln!("only root has privileges to give up: passed over");
    }
    root
}

/// Runs a test of this file in a process of its own; `inside` is what it does there.
fn alone(test: &str, inside: fn()) {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    if !is_root() {
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(INSIDE, "1");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// What the kernel says of a thread; the calling one is `thread-self`.
fn status(thread: &str) -> BTreeMap<String, String> {
    let text = fs::read_to_string(format!("/proc/{thread}/status")).unwrap();
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(name, value)| (name.to_owned(), value.trim().replace('\t', " "))).collect()
}

fn user() -> User {
    User::from_name(USER).unwrap().unwrap()
}

/// The calling thread is of the user and has these capabilities and no others.
#[track_caller]
fn is_user_with(capabilities: &str) {
    let status = status("thread-self");
    let (uid, gid) = (user().uid, user().gid);
    assert_eq!(status["Uid"], format!("{uid} {uid} {uid} {uid}"));
    assert_eq!(status["Gid"], format!("{gid} {gid} {gid} {gid}"));
    assert_eq!(status["Groups"], gid.to_string());
    assert_eq!(status["CapPrm"], capabilities);
    assert_eq!(status["CapEff"], capabilities);
    assert_eq!(status["CapInh"], NO_CAPABILITY);
    assert_eq!(status["CapAmb"], NO_CAPABILITY);
    assert_eq!(status["CapBnd"], NO_CAPABILITY);
    assert_eq!(status["NoNewPrivs"], "1");
}

/// Nothing that only root may do can be done, and root cannot be had back.
#[track_caller]
fn cannot_act_as_root() {
    let root = Uid::from_raw(0);
    assert_eq!(setuid(root), Err(Errno::EPERM));
    assert_eq!(setresuid(root, root, root), Err(Errno::EPERM));
    assert!(File::open("/proc/1/environ").is_err());
    assert!(File::create("/tapdex-test-file").is_err());
}

fn raw_socket() -> Result<(), Errno> {
    socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None).map(drop)
}

#[test]
fn nothing_is_kept() {
    alone("nothing_is_kept", || {
        Account::find(USER).unwrap().drop_to(Keep::Nothing).unwrap();
        is_user_with(NO_CAPABILITY);
        cannot_act_as_root();
        assert_eq!(raw_socket(), Err(Errno::EPERM));
        std::thread::spawn(|| is_user_with(NO_CAPABILITY)).join().unwrap();
        // Nor the other threads, which a test has but a recorder has not.
        for thread in fs::read_dir("/proc/self/task").unwrap() {
            let status =
                status(thread.unwrap().path().strip_prefix("/proc").unwrap().to_str().unwrap());
            assert_eq!(status["CapPrm"], NO_CAPABILITY);
        }
    });
}

#[test]
fn the_right_to_capture_is_kept() {
    alone("the_right_to_capture_is_kept", || {
        if raw_socket().is_err() {
            eprintln!("even root cannot capture here: passed over");
            return;
        }
        Account::find(USER).unwrap().drop_to(Keep::Capture).unwrap();
        is_user_with(CAP_NET_RAW);
        cannot_act_as_root();
        assert_eq!(raw_socket(), Ok(()));
        std::thread::spawn(|| is_user_with(CAP_NET_RAW)).join().unwrap();
        // A program that is started has not even that.
        let output = Command::new("cat").arg("/proc/self/status").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(&format!("CapEff:\t{NO_CAPABILITY}")), "{text}");
        assert!(text.contains(&format!("CapPrm:\t{NO_CAPABILITY}")), "{text}");
    });
}

#[test]
fn without_root_only_the_own_user_can_be_asked_for() {
    alone("without_root_only_the_own_user_can_be_asked_for", || {
        let (nobody, root) = (Account::find(USER).unwrap(), Account::find("root").unwrap());
        let daemon = Account::find("daemon").unwrap();
        nobody.drop_to(Keep::Capture).unwrap();
        nobody.drop_to(Keep::Capture).unwrap();
        for other in [root, daemon] {
            let error = other.drop_to(Keep::Nothing).unwrap_err();
            assert!(matches!(error, PrivilegeError::NotRoot { .. }), "{error}");
            assert!(error.to_string().contains(other.name()), "{error}");
            assert!(error.to_string().contains(USER), "{error}");
        }
        // What is left can be given up later, and does not come back.
        nobody.drop_to(Keep::Nothing).unwrap();
        is_user_with(NO_CAPABILITY);
        nobody.drop_to(Keep::Capture).unwrap();
        is_user_with(NO_CAPABILITY);
    });
}

#[test]
fn groups_of_root_do_not_stay() {
    alone("groups_of_root_do_not_stay", || {
        let other = Group::from_name("daemon").unwrap().unwrap().gid;
        nix::unistd::setgroups(&[nix::unistd::Gid::from_raw(0), other]).unwrap();
        Account::find(USER).unwrap().drop_to(Keep::Nothing).unwrap();
        is_user_with(NO_CAPABILITY);
    });
}

#[test]
fn root_that_asks_for_root_stays_as_it_is() {
    alone("root_that_asks_for_root_stays_as_it_is", || {
        let before = status("thread-self");
        Account::find("root").unwrap().drop_to(Keep::Nothing).unwrap();
        let after = status("thread-self");
        for field in ["Uid", "Gid", "Groups", "CapPrm", "CapEff", "NoNewPrivs"] {
            assert_eq!(before[field], after[field], "{field}");
        }
    });
}

#[test]
fn an_unknown_user_is_an_error() {
    for name in ["tapdex-no-such-user", "", "no\0body"] {
        let error = Account::find(name).unwrap_err();
        let known = matches!(error, PrivilegeError::Unknown { .. } | PrivilegeError::Lookup { .. });
        assert!(known, "{error}");
    }
}

#[test]
fn a_folder_is_given_with_all_that_is_in_it() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (archive, outside) = (folder.path().join("archive"), folder.path().join("outside"));
    fs::create_dir_all(archive.join("packets/deep")).unwrap();
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("file"), "").unwrap();
    for name in ["archive.toml", "packets/a.pcapng", "packets/deep/b"] {
        fs::write(archive.join(name), "").unwrap();
    }
    symlink(&outside, archive.join("packets/to-folder")).unwrap();
    symlink(outside.join("file"), archive.join("to-file")).unwrap();
    symlink("nowhere", archive.join("to-nothing")).unwrap();
    give(&archive, &Account::find(USER).unwrap()).unwrap();
    let (uid, gid) = (user().uid.as_raw(), user().gid.as_raw());
    let owner = |path: &std::path::Path| {
        let metadata = fs::symlink_metadata(path).unwrap();
        (metadata.uid(), metadata.gid())
    };
    for name in ["", "archive.toml", "packets", "packets/a.pcapng", "packets/deep"] {
        assert_eq!(owner(&archive.join(name)), (uid, gid), "{name}");
    }
    for name in ["packets/deep/b", "packets/to-folder", "to-file", "to-nothing"] {
        assert_eq!(owner(&archive.join(name)), (uid, gid), "{name}");
    }
    // Links are not followed, not even that which stands for the folder itself.
    for path in [folder.path(), &outside, &outside.join("file")] {
        assert_eq!(owner(path), (0, 0), "{}", path.display());
    }
    let link = folder.path().join("link");
    symlink(&outside, &link).unwrap();
    let error = give(&link, &Account::find(USER).unwrap()).unwrap_err();
    assert!(error.to_string().contains("link"), "{error}");
    assert_eq!(owner(&outside), (0, 0));
}

#[test]
fn a_folder_that_is_not_there_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let account = Account::find(USER).unwrap();
    let error = give(&folder.path().join("none"), &account).unwrap_err();
    assert!(matches!(error, PrivilegeError::Give { .. }), "{error}");
}
