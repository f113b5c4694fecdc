//! `tapdex serve`: an archive over HTTP.

use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tapdex_answers::question::Question;
use tapdex_engine::archive::Archive;
use tapdex_engine::map_large_blocks;
use tapdex_record::sandbox;
use tapdex_server::audit::Audit;
use tapdex_server::door::{Door, WhenEmpty};
use tapdex_server::http::{App, Settings, Source, file_name, router, value_text};
use tapdex_server::jobs::{JobLimits, Jobs};
use tapdex_server::listen::{Connections, serve};
use tapdex_server::pcap_over_ip::{self, CLIENTS, PcapOverIp, check_address};
use tapdex_server::state::State;
use tapdex_server::tls::{ClientCertificates, ServerCertificate, Tls};
use tokio::sync::Notify;

use super::ask::{PlacesArg, now_ns};
use super::{CANNOT_WRITE, interrupt, note};

/// Answer questions about an archive over HTTP, to those who may ask.
///
/// Everybody on this machine may ask, until there are tokens; nobody elsewhere can connect:
///
///     tapdex serve -r archive
///     curl 'http://127.0.0.1:8417/api/v1/count?q=udp+port+53'
///     curl 'http://127.0.0.1:8417/api/v1/packets?q=host+10.1.2.3' -o host.pcapng
///
/// To let others connect, TLS is needed, and a token or a client certificate for each of them:
///
///     tapdex token add --name soc --role extract --expires 90d > soc.token
///     tapdex serve -r archive --listen 0.0.0.0:8417 --tls-self-signed --host sensor1.example
///
/// With several -r, folders or other servers, it stands in front of them and answers as one:
///
///     tapdex serve -r https://sensor1.example:8417 -r https://sensor2.example:8417
///
/// A self-signed certificate is made once and kept; its fingerprint is printed, so that clients can
/// check it. The API is described at /openapi.json; there are /metrics for Prometheus, /healthz and
/// /readyz. POST /query is Stenographer's.
///
/// The archive is only read, and recorders, index and repair may work on it meanwhile. Tokens,
/// certificates and the audit log are in the folder --state. Every answer says what is missing from
/// it. The audit log has who got which packets, with their SHA-256.
///
/// Wireshark can look on without the API: the interface TCP@127.0.0.1:57012 there has the packets
/// of the last ten minutes, and then others as they are recorded. This is for programs on this
/// machine only, and it cannot ask for a token:
///
///     tapdex serve --pcap-over-ip 127.0.0.1:57012 --pcap-over-ip-from -10m
///     tshark -i TCP@127.0.0.1:57012
///
/// Ctrl-C lets answers end that are under way, for up to five seconds; a second one does not.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    places: PlacesArg,
    /// Address to listen at; port 0 is any free one.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8417")]
    listen: SocketAddr,
    /// Folder for tokens, certificates and the audit log. Default: tapdex in the state folder of
    /// the user.
    #[arg(long, value_name = "DIR", env = "TAPDEX_STATE")]
    state: Option<PathBuf>,
    /// What the archive is called in answers. Default: the name of its folder.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Name by which clients call the server; may be given several times.
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Certificate of the server, with those that vouch for it, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Key of the certificate, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Make a certificate, and keep it.
    #[arg(long, conflicts_with = "tls_cert")]
    tls_self_signed: bool,
    /// Certificates, as PEM, that vouch for clients; these may then come in without a token, if
    /// token add knows their certificate.
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Refuse clients without a certificate.
    #[arg(long, requires = "client_ca")]
    require_client_cert: bool,
    /// Send packets as they are recorded to whoever connects to this loopback address, for
    /// Wireshark's TCP@ADDR:PORT; port 0 is any free one.
    #[arg(long, value_name = "ADDR:PORT")]
    pcap_over_ip: Option<SocketAddr>,
    /// Filter of the packets that are sent there. Default: all packets.
    #[arg(long, value_name = "FILTER", requires = "pcap_over_ip")]
    pcap_over_ip_filter: Option<String>,
    /// Send older packets before, from this time on; a relative time counts from when a client
    /// connects.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "now",
        allow_hyphen_values = true,
        requires = "pcap_over_ip"
    )]
    pcap_over_ip_from: String,
    /// Although there are tokens, let every program on this machine read packets there.
    #[arg(long, requires = "pcap_over_ip")]
    pcap_over_ip_open: bool,
    /// Streams at a time.
    #[arg(long, value_name = "N", default_value_t = 256)]
    streams: usize,
    /// Disk space for the results of jobs, such as 50G; the oldest go first.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "10G",
        value_parser = super::index::parse_size
    )]
    jobs_quota: u64,
    /// How many hours the result of a job is kept.
    #[arg(long, value_name = "N", default_value_t = 24)]
    jobs_hours: u32,
    /// Do not give up writing outside of --state, running programs and connecting to others, which
    /// the server does by landlock.
    #[arg(long)]
    no_sandbox: bool,
    /// Report only problems.
    #[arg(short, long)]
    quiet: bool,
}

