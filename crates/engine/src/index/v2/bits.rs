//! Numbers in bytes: varints, and numbers of the same width packed.

/// Appends a number, seven bits to a byte, the low ones first; all bytes but the last have their
/// high bit set.
pub(super) fn push_varint(mut value: u128, target: &mut Vec<u8>) {
    loop {
        let low = value.to_le_bytes()[0] & 0x7F;
        value >>= 7;
        if value == 0 {
            return target.push(low);
        }
        target.push(low | 0x80);
    }
}

/// How many bytes a number has as a varint.
pub(super) fn varint_len(value: u64) -> usize {
    ((64 - value.leading_zeros()).max(1) as usize).div_ceil(7)
}

/// A difference as a number: small whether it is positive or negative.
pub(super) fn zigzag(difference: i64) -> u64 {
    (difference << 1 ^ difference >> 63).cast_unsigned()
}

/// The difference of a [`zigzag`] number.
pub(super) fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

/// Reads numbers from bytes, one after the other; `None` when they end too early, or a number has
/// more bytes than it needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// What follows.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    #[inline(always)]
    pub(super) fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// A varint of at most 64 bits.
    #[inline(always)]
    pub(super) fn varint(&mut self) -> Option<u64> {
        let first = self.byte()?;
        if first < 0x80 {
            return Some(first.into());
        }
        let (mut value, mut shift) = (u64::from(first & 0x7F), 7);
        loop {
            let byte = self.byte()?;
            let low = u64::from(byte & 0x7F);
            if shift == 63 && low > 1 || shift > 63 {
                return None;
            }
            value |= low << shift;
            if byte < 0x80 {
                return (byte > 0).then_some(value);
            }
            shift += 7;
        }
    }

    /// A varint that fits into 32 bits.
    #[inline(always)]
    pub(super) fn varint32(&mut self) -> Option<u32> {
        u32::try_from(self.varint()?).ok()
    }

    /// A varint of at most 128 bits.
    pub(super) fn varint128(&mut self) -> Option<u128> {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            let low = u128::from(byte & 0x7F);
            if shift > 126 || shift == 126 && low > 3 {
                return None;
            }
            value |= low << shift;
            if byte < 0x80 {
                return (byte > 0 || shift == 0).then_some(value);
            }
            shift += 7;
        }
    }

    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let bytes = self.bytes.get(self.at..)?.get(..len)?;
        self.at += len;
        Some(bytes)
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }
}

/// Bits of a number.
pub(super) fn bits_of(value: u32) -> u32 {
    32 - value.leading_zeros()
}

/// Bytes of packed numbers.
pub(super) fn packed_len(count: usize, bits: u32) -> usize {
    (count * bits as usize).div_ceil(8)
}

/// Appends numbers of `bits` bits each, the low bits of a byte first.
pub(super) fn pack(values: &[u32], bits: u32, target: &mut Vec<u8>) {
    let (mut held, mut count) = (0_u64, 0);
    for &value in values {
        held |= u64::from(value) << count;
        count += bits;
        while count >= 8 {
            target.push(held.to_le_bytes()[0]);
            held >>= 8;
            count -= 8;
        }
    }
    if count > 0 {
        target.push(held.to_le_bytes()[0]);
    }
}

/// Reads packed numbers of at most 32 bits, which `bytes` start with; it is faster if eight more
/// bytes follow.
#[inline(always)]
pub(super) fn unpack(bytes: &[u8], bits: u32, target: &mut [u32]) {
    if bits == 0 {
        return target.fill(0);
    }
    // With a width that the compiler knows, shifts are constants and checks are gone.
    let is_done = match bits {
        3 => unpack_64::<3>(bytes, target),
        4 => unpack_64::<4>(bytes, target),
        5 => unpack_64::<5>(bytes, target),
        6 => unpack_64::<6>(bytes, target),
        7 => unpack_64::<7>(bytes, target),
        8 => unpack_64::<8>(bytes, target),
        9 => unpack_64::<9>(bytes, target),
        10 => unpack_64::<10>(bytes, target),
        11 => unpack_64::<11>(bytes, target),
        12 => unpack_64::<12>(bytes, target),
        _ => false,
    };
    if !is_done {
        unpack_any(bytes, bits, target);
    }
}

