//! The status of a recorder: live, in the archive, and for Prometheus.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tapdex_engine::archive::{Archive, Recording};
use tapdex_engine::beneath::Rights;
use tapdex_engine::capture::CaptureReader;
use tapdex_engine::storage::Held;

use crate::keeper::REASONS;
use crate::metrics::{Exposition, Histogram};

const STATUS_NAME: &str = "recording.toml";
/// The most bytes of the status file.
const STATUS_LEN_MAX: u64 = 1 << 20;
const LOCK_NAME: &str = ".recording.lock";
/// The greatest number in TOML, and more than any count can be.
const MOST: u64 = i64::MAX.unsigned_abs();
const LOCK_TRIES: u32 = 5;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Packets that were lost, by the place where that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Losses {
    /// The interface had no room for them.
    pub interface: u64,
    /// The kernel's ring had none.
    pub kernel: u64,
    /// The queue to the writer had none: the disk was too slow, or full.
    pub writer: u64,
    /// The indexer: always 0, as it reads what is on the disk.
    pub indexer: u64,
}

impl Losses {
    /// All of them.
    pub fn sum(&self) -> u64 {
        self.interface + self.kernel + self.writer + self.indexer
    }

    pub(crate) fn add(&self, other: &Self) -> Self {
        Self {
            interface: self.interface + other.interface,
            kernel: self.kernel + other.kernel,
            writer: self.writer + other.writer,
            indexer: self.indexer + other.indexer,
        }
    }

    /// The places and what was lost there.
    pub fn by_stage(&self) -> [(&'static str, u64); 4] {
        [
            ("interface", self.interface),
            ("kernel", self.kernel),
            ("writer", self.writer),
            ("indexer", self.indexer),
        ]
    }
}

/// The status of a source.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceStatus {
    /// Its name.
    pub name: String,
    /// Whether it delivers packets.
    pub up: bool,
    /// Packets received: stored, lost by the kernel or by the writer, or still on their way.
    pub received: u64,
    /// Packets in the files.
    pub stored: u64,
    /// Their bytes on the wire.
    pub stored_bytes: u64,
    /// How full the kernel's ring is, from 0 to 1; estimated.
    pub ring_fill: f64,
    /// How full the queue to the writer is.
    pub queue_fill: f64,
    /// It could not be read to its end.
    pub broken: bool,
    /// How often it was opened again.
    pub reopened: u64,
    /// What was lost.
    pub lost: Losses,
}

/// What was recorded, in this run or in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Packets in files.
    pub packets: u64,
    /// Their bytes on the wire.
    pub wire_bytes: u64,
    /// What was lost.
    pub lost: Losses,
    /// Recordings that retention has removed.
    pub removed_segments: u64,
    /// Packets of those.
    pub removed_packets: u64,
    /// How often recording paused because the disk was full.
    pub pauses: u64,
}

impl Totals {
    /// The sum of the two.
    #[must_use]
    pub fn add(&self, other: &Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            wire_bytes: self.wire_bytes + other.wire_bytes,
            lost: self.lost.add(&other.lost),
            removed_segments: self.removed_segments + other.removed_segments,
            removed_packets: self.removed_packets + other.removed_packets,
            pauses: self.pauses + other.pauses,
        }
    }
}

/// How much of the last recording is in the counts: after a kill there may be more in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counted {
    /// The number of the recording. All recordings with smaller numbers are counted.
    pub number: u64,
    /// Packets of it that are counted.
    pub packets: u64,
    /// Their bytes on the wire.
    pub wire_bytes: u64,
}

impl Counted {
    /// All of a recording, and of those before it.
    pub(crate) fn all_of(number: u64) -> Self {
        Self { number, packets: MOST, wire_bytes: MOST }
    }

    /// More packets of a recording.
    pub(crate) fn add(&mut self, number: u64, packets: u64, wire_bytes: u64) {
        if self.number != number {
            *self = Self { number, packets: 0, wire_bytes: 0 };
        }
        self.packets = self.packets.saturating_add(packets);
        self.wire_bytes = self.wire_bytes.saturating_add(wire_bytes);
    }
}

/// Bytes of indexes that a field takes, in a codec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexUse {
    /// The field, or a part of the index that belongs to no field.
    pub field: String,
    /// The codec; `none` if it is not a field.
    pub codec: String,
    /// Bytes of all recordings.
    pub bytes: u64,
}

