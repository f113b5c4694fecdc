//! Roles: what somebody may ask, and how much.
//!
//! Three are built in: `search`, `extract` and `admin`. `roles.toml` in the state folder, which
//! people write by hand, declares more:
//!
//! ```toml
//! [role.dmz]
//! may = "extract"               # search, extract or admin
//! filter = "net 10.2.0.0/16"    # no packet outside of it is ever seen
//! wireshark-filter = "ip.addr == 10.2.0.0/16"   # the same, for questions in that language
//! from = "-30d"                 # nor one from before that time
//! to = "-1h"                    # nor one from then on
//! packets = 1000000             # of an answer
//! bytes = 1000000000
//! seconds = 300
//! at-once = 4                   # questions
//! per-minute = 60
//! ```
//!
//! Everything but `may` can be left out. The file is read strictly: a setting that is not known, a
//! filter or a time that is not understood is an error that names the line, and whoever made the
//! mistake finds out before anybody sees more than intended.
//!
//! The forced filter comes first and the question second, each parsed alone and put together as
//! expressions, not as text. So no parenthesis, `or` or comment in the question can reach the
//! forced one, and a `vlan` in the question does not move what the forced one looks for. A question
//! in the other language is refused unless the role has a filter in that language, too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tapdex_engine::query::Query;
use tapdex_engine::query::filter::{Filter, FilterError, Syntax};
use tapdex_engine::time::{TimeError, TimeRange, parse_time};
use toml::Spanned;

/// The most bytes of `roles.toml`.
pub(super) const ROLES_LEN_MAX: u64 = 1 << 20;

/// What somebody may see. Each may do what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum May {
    /// Headers and counts, never the bytes of a packet.
    Search,
    /// Packets, too.
    Extract,
    /// The audit log, and the jobs of others, too.
    Admin,
}

impl May {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Search, Self::Extract, Self::Admin];

    /// The name of the built-in role that may just that.
    pub fn name(self) -> &'static str {
        match self {
            Self::Search => "search",
            Self::Extract => "extract",
            Self::Admin => "admin",
        }
    }
}

/// How much somebody may ask; `None` where there is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Packets of an answer.
    pub packets: Option<u64>,
    /// Bytes of an answer.
    pub bytes: Option<u64>,
    /// How long an answer may take.
    pub time: Option<Duration>,
    /// Questions at once.
    pub at_once: Option<u32>,
    /// Questions a minute.
    pub per_minute: Option<u32>,
}

/// A role: what whoever has it may ask, and how much.
#[derive(Debug, Clone, PartialEq)]
pub struct Role {
    name: String,
    may: May,
    /// The forced filter in each language that questions may be asked in. Empty if there is none.
    filters: Vec<Filter>,
    /// The forced filters as they were written.
    texts: Vec<String>,
    /// The times as they were written: some count from now.
    from: Option<String>,
    to: Option<String>,
    limits: Limits,
}

/// What is wrong in `roles.toml`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct RoleError {
    /// Where, from 1.
    pub line: usize,
    /// What.
    pub what: RoleMistake,
}

/// What is wrong with a setting of a role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RoleMistake {
    /// It is no TOML, or not the TOML of roles.
    #[error("{0}")]
    Form(String),
    /// A name of a role that cannot be one.
    #[error("{0:?} is no name of a role: write a-z, 0-9 and -, at most {NAME_LEN_MAX}")]
    Name(String),
    /// A name that is taken.
    #[error("{0} is built in: choose another name")]
    BuiltIn(String),
    /// A filter that is not understood.
    #[error("the filter is not understood: {0}")]
    Filter(FilterError),
    /// A filter with times in it.
    #[error("the filter has times in it: write them as from and to")]
    FilterTimes,
    /// A filter that lets everything pass.
    #[error("the filter is empty, and would let everything pass")]
    FilterEmpty,
    /// A filter in the wrong language.
    #[error("wireshark-filter needs a filter in Wireshark's language, as in ip.addr == 10.0.0.1")]
    Language,
    /// A time that is not understood.
    #[error("{0}")]
    Time(TimeError),
    /// Times that none is between.
    #[error("from is not before to: no packet could be seen")]
    NoTime,
    /// A limit of 0.
    #[error("{0} is 0, so that nothing could be asked: leave it out, or use another role")]
    Zero(&'static str),
}

