//! `tapdex info`: the contents of an archive, and the size of its parts.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use anyhow::Context;
use tapdex_engine::archive::{Archive, Segment};
use tapdex_engine::fields::FieldSet;
use tapdex_engine::index::SectionKind;
use tapdex_engine::time::{TimeRange, format_time};
use tapdex_record::status::Status;
use tapdex_report::table::{self, Align};

use super::ask::{ArchiveArg, line};
use super::missing::{self, AllowArg, Story};
use super::record::by_stage;
use super::{CANNOT_WRITE, counted, json, note, shown_packets};

/// Show the contents of an archive: packets, times, gaps, and the size of the indexes.
///
///     tapdex info
///     tapdex info -r archive --fields
///     tapdex info --segments
///     tapdex info --json --fields --segments
///
/// Reports missing packets as searches do: lost while recording, removed by retention or not
/// recorded, in truncated or damaged captures, or unreadable. A gap is a time of more than a second
/// between segments without packets. If the archive was recorded, also shows how many packets were
/// stored, lost and removed in all runs, and whether a recorder is running. With --json, prints an
/// object for the archive, then one for each field, segment and gap, one per line. Exits with 3 if
/// packets are missing, or with 0 with --allow-incomplete.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    archive: ArchiveArg,
    #[command(flatten)]
    allow: AllowArg,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
    /// Show the size and the codecs of each field.
    #[arg(long)]
    fields: bool,
    /// List the segments.
    #[arg(long)]
    segments: bool,
}

/// The least length of a gap, in nanoseconds.
const GAP_NS: u64 = 1_000_000_000;
/// How many gaps are listed: the longest ones.
const GAPS_SHOWN: usize = 10;

/// What a field takes, in all segments.
#[derive(Default)]
struct FieldSum {
    bytes: u64,
    columns: u64,
    /// Columns in each codec.
    codecs: BTreeMap<String, u64>,
}

struct Info {
    segments: Vec<Arc<Segment>>,
    packets: u64,
    wire_bytes: u64,
    captured: u64,
    flows: u64,
    index_bytes: u64,
    /// Packets that are only in drafts.
    unindexed: u64,
    /// The status of the recorder, and whether it runs.
    recorder: Option<(Status, bool)>,
    window: Option<(u64, u64)>,
    gaps: Vec<(u64, u64)>,
    /// Fields in the order of the columns, then parts that belong to no field.
    fields: Vec<(String, FieldSum)>,
    /// What is missing.
    missing: Vec<Story>,
    /// How many indexes or captures cannot be read.
    damaged: usize,
}

impl Info {
    fn new(archive: &Archive) -> anyhow::Result<Self> {
        let survey = archive.survey(TimeRange::ALL)?;
        let missing = missing::stories(&survey.gaps);
        let damaged = survey.gaps.iter().filter(|gap| gap.error.is_some()).count();
        let segments = survey.segments;
        let sum = |of: &dyn Fn(&Segment) -> u64| segments.iter().map(|s| of(s)).sum::<u64>();
        let (mut window, mut gaps) = (None::<(u64, u64)>, Vec::new());
        for segment in segments.iter().filter(|segment| segment.note().records > 0) {
            let (first, last) = (segment.note().time_min, segment.note().time_max);
            if let Some((_, end)) = window
                && first.saturating_sub(end) > GAP_NS
            {
                gaps.push((end, first));
            }
            window = Some(window.map_or((first, last), |(a, b)| (a.min(first), b.max(last))));
        }
        let mut info = Self {
            packets: sum(&|s| s.note().records),
            wire_bytes: sum(&|s| s.note().wire_bytes),
            captured: sum(&|s| s.note().captured_bytes),
            flows: sum(&|s| s.note().flows),
            index_bytes: sum(&|s| if s.is_draft() { 0 } else { s.index().len_bytes() }),
            unindexed: sum(&|s| if s.is_draft() { s.note().records } else { 0 }),
            recorder: Status::read(archive).map(|status| recorder(archive, status)),
            window,
            gaps,
            fields: Vec::new(),
            missing,
            damaged,
            segments,
        };
        info.sum_fields();
        Ok(info)
    }

