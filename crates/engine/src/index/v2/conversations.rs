//! Sets of conversations: combined before they are turned into rows.

use std::cell::OnceCell;

use tapdex_bitmap::{BitSet, RunSet};

use super::super::reader::Index;
use super::field::{Runs, bits_of_runs, inverse, invert, joined, merged, push_run};
use crate::error::IndexError;

/// Some conversations of a segment, or one of the two flows of some, and so all their rows.
///
/// Terms about flows are combined here, where a conversation of a thousand packets is one entry.
/// Only what is left is turned into rows.
#[derive(Debug, Clone)]
pub struct Conversations<'a> {
    index: &'a Index,
    /// Those whose first flow is in the set.
    first: Members,
    /// Those whose second flow is; the same if there is no list.
    second: Option<Members>,
}

#[derive(Debug, Clone)]
pub(super) enum Members {
    /// Ascending runs that do not touch.
    Runs(Runs),
    /// A bit for each conversation of the segment, 64 to a word.
    Bits(Vec<u64>),
}

impl Members {
    /// A bit for each of so many conversations.
    fn into_bits(self, conversations: u32) -> Vec<u64> {
        match self {
            Self::Bits(words) => words,
            Self::Runs(runs) => bits_of_runs(&runs, conversations).into_words(),
        }
    }

    fn into_runs(self) -> Vec<(u32, u32)> {
        match self {
            Self::Runs(runs) => runs,
            Self::Bits(words) => {
                let mut runs = Vec::new();
                BitSet::from_words(words).for_each_run(|first, last| runs.push((first, last)));
                runs
            }
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Runs(runs) => runs.is_empty(),
            Self::Bits(words) => words.iter().all(|&word| word == 0),
        }
    }

    /// How many there are.
    fn count(&self) -> u32 {
        match self {
            Self::Runs(runs) => runs_len(runs),
            Self::Bits(words) => words.iter().map(|word| word.count_ones()).sum(),
        }
    }

    /// Whether these are all of so many conversations.
    fn is_all(&self, conversations: u32) -> bool {
        match self {
            Self::Runs(runs) => matches!(runs[..], [(0, last)] if last + 1 == conversations),
            // The last bits may be no conversations.
            Self::Bits(words) => {
                words[..words.len().saturating_sub(1)].iter().all(|&word| word == u64::MAX)
                    && self.count() == conversations
            }
        }
    }

    fn and(self, other: Self, conversations: u32) -> Self {
        match (self, other) {
            (Self::Runs(a), Self::Runs(b)) => Self::Runs(common_runs(&a, &b)),
            (Self::Runs(runs), Self::Bits(words)) | (Self::Bits(words), Self::Runs(runs))
                if runs_len(&runs) <= conversations / 64 =>
            {
                let mut common = Vec::with_capacity(runs.len());
                for conversation in one_by_one(&runs) {
                    let word = words.get(conversation as usize / 64).copied().unwrap_or(0);
                    if word >> (conversation % 64) & 1 == 1 {
                        push_run(&mut common, conversation, conversation + 1);
                    }
                }
                Self::Runs(common)
            }
            (a, b) => {
                let (mut a, b) = (a.into_bits(conversations), b.into_bits(conversations));
                a.iter_mut().zip(&b).for_each(|(a, b)| *a &= b);
                Self::Bits(a)
            }
        }
    }

    pub(super) fn or(self, other: Self, conversations: u32) -> Self {
        match (self, other) {
            (Self::Runs(a), Self::Runs(b)) => Self::Runs(joined(merged(a, b))),
            (a, b) => {
                let (mut a, b) = (a.into_bits(conversations), b.into_bits(conversations));
                a.iter_mut().zip(&b).for_each(|(a, b)| *a |= b);
                Self::Bits(a)
            }
        }
    }

    fn complement(self, conversations: u32) -> Self {
        match self {
            Self::Runs(runs) => Self::Runs(inverse(&runs, conversations)),
            Self::Bits(mut words) => {
                invert(&mut words, conversations);
                Self::Bits(words)
            }
        }
    }
}

