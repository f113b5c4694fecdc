//! One or several places, asked as one.
//!
//! All places are asked at the same time, each by a thread. Those that do not answer are named in
//! what is missing; the answer of the others is as complete as theirs are.

use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use tapdex_answers::ask::{
    Answer, Ask, AskError, Count, Explained, Flows, Histogram, SpanLen, Tops, round_span,
};
use tapdex_answers::capture::{Extract, ExtractError, Header, Limits, comment};
use tapdex_answers::deliver::{self, Delivered, Delivery};
use tapdex_answers::inventory::Inventory;
use tapdex_answers::json::Time;
use tapdex_answers::lines::{By, Packet};
use tapdex_answers::question::Question;
use tapdex_engine::archive::{Archive, Segment};
use tapdex_engine::capture::{FileFormat, is_capture};
use tapdex_engine::fields::Name;
use tapdex_engine::query::{Control, FlowOrder, Query, Value};

use crate::credentials::Sources;
use crate::error::{ClientError, HttpError};
use crate::http::{Line, Server, Stopper};
use crate::merge::{self, Explanations, Inventories, Reply, merged};
use crate::stream::{Ended, Feed, Frame, Merge, queue};

/// After this time without data, a server counts as stalled, unless another time is given.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// By so many bytes, a capture is known.
const HEAD_LEN: usize = 24;
/// How often to look whether to stop.
const TICK: Duration = Duration::from_millis(20);
/// How long places may take to end by themselves when they are told to.
const ENDING: Duration = Duration::from_millis(500);
/// How long the first packets of a capture are waited for that follows an archive.
const FIRST: Duration = Duration::from_secs(3);

/// How places are asked.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where credentials for servers come from.
    pub credentials: Sources,
    /// After this time without data, a server counts as stalled.
    pub timeout: Duration,
    /// Why it is asked, for the logs of servers.
    pub reason: Option<String>,
    /// Turns the capture of a segment into text.
    pub file: fn(&Segment) -> String,
    /// Turns a value into text.
    pub value: fn(&Value) -> String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            credentials: Sources::of_user(),
            timeout: TIMEOUT,
            reason: None,
            file: |segment| segment.packet_path().display().to_string(),
            value: ToString::to_string,
        }
    }
}

/// Places that are asked as one.
#[derive(Debug)]
pub struct Nodes {
    nodes: Vec<Node>,
    options: Options,
}

/// A place.
#[derive(Debug)]
struct Node {
    name: String,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Folder(Archive),
    Server(Box<Server>),
}

impl Nodes {
    /// Opens folders and the addresses of servers. Servers are not asked yet.
    pub fn open<P: AsRef<Path>>(places: &[P], options: &Options) -> Result<Self, ClientError> {
        let mut nodes: Vec<Node> = Vec::new();
        for path in places {
            let path = path.as_ref();
            let place = match path.to_str().filter(|text| Server::is_address(text)) {
                Some(address) => {
                    let Options { credentials, timeout, reason, .. } = options;
                    let server = Server::new(address, credentials, *timeout, reason.clone())?;
                    Place::Server(Box::new(server))
                }
                None => Place::Folder(Archive::open(path)?),
            };
            let name = match &place {
                Place::Server(server) => server.address().to_owned(),
                Place::Folder(_) => path.display().to_string(),
            };
            if nodes.iter().any(|other| other.place.is_same(&place)) {
                return Err(ClientError::Twice { place: name });
            }
            nodes.push(Node { name, place });
        }
        Ok(Self { nodes, options: options.clone() })
    }

