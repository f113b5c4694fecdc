//! A recorder that answers questions about what it records.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use tapdex_engine::archive::Archive;
use tapdex_record::live::Live;
use tapdex_server::http::{App, Source};
use tokio::sync::Notify;

use super::super::serve::Opened;

/// A server beside the recorder; dropping it ends it.
pub(super) struct Serving {
    app: Arc<App>,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Answers about an archive that is recorded into meanwhile. To be called in the sandbox: this
    /// starts threads.
    pub(super) fn start(
        listener: TcpListener,
        opened: Opened,
        archive: Archive,
        recorder: Arc<Live>,
    ) -> anyhow::Result<Self> {
        let address = listener.local_addr().context("cannot listen")?;
        say(&opened, address);
        let answering = opened.answering(Source::Archive(Box::new(archive)), Some(recorder))?;
        let url = answering.url(address);
        tracing::info!(address = %url, "answers at {url}");
        let (app, stop) = (Arc::clone(&answering.app), Arc::new(Notify::new()));
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.context("cannot start threads")?;
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("serve".to_owned()).spawn(move || {
            if let Err(error) = runtime.block_on(answering.serve(listener, stopped.notified())) {
                tracing::warn!("no answers any more: {error:#}");
            }
            // Threads that read packets notice that there is nobody to read them for.
            runtime.shutdown_timeout(Duration::from_secs(1));
        });
        let thread = Some(thread.context("cannot start threads")?);
        Ok(Self { app, stop, thread })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.app.stop();
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // If it panicked, that was shown.
            let _ = thread.join();
        }
    }
}

fn say(opened: &Opened, address: SocketAddr) {
    if let Some(tls) = &opened.tls {
        tracing::info!("fingerprint of the certificate: {}", tls.fingerprint);
    }
    if opened.is_open {
        tracing::info!(
            "everybody on this machine may ask at {address}; tapdex token add closes the door"
        );
    }
}