/// The runs that are in both lists.
fn common_runs(mut a: &[(u32, u32)], mut b: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut runs = Vec::with_capacity(a.len().min(b.len()));
    while let (Some(&(a_first, a_last)), Some(&(b_first, b_last))) = (a.first(), b.first()) {
        push_run(&mut runs, a_first.max(b_first), a_last.min(b_last).saturating_add(1));
        if a_last <= b_last {
            a = &a[1..];
        }
        if b_last <= a_last {
            b = &b[1..];
        }
    }
    runs
}

/// Some conversations, few of a segment, outside of which no answer is wanted: what is looked up in
/// a conjunction after they were found need not be right for others.
#[derive(Debug)]
pub struct Within {
    /// Ascending runs that do not touch.
    conversations: Runs,
    /// The rows of their packets, once they are asked for.
    rows: OnceCell<Runs>,
}

impl Within {
    /// The conversations.
    pub(super) fn conversations(&self) -> &Runs {
        &self.conversations
    }

    /// Both ends of each, if the second end of the first conversation has this number.
    pub(super) fn ends(&self, second: u32) -> Runs {
        let seconds =
            self.conversations.iter().map(|(first, last)| (first + second, last + second));
        self.conversations.iter().copied().chain(seconds).collect()
    }

    /// The rows of their packets.
    pub(super) fn rows(&self, index: &Index) -> Result<&Runs, IndexError> {
        if let Some(rows) = self.rows.get() {
            return Ok(rows);
        }
        let rows = index.rows_of_conversations(&self.conversations)?;
        Ok(self.rows.get_or_init(|| rows))
    }
}

/// Conversations of a segment for each one that is looked at alone, at least.
const FEW: u32 = 8;

impl<'a> Conversations<'a> {
    /// The conversations, if they are so few that it pays to look at no others.
    pub fn within(&self) -> Option<Within> {
        let most = self.len() / FEW;
        let both = [Some(&self.first), self.second.as_ref()];
        let count: u32 = both.into_iter().flatten().map(Members::count).sum();
        if count > most {
            return None;
        }
        let mut runs = self.first.clone().into_runs();
        if let Some(second) = self.second.clone() {
            runs = joined(merged(runs, second.into_runs()));
        }
        Some(Within { conversations: runs, rows: OnceCell::new() })
    }

    /// Both flows of some conversations, which are in the segment.
    pub(super) fn new(index: &'a Index, both: Members) -> Self {
        Self { index, first: both, second: None }
    }

    /// The first flows of some conversations, and the second flows of some.
    pub(super) fn of_flows(index: &'a Index, first: Members, second: Members) -> Self {
        Self { index, first, second: Some(second) }
    }

    fn len(&self) -> u32 {
        self.index.flow_schema().map_or(0, |schema| schema.conversations)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty() && self.second.as_ref().is_none_or(Members::is_empty)
    }

    /// Whether these are all.
    pub fn is_all(&self) -> bool {
        let len = self.len();
        self.first.is_all(len) && self.second.as_ref().is_none_or(|second| second.is_all(len))
    }

    fn both(self, other: Self, join: impl Fn(Members, Members, u32) -> Members) -> Self {
        let len = self.len();
        let second = match (self.second, other.second) {
            (None, None) => None,
            (one, two) => Some(join(
                one.unwrap_or_else(|| self.first.clone()),
                two.unwrap_or_else(|| other.first.clone()),
                len,
            )),
        };
        Self { index: self.index, first: join(self.first, other.first, len), second }
    }

