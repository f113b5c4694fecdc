//! Classes of lengths.

/// The shortest length of the second class, as a power of two.
const LENGTH_BITS_MIN: u32 = 4;
/// Classes between a length and its double, as a power of two.
const CLASS_BITS: u32 = 2;

/// The class of a length on the wire: four classes between a length and its double. Lengths below
/// 16 are one class.
///
/// ```
/// use tapdex_engine::fields::{length_class, length_class_start};
///
/// assert_eq!(length_class(1500), length_class(1280));
/// assert!(length_class(1500) < length_class(1536));
/// assert_eq!(length_class_start(length_class(1500)), 1280);
/// ```
pub fn length_class(len: u32) -> u8 {
    let Some(octave) = len.checked_ilog2().filter(|&octave| octave >= LENGTH_BITS_MIN) else {
        return 0;
    };
    let quarter = len >> (octave - CLASS_BITS) & ((1 << CLASS_BITS) - 1);
    u8::try_from(((octave - LENGTH_BITS_MIN) << CLASS_BITS) + quarter + 1).unwrap_or(u8::MAX)
}

/// The least length of a class; 2^32 for a class that does not occur.
pub fn length_class_start(class: u8) -> u64 {
    let Some(class) = u32::from(class).checked_sub(1) else {
        return 0;
    };
    let octave = LENGTH_BITS_MIN + (class >> CLASS_BITS);
    let quarter = class & ((1 << CLASS_BITS) - 1);
    if octave >= 32 {
        return 1 << 32;
    }
    u64::from((1 << CLASS_BITS) + quarter) << (octave - CLASS_BITS)
}

/// What a length is above the least of its class.
#[inline(always)]
pub fn length_excess(len: u32) -> u32 {
    len - u32::try_from(length_class_start(length_class(len))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_starts_where_the_one_before_ends() {
        for len in (0..70_000).chain([1 << 20, (1 << 24) - 1, u32::MAX - 1, u32::MAX]) {
            let class = length_class(len);
            assert!(length_class_start(class) <= u64::from(len), "{len}");
            assert!(u64::from(len) < length_class_start(class + 1), "{len}");
        }
        assert_eq!(length_class_start(length_class(u32::MAX) + 1), 1 << 32);
    }
}
