//! A cable in a network of its own, and who sends into it.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

/// Between two looks at a process or a count.
pub const LOOK: Duration = Duration::from_millis(5);
/// No sender takes longer.
const SEND_MAX: Duration = Duration::from_secs(120);
/// What was sent is at the other end after so long, or never.
const ARRIVE_MAX: Duration = Duration::from_secs(2);

/// The ends of the cable.
const NEAR: &str = "v0";
pub const FAR: &str = "v1";

/// Makes the cable, then lives as long as its standard input is open. Without IPv6 the kernel sends
/// nothing of its own.
const SCRIPT: &str = "set -e
for which in all default; do
  file=/proc/sys/net/ipv6/conf/$which/disable_ipv6
  if [ -e $file ]; then echo 1 > $file; fi
done
ip link add v0 mtu 9000 type veth peer name v1 mtu 9000
ip link set v0 up
ip link set v1 up
echo ready
exec cat";

/// A process that is ended when this is dropped.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Running {
    /// How it ended; `None` if it has not in this time.
    pub fn wait(&mut self, most: Duration) -> anyhow::Result<Option<ExitStatus>> {
        let started = Instant::now();
        while started.elapsed() < most {
            if let Some(status) = self.0.try_wait()? {
                return Ok(Some(status));
            }
            std::thread::sleep(LOOK);
        }
        Ok(None)
    }
}

/// How fast packets are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// So many a second.
    PerSecond(u64),
    /// As fast as one sender can.
    Top,
    /// As fast as two senders can that run at once.
    TwoAtTop,
}

impl Load {
    /// What tables call it.
    pub fn name(self) -> String {
        match self {
            Self::PerSecond(rate) => format!("{} k", rate as f64 / 1e3),
            Self::Top => "top".to_owned(),
            Self::TwoAtTop => "top, two senders".to_owned(),
        }
    }

    fn senders(self) -> usize {
        if self == Self::TwoAtTop { 2 } else { 1 }
    }

    /// Packets that a sender sends: at a rate, those of so many seconds, or for up to three times
    /// as long until there are `least`.
    pub fn packets(self, seconds: f64, least: u64, most: u64) -> u64 {
        match self {
            Self::PerSecond(rate) => {
                let packets = (rate as f64 * seconds) as u64;
                least.clamp(packets, 3 * packets).clamp(1, most)
            }
            Self::Top | Self::TwoAtTop => most,
        }
    }
}

/// What was sent.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sent {
    /// As the senders say.
    pub packets: u64,
    pub bytes: u64,
    /// From the first packet to the last.
    pub seconds: f64,
    /// Packets that came to the other end, as the kernel counts them.
    pub delivered: u64,
}

/// A network namespace with a cable in it. It has no name, so that it is gone, whatever happens,
/// when the last process in it is: one that we keep there, which ends with us.
pub struct Wire {
    holder: Running,
}

impl Wire {
    pub fn new() -> anyhow::Result<Self> {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", SCRIPT]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let child = command.spawn().context("cannot run unshare, of util-linux")?;
        let mut holder = Running(child);
        let mut line = String::new();
        if let Some(output) = holder.0.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        ensure!(
            line.trim() == "ready",
            "no network namespace with a cable in it could be made: this needs root, and ip of \
             iproute2"
        );
        Ok(Self { holder })
    }

    fn proc_file(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.holder.0.id())
    }

    /// A program inside, which ends when we do. Those before it become it, so that the number of
    /// the process is its own.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.proc_file("ns/net")));
        command.args(["setpriv", "--pdeathsig", "TERM"]).arg(program);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.env_remove("TAPDEX_ARCHIVE").env_remove("TAPDEX_DEVICE");
        command
    }

    /// Packets that have come to the far end.
    fn arrived(&self) -> anyhow::Result<u64> {
        let text = fs::read_to_string(self.proc_file("net/dev"))?;
        received(&text, FAR).with_context(|| format!("no count of {FAR} in {text:?}"))
    }

    /// Sends the first packets of a capture, and waits until they are there.
    pub fn send(
        &self,
        tapdex: &Path,
        capture: &Path,
        load: Load,
        packets: u64,
    ) -> anyhow::Result<Sent> {
        let before = self.arrived()?;
        let mut senders = Vec::new();
        for _ in 0..load.senders() {
            let mut command = self.command(tapdex);
            command.args(["replay", "-i", NEAR, "--preload", "-c", &packets.to_string()]);
            match load {
                Load::PerSecond(rate) => command.args(["--pps", &rate.to_string()]),
                Load::Top | Load::TwoAtTop => command.arg("--top"),
            };
            command.arg("--file").arg(capture).stderr(Stdio::piped());
            senders.push(Running(command.spawn()?));
        }
        let mut watch = Watch::new(before);
        let started = Instant::now();
        while !are_done(&mut senders)? {
            ensure!(started.elapsed() < SEND_MAX, "sending takes too long");
            if senders.len() > 1 {
                watch.look(self.arrived()?);
            }
            std::thread::sleep(LOOK);
        }
        let mut sent = Sent::default();
        for sender in &mut senders {
            let (packets, bytes, seconds) = said(sender)?;
            sent.packets += packets;
            sent.bytes += bytes;
            sent.seconds = sent.seconds.max(seconds);
        }
        // One begins before the other.
        sent.seconds = sent.seconds.max(watch.seconds());
        sent.delivered = self.arrived()? - before;
        let started = Instant::now();
        while sent.delivered < sent.packets && started.elapsed() < ARRIVE_MAX {
            std::thread::sleep(LOOK);
            sent.delivered = self.arrived()? - before;
        }
        Ok(sent)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        drop(self.holder.0.stdin.take());
    }
}

