//! Values as people write them: numbers and addresses.

use std::net::Ipv6Addr;

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueKind {
    /// Decimal, or hexadecimal behind 0x.
    Number,
    /// Four numbers with dots between them.
    Ipv4,
    /// Six bytes in hexadecimal with colons between them.
    Mac,
    /// As in RFC 4291.
    Ipv6,
}

impl ValueKind {
    /// The bits of a field that holds such values; `None` if any number of bits fits.
    pub(super) fn bits(self) -> Option<u32> {
        match self {
            ValueKind::Number => None,
            ValueKind::Ipv4 => Some(32),
            ValueKind::Mac => Some(48),
            ValueKind::Ipv6 => Some(128),
        }
    }

    /// What it is called in messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            ValueKind::Number => "a number",
            ValueKind::Ipv4 => "an IPv4 address",
            ValueKind::Mac => "a MAC address",
            ValueKind::Ipv6 => "an IPv6 address",
        }
    }
}

/// A value and how it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) number: u128,
    pub(super) kind: ValueKind,
}

/// Why a text is no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bad {
    /// The byte at which it goes wrong.
    pub(super) at: usize,
    /// What is wrong there.
    pub(super) what: &'static str,
}

const NO_DIGIT: &str = "expected a decimal digit";
const NO_HEX_DIGIT: &str = "expected a hexadecimal digit";
const TOO_LARGE: &str = "the number has more than 128 bits";
const NO_IPV4: &str = "expected an IPv4 address: four numbers from 0 to 255, separated by dots";
const NO_ADDRESS: &str = "expected a MAC or an IPv6 address";

/// Reads a value. Blanks are no part of one.
pub(super) fn parse(text: &[u8]) -> Result<Value, Bad> {
    if text.is_empty() {
        return Err(Bad { at: 0, what: "expected a value" });
    }
    if let [b'0', b'x' | b'X', digits @ ..] = text {
        return hexadecimal(digits).map_err(|bad| Bad { at: bad.at + 2, ..bad });
    }
    // Nearly all values are decimal: tried before the text is searched for other forms.
    match decimal(text) {
        Ok(value) => Ok(value),
        Err(_) if text.contains(&b':') => colons(text),
        Err(_) if text.contains(&b'.') => ipv4(text),
        Err(bad) => Err(bad),
    }
}

fn number(number: u128) -> Value {
    Value { number, kind: ValueKind::Number }
}

fn decimal(text: &[u8]) -> Result<Value, Bad> {
    let mut sum = 0_u128;
    for (at, byte) in text.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(Bad { at, what: NO_DIGIT });
        }
        let next = sum.checked_mul(10).and_then(|sum| sum.checked_add(digit.into()));
        sum = next.ok_or(Bad { at, what: TOO_LARGE })?;
    }
    Ok(number(sum))
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

fn hexadecimal(digits: &[u8]) -> Result<Value, Bad> {
    if digits.is_empty() {
        return Err(Bad { at: 0, what: NO_HEX_DIGIT });
    }
    let mut sum = 0_u128;
    for (at, &byte) in digits.iter().enumerate() {
        let digit = hex_digit(byte).ok_or(Bad { at, what: NO_HEX_DIGIT })?;
        if sum >> 124 != 0 {
            return Err(Bad { at, what: TOO_LARGE });
        }
        sum = sum << 4 | u128::from(digit);
    }
    Ok(number(sum))
}

/// Without leading zeros, which some read as octal.
fn ipv4(text: &[u8]) -> Result<Value, Bad> {
    let (mut address, mut parts, mut at) = (0_u128, 0, 0);
    for part in text.split(|&byte| byte == b'.') {
        let bad = Bad { at, what: NO_IPV4 };
        let leading_zero = part.len() > 1 && part[0] == b'0';
        if part.is_empty() || part.len() > 3 || leading_zero || parts == 4 {
            return Err(bad);
        }
        let value = decimal(part).map_err(|inner| Bad { at: at + inner.at, ..bad })?.number;
        if value > 255 {
            return Err(bad);
        }
        address = address << 8 | value;
        parts += 1;
        at += part.len() + 1;
    }
    if parts < 4 {
        return Err(Bad { at: text.len(), what: NO_IPV4 });
    }
    Ok(Value { number: address, kind: ValueKind::Ipv4 })
}

