//! What is served: an archive, or several, of which some may be those of other servers.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use tapdex_answers::ask::{Answer, Ask, Count, Explained, Flows, Histogram, SpanLen, Tops};
use tapdex_answers::deliver::{self, Delivered, Delivery};
use tapdex_answers::inventory::Inventory;
use tapdex_answers::lines::{By, Condition, Explanation, Packet};
use tapdex_client::ClientError;
use tapdex_client::merge::OfNode;
use tapdex_client::nodes::Nodes;
use tapdex_engine::archive::Archive;
use tapdex_engine::fields::Name;
use tapdex_engine::query::{Control, FlowOrder, Query};

use super::questions::value_text;
use super::streams::file_name;

/// What is served.
#[derive(Debug)]
pub enum Source {
    /// An archive in a folder.
    Archive(Box<Archive>),
    /// Several places that answer as one.
    Nodes(Box<Nodes>),
}

/// A question to what is served.
pub(super) struct AskSource<'a> {
    pub(super) source: &'a Source,
    pub(super) query: &'a Query,
    pub(super) control: &'a Control,
    /// Nothing may be told about packets that do not match.
    pub(super) is_limited: bool,
}

impl Source {
    /// The archive, if it is a single one.
    pub(super) fn archive(&self) -> Option<&Archive> {
        match self {
            Self::Archive(archive) => Some(archive),
            Self::Nodes(_) => None,
        }
    }

    /// The places that answer as one; none, if it is a single archive.
    pub(super) fn places(&self) -> Vec<String> {
        match self {
            Self::Archive(_) => Vec::new(),
            Self::Nodes(nodes) => nodes.names().map(str::to_owned).collect(),
        }
    }

    /// What is in it.
    pub(super) fn inventory(
        &self,
        name: &str,
        control: &Control,
    ) -> Result<Inventory, ClientError> {
        let inventory = match self {
            Self::Archive(archive) => Inventory::new(archive, name.to_owned(), file_name)?,
            Self::Nodes(nodes) => {
                let answer = nodes.inventories(control)?;
                let mut one = as_one(answer.value.nodes, name);
                one.archive.incomplete = answer.incomplete;
                one
            }
        };
        Ok(without_folders(inventory))
    }
}

/// Folders of the server are nobody's business outside.
fn without_folders(mut inventory: Inventory) -> Inventory {
    for segment in &mut inventory.segments {
        let path = std::path::Path::new(&segment.segment);
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        segment.segment = name.unwrap_or_default();
    }
    inventory
}

/// Several inventories as one.
fn as_one(all: Vec<Inventory>, name: &str) -> Inventory {
    let mut all = all.into_iter();
    let Some(mut one) = all.next() else { return Inventory::empty(name) };
    one.archive.archive = name.to_owned();
    one.recorder = None;
    let mut fields: BTreeMap<String, usize> =
        one.fields.iter().enumerate().map(|(n, field)| (field.field.clone(), n)).collect();
    for other in all {
        let (sum, more) = (&mut one.archive, other.archive);
        sum.segments += more.segments;
        sum.packets = sum.packets.saturating_add(more.packets);
        sum.wire_bytes = sum.wire_bytes.saturating_add(more.wire_bytes);
        sum.captured_bytes = sum.captured_bytes.saturating_add(more.captured_bytes);
        sum.flows = sum.flows.saturating_add(more.flows);
        sum.index_bytes = sum.index_bytes.saturating_add(more.index_bytes);
        sum.unindexed = sum.unindexed.saturating_add(more.unindexed);
        sum.gaps += more.gaps;
        sum.damaged += more.damaged;
        sum.first = [sum.first, more.first].into_iter().flatten().min();
        sum.last = sum.last.max(more.last);
        for field in other.fields {
            match fields.get(&field.field).and_then(|&n| one.fields.get_mut(n)) {
                Some(sum) => {
                    sum.bytes = sum.bytes.saturating_add(field.bytes);
                    sum.columns = sum.columns.saturating_add(field.columns);
                    for (codec, columns) in field.codecs {
                        *sum.codecs.entry(codec).or_default() += columns;
                    }
                }
                None => {
                    fields.insert(field.field.clone(), one.fields.len());
                    one.fields.push(field);
                }
            }
        }
        one.segments.extend(other.segments);
        one.gaps.extend(other.gaps);
    }
    one.segments.sort_by_key(|segment| segment.first);
    one.gaps.sort_by_key(|gap| gap.from);
    one
}

/// How several places answer a filter, as if they were one.
fn explained(all: Vec<OfNode<Explanation>>) -> Option<Explained> {
    let mut all = all.into_iter().map(|of| of.value);
    let mut one = all.next()?;
    for other in all {
        one.segments += other.segments;
        one.pruned_by_time += other.pruned_by_time;
        one.pruned_by_keys += other.pruned_by_keys;
        one.asked += other.asked;
        one.packets = one.packets.saturating_add(other.packets);
        one.read = one.read.saturating_add(other.read);
        one.matches = one.matches.saturating_add(other.matches);
        one.seconds.0 = one.seconds.0.max(other.seconds.0);
        one.incomplete.extend(other.incomplete);
        for note in other.notes {
            if !one.notes.contains(&note) {
                one.notes.push(note);
            }
        }
        for (sum, more) in one.terms.iter_mut().zip(&other.terms) {
            add(sum, more);
        }
    }
    Some(Explained { explain: one })
}

