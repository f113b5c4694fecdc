//! Constants that the kernels and the code that launches them share: they must agree, or a kernel
//! would leave rows out or write past its tile. The kernels' sources are read for this, and no
//! device is needed.

use std::collections::BTreeMap;

use tapdex_engine::archive::device::{
    FRAME_BYTES, HEAD_BYTES, KEY_WORDS, PackedDigits, StepCode, WIDE_WORDS,
};
use tapdex_engine::packet::{self, Encap, Fragment, LinkType, Tunnel, protocol};

use crate::sources::{HEADERS, STEMS, resolved};
use crate::{column, flow, packets, radix, sets};

/// The constants of a stem and of the headers that it includes, by name.
fn constants(stem: &str) -> BTreeMap<String, u64> {
    constants_in(&resolved(stem).unwrap())
}

/// The constants that are declared at the left margin of a source: `static const u32 NAME =
/// VALUE;`.
fn constants_in(text: &str) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("static const u32 ") else { continue };
        let (name, value) = rest.split_once(" = ").unwrap_or_else(|| panic!("{line}"));
        let value = value.split_once(';').unwrap_or_else(|| panic!("{line}")).0;
        let value = Value { text: value.as_bytes(), known: &found }.whole();
        let value = value.unwrap_or_else(|| panic!("cannot read {line:?}"));
        found.insert(name.to_owned(), value);
    }
    found
}

/// The rest of a value: numbers, names, `+ - * / <<` and parentheses, with the precedence of C.
struct Value<'a> {
    text: &'a [u8],
    known: &'a BTreeMap<String, u64>,
}

impl Value<'_> {
    fn whole(mut self) -> Option<u64> {
        let value = self.shifted()?;
        self.text.trim_ascii().is_empty().then_some(value)
    }

    fn takes(&mut self, sign: &str) -> bool {
        let rest = self.text.trim_ascii_start().strip_prefix(sign.as_bytes());
        self.text = rest.unwrap_or(self.text);
        rest.is_some()
    }

    fn shifted(&mut self) -> Option<u64> {
        let mut value = self.sum()?;
        while self.takes("<<") {
            value = value.checked_shl(u32::try_from(self.sum()?).ok()?)?;
        }
        Some(value)
    }

    fn sum(&mut self) -> Option<u64> {
        let mut value = self.product()?;
        loop {
            value = match () {
                () if self.takes("+") => value.checked_add(self.product()?)?,
                () if self.takes("-") => value.checked_sub(self.product()?)?,
                () => return Some(value),
            };
        }
    }

    fn product(&mut self) -> Option<u64> {
        let mut value = self.single()?;
        loop {
            value = match () {
                () if self.takes("*") => value.checked_mul(self.single()?)?,
                () if self.takes("/") => value.checked_div(self.single()?)?,
                () => return Some(value),
            };
        }
    }

    fn single(&mut self) -> Option<u64> {
        if self.takes("(") {
            let value = self.shifted()?;
            return self.takes(")").then_some(value);
        }
        self.text = self.text.trim_ascii_start();
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let len = self.text.iter().take_while(|byte| is_word(byte)).count();
        let (word, rest) = self.text.split_at(len);
        self.text = rest;
        let word = std::str::from_utf8(word).ok()?;
        let number = word.trim_end_matches('u');
        match number.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => number.parse().ok().or_else(|| self.known.get(word).copied()),
        }
    }
}

