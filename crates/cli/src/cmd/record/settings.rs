//! What to record, from options and from a file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use tapdex_engine::beneath::{open_named, read_text};
use tapdex_record::privileges::Account;
use tapdex_record::recorder::RecordOptions;
use tapdex_record::source::{CaptureOptions, SNAPLEN_MAX, SourceName};
use tapdex_record::units::{Retention, Rotation, parse_duration, parse_size_with_unit};

use super::super::ask::{DEFAULT_ARCHIVE, check_folder};
use super::super::device::DeviceArg;
use super::super::serve::{Access, AccessFile};
use super::Args;
use super::log::{Log, LogFormat, LogLevel};

/// How much of a disk is used by default.
const PERCENT: f64 = 90.0;

/// A settings file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct Config {
    interfaces: Vec<String>,
    archive: Option<PathBuf>,
    filter: Option<String>,
    snaplen: Option<u32>,
    promiscuous: Option<bool>,
    buffer: Option<String>,
    queue: Option<String>,
    rotate: Option<String>,
    limit: OneOrMore,
    max_age: Option<String>,
    max_segments: Option<u64>,
    user: Option<String>,
    metrics: Option<String>,
    serve: Option<String>,
    access: AccessFile,
    device: Option<String>,
    threads: Option<usize>,
    sandbox: Option<bool>,
    log_format: Option<LogFormat>,
    log_level: Option<LogLevel>,
}

/// A text, or a list of them.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl Default for OneOrMore {
    fn default() -> Self {
        Self::More(Vec::new())
    }
}

/// The most bytes of a settings file.
const CONFIG_LEN_MAX: u64 = 1 << 20;

impl Config {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = open_named(path)
            .and_then(|file| read_text(file, CONFIG_LEN_MAX))
            .with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).map_err(|error| {
            // Lines of a message are indented.
            let message = error.to_string().trim_end().replace('\n', "\n  ");
            anyhow::anyhow!("{}: {message}", path.display())
        })
    }
}

/// What to record, and how.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) sources: Vec<SourceName>,
    pub(super) archive: PathBuf,
    pub(super) capture: CaptureOptions,
    pub(super) record: RecordOptions,
    pub(super) user: Option<Account>,
    pub(super) metrics: Option<SocketAddr>,
    pub(super) serve: Option<SocketAddr>,
    pub(super) access: Access,
    pub(super) device: DeviceArg,
    pub(super) sandbox: bool,
    pub(super) log: Log,
    duration: Option<Duration>,
}

impl Settings {
    /// The options that are given, then what the file says, then the defaults.
    pub(super) fn new(args: &Args) -> anyhow::Result<Self> {
        let file = args.config.as_deref().map(Config::read).transpose()?.unwrap_or_default();
        let names = if args.interfaces.is_empty() { &file.interfaces } else { &args.interfaces };
        let sources = names.iter().map(|name| SourceName::parse(name)).collect();
        let text = |given: &Option<String>, file: &Option<String>| given.clone().or(file.clone());
        let mut capture = CaptureOptions {
            filter: text(&args.filter, &file.filter).unwrap_or_default(),
            promiscuous: !args.no_promiscuous && file.promiscuous.unwrap_or(true),
            ..CaptureOptions::default()
        };
        match args.snaplen.or(file.snaplen) {
            None | Some(0) => {}
            Some(snaplen) => capture.snaplen = snaplen.min(SNAPLEN_MAX),
        }
        let size = |name: &str, text: Option<String>, default: u64| match text {
            Some(text) => parse_size_with_unit(&text).with_context(|| format!("--{name}")),
            None => Ok(default),
        };
        let mut record = RecordOptions::default();
        capture.ring_bytes = size("buffer", text(&args.buffer, &file.buffer), capture.ring_bytes)?;
        ensure!(
            i32::try_from(capture.ring_bytes).is_ok(),
            "--buffer: libpcap takes less than 2 GiB"
        );
        record.queue_bytes = size("queue", text(&args.queue, &file.queue), record.queue_bytes)?;
        let memory = memory_bytes().unwrap_or(u64::MAX);
        ensure!(record.queue_bytes < memory, "--queue: this machine has {memory} bytes of memory");
        if let Some(text) = text(&args.rotate, &file.rotate) {
            record.rotation = Rotation::parse(&text).context("--rotate")?;
        }
        record.retention = retention(args, &file)?;
        record.packets_max = args.count_max;
        record.index_threads = args.threads.or(file.threads).unwrap_or(1).max(1);
        let address = |name: &str, text: Option<String>, example: &str| {
            let parsed = text.as_ref().map(|text| text.parse::<SocketAddr>()).transpose();
            let text = text.as_deref().unwrap_or_default();
            parsed.with_context(|| format!("--{name} '{text}': expected {example}"))
        };
        let metrics = address("metrics", text(&args.metrics, &file.metrics), "127.0.0.1:9740")?;
        let serve = address("serve", text(&args.serve, &file.serve), "127.0.0.1:8417")?;
        if let (None, Some(name)) = (serve, args.access.given()) {
            bail!("{name} is about who may ask, and nobody can: give --serve, too");
        }
        let access = args.access.or(&file.access);
        serve.map_or(Ok(()), |at| access.check(at))?;
        let device = text(&args.device, &file.device).unwrap_or("cpu".to_owned());
        let device = DeviceArg::parse(&device).map_err(|error| anyhow::anyhow!("{error}"));
        let duration = args.duration.as_deref().map(parse_duration);
        let user = text(&args.user, &file.user);
        let archive = args.archive.clone().or(file.archive).unwrap_or(DEFAULT_ARCHIVE.into());
        check_folder(&archive)?;
        Ok(Self {
            sources,
            archive,
            capture,
            record,
            user: user.as_deref().map(super::account).transpose()?,
            metrics,
            serve,
            access,
            device: device.context("--device")?,
            sandbox: !args.no_sandbox && file.sandbox.unwrap_or(true),
            log: log(args, file.log_format, file.log_level),
            duration: duration.transpose().context("--duration")?,
        })
    }

