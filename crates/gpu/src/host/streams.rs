//! The streams of a [`HostDevice`](super::HostDevice): their work waits in queues.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Library;
use crate::device::{Address, Arg, Launch, Stream};
use tapdex_bitmap::sample::Random;

const STREAMS: usize = 3;

/// How many times out of four a stream works before it must. 0 is there twice, so that a stream
/// often falls behind the others.
const EAGERNESS: [u64; 4] = [0, 0, 1, 4];
/// About how many calls pass until the eagerness of the streams is drawn again: some columns or
/// sets.
const TIMES: u64 = 64;

/// A piece of work.
#[derive(Debug)]
pub(super) enum Work {
    CopyIn { from: Bytes, to: Address },
    CopyOut { from: Address, to: Address, bytes: usize },
    Fill { at: Address, value: u8, bytes: usize },
    Launch { library: Arc<Library>, launch: Launch, args: Vec<Arg>, seed: u64 },
    Record(u64),
    Wait(Point),
}

/// The bytes that a copy reads.
#[derive(Debug)]
pub(super) enum Bytes {
    /// The bytes from when the copy was requested.
    Staged(Vec<u8>),
    /// The bytes that are in pinned memory when the copy is done.
    Pinned(Address, usize),
}

/// A place in a stream: after this much work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    stream: usize,
    behind: u64,
}

#[derive(Debug, Default)]
struct Queue {
    work: VecDeque<Work>,
    done: u64,
}

/// All streams.
#[derive(Debug)]
pub(super) struct Streams {
    queues: [Queue; STREAMS],
    eager: [u64; STREAMS],
    random: Random,
}

impl Streams {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let eager = draw_eager(&mut random);
        Self { queues: Default::default(), eager, random }
    }

    /// Adds work; returns the place after it.
    pub(super) fn push(&mut self, stream: Stream, work: Work) -> Point {
        let stream = stream as usize;
        let queue = &mut self.queues[stream];
        queue.work.push_back(work);
        Point { stream, behind: queue.done + queue.work.len() as u64 }
    }

    /// Takes the next work of a stream, which the caller does before any other call.
    pub(super) fn take(&mut self, stream: usize) -> Option<Work> {
        let queue = &mut self.queues[stream];
        let work = queue.work.pop_front()?;
        queue.done += 1;
        Some(work)
    }

    /// Forgets what is not done.
    pub(super) fn clear(&mut self) {
        self.queues.iter_mut().for_each(|queue| queue.work.clear());
    }

    fn is_done(&self, point: Point) -> bool {
        self.queues[point.stream].done >= point.behind
    }

    /// Whether a stream has work that waits for no other stream.
    fn is_ready(&self, stream: usize) -> bool {
        match self.queues[stream].work.front() {
            Some(Work::Wait(point)) => self.is_done(*point),
            work => work.is_some(),
        }
    }

    /// The stream that has to work next so that a point is reached; `None` if it is reached.
    pub(super) fn next_for(&self, mut point: Point) -> Option<usize> {
        while !self.is_done(point) {
            match self.queues[point.stream].work.front()? {
                Work::Wait(other) if !self.is_done(*other) => point = *other,
                _ => return Some(point.stream),
            }
        }
        None
    }

    /// A stream that can work, if there is one.
    pub(super) fn next_ready(&mut self) -> Option<usize> {
        self.any_order().into_iter().find(|&stream| self.is_ready(stream))
    }

    /// A stream that works although it need not, if there is one now.
    pub(super) fn next_eager(&mut self) -> Option<usize> {
        if self.random.number().is_multiple_of(TIMES) {
            self.eager = draw_eager(&mut self.random);
        }
        let order = self.any_order();
        order
            .into_iter()
            .find(|&stream| self.is_ready(stream) && self.random.number() % 4 < self.eager[stream])
    }

    fn any_order(&mut self) -> [usize; STREAMS] {
        const ORDERS: [[usize; STREAMS]; 6] =
            [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        pick(&mut self.random, ORDERS)
    }
}

fn draw_eager(random: &mut Random) -> [u64; STREAMS] {
    std::array::from_fn(|_| pick(random, EAGERNESS))
}

/// One of a few.
fn pick<T: Copy, const N: usize>(random: &mut Random, from: [T; N]) -> T {
    let at = random.number() % N as u64;
    from[usize::try_from(at).unwrap_or(0)]
}
