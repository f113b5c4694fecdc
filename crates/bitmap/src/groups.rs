//! Groups of 31 rows: what WAH and all its successors but MASC are made of.
//!
//! A row `31 * g + j` is bit `30 - j` of the payload of group `g`. A set is a sequence of
//! [pieces](Piece): a number of groups with the same payload. To encode, [`Grouper`] turns ids,
//! runs or chunks into fills and literals and passes them to the codec's [`GroupSink`]; to decode,
//! the codec unpacks each word into pieces and [`GroupCursor`] gathers them into chunks. A codec
//! only decides which neighbours share a word.
//!
//! Checking needs no code of its own: the pieces of a stream go through the codec's sink again and
//! the words that come out are compared with the words that went in. Words that differ were not
//! written by the encoder.

use std::cell::RefCell;

use crate::cast::{len32, low32};
use crate::chunk::{Bits, CHUNK_ROWS, Chunk, Ids16, Room, id_of, or_word, set_range};
use crate::chunks::Chunks;
use crate::codec::triples::NEARLY_FULL_ROWS;
use crate::codec::{BitmapCodec, Codec, Encoder, Explained};
use crate::error::DecodeError;
use crate::runs::{TakeRuns, push_runs, run_len};
use crate::simd::words::{
    BATCH, Groups, Items, Len, ROOM, Words, group_array, group_ids, push_words,
};

/// Fewer ids than this are added one by one.
pub(crate) const BATCHED_FROM: usize = 12;

/// Fewer groups than this are passed on one by one.
const FEW_CLOSED: usize = 6;

/// Rows in a group.
pub const GROUP_ROWS: u32 = 31;
/// The payload of a group with every row set.
pub const FULL: u32 = (1 << GROUP_ROWS) - 1;

/// `count` neighbouring groups with the same payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The 31 bits of each of them, the first row highest.
    pub payload: u32,
    /// How many there are.
    pub count: u32,
}

impl Piece {
    /// A run of empty or full groups.
    #[inline(always)]
    pub(crate) fn fill(ones: bool, count: u32) -> Self {
        Self { payload: if ones { FULL } else { 0 }, count }
    }

    /// A single group.
    #[inline(always)]
    pub(crate) fn literal(payload: u32) -> Self {
        Self { payload: payload & FULL, count: 1 }
    }
}

/// The one to three pieces of a word, in order; unused places have count 0.
pub type Pieces = [Piece; 3];

/// Pieces of a word that holds one.
#[inline(always)]
pub(crate) fn one(piece: Piece) -> Pieces {
    [piece, Piece { payload: 0, count: 0 }, Piece { payload: 0, count: 0 }]
}

/// Pieces of a word that holds two.
#[inline(always)]
pub(crate) fn two(first: Piece, second: Piece) -> Pieces {
    [first, second, Piece { payload: 0, count: 0 }]
}

/// Where an encoder's words go: to a byte string, or to one that only counts or compares them.
pub trait WordTarget {
    /// The next word.
    fn word(&mut self, word: u32);

    /// The same word `count` times.
    fn repeat(&mut self, word: u32, count: u32) {
        for _ in 0..count {
            self.word(word);
        }
    }

    /// The next words.
    fn words(&mut self, words: &[u32]) {
        for &word in words {
            self.word(word);
        }
    }
}

impl WordTarget for &mut Vec<u8> {
    #[inline(always)]
    fn word(&mut self, word: u32) {
        self.extend_from_slice(&word.to_le_bytes());
    }

    #[inline(always)]
    fn words(&mut self, words: &[u32]) {
        push_words(words, self);
    }
}

/// Counts words instead of keeping them.
#[derive(Debug, Clone, Copy, Default)]
pub struct WordCount(pub u64);

impl WordTarget for &mut WordCount {
    #[inline(always)]
    fn word(&mut self, _: u32) {
        self.0 += 1;
    }

    fn repeat(&mut self, _: u32, count: u32) {
        self.0 += u64::from(count);
    }

    #[inline(always)]
    fn words(&mut self, words: &[u32]) {
        self.0 += words.len() as u64;
    }
}

/// Compares words with those of a stream.
#[derive(Debug)]
pub(crate) struct WordCompare<'a> {
    source: &'a [[u8; 4]],
    /// Words seen so far; all of them equal while `differs` is `None`.
    at: usize,
    differs: Option<DecodeError>,
}

