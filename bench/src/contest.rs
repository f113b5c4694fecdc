//! The contestants: each codec of ours, and the peers, doing the same six jobs.

use tapdex_bitmap::{Bitmap, Chunks, Codec, union};

use crate::Case;

/// Columns in the union of many.
pub const MANY: usize = 64;

/// What every contestant is timed at, in the order of [`Contestant::jobs`].
pub const JOBS: [&str; 6] = ["encode", "decode", "and", "or", "and count", "64-way or"];

/// The sets of one case.
#[derive(Debug)]
pub struct Sets {
    /// The row count.
    pub rows: u32,
    /// Two sets of the same shape.
    pub pair: [Vec<u32>; 2],
    /// The runs of the first one dealt out to 64 columns; their union is that set again.
    pub many: Vec<Vec<u32>>,
}

impl Sets {
    /// The sets of a case, from that seed and the next.
    pub fn new(case: &Case, seed: u64) -> Self {
        let pair = [case.ids(seed), case.ids(seed + 1)];
        let mut many = vec![Vec::new(); MANY];
        for (index, run) in pair[0].chunk_by(|x, y| x + 1 == *y).enumerate() {
            many[index % MANY].extend_from_slice(run);
        }
        Self { rows: case.rows, pair, many }
    }

    /// How many ids each job goes through.
    pub fn work(&self) -> [f64; JOBS.len()] {
        let (one, two) =
            (self.pair[0].len() as f64, (self.pair[0].len() + self.pair[1].len()) as f64);
        [one, one, two, two, two, one]
    }
}

/// The encoded bytes of the sets in one codec.
#[derive(Debug)]
pub struct Encoded {
    codec: Codec,
    pair: [Vec<u8>; 2],
    many: Vec<Vec<u8>>,
}

impl Encoded {
    /// Encodes all sets.
    pub fn new(codec: Codec, sets: &Sets) -> Self {
        let encode = |ids: &Vec<u32>| {
            let mut bytes = Vec::new();
            codec.encode(ids, &mut bytes);
            bytes
        };
        Self {
            codec,
            pair: sets.pair.each_ref().map(encode),
            many: sets.many.iter().map(encode).collect(),
        }
    }

    /// Bytes that each job goes through: the encoded sets that it reads or writes.
    pub fn bytes(&self) -> [usize; JOBS.len()] {
        let (one, two) = (self.pair[0].len(), self.pair[0].len() + self.pair[1].len());
        [one, one, two, two, two, self.many.iter().map(Vec::len).sum()]
    }
}

/// Something to time; the number it returns keeps the compiler from leaving it out.
pub type Job<'a> = Box<dyn FnMut() -> u64 + 'a>;

/// A name and its jobs.
pub struct Contestant<'a> {
    /// What the tables call it.
    pub name: &'a str,
    /// See [`JOBS`].
    pub jobs: [Job<'a>; JOBS.len()],
}

/// A codec of ours. Results are encoded in the same codec, into a buffer that is used again.
pub fn ours<'a>(sets: &'a Sets, encoded: &'a Encoded) -> anyhow::Result<Contestant<'a>> {
    let codec = encoded.codec;
    let open = |bytes: &'a Vec<u8>| Bitmap::open(codec, bytes, sets.rows);
    let (x, y) = (open(&encoded.pair[0])?, open(&encoded.pair[1])?);
    let columns: Vec<Bitmap<'a>> = encoded.many.iter().map(open).collect::<Result<_, _>>()?;
    fn into_bytes<'a>(mut job: impl FnMut(&mut Vec<u8>) + 'a) -> Job<'a> {
        let mut target = Vec::new();
        Box::new(move || {
            target.clear();
            job(&mut target);
            target.len() as u64
        })
    }
    let mut ids = Vec::new();
    let jobs: [Job<'a>; JOBS.len()] = [
        into_bytes(move |target| codec.encode(&sets.pair[0], target)),
        Box::new(move || {
            ids.clear();
            x.chunks().push_ids(&mut ids);
            ids.len() as u64
        }),
        into_bytes(move |target| x.chunks().and(y.chunks()).encode(codec, target)),
        into_bytes(move |target| x.chunks().or(y.chunks()).encode(codec, target)),
        Box::new(move || x.chunks().and(y.chunks()).count()),
        into_bytes(move |target| union(columns.iter().map(Bitmap::chunks)).encode(codec, target)),
    ];
    Ok(Contestant { name: codec.name(), jobs })
}

/// Sets of a peer, with the very containers that our roaring codec wrote.
#[derive(Debug)]
struct PeerSets<T> {
    pair: [T; 2],
    many: Vec<T>,
}

impl<T> PeerSets<T> {
    /// Opens the bytes of our roaring codec.
    fn new(encoded: &Encoded, open: impl Fn(&[u8]) -> T) -> Self {
        let pair = encoded.pair.each_ref().map(|bytes| open(bytes));
        Self { pair, many: encoded.many.iter().map(|bytes| open(bytes)).collect() }
    }
}

/// The sets of both peers.
#[derive(Debug)]
pub struct Peers {
    c: PeerSets<croaring::Bitmap>,
    rust: PeerSets<roaring::RoaringBitmap>,
}

impl Peers {
    /// Opens the bytes of our roaring codec.
    pub fn new(roaring: &Encoded) -> Self {
        let c = PeerSets::new(roaring, croaring::Bitmap::deserialize::<croaring::Portable>);
        // What cannot be read is seen when answers are compared.
        let rust = PeerSets::new(roaring, |bytes| {
            roaring::RoaringBitmap::deserialize_from(bytes).unwrap_or_default()
        });
        Self { c, rust }
    }
}