    /// Those that are in both sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.both(other, Members::and)
    }

    /// Those that are in one of the sets or in both.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        self.both(other, Members::or)
    }

    /// Those that are not in the set.
    #[must_use]
    pub fn complement(self) -> Self {
        let len = self.len();
        let second = self.second.map(|second| second.complement(len));
        Self { index: self.index, first: self.first.complement(len), second }
    }

    /// How many rows they have. If the file is damaged there, 0; the search then ends with the
    /// error, since [`Index::check_flows`] remembers it.
    pub fn rows_len(&self) -> u64 {
        let count = self.index.flow_parts().and_then(|(_, flows)| match &self.second {
            None => match &self.first {
                Members::Runs(runs) => flows.packets_of_runs(runs),
                Members::Bits(words) => flows.packets_of_bits(words),
            },
            Some(Members::Runs(second))
                if let Members::Runs(first) = &self.first
                    && runs_len(first) + runs_len(second) <= flows.conversations / 64 =>
            {
                let runs = self.index.rows_of_flows(first, second)?;
                Ok(runs.iter().map(|(first, last)| u64::from(last - first) + 1).sum())
            }
            Some(second) => {
                let [first, second] =
                    [&self.first, second].map(|one| one.clone().into_bits(flows.conversations));
                flows.packets_of_flows(&first, &second)
            }
        });
        count.unwrap_or_else(|_| {
            self.index.flows_damaged().get_or_init(|| ());
            0
        })
    }

    /// Their rows. If the file is damaged there, none; the search then ends with the error, since
    /// [`Index::check_flows`] remembers it.
    pub fn into_rows(self) -> RunSet {
        let runs = self.first.into_runs();
        let rows = match self.second {
            Some(second) => self.index.rows_of_flows(&runs, &second.into_runs()),
            None => self.index.rows_of_conversations(&runs),
        };
        RunSet::new(rows.unwrap_or_else(|_| {
            self.index.flows_damaged().get_or_init(|| ());
            Vec::new()
        }))
    }
}

/// The conversations of runs, one by one.
fn one_by_one(runs: &[(u32, u32)]) -> impl Iterator<Item = u32> {
    runs.iter().flat_map(|&(first, last)| first..=last)
}

/// How many conversations runs have.
fn runs_len(runs: &[(u32, u32)]) -> u32 {
    runs.iter().map(|(first, last)| last - first + 1).sum()
}

impl Index {
    /// The rows of the first flows of some conversations, and of the second flows of some.
    fn rows_of_flows(
        &self,
        firsts: &[(u32, u32)],
        seconds: &[(u32, u32)],
    ) -> Result<Runs, IndexError> {
        let (_, flows) = self.flow_parts()?;
        let mut cursor = flows.cursor();
        let mut rows = Vec::new();
        let (mut firsts, mut seconds) = (one_by_one(firsts), one_by_one(seconds));
        let (mut one, mut other) = (firsts.next(), seconds.next());
        while let Some(conversation) = one.into_iter().chain(other).min() {
            let (start, middle, end) = cursor.flows(conversation)?;
            if one == Some(conversation) {
                push_run(&mut rows, start, middle);
                one = firsts.next();
            }
            if other == Some(conversation) {
                push_run(&mut rows, middle, end);
                other = seconds.next();
            }
        }
        Ok(rows)
    }

    /// The rows of some conversations. If these are so few that most need not be looked at, only
    /// theirs are read; otherwise all, once.
    fn rows_of_conversations(&self, runs: &[(u32, u32)]) -> Result<Runs, IndexError> {
        let (_, flows) = self.flow_parts()?;
        let mut rows = Vec::with_capacity(runs.len());
        if self.starts_cell().get().is_none() && runs.len() <= flows.blocks() as usize / 4 {
            let mut cursor = flows.cursor();
            for &(first, last) in runs {
                let (start, end) = (cursor.start(first)?, cursor.start(last + 1)?);
                push_run(&mut rows, start, end);
            }
            return Ok(rows);
        }
        let starts = match self.starts_cell().get() {
            Some(starts) => starts,
            None => {
                let starts = flows.conversation_starts()?;
                self.starts_cell().get_or_init(|| starts)
            }
        };
        for &(first, last) in runs {
            let (start, end) = (starts.get(first as usize), starts.get(last as usize + 1));
            if let (Some(&start), Some(&end)) = (start, end) {
                push_run(&mut rows, start, end);
            }
        }
        Ok(rows)
    }

    /// An error if rows of flows were looked up, and the file is damaged there.
    pub fn check_flows(&self) -> Result<(), IndexError> {
        if self.flows_damaged().get().is_none() {
            return Ok(());
        }
        // It is the same error again.
        let (_, flows) = self.flow_parts()?;
        flows.starts()?;
        Err(flows.part.bad("packets of flows", 0))
    }
}