    /// The folders and addresses.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.name.as_str())
    }

    /// How many places there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no place.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The archives in folders.
    pub fn archives(&self) -> impl Iterator<Item = &Archive> {
        self.nodes.iter().filter_map(|node| match &node.place {
            Place::Folder(archive) => Some(archive),
            Place::Server(_) => None,
        })
    }

    /// A question to all of them. Times are made absolute here, so that all are asked the same.
    pub fn ask<'a>(&'a self, query: &'a Query) -> AskAll<'a> {
        let question = Question::of(query);
        AskAll { nodes: self, query, question, control: Control::default() }
    }

    /// What the places have.
    pub fn inventories(&self, control: &Control) -> Result<Answer<Inventories>, ClientError> {
        let started = Instant::now();
        let replies = self.each(control, &|node, stopper| {
            let inventory = match &node.place {
                Place::Folder(archive) => Inventory::new(
                    archive,
                    archive.folder().display().to_string(),
                    self.options.file,
                )?,
                Place::Server(server) => {
                    let mut inventory: Inventory =
                        server.get("segments", stopper).map_err(|error| node.of(error))?;
                    inventory.archive.archive.clone_from(&node.name);
                    inventory
                }
            };
            let head = &inventory.archive;
            let (matched, segments) = (head.packets, head.segments);
            let (first, last) = (head.first, head.last);
            let incomplete = head.incomplete.clone();
            let complete = incomplete.is_empty();
            let answer = Answer { complete, incomplete, matched, first, last, ..empty() };
            let answer = Answer { segments, segments_read: segments, ..answer };
            Ok(merge::with(answer, inventory))
        })?;
        let (answer, values) = merged(replies, started)?;
        let nodes = values.into_iter().map(|(_, inventory)| inventory).collect();
        Ok(merge::with(answer, Inventories { nodes }))
    }

    /// Asks all places at the same time. An error if `control` has ended that.
    fn each<T: Send>(
        &self,
        control: &Control,
        ask: &AskOne<'_, T>,
    ) -> Result<Vec<Reply<T>>, ClientError> {
        let stopper = Stopper::default();
        let mut replies: Vec<Option<Reply<T>>> = self.nodes.iter().map(|_| None).collect();
        std::thread::scope(|scope| {
            let (sender, receiver) = channel();
            for (number, node) in self.nodes.iter().enumerate() {
                let (sender, stopper) = (sender.clone(), &stopper);
                let asked = move || {
                    let started = Instant::now();
                    let answer = ask(node, stopper);
                    let seconds = started.elapsed().as_secs_f64();
                    // Whoever asks waits for all of them.
                    let _ =
                        sender.send((number, Reply { node: node.name.clone(), seconds, answer }));
                };
                let builder = std::thread::Builder::new().name("tapdex-node".to_owned());
                if let Err(error) = builder.spawn_scoped(scope, asked) {
                    stopper.stop();
                    return Err(ClientError::Thread(error));
                }
            }
            drop(sender);
            loop {
                match receiver.recv_timeout(TICK) {
                    Ok((number, reply)) => {
                        if let Some(place) = replies.get_mut(number) {
                            *place = Some(reply);
                        }
                    }
                    Err(RecvTimeoutError::Timeout) if control.is_cancelled() => stopper.stop(),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                }
            }
        })?;
        match control.is_cancelled() {
            true => Err(ClientError::Cancelled),
            false => Ok(replies.into_iter().flatten().collect()),
        }
    }
}

impl Node {
    fn of(&self, error: HttpError) -> ClientError {
        error.of(&self.name)
    }
}

impl Place {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Folder(one), Self::Folder(other)) => {
                let real = |archive: &Archive| archive.folder().canonicalize().ok();
                real(one).is_some_and(|path| real(other) == Some(path))
            }
            (Self::Server(one), Self::Server(other)) => {
                one.address().eq_ignore_ascii_case(other.address())
            }
            _ => false,
        }
    }
}

/// A question to several places.
#[derive(Debug)]
pub struct AskAll<'a> {
    nodes: &'a Nodes,
    query: &'a Query,
    question: Question,
    control: Control,
}

impl<'a> AskAll<'a> {
    /// Lets another thread end it.
    #[must_use]
    pub fn with_control(self, control: &Control) -> Self {
        Self { control: control.clone(), ..self }
    }

