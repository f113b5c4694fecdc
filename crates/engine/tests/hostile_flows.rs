//! Damaged and forged indexes of conversations: an error, or the right answer; never a panic.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use tapdex_bitmap::{Chunks, Codec};
use tapdex_engine::IndexError;
use tapdex_engine::archive::CodecChoice;
use tapdex_engine::index::{Found, Index, SectionKind, Space, Verified};
use tapdex_engine::testing::segment::{
    Answer, ask_field, ask_lists, check_lookups, field_names, segment_of, varied,
};
use tapdex_engine::testing::{Parts, fuzz_index_open, mend, relocate};

const VALUES: [u128; 3] = [80, 0x0A00_0001 << 64 | 0xC633_6401, 0x2001_0DB8 << 96 | 6];

/// Segments of a few blocks, in the forms that are chosen and in bitmaps.
fn segments(packets: u64) -> Vec<Vec<u8>> {
    let codecs = [Codec::Masc, Codec::Roaring, Codec::Wah, Codec::Plwah];
    let choices = codecs.map(CodecChoice::Fixed);
    let choices = [CodecChoice::Auto].into_iter().chain(choices);
    choices.map(|choice| segment_of(&varied(packets, 3), choice)).collect()
}

fn verify(index: &Index) -> Verified {
    index.verify(&mut |_| {})
}

/// Every answer to every question, in the same order for all indexes of some fields.
fn answers(index: &Index, names: &[String]) -> Vec<Result<Answer, IndexError>> {
    let mut all = Vec::new();
    for name in names {
        ask_field(index, name, &VALUES, &mut |answer| all.push(answer));
    }
    ask_lists(index, 7, &mut |answer| all.push(answer));
    all
}

#[test]
fn segments_are_sound() {
    let mut within_few = 0;
    for (n, bytes) in segments(700).into_iter().enumerate() {
        let mut again = bytes.clone();
        mend(&mut again);
        assert!(again == bytes);
        relocate(&mut again);
        assert!(again == bytes && Parts::decode(&bytes).unwrap().encode() == bytes);
        let index = Index::from_bytes(bytes).unwrap();
        assert!(verify(&index).is_sound(), "{n}: {:?}", verify(&index).problems);
        within_few += check_lookups(&index, &VALUES).unwrap();
        assert!(answers(&index, &field_names(&index)).iter().all(Result::is_ok));
    }
    assert!(within_few > 10_000, "{within_few}");
}

#[test]
fn every_truncation_is_refused() {
    for bytes in segments(300) {
        for len in 0..bytes.len() {
            assert!(Index::from_bytes(bytes[..len].to_vec()).is_err(), "{len} bytes");
        }
        for more in [1, 40, 64, 4_096] {
            let mut longer = bytes.clone();
            longer.resize(bytes.len() + more, 0);
            assert!(Index::from_bytes(longer).is_err(), "{more} bytes more");
        }
    }
}

#[test]
fn every_flipped_bit_is_found() {
    for sound in segments(700).into_iter().take(2) {
        assert!(sound.len() > 4_096, "so that not all is in the block of the schema");
        let index = Index::from_bytes(sound.clone()).unwrap();
        let names = field_names(&index);
        let right = answers(&index, &names);
        let (mut refused, mut reported) = (0, 0);
        for bit in 0..8 * sound.len() {
            let mut bytes = sound.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let Ok(index) = Index::from_bytes(bytes) else {
                refused += 1;
                continue;
            };
            // Look-ups first, while nothing has been checked.
            if bit % 8 == 0 {
                let found = answers(&index, &names);
                assert_eq!(found.len(), right.len());
                for (found, right) in found.iter().zip(&right) {
                    let is_right =
                        found.as_ref().ok().is_none_or(|f| right.as_ref().ok() == Some(f));
                    assert!(is_right, "bit {bit} changes an answer");
                }
            }
            reported += 1;
            assert!(!verify(&index).is_sound(), "bit {bit} was not found");
            assert!(!verify(&index).is_sound(), "bit {bit} was not found again");
        }
        assert!(refused > 0 && reported > 0);
    }
}

/// Opens, verifies and asks a forged file. If it passes for sound, its answers agree.
fn open_forged(bytes: Vec<u8>, fields: &[&str], what: impl Fn() -> String) {
    let Ok(index) = Index::from_bytes(bytes) else { return };
    let is_sound = verify(&index).is_sound();
    let mut wrong = None;
    let mut see = |answer: Result<Answer, IndexError>| wrong = wrong.take().or(answer.err());
    let value = [VALUES[1]];
    fields.iter().for_each(|name| ask_field(&index, name, &value, &mut see));
    ask_lists(&index, 70, &mut see);
    assert!(!is_sound || wrong.is_none(), "{}: {wrong:?}", what());
    if is_sound {
        check_lookups(&index, &VALUES[..1]).unwrap();
    }
}

