//! What filters do not see behind VLAN tags, from columns alone, against what libpcap finds there.

use tapdex_engine::packet::LinkType;

use crate::compare::{asked, index};
use crate::made::{odd_frames, pcap, traffic};
use crate::oracle::{Truth, Verdict};

#[test]
fn packets_behind_tags() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let link = LinkType::ETHERNET;
    let captures = [
        pcap(path("odd"), link, false, &odd_frames(link, false, 12)),
        pcap(path("whole"), link, false, &traffic(3_000, 6, 120)),
    ];
    let (mut exact, mut some, mut bounded) = (0, 0, 0);
    for capture in captures {
        let truth = Truth::read(&capture);
        let indexed = index(&capture, "auto", 1_000);
        for asked in asked(&truth, 1_000) {
            let (Some(query), text) = (&asked.query, &asked.text) else { continue };
            let through =
                format!("({text}) or (vlan and ({text})) or (vlan and vlan and ({text}))");
            let (Verdict::Matches(own), Verdict::Matches(all)) =
                (truth.ask(text), truth.ask(&through))
            else {
                continue;
            };
            let more = all.iter().zip(&own).filter(|(all, own)| **all && !**own).count() as u64;
            let counts = indexed.segments.iter().map(|s| query.behind_tags(s).unwrap());
            let counts: Option<Vec<(u64, u64)>> = counts.collect();
            let Some(counts) = counts else { continue };
            let found: u64 = counts.iter().map(|(found, _)| found).sum();
            let open: u64 = counts.iter().map(|(_, open)| open).sum();
            assert!(found <= more && more <= found + open, "{text}: {found} + {open}, {more}");
            match open {
                0 => (exact, some) = (exact + 1, some + u64::from(more > 0)),
                _ => bounded += 1,
            }
        }
    }
    println!("behind tags: {exact} exact, {some} of them some packets, {bounded} bounded");
    assert!(exact > 100 && some > 50 && bounded > 100);
}
