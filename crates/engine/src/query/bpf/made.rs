//! Lists of conditions, and frames that match them.

#![allow(
    clippy::big_endian_bytes,
    clippy::cast_possible_truncation,
    reason = "frames are big-endian, and what is made up is small"
)]

use super::lists::Numbers;
use crate::packet::LinkType;

/// Values, and frames that have some of them.
pub(super) struct Made {
    numbers: Numbers,
    pub(super) fours: Vec<[u8; 4]>,
    pub(super) sixes: Vec<[u8; 16]>,
    pub(super) macs: Vec<[u8; 6]>,
    pub(super) ports: Vec<u16>,
}

impl Made {
    pub(super) fn new(seed: u64, count: usize) -> Self {
        let mut numbers = Numbers(seed);
        // So few different words that values share some of them.
        let four = |n: &mut Numbers| (n.next() & 0x0303_07FF | 0x0A00_0000).to_be_bytes();
        let fours = (0..count).map(|_| four(&mut numbers)).collect();
        let six = |n: &mut Numbers| {
            let words = [0x2001_0DB8 + (n.next() & 1), n.next() & 3, 0, n.next() & 0xF00F];
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            <[u8; 16]>::try_from(bytes).unwrap()
        };
        let sixes = (0..count).map(|_| six(&mut numbers)).collect();
        let mac = |n: &mut Numbers| {
            let (a, b) = ((n.next() & 0xFF).to_be_bytes(), (n.next() & 3).to_be_bytes());
            [2, b[3], a[0], a[1], a[2], a[3]]
        };
        let macs = (0..count).map(|_| mac(&mut numbers)).collect();
        let ports = (0..count).map(|_| (numbers.next() & 0x3FF) as u16 + 1).collect();
        Self { numbers, fours, sixes, macs, ports }
    }

    pub(super) fn pick(&mut self, len: usize) -> usize {
        self.numbers.next() as usize % len
    }

    /// A frame that has values of the lists in some places, behind a header of Ethernet.
    pub(super) fn frame(&mut self) -> Vec<u8> {
        let mut frame = Vec::new();
        for _ in 0..2 {
            let at = self.pick(self.macs.len() * 2);
            frame.extend(self.macs.get(at).copied().unwrap_or([9; 6]));
        }
        if self.pick(4) == 0 {
            frame.extend([0x81, 0, 0, 5]);
        }
        let kind = self.pick(4);
        let fours: Vec<[u8; 4]> = (0..2)
            .map(|_| {
                let at = self.pick(self.fours.len() * 2);
                self.fours.get(at).copied().unwrap_or([11, 1, 1, 1])
            })
            .collect();
        let proto = [6, 17, 132, 1][self.pick(4)];
        match kind {
            0 => {
                frame.extend([8, 0, 0x45 + (self.pick(2) as u8), 0, 0, 40, 0, 0]);
                frame.extend([0, [0, 0, 5][self.pick(3)], 64, proto, 0, 0]);
                frame.extend(fours.concat());
            }
            1 => {
                frame.extend([[8, 6], [0x80, 0x35]][self.pick(2)]);
                frame.extend([0, 1, 8, 0, 6, 4, 0, 1, 9, 9, 9, 9, 9, 9]);
                frame.extend([&fours[0][..], &[0; 6], &fours[1]].concat());
            }
            2 => {
                frame.extend([0x86, 0xDD, 0x60, 0, 0, 0, 0, 20, proto, 64]);
                for _ in 0..2 {
                    let at = self.pick(self.sixes.len() * 2);
                    let none = [0x20, 1, 0xD, 0xB8, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1];
                    frame.extend(self.sixes.get(at).copied().unwrap_or(none));
                }
            }
            _ => frame.extend([0x88, 0xCC, 1, 2, 3]),
        }
        for _ in 0..2 {
            let at = self.pick(self.ports.len() * 2);
            frame.extend(self.ports.get(at).copied().unwrap_or(9999).to_be_bytes());
        }
        frame.extend([0; 8]);
        frame
    }

    /// Some frames, cut at every length: each with its length on the wire.
    pub(super) fn cuts(&mut self, frames: usize, link: LinkType, each: &mut dyn FnMut(&[u8], u32)) {
        for _ in 0..frames {
            let frame = self.frame();
            let start = if link == LinkType::ETHERNET { 0 } else { 14 };
            let frame = frame.get(start..).unwrap();
            for len in 0..=frame.len() {
                each(&frame[..len], frame.len() as u32);
            }
        }
    }

    /// A list of conditions.
    pub(super) fn list(&mut self, kind: &str) -> Vec<String> {
        let four = |b: &[u8; 4]| format!("{}.{}.{}.{}", b[0], b[1], b[2], b[3]);
        let six = |b: &[u8; 16]| std::net::Ipv6Addr::from(*b).to_string();
        let mac = |b: &[u8; 6]| b.map(|byte| format!("{byte:02x}")).join(":");
        let (fours, sixes) = (self.fours.clone(), self.sixes.clone());
        let nets = |fours: &[[u8; 4]]| -> Vec<String> {
            let net = |[a, b, c, _]: &[u8; 4]| format!("net {a}.{b}.{c}.0/24");
            fours.iter().map(net).collect()
        };
        match kind {
            "nets" => nets(&fours),
            "mixed" => {
                let mut mixed = Vec::new();
                for (n, (v4, v6)) in fours.iter().zip(&sixes).enumerate() {
                    mixed.push(match n % 20 {
                        19 => format!("host {}", six(v6)),
                        2 | 7 => format!("net {}.{}.0.0/16", v4[0], v4[1]),
                        3 | 8 | 13 => format!("net {}.{}.{}.0/24", v4[0], v4[1], v4[2]),
                        _ => format!("host {}", four(v4)),
                    });
                }
                mixed
            }
            "six nets" => {
                let net = |(n, [a, b, c, d, e, f, g, h, ..]): (usize, &[u8; 16])| {
                    let head = [[*a, *b], [*c, *d], [*e, *f], [*g, *h]];
                    let head = head.map(|p| format!("{:x}", u16::from_be_bytes(p))).join(":");
                    format!("net {head}::/{}", if n % 2 == 0 { 64 } else { 80 })
                };
                sixes.iter().enumerate().map(net).collect()
            }
            "six host" | "src six host" | "dst six host" => {
                let prefix = kind.replace("six ", "");
                sixes.iter().map(|v6| format!("{prefix} {}", six(v6))).collect()
            }
            "ether host" | "ether src" => {
                self.macs.iter().map(|m| format!("{kind} {}", mac(m))).collect()
            }
            port if port.contains("port") => {
                self.ports.iter().map(|p| format!("{port} {p}")).collect()
            }
            "ends" => {
                let pair = |n: usize| (four(&fours[n / 3]), four(&fours[n / 2]));
                let port = |n: usize| self.ports[n / 4];
                (0..fours.len())
                    .map(|n| {
                        let (a, b) = pair(n);
                        format!(
                            "(host {a} and host {b} and tcp port {} and port {})",
                            port(n),
                            port(n + 1)
                        )
                    })
                    .collect()
            }
            host => fours.iter().map(|v4| format!("{host} {}", four(v4))).collect(),
        }
    }
}
