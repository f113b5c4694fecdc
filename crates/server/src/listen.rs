//! Connections: how many there may be, how long they may take, and TLS.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulConnection, GracefulShutdown, Watcher};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::http::Peer;

/// How long a client may take for the TLS handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(5);
/// How long it may take for the head of a request, and how long it may send none.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// The longest head.
const HEAD_LEN_MAX: usize = 64 << 10;
/// Streams of a connection of HTTP/2.
const STREAMS_MAX: u32 = 64;
/// How often a connection of HTTP/2 is pinged, and how long its client may take to answer.
const PING_TIME: Duration = Duration::from_secs(20);
/// How long a client may say nothing before it is asked whether it is there, and how often it is
/// asked in the same time again.
const ALIVE_TIME: Duration = Duration::from_secs(30);
const ALIVE_TRIES: u32 = 3;
/// How many are told at a time that there are too many, and how long that may take.
const REFUSALS_MAX: usize = 64;
const REFUSAL_TIME: Duration = Duration::from_secs(1);
const REFUSAL: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n\
                       Content-Length: 33\r\nRetry-After: 10\r\nConnection: close\r\n\r\n\
                       {\"error\":\"too many connections\"}\n";
/// How long connections may take to end when the server stops.
const END_TIME: Duration = Duration::from_secs(5);
/// How long to wait if there are no more file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Limits of connections.
#[derive(Debug, Clone, Copy)]
pub struct Connections {
    /// Connections at a time; others are refused.
    pub most: usize,
    /// How long a client may take for the head of a request, and how long it may send none.
    pub head_time: Duration,
}

impl Default for Connections {
    fn default() -> Self {
        Self { most: 2_048, head_time: HEAD_TIME }
    }
}

/// Serves connections until `stop` is ready, and then lets requests end that are under way.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    router: Router,
    connections: Connections,
    stop: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(connections.most));
    let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
    let acceptor = tls.map(TlsAcceptor::from);
    let graceful = GracefulShutdown::new();
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
            // One that waited would not know for what; if there are too many of these, too, they
            // are closed.
            if let Ok(place) = Arc::clone(&refusals).try_acquire_owned() {
                let is_plain = acceptor.is_none();
                tokio::spawn(async move {
                    drop(tokio::time::timeout(REFUSAL_TIME, refuse(stream, is_plain)).await);
                    drop(place);
                });
            }
            continue;
        };
        let (router, acceptor, ending) = (router.clone(), acceptor.clone(), graceful.watcher());
        tokio::spawn(async move {
            // What becomes of a single connection is up to its client.
            drop(connection(stream, address, acceptor, router, connections, ending).await);
            drop(place);
        });
    }
    drop(listener);
    drop(tokio::time::timeout(END_TIME, graceful.shutdown()).await);
}

/// Says that there are too many connections, where that can be said before a handshake.
async fn refuse(mut stream: TcpStream, is_plain: bool) -> io::Result<()> {
    if is_plain {
        stream.write_all(REFUSAL.as_bytes()).await?;
    }
    stream.shutdown().await?;
    // What was sent but not read would take the answer along.
    let mut rest = (&mut stream).take(HEAD_LEN_MAX as u64);
    tokio::io::copy(&mut rest, &mut tokio::io::sink()).await.map(drop)
}

/// Has the kernel find out that a client is gone which says nothing and takes nothing: its machine
/// may have lost its power, or the network.
pub(crate) fn watch_over(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, ALIVE_TIME)?;
    sockopt::set_tcp_keepintvl(stream, ALIVE_TIME / ALIVE_TRIES)?;
    sockopt::set_tcp_keepcnt(stream, ALIVE_TRIES)?;
    // The same for what was sent and is not acknowledged.
    let most = u32::try_from((2 * ALIVE_TIME).as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(stream, most)?)
}

async fn connection(
    stream: TcpStream,
    address: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    router: Router,
    connections: Connections,
    ending: Watcher,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    watch_over(&stream)?;
    let Some(acceptor) = acceptor else {
        let peer = Peer { address, certificate: None };
        return ended(ending.watch(http1(stream, peer, router, connections))).await;
    };
    let handshake = tokio::time::timeout(HANDSHAKE_TIME, acceptor.accept(stream));
    let stream = handshake.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let session = stream.get_ref().1;
    let certificate = session.peer_certificates().and_then(|all| all.first());
    let certificate = certificate.map(|own| Arc::from(own.as_ref()));
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    let peer = Peer { address, certificate };
    match is_http2 {
        true => ended(ending.watch(http2(stream, peer, router))).await,
        false => ended(ending.watch(http1(stream, peer, router, connections))).await,
    }
}

/// Waits for the end of a connection.
async fn ended(served: impl Future<Output = hyper::Result<()>>) -> io::Result<()> {
    served.await.map_err(io::Error::other)
}

/// Serves requests of HTTP/1. A client that sends no head in time, not even the first byte of one,
/// is cut off.
fn http1(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    router: Router,
    connections: Connections,
) -> impl GracefulConnection<Error = hyper::Error, Output = hyper::Result<()>> {
    let service = service_fn(move |request| answer(router.clone(), peer.clone(), request));
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(connections.head_time)
        .max_buf_size(HEAD_LEN_MAX)
        .serve_connection(TokioIo::new(stream), service)
}

/// Serves requests of HTTP/2. A client that does not answer pings is cut off.
fn http2(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    router: Router,
) -> impl GracefulConnection<Error = hyper::Error, Output = hyper::Result<()>> {
    let service = service_fn(move |request| answer(router.clone(), peer.clone(), request));
    http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(HEAD_LEN_MAX).unwrap_or(u32::MAX))
        .keep_alive_interval(PING_TIME)
        .keep_alive_timeout(PING_TIME)
        .serve_connection(TokioIo::new(stream), service)
}

async fn answer(
    mut router: Router,
    peer: Peer,
    request: hyper::Request<Incoming>,
) -> Result<axum::response::Response, std::convert::Infallible> {
    use tower_service::Service;
    let mut request: Request = request.map(Body::new);
    request.extensions_mut().insert(peer);
    router.as_service().call(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_watches_over_clients() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            assert!(!sockopt::socket_keepalive(&stream).unwrap());
            watch_over(&stream).unwrap();
            assert!(sockopt::socket_keepalive(&stream).unwrap());
            assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), ALIVE_TIME);
            assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 60_000);
            drop(client);
        });
    }

    #[test]
    fn the_refusal_has_the_length_that_it_says() {
        let (head, body) = REFUSAL.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
    }
}
