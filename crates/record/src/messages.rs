//! Messages of the threads of a recorder, until they are read.
//!
//! A thread never waits for the reader of its messages: a terminal that is stopped must not stop
//! the capture.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use tapdex_engine::chain;

use crate::clock::{Clock, Moment};
use crate::lock;

/// The least interval between two equal messages.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// The most different messages in that time; others are dropped.
const DIFFERENT_MAX: usize = 100;
/// The most messages that wait for a reader; others are dropped.
const WAITING_MAX: usize = 1_000;

/// The severity of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Packets are lost, or will be.
    Error,
    /// Something does not work, or works again.
    Warn,
    /// The main events of a recording.
    Info,
    /// Every step.
    Debug,
}

/// A message, and what it is about.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Its severity.
    pub level: Level,
    /// One line for people. It is complete without the fields below.
    pub text: String,
    /// The interface or stream.
    pub interface: Option<String>,
    /// The recording.
    pub file: Option<PathBuf>,
    /// Its packets.
    pub packets: Option<u64>,
    /// Its bytes.
    pub bytes: Option<u64>,
    /// How long it took.
    pub seconds: Option<f64>,
}

impl Message {
    fn new(level: Level, text: String) -> Self {
        Self { level, text, interface: None, file: None, packets: None, bytes: None, seconds: None }
    }

    /// A message about packets that are lost, or will be.
    pub(crate) fn error(text: impl Into<String>) -> Self {
        Self::new(Level::Error, text.into())
    }

    /// A message about something that does not work, or works again. The message that a problem is
    /// over has the level of the problem, so that a filter by level shows both.
    pub(crate) fn warn(text: impl Into<String>) -> Self {
        Self::new(Level::Warn, text.into())
    }

    /// A message about one of many steps.
    pub(crate) fn debug(text: impl Into<String>) -> Self {
        Self::new(Level::Debug, text.into())
    }

    /// The same with an error appended, and its causes.
    pub(crate) fn because(mut self, error: &dyn std::error::Error) -> Self {
        self.text.push_str(&chain(error));
        self
    }

    pub(crate) fn interface(self, name: impl Into<String>) -> Self {
        Self { interface: Some(name.into()), ..self }
    }

    pub(crate) fn file(self, path: impl Into<PathBuf>) -> Self {
        Self { file: Some(path.into()), ..self }
    }

    pub(crate) fn packets(self, packets: u64) -> Self {
        Self { packets: Some(packets), ..self }
    }

    pub(crate) fn bytes(self, bytes: u64) -> Self {
        Self { bytes: Some(bytes), ..self }
    }

    pub(crate) fn seconds(self, seconds: f64) -> Self {
        Self { seconds: Some(seconds), ..self }
    }
}

/// Messages of all threads.
#[derive(Debug)]
pub(crate) struct Messages<'a> {
    clock: &'a dyn Clock,
    waiting: Mutex<Vec<Message>>,
    /// Messages of the last while, with their times.
    recent: Mutex<Vec<(String, Moment)>>,
}

impl<'a> Messages<'a> {
    pub(crate) fn new(clock: &'a dyn Clock) -> Self {
        Self { clock, waiting: Mutex::default(), recent: Mutex::default() }
    }

    pub(crate) fn say(&self, message: Message) {
        let mut waiting = lock(&self.waiting);
        if waiting.len() < WAITING_MAX {
            waiting.push(message);
        }
    }

    /// For messages that may repeat: sends it, unless the same was sent a short while ago.
    pub(crate) fn say_once(&self, message: Message) {
        let mut recent = lock(&self.recent);
        recent.retain(|(_, at)| at.elapsed(self.clock) < AGAIN_AFTER);
        let is_new = recent.iter().all(|(said, _)| *said != message.text);
        if is_new && recent.len() < DIFFERENT_MAX {
            recent.push((message.text.clone(), Moment::now(self.clock)));
            drop(recent);
            self.say(message);
        }
    }

    /// The messages since the last call.
    pub(crate) fn take(&self) -> Vec<Message> {
        std::mem::take(&mut lock(&self.waiting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::HandClock;

    fn texts(messages: &Messages<'_>) -> Vec<String> {
        messages.take().into_iter().map(|message| message.text).collect()
    }

    #[test]
    fn what_comes_again_and_again_is_said_once_a_minute() {
        let clock = HandClock::new(0);
        let messages = Messages::new(&clock);
        for text in ["a", "b", "a", "a"] {
            messages.say_once(Message::warn(text));
        }
        assert_eq!(texts(&messages), ["a", "b"]);
        clock.pass(AGAIN_AFTER - Duration::from_nanos(1));
        messages.say_once(Message::warn("a"));
        assert!(texts(&messages).is_empty());
        clock.pass(Duration::from_nanos(1));
        messages.say_once(Message::warn("a"));
        assert_eq!(texts(&messages), ["a"]);
    }

    #[test]
    fn memory_is_bounded_while_nobody_listens() {
        let clock = HandClock::new(0);
        let messages = Messages::new(&clock);
        for n in 0..2 * WAITING_MAX {
            messages.say_once(Message::warn(n.to_string()));
        }
        assert_eq!(messages.take().len(), DIFFERENT_MAX);
        for n in 0..2 * WAITING_MAX {
            messages.say(Message::warn(n.to_string()));
        }
        assert_eq!(messages.take().len(), WAITING_MAX);
    }
}
