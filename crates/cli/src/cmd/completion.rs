//! `tapdex completion`: scripts for shell completion.

use std::io::Write;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use super::CANNOT_WRITE;

/// Print a completion script for a shell.
///
/// With the script, the tab key completes commands, options and their values. For bash with the
/// package bash-completion:
///
///     mkdir -p ~/.local/share/bash-completion/completions
///     tapdex completion bash > ~/.local/share/bash-completion/completions/tapdex
///
/// For fish:
///
///     mkdir -p ~/.config/fish/completions
///     tapdex completion fish > ~/.config/fish/completions/tapdex.fish
///
/// For zsh, with the line fpath=(~/.zfunc $fpath) before compinit in ~/.zshrc:
///
///     mkdir -p ~/.zfunc
///     tapdex completion zsh > ~/.zfunc/_tapdex
///
/// Then start a new shell.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Shell that the script is for.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    // Written to memory first: the generator would panic if the pipe is closed.
    let mut script = vec![];
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "tapdex", &mut script);
    out.write_all(&script).context(CANNOT_WRITE)
}