/// The status of a recorder, which it also leaves in the archive.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Its process.
    pub pid: u32,
    /// The archive.
    pub folder: String,
    /// The device that builds indexes: `cpu` or `cuda`.
    pub device: String,
    /// When it began, in nanoseconds since 1970.
    pub started_ns: u64,
    /// When this was written.
    pub updated_ns: u64,
    /// The disk is full, and nothing may be removed: packets are lost.
    pub paused: bool,
    /// Nothing is removed by age, since the system clock has jumped.
    pub age_paused: bool,
    /// It has ended normally.
    pub ended: bool,
    /// Packets a second, over the last second or so.
    pub packets_per_second: f64,
    /// Bits a second on the wire.
    pub bits_per_second: f64,
    /// Packets that would survive a loss of power.
    pub synced_packets: u64,
    /// Bytes of packet files that were written.
    pub written_bytes: u64,
    /// The time of the last packet, in nanoseconds since 1970; 0 if there was none.
    pub last_packet_ns: u64,
    /// Recordings that were completed.
    pub sealed: u64,
    /// Recordings that were indexed.
    pub indexed: u64,
    /// Packets of those.
    pub indexed_packets: u64,
    /// Bytes of their indexes.
    pub index_bytes: u64,
    /// Recordings that wait for the indexer.
    pub waiting: u64,
    /// How long the first of them has waited.
    pub index_lag_seconds: f64,
    /// Recordings in the archive, including those of earlier runs.
    pub segments: u64,
    /// Bytes of their packets.
    pub packet_bytes: u64,
    /// Bytes of their indexes.
    pub segment_index_bytes: u64,
    /// What those are used for; not written to the archive.
    #[serde(skip)]
    pub index_uses: Vec<IndexUse>,
    /// The time of the oldest packet; 0 if there is none.
    pub oldest_packet_ns: u64,
    /// Bytes free on the disk.
    pub disk_free_bytes: u64,
    /// Percent of the disk in use.
    pub disk_percent: f64,
    /// Recordings that retention has removed, by reason.
    pub removed_by: [u64; REASONS.len()],
    /// What was recorded in this run.
    pub run: Totals,
    /// What was recorded in all runs.
    pub total: Totals,
    /// How much of the last recording is in these; unknown for old recorders.
    pub counted: Option<Counted>,
    /// The sources.
    pub sources: Vec<SourceStatus>,
}

impl Status {
    fn path(archive: &Archive) -> PathBuf {
        archive.folder().join(STATUS_NAME)
    }

    /// The status of the last recorder, or of one that is running; `None` if there was none, or the
    /// file cannot be read.
    pub fn read(archive: &Archive) -> Option<Self> {
        let text = archive.storage().read_text(&Self::path(archive), STATUS_LEN_MAX);
        toml::from_str(&text.ok()?).ok()
    }

    /// What was recorded in all runs. A recorder that was killed has not counted its last packets:
    /// those that it stored are counted here. For a recorder that is no longer running.
    pub fn total_stored(&self, archive: &Archive) -> Totals {
        let mut total = self.total;
        let Some(counted) = self.counted.filter(|_| !self.ended) else { return total };
        for recording in archive.recordings().unwrap_or_default() {
            let is_last = recording.number() == Some(counted.number);
            if !is_last && recording.number().is_none_or(|number| number < counted.number) {
                continue;
            }
            let known = if is_last { counted } else { Counted::default() };
            let (packets, wire_bytes) = stored(&recording);
            if known.packets < MOST {
                // After a loss of power there may be fewer packets.
                total.packets = total.packets.saturating_sub(known.packets) + packets;
                total.wire_bytes = total.wire_bytes.saturating_sub(known.wire_bytes) + wire_bytes;
            }
        }
        total
    }

    /// Whether a recorder runs on the archive.
    pub fn is_running(archive: &Archive) -> bool {
        archive.storage().is_locked(&archive.folder().join(LOCK_NAME)).unwrap_or(false)
    }

    /// Writes it into the archive. It is not synced, as it is written every second, except the last
    /// one.
    pub(crate) fn write(&self, archive: &Archive) -> io::Result<()> {
        let path = Self::path(archive);
        let text = toml::to_string(self).map_err(io::Error::other)?.into_bytes();
        match self.ended {
            // The last one has to survive a loss of power.
            true => archive.storage().replace(&path, Rights::USUAL, || Some(text)),
            false => archive.storage().put(&path, &text, Rights::USUAL),
        }
    }

    /// What was lost, in this run.
    pub fn lost(&self) -> &Losses {
        &self.run.lost
    }

    /// How full the fullest ring is.
    pub fn ring_fill(&self) -> f64 {
        self.sources.iter().map(|source| source.ring_fill).fold(0.0, f64::max)
    }

    /// How full the fullest queue is.
    pub fn queue_fill(&self) -> f64 {
        self.sources.iter().map(|source| source.queue_fill).fold(0.0, f64::max)
    }

