//! The same captures indexed and searched: tapdex, tcpdump, tshark, DuckDB over Parquet, and a
//! croaring bitmap for each value.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{anyhow, ensure};
use tapdex_bench::Seconds;
use tapdex_engine::archive::Archive;
use tapdex_report::{Bar, Bars, Line, Lines, Plot, Report, Sheet};

use super::bitmaps::{self, ValueBitmaps};
use super::duckdb::{self, DuckDb, Filters, MISSING, WAYS, Way};
use super::{Args, digits, ratio, spread, spreads};
use crate::archive::captures::{self, Capture, Folder, Pair};
use crate::archive::census::{Question, questions};
use crate::archive::indexing::{Job, in_turns, summary};
use crate::archive::process;
use crate::archive::searching::{Side, query};

/// A contestant that says itself how long it took, in seconds.
type Turn<'a> = Job<'a, f64>;

/// A call with our clock around it.
fn timed(call: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let start = Instant::now();
    call()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Fills in the tables of both captures.
pub fn report(
    args: &Args,
    folder: &Folder,
    duckdb: Option<DuckDb>,
    report: &mut Report<'_>,
) -> anyhow::Result<()> {
    let small = captures::pair(folder, "small", Some(64), args.packets, args.seed)?;
    let mixed = captures::pair(folder, "mixed", None, args.packets, args.seed)?;
    let duckdb = duckdb.map(RefCell::new);
    let pairs = [&small, &mixed];
    let mut made = Vec::new();
    for pair in pairs {
        eprintln!("making index and Parquet of {}", pair.whole.name);
        made.push(Made::new(args, folder, &pair.whole, duckdb.as_ref())?);
    }
    making(args, &made, report)?;
    let mut of_values = Vec::new();
    for pair in pairs {
        eprintln!("making bitmaps of the values of {}", pair.whole.name);
        of_values.push(ValueBitmaps::new(&pair.whole, folder)?);
    }
    bitmaps::sizes(&of_values, report)?;
    for ((pair, made), bitmaps) in pairs.into_iter().zip(&made).zip(of_values) {
        let lines = contest(args, folder, pair, made, duckdb.as_ref(), &bitmaps)?;
        searching(pair, &lines, duckdb.is_some(), report)?;
        value_bitmaps(pair, &lines, report)?;
        if !args.skip_tshark {
            tshark(pair, &lines, report)?;
        }
        fetching(pair, &lines, report)?;
    }
    Ok(())
}

/// What an index or a Parquet file took and takes.
struct Product {
    name: String,
    /// A shorter name, for the plot.
    label: String,
    /// To decode into a CSV, to load that, and to write the file; only the last for an index.
    steps: [Option<Seconds>; 3],
    bytes: u64,
    field_bytes: u64,
    /// Of a Parquet file.
    filters: Option<Filters>,
}

/// The products of a capture, ours first.
struct Made<'a> {
    capture: &'a Capture,
    products: Vec<Product>,
    parquets: Vec<(&'static Way, PathBuf)>,
}

impl<'a> Made<'a> {
    fn new(
        args: &Args,
        folder: &Folder,
        capture: &'a Capture,
        duckdb: Option<&RefCell<DuckDb>>,
    ) -> anyhow::Result<Self> {
        let path = |end: &str| folder.path().join(format!("{}-{end}", capture.name));
        let csv = path("fields.csv");
        let parquets: Vec<(&Way, PathBuf)> =
            WAYS.iter().map(|way| (way, path(&format!("{}.parquet", way.stem)))).collect();
        let mut ours = Vec::new();
        let mut sizes = (0, 0);
        let mut steps = vec![Vec::new(); 2 + parquets.len()];
        for _ in 0..args.rounds {
            let scratch = folder.scratch();
            let mut command = Command::new(&args.tapdex);
            command.args(["index", "--quiet", "-o"]).arg(scratch.path()).arg(&capture.path);
            ours.push(timed(|| process::run(&mut command).map(drop))?);
            sizes = index_sizes(scratch.path(), capture)?;
            let Some(duckdb) = duckdb else { continue };
            let mut duckdb = duckdb.borrow_mut();
            steps[0].push(timed(|| duckdb::write_csv(capture, &csv))?);
            steps[1].push(duckdb.load(&csv)?);
            fs::remove_file(&csv)?;
            for (place, (way, path)) in parquets.iter().enumerate() {
                steps[2 + place].push(duckdb.write(way, path)?);
            }
            duckdb.unload()?;
        }
        let (bytes, field_bytes) = sizes;
        let (name, label) = ("tapdex index".to_owned(), "index".to_owned());
        let steps_ours = [None, None, Some(summary(ours))];
        let mut products =
            vec![Product { name, label, steps: steps_ours, bytes, field_bytes, filters: None }];
        if let Some(duckdb) = duckdb {
            let mut duckdb = duckdb.borrow_mut();
            let steps: Vec<Seconds> = steps.into_iter().map(summary).collect();
            for ((way, path), &write) in parquets.iter().zip(&steps[2..]) {
                let filters = duckdb.filters(path)?;
                let is_as_asked = match way.has_filters {
                    true => filters.with_filter > 0 && filters.ruled_out > 0,
                    false => filters.bytes == 0,
                };
                ensure!(is_as_asked, "bloom filters of {}: {filters:?}", path.display());
                products.push(Product {
                    name: format!("Parquet, {}", way.name),
                    label: way.stem.replace('_', " "),
                    steps: [Some(steps[0]), Some(steps[1]), Some(write)],
                    bytes: path.metadata()?.len(),
                    field_bytes: duckdb.field_bytes(path)?,
                    filters: Some(filters),
                });
            }
        }
        Ok(Self { capture, products, parquets })
    }
}

/// Bytes of an index, and those of them that are columns of header fields.
fn index_sizes(archive: &Path, capture: &Capture) -> anyhow::Result<(u64, u64)> {
    let (segments, failed) = Archive::open(archive)?.segments()?;
    ensure!(failed.is_empty(), "{}: {failed:?}", capture.name);
    let (mut bytes, mut field_bytes) = (0, 0);
    for segment in &segments {
        bytes += segment.index().len_bytes();
        let sections = segment.index().sections().filter(|section| section.column.is_some());
        field_bytes +=
            sections.map(|section| section.len_bytes + section.checksum_bytes).sum::<u64>();
    }
    Ok((bytes, field_bytes))
}

fn making(args: &Args, made: &[Made<'_>], report: &mut Report<'_>) -> anyhow::Result<()> {
    let mut sheet = Sheet::new(
        "making",
        "What is made of a capture: seconds and bytes",
        &[
            "capture",
            "what",
            "decode to CSV",
            "load",
            "write",
            "all",
            "M packets/s",
            "bytes a packet",
            "of them header fields",
            "of them bloom filters",
            "chunks with filter",
            "groups ruled out",
        ],
    );
    let mut bars = Vec::new();
    for Made { capture, products, .. } in made {
        let packets = capture.packets as f64;
        for Product { name, label, steps, bytes, field_bytes, filters } in products {
            let all: f64 = steps.iter().flatten().map(|time| time.median).sum();
            let mut row = vec![capture.name.clone(), name.clone()];
            row.extend(steps.map(|time| time.map_or("-".to_owned(), |time| digits(time.median))));
            row.push(digits(all));
            row.push(digits(packets / all / 1e6));
            row.extend([*bytes, *field_bytes].map(|bytes| digits(bytes as f64 / packets)));
            row.extend(match filters.filter(|filters| filters.bytes > 0) {
                None => ["-"; 3].map(str::to_owned),
                Some(Filters { bytes, chunks, with_filter, groups, ruled_out }) => [
                    digits(bytes as f64 / packets),
                    format!("{with_filter} of {chunks}"),
                    format!("{ruled_out} of {groups}"),
                ],
            });
            sheet.row(row);
            let label = format!("{}, {label}", capture.name);
            bars.push(Bar { label, value: *bytes as f64 / packets, mark: None });
        }
    }
    sheet.remarks.push(format!(
        "{} packets each. `tapdex index` is a whole process on all cores, from the capture to an \
         index on the disk. DuckDB has the header fields from us: decoding and writing them as CSV \
         is one thread's work, the rest DuckDB's on all its threads, of which *write* is what no \
         better way to hand over rows can save. It is not asked to wait for the disk.",
        args.packets
    ));
    sheet.remarks.push(
        "Both have the same header fields; Parquet has exact lengths, our index classes of them. \
         The rest is number and time of each packet in Parquet; in our index it is the order of \
         the rows and where packets are in their capture."
            .to_owned(),
    );
    sheet.remarks.push(
        "DuckDB writes a bloom filter for a column of a row group that it writes with a \
         dictionary, which by default it does if a fifth of the rows have different values at \
         most. *Chunks with filter*: columns of row groups that have addresses or ports, and \
         those of them with a filter. *Groups ruled out*: the row groups whose filter says that \
         an address is not in them that no packet has. Both are what DuckDB says of the file."
            .to_owned(),
    );
    let of = |name: &'static str, ours: bool| {
        let products = made.iter().flat_map(|made| &made.products);
        let is_wanted = move |product: &&Product| product.steps[0].is_none() == ours;
        spread(name, products.filter(is_wanted).filter_map(|product| product.steps[2]))
    };
    sheet.remarks.push(spreads([of("tapdex index", true), of("writing Parquet", false)]));
    if made.iter().all(|made| made.products.len() == 1) {
        sheet.remarks.push(MISSING.to_owned());
    }
    let plot = Plot::Bars(Bars {
        title: "Bytes of index or Parquet for each packet".to_owned(),
        unit: "bytes a packet".to_owned(),
        mark: None,
        bars,
    });
    Ok(report.table(&sheet, Some(&plot))?)
}

/// What a question found, and how long everybody took.
struct Asked {
    question: Question,
    found: u64,
    found_tenth: u64,
    in_process: Seconds,
    process: Seconds,
    tcpdump: Seconds,
    extract: Seconds,
    tcpdump_write: Seconds,
    /// DuckDB on each of the files that are searched, in the faster way to ask.
    duckdb: Vec<Option<Seconds>>,
    /// In process, where the archive is open and the filter read.
    again: Seconds,
    /// Sets in memory, by arrival and by flow.
    croaring: Option<[Seconds; 2]>,
    /// On the first tenth: a process of ours, and tshark.
    tenth: Option<[Seconds; 2]>,
}

impl Asked {
    /// DuckDB on the file that suits it better.
    fn best_duckdb(&self) -> Option<Seconds> {
        fastest(self.duckdb.iter().copied().flatten())
    }

    /// The same, of the files with or without bloom filters.
    fn duckdb_with(&self, filters: bool) -> Option<Seconds> {
        let times = searched().zip(&self.duckdb);
        fastest(times.filter_map(|(way, time)| time.filter(|_| way.has_filters == filters)))
    }
}

/// The Parquet files that are searched.
fn searched() -> impl Iterator<Item = &'static Way> {
    WAYS.iter().filter(|way| way.is_searched)
}

