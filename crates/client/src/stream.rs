//! Packets of several places, put in order of time as they come.
//!
//! Each place has a thread that feeds a short queue, so that a place that is ahead waits, and
//! memory is bounded: a few batches a place. The next packet is known when all places have one, or
//! have ended. If the answer goes on with packets as they are recorded, nobody waits for a place
//! that has nothing new.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use tapdex_answers::ask::Answer;
use tapdex_answers::deliver::Delivered;
use tapdex_answers::json::Time;
use tapdex_answers::lines::Packet;
use tapdex_engine::capture::{CaptureError, CaptureReader, Layout, Record};
use tapdex_engine::packet::LinkType;
use tapdex_engine::time::TimeRange;

use crate::error::{ClientError, Lie};

/// The most packets of a batch.
const BATCH_LEN: usize = 256;
/// With this many bytes, a batch has enough.
const BATCH_BYTES: usize = 256 << 10;
/// Batches that wait for each place.
const BATCHES: usize = 2;
/// How often to look whether to stop.
const TICK: Duration = Duration::from_millis(20);
/// How long a place is waited for that had nothing new once.
const SHORT: Duration = Duration::from_millis(300);

/// What has a time.
pub(crate) trait Timed {
    fn time_ns(&self) -> u64;
}

impl Timed for Packet<'_> {
    fn time_ns(&self) -> u64 {
        self.time.0
    }
}

/// A packet of a capture.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) layout: Arc<Layout>,
    offset: u64,
    time_ns: u64,
    interface: u32,
    link: LinkType,
    wire_len: u32,
    data: Vec<u8>,
}

impl Timed for Frame {
    fn time_ns(&self) -> u64 {
        self.time_ns
    }
}

impl Frame {
    pub(crate) fn record(&self) -> Record<'_> {
        let Self { offset, time_ns, interface, link, wire_len, .. } = *self;
        Record { offset, time_ns, interface, link, swapped: false, wire_len, data: &self.data }
    }
}

/// What comes from a place.
enum Event<T> {
    Batch(Vec<T>),
    Quiet,
    End(Box<Result<Answer<Delivered>, ClientError>>),
}

/// The end of a queue that a place feeds.
pub(crate) struct Feed<T> {
    events: SyncSender<Event<T>>,
    batch: Vec<T>,
    bytes: usize,
    /// The first packets go on at once, and all if nobody knows when more come.
    len: usize,
    grows: bool,
}

/// The end of a queue that packets are taken from.
pub(crate) struct Source<T> {
    /// `None` if nothing is wanted any more.
    events: Option<Receiver<Event<T>>>,
    heads: VecDeque<T>,
    last_ns: u64,
    /// Since when there is no packet, and for how long to wait.
    empty: Instant,
    patience: Option<Duration>,
    end: End,
}

/// A queue. If packets are passed on as they are recorded, `patience` says for how long the first
/// ones are waited for; otherwise until they come.
pub(crate) fn queue<T>(follow: bool, patience: Option<Duration>) -> (Feed<T>, Source<T>) {
    let (sender, receiver) = sync_channel(BATCHES);
    let feed = Feed { events: sender, batch: Vec::new(), bytes: 0, len: 1, grows: !follow };
    let source = Source {
        events: Some(receiver),
        heads: VecDeque::new(),
        last_ns: 0,
        empty: Instant::now(),
        patience,
        end: None,
    };
    (feed, source)
}

impl<T> Feed<T> {
    /// Passes a packet on that takes about this many bytes; returns whether more are wanted.
    pub(crate) fn push(&mut self, item: T, bytes: usize) -> bool {
        self.batch.push(item);
        self.bytes += bytes;
        if self.batch.len() < self.len && self.bytes < BATCH_BYTES {
            return true;
        }
        if self.grows {
            self.len = BATCH_LEN.min(2 * self.len);
        }
        self.hand_over()
    }

    /// Says that there is nothing new for now; returns whether more is wanted.
    pub(crate) fn quiet(&mut self) -> bool {
        self.hand_over() && self.events.send(Event::Quiet).is_ok()
    }

    fn hand_over(&mut self) -> bool {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        batch.is_empty() || self.events.send(Event::Batch(batch)).is_ok()
    }

    /// Says how it ended.
    pub(crate) fn end(mut self, end: Result<Answer<Delivered>, ClientError>) {
        self.hand_over();
        // If nobody listens, nobody wants to know.
        let _ = self.events.send(Event::End(Box::new(end)));
    }
}

