//! Sets of conversations: combined before they are turned into rows.

use tapdex_bitmap::RunSet;

use super::super::reader::Index;
use super::field::push_run;
use crate::error::IndexError;

/// Some conversations of a segment, and so all their rows.
///
/// Terms about whole conversations are combined here, where a conversation of a thousand packets is
/// one entry, and only what is left is turned into rows.
#[derive(Debug, Clone)]
pub struct Conversations<'a> {
    index: &'a Index,
    /// As ascending runs that do not touch.
    runs: Vec<(u32, u32)>,
}

impl<'a> Conversations<'a> {
    /// The conversations of ascending runs, which do not touch and are in the segment.
    pub(super) fn new(index: &'a Index, runs: Vec<(u32, u32)>) -> Self {
        Self { index, runs }
    }

    fn len(&self) -> u32 {
        self.index.flow_schema().map_or(0, |schema| schema.conversations)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Whether these are all.
    pub fn is_all(&self) -> bool {
        matches!(self.runs[..], [(0, last)] if last + 1 == self.len())
    }

    /// Those that are in both sets.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        let mut runs = Vec::with_capacity(self.runs.len().min(other.runs.len()));
        let (mut a, mut b) = (self.runs.as_slice(), other.runs.as_slice());
        while let (Some(&(a_first, a_last)), Some(&(b_first, b_last))) = (a.first(), b.first()) {
            push_run(&mut runs, a_first.max(b_first), a_last.min(b_last).saturating_add(1));
            if a_last <= b_last {
                a = &a[1..];
            }
            if b_last <= a_last {
                b = &b[1..];
            }
        }
        self.runs = runs;
        self
    }

    /// Those that are in one of the sets or in both.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        self.runs = super::field::joined(super::field::merged(self.runs, other.runs));
        self
    }

    /// Those that are not in the set.
    #[must_use]
    pub fn complement(mut self) -> Self {
        self.runs = super::field::inverse(&self.runs, self.len());
        self
    }

    /// Their rows. If the file is damaged there, none; the search then ends with the error, since
    /// [`Index::check_flows`] remembers it.
    pub fn into_rows(self) -> RunSet {
        let starts = self.index.conversation_starts();
        let mut rows = Vec::with_capacity(self.runs.len());
        for (first, last) in self.runs {
            let (start, end) = (starts.get(first as usize), starts.get(last as usize + 1));
            if let (Some(&start), Some(&end)) = (start, end) {
                push_run(&mut rows, start, end);
            }
        }
        RunSet::new(rows)
    }
}

impl Index {
    /// The row that each conversation starts at, and the number of rows; empty if the file is
    /// damaged there. Read once.
    fn conversation_starts(&self) -> &[u32] {
        self.read_starts().as_deref().unwrap_or_default()
    }

    fn read_starts(&self) -> &Result<Vec<u32>, IndexError> {
        self.starts_cell().get_or_init(|| {
            let (_, flows) = self.flow_parts()?;
            let mut cursor = flows.cursor();
            (0..=flows.conversations).map(|conversation| cursor.start(conversation)).collect()
        })
    }

    /// An error if rows of conversations were looked up, and the file is damaged there.
    pub fn check_flows(&self) -> Result<(), IndexError> {
        match self.starts_cell().get() {
            Some(Err(_)) => {
                // It is the same error again.
                let (_, flows) = self.flow_parts()?;
                flows.starts().map(drop)
            }
            _ => Ok(()),
        }
    }
}
