//! An archive for a team: who may come in, what they may ask, and what was given to them.
//!
//! [`http`] answers requests, [`listen`] serves connections, and [`lanes`] is where questions wait
//! for their turn. [`jobs`] keeps extracts that take long, [`pcap_over_ip`] sends packets to
//! Wireshark. [`door`] knows tokens and roles, [`tls`] certificates, [`audit`] writes down what
//! happens, and [`state`] is the folder where all of that is kept: these are plain functions, and
//! whoever speaks HTTP calls them.

pub mod audit;
pub mod door;
pub mod http;
pub mod jobs;
pub mod lanes;
pub mod listen;
pub mod pcap_over_ip;
pub mod state;
pub mod tls;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even if a thread panicked while holding it: whoever uses this leaves the value
/// whole at every step.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
