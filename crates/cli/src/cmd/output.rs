//! Writes a capture to a file, which gets its name when it is complete, or to standard output.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use tapdex_engine::beneath::Rights;
use tapdex_engine::capture::FileFormat;
use tapdex_engine::storage::{AppendFile, Disk, Publish, temporary_path};

use super::interrupt::{self, Pending};
use super::{CANNOT_WRITE, chain};

/// Standard output of a command that prints text. It escapes control characters except line ends
/// and tabs: they come from captures and file names, and a terminal would act on them.
pub(crate) struct Text<W> {
    target: W,
    /// The last byte written may have been the first half of a control character of two.
    half: bool,
}

impl<W: Write> Text<W> {
    pub(crate) fn new(target: W) -> Self {
        Self { target, half: false }
    }
}

impl<W: Write> Write for Text<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        /// The byte before U+0080 to U+009F.
        const HIGH: u8 = 0xC2;
        // Nearly always there are none; no branch for each byte, so that many are checked at a
        // time.
        let is_suspect = |byte: u8| {
            (byte < b' ' && byte != b'\n' && byte != b'\t') || byte == 0x7F || byte == HIGH
        };
        if !self.half && !bytes.iter().fold(false, |found, &byte| found | is_suspect(byte)) {
            self.target.write_all(bytes)?;
            return Ok(bytes.len());
        }
        let mut plain = 0;
        for (at, &byte) in bytes.iter().enumerate() {
            let low = byte.is_ascii_control() && byte != b'\n' && byte != b'\t';
            let high = self.half && (0x80..0xA0).contains(&byte);
            if low || self.half || byte == HIGH {
                self.target.write_all(bytes.get(plain..at).unwrap_or_default())?;
                plain = at + 1;
                match (self.half, high || low) {
                    (true, false) => self.target.write_all(&[HIGH])?,
                    (true, true) if low => self.target.write_all(&[HIGH])?,
                    _ => {}
                }
                self.half = byte == HIGH;
                match high || low {
                    true => write!(self.target, "\\u{{{byte:x}}}")?,
                    false if byte != HIGH => self.target.write_all(&[byte])?,
                    false => {}
                }
            }
        }
        self.target.write_all(bytes.get(plain..).unwrap_or_default())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.half) {
            self.target.write_all(&[0xC2])?;
        }
        self.target.flush()
    }
}

/// The format of a capture, as it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum FormatArg {
    /// Classic pcap: one link type, no interface names.
    Pcap,
    /// pcapng: several link types, interface names, comments.
    Pcapng,
}

/// The requested format, or the one that follows from the file extension.
pub(super) fn format(asked: Option<FormatArg>, path: &Path) -> FileFormat {
    match asked {
        Some(FormatArg::Pcap) => FileFormat::Pcap,
        Some(FormatArg::Pcapng) => FileFormat::Pcapng,
        None if path.extension().is_some_and(|ending| ending == "pcap" || ending == "cap") => {
            FileFormat::Pcap
        }
        None => FileFormat::Pcapng,
    }
}

const BUFFER_LEN: usize = 1 << 18;

/// A capture that is being written.
pub(super) struct Output<'a> {
    target: Target<'a>,
}

enum Target<'a> {
    Stdout(&'a mut dyn Write),
    /// A device or a pipe: it is written to, and not replaced.
    Device(BufWriter<std::fs::File>),
    File {
        file: Box<dyn AppendFile>,
        temporary: PathBuf,
        path: PathBuf,
        force: bool,
        complete: bool,
        pending: Pending,
    },
}

