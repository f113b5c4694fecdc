//! Names of numbers, for people.

/// A protocol of IP.
pub(super) fn protocol(number: u8) -> String {
    let name = match number {
        0 => "hop-by-hop options",
        1 => "ICMP",
        2 => "IGMP",
        4 => "IPv4",
        6 => "TCP",
        17 => "UDP",
        41 => "IPv6",
        43 => "routing header",
        44 => "fragment header",
        47 => "GRE",
        50 => "ESP",
        51 => "AH",
        58 => "ICMPv6",
        59 => "nothing",
        60 => "destination options",
        89 => "OSPF",
        103 => "PIM",
        112 => "VRRP",
        132 => "SCTP",
        _ => return number.to_string(),
    };
    format!("{number} ({name})")
}

/// An EtherType, or the length of an 802.3 frame.
pub(super) fn ethertype(number: u16) -> String {
    let name = match number {
        ..=1500 => return format!("{number} (length)"),
        0x0800 => "IPv4",
        0x0806 => "ARP",
        0x8035 => "RARP",
        0x8100 | 0x88A8 | 0x9100 => "VLAN",
        0x86DD => "IPv6",
        0x8847 | 0x8848 => "MPLS",
        0x8863 | 0x8864 => "PPPoE",
        0x88CC => "LLDP",
        0x6558 => "Ethernet",
        _ => return format!("0x{number:04x}"),
    };
    format!("0x{number:04x} ({name})")
}

/// The flags of TCP that are set, in words.
pub(super) fn tcp_flags(flags: u16) -> String {
    let names = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR", "AE"];
    let set = (0..).zip(names).filter(|(bit, _)| flags >> bit & 1 == 1);
    set.map(|(_, name)| name).collect::<Vec<_>>().join(" ")
}
