//! One column on the device: which kernels run, in which order, on which memory.
//!
//! A column is built in two halves. [`Slot::measure`] copies it in, sorts its runs and finds out
//! how many bytes its index takes; when that is known, [`Slot::write`] launches the kernels that
//! write the index, and copies it out. Neither waits for the device, unless memory has to grow.

use std::sync::Arc;

use tapdex_bitmap::Codec;
use tapdex_engine::index::Digits;

use crate::device::{Address, Arg, Device, DeviceError, Event, Launch, Stream, record};
use crate::memory::{Buffer, HostBuffer, bytes_of};

/// The most rows of a column: so few that no codec has to split a fill.
pub(crate) const ROWS_MAX: usize = 1 << 27;

/// About how many bytes of the device's memory a row of a column in flight takes: runs twice, their
/// digits, items or pieces and containers, and the index.
pub(crate) const ROW_BYTES: usize = 80;

/// Elements of a tile, and threads that sort it, as in `runs.cu`.
pub(crate) const TILE: usize = 8192;
pub(crate) const TILE_THREADS: u32 = 256;
pub(crate) const BUCKETS: usize = 256;
/// Elements of a tile of the second pass.
pub(crate) const HIGH_TILE: usize = 4096;
/// Bytes of the tables that threads share while they sort: counts of eight warps, where each bucket
/// goes, and some room.
pub(crate) const SORTING_TABLES: u32 = 4 * (8 * 128 + 256 + 32 + 4);
/// Numbers of a tile in `scan.cu`, runs of one in `words.cuh`, items of one in `merge.cuh`.
pub(crate) const SCAN_TILE: usize = 2048;
pub(crate) const RUN_TILE: usize = 2048;
pub(crate) const MERGE_TILE: usize = 2048;
/// Tiles of a group in `merge.cu`.
pub(crate) const GROUP_TILES: u32 = 256;
pub(crate) const THREADS: u32 = 256;
pub(crate) const BLOCK_ALONE: u32 = 1024;
/// In `firsts`, a key that does not occur: all bits.
const NO_KEY: u8 = 0xFF;

/// What the column is made of.
#[derive(Debug, Clone, Copy)]
pub enum ColumnSource<'a> {
    /// The digit of every row.
    Rows(Digits<'a>),
    /// The digit of each of some runs, the row that each starts at, and the number of rows.
    Runs(&'a [u16], &'a [u32], u32),
}

impl ColumnSource<'_> {
    /// How many rows there are.
    pub(crate) fn rows(&self) -> usize {
        match self {
            ColumnSource::Rows(digits) => digits.rows(),
            ColumnSource::Runs(_, _, rows) => *rows as usize,
        }
    }
}

/// A column on the device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List {
    /// Its digits, with room for whole reads of sixteen bytes.
    pub(crate) digits: Address,
    /// Whether a digit has 16 bits, not 8.
    pub(crate) is_short: bool,
    /// How many digits there are.
    pub(crate) len: usize,
    /// The row that each digit's run starts at, or 0 if there is a digit for every row.
    pub(crate) starts: Address,
    pub(crate) rows: usize,
}

/// The form of the words or bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A codec as it is.
    Whole(Codec),
    /// MASC in windows of 3,968 rows.
    MascWindows,
}

impl Form {
    /// The codec that is recorded in the index.
    pub fn codec(self) -> Codec {
        match self {
            Form::Whole(codec) => codec,
            Form::MascWindows => Codec::Masc,
        }
    }
}

/// Seconds that the steps of building took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Steps {
    /// Copying columns to the device.
    pub copy_in: f64,
    /// Sorting, and measuring the index.
    pub measure: f64,
    /// Writing the index.
    pub write: f64,
    /// Copying the index from the device.
    pub copy_out: f64,
}

impl Steps {
    /// The time of the kernels, without copies.
    pub fn kernels(&self) -> f64 {
        self.measure + self.write
    }
}

