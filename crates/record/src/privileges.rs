//! Giving up root's privileges.
//!
//! Interfaces are opened as root; all later work needs far less. [`Account::drop_to`] makes the
//! process run as another user, for good, and then asks the kernel whether that worked.
//!
//! Afterwards the kernel treats the process as one that may hold secrets: it writes no core dump,
//! and its own `/proc/self/fd` can no longer be listed.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::unistd::{self, Gid, Uid, User};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// A user of the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    name: String,
    uid: Uid,
    gid: Gid,
}

/// What a process keeps when it changes to another user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Nothing but what every process may do.
    Nothing,
    /// To open interfaces: `CAP_NET_RAW`.
    Capture,
}

impl Keep {
    fn capabilities(self) -> CapabilitySet {
        match self {
            Keep::Nothing => CapabilitySet::empty(),
            Keep::Capture => CapabilitySet::NET_RAW,
        }
    }
}

/// Why privileges were not given up. After any of these the process must not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrivilegeError {
    /// There is no such user. Make it, or name another one.
    #[error("there is no user {name:?}; make it, as by useradd --system {name}, or name another")]
    Unknown {
        /// The name that was asked for.
        name: String,
    },
    /// The users of the system could not be read.
    #[error("cannot look for user {name:?}")]
    Lookup {
        /// The name that was asked for.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// Only root can become another user. Start as root, or name your own user, or none.
    #[error(
        "only root can become user {name:?}, and this runs as {own}; start it as root, or \
             without another user"
    )]
    NotRoot {
        /// The name that was asked for.
        name: String,
        /// The user of the process.
        own: String,
    },
    /// The system refused a step. In a container, the right to change users may be missing.
    #[error("cannot {step}")]
    Refused {
        /// What was to be done.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// All steps succeeded, but the process may do more or less than it should.
    #[error("privileges were not given up: {what} should be {expected} and is {found}")]
    Kept {
        /// What is wrong.
        what: &'static str,
        /// What it should be.
        expected: String,
        /// What the kernel says it is.
        found: String,
    },
    /// A folder, or something in it, could not be given away.
    #[error("cannot give {} to user {name:?}", path.display())]
    Give {
        /// The folder or file.
        path: PathBuf,
        /// The user that should own it.
        name: String,
        /// What the system said.
        source: io::Error,
    },
}

fn refused<E: Into<io::Error>>(step: &'static str) -> impl Fn(E) -> PrivilegeError {
    move |error| PrivilegeError::Refused { step, source: error.into() }
}

/// From now on, files and folders that the process creates are for its user and group only.
pub fn restrict_new_files() {
    use nix::sys::stat::{Mode, umask};
    umask(Mode::S_IWGRP | Mode::S_IRWXO);
}

impl Account {
    /// Looks a user up by name.
    pub fn find(name: &str) -> Result<Self, PrivilegeError> {
        match User::from_name(name) {
            Ok(Some(user)) => Ok(Self { name: user.name, uid: user.uid, gid: user.gid }),
            Ok(None) => Err(PrivilegeError::Unknown { name: name.to_owned() }),
            Err(error) => {
                Err(PrivilegeError::Lookup { name: name.to_owned(), source: error.into() })
            }
        }
    }

    /// The name of the user.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Checks in advance whether [`drop_to`](Self::drop_to) can work at all.
    pub fn check(&self) -> Result<(), PrivilegeError> {
        let own = unistd::geteuid();
        match own.is_root() || own == self.uid {
            true => Ok(()),
            false => Err(PrivilegeError::NotRoot { name: self.name.clone(), own: name_of(own) }),
        }
    }

    /// Makes the process run as this user, for good.
    ///
    /// Must be called while there is only one thread: capabilities belong to a thread, and later
    /// threads inherit those of this one. A process that runs as this user already gives up what it
    /// has beyond `keep`. Root that stays root keeps all it has; see [`shed`].
    pub fn drop_to(&self, keep: Keep) -> Result<(), PrivilegeError> {
        let own = unistd::geteuid();
        if own.is_root() && self.uid.is_root() {
            return Ok(());
        }
        let mut capabilities = keep.capabilities();
        let changes = own.is_root();
        if changes {
            self.become_user(capabilities)?;
        } else if own == self.uid && unistd::getuid() == self.uid {
            // A capability that was missing cannot be kept; opening an interface will report that.
            capabilities &= held()?.permitted;
        } else {
            let own = name_of(own);
            return Err(PrivilegeError::NotRoot { name: self.name.clone(), own });
        }
        let sets = exactly(capabilities);
        let set = rustix::thread::set_capabilities(None, sets);
        set.map_err(refused("give up capabilities"))?;
        // Otherwise a program with the set-user-id bit could give everything back.
        let no_new = rustix::thread::set_no_new_privs(true);
        no_new.map_err(refused("rule out new privileges"))?;
        if changes {
            self.verify_groups()?;
        }
        self.verify(sets)
    }

