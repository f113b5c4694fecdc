//! A packet on one line: as JSON, and as text.

use std::borrow::Cow;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use tapdex_engine::capture::Record;
use tapdex_engine::fields::{FieldKind, Shown};
use tapdex_engine::packet::{
    ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_RARP, Encap, Fragment, Headers,
    Tunnel, decode, protocol, tcp_flags,
};
use tapdex_engine::time::format_time;

use crate::json::Time;

/// What is printed about a packet: `search --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packet<'a> {
    /// When it was captured.
    pub time: Time,
    /// The address of its source: IP, otherwise MAC.
    pub src: String,
    /// The address of its destination.
    pub dst: String,
    /// What it carries.
    pub protocol: Cow<'static, str>,
    /// The port of its source, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src_port: Option<u16>,
    /// The port of its destination, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_port: Option<u16>,
    /// Bytes on the wire.
    pub length: u32,
    /// Bytes in the capture.
    pub captured: u64,
    /// VLAN ids, outer first; empty without.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub vlan: String,
    /// TCP flags as letters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub flags: String,
    /// The type of an ICMP or ICMPv6 message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<u8>,
    /// Its code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_code: Option<u8>,
    /// `first` or `later`, for fragments of IP.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub fragment: Cow<'static, str>,
    /// The tunnel and what is in it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tunnel: String,
    /// Its capture.
    pub file: Cow<'a, str>,
    /// Its number there, from 1, as in Wireshark.
    pub number: u64,
    /// Where its record starts there.
    pub offset: u64,
    /// The node that has it, if several were asked.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub node: Cow<'a, str>,
    /// A name for it that stays the same: the segment and its number there. Only servers give it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
}

impl<'a> Packet<'a> {
    /// Reads the headers of a packet: the `number`th of the capture `file`.
    pub fn new(file: &'a str, number: u64, record: Record<'_>) -> Self {
        let mut headers = Headers::default();
        decode(record.link, record.swapped, record.data, &mut headers);
        let [src, dst] = ends(&headers);
        let (ports, flags) = (has_ports(&headers), headers.l4 == protocol::TCP);
        let is_icmp = is_ip(&headers)
            && [protocol::ICMP, protocol::ICMP6].contains(&headers.l4)
            && headers.fragment != Fragment::Later;
        Self {
            time: Time(record.time_ns),
            src,
            dst,
            protocol: match record.link.name() {
                None => record.link.to_string().into(),
                Some(_) => protocol_of(&headers),
            },
            src_port: ports.then_some(headers.port_src),
            dst_port: ports.then_some(headers.port_dst),
            length: record.wire_len,
            captured: record.data.len() as u64,
            vlan: vlan(&headers),
            flags: if ports && flags { tcp_flags(headers.tcp_flags) } else { String::new() },
            icmp_type: is_icmp.then_some(headers.icmp_type),
            icmp_code: is_icmp.then_some(headers.icmp_code),
            fragment: match headers.fragment {
                Fragment::Whole => "",
                Fragment::First => "first",
                Fragment::Later => "later",
            }
            .into(),
            tunnel: if headers.wide { tunnel(&headers) } else { String::new() },
            file: file.into(),
            number,
            offset: record.offset,
            node: "".into(),
            id: String::new(),
        }
    }

    /// The same, to be kept.
    pub fn into_owned(self) -> Packet<'static> {
        Packet {
            time: self.time,
            src: self.src,
            dst: self.dst,
            protocol: self.protocol,
            src_port: self.src_port,
            dst_port: self.dst_port,
            length: self.length,
            captured: self.captured,
            vlan: self.vlan,
            flags: self.flags,
            icmp_type: self.icmp_type,
            icmp_code: self.icmp_code,
            fragment: self.fragment,
            tunnel: self.tunnel,
            file: Cow::Owned(self.file.into_owned()),
            number: self.number,
            offset: self.offset,
            node: Cow::Owned(self.node.into_owned()),
            id: self.id,
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format_time(self.time.0);
        text.push_str("  ");
        if !self.vlan.is_empty() {
            let _ = write!(text, "vlan {} ", self.vlan);
        }
        let Self { src, dst, protocol, .. } = self;
        let _ = match (self.src_port, self.dst_port) {
            (Some(from), Some(to)) => write!(text, "{src}.{from} > {dst}.{to}  {protocol}"),
            _ => write!(text, "{src} > {dst}  {protocol}"),
        };
        if !self.flags.is_empty() {
            let _ = write!(text, " [{}]", self.flags);
        }
        if let (Some(kind), Some(code)) = (self.icmp_type, self.icmp_code) {
            let _ = write!(text, " type {kind} code {code}");
        }
        text.push_str(match &*self.fragment {
            "first" => " first fragment",
            "later" => " fragment",
            _ => "",
        });
        let _ = write!(text, "  {} bytes", self.length);
        if !self.tunnel.is_empty() {
            let _ = write!(text, "  {}", self.tunnel);
        }
        text
    }
}

/// The source and the destination of a packet.
fn ends(headers: &Headers) -> [String; 2] {
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

fn is_ip(headers: &Headers) -> bool {
    [ETHERTYPE_IPV4, ETHERTYPE_IPV6].contains(&headers.eth_type)
}

fn has_ports(headers: &Headers) -> bool {
    is_ip(headers)
        && [protocol::TCP, protocol::UDP, protocol::SCTP].contains(&headers.l4)
        && headers.fragment != Fragment::Later
}

fn protocol_of(headers: &Headers) -> Cow<'static, str> {
    let name = match (headers.eth_type, headers.l4) {
        (ETHERTYPE_ARP, _) => "ARP",
        (ETHERTYPE_RARP, _) => "RARP",
        _ if !is_ip(headers) => return format!("0x{:04x}", headers.eth_type).into(),
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

fn vlan(headers: &Headers) -> String {
    match headers.encap {
        Encap::Tag | Encap::TagsMpls => headers.vlan.to_string(),
        Encap::TwoTags | Encap::ManyTags => format!("{}.{}", headers.vlan, headers.vlan_inner),
        Encap::None | Encap::Mpls => String::new(),
    }
}

fn tunnel(headers: &Headers) -> String {
    let name = match headers.tunnel {
        Tunnel::None => return String::new(),
        tunnel => tunnel.title(),
    };
    let inner = &headers.inner;
    let end = |address: u128, port: u16| {
        let address = match inner.eth_type {
            ETHERTYPE_IPV4 => Ipv4Addr::from(u32::try_from(address).unwrap_or(0)).to_string(),
            _ => Ipv6Addr::from(address).to_string(),
        };
        if port == 0 { address } else { format!("{address}.{port}") }
    };
    let (src, dst) = (end(inner.src, inner.port_src), end(inner.dst, inner.port_dst));
    format!("{name} {}: {src} > {dst}", headers.tunnel_id)
}

/// A MAC address as text.
fn mac(address: u64) -> String {
    Shown(FieldKind::Mac, address.into()).to_string()
}