fn fastest(times: impl Iterator<Item = Seconds>) -> Option<Seconds> {
    times.min_by(|a, b| a.median.total_cmp(&b.median))
}

fn contest(
    args: &Args,
    folder: &Folder,
    pair: &Pair,
    made: &Made<'_>,
    duckdb: Option<&RefCell<DuckDb>>,
    bitmaps: &ValueBitmaps,
) -> anyhow::Result<Vec<Asked>> {
    let whole = Side::new(folder, &args.tapdex, &pair.whole)?;
    let tenth = Side::new(folder, &args.tapdex, &pair.tenth)?;
    let archive = whole.open()?;
    let views: Vec<&Way> = searched().collect();
    if let Some(duckdb) = duckdb {
        for (way, path) in &made.parquets {
            duckdb.borrow_mut().view(way, path)?;
        }
    }
    let mut lines = Vec::new();
    for question in questions(&pair.whole)? {
        eprintln!("searching {}: {}", pair.whole.name, question.pcap);
        whole.found.set(None);
        tenth.found.set(None);
        let (whole, tenth, asked) = (&whole, &tenth, &question);
        let query = query(asked)?;
        let search = archive.search(&query)?;
        let all = || 0..args.rounds + 1;
        let mut turns = vec![
            Turn { rounds: all(), call: Box::new(|| timed(|| whole.count_here(asked))) },
            Turn { rounds: all(), call: Box::new(|| timed(|| whole.count(asked))) },
            Turn { rounds: all(), call: Box::new(|| timed(|| whole.tcpdump_count(asked))) },
            Turn { rounds: all(), call: Box::new(|| timed(|| whole.extract(asked))) },
            Turn { rounds: all(), call: Box::new(|| timed(|| whole.tcpdump_write(asked))) },
            Turn { rounds: all(), call: Box::new(|| timed(|| whole.count_again(&search, asked))) },
        ];
        for (who, bitmaps) in
            [("croaring, by arrival", &bitmaps.arrival), ("croaring, by flow", &bitmaps.flow)]
        {
            let Some(sets) = &asked.sets else { continue };
            let call = move || timed(|| whole.check(who, asked, bitmaps.count(sets)));
            turns.push(Turn { rounds: all(), call: Box::new(call) });
        }
        let own = turns.len();
        for way in duckdb.iter().flat_map(|_| &views) {
            for sql in &question.sql {
                let sql = sql.replace("FROM packets", &format!("FROM {}", way.stem));
                let call = move || {
                    let duckdb = duckdb.ok_or_else(|| anyhow!("DuckDB is not there"))?;
                    let (seconds, found) = duckdb.borrow_mut().number(&sql)?;
                    whole.check("DuckDB", asked, found)?;
                    Ok(seconds)
                };
                turns.push(Turn { rounds: all(), call: Box::new(call) });
            }
        }
        let databases = own..turns.len();
        if !args.skip_tshark {
            turns.push(Turn { rounds: all(), call: Box::new(|| timed(|| tenth.count(asked))) });
            turns.push(Turn { rounds: 1..2, call: Box::new(|| timed(|| tenth.tshark(asked))) });
        }
        let times = in_turns(&mut turns, |call| call())?;
        drop(turns);
        let forms = question.sql.len().max(1);
        let duckdb = views.iter().enumerate().map(|(view, _)| {
            let taken = &times[databases.clone()];
            fastest(taken.iter().copied().skip(view * forms).take(forms))
        });
        let duckdb: Vec<Option<Seconds>> = duckdb.collect();
        let found = whole.found.get().ok_or_else(|| anyhow!("nobody answered {question:?}"))?;
        let found_tenth = tenth.found.get().unwrap_or(0);
        lines.push(Asked {
            found,
            found_tenth,
            in_process: times[0],
            process: times[1],
            tcpdump: times[2],
            extract: times[3],
            tcpdump_write: times[4],
            duckdb,
            again: times[5],
            croaring: question.sets.as_ref().map(|_| [times[6], times[7]]),
            tenth: times
                .get(databases.end)
                .copied()
                .zip(times.last().copied())
                .map(|(a, b)| [a, b]),
            question,
        });
    }
    Ok(lines)
}

