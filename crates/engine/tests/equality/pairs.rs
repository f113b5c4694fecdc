//! Filters from the whole grammar against captures of frames changed at random.
//!
//! A capture is made from a seed, taken into an archive of one codec, and asked some
//! hundreds of filters with values of its own. `TAPDEX_FILTER_SEED` is the first seed, and
//! `TAPDEX_FILTER_PAIRS` how many pairs of capture and filter are tried. A pair that differs is
//! made small and printed as commands.
//!
//! `TAPDEX_BEFORE` names an older build of `tapdex`, one that still writes version 1 of the index
//! file. Captures are then also indexed by that build, in both of its orders and with its codecs in
//! turn, and these archives are asked the same:
//!
//! ```sh
//! TAPDEX_BEFORE=/path/to/older/tapdex TAPDEX_FILTER_PAIRS=100000 \
//!     cargo test -p tapdex-engine --test equality random_pairs -- --nocapture
//! ```

use std::path::{Path, PathBuf};
use std::time::Instant;

use tapdex_bitmap::sample::Random;
use tapdex_engine::packet::LinkType;
use tapdex_engine::query::Query;
use tapdex_engine::query::bpf::Program;
use tapdex_engine::query::filter::{Filter, Syntax};
use tapdex_engine::testing::mutate::{Format, Frame, capture_file, mutated};
use tapdex_engine::time::TimeRange;

use crate::compare::{CODECS, Indexed, NOW_NS, index, index_by};
use crate::made::{PPI, PPP, WIFI, odd_frames, traffic};
use crate::oracle::{Truth, Verdict};
use crate::traces::traces;

/// Filters that each capture is asked.
const FILTERS: u64 = 400;

/// A capture file, before it is written.
pub(crate) struct Made {
    pub(crate) link: LinkType,
    pub(crate) format: Format,
    pub(crate) big: bool,
    pub(crate) codec: &'static str,
    /// Whose turn it is among the codecs of the older build.
    turn: usize,
    pub(crate) frames: Vec<Frame>,
}

/// The same file in all forms, to be asked.
pub(crate) struct Pair {
    pub(crate) truth: Truth,
    /// Ours, and those of the older build.
    indexed: Vec<Indexed>,
}

/// The older build, if there is one.
fn before() -> Option<PathBuf> {
    std::env::var_os("TAPDEX_BEFORE").map(PathBuf::from)
}

/// The codecs that the older build is given in turn.
const CODECS_BEFORE: [&str; 10] = [
    "auto",
    "roaring",
    "plwah",
    "compax2",
    "masc",
    "wah",
    "hipes",
    "plwah-plus",
    "compax",
    "secompax",
];

impl Made {
    /// Frames of Ethernet.
    pub(crate) fn ethernet(frames: Vec<Frame>) -> Self {
        Self {
            link: LinkType::ETHERNET,
            format: Format::PcapMicro,
            big: false,
            codec: "auto",
            turn: 0,
            frames,
        }
    }

    /// Writes and indexes it.
    pub(crate) fn open(&self, path: &Path) -> Pair {
        let bytes = capture_file(self.format, self.big, self.link, &self.frames);
        std::fs::write(path, bytes).unwrap();
        let records_max = (self.frames.len() * 2 / 3).max(1);
        let mut indexed = vec![index(path, self.codec, records_max)];
        if let Some(program) = before() {
            let by = |order, turn| {
                let codec = CODECS_BEFORE[(self.turn + turn) % CODECS_BEFORE.len()];
                index_by(&program, path, order, codec)
            };
            indexed.extend([by("flow", 0), by("arrival", 3)]);
        }
        Pair { truth: Truth::read(path), indexed }
    }

    /// With one of the frames only, and so on: as small as it can be made.
    fn shrunk(mut self, text: &str, path: &Path) -> (Self, String) {
        let differs = |made: &Self, text: &str| made.open(path).difference(text).is_some();
        let mut part = self.frames.len().div_ceil(2);
        while part > 0 {
            let mut at = 0;
            while at < self.frames.len() && self.frames.len() > 1 {
                let end = (at + part).min(self.frames.len());
                let taken: Vec<Frame> = self.frames.drain(at..end).collect();
                if self.frames.is_empty() || !differs(&self, text) {
                    self.frames.splice(at..at, taken);
                    at = end;
                }
            }
            part /= 2;
        }
        let pair = self.open(path);
        let spaced = text.replace('(', " ( ").replace(')', " ) ");
        let mut words: Vec<&str> = spaced.split_whitespace().collect();
        if pair.difference(&words.join(" ")).is_none() {
            return (self, text.to_owned());
        }
        let mut part = words.len().div_ceil(2);
        while part > 0 {
            let mut at = 0;
            while at < words.len() {
                let mut fewer = words.clone();
                fewer.drain(at..(at + part).min(words.len()));
                if pair.difference(&fewer.join(" ")).is_some() {
                    words = fewer;
                } else {
                    at += 1;
                }
            }
            part /= 2;
        }
        let text = words.join(" ");
        (self, text)
    }
}

