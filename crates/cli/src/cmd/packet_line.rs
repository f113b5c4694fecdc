//! A packet on one line: as text, as CSV, as JSON.

use std::borrow::Cow;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::Serialize;
use tapdex_engine::capture::Record;
use tapdex_engine::fields::{FieldKind, Shown};
use tapdex_engine::packet::{
    ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_RARP, Encap, Fragment, Headers,
    Tunnel, decode, protocol, tcp_flags,
};
use tapdex_engine::time::format_time;

use super::json;

/// What is printed about a packet.
pub(super) struct PacketLine<'a> {
    /// Its file.
    file: &'a str,
    /// Its number in the file, from 1, as in Wireshark.
    number: u64,
    record: Record<'a>,
    headers: Headers,
}

/// The headings of CSV.
pub(super) const CSV_HEADINGS: [&str; 13] = [
    "time", "src", "dst", "protocol", "src_port", "dst_port", "length", "captured", "vlan",
    "flags", "file", "number", "offset",
];

impl<'a> PacketLine<'a> {
    pub(super) fn new(file: &'a str, number: u64, record: Record<'a>) -> Self {
        let mut headers = Headers::default();
        decode(record.link, record.swapped, record.data, &mut headers);
        Self { file, number, record, headers }
    }

    /// Its source and destination.
    fn ends(&self) -> [String; 2] {
        let headers = &self.headers;
        match headers.eth_type {
            ETHERTYPE_IPV4 | ETHERTYPE_ARP | ETHERTYPE_RARP => {
                [headers.ip_src, headers.ip_dst].map(|ip| Ipv4Addr::from(ip).to_string())
            }
            ETHERTYPE_IPV6 if headers.wide => {
                [headers.ip6_src, headers.ip6_dst].map(|ip| Ipv6Addr::from(ip).to_string())
            }
            _ => [headers.eth_src, headers.eth_dst].map(mac),
        }
    }

    fn has_ports(&self) -> bool {
        self.is_ip()
            && [protocol::TCP, protocol::UDP, protocol::SCTP].contains(&self.headers.l4)
            && self.headers.fragment != Fragment::Later
    }

    fn is_ip(&self) -> bool {
        [ETHERTYPE_IPV4, ETHERTYPE_IPV6].contains(&self.headers.eth_type)
    }

    fn protocol(&self) -> Cow<'static, str> {
        let headers = &self.headers;
        let name = match (headers.eth_type, headers.l4) {
            _ if self.record.link.name().is_none() => return self.record.link.to_string().into(),
            (ETHERTYPE_ARP, _) => "ARP",
            (ETHERTYPE_RARP, _) => "RARP",
            _ if !self.is_ip() => return format!("0x{:04x}", headers.eth_type).into(),
            (_, protocol::TCP) => "TCP",
            (_, protocol::UDP) => "UDP",
            (_, protocol::SCTP) => "SCTP",
            (_, protocol::ICMP) => "ICMP",
            (_, protocol::ICMP6) => "ICMPv6",
            (_, protocol::GRE) => "GRE",
            (_, other) => return format!("IP {other}").into(),
        };
        name.into()
    }

    fn flags(&self) -> String {
        if self.headers.l4 != protocol::TCP || !self.has_ports() {
            return String::new();
        }
        tcp_flags(self.headers.tcp_flags)
    }

    fn vlan(&self) -> String {
        match self.headers.encap {
            Encap::Tag | Encap::TagsMpls => self.headers.vlan.to_string(),
            Encap::TwoTags | Encap::ManyTags => {
                format!("{}.{}", self.headers.vlan, self.headers.vlan_inner)
            }
            Encap::None | Encap::Mpls => String::new(),
        }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let [src, dst] = self.ends();
        let mut text = format_time(self.record.time_ns);
        text.push_str("  ");
        let vlan = self.vlan();
        if !vlan.is_empty() {
            let _ = write!(text, "vlan {vlan} ");
        }
        let _ = match self.has_ports() {
            true => {
                let (src_port, dst_port) = (self.headers.port_src, self.headers.port_dst);
                write!(text, "{src}.{src_port} > {dst}.{dst_port}  {}", self.protocol())
            }
            false => write!(text, "{src} > {dst}  {}", self.protocol()),
        };
        let flags = self.flags();
        if !flags.is_empty() {
            let _ = write!(text, " [{flags}]");
        }
        if [protocol::ICMP, protocol::ICMP6].contains(&self.headers.l4) && self.is_ip() {
            let (kind, code) = (self.headers.icmp_type, self.headers.icmp_code);
            let _ = write!(text, " type {kind} code {code}");
        }
        match self.headers.fragment {
            Fragment::Whole => {}
            Fragment::First => text.push_str(" first fragment"),
            Fragment::Later => text.push_str(" fragment"),
        }
        let _ = write!(text, "  {} bytes", self.record.wire_len);
        if self.headers.wide && self.headers.tunnel != Tunnel::None {
            let _ = write!(text, "  {}", self.tunnel());
        }
        text
    }

    fn tunnel(&self) -> String {
        let name = match self.headers.tunnel {
            Tunnel::None => return String::new(),
            tunnel => tunnel.title(),
        };
        let inner = &self.headers.inner;
        let end = |address: u128, port: u16| {
            let address = match inner.eth_type {
                ETHERTYPE_IPV4 => Ipv4Addr::from(u32::try_from(address).unwrap_or(0)).to_string(),
                _ => Ipv6Addr::from(address).to_string(),
            };
            if port == 0 { address } else { format!("{address}.{port}") }
        };
        let (src, dst) = (end(inner.src, inner.port_src), end(inner.dst, inner.port_dst));
        format!("{name} {}: {src} > {dst}", self.headers.tunnel_id)
    }

    /// For spreadsheets: a value for each of the [`CSV_HEADINGS`].
    pub(super) fn csv(&self) -> impl Serialize {
        let [src, dst] = self.ends();
        (
            json::Time(self.record.time_ns),
            src,
            dst,
            self.protocol(),
            self.has_ports().then_some(self.headers.port_src),
            self.has_ports().then_some(self.headers.port_dst),
            self.record.wire_len,
            self.record.data.len(),
            self.vlan(),
            self.flags(),
            super::escaped(self.file),
            self.number,
            self.record.offset,
        )
    }

    /// For programs.
    pub(super) fn json(&self) -> json::Packet<'_> {
        let [src, dst] = self.ends();
        json::Packet {
            time: json::Time(self.record.time_ns),
            src,
            dst,
            protocol: self.protocol(),
            src_port: self.has_ports().then_some(self.headers.port_src),
            dst_port: self.has_ports().then_some(self.headers.port_dst),
            length: self.record.wire_len,
            captured: self.record.data.len(),
            vlan: self.vlan(),
            flags: self.flags(),
            tunnel: self.tunnel(),
            file: self.file,
            number: self.number,
            offset: self.record.offset,
        }
    }
}

/// A MAC address as text.
fn mac(address: u64) -> String {
    Shown(FieldKind::Mac, address.into()).to_string()
}
