//! `tapdex index-file build`: builds the index file of a table.

use std::fs::File;
use std::io::Read;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tapdex_bitmap::Codec;
use tapdex_bitmap::codec::hipes;
use tapdex_engine::index::{
    Builder, ColumnSpec, CpuBuilder, Digits, Field, IndexWriter, Schema, Width,
};
use tapdex_engine::storage::{Disk, temporary_path};
use tapdex_gpu::GpuBuilder;

use super::field::{self, FieldArg};
use super::store::{Column, Planes, Stored, Table};
use super::{csv, raw, smallest};
use crate::cmd::codec::form::parse_width;
use crate::cmd::codec::{Choice, choice_parser};
use crate::cmd::device::{DeviceArg, Used};
use crate::cmd::progress::{Progress, QuietArg};
use crate::cmd::{counted, interrupt, note, shown};

/// Build the index file of a table.
///
/// The table is CSV, or one binary file for each field. The first line of a CSV file names the
/// columns. The rows of several tables are appended to each other:
///
///     printf 'src,port\n10.0.0.1,443\n10.0.0.2,53\n10.0.0.1,53\n' > flows.csv
///     tapdex index-file build flows.csv -o flows.tdx
///     tapdex index-file build flows.csv -o sorted.tdx --field port:16 --field src --sort-by src
///
/// A value is a number, such as 7 or 0x1F, or an address: 10.0.0.1 in a field of 32 bits,
/// 2001:db8::1 in one of 128 bits, 00:1b:21:0a:0b:0c in one of 48 bits. Values may be in double
/// quotes; blank lines are skipped. A binary file contains the values of a field, BITS/8 bytes
/// each, least significant byte first:
///
///     printf '\001\002\003' > kind.bin
///     printf '\273\001\065\000\065\000' > port.bin
///     tapdex index-file build -o raw.tdx --field kind:8=kind.bin --field port:16=port.bin
///
/// A field is given as:
///
///     NAME[:BITS[/DIGITS]][:CODEC][=FILE]
///
/// BITS is a multiple of 8 up to 128. For CSV it is optional: the default is the smallest of 8, 16,
/// 32, 64 and 128 that fits all values, or 48 for MAC addresses. A field is split into digits of 8
/// or 16 bits, and each digit is indexed as a column: a field of 16 bits as one digit, others as
/// bytes, unless DIGITS or --digits says otherwise.
///
/// With --codec auto, each column uses the codec that is smallest for its first 2^20 rows. Hipes is
/// not a candidate; it is used only if you name it.
///
/// With --device cuda, a GPU builds the columns. The file is the same, byte for byte. Columns that
/// the GPU cannot build are built by the CPU. With auto, the CPU builds them all.
///
/// The file gets its name when it is complete and on disk; after an error or Ctrl-C, an existing
/// file is unchanged. Memory per row: BITS/8 bytes for each field, plus 4 bytes, 8 more with
/// --time, and 8 more with --sort-by.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// CSV files, with names that end in .csv, or - for standard input.
    #[arg(value_name = "TABLE")]
    tables: Vec<PathBuf>,
    /// Index file to write.
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Field to index, as described above [default: all columns of the CSV].
    #[arg(long = "field", value_name = "FIELD", value_parser = field::parse)]
    fields: Vec<FieldArg>,
    /// Read the tables as CSV whatever their names are.
    #[arg(long)]
    csv: bool,
    /// Column or field with the time of each row, 64 bits, in nanoseconds since 1970. It is stored
    /// for get --times, but not indexed.
    #[arg(long, value_name = "NAME", verbatim_doc_comment)]
    time: Option<String>,
    /// Sort the rows by these fields first. The file also stores the original row numbers, so that
    /// get finds the same rows.
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', verbatim_doc_comment)]
    sort_by: Vec<String>,
    /// Bits of a digit: 8, or 16 with an odd byte first [default: see above].
    #[arg(long, value_name = "DIGITS", value_parser = field::parse_digits)]
    digits: Option<Width>,
    /// Codec of fields that do not name one: auto, or a name from tapdex codec list.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "auto",
        value_parser = choice_parser("the smallest for each column"),
        hide_possible_values = true
    )]
    codec: Choice,
    /// For hipes: chunks of 2^W rows, from 7 to 29 [default: 16].
    #[arg(long, value_name = "W", value_parser = parse_width)]
    w: Option<hipes::Width>,
    #[command(flatten)]
    device: DeviceArg,
    /// Number of threads, up to 1024; 0 means one per core.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        value_parser = clap::value_parser!(u16).range(..=1024)
    )]
    threads: u16,
    /// Replace OUT if it exists.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    quiet: QuietArg,
}