    /// The query.
    pub fn query(&self) -> &'a Query {
        self.query
    }

    /// Asks all places, folders and servers each in their way.
    fn each<T: Send + serde::de::DeserializeOwned>(
        &self,
        folder: impl Fn(&Ask<'_>) -> Result<Answer<T>, AskError> + Sync,
        server: (&str, Json),
        check: impl Fn(&T) -> Result<(), HttpError> + Sync,
    ) -> Result<Vec<Reply<T>>, ClientError> {
        self.nodes.each(&self.control, &|node, stopper| match &node.place {
            Place::Folder(archive) => {
                Ok(folder(&Ask::new(archive, self.query).with_control(stopper.control()))?)
            }
            Place::Server(place) => {
                let (what, more) = (server.0, server.1.clone());
                let answer: Answer<T> = place
                    .ask(what, &self.question, more, stopper)
                    .map_err(|error| node.of(error))?;
                check(&answer.value).map_err(|error| node.of(error))?;
                self.check_times(&answer).map_err(|error| node.of(error))?;
                Ok(answer)
            }
        })
    }

    /// An error if an answer is about other times than was asked for.
    fn check_times<T>(&self, answer: &Answer<T>) -> Result<(), HttpError> {
        let times = self.query.times();
        let is_inside = |time: Option<Time>| time.is_none_or(|time| times.contains(time.0));
        match is_inside(answer.first) && is_inside(answer.last) && answer.first <= answer.last {
            true => Ok(()),
            false => {
                Err(HttpError::Damaged("it is about times that were not asked for".to_owned()))
            }
        }
    }

    /// How many packets match.
    pub fn count(&self) -> Result<Answer<Count>, ClientError> {
        let started = Instant::now();
        let replies = self.each(|ask| ask.count(), ("count", json!({})), |_| Ok(()))?;
        let (answer, values) = merged(replies, started)?;
        let count = values.iter().map(|(_, part)| part.count).fold(0, u64::saturating_add);
        Ok(merge::with(answer, Count { count }))
    }

    /// The most frequent values of some fields, `most` of each.
    pub fn top(&self, names: &[&Name], by: By, most: usize) -> Result<Answer<Tops>, ClientError> {
        let started = Instant::now();
        let fields: Vec<&str> =
            names.iter().map(|name| name.top.first().copied().unwrap_or_default()).collect();
        let is_one = self.nodes.len() == 1;
        // The most frequent one of all may be rare in each place.
        let each = if is_one { most } else { usize::MAX };
        let n = if is_one { most } else { 0 };
        let more = json!({"field": fields.join(","), "by": by, "n": n});
        let value = self.nodes.options.value;
        let check = |tops: &Tops| match tops.top.len() == names.len() {
            true => Ok(()),
            false => Err(HttpError::Damaged("the values of other fields".to_owned())),
        };
        let replies = self.each(|ask| ask.top(names, by, each, value), ("top", more), check)?;
        let (mut answer, mut values) = merged(replies, started)?;
        if is_one && values.len() == 1 {
            let (_, tops) = values.remove(0);
            return Ok(merge::with(answer, tops));
        }
        let tops = merge::tops(&mut answer, values, names, by, most);
        Ok(merge::with(answer, tops))
    }

    /// Packets over time.
    pub fn histogram(&self, len: SpanLen) -> Result<Answer<Histogram>, ClientError> {
        let started = Instant::now();
        let ask = |len: SpanLen| {
            let more = match len {
                SpanLen::Each(span) => json!({"span_ns": span}),
                SpanLen::AtMost(most) => json!({"bins": most}),
            };
            let check = |part: &Histogram| match len {
                SpanLen::Each(span) => merge::check_histogram(part, span),
                SpanLen::AtMost(_) => merge::check_histogram(part, part.span_ns),
            };
            merged(self.each(|ask| ask.histogram(len), ("histogram", more), check)?, started)
        };
        let (mut answer, mut values) = ask(len)?;
        if values.len() == 1 && self.nodes.len() == 1 {
            let (_, histogram) = values.remove(0);
            return Ok(merge::with(answer, histogram));
        }
        let span = match (len, answer.first.zip(answer.last)) {
            (SpanLen::Each(span), _) => span.max(1),
            (SpanLen::AtMost(most), Some((Time(first), Time(last)))) => {
                round_span(first, last, most)
            }
            (SpanLen::AtMost(_), None) => 1,
        };
        let is_common = |part: &Histogram| part.spans.is_empty() || part.span_ns == span;
        if !values.iter().all(|(_, part)| is_common(part)) {
            // What has not answered is asked again: it may be back.
            (answer, values) = ask(SpanLen::Each(span))?;
        }
        let histogram = merge::histogram(&values, span)?;
        Ok(merge::with(answer, histogram))
    }

    /// Conversations, `most` of them at most.
    pub fn flows(
        &self,
        order: FlowOrder,
        most: usize,
        whole: bool,
    ) -> Result<Answer<Flows>, ClientError> {
        let started = Instant::now();
        let sort = match order {
            FlowOrder::Bytes => "bytes",
            FlowOrder::Packets => "packets",
            FlowOrder::Duration => "duration",
            FlowOrder::Start => "start",
        };
        let n = if most == usize::MAX { 0 } else { most };
        let more = json!({"sort": sort, "n": n, "whole": whole});
        let folder = |ask: &Ask<'_>| ask.flows(order, most, whole, |_| {});
        let (answer, values) = merged(self.each(folder, ("flows", more), |_| Ok(()))?, started)?;
        Ok(merge::with(answer, merge::flows(values, order, most)))
    }

    /// How each place understands and answers the filter.
    pub fn explain(&self) -> Result<Answer<Explanations>, ClientError> {
        let started = Instant::now();
        let replies: Vec<Reply<Explained>> =
            self.each(|ask| ask.explain(), ("explain", json!({})), |_| Ok(()))?;
        let (answer, values) = merged(replies, started)?;
        Ok(merge::with(answer, merge::explanations(values)))
    }

    /// Passes packets on, in order of time: those that were recorded so far, and then, if it
    /// `follow`s, others as they are recorded, until `stop` says so. `each` returns whether it
    /// wants more; it is called with `None` now and then when there is nothing new.
    ///
    /// Packets have the name of their place, if there are several.
    pub fn packets(
        &self,
        limit: Option<u64>,
        follow: bool,
        each: &mut dyn FnMut(Option<Packet<'_>>) -> io::Result<bool>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Answer<Delivered>, ClientError> {
        let most = limit.unwrap_or(u64::MAX);
        let file = &self.nodes.options.file;
        let names: Vec<&str> = self.nodes.names().collect();
        let is_one = names.len() == 1;
        let mut delivered = Delivered::default();
        let shared = std::cell::RefCell::new(each);
        let feed =
            |node: &Node, feed: &mut Feed<Packet<'static>>, ending: &Ending| match &node.place {
                Place::Folder(archive) => {
                    let ask = Ask::new(archive, self.query).with_control(ending.stopper.control());
                    let mut each = |packet: Option<Packet<'_>>| {
                        Ok(match packet {
                            Some(packet) => {
                                let packet = packet.into_owned();
                                let bytes = size_of::<Packet<'_>>() + packet.file.len();
                                feed.push(packet, bytes)
                            }
                            None => feed.quiet(),
                        })
                    };
                    let stop = || ending.is_near();
                    Ok(deliver::packets(&ask, limit, follow, file, &mut each, &stop)?)
                }
                Place::Server(server) => {
                    let lines = server.lines(&self.question, limit, follow, &ending.stopper);
                    let mut lines = lines.map_err(|error| node.of(error))?;
                    loop {
                        let goes_on = match lines.read().map_err(|error| node.of(error))? {
                            Line::Packet(packet) => feed.push(*packet, 1 << 10),
                            Line::Quiet => feed.quiet(),
                            Line::End(answer) => return Ok(*answer),
                        };
                        if !goes_on {
                            return Err(ClientError::Cancelled);
                        }
                    }
                }
            };
        let mut take = |number: usize, mut packet: Packet<'static>| {
            if !is_one {
                let name = names.get(number).copied().unwrap_or_default();
                packet.node = match packet.node.is_empty() {
                    true => name.to_owned().into(),
                    false => format!("{name}, {}", packet.node).into(),
                };
            }
            let length = packet.length;
            let wants_more = shared.borrow_mut()(Some(packet)).map_err(ClientError::Target)?;
            delivered.packets += 1;
            delivered.bytes += u64::from(length);
            delivered.stopped = delivered.packets >= most;
            Ok((wants_more, delivered.stopped))
        };
        let mut idle = || shared.borrow_mut()(None).map_err(ClientError::Target);
        let (answer, more) = self.streamed(follow, None, &feed, &mut take, &mut idle, stop)?;
        delivered.stopped = (delivered.stopped || answer.value) && more;
        Ok(merge::with(answer, delivered))
    }

    /// Writes packets as a capture, in order of time, with their interfaces; otherwise as
    /// [`deliver::capture`] does.
    ///
    /// What a single server sends is passed on as it is. Of several places, the capture does not
    /// say how many packets they have, matching or not.
    pub fn capture<W: Write>(
        &self,
        delivery: &Delivery,
        target: W,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Answer<Delivered>, ClientError> {
        if let ([Node { place: Place::Server(server), .. }], false) =
            (self.nodes.nodes.as_slice(), delivery.follow)
        {
            return self.passed_on(server, delivery, target, stop);
        }
        if let ([Node { place: Place::Folder(archive), .. }], false) =
            (self.nodes.nodes.as_slice(), delivery.follow)
        {
            let ask = Ask::new(archive, self.query).with_control(&self.control);
            return Ok(deliver::capture(&ask, delivery, target, stop)?);
        }
        let Delivery { format, limits, whole_conversations, follow, .. } = *delivery;
        let each = Delivery { format: FileFormat::Pcapng, statistics: false, ..*delivery };
        let feed = |node: &Node, feed: &mut Feed<Frame>, ending: &Ending| match &node.place {
            Place::Folder(archive) => {
                let ask = Ask::new(archive, self.query).with_control(ending.stopper.control());
                of_folder(&ask, &each, feed, ending)
            }
            Place::Server(server) => {
                let mut capture = server
                    .capture(&self.question, asked_of(&each), follow, &ending.stopper)
                    .map_err(|error| node.of(error))?;
                match feed.capture(&mut capture) {
                    Ok(true) => capture.finish().map_err(|error| node.of(error)),
                    Ok(false) => Err(ClientError::Cancelled),
                    // What the reader has seen of it is less.
                    Err(error) => Err(node.of(capture.failure().unwrap_or(error.into()))),
                }
            }
        };
        let text = comment(self.query, whole_conversations);
        let extract = Extract::new(target, format, Header::ANY, &text, limits)?;
        let extract = std::cell::RefCell::new(extract);
        let mut take = |_: usize, frame: Frame| {
            let mut extract = extract.borrow_mut();
            let has_room = extract.record(&frame.layout, &frame.record())?;
            Ok((has_room, !has_room))
        };
        let mut idle = || {
            let flushed = extract.borrow_mut().flush();
            flushed.map(|()| true).map_err(ClientError::Target)
        };
        let (answer, _) = self.streamed(follow, Some(FIRST), &feed, &mut take, &mut idle, stop)?;
        let mut extract = extract.into_inner();
        extract.ensure_interface(std::iter::empty())?;
        let (packets, bytes) = (extract.packets(), extract.bytes());
        let stopped = extract.is_stopped() || answer.value;
        extract.finish().and_then(|mut target| target.flush()).map_err(ClientError::Target)?;
        Ok(merge::with(answer, Delivered { packets, bytes, stopped }))
    }

    /// Passes on what a server sends, and checks that nothing was changed on the way.
    fn passed_on(
        &self,
        server: &Server,
        delivery: &Delivery,
        mut target: impl Write,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Answer<Delivered>, ClientError> {
        let stopper = Stopper::default();
        let of = |error: HttpError| error.of(server.address());
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Reading may block for long.
            let watch = || {
                while !is_done.load(Ordering::Relaxed) {
                    if stop() || self.control.is_cancelled() {
                        stopper.stop();
                        return;
                    }
                    std::thread::sleep(TICK);
                }
            };
            let builder = std::thread::Builder::new().name("tapdex-stop".to_owned());
            builder.spawn_scoped(scope, watch).map_err(ClientError::Thread)?;
            let answer = (|| {
                let more = asked_of(delivery);
                let mut capture =
                    server.capture(&self.question, more, false, &stopper).map_err(of)?;
                let mut buffer = vec![0; 1 << 16];
                // Whatever is no capture may have no end.
                let mut first = Some(Vec::new());
                loop {
                    let read = match capture.read(&mut buffer) {
                        Ok(0) => break,
                        Ok(read) => read,
                        Err(error) => {
                            let failure = capture.failure();
                            return Err(
                                of(failure.unwrap_or(HttpError::Broken(error.to_string()))),
                            );
                        }
                    };
                    let bytes = buffer.get(..read).unwrap_or_default();
                    let Some(start) = &mut first else {
                        target.write_all(bytes).map_err(ClientError::Target)?;
                        continue;
                    };
                    start.extend_from_slice(bytes);
                    if start.len() >= HEAD_LEN {
                        if !is_capture(start) {
                            return Err(of(HttpError::Damaged("it is no capture".to_owned())));
                        }
                        target.write_all(start).map_err(ClientError::Target)?;
                        first = None;
                    }
                }
                if first.is_some() {
                    return Err(of(HttpError::Damaged("it is no capture".to_owned())));
                }
                let answer = capture.finish().map_err(of)?;
                target.flush().map_err(ClientError::Target)?;
                Ok(answer)
            })();
            is_done.store(true, Ordering::Relaxed);
            answer
        })
    }

    /// Has all places deliver their packets, and takes these in order of time. `take` returns
    /// whether it wants more, and if not, whether that is because of a limit. Returns what is
    /// known about the answer, with whether a place has left something out, and whether there
    /// are more packets.
    fn streamed<T: crate::stream::Timed + Send>(
        &self,
        follow: bool,
        first: Option<Duration>,
        deliver: &Deliver<'_, T>,
        take: &mut dyn FnMut(usize, T) -> Result<(bool, bool), ClientError>,
        idle: &mut dyn FnMut() -> Result<bool, ClientError>,
        stop: &dyn Fn() -> bool,
    ) -> Result<(Answer<bool>, bool), ClientError> {
        let started = Instant::now();
        let ending = Ending::default();
        let ends = std::thread::scope(|scope| {
            let mut sources = Vec::new();
            for node in &self.nodes.nodes {
                let (mut feed, source) = queue(follow, first.filter(|_| follow));
                sources.push(source);
                let ending = &ending;
                let feeding = move || {
                    let end = deliver(node, &mut feed, ending);
                    // What fails now, we have ended.
                    let is_ours = end.is_err() && ending.is_near();
                    feed.end(if is_ours { Err(ClientError::Cancelled) } else { end });
                };
                let builder = std::thread::Builder::new().name("tapdex-node".to_owned());
                if let Err(error) = builder.spawn_scoped(scope, feeding) {
                    ending.now();
                    return Err(ClientError::Thread(error));
                }
            }
            let mut merge = Merge { sources, times: self.query.times(), follow };
            let mut is_limit = false;
            let mut each = |number, item| {
                let (wants_more, limit) = take(number, item)?;
                is_limit = limit;
                Ok(wants_more && !limit)
            };
            let is_cut = || stop() || self.control.is_cancelled();
            let ended = merge.run(&is_cut, &mut each, idle);
            if ended.is_err() {
                ending.now();
            }
            let how = ended?;
            // At a limit, places come to their ends soon, and have to say what they lack.
            let is_soon = how == Ended::All || (!follow && (is_limit || how == Ended::Enough));
            let until = Instant::now() + ENDING;
            if !is_soon {
                ending.soon();
            }
            let is_late = || if is_soon { is_cut() } else { Instant::now() > until };
            let (more, ends) = merge.ends(&is_late);
            ending.now();
            Ok((how, more, ends))
        });
        let (how, more, ends) = ends?;
        if self.control.is_cancelled() {
            return Err(ClientError::Cancelled);
        }
        let seconds = started.elapsed().as_secs_f64();
        let replies = self.nodes.nodes.iter().zip(ends).filter_map(|(node, end)| {
            let answer = match end {
                // We have not let it come to its end.
                None if how != Ended::All => merge::with(empty(), Delivered::default()),
                Some(Err(error)) if how != Ended::All && error.is_cancelled() => {
                    merge::with(empty(), Delivered::default())
                }
                Some(Err(error)) => {
                    return Some(Reply { node: node.name.clone(), seconds, answer: Err(error) });
                }
                Some(Ok(answer)) => answer,
                None => return None,
            };
            Some(Reply { node: node.name.clone(), seconds, answer: Ok(answer) })
        });
        let (answer, values) = merged(replies.collect(), started)?;
        let stopped = values.iter().any(|(_, delivered)| delivered.stopped);
        Ok((merge::with(answer, stopped), more || stopped))
    }
}

