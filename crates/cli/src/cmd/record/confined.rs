//! Privileges that a recorder gives up before the first packet.

use std::io::Write;
use std::path::Path;

use tapdex_engine::archive::Archive;
use tapdex_record::privileges::{Keep, Standing, shed};
use tapdex_record::sandbox::{self, Entered, Needs, Prepared};

use super::super::ask::line;
use super::super::{Incomplete, note};
use super::Settings;

/// Why there is no sandbox with a GPU.
const GPU: &str = "the GPU driver needs more than it allows";

/// Drops root's privileges, except what is needed to reopen an interface.
pub(super) fn give_up_privileges(settings: &Settings) -> anyhow::Result<()> {
    let keep = match settings.has_interface() {
        true => Keep::Capture,
        false => Keep::Nothing,
    };
    match &settings.user {
        Some(account) => account.drop_to(keep)?,
        None if settings.sandbox => shed(keep)?,
        None => {}
    }
    Ok(())
}

/// Enters the sandbox and reports the parts that do not hold.
pub(super) fn enter(settings: &Settings, state: Option<&Path>, with_gpu: bool, quiet: bool) {
    if !settings.sandbox {
        // Not even --quiet hides it.
        tracing::warn!(
            "WARNING: the sandbox is off: a malicious packet that takes over the recorder gets all \
             rights of its user"
        );
        return;
    }
    if with_gpu {
        tracing::warn!("the sandbox is off: {GPU}");
        return;
    }
    let Entered { seccomp, landlock } = sandbox::enter(&needs(settings, state));
    for (name, layer) in [("seccomp", seccomp), ("landlock", landlock)] {
        if !layer.holds && !quiet {
            tracing::warn!(
                layer = name,
                "the sandbox is incomplete, without {name}: {}",
                layer.text
            );
        }
    }
}

fn needs(settings: &Settings, state: Option<&Path>) -> Needs {
    Needs {
        archive: settings.archive.clone(),
        interfaces: settings.has_interface(),
        ports: settings.ports(),
        state: state.map(Path::to_owned),
        resolves: false,
    }
}

/// Enters the sandbox and tries what it should prevent. Returns an error if something does not
/// hold.
pub(super) fn check(settings: &Settings, out: &mut dyn Write) -> anyhow::Result<()> {
    if let Some(account) = &settings.user {
        account.check()?;
    }
    let archive = Archive::open(&settings.archive).ok();
    let prepared = Prepared::new();
    give_up_privileges(settings)?;
    // Before the sandbox makes the file with the names of users unreadable.
    let standing = Standing::of_this_process()?;
    let state = settings.serve.and_then(|_| settings.access.folder().ok());
    let entered = sandbox::enter(&needs(settings, state.as_deref()));
    let mut rows = rows(&standing, &entered);
    for trial in sandbox::try_all(&prepared, archive.as_ref()) {
        let found = if trial.possible { "possible" } else { "refused" };
        rows.push((trial.what, found.to_owned(), trial.holds()));
    }
    let mut wrong = 0;
    for (name, found, holds) in rows {
        wrong += u32::from(!holds);
        let mark = if holds { "ok" } else { "NO" };
        line(out, format_args!("{mark}  {name:<34}{found}"))?;
    }
    out.flush()?;
    if archive.is_none() {
        note(&format!("{} does not exist, so it was not tested", settings.archive.display()));
    }
    match wrong {
        0 => Ok(()),
        1 => Err(Incomplete("1 restriction does not hold".into()).into()),
        n => Err(Incomplete(format!("{n} restrictions do not hold")).into()),
    }
}

/// What the kernel says about the process: a name, what was found, and whether that is right.
fn rows(standing: &Standing, entered: &Entered) -> Vec<(&'static str, String, bool)> {
    let capabilities = match &standing.capabilities[..] {
        [] => "none".to_owned(),
        names => names.join(", "),
    };
    let user = match standing.is_root {
        true => format!("{}; --user gives it up", standing.user),
        false => standing.user.clone(),
    };
    let bounding = match standing.bounding {
        0 => "empty".to_owned(),
        // Only root can empty it.
        n if standing.no_new_privileges => format!("{n}, of no effect without new privileges"),
        n => n.to_string(),
    };
    let no_new = standing.no_new_privileges;
    let is_bound = standing.bounding == 0 || no_new && !standing.is_root;
    vec![
        ("user", user, !standing.is_root),
        ("capabilities", capabilities, true),
        ("bounding set", bounding, is_bound),
        ("new privileges", if no_new { "ruled out" } else { "possible" }.to_owned(), no_new),
        ("seccomp", entered.seccomp.text.clone(), entered.seccomp.holds),
        ("landlock", entered.landlock.text.clone(), entered.landlock.holds),
    ]
}
