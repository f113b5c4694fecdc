//! Work on several threads at a time, where there are any.

use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};

/// Threads that work may be split among; without any, it is done by whoever asks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Parallel<'p>(Option<&'p rayon::ThreadPool>);

impl<'p> Parallel<'p> {
    /// The threads of a pool. They must not wait for anything but each other.
    pub(crate) fn new(pool: Option<&'p rayon::ThreadPool>) -> Self {
        Self(pool)
    }

    /// What `each` makes of the items, in their order.
    pub(crate) fn map<T: Send, R: Send>(
        self,
        items: Vec<T>,
        each: impl Fn(T) -> R + Sync + Send,
    ) -> Vec<R> {
        match self.0 {
            Some(pool) => {
                pool.install(|| items.into_par_iter().with_max_len(1).map(each).collect())
            }
            None => items.into_iter().map(each).collect(),
        }
    }
}