/// How a place delivers its packets.
type Deliver<'d, T> =
    dyn Fn(&Node, &mut Feed<T>, &Ending) -> Result<Answer<Delivered>, ClientError> + Sync + 'd;

/// How a place is asked.
type AskOne<'d, T> = dyn Fn(&Node, &Stopper) -> Result<Answer<T>, ClientError> + Sync + 'd;

/// An answer that says nothing.
fn empty() -> Answer<()> {
    let mut answer = deliver::unanswered("", String::new(), String::new());
    answer.incomplete.clear();
    answer.complete = true;
    answer
}

/// What ends the delivery of packets.
#[derive(Debug, Default)]
struct Ending {
    near: AtomicBool,
    stopper: Stopper,
}

impl Ending {
    /// Folders come to an end by themselves; servers cannot be told.
    fn soon(&self) {
        self.near.store(true, Ordering::Relaxed);
        self.stopper.hang_up();
    }

    fn now(&self) {
        self.near.store(true, Ordering::Relaxed);
        self.stopper.stop();
    }

    fn is_near(&self) -> bool {
        self.near.load(Ordering::Relaxed)
    }
}

/// What `packets` of a server takes beside the question.
fn asked_of(delivery: &Delivery) -> Json {
    let Delivery { format, limits, whole_conversations, follow, statistics } = *delivery;
    let Limits { packets, bytes } = limits;
    let format = match format {
        FileFormat::Pcap => "pcap",
        FileFormat::Pcapng => "pcapng",
    };
    json!({
        "format": format,
        "limit_packets": packets,
        "limit_bytes": bytes,
        "whole": whole_conversations,
        "follow": follow,
        "statistics": statistics,
    })
}

/// The packets of a folder, through a pipe: as if a server had sent them.
fn of_folder(
    ask: &Ask<'_>,
    delivery: &Delivery,
    feed: &mut Feed<Frame>,
    ending: &Ending,
) -> Result<Answer<Delivered>, ClientError> {
    let (reader, writer) = io::pipe().map_err(ClientError::Thread)?;
    std::thread::scope(|scope| {
        let writing = || {
            let target = BufWriter::with_capacity(1 << 16, writer);
            deliver::capture(ask, delivery, target, &|| ending.is_near())
        };
        let builder = std::thread::Builder::new().name("tapdex-folder".to_owned());
        let writing = builder.spawn_scoped(scope, writing).map_err(ClientError::Thread)?;
        let read = feed.capture(reader);
        let written = match writing.join() {
            Ok(written) => written,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        match (written, read) {
            (Err(_), Ok(false)) => Err(ClientError::Cancelled),
            (Err(error), _) => Err(error.into()),
            (Ok(_), Err(error)) => Err(ExtractError::from(error).into()),
            (Ok(answer), Ok(_)) => Ok(answer),
        }
    })
}
