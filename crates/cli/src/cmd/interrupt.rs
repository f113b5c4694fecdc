//! What Ctrl-C does, also to a file that is not complete yet. SIGTERM and SIGHUP have the same
//! effect.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::sys::signal::{SigSet, Signal};

use super::progress;

/// The file that must not stay if the process is told to stop.
static PENDING: Mutex<Option<PathBuf>> = Mutex::new(None);

fn pending() -> std::sync::MutexGuard<'static, Option<PathBuf>> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What Ctrl-C calls.
type Handler = Box<dyn FnMut() + Send>;

/// What it calls in the place of what it was told first.
static REPLACED: Mutex<Option<Handler>> = Mutex::new(None);

fn replaced() -> std::sync::MutexGuard<'static, Option<Handler>> {
    REPLACED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on Ctrl-C calls this, unless it calls something else already. Without a handler it ends
/// the process.
pub(super) fn handle(mut handler: impl FnMut() + Send + 'static) {
    if is_hangup_ignored() {
        // Ignored by nohup, and this has to stay so: a blocked signal does not reach a handler.
        let mut hangup = SigSet::empty();
        hangup.add(Signal::SIGHUP);
        let _ = hangup.thread_block();
    }
    drop(ctrlc::set_handler(move || match replaced().as_mut() {
        Some(other) => other(),
        None => handler(),
    }));
}

/// From now on Ctrl-C calls this, whatever it called before.
pub(super) fn replace(handler: impl FnMut() + Send + 'static) {
    *replaced() = Some(Box::new(handler));
    watch();
}

/// Whether the process was started so that it outlives the terminal.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The lowest bit is signal 1.
    ignored.is_some_and(|mask| mask & 1 == 1)
}

/// From now on Ctrl-C removes the pending file, if there is one, before the process ends.
pub(super) fn watch() {
    handle(|| exit());
}

/// Removes the pending file, if there is one, and ends the process.
pub(super) fn exit() -> ! {
    // Locked until the end, so that no file is created in the meantime.
    let pending = pending();
    if let Some(path) = pending.as_deref() {
        drop(std::fs::remove_file(path));
    }
    end()
}

/// Ends the process and leaves no progress line on the terminal.
pub(super) fn end() -> ! {
    progress::clear();
    std::process::exit(crate::EXIT_INTERRUPTED.into());
}

/// A file that Ctrl-C removes as long as this lives.
#[derive(Debug)]
pub(super) struct Pending;

impl Pending {
    /// Creates the file. Ctrl-C either comes before that, or finds the file and removes it.
    pub(super) fn make<T, E>(
        path: &Path,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<(Self, T), E> {
        let mut pending = pending();
        let made = make()?;
        *pending = Some(path.to_owned());
        Ok((Self, made))
    }

    /// Makes it again, in the same way.
    pub(super) fn make_again<T>(&self, make: impl FnOnce() -> T) -> T {
        let _pending = pending();
        make()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        *pending() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_stopped_between_a_file_and_its_name_here() {
        let path = Path::new("never-made");
        let made = Pending::make(path, || {
            assert!(PENDING.try_lock().is_err());
            Ok::<_, std::io::Error>(7)
        });
        let (file, seven) = made.unwrap();
        assert_eq!((pending().as_deref(), seven), (Some(path), 7));
        file.make_again(|| assert!(PENDING.try_lock().is_err()));
        drop(file);
        assert_eq!(*pending(), None);
        let failed = Pending::make(path, || Err::<(), _>(std::io::Error::other("full")));
        assert!(failed.is_err());
        drop(failed);
        assert_eq!(*pending(), None);
    }
}
