//! `tapdex-bench serve`: a server with one client, with a thousand, and with clients that leave.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tapdex_bench::page::{self, Head, Target};
use tapdex_report::Sheet;

use crate::archive::process::run as run_program;

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Packets of the archive that is generated.
    #[arg(long, default_value_t = 4_000_000)]
    packets: u64,
    /// Clients.
    #[arg(long, default_value_t = 1_000)]
    clients: usize,
    /// How many of them ask heavy questions: extracts of all HTTPS packets, and filters that the
    /// index cannot answer.
    #[arg(long, default_value_t = 50)]
    heavy: usize,
    /// How long they ask.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The program.
    #[arg(long, value_name = "FILE", default_value = "target/release/tapdex")]
    tapdex: PathBuf,
    /// Where capture and archive go; without it, a temporary folder that is removed at the end.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

/// How long a client with light questions waits after an answer.
const PAUSE: Duration = Duration::from_secs(1);
/// Light questions that are asked by one client alone.
const ALONE: usize = 2_000;
/// Bytes of stack of a client: it has little to keep.
const STACK_LEN: usize = 256 << 10;
/// How long a client waits for an answer before that counts as a failure.
const ANSWER_TIME: Duration = Duration::from_secs(60);

const LIGHT: [&str; 4] = [
    "/api/v1/count?q=tcp+port+443",
    "/api/v1/count?q=host+10.1.1.173+and+udp+port+53",
    "/api/v1/count?q=net+10.0.0.0/8+and+not+port+22",
    "/api/v1/search?limit_packets=20&q=host+10.1.1.173",
];
const HEAVY: [&str; 3] = [
    "/api/v1/packets?q=tcp+port+443",
    "/api/v1/count?q=tcp%5B20:4%5D+%3D+0x47455420",
    "/api/v1/flows?n=100&sort=duration&q=udp",
];

/// A server that ends with this.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(tapdex: &Path, archive: &Path, state: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(tapdex);
        command.args(["serve", "--listen", "127.0.0.1:0", "--quiet", "-r"]).arg(archive);
        command.arg("--state").arg(state).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start the server")?;
        let mut line = String::new();
        let out = child.stdout.take().context("no output")?;
        BufReader::new(out).read_line(&mut line)?;
        let address = line.trim().trim_start_matches("http://").trim_end_matches('/');
        Ok(Self { address: address.parse()?, child })
    }

    /// Kilobytes of memory.
    fn memory_kib(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        Ok(number.context("no VmRSS")?.parse()?)
    }

    fn streams(&self) -> anyhow::Result<u64> {
        let mut client = Client::connect(self.address)?;
        let text = String::from_utf8(client.ask("/metrics")?)?;
        let line = text.lines().find_map(|line| line.strip_prefix("tapdex_server_streams "));
        Ok(line.context("no streams in the metrics")?.trim().parse()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A connection that stays open.
struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIME))?;
        Ok(Self { stream: BufReader::with_capacity(16 << 10, stream) })
    }

    fn send(&mut self, path: &str) -> anyhow::Result<()> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        Ok(self.stream.get_mut().write_all(request.as_bytes())?)
    }

    /// Asks, and returns the body if it is short.
    fn ask(&mut self, path: &str) -> anyhow::Result<Vec<u8>> {
        self.send(path)?;
        let (mut len, mut chunked, mut line) = (0, false, String::new());
        self.stream.read_line(&mut line)?;
        ensure!(line.starts_with("HTTP/1.1 200"), "{path}: {}", line.trim());
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            let header = line.trim().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(number) = header.strip_prefix("content-length: ") {
                len = number.parse()?;
            }
            chunked |= header == "transfer-encoding: chunked";
        }
        let mut body = Vec::new();
        if !chunked {
            body.resize(len, 0);
            self.stream.read_exact(&mut body)?;
            return Ok(body);
        }
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            let size = usize::from_str_radix(line.trim(), 16).context("no chunk")?;
            // Also the line end.
            let mut rest = (&mut self.stream).take(size as u64 + 2);
            match body.len() + size < 1 << 20 {
                true => {
                    let start = body.len();
                    rest.read_to_end(&mut body)?;
                    ensure!(body.len() == start + size + 2, "{path}: broke off");
                    body.truncate(start + size);
                }
                false => {
                    let read = std::io::copy(&mut rest, &mut std::io::sink())?;
                    ensure!(read == size as u64 + 2, "{path}: broke off");
                }
            }
            if size == 0 {
                return Ok(body);
            }
        }
    }
}