    fn c_name(&self) -> Result<CString, PrivilegeError> {
        let name = CString::new(self.name.as_bytes());
        name.map_err(|_| PrivilegeError::Unknown { name: self.name.clone() })
    }

    /// Changes groups and user; only these of root's capabilities are left.
    fn become_user(&self, capabilities: CapabilitySet) -> Result<(), PrivilegeError> {
        empty_bounding_set();
        // Groups first: afterwards there is no right to change them.
        unistd::initgroups(&self.c_name()?, self.gid).map_err(refused("set the groups"))?;
        let gid = unistd::setresgid(self.gid, self.gid, self.gid);
        gid.map_err(refused("set the group"))?;
        let keep = !capabilities.is_empty();
        let keeping = rustix::thread::set_keep_capabilities(keep);
        keeping.map_err(refused("keep capabilities"))?;
        let uid = unistd::setresuid(self.uid, self.uid, self.uid);
        uid.map_err(refused("set the user"))?;
        rustix::thread::set_keep_capabilities(false).map_err(refused("keep no capabilities"))
    }

    /// Checks our groups with the kernel. A process that was this user before may be in any group.
    fn verify_groups(&self) -> Result<(), PrivilegeError> {
        let gids = unistd::getresgid().map_err(refused("ask for the group"))?;
        let gids = [gids.real, gids.effective, gids.saved];
        same("the group", [self.gid; 3].map(Gid::as_raw), gids.map(Gid::as_raw))?;
        let wanted = unistd::getgrouplist(&self.c_name()?, self.gid);
        let wanted = wanted.map_err(refused("look for the groups"))?;
        let found = unistd::getgroups().map_err(refused("ask for the groups"))?;
        let sorted = |gids: Vec<Gid>| gids.into_iter().map(Gid::as_raw).collect::<BTreeSet<_>>();
        same("the groups", sorted(wanted), sorted(found))
    }

    /// Asks the kernel who we are now.
    fn verify(&self, sets: CapabilitySets) -> Result<(), PrivilegeError> {
        let uids = unistd::getresuid().map_err(refused("ask for the user"))?;
        let uids = [uids.real, uids.effective, uids.saved];
        same("the user", [self.uid; 3].map(Uid::as_raw), uids.map(Uid::as_raw))?;
        same("the capabilities", sets, held()?)?;
        let no_new = rustix::thread::no_new_privs().map_err(refused("ask for new privileges"))?;
        same("no new privileges", true, no_new)?;
        let root = Uid::from_raw(0);
        let back = unistd::setresuid(root, root, root).is_ok() || unistd::seteuid(root).is_ok();
        same("becoming root again", "refused", if back { "possible" } else { "refused" })?;
        others_have_no_more(self.uid, sets.permitted)
    }
}

/// For a process that does not change its user: gives up all capabilities except those to keep.
/// Root keeps one more, to change files of others in its archive; without it, root could not record
/// into another user's archive.
///
/// Like [`Account::drop_to`], this must be called while there is only one thread.
pub fn shed(keep: Keep) -> Result<(), PrivilegeError> {
    let mut capabilities = keep.capabilities();
    if unistd::geteuid().is_root() {
        capabilities |= CapabilitySet::DAC_OVERRIDE;
    }
    capabilities &= held()?.permitted;
    empty_bounding_set();
    let sets = exactly(capabilities);
    rustix::thread::set_capabilities(None, sets).map_err(refused("give up capabilities"))?;
    let no_new = rustix::thread::set_no_new_privs(true);
    no_new.map_err(refused("rule out new privileges"))?;
    same("the capabilities", sets, held()?)
}

/// Empties the set of capabilities that a program could ever get. Only root may do this; for
/// others, "no new privileges" has the same effect.
fn empty_bounding_set() {
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if rustix::thread::capability_is_in_bounding_set(one).is_ok_and(|is_in| is_in) {
            // `Standing` shows what is left.
            let _ = rustix::thread::remove_capability_from_bounding_set(one);
        }
    }
}

/// What the kernel says a process may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The user that it is.
    pub user: String,
    /// Whether that is root.
    pub is_root: bool,
    /// Names of its capabilities.
    pub capabilities: Vec<String>,
    /// How many capabilities a program that it starts could get.
    pub bounding: usize,
    /// Whether no program that it starts can get any.
    pub no_new_privileges: bool,
}