fn milliseconds(time: Seconds) -> String {
    digits(1e3 * time.median)
}

/// A question with the number that it has in the plot.
fn numbered(number: usize, line: &Asked) -> String {
    format!("{}. {}: `{}`", number + 1, line.question.what, line.question.pcap)
}

/// Points for each contestant: milliseconds over the number of the question.
fn points(title: String, contestants: Vec<(&str, Vec<Option<Seconds>>)>) -> Plot {
    let lines = contestants.into_iter().map(|(label, times)| {
        let points = times
            .into_iter()
            .enumerate()
            .filter_map(|(number, time)| Some(((number + 1) as f64, 1e3 * time?.median)));
        Line { label: label.to_owned(), points_only: true, points: points.collect() }
    });
    Plot::Lines(Lines {
        title,
        x: "number of the question, as in the table".to_owned(),
        y: "milliseconds".to_owned(),
        log_x: false,
        log_y: true,
        lines: lines.filter(|line| !line.points.is_empty()).collect(),
    })
}

fn searching(
    pair: &Pair,
    lines: &[Asked],
    has_duckdb: bool,
    report: &mut Report<'_>,
) -> anyhow::Result<()> {
    let Capture { name, packets, .. } = &pair.whole;
    let files: Vec<String> = searched().map(|way| format!("DuckDB, {}", way.name)).collect();
    let mut heads =
        vec!["question", "packets", "percent", "tapdex, in process", "tapdex search --count"];
    heads.extend(files.iter().map(String::as_str));
    heads.extend([
        "tcpdump --count",
        "DuckDB over tapdex in process",
        "tcpdump over tapdex search",
    ]);
    let mut sheet = Sheet::new(
        &format!("searching-{name}"),
        &format!("Counting the packets of {name} that match, {packets} in all: milliseconds"),
        &heads,
    );
    let none = || "-".to_owned();
    for (number, line) in lines.iter().enumerate() {
        let mut row = vec![
            numbered(number, line),
            line.found.to_string(),
            format!("{:.4}", 100.0 * line.found as f64 / *packets as f64),
            milliseconds(line.in_process),
            milliseconds(line.process),
        ];
        row.extend(line.duckdb.iter().map(|time| time.map_or_else(none, milliseconds)));
        row.push(milliseconds(line.tcpdump));
        let best = line.best_duckdb().map(|time| digits(ratio(time, line.in_process)));
        row.push(best.unwrap_or_else(none));
        row.push(digits(ratio(line.tcpdump, line.process)));
        sheet.row(row);
    }
    sheet.remarks.push(
        "Everybody finds the same number of packets, which is checked. *In process* opens the \
         archive, reads the filter and counts. `tapdex search` and `tcpdump` are whole processes. \
         DuckDB has its connection open and the files' metadata in memory, is timed around \
         execute and fetch inside its process, and is asked in the faster of two ways where there \
         are two; of its files, those *by flow* are sorted so that Parquet's least and greatest \
         values rule row groups out. The ratio is that of the fastest file. What no header field \
         answers, it cannot."
            .to_owned(),
    );
    let of = |take: fn(&Asked) -> Option<Seconds>| lines.iter().filter_map(take);
    sheet.remarks.push(spreads([
        spread("in process", of(|line| Some(line.in_process))),
        spread("tapdex search", of(|line| Some(line.process))),
        spread("DuckDB", of(Asked::best_duckdb)),
        spread("tcpdump", of(|line| Some(line.tcpdump))),
    ]));
    if !has_duckdb {
        sheet.remarks.push(MISSING.to_owned());
    }
    let all = |take: fn(&Asked) -> Option<Seconds>| lines.iter().map(take).collect();
    let plot = points(
        format!("Counting packets of {name} that match"),
        vec![
            ("tapdex, in process", all(|line| Some(line.in_process))),
            ("tapdex search", all(|line| Some(line.process))),
            ("DuckDB", all(|line| line.duckdb_with(false))),
            ("DuckDB, bloom filters", all(|line| line.duckdb_with(true))),
            ("tcpdump", all(|line| Some(line.tcpdump))),
        ],
    );
    Ok(report.table(&sheet, Some(&plot))?)
}

