//! PCAP-over-IP: whoever connects gets a capture at once, and says nothing.
//!
//! Wireshark reads it as the interface `TCP@127.0.0.1:PORT`. The capture is a pcapng stream:
//! packets of a question that were recorded already, then others as they are recorded, until the
//! client goes away, the door closes, or the server stops.
//!
//! ```text
//! connect -> place -> Door::admit -> Role::force -> lane -> capture -> socket
//!            16 of them                                      stops when the client is gone
//! ```
//!
//! The protocol has no way to show a token. So it is for loopback only ([`check_address`]), and a
//! door that has tokens admits nobody, unless [`PcapOverIp::is_vouched`] says that all programs on
//! this machine may read packets. Each connection has its lines in the audit log, like a stream of
//! HTTP.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use tapdex_answers::question::Question;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::http::{App, live};
use crate::listen::watch_over;

/// Clients at a time, unless somebody says otherwise.
pub const CLIENTS: usize = 16;
/// How long connections may take to end when the server stops.
const END_TIME: Duration = Duration::from_secs(5);
/// How long to wait if there are no more file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// What is sent to those who connect.
#[derive(Debug, Clone)]
pub struct PcapOverIp {
    /// The filter and the times; relative ones count from when a client connects.
    pub question: Question,
    /// Whether all programs on this machine may read packets, although there are tokens.
    pub is_vouched: bool,
    /// Clients at a time. Others are sent away at once: if they had to wait, that would look like
    /// an archive without packets.
    pub clients: usize,
}

/// The address is open to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} is open to others, and PCAP-over-IP knows neither TLS nor tokens: give a loopback \
     address, such as 127.0.0.1:57012"
)]
pub struct NotLoopback(pub SocketAddr);

/// Refuses addresses that other machines can reach.
pub fn check_address(address: SocketAddr) -> Result<(), NotLoopback> {
    match address.ip().to_canonical().is_loopback() {
        true => Ok(()),
        false => Err(NotLoopback(address)),
    }
}

/// Serves clients until `stop` is ready, and then waits for those that are still there:
/// [`App::stop`] ends their captures.
pub async fn serve(
    app: Arc<App>,
    listener: TcpListener,
    settings: PcapOverIp,
    stop: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(settings.clients));
    let all = u32::try_from(settings.clients).unwrap_or(u32::MAX);
    let settings = Arc::new(settings);
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            // Of a connection that is gone already, or there are no more file descriptors.
            Err(_) => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            app.count_refused();
            continue;
        };
        let (app, settings) = (Arc::clone(&app), Arc::clone(&settings));
        tokio::spawn(async move {
            // What becomes of a single connection is up to its client.
            drop(client(&app, stream, address, &settings).await);
            drop(place);
        });
    }
    drop(listener);
    drop(tokio::time::timeout(END_TIME, places.acquire_many(all)).await);
}

async fn client(
    app: &Arc<App>,
    mut stream: TcpStream,
    address: SocketAddr,
    settings: &PcapOverIp,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    watch_over(&stream)?;
    let (mut reader, mut writer) = stream.split();
    // Whichever ends first drops the other: a search that nobody waits for is cancelled.
    let sent = tokio::select! {
        sent = send(app, &mut writer, address, settings) => sent,
        () = gone(&mut reader) => return Ok(()),
    };
    if sent.is_err() {
        // So that the client does not take what it has for all there is.
        stream.set_zero_linger()?;
    }
    sent
}

/// Ready when the client has closed its side. One that says something does not speak this protocol:
/// it may be a browser, on behalf of a page from elsewhere.
async fn gone(reader: &mut ReadHalf<'_>) {
    let _ = reader.read(&mut [0]).await;
}

async fn send(
    app: &Arc<App>,
    writer: &mut WriteHalf<'_>,
    address: SocketAddr,
    settings: &PcapOverIp,
) -> io::Result<()> {
    let capture = live(app, address, &settings.question, settings.is_vouched).await;
    let mut capture = capture.ok_or(io::ErrorKind::PermissionDenied)?;
    while let Some(frame) = capture.frame().await {
        let frame = frame.map_err(io::Error::other)?;
        // What is left are trailers, for which there is no room.
        let Ok(mut bytes) = frame.into_data() else { continue };
        while !bytes.is_empty() {
            let write = tokio::time::timeout(app.stall_time(), writer.write(&bytes));
            match write.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => drop(bytes.split_to(written)),
            }
        }
    }
    writer.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_taken() {
        for address in ["127.0.0.1:0", "127.1.2.3:99", "[::1]:5", "[::ffff:127.0.0.1]:5"] {
            assert_eq!(check_address(address.parse().unwrap()), Ok(()), "{address}");
        }
        for address in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "[::ffff:192.0.2.1]:1"] {
            let address = address.parse().unwrap();
            assert_eq!(check_address(address), Err(NotLoopback(address)));
        }
    }
}
