//! `tapdex completion`: what a shell needs to complete commands and options.

use std::io::Write;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use super::CANNOT_WRITE;

/// Print a script that completes tapdex in a shell.
///
/// With it the shell completes commands, options and their values on the tab key. bash, with the
/// package bash-completion, looks for it here:
///
///     mkdir -p ~/.local/share/bash-completion/completions
///     tapdex completion bash > ~/.local/share/bash-completion/completions/tapdex
///
/// fish here:
///
///     mkdir -p ~/.config/fish/completions
///     tapdex completion fish > ~/.config/fish/completions/tapdex.fish
///
/// zsh in the folders of fpath, under the name _tapdex; ~/.zshrc puts one there with the line
/// fpath=(~/.zfunc $fpath), before it calls compinit:
///
///     mkdir -p ~/.zfunc
///     tapdex completion zsh > ~/.zfunc/_tapdex
///
/// A shell that was started before has to be started again.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Shell that the script is for.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    // By way of memory: it would not survive a pipe that is closed.
    let mut script = vec![];
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "tapdex", &mut script);
    out.write_all(&script).context(CANNOT_WRITE)
}