/// What came of asking both.
pub(crate) enum Outcome {
    /// Both refuse the filter.
    Refused,
    /// Both have the same packets; whether those are some and not all.
    Same(bool),
    /// libpcap has no answer, or not the same one for the same packet each time.
    Chance,
    /// They differ.
    Differs(String),
}

impl Pair {
    /// How the answer to a filter differs from libpcap's; `None` if it does not.
    pub(crate) fn difference(&self, text: &str) -> Option<String> {
        match self.ask(text) {
            Outcome::Differs(what) => Some(what),
            _ => None,
        }
    }

    /// Whether libpcap comes to an end with all packets.
    fn ends(&self, text: &str) -> bool {
        let first = self.truth.packets[0].record();
        let Ok(program) = Program::compile(text, first.link, first.swapped) else { return true };
        let mut records = self.truth.packets.iter().map(|packet| packet.record());
        records.all(|record| program.ends(record.data, record.wire_len))
    }

    /// Asks all.
    pub(crate) fn ask(&self, text: &str) -> Outcome {
        if text.contains("protochain") && !self.ends(text) {
            return Outcome::Chance;
        }
        let verdict = self.truth.ask(text);
        let query = match Filter::parse_as(Syntax::Pcap, text, NOW_NS) {
            Ok(filter) => Query::new(filter, TimeRange::ALL),
            Err(error) => {
                let named = error.message.contains("not looked up");
                return match verdict {
                    Verdict::Matches(_) if !named => {
                        Outcome::Differs(format!("not understood: {}", error.message))
                    }
                    _ => Outcome::Refused,
                };
            }
        };
        let mut outcome = Outcome::Refused;
        for indexed in &self.indexed {
            outcome = match self.ask_one(indexed, text, &query, &verdict) {
                Outcome::Differs(what) => {
                    return Outcome::Differs(format!("{}: {what}", indexed.name));
                }
                other => other,
            };
        }
        outcome
    }

    /// Compares the answer of an archive with libpcap's.
    fn ask_one(&self, indexed: &Indexed, text: &str, query: &Query, verdict: &Verdict) -> Outcome {
        let (found, refused) = match indexed.ask_alone(query) {
            Ok(answer) => answer,
            Err(error) => return Outcome::Differs(error),
        };
        let matches = match verdict {
            Verdict::Refused(message) if refused.is_empty() => {
                return Outcome::Differs(format!("taken; libpcap: {message}"));
            }
            Verdict::Refused(_) => return Outcome::Refused,
            Verdict::Matches(matches) => matches,
        };
        if !refused.is_empty() {
            return Outcome::Differs(format!("refused for {refused:?}, and not by libpcap"));
        }
        let expected = (0..).zip(matches).filter(|(_, yes)| **yes);
        let expected: Vec<u64> = expected.map(|(number, _)| number).collect();
        if found == expected {
            return Outcome::Same(!found.is_empty() && found.len() < matches.len());
        }
        let first = self.truth.packets[0].record();
        let program = Program::compile(text, first.link, first.swapped).unwrap();
        let by_chance = |number: &u64| {
            let packet = self.truth.packets[usize::try_from(*number).unwrap()].record();
            program.reads_unset_memory(packet.data, packet.wire_len)
        };
        let differ = found.iter().filter(|n| !expected.contains(n));
        let mut differ = differ.chain(expected.iter().filter(|n| !found.contains(n)));
        if differ.all(by_chance) {
            return Outcome::Chance;
        }
        Outcome::Differs(format!("packets {found:?}, libpcap: {expected:?}"))
    }
}

fn sample<T: Clone>(list: &[T], random: &mut Random) -> T {
    list[random.below(u32::try_from(list.len()).unwrap()) as usize].clone()
}

/// A capture from a seed.
fn make(seed: u64, zoo: &[Truth]) -> Made {
    let mut random = Random::new(seed);
    let others = [
        LinkType::NULL,
        LinkType::LOOP,
        LinkType::RAW,
        LinkType::LINUX_SLL,
        LinkType::LINUX_SLL2,
        LinkType::IPV4,
        LinkType::IPV6,
        WIFI,
        PPP,
        PPI,
        LinkType(104),
        LinkType(10),
        LinkType(6),
    ];
    let mut link = LinkType::ETHERNET;
    if random.below(4) == 0 {
        link = sample(&others, &mut random);
    }
    let big = random.below(3) == 0;
    let swapped = big == cfg!(target_endian = "little");
    let of_zoo: Vec<&Truth> = zoo.iter().filter(|truth| truth.packets[0].link == link).collect();
    let base: Vec<Vec<u8>> = match random.below(3) {
        0 if link == LinkType::ETHERNET => {
            traffic(200, random.number(), 120).into_iter().map(|(_, data)| data).collect()
        }
        1 if !of_zoo.is_empty() => {
            let packets = &sample(&of_zoo, &mut random).packets;
            let of_link = packets.iter().filter(|packet| packet.link == link).take(500);
            let short =
                |packet: &crate::oracle::Packet| packet.data[..packet.data.len().min(200)].to_vec();
            of_link.map(short).collect()
        }
        _ => {
            let framed = if matches!(link.0, 104 | 10 | 6) { PPP } else { link };
            let frames = odd_frames(framed, swapped, random.number());
            frames.into_iter().map(|(_, data)| data).collect()
        }
    };
    let count = 40 + random.below(100);
    let frames = (0..count).map(|_| mutated(link, &sample(&base, &mut random), &mut random));
    let frames = frames.collect();
    let format = sample(&[Format::PcapMicro, Format::PcapNano, Format::Pcapng], &mut random);
    let codec = sample(&CODECS, &mut random);
    let turn = usize::try_from(seed % CODECS_BEFORE.len() as u64).unwrap();
    Made { link, format, big, codec, turn, frames }
}

