//! Prints packets that match, first those that are there, then new ones as a recorder writes them.
//! Run it with `cargo run --example follow_recording ARCHIVE FILTER`; Ctrl-C ends it.

use std::error::Error;
use std::path::Path;
use std::thread;
use std::time::Duration;

use tapdex_engine::archive::Archive;
use tapdex_engine::capture::Record;
use tapdex_engine::query::{Follow, Query, filter::Filter};
use tapdex_engine::time::{TimeRange, format_time};

/// Hands packets to `each` until it returns false.
pub fn run(
    archive: &str,
    filter: &str,
    each: &mut dyn FnMut(&Record<'_>) -> bool,
) -> Result<(), Box<dyn Error>> {
    let archive = Archive::open(Path::new(archive))?;
    let query = Query::new(Filter::parse(filter, 0)?, TimeRange::ALL);
    let search = archive.search(&query)?;
    let mut packets = search.packets();
    while let Some(packet) = packets.next()? {
        if !each(&packet.record) {
            return Ok(());
        }
    }
    // Go on behind what the search has seen.
    let answers = packets.finish()?;
    let segments = answers.segments.iter().map(|(segment, _)| segment);
    let mut follow = Follow::after(&archive, &query, segments);
    let mut is_wanted = true;
    while is_wanted {
        follow.poll(&mut |fresh| {
            is_wanted = each(&fresh.record);
            Ok(is_wanted)
        })?;
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [archive, filter] = &args[..] else { return Err("ARCHIVE FILTER".into()) };
    run(archive, filter, &mut |record| {
        println!("{} {} bytes", format_time(record.time_ns), record.wire_len);
        true
    })
}