/// Why a question cannot be asked in a role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForceError {
    /// The role has a filter in the other language only, and the two cannot be joined.
    #[error("this role takes filters in {} language only", match .wanted {
        Syntax::Pcap => "tcpdump's",
        Syntax::Wireshark => "Wireshark's",
    })]
    Language {
        /// What it takes.
        wanted: Syntax,
    },
    /// The two are too much together.
    #[error("the filter cannot be joined with that of the role: {0}")]
    Join(FilterError),
}

/// The longest name of a role.
const NAME_LEN_MAX: usize = 32;

/// A role as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Written {
    may: May,
    filter: Option<Spanned<String>>,
    wireshark_filter: Option<Spanned<String>>,
    from: Option<Spanned<String>>,
    to: Option<Spanned<String>>,
    packets: Option<Spanned<u64>>,
    bytes: Option<Spanned<u64>>,
    seconds: Option<Spanned<u64>>,
    at_once: Option<Spanned<u32>>,
    per_minute: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRoles {
    #[serde(default)]
    role: BTreeMap<Spanned<String>, Written>,
}

impl Role {
    /// The built-in role of that power.
    pub fn built_in(may: May) -> Self {
        Self {
            name: may.name().to_owned(),
            may,
            filters: Vec::new(),
            texts: Vec::new(),
            from: None,
            to: None,
            limits: Limits::default(),
        }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it may do.
    pub fn may(&self) -> May {
        self.may
    }

    /// How much it may ask.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The forced filters as they were written: at most one a language.
    pub fn forced_filters(&self) -> &[String] {
        &self.texts
    }

    /// The times that it may see, if it is now `now_ns`.
    pub fn times(&self, now_ns: u64) -> TimeRange {
        // Both were understood when they were read. If not, nothing is seen.
        let parse = |text: &String| parse_time(text, now_ns, true);
        let from = self.from.as_ref().map(parse).transpose();
        let to = self.to.as_ref().map(parse).transpose();
        match (from, to) {
            (Ok(from), Ok(to)) => TimeRange { from_ns: from.unwrap_or(0), to_ns: to },
            _ => TimeRange::NONE,
        }
    }

    /// The question that is asked in place of this one: no packet matches it that the role must
    /// not see. Whatever else is done with the filter, such as looking through tags, has to be done
    /// before.
    pub fn force(
        &self,
        asked: &Filter,
        times: TimeRange,
        now_ns: u64,
    ) -> Result<Query, ForceError> {
        let times = times.and(self.times(now_ns));
        let filter = match self.filters.as_slice() {
            [] => asked.clone(),
            filters => {
                let own = filters.iter().find(|filter| filter.syntax() == asked.syntax());
                match own {
                    Some(own) => own.and(asked).map_err(ForceError::Join)?,
                    // Every packet is asked for, in no language.
                    None if asked.expr().is_none() => {
                        let times = times.and(asked.times());
                        return Ok(Query::new(filters[0].clone(), times));
                    }
                    None => return Err(ForceError::Language { wanted: filters[0].syntax() }),
                }
            }
        };
        Ok(Query::new(filter, times))
    }

    fn read(name: &Spanned<String>, role: Written, lines: &Lines<'_>) -> Result<Self, RoleError> {
        let at = lines.number(name.span().start);
        let name = name.get_ref();
        let fails = |what| Err(RoleError { line: at, what });
        let is_letter =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || name.len() > NAME_LEN_MAX || !name.bytes().all(is_letter) {
            return fails(RoleMistake::Name(name.clone()));
        }
        if May::ALL.iter().any(|may| may.name() == name) {
            return fails(RoleMistake::BuiltIn(name.clone()));
        }
        let mut made = Self { name: name.clone(), ..Self::built_in(role.may) };
        if let Some(text) = &role.filter {
            made.add_filter(text, Syntax::of(text.get_ref()), lines)?;
        }
        if let Some(text) = &role.wireshark_filter {
            if made.filters.iter().any(|filter| filter.syntax() == Syntax::Wireshark) {
                return Err(lines.error(text, RoleMistake::Language));
            }
            made.add_filter(text, Syntax::Wireshark, lines)?;
        }
        let time = |text: &Option<Spanned<String>>| match text {
            None => Ok(None),
            Some(text) => match parse_time(text.get_ref(), FAR_NS, true) {
                Ok(ns) => Ok(Some((text.get_ref().clone(), ns))),
                Err(error) => Err(lines.error(text, RoleMistake::Time(error))),
            },
        };
        let (from, to) = (time(&role.from)?, time(&role.to)?);
        // Whether a time that counts from now is before one that does not changes with the time.
        let same_kind = |a: &str, b: &str| is_relative(a) == is_relative(b);
        if let (Some((from, from_ns)), Some((to, to_ns))) = (&from, &to)
            && same_kind(from, to)
            && from_ns >= to_ns
        {
            return fails(RoleMistake::NoTime);
        }
        made.from = from.map(|(text, _)| text);
        made.to = to.map(|(text, _)| text);
        made.limits = Limits {
            packets: lines.limit("packets", role.packets)?,
            bytes: lines.limit("bytes", role.bytes)?,
            time: lines.limit("seconds", role.seconds)?.map(Duration::from_secs),
            at_once: lines.limit("at-once", role.at_once)?,
            per_minute: lines.limit("per-minute", role.per_minute)?,
        };
        Ok(made)
    }

    fn add_filter(
        &mut self,
        text: &Spanned<String>,
        syntax: Syntax,
        lines: &Lines<'_>,
    ) -> Result<(), RoleError> {
        let filter = Filter::parse_as(syntax, text.get_ref(), FAR_NS);
        let filter = filter.map_err(|error| lines.error(text, RoleMistake::Filter(error)))?;
        // A time word would count from when the file was read.
        if filter.times() != TimeRange::ALL {
            return Err(lines.error(text, RoleMistake::FilterTimes));
        }
        if filter.expr().is_none() {
            return Err(lines.error(text, RoleMistake::FilterEmpty));
        }
        self.filters.push(filter);
        self.texts.push(text.get_ref().clone());
        Ok(())
    }
}

/// A moment far from the first, so that `-30d` and the like are before it.
const FAR_NS: u64 = 4_000_000_000_000_000_000;

fn is_relative(time: &str) -> bool {
    let time = time.trim();
    time == "now" || time.starts_with('-') || time.ends_with("ago")
}

/// The text of a file, to find out on which line something is.
struct Lines<'a>(&'a str);