/// What is written over the bytes from a place on.
fn forgeries(byte: u8) -> impl Iterator<Item = Vec<u8>> {
    let values = [0, 1, 0x7F, 0x80, 0xFF, byte.wrapping_add(1), byte.wrapping_sub(1), byte ^ 0x40];
    let singles = values.into_iter().map(|value| vec![value]);
    let runs = [2, 4, 9, 17].map(|len| vec![0xFF; len]);
    singles.chain(runs).chain([vec![0; 4], vec![0; 16]])
}

/// Forges the bytes at some places, with checksums that are right.
fn forge_places(sound: &[u8], places: impl Iterator<Item = usize>) {
    let index = Index::from_bytes(sound.to_vec()).unwrap();
    let sections: Vec<_> = index.sections().collect();
    let schema = index.flow_schema().unwrap();
    let footer = sound.len() - 40;
    for at in places {
        let section =
            sections.iter().find(|s| (s.offset..s.offset + s.len_bytes).contains(&(at as u64)));
        // The fields whose bytes are forged; flows are asked by way of each kind of column.
        let columns = match section.and_then(|section| section.column) {
            Some(column) => vec![&schema.columns[column]],
            None => [Space::Packets, Space::Conversations, Space::Ends]
                .iter()
                .filter_map(|space| schema.columns.iter().find(|column| column.space == *space))
                .collect(),
        };
        let fields: Vec<&str> =
            columns.iter().flat_map(|column| &column.names).map(|name| &name[..]).collect();
        for forged in forgeries(sound[at]) {
            let end = (at + forged.len()).min(footer);
            let mut bytes = sound.to_vec();
            bytes[at..end].copy_from_slice(&forged[..end - at]);
            mend(&mut bytes);
            if bytes != sound {
                open_forged(bytes, &fields, || format!("{at}, {forged:?}"));
            }
        }
    }
}

/// Every byte of every section, and of the directory.
#[test]
fn forged_bytes_never_panic() {
    for sound in segments(100).into_iter().take(3) {
        let index = Index::from_bytes(sound.clone()).unwrap();
        let note = index.sections().find(|s| s.kind == Some(SectionKind::Note)).unwrap();
        let note = usize::try_from(note.offset).unwrap()
            ..usize::try_from(note.offset + note.len_bytes).unwrap();
        forge_places(&sound, (64..sound.len() - 40).filter(|at| !note.contains(at)));
    }
}

/// Scans and floods: many conversations, so that flows, dictionaries and lists have many blocks.
fn many_conversations(codec: CodecChoice) -> Vec<u8> {
    let mut profile = varied(900, 5);
    (profile.scan_share, profile.flood_share) = (0.4, 0.4);
    let sound = segment_of(&profile, codec);
    let index = Index::from_bytes(sound.clone()).unwrap();
    let conversations = index.flow_schema().unwrap().conversations;
    assert!(conversations > 3 * 128, "{conversations}");
    sound
}

/// Blocks are found by numbers at the start of each section.
#[test]
fn forged_starts_of_blocks_never_panic() {
    for codec in [CodecChoice::Auto, CodecChoice::Fixed(Codec::Roaring)] {
        let sound = many_conversations(codec);
        let index = Index::from_bytes(sound.clone()).unwrap();
        let schema = index.flow_schema().unwrap();
        for section in index.sections() {
            let is_wanted = match (section.kind, section.column) {
                (_, Some(column)) => {
                    schema.columns[column].space == Space::Ends && schema.columns[column].width >= 2
                }
                (kind, _) => matches!(
                    kind,
                    Some(SectionKind::Flows | SectionKind::Volumes | SectionKind::Marks)
                ),
            };
            if is_wanted {
                let start = usize::try_from(section.offset).unwrap();
                let len = usize::try_from(section.len_bytes).unwrap();
                forge_places(&sound, start..start + len.min(24));
            }
        }
    }
}

/// Rows of blocks that overlap, each block right for itself: whatever is found ascends.
#[test]
fn blocks_of_flows_that_overlap_are_found() {
    let parts = Parts::decode(&many_conversations(CodecChoice::Auto)).unwrap();
    let row = |bytes: &[u8], block: usize| {
        u32::from_le_bytes(*bytes[8 * (block - 1)..].first_chunk().unwrap())
    };
    for less in [1, 60, 120] {
        let mut forged = parts.clone();
        let flows = forged.section_mut(SectionKind::Flows).unwrap();
        for block in [2, 3] {
            let number = row(flows, block) - less;
            flows[8 * (block - 1)..][..4].copy_from_slice(&number.to_le_bytes());
        }
        let index = Index::from_bytes(forged.encode()).unwrap();
        assert!(!verify(&index).is_sound());
        for name in field_names(&index) {
            let field = index.flow_field(&name).unwrap().unwrap();
            for part in 0..7 {
                let ids: Vec<u32> = match field.matching(&mut |value| value % 7 == part, None) {
                    Ok(Found::Some(rows, _)) => rows.ids().collect(),
                    Ok(Found::Conversations(some, _)) => some.into_rows().ids().collect(),
                    _ => continue,
                };
                assert!(ids.is_sorted_by(|a, b| a < b), "{name}");
                assert!(ids.last().is_none_or(|&last| last < index.rows()), "{name}");
            }
        }
    }
}