/// Constants of kernels that the launching code has as well: stem, name, our value.
fn shared() -> Vec<(&'static str, &'static str, u64)> {
    let threads = u64::from(column::THREADS);
    vec![
        ("runs", "TILE", column::TILE as u64),
        ("runs", "THREADS", column::TILE_THREADS.into()),
        ("runs", "BUCKETS", column::BUCKETS as u64),
        ("runs", "HIGH_TILE", column::HIGH_TILE as u64),
        ("scan", "SCAN_TILE", column::SCAN_TILE as u64),
        ("scan", "SCAN_THREADS", threads),
        ("scan", "SUMS_THREADS", column::BLOCK_ALONE.into()),
        ("wah", "RUN_TILE", column::RUN_TILE as u64),
        ("wah", "RUN_THREADS", threads),
        ("merge", "MERGE_TILE", column::MERGE_TILE as u64),
        ("merge", "MERGE_THREADS", threads),
        ("merge", "GROUP_TILES", column::GROUP_TILES.into()),
        ("flow", "WORDS_TILE", flow::WORDS_TILE as u64),
        ("radix", "NUMBERS_TILE", radix::NUMBERS_TILE as u64),
        ("radix", "THREADS", column::TILE_THREADS.into()),
        ("radix", "BUCKETS", column::BUCKETS as u64),
        ("group", "KEY_WORDS", KEY_WORDS as u64),
        ("group", "WIDE_WORDS", WIDE_WORDS as u64),
        ("group", "SENT_WORDS", packets::SENT_WORDS as u64),
        ("group", "CHUNK_WORDS", packets::CHUNK_WORDS as u64),
        ("group", "BITS", packets::figures::BITS as u64),
        ("group", "MISSING", packets::figures::MISSING as u64),
        ("group", "WIDE_BITS", packets::figures::WIDE_BITS as u64),
        ("group", "WIDE_MISSING", packets::figures::WIDE_MISSING as u64),
        ("group", "ODD", packets::figures::ODD as u64),
        ("group", "OWN", packets::figures::OWN as u64),
        ("columns", "WIDE_WORDS", WIDE_WORDS as u64),
        ("rowmap", "KEY_WORDS", KEY_WORDS as u64),
        ("rowmap", "BLOCK_ROWS", StepCode::BLOCK_ROWS as u64),
        ("rowmap", "GROUP_BLOCKS", StepCode::GROUP_BLOCKS as u64),
        ("rowmap", "CONTEXTS", StepCode::CONTEXTS as u64),
        ("rowmap", "SYMBOLS", StepCode::SYMBOLS as u64),
        ("packed", "BLOCK_NUMBERS", PackedDigits::BLOCK as u64),
        ("packed", "GROUP_BLOCKS", PackedDigits::GROUP_BLOCKS as u64),
        ("packed", "MARKS", packets::rows::MARKS as u64),
        ("sets", "TOTALS", sets::rooms::TOTALS as u64),
        ("sets", "TILE_EACH", (sets::rooms::TILE / sets::rooms::THREADS).into()),
        ("sets", "UNIT_ROWS", sets::rooms::UNIT_GROUPS / 32),
        ("masc", "WINDOW_ROWS", tapdex_bitmap::codec::masc::WINDOW_ROWS.into()),
        ("roaring", "CHUNK_ROWS", tapdex_bitmap::chunk::CHUNK_ROWS.into()),
        ("roaring", "ARRAY_MAX", tapdex_bitmap::chunk::ARRAY_MAX as u64),
    ]
}

/// Constants of the decoder that the engine has as well: name, value there.
fn of_decoder() -> Vec<(&'static str, u64)> {
    vec![
        ("FRAME_BYTES", FRAME_BYTES as u64),
        ("KEY_WORDS", KEY_WORDS as u64),
        ("WIDE_WORDS", WIDE_WORDS as u64),
        ("LINK_NULL", LinkType::NULL.0.into()),
        ("LINK_ETHERNET", LinkType::ETHERNET.0.into()),
        ("LINK_RAW", LinkType::RAW.0.into()),
        ("LINK_LOOP", LinkType::LOOP.0.into()),
        ("LINK_LINUX_SLL", LinkType::LINUX_SLL.0.into()),
        ("LINK_LINUX_SLL2", LinkType::LINUX_SLL2.0.into()),
        ("LINK_IPV4", LinkType::IPV4.0.into()),
        ("LINK_IPV6", LinkType::IPV6.0.into()),
        ("ETHERTYPE_IPV4", packet::ETHERTYPE_IPV4.into()),
        ("ETHERTYPE_ARP", packet::ETHERTYPE_ARP.into()),
        ("ETHERTYPE_RARP", packet::ETHERTYPE_RARP.into()),
        ("ETHERTYPE_IPV6", packet::ETHERTYPE_IPV6.into()),
        ("ETHERTYPE_MPLS", packet::ETHERTYPE_MPLS.into()),
        ("ETHERTYPE_TAG", packet::ETHERTYPES_VLAN[0].into()),
        ("ETHERTYPE_TAG_AD", packet::ETHERTYPES_VLAN[1].into()),
        ("ETHERTYPE_TAG_OLD", packet::ETHERTYPES_VLAN[2].into()),
        ("PROTOCOL_ICMP", protocol::ICMP.into()),
        ("PROTOCOL_TCP", protocol::TCP.into()),
        ("PROTOCOL_UDP", protocol::UDP.into()),
        ("PROTOCOL_FRAGMENT", protocol::FRAGMENT.into()),
        ("PROTOCOL_GRE", protocol::GRE.into()),
        ("PROTOCOL_ICMP6", protocol::ICMP6.into()),
        ("PROTOCOL_SCTP", protocol::SCTP.into()),
        ("ENCAP_NONE", Encap::None as u64),
        ("ENCAP_TAG", Encap::Tag as u64),
        ("ENCAP_TWO_TAGS", Encap::TwoTags as u64),
        ("ENCAP_MANY_TAGS", Encap::ManyTags as u64),
        ("ENCAP_MPLS", Encap::Mpls as u64),
        ("ENCAP_TAGS_MPLS", Encap::TagsMpls as u64),
        ("FRAGMENT_WHOLE", Fragment::Whole as u64),
        ("FRAGMENT_FIRST", Fragment::First as u64),
        ("FRAGMENT_LATER", Fragment::Later as u64),
        ("TUNNEL_IP", Tunnel::Ip as u64),
        ("TUNNEL_GRE", Tunnel::Gre as u64),
        ("TUNNEL_VXLAN", Tunnel::Vxlan as u64),
        ("TUNNEL_GTP", Tunnel::Gtp as u64),
    ]
}

