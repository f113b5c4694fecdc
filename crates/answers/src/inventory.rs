//! What is in an archive: the lines of `info --json`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tapdex_engine::archive::{Archive, ArchiveError, Segment};
use tapdex_engine::fields::FieldSet;
use tapdex_engine::index::SectionKind;
use tapdex_engine::time::TimeRange;
use tapdex_record::status::Status;

use crate::json::Time;
use crate::lines;
use crate::missing::missing;

/// The least length of a gap, in nanoseconds.
const GAP_NS: u64 = 1_000_000_000;

/// What is in an archive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inventory {
    /// The archive.
    pub archive: lines::Archive,
    /// Its recorder, if it ever had one.
    pub recorder: Option<lines::Recorder>,
    /// Fields in the order of the columns, then parts that belong to no field.
    pub fields: Vec<lines::Field>,
    /// Segments by time.
    pub segments: Vec<lines::Segment>,
    /// Times without packets.
    pub gaps: Vec<lines::Gap>,
}

impl Inventory {
    /// Nothing at all.
    pub fn empty(name: &str) -> Self {
        let archive = lines::Archive {
            archive: name.to_owned(),
            codec: String::new(),
            segments: 0,
            packets: 0,
            wire_bytes: 0,
            captured_bytes: 0,
            flows: 0,
            first: None,
            last: None,
            index_bytes: 0,
            unindexed: 0,
            gaps: 0,
            damaged: 0,
            incomplete: Vec::new(),
        };
        let (fields, segments, gaps) = (Vec::new(), Vec::new(), Vec::new());
        Self { archive, recorder: None, fields, segments, gaps }
    }

    /// Looks at an archive that is called `name`. `shown` turns the capture of a segment into text.
    pub fn new(
        archive: &Archive,
        name: String,
        shown: impl Fn(&Segment) -> String,
    ) -> Result<Self, ArchiveError> {
        let survey = archive.survey(TimeRange::ALL)?;
        let segments = survey.segments;
        let sum = |of: &dyn Fn(&Segment) -> u64| segments.iter().map(|s| of(s)).sum::<u64>();
        let (mut window, mut gaps) = (None::<(u64, u64)>, Vec::new());
        for segment in segments.iter().filter(|segment| segment.note().records > 0) {
            let (first, last) = (segment.note().time_min, segment.note().time_max);
            if let Some((_, end)) = window
                && first.saturating_sub(end) > GAP_NS
            {
                gaps.push(lines::Gap { from: Time(end), to: Time(first), ns: first - end });
            }
            window = Some(window.map_or((first, last), |(a, b)| (a.min(first), b.max(last))));
        }
        let head = lines::Archive {
            archive: name,
            codec: archive.settings().codec.to_string(),
            segments: segments.len() as u64,
            packets: sum(&|s| s.note().records),
            wire_bytes: sum(&|s| s.note().wire_bytes),
            captured_bytes: sum(&|s| s.note().captured_bytes),
            flows: sum(&|s| s.note().flows),
            first: window.map(|(first, _)| Time(first)),
            last: window.map(|(_, last)| Time(last)),
            index_bytes: sum(&|s| if s.is_draft() { 0 } else { s.index().len_bytes() }),
            unindexed: sum(&|s| if s.is_draft() { s.note().records } else { 0 }),
            gaps: gaps.len() as u64,
            damaged: survey.gaps.iter().filter(|gap| gap.error.is_some()).count() as u64,
            incomplete: missing(&survey.gaps),
        };
        Ok(Self {
            archive: head,
            recorder: recorder(archive),
            fields: fields(&segments),
            segments: segments.iter().map(|s| segment_line(s, shown(s))).collect(),
            gaps,
        })
    }
}

fn segment_line(segment: &Segment, file: String) -> lines::Segment {
    let note = segment.note();
    lines::Segment {
        segment: segment.path().display().to_string(),
        file,
        packets: note.records,
        first: Time(note.time_min),
        last: Time(note.time_max),
        index_bytes: segment.index().len_bytes(),
        order: segment.index().row_order().name().into(),
        damage: note.source.damage.clone(),
    }
}

/// The recorder of an archive, if it ever had one.
pub fn recorder(archive: &Archive) -> Option<lines::Recorder> {
    let mut status = Status::read(archive)?;
    let running = Status::is_running(archive);
    if !running {
        // A recorder that was killed could not count its last packets.
        status.total = status.total_stored(archive);
    }
    Some(lines::Recorder::new(&status, running))
}

/// What each field takes, in all segments.
fn fields(segments: &[Arc<Segment>]) -> Vec<lines::Field> {
    #[derive(Default)]
    struct Sum {
        bytes: u64,
        columns: u64,
        codecs: BTreeMap<String, u64>,
    }
    let mut names: Vec<String> =
        FieldSet::ALL.iter().map(|field| field.name().to_owned()).collect();
    // A column of both ends, where its first field is.
    for segment in segments {
        for share in segment.index().shares() {
            let Some((first, _)) = share.name.split_once(", ") else { continue };
            if let Some(place) = names.iter().position(|name| name == first)
                && !names.contains(&share.name)
            {
                names.insert(place, share.name);
            }
        }
    }
    let kinds = [
        SectionKind::Flows,
        SectionKind::Volumes,
        SectionKind::RowMap,
        SectionKind::Times,
        SectionKind::Marks,
        SectionKind::Sums,
        SectionKind::Note,
    ];
    names.extend(kinds.map(|kind| kind.name().to_owned()));
    names.push("rest".into());
    let mut sums: Vec<Sum> = names.iter().map(|_| Sum::default()).collect();
    let rest = names.len() - 1;
    for segment in segments.iter().filter(|segment| !segment.is_draft()) {
        for share in segment.index().shares() {
            let place = names.iter().position(|name| *name == share.name).unwrap_or(rest);
            sums[place].bytes += share.bytes;
            sums[place].columns += share.columns;
            if let Some(form) = share.form {
                *sums[place].codecs.entry(form.to_string()).or_default() += share.columns;
            }
        }
    }
    let field = |(field, sum): (String, Sum)| {
        let Sum { bytes, columns, codecs } = sum;
        lines::Field { field, bytes, columns, codecs }
    };
    names.into_iter().zip(sums).filter(|(_, sum)| sum.bytes > 0).map(field).collect()
}