/// Our codecs, then croaring, croaring asked for run containers, and roaring. Fails if they do not
/// give the same answers.
pub fn everybody<'a>(
    sets: &'a Sets,
    encoded: &'a [Encoded],
    peers: &'a Peers,
) -> anyhow::Result<Vec<Contestant<'a>>> {
    check(sets, encoded, &peers.c, &peers.rust)?;
    let mut contestants = Vec::new();
    for encoded in encoded {
        contestants.push(ours(sets, encoded)?);
    }
    contestants.push(croaring(sets, &peers.c, false));
    contestants.push(croaring(sets, &peers.c, true));
    contestants.push(roaring(sets, &peers.rust));
    Ok(contestants)
}

/// Ids encoded by the `croaring` crate, run containers where they are smaller.
pub fn croaring_bytes(ids: &[u32]) -> Vec<u8> {
    let mut set = croaring::Bitmap::of(ids);
    set.run_optimize();
    set.serialize::<croaring::Portable>()
}

/// Ascending ids encoded by the `roaring` crate, run containers where they are smaller; nothing if
/// it fails.
pub fn roaring_bytes(ids: &[u32]) -> Vec<u8> {
    let sorted = ids.iter().copied();
    let mut set = roaring::RoaringBitmap::from_sorted_iter(sorted).unwrap_or_default();
    set.optimize();
    let mut bytes = Vec::with_capacity(set.serialized_size());
    set.serialize_into(&mut bytes).map_or(Vec::new(), |()| bytes)
}

/// The `croaring` crate: CRoaring in C, with its own vector code.
///
/// Its operations leave run containers out of most results; with `optimize` it is asked for them,
/// as our codec writes them, so that both make the same product.
fn croaring<'a>(
    sets: &'a Sets,
    peer: &'a PeerSets<croaring::Bitmap>,
    optimize: bool,
) -> Contestant<'a> {
    let [x, y] = &peer.pair;
    let columns: Vec<&croaring::Bitmap> = peer.many.iter().collect();
    let ids = &sets.pair[0];
    let mut decoded = Vec::new();
    let finish = move |mut set: croaring::Bitmap| {
        u64::from(if optimize { set.run_optimize() } else { set.is_empty() })
    };
    let jobs: [Job<'a>; JOBS.len()] = [
        Box::new(move || croaring_bytes(ids).len() as u64),
        Box::new(move || {
            decoded.resize(ids.len(), 0);
            x.iter().next_many(&mut decoded) as u64
        }),
        Box::new(move || finish(x.and(y))),
        Box::new(move || finish(x.or(y))),
        Box::new(move || x.and_cardinality(y)),
        Box::new(move || finish(croaring::Bitmap::fast_or(&columns))),
    ];
    let name = if optimize { "croaring, run_optimize" } else { "croaring crate" };
    Contestant { name, jobs }
}

/// The `roaring` crate.
fn roaring<'a>(sets: &'a Sets, peer: &'a PeerSets<roaring::RoaringBitmap>) -> Contestant<'a> {
    use roaring::MultiOps;
    let [x, y] = &peer.pair;
    let ids = &sets.pair[0];
    let mut decoded: Vec<u32> = Vec::new();
    let jobs: [Job<'a>; JOBS.len()] = [
        Box::new(move || roaring_bytes(ids).len() as u64),
        Box::new(move || {
            decoded.clear();
            decoded.extend(x);
            decoded.len() as u64
        }),
        Box::new(move || u64::from((x & y).is_empty())),
        Box::new(move || u64::from((x | y).is_empty())),
        Box::new(move || x.intersection_len(y)),
        Box::new(move || u64::from(peer.many.iter().union().is_empty())),
    ];
    Contestant { name: "roaring crate", jobs }
}

/// Whether all codecs and both peers give the same answers to what is asked of the pair.
fn check(
    sets: &Sets,
    encoded: &[Encoded],
    c: &PeerSets<croaring::Bitmap>,
    rust: &PeerSets<roaring::RoaringBitmap>,
) -> anyhow::Result<()> {
    let [x, y] = &c.pair;
    let (and, or) = (x.and(y).to_vec(), x.or(y).to_vec());
    let [x, y] = &rust.pair;
    let is_same = (x & y).iter().eq(and.iter().copied()) && (x | y).iter().eq(or.iter().copied());
    anyhow::ensure!(is_same, "the crates give different answers");
    anyhow::ensure!(x.intersection_len(y) == and.len() as u64, "the roaring crate miscounts");
    anyhow::ensure!(
        c.pair[0].and_cardinality(&c.pair[1]) == and.len() as u64,
        "the croaring crate miscounts"
    );
    for encoded in encoded {
        let codec = encoded.codec;
        let x = Bitmap::open(codec, &encoded.pair[0], sets.rows)?;
        let y = Bitmap::open(codec, &encoded.pair[1], sets.rows)?;
        let ids_of = |bytes: &mut Vec<u8>| {
            let mut ids = Vec::new();
            Bitmap::open(codec, bytes, sets.rows).map(|set| set.chunks().push_ids(&mut ids))?;
            bytes.clear();
            anyhow::Ok(ids)
        };
        let mut bytes = Vec::new();
        x.chunks().and(y.chunks()).encode(codec, &mut bytes);
        let found_and = ids_of(&mut bytes)?;
        x.chunks().or(y.chunks()).encode(codec, &mut bytes);
        let found_or = ids_of(&mut bytes)?;
        let count = x.chunks().and(y.chunks()).count();
        let is_same = found_and == and && found_or == or && count == and.len() as u64;
        anyhow::ensure!(is_same, "{} and the crates give different answers", codec.name());
    }
    Ok(())
}
