//! `tapdex man`: manual pages, from the same definitions as the help.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::CommandFactory;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use tapdex_engine::storage::write_file;

use super::CANNOT_WRITE;

/// Write the manual pages.
///
/// Prints the page of tapdex. With a folder, writes that page and one for each command into it:
/// tapdex.1, tapdex-search.1 and so on. Their text is that of --help.
///
///     tapdex man > tapdex.1
///     tapdex man man1
///     man -l man1/tapdex-search.1
///
/// In /usr/local/share/man/man1, man finds the pages without -l, for all users of the machine.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Folder for the pages; created if it does not exist.
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    // A page on help would only say what each page says.
    let mut command = crate::Cli::command().disable_help_subcommand(true);
    command.build();
    let Some(folder) = &args.folder else {
        return out.write_all(page(&command, None)?.as_bytes()).context(CANNOT_WRITE);
    };
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create folder {}", folder.display()))?;
    for (name, text) in pages(&command, None)? {
        let path = folder.join(format!("{name}.1"));
        write_file(&path, text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The names and texts of the pages of a command and of all below it.
fn pages(command: &clap::Command, parent: Option<&str>) -> anyhow::Result<Vec<(String, String)>> {
    let name = name(command);
    let mut pages = vec![(name.to_owned(), page(command, parent)?)];
    for below in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        pages.extend(self::pages(below, Some(name))?);
    }
    Ok(pages)
}

/// The name of a page, with those of the commands above.
fn name(command: &clap::Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn page(command: &clap::Command, parent: Option<&str>) -> anyhow::Result<String> {
    let man = Man::new(command.clone())
        .title(name(command).to_uppercase())
        // No date. Without the quotes, the version would be shown as the date.
        .date("\"\"")
        .source(concat!("tapdex ", env!("CARGO_PKG_VERSION")))
        .manual("tapdex");
    let mut sections = Sections::default();
    sections.add(|out| man.render_title(out))?;
    sections.add(|out| man.render_name_section(out))?;
    sections.add(|out| man.render_synopsis_section(out))?;
    sections.add(|out| description(command).to_writer(out))?;
    sections.add(|out| man.render_options_section(out))?;
    if command.get_subcommands().any(|command| !command.is_hide_set()) {
        sections.add(|out| man.render_subcommands_section(out))?;
    }
    if let Some(parent) = parent {
        sections.add(|out| see_also(parent).to_writer(out))?;
    }
    let text = String::from_utf8(sections.text).context("a page is no text")?;
    // Not every program reads two of them as a backslash.
    Ok(text.replace(r"\\", r"\e"))
}

/// The parts of a page, each of which starts with the same lines.
#[derive(Default)]
struct Sections {
    text: Vec<u8>,
}

impl Sections {
    fn add(
        &mut self,
        render: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> anyhow::Result<()> {
        let mut section = vec![];
        render(&mut section).context("cannot make a page")?;
        let front = Roff::new().render();
        let again = !self.text.is_empty();
        let body = section.strip_prefix(front.as_bytes()).filter(|_| again);
        self.text.extend_from_slice(body.unwrap_or(&section));
        Ok(())
    }
}

/// The help text. Prose is refilled; indented lines, such as commands, stay as they are.
fn description(command: &clap::Command) -> Roff {
    let help = command.get_long_about().or_else(|| command.get_about());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let mut roff = Roff::new();
    roff.control("SH", ["DESCRIPTION"]);
    let mut example = false;
    for line in help.lines() {
        let shown = line.strip_prefix("    ");
        if shown.is_some() && !example {
            roff.control("RS", ["4"]).control("nf", []);
        } else if shown.is_none() && example {
            roff.control("fi", []).control("RE", []);
        }
        example = shown.is_some();
        match shown.unwrap_or(line) {
            "" => roff.control("PP", []),
            text => roff.text([roman(text)]),
        };
    }
    if example {
        roff.control("fi", []).control("RE", []);
    }
    roff
}

/// Where the reader came from.
fn see_also(parent: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]).text([roman(format!("{parent}(1)"))]);
    roff
}