/// Adds what another place says of the same condition.
fn add(sum: &mut Condition, more: &Condition) {
    sum.rows = sum.rows.saturating_add(more.rows);
    sum.unknown = sum.unknown.saturating_add(more.unknown);
    sum.weight = sum.weight.saturating_add(more.weight);
    if sum.by != more.by {
        sum.by = "partly".into();
    }
}

impl AskSource<'_> {
    /// A question to a single archive.
    fn one<'a>(&'a self, archive: &'a Archive) -> Ask<'a> {
        let ask = Ask::new(archive, self.query).with_control(self.control);
        if self.is_limited { ask.nothing_beyond() } else { ask }
    }

    /// What others say about packets that do not match is left out.
    fn shown<T>(&self, mut answer: Answer<T>) -> Answer<T> {
        if self.is_limited {
            answer.notes.clear();
        }
        answer
    }

    pub(super) fn count(&self) -> Result<Answer<Count>, ClientError> {
        match self.source {
            Source::Archive(archive) => Ok(self.one(archive).count()?),
            Source::Nodes(nodes) => {
                Ok(self.shown(nodes.ask(self.query).with_control(self.control).count()?))
            }
        }
    }

    pub(super) fn top(
        &self,
        names: &[&Name],
        by: By,
        most: usize,
        time: Option<Duration>,
    ) -> Result<Answer<Tops>, ClientError> {
        match self.source {
            Source::Archive(archive) => {
                Ok(self.one(archive).top_within(names, by, most, time, value_text)?)
            }
            Source::Nodes(nodes) => {
                let ask = nodes.ask(self.query).with_control(self.control);
                Ok(self.shown(ask.top(names, by, most)?))
            }
        }
    }

    /// Packets over time; several places tell no values apart, and count no bytes.
    pub(super) fn histogram(
        &self,
        len: SpanLen,
        by: By,
        stack: Option<(&Name, usize)>,
    ) -> Result<Answer<Histogram>, ClientError> {
        match self.source {
            Source::Archive(archive) if stack.is_some() || by == By::Bytes => {
                Ok(self.one(archive).histogram_by(len, by, stack, value_text)?)
            }
            Source::Archive(archive) => Ok(self.one(archive).histogram(len)?),
            Source::Nodes(nodes) => {
                let ask = nodes.ask(self.query).with_control(self.control);
                Ok(self.shown(ask.histogram(len)?))
            }
        }
    }

    pub(super) fn flows(
        &self,
        order: FlowOrder,
        most: usize,
        whole: bool,
    ) -> Result<Answer<Flows>, ClientError> {
        match self.source {
            Source::Archive(archive) => Ok(self.one(archive).flows(order, most, whole, |_| {})?),
            Source::Nodes(nodes) => {
                let ask = nodes.ask(self.query).with_control(self.control);
                Ok(self.shown(ask.flows(order, most, whole)?))
            }
        }
    }

    pub(super) fn explain(&self) -> Result<Answer<Explained>, ClientError> {
        match self.source {
            Source::Archive(archive) => Ok(self.one(archive).explain()?),
            Source::Nodes(nodes) => {
                let answer = nodes.ask(self.query).with_control(self.control).explain()?;
                let mut one = None;
                let answer = answer.map(|value| one = explained(value.explain));
                let one = one.ok_or(ClientError::Cancelled)?;
                Ok(answer.map(|()| one))
            }
        }
    }

    /// Packets as lines.
    pub(super) fn packets(
        &self,
        limit: Option<u64>,
        follow: bool,
        each: &mut dyn FnMut(Option<Packet<'_>>) -> io::Result<bool>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Answer<Delivered>, ClientError> {
        match self.source {
            Source::Archive(archive) => {
                let ask = self.one(archive);
                Ok(deliver::packets(&ask, limit, follow, &file_name, each, stop)?)
            }
            Source::Nodes(nodes) => {
                let ask = nodes.ask(self.query).with_control(self.control);
                Ok(self.shown(ask.packets(limit, follow, each, stop)?))
            }
        }
    }

    /// Packets as a capture.
    pub(super) fn capture<W: Write>(
        &self,
        delivery: &Delivery,
        target: W,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Answer<Delivered>, ClientError> {
        match self.source {
            Source::Archive(archive) => {
                Ok(deliver::capture(&self.one(archive), delivery, target, stop)?)
            }
            Source::Nodes(nodes) => {
                let ask = nodes.ask(self.query).with_control(self.control);
                Ok(self.shown(ask.capture(delivery, target, stop)?))
            }
        }
    }
}
