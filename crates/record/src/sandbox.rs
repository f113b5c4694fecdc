//! Confining a recorder to its archive and its sockets.
//!
//! A recorder reads what strangers send. Once its interfaces, its archive and its sockets are open,
//! it needs little else, and [`enter`] gives up the rest for good, before the first thread starts:
//!
//! ```text
//! landlock   files: the archive, nothing else; TCP: the ports of its sources, nothing else
//! seccomp    system calls: those that recording needs; no other programs, no code that was not
//!            loaded at the start, no sockets except its sources', no signals to others
//! ```
//!
//! A forbidden call fails like one that the kernel does not have, which libraries are prepared for.
//! Nothing is killed: a recorder that cannot do something reports it and goes on.
//!
//! [`try_all`] then tries what should not be possible, and what should.

mod calls;

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, NetPort,
    PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope, make_bitflags,
};
use tapdex_engine::archive::Archive;
use tapdex_engine::beneath::{Dir, Rights};

/// The landlock features that are asked for: all of those in Linux 6.15. Older kernels do what they
/// can.
const LANDLOCK: ABI = ABI::V7;

/// What libpcap reads when it opens an interface again and when it counts losses: the kernel's
/// counters.
const OF_INTERFACES: [&str; 2] = ["/sys/class/net", "/sys/devices"];
/// And names in filters.
const NAMES: [&str; 6] = [
    "/etc/services",
    "/etc/protocols",
    "/etc/networks",
    "/etc/ethers",
    "/etc/hosts",
    "/etc/nsswitch.conf",
];

/// What a recorder needs.
#[derive(Debug, Clone)]
pub struct Needs {
    /// The folder of the archive, which exists.
    pub archive: PathBuf,
    /// It records from interfaces, which have to be opened again if they were gone.
    pub interfaces: bool,
    /// Ports of servers that it connects to again.
    pub ports: Vec<u16>,
    /// The state folder of the server that it is, too, if it is one.
    pub state: Option<PathBuf>,
    /// It connects to servers by their names.
    pub resolves: bool,
}

/// The outcome for a part of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Whether it does all that was asked for.
    pub holds: bool,
    /// What it does, or why it does not.
    pub text: String,
}

impl Layer {
    fn new(holds: bool, text: impl Into<String>) -> Self {
        Self { holds, text: text.into() }
    }
}

/// The outcome of entering the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entered {
    /// The filter of system calls.
    pub seccomp: Layer,
    /// The rules for files and ports.
    pub landlock: Layer,
}

/// Gives up all that these needs do not cover, for good.
///
/// Must be called while there is only one thread, and after [`no new privileges`] was set; what is
/// open stays open. It is no error if the kernel lacks a part of it.
///
/// [`no new privileges`]: crate::privileges
pub fn enter(needs: &Needs) -> Entered {
    let landlock = match restrict_files(needs) {
        Ok(status) => landlock_layer(&status),
        Err(error) => Layer::new(false, error.to_string()),
    };
    // Last: it forbids the calls that landlock needs.
    Entered { seccomp: seccomp_layer(needs), landlock }
}

/// Gives up writing anywhere but in the state folder, running other programs, listening at other
/// ports and, unless it has to ask other servers (`connects`), connections to others, for good:
/// what a server does not need that only reads an archive. Captures may lie anywhere, so anything
/// that could be read before still can.
///
/// Must be called while there is only one thread, and after [`no new privileges`] was set. It is no
/// error if the kernel lacks a part of it.
///
/// [`no new privileges`]: crate::privileges
pub fn enter_reading(state: &Path, connects: bool) -> Entered {
    let landlock = match restrict_writing(state, connects) {
        Ok(status) => landlock_layer(&status),
        Err(error) => Layer::new(false, error.to_string()),
    };
    let needs = Needs {
        archive: PathBuf::new(),
        interfaces: false,
        ports: Vec::new(),
        state: Some(state.to_owned()),
        resolves: connects,
    };
    Entered { seccomp: seccomp_layer(&needs), landlock }
}

fn seccomp_layer(needs: &Needs) -> Layer {
    match calls::restrict(needs) {
        Ok(count) => Layer::new(true, format!("on, {count} system calls are allowed")),
        Err(text) => Layer::new(false, text),
    }
}

fn restrict_writing(state: &Path, connects: bool) -> Result<RestrictionStatus, RulesetError> {
    let ports = match connects {
        true => AccessNet::BindTcp.into(),
        false => AccessNet::from_all(LANDLOCK),
    };
    let read = make_bitflags!(AccessFs::{ReadFile | ReadDir});
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(LANDLOCK))?
        .handle_access(ports)?
        .scope(BitFlags::from(Scope::Signal) | Scope::AbstractUnixSocket)?
        .create()?;
    if let Ok(all) = PathFd::new("/") {
        rules = rules.add_rule(PathBeneath::new(all, read))?;
    }
    if let Ok(opened) = PathFd::new(state) {
        rules = rules.add_rule(PathBeneath::new(opened, own_files()))?;
    }
    rules.restrict_self()
}

/// What may be done with files of one's own.
fn own_files() -> BitFlags<AccessFs> {
    make_bitflags!(AccessFs::{
        ReadFile | ReadDir | WriteFile | Truncate | RemoveFile | RemoveDir | MakeReg | MakeDir
            | Refer
    })
}