impl std::ops::AddAssign for Steps {
    fn add_assign(&mut self, other: Self) {
        self.copy_in += other.copy_in;
        self.measure += other.measure;
        self.write += other.write;
        self.copy_out += other.copy_out;
    }
}

/// Numbers that kernels leave for each other and for the host, by their place.
#[derive(Debug, Clone, Copy)]
enum Total {
    Runs = 0,
    Keys = 1,
    Items = 2,
    Words = 3,
    Pieces = 4,
    Containers = 5,
    Rows = 6,
    PieceKeys = 7,
    Bytes = 8,
}
const TOTALS: usize = 16;

/// The memory that a column in flight takes.
#[derive(Debug, Default)]
struct Buffers {
    list: Buffer,
    starts: Buffer,
    totals: Buffer,
    counts: Buffer,
    first_heads: Buffer,
    sums: Buffer,
    runs: [Buffer; 2],
    digits: [Buffer; 2],
    firsts: Buffer,
    keys: Buffer,
    key_runs: Buffer,
    key_items: Buffer,
    key_ends: Buffer,
    items: Buffer,
    item_firsts: Buffer,
    steps: Buffer,
    group_steps: Buffer,
    extras: Buffer,
    tile_starts: Buffer,
    pieces: Buffer,
    containers: Buffer,
    sizes: Buffer,
    key_bytes: Buffer,
    container_starts: Buffer,
    key_has_runs: Buffer,
    out: Buffer,
}

/// Where `write` finds what `measure` left.
#[derive(Debug, Clone, Copy, Default)]
struct Layout {
    totals: Address,
    runs: Address,
    sums: Address,
    keys: Address,
    key_runs: Address,
    key_items: Address,
    key_ends: Address,
    items: Address,
    item_firsts: Address,
    tile_starts: Address,
    pieces: Address,
    containers: Address,
    sizes: Address,
    key_bytes: Address,
    container_starts: Address,
    key_has_runs: Address,
    /// Upper bounds of the numbers of each.
    rows: usize,
    runs_max: usize,
    items_max: usize,
    pieces_max: usize,
    containers_max: usize,
    keys_max: usize,
}

impl Layout {
    fn total(&self, total: Total) -> Address {
        self.totals + 4 * total as u64
    }
}

/// A column in flight, and memory for the next one.
#[derive(Debug)]
pub(crate) struct Slot {
    device: Arc<dyn Device>,
    buffers: Buffers,
    host_totals: HostBuffer,
    host_keys: HostBuffer,
    pub(crate) host_ends: HostBuffer,
    pub(crate) host_out: HostBuffer,
    layout: Layout,
    form: Form,
    sent: Option<Event>,
    arrived: Option<Event>,
    measured: Option<Event>,
    begun: Option<Event>,
    written: Option<Event>,
    copied: Option<Event>,
    /// Keys and bytes of the index, once measured.
    keys: usize,
    pub(crate) bytes: usize,
}

/// The arguments of a kernel.
macro_rules! args {
    ($($arg:expr),* $(,)?) => { &[$(Arg::from($arg)),*] };
}
pub(crate) use args;