impl<'a> Output<'a> {
    /// Opens a file, or standard output for `-`. From then on Ctrl-C leaves nothing half-written.
    pub(super) fn open(
        path: &Path,
        force: bool,
        rights: Rights,
        stdout: &'a mut dyn Write,
    ) -> anyhow::Result<Self> {
        if path.as_os_str() == "-" {
            ensure!(
                !io::stdout().is_terminal(),
                "cannot write a capture to a terminal: give -w FILE, or a pipe: \
                 -w - | tcpdump -nn -r -"
            );
            return Ok(Self { target: Target::Stdout(stdout) });
        }
        let failed = || format!("cannot write {}", path.display());
        if let Ok(there) = path.metadata() {
            if there.is_dir() {
                bail!("cannot write {}: it is a folder", path.display());
            }
            if !there.is_file() {
                let file = OpenOptions::new().write(true).open(path).with_context(failed)?;
                let file = BufWriter::with_capacity(BUFFER_LEN, file);
                return Ok(Self { target: Target::Device(file) });
            }
        }
        check_absent(path, force)?;
        interrupt::watch();
        let temporary = temporary_path(path);
        let create = || Disk.create(&temporary, rights);
        let (pending, file) = Pending::make(&temporary, create).with_context(failed)?;
        Ok(Self {
            target: Target::File {
                file,
                temporary,
                path: path.to_owned(),
                force,
                complete: false,
                pending,
            },
        })
    }

    /// Sets who may read the file, before anything is written to it.
    pub(super) fn share(&mut self, rights: Rights) -> anyhow::Result<()> {
        if let Target::File { file, temporary, path, pending, .. } = &mut self.target {
            let create = || Disk.remove(temporary).and_then(|()| Disk.create(temporary, rights));
            let created = pending.make_again(create);
            *file = created.with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// Gives the file its name.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        self.flush().context(CANNOT_WRITE)?;
        if let Target::File { file, temporary, path, force, complete, .. } = &mut self.target {
            let failed = || format!("cannot write {}", path.display());
            file.sync().with_context(failed)?;
            check_absent(path, *force)?;
            Disk.rename(temporary, path).with_context(failed)?;
            *complete = true;
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            Disk.sync_folder(folder.unwrap_or(Path::new("."))).with_context(failed)?;
        }
        Ok(())
    }
}

fn check_absent(path: &Path, force: bool) -> anyhow::Result<()> {
    let there = path.symlink_metadata().is_ok();
    ensure!(force || !there, "{} exists; --force replaces it", path.display());
    Ok(())
}

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.target {
            Target::Stdout(out) => out.write(bytes),
            Target::Device(file) => file.write(bytes),
            Target::File { file, .. } => file.append(bytes).map(|()| bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.target {
            Target::Stdout(out) => out.flush(),
            Target::Device(file) => file.flush(),
            Target::File { file, .. } => file.flush(),
        }
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        if let Target::File { temporary, complete: false, .. } = &self.target {
            // Overwritten the next time if it cannot be removed.
            drop(Disk.remove(temporary));
        }
    }
}

/// An error of a capture, with what to do about it.
pub(super) fn capture_error(error: tapdex_engine::capture::CaptureError) -> anyhow::Error {
    use tapdex_engine::capture::CaptureError;
    match &error {
        CaptureError::Unwritable { format: "pcap", .. } => {
            anyhow::anyhow!("{}; use -F pcapng", chain(&error))
        }
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_no_control_characters() {
        let shown = |pieces: &[&[u8]]| {
            let mut out = Text::new(Vec::new());
            for piece in pieces {
                out.write_all(piece).unwrap();
            }
            out.flush().unwrap();
            out.target
        };
        let text = "plain\ttext\n\u{e9}\u{a0} \u{1b}[31m \u{7f}\r\u{9b}1m".as_bytes();
        let expected = "plain\ttext\n\u{e9}\u{a0} \\u{1b}[31m \\u{7f}\\u{d}\\u{9b}1m";
        assert_eq!(String::from_utf8(shown(&[text])).unwrap(), expected);
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(String::from_utf8(shown(&bytes)).unwrap(), expected);
        assert_eq!(shown(&[b"\xC2\x1b\xC2"]), b"\xC2\\u{1b}\xC2");
    }
}