    fn sum_fields(&mut self) {
        let mut names: Vec<String> =
            FieldSet::ALL.iter().map(|field| field.name().to_owned()).collect();
        // A column of both ends, where its first field is.
        for segment in &self.segments {
            for share in segment.index().shares() {
                let Some((first, _)) = share.name.split_once(", ") else { continue };
                if let Some(place) = names.iter().position(|name| name == first)
                    && !names.contains(&share.name)
                {
                    names.insert(place, share.name);
                }
            }
        }
        let kinds = [
            SectionKind::Flows,
            SectionKind::Volumes,
            SectionKind::RowMap,
            SectionKind::Times,
            SectionKind::Marks,
            SectionKind::Sums,
            SectionKind::Note,
        ];
        names.extend(kinds.map(|kind| kind.name().to_owned()));
        names.push("rest".into());
        let mut sums: Vec<FieldSum> = names.iter().map(|_| FieldSum::default()).collect();
        let rest = names.len() - 1;
        for segment in self.segments.iter().filter(|segment| !segment.is_draft()) {
            for share in segment.index().shares() {
                let place = names.iter().position(|name| *name == share.name).unwrap_or(rest);
                sums[place].bytes += share.bytes;
                sums[place].columns += share.columns;
                if let Some(form) = share.form {
                    *sums[place].codecs.entry(form.to_string()).or_default() += share.columns;
                }
            }
        }
        self.fields = names.into_iter().zip(sums).filter(|(_, sum)| sum.bytes > 0).collect();
    }

    fn a_packet(&self, bytes: u64) -> f64 {
        bytes as f64 / self.packets.max(1) as f64
    }

    fn percent(&self, bytes: u64, all: u64) -> f64 {
        100.0 * bytes as f64 / all.max(1) as f64
    }
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let archive = Archive::open(&args.archive.archive)?;
    let info = Info::new(&archive)?;
    match args.json {
        true => write_json(args, &archive, &info, out)?,
        false => write_tables(args, &archive, &info, out)?,
    }
    out.flush().context(CANNOT_WRITE)?;
    if info.damaged > 0 {
        note("run tapdex repair to rebuild damaged indexes");
    }
    missing::end(&info.missing, args.allow)
}

fn write_tables(
    args: &Args,
    archive: &Archive,
    info: &Info,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut rows = vec![
        ("archive", archive.folder().display().to_string()),
        ("settings", format!("codec {}", archive.settings().codec)),
        ("segments", info.segments.len().to_string()),
        ("packets", info.packets.to_string()),
        ("bytes on the wire", info.wire_bytes.to_string()),
        ("bytes captured", info.captured.to_string()),
        ("flows", info.flows.to_string()),
    ];
    if let Some((first, last)) = info.window {
        rows.push(("first packet", format_time(first)));
        rows.push(("last packet", format_time(last)));
        rows.push(("window", format!("{:.3} s", last.saturating_sub(first) as f64 / 1e9)));
    }
    rows.push((
        "index bytes",
        format!(
            "{}, {:.2} per packet, {:.2} % of the captured bytes",
            info.index_bytes,
            info.a_packet(info.index_bytes),
            info.percent(info.index_bytes, info.captured)
        ),
    ));
    if info.unindexed > 0 {
        rows.push(("not indexed yet", counted(info.unindexed, "packet")));
    }
    if let Some((status, running)) = &info.recorder {
        rows.extend(recorder_rows(status, *running));
    }
    if info.missing.is_empty() {
        rows.push(("missing", "nothing known".to_owned()));
    }
    rows.extend(info.missing.iter().map(|story| ("missing", story.text())));
    rows.push(("gaps", info.gaps.len().to_string()));
    for (name, value) in rows {
        line(out, format_args!("{name:<18} {value}"))?;
    }
    let mut gaps = info.gaps.clone();
    gaps.sort_by_key(|(end, start)| std::cmp::Reverse(start - end));
    for (end, start) in gaps.into_iter().take(GAPS_SHOWN) {
        let [from, to] = [end, start].map(format_time);
        let seconds = (start - end) as f64 / 1e9;
        line(out, format_args!("  {from} to {to}, {seconds:.3} s"))?;
    }
    if args.fields {
        line(out, format_args!(""))?;
        let headings = [
            ("field", Align::Left),
            ("bytes", Align::Right),
            ("a packet", Align::Right),
            ("percent", Align::Right),
            ("columns by codec", Align::Left),
        ];
        let rows = || {
            info.fields.iter().map(|(name, sum)| {
                let codecs: Vec<String> =
                    sum.codecs.iter().map(|(codec, count)| format!("{codec} {count}")).collect();
                vec![
                    name.clone(),
                    sum.bytes.to_string(),
                    format!("{:.3}", info.a_packet(sum.bytes)),
                    format!("{:.1}", info.percent(sum.bytes, info.index_bytes)),
                    codecs.join(", "),
                ]
            })
        };
        table::write(out, &headings, rows).context(CANNOT_WRITE)?;
    }
    if args.segments {
        line(out, format_args!(""))?;
        let headings = [
            ("first packet", Align::Left),
            ("last packet", Align::Left),
            ("packets", Align::Right),
            ("index bytes", Align::Right),
            ("order", Align::Left),
            ("file", Align::Left),
            ("damage", Align::Left),
        ];
        let rows = || {
            info.segments.iter().map(|segment| {
                let note = segment.note();
                vec![
                    format_time(note.time_min),
                    format_time(note.time_max),
                    note.records.to_string(),
                    segment.index().len_bytes().to_string(),
                    segment.index().row_order().name().to_owned(),
                    shown_packets(segment),
                    note.source.damage.clone(),
                ]
            })
        };
        table::write(out, &headings, rows).context(CANNOT_WRITE)?;
    }
    Ok(())
}

