//! The columns of archives: what can be seen of them without encoding, and their sizes.

use std::path::Path;

use anyhow::{Context, ensure};
use tapdex_bitmap::{Codec, Sizes};
use tapdex_engine::archive::{Archive, CodecChoice, Segment};
use tapdex_engine::fields::Field;
use tapdex_engine::traffic::Profile;

use super::looks::{Looks, Samples};
use crate::archive::captures::{self, Capture, Folder};
use crate::archive::indexing::index_into;

/// What a column is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The table is made from it.
    Learnt,
    /// The table is tried on it; made up as the others are, from other seeds.
    Tried,
    /// The table is tried on it; from a real capture.
    Real,
}

/// What a column is like before one looks at its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// All rows of a flow have the same value.
    OfFlow,
    /// Each packet has a value of its own: TCP flags and length.
    OfPacket,
}

pub const GROUPS: [Group; 2] = [Group::OfFlow, Group::OfPacket];

impl Group {
    pub fn name(self) -> &'static str {
        match self {
            Self::OfFlow => "fields of flows",
            Self::OfPacket => "TCP flags and length",
        }
    }
}

/// A column of a segment.
#[derive(Debug, Clone)]
pub struct Column {
    /// The capture, without its seed.
    pub data: String,
    pub part: Part,
    pub field: String,
    /// Which column of the field it is.
    pub digit: usize,
    /// Rows of the segment.
    pub rows: u64,
    /// Values that occur.
    pub values: u64,
    /// Rows that differ from the one before, and the first.
    pub runs: u64,
    /// Bytes of its bitmaps in every codec.
    pub sizes: Sizes,
    /// What `auto` takes.
    pub auto: Codec,
    /// Nanoseconds of a look-up in every codec, where that is measured.
    pub looks: Option<Looks>,
}

impl Column {
    pub fn group(&self) -> Group {
        let field = Field::of_name(&self.field);
        let is_own = field.is_some_and(|field| !field.spec().is_of_flow());
        if is_own { Group::OfPacket } else { Group::OfFlow }
    }

    /// Bytes of its bitmaps.
    pub fn bytes(&self, codec: Codec) -> u64 {
        self.sizes.of_codec(codec).unwrap_or(0)
    }
}

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

/// The columns of made-up traffic of all kinds.
pub fn made_up(
    folder: &Folder,
    packets: u64,
    seed: u64,
    part: Part,
    rounds: usize,
) -> anyhow::Result<Vec<Column>> {
    let mut columns = Vec::new();
    for kind in KINDS {
        eprintln!("{}, seed {seed}", kind.name);
        let packets = (packets * kind.thousandths / 1_000).max(1);
        let profile = Profile { seed, packets, snap_len: SNAP_LEN, ..(kind.profile)() };
        let scratch = folder.scratch();
        std::fs::create_dir_all(scratch.path())?;
        let path = scratch.path().join("capture.pcap");
        captures::write(&profile, &path)?;
        columns.extend(of_capture(folder, &Capture::read(kind.name, &path)?, part, rounds)?);
    }
    Ok(columns)
}

/// The columns of real captures; none if nobody says where they are.
pub fn real(folder: &Folder, given: Option<&Path>, rounds: usize) -> anyhow::Result<Vec<Column>> {
    let mut columns = Vec::new();
    for capture in captures::traces(folder, given)? {
        eprintln!("{}", capture.name);
        columns.extend(of_capture(folder, &capture, Part::Real, rounds)?);
    }
    Ok(columns)
}

/// The columns of a capture's index; without rounds, look-ups are not timed.
fn of_capture(
    folder: &Folder,
    capture: &Capture,
    part: Part,
    rounds: usize,
) -> anyhow::Result<Vec<Column>> {
    let mut columns = Vec::new();
    let scratch = folder.scratch();
    index_into(scratch.path(), capture, CodecChoice::Auto, 0)?;
    let (segments, failed) = Archive::open(scratch.path())?.segments()?;
    ensure!(failed.is_empty(), "{}: {failed:?}", capture.name);
    for segment in &segments {
        columns.extend(of_segment(segment, &capture.name, part, rounds)?);
    }
    Ok(columns)
}

fn of_segment(
    segment: &Segment,
    data: &str,
    part: Part,
    rounds: usize,
) -> anyhow::Result<Vec<Column>> {
    let index = segment.index();
    let mut columns = Vec::new();
    let (mut number, mut runs) = (0, Vec::new());
    for field in &index.schema().fields {
        for (digit, spec) in field.columns.iter().enumerate() {
            let column = index.column(number)?;
            number += 1;
            let (mut sizes, mut all_runs, mut written) = (Sizes::default(), 0, 0);
            let mut samples = Samples::new(column.rows(), column.len(), rounds > 0);
            for value in 0..column.len() {
                let bitmap = column.bitmap(value)?;
                runs_of(bitmap.ids(), &mut runs);
                samples.take(value, &runs);
                sizes.add(&Sizes::of_runs(&runs));
                all_runs += runs.len() as u64;
                written += bitmap.as_bytes().len() as u64;
            }
            let counted = sizes.of_codec(spec.codec).context("a codec without a size")?;
            ensure!(written == counted, "{}: {written} bytes, {counted} counted", field.name);
            columns.push(Column {
                data: data.to_owned(),
                part,
                field: field.name.clone(),
                digit,
                rows: column.rows().into(),
                values: column.len() as u64,
                runs: all_runs,
                sizes,
                auto: spec.codec,
                looks: samples.time(rounds)?,
            });
        }
    }
    Ok(columns)
}

/// The runs of ascending ids, the first and the last of each.
pub fn runs_of(ids: impl Iterator<Item = u32>, target: &mut Vec<(u32, u32)>) {
    target.clear();
    for id in ids {
        match target.last_mut() {
            Some(run) if run.1 + 1 == id => run.1 = id,
            _ => target.push((id, id)),
        }
    }
}
