//! A folder of captures and their indexes.
//!
//! ```text
//! archive.toml                     the settings that new segments get
//! segments/NAME-HASH-PART.tdx      the index of one segment, which names its packet file
//! packets/NAME-HASH.pcap           our copy of a capture that was compressed or came as a stream
//! packets/rec-NUMBER-TIME.pcapng   what a recorder has captured
//! drafts/                          indexes of the recording that is being written
//! missing.toml                     what retention removed, and what no recording reports
//! ```
//!
//! A segment stands alone: its index file and the packet file that this names hold all that is
//! known about it. There is no list of segments: the archive has those whose files are in the
//! folder.

mod builder;
mod columns;
pub mod completeness;
pub mod device;
mod draft;
mod error;
mod file_names;
mod flows;
mod ingest;
mod kept;
mod note;
mod recording;
mod repair;
mod segment;
mod unread;
mod upgrade;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tapdex_bitmap::{ALL_CODECS, Codec};

use crate::beneath::{Rights, Root};
use crate::fields::{Field, FieldSet};
use crate::storage::{Storage, Whose, temporary_path};
use crate::time::TimeRange;

pub use builder::DeviceReport;
pub(crate) use columns::OfLinks;
pub use columns::{Column, Columns, FieldColumn};
pub use completeness::{Cause, Gap, Held, Survey};
pub use draft::Drafter;
pub use error::{ArchiveError, NoteFault, PacketsFault, SettingsFault, UnpackLimit};
pub use ingest::{FileReport, Ingest, IngestReport, Input, Progress, Step};
use kept::KeptSegments;
pub use note::{Covered, Loss, Note, SourceFile};
pub(crate) use recording::recording_number;
pub use recording::{Recording, Recovered};
pub use repair::{Compared, Repair, RepairReport};
pub use segment::{Packets, Segment};
pub use unread::{Unread, UnreadPackets};
pub use upgrade::{Upgrade, UpgradeReport};

/// The form of the columns of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodecChoice {
    /// The form that fits a column best: lists, packed ids, or bitmaps of MASC.
    Auto,
    /// Bitmaps of this codec.
    Fixed(Codec),
}

impl CodecChoice {
    /// Parses what [`Display`](std::fmt::Display) writes: `auto`, the name of a codec, `hipes:9`.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "auto" {
            return Some(Self::Auto);
        }
        let (name, parameter) = match text.split_once(':') {
            Some((name, parameter)) => (name, Some(parameter.parse().ok()?)),
            None => (text, None),
        };
        let codec = ALL_CODECS.into_iter().find(|codec| codec.name() == name)?;
        let codec = match parameter {
            Some(parameter) => Codec::from_id(codec.id() as u8, parameter)?,
            None => codec,
        };
        (parameter.is_none() || codec.parameter() != 0).then_some(Self::Fixed(codec))
    }
}

impl std::fmt::Display for CodecChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Fixed(codec) => match codec.parameter() {
                0 => f.write_str(codec.name()),
                parameter => write!(f, "{}:{parameter}", codec.name()),
            },
        }
    }
}

/// How new segments are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The codec of their columns.
    pub codec: CodecChoice,
    /// Whether they have checksums of all packets; those of recordings have them in any case.
    pub sums: bool,
    /// The fields that they keep.
    pub fields: FieldSet,
}

impl Default for Settings {
    fn default() -> Self {
        Self { codec: CodecChoice::Auto, sums: false, fields: FieldSet::USUAL }
    }
}

/// `archive.toml`, as it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsFile {
    version: u32,
    /// The order of rows, which older versions let people choose: it has no effect.
    #[serde(rename = "order", default, skip_serializing)]
    _order: Option<serde::de::IgnoredAny>,
    codec: String,
    /// Left out if false, for programs that do not know this key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    sums: bool,
    /// Fields kept in addition to the usual ones; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    fields: Vec<String>,
}