impl<'a> WordCompare<'a> {
    pub(crate) fn new(source: &'a [[u8; 4]]) -> Self {
        Self { source, at: 0, differs: None }
    }

    /// The first difference, when all words of the encoder have been seen.
    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        match self.differs {
            Some(error) => Err(error),
            None if self.at < self.source.len() => {
                Err(DecodeError::Trailing { offset: 4 * self.at })
            }
            None => Ok(()),
        }
    }

    pub(crate) fn differs(&self) -> bool {
        self.differs.is_some()
    }
}

impl WordTarget for &mut WordCompare<'_> {
    #[inline(always)]
    fn word(&mut self, expected: u32) {
        let got = self.source.get(self.at).map_or(0, |&word| u32::from_le_bytes(word));
        if got != expected && self.differs.is_none() {
            self.differs = Some(DecodeError::NotCanonical { offset: 4 * self.at, expected, got });
        }
        self.at += 1;
    }

    fn repeat(&mut self, word: u32, count: u32) {
        for _ in 0..count {
            if self.differs() {
                return;
            }
            self.word(word);
        }
    }
}

/// The half of an encoder that decides which fills and literals share a word.
///
/// It sees maximal fills and literals that are neither empty nor full, and never a fill of empty
/// groups at the end.
pub trait GroupSink {
    /// `count` groups that are all full, or all empty.
    fn fill(&mut self, ones: bool, count: u32);
    /// One group that is neither.
    fn literal(&mut self, payload: u32);
    /// A batch of groups that are neither, each with the number of empty ones before it.
    #[inline(always)]
    fn literals(&mut self, batch: &mut Batch) {
        self.each(batch);
    }
    /// The same, one by one.
    #[inline(always)]
    fn each(&mut self, batch: &Batch) {
        for (&gap, &payload) in batch.gaps.iter().zip(&batch.payloads).take(batch.len.items) {
            if gap > 0 {
                self.fill(false, gap);
            }
            self.literal(payload);
        }
    }
    /// Writes what was held back.
    fn finish(&mut self);
}

/// A batch of literals, and room for the words that they become.
///
/// Its arrays start at cache lines, so that a full register seldom spans two of them.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Batch {
    /// The number of empty groups before each literal.
    pub(crate) gaps: Items,
    /// The literals.
    pub(crate) payloads: Items,
    /// Room for words.
    pub(crate) words: [Words; 2],
    /// How many literals there are.
    pub(crate) len: Len,
    /// No gap is greater.
    pub(crate) gap_max: u32,
    /// No gap is smaller.
    pub(crate) gap_min: u32,
    /// No literal is nearly full.
    pub(crate) is_sparse: bool,
    /// Every literal has one row.
    pub(crate) is_single: bool,
}

impl Batch {
    const EMPTY: Self = {
        let (items, words) = ([0; ROOM], [0; 2 * ROOM]);
        Self {
            gaps: items,
            payloads: items,
            words: [words; 2],
            len: Len { items: 0, is_plain: false },
            gap_max: 0,
            gap_min: 0,
            is_sparse: false,
            is_single: false,
        }
    };
}

thread_local! {
    /// One a thread, because clearing it costs as much as encoding a hundred ids.
    static BATCH_ROOM: RefCell<Batch> = const { RefCell::new(Batch::EMPTY) };
}

/// A codec made of fills and literals of 31 rows.
pub trait GroupCodec: Copy + std::fmt::Debug + 'static {
    /// The codec's place in the table.
    const CODEC: Codec;
    /// Its encoder.
    type Sink<T: WordTarget>: GroupSink;
    /// An encoder that writes to `target`.
    fn sink<T: WordTarget>(target: T) -> Self::Sink<T>;
    /// The groups that a word stands for. Any word is accepted: one that the encoder cannot write
    /// is found by comparing.
    fn unpack(word: u32) -> Pieces;
    /// The fields of a word by name, for people.
    fn fields(word: u32) -> Explained;
}

/// Turns ascending ids, runs and chunks into fills and literals.
#[derive(Debug)]
pub struct Grouper<S> {
    sink: S,
    /// The group that `payload` belongs to; all groups before it are in the sink or in `ones`.
    group: u32,
    payload: u32,
    /// Full groups just before `group` that the sink has not seen.
    ones: u32,
    /// Empty groups before those that the sink has not seen.
    zeros: u32,
}

