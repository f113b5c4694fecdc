//! `tapdex index-file`: the index on tables of numbers, from CSV or bytes to answers.

mod build;
mod condition;
mod csv;
mod field;
mod get;
mod info;
mod raw;
mod smallest;
mod store;
mod value;
mod verify;

use std::io::{BufRead, Write};

/// Index tables of numbers and search them.
///
/// Works with any table, so you can try the index without packets:
///
///     printf 'src,port\n10.0.0.1,443\n10.0.0.2,53\n10.0.0.1,53\n' > flows.csv
///     tapdex index-file build flows.csv -o flows.tdx --force
///     tapdex index-file info flows.tdx
///     tapdex index-file verify flows.tdx
///     tapdex index-file get flows.tdx src=10.0.0.1 port=53
///
/// docs/index-file.md explains the commands, docs/format-1.md every byte of the file.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Build(Box<build::Args>),
    Info(info::Args),
    Verify(verify::Args),
    Get(get::Args),
}

/// Runs the command; `out` is standard output.
pub(crate) fn run(args: &Args, input: &mut dyn BufRead, out: &mut dyn Write) -> anyhow::Result<()> {
    match &args.command {
        Command::Build(args) => build::run(args, &mut &mut *input),
        Command::Info(args) => info::run(args, out),
        Command::Verify(args) => verify::run(args, out),
        Command::Get(args) => get::run(args, out),
    }
}
