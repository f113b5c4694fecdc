//! `tapdex info`: the contents of an archive, and the size of its parts.

use std::io::Write;

use anyhow::Context;
use tapdex_answers::inventory::Inventory;
use tapdex_answers::json::Time;
use tapdex_answers::lines::{GapLine, Lost, Recorder, RecorderLine};
use tapdex_client::nodes::Nodes;
use tapdex_engine::query::Control;
use tapdex_engine::time::format_time;
use tapdex_report::table::{self, Align};

use super::ask::{Places, PlacesArg, answered, line};
use super::missing::{self, AllowArg};
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
/// packets are missing, or with 0 with --allow-incomplete. Of several archives, each is shown.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    places: PlacesArg,
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

/// How many gaps are listed: the longest ones.
const GAPS_SHOWN: usize = 10;

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let archive = match args.places.open()? {
        Places::Folder(archive) => archive,
        Places::Nodes(nodes) => return show_all(args, &nodes, out),
    };
    let name = archive.folder().display().to_string();
    let info = Inventory::new(&archive, name, shown_packets)?;
    match args.json {
        true => write_json(args, &info, out)?,
        false => write_tables(args, &info, out)?,
    }
    out.flush().context(CANNOT_WRITE)?;
    if info.archive.damaged > 0 {
        note("run tapdex repair to rebuild damaged indexes");
    }
    missing::end(&info.archive.incomplete, args.allow)
}

/// Shows each place.
fn show_all(args: &Args, nodes: &Nodes, out: &mut dyn Write) -> anyhow::Result<()> {
    let answer = answered(nodes.inventories(&Control::default()))?;
    for (number, info) in answer.value.nodes.iter().enumerate() {
        if !args.json && number > 0 {
            line(out, format_args!(""))?;
        }
        match args.json {
            true => write_json(args, info, out)?,
            false => write_tables(args, info, out)?,
        }
    }
    out.flush().context(CANNOT_WRITE)?;
    // The others have told it already.
    let silent = answer.nodes.iter().filter(|share| share.error.is_some());
    let silent: Vec<&str> = silent.map(|share| share.node.as_str()).collect();
    for one in answer.incomplete.iter().filter(|one| silent.contains(&one.node.as_str())) {
        note(&one.text());
    }
    missing::end(&answer.incomplete, args.allow)
}

fn a_packet(info: &Inventory, bytes: u64) -> f64 {
    bytes as f64 / info.archive.packets.max(1) as f64
}

fn percent(bytes: u64, all: u64) -> f64 {
    100.0 * bytes as f64 / all.max(1) as f64
}

fn write_tables(args: &Args, info: &Inventory, out: &mut dyn Write) -> anyhow::Result<()> {
    let head = &info.archive;
    let mut rows = vec![
        ("archive", head.archive.clone()),
        ("settings", format!("codec {}", head.codec)),
        ("segments", head.segments.to_string()),
        ("packets", head.packets.to_string()),
        ("bytes on the wire", head.wire_bytes.to_string()),
        ("bytes captured", head.captured_bytes.to_string()),
        ("flows", head.flows.to_string()),
    ];
    if let (Some(Time(first)), Some(Time(last))) = (head.first, head.last) {
        rows.push(("first packet", format_time(first)));
        rows.push(("last packet", format_time(last)));
        rows.push(("window", format!("{:.3} s", last.saturating_sub(first) as f64 / 1e9)));
    }
    rows.push((
        "index bytes",
        format!(
            "{}, {:.2} per packet, {:.2} % of the captured bytes",
            head.index_bytes,
            a_packet(info, head.index_bytes),
            percent(head.index_bytes, head.captured_bytes)
        ),
    ));
    if head.unindexed > 0 {
        rows.push(("not indexed yet", counted(head.unindexed, "packet")));
    }
    if let Some(recorder) = &info.recorder {
        rows.extend(recorder_rows(recorder));
    }
    if head.incomplete.is_empty() {
        rows.push(("missing", "nothing known".to_owned()));
    }
    rows.extend(head.incomplete.iter().map(|one| ("missing", one.text())));
    rows.push(("gaps", info.gaps.len().to_string()));
    for (name, value) in rows {
        line(out, format_args!("{name:<18} {value}"))?;
    }
    let mut gaps = info.gaps.clone();
    gaps.sort_by_key(|gap| std::cmp::Reverse(gap.ns));
    for gap in gaps.into_iter().take(GAPS_SHOWN) {
        let [from, to] = [gap.from, gap.to].map(|time| format_time(time.0));
        let seconds = gap.ns as f64 / 1e9;
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
            info.fields.iter().map(|field| {
                let codecs: Vec<String> =
                    field.codecs.iter().map(|(codec, count)| format!("{codec} {count}")).collect();
                vec![
                    field.field.clone(),
                    field.bytes.to_string(),
                    format!("{:.3}", a_packet(info, field.bytes)),
                    format!("{:.1}", percent(field.bytes, head.index_bytes)),
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
                vec![
                    format_time(segment.first.0),
                    format_time(segment.last.0),
                    segment.packets.to_string(),
                    segment.index_bytes.to_string(),
                    segment.order.to_string(),
                    segment.file.clone(),
                    segment.damage.clone(),
                ]
            })
        };
        table::write(out, &headings, rows).context(CANNOT_WRITE)?;
    }
    Ok(())
}

/// The status of a recorder, as rows of a table.
fn recorder_rows(recorder: &Recorder) -> Vec<(&'static str, String)> {
    let state = recorder_text(recorder);
    let names: Vec<&str> = recorder.sources.iter().map(|source| source.name.as_str()).collect();
    let mut rows = vec![
        ("recorder", format!("{state}, from {}", names.join(", "))),
        ("recorded", counted(recorder.total.packets, "packet")),
        ("lost", by_stage(&recorder.total.lost)),
    ];
    if recorder.total.removed_segments > 0 {
        let segments = counted(recorder.total.removed_segments, "recording");
        let packets = counted(recorder.total.removed_packets, "packet");
        rows.push(("removed", format!("{segments}, {packets}")));
    }
    if recorder.running {
        let (rate, bits) = (recorder.packets_per_second.0, recorder.bits_per_second.0 / 1e6);
        rows.push(("rate", format!("{rate:.0} packets/s, {bits:.1} Mb/s")));
    }
    rows
}

/// The state of a recorder, for people.
fn recorder_text(recorder: &Recorder) -> String {
    let (pid, updated) = (recorder.pid, format_time(recorder.updated.0));
    match &*recorder.state {
        "paused" => format!("process {pid}, PAUSED: the disk is full"),
        "killed" => format!("killed after {updated}"),
        "ended" => format!("ended {updated}"),
        state => format!("process {pid}, {state}"),
    }
}

fn write_json(args: &Args, info: &Inventory, out: &mut dyn Write) -> anyhow::Result<()> {
    json::line(out, &info.archive)?;
    if let Some(recorder) = &info.recorder {
        json::line(out, &RecorderLine { recorder: recorder.clone() })?;
    }
    if args.fields {
        info.fields.iter().try_for_each(|field| json::line(out, field))?;
    }
    if args.segments {
        info.segments.iter().try_for_each(|segment| json::line(out, segment))?;
    }
    info.gaps.iter().try_for_each(|&gap| json::line(out, &GapLine { gap }))
}

/// What was lost, and where.
fn by_stage(lost: &Lost) -> String {
    let stages: Vec<String> = lost.0.iter().map(|(name, lost)| format!("{name} {lost}")).collect();
    stages.join(", ")
}
