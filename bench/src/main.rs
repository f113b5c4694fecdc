//! `tapdex-bench`: tables of measurements, peers in the same run.

mod archive;
mod ask;
mod beside;
mod build;
mod build_memory;
mod choice;
mod codecs;
mod growth;
mod hipes;
mod imc13;
mod interleave;
mod masc;
mod open;
mod peers;
mod plwah_plus;
mod record;
mod serve;
mod trust;

use clap::{Parser, Subcommand};

/// Measure tapdex: the tables and figures of the papers, other programs and libraries beside.
///
/// Those from imc13 to choice, record, trust and beside print their tables and also write them into
/// docs/results, as Markdown, CSV and SVG; the others print Markdown. Run them from the root of the
/// repository, on a machine that does nothing else.
#[derive(Debug, Parser)]
#[command(name = "tapdex-bench")]
struct Line {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// IMC'13, figures 5 and 6: building an index as the number of values grows, step by step.
    Imc13(imc13::Args),
    /// MASC, tables 2 to 4, section V.C, figures 19 to 35: sizes, the query table, speed.
    Masc(masc::Args),
    /// PLWAH+, figure 2: words and literals against PLWAH.
    PlwahPlus(plwah_plus::Args),
    /// HiPES, table 2 and figures 1 to 3: speed and ratio by scenario and by width.
    Hipes(hipes::Args),
    /// Building, sizes and set algebra beside croaring and roaring; searching beside tcpdump,
    /// tshark and DuckDB.
    Peers(peers::Args),
    /// Indexing and searching as the archive grows from 1 to 200 million packets.
    Growth(growth::Args),
    /// Which form or codec the columns of an index should have, and whether `auto` chooses well.
    Choice(choice::Args),
    /// All of the above with their defaults, one after the other: takes hours and 60 GB.
    All,
    /// Recording packets from a cable of its own, beside tcpdump and dumpcap; needs root.
    Record(record::Args),
    /// What checksums of the packets cost, and long lists of addresses, beside an older tapdex and
    /// tcpdump.
    Trust(trust::Args),
    /// A server with one client, with a thousand, and with clients that leave.
    Serve(serve::Args),
    /// Two builds of tapdex in turn: indexing, and every question of `archive`.
    Beside(beside::Args),
    /// One filter, answered from an archive, in this process: what `beside` starts.
    Ask(ask::Args),
    /// Sizes, encoding, decoding and set algebra of every codec, beside croaring and roaring.
    Codecs(codecs::Args),
    /// Building the index of one column, beside online WAH, roaring and croaring.
    Build(build::Args),
    /// Building many large columns, one at a time, and the memory that takes.
    BuildMemory(build_memory::Args),
    /// Opening and searching a large index file.
    Open(open::Args),
    /// Indexing captures and searching them, beside tcpdump and tshark.
    Archive(archive::Args),
    /// Sizes if the packets of a conversation were in order of arrival, whatever their direction.
    Interleave(interleave::Args),
}

/// What `all` runs.
const ALL: [&str; 7] = ["imc13", "masc", "plwah-plus", "hipes", "peers", "growth", "choice"];

fn main() -> anyhow::Result<()> {
    run(&Line::parse().command)
}

fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Imc13(args) => imc13::run(args),
        Command::Masc(args) => masc::run(args),
        Command::PlwahPlus(args) => plwah_plus::run(args),
        Command::Hipes(args) => hipes::run(args),
        Command::Peers(args) => peers::run(args),
        Command::Growth(args) => growth::run(args),
        Command::Choice(args) => choice::run(args),
        Command::All => {
            let mut failed = Vec::new();
            for name in ALL {
                eprintln!("== {name}");
                let line = Line::try_parse_from(["tapdex-bench", name])?;
                // The others are worth having all the same.
                if let Err(error) = run(&line.command) {
                    eprintln!("{name}: {error:#}");
                    failed.push(name);
                }
            }
            anyhow::ensure!(failed.is_empty(), "these failed: {}", failed.join(", "));
            Ok(())
        }
        Command::Record(args) => record::run(args),
        Command::Trust(args) => trust::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Beside(args) => beside::run(args),
        Command::Ask(args) => ask::run(args),
        Command::Codecs(args) => codecs::run(args),
        Command::Build(args) => build::run(args),
        Command::BuildMemory(args) => build_memory::run(args),
        Command::Open(args) => open::run(args),
        Command::Archive(args) => archive::run(args),
        Command::Interleave(args) => interleave::run(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_commands_with_defaults() {
        for name in ALL {
            let line = Line::try_parse_from(["tapdex-bench", name]);
            assert!(line.is_ok(), "{name}: {line:?}");
        }
    }
}