fn value_bitmaps(pair: &Pair, lines: &[Asked], report: &mut Report<'_>) -> anyhow::Result<()> {
    let Capture { name, packets, .. } = &pair.whole;
    let mut sheet = Sheet::new(
        &format!("value-bitmaps-{name}"),
        &format!("Counting with a croaring bitmap for each value of {name}: milliseconds"),
        &[
            "question",
            "packets",
            "tapdex, in process",
            "tapdex, asked again",
            "croaring, by arrival",
            "croaring, by flow",
            "by arrival over asked again",
            "by flow over asked again",
        ],
    );
    // Some take microseconds.
    let cell = |time: Seconds| format!("{:.4}", 1e3 * time.median);
    for (number, line) in lines.iter().enumerate() {
        let Some(croaring) = line.croaring else { continue };
        let mut row = vec![numbered(number, line), line.found.to_string()];
        row.extend([line.in_process, line.again].map(cell));
        row.extend(croaring.map(cell));
        row.extend(croaring.map(|time| digits(ratio(time, line.again))));
        sheet.row(row);
    }
    sheet.remarks.push(format!(
        "{packets} packets. All find the same numbers, which is checked. The bitmaps are in memory \
         as croaring's own sets, and the question is given as algebra on them, written for them by \
         hand: nothing is opened, read or planned. *In process*, tapdex opens the archive and \
         reads the filter; *asked again*, it has done that before, and plans, looks up and counts. \
         What the fields of an index do not answer alone is left out."
    ));
    let of = |take: fn(&Asked) -> Option<Seconds>| lines.iter().filter_map(take);
    sheet.remarks.push(spreads([
        spread("asked again", of(|line| Some(line.again))),
        spread("croaring, by arrival", of(|line| line.croaring.map(|times| times[0]))),
        spread("croaring, by flow", of(|line| line.croaring.map(|times| times[1]))),
    ]));
    let all = |take: fn(&Asked) -> Option<Seconds>| {
        lines.iter().map(|line| take(line).filter(|_| line.croaring.is_some())).collect()
    };
    let plot = points(
        format!("Counting with a bitmap for each value of {name}"),
        vec![
            ("tapdex, in process", all(|line| Some(line.in_process))),
            ("tapdex, asked again", all(|line| Some(line.again))),
            ("croaring, by arrival", all(|line| line.croaring.map(|times| times[0]))),
            ("croaring, by flow", all(|line| line.croaring.map(|times| times[1]))),
        ],
    );
    Ok(report.table(&sheet, Some(&plot))?)
}

