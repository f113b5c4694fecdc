//! Encoded bytes as text: little-endian 32-bit words in hex.

use std::io::{self, BufRead, Write};

use anyhow::bail;

use super::Lines;
use crate::cmd::shown;

/// Writes one word per line, and the bytes after the last whole word as a shorter one.
pub(super) fn write(bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let (words, rest) = bytes.as_chunks::<4>();
    for &word in words {
        writeln!(out, "{:08X}", u32::from_le_bytes(word))?;
    }
    if !rest.is_empty() {
        writeln!(out, "{}", hex(rest))?;
    }
    Ok(())
}

/// The bytes as one little-endian number, two digits a byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().rev().map(|byte| format!("{byte:02X}")).collect()
}

/// Reads words, separated by white space. All but the last have eight digits.
pub(super) fn read(input: &mut dyn BufRead) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut words_seen = 0_u64;
    // The place and text of a word that has to be the last.
    let mut short: Option<String> = None;
    let mut lines = Lines::new(input);
    while let Some((line, text)) = lines.next()? {
        let words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        for word in words {
            words_seen += 1;
            let place = || format!("word {words_seen} on line {line}, '{}'", shown(word));
            if let Some(short) = short {
                bail!("{short}, has fewer than 8 digits, and only the last word may");
            }
            let digits = word.strip_prefix(b"0x").or(word.strip_prefix(b"0X")).unwrap_or(word);
            let Some(value) = number(digits) else {
                bail!("{}, is not a hex number", place());
            };
            match digits.len() {
                8 => {}
                2 | 4 | 6 => short = Some(place()),
                len => bail!(
                    "{}, has {len} digits, expected 8, or in the last word 2, 4 or 6",
                    place()
                ),
            }
            bytes.extend_from_slice(&value.to_le_bytes()[..digits.len() / 2]);
        }
    }
    Ok(bytes)
}

/// The number that hex digits stand for. Of more than eight digits the last eight count; the caller
/// refuses such words.
fn number(digits: &[u8]) -> Option<u32> {
    digits
        .iter()
        .try_fold(0_u32, |number, &byte| Some(number << 4 | char::from(byte).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<u8>, String> {
        read(&mut text.as_bytes()).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn words_come_back_as_they_were_written() {
        let bytes: Vec<u8> = (0..=255).collect();
        for len in 0..16 {
            let mut text = vec![];
            write(&bytes[250 - len..250], &mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            assert_eq!(read_text(&text).as_deref(), Ok(&bytes[250 - len..250]));
        }
    }

    #[test]
    fn a_rest_is_a_little_endian_number_too() {
        let mut text = vec![];
        write(&[0xFF, 0, 0, 0x80, 1, 2, 3], &mut text).unwrap();
        assert_eq!(text, b"800000FF\n030201\n");
    }

    #[test]
    fn words_may_share_lines_and_have_prefixes() {
        let bytes = read_text(" 0x04030201\t08070605\r\n\n0X0a090B0c 0D").unwrap();
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 0xC, 0xB, 9, 0xA, 0xD]);
    }

    #[test]
    fn what_is_not_a_word_is_refused() {
        for (text, expected) in [
            ("00000000\n0000000G", "word 2 on line 2, '0000000G', is not a hex number"),
            ("+0000000", "word 1 on line 1, '+0000000', is not a hex number"),
            (
                "0x",
                "word 1 on line 1, '0x', has 0 digits, expected 8, or in the last word 2, 4 or 6",
            ),
            (
                "123",
                "word 1 on line 1, '123', has 3 digits, expected 8, or in the last word 2, 4 or 6",
            ),
            (
                "12\n34",
                "word 1 on line 1, '12', has fewer than 8 digits, and only the last word may",
            ),
        ] {
            assert_eq!(read_text(text), Err(expected.to_owned()));
        }
        let long = read_text(&"0".repeat(5_000)).unwrap_err();
        assert!(long.len() < 200 && long.contains("has 5000 digits"), "{long}");
    }
}
