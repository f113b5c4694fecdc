//! `tapdex-bench archive`: what it costs to index captures and to search them, beside tcpdump and
//! tshark.

pub mod captures;
pub mod census;
pub mod indexing;
pub mod machine;
pub mod process;
pub mod searching;
mod sizes;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::ensure;

use captures::{Capture, Folder};
use process::Peak;

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Packets of each of the two made-up captures.
    #[arg(long, default_value_t = 20_000_000)]
    packets: u64,
    /// Where captures and archives go, to be kept there, and captures used again; without it, into
    /// a temporary folder that is removed at the end.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Timed rounds; the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// In how many of the rounds tshark takes part, which needs minutes for what others do in
    /// seconds.
    #[arg(long, default_value_t = 1)]
    tshark_rounds: usize,
    /// Leave tshark out.
    #[arg(long)]
    skip_tshark: bool,
    /// A folder that has real captures under `large/*.zst`; without it, the variable
    /// TAPDEX_TRACES names it.
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Seed of the made-up captures.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The program that is measured as a process.
    #[arg(long, value_name = "FILE", default_value = "target/release/tapdex")]
    tapdex: PathBuf,
}

/// The filter whose memory is measured: about half of all packets match.
const HALF: &str = "net 10.0.0.0/8";

pub fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.rounds > 0, "--rounds 0: nothing would be timed");
    ensure!(args.packets >= 1_000, "--packets {}: too few to find anything", args.packets);
    let tshark = !args.skip_tshark;
    process::ensure_programs(&args.tapdex, tshark)?;
    let folder = Folder::new(args.folder.as_deref())?;
    let packets = captures::packets_that_fit(&folder, args.packets, args.seed)?;

    println!("# Indexing captures and searching them, beside tcpdump and tshark\n");
    println!("The commands, from the repository root:\n\n```sh");
    println!("cargo build --release -p tapdex");
    println!("cargo run --release --manifest-path bench/Cargo.toml -- \\");
    let traces = if args.traces.is_some() { " --traces DIR" } else { "" };
    println!("    archive --packets {} --rounds {}{traces}\n```\n", args.packets, args.rounds);
    println!("| what | value |\n|---|---|");
    machine::describe(tshark);
    println!("| taken | contestants in turn, {} rounds, the median |", args.rounds);
    if packets < args.packets {
        println!(
            "| **fewer packets** | the disk has no room for {}, so captures have {packets} |",
            args.packets
        );
    }

    let small = captures::pair(&folder, "small", Some(64), packets, args.seed)?;
    let mixed = captures::pair(&folder, "mixed", None, packets, args.seed)?;
    let million = captures::million(&folder, packets, args.seed)?;
    let mut traces = captures::traces(&folder, args.traces.as_deref())?;
    println!("\nMade up from seed {}; a tenth is the first tenth of the packets:\n", args.seed);
    println!("| capture | packets | bytes | bytes a frame | of them captured |");
    println!("|---|---:|---:|---:|---:|");
    let made = [&small.whole, &small.tenth, &mixed.whole, &mixed.tenth, &million];
    for capture in made.into_iter().chain(&traces) {
        let Capture { name, packets, file_bytes, .. } = capture;
        let mean = |bytes: u64| bytes as f64 / *packets as f64;
        let (wire, captured) = (mean(capture.wire_bytes), mean(capture.captured_bytes));
        println!("| {name} | {packets} | {file_bytes} | {wire:.1} | {captured:.1} |");
    }

    println!("\n## How fast captures are indexed\n");
    println!("The page cache has the capture. An index is written into a folder of its own each");
    println!("time, and is on the disk when the clock stops. Flow order and codec auto unless a");
    println!("line says otherwise; those that do are of one round. Gb/s are of frames without");
    println!("their checksums.");
    for (capture, variants) in [(&small.whole, true), (&mixed.whole, false)] {
        indexing::rates(&folder, capture, args.rounds, variants)?;
    }

    println!("\n## How large the indexes are\n");
    println!("HiPES has w = 7: with 16 a lone id takes 8 KB.");
    traces.push(million);
    sizes::tables(&folder, &traces)?;
    let shown = traces.iter().find(|trace| trace.name == "composite-A").or(traces.last());
    if let Some(capture) = shown {
        sizes::sections(&folder, capture)?;
    }

    println!("\n## How fast filters are answered");
    for pair in [&small, &mixed] {
        let tshark_rounds = if tshark { args.tshark_rounds.clamp(1, args.rounds) } else { 0 };
        searching::contest(&folder, pair, &args.tapdex, args.rounds, tshark_rounds)?;
    }

    println!("\n## Memory\n");
    println!("On {}, by /proc and time(1). Pages of index files, which", mixed.whole.name);
    println!("are mapped, count as resident; what the program itself keeps is anonymous.\n");
    memory(args, &folder, &mixed.whole)
}

/// Prints the memory that it takes to index a capture, and to ask the archive that the contest made
/// of it.
fn memory(args: &Args, folder: &Folder, capture: &Capture) -> anyhow::Result<()> {
    println!("| command | peak MB | anonymous MB, at most |\n|---|---:|---:|");
    let line = |what: &str, peak: Peak| {
        // A short run may end before it is looked at.
        let megabytes = |bytes: u64| match bytes {
            0 => "-".to_owned(),
            bytes => format!("{:.1}", bytes as f64 / 1e6),
        };
        println!("| {what} | {} | {} |", megabytes(peak.resident), megabytes(peak.anonymous));
    };
    let scratch = folder.scratch();
    let mut index = Command::new(&args.tapdex);
    index.args(["index", "--quiet", "-o"]).arg(scratch.path()).arg(&capture.path);
    line("`tapdex index`, all cores", process::peak(&mut index)?);
    drop(scratch);

    let archive = searching::archive_path(folder, capture);
    let ask = |words: &[&str]| {
        let mut command = Command::new(&args.tapdex);
        command.args(words).arg("-r").arg(&archive).arg(HALF).stdout(Stdio::null());
        command
    };
    let count = process::peak(&mut ask(&["search", "--count"]))?;
    line(&format!("`tapdex search --count '{HALF}'`"), count);
    let extract = process::peak(&mut ask(&["extract", "-w", "/dev/null", "-F", "pcap"]))?;
    line(&format!("`tapdex extract '{HALF}'`"), extract);
    Ok(())
}