pub(super) fn run(args: &Args, stdin: &mut dyn Read) -> anyhow::Result<()> {
    args.check()?;
    args.check_output()?;
    let device = args.device.open()?;
    interrupt::watch();
    let progress = args.quiet.progress();
    let mut table = match args.is_raw() {
        true => args.read_raw(&progress)?,
        false => args.read_csv(stdin, &progress)?,
    };
    let names: Vec<&str> = table.fields.iter().map(|field| field.name.as_str()).collect();
    let sort_by = args.sort_by.iter().map(|name| position(&names, name));
    let sort_by = sort_by.collect::<anyhow::Result<Vec<_>>>()?;
    let order = (!sort_by.is_empty()).then(|| {
        progress.stage(&format!("sorting {} rows", table.rows));
        table.sort(&sort_by)
    });
    let schema = args.schema(&table, &progress);
    let (rows, fields) = (table.rows, table.fields.len());
    let len_bytes = args.write(&table, schema, order.as_deref(), &device, &progress)?;
    let seconds = progress.elapsed().as_secs_f64();
    drop(progress);
    let a_row = match rows {
        0 => String::new(),
        _ => format!("{:.2} bytes per row, ", len_bytes as f64 / f64::from(rows)),
    };
    let fields = if fields == 1 { "1 field".to_owned() } else { format!("{fields} fields") };
    let output = args.output.display();
    args.quiet.note(&format!(
        "wrote {output}: {rows} rows, {fields}, {len_bytes} bytes, {a_row}{seconds:.2} s{}",
        device.shown(0)
    ));
    Ok(())
}

/// The number of a field that rows are sorted by.
fn position(names: &[&str], name: &str) -> anyhow::Result<usize> {
    let found = names.iter().position(|&other| other == name);
    found.with_context(|| {
        let known: Vec<String> = names.iter().map(|name| shown_name(name)).collect();
        format!("--sort-by: no field '{}', expected one of: {}", shown_name(name), known.join(", "))
    })
}

fn shown_name(name: &str) -> String {
    shown(name.as_bytes())
}

fn open(path: &Path) -> anyhow::Result<File> {
    File::open(path).with_context(|| format!("cannot open {}", path.display()))
}

impl Args {
    /// Whether the table is a file of bytes for each field.
    fn is_raw(&self) -> bool {
        self.fields.iter().any(|field| field.file.is_some())
    }

    /// Refuses flags that do not go together, before anything is read.
    fn check(&self) -> anyhow::Result<()> {
        for (index, field) in self.fields.iter().enumerate() {
            let name = shown_name(&field.name);
            let twice = self.fields[..index].iter().any(|other| other.name == field.name);
            ensure!(!twice, "--field: '{name}' is given twice");
        }
        if self.is_raw() {
            ensure!(self.tables.is_empty(), "give tables, or a file for each --field, not both");
            for field in &self.fields {
                let name = shown_name(&field.name);
                ensure!(
                    field.file.is_some(),
                    "--field: '{name}' has no =FILE, but other fields do"
                );
                ensure!(field.bits.is_some(), "--field: '{name}' has a file and needs :BITS");
            }
        } else {
            ensure!(
                !self.tables.is_empty(),
                "no table: give a CSV file, - for standard input, or a file for each --field"
            );
            for path in &self.tables {
                let is_csv = path.as_os_str() == "-"
                    || path.extension().is_some_and(|end| end.eq_ignore_ascii_case("csv"));
                let path = path.display();
                ensure!(
                    self.csv || is_csv,
                    "'{path}' does not end in .csv: give --csv if it is CSV"
                );
            }
        }
        if let Some(time) = &self.time {
            let name = shown_name(time);
            let field = self.fields.iter().find(|field| &field.name == time);
            ensure!(field.is_some() || !self.is_raw(), "--time: there is no --field '{name}'");
            let bits = field.and_then(|field| field.bits).unwrap_or(64);
            ensure!(bits == 64, "--time: '{name}' has {bits} bits, expected 64");
            let others = self.fields.len() - usize::from(field.is_some());
            ensure!(self.fields.is_empty() || others > 0, "there is no field to index");
        }
        let names: Vec<&str> = self.indexed().map(|field| field.name.as_str()).collect();
        if !names.is_empty() {
            self.sort_by.iter().try_for_each(|name| position(&names, name).map(drop))?;
        }
        let is_hipes = |choice: &Choice| matches!(choice, Choice::One(Codec::Hipes(_)));
        let mut choices = self.fields.iter().filter_map(|field| field.codec.as_ref());
        let has_hipes = is_hipes(&self.codec) || choices.any(is_hipes);
        ensure!(self.w.is_none() || has_hipes, "--w applies to hipes only, but no field uses it");
        Ok(())
    }