/// The version of `archive.toml` that this program writes, and the only one that it reads.
const VERSION: u32 = 1;
const SETTINGS_NAME: &str = "archive.toml";
/// The most bytes that `archive.toml` may have.
const SETTINGS_LEN_MAX: u64 = 64 << 10;
/// How many times to retry, and how long to pause, while another process writes the file.
const SETTINGS_TRIES: u32 = 1_000;
const SETTINGS_PAUSE: Duration = Duration::from_millis(5);
const SEGMENTS_NAME: &str = "segments";
const PACKETS_NAME: &str = "packets";
const DRAFTS_NAME: &str = "drafts";

/// Segments that could be opened, and what is wrong with the others.
pub type OpenSegments = (Vec<Arc<Segment>>, Vec<Arc<ArchiveError>>);

/// A folder of captures and their indexes.
#[derive(Debug, Clone)]
pub struct Archive {
    folder: PathBuf,
    /// All reads and changes go through it.
    storage: Arc<dyn Storage>,
    settings: Settings,
    kept: Arc<KeptSegments>,
}

impl Archive {
    /// Opens the archive in a folder.
    pub fn open(folder: &Path) -> Result<Self, ArchiveError> {
        match Root::open(folder) {
            Ok(root) => Self::open_on(Arc::new(root), folder),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(ArchiveError::NoArchive { path: folder.to_owned() })
            }
            Err(error) => Err(ArchiveError::io("open", folder, error)),
        }
    }

    /// Opens the archive in a folder of a storage.
    pub fn open_on(storage: Arc<dyn Storage>, folder: &Path) -> Result<Self, ArchiveError> {
        let settings = read_settings(&*storage, &folder.join(SETTINGS_NAME))?;
        Ok(Self { folder: folder.to_owned(), storage, settings, kept: Arc::default() })
    }

    /// Opens the archive in a folder, or makes one there. Settings that are given are saved and
    /// apply to new segments; existing segments stay as they are.
    pub fn create(folder: &Path, codec: Option<CodecChoice>) -> Result<Self, ArchiveError> {
        let root = Root::create(folder);
        let root = root.map_err(|error| ArchiveError::io("create", folder, error))?;
        Self::create_on(Arc::new(root), folder, codec)
    }

    /// Opens the archive in a folder of a storage, or makes one there, as [`create`](Self::create)
    /// does.
    pub fn create_on(
        storage: Arc<dyn Storage>,
        folder: &Path,
        codec: Option<CodecChoice>,
    ) -> Result<Self, ArchiveError> {
        let segments = folder.join(SEGMENTS_NAME);
        let made = storage.make_folder(&segments);
        made.map_err(|error| ArchiveError::io("create", &segments, error))?;
        let path = folder.join(SETTINGS_NAME);
        let wanted = |there: Option<Settings>| {
            let base = there.unwrap_or_default();
            Settings { codec: codec.unwrap_or(base.codec), ..base }
        };
        let there = match read_settings(&*storage, &path) {
            Err(ArchiveError::NoArchive { .. }) => None,
            there => Some(there?),
        };
        let mut settings = wanted(there);
        if there != Some(settings) {
            write_settings(&*storage, &path, |there| {
                settings = wanted(there);
                settings
            })?;
        } else {
            // A killed process may have left a half-written file. A locked one is still being
            // written.
            drop(storage.remove_stale(&temporary_path(&path)));
        }
        Ok(Self { folder: folder.to_owned(), storage, settings, kept: Arc::default() })
    }

    /// Opens the archive in a folder, and rewrites its settings if they are missing or damaged: the
    /// settings that its segments were built with, or the default if it has none. Also returns what
    /// was done.
    pub fn mend(folder: &Path) -> Result<(Self, Option<String>), ArchiveError> {
        match Root::open(folder) {
            Ok(root) => Self::mend_on(Arc::new(root), folder),
            Err(_) => Self::open(folder).map(|archive| (archive, None)),
        }
    }

    /// [`mend`](Self::mend) in a folder of a storage.
    pub fn mend_on(
        storage: Arc<dyn Storage>,
        folder: &Path,
    ) -> Result<(Self, Option<String>), ArchiveError> {
        let why = match Self::open_on(Arc::clone(&storage), folder) {
            Err(ArchiveError::BadSettings { fault, .. }) => fault.to_string(),
            // A folder without such files is not an archive.
            Err(ArchiveError::NoArchive { .. }) if has_files(&*storage, folder) => {
                "it is missing".to_owned()
            }
            opened => return Ok((opened?, None)),
        };
        let path = folder.join(SETTINGS_NAME);
        let text = storage.read_text(&path, SETTINGS_LEN_MAX);
        let table = text.ok().and_then(|text| text.parse::<toml::Table>().ok());
        let version = table.and_then(|table| table.get("version")?.as_integer());
        if version.is_some_and(|version| version > VERSION.into()) {
            // Not damaged, but written by a later version of the program.
            return Self::open_on(storage, folder).map(|archive| (archive, None));
        }
        let settings = Settings::default();
        let folder = folder.to_owned();
        let mut archive = Self { folder, storage, settings, kept: Arc::default() };
        let built = archive.built_with();
        archive.settings = built.unwrap_or_default();
        let settings = archive.settings;
        write_settings(&*archive.storage, &path, |_| settings)?;
        let codec = settings.codec;
        let from = built.map_or("the default", |_| "as the indexes were built");
        let (shown, why) = (path.display(), why.lines().next().unwrap_or_default());
        let done = format!("{shown}: written again: codec {codec}, {from}; {why}");
        Ok((archive, Some(done)))
    }

    /// The settings that the existing segments were built with; `None` if there are none.
    fn built_with(&self) -> Option<Settings> {
        let (mut is_any, mut sums, mut fields) = (false, false, FieldSet::USUAL);
        let mut codecs = BTreeSet::new();
        for path in self.index_files().ok()? {
            let Ok(segment) = Segment::open(&self.storage, &path) else { continue };
            match segment.index().flow_schema() {
                Some(schema) => codecs.extend(schema.columns.iter().map(|c| c.form.to_string())),
                None => {
                    let columns = segment.index().schema().columns();
                    codecs.extend(columns.map(|c| CodecChoice::Fixed(c.codec).to_string()));
                }
            }
            fields = FieldSet::ALL
                .iter()
                .filter(|&f| segment.columns().knows(f))
                .fold(fields, FieldSet::with);
            sums |= segment.index().has_pieces() && segment.recording_name().is_none();
            is_any = true;
        }
        // If all columns have one codec, the user asked for it, unless it is the one that is most
        // often chosen automatically.
        let only = codecs.pop_first().filter(|_| codecs.is_empty());
        let only = only.and_then(|name| CodecChoice::parse(&name));
        let codec = only.filter(|&only| only != CodecChoice::Fixed(Codec::Roaring));
        let codec = codec.unwrap_or(CodecChoice::Auto);
        is_any.then_some(Settings { codec, sums, fields })
    }

    /// Sets whether new segments keep checksums of all packets, and saves the setting.
    pub fn keep_sums(&mut self, sums: bool) -> Result<(), ArchiveError> {
        if self.settings.sums == sums {
            return Ok(());
        }
        let base = self.settings;
        let path = self.folder.join(SETTINGS_NAME);
        write_settings(&*self.storage, &path, |there| Settings { sums, ..there.unwrap_or(base) })?;
        self.settings.sums = sums;
        Ok(())
    }

    /// Sets the fields that new segments keep in addition to the usual ones, and saves the setting.
    pub fn keep_fields(&mut self, extra: FieldSet) -> Result<(), ArchiveError> {
        let fields = FieldSet::USUAL.and(extra);
        if self.settings.fields == fields {
            return Ok(());
        }
        let base = self.settings;
        let path = self.folder.join(SETTINGS_NAME);
        write_settings(&*self.storage, &path, |there| Settings {
            fields,
            ..there.unwrap_or(base)
        })?;
        self.settings.fields = fields;
        Ok(())
    }

    /// The storage that it is on: all reads and changes go through it.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How new segments are built.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    fn segments_folder(&self) -> PathBuf {
        self.folder.join(SEGMENTS_NAME)
    }

    /// The folder of its own packet files.
    pub fn packets_folder(&self) -> PathBuf {
        self.folder.join(PACKETS_NAME)
    }

    /// The index files of its segments, by name.
    pub fn index_files(&self) -> Result<Vec<PathBuf>, ArchiveError> {
        let folder = self.segments_folder();
        let failed = |error| ArchiveError::io("list", &folder, error);
        let mut found = Vec::new();
        for path in self.storage.list(&folder).map_err(failed)? {
            let hidden = path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"."));
            if !hidden && path.extension().is_some_and(|extension| extension == "tdx") {
                found.push(path);
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Opens all segments: those that could be opened, by the time of their first packet, and what
    /// is wrong with the others. Recorded packets that are not indexed yet come from drafts;
    /// packets without a draft are indexed in memory.
    pub fn segments(&self) -> Result<OpenSegments, ArchiveError> {
        self.segments_from(TimeRange::ALL)
    }

    /// [`segments`](Self::segments), without those in memory that have no packet from these times.
    pub fn segments_from(&self, times: TimeRange) -> Result<OpenSegments, ArchiveError> {
        let survey = self.survey(times)?;
        Ok((survey.segments, survey.gaps.into_iter().filter_map(|gap| gap.error).collect()))
    }

    /// Closes the segments that the last search left open for the next one. Those that somebody
    /// still holds stay open.
    pub fn close_segments(&self) {
        self.kept.close();
    }

    /// Opens all segments but those in memory that have no packet from these times, and finds what
    /// the archive lacks, from all times.
    pub fn survey(&self, times: TimeRange) -> Result<Survey, ArchiveError> {
        let mut survey = self.indexed()?;
        let damaged: Vec<PathBuf> = survey.gaps.iter().filter_map(damaged_index).collect();
        let damaged: Vec<&str> =
            damaged.iter().map(|path| file_names::capture_name(path)).collect();
        self.unindexed(&damaged, times, &mut survey)?;
        survey.segments.sort_by_key(|segment| segment.note().time_min);
        survey.find_gaps(self);
        Ok(survey)
    }

    /// The segments that have an index file, and which of them could not be opened.
    fn indexed(&self) -> Result<Survey, ArchiveError> {
        let mut survey = Survey::default();
        let paths = self.index_files()?;
        for (path, opened) in paths.iter().zip(self.kept.open(&self.storage, &paths)) {
            match opened {
                Ok(segment) => survey.segments.push(segment),
                // Retention has removed it since the folder was listed.
                Err(_) if !self.storage.exists(path) => {}
                Err(error) => survey.gaps.push(Gap::unknown(error)),
            }
        }
        self.find_missing(&survey.segments, &mut survey.gaps);
        Ok(survey)
    }

    /// Removes a file of the archive's own; it is no error if the file is gone.
    fn remove_if_there(&self, path: &Path) -> Result<(), ArchiveError> {
        let removed = self.storage.remove_if_there(path);
        removed.map_err(|error| ArchiveError::io("remove", path, error))
    }

    /// The canonical path of a file; the same path if the file does not exist.
    fn real_path(&self, path: PathBuf) -> PathBuf {
        self.storage.real_path(&path).unwrap_or(path)
    }

    /// Where the index of a part of a packet file goes.
    fn index_path(&self, packets: &Path, part: u32) -> PathBuf {
        self.segments_folder().join(index_name(&self.index_stem(packets), part))
    }

    /// Finds captures that are not fully indexed, or whose index was removed: otherwise answers
    /// would be incomplete and nobody would know.
    fn find_missing(&self, segments: &[Arc<Segment>], gaps: &mut Vec<Gap>) {
        // By name: the parts of a capture have the same name but for their number.
        let mut captures: BTreeMap<&str, Vec<&Segment>> = BTreeMap::new();
        for segment in segments {
            captures.entry(file_names::capture_name(segment.path())).or_default().push(segment);
        }
        let damaged: Vec<PathBuf> = gaps.iter().filter_map(damaged_index).collect();
        for (name, mut parts) in captures {
            parts.sort_by_key(|segment| segment.note().source.part);
            let Some(first) = parts.first() else { continue };
            let packets = packets_between(&parts);
            if let Some(at) = damaged.iter().position(|path| file_names::capture_name(path) == name)
            {
                // Everything missing from a capture is reported with its first damaged index.
                let is_this = |gap: &&mut Gap| damaged_index(gap).as_ref() == Some(&damaged[at]);
                if let Some(gap) = gaps.iter_mut().find(is_this) {
                    gap.packets = packets;
                }
                continue;
            }
            let (path, source) = (first.packet_path(), &first.note().source);
            let path = self.real_path(path);
            let is_whole = note::chained(parts.iter().map(|part| part.note())) == parts.len();
            let ends = parts.last().is_some_and(|segment| segment.note().source.last);
            // The part of a recording behind the first gap is indexed in memory.
            let is_answered = is_whole && ends || recording::is_recording(name);
            if !is_answered {
                let missing = Gap::unknown(ArchiveError::MissingPart { path });
                gaps.push(Gap { packets, ..missing });
                continue;
            }
            let times = parts.iter().map(|part| (part.note().time_min, part.note().time_max));
            let times = times.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or_default();
            // For a copy, the known length is that of the original.
            let (fault, packets, to_ns) = match self.storage.metadata(&path, Whose::Named) {
                // Retention has removed it just now.
                Err(_) if !self.storage.exists(first.path()) => continue,
                Err(_) => (
                    PacketsFault::Missing,
                    Some(parts.iter().map(|part| part.note().records).sum()),
                    times.1,
                ),
                Ok(data) if !source.is_copy() && data.len != source.len => {
                    (PacketsFault::Changed, None, u64::MAX)
                }
                Ok(_) => continue,
            };
            let error = ArchiveError::BadPackets { path, fault };
            gaps.push(Gap { from_ns: times.0, to_ns, packets, ..Gap::unknown(error) });
        }
        let names: BTreeSet<&str> = segments
            .iter()
            .map(|segment| segment.path())
            .chain(damaged.iter().map(PathBuf::as_path))
            .map(file_names::capture_name)
            .collect();
        for path in self.copies_without_index(&names) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let fault = match is_regular(&*self.storage, &path) {
                // Its packets are indexed in memory.
                true if recording::is_recording(name) => continue,
                true => PacketsFault::NotIndexed,
                // Retention has removed it just now.
                false if !self.storage.has_name(&path) => continue,
                false => PacketsFault::NoFile,
            };
            gaps.push(Gap::unknown(ArchiveError::BadPackets { path, fault }));
        }
    }

    /// Our copies of captures that no segment belongs to, judged by the prefix of the segment
    /// names: indexing them was interrupted.
    fn copies_without_index(&self, names: &BTreeSet<&str>) -> Vec<PathBuf> {
        let files = self.storage.list(&self.packets_folder()).unwrap_or_default();
        let is_left = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let first = names.range(name..).next();
            let rest = first.and_then(|found| found.strip_prefix(name));
            // In older archives the name is followed by a number.
            let is_indexed = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
            !name.starts_with('.') && !is_indexed
        };
        files.into_iter().filter(is_left).collect()
    }
}

