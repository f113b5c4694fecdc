//! `tapdex-bench`: tables of measurements, peers in the same run.

mod codecs;

use clap::Parser;

/// Measure tapdex beside other libraries and print the results as Markdown.
#[derive(Debug, Parser)]
enum Command {
    /// Sizes, encoding, decoding and set algebra of every codec, beside croaring and roaring.
    Codecs(codecs::Args),
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Codecs(args) => codecs::run(&args),
    }
}