fn number(name: &str, unset: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => unset,
    }
}

/// A pair that differs, as commands.
fn commands(path: &Path, made: &Made, text: &str, what: &str) -> String {
    let quoted = text.replace('\'', r"'\''");
    let path = path.display();
    let codec = made.codec;
    format!(
        "{what}\n  tcpdump -n -r {path} '{quoted}'\n  tapdex index -o {path}.archive --codec \
         {codec} {path} && tapdex search -r {path}.archive '{quoted}'"
    )
}

/// Random filters on random captures have libpcap's answers.
#[test]
fn random_pairs() {
    let seed = number("TAPDEX_FILTER_SEED", 1);
    let pairs = number("TAPDEX_FILTER_PAIRS", 6_000);
    let folder = tempfile::tempdir().unwrap();
    let zoo: Vec<Truth> = [traces("zoo"), traces("zoo-derived")]
        .concat()
        .iter()
        .map(|path| Truth::read(path))
        .filter(|truth| !truth.packets.is_empty())
        .collect();
    println!("random pairs: TAPDEX_FILTER_SEED={seed} TAPDEX_FILTER_PAIRS={pairs}");
    let started = Instant::now();
    let (mut done, mut captures, mut telling, mut refused, mut by_chance) = (0, 0, 0, 0, 0);
    let mut differences: Vec<String> = Vec::new();
    while done < pairs && differences.len() < 20 {
        let of_capture = seed.wrapping_mul(1_000_003).wrapping_add(captures);
        captures += 1;
        let made = make(of_capture, &zoo);
        let path = folder.path().join("pair.pcap");
        let pair = made.open(&path);
        if pair.truth.delivered < pair.truth.packets.len() {
            continue;
        }
        let values = pair.truth.values();
        for at in 0..FILTERS.min(pairs - done) {
            let text = values.generate_any(of_capture.wrapping_mul(FILTERS).wrapping_add(at));
            done += 1;
            let what = match pair.ask(&text) {
                Outcome::Refused => {
                    refused += 1;
                    continue;
                }
                Outcome::Same(some) => {
                    telling += u64::from(some);
                    continue;
                }
                Outcome::Chance => {
                    by_chance += 1;
                    continue;
                }
                Outcome::Differs(what) => what,
            };
            let kept: PathBuf =
                std::env::temp_dir().join(format!("tapdex-pair-{of_capture}-{at}.pcap"));
            let again = make(of_capture, &zoo);
            let (small, text) = again.shrunk(&text, &kept);
            let what = small.open(&kept).difference(&text).unwrap_or(what);
            let said = commands(&kept, &small, &text, &what);
            println!("DIFFERENCE {said}");
            differences.push(said);
            break;
        }
    }
    println!(
        "random pairs: {captures} captures, {done} pairs; in {telling} some packets match and some \
         do not, {refused} refused by both, {by_chance} that libpcap leaves to chance; {} \
         differences; {:?}",
        differences.len(),
        started.elapsed()
    );
    assert!(differences.is_empty(), "{} pairs differ", differences.len());
    assert!(telling * 5 > done, "only {telling} of {done} pairs tell");
}

/// A list of which most values are one that a condition before it compares as well: the order of
/// its conditions decides whether a port is loaded that is cut off.
#[test]
fn the_order_of_a_list_is_kept() {
    let of_list = [
        (11, 0),
        (1, 50_000),
        (16, 0),
        (1, 443),
        (10, 0),
        (1, 1),
        (1, 443),
        (9, 0),
        (1, 53),
        (1, 1_799),
        (10, 0),
        (1, 53),
        (1, 0),
    ];
    let list = of_list.iter().flat_map(|&(times, port)| std::iter::repeat_n(port, times));
    let list: String = list.map(|port: u16| format!(" and not {port}")).collect();
    let folder = tempfile::tempdir().unwrap();
    let pair = make(930_017_790_052, &[]).open(&folder.path().join("pair.pcap"));
    assert!(matches!(pair.ask(&format!("not ( port 0 and 0{list} )")), Outcome::Same(true)));
}
