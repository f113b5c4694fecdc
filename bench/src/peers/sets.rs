//! Sizes of sets and set algebra, beside the crates.

use std::time::Duration;

use tapdex_bench::contest::{self, Encoded, JOBS, Peers, Sets};
use tapdex_bench::{Case, Seconds, cases, race};
use tapdex_bitmap::{ALL_CODECS, Codec};
use tapdex_report::{Bar, Bars, Plot, Report, Sheet};

use super::{Args, digits, ratio, spread, spreads};

/// The jobs that are timed: stem of the files, what they are, and which of [`JOBS`].
const TIMED: [(&str, &str, &str); 3] = [
    ("and", "AND of two sets", "and"),
    ("or", "OR of two sets", "or"),
    ("and-count", "Counting the AND of two sets", "and count"),
];
/// The peers behind our codecs, in the order of [`measure`].
const PEERS: usize = 3;

/// What was measured of a case.
struct Line {
    case: Case,
    ids: usize,
    /// Bytes of the first set: in our codecs, in the croaring crate, in the roaring crate.
    bytes: Vec<usize>,
    /// Per job, per contestant.
    seconds: Vec<Vec<Seconds>>,
}

/// Fills in the tables of sets.
pub fn report(args: &Args, report: &mut Report<'_>) -> anyhow::Result<()> {
    let mut lines = Vec::new();
    let mut names = Vec::new();
    for case in cases().into_iter().filter(|case| case.name.contains(&args.case)) {
        eprintln!("sets: {}", case.name);
        lines.push(measure(args, case, &mut names)?);
    }
    sizes(&lines, report)?;
    for (job, &(stem, title, _)) in TIMED.iter().enumerate() {
        times(args, &lines, &names, job, (stem, title), report)?;
    }
    Ok(())
}

fn measure(args: &Args, case: Case, names: &mut Vec<String>) -> anyhow::Result<Line> {
    let sets = Sets::new(&case, args.seed);
    let encoded: Vec<Encoded> =
        ALL_CODECS.iter().map(|&codec| Encoded::new(codec, &sets)).collect();
    let roaring = ALL_CODECS.iter().position(|&codec| codec == Codec::Roaring).unwrap_or(0);
    let peers = Peers::new(&encoded[roaring]);
    let mut contestants = contest::everybody(&sets, &encoded, &peers)?;
    *names = contestants.iter().map(|one| one.name.to_owned()).collect();
    let round = Duration::from_millis(args.round_ms);
    let mut seconds = Vec::new();
    for (_, _, name) in TIMED {
        let job = JOBS.iter().position(|&job| job == name).unwrap_or(0);
        let mut jobs: Vec<_> = contestants.iter_mut().map(|one| &mut one.jobs[job]).collect();
        seconds.push(race(args.rounds, round, &mut jobs));
    }
    drop(contestants);
    let mut bytes: Vec<usize> = encoded.iter().map(|encoded| encoded.bytes()[0]).collect();
    let ids = &sets.pair[0];
    bytes.extend([contest::croaring_bytes(ids).len(), contest::roaring_bytes(ids).len()]);
    Ok(Line { case, ids: ids.len(), bytes, seconds })
}

/// The columns of our codecs: the roaring codec first, which the peers are like.
fn ours_first() -> Vec<usize> {
    let is_roaring = |place: &usize| ALL_CODECS[*place] == Codec::Roaring;
    let all = || 0..ALL_CODECS.len();
    all().filter(is_roaring).chain(all().filter(|place| !is_roaring(place))).collect()
}

fn sizes(lines: &[Line], report: &mut Report<'_>) -> anyhow::Result<()> {
    let order = ours_first();
    let names = order.iter().map(|&place| ALL_CODECS[place].name());
    let heads: Vec<&str> =
        ["set", "ids", "rows", "croaring", "roaring crate"].into_iter().chain(names).collect();
    let mut sheet = Sheet::new("set-sizes", "Bytes for each id of a set", &heads);
    let mut bars = Vec::new();
    for line in lines {
        let cell = |place: usize| digits(line.bytes[place] as f64 / line.ids as f64);
        let [c, rust] = [ALL_CODECS.len(), ALL_CODECS.len() + 1];
        let mut row =
            vec![line.case.name.to_owned(), line.ids.to_string(), line.case.rows.to_string()];
        row.extend([c, rust].into_iter().chain(order.iter().copied()).map(cell));
        sheet.row(row);
        let a_id = |place: usize| line.bytes[place] as f64 / line.ids as f64;
        let mark = Some(a_id(c));
        bars.push(Bar { label: line.case.name.to_owned(), value: a_id(order[0]), mark });
    }
    sheet.remarks.push(
        "Serialized. The crates are asked for run containers; the columns behind theirs are our \
         codecs."
            .to_owned(),
    );
    let plot = Plot::Bars(Bars {
        title: "Bytes for each id, our roaring codec".to_owned(),
        unit: "bytes".to_owned(),
        mark: Some("croaring".to_owned()),
        bars,
    });
    Ok(report.table(&sheet, Some(&plot))?)
}

fn times(
    args: &Args,
    lines: &[Line],
    names: &[String],
    job: usize,
    (stem, title): (&str, &str),
    report: &mut Report<'_>,
) -> anyhow::Result<()> {
    let codecs = ALL_CODECS.len();
    let order: Vec<usize> = (codecs..codecs + PEERS).chain(ours_first()).collect();
    let ours = order[PEERS];
    let mut heads = vec!["set".to_owned()];
    heads.extend(order.iter().map(|&place| names.get(place).cloned().unwrap_or_default()));
    heads.extend(
        order[..PEERS]
            .iter()
            .map(|&place| format!("{} over roaring", names.get(place).map_or("", |name| name))),
    );
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut sheet = Sheet::new(stem, &format!("{title}: milliseconds"), &heads);
    let mut bars = Vec::new();
    for line in lines {
        let seconds = &line.seconds[job];
        let mut row = vec![line.case.name.to_owned()];
        row.extend(order.iter().map(|&place| format!("{:.4}", 1e3 * seconds[place].median)));
        row.extend(
            order[..PEERS]
                .iter()
                .map(|&place| format!("{:.2}", ratio(seconds[place], seconds[ours]))),
        );
        sheet.row(row);
        let value = ratio(seconds[codecs], seconds[ours]);
        bars.push(Bar { label: line.case.name.to_owned(), value, mark: Some(1.0) });
    }
    let of = |place: usize| lines.iter().map(move |line| line.seconds[job][place]);
    sheet.remarks.push(format!(
        "At least {} ms a round. Our results are encoded in the same codec, those of the crates \
         are sets in memory. The crates hold the containers that our roaring codec wrote; \
         *run_optimize* asks for run containers in the result, as our codec writes them. All \
         results are equal, which is checked. Above 1 in the last columns, our roaring codec is \
         faster.",
        args.round_ms
    ));
    sheet.remarks.push(spreads(
        [("croaring crate", codecs), ("roaring codec", ours)]
            .map(|(name, place)| spread(name, of(place))),
    ));
    let plot = Plot::Bars(Bars {
        title: format!("{title}: the croaring crate's time over our roaring codec's"),
        unit: "times as fast as croaring".to_owned(),
        mark: Some("as fast as croaring".to_owned()),
        bars,
    });
    Ok(report.table(&sheet, Some(&plot))?)
}
