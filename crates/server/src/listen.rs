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
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
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
/// How long connections may take to end when the server stops.
const END_TIME: Duration = Duration::from_secs(5);
/// How long to wait if there are no more file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Limits of connections.
#[derive(Debug, Clone, Copy)]
pub struct Connections {
    /// Connections at a time; others wait to be accepted.
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
    let acceptor = tls.map(TlsAcceptor::from);
    let (ending, has_ended) = watch::channel(false);
    let mut stop = pin!(stop);
    loop {
        // Whoever connects after that waits in the queue of the kernel.
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place,
            () = &mut stop => break,
        };
        let Ok(place) = place else { break };
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
        let (router, acceptor, ending) = (router.clone(), acceptor.clone(), has_ended.clone());
        tokio::spawn(async move {
            // What becomes of a single connection is up to its client.
            drop(connection(stream, address, acceptor, router, connections, ending).await);
            drop(place);
        });
    }
    drop(listener);
    let _ = ending.send(true);
    let all = u32::try_from(connections.most).unwrap_or(u32::MAX);
    drop(tokio::time::timeout(END_TIME, places.acquire_many(all)).await);
}

async fn connection(
    stream: TcpStream,
    address: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    router: Router,
    connections: Connections,
    ending: watch::Receiver<bool>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let Some(acceptor) = acceptor else {
        let peer = Peer { address, certificate: None };
        return http1(stream, peer, router, connections, ending).await;
    };
    let handshake = tokio::time::timeout(HANDSHAKE_TIME, acceptor.accept(stream));
    let stream = handshake.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let session = stream.get_ref().1;
    let certificate = session.peer_certificates().and_then(|all| all.first());
    let certificate = certificate.map(|own| Arc::from(own.as_ref()));
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    let peer = Peer { address, certificate };
    match is_http2 {
        true => http2(stream, peer, router, ending).await,
        false => http1(stream, peer, router, connections, ending).await,
    }
}

/// Serves requests of HTTP/1. A client that sends no head in time, not even the first byte of one,
/// is cut off.
async fn http1(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    router: Router,
    connections: Connections,
    mut ending: watch::Receiver<bool>,
) -> io::Result<()> {
    let service = service_fn(move |request| answer(router.clone(), peer.clone(), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(connections.head_time)
        .max_buf_size(HEAD_LEN_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = ended(&mut ending) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    served.map_err(io::Error::other)
}

/// Serves requests of HTTP/2. A client that does not answer pings is cut off.
async fn http2(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    router: Router,
    mut ending: watch::Receiver<bool>,
) -> io::Result<()> {
    let service = service_fn(move |request| answer(router.clone(), peer.clone(), request));
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(HEAD_LEN_MAX).unwrap_or(u32::MAX))
        .keep_alive_interval(PING_TIME)
        .keep_alive_timeout(PING_TIME)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = ended(&mut ending) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    served.map_err(io::Error::other)
}

/// Waits until the server stops.
async fn ended(ending: &mut watch::Receiver<bool>) {
    drop(ending.wait_for(|ending| *ending).await);
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
