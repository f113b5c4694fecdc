//! `tapdex serve`: an archive over HTTP.

use std::ffi::OsStr;
use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tapdex_answers::question::Question;
use tapdex_engine::archive::Archive;
use tapdex_engine::map_large_blocks;
use tapdex_record::live::Live;
use tapdex_record::sandbox;
use tapdex_server::audit::Audit;
use tapdex_server::door::{Door, WhenEmpty};
use tapdex_server::http::{App, Settings, Source, file_name, router, value_text};
use tapdex_server::jobs::{Job, JobLimits, Jobs};
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
    #[command(flatten)]
    access: Access,
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
    /// Do not give up writing outside of --state, running programs and connecting to others, which
    /// the server does by landlock and seccomp.
    #[arg(long)]
    no_sandbox: bool,
    /// Report only problems.
    #[arg(short, long)]
    quiet: bool,
}

/// Who may ask, and how much: what every server has to know, whether it records or not.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Access {
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
}

/// The same in a settings file.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct AccessFile {
    state: Option<PathBuf>,
    name: Option<String>,
    host: Vec<String>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    tls_self_signed: bool,
    client_ca: Option<PathBuf>,
    require_client_cert: bool,
}

impl Access {
    /// Refuses to serve others without TLS.
    pub(super) fn check(&self, listen: SocketAddr) -> anyhow::Result<()> {
        let has_tls = self.tls_self_signed || self.tls_cert.is_some();
        ensure!(
            listen.ip().to_canonical().is_loopback() || has_tls,
            "{listen} is open to others, so packets need TLS: give --tls-self-signed, or \
             --tls-cert and --tls-key; or listen at 127.0.0.1"
        );
        Ok(())
    }

    /// The option that is given, if one is that means nothing without a server.
    pub(super) fn given(&self) -> Option<&'static str> {
        let given = [
            ("--name", self.name.is_some()),
            ("--host", !self.host.is_empty()),
            ("--tls-cert", self.tls_cert.is_some()),
            ("--tls-self-signed", self.tls_self_signed),
            ("--client-ca", self.client_ca.is_some()),
        ];
        given.into_iter().find_map(|(name, is_given)| is_given.then_some(name))
    }

    /// Where the state folder is.
    pub(super) fn folder(&self) -> anyhow::Result<PathBuf> {
        Ok(match &self.state {
            Some(folder) => folder.clone(),
            None => State::default_path()?,
        })
    }

    /// The same with what a settings file says, where no option is given.
    pub(super) fn or(&self, file: &AccessFile) -> Self {
        let or = |given: &Option<PathBuf>, file: &Option<PathBuf>| given.clone().or(file.clone());
        let hosts = if self.host.is_empty() { &file.host } else { &self.host };
        Self {
            state: or(&self.state, &file.state),
            name: self.name.clone().or(file.name.clone()),
            host: hosts.clone(),
            tls_cert: or(&self.tls_cert, &file.tls_cert),
            tls_key: or(&self.tls_key, &file.tls_key),
            tls_self_signed: self.tls_self_signed || file.tls_self_signed,
            client_ca: or(&self.client_ca, &file.client_ca),
            require_client_cert: self.require_client_cert || file.require_client_cert,
            ..self.clone()
        }
    }

    /// Opens the state folder and all that is in it but the audit log. `place` is the folder that
    /// is served, if it is a single one.
    pub(super) fn open(&self, listen: SocketAddr, place: Option<&Path>) -> anyhow::Result<Opened> {
        let state = State::create(&self.folder()?)?;
        let tls = self.tls(&state, listen)?;
        let is_loopback = listen.ip().to_canonical().is_loopback();
        let when_empty = if is_loopback { WhenEmpty::Open } else { WhenEmpty::Locked };
        let door = Door::open(&state, when_empty)?;
        let is_open = door.is_open();
        let folder = place.and_then(|place| place.canonicalize().ok());
        let name =
            folder.and_then(|folder| Some(folder.file_name()?.to_string_lossy().into_owned()));
        let settings = Settings {
            name: self.name.clone().or(name).unwrap_or_else(|| "archive".to_owned()),
            streams: self.streams,
            hosts: self.host.clone(),
            is_open,
            ..Settings::default()
        };
        let limits = JobLimits {
            quota: self.jobs_quota,
            keep: Duration::from_secs(3600).saturating_mul(self.jobs_hours),
        };
        let (jobs, unfinished) = Jobs::open(&state, limits, now_ns())?;
        Ok(Opened { state, tls, door, is_open, settings, jobs, unfinished })
    }

    fn tls(&self, state: &State, listen: SocketAddr) -> anyhow::Result<Option<Tls>> {
        let clients = match (&self.client_ca, self.require_client_cert) {
            (None, _) => ClientCertificates::None,
            (Some(path), false) => ClientCertificates::Optional(path),
            (Some(path), true) => ClientCertificates::Required(path),
        };
        let mut names = self.host.clone();
        names.push(listen.ip().to_string());
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

/// What a server has open before it gives up opening more.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) state: State,
    pub(super) tls: Option<Tls>,
    door: Door,
    pub(super) is_open: bool,
    settings: Settings,
    jobs: Jobs,
    unfinished: Vec<Job>,
}

/// What answers, and jobs that have to be run again.
pub(super) struct Answering {
    pub(super) app: Arc<App>,
    unfinished: Vec<Job>,
    tls: Option<Tls>,
}

impl Opened {
    /// Gets ready to answer about `source`, which a recorder may be writing in this process. Starts
    /// threads, so the sandbox comes before.
    pub(super) fn answering(
        self,
        source: Source,
        recorder: Option<Arc<Live>>,
    ) -> anyhow::Result<Answering> {
        let Self { state, tls, door, settings, jobs, unfinished, .. } = self;
        let audit = Audit::open(&state, now_ns())?;
        let settings = Settings { recorder, ..settings };
        let app = App::new(source, door, audit, jobs, settings)?;
        Ok(Answering { app, unfinished, tls })
    }
}

