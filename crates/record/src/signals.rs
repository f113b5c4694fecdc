//! Signals to a recorder: SIGINT and SIGTERM end it, SIGHUP begins another recording.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nix::sys::signal::{SigSet, Signal};

use crate::control::Control;

/// From now on signals are passed to the recorder. A second ending signal makes it hurry, and a
/// third one ends the process in the default way.
///
/// Must be called before there are other threads: threads that are started later leave the signals
/// to the one that waits for them.
pub fn watch(control: &Arc<Control>) -> io::Result<()> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block()?;
    let control = Arc::clone(control);
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        loop {
            match signals.wait() {
                Ok(Signal::SIGHUP) => control.rotate.store(true, Ordering::Relaxed),
                Ok(_) => {
                    if control.hurry.load(Ordering::Relaxed) {
                        std::process::exit(130);
                    }
                    if control.stop.swap(true, Ordering::Relaxed) {
                        control.hurry.store(true, Ordering::Relaxed);
                    }
                }
                Err(_) => return,
            }
        }
    })?;
    Ok(())
}
