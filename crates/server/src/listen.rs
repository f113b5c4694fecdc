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
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
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
        return requests(stream, peer, router, connections, ending).await;
    };
    let handshake = tokio::time::timeout(HANDSHAKE_TIME, acceptor.accept(stream));
    let stream = handshake.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let certificates = stream.get_ref().1.peer_certificates();
    let certificate = certificates.and_then(|all| all.first()).map(|own| Arc::from(own.as_ref()));
    requests(stream, Peer { address, certificate }, router, connections, ending).await
}

async fn requests(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    router: Router,
    connections: Connections,
    mut ending: watch::Receiver<bool>,
) -> io::Result<()> {
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let mut request: Request = request.map(Body::new);
        request.extensions_mut().insert(peer.clone());
        let mut router = router.clone();
        async move { tower_service(&mut router, request).await }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(connections.head_time)
        .max_buf_size(HEAD_LEN_MAX)
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(HEAD_LEN_MAX).unwrap_or(u32::MAX))
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(20));
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let is_ending = async move { drop(ending.wait_for(|ending| *ending).await) };
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = is_ending => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    served.map_err(io::Error::other)
}

async fn tower_service(
    router: &mut Router,
    request: Request,
) -> Result<axum::response::Response, std::convert::Infallible> {
    use tower_service::Service;
    router.as_service().call(request).await
}
