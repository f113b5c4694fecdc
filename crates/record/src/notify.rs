//! Telling systemd how far a service is, for units of `Type=notify`.
//!
//! systemd names a socket in `NOTIFY_SOCKET` and takes lines there, see sd_notify(3). Without that
//! variable nothing is sent.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Reports that the service is ready; returns whether there was a socket to tell.
pub fn ready() -> io::Result<bool> {
    send("READY=1")
}

/// Reports that the service is stopping; returns whether there was a socket to tell.
pub fn stopping() -> io::Result<bool> {
    send("STOPPING=1")
}

fn send(state: &str) -> io::Result<bool> {
    std::env::var_os("NOTIFY_SOCKET").map_or(Ok(false), |socket| send_to(&socket, state))
}

fn send_to(socket: &OsStr, state: &str) -> io::Result<bool> {
    // An address that starts with @ is not a file but an abstract name, which only the kernel
    // knows.
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    let sender = UnixDatagram::unbound()?;
    // A full socket must not hold up a recorder.
    sender.set_nonblocking(true)?;
    sender.send_to_addr(state.as_bytes(), &address)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(socket: &UnixDatagram) -> String {
        socket.set_nonblocking(true).unwrap();
        let mut buffer = [0; 64];
        let len = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..len]).into_owned()
    }

    #[test]
    fn a_line_reaches_the_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        assert!(send_to(path.as_os_str(), "READY=1").unwrap());
        assert_eq!(receive(&socket), "READY=1");
    }

    #[test]
    fn a_name_that_is_no_file_is_reached_too() {
        let name = format!("tapdex-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        assert!(send_to(format!("@{name}").as_ref(), "STOPPING=1").unwrap());
        assert_eq!(receive(&socket), "STOPPING=1");
    }

    #[test]
    fn nobody_to_tell_is_an_error_that_can_be_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        assert!(send_to(folder.path().join("nobody").as_os_str(), "READY=1").is_err());
    }
}