impl Args {
    /// What is sent to those who connect without a request, and where.
    fn pcap_over_ip(&self, is_open: bool) -> anyhow::Result<Option<(SocketAddr, PcapOverIp)>> {
        let Some(address) = self.pcap_over_ip else { return Ok(None) };
        ensure!(
            is_open || self.pcap_over_ip_open,
            "PCAP-over-IP cannot ask for a token, and this server lets nobody in without one; \
             --pcap-over-ip-open lets every program on this machine read packets at {address}"
        );
        let question = Question {
            q: self.pcap_over_ip_filter.clone().unwrap_or_default(),
            from: Some(self.pcap_over_ip_from.clone()),
            ..Question::default()
        };
        question.query(now_ns()).context("PCAP-over-IP")?;
        let is_vouched = self.pcap_over_ip_open;
        Ok(Some((address, PcapOverIp { question, is_vouched, clients: CLIENTS })))
    }

    fn tls(&self, state: &State) -> anyhow::Result<Option<Tls>> {
        let clients = match (&self.client_ca, self.require_client_cert) {
            (None, _) => ClientCertificates::None,
            (Some(path), false) => ClientCertificates::Optional(path),
            (Some(path), true) => ClientCertificates::Required(path),
        };
        let mut names = self.host.clone();
        names.push(self.listen.ip().to_string());
        names.push("localhost".to_owned());
        let server = match (&self.tls_cert, &self.tls_key) {
            (Some(chain), Some(key)) => ServerCertificate::Files { chain, key },
            _ if self.tls_self_signed => ServerCertificate::SelfSigned { names: &names },
            _ if self.client_ca.is_some() => {
                bail!("--client-ca needs TLS: give --tls-self-signed, or --tls-cert and --tls-key")
            }
            _ => return Ok(None),
        };
        Ok(Some(Tls::open(state, server, clients, now_ns())?))
    }
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    map_large_blocks();
    let is_loopback = args.listen.ip().to_canonical().is_loopback();
    let has_tls = args.tls_self_signed || args.tls_cert.is_some();
    ensure!(
        is_loopback || has_tls,
        "{} is open to others, so packets need TLS: give --tls-self-signed, or --tls-cert and \
         --tls-key; or listen at 127.0.0.1",
        args.listen
    );
    args.pcap_over_ip.map_or(Ok(()), check_address)?;
    let places = &args.places;
    let source = match places.single().filter(|_| !places.has_servers()) {
        Some(folder) => Source::Archive(Box::new(Archive::open(folder)?)),
        None => Source::Nodes(Box::new(places.nodes_shown(file_name, value_text)?)),
    };
    let folder = match &args.state {
        Some(folder) => folder.clone(),
        None => State::default_path()?,
    };
    let state = State::create(&folder)?;
    let tls = args.tls(&state)?;
    let when_empty = if is_loopback { WhenEmpty::Open } else { WhenEmpty::Locked };
    let door = Door::open(&state, when_empty)?;
    let is_open = door.is_open();
    let over_ip = args.pcap_over_ip(is_open)?;
    let folder = places.single().and_then(|place| place.canonicalize().ok());
    let name = folder.and_then(|folder| Some(folder.file_name()?.to_string_lossy().into_owned()));
    let settings = Settings {
        name: args.name.clone().or(name).unwrap_or_else(|| "archive".to_owned()),
        streams: args.streams,
        hosts: args.host.clone(),
        is_open,
        ..Settings::default()
    };
    let limits = JobLimits {
        quota: args.jobs_quota,
        keep: Duration::from_secs(3600).saturating_mul(args.jobs_hours),
    };
    let (jobs, unfinished) = Jobs::open(&state, limits, now_ns())?;
    // What is open stays open; from here on only the state folder can be changed.
    let listener = bind(args.listen)?;
    let over_ip = match over_ip {
        None => None,
        Some((at, sent)) => Some((bind(at)?, sent)),
    };
    if !args.no_sandbox {
        rustix::thread::set_no_new_privs(true).context("cannot give up privileges")?;
        let layer = sandbox::enter_reading(&[state.path()], places.has_servers());
        if !layer.holds {
            note(&format!("sandbox: {}; --no-sandbox does without it", layer.text));
        }
    }
    // Has a thread of its own, which is in the sandbox, too.
    let audit = Audit::open(&state, now_ns())?;
    let app = App::new(source, door, audit, jobs, settings)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("cannot start threads")?;
    let stop = Arc::new(Notify::new());
    watch(&app, &stop);
    runtime.block_on(async {
        app.start_again(unfinished);
        let listener = tokio::net::TcpListener::from_std(listener).context("cannot listen")?;
        let address = listener.local_addr().context("cannot listen")?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        // For whoever waits for the server to be there.
        writeln!(out, "{scheme}://{address}/").context(CANNOT_WRITE)?;
        let mut others = None;
        if let Some((listener, sent)) = over_ip {
            let listener = tokio::net::TcpListener::from_std(listener).context("cannot listen")?;
            let address = listener.local_addr().context("cannot listen")?;
            writeln!(out, "TCP@{address}").context(CANNOT_WRITE)?;
            let (app, end) = (Arc::clone(&app), Arc::new(Notify::new()));
            let ended = Arc::clone(&end);
            let task =
                async move { pcap_over_ip::serve(app, listener, sent, ended.notified()).await };
            others = Some((tokio::spawn(task), end));
        }
        out.flush().context(CANNOT_WRITE)?;
        if !args.quiet {
            tell(args, tls.as_ref(), is_open, &state);
        }
        let config = tls.map(|tls| tls.config);
        let stopped = stopped(&stop);
        serve(listener, config, router(Arc::clone(&app)), Connections::default(), stopped).await;
        if let Some((task, end)) = others {
            end.notify_one();
            task.await.context("PCAP-over-IP")?;
        }
        anyhow::Ok(())
    })?;
    // Threads that read packets notice that there is nobody to read them for.
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}