fn tshark(pair: &Pair, lines: &[Asked], report: &mut Report<'_>) -> anyhow::Result<()> {
    let Capture { name, packets, .. } = &pair.tenth;
    let mut sheet = Sheet::new(
        &format!("tshark-{}", pair.whole.name),
        &format!("Beside tshark, on the first {packets} packets: milliseconds"),
        &["question", "packets", "tapdex search --count", "tshark", "tshark over tapdex search"],
    );
    for (number, line) in lines.iter().enumerate() {
        let Some([ours, tshark]) = line.tenth else { continue };
        sheet.row(vec![
            numbered(number, line),
            line.found_tenth.to_string(),
            milliseconds(ours),
            milliseconds(tshark),
            digits(ratio(tshark, ours)),
        ]);
    }
    sheet.remarks.push(format!(
        "{name}, with display filters that find the same packets, which is checked. tshark takes \
         part in one of the rounds."
    ));
    let of = |at: usize| lines.iter().map(move |line| line.tenth.map(|times| times[at]));
    let plot = points(
        format!("Counting packets of {name} that match"),
        vec![("tapdex search", of(0).collect()), ("tshark", of(1).collect())],
    );
    Ok(report.table(&sheet, Some(&plot))?)
}

fn fetching(pair: &Pair, lines: &[Asked], report: &mut Report<'_>) -> anyhow::Result<()> {
    let name = &pair.whole.name;
    let mut sheet = Sheet::new(
        &format!("fetching-{name}"),
        &format!("Fetching the packets of {name} that match: milliseconds"),
        &["question", "packets", "tapdex extract", "tcpdump -w", "DuckDB", "tcpdump over tapdex"],
    );
    for (number, line) in lines.iter().enumerate() {
        sheet.row(vec![
            numbered(number, line),
            line.found.to_string(),
            milliseconds(line.extract),
            milliseconds(line.tcpdump_write),
            "-".to_owned(),
            digits(ratio(line.tcpdump_write, line.extract)),
        ]);
    }
    sheet.remarks.push(
        "Whole processes, which write a pcap file to /dev/null. DuckDB has header fields only: it \
         can name the numbers of packets, but not give the packets."
            .to_owned(),
    );
    let of = |take: fn(&Asked) -> Seconds| lines.iter().map(take);
    sheet.remarks.push(spreads([
        spread("tapdex extract", of(|line| line.extract)),
        spread("tcpdump -w", of(|line| line.tcpdump_write)),
    ]));
    let plot = points(
        format!("Fetching packets of {name} that match"),
        vec![
            ("tapdex extract", of(|line| line.extract).map(Some).collect()),
            ("tcpdump -w", of(|line| line.tcpdump_write).map(Some).collect()),
        ],
    );
    Ok(report.table(&sheet, Some(&plot))?)
}
