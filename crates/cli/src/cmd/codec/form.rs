//! A codec together with the options that change its bytes, and the error for bytes of another
//! form.

use anyhow::{anyhow, ensure};
use tapdex_bitmap::codec::hipes::Width;
use tapdex_bitmap::codec::masc::Windowed;
use tapdex_bitmap::{ALL_CODECS, Bitmap, Chunks, Codec, Cursor, DecodeError};

/// Options that the name of a codec does not include.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Options {
    /// For hipes: chunks of 2^W rows, from 7 to 29 [default: 16].
    #[arg(long, value_name = "W", value_parser = parse_width)]
    w: Option<Width>,
    /// For masc: split the rows into windows of 3,968.
    #[arg(long)]
    windowed: bool,
}

pub(in crate::cmd) fn parse_width(text: &str) -> Result<Width, &'static str> {
    text.parse().ok().and_then(Width::new).ok_or("expected a whole number from 7 to 29")
}

impl Options {
    /// The form that the codec has with these options, if they are options of it.
    pub(super) fn form(self, codec: Codec) -> anyhow::Result<Form> {
        self.check(Some(codec))?;
        Ok(match (codec, self.w) {
            (Codec::Hipes(_), Some(w)) => Form::Whole(Codec::Hipes(w)),
            _ if self.windowed => Form::Windowed,
            _ => Form::Whole(codec),
        })
    }

    /// Refuses options that the codec does not have; `None` stands for auto, which has none.
    pub(super) fn check(self, codec: Option<Codec>) -> anyhow::Result<()> {
        let name = codec.map_or("auto", Codec::name);
        let is_hipes = matches!(codec, Some(Codec::Hipes(_)));
        ensure!(self.w.is_none() || is_hipes, "--w applies to --codec hipes only, not to {name}");
        let is_masc = codec == Some(Codec::Masc);
        ensure!(
            !self.windowed || is_masc,
            "--windowed applies to --codec masc only, not to {name}"
        );
        Ok(())
    }
}

/// How a set becomes bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// In one piece, by that codec.
    Whole(Codec),
    /// By MASC, in windows.
    Windowed,
}

impl Form {
    pub(super) fn codec(self) -> Codec {
        match self {
            Form::Whole(codec) => codec,
            Form::Windowed => Codec::Masc,
        }
    }

    /// Appends the encoded set.
    pub(super) fn encode(self, ids: &[u32], target: &mut Vec<u8>) {
        match self {
            Form::Whole(codec) => codec.encode(ids, target),
            Form::Windowed => Windowed::encode(ids, target),
        }
    }

    /// The chunks of the set, if the bytes are one of ids below `rows` in this form.
    pub(super) fn chunks(self, bytes: &[u8], rows: u32) -> Result<Cursor<'_>, DecodeError> {
        match self {
            Form::Whole(codec) => Ok(Bitmap::open(codec, bytes, rows)?.chunks()),
            Form::Windowed => Ok(Windowed::open(bytes, rows)?.chunks().into()),
        }
    }

    /// Every other form there is, those of the same codec first.
    fn others(self) -> impl Iterator<Item = Form> {
        let widths = (0..=u8::MAX).filter_map(Width::new).map(Codec::Hipes);
        let codecs = ALL_CODECS.into_iter().filter(|codec| !matches!(codec, Codec::Hipes(_)));
        let forms = codecs.chain(widths).map(Form::Whole).chain([Form::Windowed]);
        let mut others: Vec<Form> = forms.filter(|&form| form != self).collect();
        others.sort_by_key(|form| form.codec().id() != self.codec().id());
        others.into_iter()
    }
}

/// The flags that ask for the form.
impl std::fmt::Display for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "--codec {}", self.codec())?;
        match self {
            Form::Whole(Codec::Hipes(width)) if *width != Width::DEFAULT => {
                write!(f, " --w {}", width.get())
            }
            Form::Whole(_) => Ok(()),
            Form::Windowed => write!(f, " --windowed"),
        }
    }
}

/// The error for bytes that are not of the form they should be, with hints at what they may be.
pub(super) fn refusal(form: Form, bytes: &[u8], rows: u32, error: &DecodeError) -> anyhow::Error {
    let hints: String =
        hints(form, bytes, rows, error).map(|hint| format!("\n  hint: {hint}")).collect();
    anyhow!("not what {form} writes for {rows} rows: {error}{hints}")
}

fn hints(form: Form, bytes: &[u8], rows: u32, error: &DecodeError) -> impl Iterator<Item = String> {
    // A few words may fit many forms, and a long list is no help.
    const FORMS_MAX: usize = 3;
    if bytes.is_empty() {
        let hint =
            format!("the input is empty, but {} encodes the empty set as bytes", form.codec());
        return [Some(hint), None].into_iter().flatten();
    }
    let last = match error {
        DecodeError::PastEnd { .. } => form.chunks(bytes, u32::MAX).ok().and_then(last_id),
        _ => None,
    };
    let rows_hint =
        last.map(|last| format!("the last id is {last}, so --rows must be at least {}", last + 1));
    let fitting = form.others().filter(|form| form.chunks(bytes, rows).is_ok());
    let fitting: Vec<String> = fitting.take(FORMS_MAX).map(|form| form.to_string()).collect();
    let form_hint =
        (!fitting.is_empty()).then(|| format!("it is valid with {}", fitting.join(", or ")));
    [rows_hint, form_hint].into_iter().flatten()
}

fn last_id(mut chunks: impl Chunks) -> Option<u32> {
    let (mut last, mut from) = (None, 0);
    while let Some(key) = chunks.seek(from) {
        let chunk = chunks.load();
        let id = chunk.len().checked_sub(1).and_then(|n| chunk.select(n));
        last = id.map(|id| key << 16 | u32::from(id)).or(last);
        from = key + 1;
    }
    last
}
