//! What to measure, by name.

use tapdex_bitmap::{ALL_CODECS, Codec};
use tapdex_engine::index::Width;

/// The parts of the measurement.
pub(super) const PARTS: [&str; 4] = ["columns", "segment", "scenarios", "papers"];
/// The kinds of data.
pub(super) const DATA: [&str; 3] = ["uniform", "zipf", "flows"];
/// Bits of a digit.
const WIDTHS: [&str; 2] = ["8", "16"];

/// What to measure. If nothing of a kind is named, all of it is measured.
#[derive(Debug, Clone)]
pub(super) struct Only {
    words: Vec<String>,
}

/// Checks a name.
pub(super) fn parse(word: &str) -> Result<String, String> {
    let codecs = ALL_CODECS.map(|codec| codec.name());
    let known = || PARTS.into_iter().chain(DATA).chain(WIDTHS).chain(codecs);
    match known().any(|name| name == word) {
        true => Ok(word.to_owned()),
        false => Err(format!("expected one of {}", known().collect::<Vec<_>>().join(", "))),
    }
}

impl Only {
    pub(super) fn new(words: &[String]) -> Self {
        Self { words: words.to_vec() }
    }

    fn allows(&self, name: &str, mut kind: impl Iterator<Item = &'static str>) -> bool {
        let is_named = |name: &str| self.words.iter().any(|word| word == name);
        is_named(name) || !kind.any(is_named)
    }

    pub(super) fn part(&self, name: &str) -> bool {
        self.allows(name, PARTS.into_iter())
    }

    pub(super) fn data(&self, name: &str) -> bool {
        self.allows(name, DATA.into_iter())
    }

    pub(super) fn width(&self, width: Width) -> bool {
        self.allows(&width.bits().to_string(), WIDTHS.into_iter())
    }

    pub(super) fn codecs(&self) -> impl Iterator<Item = Codec> {
        let names = || ALL_CODECS.into_iter().map(|codec| codec.name());
        ALL_CODECS.into_iter().filter(move |codec| self.allows(codec.name(), names()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(words: &[&str]) -> Only {
        Only::new(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn of_a_kind_that_is_not_named_all_is_measured() {
        let all = only(&[]);
        assert!(PARTS.iter().all(|part| all.part(part)) && DATA.iter().all(|data| all.data(data)));
        assert_eq!(all.codecs().count(), ALL_CODECS.len());
        let some = only(&["zipf", "16", "wah", "masc"]);
        assert!(PARTS.iter().all(|part| some.part(part)));
        assert_eq!(DATA.map(|data| some.data(data)), [false, true, false]);
        assert_eq!([Width::Byte, Width::Short].map(|width| some.width(width)), [false, true]);
        assert_eq!(some.codecs().map(|codec| codec.name()).collect::<Vec<_>>(), ["wah", "masc"]);
        let part = only(&["segment"]);
        assert!(PARTS.iter().all(|&name| part.part(name) == (name == "segment")));
        assert!(part.data("zipf") && part.width(Width::Byte));
    }

    #[test]
    fn names_that_mean_nothing_are_refused() {
        assert_eq!(parse("plwah-plus"), Ok("plwah-plus".to_owned()));
        let error = parse("roarin").unwrap_err();
        assert!(error.contains("segment") && error.contains("roaring"), "{error}");
    }
}