fn restrict_files(needs: &Needs) -> Result<RestrictionStatus, RulesetError> {
    let read = make_bitflags!(AccessFs::{ReadFile | ReadDir});
    let own = own_files();
    let mut scopes = BitFlags::from(Scope::Signal);
    let notified = std::env::var_os("NOTIFY_SOCKET");
    if !notified.is_some_and(|name| name.as_encoded_bytes().starts_with(b"@")) {
        scopes |= Scope::AbstractUnixSocket;
    }
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(LANDLOCK))?
        .handle_access(AccessNet::from_all(LANDLOCK))?
        .scope(scopes)?
        .create()?;
    // A folder that cannot be opened needs no rule: it could not be used either.
    for folder in std::iter::once(&needs.archive).chain(&needs.state) {
        let Ok(opened) = PathFd::new(folder) else { continue };
        rules = rules.add_rule(PathBeneath::new(opened, own))?;
    }
    let of_interfaces = OF_INTERFACES.iter().filter(|_| needs.interfaces);
    // Whoever asks may use names in filters, too.
    let names = NAMES.iter().filter(|_| needs.interfaces || needs.state.is_some());
    for path in of_interfaces.chain(names) {
        let Ok(opened) = PathFd::new(path) else { continue };
        let access = if Path::new(path).is_dir() { read } else { AccessFs::ReadFile.into() };
        rules = rules.add_rule(PathBeneath::new(opened, access))?;
    }
    for &port in &needs.ports {
        rules = rules.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?;
    }
    rules.restrict_self()
}

fn landlock_layer(status: &RestrictionStatus) -> Layer {
    let version = match status.landlock {
        LandlockStatus::NotImplemented => return Layer::new(false, "this kernel does not have it"),
        LandlockStatus::NotEnabled => return Layer::new(false, "it is not enabled in this kernel"),
        LandlockStatus::Available { effective_abi, kernel_abi } => {
            kernel_abi.unwrap_or(effective_abi as i32)
        }
    };
    match status.ruleset {
        RulesetStatus::FullyEnforced => Layer::new(true, format!("on, version {version}")),
        RulesetStatus::PartiallyEnforced => {
            Layer::new(false, format!("in part, this kernel has version {version}"))
        }
        RulesetStatus::NotEnforced => Layer::new(false, "this kernel does not enforce it"),
    }
}

/// Something that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// What.
    pub what: &'static str,
    /// Whether it should be possible.
    pub wanted: bool,
    /// Whether it is.
    pub possible: bool,
}

impl Trial {
    /// Whether it is as it should be.
    pub fn holds(&self) -> bool {
        self.wanted == self.possible
    }
}

/// What has to be prepared before the sandbox is entered, so that it can be tested.
#[derive(Debug)]
pub struct Prepared {
    /// A server that would answer.
    server: Option<(TcpListener, SocketAddr)>,
}

impl Prepared {
    /// Gets ready.
    pub fn new() -> Self {
        let server = TcpListener::bind("127.0.0.1:0").ok();
        let server = server.and_then(|server| server.local_addr().ok().map(|at| (server, at)));
        Self { server }
    }
}

impl Default for Prepared {
    fn default() -> Self {
        Self::new()
    }
}

/// Tries what should not be possible in the sandbox, and what should.
pub fn try_all(prepared: &Prepared, archive: Option<&Archive>) -> Vec<Trial> {
    let refused = |what, possible| Trial { what, wanted: false, possible };
    let allowed = |what, possible| Trial { what, wanted: true, possible };
    let connect = prepared.server.as_ref().is_some_and(|(_, address)| {
        TcpStream::connect_timeout(address, Duration::from_secs(5)).is_ok()
    });
    let mut trials: Vec<Trial> = archive
        .map(|archive| allowed("write into the archive", writes_into(archive).is_ok()))
        .into_iter()
        .collect();
    trials.extend([
        allowed("start a thread", std::thread::Builder::new().spawn(|| ()).is_ok()),
        refused("read /etc/passwd", File::open("/etc/passwd").is_ok()),
        refused("list /", std::fs::read_dir("/").is_ok()),
        refused("write outside the archive", writes_outside()),
        refused("start a program", Command::new("/bin/true").status().is_ok()),
        refused("become a program", can_exec()),
        refused("connect to a server", connect),
        refused("listen on a port", TcpListener::bind("127.0.0.1:0").is_ok()),
        refused("send a signal to another process", can_signal()),
        refused("change the user", can_change_user()),
        refused("change the root folder", rustix::process::chroot("/").is_ok()),
    ]);
    trials
}

/// Creates a file in the archive in the way that an index is created.
fn writes_into(archive: &Archive) -> std::io::Result<()> {
    let [hidden, path] =
        [".sandbox-check.tmp", ".sandbox-check"].map(|name| archive.folder().join(name));
    let storage = archive.storage();
    let mut file = storage.create(&hidden, Rights::GROUP)?;
    file.append(b"a file")?;
    file.sync()?;
    storage.rename(&hidden, &path)?;
    storage.sync_folder(archive.folder())?;
    storage.remove(&path)
}

fn writes_outside() -> bool {
    let name = format!(".tapdex-sandbox-{}", std::process::id());
    let made = Dir::open(&std::env::temp_dir()).and_then(|dir| {
        dir.create_new(name.as_ref(), Rights::GROUP)?;
        // Creating worked, so this works, too.
        dir.remove(name.as_ref())
    });
    made.is_ok()
}

/// Whether this process could become another program: tried with one that does not exist.
fn can_exec() -> bool {
    nix::unistd::execv(c"/nonexistent", &[c"nonexistent"]) == Err(nix::errno::Errno::ENOENT)
}

fn can_signal() -> bool {
    rustix::process::Pid::from_raw(1)
        .is_some_and(|first| rustix::process::test_kill_process(first).is_ok())
}

fn can_change_user() -> bool {
    // To the user that it already is, which is always possible outside of the sandbox.
    let own = nix::unistd::geteuid();
    nix::unistd::setuid(own).is_ok()
}
