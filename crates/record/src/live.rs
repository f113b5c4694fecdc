//! What a running recorder says of itself, for those who ask in the same process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::lock;
use crate::metrics::Histogram;
use crate::status::Status;

/// The last status of a recorder.
#[derive(Debug, Default)]
pub struct Live {
    status: Mutex<Option<Status>>,
    build_seconds: OnceLock<Arc<Histogram>>,
    is_ready: AtomicBool,
}

impl Live {
    /// How long indexing takes is counted here.
    pub fn count(&self, build_seconds: Arc<Histogram>) {
        // There is one recorder.
        let _ = self.build_seconds.set(build_seconds);
    }

    /// Takes the next status.
    pub fn set(&self, status: &Status) {
        // A recorder without disk or interfaces is alive but not ready.
        let is_up = status.sources.iter().any(|source| source.up);
        self.is_ready.store(is_up && !status.paused, Ordering::Relaxed);
        *lock(&self.status) = Some(status.clone());
    }

    /// The last status, if there was one yet.
    pub fn status(&self) -> Option<Status> {
        lock(&self.status).clone()
    }

    /// Whether packets are being recorded.
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed)
    }

    /// All of it for Prometheus.
    pub fn exposition(&self) -> String {
        let seconds = self.build_seconds.get();
        let text = |seconds: &Arc<Histogram>| self.status().unwrap_or_default().exposition(seconds);
        seconds.map_or(String::new(), text)
    }
}