fn bind(at: SocketAddr) -> anyhow::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(at);
    let listener = listener.with_context(|| format!("cannot listen at {at}"))?;
    listener.set_nonblocking(true).with_context(|| format!("cannot listen at {at}"))?;
    Ok(listener)
}

/// Ctrl-C ends the server; a second one ends the process.
fn watch(app: &Arc<App>, stop: &Arc<Notify>) {
    let (app, stop) = (Arc::clone(app), Arc::clone(stop));
    let pressed = std::sync::atomic::AtomicBool::new(false);
    interrupt::handle(move || {
        if pressed.swap(true, std::sync::atomic::Ordering::Relaxed) {
            interrupt::exit();
        }
        app.stop();
        stop.notify_one();
    });
}

fn stopped(stop: &Notify) -> impl Future<Output = ()> + '_ {
    stop.notified()
}

fn tell(args: &Args, tls: Option<&Tls>, is_open: bool, state: &State) {
    if let Some(tls) = tls {
        note(&format!("fingerprint of the certificate: {}", tls.fingerprint));
    }
    match is_open {
        true => note("everybody on this machine may ask; tapdex token add closes the door"),
        false => note(&format!("tokens, roles and the audit log: {}", state.path().display())),
    }
    if args.pcap_over_ip.is_some() {
        note("every program on this machine may read packets over PCAP-over-IP");
    }
    if !is_open && !args.listen.ip().is_loopback() {
        note("whoever has no token gets no answer; tapdex token add makes one");
    }
}
