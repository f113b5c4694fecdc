//! Capture files, made up byte by byte.

/// Numbers in one byte order.
#[derive(Clone, Default)]
pub(crate) struct Bytes {
    pub(crate) big: bool,
    pub(crate) bytes: Vec<u8>,
}

impl Bytes {
    pub(crate) fn new(big: bool) -> Self {
        Self { big, bytes: Vec::new() }
    }

    fn number(&mut self, mut little: Vec<u8>) {
        if self.big {
            little.reverse();
        }
        self.bytes.extend(little);
    }

    pub(crate) fn short(&mut self, number: u16) {
        self.number(number.to_le_bytes().into());
    }

    pub(crate) fn word(&mut self, number: u32) {
        self.number(number.to_le_bytes().into());
    }

    pub(crate) fn long(&mut self, number: u64) {
        self.number(number.to_le_bytes().into());
    }
}

pub(crate) const MICRO: u32 = 0xA1B2_C3D4;
pub(crate) const NANO: u32 = 0xA1B2_3C4D;
pub(crate) const MODIFIED: u32 = 0xA1B2_CD34;

/// A pcap file.
#[derive(Clone)]
pub(crate) struct Pcap {
    pub(crate) magic: u32,
    pub(crate) big: bool,
    pub(crate) version: (u16, u16),
    pub(crate) snaplen: u32,
    pub(crate) link: u32,
    /// Seconds, fraction, the two lengths, and the bytes.
    pub(crate) records: Vec<(u32, u32, u32, u32, Vec<u8>)>,
}

impl Pcap {
    pub(crate) fn new(magic: u32, big: bool) -> Self {
        Self { magic, big, version: (2, 4), snaplen: 262_144, link: 1, records: Vec::new() }
    }

    /// With a few records that have nothing special.
    pub(crate) fn sample(magic: u32, big: bool) -> Self {
        let mut file = Self::new(magic, big);
        for (i, len) in (0..).zip([60_u32, 0, 1, 33]) {
            file.push(1_700_000_000 + i, 999_999 - i, len, len + 4 * i, frame(len, i));
        }
        file
    }

    pub(crate) fn push(
        &mut self,
        seconds: u32,
        ticks: u32,
        first: u32,
        second: u32,
        data: Vec<u8>,
    ) {
        self.records.push((seconds, ticks, first, second, data));
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut file = Bytes::new(self.big);
        file.word(self.magic);
        file.short(self.version.0);
        file.short(self.version.1);
        file.long(0);
        file.word(self.snaplen);
        file.word(self.link);
        for (seconds, ticks, first, second, data) in &self.records {
            for number in [*seconds, *ticks, *first, *second] {
                file.word(number);
            }
            if self.magic == MODIFIED {
                file.bytes.extend([0xAB; 8]);
            }
            file.bytes.extend(data);
        }
        file.bytes
    }
}

/// Bytes that differ from frame to frame.
pub(crate) fn frame(len: u32, seed: u32) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(7) ^ seed.wrapping_mul(31)).to_le_bytes()[0]).collect()
}

/// A pcapng file.
#[derive(Clone, Default)]
pub(crate) struct Pcapng(pub(crate) Bytes);

impl Pcapng {
    pub(crate) fn new(big: bool) -> Self {
        let mut file = Self(Bytes::new(big));
        file.section(1, 0, &[]);
        file
    }

    pub(crate) fn block(&mut self, kind: u32, body: impl FnOnce(&mut Bytes)) {
        let mut inner = Bytes::new(self.0.big);
        body(&mut inner);
        inner.bytes.resize(inner.bytes.len().next_multiple_of(4), 0);
        let len = 12 + u32::try_from(inner.bytes.len()).unwrap();
        self.0.word(kind);
        self.0.word(len);
        self.0.bytes.extend(inner.bytes);
        self.0.word(len);
    }

    pub(crate) fn section(&mut self, major: u16, minor: u16, options: &[u8]) {
        self.block(0x0A0D_0D0A, |body| {
            body.word(0x1A2B_3C4D);
            body.short(major);
            body.short(minor);
            body.long(u64::MAX);
            body.bytes.extend(options);
        });
    }

    pub(crate) fn interface(&mut self, link: u16, snaplen: u32, options: &[(u16, &[u8])]) {
        self.block(1, |body| {
            body.short(link);
            body.short(0);
            body.word(snaplen);
            for (code, value) in options {
                body.short(*code);
                body.short(u16::try_from(value.len()).unwrap());
                body.bytes.extend(*value);
                body.bytes.resize(body.bytes.len().next_multiple_of(4), 0);
            }
            if !options.is_empty() {
                body.word(0);
            }
        });
    }

    pub(crate) fn enhanced(&mut self, interface: u32, time: u64, wire_len: u32, data: &[u8]) {
        self.block(6, |body| {
            body.word(interface);
            body.word(u32::try_from(time >> 32).unwrap());
            body.word(u32::try_from(time & 0xFFFF_FFFF).unwrap());
            body.word(u32::try_from(data.len()).unwrap());
            body.word(wire_len);
            body.bytes.extend(data);
        });
    }

    pub(crate) fn old(&mut self, interface: u16, time: u64, wire_len: u32, data: &[u8]) {
        self.block(2, |body| {
            body.short(interface);
            body.short(7);
            body.word(u32::try_from(time >> 32).unwrap());
            body.word(u32::try_from(time & 0xFFFF_FFFF).unwrap());
            body.word(u32::try_from(data.len()).unwrap());
            body.word(wire_len);
            body.bytes.extend(data);
        });
    }

    pub(crate) fn simple(&mut self, wire_len: u32, data: &[u8]) {
        self.block(3, |body| {
            body.word(wire_len);
            body.bytes.extend(data);
        });
    }

    /// Two sections with two interfaces each, all kinds of packets, and blocks that say nothing of
    /// packets. `various`: with several link types and snapshot lengths.
    pub(crate) fn sample(big: bool, various: bool) -> Self {
        let time = 1_700_000_000_123_456;
        let links = if various { [1, 101, 113, 1] } else { [1; 4] };
        let snaplens = if various { [0, 96, 40, 65_535] } else { [96; 4] };
        let mut file = Self::new(big);
        file.block(0x0BAD, |body| body.bytes.extend([9; 10]));
        file.interface(links[0], snaplens[0], &[(2, b"eth0"), (3, b"first"), (9, &[9])]);
        file.enhanced(0, time * 1000 + 789, 60, &frame(14, 1));
        file.interface(links[1], snaplens[1], &[]);
        file.enhanced(1, time, 33, &frame(33, 2));
        file.enhanced(1, time + 5, 0, &[]);
        file.simple(9, &frame(9, 3));
        file.block(5, |body| body.bytes.extend([0; 12]));
        file.section(1, 2, &[]);
        let offset = if big { [0, 0, 0, 0, 0, 0, 0, 60] } else { [60, 0, 0, 0, 0, 0, 0, 0] };
        file.interface(links[2], snaplens[2], &[(9, &[0x94]), (14, &offset), (1, b"why")]);
        file.interface(links[3], snaplens[3], &[]);
        file.old(1, time, 40, &frame(20, 4));
        file.enhanced(0, 1_700_000_000 << 20 | 12345, 40, &frame(40, 5));
        file.simple(1, &[1]);
        file
    }
}
