//! The steps at every level that this machine can run, against the reference.

use super::*;
use crate::codec::{compax::Compax, compax2::Compax2, masc::Masc, plwah::Plwah};
use crate::codec::{plwah_plus::PlwahPlus, secompax::Secompax, wah::Wah};
use crate::sample::Random;

const ROUNDS: u32 = 20_000;

/// Checks that all levels of this machine give what the reference gives. `$call` is made with
/// `$level` being the module of a level, and its value is compared.
macro_rules! compare {
    ($level:ident => $call:expr, $what:expr) => {{
        let expected = {
            use super::scalar as $level;
            $call
        };
        #[cfg(target_arch = "x86_64")]
        {
            let best = x86::level();
            if best != x86::Level::Scalar {
                use super::x86::avx2 as $level;
                // SAFETY: the machine has AVX2 at least, and the rest of that level.
                #[allow(unsafe_code)]
                let found = unsafe { $call };
                assert_eq!(found, expected, "avx2: {:?}", $what);
            }
            if best == x86::Level::Avx512 {
                use super::x86::avx512 as $level;
                // SAFETY: the machine has AVX-512, and the rest of that level.
                #[allow(unsafe_code)]
                let found = unsafe { $call };
                assert_eq!(found, expected, "avx512: {:?}", $what);
            }
        }
        expected
    }};
}

/// Ascending ids, at most a batch: lone, in runs, or several to a group.
fn ids(random: &mut Random) -> Vec<u32> {
    let len = [1, 2, 15, 16, 17, 31, 40, BATCH - 1, BATCH][random.below(9) as usize];
    let gap_max = [1, 2, 5, 40, 400, 10_000_000][random.below(6) as usize];
    let mut at = (random.below(20_000) << 16) + random.below(200);
    let mut ids = vec![];
    while ids.len() < len {
        ids.push(at);
        let gap = if random.below(3) == 0 { 0 } else { random.below(gap_max) };
        at += 1 + gap;
    }
    ids
}

/// Gaps and payloads, or whole arrays of anything: what lies behind the items must not matter.
fn items(random: &mut Random, payloads: bool) -> (Items, Items, usize) {
    let len = [1, 2, 15, 16, 17, 64, BATCH - 1, BATCH][random.below(8) as usize];
    let gap_max = [1, 2, 130, 300, 20_000_000][random.below(5) as usize];
    let few = random.below(4);
    let gaps = std::array::from_fn(|_| random.below(gap_max));
    let bodies = std::array::from_fn(|_| {
        if !payloads {
            return 1 + random.below([3, 40, 40_000_000][few.min(2) as usize]);
        }
        let rows = (0..=random.below(6)).fold(0, |rows, _| rows | 1 << random.below(31));
        match few {
            0 => 1 << random.below(31),
            1 => rows,
            2 => (1 << 31) - 1 - rows,
            _ => 1 + random.below((1 << 31) - 2),
        }
    });
    (gaps, bodies, len)
}

#[test]
fn groups_and_runs_of_ids() {
    let random = &mut Random::new(1);
    for _ in 0..ROUNDS {
        let ids = ids(random);
        // Rows of the first group that came before.
        let before = (1_u32 << 31) - (1 << 30 >> (ids[0] % 31)) - (1 << 30 >> (ids[0] % 31));
        let before = before & ((1 << 31) - 1) & random.below(u32::MAX);
        let found = compare!(level => {
            let (mut gaps, mut payloads) = ([0; ROOM], [0; ROOM]);
            let found = level::group_ids(&ids, before, &mut gaps, &mut payloads);
            (found, gaps[1..found.len].to_vec(), payloads[..found.len].to_vec())
        }, ids);
        let rows: u32 = found.2.iter().map(|payload| payload.count_ones()).sum();
        assert_eq!(rows as usize, ids.len() + before.count_ones() as usize);
        // The same for the ids that lie in the chunk of the first.
        let here: Vec<u32> =
            ids.iter().copied().take_while(|id| id >> 16 == ids[0] >> 16).collect();
        let halves: Vec<[u8; 2]> =
            here.iter().map(|&id| [id.to_le_bytes()[0], id.to_le_bytes()[1]]).collect();
        let base = ids[0] >> 16 << 16;
        let expected = {
            let (mut gaps, mut payloads) = ([0; ROOM], [0; ROOM]);
            let found = scalar::group_ids(&here, before, &mut gaps, &mut payloads);
            (found, gaps[1..found.len].to_vec(), payloads[..found.len].to_vec())
        };
        let found = compare!(level => {
            let (mut gaps, mut payloads) = ([0; ROOM], [0; ROOM]);
            let found = level::group_array(base, &halves, before, &mut gaps, &mut payloads);
            (found, gaps[1..found.len].to_vec(), payloads[..found.len].to_vec())
        }, here);
        assert_eq!(found, expected);
        let found = compare!(level => {
            let (mut firsts, mut ends) = ([0; ROOM], [0; ROOM]);
            let len = level::run_ids(&ids, &mut firsts, &mut ends);
            (firsts[..len].to_vec(), ends[..len].to_vec())
        }, ids);
        let rows = found.0.iter().zip(&found.1).flat_map(|(&first, &end)| first..end);
        assert!(rows.eq(ids.iter().copied()));
    }
}

