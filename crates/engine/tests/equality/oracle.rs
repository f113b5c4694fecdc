//! What libpcap says of each packet of a file.

use std::fs::File;
use std::path::{Path, PathBuf};

use pcap::{Capture, Error, Precision};
use tapdex_engine::capture::{CaptureReader, Record};
use tapdex_engine::packet::{Headers, LinkType, decode};
use tapdex_engine::query::Query;
use tapdex_engine::testing::filters::Values;

/// A packet, as both readers have it.
pub(crate) struct Packet {
    /// Seconds and fraction as libpcap has them.
    stamp: (i64, i64),
    pub(crate) time_ns: u64,
    interface: u32,
    pub(crate) link: LinkType,
    swapped: bool,
    wire_len: u32,
    pub(crate) data: Vec<u8>,
}

impl Packet {
    pub(crate) fn record(&self) -> Record<'_> {
        Record {
            offset: 0,
            time_ns: self.time_ns,
            interface: self.interface,
            link: self.link,
            swapped: self.swapped,
            wire_len: self.wire_len,
            data: &self.data,
        }
    }
}

/// A file, the packets of it, and how many of them libpcap delivers.
pub(crate) struct Truth {
    pub(crate) path: PathBuf,
    pub(crate) packets: Vec<Packet>,
    pub(crate) delivered: usize,
}

/// What libpcap answers for a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It does not compile the filter for the file's link, or does not read the file.
    Refused(String),
    /// For each packet that it delivers, whether it matches.
    Matches(Vec<bool>),
}

fn open(path: &Path) -> Result<Capture<pcap::Offline>, String> {
    Capture::from_file_with_precision(path, Precision::Nano).map_err(|error| error.to_string())
}

/// What libpcap says of a filter that matches nothing.
const REJECTS_ALL: &str = "expression rejects all packets";

impl Truth {
    /// Reads a file that is not compressed. Both readers have to agree on its packets.
    pub(crate) fn read(path: &Path) -> Self {
        let mut packets = Vec::new();
        if let Ok(mut reader) = CaptureReader::open(File::open(path).unwrap()) {
            while let Ok(Some(record)) = reader.next() {
                packets.push(Packet {
                    stamp: (0, 0),
                    time_ns: record.time_ns,
                    interface: record.interface,
                    link: record.link,
                    swapped: record.swapped,
                    wire_len: record.wire_len,
                    data: record.data.to_vec(),
                });
            }
        }
        let mut delivered = 0;
        if let Ok(mut capture) = open(path) {
            while let Ok(packet) = capture.next_packet() {
                let ours = packets.get_mut(delivered);
                let ours = ours.unwrap_or_else(|| panic!("{path:?}: libpcap has more packets"));
                let found = (packet.header.len, packet.data);
                assert_eq!((ours.wire_len, &*ours.data), found, "{path:?}: packet {delivered}");
                ours.stamp = (packet.header.ts.tv_sec, packet.header.ts.tv_usec);
                delivered += 1;
            }
        }
        Self { path: path.to_owned(), packets, delivered }
    }

    /// Which packets match by libpcap's own program and machine, with their real length.
    ///
    /// Packets are told from each other by time, length and bytes. Of those that are alike in all
    /// of these, every one matches or none does, so the first that fits is the right one.
    pub(crate) fn ask(&self, text: &str) -> Verdict {
        let mut capture = match open(&self.path) {
            Ok(capture) => capture,
            Err(error) => return Verdict::Refused(error),
        };
        let mut matches = vec![false; self.delivered];
        match capture.filter(text, true) {
            Ok(()) => {}
            Err(Error::PcapError(message)) if message == REJECTS_ALL => {
                return Verdict::Matches(matches);
            }
            Err(error) => return Verdict::Refused(error.to_string()),
        }
        let mut next = 0;
        while let Ok(packet) = capture.next_packet() {
            let stamp = (packet.header.ts.tv_sec, packet.header.ts.tv_usec);
            let is_it = |ours: &Packet| {
                ours.stamp == stamp
                    && ours.wire_len == packet.header.len
                    && ours.data == packet.data
            };
            let behind = self.packets[next..self.delivered].iter().position(is_it).unwrap();
            matches[next + behind] = true;
            next += behind + 1;
        }
        Verdict::Matches(matches)
    }

    /// Decides each packet by itself; `None` where the filter is refused for its link.
    pub(crate) fn scan(&self, query: &Query, first: usize) -> Vec<Option<bool>> {
        let mut headers = Headers::default();
        let packets = self.packets[first..].iter();
        packets.map(|packet| query.scan(&packet.record(), &mut headers).ok()).collect()
    }

    /// Values that packets of the file have.
    pub(crate) fn values(&self) -> Values {
        let mut found = Values {
            hosts4: vec![],
            hosts6: vec![],
            macs: vec![],
            ports: vec![],
            vlans: vec![],
            labels: vec![],
            protocols: vec![],
            ethertypes: vec![],
            lengths: vec![],
        };
        let mut headers = Headers::default();
        let step = self.packets.len().div_ceil(200).max(1);
        for packet in self.packets.iter().step_by(step) {
            decode(packet.link, packet.swapped, &packet.data, &mut headers);
            found.hosts4.extend([headers.ip_src, headers.ip_dst]);
            if headers.wide && headers.ip6_src != 0 {
                found.hosts6.extend([headers.ip6_src, headers.ip6_dst]);
            }
            found.macs.extend([headers.eth_src, headers.eth_dst]);
            found.ports.extend([headers.port_src, headers.port_dst]);
            found.vlans.extend([headers.vlan, headers.vlan_inner]);
            found.labels.push(headers.mpls);
            found.protocols.extend([headers.proto, headers.l4]);
            found.ethertypes.push(headers.eth_type);
            found.lengths.push(packet.wire_len);
        }
        found
    }
}