/// Whether a folder has index or packet files where an archive would have them.
fn has_files(storage: &dyn Storage, folder: &Path) -> bool {
    let has = |name: &str, ending: &str| {
        let files = storage.list(&folder.join(name)).unwrap_or_default();
        files.iter().any(|path| path.as_os_str().as_encoded_bytes().ends_with(ending.as_bytes()))
    };
    has(SEGMENTS_NAME, ".tdx") || has(PACKETS_NAME, ".pcapng") || has(PACKETS_NAME, ".pcap")
}

/// Reads the settings of an archive.
fn read_settings(storage: &dyn Storage, path: &Path) -> Result<Settings, ArchiveError> {
    let bad = |fault| ArchiveError::BadSettings { path: path.to_owned(), fault };
    let text = match storage.read_text(path, SETTINGS_LEN_MAX) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().unwrap_or(Path::new(""));
            return Err(ArchiveError::NoArchive { path: folder.to_owned() });
        }
        // Not a regular file, too long, or not text.
        Err(error)
            if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) =>
        {
            return Err(bad(SettingsFault::NoText { what: error.to_string() }));
        }
        Err(error) => return Err(ArchiveError::io("read", path, error)),
    };
    let file: SettingsFile = toml::from_str(&text)
        .map_err(|error| bad(SettingsFault::Syntax { error: error.to_string() }))?;
    if file.version != VERSION {
        return Err(bad(SettingsFault::Version { found: file.version.into(), known: VERSION }));
    }
    let codec = CodecChoice::parse(&file.codec);
    let codec = codec.ok_or_else(|| bad(SettingsFault::Codec { name: file.codec.clone() }))?;
    let mut fields = FieldSet::USUAL;
    for name in &file.fields {
        let field = Field::of_name(name);
        let unknown = || bad(SettingsFault::Field { name: name.clone() });
        fields = fields.with(field.ok_or_else(unknown)?);
    }
    Ok(Settings { codec, sums: file.sums, fields })
}

