//! A layout as text, which stays short even for files with thousands of sections and interfaces.
//!
//! A few of them are written as lists of tables, which people can read; many as two lists of words:
//!
//! ```text
//! section_list = "0+0 140+1*65534"
//! interface_list = "65535\t1\t262144\t1000000\t0\teth0\t"
//! ```
//!
//! A section is written as its distance in bytes from the start of the one before, `b` if its
//! numbers have the most significant byte first, and after `+` the number of interfaces between the
//! starts of the two. An interface is a line: link, longest frame, ticks, offset, name and
//! description. A repeat count says how many of one kind follow each other: it comes after a
//! section, and before an interface.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::{Interface, Layout, RecordForm, Section};

/// The most sections and interfaces, taken together, that are written as tables.
const TABLES_MAX: usize = 64;
/// The most bytes of a list of interfaces; in a longer one, names and descriptions are left out.
const LIST_LEN_MAX: usize = 4 << 20;
/// The most sections of a file, where a section with nothing of its own counts as part of the one
/// before.
pub(super) const SECTIONS_MAX: usize = 1 << 17;
/// The most bytes that are kept of the name of an interface, and of its description.
pub(super) const NAME_LEN_MAX: usize = 100;
/// The most interfaces of a file: as many as an index can number. All of them are in memory.
pub(super) const INTERFACES_MAX: usize = u16::MAX as usize;

#[derive(Serialize, Deserialize)]
pub(super) struct LayoutText {
    pcapng: bool,
    known: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    section_list: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interface_list: Option<String>,
    records: RecordForm,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sections: Option<Vec<Section>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interfaces: Option<Vec<Interface>>,
}

impl Layout {
    /// Whether it is written as lists of words, which version 1 of notes does not know.
    pub(crate) fn is_long(&self) -> bool {
        self.sections.len() + self.interfaces.len() > TABLES_MAX
    }
}

impl From<Layout> for LayoutText {
    fn from(layout: Layout) -> Self {
        let is_long = layout.is_long();
        let lists = is_long.then(|| {
            let interfaces = Some(write_interfaces(&layout.interfaces, true));
            let short = interfaces.filter(|text| text.len() <= LIST_LEN_MAX);
            let interfaces = short.unwrap_or_else(|| write_interfaces(&layout.interfaces, false));
            (write_sections(&layout.sections), interfaces)
        });
        let (section_list, interface_list) = lists.unzip();
        Self {
            pcapng: layout.pcapng,
            known: layout.known,
            section_list,
            interface_list,
            records: layout.records,
            sections: (!is_long).then_some(layout.sections),
            interfaces: (!is_long).then_some(layout.interfaces),
        }
    }
}

impl TryFrom<LayoutText> for Layout {
    type Error = &'static str;

    fn try_from(text: LayoutText) -> Result<Self, Self::Error> {
        let sections = match (text.sections, text.section_list) {
            (Some(sections), None) => sections,
            (None, Some(list)) => read_sections(&list).ok_or("its list of sections is none")?,
            _ => return Err("it has no sections, or has them twice"),
        };
        let interfaces = match (text.interfaces, text.interface_list) {
            (Some(interfaces), None) => interfaces,
            (None, Some(list)) => read_interfaces(&list).ok_or("its list of interfaces is none")?,
            _ => return Err("it has no interfaces, or has them twice"),
        };
        let LayoutText { pcapng, known, records, .. } = text;
        Ok(Self { pcapng, records, sections, interfaces, known })
    }
}

/// What differs from one section to the next: bytes, byte order, interfaces.
type Step = (u64, bool, u32);

fn write_sections(sections: &[Section]) -> String {
    let (mut text, mut offset, mut first) = (String::new(), 0, 0);
    let mut write = |(bytes, big_endian, interfaces): Step, times: u32| {
        let space = if text.is_empty() { "" } else { " " };
        let order = if big_endian { "b" } else { "" };
        let times = if times > 1 { format!("*{times}") } else { String::new() };
        // Writing to a string does not fail.
        let _ = write!(text, "{space}{bytes}{order}+{interfaces}{times}");
    };
    let mut run: Option<(Step, u32)> = None;
    for section in sections {
        let step = (
            section.offset.saturating_sub(offset),
            section.big_endian,
            section.first_interface.saturating_sub(first),
        );
        (offset, first) = (section.offset, section.first_interface);
        match &mut run {
            Some((last, times)) if *last == step => *times += 1,
            _ => {
                if let Some((last, times)) = run.replace((step, 1)) {
                    write(last, times);
                }
            }
        }
    }
    if let Some((last, times)) = run {
        write(last, times);
    }
    text
}

