//! Indexes a folder, prints the first five packets that match, and gives up after ten seconds.
//! Run it with `cargo run --example index_and_search FOLDER ARCHIVE FILTER`.

use std::{env, error::Error, fs, io, path::Path, thread, time::Duration};

use tapdex_engine::archive::{Archive, Ingest, Input};
use tapdex_engine::query::{Control, Query, filter::Filter};
use tapdex_engine::time::{TimeRange, format_time};

/// Reads the captures in `folder`. `control` cancels the search from any thread.
pub fn run([folder, archive, filter]: [&str; 3], control: &Control) -> Result<u64, Box<dyn Error>> {
    let files = fs::read_dir(folder)?.map(|entry| Ok(Input::File(entry?.path())));
    let files: Vec<Input> = files.collect::<io::Result<_>>()?;
    let archive = Archive::create(Path::new(archive), None)?;
    Ingest::new(&archive).run(&files)?;

    let query = Query::new(Filter::parse(filter, 0)?, TimeRange::ALL);
    let search = archive.search(&query)?.with_limit(5).with_control(control);
    let mut packets = search.packets();
    while let Some(packet) = packets.next()? {
        println!("{} {} bytes", format_time(packet.record.time_ns), packet.record.wire_len);
    }
    println!("complete: {}", packets.finish()?.is_complete());
    Ok(control.progress().packets_found)
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [folder, archive, filter] = &args[..] else { return Err("FOLDER ARCHIVE FILTER".into()) };
    let control = Control::default();
    let timer = control.clone();
    thread::spawn(move || (thread::sleep(Duration::from_secs(10)), timer.cancel()));
    run([folder, archive, filter], &control).map(drop)
}