fn are_done(senders: &mut [Running]) -> anyhow::Result<bool> {
    let mut all = true;
    for sender in senders {
        all &= sender.0.try_wait()?.is_some();
    }
    Ok(all)
}

/// What a sender that has ended says that it has sent.
fn said(sender: &mut Running) -> anyhow::Result<(u64, u64, f64)> {
    let status = sender.0.wait()?;
    let mut text = String::new();
    if let Some(mut errors) = sender.0.stderr.take() {
        std::io::Read::read_to_string(&mut errors, &mut text)?;
    }
    ensure!(status.success(), "tapdex replay: {status}: {}", text.trim_end());
    let Some(sent) = parse_sent(&text) else { bail!("tapdex replay does not say it: {text:?}") };
    Ok(sent)
}

/// Packets, bytes and seconds in what `tapdex replay` says.
fn parse_sent(text: &str) -> Option<(u64, u64, f64)> {
    let line = text.lines().find_map(|line| line.strip_prefix("tapdex: sent "))?;
    let mut parts = line.split(", ");
    let mut number = || parts.next()?.split(' ').next()?.parse::<f64>().ok();
    let (packets, bytes, _, _, seconds) = (number()?, number()?, number()?, number()?, number()?);
    Some((packets as u64, bytes as u64, seconds))
}

/// Packets that an interface has received, in /proc/net/dev.
fn received(text: &str, interface: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| {
        let (name, rest) = line.split_once(':')?;
        (name.trim() == interface).then_some(rest)
    });
    rest?.split_whitespace().nth(1)?.parse().ok()
}

/// When a count grew first and last.
struct Watch {
    count: u64,
    span: Option<(Instant, Instant)>,
}

impl Watch {
    fn new(count: u64) -> Self {
        Self { count, span: None }
    }

    fn look(&mut self, count: u64) {
        if count > self.count {
            let now = Instant::now();
            self.count = count;
            self.span = Some((self.span.map_or(now, |(first, _)| first), now));
        }
    }

    fn seconds(&self) -> f64 {
        self.span.map_or(0.0, |(first, last)| last.duration_since(first).as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_replay_says() {
        let text = "tapdex: read 7 packets into 0.1 MiB of memory, 0.00 s\ntapdex: sent 7 packets, \
                    4900 bytes, 0 skipped, 2 retried, 0.125 s, 56 packets/s, 0.000 Gb/s\n";
        assert_eq!(parse_sent(text), Some((7, 4_900, 0.125)));
        assert_eq!(parse_sent("tapdex: sent 7 packets, 4900 bytes"), None);
        assert_eq!(parse_sent(""), None);
    }

    #[test]
    fn counts_are_those_of_the_interface() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes    packets errs\n    \
                    v10:       1       2    0\n    v1:     700      10    0 3\n";
        assert_eq!(received(text, "v1"), Some(10));
        assert_eq!(received(text, "v0"), None);
    }

    #[test]
    fn a_cell_is_as_long_as_asked_for_if_there_are_packets() {
        let most = 600_000;
        assert_eq!(Load::PerSecond(50_000).packets(0.5, 0, most), 25_000);
        assert_eq!(Load::PerSecond(50_000).packets(0.5, 60_000, most), 60_000);
        assert_eq!(Load::PerSecond(50_000).packets(0.5, 100_000, most), 75_000);
        assert_eq!(Load::PerSecond(800_000).packets(2.0, 0, most), most);
        assert_eq!(Load::PerSecond(1).packets(0.5, 0, most), 1);
        assert_eq!(Load::TwoAtTop.packets(0.5, 0, most), most);
        assert_eq!(
            (Load::PerSecond(50_000).name(), Load::Top.name()),
            ("50 k".into(), "top".into())
        );
    }
}
