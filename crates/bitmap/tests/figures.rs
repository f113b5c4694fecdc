//! The test vectors of the papers and of their authors' code, each named by its figure.
//!
//! Where a printed stream ends with a fill of zeros it is dropped, as our encoders write none.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a failed test panics"
)]

use tapdex_bitmap::codec::masc::Windowed;
use tapdex_bitmap::{Bitmap, Codec, DecodeError};

const FULL: u32 = 0x7FFF_FFFF;

fn words(codec: Codec, ids: &[u32]) -> Vec<u32> {
    let mut bytes = Vec::new();
    codec.encode(ids, &mut bytes);
    // What is written is also read.
    let rows = ids.last().map_or(0, |id| id + 1);
    let mut again = Vec::new();
    codec.decode(&bytes, rows, &mut again).unwrap();
    assert_eq!(again, ids);
    let (words, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty());
    words.iter().map(|&word| u32::from_le_bytes(word)).collect()
}

/// The ids of groups given as payloads, each so many times.
fn groups(pieces: &[(u32, u32)]) -> Vec<u32> {
    let mut ids = Vec::new();
    let mut base = 0;
    for &(payload, count) in pieces {
        for _ in 0..count {
            ids.extend((0..31).filter(|j| payload >> (30 - j) & 1 != 0).map(|j| base + j));
            base += 31;
        }
    }
    ids
}

/// Asserts the words of groups.
#[track_caller]
fn assert_words(codec: Codec, pieces: &[(u32, u32)], expected: &[u32]) {
    let got = words(codec, &groups(pieces));
    assert!(got == expected, "{codec}: got {got:08X?}, expected {expected:08X?}");
}

/// MASC figure 5: 217 rows, of which 44 to 80 and 168 to 171 are set.
fn figure_5() -> Vec<u32> {
    (44..=80).chain(168..=171).collect()
}

#[test]
fn masc_figure_5_is_the_set_we_take_it_for() {
    let drawn = [(0, 1), (0x0003_FFFF, 1), (0x7FFF_F000, 1), (0, 2), (0x0003_C000, 1), (0, 1)];
    assert_eq!(groups(&drawn), figure_5());
}

#[test]
fn masc_figure_15_query_form() {
    assert_eq!(words(Codec::Masc, &figure_5()), [0x0000_002D, 0xC000_0026, 0x4800_0059]);
}

#[test]
fn masc_figure_11_plain_form_is_refused() {
    // The plain form writes ones as 80000026; mixing it in would make long runs ambiguous.
    let plain = [0x0000_002D_u32, 0x8000_0026, 0x4800_0059].map(u32::to_le_bytes);
    let error = Bitmap::open(Codec::Masc, plain.as_flattened(), 217).unwrap_err();
    let expected = DecodeError::NotCanonical { offset: 4, expected: 0xC000_0026, got: 0x8000_0026 };
    assert_eq!(error, expected);
}

#[test]
fn masc_figure_16_query_table() {
    let mut bytes = Vec::new();
    Windowed::encode(&figure_5(), &mut bytes);
    let set = Windowed::open(&bytes, 217).unwrap();
    // The fourth entry of the figure, 00B1, belongs to the fill of zeros at the end.
    assert_eq!(set.table(), [0x0000, 0x102D, 0x1053]);
    let full: Vec<u32> = figure_5().into_iter().chain([3_967, 3_968]).collect();
    bytes.clear();
    Windowed::encode(&full, &mut bytes);
    let set = Windowed::open(&bytes, 4_000).unwrap();
    assert_eq!(set.table(), [0x0000, 0x102D, 0x1053, 0x10B1, 0x1000]);
}

