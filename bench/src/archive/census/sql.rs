//! Questions as SQL over header fields, with libpcap's meaning.
//!
//! A plain filter of libpcap sees frames without tags; `encap = 0` says that. Addresses and ports
//! are null where a packet has none, and a comparison with null holds for nothing. Where one can
//! ask in two ways, of which now this and now that is faster, there are two queries.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Neither tags nor labels before the network header, which is IPv4's.
const IPV4: &str = "encap = 0 AND eth_type = 2048";
/// The same, or that of ARP or RARP, whose addresses `host` and `net` look at, too.
const IPV4_ARP: &str = "encap = 0 AND eth_type IN (2048, 2054, 32821)";

fn count(condition: &str) -> String {
    format!("SELECT count(*) FROM packets WHERE {condition}")
}

/// Counts those for which either of two conditions holds besides another one: asked at once, and
/// each for itself, which helps where least and greatest values rule one of them out.
fn either(besides: &str, [one, other]: [String; 2]) -> Vec<String> {
    let part = |condition: &str| format!("({})", count(&format!("{besides} AND {condition}")));
    let sum = format!(
        "SELECT {} + {} - {}",
        part(&one),
        part(&other),
        part(&format!("{one} AND {other}"))
    );
    vec![count(&format!("{besides} AND ({one} OR {other})")), sum]
}

/// Either end is a number.
fn equal(fields: [&str; 2], value: u32) -> [String; 2] {
    fields.map(|field| format!("{field} = {value}"))
}

const ADDRESSES: [&str; 2] = ["ip_src", "ip_dst"];
const PORTS: [&str; 2] = ["port_src", "port_dst"];

/// The ways in which two numbers can be the values of two fields, no two of which hold at once.
fn ways([x, y]: [&str; 2], [a, b]: [u32; 2]) -> Vec<String> {
    match a == b {
        // One of the fields may be anything.
        true => vec![format!("({x} = {a} OR {y} = {a})")],
        false => vec![format!("{x} = {a} AND {y} = {b}"), format!("{x} = {b} AND {y} = {a}")],
    }
}

/// Both numbers are there, among two fields.
fn pair(fields: [&str; 2], [a, b]: [u32; 2]) -> String {
    let [x, y] = fields;
    match a == b {
        true => ways(fields, [a, b]).concat(),
        false => format!("{x} IN ({a}, {b}) AND {y} IN ({a}, {b}) AND {x} <> {y}"),
    }
}

/// Two hosts, some protocols, two ports, which may be the same one.
pub fn flow(hosts: [u32; 2], protocols: &[u8], ports: [u16; 2]) -> Vec<String> {
    let ports = ports.map(u32::from);
    let protocols: Vec<String> = protocols.iter().map(u8::to_string).collect();
    let besides = format!("{IPV4} AND proto IN ({})", protocols.join(", "));
    let at_once =
        count(&format!("{besides} AND {} AND {}", pair(ADDRESSES, hosts), pair(PORTS, ports)));
    let mut parts = Vec::new();
    for addresses in ways(ADDRESSES, hosts) {
        for ports in ways(PORTS, ports) {
            parts.push(format!("({})", count(&format!("{besides} AND {addresses} AND {ports}"))));
        }
    }
    vec![at_once, format!("SELECT {}", parts.join(" + "))]
}

/// A host at either end.
pub fn host(host: Ipv4Addr) -> Vec<String> {
    either(IPV4_ARP, equal(ADDRESSES, host.into()))
}

/// A host of IPv6 at either end; an address is in two halves.
pub fn host6(host: Ipv6Addr) -> Vec<String> {
    let [high, low] = [u128::from(host) >> 64, u128::from(host) & u128::from(u64::MAX)];
    let end = |end| format!("(ip6_{end}_high = {high} AND ip6_{end}_low = {low})");
    either("encap = 0 AND eth_type = 34525", ["src", "dst"].map(end))
}

/// An Ethernet address at either end, whatever the frame has in it.
pub fn ether(address: u64) -> Vec<String> {
    either("true", ["eth_src", "eth_dst"].map(|field| format!("{field} = {address}")))
}

/// A host at either end, and a port of a protocol at either end.
pub fn host_port(host: Ipv4Addr, protocol: u8, port: u16) -> Vec<String> {
    let [src, dst] = equal(PORTS, port.into());
    let besides = format!("{IPV4} AND proto = {protocol} AND ({src} OR {dst})");
    either(&besides, equal(ADDRESSES, host.into()))
}

/// A protocol of IPv4.
pub fn protocol(protocol: u8) -> Vec<String> {
    vec![count(&format!("{IPV4} AND proto = {protocol}"))]
}

/// Flags of TCP over IPv4: of those in the mask, just these.
pub fn flags(mask: u8, flags: u8) -> Vec<String> {
    vec![count(&format!("{IPV4} AND proto = 6 AND tcp_flags & {mask} = {flags}"))]
}

/// A port of a protocol at either end, over IPv4 or IPv6; extension headers are not passed over.
pub fn port(protocol: u8, port: u16) -> Vec<String> {
    let besides = format!("encap = 0 AND eth_type IN (2048, 34525) AND proto = {protocol}");
    either(&besides, equal(PORTS, port.into()))
}

/// A network at either end.
pub fn net(net: Ipv4Addr, bits: u32) -> Vec<String> {
    let first = u32::from(net);
    let last = first | u32::MAX.checked_shr(bits).unwrap_or(0);
    either(IPV4_ARP, ADDRESSES.map(|field| format!("{field} BETWEEN {first} AND {last}")))
}

/// Frames of this length or longer, of any kind.
pub fn length(least: u32) -> Vec<String> {
    vec![count(&format!("len >= {least}"))]
}

/// A protocol behind one tag, over IPv4 or IPv6; of extension headers, that of fragments is passed
/// over.
pub fn tagged(protocol: u8) -> Vec<String> {
    let four = format!("(eth_type = 2048 AND proto = {protocol})");
    let six = format!("(proto = {protocol} OR (proto = 44 AND l4 = {protocol}))");
    vec![count(&format!("encap = 1 AND ({four} OR (eth_type = 34525 AND {six}))"))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_ends_where_its_mask_says() {
        let [at_once, sum] = &net(Ipv4Addr::new(10, 0, 0, 0), 8)[..] else {
            panic!("two ways to ask");
        };
        assert!(at_once.contains("ip_src BETWEEN 167772160 AND 184549375 OR"), "{at_once}");
        assert_eq!(sum.matches("count(*)").count(), 3);
        let all = net(Ipv4Addr::new(0, 0, 0, 0), 0).concat();
        assert!(all.contains("BETWEEN 0 AND 4294967295"), "{all}");
        let one = net(Ipv4Addr::new(0, 0, 0, 7), 32).concat();
        assert!(one.contains("BETWEEN 7 AND 7"), "{one}");
    }

    #[test]
    fn one_port_may_be_at_either_end_and_two_are_at_both() {
        let [one, _] = &flow([1, 2], &[6], [80, 80])[..] else { panic!("two ways to ask") };
        assert!(one.ends_with("(port_src = 80 OR port_dst = 80)"), "{one}");
        let [_, two] = &flow([1, 2], &[6], [80, 81])[..] else { panic!("two ways to ask") };
        assert_eq!(two.matches("count(*)").count(), 4);
    }
}
