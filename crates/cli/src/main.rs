//! The `tapdex` command: parses the arguments, runs a subcommand, and turns the result into an exit
//! code.

#![forbid(unsafe_code)]
#![allow(rustdoc::invalid_rust_codeblocks, reason = "the examples in --help are shell commands")]

mod cmd;

use std::io::{self, BufReader, BufWriter, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use cmd::output::Text;
use cmd::progress::Beside;
use tapdex_client::{ClientError, HttpError};
use tapdex_engine::IndexError;
use tapdex_engine::archive::ArchiveError;
use tapdex_gpu::device::DeviceError;
use tapdex_record::privileges::PrivilegeError;
use tapdex_record::recorder::RecordError;
use tapdex_record::replay::SendError;
use tapdex_record::source::SourceError;
use tapdex_server::audit::AuditError;
use tapdex_server::door::tokens::TokenError;

/// No packet matches, and the user asked to be told.
const EXIT_NOTHING: u8 = 1;
/// Bad usage, bad input, or a requested GPU that does not exist: trying again will not help.
const EXIT_USAGE: u8 = 2;
/// A file is damaged, truncated, or of another kind.
const EXIT_DAMAGED: u8 = 3;
/// Something could not be read or written, or a GPU failed.
const EXIT_IO: u8 = 4;
/// No permission to capture or to send, or to ask a server.
const EXIT_PERMISSION: u8 = 5;
/// Ctrl-C, as in shells: 128 plus the number of the signal.
const EXIT_INTERRUPTED: u8 = 130;

/// Large enough that millions of short lines cost few system calls.
const BUFFER_BYTES: usize = 1 << 16;

/// The index on a network tap: search days of packets in milliseconds.
///
/// index adds captures to an archive: a folder with an index of each capture. search prints the
/// packets that match a tcpdump or Wireshark filter; extract writes them to a new capture. The
/// index answers most filters, so only matching packets are read. record captures packets from an
/// interface; they can be searched seconds later:
///
///     tapdex record -i eth0
///
/// An example with generated traffic:
///
///     tapdex gen -c 20000 -w a.pcap --force
///     tapdex index --quiet a.pcap
///     tapdex search --count 'tcp port 443 or (vlan and tcp port 443)'
///     tapdex extract 'udp.port == 53' -w dns.pcapng --force
///     tapdex top src 'tcp.flags.syn == 1'
///     tapdex help search
///
/// tapdex demo compares it with tcpdump. index-file and codec expose the lower layers: indexes of
/// number tables, and the bitmap codecs.
///
///     printf 'src,port\n10.0.0.1,443\n10.0.0.2,53\n' > flows.csv
///     tapdex index-file build flows.csv -o flows.tdx --force
///     tapdex index-file get flows.tdx port=53
///     tapdex codec sample --density 0.01 | tapdex codec stats
///
/// Exit codes: 0 success; 1 no packet matches (with --quiet or --fail-if-empty); 2 bad usage, bad
/// input, or a requested GPU is not available; 3 a file is damaged or an answer is incomplete; 4 an
/// I/O error, or a GPU failed; 5 no permission to capture or send packets, or to ask a server; 130
/// Ctrl-C. Ctrl-C is the normal way to end record, serve and --follow, which then exit with 0. A
/// reader that closes the pipe early, such as head, is not an error.
#[derive(Debug, clap::Parser)]
#[command(name = "tapdex", version, verbatim_doc_comment)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Index(cmd::index::Args),
    Record(cmd::record::Args),
    Search(cmd::search::Args),
    Extract(cmd::extract::Args),
    Top(cmd::top::Args),
    Hist(cmd::hist::Args),
    Flows(cmd::flows::Args),
    Info(cmd::info::Args),
    Explain(cmd::explain::Args),
    Verify(cmd::verify::Args),
    Repair(cmd::repair::Args),
    Upgrade(cmd::upgrade::Args),
    Serve(cmd::serve::Args),
    Extcap(cmd::extcap::Args),
    Replay(cmd::replay::Args),
    Token(cmd::token::Args),
    Audit(cmd::audit::Args),
    Gen(cmd::r#gen::Args),
    Demo(cmd::demo::Args),
    IndexFile(cmd::index_file::Args),
    Codec(cmd::codec::Args),
    Bench(cmd::bench::Args),
    Man(cmd::man::Args),
    Completion(cmd::completion::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let input = || BufReader::with_capacity(BUFFER_BYTES, io::stdin().lock());
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, Beside::new(io::stdout().lock()));
    let result = match &cli.command {
        Command::Index(args) => cmd::index::run(args),
        Command::Record(args) => cmd::record::run(args, &mut Text::new(&mut out)),
        Command::Search(args) => cmd::search::run(args, &mut Text::new(&mut out)),
        Command::Extract(args) => cmd::extract::run(args, &mut out),
        Command::Top(args) => cmd::top::run(args, &mut Text::new(&mut out)),
        Command::Hist(args) => cmd::hist::run(args, &mut Text::new(&mut out)),
        Command::Flows(args) => cmd::flows::run(args, &mut Text::new(&mut out)),
        Command::Info(args) => cmd::info::run(args, &mut Text::new(&mut out)),
        Command::Explain(args) => cmd::explain::run(args, &mut Text::new(&mut out)),
        Command::Verify(args) => cmd::verify::run(args, &mut Text::new(&mut out)),
        Command::Repair(args) => cmd::repair::run(args),
        Command::Upgrade(args) => cmd::upgrade::run(args),
        Command::Serve(args) => cmd::serve::run(args, &mut Text::new(&mut out)),
        Command::Extcap(args) => cmd::extcap::run(args, &mut Text::new(&mut out)),
        Command::Replay(args) => cmd::replay::run(args),
        Command::Token(args) => cmd::token::run(args, &mut Text::new(&mut out)),
        Command::Audit(args) => cmd::audit::run(args, &mut Text::new(&mut out)),
        Command::Gen(args) => cmd::r#gen::run(args, &mut out),
        Command::Demo(args) => cmd::demo::run(args, &mut out),
        Command::IndexFile(args) => cmd::index_file::run(args, &mut input(), &mut out),
        Command::Codec(args) => cmd::codec::run(args, &mut input(), &mut out),
        Command::Bench(args) => cmd::bench::run(args, &mut out),
        Command::Man(args) => cmd::man::run(args, &mut out),
        Command::Completion(args) => cmd::completion::run(args, &mut out),
    };
    // Also after an error: keep what was found so far.
    let flushed = out.flush().context(cmd::CANNOT_WRITE);
    match result.and(flushed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error),
    }
}

