//! Compressed captures: gzip and zstd, recognised by their magic numbers.

use std::fmt;
use std::io::{self, BufReader, Chain, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

use super::error::{CaptureError, DecompressError};

/// Bytes that the decoders read at a time.
const PACKED_LEN: usize = 128 << 10;

/// How a file is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip, of one member or several.
    Gzip,
    /// zstd, of one frame or several.
    Zstd,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        })
    }
}

/// The source, preceded by the bytes that were read to find out what it is.
type Peeked<R> = Chain<Cursor<Vec<u8>>, R>;

enum Form<R: Read> {
    Plain(Peeked<R>),
    Gzip(Box<MultiGzDecoder<BufReader<Peeked<R>>>>),
    Zstd(Box<zstd::Decoder<'static, BufReader<Peeked<R>>>>),
}

/// A source that is unpacked while it is read.
///
/// If a packed source is cut off or damaged, everything before the damage is returned, and then an
/// error with a [`DecompressError`] inside.
pub struct Decompressed<R: Read> {
    form: Form<R>,
    unpacked: u64,
}

/// Looks at the first bytes of a source, and unpacks it if it is packed.
pub fn decompress<R: Read>(mut source: R) -> Result<Decompressed<R>, CaptureError> {
    let mut magic = Vec::with_capacity(4);
    let error = |source| CaptureError::io("read the capture", 0, source);
    source.by_ref().take(4).read_to_end(&mut magic).map_err(error)?;
    let zstd = match magic[..] {
        [0x28, 0xB5, 0x2F, 0xFD] => true,
        // A skippable frame may come first.
        [mark, 0x2A, 0x4D, 0x18] => mark >> 4 == 5,
        _ => false,
    };
    let gzip = magic.starts_with(&[0x1F, 0x8B]);
    let source = Cursor::new(magic).chain(source);
    let form = if zstd {
        let source = BufReader::with_capacity(PACKED_LEN, source);
        Form::Zstd(Box::new(zstd::Decoder::with_buffer(source).map_err(error)?))
    } else if gzip {
        let source = BufReader::with_capacity(PACKED_LEN, source);
        Form::Gzip(Box::new(MultiGzDecoder::new(source)))
    } else {
        Form::Plain(source)
    };
    Ok(Decompressed { form, unpacked: 0 })
}

impl<R: Read> Decompressed<R> {
    /// How the source is packed.
    pub fn compression(&self) -> Compression {
        match self.form {
            Form::Plain(_) => Compression::None,
            Form::Gzip(_) => Compression::Gzip,
            Form::Zstd(_) => Compression::Zstd,
        }
    }
}

impl<R: Read> Read for Decompressed<R> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let compression = self.compression();
        let result = match &mut self.form {
            Form::Plain(source) => return source.read(target),
            Form::Gzip(decoder) => decoder.read(target),
            Form::Zstd(decoder) => decoder.read(target),
        };
        match result {
            Ok(len) => {
                self.unpacked += len as u64;
                Ok(len)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(source) => {
                let kind = source.kind();
                let cut = kind == io::ErrorKind::UnexpectedEof;
                let unpacked = self.unpacked;
                Err(io::Error::new(kind, DecompressError { compression, cut, unpacked, source }))
            }
        }
    }
}

impl<R: Read> fmt::Debug for Decompressed<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompressed")
            .field("compression", &self.compression())
            .field("unpacked", &self.unpacked)
            .finish_non_exhaustive()
    }
}