/// Writes the settings of an archive. If another process is writing them, waits for it first;
/// `wanted` gets the settings that are in the file by then.
fn write_settings(
    storage: &dyn Storage,
    path: &Path,
    mut wanted: impl FnMut(Option<Settings>) -> Settings,
) -> Result<(), ArchiveError> {
    let mut write = || {
        storage.replace(path, Rights::USUAL, || {
            let there = read_settings(storage, path).ok();
            let settings = wanted(there);
            let file = SettingsFile {
                version: VERSION,
                _order: None,
                codec: settings.codec.to_string(),
                sums: settings.sums,
                fields: settings.fields.extra().iter().map(|field| field.name().into()).collect(),
            };
            let text = toml::to_string(&file).unwrap_or_default();
            (there != Some(settings)).then(|| text.into_bytes())
        })
    };
    for _ in 0..SETTINGS_TRIES {
        match write() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(SETTINGS_PAUSE);
            }
            done => return done.map_err(|error| ArchiveError::io("write", path, error)),
        }
    }
    write().map_err(|error| ArchiveError::io("write", path, error))
}

/// The name of the index of a part of a packet file; see [`file_names::capture_name`].
fn index_name(stem: &str, part: u32) -> String {
    format!("{stem}-{part:04}.tdx")
}

/// Whether a path leads to a regular file of the archive's own.
fn is_regular(storage: &dyn Storage, path: &Path) -> bool {
    storage.metadata(path, Whose::Own).is_ok_and(|data| data.is_file())
}

/// How many packets of a capture are missing before its first part or between its parts; `None` if
/// packets after the last part are missing, too, or if the number is not known.
fn packets_between(parts: &[&Segment]) -> Option<u64> {
    let (mut reached, mut missing) = (0, 0_u64);
    for part in parts {
        let (note, source) = (part.note(), &part.note().source);
        missing = missing.checked_add(source.records_before.checked_sub(reached)?)?;
        reached = source.records_before.checked_add(note.records)?;
    }
    parts.last().is_some_and(|part| part.note().source.last).then_some(missing)
}

/// The index file that is damaged.
fn damaged_index(gap: &Gap) -> Option<PathBuf> {
    match gap.error.as_deref()? {
        ArchiveError::Index { path, .. } | ArchiveError::BadNote { path, .. } => Some(path.clone()),
        _ => None,
    }
}
