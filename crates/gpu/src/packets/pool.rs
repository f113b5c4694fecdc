//! Memory that is used again: allocating and freeing stops the device.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tapdex_engine::archive::device::{BATCH_FRAMES, FRAME_BYTES, Frames, HEAD_BYTES, HostMemory};

use crate::device::{Address, Device, DeviceError, Event, Stream, record};
use crate::memory::{Memory, Pinned};

/// Bytes of a room, and of a place that one is copied to: as many as frames take.
pub(super) const ROOM_BYTES: usize = Frames::BYTES;
/// Where the bytes of frames start in such a place.
pub(super) const DATA_START: usize = BATCH_FRAMES * HEAD_BYTES;

const _: () = assert!(DATA_START + BATCH_FRAMES * FRAME_BYTES == ROOM_BYTES);

/// Rooms that are copied from at a time, at most.
const SENT_MAX: usize = 16;
/// Places on the device that rooms are copied to before one is used again.
const STAGES: usize = 8;
/// The least memory that is handed out, and what pieces of slabs start at multiples of.
const BYTES_MIN: usize = 256;
/// A slab has room for at least so many pieces.
const PIECES_MIN: usize = 8;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory of a device that nobody uses, on both sides.
///
/// Memory on the device is lent to kernels only, all in one stream. So it may be given back, and
/// lent again, while kernels that use it are still to run: the next kernels run after them.
#[derive(Debug)]
pub(super) struct Pool {
    device: Arc<dyn Device>,
    idle: Mutex<BTreeMap<usize, Vec<Block>>>,
    /// Bytes of the memory that small pieces are cut from; 0 if each is allocated by itself.
    slab_bytes: usize,
    /// What pieces are cut from now.
    slab: Mutex<Option<Slab>>,
    rooms: Mutex<Vec<Pinned>>,
    /// Nothing is kept any more.
    closed: AtomicBool,
}

/// Memory that pieces are cut from.
#[derive(Debug)]
struct Slab {
    memory: Arc<Memory>,
    used: usize,
}

/// Memory that is lent and given back: allocated by itself, or a piece of a slab, which is freed
/// when all its pieces are.
#[derive(Debug)]
enum Block {
    Whole(Memory),
    Piece { slab: Arc<Memory>, start: usize, len: usize },
}

impl Block {
    fn address(&self) -> Address {
        match self {
            Self::Whole(memory) => memory.address(),
            Self::Piece { slab, start, .. } => slab.address() + *start as u64,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Whole(memory) => memory.len(),
            Self::Piece { len, .. } => *len,
        }
    }
}

impl Pool {
    pub(super) fn new(device: Arc<dyn Device>, slab_bytes: usize) -> Arc<Self> {
        let (idle, rooms, slab) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { device, idle, slab_bytes, slab, rooms, closed: AtomicBool::new(false) })
    }

    /// Memory for kernels, at least so many bytes; if there is no room, once more after all that is
    /// idle was freed.
    pub(super) fn lend(self: &Arc<Self>, bytes: usize) -> Result<Lent, DeviceError> {
        let bytes = rounded(bytes);
        let found = self.take(bytes).or_else(|| self.cut(bytes));
        let block = match found {
            Some(block) => block,
            None => Block::Whole(self.once_more(|| Memory::new(&self.device, bytes))?),
        };
        Ok(Lent { block: Some(block), pool: Arc::clone(self) })
    }

    /// A piece of a slab; `None` if it is too large for that, or there is no room for another slab.
    fn cut(&self, bytes: usize) -> Option<Block> {
        let bytes = bytes.next_multiple_of(BYTES_MIN);
        if bytes > self.slab_bytes / PIECES_MIN {
            return None;
        }
        let mut slab = lock(&self.slab);
        if slab.as_ref().is_none_or(|slab| slab.used + bytes > self.slab_bytes) {
            let memory = Arc::new(Memory::new(&self.device, self.slab_bytes).ok()?);
            *slab = Some(Slab { memory, used: 0 });
        }
        let Slab { memory, used } = slab.as_mut()?;
        let start = *used;
        *used += bytes;
        Some(Block::Piece { slab: Arc::clone(memory), start, len: bytes })
    }

    /// Memory that is not given back.
    pub(super) fn own(&self, bytes: usize) -> Result<Memory, DeviceError> {
        self.once_more(|| Memory::new(&self.device, bytes))
    }

    /// Idle memory of that size, or up to twice as much.
    fn take(&self, bytes: usize) -> Option<Block> {
        let mut idle = lock(&self.idle);
        let (&len, list) = idle.range_mut(bytes..=bytes.saturating_mul(2)).next()?;
        let block = list.pop();
        if list.is_empty() {
            idle.remove(&len);
        }
        block
    }

    /// Memory of the host that the device copies from and to.
    pub(super) fn room(self: &Arc<Self>) -> Result<Room, DeviceError> {
        let found = lock(&self.rooms).pop();
        let pinned = match found {
            Some(pinned) => pinned,
            None => self.once_more(|| Pinned::new(&self.device, ROOM_BYTES))?,
        };
        Ok(Room { pinned: Some(pinned), pool: Arc::clone(self) })
    }

    /// Allocates; if there is no room, once more after all that is idle was freed.
    fn once_more<T>(
        &self,
        mut alloc: impl FnMut() -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        match alloc() {
            Err(DeviceError::OutOfMemory { .. }) => {
                self.clear();
                alloc()
            }
            other => other,
        }
    }

    /// Frees all that is idle.
    pub(super) fn clear(&self) {
        // Freeing waits for the device: others need not.
        let idle = std::mem::take(&mut *lock(&self.idle));
        let slab = lock(&self.slab).take();
        let rooms = std::mem::take(&mut *lock(&self.rooms));
        drop((idle, slab, rooms));
    }

    /// Frees all that is idle now and all that will be given back.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.clear();
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}

