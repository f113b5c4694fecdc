//! Captures, indexed with every choice: the bytes of their columns, and the time of look-ups.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, ensure};
use tapdex_bench::builders::fitted;
use tapdex_bitmap::{ALL_CODECS, Chunks};
use tapdex_engine::archive::{Archive, CodecChoice};
use tapdex_engine::index::{Found, Index};
use tapdex_engine::traffic::Profile;

use crate::archive::captures::{self, Capture, Folder};
use crate::archive::indexing::index_into;

/// Made-up traffic of some kind.
#[derive(Debug, Clone, Copy)]
pub struct TrafficKind {
    pub name: &'static str,
    /// Packets, in thousandths of what is asked for.
    pub thousandths: u64,
    pub profile: fn() -> Profile,
}

/// Bytes of a frame that are captured: all headers, few payloads.
const SNAP_LEN: u32 = 160;

/// What is made up. Columns do not know of payloads, which are cut off.
pub const KINDS: [TrafficKind; 6] = [
    TrafficKind { name: "mixed", thousandths: 1_000, profile: Profile::default },
    TrafficKind {
        name: "small frames",
        thousandths: 1_000,
        profile: || Profile { mean_len: Some(64), ..Profile::default() },
    },
    TrafficKind {
        name: "scans and floods",
        thousandths: 1_000,
        profile: || Profile { scan_share: 0.2, flood_share: 0.2, ..Profile::default() },
    },
    TrafficKind {
        name: "IPv6 and tunnels",
        thousandths: 300,
        profile: || Profile { ipv6_share: 0.6, tunnel_share: 0.2, ..Profile::default() },
    },
    TrafficKind { name: "long", thousandths: 4_000, profile: Profile::default },
    TrafficKind { name: "short", thousandths: 30, profile: Profile::default },
];

/// Values of a column of a segment that are looked up, at most.
pub const VALUES_MAX: usize = 64;

/// What is compared: `auto` first, then every codec. HiPES has its narrowest chunks, since in the
/// usual ones a lone id takes 8 KB.
pub fn choices() -> Vec<CodecChoice> {
    let codecs = ALL_CODECS.map(|codec| CodecChoice::Fixed(fitted(codec, usize::MAX)));
    [CodecChoice::Auto].into_iter().chain(codecs).collect()
}

/// A column of a capture, with all choices.
#[derive(Debug, Default)]
pub struct Column {
    /// Bytes by choice.
    pub bytes: Vec<u64>,
    /// The forms that `auto` gave it, one for each segment.
    pub forms: Vec<String>,
    /// Seconds of each look-up, by choice.
    pub looks: Vec<Vec<f64>>,
}

/// A capture that was indexed with all choices.
#[derive(Debug)]
pub struct Indexed {
    pub name: String,
    pub packets: u64,
    /// Bytes of all of the index, by choice.
    pub bytes: Vec<u64>,
    /// Columns by the names of their fields.
    pub columns: BTreeMap<String, Column>,
}

/// Captures that are made up, and real ones if somebody says where they are.
pub fn all(
    folder: &Folder,
    (packets, seed): (u64, u64),
    traces: Option<&Path>,
    rounds: usize,
) -> anyhow::Result<(Vec<Indexed>, Vec<Indexed>)> {
    let (mut made_up, mut real) = (Vec::new(), Vec::new());
    for kind in KINDS {
        let packets = (packets * kind.thousandths / 1_000).max(1);
        let profile = Profile { seed, packets, snap_len: SNAP_LEN, ..(kind.profile)() };
        let scratch = folder.scratch();
        std::fs::create_dir_all(scratch.path())?;
        let path = scratch.path().join("capture.pcap");
        captures::write(&profile, &path)?;
        made_up.push(index(folder, &Capture::read(kind.name, &path)?, rounds)?);
    }
    for capture in captures::traces(folder, traces)? {
        real.push(index(folder, &capture, rounds)?);
    }
    Ok((made_up, real))
}

