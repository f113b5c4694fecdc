//! `--field`: which fields a table has, and how each is stored.

use std::path::PathBuf;

use tapdex_engine::index::Width;

use crate::cmd::codec::Choice;

/// The contents of a `--field`; what it does not say comes from the other flags or from the data.
#[derive(Debug, Clone)]
pub(super) struct FieldArg {
    pub(super) name: String,
    pub(super) bits: Option<u32>,
    pub(super) digits: Option<Width>,
    pub(super) codec: Option<Choice>,
    pub(super) file: Option<PathBuf>,
}

const FORM: &str = "NAME[:BITS[/DIGITS]][:CODEC][=FILE]";

/// Reads `NAME[:BITS[/DIGITS]][:CODEC][=FILE]`.
pub(super) fn parse(text: &str) -> Result<FieldArg, String> {
    let (spec, file) = match text.split_once('=') {
        Some((_, "")) => return Err("expected a file name after =".to_owned()),
        Some((spec, file)) => (spec, Some(PathBuf::from(file))),
        None => (text, None),
    };
    let mut parts = spec.split(':');
    let name = parts.next().unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err(format!("expected {FORM}"));
    }
    let mut field = FieldArg { name, bits: None, digits: None, codec: None, file };
    for part in parts {
        if part.starts_with(|first: char| first.is_ascii_digit()) {
            if field.bits.is_some() || field.codec.is_some() {
                return Err(format!("expected {FORM}"));
            }
            let (bits, digits) = match part.split_once('/') {
                Some((bits, digits)) => (bits, Some(parse_digits(digits)?)),
                None => (part, None),
            };
            field.bits = Some(parse_bits(bits)?);
            field.digits = digits;
        } else if field.codec.is_none() {
            field.codec = Some(part.parse::<Choice>().map_err(|error| format!("{error}, auto"))?);
        } else {
            return Err(format!("expected {FORM}"));
        }
    }
    Ok(field)
}

fn parse_bits(text: &str) -> Result<u32, String> {
    let bits = text.parse().ok().filter(|&bits| (8..=128).contains(&bits) && bits % 8 == 0);
    bits.ok_or_else(|| format!("'{text}' bits: expected a multiple of 8 from 8 to 128"))
}

/// Reads the bits of a digit.
pub(super) fn parse_digits(text: &str) -> Result<Width, String> {
    match text {
        "8" => Ok(Width::Byte),
        "16" => Ok(Width::Short),
        _ => Err(format!("digits of '{text}' bits: expected 8 or 16")),
    }
}

/// The digits of a field, most significant first. An odd byte comes first, alone.
pub(super) fn widths(bits: u32, digits: Option<Width>) -> Vec<Width> {
    let bytes = bits / 8;
    let default = if bits == 16 { Width::Short } else { Width::Byte };
    match digits.unwrap_or(default) {
        Width::Byte => (0..bytes).map(|_| Width::Byte).collect(),
        Width::Short => {
            let odd = (bytes % 2 == 1).then_some(Width::Byte);
            odd.into_iter().chain((0..bytes / 2).map(|_| Width::Short)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapdex_bitmap::Codec;

    #[test]
    fn every_part_but_the_name_may_be_left_out() {
        let field = parse("a:32/16:wah=x=y").unwrap();
        assert_eq!(
            (field.name.as_str(), field.bits, field.digits),
            ("a", Some(32), Some(Width::Short))
        );
        assert!(matches!(field.codec, Some(Choice::One(Codec::Wah))));
        assert_eq!(field.file, Some("x=y".into()));
        let field = parse("a").unwrap();
        assert!(field.bits.is_none() && field.codec.is_none() && field.file.is_none());
        assert!(matches!(parse("a:auto").unwrap().codec, Some(Choice::Auto)));
    }

    #[test]
    fn what_is_no_field_is_refused() {
        for text in ["", ":8", "a:", "a:0", "a:12", "a:136", "a:8/4", "a:8:x", "a:8:16", "a:8="] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("a:wah:8").is_err() && parse("a:8:wah:wah").is_err());
    }

    #[test]
    fn digits_fill_the_field() {
        use Width::{Byte, Short};
        assert_eq!(widths(16, None), [Short]);
        assert_eq!(widths(16, Some(Byte)), [Byte, Byte]);
        assert_eq!(widths(24, Some(Short)), [Byte, Short]);
        assert_eq!(widths(8, Some(Short)), [Byte]);
        for bits in (8..=128).step_by(8) {
            for digits in [None, Some(Byte), Some(Short)] {
                assert_eq!(widths(bits, digits).iter().map(|w| w.bits()).sum::<u32>(), bits);
            }
        }
    }
}