/// The status of the recorder, and whether it runs.
fn recorder(archive: &Archive, mut status: Status) -> (Status, bool) {
    let running = Status::is_running(archive);
    if !running {
        // A recorder that was killed could not count its last packets.
        status.total = status.total_stored(archive);
    }
    (status, running)
}

/// The status of a recorder, as rows of a table.
fn recorder_rows(status: &Status, running: bool) -> Vec<(&'static str, String)> {
    let state = recorder_text(status, running);
    let names: Vec<&str> = status.sources.iter().map(|source| source.name.as_str()).collect();
    let mut rows = vec![
        ("recorder", format!("{state}, from {}", names.join(", "))),
        ("recorded", counted(status.total.packets, "packet")),
        ("lost", by_stage(&status.total.lost)),
    ];
    if status.total.removed_segments > 0 {
        let segments = counted(status.total.removed_segments, "recording");
        let packets = counted(status.total.removed_packets, "packet");
        rows.push(("removed", format!("{segments}, {packets}")));
    }
    if running {
        let (rate, bits) = (status.packets_per_second, status.bits_per_second / 1e6);
        rows.push(("rate", format!("{rate:.0} packets/s, {bits:.1} Mb/s")));
    }
    rows
}

/// The state of a recorder, in a word.
fn recorder_state(status: &Status, running: bool) -> &'static str {
    match (running, status.ended, status.paused) {
        (true, _, true) => "paused",
        (true, ..) => "running",
        (_, true, _) => "ended",
        _ => "killed",
    }
}

/// The state of a recorder, for people.
fn recorder_text(status: &Status, running: bool) -> String {
    let (pid, updated) = (status.pid, format_time(status.updated_ns));
    match recorder_state(status, running) {
        "paused" => format!("process {pid}, PAUSED: the disk is full"),
        "killed" => format!("killed after {updated}"),
        "ended" => format!("ended {updated}"),
        state => format!("process {pid}, {state}"),
    }
}

fn write_json(
    args: &Args,
    archive: &Archive,
    info: &Info,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let head = json::Archive {
        archive: archive.folder().display().to_string(),
        segments: info.segments.len(),
        packets: info.packets,
        wire_bytes: info.wire_bytes,
        captured_bytes: info.captured,
        flows: info.flows,
        first: info.window.map(|(first, _)| json::Time(first)),
        last: info.window.map(|(_, last)| json::Time(last)),
        index_bytes: info.index_bytes,
        unindexed: info.unindexed,
        gaps: info.gaps.len(),
        damaged: info.damaged,
        incomplete: missing::lines(&info.missing),
    };
    json::line(out, &head)?;
    if let Some((status, running)) = &info.recorder {
        let state = recorder_state(status, *running);
        json::line(out, &json::RecorderLine::new(status, state, *running))?;
    }
    if args.fields {
        for (field, sum) in &info.fields {
            let FieldSum { bytes, columns, codecs } = sum;
            json::line(out, &json::Field { field, bytes: *bytes, columns: *columns, codecs })?;
        }
    }
    if args.segments {
        for segment in &info.segments {
            let note = segment.note();
            let line = json::Segment {
                segment: segment.path().display().to_string(),
                file: shown_packets(segment),
                packets: note.records,
                first: json::Time(note.time_min),
                last: json::Time(note.time_max),
                index_bytes: segment.index().len_bytes(),
                order: segment.index().row_order().name(),
                damage: &note.source.damage,
            };
            json::line(out, &line)?;
        }
    }
    for &(end, start) in &info.gaps {
        let gap = json::Gap { from: json::Time(end), to: json::Time(start), ns: start - end };
        json::line(out, &json::GapLine { gap })?;
    }
    Ok(())
}