impl Standing {
    /// Asks the kernel.
    pub fn of_this_process() -> Result<Self, PrivilegeError> {
        let own = unistd::geteuid();
        let user = match User::from_uid(own) {
            Ok(Some(user)) => user.name,
            _ => own.to_string(),
        };
        let is_in = |number: &u32| {
            let one = CapabilitySet::from_bits_retain(1 << number);
            rustix::thread::capability_is_in_bounding_set(one).is_ok_and(|is_in| is_in)
        };
        let permitted = held()?.permitted;
        let names = permitted.iter_names().map(|(name, _)| format!("cap_{name}").to_lowercase());
        let no_new = rustix::thread::no_new_privs();
        Ok(Self {
            user,
            is_root: own.is_root(),
            capabilities: names.collect(),
            bounding: (0..u64::BITS).filter(is_in).count(),
            no_new_privileges: no_new.map_err(refused("ask for new privileges"))?,
        })
    }
}

fn held() -> Result<CapabilitySets, PrivilegeError> {
    rustix::thread::capabilities(None).map_err(refused("ask for the capabilities"))
}

/// Exactly these. A capability that is not inheritable is not ambient either: no child gets any.
fn exactly(capabilities: CapabilitySet) -> CapabilitySets {
    CapabilitySets {
        effective: capabilities,
        permitted: capabilities,
        inheritable: CapabilitySet::empty(),
    }
}

fn same<T: PartialEq + std::fmt::Debug>(
    what: &'static str,
    expected: T,
    found: T,
) -> Result<(), PrivilegeError> {
    if expected == found {
        return Ok(());
    }
    let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
    Err(PrivilegeError::Kept { what, expected, found })
}

/// Checks the other threads, in case there are any against the rule.
fn others_have_no_more(uid: Uid, permitted: CapabilitySet) -> Result<(), PrivilegeError> {
    // Without /proc, threads that should not exist cannot be checked.
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return Ok(()) };
    for thread in threads.flatten() {
        // It may have ended.
        let Ok(status) = std::fs::read_to_string(thread.path().join("status")) else { continue };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(|rest| rest.trim_start_matches(':').trim()).unwrap_or_default()
        };
        let uids: Vec<&str> = field("Uid").split_whitespace().collect();
        let wanted = uid.to_string();
        same("the user of every thread", vec![&*wanted; 4], uids)?;
        // Bits without a name count as well.
        let found = u64::from_str_radix(field("CapPrm"), 16).unwrap_or(u64::MAX);
        same("what a thread may do besides", 0, found & !permitted.bits())?;
    }
    Ok(())
}

/// The name of a user for a message.
fn name_of(uid: Uid) -> String {
    match User::from_uid(uid) {
        Ok(Some(user)) => format!("{:?}", user.name),
        _ => format!("user number {uid}"),
    }
}

/// The most levels of folders that are given away; an archive has one level.
const DEPTH_MAX: usize = 64;

/// Gives a folder and all that is in it to a user and its group.
///
/// For a folder that was just made. Links themselves are given away, never their targets. The
/// folder comes last: until then nobody else can put anything into it.
pub fn give(path: &Path, account: &Account) -> Result<(), PrivilegeError> {
    let fail = |path: &Path, source: io::Error| PrivilegeError::Give {
        path: path.to_owned(),
        name: account.name.clone(),
        source,
    };
    let folder = rustix::fs::openat(CWD, path, FOLDER, Mode::empty());
    let folder = folder.map_err(|error| fail(path, error.into()))?;
    give_folder(folder, path, account, 0).map_err(|(path, error)| fail(&path, error))
}

/// Symbolic links to folders are refused.
const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

/// An error comes with the path that it concerns.
fn give_folder(
    folder: rustix::fd::OwnedFd,
    path: &Path,
    account: &Account,
    depth: usize,
) -> Result<(), (PathBuf, io::Error)> {
    let here = |error: rustix::io::Errno| (path.to_owned(), error.into());
    if depth > DEPTH_MAX {
        return Err((path.to_owned(), io::Error::other("too many folders in folders")));
    }
    let uid = Some(rustix::fs::Uid::from_raw(account.uid.as_raw()));
    let gid = Some(rustix::fs::Gid::from_raw(account.gid.as_raw()));
    for entry in Dir::read_from(&folder).map_err(here)? {
        let entry = entry.map_err(here)?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let below = path.join(OsStr::from_bytes(name.to_bytes()));
        let there = |error: rustix::io::Errno| (below.clone(), error.into());
        let kind = match entry.file_type() {
            // Some file systems do not say.
            FileType::Unknown => {
                let stat = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW);
                FileType::from_raw_mode(stat.map_err(there)?.st_mode)
            }
            kind => kind,
        };
        if kind == FileType::Directory {
            let inner = rustix::fs::openat(&folder, name, FOLDER, Mode::empty()).map_err(there)?;
            give_folder(inner, &below, account, depth + 1)?;
        } else {
            let given = rustix::fs::chownat(&folder, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW);
            given.map_err(there)?;
        }
    }
    rustix::fs::fchown(&folder, uid, gid).map_err(here)
}