#[test]
fn masc_figures_2_3_4_and_14_single_words() {
    // Figure 2: 191 zeros. Figures 3 and 14: 191 ones, in the query form.
    let zeros = words(Codec::Masc, &(191..191 + 31).collect::<Vec<_>>());
    assert_eq!(zeros, [0x0000_00C5, 0xC000_0020]);
    assert_eq!(words(Codec::Masc, &(0..191).collect::<Vec<_>>()), [0xC000_00C5]);
    // Figure 4: 449 zeros and 18 ones.
    assert_eq!(words(Codec::Masc, &(449..449 + 18).collect::<Vec<_>>()), [0x6400_01CF]);
    // The most ones that a word carries.
    assert_eq!(words(Codec::Masc, &(5..35).collect::<Vec<_>>()), [0x7C00_0005]);
    assert_eq!(words(Codec::Masc, &(5..36).collect::<Vec<_>>()), [0x0000_0005, 0xC000_0020]);
}

#[test]
fn masc_figure_12_plwah_wah_and_secompax() {
    let expected = [0x8000_0001, 0x0003_FFFF, 0x7FFF_F000, 0x8000_0002, 0x0003_C000];
    assert_eq!(words(Codec::Plwah, &figure_5()), expected);
    assert_eq!(words(Codec::Wah, &figure_5()), expected);
    let fusco = expected.map(|word: u32| word ^ 0x8000_0000);
    assert_eq!(words(Codec::Secompax, &figure_5()), fusco);
}

#[test]
fn masc_figure_13_compax_and_compax2() {
    let expected = [0x0000_0001, 0x8003_FFFF, 0xFFFF_F000, 0x0000_0002, 0x8003_C000];
    assert_eq!(words(Codec::Compax, &figure_5()), expected);
    assert_eq!(words(Codec::Compax2, &figure_5()), expected);
}

#[test]
fn masc_figure_5_in_plwah_plus() {
    let expected = [0x8000_0001, 0x0003_FFFF, 0x7FFF_F000, 0x873E_1102];
    assert_eq!(words(Codec::PlwahPlus, &figure_5()), expected);
}

#[test]
fn imc13_figure_2() {
    // 1011101 0^21 101, four groups of zeros, then a literal: as its text reads, and as its
    // position does. The paper writes literals with bit 31 set and fills with it clear.
    let first = 0x5D00_0005;
    for (third, position) in [(0x2000_0000, 0x8400_0004), (0x4000_0000, 0x8200_0004)] {
        let pieces = [(first, 1), (0, 4), (third, 1)];
        assert_words(Codec::Wah, &pieces, &[first, 0x8000_0004, third]);
        assert_words(Codec::Plwah, &pieces, &[first, position]);
    }
}

#[test]
fn wu_128_bits_zero_padded() {
    // 1 0^20 1^3 0^79 1^25.
    let ids: Vec<u32> = [0].into_iter().chain(21..24).chain(103..128).collect();
    assert_eq!(words(Codec::Wah, &ids), [0x4000_0380, 0x8000_0002, 0x001F_FFFF, 0x7800_0000]);
}

/// GPU-WAH numbers the rows of a group from the lowest bit: its literals are ours mirrored.
#[track_caller]
fn assert_gpu_wah(input: &[(usize, u32)], len: usize, expected: &[u32]) {
    let mut bits = vec![0; len];
    input.iter().for_each(|&(index, word)| bits[index] = word);
    let set = bits.iter().enumerate().flat_map(|(index, &word): (usize, &u32)| {
        (0..32).filter(move |bit| word >> bit & 1 != 0).map(move |bit| 32 * index as u32 + bit)
    });
    let ids: Vec<u32> = set.collect();
    let mirrored = expected.iter().map(|&word| match word >> 31 {
        0 => (word << 1).reverse_bits(),
        _ => word,
    });
    assert_eq!(words(Codec::Wah, &ids), mirrored.collect::<Vec<_>>());
}