impl Feed<Frame> {
    /// Passes the packets of a capture on; returns whether that was wanted to its end.
    pub(crate) fn capture(&mut self, source: impl Read) -> Result<bool, CaptureError> {
        let mut reader = CaptureReader::open(source)?;
        let mut layout = Arc::new(reader.layout().clone());
        loop {
            let Some(record) = reader.next()? else { return Ok(true) };
            let Record { offset, time_ns, interface, link, wire_len, .. } = record;
            let data = record.data().into_owned();
            if reader.layout().interfaces.len() != layout.interfaces.len() {
                layout = Arc::new(reader.layout().clone());
            }
            let bytes = data.len() + size_of::<Frame>();
            let layout = Arc::clone(&layout);
            let frame = Frame { layout, offset, time_ns, interface, link, wire_len, data };
            if !self.push(frame, bytes) {
                return Ok(false);
            }
        }
    }
}

/// How a place has ended, if it has.
pub(crate) type End = Option<Result<Answer<Delivered>, ClientError>>;

/// How putting packets in order has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All places have ended.
    All,
    /// No more packets are wanted, or a place has more that it must not send.
    Enough,
    /// It was told to stop.
    Stopped,
}

/// Puts the packets of all places in order of time.
pub(crate) struct Merge<T> {
    pub(crate) sources: Vec<Source<T>>,
    pub(crate) times: TimeRange,
    pub(crate) follow: bool,
}

impl<T: Timed> Merge<T> {
    /// Calls `each` with the number of a place and its packet; if it returns false, it is enough.
    /// Calls `idle` if there is nothing new.
    pub(crate) fn run<E>(
        &mut self,
        stop: &dyn Fn() -> bool,
        each: &mut dyn FnMut(usize, T) -> Result<bool, E>,
        idle: &mut dyn FnMut() -> Result<bool, E>,
    ) -> Result<Ended, E> {
        let (follow, times) = (self.follow, self.times);
        loop {
            if stop() {
                return Ok(Ended::Stopped);
            }
            let mut waits = false;
            let mut first: Option<(u64, usize)> = None;
            for (number, source) in self.sources.iter_mut().enumerate() {
                // One place is waited for; the others fill their queues meanwhile.
                source.pull(times, follow, !follow && !waits);
                match source.heads.front() {
                    Some(head) => {
                        let key = (head.time_ns(), number);
                        first = Some(first.map_or(key, |other| other.min(key)));
                    }
                    None => match &source.end {
                        Some(Ok(answer)) if answer.value.stopped => return Ok(Ended::Enough),
                        Some(_) => {}
                        None => waits |= source.is_awaited(),
                    },
                }
            }
            match first.filter(|_| !waits) {
                Some((_, number)) => {
                    let Some(source) = self.sources.get_mut(number) else { continue };
                    let Some(item) = source.heads.pop_front() else { continue };
                    source.empty = Instant::now();
                    if !each(number, item)? {
                        return Ok(Ended::Enough);
                    }
                }
                None if self.sources.iter().all(|source| source.end.is_some()) => {
                    return Ok(Ended::All);
                }
                None if follow => {
                    if !waits && !idle()? {
                        return Ok(Ended::Enough);
                    }
                    std::thread::sleep(TICK);
                }
                None => {}
            }
        }
    }

    /// Reads all places to their ends, and returns these. Until `stop` says so.
    pub(crate) fn ends(self, stop: &dyn Fn() -> bool) -> (bool, Vec<End>) {
        let mut is_more = false;
        let ends = self.sources.into_iter().map(|mut source| {
            is_more |= !source.heads.is_empty();
            while let (None, Some(events)) = (&source.end, &source.events) {
                match events.recv_timeout(TICK) {
                    Ok(Event::End(end)) => source.end = Some(*end),
                    Ok(Event::Batch(_)) => is_more = true,
                    Ok(Event::Quiet) => {}
                    Err(RecvTimeoutError::Timeout) if !stop() => {}
                    Err(_) => break,
                }
                if stop() {
                    // What is there already is still looked at.
                    while let Ok(event) = events.try_recv() {
                        if let Event::End(end) = event {
                            source.end = Some(*end);
                        }
                    }
                    break;
                }
            }
            source.end
        });
        let ends = ends.collect();
        (is_more, ends)
    }
}