    /// Checks whether the output may be written, before hours are spent on it.
    fn check_output(&self) -> anyhow::Result<()> {
        let output = &self.output;
        let exists = output.symlink_metadata().is_ok();
        ensure!(self.force || !exists, "{} exists: give --force to replace it", output.display());
        let same = |path: &Path| match (path.canonicalize(), output.canonicalize()) {
            (Ok(path), Ok(output)) => path == output,
            _ => false,
        };
        let files = self.fields.iter().filter_map(|field| field.file.as_ref());
        if let Some(path) = self.tables.iter().chain(files).find(|path| same(path)) {
            bail!("{} is an input and cannot be replaced", path.display());
        }
        let folder = match output.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let listed = folder.read_dir().map(drop);
        listed.with_context(|| format!("cannot write {}", output.display()))
    }

    /// The fields that are to be indexed.
    fn indexed(&self) -> impl Iterator<Item = &FieldArg> {
        self.fields.iter().filter(|field| Some(&field.name) != self.time.as_ref())
    }

    fn digits_of(&self, name: &str) -> Option<Width> {
        let field = self.fields.iter().find(|field| field.name == name);
        field.and_then(|field| field.digits).or(self.digits)
    }

    fn read_csv(&self, stdin: &mut dyn Read, progress: &Progress) -> anyhow::Result<Table> {
        let fields = self.indexed().map(|field| Planes::new(&field.name, field.bits)).collect();
        let fields = (!self.fields.is_empty()).then_some(fields);
        let mut columns = csv::Columns::new(fields, self.time.as_deref());
        let mut reading = Reading::new(progress, self.tables.iter());
        for path in &self.tables {
            if path.as_os_str() == "-" {
                columns.read("standard input", stdin, &mut reading)?;
            } else {
                columns.read(&path.display().to_string(), &mut open(path)?, &mut reading)?;
            }
        }
        let (rows, fields, times) = columns.finish();
        let mut stored = Vec::with_capacity(fields.len());
        for field in fields {
            let digits = self.digits_of(field.name());
            stored.push(field.finish(digits).map_err(anyhow::Error::msg)?);
        }
        Ok(Table { rows, fields: stored, times })
    }

    fn read_raw(&self, progress: &Progress) -> anyhow::Result<Table> {
        let mut table = Table { rows: 0, fields: Vec::new(), times: None };
        let mut first: Option<(&FieldArg, String)> = None;
        let files = self.fields.iter().filter_map(|field| field.file.as_ref());
        let mut reading = Reading::new(progress, files);
        for field in &self.fields {
            let Some((path, bits)) = field.file.as_ref().zip(field.bits) else { continue };
            let (mut input, file) = (open(path)?, path.display().to_string());
            let rows = if Some(&field.name) == self.time.as_ref() {
                let times = raw::numbers(&file, &mut input, &mut reading)?;
                let rows = times.len();
                table.times = Some(times);
                rows
            } else {
                let widths = field::widths(bits, field.digits.or(self.digits));
                let columns = raw::columns(&file, &mut input, &widths, &mut reading)?;
                let rows = columns.first().map_or(0, |column| column.digits().rows());
                table.fields.push(Stored { name: field.name.clone(), columns });
                rows
            };
            let rows = u32::try_from(rows).context("too many rows")?;
            match &first {
                None => (table.rows, first) = (rows, Some((field, file))),
                Some((_, first)) => ensure!(
                    rows == table.rows,
                    "the files have different numbers of rows: {first} has {}, {file} has {rows}",
                    table.rows
                ),
            }
        }
        Ok(table)
    }