#[test]
fn gpu_wah_authors_tests() {
    let block = [(0, 8), (3, 0x4000_0000), (5, 0xFC00_0000), (6, 0xFFFF_FFFF), (7, 0x00FF_FFFF)];
    let one = [0x0000_0008, 0x8000_0003, 0x0000_0004, 0x8000_0001, 0xC000_0002, 0x8000_0018];
    assert_gpu_wah(&block, 31, &one[..5]);
    let repeated: Vec<(usize, u32)> =
        (0..32).flat_map(|i| block.map(|(index, word)| (31 * i + index, word))).collect();
    assert_gpu_wah(&repeated, 992, &one.repeat(32)[..32 * 6 - 1]);
    assert_gpu_wah(&[], 992, &[]);
    let even: Vec<(usize, u32)> = (0..32).step_by(2).map(|i| (31 * i, u32::MAX)).collect();
    assert_gpu_wah(&even, 992, &[0xC000_0001, 0x0000_0001, 0x8000_003E].repeat(16)[..47]);
    let ones: Vec<(usize, u32)> = (2..32)
        .step_by(4)
        .flat_map(|i| (31 * i..31 * i + 62).map(|index| (index, u32::MAX)))
        .collect();
    assert_gpu_wah(&ones, 992, &[0x8000_0040, 0xC000_0040].repeat(8));
    let sparse: Vec<(usize, u32)> = (0..32).map(|i| (31 * i + 30, 88)).collect();
    assert_gpu_wah(&sparse, 992, &[0x8000_001F, 0x0000_002C].repeat(32));
}

#[test]
fn gpu_wah_split_fills_are_refused() {
    // Its "wandering" test ends fills at every 32 groups: valid WAH, but not what we write.
    let split = [0x8000_0001_u32, 0x8000_0002, 0x4000_0000].map(u32::to_le_bytes);
    let error = Bitmap::open(Codec::Wah, split.as_flattened(), 1_000).unwrap_err();
    let expected = DecodeError::NotCanonical { offset: 0, expected: 0x8000_0003, got: 0x8000_0001 };
    assert_eq!(error, expected);
}

#[test]
fn plwah_positions() {
    let fill = |value, literal| [(value, 4), (literal, 1)];
    for (value, literal, expected) in [
        (0, 0x4000_0000, 0x8200_0004),
        (0, 0x0000_0001, 0xBE00_0004),
        (FULL, 0x3FFF_FFFF, 0xC200_0004),
        (FULL, 0x7FFF_FFFE, 0xFE00_0004),
    ] {
        assert_words(Codec::Plwah, &fill(value, literal), &[expected]);
    }
    assert_words(Codec::Plwah, &fill(FULL, 1), &[0xC000_0004, 0x0000_0001]);
}

#[test]
fn plwah_plus_pairs() {
    for (value, literal, expected) in [
        (0, 0x4000_0000, 0x8080_0004),
        (0, 0x0000_0001, 0x8F80_0004),
        (FULL, 0x3FFF_FFFF, 0xB080_0004),
        (FULL, 0x0000_0001, 0xAF80_0004),
        (0, 0x0000_0003, 0x8F7C_0004),
    ] {
        assert_words(Codec::PlwahPlus, &[(value, 4), (literal, 1)], &[expected]);
    }
    // A literal before the fill, and four odd rows but not five.
    assert_words(Codec::PlwahPlus, &[(0x4000_0000, 1), (FULL, 4)], &[0xE080_0004]);
    assert_words(Codec::PlwahPlus, &[(0, 4), (0x1F, 1)], &[0x8000_0004, 0x0000_001F]);
    assert_words(Codec::PlwahPlus, &[(0, 256), (1, 1)], &[0x8000_0100, 0x0000_0001]);
}

/// Groups, then their words in COMPAX, COMPAX2 and SECOMPAX. COMPAX2 and SECOMPAX are printed with
/// bit 31 of literals clear; we write it set. `ends_with_zeros` marks rows of the table that end
/// with a fill of zeros: a literal is put behind them so that the fill is written.
struct Row {
    groups: &'static [(u32, u32)],
    compax: &'static [u32],
    compax2: &'static [u32],
    secompax: &'static [u32],
    ends_with_zeros: bool,
}