fn read_sections(text: &str) -> Option<Vec<Section>> {
    let (mut sections, mut offset, mut first) = (Vec::new(), 0_u64, 0_u32);
    for word in text.split(' ') {
        let (bytes, rest) = word.split_once('+')?;
        let (interfaces, times) = rest.split_once('*').unwrap_or((rest, "1"));
        let (bytes, big_endian) = match bytes.strip_suffix('b') {
            Some(bytes) => (bytes, true),
            None => (bytes, false),
        };
        let (bytes, interfaces): (u64, u32) = (bytes.parse().ok()?, interfaces.parse().ok()?);
        let times: usize = times.parse().ok()?;
        if times > SECTIONS_MAX.saturating_sub(sections.len()) {
            return None;
        }
        for _ in 0..times {
            offset = offset.checked_add(bytes)?;
            first = first.checked_add(interfaces)?;
            sections.push(Section { offset, big_endian, first_interface: first });
        }
    }
    Some(sections)
}

fn write_interfaces(interfaces: &[Interface], names: bool) -> String {
    let mut text = String::new();
    for same in interfaces.chunk_by(|a, b| a == b) {
        let Some(one) = same.first() else { continue };
        let Interface { link, snaplen, ticks, offset_s, name, description } = one;
        let [name, description] = [name, description].map(|text| match names {
            true => escaped(text),
            false => String::new(),
        });
        let line = if text.is_empty() { "" } else { "\n" };
        let times = same.len();
        let _ = write!(
            text,
            "{line}{times}\t{link}\t{snaplen}\t{ticks}\t{offset_s}\t{name}\t{description}"
        );
    }
    text
}

fn read_interfaces(text: &str) -> Option<Vec<Interface>> {
    let mut interfaces = Vec::new();
    for line in text.split('\n').filter(|line| !line.is_empty()) {
        let mut words = line.split('\t');
        let times: usize = words.next()?.parse().ok()?;
        let one = Interface {
            link: words.next()?.parse().ok()?,
            snaplen: words.next()?.parse().ok()?,
            ticks: words.next()?.parse().ok()?,
            offset_s: words.next()?.parse().ok()?,
            name: unescaped(words.next()?)?,
            description: unescaped(words.next()?)?,
        };
        if words.next().is_some() || times > INTERFACES_MAX.saturating_sub(interfaces.len()) {
            return None;
        }
        if one.name.len() > NAME_LEN_MAX || one.description.len() > NAME_LEN_MAX {
            // One line may stand for all interfaces, each with its own copy of the texts.
            return None;
        }
        interfaces.extend(std::iter::repeat_n(one, times));
    }
    Some(interfaces)
}

/// Text without tabs and line ends.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n")
}

fn unescaped(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        plain.push(match letter {
            '\\' => match letters.next()? {
                '\\' => '\\',
                't' => '\t',
                'n' => '\n',
                _ => return None,
            },
            letter => letter,
        });
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(sections: u32, name: impl Fn(u32) -> String) -> Layout {
        let section = |i: u32| Section {
            offset: u64::from(i) * 140,
            big_endian: i % 7 == 3,
            first_interface: i,
        };
        let interface = |i| Interface { name: name(i), ..Interface::new(1, 1_000_000) };
        Layout {
            pcapng: true,
            records: RecordForm::default(),
            sections: (0..sections).map(section).collect(),
            interfaces: (0..sections).map(interface).collect(),
            known: u64::from(sections) * 140,
        }
    }

    #[test]
    fn any_layout_comes_back() {
        for sections in [1, 32, 33, 1_000] {
            for odd in ["", "eth0", "a\tb\nc\\d\r\"\"\"'''", "\u{e9}"] {
                let layout = layout(sections, |i| format!("{odd}{}", i / 3));
                let text = toml::to_string(&layout).unwrap();
                assert_eq!(text.contains("section_list"), sections > 32);
                assert_eq!(toml::from_str::<Layout>(&text).unwrap(), layout);
            }
        }
    }

    #[test]
    fn many_sections_are_few_words() {
        let same = layout(65_535, |_| "eth0".to_owned());
        assert!(toml::to_string(&same).unwrap().len() < 300_000);
        // Names are left out before the list gets too long.
        let named = layout(65_535, |i| format!("{i:0>100}"));
        let text = toml::to_string(&named).unwrap();
        assert!(text.len() < 8 << 20, "{}", text.len());
        let back: Layout = toml::from_str(&text).unwrap();
        assert_eq!((back.sections, back.interfaces.len()), (named.sections, 65_535));
        assert_eq!(back.interfaces[9].name, "");
    }

    #[test]
    fn lists_of_others_are_bounded() {
        for list in ["", "1", "0+0*999999999", "0+x", "0+0 0+0*131072", "1+4294967295*2", "9c+1"] {
            assert!(read_sections(list).is_none(), "{list}");
        }
        for list in ["1\t1", "99999\t1\t0\t1\t0\t\t", "1\t1\t0\t1\t0\t\\x\t", "1\t1\t0\t1\t0\t\t\t"]
        {
            assert!(read_interfaces(list).is_none(), "{list}");
        }
        // A short list cannot expand into many bytes of names.
        for (name, fits) in [(NAME_LEN_MAX, true), (NAME_LEN_MAX + 1, false)] {
            let name = "n".repeat(name);
            for texts in [format!("{name}\t"), format!("\t{name}")] {
                let list = format!("65535\t1\t0\t1\t0\t{texts}");
                assert_eq!(read_interfaces(&list).is_some(), fits);
            }
        }
    }
}