/// Reads 64 numbers of so many bits; false if eight bytes more do not follow, or it is not 64.
#[inline(never)]
fn unpack_64<const BITS: usize>(bytes: &[u8], target: &mut [u32]) -> bool {
    let Some(target) = target.as_mut_array::<64>() else { return false };
    let Some(bytes) = bytes.get(..8 * BITS + 8) else { return false };
    let mask = (1_u64 << BITS) - 1;
    for (eight, target) in target.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        // Eight numbers take as many bytes as one has bits.
        let Some(bytes) = bytes.get(eight * BITS..eight * BITS + BITS + 8) else { return false };
        for (at, slot) in target.iter_mut().enumerate() {
            let bit = at * BITS;
            let Some(word) = bytes[bit / 8..].first_chunk() else { return false };
            *slot = u32::try_from(u64::from_le_bytes(*word) >> (bit % 8) & mask).unwrap_or(0);
        }
    }
    true
}

#[inline(never)]
fn unpack_any(bytes: &[u8], bits: u32, target: &mut [u32]) {
    let mask = u64::MAX >> (64 - bits.min(32));
    for (i, slot) in target.iter_mut().enumerate() {
        let at = i * bits as usize;
        let word = word_at(bytes.get(at / 8..).unwrap_or_default());
        *slot = u32::try_from(word >> (at % 8) & mask).unwrap_or(0);
    }
}

/// The bits of bytes as words, the last one filled up with zeros.
pub(super) fn words_of(bits: &[u8]) -> impl Iterator<Item = u64> {
    bits.chunks(8).map(word_at)
}

/// The first eight bytes; if there are fewer, zeros follow.
#[inline(always)]
fn word_at(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(word) => u64::from_le_bytes(*word),
        None => {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        }
    }
}

/// Passes the numbers of the bits that are set to `each`.
#[inline(always)]
pub(super) fn for_each_bit(bits: &[u8], each: &mut impl FnMut(u32)) {
    for (base, mut word) in (0..).step_by(64).zip(words_of(bits)) {
        while word != 0 {
            each(base + word.trailing_zeros());
            word &= word - 1;
        }
    }
}

/// Appends a bit for each of so many numbers, set for some of them: the low bits of a byte first.
pub(super) fn push_bits(numbers: impl Iterator<Item = usize>, count: usize, target: &mut Vec<u8>) {
    let start = target.len();
    target.resize(start + count.div_ceil(8), 0);
    let bits = &mut target[start..];
    numbers.for_each(|number| bits[number / 8] |= 1 << (number % 8));
}

/// A little-endian number of four bytes.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_come_back() {
        let numbers = [0, 1, 127, 128, 300, u64::MAX.into(), 1 << 64, u128::MAX];
        let mut bytes = Vec::new();
        numbers.iter().for_each(|&number| push_varint(number, &mut bytes));
        let mut reader = Reader::new(&bytes);
        assert!(numbers.iter().all(|&number| reader.varint128() == Some(number)));
        assert!(reader.is_at_end() && reader.byte().is_none());
        for number in [0, 127, 128, 1 << 63, u64::MAX] {
            let mut bytes = Vec::new();
            push_varint(number.into(), &mut bytes);
            assert_eq!(
                (bytes.len(), Reader::new(&bytes).varint()),
                (varint_len(number), Some(number))
            );
            assert!((0..bytes.len()).all(|len| Reader::new(&bytes[..len]).varint().is_none()));
        }
        assert_eq!(Reader::new(&[0xFF; 30]).varint(), None);
        assert_eq!(Reader::new(&[0xFF; 30]).varint128(), None);
        // One number, one byte string.
        for longer in [&[0x80, 0][..], &[0xFF, 0x80, 0]] {
            assert_eq!(Reader::new(longer).varint(), None);
            assert_eq!(Reader::new(longer).varint128(), None);
        }
        assert!([0, 1, -1, i64::MAX, i64::MIN].iter().all(|&n| unzigzag(zigzag(n)) == n));
    }

    #[test]
    fn packed_numbers_come_back() {
        for bits in 0..=32 {
            let mask = u32::try_from((1_u64 << bits) - 1).unwrap();
            let values: Vec<u32> =
                (0..77_u32).map(|i| i.wrapping_mul(0x9E37_79B9) & mask).collect();
            let (mut bytes, mut again) = (Vec::new(), vec![1; 77]);
            pack(&values, bits, &mut bytes);
            assert_eq!(bytes.len(), packed_len(77, bits));
            unpack(&bytes, bits, &mut again);
            assert_eq!(again, values);
            // With bytes behind them, and as many as are packed together.
            bytes.resize(bytes.len() + 8, 0xFF);
            let mut some = [1; 64];
            unpack(&bytes, bits, &mut some);
            assert_eq!(some, values[..64]);
        }
    }
}
