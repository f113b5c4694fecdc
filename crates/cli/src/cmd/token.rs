//! `tapdex token`: who may ask a server.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use tapdex_engine::time::format_time;
use tapdex_record::units::parse_duration;
use tapdex_report::table::{self, Align};
use tapdex_server::door::read_roles;
use tapdex_server::door::tokens::{Key, NewToken, Standing, Token, Tokens};
use tapdex_server::state::{State, StateError};
use tapdex_server::tls::{Fingerprint, certificates};

use super::ask::{line, now_ns};
use super::{CANNOT_WRITE, json, note, shown_path};

/// Add, list and revoke tokens for tapdex serve.
///
/// Whoever has a token may ask the server, in the role that the token was made for: search sees
/// headers and counts, extract also packets, admin also the audit log. roles.toml in the state
/// folder can declare more roles. As long as there are no tokens, a server answers everybody on its
/// own machine, and nobody else:
///
///     tapdex token add --name soc --role search
///     tapdex token list
///     tapdex token revoke soc
///
/// The server notices changes at once. A token is shown when it is made, and never again: the
/// server keeps only its SHA-256.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Add(AddArgs),
    List(ListArgs),
    Revoke(RevokeArgs),
}

/// Where the state of a server is.
#[derive(Debug, clap::Args)]
pub(super) struct StateArg {
    /// State folder of the server [default: ~/.local/state/tapdex].
    #[arg(long, value_name = "DIR", env = "TAPDEX_STATE")]
    state: Option<PathBuf>,
}

impl StateArg {
    /// Where the folder is.
    pub(super) fn path(&self) -> Result<PathBuf, StateError> {
        self.state.clone().map_or_else(State::default_path, Ok)
    }

    /// Opens the folder, which has to be there.
    pub(super) fn open(&self) -> anyhow::Result<State> {
        Ok(State::open(&self.path()?)?)
    }

    /// Opens the folder, or makes it.
    pub(super) fn create(&self) -> anyhow::Result<State> {
        Ok(State::create(&self.path()?)?)
    }
}

/// Add a token, and print it.
///
/// The token goes to standard output, and nothing else does:
///
///     tapdex token add --name soc --role search > soc.token
///     tapdex token add --name glue --role extract --expires never > glue.token
///
/// Clients send it in the header 'Authorization: Bearer TOKEN'. With --certificate, whoever shows
/// that client certificate comes in, and nothing is printed; the server has to ask for client
/// certificates. A name can be used again when its token was revoked or has expired.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
struct AddArgs {
    #[command(flatten)]
    state: StateArg,
    /// Whose token it is; the audit log has this name.
    #[arg(long)]
    name: String,
    /// search, extract, admin, or a role of roles.toml.
    #[arg(long)]
    role: String,
    /// How long it is valid: 12h, 30d, or never.
    #[arg(long, value_name = "TIME", default_value = "90d")]
    expires: String,
    /// Client certificate (PEM) that opens the door in place of a token.
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
}

/// List the tokens.
///
/// Also those that have expired or were revoked: the audit log may have their names.
///
///     tapdex token list
///     tapdex token list --json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
struct ListArgs {
    #[command(flatten)]
    state: StateArg,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

/// Revoke a token, by its id or by its name.
///
/// The server refuses it from the next request on, and ends what it is still being sent:
///
///     tapdex token revoke soc
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
struct RevokeArgs {
    #[command(flatten)]
    state: StateArg,
    /// Id or name of the token.
    #[arg(value_name = "ID|NAME")]
    which: String,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    match &args.command {
        Command::Add(args) => add(args, out),
        Command::List(args) => list(args, out),
        Command::Revoke(args) => revoke(args),
    }
}

fn add(args: &AddArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let now = now_ns();
    let expires_ns = match args.expires.as_str() {
        "never" => None,
        text => {
            let time = parse_duration(text).context("--expires, if it is not never")?;
            let ns = u64::try_from(time.as_nanos()).ok().and_then(|ns| now.checked_add(ns));
            Some(ns.with_context(|| format!("--expires {text} is too long; write never"))?)
        }
    };
    let certificate = args.certificate.as_ref().map(|path| {
        let found = certificates(path)?;
        let leaf = found.first().with_context(|| format!("{} is empty", path.display()))?;
        anyhow::Ok(Fingerprint::of(leaf))
    });
    let certificate = certificate.transpose()?;
    let state = args.state.create()?;
    let roles = read_roles(&state)?;
    ensure!(
        roles.get(&args.role).is_some(),
        "there is no role {:?}; there are {}",
        args.role,
        roles.names().collect::<Vec<_>>().join(", ")
    );
    let new = NewToken { name: &args.name, role: &args.role, certificate, expires_ns };
    let (id, token) = Tokens::add(&state, &new, now)?;
    let until = expires_ns
        .map_or("does not expire".to_owned(), |ns| format!("expires {}", format_time(ns)));
    let (name, role) = (&args.name, &args.role);
    match (&token, certificate) {
        (Some(token), _) => {
            line(out, format_args!("{}", token.text()))?;
            out.flush().context(CANNOT_WRITE)?;
            note(&format!("token {id} of {name}, role {role}, {until}; it is not shown again"));
        }
        (None, Some(fingerprint)) => {
            note(&format!("token {id} of {name}, role {role}, {until}: {fingerprint}"));
        }
        (None, None) => {}
    }
    Ok(())
}

/// What becomes of a token that is presented now.
fn standing(token: &Token, now: u64) -> &'static str {
    match token.standing(now) {
        Standing::Valid => "valid",
        Standing::Expired => "expired",
        Standing::Revoked => "revoked",
    }
}

fn list(args: &ListArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let state = args.state.open()?;
    let (tokens, now) = (Tokens::read(&state)?, now_ns());
    let kind = |token: &Token| match token.key {
        Key::Secret(_) => "token",
        Key::Certificate(_) => "certificate",
    };
    if args.json {
        for token in tokens.iter() {
            let fingerprint = match token.key {
                Key::Secret(_) => None,
                Key::Certificate(fingerprint) => Some(fingerprint.to_string()),
            };
            let line = json::Token {
                id: token.id.to_string(),
                name: &token.name,
                role: &token.role,
                kind: kind(token),
                standing: standing(token, now),
                created: json::Time(token.created_ns),
                expires: token.expires_ns.map(json::Time),
                revoked: token.revoked_ns.map(json::Time),
                certificate: fingerprint,
            };
            json::line(out, &line)?;
        }
        return out.flush().context(CANNOT_WRITE);
    }
    if tokens.is_empty() {
        note(&format!("no tokens in {}", shown_path(state.path())));
        return Ok(());
    }
    let headings = ["id", "name", "role", "kind", "standing", "created", "expires", "revoked"];
    let headings = headings.map(|heading| (heading, Align::Left));
    let time = |ns: Option<u64>, none: &str| ns.map_or(none.to_owned(), format_time);
    let rows = || {
        tokens.iter().map(|token| {
            vec![
                token.id.to_string(),
                token.name.clone(),
                token.role.clone(),
                kind(token).to_owned(),
                standing(token, now).to_owned(),
                format_time(token.created_ns),
                time(token.expires_ns, "never"),
                time(token.revoked_ns, ""),
            ]
        })
    };
    table::write(out, &headings, rows).context(CANNOT_WRITE)
}

fn revoke(args: &RevokeArgs) -> anyhow::Result<()> {
    let token = Tokens::revoke(&args.state.open()?, &args.which, now_ns())?;
    note(&format!("token {} of {} is revoked", token.id, token.name));
    Ok(())
}
