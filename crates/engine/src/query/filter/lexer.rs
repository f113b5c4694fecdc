//! From text to tokens, as libpcap's scanner cuts it: the longest token wins, and of two that are
//! as long, a keyword wins over a number and a number over a name.

use super::FilterError;
use super::names;
use std::net::Ipv6Addr;
use std::ops::Range;

/// A token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Token<'t> {
    /// The name of a protocol that can qualify: `tcp`; all names of the link are `ether`.
    Proto(&'static str),
    /// Another keyword, in one spelling: `&&` is `and`, `!` is `not`.
    Key(&'static str),
    /// A sign, in one spelling: `==` is `=`.
    Sign(&'static str),
    /// A number.
    Number(u32),
    /// A MAC address.
    Mac(u64),
    /// Two to four numbers with dots between them.
    Dotted(&'t str),
    /// An IPv6 address.
    Six(u128),
    /// The address of an ARCnet station.
    Arcnet(u8),
    /// A name of something else.
    Name(&'t str),
    /// The end of the text.
    End,
}

/// Signs, the longer ones first.
const SIGNS: [(&str, Token<'static>); 25] = [
    ("&&", Token::Key("and")),
    ("||", Token::Key("or")),
    (">=", Token::Sign(">=")),
    ("<=", Token::Sign("<=")),
    ("!=", Token::Sign("!=")),
    ("==", Token::Sign("=")),
    ("<<", Token::Sign("<<")),
    (">>", Token::Sign(">>")),
    ("!", Token::Key("not")),
    ("+", Token::Sign("+")),
    ("-", Token::Sign("-")),
    ("*", Token::Sign("*")),
    ("/", Token::Sign("/")),
    ("%", Token::Sign("%")),
    (":", Token::Sign(":")),
    ("[", Token::Sign("[")),
    ("]", Token::Sign("]")),
    ("<", Token::Sign("<")),
    (">", Token::Sign(">")),
    ("(", Token::Sign("(")),
    (")", Token::Sign(")")),
    ("&", Token::Sign("&")),
    ("|", Token::Sign("|")),
    ("^", Token::Sign("^")),
    ("=", Token::Sign("=")),
];

/// An address of IPv6 is not longer than this, whatever its zeros.
const SIX_MAX_BYTES: usize = 64;

/// The token at or behind `at`, and where it stands.
pub(super) fn token(text: &str, at: usize) -> Result<(Token<'_>, Range<usize>), FilterError> {
    let rest = text.get(at..).unwrap_or("");
    let body = rest.trim_start_matches([' ', '\r', '\n', '\t']);
    let start = at + rest.len() - body.len();
    let Some(first) = body.chars().next() else {
        return Ok((Token::End, text.len()..text.len()));
    };
    let bytes = body.as_bytes();
    let span = |len: usize| start..start + len;
    if first == '\\' {
        let name = body.get(1..).unwrap_or("");
        let len = name.find([' ', '!', '(', ')', '\n', '\t']).unwrap_or(name.len());
        return match name.get(..len) {
            Some(name) if !name.is_empty() => Ok((Token::Name(name), span(1 + len))),
            _ => Err(error("expected a name after the backslash", span(1))),
        };
    }
    if first == '$' {
        let digits = hex_digits(bytes.get(1..).unwrap_or(&[])).min(2);
        return match body.get(1..1 + digits).map(|digits| u8::from_str_radix(digits, 16)) {
            Some(Ok(station)) => Ok((Token::Arcnet(station), span(1 + digits))),
            _ => Err(error("expected one or two hex digits after `$`", span(1))),
        };
    }
    let name = name_len(bytes);
    let (mac, six) = (mac_len(bytes), six_len(body));
    let bogus = bogus_mac_len(bytes);
    let longest = name.max(mac).max(six).max(bogus);
    if longest == 0 {
        return match SIGNS.iter().find(|(sign, _)| body.starts_with(sign)) {
            Some((sign, token)) => Ok((*token, span(sign.len()))),
            None => Err(error(
                &format!("`{}` has no meaning in a filter", first.escape_default()),
                span(first.len_utf8()),
            )),
        };
    }
    let word = body.get(..longest).unwrap_or("");
    if longest == name
        && let Some(token) = names::keyword(word)
    {
        return Ok((token, span(longest)));
    }
    let token = if longest == mac {
        Token::Mac(mac_value(word))
    } else if longest == number_len(bytes) {
        Token::Number(number(word).map_err(|message| error(&message, span(longest)))?)
    } else if longest == dotted_len(bytes) {
        Token::Dotted(word)
    } else if longest == six {
        match word.parse::<Ipv6Addr>() {
            Ok(address) => Token::Six(address.to_bits()),
            Err(_) => {
                let message = format!("`{word}` is not an IPv6 address");
                return Err(error(&message, span(longest)));
            }
        }
    } else if longest == bogus {
        let message = format!("`{word}` is not a MAC address: it has six bytes");
        return Err(error(&message, span(longest)));
    } else {
        Token::Name(word)
    };
    Ok((token, span(longest)))
}

fn error(message: &str, span: Range<usize>) -> FilterError {
    FilterError { message: message.to_owned(), span }
}

fn digits(bytes: &[u8], is: impl Fn(&u8) -> bool) -> usize {
    bytes.iter().take_while(|byte| is(byte)).count()
}

fn hex_digits(bytes: &[u8]) -> usize {
    digits(bytes, u8::is_ascii_hexdigit)
}

/// Letters, digits, `-`, `_` and `.`, with a letter or digit first and no `-` or `_` last.
fn name_len(bytes: &[u8]) -> usize {
    if !bytes.first().is_some_and(u8::is_ascii_alphanumeric) {
        return 0;
    }
    let run = digits(bytes, |byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte));
    let run = bytes.get(..run).unwrap_or(&[]);
    run.iter().rposition(|byte| !b"-_".contains(byte)).map_or(0, |last| last + 1)
}

/// Decimal digits, or `0x` and hex digits.
fn number_len(bytes: &[u8]) -> usize {
    let decimal = digits(bytes, u8::is_ascii_digit);
    match bytes {
        [b'0', b'x' | b'X', hex @ ..] if hex_digits(hex) > 0 => 2 + hex_digits(hex),
        _ => decimal,
    }
}

/// The value of a number: `0x` makes it hexadecimal, a leading zero octal.
fn number(word: &str) -> Result<u32, String> {
    let (digits, radix) = match word.as_bytes() {
        [b'0', b'x' | b'X', ..] => (word.get(2..).unwrap_or(""), 16),
        [b'0', _, ..] => (word.get(1..).unwrap_or(""), 8),
        _ => (word, 10),
    };
    if radix == 8 && digits.contains(['8', '9']) {
        return Err(format!("`{word}` starts with 0, so it is octal and has digits up to 7"));
    }
    u32::from_str_radix(digits, radix).map_err(|_| format!("`{word}` does not fit in 32 bits"))
}

/// Two to four numbers with dots between them: the longest such prefix.
fn dotted_len(bytes: &[u8]) -> usize {
    let mut len = number_len(bytes);
    let mut dotted = 0;
    for _ in 1..4 {
        match bytes.get(len..) {
            Some([b'.', more @ ..]) if len > 0 && number_len(more) > 0 => {
                len += 1 + number_len(more);
                dotted = len;
            }
            _ => break,
        }
    }
    dotted
}

/// The longest prefix that is a MAC address in one of its notations.
fn mac_len(bytes: &[u8]) -> usize {
    let mut longest = 0;
    for separator in [b':', b'-', b'.'] {
        longest = longest.max(groups(bytes, separator, 6, 1..=2));
    }
    longest = longest.max(groups(bytes, b'.', 3, 4..=4));
    if hex_digits(bytes) >= 12 { longest.max(12) } else { longest }
}

/// The length of a number of groups of hex digits with a separator; 0 if there are fewer groups.
fn groups(
    bytes: &[u8],
    separator: u8,
    count: usize,
    sizes: std::ops::RangeInclusive<usize>,
) -> usize {
    let mut len = 0;
    for group in 0..count {
        if group > 0 {
            if bytes.get(len) != Some(&separator) {
                return 0;
            }
            len += 1;
        }
        let size = hex_digits(bytes.get(len..).unwrap_or(&[])).min(*sizes.end());
        if size < *sizes.start() {
            return 0;
        }
        len += size;
    }
    len
}

fn mac_value(word: &str) -> u64 {
    let nibble = |byte: u8| u64::from(char::from(byte).to_digit(16).unwrap_or(0));
    let parts = word.split([':', '-', '.']);
    if parts.clone().count() < 6 {
        return parts.flat_map(str::bytes).fold(0, |sum, byte| sum << 4 | nibble(byte));
    }
    parts
        .map(|part| part.bytes().fold(0, |sum, byte| sum << 4 | nibble(byte)))
        .fold(0, |sum, byte| sum << 8 | byte)
}

/// Bytes in hex, each with colons behind it, two at least: what only looks like a MAC address.
fn bogus_mac_len(bytes: &[u8]) -> usize {
    let (mut len, mut count, mut longest) = (0, 0, 0);
    loop {
        let rest = bytes.get(len..).unwrap_or(&[]);
        let size = hex_digits(rest).min(2);
        let colons = digits(rest.get(size..).unwrap_or(&[]), |byte| *byte == b':');
        if size == 0 || colons == 0 {
            return longest;
        }
        len += size + colons;
        count += 1;
        if count >= 2 {
            longest = len;
        }
    }
}

/// The longest prefix with the shape of an IPv6 address.
fn six_len(body: &str) -> usize {
    let bytes = body.as_bytes();
    let run = digits(bytes, |byte| byte.is_ascii_hexdigit() || b":.xX".contains(byte));
    let run = run.min(SIX_MAX_BYTES);
    if !bytes.get(..run).unwrap_or(&[]).contains(&b':') {
        return 0;
    }
    (2..=run).rev().find(|len| body.get(..*len).is_some_and(is_six)).unwrap_or(0)
}

/// Whether a word has the shape of an IPv6 address.
fn is_six(word: &str) -> bool {
    let (head, tail) = match word.split_once("::") {
        Some((head, tail)) => (head, Some(tail)),
        None => (word, None),
    };
    let count = |list: &str, v4_allowed: bool| -> Option<(usize, bool)> {
        if list.is_empty() {
            return Some((0, false));
        }
        let parts: Vec<&str> = list.split(':').collect();
        let (last, front) = parts.split_last()?;
        let group = |part: &&str| {
            (1..=4).contains(&part.len()) && hex_digits(part.as_bytes()) == part.len()
        };
        if !front.iter().all(group) {
            return None;
        }
        let four = last.matches('.').count() == 3 && dotted_len(last.as_bytes()) == last.len();
        if four && v4_allowed {
            Some((front.len(), true))
        } else if group(last) {
            Some((parts.len(), false))
        } else {
            None
        }
    };
    match tail {
        None => count(head, true).is_some_and(|(groups, four)| groups == if four { 6 } else { 8 }),
        Some(tail) => match (count(head, false), count(tail, true)) {
            (Some((head, _)), Some((tail, four))) => head + tail <= if four { 5 } else { 7 },
            _ => false,
        },
    }
}