impl<S: GroupSink> Grouper<S> {
    /// A grouper that starts at row 0.
    pub fn new(sink: S) -> Self {
        Self { sink, group: 0, payload: 0, ones: 0, zeros: 0 }
    }

    /// Passes the held-back fills to the sink.
    #[inline(always)]
    fn flush_fills(&mut self) {
        if self.zeros > 0 {
            self.sink.fill(false, self.zeros);
            self.zeros = 0;
        }
        if self.ones > 0 {
            self.sink.fill(true, self.ones);
            self.ones = 0;
        }
    }

    /// Adds `count` groups of one payload.
    #[inline(always)]
    fn push(&mut self, payload: u32, count: u32) {
        if payload == 0 {
            if self.ones > 0 {
                self.flush_fills();
            }
            self.zeros += count;
        } else if payload == FULL {
            self.ones += count;
        } else {
            for _ in 0..count {
                self.flush_fills();
                self.sink.literal(payload);
            }
        }
    }

    /// Closes the open group and moves to `group`, which is not before it.
    #[inline(always)]
    fn move_to(&mut self, group: u32) {
        if group != self.group {
            let payload = std::mem::take(&mut self.payload);
            self.push(payload, 1);
            let gap = group - self.group - 1;
            if gap > 0 {
                self.push(0, gap);
            }
            self.group = group;
        }
    }

    /// Adds an id above those added before.
    #[inline(always)]
    fn id(&mut self, id: u32) {
        let group = id / GROUP_ROWS;
        self.move_to(group);
        self.payload |= 1 << (GROUP_ROWS - 1) >> (id - group * GROUP_ROWS);
    }

    /// Adds ascending ids, all above those added before.
    #[inline(always)]
    pub fn ids(&mut self, ids: &[u32]) {
        if ids.len() < BATCHED_FROM {
            return ids.iter().for_each(|&id| self.id(id));
        }
        BATCH_ROOM.with(|room| match room.try_borrow_mut() {
            Ok(mut batch) => self.batches(ids, &mut batch),
            // A target that encodes something itself when it is given a word.
            Err(_) => self.batches(ids, &mut Box::new(Batch::EMPTY)),
        });
    }

    #[inline(always)]
    fn batches(&mut self, ids: &[u32], batch: &mut Batch) {
        let mut rest = ids;
        while let Some(&first) = rest.first() {
            let is_run = rest.get(BATCH - 1).is_some_and(|&id| id - first == len32(BATCH) - 1);
            let taken = if is_run {
                let len = run_len(rest);
                self.run(first, first + len32(len) - 1);
                len
            } else {
                let len = rest.len().min(BATCH);
                self.batch(&rest[..len], batch);
                len
            };
            rest = &rest[taken..];
        }
    }

    /// Adds at most a batch of ids, and at least one.
    #[inline(always)]
    fn batch(&mut self, ids: &[u32], batch: &mut Batch) {
        self.move_to(ids[0] / GROUP_ROWS);
        let Batch { gaps, payloads, .. } = batch;
        let found = group_ids(ids, self.payload, gaps, payloads);
        self.take_groups(found, ids.len(), batch);
    }

    /// Adds the low halves of the ids of a chunk, all above those added before.
    #[inline(always)]
    fn array(&mut self, key: u32, ids: &Ids16) {
        let base = key << 16;
        if ids.len() < BATCHED_FROM {
            return ids.iter().for_each(|&id| self.id(base | id_of(id)));
        }
        BATCH_ROOM.with(|room| match room.try_borrow_mut() {
            Ok(mut batch) => self.array_batches(base, ids, &mut batch),
            Err(_) => self.array_batches(base, ids, &mut Box::new(Batch::EMPTY)),
        });
    }

    #[inline(always)]
    fn array_batches(&mut self, base: u32, ids: &Ids16, batch: &mut Batch) {
        for ids in ids.chunks(BATCH) {
            let (first, last) = (id_of(ids[0]), id_of(ids[ids.len() - 1]));
            if last - first == len32(ids.len()) - 1 {
                self.run(base | first, base | last);
                continue;
            }
            self.move_to((base | first) / GROUP_ROWS);
            let Batch { gaps, payloads, .. } = batch;
            let found = group_array(base, ids, self.payload, gaps, payloads);
            self.take_groups(found, ids.len(), batch);
        }
    }

