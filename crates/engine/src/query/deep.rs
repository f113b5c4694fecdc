//! Runs deep recursions on a stack that is large enough.

/// Bytes of stack; memory is taken only as it is needed.
const STACK_BYTES: usize = 256 << 20;

/// Runs something on a thread with a large stack.
pub(super) fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> std::io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        match thread.spawn_scoped(scope, work)?.join() {
            Ok(result) => Ok(result),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