/// Six pairs of digits are never an IPv6 address, which has eight parts or two colons in a row.
fn colons(text: &[u8]) -> Result<Value, Bad> {
    let pairs = text.split(|&byte| byte == b':').map(|part| match part {
        &[high, low] => Some(hex_digit(high)? << 4 | hex_digit(low)?),
        _ => None,
    });
    if let Some(bytes) = pairs.collect::<Option<Vec<u8>>>()
        && bytes.len() == 6
    {
        let number = bytes.iter().fold(0, |number, &byte| number << 8 | u128::from(byte));
        return Ok(Value { number, kind: ValueKind::Mac });
    }
    let address = str::from_utf8(text).ok().and_then(|text| text.parse::<Ipv6Addr>().ok());
    let number = address.ok_or(Bad { at: 0, what: NO_ADDRESS })?.into();
    Ok(Value { number, kind: ValueKind::Ipv6 })
}

impl Value {
    /// Why the value does not fit into a field of this many bits; `None` if it does.
    pub(super) fn misfit(self, bits: u32) -> Option<String> {
        if let Some(needed) = self.kind.bits().filter(|&needed| needed != bits) {
            let name = self.kind.name();
            return Some(format!("{name} needs a field of {needed} bits, but this one has {bits}"));
        }
        let needed = self.bits();
        let too_wide = needed > bits;
        too_wide.then(|| format!("the value needs {needed} bits, but the field has {bits}"))
    }

    /// How many bits the number has.
    pub(super) fn bits(self) -> u32 {
        u128::BITS - self.number.leading_zeros()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(u128, ValueKind), usize> {
        parse(text.as_bytes()).map(|value| (value.number, value.kind)).map_err(|bad| bad.at)
    }

    #[test]
    fn every_form_is_read() {
        let most = u128::MAX;
        assert_eq!(read("0"), Ok((0, ValueKind::Number)));
        assert_eq!(read("007"), Ok((7, ValueKind::Number)));
        assert_eq!(read(&most.to_string()), Ok((most, ValueKind::Number)));
        assert_eq!(read("0x0a0B"), Ok((0x0A0B, ValueKind::Number)));
        assert_eq!(read(&format!("0X{most:x}")), Ok((most, ValueKind::Number)));
        assert_eq!(read("10.1.2.255"), Ok((0x0A01_02FF, ValueKind::Ipv4)));
        assert_eq!(read("00:1b:21:FF:00:09"), Ok((0x001B_21FF_0009, ValueKind::Mac)));
        assert_eq!(read("::"), Ok((0, ValueKind::Ipv6)));
        assert_eq!(read("2001:db8::1"), Ok((0x2001_0DB8 << 96 | 1, ValueKind::Ipv6)));
        assert_eq!(read("::ffff:1.2.3.4"), Ok((0xFFFF_0102_0304, ValueKind::Ipv6)));
    }

    #[test]
    fn what_is_none_is_refused_where_it_goes_wrong() {
        for (text, at) in [
            ("", 0),
            ("x", 0),
            ("-1", 0),
            (" 1", 0),
            ("4x3", 1),
            ("0x", 2),
            ("0x1g", 3),
            ("340282366920938463463374607431768211456", 38),
            ("0x100000000000000000000000000000000", 34),
            ("1.2.3", 5),
            ("1.2.3.4.5", 8),
            ("1.2.300.4", 4),
            ("1.02.3.4", 2),
            ("1..3.4", 2),
            ("1.2.3.x", 6),
            ("00:11:22:33:44", 0),
            ("00:11:22:33:44:5", 0),
            ("1:2", 0),
        ] {
            assert_eq!(read(text), Err(at), "{text}");
        }
    }

    #[test]
    fn addresses_want_fields_of_their_width() {
        let fits = |text: &str, bits| parse(text.as_bytes()).unwrap().misfit(bits).is_none();
        assert!(fits("1.2.3.4", 32) && !fits("1.2.3.4", 64));
        assert!(fits("::1", 128) && !fits("::1", 64));
        assert!(fits("00:00:00:00:00:01", 48) && !fits("00:00:00:00:00:01", 64));
        assert!(fits("255", 8) && !fits("256", 8) && fits("256", 128));
    }
}
