//! Keeps a list in the archive of what is missing from it, and why.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use tapdex_engine::archive::{Archive, Covered, Loss};

use crate::clock::Clock;
use crate::counters::SourceCounters;
use crate::keeper::Keeper;
use crate::lock;
use crate::messages::{Message, Messages};

/// Packets that were removed, and packets that were never recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ledger<'s, 'a> {
    pub(crate) archive: &'a Archive,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) keeper: &'s Mutex<Keeper<'a>>,
    pub(crate) sources: &'s [Arc<SourceCounters>],
    pub(crate) messages: &'s Messages<'a>,
}

impl Ledger<'_, '_> {
    /// Removes recordings that are too old, and writes that down.
    pub(crate) fn expire(&self) {
        while lock(self.keeper).expire_one() {}
        self.removed();
    }

    /// Writes down what was removed, and passes on the keeper's messages about it.
    pub(crate) fn removed(&self) {
        let mut keeper = lock(self.keeper);
        keeper.remember();
        let said = keeper.says();
        drop(keeper);
        said.into_iter().for_each(|message| self.messages.say(message));
    }

    /// Writes down when sources were gone.
    pub(crate) fn outages(&self) {
        for source in self.sources {
            for (from_ns, to_ns) in source.take_outages() {
                let outage = Covered { from_ns: from_ns.min(to_ns), to_ns };
                if let Err(error) = self.archive.remember_outage(&source.name, outage) {
                    let message = Message::warn("when a source was gone cannot be written down: ");
                    self.messages.say_once(message.interface(&source.name).because(&error));
                }
            }
        }
    }

    /// Writes down losses that no recording reports, once the last one is complete.
    pub(crate) fn close(&self, started_ns: u64) {
        self.removed();
        self.sources.iter().for_each(|source| source.is_back(true, self.clock.now_ns()));
        self.outages();
        for source in self.sources {
            let untold = source.lost().saturating_sub(source.lost_told.load(Ordering::Relaxed));
            let span = source.take_lost_span();
            let (from_ns, to_ns) = span.unwrap_or((started_ns, self.clock.now_ns()));
            if untold > 0
                && let Err(error) = self.archive.remember_lost(Loss::new(from_ns, to_ns, untold))
            {
                let message = Message::warn("losses cannot be written down: ");
                let message = message.interface(&source.name).packets(untold);
                self.messages.say_once(message.because(&error));
            }
        }
    }
}