impl Lines<'_> {
    fn number(&self, offset: usize) -> usize {
        let before = self.0.as_bytes().get(..offset).unwrap_or_default();
        1 + before.iter().filter(|&&byte| byte == b'\n').count()
    }

    fn error<T>(&self, at: &Spanned<T>, what: RoleMistake) -> RoleError {
        RoleError { line: self.number(at.span().start), what }
    }

    fn limit<N: Default + PartialEq>(
        &self,
        name: &'static str,
        written: Option<Spanned<N>>,
    ) -> Result<Option<N>, RoleError> {
        match written {
            Some(number) if *number.get_ref() == N::default() => {
                Err(self.error(&number, RoleMistake::Zero(name)))
            }
            written => Ok(written.map(Spanned::into_inner)),
        }
    }
}

/// All roles, by name.
#[derive(Debug, Clone)]
pub struct Roles(BTreeMap<String, Arc<Role>>);

impl Roles {
    /// Those that are built in.
    pub fn built_in() -> Self {
        let roles = May::ALL.map(|may| (may.name().to_owned(), Arc::new(Role::built_in(may))));
        Self(roles.into_iter().collect())
    }

    /// Those that are built in, and those of a text.
    ///
    /// ```
    /// use tapdex_server::door::roles::{May, Roles};
    ///
    /// let roles = Roles::parse("[role.dmz]\nmay = 'search'\nfilter = 'net 10.2.0.0/16'\n")?;
    /// assert_eq!(roles.get("dmz").map(|role| role.may()), Some(May::Search));
    /// let wrong = Roles::parse("[role.dmz]\nmay = 'search'\nfliter = 'net 10.2.0.0/16'\n");
    /// assert!(wrong.is_err_and(|error| error.line == 3));
    /// # Ok::<(), tapdex_server::door::roles::RoleError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, RoleError> {
        let lines = Lines(text);
        let written: WrittenRoles = toml::from_str(text).map_err(|error| {
            let line = lines.number(error.span().map_or(0, |span| span.start));
            let what = error.message().trim().replace('\n', " ");
            RoleError { line, what: RoleMistake::Form(what) }
        })?;
        let mut roles = Self::built_in();
        for (name, role) in written.role {
            let role = Role::read(&name, role, &lines)?;
            roles.0.insert(role.name.clone(), Arc::new(role));
        }
        Ok(roles)
    }

    /// A role by its name.
    pub fn get(&self, name: &str) -> Option<&Arc<Role>> {
        self.0.get(name)
    }

    /// The names of all roles, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}
