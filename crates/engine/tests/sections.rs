//! Captures of very many sections: indexed, searched and read in little memory.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use peak_alloc::PeakAlloc;
use tapdex_engine::archive::{Archive, Ingest, Input};
use tapdex_engine::capture::{Interface, blocks};
use tapdex_engine::query::filter::Filter;
use tapdex_engine::query::{Query, Search};
use tapdex_engine::time::TimeRange;

// The only test of this file: others in the same process would be counted with it.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const SECTIONS: u32 = 65_535;
/// What a search may take: some hundred bytes for each section.
const MOST: usize = 40 << 20;

#[test]
fn many_sections_take_little_memory() {
    for named in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pcapng");
        let mut bytes = Vec::new();
        for i in 0..SECTIONS {
            blocks::section(&mut bytes, "");
            // One that has no interface, and so no packets, is nothing of its own.
            blocks::section(&mut bytes, "");
            let name = if named { format!("{i:0>90}") } else { "eth0".to_owned() };
            let interface = Interface { name, ..Interface::new(1, 1_000_000_000) };
            blocks::interface(&mut bytes, &interface, "");
            blocks::packet(&mut bytes, 0, u64::from(i) * 1_000, 60, &[7; 60]);
        }
        std::fs::write(&path, bytes).unwrap();
        let archive = Archive::create(&folder.path().join("archive"), None).unwrap();
        let report = Ingest::new(&archive).threads(1).run(&[Input::File(path)]).unwrap();
        let file = &report.files[0];
        assert!(file.error.is_none() && file.damage.is_none(), "{report:?}");
        assert_eq!(file.packets, u64::from(SECTIONS));

        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        let (segments, failed) = archive.segments().unwrap();
        assert!(failed.is_empty() && segments.len() == 1, "{failed:?}");
        assert_eq!(segments[0].note().layout.sections.len(), SECTIONS as usize);
        let query = Query::new(Filter::parse("ether[20] = 7", 0).unwrap(), TimeRange::ALL);
        let search = Search::of(&query, segments);
        let mut found = search.packets();
        let mut interfaces = 0;
        while let Some(found) = found.next().unwrap() {
            interfaces += u32::from(found.record.interface == found.number);
        }
        let answers = found.finish().unwrap();
        assert!(answers.is_complete() && answers.count() == u64::from(SECTIONS));
        assert_eq!(interfaces, SECTIONS);
        let peak = MEMORY.peak_usage() - before;
        println!("{peak} bytes, named {named}");
        assert!(peak < MOST, "{peak} bytes, named {named}");
    }
}