    /// Passes on the groups that so many ids were gathered into.
    #[inline(always)]
    fn take_groups(&mut self, found: Groups, ids: usize, batch: &mut Batch) {
        let Batch { gaps, payloads, .. } = batch;
        // The last group stays open; those before it are complete.
        let done = found.len - 1;
        let open = payloads[done];
        if found.has_full {
            for i in 0..done {
                self.push(payloads[i], 1);
                if gaps[i + 1] > 0 {
                    self.push(0, gaps[i + 1]);
                }
            }
        } else if done > 0 {
            if self.ones > 0 {
                self.flush_fills();
            }
            gaps[0] = self.zeros;
            self.zeros = gaps[done];
            let ids = ids + self.payload.count_ones() as usize;
            batch.len = Len::new(done, ids);
            batch.gap_max = found.gap_max.max(batch.gaps[0]);
            batch.gap_min = found.gap_min.min(batch.gaps[0]);
            // A nearly full group has that many ids, the others at least one each.
            batch.is_sparse = ids < found.len - 1 + NEARLY_FULL_ROWS as usize;
            batch.is_single = ids == found.len;
            self.sink.literals(batch);
        }
        (self.group, self.payload) = (found.last, open);
    }

    /// Adds the rows `first..=last`, above those added before.
    #[inline]
    pub fn run(&mut self, first: u32, last: u32) {
        let (head, tail) = (first / GROUP_ROWS, last / GROUP_ROWS);
        self.move_to(head);
        let from = FULL >> (first % GROUP_ROWS);
        let to = FULL & !(FULL >> (last % GROUP_ROWS) >> 1);
        if head == tail {
            self.payload |= from & to;
            return;
        }
        self.payload |= from;
        self.move_to(head + 1);
        if tail > self.group {
            self.push(FULL, tail - self.group);
            self.group = tail;
        }
        self.payload |= to;
    }

    /// Adds ascending runs that lie apart.
    ///
    /// A run that fills no group between its ends becomes one or two literals without a branch.
    #[inline(always)]
    fn run_batches(&mut self, runs: &[(u32, u32)], batch: &mut Batch) {
        // A run closes at most two groups, and one more stays open.
        for runs in runs.chunks(BATCH / 2 - 1) {
            self.move_to(runs[0].0 / GROUP_ROWS);
            let (mut group, mut payload) = (self.group, self.payload);
            // Groups that are closed, and ids in them and in the open one.
            let (mut closed, mut ids) = (0, payload.count_ones());
            let (mut gap, mut has_full) = (0, false);
            for &(first, last) in runs {
                let (head, tail) = (first / GROUP_ROWS, last / GROUP_ROWS);
                let from = FULL >> (first % GROUP_ROWS);
                let to = FULL & !(FULL >> (last % GROUP_ROWS) >> 1);
                let is_next = head != group;
                batch.payloads[closed] = payload;
                has_full |= is_next & (payload == FULL);
                closed += usize::from(is_next);
                gap = if is_next { head - group - 1 } else { gap };
                batch.gaps[closed] = gap;
                payload = if is_next { 0 } else { payload };
                payload |= if head == tail { from & to } else { from };
                if tail - head > 1 {
                    batch.payloads[closed] = payload;
                    batch.gaps[closed + 1] = 0;
                    has_full |= payload == FULL;
                    let ids = ids + GROUP_ROWS - first % GROUP_ROWS;
                    self.close(closed + 1, ids, has_full, batch);
                    self.push(FULL, tail - head - 1);
                    (closed, gap, has_full) = (0, 0, false);
                    payload = to;
                } else {
                    let is_next = head != tail;
                    batch.payloads[closed] = payload;
                    has_full |= is_next & (payload == FULL);
                    closed += usize::from(is_next);
                    gap = if is_next { 0 } else { gap };
                    batch.gaps[closed] = gap;
                    payload = if is_next { to } else { payload };
                }
                group = tail;
                ids = if closed == 0 { payload.count_ones() } else { ids + (last - first + 1) };
            }
            self.close(closed, ids - payload.count_ones(), has_full, batch);
            (self.group, self.payload) = (group, payload);
        }
    }

