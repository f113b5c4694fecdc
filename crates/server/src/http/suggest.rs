//! The word that somebody may have meant.

use tapdex_engine::fields::NAMES;

/// Words of pcap-filter(7) that are written most.
const WORDS: [&str; 40] = [
    "host",
    "net",
    "port",
    "portrange",
    "src",
    "dst",
    "and",
    "or",
    "not",
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "ip",
    "ip6",
    "arp",
    "rarp",
    "ether",
    "proto",
    "vlan",
    "mpls",
    "pppoes",
    "geneve",
    "broadcast",
    "multicast",
    "less",
    "greater",
    "len",
    "gateway",
    "mask",
    "sctp",
    "igmp",
    "tcp-syn",
    "tcp-ack",
    "tcp-rst",
    "tcp-fin",
    "tcp-push",
    "tcpflags",
    "icmptype",
    "protochain",
];

/// The longest word that is corrected.
const LEN_MAX: usize = 24;

/// The word that looks most like this one, unless none does.
pub(super) fn nearest(word: &str) -> Option<&'static str> {
    let word = word.trim().to_ascii_lowercase();
    if word.len() < 2 || word.len() > LEN_MAX || !word.is_ascii() {
        return None;
    }
    let names = NAMES.iter().filter_map(|name| name.wireshark);
    let known = WORDS.into_iter().chain(names).filter(|known| **known != *word);
    let (distance, found) = known.map(|known| (distance(&word, known), known)).min()?;
    // Of a short word only one letter may be wrong.
    (distance <= word.len() / 3).then_some(found)
}

/// How many letters have to be changed, added, removed or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = match (i, j) {
                (0, n) | (n, 0) => n,
                _ => {
                    let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    let mut least = change.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                    if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                        least = least.min(rows[i - 2][j - 2] + 1);
                    }
                    least
                }
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_corrected() {
        for (word, meant) in [
            ("hsot", Some("host")),
            ("prot", Some("port")),
            ("ip.adr", Some("ip.addr")),
            ("tcp.prt", Some("tcp.port")),
            ("zzzz", None),
            ("x", None),
            ("\u{e9}\u{e9}", None),
        ] {
            assert_eq!(nearest(word), meant, "{word}");
        }
    }
}
