//! Where questions wait for their turn, and threads that answer them.
//!
//! There are two lanes. Light questions are answered by the index, in milliseconds. Heavy ones read
//! many packets, or deliver them: they have fewer places, and their threads give way to all others
//! on the machine. So a heavy question does not keep a light one waiting.
//!
//! In each lane, whoever asks has a queue, and the queues take turns: somebody who asks a thousand
//! questions keeps nobody waiting but themselves.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use crate::lock;

/// How much work a question is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// The index answers it.
    Light,
    /// Packets are read or delivered.
    Heavy,
}

/// How many questions are answered at a time, and how many may wait.
#[derive(Debug, Clone, Copy)]
pub struct LaneSizes {
    /// Light questions at a time.
    pub light: usize,
    /// Heavy questions at a time.
    pub heavy: usize,
    /// Questions that may wait in a lane.
    pub waiting: usize,
}

/// Too many questions wait already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// Both lanes.
#[derive(Debug)]
pub struct Lanes {
    light: Arc<Lane>,
    heavy: Arc<Lane>,
}

impl Lanes {
    /// Empty lanes.
    pub fn new(sizes: LaneSizes) -> Self {
        let lane =
            |places| Arc::new(Lane { most: sizes.waiting, turns: Mutex::new(Turns::new(places)) });
        Self { light: lane(sizes.light), heavy: lane(sizes.heavy) }
    }

    /// Waits for a place, in the queue of whoever asks. The place is free again when it is dropped;
    /// so is that in the queue if nobody waits any more.
    pub async fn enter(&self, weight: Weight, who: &str) -> Result<Place, Full> {
        let lane = match weight {
            Weight::Light => &self.light,
            Weight::Heavy => &self.heavy,
        };
        let waits = {
            let mut turns = lock(&lane.turns);
            if turns.free > 0 {
                turns.free -= 1;
                return Ok(Place(Some(Arc::clone(lane))));
            }
            if turns.waiting >= lane.most {
                turns.forget_gone();
                if turns.waiting >= lane.most {
                    return Err(Full);
                }
            }
            turns.wait(who)
        };
        // The sender is never dropped before it has sent.
        waits.await.map_err(|_| Full)
    }

    /// Questions that are waiting: light ones, heavy ones.
    pub fn waiting(&self) -> [usize; 2] {
        [&self.light, &self.heavy].map(|lane| lock(&lane.turns).waiting)
    }
}

/// A place in a lane.
#[derive(Debug)]
#[must_use = "the place is free again when this is dropped"]
pub struct Place(Option<Arc<Lane>>);

impl Drop for Place {
    fn drop(&mut self) {
        let Some(lane) = self.0.take() else { return };
        let mut turns = lock(&lane.turns);
        loop {
            let Some(next) = turns.next() else {
                turns.free += 1;
                return;
            };
            match next.send(Place(Some(Arc::clone(&lane)))) {
                Ok(()) => return,
                // Whoever waited is gone; the place goes on to the next one.
                Err(mut place) => drop(place.0.take()),
            }
        }
    }
}

#[derive(Debug)]
struct Lane {
    most: usize,
    turns: Mutex<Turns>,
}

#[derive(Debug)]
struct Turns {
    free: usize,
    waiting: usize,
    /// Whoever waits, with their questions, in the order of their next turns.
    order: VecDeque<String>,
    queues: BTreeMap<String, VecDeque<oneshot::Sender<Place>>>,
}

impl Turns {
    fn new(free: usize) -> Self {
        Self { free, waiting: 0, order: VecDeque::new(), queues: BTreeMap::new() }
    }

    fn wait(&mut self, who: &str) -> oneshot::Receiver<Place> {
        let (sender, receiver) = oneshot::channel();
        self.waiting += 1;
        match self.queues.get_mut(who) {
            Some(queue) => queue.push_back(sender),
            None => {
                self.queues.insert(who.to_owned(), VecDeque::from([sender]));
                self.order.push_back(who.to_owned());
            }
        }
        receiver
    }

    /// Whose turn it is.
    fn next(&mut self) -> Option<oneshot::Sender<Place>> {
        let who = self.order.pop_front()?;
        let queue = self.queues.get_mut(&who)?;
        let next = queue.pop_front();
        match queue.is_empty() {
            true => drop(self.queues.remove(&who)),
            false => self.order.push_back(who),
        }
        self.waiting -= 1;
        next
    }

    /// Removes those who do not wait any more.
    fn forget_gone(&mut self) {
        for queue in self.queues.values_mut() {
            queue.retain(|sender| !sender.is_closed());
        }
        self.queues.retain(|_, queue| !queue.is_empty());
        self.order.retain(|who| self.queues.contains_key(who));
        self.waiting = self.queues.values().map(VecDeque::len).sum();
    }
}

/// Lets other threads go first, for as long as the thread lives.
pub fn give_way() {
    // If that is not allowed, the thread is as important as others.
    let _ = rustix::process::nice(10);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(light: usize, waiting: usize) -> Lanes {
        Lanes::new(LaneSizes { light, heavy: 1, waiting })
    }

    fn run<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn queues_take_turns() {
        run(async {
            let lanes = Arc::new(lanes(1, 100));
            let first = lanes.enter(Weight::Light, "greedy").await.unwrap();
            let order = Arc::new(Mutex::new(Vec::new()));
            let mut asked = Vec::new();
            for who in ["greedy", "greedy", "greedy", "modest", "other"] {
                let (lanes, order) = (Arc::clone(&lanes), Arc::clone(&order));
                asked.push(tokio::spawn(async move {
                    let place = lanes.enter(Weight::Light, who).await.unwrap();
                    lock(&order).push(who);
                    drop(place);
                }));
                tokio::task::yield_now().await;
            }
            assert_eq!(lanes.waiting(), [5, 0]);
            // The other lane has a place of its own.
            drop(lanes.enter(Weight::Heavy, "greedy").await.unwrap());
            drop(first);
            for one in asked {
                one.await.unwrap();
            }
            assert_eq!(*lock(&order), ["greedy", "modest", "other", "greedy", "greedy"]);
            assert_eq!(lanes.waiting(), [0, 0]);
            drop(lanes.enter(Weight::Light, "modest").await.unwrap());
        });
    }

    #[test]
    fn those_who_left_take_no_place() {
        run(async {
            let lanes = Arc::new(lanes(1, 2));
            let first = lanes.enter(Weight::Light, "a").await.unwrap();
            for _ in 0..2 {
                let waits = Arc::clone(&lanes);
                let gone = tokio::spawn(async move { waits.enter(Weight::Light, "b").await });
                tokio::task::yield_now().await;
                gone.abort();
                assert!(gone.await.is_err());
            }
            // Both left: there is room again.
            let waits = Arc::clone(&lanes);
            let stays = tokio::spawn(async move { waits.enter(Weight::Light, "c").await.is_ok() });
            tokio::task::yield_now().await;
            let other = Arc::clone(&lanes);
            let also = tokio::spawn(async move { other.enter(Weight::Light, "d").await.is_ok() });
            tokio::task::yield_now().await;
            assert_eq!(lanes.enter(Weight::Light, "e").await.unwrap_err(), Full);
            drop(first);
            assert!(stays.await.unwrap() && also.await.unwrap());
            drop(lanes.enter(Weight::Light, "f").await.unwrap());
        });
    }
}