#[test]
fn chunks_of_ids() {
    let random = &mut Random::new(5);
    for _ in 0..ROUNDS {
        let ids = ids(random);
        let before = if random.below(2) == 0 { ids[0] >> 16 } else { u32::MAX };
        let found = compare!(level => {
            let (mut keys, mut starts) = ([0; ROOM], [0; ROOM]);
            let len = level::chunk_starts(&ids, before, &mut keys, &mut starts);
            let mut halves = vec![7];
            level::push_halves(&ids, &mut halves);
            (keys[..len].to_vec(), starts[..len].to_vec(), level::count_steps(&ids), halves)
        }, ids);
        let (keys, starts, (steps, _), _) = found;
        assert!(starts.iter().zip(keys).all(|(&start, key)| ids[start as usize] >> 16 == key));
        assert_eq!(starts.len(), (steps + u32::from(before == u32::MAX)) as usize);
    }
}

#[test]
fn words_of_pairs() {
    fn check<R: PairRule>(random: &mut Random, payloads: bool) {
        let (gaps, bodies, len) = items(random, payloads);
        let is_plain = random.below(2) == 0;
        compare!(level => {
            let mut out = [0; 2 * ROOM];
            let len = Len { items: len, is_plain };
            let words = level::pair_words::<R>(&gaps, &bodies, len, &mut out);
            out[..words].to_vec()
        }, (&gaps[..len], &bodies[..len]));
    }
    let random = &mut Random::new(2);
    for _ in 0..ROUNDS {
        check::<Wah>(random, true);
        check::<Plwah>(random, true);
        check::<Masc>(random, false);
    }
}

#[test]
fn words_of_links() {
    let random = &mut Random::new(3);
    for _ in 0..ROUNDS {
        let (gaps, bodies, len) = items(random, true);
        let before = (1 + random.below(1 << 30), random.below(2) == 0);
        compare!(level => {
            let mut out = [0; 2 * ROOM];
            let (words, open) =
                level::link_words::<PlwahPlus>(before, &gaps, &bodies, len, &mut out);
            (out[..words].to_vec(), open)
        }, (before, &gaps[..len], &bodies[..len]));
    }
}

#[test]
fn words_of_triples() {
    fn check<R: TripleRule>(random: &mut Random, ones: u32) {
        let (gaps, bodies, len) = items(random, true);
        // Two words an item, and two that were held back.
        let len = [len, 2 * len, 2 * len + 1, 2 * len + 2][random.below(4) as usize];
        let words: Words = std::array::from_fn(|i| match random.below(5) {
            0 => 1 << 31 | bodies[i / 2],
            1 if ones != 0 => ones | (1 + gaps[i / 2]),
            _ if i % 2 == 0 => 1 + gaps[i / 2],
            _ => 1 << 31 | bodies[i / 2],
        });
        compare!(level => {
            let mut out = [0; 2 * ROOM];
            let (len, left) = level::triple_words::<R>(&words, len, &mut out);
            (out[..len].to_vec(), left)
        }, &words[..len]);
    }
    fn check_turns<R: TripleRule>(random: &mut Random) {
        let (gaps, payloads, len) = items(random, true);
        let gaps = gaps.map(|gap| gap + 1);
        let taken = random.below(2) == 0;
        compare!(level => {
            let mut out = [0; 2 * ROOM];
            let (len, left) = level::turn_words::<R>(&gaps, &payloads, len, taken, &mut out);
            (out[..len].to_vec(), left)
        }, (&gaps[..len], &payloads[..len], taken));
    }
    let random = &mut Random::new(4);
    for _ in 0..ROUNDS {
        check_turns::<Compax>(random);
        check_turns::<Compax2>(random);
        check_turns::<Secompax>(random);
        check::<Compax>(random, 0);
        check::<Compax2>(random, 0b011 << 29);
        check::<Secompax>(random, 0b0001 << 28);
    }
}
