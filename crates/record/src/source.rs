//! Where packets come from: interfaces, standard input, pcap-over-IP.

mod live;
#[cfg(feature = "testing")]
mod made;
mod stream;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::counters::SourceCounters;
use crate::messages::Messages;
use crate::queue::{Feeder, Pressure};

pub use live::list_interfaces;
#[cfg(feature = "testing")]
pub use made::{Packets, frame_number, numbered_frame};

/// A source of packets, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceName {
    /// A network interface, or `any`.
    Interface(String),
    /// Standard input: pcap or pcapng, perhaps compressed.
    Stdin,
    /// A server that sends a capture to whoever connects: `HOST:PORT`.
    Tcp(String),
}

impl SourceName {
    /// `-` is standard input, `tcp://HOST:PORT` and Wireshark's `TCP@HOST:PORT` are servers, all
    /// else are interfaces.
    pub fn parse(text: &str) -> Self {
        match text.strip_prefix("tcp://").or_else(|| text.strip_prefix("TCP@")) {
            _ if text == "-" => Self::Stdin,
            Some(address) => Self::Tcp(address.to_owned()),
            None => Self::Interface(text.to_owned()),
        }
    }
}

impl std::fmt::Display for SourceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Interface(name) => f.write_str(name),
            Self::Stdin => f.write_str("standard input"),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

/// How packets are captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureOptions {
    /// The most bytes of a packet that are kept.
    pub snaplen: u32,
    /// Whether packets to other stations are captured, too.
    pub promiscuous: bool,
    /// Bytes of the kernel's ring, for each interface.
    pub ring_bytes: u64,
    /// The capture filter, in the language of tcpdump. If it is empty, all packets are captured.
    pub filter: String,
}

impl Default for CaptureOptions {
    fn default() -> Self {
        Self {
            snaplen: SNAPLEN_MAX,
            promiscuous: true,
            ring_bytes: 64 << 20,
            filter: String::new(),
        }
    }
}

/// libpcap's limit.
pub const SNAPLEN_MAX: u32 = 262_144;

/// Why a source could not deliver packets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// Only root, and processes with CAP_NET_RAW, may capture.
    #[error(
        "no permission to capture on {name}: be root, or let the program do so once: \
         setcap cap_net_raw+ep $(command -v tapdex)"
    )]
    Permission {
        /// The interface.
        name: String,
    },
    /// There is no such interface.
    #[error("there is no interface {name}; there are: {there}")]
    NoInterface {
        /// What was asked for.
        name: String,
        /// The existing interfaces.
        there: String,
    },
    /// libpcap does not understand the filter.
    #[error("the capture filter {filter:?} cannot be used on {name}: {message}")]
    Filter {
        /// The filter.
        filter: String,
        /// The interface.
        name: String,
        /// What libpcap says.
        message: String,
    },
    /// The interface could not be opened, or delivers no more packets.
    #[error("cannot capture on {name}: {message}")]
    Interface {
        /// The interface.
        name: String,
        /// What libpcap says.
        message: String,
    },
    /// There is no connection to a server.
    #[error("cannot connect to {name}")]
    Connect {
        /// The server.
        name: String,
        /// What the system says.
        source: std::io::Error,
    },
}

/// A source that is open.
#[derive(Debug)]
pub struct PacketSource {
    name: SourceName,
    kind: SourceKind,
    options: CaptureOptions,
}

enum SourceKind {
    Live(live::Live),
    Stream(Option<stream::Connection>),
    #[cfg(feature = "testing")]
    Made(made::Made),
}

impl std::fmt::Debug for SourceKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Live(_) => "Live",
            Self::Stream(_) => "Stream",
            #[cfg(feature = "testing")]
            Self::Made(_) => "Made",
        })
    }
}

impl PacketSource {
    /// Opens a source. For interfaces this is what needs permission.
    pub fn open(name: &SourceName, options: &CaptureOptions) -> Result<Self, SourceError> {
        let kind = match name {
            SourceName::Interface(interface) => {
                SourceKind::Live(live::Live::open(interface, options)?)
            }
            SourceName::Stdin => SourceKind::Stream(None),
            SourceName::Tcp(address) => {
                let source = stream::connect(address);
                let source = source
                    .map_err(|source| SourceError::Connect { name: name.to_string(), source })?;
                SourceKind::Stream(Some(source))
            }
        };
        Ok(Self { name: name.clone(), kind, options: options.clone() })
    }

    /// Its name.
    pub fn name(&self) -> &SourceName {
        &self.name
    }

    pub(crate) fn pressure(&self) -> Pressure {
        match &self.kind {
            SourceKind::Live(_) => Pressure::Lose,
            SourceKind::Stream(_) => Pressure::Wait,
            #[cfg(feature = "testing")]
            SourceKind::Made(made) => made.pressure,
        }
    }

    /// Registers its interface, if that is known before there are packets.
    pub(crate) fn announce(&self, feeder: &Feeder) {
        if let SourceKind::Live(live) = &self.kind {
            // If there are too many, that is reported when it starts.
            live.announce(feeder, &self.options);
        }
    }

    /// Delivers packets until it ends or is told to stop. Problems are reported as messages.
    pub(crate) fn run(self, mut feeder: Feeder, stop: &AtomicBool, messages: &Messages<'_>) {
        let counters = Arc::clone(&feeder.counters);
        let up = Up(&counters);
        match self.kind {
            SourceKind::Live(live) => live.run(&mut feeder, &self.options, stop, messages),
            SourceKind::Stream(connection) => {
                stream::run(&self.name, connection, &mut feeder, stop, messages);
            }
            #[cfg(feature = "testing")]
            SourceKind::Made(made) => made.run(&mut feeder, stop),
        }
        feeder.hand_over();
        drop(up);
    }
}

/// A source is up as long as this lives.
struct Up<'a>(&'a SourceCounters);

impl Drop for Up<'_> {
    fn drop(&mut self) {
        self.0.up.store(false, Ordering::Relaxed);
    }
}
