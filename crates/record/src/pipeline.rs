//! The threads of a recorder: started together, ended one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use crate::clock::{Clock, Moment, Waiter};
use crate::control::{Control, Orders};
use crate::counters::SourceCounters;
use crate::index_queue::IndexQueue;
use crate::indexer;
use crate::ledger::Ledger;
use crate::messages::Messages;
use crate::queue::{Feeder, Interfaces};
use crate::sealer;
use crate::source::PacketSource;
use crate::writer::{self, Writer};

/// How often to check whether to stop.
const TICK: Duration = Duration::from_millis(20);
/// How often old recordings are removed, and the status is reported.
const EVERY: Duration = Duration::from_secs(1);
/// The most recordings that are closed but not complete; with more, the writer waits.
const CLOSED_MAX: usize = 4;

/// The sources, and the queue that they fill.
pub(crate) struct Sources {
    pub(crate) all: Vec<(PacketSource, Arc<SourceCounters>)>,
    /// Bytes of packets that wait for the writer, of all sources together.
    pub(crate) queue_bytes: u64,
    /// All sources end after this many packets.
    pub(crate) packets_max: Option<u64>,
    pub(crate) interfaces: Arc<Interfaces>,
}

/// Sources, writer, sealer and indexer, and the thread that governs them.
pub(crate) struct Pipeline<'s, 'a> {
    pub(crate) clock: &'a dyn Clock,
    pub(crate) orders: &'s Orders,
    pub(crate) queue: &'s IndexQueue<'a>,
    pub(crate) ledger: Ledger<'s, 'a>,
    pub(crate) messages: &'s Messages<'a>,
    pub(crate) writer: writer::Context<'s, 'a>,
    pub(crate) sealer: sealer::Context<'s, 'a>,
    pub(crate) indexer: indexer::Context<'s, 'a>,
    /// How long indexing may go on after the end.
    pub(crate) finish: Duration,
}

impl Pipeline<'_, '_> {
    /// Runs until all sources have ended, or it is told to stop. `every_second` is called on this
    /// thread.
    pub(crate) fn run(self, sources: Sources, control: &Control, every_second: &mut dyn FnMut()) {
        let Self { clock, orders, queue, ledger, messages, writer, sealer, indexer, finish } = self;
        let (full, blocks) = channel();
        let (closed, to_seal) = sync_channel(CLOSED_MAX);
        let queue_bytes = usize::try_from(sources.queue_bytes).unwrap_or(usize::MAX);
        let queue_bytes = queue_bytes / sources.all.len().max(1);
        let packets_left = sources.packets_max.map(|most| Arc::new(AtomicU64::new(most)));
        let over = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (source, counters) in sources.all {
                let mut feeder = Feeder::new(
                    queue_bytes,
                    full.clone(),
                    Arc::clone(&sources.interfaces),
                    counters,
                    source.pressure(),
                    Arc::clone(&orders.stop),
                );
                feeder.limit(packets_left.clone());
                // In the order in which they were named.
                source.announce(&feeder);
                scope.spawn(move || source.run(feeder, &orders.stop, messages));
            }
            // The writer ends when the last source has.
            drop(full);
            let writing = scope.spawn(move || Writer::new(writer, closed).run(&blocks));
            let sealing = scope.spawn(move || sealer::run(&sealer, &to_seal));
            let indexing = scope.spawn(move || indexer::run(&indexer));
            // On a thread of its own: the receiver of reports may block for long.
            scope.spawn(move || {
                let governor = Governor { clock, orders, queue, ledger, finish };
                governor.run(control, [&writing, &sealing, &indexing]);
                over.store(true, Ordering::Relaxed);
            });
            let mut called = None::<Moment>;
            while !over.load(Ordering::Relaxed) {
                if called.is_none_or(|called| called.elapsed(clock) >= EVERY) {
                    called = Some(Moment::now(clock));
                    every_second();
                }
                std::thread::sleep(clock.nap(Waiter::Teller, TICK));
            }
        });
    }
}

/// Passes on orders to all threads.
struct Governor<'s, 'a> {
    clock: &'a dyn Clock,
    orders: &'s Orders,
    queue: &'s IndexQueue<'a>,
    ledger: Ledger<'s, 'a>,
    finish: Duration,
}

impl Governor<'_, '_> {
    /// Returns when the writer, the sealer and the indexer have ended, in this order.
    fn run(&self, control: &Control, threads: [&ScopedJoinHandle<'_, ()>; 3]) {
        let [writing, sealing, indexing] = threads;
        let mut sealed = None::<Moment>;
        let mut looked = None::<Moment>;
        while !indexing.is_finished() {
            if control.stop.load(Ordering::Relaxed) {
                self.orders.stop.store(true, Ordering::Relaxed);
            }
            if control.rotate.swap(false, Ordering::Relaxed) {
                self.orders.rotate.store(true, Ordering::Relaxed);
            }
            // These end after all sources; if one panics, the rest has to end, too.
            if writing.is_finished() || sealing.is_finished() {
                self.orders.stop.store(true, Ordering::Relaxed);
            }
            if sealed.is_none() && sealing.is_finished() {
                sealed = Some(Moment::now(self.clock));
                self.queue.end();
            }
            // Whoever asked to stop does not want to wait for long.
            let late = control.stop.load(Ordering::Relaxed)
                && sealed.is_some_and(|sealed| sealed.elapsed(self.clock) >= self.finish);
            if late || control.hurry.load(Ordering::Relaxed) && sealed.is_some() {
                self.queue.abandon();
            }
            if looked.is_none_or(|at| at.elapsed(self.clock) >= EVERY) {
                looked = Some(Moment::now(self.clock));
                self.ledger.expire();
            }
            std::thread::sleep(self.clock.nap(Waiter::Governor, TICK));
        }
    }
}
