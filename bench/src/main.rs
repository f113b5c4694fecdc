//! `tapdex-bench`: tables of measurements, peers in the same run.

mod archive;
mod build;
mod build_memory;
mod codecs;
mod masc;
mod open;

use clap::Parser;

/// Measure tapdex beside other libraries and print the results as Markdown.
#[derive(Debug, Parser)]
enum Command {
    /// Sizes, encoding, decoding and set algebra of every codec, beside croaring and roaring.
    Codecs(codecs::Args),
    /// Building the index of one column, beside online WAH, roaring and croaring.
    Build(build::Args),
    /// Building many large columns, one at a time, and the memory that takes.
    BuildMemory(build_memory::Args),
    /// Opening and searching a large index file.
    Open(open::Args),
    /// Sizes in the MASC paper's setting and in ours, for every codec: its tables 2 to 4.
    Masc(masc::Args),
    /// Indexing captures and searching them, beside tcpdump and tshark.
    Archive(archive::Args),
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Codecs(args) => codecs::run(&args),
        Command::Build(args) => build::run(&args),
        Command::BuildMemory(args) => build_memory::run(&args),
        Command::Open(args) => open::run(&args),
        Command::Masc(args) => masc::run(&args),
        Command::Archive(args) => archive::run(&args),
    }
}