/// A percentile of times.
fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

/// What became of many clients.
#[derive(Default)]
struct Load {
    light: Mutex<Vec<Duration>>,
    heavy: AtomicU64,
    failures: Mutex<Vec<String>>,
}

fn load(args: &Args, server: &Server) -> anyhow::Result<(Load, Vec<u64>)> {
    let (load, over) = (Load::default(), AtomicBool::new(false));
    let mut memory = Vec::new();
    std::thread::scope(|scope| {
        for n in 0..args.clients {
            let (load, over) = (&load, &over);
            let thread = std::thread::Builder::new().stack_size(STACK_LEN);
            let is_heavy = n < args.heavy;
            let work = move || client(server.address, n, is_heavy, load, over);
            thread.spawn_scoped(scope, work)?;
        }
        let end = Instant::now() + Duration::from_secs(args.seconds);
        while Instant::now() < end {
            memory.push(server.memory_kib()?);
            std::thread::sleep(Duration::from_millis(500));
        }
        over.store(true, Relaxed);
        anyhow::Ok(())
    })?;
    Ok((load, memory))
}

fn client(address: SocketAddr, n: usize, is_heavy: bool, load: &Load, over: &AtomicBool) {
    let run = || -> anyhow::Result<()> {
        // Not all in the same moment.
        std::thread::sleep(PAUSE.mul_f64((n % 97) as f64 / 97.0));
        let mut client = Client::connect(address)?;
        for round in n.. {
            if over.load(Relaxed) {
                return Ok(());
            }
            if is_heavy {
                client.ask(HEAVY[round % HEAVY.len()])?;
                load.heavy.fetch_add(1, Relaxed);
            } else {
                let asked = Instant::now();
                client.ask(LIGHT[round % LIGHT.len()])?;
                let took = asked.elapsed();
                load.light.lock().map_err(|_| anyhow::anyhow!("poisoned"))?.push(took);
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    };
    if let Err(error) = run()
        && let Ok(mut failures) = load.failures.lock()
    {
        failures.push(format!("{error:#}"));
    }
}

/// How long a stream goes on after its client has left.
fn leave(server: &Server) -> anyhow::Result<Duration> {
    let mut client = Client::connect(server.address)?;
    client.send("/api/v1/packets?q=tcp%5B20:4%5D+%3D+0x47455420+or+tcp")?;
    let mut first = [0; 1000];
    client.stream.read_exact(&mut first)?;
    ensure!(server.streams()? == 1, "there should be one stream");
    let left = Instant::now();
    drop(client);
    while server.streams()? > 0 {
        ensure!(left.elapsed() < Duration::from_secs(10), "the stream goes on");
    }
    Ok(left.elapsed())
}

/// Seconds that a whole extract takes: by the command into a file, from the server, and as a plain
/// file from Python's server.
fn extracts(
    args: &Args,
    server: &Server,
    folder: &Path,
    archive: &Path,
) -> anyhow::Result<[f64; 3]> {
    let file = folder.join("extract.pcapng");
    let timed = |work: &mut dyn FnMut() -> anyhow::Result<()>| {
        let mut best = f64::MAX;
        for _ in 0..3 {
            let started = Instant::now();
            work()?;
            best = best.min(started.elapsed().as_secs_f64());
        }
        anyhow::Ok(best)
    };
    let own = timed(&mut || {
        let mut command = Command::new(&args.tapdex);
        command.args(["extract", "--force", "-r"]).arg(archive).arg("-w").arg(&file);
        run_program(command.arg("tcp")).map(drop)
    })?;
    let served =
        timed(&mut || Client::connect(server.address)?.ask("/api/v1/packets?q=tcp").map(drop))?;
    let mut python = Command::new("python3");
    python.args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1"]).current_dir(folder);
    let mut python = python.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut line = String::new();
    BufReader::new(python.stdout.take().context("no output")?).read_line(&mut line)?;
    let port = line.split("port ").nth(1).and_then(|text| text.split(' ').next());
    let address: SocketAddr = format!("127.0.0.1:{}", port.context("no port")?).parse()?;
    let plain = timed(&mut || {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(b"GET /extract.pcapng HTTP/1.0\r\n\r\n")?;
        let read = std::io::copy(&mut stream, &mut std::io::sink())?;
        ensure!(read > file.metadata()?.len(), "Python's server broke off");
        Ok(())
    });
    drop(python.kill());
    drop(python.wait());
    Ok([own, served, plain?])
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    args.target.check()?;
    ensure!(args.tapdex.is_file(), "there is no {}; build it first", args.tapdex.display());
    let own = std::env::temp_dir().join(format!("tapdex-bench-serve-{}", std::process::id()));
    let folder = args.folder.clone().unwrap_or_else(|| own.clone());
    fs::create_dir_all(&folder)?;
    let measured = measure(args, &folder);
    if args.folder.is_none() {
        fs::remove_dir_all(&own)?;
    }
    measured
}

fn measure(args: &Args, folder: &Path) -> anyhow::Result<()> {
    let (capture, archive) = (folder.join("a.pcap"), folder.join("archive"));
    let tapdex = || Command::new(&args.tapdex);
    let packets = args.packets.to_string();
    run_program(tapdex().args(["gen", "--quiet", "--force", "-c", &packets, "-w"]).arg(&capture))?;
    run_program(tapdex().args(["index", "--quiet", "-o"]).arg(&archive).arg(&capture))?;
    let server = Server::start(&args.tapdex, &archive, &folder.join("state"))?;
    let mut alone = Vec::new();
    let mut client = Client::connect(server.address)?;
    for n in 0..ALONE {
        let asked = Instant::now();
        client.ask(LIGHT[n % LIGHT.len()])?;
        alone.push(asked.elapsed());
    }
    let before = server.memory_kib()?;
    let (many, memory) = load(args, &server)?;
    let mut light = many.light.into_inner().map_err(|_| anyhow::anyhow!("poisoned"))?;
    let failures = many.failures.into_inner().map_err(|_| anyhow::anyhow!("poisoned"))?;
    ensure!(!light.is_empty(), "nothing was answered: {failures:?}");
    let left: Vec<Duration> = (0..5).map(|_| leave(&server)).collect::<Result<_, _>>()?;
    let [command, served, python] = extracts(args, &server, folder, &archive)?;
    let bytes = folder.join("extract.pcapng").metadata()?.len() as f64;
    let ms = |time: Duration| format!("{:.2}", time.as_secs_f64() * 1e3);
    let p50 = percentile(&mut alone, 50);
    let p99 = percentile(&mut light, 99);
    let half = memory.len() / 2;
    let most = |part: &[u64]| part.iter().copied().max().unwrap_or(0) as f64 / 1024.0;
    let (start, end) = (most(&memory[..half]), most(&memory[half..]));
    let memory = format!("{:.0} / {start:.0} / {end:.0}", before as f64 / 1024.0);
    let longest = left.into_iter().max().unwrap_or_default();
    let (alone_p99, light_p50) = (percentile(&mut alone, 99), percentile(&mut light, 50));
    let rows = [
        ("light questions alone, p50 / p99, ms", format!("{} / {}", ms(p50), ms(alone_p99))),
        ("light questions among all, p50 / p99, ms", format!("{} / {}", ms(light_p50), ms(p99))),
        ("p99 among all to p50 alone", format!("{:.1}", p99.as_secs_f64() / p50.as_secs_f64())),
        ("light questions answered", light.len().to_string()),
        ("heavy questions answered", many.heavy.into_inner().to_string()),
        ("failures", failures.len().to_string()),
        ("memory before, in the first half, in the second half, MiB", memory),
        ("a client leaves: its stream ends after, ms, the longest of 5", ms(longest)),
        ("extract of all TCP packets to a file, GB/s", format!("{:.2}", bytes / command / 1e9)),
        ("the same from the server, GB/s", format!("{:.2}", bytes / served / 1e9)),
        ("the server to the command", format!("{:.2}", command / served)),
        ("the file from Python's http.server, GB/s", format!("{:.2}", bytes / python / 1e9)),
    ];
    failures.iter().take(5).for_each(|failure| eprintln!("{failure}"));
    let command = format!(
        "serve --packets {} --clients {} --heavy {} --seconds {}",
        args.packets, args.clients, args.heavy, args.seconds
    );
    let facts = [("pause of light clients", "1 s".to_owned())];
    let title = "A server and its clients";
    let head = Head { name: "serve", title, command: &command, facts: &facts };
    page::write(&args.target, head, |report| {
        let mut sheet = Sheet::new("serve", "Measured", &["what", "value"]);
        for (what, value) in rows {
            sheet.row(vec![what.to_owned(), value]);
        }
        Ok(report.table(&sheet, None)?)
    })
}
