//! The `tapdex` command: reads the arguments, runs one subcommand, and turns its end into an exit
//! code.

#![forbid(unsafe_code)]
#![allow(rustdoc::invalid_rust_codeblocks, reason = "the examples in --help are shell commands")]

mod cmd;

use std::io::{self, BufReader, BufWriter, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use tapdex_engine::IndexError;

/// Bad usage or bad input: trying again with the same words will not help.
const EXIT_USAGE: u8 = 2;
/// A file is not what was written: damaged, cut off, or another kind of file.
const EXIT_DAMAGED: u8 = 3;
/// Something could not be read or written.
const EXIT_IO: u8 = 4;

/// Large enough that millions of short lines cost few system calls.
const BUFFER_BYTES: usize = 1 << 16;

/// The index on a network tap: search days of packets in milliseconds.
///
/// For now there is its index on tables of numbers, and there are the codecs of its bitmaps, to try
/// out, look at and compare. Recording and searching packets are to come.
///
///     printf 'src,port\n10.0.0.1,443\n10.0.0.2,53\n' > flows.csv
///     tapdex index-file build flows.csv -o flows.tdx --force
///     tapdex index-file get flows.tdx port=53
///     tapdex codec sample --density 0.01 | tapdex codec stats
///     tapdex help codec encode
///
/// Exits with 0 when done, 2 after bad usage or bad input, 3 when a file is damaged, 4 when
/// something could not be read or written, and 130 after Ctrl-C. A reader that stops early, such as
/// head, is no error.
#[derive(Debug, clap::Parser)]
#[command(name = "tapdex", version, verbatim_doc_comment)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Codec(cmd::codec::Args),
    IndexFile(cmd::index_file::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let mut input = BufReader::with_capacity(BUFFER_BYTES, io::stdin().lock());
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
    let result = match &cli.command {
        Command::Codec(args) => cmd::codec::run(args, &mut input, &mut out),
        Command::IndexFile(args) => cmd::index_file::run(args, &mut input, &mut out),
    };
    // Also after an error: what was found until then is worth having.
    let flushed = out.flush().context(cmd::CANNOT_WRITE);
    match result.and(flushed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error),
    }
}

/// Prints what clap has to say: help that was asked for, or what is wrong with the arguments.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match error.print() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => report(&anyhow::Error::new(error).context(cmd::CANNOT_WRITE)),
        };
    }
    let text = error.render().to_string();
    match text.strip_prefix("error: ") {
        Some(text) => cmd::note(text.trim_end()),
        // The help, for a command that lacks a subcommand.
        None => drop(write!(io::stderr(), "{text}")),
    }
    ExitCode::from(EXIT_USAGE)
}

/// Prints an error and picks its exit code.
fn report(error: &anyhow::Error) -> ExitCode {
    let io_error = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    if io_error.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    cmd::note(&format!("{error:#}"));
    ExitCode::from(if io_error.is_some() { EXIT_IO } else { exit_code(error) })
}

/// The exit code of an error in which the system had no part.
fn exit_code(error: &anyhow::Error) -> u8 {
    if error.is::<cmd::Damaged>() {
        return EXIT_DAMAGED;
    }
    match error.chain().find_map(|cause| cause.downcast_ref::<IndexError>()) {
        None => EXIT_USAGE,
        Some(IndexError::Busy { .. }) => EXIT_IO,
        Some(
            IndexError::UnknownField { .. }
            | IndexError::TooLarge { .. }
            | IndexError::BadSchema { .. }
            | IndexError::BadInput { .. }
            | IndexError::WrongCodec { .. }
            | IndexError::Build(_),
        ) => EXIT_USAGE,
        Some(_) => EXIT_DAMAGED,
    }
}