#[test]
fn compax_family_table() {
    let table = [
        Row {
            groups: &[(0x00AB_0000, 1), (0, 5), (0x0000_CD00, 1)],
            compax: &[0x32AB_05CD],
            compax2: &[0xA9AB_05CD],
            secompax: &[0xA905_ABCD],
            ends_with_zeros: false,
        },
        Row {
            groups: &[(0x00AB_0000, 1), (FULL, 5), (0x0000_CD00, 1)],
            compax: &[0x80AB_0000, u32::MAX, u32::MAX, u32::MAX, u32::MAX, u32::MAX, 0x8000_CD00],
            compax2: &[0xB9AB_05CD],
            secompax: &[0xA985_ABCD],
            ends_with_zeros: false,
        },
        Row {
            groups: &[(0, 3), (0x4100_0000, 1), (0, 4)],
            compax: &[0x5803_4104],
            compax2: &[0xC603_4104],
            secompax: &[0xE303_4104],
            ends_with_zeros: true,
        },
        Row {
            groups: &[(0, 3), (0x4100_0000, 1), (FULL, 4)],
            compax: &[0x0000_0003, 0xC100_0000, u32::MAX, u32::MAX, u32::MAX, u32::MAX],
            compax2: &[0x8000_0003, 0x4100_0000, 0xE000_0004],
            secompax: &[0xE703_4104],
            ends_with_zeros: false,
        },
        Row {
            groups: &[(FULL, 3), (0x4100_0000, 1), (FULL, 4)],
            compax: &[
                u32::MAX,
                u32::MAX,
                u32::MAX,
                0xC100_0000,
                u32::MAX,
                u32::MAX,
                u32::MAX,
                u32::MAX,
            ],
            compax2: &[0xDE03_4104],
            secompax: &[0xF703_4104],
            ends_with_zeros: false,
        },
        Row {
            groups: &[(0x7FFF_FF0F, 1), (0, 2), (0x3FFF_FFFF, 1)],
            compax: &[0xFFFF_FF0F, 0x0000_0002, 0xBFFF_FFFF],
            compax2: &[0x7FFF_FF0F, 0x8000_0002, 0x3FFF_FFFF],
            secompax: &[0xB302_0F3F],
            ends_with_zeros: false,
        },
        Row {
            groups: &[(0x0000_0010, 1), (0, 2), (0x7FFF_00FF, 1)],
            compax: &[0x8000_0010, 0x0000_0002, 0xFFFF_00FF],
            compax2: &[0x0000_0010, 0x8000_0002, 0x7FFF_00FF],
            secompax: &[0xC102_1000],
            ends_with_zeros: false,
        },
        Row {
            groups: &[(0x7FFF_00FF, 1), (0, 2), (0x0000_0010, 1)],
            compax: &[0xFFFF_00FF, 0x0000_0002, 0x8000_0010],
            compax2: &[0x7FFF_00FF, 0x8000_0002, 0x0000_0010],
            secompax: &[0xD402_0010],
            ends_with_zeros: false,
        },
        Row {
            groups: &[(0, 2), (0x7FFF_FF0F, 1), (FULL, 3)],
            compax: &[0x0000_0002, 0xFFFF_FF0F, u32::MAX, u32::MAX, u32::MAX],
            compax2: &[0x8000_0002, 0x7FFF_FF0F, 0xE000_0003],
            secompax: &[0xEC02_0F03],
            ends_with_zeros: false,
        },
    ];
    for row in table {
        let mut pieces = row.groups.to_vec();
        let mut tail: [&[u32]; 3] = [&[]; 3];
        if row.ends_with_zeros {
            pieces.push((0x0101_0101, 1));
            tail = [&[0x8101_0101], &[0x0101_0101], &[0x0101_0101]];
        }
        let fusco = |words: &[u32], tail: &[u32]| -> Vec<u32> {
            words.iter().chain(tail).map(|word| word ^ 0x8000_0000).collect()
        };
        assert_words(Codec::Compax, &pieces, &[row.compax, tail[0]].concat());
        assert_words(Codec::Compax2, &pieces, &fusco(row.compax2, tail[1]));
        assert_words(Codec::Secompax, &pieces, &fusco(row.secompax, tail[2]));
    }
}

