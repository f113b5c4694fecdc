//! What libpcap's static library needs and we have no use for: the messages of D-Bus as a source of
//! packets. Without these two functions, programs would have to load the libraries of D-Bus.

#![allow(unsafe_code, reason = "libpcap calls these")]

use std::ffi::{c_char, c_int, c_void};

/// Says that no device is one of D-Bus.
///
/// # Safety
///
/// libpcap calls this, with a place for the answer.
#[unsafe(no_mangle)]
unsafe extern "C" fn dbus_create(
    _device: *const c_char,
    _error: *mut c_char,
    is_ours: *mut c_int,
) -> *mut c_void {
    // SAFETY: libpcap passes the address of a number of its own.
    unsafe { is_ours.write(0) };
    std::ptr::null_mut()
}

/// Adds no device to a list.
#[unsafe(no_mangle)]
extern "C" fn dbus_findalldevs(_devices: *mut c_void, _error: *mut c_char) -> c_int {
    0
}
