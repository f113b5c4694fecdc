//! `tapdex extcap`: an archive as an interface of Wireshark.

mod fifo;
mod install;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use tapdex_answers::ask::Ask;
use tapdex_answers::deliver::{self, Delivery};
use tapdex_answers::question::{Question, check_times};
use tapdex_client::ClientError;
use tapdex_client::nodes::{Nodes, Options};
use tapdex_engine::query::filter::Filter;
use tapdex_engine::query::{Control, Query};

use super::ask::{answered, line, notes, now_ns};
use super::missing::{self, AllowArg};
use super::{filter_file, interrupt, shown, shown_packets};
use fifo::Fifo;

/// The name of the interface.
const INTERFACE: &str = "tapdex";

/// Be an interface of Wireshark: the packets of an archive.
///
/// Once it is installed for a user, Wireshark and tshark have an interface tapdex. Its options are
/// the archive (a folder, or the address of a server), a filter, times, and whether to go on with
/// packets as they are recorded:
///
///     tapdex extcap --install --dir extcap --archive archive
///     tapdex extcap --extcap-interfaces
///     tapdex extcap --uninstall --dir extcap
///
/// Without --dir, it goes where tshark says that extcaps of the user belong. What is installed is a
/// small script that starts this tapdex, wherever it is. --archive is what the dialog starts with.
///
/// tshark takes the options as preferences, and after -f another filter:
///
///     tshark -i tapdex -o extcap.tapdex.archive:/data -o extcap.tapdex.from:-15m -f 'port 53'
///
/// Filters are those of tapdex search, in the languages of tcpdump and of Wireshark. If both are
/// given, packets must match both. If packets may be missing from the requested times, Wireshark
/// shows that at the end. The other options are those of Wireshark's protocol for extcaps.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Install the interface for this user.
    #[arg(long, conflicts_with = "uninstall")]
    install: bool,
    /// Remove it.
    #[arg(long)]
    uninstall: bool,
    /// Folder for extcaps, if it is not the one that tshark names.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Archive whose packets are read: a folder, or the address of a server.
    #[arg(short = 'r', long, value_name = "PLACE", env = "TAPDEX_ARCHIVE")]
    archive: Option<OsString>,
    /// Filter, as in tapdex search.
    #[arg(long, value_name = "FILTER", allow_hyphen_values = true)]
    filter: Option<String>,
    /// Only packets from this time on, as in tapdex search.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<String>,
    /// Only packets from before this time.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    to: Option<String>,
    /// Then continue with packets as they are recorded.
    #[arg(long)]
    follow: bool,
    /// Write packets to --fifo.
    #[arg(long)]
    capture: bool,
    /// FIFO that Wireshark reads.
    #[arg(long, value_name = "FIFO")]
    fifo: Option<PathBuf>,
    /// Print the interfaces.
    #[arg(long)]
    extcap_interfaces: bool,
    /// Print the link types of the interface.
    #[arg(long)]
    extcap_dlts: bool,
    /// Print the options of the interface.
    #[arg(long)]
    extcap_config: bool,
    /// Interface that is meant.
    #[arg(long, value_name = "NAME")]
    extcap_interface: Option<String>,
    /// Another filter; without --capture, print what is wrong with it.
    #[arg(long, value_name = "FILTER", allow_hyphen_values = true)]
    extcap_capture_filter: Option<String>,
    /// Version of Wireshark.
    #[arg(long, value_name = "VERSION")]
    extcap_version: Option<String>,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.install {
        let archive = args.archive().map(|_| args.place()).transpose()?;
        return install::install(args.dir.as_deref(), archive.as_deref());
    }
    if args.uninstall {
        return install::uninstall(args.dir.as_deref());
    }
    if args.extcap_interfaces {
        let version = env!("CARGO_PKG_VERSION");
        line(out, format_args!("extcap {{version={version}}}{{display=tapdex}}"))?;
        return line(
            out,
            format_args!("interface {{value={INTERFACE}}}{{display=Packet archive}}"),
        );
    }
    let Some(interface) = &args.extcap_interface else {
        bail!("this is for Wireshark; tapdex extcap --install makes it an interface there");
    };
    let name = shown(interface.as_bytes());
    ensure!(interface == INTERFACE, "there is no interface {name}, only {INTERFACE}");
    if args.extcap_dlts {
        // What packets really are, a pcapng file says by itself.
        line(out, format_args!("dlt {{number=1}}{{name=EN10MB}}{{display=Ethernet}}"))
    } else if args.extcap_config {
        config(args, out)
    } else if args.capture {
        capture(args)
    } else if let Some(text) = &args.extcap_capture_filter {
        let question = Question { q: text.clone(), ..Question::default() };
        match question.filter(now_ns()) {
            Ok(_) => Ok(()),
            Err(error) => line(out, format_args!("{error}")),
        }
    } else {
        bail!("expected --capture, --extcap-dlts, --extcap-config or --extcap-capture-filter");
    }
}

