//! Networks of a test's own, for the tests that share them.

#![allow(dead_code, unreachable_pub, reason = "not every test needs all of it")]

use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// No wait of these tests is longer.
pub const WAIT_MAX: Duration = Duration::from_secs(120);

/// Runs a line of the shell; whether it went well.
pub fn root(line: &str) -> bool {
    Command::new("sh").args(["-c", line]).output().unwrap().status.success()
}

/// A network namespace. It is gone when this is dropped, with all interfaces in it.
pub struct Namespace {
    pub name: String,
}

impl Drop for Namespace {
    fn drop(&mut self) {
        root(&format!("ip netns del {}", self.name));
    }
}

impl Namespace {
    /// Nothing where namespaces cannot be made, which is said.
    pub fn new(test: &str) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tapdex-{test}-{}-{number}", std::process::id());
        if !root(&format!("ip netns add {name}")) {
            eprintln!("passed over: no network namespace can be made here");
            return None;
        }
        let space = Self { name };
        // Without IPv6 the kernel sends nothing of its own.
        space.inside("echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 || true");
        space.inside("echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6 || true");
        Some(space)
    }

    /// A cable between two interfaces that it makes.
    #[track_caller]
    pub fn cable(&self, near: &str, far: &str) {
        self.inside(&format!("ip link add {near} mtu 9000 type veth peer name {far} mtu 9000"));
        self.inside(&format!("ip link set {near} up && ip link set {far} up"));
        self.connects(near, far);
    }

    /// Waits until a cable whose ends are up can be used: the kernel gets that ready a while later,
    /// and throws away what is sent before.
    #[track_caller]
    pub fn connects(&self, near: &str, far: &str) {
        for end in [near, far] {
            until(&format!("the cable at {end}"), || {
                self.inside(&format!("ip -o link show {end}")).contains(" state UP ")
            });
            // Changes nothing, and waits for whoever has just set that state to be done.
            self.inside(&format!("ip link set {end} up"));
        }
    }

    /// A program inside. `ip` becomes it, so the number of the process is that of the program.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program.as_ref());
        command
    }

    /// Runs a line of the shell inside; what it prints.
    #[track_caller]
    pub fn inside(&self, line: &str) -> String {
        let output = self.command("sh").args(["-c", line]).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Packets and bytes that have come to an interface, as the kernel counts them.
    pub fn arrived(&self, interface: &str) -> (u64, u64) {
        let numbers = self.numbers(interface);
        (numbers[1], numbers[0])
    }

    /// Packets that have left an interface and were thrown away before they came to the other end
    /// of its cable: the queue between the two was full. Some kernels tell the sender, who sends
    /// them again.
    pub fn thrown_away(&self, interface: &str) -> u64 {
        self.numbers(interface)[11]
    }

    fn numbers(&self, interface: &str) -> Vec<u64> {
        let text = self.inside("cat /proc/net/dev");
        let start = format!("{interface}:");
        let line = text.lines().find_map(|line| line.trim().strip_prefix(&start)).unwrap();
        line.split_whitespace().map(|n| n.parse().unwrap()).collect()
    }
}

/// Waits until all that has come to interfaces has been handed on to those that capture. In between
/// is a queue for each CPU.
#[track_caller]
pub fn hand_on() {
    until("the queues of the kernel are empty", || {
        let queues = std::fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
        // The twelfth number is the length; old kernels do not tell it.
        let mut lengths = queues.lines().filter_map(|line| line.split_whitespace().nth(11));
        lengths.all(|length| u32::from_str_radix(length, 16) == Ok(0))
    });
}

/// Packets that are complete in a capture of the old format, which may still be written.
pub fn packets_in(path: &Path) -> u64 {
    let bytes = std::fs::read(path).unwrap_or_default();
    let (mut at, mut packets) = (24, 0);
    while let Some(head) = bytes.get(at..at + 16) {
        let len = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        at += 16 + len as usize;
        packets += u64::from(at <= bytes.len());
    }
    packets
}

/// Sends a signal. After STOP, no thread runs any more when this returns.
#[track_caller]
pub fn signal(child: &Child, name: &str) {
    let pid = child.id();
    assert!(root(&format!("kill -{name} {pid}")));
    if name == "STOP" {
        until("it holds still", || {
            let threads = Path::new("/proc").join(pid.to_string()).join("task").read_dir().unwrap();
            let mut stats = threads.map(|thread| thread.unwrap().path().join("stat"));
            // The state follows the name, which may be anything.
            stats.all(|path| {
                let stat = std::fs::read_to_string(path).unwrap_or_default();
                stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
            })
        });
    }
}

/// The exit code of a process that ends in time; `None` if it does not, or by a signal.
pub fn wait(child: &mut Child) -> Option<i32> {
    let mut status = None;
    comes(|| {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.and_then(|status| status.code())
}

/// Waits for something that is certain to come.
#[track_caller]
pub fn until(what: &str, is_so: impl FnMut() -> bool) {
    assert!(comes(is_so), "{what}: never");
}

/// Waits until something is so, but not for ever; whether it is.
pub fn comes(mut is_so: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while started.elapsed() < WAIT_MAX {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}