/// Bytes rounded up to one of few sizes, by a quarter at most.
fn rounded(bytes: usize) -> usize {
    let bytes = bytes.max(BYTES_MIN);
    bytes.next_multiple_of(1 << bytes.ilog2().saturating_sub(2))
}

/// Memory for kernels, given back when dropped.
#[derive(Debug)]
pub(super) struct Lent {
    block: Option<Block>,
    pool: Arc<Pool>,
}

impl Lent {
    pub(super) fn address(&self) -> Address {
        self.block.as_ref().map_or(0, Block::address)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        if !self.pool.is_closed() {
            lock(&self.pool.idle).entry(block.len()).or_default().push(block);
        }
    }
}

/// Where each of some lent memory starts; 0 where there is none.
pub(super) fn addresses<const N: usize>(lent: &[Option<Lent>; N]) -> [Address; N] {
    lent.each_ref().map(|lent| lent.as_ref().map_or(0, Lent::address))
}

/// Pinned memory, given back when dropped; until then no copy may be left that uses it.
#[derive(Debug)]
pub(super) struct Room {
    pinned: Option<Pinned>,
    pool: Arc<Pool>,
}

impl Room {
    /// Where it starts, for the device as well.
    pub(super) fn address(&self) -> Address {
        self.pinned.as_ref().map_or(0, Pinned::address)
    }
}

impl HostMemory for Room {
    fn bytes(&self) -> &[u8] {
        self.pinned.as_deref().unwrap_or_default()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.pinned.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let Some(pinned) = self.pinned.take() else { return };
        if !self.pool.is_closed() {
            lock(&self.pool.rooms).push(pinned);
        }
    }
}

/// A room that the device uses up to an event.
#[derive(Debug)]
pub(super) struct Busy {
    /// Taken when the event has been waited for.
    room: Option<Room>,
    event: Event,
}

impl Busy {
    /// A room that the stream uses, for all work that it has now.
    pub(super) fn new(
        device: &Arc<dyn Device>,
        stream: Stream,
        room: Room,
    ) -> Result<Self, DeviceError> {
        Ok(Self { room: Some(room), event: record(device, stream)? })
    }

    /// The room, when the device is done with it.
    pub(super) fn wait(mut self) -> Result<Room, DeviceError> {
        self.event.wait()?;
        match self.room.take() {
            Some(room) => Ok(room),
            None => unreachable!("it is taken here only"),
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // If this fails, the device is lost, and nothing is lent any more.
        if self.room.is_some() {
            let _ = self.event.wait();
        }
    }
}

/// What is on its way to the device.
#[derive(Debug, Default)]
pub(super) struct Sending {
    /// Memory that is copied from, with the end of the copy, in order.
    sent: Mutex<VecDeque<(Event, Box<dyn HostMemory>)>>,
    stages: Mutex<Stages>,
}

#[derive(Debug, Default)]
struct Stages {
    idle: VecDeque<Stage>,
    count: usize,
}

/// A place on the device that rooms are copied to.
#[derive(Debug)]
pub(super) struct Stage {
    memory: Memory,
    /// When the kernels that read what was copied there last are done.
    free: Option<Event>,
}

impl Stage {
    pub(super) fn address(&self) -> Address {
        self.memory.address()
    }
}

impl Sending {
    /// Waits until not too much is on its way.
    pub(super) fn make_way(&self) -> Result<(), DeviceError> {
        loop {
            let oldest = {
                let mut sent = lock(&self.sent);
                if sent.len() < SENT_MAX { None } else { sent.pop_front() }
            };
            match oldest {
                Some((event, memory)) => {
                    let waited = event.wait();
                    drop(memory);
                    waited?;
                }
                None => return Ok(()),
            }
        }
    }

    /// Keeps memory until the copies requested so far are done, and makes the kernels that follow
    /// wait for them.
    pub(super) fn sent(
        &self,
        device: &Arc<dyn Device>,
        memory: Box<dyn HostMemory>,
    ) -> Result<(), DeviceError> {
        let event = record(device, Stream::In)?;
        device.wait_in(Stream::Compute, event.handle)?;
        lock(&self.sent).push_back((event, memory));
        Ok(())
    }

    /// A place to copy to: copies wait until it is free.
    pub(super) fn stage(&self, pool: &Pool) -> Result<Stage, DeviceError> {
        let found = {
            let mut stages = lock(&self.stages);
            if stages.count < STAGES { None } else { stages.idle.pop_front() }
        };
        let stage = match found {
            Some(stage) => stage,
            None => match pool.own(ROOM_BYTES) {
                Ok(memory) => {
                    lock(&self.stages).count += 1;
                    Stage { memory, free: None }
                }
                Err(error) => lock(&self.stages).idle.pop_front().ok_or(error)?,
            },
        };
        if let Some(free) = &stage.free {
            pool.device.wait_in(Stream::In, free.handle)?;
        }
        Ok(stage)
    }

    /// Gives a place back, when the kernels so far are done.
    pub(super) fn give_back(
        &self,
        device: &Arc<dyn Device>,
        mut stage: Stage,
    ) -> Result<(), DeviceError> {
        stage.free = Some(record(device, Stream::Compute)?);
        lock(&self.stages).idle.push_back(stage);
        Ok(())
    }

    /// Frees all places, and waits for what is on its way.
    pub(super) fn clear(&self) {
        let sent = std::mem::take(&mut *lock(&self.sent));
        for (event, memory) in sent {
            let _ = event.wait();
            drop(memory);
        }
        let stages = std::mem::take(&mut *lock(&self.stages));
        drop(stages);
    }
}
