//! Kinds of links.

/// What a frame starts with, by the number that capture files have for it (LINKTYPE_...).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback: the address family in four bytes, in the order of the machine that captured.
    pub const NULL: Self = Self(0);
    /// Ethernet.
    pub const ETHERNET: Self = Self(1);
    /// IPv4 or IPv6, told apart by the version.
    pub const RAW: Self = Self(101);
    /// OpenBSD loopback: the address family in four bytes, in network order.
    pub const LOOP: Self = Self(108);
    /// Linux cooked capture.
    pub const LINUX_SLL: Self = Self(113);
    /// IPv4.
    pub const IPV4: Self = Self(228);
    /// IPv6.
    pub const IPV6: Self = Self(229);
    /// Linux cooked capture, version 2.
    pub const LINUX_SLL2: Self = Self(276);

    /// Its name, if it is one whose headers are decoded.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::NULL => "null",
            Self::ETHERNET => "ethernet",
            Self::RAW => "raw",
            Self::LOOP => "loop",
            Self::LINUX_SLL => "linux-sll",
            Self::IPV4 => "ipv4",
            Self::IPV6 => "ipv6",
            Self::LINUX_SLL2 => "linux-sll2",
            _ => return None,
        })
    }
}

impl std::fmt::Display for LinkType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "link type {}", self.0),
        }
    }
}
