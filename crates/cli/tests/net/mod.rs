//! Networks of a test's own, for the tests that share them.

#![allow(dead_code, unreachable_pub, reason = "not every test needs all of it")]

use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// No wait of these tests is longer.
pub const WAIT_MAX: Duration = Duration::from_secs(30);

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
        let text = self.inside("cat /proc/net/dev");
        let start = format!("{interface}:");
        let line = text.lines().find_map(|line| line.trim().strip_prefix(&start)).unwrap();
        let numbers: Vec<u64> = line.split_whitespace().map(|n| n.parse().unwrap()).collect();
        (numbers[1], numbers[0])
    }
}

/// The exit code of a process that ends in time; `None` if it does not, or by a signal.
pub fn wait(child: &mut Child) -> Option<i32> {
    let mut status = None;
    until(|| {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.and_then(|status| status.code())
}

/// Waits until something is so, but not for ever; whether it is.
pub fn until(mut is_so: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while started.elapsed() < WAIT_MAX {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}