    /// The fields and columns of the index, each with its codec.
    fn schema(&self, table: &Table, progress: &Progress) -> Schema {
        let choice = |stored: &Stored| {
            let field = self.fields.iter().find(|field| field.name == stored.name);
            match field.and_then(|field| field.codec).unwrap_or(self.codec) {
                Choice::One(Codec::Hipes(width)) => Some(Codec::Hipes(self.w.unwrap_or(width))),
                Choice::One(codec) => Some(codec),
                Choice::Auto => None,
            }
        };
        let open: Vec<&Column> = table
            .fields
            .iter()
            .filter(|stored| choice(stored).is_none())
            .flat_map(|stored| &stored.columns)
            .collect();
        progress.stage(&format!("choosing codecs of {} columns", open.len()));
        let mut found = side_by_side(self.threads(), &open, |column| smallest::codec(column));
        let mut found = found.drain(..);
        let fields = table.fields.iter().map(|stored| {
            let columns = stored.columns.iter().map(|column| ColumnSpec {
                width: column.digits().width(),
                codec: choice(stored).or_else(|| found.next()).unwrap_or(Codec::Roaring),
            });
            Field { name: stored.name.clone(), columns: columns.collect() }
        });
        Schema { fields: fields.collect() }
    }

    fn threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, NonZero::get),
            threads => threads.into(),
        }
    }

    /// Builds and writes the columns, and returns how many bytes the file has.
    fn write(
        &self,
        table: &Table,
        schema: Schema,
        order: Option<&[u32]>,
        device: &Used,
        progress: &Progress,
    ) -> anyhow::Result<u64> {
        let specs: Vec<ColumnSpec> = schema.columns().collect();
        let create = || IndexWriter::create(&Disk, &self.output, table.rows, schema);
        let (_pending, mut writer) =
            interrupt::Pending::make(&temporary_path(&self.output), create)?;
        let columns = table.fields.iter().flat_map(|field| &field.columns);
        let columns: Vec<_> =
            columns.zip(&specs).map(|(column, spec)| (column.digits(), spec.codec)).collect();
        match device.opened() {
            None => {
                let mut builder = CpuBuilder::new(self.threads());
                write_columns(&mut builder, &columns, &mut writer, progress)?;
            }
            Some(device) => {
                let mut builder = GpuBuilder::new(device);
                write_columns(&mut builder, &columns, &mut writer, progress)?;
                // If it was enough to build fewer columns at a time, nothing is reported.
                if let Some(trouble) = builder.trouble().filter(|_| builder.built().cpu > 0) {
                    let built = counted(builder.built().cpu, "column");
                    note(&format!(
                        "the device failed; {built} built on the CPU instead: {trouble}"
                    ));
                }
            }
        }
        if let Some(records) = order {
            writer.row_map(records)?;
        }
        if let Some(times) = &table.times {
            writer.times(times)?;
        }
        progress.stage("waiting for the disk");
        Ok(writer.finish()?)
    }
}

/// How much of the input has been read.
pub(super) struct Reading<'a> {
    progress: &'a Progress,
    bytes: u64,
    /// `None` if it comes through a pipe.
    total: Option<u64>,
}

impl<'a> Reading<'a> {
    pub(super) fn new<P: AsRef<Path>>(
        progress: &'a Progress,
        files: impl Iterator<Item = P>,
    ) -> Self {
        let len = |path: P| path.as_ref().metadata().ok().filter(|m| m.is_file()).map(|m| m.len());
        Self { progress, bytes: 0, total: files.map(len).sum() }
    }

    /// Adds bytes that were read; `rows` is the number of rows so far.
    pub(super) fn add(&mut self, bytes: usize, rows: usize) {
        self.bytes += bytes as u64;
        let text = |elapsed: Duration| {
            let rate = self.bytes as f64 / 1e6 / elapsed.as_secs_f64().max(1e-3);
            format!("{rows} rows read, {rate:.0} MB/s")
        };
        match self.total {
            Some(total) => self.progress.show_of(self.bytes, total, text),
            None => self.progress.show(text),
        }
    }
}

/// Builds columns and writes them.
fn write_columns(
    builder: &mut impl Builder,
    columns: &[(Digits<'_>, Codec)],
    writer: &mut IndexWriter<'_>,
    progress: &Progress,
) -> anyhow::Result<()> {
    progress.stage("building columns");
    let mut built = 0;
    builder.build_each(columns, |index| {
        writer.column(index)?;
        built += 1;
        let text = |_| format!("{built} of {} columns built", columns.len());
        progress.show_of(built, columns.len() as u64, text);
        Ok(())
    })
}

/// Applies `work` to each item on a number of threads; the results are in order.
fn side_by_side<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(items.len())));
    let take = || {
        while let Some((n, item)) = {
            let n = next.fetch_add(1, Ordering::Relaxed);
            items.get(n).map(|item| (n, item))
        } {
            let result = work(item);
            done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((n, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(items.len()) {
            scope.spawn(take);
        }
        take();
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_unstable_by_key(|&(n, _)| n);
    done.into_iter().map(|(_, result)| result).collect()
}