/// Constants that follow from the ones above, and are needed only in kernels.
const IN_KERNELS_ONLY: [&str; 3] = ["WARP_TILE", "HIGH_WARP_TILE", "RUN_WARP_TILE"];

#[test]
fn kernels_and_launches_agree() {
    let mut wrong = Vec::new();
    let of_decoder = of_decoder().into_iter().map(|(name, ours)| ("decode", name, ours));
    for (stem, name, ours) in shared().into_iter().chain(of_decoder) {
        let found = constants(stem).get(name).copied();
        if found != Some(ours) {
            wrong.push(format!("{stem}: {name} is {found:?} there and {ours} here"));
        }
    }
    assert!(wrong.is_empty(), "change both or neither:\n{}", wrong.join("\n"));
}

#[test]
fn the_memory_that_a_block_shares_is_what_the_kernels_declare() {
    let found = constants("runs");
    let (warps, buckets) = (found["WARPS"], found["BUCKETS"]);
    let tables = 4 * (warps * buckets / 2 + buckets + 32 + 4);
    assert_eq!(tables, column::SORTING_TABLES.into(), "struct Sorting of kernels/sort.cuh");
}

#[test]
fn the_decoder_has_all_links_and_kinds() {
    let found = constants("decode");
    let count = |start: &str| found.keys().filter(|name| name.starts_with(start)).count();
    let links = (0..=u16::MAX).filter(|&link| LinkType(link).name().is_some());
    assert_eq!(count("LINK_"), links.count());
    assert_eq!(count("ENCAP_"), Encap::ALL.len());
    assert_eq!(count("FRAGMENT_"), Fragment::ALL.len());
    // No constant is needed for no tunnel.
    assert_eq!(count("TUNNEL_"), Tunnel::ALL.len() - 1);
    assert_eq!(HEAD_BYTES, 4 * 4, "a head is read as four words");
}

#[test]
fn no_tile_is_left_out() {
    let listed = shared();
    let files = STEMS.iter().map(|file| file.1).chain(HEADERS.iter().map(|file| file.1));
    for text in files {
        for line in text.lines() {
            let Some(rest) = line.strip_prefix("static const u32 ") else { continue };
            let name = rest.split(' ').next().unwrap();
            let is_shared = name.contains("TILE") || name.contains("THREADS");
            assert!(
                !is_shared
                    || IN_KERNELS_ONLY.contains(&name)
                    || listed.iter().any(|&(_, other, _)| other == name),
                "{name}: compare it above, or say that only kernels have it"
            );
        }
    }
}

#[test]
fn values_are_read_as_a_compiler_does() {
    let text = "static const u32 A = 8;\nstatic const u32 B = (1u << 4) - A / 2 * 3;\n\
                static const u32 C = 0xFFu; // a number\nstatic const u32 D = 1u << A - 6;\n";
    let found: Vec<(String, u64)> = constants_in(text).into_iter().collect();
    let expected = [("A", 8), ("B", 4), ("C", 255), ("D", 4)];
    assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value)));
}