pub(crate) fn u32_of(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

pub(crate) fn blocks(items: usize, of: usize) -> u32 {
    u32_of(items.div_ceil(of))
}

impl Slot {
    pub(crate) fn new(device: &Arc<dyn Device>) -> Self {
        Self {
            device: Arc::clone(device),
            buffers: Buffers::default(),
            host_totals: HostBuffer::default(),
            host_keys: HostBuffer::default(),
            host_ends: HostBuffer::default(),
            host_out: HostBuffer::default(),
            layout: Layout::default(),
            form: Form::Whole(Codec::Wah),
            sent: None,
            arrived: None,
            measured: None,
            begun: None,
            written: None,
            copied: None,
            keys: 0,
            bytes: 0,
        }
    }

    fn launch(
        &self,
        stem: &'static str,
        kernel: &'static str,
        (blocks, threads, shared): (u32, u32, u32),
        args: &[Arg],
    ) -> Result<(), DeviceError> {
        let launch = Launch { stem, kernel, blocks, threads, shared };
        self.device.launch(Stream::Compute, launch, args)
    }

    /// Replaces numbers by the sums of those before; `count`, if not 0, is where their number is.
    fn scan(
        &self,
        values: Address,
        len: usize,
        count: Address,
        sums: Address,
        total: Address,
    ) -> Result<(), DeviceError> {
        let tiles = blocks(len, SCAN_TILE);
        let grid = (tiles, THREADS, 0);
        self.launch("scan", "scan_tiles", grid, args![values, u32_of(len), count, sums])?;
        self.scan_sums(sums, tiles, total)?;
        self.launch("scan", "scan_apply", grid, args![values, u32_of(len), count, sums])
    }

    fn scan_sums(&self, sums: Address, len: u32, total: Address) -> Result<(), DeviceError> {
        self.launch("scan", "scan_sums", (1, BLOCK_ALONE, 0), args![sums, len, total])
    }

    /// Starts copying the column in and measuring it. The source must not change until the slot is
    /// [waited for](Self::wait_measured).
    pub(crate) fn measure(
        &mut self,
        source: ColumnSource<'_>,
        form: Form,
    ) -> Result<(), DeviceError> {
        let list = self.bring(source)?;
        self.measure_list(list, form)
    }

    /// Starts measuring a column that is on the device, or will be when the kernels before are
    /// done.
    pub(crate) fn measure_list(&mut self, list: List, form: Form) -> Result<(), DeviceError> {
        self.form = form;
        (self.measured, self.copied) = (None, None);
        self.sort(list)?;
        match form {
            Form::Whole(Codec::Wah) => self.measure_words("wah", "wah_count", Total::Words)?,
            Form::Whole(Codec::Masc) => self.measure_words("masc", "masc_count", Total::Words)?,
            Form::MascWindows => {
                self.measure_words("masc", "masc_window_count", Total::Words)?;
            }
            Form::Whole(Codec::Hipes(width)) => self.measure_pieces(width.get().into())?,
            Form::Whole(Codec::Roaring) => {
                self.measure_pieces(16)?;
                self.measure_roaring()?;
            }
            Form::Whole(Codec::Plwah) => self.measure_merged(PLWAH)?,
            Form::Whole(Codec::PlwahPlus) => self.measure_merged(PLWAH_PLUS)?,
            Form::Whole(Codec::Compax) => self.measure_merged(COMPAX)?,
            Form::Whole(Codec::Compax2) => self.measure_merged(COMPAX2)?,
            Form::Whole(Codec::Secompax) => self.measure_merged(SECOMPAX)?,
        }
        let host = self.host_totals.reserve(&self.device, 4 * TOTALS)?;
        // Written by a kernel, not copied: a copy would wait for those of other columns.
        let grid = (1, 32, 0);
        self.launch("scan", "scan_publish", grid, args![self.layout.totals, u32_of(TOTALS), host])?;
        self.measured = Some(record(&self.device, Stream::Compute)?);
        Ok(())
    }

    /// Room for the digits of a column.
    pub(crate) fn reserve_digits(&mut self, bytes: usize) -> Result<Address, DeviceError> {
        self.buffers.list.reserve(&self.device, bytes.next_multiple_of(16).max(16))
    }

    /// Copies the column in.
    fn bring(&mut self, source: ColumnSource<'_>) -> Result<List, DeviceError> {
        let device = Arc::clone(&self.device);
        let (bytes, is_short, starts) = match source {
            ColumnSource::Rows(Digits::Bytes(digits)) => (digits, false, None),
            ColumnSource::Rows(Digits::Shorts(digits)) => (bytes_of(digits), true, None),
            ColumnSource::Runs(digits, starts, _) => (bytes_of(digits), true, Some(starts)),
        };
        let len = if is_short { bytes.len() / 2 } else { bytes.len() };
        let digits = self.reserve_digits(bytes.len())?;
        let starts_at = match starts {
            Some(starts) => self.buffers.starts.reserve(&device, 4 * starts.len())?,
            None => 0,
        };
        self.sent = Some(record(&device, Stream::In)?);
        device.copy_in(Stream::In, bytes, digits)?;
        if let Some(starts) = starts {
            device.copy_in(Stream::In, bytes_of(starts), starts_at)?;
        }
        let arrived = record(&device, Stream::In)?;
        device.wait_in(Stream::Compute, arrived.handle)?;
        Ok(List { digits, is_short, len, starts: starts_at, rows: source.rows() })
    }

    /// Sorts the runs of the column by key.
    fn sort(&mut self, column: List) -> Result<(), DeviceError> {
        let device = Arc::clone(&self.device);
        let List { digits: list, is_short, len, starts: starts_at, .. } = column;
        let rows = u32_of(column.rows);
        let tiles = len.div_ceil(TILE).max(1);
        let b = &mut self.buffers;
        let keys_max = if is_short { 1 << 16 } else { BUCKETS };
        // The second pass has smaller tiles.
        let high_tiles = len.div_ceil(HIGH_TILE).max(1);
        let counts_len = BUCKETS * if is_short { high_tiles } else { tiles };
        let counts = b.counts.reserve(&device, 4 * counts_len)?;
        let first_heads = b.first_heads.reserve(&device, 4 * tiles)?;
        let run_tiles = len.div_ceil(RUN_TILE).max(1);
        let sums = 4 * (4 * run_tiles).max(counts_len.div_ceil(SCAN_TILE) + 1);
        let firsts = b.firsts.reserve(&device, 4 * keys_max)?;
        let runs = b.runs[0].reserve(&device, 8 * len)?;
        self.layout = Layout {
            totals: b.totals.reserve(&device, 4 * TOTALS)?,
            sums: b.sums.reserve(&device, sums)?,
            keys: b.keys.reserve(&device, 2 * keys_max)?,
            key_runs: b.key_runs.reserve(&device, 4 * (keys_max + 1))?,
            key_ends: b.key_ends.reserve(&device, 4 * (keys_max + 1))?,
            rows: column.rows,
            runs_max: len,
            keys_max,
            ..Layout::default()
        };
        let (other_runs, digits) = if is_short {
            let digits = [
                b.digits[0].reserve(&device, 2 * len.next_multiple_of(8))?,
                b.digits[1].reserve(&device, 2 * len)?,
            ];
            (b.runs[1].reserve(&device, 8 * len)?, digits)
        } else {
            (0, [0; 2])
        };

        self.arrived = Some(record(&device, Stream::Compute)?);
        device.fill(Stream::Compute, firsts, NO_KEY, 4 * keys_max)?;

        let (len, tiles, high_tiles) = (u32_of(len), u32_of(tiles), u32_of(high_tiles));
        let counts_len = BUCKETS * tiles as usize;
        let (sums, runs_total) = (self.layout.sums, self.layout.total(Total::Runs));
        let grid = (tiles, TILE_THREADS, 0);
        let tile = u32_of(TILE);
        let sorting = |digit: u32| (digit + 2) * tile + tile / 8 + SORTING_TABLES;
        let count = if is_short { "runs_count_u16" } else { "runs_count_u8" };
        self.launch("runs", count, grid, args![list, len, tiles, counts, first_heads])?;
        self.scan(counts, counts_len, 0, sums, runs_total)?;
        if is_short {
            let grid_sorting = (tiles, TILE_THREADS, sorting(2));
            let scatter = args![
                list,
                len,
                tiles,
                starts_at,
                rows,
                counts,
                first_heads,
                other_runs,
                digits[0],
            ];
            self.launch("runs", "runs_scatter_u16", grid_sorting, scatter)?;
            let high = args![digits[0], runs_total, high_tiles, counts];
            self.launch("runs", "runs_count_high", (high_tiles, TILE_THREADS, 0), high)?;
            self.scan(counts, BUCKETS * high_tiles as usize, 0, sums, runs_total)?;
            let shared = 10 * u32_of(HIGH_TILE) + SORTING_TABLES;
            let grid_sorting = (high_tiles, TILE_THREADS, shared);
            let scatter =
                args![other_runs, digits[0], runs_total, high_tiles, counts, runs, digits[1]];
            self.launch("runs", "runs_scatter_high", grid_sorting, scatter)?;
            let grid = (blocks(self.layout.runs_max, THREADS as usize), THREADS, 0);
            let mark = args![runs, digits[1], runs_total, firsts];
            self.launch("runs", "runs_mark", grid, mark)?;
        } else {
            let grid = (tiles, TILE_THREADS, sorting(1));
            let scatter =
                args![list, len, tiles, starts_at, rows, counts, first_heads, runs, firsts];
            self.launch("runs", "runs_scatter_u8", grid, scatter)?;
        }
        self.layout.runs = runs;
        let p = &self.layout;
        let args =
            args![firsts, u32_of(keys_max), runs_total, p.keys, p.key_runs, p.total(Total::Keys),];
        self.launch("runs", "runs_keys", (1, BLOCK_ALONE, 0), args)
    }

    /// Counts the words of the runs, by a rule of `words.cuh`.
    fn measure_words(
        &mut self,
        stem: &'static str,
        kernel: &'static str,
        total: Total,
    ) -> Result<(), DeviceError> {
        let p = self.layout;
        let tiles = blocks(p.runs_max, RUN_TILE);
        let grid = (tiles, THREADS, 0);
        self.launch(stem, kernel, grid, args![p.runs, p.total(Total::Runs), p.sums])?;
        self.scan_sums(p.sums, tiles, p.total(total))
    }

    /// Writes the words of the runs; `firsts` may be 0.
    fn write_words(
        &self,
        stem: &'static str,
        kernel: &'static str,
        (target, key_ends): (Address, Address),
        total: Total,
        firsts: Option<Address>,
    ) -> Result<(), DeviceError> {
        let p = &self.layout;
        let grid = (blocks(p.runs_max, RUN_TILE), THREADS, 0);
        let mut args = vec![
            p.runs.into(),
            p.total(Total::Runs).into(),
            p.sums.into(),
            p.total(total).into(),
            p.key_runs.into(),
            p.total(Total::Keys).into(),
            target.into(),
            key_ends.into(),
        ];
        args.extend(firsts.map(Arg::from));
        self.launch(stem, kernel, grid, &args)
    }

    /// Writes the words of WAH, and counts the words that a merging codec turns them into.
    fn measure_merged(&mut self, (stem, count, _): Merging) -> Result<(), DeviceError> {
        let device = Arc::clone(&self.device);
        self.measure_words("wah", "wah_count", Total::Items)?;
        let p = &mut self.layout;
        // A run gives at most four items, and needs at least two rows for the third, 31 for the
        // fourth: see `wah.cu`.
        p.items_max = (4 * p.runs_max).min(2 * p.rows);
        let b = &mut self.buffers;
        p.items = b.items.reserve(&device, 4 * p.items_max.next_multiple_of(8) + 8)?;
        let firsts_len = 4 * (p.items_max / 32 + 2);
        p.item_firsts = b.item_firsts.reserve(&device, firsts_len)?;
        p.key_items = b.key_items.reserve(&device, 4 * (p.keys_max + 1))?;
        let tiles = blocks(p.items_max, MERGE_TILE);
        let groups = tiles.div_ceil(GROUP_TILES);
        let steps = b.steps.reserve(&device, 16 * tiles as usize)?;
        let group_steps = b.group_steps.reserve(&device, 20 * groups as usize)?;
        let extras = b.extras.reserve(&device, 4 * tiles as usize)?;
        p.tile_starts = b.tile_starts.reserve(&device, 8 * tiles as usize)?;
        device.fill(Stream::Compute, p.item_firsts, 0, firsts_len)?;
        let p = self.layout;
        let target = (p.items, p.key_items);
        self.write_words("wah", "wah_write", target, Total::Items, Some(p.item_firsts))?;
        let args = args![p.items, p.total(Total::Items), p.item_firsts, steps, extras];
        self.launch(stem, count, (tiles, THREADS, 0), args)?;
        let items = p.total(Total::Items);
        let grid = (groups, GROUP_TILES, 0);
        let args = args![steps, extras, items, group_steps];
        self.launch("merge", "merge_groups", grid, args)?;
        let words = p.total(Total::Words);
        let args = args![steps, extras, items, group_steps, p.tile_starts, words];
        self.launch("merge", "merge_tiles", grid, args)
    }

    /// Cuts the runs into pieces of chunks of 2^`width` rows.
    fn measure_pieces(&mut self, width: u32) -> Result<(), DeviceError> {
        let device = Arc::clone(&self.device);
        let (b, p) = (&mut self.buffers, &mut self.layout);
        // The end of a chunk cuts at most one run.
        let chunks = (p.rows >> width) + 1;
        p.pieces_max = p.runs_max + chunks;
        p.containers_max = p.pieces_max.min(p.keys_max.saturating_mul(chunks));
        p.pieces = b.pieces.reserve(&device, 16 * p.pieces_max)?;
        p.containers = b.containers.reserve(&device, 16 * (p.containers_max + 1))?;
        let p = self.layout;
        let tiles = blocks(p.runs_max, RUN_TILE);
        let grid = (tiles, THREADS, 0);
        let runs = p.total(Total::Runs);
        let args = args![p.runs, runs, width, tiles, p.sums];
        self.launch("pieces", "pieces_count", grid, args)?;
        // The keys are counted already; here they only have to be added up.
        let totals = [Total::Pieces, Total::Containers, Total::Rows, Total::PieceKeys];
        for (sums, total) in (0..).zip(totals) {
            self.scan_sums(p.sums + 4 * u64::from(tiles) * sums, tiles, p.total(total))?;
        }
        let args = args![
            p.runs,
            runs,
            width,
            tiles,
            p.sums,
            p.total(Total::Pieces),
            p.pieces,
            p.containers,
            p.key_ends,
        ];
        self.launch("pieces", "pieces_write", grid, args)
    }

    /// Finds the sizes of containers and headers.
    fn measure_roaring(&mut self) -> Result<(), DeviceError> {
        let device = Arc::clone(&self.device);
        let (b, p) = (&mut self.buffers, &mut self.layout);
        let len = p.containers_max + 1;
        p.sizes = b.sizes.reserve(&device, 4 * len)?;
        p.key_bytes = b.key_bytes.reserve(&device, 4 * (p.keys_max + 1))?;
        p.container_starts = b.container_starts.reserve(&device, 4 * len)?;
        p.key_has_runs = b.key_has_runs.reserve(&device, 4 * p.keys_max)?;
        let sums = b.sums.reserve(&device, 4 * (len.div_ceil(SCAN_TILE) + 1))?;
        device.fill(Stream::Compute, p.key_has_runs, 0, 4 * p.keys_max)?;
        let p = self.layout;
        let containers = p.total(Total::Containers);
        let grid = (blocks(len, THREADS as usize), THREADS, 0);
        let args = args![p.containers, containers, p.sizes, p.key_has_runs];
        self.launch("roaring", "roaring_sizes", grid, args)?;
        self.scan(p.sizes, len, containers, sums, p.total(Total::Words))?;
        let keys = p.total(Total::Keys);
        let args =
            args![p.key_ends, keys, p.key_has_runs, p.sizes, p.key_bytes, p.total(Total::Bytes)];
        self.launch("roaring", "roaring_keys", (1, BLOCK_ALONE, 0), args)
    }

    /// Waits until the column is measured.
    pub(crate) fn wait_measured(&mut self) -> Result<(), DeviceError> {
        if let Some(event) = &self.measured {
            event.wait()?;
        }
        let totals = self.host_totals.get().map(|totals| &totals[..]).unwrap_or_default();
        let total = |total: Total| {
            let bytes = totals.get(4 * total as usize..4 * total as usize + 4);
            let bytes = bytes.and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
            u32::from_le_bytes(bytes) as usize
        };
        self.keys = total(Total::Keys);
        self.bytes = match self.form {
            Form::Whole(Codec::Roaring) => total(Total::Bytes),
            Form::Whole(Codec::Hipes(_)) => total(Total::Containers) * self.unit(),
            _ => total(Total::Words) * self.unit(),
        };
        Ok(())
    }

    /// Bytes of the unit that `key_ends` counts in.
    fn unit(&self) -> usize {
        match self.form {
            Form::Whole(Codec::Roaring) => 1,
            Form::Whole(Codec::Hipes(width)) => 4 + (1 << width.get()) / 8,
            _ => 4,
        }
    }

    /// Starts writing the index of a measured column and copying it out.
    pub(crate) fn write(&mut self) -> Result<(), DeviceError> {
        let device = Arc::clone(&self.device);
        let room = self.bytes.next_multiple_of(4);
        let out = self.buffers.out.reserve(&device, room)?;
        let host_out = self.host_out.reserve(&device, room)?;
        let host_keys = self.host_keys.reserve(&device, 2 * self.layout.keys_max)?;
        let host_ends = self.host_ends.reserve(&device, 4 * (self.layout.keys_max + 1))?;
        self.begun = Some(record(&device, Stream::Compute)?);
        let p = self.layout;
        let ends = match self.form {
            Form::Whole(Codec::Roaring) => p.key_bytes,
            _ => p.key_ends,
        };
        match self.form {
            Form::Whole(Codec::Wah) => {
                let target = (out, p.key_ends);
                self.write_words("wah", "wah_write", target, Total::Words, Some(0))?;
            }
            Form::Whole(Codec::Masc) => {
                let target = (out, p.key_ends);
                self.write_words("masc", "masc_write", target, Total::Words, None)?;
            }
            Form::MascWindows => {
                let target = (out, p.key_ends);
                self.write_words("masc", "masc_window_write", target, Total::Words, None)?;
            }
            Form::Whole(Codec::Hipes(width)) => self.write_hipes(width.get().into(), out, room)?,
            Form::Whole(Codec::Roaring) => self.write_roaring(out, room)?,
            Form::Whole(Codec::Plwah) => self.write_merged(PLWAH, out)?,
            Form::Whole(Codec::PlwahPlus) => self.write_merged(PLWAH_PLUS, out)?,
            Form::Whole(Codec::Compax) => {
                // Full groups are words of ones.
                device.fill(Stream::Compute, out, 0xFF, room)?;
                self.write_merged(COMPAX, out)?;
            }
            Form::Whole(Codec::Compax2) => self.write_merged(COMPAX2, out)?,
            Form::Whole(Codec::Secompax) => self.write_merged(SECOMPAX, out)?,
        }
        let written = record(&device, Stream::Compute)?;
        device.wait_in(Stream::Out, written.handle)?;
        device.copy_out(Stream::Out, p.keys, host_keys, 2 * self.keys)?;
        device.copy_out(Stream::Out, ends, host_ends, 4 * (self.keys + 1))?;
        device.copy_out(Stream::Out, out, host_out, self.bytes)?;
        self.written = Some(written);
        self.copied = Some(record(&device, Stream::Out)?);
        Ok(())
    }

    /// How long each step took for the column that was waited for, if no other was in flight.
    pub(crate) fn steps(&self) -> Result<Steps, DeviceError> {
        let span = |from: &Option<Event>, to: &Option<Event>| match (from, to) {
            (Some(from), Some(to)) => to.since(from).map(|ms| f64::from(ms) / 1e3),
            _ => Ok(0.0),
        };
        Ok(Steps {
            copy_in: span(&self.sent, &self.arrived)?,
            measure: span(&self.arrived, &self.measured)?,
            write: span(&self.begun, &self.written)?,
            copy_out: span(&self.written, &self.copied)?,
        })
    }

    fn write_merged(&self, (stem, _, write): Merging, out: Address) -> Result<(), DeviceError> {
        let p = &self.layout;
        let args = args![
            p.items,
            p.total(Total::Items),
            p.item_firsts,
            p.tile_starts,
            p.total(Total::Words),
            p.key_items,
            p.total(Total::Keys),
            out,
            p.key_ends,
        ];
        self.launch(stem, write, (blocks(p.items_max, MERGE_TILE), THREADS, 0), args)
    }

    fn write_hipes(&self, width: u32, out: Address, room: usize) -> Result<(), DeviceError> {
        let p = &self.layout;
        self.device.fill(Stream::Compute, out, 0, room)?;
        let args = args![p.containers, p.total(Total::Containers), width, out];
        let grid = |items| (blocks(items, THREADS as usize), THREADS, 0);
        self.launch("hipes", "hipes_headers", grid(p.containers_max), args)?;
        let args = args![p.pieces, p.total(Total::Pieces), width, out];
        self.launch("hipes", "hipes_rows", grid(p.pieces_max), args)
    }

    fn write_roaring(&self, out: Address, room: usize) -> Result<(), DeviceError> {
        let p = &self.layout;
        self.device.fill(Stream::Compute, out, 0, room)?;
        let containers = p.total(Total::Containers);
        let starts = p.container_starts;
        let args = args![
            p.containers,
            containers,
            p.key_ends,
            p.key_has_runs,
            p.key_bytes,
            p.sizes,
            starts,
            out,
        ];
        let grid = |items| (blocks(items, THREADS as usize), THREADS, 0);
        self.launch("roaring", "roaring_headers", grid(p.containers_max), args)?;
        let args = args![p.pieces, p.total(Total::Pieces), p.containers, starts, out];
        self.launch("roaring", "roaring_rows", grid(p.pieces_max), args)
    }

    /// Waits until the index is copied out; returns its keys, and where the bitmap of each ends.
    pub(crate) fn wait_copied(&mut self, keys: &mut Vec<u16>) -> Result<Vec<u64>, DeviceError> {
        if let Some(event) = &self.copied {
            event.wait()?;
        }
        let bytes = |buffer: &HostBuffer| buffer.get().cloned();
        let (found, ends) = (bytes(&self.host_keys), bytes(&self.host_ends));
        let found = found.as_deref().map(|bytes| &bytes[..]).unwrap_or_default();
        let ends = ends.as_deref().map(|bytes| &bytes[..]).unwrap_or_default();
        keys.clear();
        let (shorts, _) = found.as_chunks::<2>();
        keys.extend(shorts.iter().take(self.keys).map(|&key| u16::from_le_bytes(key)));
        let (longs, _) = ends.as_chunks::<4>();
        let unit = self.unit() as u64;
        let ends = longs.iter().take(self.keys + 1);
        Ok(ends.map(|&end| u64::from(u32::from_le_bytes(end)) * unit).collect())
    }
}

/// The kernels of a merging codec: stem, counting and writing.
type Merging = (&'static str, &'static str, &'static str);

const PLWAH: Merging = ("plwah", "plwah_count", "plwah_write");
const PLWAH_PLUS: Merging = ("plwah_plus", "plwah_plus_count", "plwah_plus_write");
const COMPAX: Merging = ("compax", "compax_count", "compax_write");
const COMPAX2: Merging = ("compax2", "compax2_count", "compax2_write");
const SECOMPAX: Merging = ("secompax", "secompax_count", "secompax_write");
