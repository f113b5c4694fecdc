//! The few casts that drop bits on purpose, or that a bound elsewhere makes exact.

/// The id of a row within its chunk.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
pub(crate) fn low16(id: u32) -> u16 {
    id as u16
}

/// The low byte.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the low byte is what is asked for")]
pub(crate) fn low8(bits: u32) -> u8 {
    bits as u8
}

/// The low word.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
pub(crate) fn low32(bits: u64) -> u32 {
    bits as u32
}

/// A length that counts ids, rows or containers, of which there are fewer than 2^32.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "ids are u32, so their number is too")]
pub(crate) fn len32(len: usize) -> u32 {
    debug_assert!(u32::try_from(len).is_ok());
    len as u32
}

/// A number of bytes or words held in memory.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "it measures memory that exists")]
pub(crate) fn size(len: u64) -> usize {
    len as usize
}