/// The packets of first flows end too early: whoever needs them is told, nobody gets fewer rows.
#[test]
fn packets_of_first_flows_that_are_cut_off_are_told() {
    let mut parts = Parts::decode(&segment_of(&varied(100, 3), CodecChoice::Auto)).unwrap();
    let bytes = parts.encode();
    let (sound, cut) = (Index::from_bytes(bytes).unwrap(), {
        parts.section_mut(SectionKind::Flows).unwrap().pop().unwrap();
        parts.encode()
    });
    let mut told = 0;
    for name in field_names(&sound) {
        for counted in [false, true] {
            // Which error is told depends on nothing that was asked before.
            let index = Index::from_bytes(cut.clone()).unwrap();
            let ask = |index: &Index| {
                let field = index.flow_field(&name).unwrap().unwrap();
                let Ok(Found::Conversations(some, _)) = field.matching(&mut |v| v % 2 == 1, None)
                else {
                    return None;
                };
                let found = if counted { some.rows_len() } else { some.into_rows().count() };
                Some(index.check_flows().map(|()| found))
            };
            match (ask(&sound), ask(&index)) {
                (Some(Ok(expected)), Some(Ok(found))) => assert_eq!(found, expected, "{name}"),
                (Some(Ok(_)), Some(Err(_))) => told += 1,
                (None, None) => {}
                other => panic!("{name}: {other:?}"),
            }
        }
    }
    assert!(told > 0);
}

/// More rows than a row map of that size can have.
#[test]
fn the_size_of_the_file_bounds_the_rows() {
    let parts = Parts::decode(&segment_of(&varied(100, 3), CodecChoice::Auto)).unwrap();
    for rows in [1_u32 << 14, 1 << 21, 1 << 28, u32::MAX] {
        let mut forged = parts.clone();
        let schema = forged.section_mut(SectionKind::Schema).unwrap();
        assert_eq!(schema[0], 100);
        let mut varint: Vec<u8> =
            (0..5).map(|at| (rows >> (7 * at)).to_le_bytes()[0] | 0x80).collect();
        while varint.last() == Some(&0x80) {
            varint.pop();
        }
        *varint.last_mut().unwrap() &= 0x7F;
        schema.splice(..1, varint);
        let error = Index::from_bytes(forged.encode()).unwrap_err();
        assert!(
            matches!(error, IndexError::Malformed { what: "number of packets", .. }),
            "{error}"
        );
    }
}

/// Sections that are longer or shorter than they were, or gone.
#[test]
fn cut_and_joined_sections_never_panic() {
    for (n, sound) in segments(100).into_iter().take(3).enumerate() {
        let index = Index::from_bytes(sound.clone()).unwrap();
        let names = field_names(&index);
        let names: Vec<&str> = names.iter().map(|name| &name[..]).collect();
        let parts = Parts::decode(&sound).unwrap();
        for at in 0..parts.sections.len() {
            let len = parts.sections[at].1.len();
            let forge = |what: &str, edit: &dyn Fn(&mut Parts)| {
                let mut forged = parts.clone();
                edit(&mut forged);
                open_forged(forged.encode(), &names, || format!("{n}: {what} {at}"));
            };
            forge("without", &|parts| drop(parts.sections.remove(at)));
            forge("twice", &|parts| parts.sections.push(parts.sections[at].clone()));
            forge("empty", &|parts| parts.sections[at].1.clear());
            for cut in 1..len.min(40) {
                forge("start", &|parts| drop(parts.sections[at].1.drain(..cut)));
                forge("end", &|parts| parts.sections[at].1.truncate(len - cut));
                forge("more", &|parts| parts.sections[at].1.extend(vec![0xFF; cut]));
            }
            for kind in 0..=16 {
                forge("kind", &|parts| parts.sections[at].0 = kind);
            }
            let other = (at + 1) % parts.sections.len();
            forge("swapped", &|parts| parts.sections.swap(at, other));
        }
    }
}

/// The body of the fuzz target on changes at random.
#[test]
fn mutations_never_panic() {
    let mut random = tapdex_bitmap::sample::Random::new(1);
    for sound in segments(60).into_iter().chain(segments(3)) {
        for _ in 0..3_000 {
            let mut data = vec![3 | random.number().to_le_bytes()[0]];
            data.extend(&sound);
            for _ in 0..=random.below(3) {
                let at = 1 + random.below(u32::try_from(data.len() - 1).unwrap()) as usize;
                match random.below(4) {
                    0 => data[at] = random.number().to_le_bytes()[0],
                    1 => data[at] ^= 1 << random.below(8),
                    2 => drop(data.remove(at)),
                    _ => data.insert(at, random.number().to_le_bytes()[0]),
                }
            }
            fuzz_index_open(&data);
        }
    }
}