/// Wireshark sends options that were left empty, too.
fn given(text: Option<&String>) -> Option<&str> {
    text.map(|text| text.trim()).filter(|text| !text.is_empty())
}

impl Args {
    fn archive(&self) -> Option<&OsString> {
        self.archive.as_ref().filter(|archive| !archive.is_empty())
    }

    /// The folder of the archive, or the address of a server.
    fn place(&self) -> anyhow::Result<PathBuf> {
        let archive = self.archive();
        let hint = "which archive? Give its folder, or the address of a server, as the option \
                    Archive";
        Ok(PathBuf::from(archive.context(hint)?))
    }

    fn query(&self) -> anyhow::Result<Query> {
        let now = now_ns();
        let filters = [given(self.filter.as_ref()), given(self.extcap_capture_filter.as_ref())];
        let mut filter = None::<Filter>;
        for text in filters.into_iter().flatten() {
            let parsed = filter_file::parse(text, None, now)?;
            filter = Some(match filter {
                None => parsed,
                Some(other) => other.and(&parsed).context("the filter and the capture filter")?,
            });
        }
        let filter = match filter {
            Some(filter) => filter,
            None => filter_file::parse("", None, now)?,
        };
        let (from, to) = (self.from.clone(), self.to.clone());
        let times = Question { from, to, ..Question::default() }.times(now)?;
        let query = Query::new(filter, times);
        check_times(&query)?;
        Ok(query)
    }
}

/// The options that Wireshark has in its dialog, and tshark as preferences.
fn config(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    // A sentence ends at a brace, and there is no way to write one.
    let is_sayable = |text: &str| !text.contains(['{', '}']) && !text.contains(char::is_control);
    let archive = args.archive().and_then(|archive| archive.to_str()).filter(|a| is_sayable(a));
    let archive = archive.map(|archive| format!("{{default={archive}}}")).unwrap_or_default();
    for (number, (call, display, kind, about, more)) in [
        (
            "archive",
            "Archive",
            "string",
            "Folder of the archive",
            format!("{archive}{{required=true}}"),
        ),
        (
            "filter",
            "Filter",
            "string",
            "As in tcpdump or Wireshark; empty for all packets",
            String::new(),
        ),
        (
            "from",
            "From",
            "string",
            "First time: 2026-01-02T03:04:05Z, -15m; empty for any",
            String::new(),
        ),
        ("to", "To", "string", "Time that packets are from before; empty for any", String::new()),
        (
            "follow",
            "Follow live",
            "boolflag",
            "Go on with packets as they are recorded",
            "{default=false}".to_owned(),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        line(
            out,
            format_args!(
                "arg {{number={number}}}{{call=--{call}}}{{display={display}}}{{type={kind}}}\
                 {{tooltip={about}}}{more}"
            ),
        )?;
    }
    Ok(())
}

/// Writes packets until there are no more, or until Wireshark wants no more.
fn capture(args: &Args) -> anyhow::Result<()> {
    let path = args.fifo.as_ref().context("--capture needs --fifo")?;
    // Everything that may be wrong is found out before Wireshark starts to show packets.
    let query = args.query()?;
    let options = Options { file: shown_packets, ..Options::default() };
    let nodes = answered(Nodes::open(&[args.place()?], &options))?;
    let control = Control::default();
    let stop = control.clone();
    interrupt::handle(move || {
        if stop.is_cancelled() {
            interrupt::end();
        }
        stop.cancel();
    });
    let Some(target) = Fifo::open(path, &control)? else { return Ok(()) };
    let delivery = Delivery { follow: args.follow, ..Delivery::default() };
    let stop = || control.is_cancelled();
    let outcome = match nodes.archives().next() {
        Some(archive) => {
            let ask = Ask::new(archive, &query).with_control(&control);
            deliver::capture(&ask, &delivery, target, &stop).map_err(ClientError::from)
        }
        None => nodes.ask(&query).with_control(&control).capture(&delivery, target, &stop),
    };
    if control.is_cancelled() {
        // Wireshark was told to stop, and knows it.
        return Ok(());
    }
    let answer = answered(outcome)?;
    if answer.value.packets == 0 {
        notes(&answer.notes);
    }
    missing::report(&answer.incomplete, AllowArg::default())
}