impl<T: Timed> Source<T> {
    /// Takes what has come, if there is no packet. If it `waits`, for a moment.
    fn pull(&mut self, times: TimeRange, follow: bool, waits: bool) {
        while self.heads.is_empty() && self.end.is_none() {
            let Some(events) = &self.events else { return };
            let event = match waits {
                true => events.recv_timeout(TICK).map_err(|error| match error {
                    RecvTimeoutError::Timeout => TryRecvError::Empty,
                    RecvTimeoutError::Disconnected => TryRecvError::Disconnected,
                }),
                false => events.try_recv(),
            };
            match event {
                Ok(Event::Batch(batch)) => self.take(batch, times, follow),
                Ok(Event::Quiet) => self.patience = Some(Duration::ZERO),
                Ok(Event::End(end)) => self.end = Some(*end),
                // Its thread has ended without a word, which it never does.
                Err(TryRecvError::Disconnected) => self.end = Some(Err(ClientError::Cancelled)),
                Err(TryRecvError::Empty) => return,
            }
        }
    }

    /// Takes packets, up to one that shows that the place is not to be trusted.
    fn take(&mut self, batch: Vec<T>, times: TimeRange, follow: bool) {
        if self.patience.is_some() {
            // It is not quiet any more, and may have more.
            self.patience = Some(SHORT);
        }
        for item in batch {
            let time = item.time_ns();
            let lie = if !times.contains(time) {
                Lie::Times { packet: Time(time) }
            } else if time < self.last_ns && !follow {
                Lie::Order { packet: Time(time), before: Time(self.last_ns) }
            } else {
                self.last_ns = time;
                self.heads.push_back(item);
                continue;
            };
            self.end = Some(Err(ClientError::Lying(lie)));
            self.events = None;
            return;
        }
    }

    /// Whether others have to wait for its next packet.
    fn is_awaited(&self) -> bool {
        self.patience.is_none_or(|patience| self.empty.elapsed() < patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct At(u64);

    impl Timed for At {
        fn time_ns(&self) -> u64 {
            self.0
        }
    }

    fn ended(stopped: bool) -> Result<Answer<Delivered>, ClientError> {
        let answer = tapdex_answers::deliver::unanswered("x", String::new(), String::new());
        Ok(answer_of(answer, Delivered { stopped, ..Delivered::default() }))
    }

    fn answer_of<T>(answer: Answer<()>, value: T) -> Answer<T> {
        crate::merge::with(answer, value)
    }

    fn merged(places: Vec<(Vec<u64>, bool)>, times: TimeRange) -> (Vec<u64>, Ended, Vec<String>) {
        std::thread::scope(|scope| {
            let mut sources = Vec::new();
            for (times, stopped) in places {
                let (mut feed, source) = queue(false, None);
                scope.spawn(move || {
                    let _ = times.iter().all(|&time| feed.push(At(time), 1));
                    feed.end(ended(stopped));
                });
                sources.push(source);
            }
            let mut merge = Merge { sources, times, follow: false };
            let mut all = Vec::new();
            let mut each = |_, At(time)| {
                all.push(time);
                Ok::<_, ()>(true)
            };
            let how = merge.run(&|| false, &mut each, &mut || Ok(true)).unwrap();
            let (_, ends) = merge.ends(&|| false);
            let text = |end: Option<Result<_, ClientError>>| match end {
                Some(Err(error)) => error.to_string(),
                _ => String::new(),
            };
            (all, how, ends.into_iter().map(text).collect())
        })
    }

    #[test]
    fn packets_are_in_order_whatever_comes_first() {
        let many: Vec<u64> = (0..10_000).map(|n| 3 * n).collect();
        let few = vec![1, 1, 2, 29_000, 40_000];
        let mut expected = [many.clone(), few.clone()].concat();
        expected.sort_unstable();
        let (all, how, _) =
            merged(vec![(few, false), (vec![], false), (many, false)], TimeRange::ALL);
        assert_eq!((all, how), (expected, Ended::All));
    }

    #[test]
    fn a_liar_is_cut_off_there() {
        let (all, how, ends) =
            merged(vec![(vec![1, 5, 3, 9], false), (vec![2, 4, 6, 8], false)], TimeRange::ALL);
        assert_eq!((all, how), (vec![1, 2, 4, 5, 6, 8], Ended::All));
        assert!(ends[0].contains("not in order of time") && ends[1].is_empty(), "{ends:?}");
        let times = TimeRange { from_ns: 2, to_ns: Some(8) };
        let (all, _, ends) = merged(vec![(vec![3, 8], false), (vec![2, 7], false)], times);
        assert_eq!(all, [2, 3, 7]);
        assert!(ends[0].contains("not asked for"), "{ends:?}");
    }

    #[test]
    fn nothing_comes_after_what_a_place_has_left_out() {
        let (all, how, _) = merged(vec![(vec![1, 5], true), (vec![2, 9], false)], TimeRange::ALL);
        assert_eq!((all, how), (vec![1, 2, 5], Ended::Enough));
    }
}
