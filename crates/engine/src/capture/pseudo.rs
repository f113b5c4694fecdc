//! Pseudo-headers whose numbers are in the byte order of the capturing machine.
//!
//! A few links have headers that a kernel made. libpcap swaps the bytes of their numbers if a file
//! has the other byte order, so that a filter and a copy of the packet see them in the order of
//! this machine. This machine is always taken to be little-endian.

use super::read::{short, size, word};

const PFLOG: u16 = 117;
const LINUX_SLL: u16 = 113;
const LINUX_SLL2: u16 = 276;
const USB_LINUX: u16 = 189;
const USB_LINUX_MMAPPED: u16 = 220;
const NFLOG: u16 = 239;

/// The fixed part of a [`USB_LINUX_MMAPPED`] header.
const USB_LEN: usize = 64;
/// A descriptor of a part of an isochronous transfer.
const USB_PART_LEN: usize = 16;
const USB_ISOCHRONOUS: u8 = 0;

/// Whether [`fix`] may change anything.
pub(super) fn is_fixed(link: u16, big_endian: bool) -> bool {
    let swapped = matches!(link, PFLOG | LINUX_SLL | LINUX_SLL2 | USB_LINUX | NFLOG);
    link == USB_LINUX_MMAPPED || big_endian && swapped
}

/// Swaps the numbers, and returns the length on the wire.
pub(super) fn fix(link: u16, big_endian: bool, wire_len: u32, data: &mut [u8]) -> u32 {
    if big_endian {
        // Most of them are looked for within both the captured and the original length.
        let both = data.len().min(size(wire_len));
        match link {
            PFLOG => swap_pflog(data, both),
            LINUX_SLL => swap_can(data, both, 14, 16),
            LINUX_SLL2 => swap_can(data, both, 0, 20),
            USB_LINUX => swap_usb(data, false),
            USB_LINUX_MMAPPED => swap_usb(data, true),
            NFLOG => swap_nflog(data, both),
            _ => {}
        }
    }
    if link == USB_LINUX_MMAPPED { usb_wire_len(wire_len, data) } else { wire_len }
}

/// Swaps the bytes of the field, if the data reach to its end.
fn swap(data: &mut [u8], at: usize, len: usize) -> bool {
    let field = data.get_mut(at..at + len);
    field.map(<[u8]>::reverse).is_some()
}

/// User and process ids, and those of the rule; the header's own length says which of them it has.
fn swap_pflog(data: &mut [u8], both: usize) {
    let len = data.first().map_or(0, |&len| both.min(len.into()));
    for at in [44, 48, 52, 56] {
        if len < at + 4 {
            return;
        }
        swap(data, at, 4);
    }
}

/// The id of a CAN frame behind a cooked header.
fn swap_can(data: &mut [u8], both: usize, protocol: usize, header_len: usize) {
    if both >= header_len + 4 && matches!(short(data, protocol, true), 0x000C | 0x000D) {
        swap(data, header_len, 4);
    }
}

fn swap_usb(data: &mut [u8], mmapped: bool) {
    let isochronous = data.get(9) == Some(&USB_ISOCHRONOUS);
    let fixed = [(0, 8), (12, 2), (16, 8), (24, 4), (28, 4), (32, 4), (36, 4)];
    let counts = [(40, 4), (44, 4)].into_iter().filter(|_| isochronous);
    let more = [(48, 4), (52, 4), (56, 4), (60, 4)].into_iter().filter(|_| mmapped);
    if !fixed.into_iter().chain(counts).chain(more).all(|(at, len)| swap(data, at, len)) {
        return;
    }
    if mmapped && isochronous {
        let parts = size(word(data, 60, false));
        for part in data.get_mut(USB_LEN..).unwrap_or_default().chunks_mut(USB_PART_LEN).take(parts)
        {
            if ![0, 4, 8].into_iter().all(|at| swap(part, at, 4)) {
                return;
            }
        }
    }
}

/// Length and kind in front of each value.
fn swap_nflog(data: &mut [u8], both: usize) {
    const HEADER_LEN: usize = 4;
    if both < HEADER_LEN || data.get(1) != Some(&0) {
        return;
    }
    let mut at = HEADER_LEN;
    while data.len() - at >= 4 {
        swap(data, at, 2);
        swap(data, at + 2, 2);
        // Sixteen bits that wrap around, as in libpcap; too short a value ends the walk.
        let len = short(data, at, false);
        let len = usize::from(len.checked_next_multiple_of(4).unwrap_or(0));
        if len < 4 || both.saturating_sub(at) < len {
            return;
        }
        at += len;
    }
}

/// For incoming isochronous transfers, old versions of libpcap stored the length of the transfer as
/// that of the data. The descriptors say how far the data reach.
fn usb_wire_len(wire_len: u32, data: &[u8]) -> u32 {
    const COMPLETE: u8 = b'C';
    const INCOMING: u8 = 0x80;
    let (Some(&[event, transfer, endpoint]), Some(&no_data)) =
        (data.get(8..).and_then(|rest| rest.first_chunk()), data.get(15))
    else {
        return wire_len;
    };
    let Some(parts) = data.get(USB_LEN..) else {
        return wire_len;
    };
    let (count, urb_len) = (word(data, 60, false), word(data, 32, false));
    let headers = (USB_LEN + USB_PART_LEN * size(count)) as u64;
    let suspect = no_data == 0
        && transfer == USB_ISOCHRONOUS
        && event == COMPLETE
        && endpoint & INCOMING != 0
        && u64::from(wire_len) == headers + u64::from(urb_len);
    if !suspect {
        return wire_len;
    }
    let parts = parts.chunks_exact(USB_PART_LEN).take(size(count));
    let ends = parts.map(|part| (word(part, 4, false), word(part, 8, false)));
    let ends = ends.filter(|&(_, len)| len != 0).map(|(from, len)| from.wrapping_add(len));
    let reach = ends.max().unwrap_or(0);
    // The sum is kept in 32 bits, as libpcap keeps it.
    let (header_len, part_len) = (64_u32, 16_u32);
    let reach = header_len.wrapping_add(count.wrapping_mul(part_len)).wrapping_add(reach);
    let captured = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let wire_len = if reach >= captured { reach } else { wire_len };
    wire_len.max(captured)
}