/// Prints clap's message: the help, or what is wrong with the arguments.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match error.print() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => report(&anyhow::Error::new(error).context(cmd::CANNOT_WRITE)),
        };
    }
    let text = error.render().to_string();
    match text.strip_prefix("error: ") {
        Some(text) => cmd::note_lines(text.trim_end()),
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
    if error.is::<cmd::Interrupted>() {
        return ExitCode::from(EXIT_INTERRUPTED);
    }
    if error.is::<cmd::Nothing>() {
        return ExitCode::from(EXIT_NOTHING);
    }
    if !error.is::<cmd::Logged>() {
        cmd::note(&cmd::chain(error.as_ref()));
    }
    ExitCode::from(if io_error.is_some() { EXIT_IO } else { exit_code(error) })
}

/// The exit code of an error that is not an I/O error.
fn exit_code(error: &anyhow::Error) -> u8 {
    if error.is::<cmd::Damaged>() || error.is::<cmd::Incomplete>() {
        return EXIT_DAMAGED;
    }
    if let Some(error) = error.downcast_ref::<ClientError>() {
        return exit_code_of_client(error);
    }
    if let Some(device) = error.chain().find_map(|cause| cause.downcast_ref::<DeviceError>()) {
        return if matches!(device, DeviceError::Missing(_)) { EXIT_USAGE } else { EXIT_IO };
    }
    let send = error.chain().find_map(|cause| cause.downcast_ref::<SendError>());
    if send.is_some_and(SendError::is_permission) {
        return EXIT_PERMISSION;
    }
    match error.downcast_ref::<SourceError>() {
        Some(SourceError::Permission { .. }) => return EXIT_PERMISSION,
        Some(SourceError::Interface { .. }) => return EXIT_IO,
        _ => {}
    }
    if let Some(RecordError::Busy { .. }) = error.downcast_ref() {
        return EXIT_IO;
    }
    if let Some(PrivilegeError::NotRoot { .. }) = error.downcast_ref() {
        return EXIT_PERMISSION;
    }
    if let Some(TokenError::Form { .. } | TokenError::Entry { .. } | TokenError::Gone { .. }) =
        error.downcast_ref()
    {
        return EXIT_DAMAGED;
    }
    if let Some(AuditError::Changed { .. }) = error.downcast_ref() {
        return EXIT_DAMAGED;
    }
    let archive = error.chain().find_map(|cause| cause.downcast_ref::<ArchiveError>());
    match error.chain().find_map(|cause| cause.downcast_ref::<IndexError>()) {
        None => match archive {
            Some(
                ArchiveError::BadNote { .. }
                | ArchiveError::BadPackets { .. }
                | ArchiveError::Unread(_)
                | ArchiveError::Capture { .. },
            ) => EXIT_DAMAGED,
            _ => EXIT_USAGE,
        },
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

/// The exit code if servers, or several places, have not answered.
fn exit_code_of_client(error: &ClientError) -> u8 {
    match error {
        ClientError::Nobody(nobody) => {
            nobody.0.first().map_or(EXIT_USAGE, |(_, error)| exit_code_of_client(error))
        }
        ClientError::Lying(_) => EXIT_DAMAGED,
        ClientError::Thread(_) | ClientError::Target(_) => EXIT_IO,
        ClientError::Server { error, .. } => match &**error {
            HttpError::Token { .. } | HttpError::Forbidden { .. } => EXIT_PERMISSION,
            HttpError::Connect(_)
            | HttpError::Busy { .. }
            | HttpError::Status { .. }
            | HttpError::Stalled(_)
            | HttpError::Broken(_)
            | HttpError::Failed(_) => EXIT_IO,
            HttpError::Damaged(_) | HttpError::Capture(_) | HttpError::Hash { .. } => EXIT_DAMAGED,
            _ => EXIT_USAGE,
        },
        _ => EXIT_USAGE,
    }
}
