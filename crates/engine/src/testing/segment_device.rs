//! A device that runs on the CPU, and fails on demand.

use std::sync::Arc;

use tapdex_bitmap::Codec;

use super::packet_device::PlainPackets;
use crate::archive::device::{
    KEY_WORDS, PacketDevice, SegmentColumn, SegmentDevice, SegmentFailed, SegmentKeys, SegmentOrder,
};
use crate::error::IndexError;
use crate::index::{Builder, ColumnIndex, CpuBuilder, Digits, RunBuilder, Width};

/// What a [`PlainDevice`] does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails to sort.
    Sort,
    /// It fails after this many columns.
    Columns(usize),
    /// It returns only this many columns and says that these were all.
    TooFewColumns(usize),
    /// The order it returns has a flow that does not exist.
    BadFlow,
    /// The rows it returns have a record twice.
    SameRecord,
}

/// Does the work of a device in the simplest way: devices are compared with it.
#[derive(Debug, Default)]
pub struct PlainDevice {
    fault: Option<Fault>,
    every: u64,
    /// Segments it was asked to sort.
    pub sorted: u64,
    /// Columns it returned.
    pub columns: u64,
    /// Columns of the segment that it was asked for.
    asked: usize,
    /// The words of the flows in their order, and the bytes of the records in theirs.
    words: [Vec<u64>; KEY_WORDS],
    starts: Vec<u32>,
    rows: u32,
    own: Vec<Vec<u16>>,
    is_short: Vec<bool>,
    /// The same device for frames, if it takes any.
    packets: Option<Arc<PlainPackets>>,
}

impl PlainDevice {
    /// A device with this fault: for all segments, or, if `every` is not 0, for every `every`-th
    /// segment.
    pub fn with_fault(fault: Fault, every: u64) -> Self {
        Self { fault: Some(fault), every, ..Self::default() }
    }

    /// A device that takes frames.
    pub fn for_frames(packets: Arc<PlainPackets>) -> Self {
        Self { packets: Some(packets), ..Self::default() }
    }

    fn fault(&self) -> Option<Fault> {
        let is_now = self.every == 0 || self.sorted.is_multiple_of(self.every);
        self.fault.filter(|_| is_now)
    }

    fn column(&self, column: SegmentColumn<'_>, codec: Codec) -> Result<ColumnIndex, IndexError> {
        let mut index = ColumnIndex::default();
        let rows = self.rows;
        match column {
            SegmentColumn::Own(list) if self.is_short[list] => {
                CpuBuilder::new(1).build(Digits::Shorts(&self.own[list]), codec, &mut index)?;
            }
            SegmentColumn::Own(list) => {
                let bytes = self.own[list].iter().map(|digit| digit.to_le_bytes()[0]);
                let bytes: Vec<u8> = bytes.collect();
                CpuBuilder::new(1).build(Digits::Bytes(&bytes), codec, &mut index)?;
            }
            SegmentColumn::Entries(digits) => {
                CpuBuilder::new(1).build(Digits::Shorts(digits), codec, &mut index)?;
            }
            SegmentColumn::Runs(digits, starts) => {
                RunBuilder::new().build(digits, starts, rows, codec, &mut index)?;
            }
            SegmentColumn::Key { word, shift, width } => {
                let mask = match width {
                    Width::Byte => u64::from(u8::MAX),
                    Width::Short => u64::from(u16::MAX),
                };
                let words = self.words[word].iter();
                let digits = words.map(|word| u16::try_from(word >> shift & mask).unwrap());
                let digits: Vec<u16> = digits.collect();
                RunBuilder::new().build(&digits, &self.starts, rows, codec, &mut index)?;
            }
        }
        Ok(index)
    }
}

impl SegmentDevice for PlainDevice {
    fn packets(&self) -> Option<Arc<dyn PacketDevice>> {
        let packets = self.packets.as_ref()?;
        Some(Arc::new(Arc::clone(packets)))
    }

    fn sort(&mut self, segment: &SegmentKeys<'_>) -> Result<SegmentOrder, SegmentFailed> {
        self.sorted += 1;
        self.asked = 0;
        if self.fault() == Some(Fault::Sort) {
            return Err(SegmentFailed::Device("it does not sort".into()));
        }
        let number = |number: usize| u32::try_from(number).unwrap();
        let mut order = SegmentOrder::default();
        order.flows.extend(0..number(segment.words[0].len()));
        order.flows.sort_by_key(|&flow| segment.words.map(|words| words[flow as usize]));
        let mut place = vec![0; order.flows.len()];
        order.flows.iter().zip(0..).for_each(|(&flow, at)| place[flow as usize] = at);
        let rank = |record: u32| place[segment.flow_of[record as usize] as usize];
        order.records.extend(0..number(segment.flow_of.len()));
        order.records.sort_by_key(|&record| rank(record));
        for (row, &record) in (0..).zip(&order.records) {
            if order.starts.len() == rank(record) {
                order.starts.push(row);
            }
        }
        let sorted = |words: &[u64]| order.flows.iter().map(|&flow| words[flow as usize]).collect();
        self.words = segment.words.map(sorted);
        let own = |digits: &Digits<'_>| {
            let records = order.records.iter().map(|&record| record as usize);
            match digits {
                Digits::Bytes([]) | Digits::Shorts([]) => Vec::new(),
                Digits::Bytes(list) => records.map(|record| list[record].into()).collect(),
                Digits::Shorts(list) => records.map(|record| list[record]).collect(),
            }
        };
        self.own = segment.own.iter().map(own).collect();
        let is_short = |digits: &Digits<'_>| matches!(digits, Digits::Shorts(_));
        self.is_short = segment.own.iter().map(is_short).collect();
        self.rows = number(order.records.len());
        self.starts.clone_from(&order.starts);
        match self.fault() {
            Some(Fault::BadFlow) => order.flows[0] = number(order.flows.len()),
            Some(Fault::SameRecord) => order.records[0] = order.records[1],
            _ => {}
        }
        Ok(order)
    }

    fn columns(
        &mut self,
        columns: &[(SegmentColumn<'_>, Codec)],
        done: &mut dyn FnMut(&ColumnIndex) -> Result<(), IndexError>,
    ) -> Result<(), SegmentFailed> {
        for &(column, codec) in columns {
            let number = self.asked;
            self.asked += 1;
            match self.fault() {
                Some(Fault::Columns(most)) if number == most => {
                    return Err(SegmentFailed::Device("it is lost".into()));
                }
                Some(Fault::TooFewColumns(most)) if number == most => return Ok(()),
                _ => {}
            }
            done(&self.column(column, codec)?)?;
            self.columns += 1;
        }
        Ok(())
    }
}