impl Answering {
    /// The address as clients write it.
    pub(super) fn url(&self, address: SocketAddr) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{address}/")
    }

    /// Answers until `stop` is ready.
    pub(super) async fn serve(
        self,
        listener: std::net::TcpListener,
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        let Self { app, unfinished, tls } = self;
        app.start_again(unfinished);
        let config = tls.map(|tls| tls.config);
        let listener = tokio::net::TcpListener::from_std(listener).context("cannot listen")?;
        serve(listener, config, router(app), Connections::default(), stop).await;
        Ok(())
    }
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
}

/// Serves made-up traffic to programs on this machine.
pub(super) fn run_demo(
    archive: &Path,
    state: &Path,
    listen: SocketAddr,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    #[derive(Debug, clap::Parser)]
    struct Only {
        #[command(flatten)]
        args: Args,
    }
    ensure!(listen.ip().is_loopback(), "--listen {listen}: a demo is for this machine only");
    let listen = listen.to_string();
    // What is made up may be removed in the end, which the sandbox would not allow.
    let words = ["demo", "--listen", &listen, "--name", "tapdex-demo", "--no-sandbox"];
    let words = words.iter().map(OsStr::new);
    let folders = [("-r", archive), ("--state", state)];
    let folders = folders.iter().flat_map(|(name, path)| [OsStr::new(*name), path.as_os_str()]);
    let Only { args } = <Only as clap::Parser>::parse_from(words.chain(folders));
    serve_at(&args, true, out)
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    serve_at(args, false, out)
}

fn serve_at(args: &Args, is_demo: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    map_large_blocks();
    args.access.check(args.listen)?;
    args.pcap_over_ip.map_or(Ok(()), check_address)?;
    let places = &args.places;
    let source = match places.single().filter(|_| !places.has_servers()) {
        Some(folder) => Source::Archive(Box::new(Archive::open(folder)?)),
        None => Source::Nodes(Box::new(places.nodes_shown(file_name, value_text)?)),
    };
    let mut opened = args.access.open(args.listen, places.single())?;
    opened.settings.is_demo = is_demo;
    let over_ip = args.pcap_over_ip(opened.is_open)?;
    // What is open stays open; from here on only the state folder can be changed.
    let listener = bind(args.listen)?;
    let over_ip = match over_ip {
        None => None,
        Some((at, sent)) => Some((bind(at)?, sent)),
    };
    if !args.no_sandbox {
        rustix::thread::set_no_new_privs(true).context("cannot give up privileges")?;
        let entered = sandbox::enter_reading(opened.state.path(), places.has_servers());
        for (name, layer) in [("seccomp", entered.seccomp), ("landlock", entered.landlock)] {
            if !layer.holds {
                note(&format!("sandbox: {name}: {}; --no-sandbox does without it", layer.text));
            }
        }
    }
    let notes = if args.quiet { Vec::new() } else { notes(args, &opened) };
    let answering = opened.answering(source, None)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("cannot start threads")?;
    let stop = Arc::new(Notify::new());
    watch(&answering.app, &stop);
    runtime.block_on(async {
        let address = listener.local_addr().context("cannot listen")?;
        // For whoever waits for the server to be there.
        writeln!(out, "{}", answering.url(address)).context(CANNOT_WRITE)?;
        let mut others = None;
        if let Some((listener, sent)) = over_ip {
            let listener = tokio::net::TcpListener::from_std(listener).context("cannot listen")?;
            let address = listener.local_addr().context("cannot listen")?;
            writeln!(out, "TCP@{address}").context(CANNOT_WRITE)?;
            let (app, end) = (Arc::clone(&answering.app), Arc::new(Notify::new()));
            let ended = Arc::clone(&end);
            let task =
                async move { pcap_over_ip::serve(app, listener, sent, ended.notified()).await };
            others = Some((tokio::spawn(task), end));
        }
        out.flush().context(CANNOT_WRITE)?;
        notes.iter().for_each(|text| note(text));
        answering.serve(listener, stopped(&stop)).await?;
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

pub(super) fn bind(at: SocketAddr) -> anyhow::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(at);
    let listener = listener.with_context(|| format!("cannot listen at {at}"))?;
    listener.set_nonblocking(true).with_context(|| format!("cannot listen at {at}"))?;
    Ok(listener)
}

/// Ctrl-C ends the server; a second one ends the process.
fn watch(app: &Arc<App>, stop: &Arc<Notify>) {
    let (app, stop) = (Arc::clone(app), Arc::clone(stop));
    let pressed = std::sync::atomic::AtomicBool::new(false);
    interrupt::replace(move || {
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

/// What people should know, once the server is there.
fn notes(args: &Args, opened: &Opened) -> Vec<String> {
    let Opened { tls, is_open, state, .. } = opened;
    let mut notes = Vec::new();
    if let Some(tls) = tls {
        notes.push(format!("fingerprint of the certificate: {}", tls.fingerprint));
    }
    notes.push(match is_open {
        true => "everybody on this machine may ask; tapdex token add closes the door".to_owned(),
        false => format!("tokens, roles and the audit log: {}", state.path().display()),
    });
    if args.pcap_over_ip.is_some() {
        notes.push("every program on this machine may read packets over PCAP-over-IP".to_owned());
    }
    if !is_open && !args.listen.ip().is_loopback() {
        let text = "whoever has no token gets no answer; tapdex token add makes one";
        notes.push(text.to_owned());
    }
    notes
}