    /// Whether it records from an interface.
    pub(super) fn has_interface(&self) -> bool {
        self.sources.iter().any(|name| matches!(name, SourceName::Interface(_)))
    }

    /// Ports of the servers that it records from.
    pub(super) fn ports(&self) -> Vec<u16> {
        let port = |name: &SourceName| match name {
            SourceName::Tcp(address) => address.rsplit_once(':')?.1.parse().ok(),
            _ => None,
        };
        self.sources.iter().filter_map(port).collect()
    }

    /// Whether the requested duration is over.
    pub(super) fn is_enough(&self, ran: Duration) -> bool {
        self.duration.is_some_and(|most| ran >= most)
    }
}

/// How messages are written, by the options and the settings file.
pub(super) fn log(args: &Args, format: Option<LogFormat>, level: Option<LogLevel>) -> Log {
    let level = args.log_level.or(args.quiet.then_some(LogLevel::Warn)).or(level);
    Log {
        format: args.log_format.or(format).unwrap_or_default(),
        level: level.unwrap_or(LogLevel::Info),
    }
}

/// Bytes of memory that the machine has.
fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn retention(args: &Args, file: &Config) -> anyhow::Result<Retention> {
    let mut retention = Retention::default();
    let limits: Vec<&String> = match (&args.limit[..], &file.limit) {
        ([], OneOrMore::One(limit)) => vec![limit],
        ([], OneOrMore::More(limits)) => limits.iter().collect(),
        (limits, _) => limits.iter().collect(),
    };
    for limit in &limits {
        retention.limit(limit).context("--limit")?;
    }
    if limits.is_empty() {
        retention.percent = Some(PERCENT);
    }
    if let Some(text) = args.max_age.as_ref().or(file.max_age.as_ref()) {
        retention.age = Some(parse_duration(text).context("--max-age")?);
    }
    retention.segments = args.max_segments.or(file.max_segments);
    if retention.segments == Some(0) {
        bail!("--max-segments 0 would keep nothing");
    }
    Ok(retention)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in the repository, as it is and with the settings that are commented out.
    #[test]
    fn the_example_is_understood() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/record.toml");
        let text = std::fs::read_to_string(path).unwrap();
        let config: Config = toml::from_str(&text).unwrap();
        assert_eq!(config.interfaces, ["eth0"]);
        let is_key = |line: &&str| {
            let name = line.strip_prefix("# ").and_then(|line| line.split_once(" = "));
            name.is_some_and(|(name, _)| !name.contains(' '))
        };
        let mentioned: Vec<&str> = text.lines().filter(is_key).collect();
        assert!(mentioned.len() >= 10, "{mentioned:?}");
        for line in mentioned {
            let setting: Config = toml::from_str(line.trim_start_matches("# ")).unwrap();
            if let Some(rotate) = setting.rotate {
                assert_eq!(Rotation::parse(&rotate).unwrap(), Rotation::default());
            }
        }
    }
}
