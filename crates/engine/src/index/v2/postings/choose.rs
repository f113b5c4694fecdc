//! Which form a column gets.

use tapdex_bitmap::Codec;

use super::super::packed::{self, push_numbers};
use super::lists::encode_lists;
use super::{Form, Sorted, encode_form, ids_of};

/// How many times as long as the packed form the others may be: a look-up reads one list or bitmap,
/// but all packed blocks.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct PackedWeight(Option<usize>);

impl PackedWeight {
    /// In a column of packets: their values are asked for in large groups, as are the flags of TCP.
    pub(in super::super) const PACKETS: Self = Self(Some(2));
    /// In a column of conversations or of their ends, where single values are looked for.
    pub(in super::super) const FLOWS: Self = Self(Some(3));
    /// The packed form is not considered.
    pub(in super::super) const NEVER: Self = Self(None);

    /// What so many packed bytes weigh.
    pub(in super::super) fn of(self, packed: usize) -> usize {
        self.0.map_or(usize::MAX, |weight| weight * packed)
    }
}

/// The least bytes of bitmaps of MASC that have so many runs: a run takes a word at least, and a
/// bitmap a byte for its length.
pub(in super::super) fn masc_least(runs: usize, values: usize) -> usize {
    4 * runs + values
}

/// The values that occur among digits, their packed form, and how many runs of the same digit there
/// are.
pub(crate) fn pack_digits<D: PartialEq>(
    digits: &[D],
    value: impl Fn(&D) -> u16,
) -> (Vec<u128>, Vec<u8>, usize) {
    let mut ids = vec![u32::MAX; 1 << (8 * size_of::<D>())];
    digits.iter().for_each(|digit| ids[usize::from(value(digit))] = 0);
    let mut values = Vec::new();
    for (value, id) in ids.iter_mut().enumerate().filter(|(_, id)| **id == 0) {
        *id = u32::try_from(values.len()).unwrap_or(u32::MAX);
        values.push(value as u128);
    }
    let runs = digits.windows(2).filter(|pair| pair[0] != pair[1]).count() + 1;
    let mut numbers = [0; packed::BLOCK];
    let mut packed = packed::Numbers::new(digits.len());
    for block in digits.chunks(packed::BLOCK) {
        for (number, digit) in numbers.iter_mut().zip(block) {
            *number = ids[usize::from(value(digit))];
        }
        packed.push(&numbers[..block.len()]);
    }
    (values, packed.bytes, runs)
}

/// The form of a column, and its bytes; the longest bitmap is left out if `implied`. The packed
/// form has `packed_len` bytes, if that is known.
///
/// The rule, on the whole column: bitmaps of MASC (runs), lists, or the packed form, whichever has
/// the fewest bytes, those of the packed form [weighed](PackedWeight), since a look-up reads all of
/// them. Of equals the first. Bitmaps count as [`masc_least`] at least, even if one is left out.
pub(in super::super) fn choose(
    sorted: &Sorted,
    weight: PackedWeight,
    implied: bool,
    packed_len: Option<usize>,
    target: &mut Vec<u8>,
) -> Form {
    let start = target.len();
    let runs: usize = (0..sorted.len()).map(|id| count_runs(sorted.list(id))).sum();
    let masc_least = masc_least(runs, sorted.len());
    let encode_masc = || {
        let mut masc = Vec::new();
        encode_form(sorted, Form::Bitmaps(Codec::Masc), implied, &mut masc);
        masc
    };
    // If runs are few, the other forms need not be tried: a list takes a byte, and one more for
    // every 64 differences; a packed block of 128 takes two.
    let (values, entries) = (sorted.len(), sorted.entries.len());
    let others_least = (values + (entries - values) / 64).min(weight.of(entries / 64));
    let mut masc = None;
    if masc_least <= others_least {
        let bytes = masc.insert(encode_masc());
        if bytes.len() <= others_least {
            target.extend_from_slice(bytes);
            return Form::Bitmaps(Codec::Masc);
        }
    }
    encode_lists(sorted, target);
    let lists_len = target.len() - start;
    let pack = || {
        let mut packed = Vec::new();
        push_numbers(&ids_of(sorted), &mut packed);
        packed
    };
    let mut packed = None;
    let packed_len = match (weight.0, packed_len) {
        (None, _) => 0,
        (Some(_), Some(len)) => len,
        (Some(_), None) => packed.insert(pack()).len(),
    };
    let others = lists_len.min(weight.of(packed_len));
    if masc_least <= others {
        let masc = masc.unwrap_or_else(encode_masc);
        if masc.len() <= others {
            target.truncate(start);
            target.extend(masc);
            return Form::Bitmaps(Codec::Masc);
        }
    }
    if lists_len <= weight.of(packed_len) {
        return Form::Lists;
    }
    target.truncate(start);
    target.extend(packed.unwrap_or_else(pack));
    Form::Packed
}

/// How many runs ascending entries have.
fn count_runs(list: &[u32]) -> usize {
    1 + list.windows(2).filter(|pair| pair[0] + 1 != pair[1]).count()
}