/// Indexes a capture with all choices, and looks up values of its columns.
fn index(folder: &Folder, capture: &Capture, rounds: usize) -> anyhow::Result<Indexed> {
    eprintln!("{}", capture.name);
    let choices = choices();
    let mut bytes = Vec::new();
    let mut columns: BTreeMap<String, Column> = BTreeMap::new();
    let (mut scratches, mut opened) = (Vec::new(), Vec::new());
    for (number, &choice) in choices.iter().enumerate() {
        let scratch = folder.scratch();
        index_into(scratch.path(), capture, choice, 0)?;
        let files = Archive::open(scratch.path())?.index_files()?;
        scratches.push(scratch);
        let segments = files.iter().map(|path| Index::open(path)).collect::<Result<Vec<_>, _>>()?;
        bytes.push(segments.iter().map(Index::len_bytes).sum());
        for share in segments.iter().flat_map(Index::shares) {
            let Some(form) = share.form else { continue };
            let column = columns.entry(share.name).or_default();
            column.bytes.resize(choices.len(), 0);
            column.bytes[number] += share.bytes;
            if choice == CodecChoice::Auto {
                column.forms.push(form.to_string());
            }
        }
        opened.push(segments);
    }
    let packets = capture.packets;
    for segments in &opened {
        let rows: u64 = segments.iter().map(|segment| u64::from(segment.rows())).sum();
        ensure!(rows == packets, "{}: {rows} rows of {packets} packets", capture.name);
        ensure!(segments.len() == opened[0].len(), "{}: segments differ", capture.name);
    }
    for number in 0..opened[0].len() {
        let of_choices: Vec<&Index> = opened.iter().map(|segments| &segments[number]).collect();
        look_up(&of_choices, &mut columns, rounds).with_context(|| capture.name.clone())?;
    }
    Ok(Indexed { name: capture.name.clone(), packets, bytes, columns })
}

/// Times look-ups in a segment that was built with each choice.
fn look_up(
    segments: &[&Index],
    columns: &mut BTreeMap<String, Column>,
    rounds: usize,
) -> anyhow::Result<()> {
    let schema = segments[0].flow_schema().context("not a segment of conversations")?;
    for flow_column in &schema.columns {
        // Of both ends, the source.
        let name = flow_column.names.first().context("a column without a name")?;
        let field = segments[0].flow_field(name)?.context("a column that is not there")?;
        let mut values = field.count(None)?;
        let step = values.len().div_ceil(VALUES_MAX).max(1);
        values = values.into_iter().step_by(step).collect();
        let mut times = vec![vec![Vec::new(); values.len()]; segments.len()];
        for round in 0..=rounds {
            for (place, &(value, rows)) in values.iter().enumerate() {
                for (segment, times) in segments.iter().zip(&mut times) {
                    let start = Instant::now();
                    let found = black_box(count(segment, name, value)?);
                    let seconds = start.elapsed().as_secs_f64();
                    segment.check_flows()?;
                    ensure!(found == rows, "{name} {value}: {found} rows instead of {rows}");
                    // The first round checks checksums and warms caches.
                    if round > 0 {
                        times[place].push(seconds);
                    }
                }
            }
        }
        let column = columns.entry(flow_column.names.join(", ")).or_default();
        column.looks.resize(segments.len(), vec![]);
        for (looks, times) in column.looks.iter_mut().zip(times) {
            looks.extend(times.into_iter().filter_map(median));
        }
    }
    Ok(())
}

/// How many rows have a value.
fn count(index: &Index, name: &str, value: u128) -> anyhow::Result<u64> {
    let field = index.flow_field(name)?.context("a column that is not there")?;
    Ok(match field.equals(value, None)? {
        Found::None => 0,
        Found::All => index.rows().into(),
        Found::Some(rows, _) => rows.count(),
        Found::Conversations(conversations, _) => conversations.rows_len(),
    })
}

/// The one in the middle, if there is one.
pub fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied()
}