    /// Passes on the first `closed` groups of a batch, which hold `ids` ids, and the gap after
    /// them.
    #[inline(always)]
    fn close(&mut self, mut closed: usize, mut ids: u32, has_full: bool, batch: &mut Batch) {
        let Batch { gaps, payloads, .. } = batch;
        if has_full || closed < FEW_CLOSED {
            for i in 0..closed {
                self.push(payloads[i], 1);
                if gaps[i + 1] > 0 {
                    self.push(0, gaps[i + 1]);
                }
            }
            return;
        }
        if self.ones > 0 {
            // The literal after a fill of ones is passed alone: sinks may join the two, and do not
            // take a batch before that is decided.
            self.flush_fills();
            self.sink.literal(payloads[0]);
            ids -= payloads[0].count_ones();
            gaps.copy_within(1..=closed, 0);
            payloads.copy_within(1..closed, 0);
            closed -= 1;
            self.zeros = gaps[0];
        }
        gaps[0] = self.zeros;
        self.zeros = gaps[closed];
        let ids = ids as usize;
        batch.len = Len::new(closed, ids);
        let gaps = &batch.gaps[..closed];
        batch.gap_max = gaps.iter().fold(0, |most, &gap| most.max(gap));
        batch.gap_min = gaps.iter().fold(u32::MAX, |least, &gap| least.min(gap));
        // A nearly full group has that many ids, the others at least one each.
        batch.is_sparse = ids + 1 < closed + NEARLY_FULL_ROWS as usize;
        batch.is_single = ids == closed;
        self.sink.literals(batch);
    }

    /// Adds the rows whose bits are set in `word`, counted from `base`, above those added before.
    #[inline]
    fn word(&mut self, base: u32, mut word: u64) {
        while word != 0 {
            let first = base + word.trailing_zeros();
            let group = first / GROUP_ROWS;
            self.move_to(group);
            // The rows of the group that lie in the word: bit `skip` of the payload's mirror image
            // is the word's bit 0, or the word starts inside the group.
            let start = group * GROUP_ROWS;
            let (bits, used) = if start >= base {
                (word >> (start - base), start - base + GROUP_ROWS)
            } else {
                (word << (base - start), start + GROUP_ROWS - base)
            };
            self.payload |= (low32(bits) & FULL).reverse_bits() >> 1;
            word = if used < 64 { word & (u64::MAX << used) } else { 0 };
        }
    }

    /// Adds a chunk whose rows lie above those added before.
    pub fn chunk(&mut self, key: u32, chunk: Chunk<'_>) {
        let base = key << 16;
        match chunk {
            Chunk::Array(ids) => {
                ids.iter().for_each(|&id| self.id(base | id_of(id)));
            }
            Chunk::Bits { bits, .. } => {
                for (offset, &word) in (0..).step_by(64).zip(bits) {
                    self.word(base + offset, u64::from_le_bytes(word));
                }
            }
            Chunk::Runs(_) => chunk.for_each_run(|first, last| self.run(base | first, base | last)),
        }
    }

    /// Closes the last group; nothing is written for the empty ones after it.
    pub fn finish(&mut self) {
        let payload = std::mem::take(&mut self.payload);
        self.push(payload, 1);
        if self.ones > 0 {
            self.flush_fills();
        }
        self.sink.finish();
    }
}

impl<S: GroupSink> Encoder for Grouper<S> {
    #[inline(always)]
    fn ids(&mut self, ids: &[u32]) {
        Grouper::ids(self, ids);
    }
    fn chunk(&mut self, key: u32, chunk: Chunk<'_>) {
        Grouper::chunk(self, key, chunk);
    }
    #[inline(always)]
    fn array(&mut self, key: u32, ids: &Ids16) {
        Grouper::array(self, key, ids);
    }
    #[inline(always)]
    fn finish(mut self) {
        Grouper::finish(&mut self);
    }
}

impl<S: GroupSink> TakeRuns for Grouper<S> {
    #[inline(always)]
    fn take_ids(&mut self, ids: &[u32]) {
        self.ids(ids);
    }
    #[inline(always)]
    fn take_runs(&mut self, runs: &[(u32, u32)]) {
        if runs.len() < BATCHED_FROM {
            return runs.iter().for_each(|&(first, last)| self.run(first, last));
        }
        BATCH_ROOM.with(|room| match room.try_borrow_mut() {
            Ok(mut batch) => self.run_batches(runs, &mut batch),
            Err(_) => self.run_batches(runs, &mut Box::new(Batch::EMPTY)),
        });
    }
}

