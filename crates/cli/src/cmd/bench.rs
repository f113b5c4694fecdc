//! `tapdex bench`: measures this machine.

mod gpu;
mod ingest;

use std::io::Write;

/// Measure the speed of this machine.
///
///     tapdex bench gpu --help
///     tapdex bench ingest --packets 1000000
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Gpu(gpu::Args),
    Ingest(ingest::Args),
}

/// Runs the command; `out` is standard output.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    match &args.command {
        Command::Gpu(args) => gpu::run(args, out),
        Command::Ingest(args) => ingest::run(args, out),
    }
}

/// The processor of this machine, if the system reports it. Virtual machines hide its name, but not
/// its make, family and model.
fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let value = |name: &str| {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        let mut values = fields.filter(|(field, _)| field.trim() == name);
        values.next().map(|(_, value)| value.trim().to_owned())
    };
    let model = [value("vendor_id"), value("cpu family"), value("model")];
    let [make, family, model] = model.map(Option::unwrap_or_default);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Some(format!(
        "{} ({make}, family {family}, model {model}), {cores} cores",
        value("model name")?
    ))
}