#[test]
fn compax_authors_input_and_counter_limit() {
    let input = [(FULL, 1), (0, 1), (1, 1), (0, 1), (0x0007_0080, 1), (FULL, 1)];
    let expected = [u32::MAX, 0x4001_0101, 0x8007_0080, u32::MAX];
    assert_words(Codec::Compax, &input, &expected);
    // A fill of 300 groups does not merge; the group behind it makes it appear.
    let long = [(0, 1), (0x10, 1), (0, 300), (0x0101_0101, 1)];
    let expected = [0x0000_0001, 0x8000_0010, 0x0000_012C, 0x8101_0101];
    assert_words(Codec::Compax, &long, &expected);
}

fn set_a() -> Vec<u32> {
    (0..=10).chain([131_075, 2_228_227]).collect()
}

fn set_b() -> Vec<u32> {
    (0..=8).chain([65_536, 131_075, 2_228_227]).collect()
}

#[test]
fn hipes_sets_a_and_b() {
    use tapdex_bitmap::Chunks;
    let hipes: Codec = "hipes".parse().unwrap();
    let encoded = [set_a(), set_b()].map(|ids| {
        let mut bytes = Vec::new();
        hipes.encode(&ids, &mut bytes);
        bytes
    });
    assert_eq!(encoded.each_ref().map(Vec::len), [24_588, 32_784]);
    let heads = |bytes: &[u8]| -> Vec<(u32, u32)> {
        let word = |chunk: &[u8], at| u32::from_le_bytes(chunk[at..at + 4].try_into().unwrap());
        bytes.chunks(8_196).map(|chunk| (word(chunk, 0), word(chunk, 4))).collect()
    };
    assert_eq!(heads(&encoded[0]), [(0, 0x7FF), (2, 8), (34, 8)]);
    assert_eq!(heads(&encoded[1]), [(0, 0x1FF), (1, 1), (2, 8), (34, 8)]);
    let [a, b] = encoded.each_ref().map(|bytes| Bitmap::open(hipes, bytes, 3_000_000).unwrap());
    assert_eq!(a.chunks().and(b.chunks()).count(), 11);
    assert_eq!(a.chunks().or(b.chunks()).count(), 14);
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits.as_chunks::<2>().0.iter();
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[test]
fn roaring_sets_a_and_b_without_runs() {
    // As other libraries write them when they are not asked for runs.
    let a = "3a3000000300000000000a00 0200000022000000 200000003600000038000000
        0000 0100 0200 0300 0400 0500 0600 0700 0800 0900 0a00 0300 0300";
    let b = "3a3000000400000000000800 0100000002000000 22000000 280000003a0000003c0000003e000000
        000001000200030004000500060007000800 0000 0300 0300";
    for (hex, len, expected) in [(a, 58, set_a()), (b, 64, set_b())] {
        let bytes = bytes_of(hex);
        assert_eq!(bytes.len(), len);
        let mut ids = Vec::new();
        Codec::Roaring.decode(&bytes, 3_000_000, &mut ids).unwrap();
        assert_eq!(ids, expected);
    }
}

#[test]
fn roaring_specification_files() {
    // The two files of the format's repository, rebuilt from their description.
    let ids: Vec<u32> = (0..100_000)
        .step_by(1_000)
        .chain((100_000..200_000).map(|k| 3 * k))
        .chain(700_000..800_000)
        .collect();
    assert_eq!(ids.len(), 200_100);
    let mut bytes = Vec::new();
    Codec::Roaring.encode(&ids, &mut bytes);
    assert_eq!(bytes.len(), 48_056);
    assert_eq!(bytes[..8], bytes_of("3b300a0000070000"));
    let without_runs: roaring::RoaringBitmap = ids.iter().collect();
    let mut other = Vec::new();
    without_runs.serialize_into(&mut other).unwrap();
    assert_eq!((other.len(), &other[..8]), (72_616, bytes_of("3a3000000b000000").as_slice()));
    let mut again = Vec::new();
    Codec::Roaring.decode(&other, 1_000_000, &mut again).unwrap();
    assert_eq!(again, ids);
}