/// The words of a stream, or where it is cut off inside one.
pub(crate) fn words(source: &[u8]) -> Result<&[[u8; 4]], DecodeError> {
    let (words, rest) = source.as_chunks::<4>();
    if rest.is_empty() {
        Ok(words)
    } else {
        let offset = source.len() - rest.len();
        Err(DecodeError::Truncated { offset, missing: 4 - rest.len() })
    }
}

impl<G: GroupCodec> BitmapCodec for G {
    type Encoder<'t> = Grouper<G::Sink<&'t mut Vec<u8>>>;
    type Cursor<'a> = GroupCursor<'a, G>;

    fn codec(&self) -> Codec {
        G::CODEC
    }

    #[inline(always)]
    fn encoder<'t>(&self, target: &'t mut Vec<u8>, _: usize) -> Self::Encoder<'t> {
        Grouper::new(G::sink(target))
    }

    fn encode_runs(&self, runs: &[(u32, u32)], target: &mut Vec<u8>) {
        let mut grouper = Grouper::new(G::sink(target));
        push_runs(runs, &mut grouper);
        grouper.finish();
    }

    fn check(&self, source: &[u8], rows: u32) -> Result<(), DecodeError> {
        let words = words(source)?;
        let groups_end = u64::from(rows.div_ceil(GROUP_ROWS));
        let mut compare = WordCompare::new(words);
        let mut grouper = Grouper::new(G::sink(&mut compare));
        let mut group = 0;
        for (index, &word) in words.iter().enumerate() {
            for piece in G::unpack(u32::from_le_bytes(word)) {
                if piece.count == 0 {
                    continue;
                }
                let end = group + u64::from(piece.count);
                if end > groups_end || past_end(piece, end, rows) {
                    return Err(DecodeError::PastEnd { offset: 4 * index, rows });
                }
                grouper.push(piece.payload, piece.count);
                group = end;
            }
        }
        // The grouper's own group stays empty here: pieces are whole groups.
        if grouper.ones > 0 {
            grouper.flush_fills();
        }
        grouper.sink.finish();
        drop(grouper);
        compare.finish()
    }

    fn cursor<'a>(&self, source: &'a [u8], rows: u32) -> Self::Cursor<'a> {
        GroupCursor::new(source.as_chunks::<4>().0, rows)
    }

    fn cardinality(&self, source: &[u8], _: u32) -> u64 {
        let words = source.as_chunks::<4>().0.iter();
        words
            .flat_map(|&word| G::unpack(u32::from_le_bytes(word)))
            .map(|piece| u64::from(piece.payload.count_ones()) * u64::from(piece.count))
            .sum()
    }

    fn explain(&self, source: &[u8]) -> Vec<Explained> {
        let mut group = 0_u64;
        let mut lines = Vec::new();
        for (index, &word) in source.as_chunks::<4>().0.iter().enumerate() {
            let word = u32::from_le_bytes(word);
            let count: u64 = G::unpack(word).iter().map(|piece| u64::from(piece.count)).sum();
            let mut line = G::fields(word);
            line.offset = 4 * index;
            line.width = 4;
            let rows = u64::from(GROUP_ROWS);
            line.rows = (count > 0).then(|| (group * rows, (group + count) * rows - 1));
            lines.push(line);
            group += count;
        }
        lines
    }
}

/// Whether a piece that ends before group `end` has a row set at or past `rows`.
#[inline(always)]
fn past_end(piece: Piece, end: u64, rows: u32) -> bool {
    let rows_end = end * u64::from(GROUP_ROWS);
    if rows_end <= u64::from(rows) || piece.payload == 0 {
        return false;
    }
    // Only the last group can reach past the end, so fewer than 31 rows do.
    let over = low32(rows_end - u64::from(rows)).min(GROUP_ROWS);
    piece.payload & ((1 << over) - 1) != 0
}

