//! `tapdex bench`: measures this machine.

mod gpu;

use std::io::Write;

/// Measure the speed of this machine.
///
///     tapdex bench gpu --help
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Gpu(gpu::Args),
}

/// Runs the command; `out` is standard output.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    match &args.command {
        Command::Gpu(args) => gpu::run(args, out),
    }
}