    /// All of it for Prometheus.
    pub fn exposition(&self, build_seconds: &Histogram) -> String {
        let mut text = Exposition::default();
        self.add_capture(&mut text);
        let none: &[(&str, &str)] = &[];
        text.counter(
            "tapdex_writer_bytes_total",
            "Bytes written to packet files.",
            none,
            self.written_bytes,
        );
        text.counter(
            "tapdex_writer_synced_packets_total",
            "Packets that outlast a loss of power.",
            none,
            self.synced_packets,
        );
        text.counter(
            "tapdex_writer_pauses_total",
            "Times that the disk was full.",
            none,
            self.run.pauses,
        );
        text.gauge(
            "tapdex_writer_paused",
            "1 while the disk is full.",
            none,
            u32::from(self.paused),
        );
        let device = [("device", self.device.as_str())];
        text.counter(
            "tapdex_index_records_total",
            "Packets indexed.",
            &device,
            self.indexed_packets,
        );
        text.counter(
            "tapdex_index_written_bytes_total",
            "Bytes of indexes written.",
            none,
            self.index_bytes,
        );
        for IndexUse { field, codec, bytes } in &self.index_uses {
            let labels = [("field", field.as_str()), ("codec", codec.as_str())];
            text.gauge("tapdex_index_bytes", "Bytes of the indexes.", &labels, *bytes);
        }
        text.histogram(
            "tapdex_index_build_seconds",
            "Time to index a recording.",
            none,
            build_seconds,
        );
        text.gauge(
            "tapdex_index_lag_seconds",
            "Age of the oldest recording not indexed.",
            none,
            self.index_lag_seconds,
        );
        text.gauge(
            "tapdex_index_waiting_segments",
            "Recordings not indexed yet.",
            none,
            self.waiting,
        );
        for (kind, bytes) in [("packets", self.packet_bytes), ("index", self.segment_index_bytes)] {
            text.gauge("tapdex_storage_bytes", "Bytes of recordings.", &[("kind", kind)], bytes);
        }
        text.gauge(
            "tapdex_storage_free_bytes",
            "Bytes free on the disk.",
            &[("disk", self.folder.as_str())],
            self.disk_free_bytes,
        );
        text.gauge("tapdex_storage_segments", "Recordings.", none, self.segments);
        if self.oldest_packet_ns > 0 {
            text.gauge(
                "tapdex_storage_oldest_packet_timestamp_seconds",
                "Time of the oldest packet.",
                none,
                self.oldest_packet_ns as f64 / 1e9,
            );
        }
        for (reason, count) in REASONS.iter().zip(self.removed_by) {
            text.counter(
                "tapdex_retention_deleted_segments_total",
                "Recordings removed.",
                &[("reason", reason.name())],
                count,
            );
        }
        text.gauge(
            "tapdex_retention_age_paused",
            "1 while nothing is removed by age because the system clock has jumped.",
            none,
            u32::from(self.age_paused),
        );
        let revision = option_env!("TAPDEX_REVISION").unwrap_or("unknown");
        let version = [("version", env!("CARGO_PKG_VERSION")), ("revision", revision)];
        text.gauge("tapdex_build_info", "1, and the version.", &version, 1_u32);
        text.finish()
    }

    fn add_capture(&self, text: &mut Exposition) {
        for source in &self.sources {
            let iface = [("iface", source.name.as_str())];
            text.counter(
                "tapdex_capture_packets_total",
                "Packets in files.",
                &iface,
                source.stored,
            );
            text.counter(
                "tapdex_capture_bytes_total",
                "Bytes on the wire of packets in files.",
                &iface,
                source.stored_bytes,
            );
            text.counter(
                "tapdex_capture_received_packets_total",
                "Packets that came, lost or not.",
                &iface,
                source.received,
            );
            for (stage, lost) in source.lost.by_stage() {
                // The usual name in other programs.
                let stage = if stage == "interface" { "nic" } else { stage };
                let labels = [("iface", source.name.as_str()), ("stage", stage)];
                text.counter(
                    "tapdex_capture_dropped_packets_total",
                    "Packets lost.",
                    &labels,
                    lost,
                );
            }
            text.gauge(
                "tapdex_ring_fill_ratio",
                "How full the kernel's ring is.",
                &iface,
                source.ring_fill,
            );
            text.gauge(
                "tapdex_queue_fill_ratio",
                "How full the queue to the writer is.",
                &iface,
                source.queue_fill,
            );
            text.gauge(
                "tapdex_capture_up",
                "1 while the source gives packets.",
                &iface,
                u32::from(source.up),
            );
            text.counter(
                "tapdex_capture_reopened_total",
                "Times it was opened again.",
                &iface,
                source.reopened,
            );
        }
        if self.last_packet_ns > 0 {
            text.gauge(
                "tapdex_capture_last_packet_timestamp_seconds",
                "Time of the last packet.",
                &[],
                self.last_packet_ns as f64 / 1e9,
            );
        }
    }
}