/// The chunks of a stream of words; made by [`Bitmap::chunks`](crate::Bitmap::chunks).
#[derive(Debug)]
pub struct GroupCursor<'a, G> {
    words: std::slice::Iter<'a, [u8; 4]>,
    /// Pieces of the word at hand; the first `next` of them are behind the cursor.
    pieces: Pieces,
    next: usize,
    /// The piece at hand and the row it starts at.
    piece: Piece,
    start: u64,
    /// The first row of the chunk that `seek` found.
    from: u64,
    rows: u32,
    room: Room,
    codec: std::marker::PhantomData<G>,
}

impl<'a, G: GroupCodec> GroupCursor<'a, G> {
    fn new(words: &'a [[u8; 4]], rows: u32) -> Self {
        let none = Piece { payload: 0, count: 0 };
        Self {
            words: words.iter(),
            pieces: [none; 3],
            next: 3,
            piece: none,
            start: 0,
            from: 0,
            rows,
            room: Room::default(),
            codec: std::marker::PhantomData,
        }
    }

    /// The row after the piece at hand.
    #[inline(always)]
    fn end(&self) -> u64 {
        self.start + u64::from(self.piece.count) * u64::from(GROUP_ROWS)
    }

    /// Moves to the next piece; false when there is none.
    #[inline(always)]
    fn advance(&mut self) -> bool {
        self.start = self.end();
        loop {
            if self.next < 3 && self.pieces[self.next].count > 0 {
                self.piece = self.pieces[self.next];
                self.next += 1;
                return true;
            }
            let Some(&word) = self.words.next() else {
                self.piece = Piece { payload: 0, count: 0 };
                return false;
            };
            self.pieces = G::unpack(u32::from_le_bytes(word));
            self.next = 0;
        }
    }

    /// Passes the parts of the chunk that `seek` found to `each`, with their first id.
    #[inline(always)]
    fn for_chunk(&mut self, mut each: impl FnMut(u32, Part)) {
        let from = self.from;
        let end = from + u64::from(CHUNK_ROWS);
        loop {
            if self.start >= end {
                return;
            }
            let piece_end = self.end();
            let payload = self.piece.payload;
            if payload != 0 {
                let first = self.start.max(from);
                let last = piece_end.min(end) - 1;
                if payload == FULL {
                    each(low32(first - from), Part::RunTo(low32(last - from)));
                } else if self.piece.count == 1 {
                    let bits = (payload << 1).reverse_bits();
                    // A group on a chunk's edge belongs to both chunks.
                    let bits = bits >> (first - self.start).min(31);
                    let bits = bits & (u32::MAX >> (31 - (last.saturating_sub(first)).min(31)));
                    each(low32(first - from), Part::Rows(bits));
                }
            }
            if piece_end > end || !self.advance() {
                return;
            }
        }
    }
}

/// A part of a chunk.
enum Part {
    /// All ids up to and including this one.
    RunTo(u32),
    /// The ids whose bits are set.
    Rows(u32),
}

impl<G: GroupCodec> Chunks for GroupCursor<'_, G> {
    #[inline]
    fn seek(&mut self, key: u32) -> Option<u32> {
        self.from = self.from.max(u64::from(key) << 16);
        while self.piece.payload == 0 || self.end() <= self.from {
            if !self.advance() {
                return None;
            }
        }
        let key = low32(self.start.max(self.from) >> 16);
        self.from = u64::from(key) << 16;
        // The last group may reach past the last row, into a chunk that does not exist.
        (key < self.keys_end()).then_some(key)
    }

    fn load(&mut self) -> Chunk<'_> {
        let mut room = std::mem::take(&mut self.room);
        let buffer = room.get();
        buffer.clear();
        self.for_chunk(|first, part| match part {
            Part::RunTo(last) => buffer.push_run(first, last),
            Part::Rows(bits) => buffer.push_word(first, bits),
        });
        self.room = room;
        self.room.get().chunk()
    }

    fn release(&mut self) {
        self.room.release();
    }

    fn or_into(&mut self, target: &mut Bits) {
        self.for_chunk(|first, part| match part {
            Part::RunTo(last) => set_range(target, first, last),
            Part::Rows(bits) => or_word(target, first, bits),
        });
    }

    fn chunks_max(&self) -> usize {
        self.keys_end() as usize
    }

    fn keys_end(&self) -> u32 {
        self.rows.div_ceil(CHUNK_ROWS)
    }
}
