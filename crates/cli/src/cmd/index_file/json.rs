//! Strings in JSON.

/// The text in quotes, with what JSON or a terminal takes amiss escaped.
pub(crate) fn string(text: &str) -> String {
    let mut target = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => target.extend(['\\', c]),
            c if c.is_control() => target.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => target.push(c),
        }
    }
    target.push('"');
    target
}

#[cfg(test)]
mod tests {
    #[test]
    fn text_is_escaped() {
        assert_eq!(super::string("ip.src"), r#""ip.src""#);
        assert_eq!(super::string("a\"\\\n\u{9f}"), r#""a\"\\\u000a\u009f""#);
    }
}