/// Whole packets of a recording, and their bytes on the wire.
fn stored(recording: &Recording) -> (u64, u64) {
    let reader = recording.open().ok().and_then(|file| CaptureReader::open(file).ok());
    let (mut packets, mut wire_bytes) = (0, 0);
    if let Some(mut reader) = reader {
        while let Ok(Some(record)) = reader.next() {
            packets += 1;
            wire_bytes += u64::from(record.wire_len);
        }
    }
    (packets, wire_bytes)
}

/// Held by a recorder as long as it runs.
#[derive(Debug)]
pub(crate) struct RunLock(#[allow(dead_code, reason = "held, not used")] Box<dyn Held>);

impl RunLock {
    /// `None` if another recorder runs on the archive.
    pub(crate) fn take(archive: &Archive) -> io::Result<Option<Self>> {
        for _ in 0..LOCK_TRIES {
            match archive.storage().lock(&archive.folder().join(LOCK_NAME)) {
                // A process that only checks whether a recorder runs holds it for a moment.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                lock => return Ok(Some(Self(lock?))),
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use tapdex_engine::capture::{Interface, blocks};

    use super::*;
    use crate::source::numbered_frame;

    /// The bytes of a recording.
    fn bytes(packets: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        blocks::section(&mut bytes, "");
        blocks::interface(&mut bytes, &Interface::new(1, 1_000_000_000), "");
        for n in 0..packets {
            blocks::packet(&mut bytes, 0, 1_000 + n, 90, &numbered_frame(n, 80));
        }
        bytes
    }

    /// The totals for three recordings, the last of which is cut off in a packet.
    fn total(ended: bool, counted: Option<Counted>) -> (u64, u64) {
        let folder = tempfile::tempdir().unwrap();
        let archive = Archive::create(&folder.path().join("archive"), None).unwrap();
        for (number, packets) in [(1, 100), (2, 60), (3, 31)] {
            let recording = archive.new_recording(0, number - 1).unwrap();
            assert_eq!(recording.number(), Some(number));
            let mut bytes = bytes(packets);
            let path = match number {
                3 => recording.unfinished_path(),
                _ => recording.sealed_path(),
            };
            bytes.truncate(bytes.len() - usize::from(number == 3));
            std::fs::write(path, bytes).unwrap();
        }
        let total = Totals { packets: 140, wire_bytes: 140 * 90, ..Totals::default() };
        let status = Status { ended, counted, total, ..Status::default() };
        let found = status.total_stored(&archive);
        (found.packets, found.wire_bytes)
    }

    #[test]
    fn what_was_stored_after_the_last_count_counts() {
        // All of the first and 40 of the second were counted.
        let counted = Counted { number: 2, packets: 40, wire_bytes: 40 * 90 };
        assert_eq!(total(false, Some(counted)), (190, 190 * 90));
        assert_eq!(total(true, Some(counted)), (140, 140 * 90), "it has counted all");
        assert_eq!(total(false, None), (140, 140 * 90), "nobody knows");
        let more = Counted { number: 3, packets: 40, wire_bytes: 40 * 90 };
        assert_eq!(total(false, Some(more)), (130, 130 * 90), "ten were lost with the power");
        assert_eq!(total(false, Some(Counted::all_of(2))), (170, 170 * 90));
        assert_eq!(total(false, Some(Counted::all_of(3))), (140, 140 * 90));
        assert_eq!(total(false, Some(Counted::all_of(9))), (140, 140 * 90));
    }

    #[test]
    fn counts_can_be_written_down() {
        for number in [0, 7] {
            let status = Status { counted: Some(Counted::all_of(number)), ..Status::default() };
            let text = toml::to_string(&status).unwrap();
            assert_eq!(toml::from_str::<Status>(&text).unwrap(), status);
        }
    }

    #[test]
    fn a_recording_begins_its_own_count() {
        let mut counted = Counted::all_of(4);
        counted.add(5, 10, 100);
        counted.add(5, 1, 60);
        assert_eq!(counted, Counted { number: 5, packets: 11, wire_bytes: 160 });
        counted.add(6, 2, 120);
        assert_eq!(counted, Counted { number: 6, packets: 2, wire_bytes: 120 });
    }
}
