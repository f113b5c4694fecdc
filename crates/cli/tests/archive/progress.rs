//! Progress on a terminal, which is a pseudo terminal here.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::*;

/// A terminal, and all that was written to it so far.
struct Terminal {
    /// The end for the command; open until the command is started.
    end: Option<File>,
    written: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Terminal {
    fn new() -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours: OwnedFd = openpt(flags).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let size = Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&ours, size).unwrap();
        let path = ptsname(&ours, Vec::new()).unwrap();
        let path = path.to_str().unwrap();
        let end = File::options().read(true).write(true).open(path).unwrap();
        let written = Arc::new(Mutex::new(Vec::new()));
        let (target, mut source) = (Arc::clone(&written), File::from(ours));
        // Ends with an error when nobody has the other end any more.
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(len @ 1..) = source.read(&mut buffer) {
                target.lock().unwrap().extend_from_slice(&buffer[..len]);
            }
        });
        Self { end: Some(end), written, reader }
    }

    fn stdio(&self) -> Stdio {
        self.end.as_ref().unwrap().try_clone().unwrap().into()
    }

    fn text(&self) -> String {
        String::from_utf8(self.written.lock().unwrap().clone()).unwrap()
    }

    /// Waits until a line with all of these words has been shown.
    fn wait_for(&self, words: &[&str]) {
        // Long enough for a busy machine, and then the test says what there was instead.
        for _ in 0..6_000 {
            let text = self.text();
            if text.split(['\r', '\n']).any(|line| words.iter().all(|word| line.contains(word))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("no line with {words:?}: {:?}", self.text());
    }

    /// The lines that are visible when the command has ended.
    fn screen(self) -> Vec<String> {
        self.reader.join().unwrap();
        let text = String::from_utf8(self.written.lock().unwrap().clone()).unwrap();
        let mut lines = vec![String::new()];
        let (mut row, mut column) = (0, 0);
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\r' => column = 0,
                '\n' => row += 1,
                '\u{1b}' => {
                    let code: String = letters.by_ref().take_while_inclusive();
                    match code.as_str() {
                        "[2K" => lines[row].clear(),
                        "[K" => lines[row].truncate(column),
                        "[1A" => row -= 1,
                        code => panic!("unexpected escape {code:?}"),
                    }
                }
                letter => {
                    let line: &mut String = &mut lines[row];
                    while line.len() < column {
                        line.push(' ');
                    }
                    if column < line.len() {
                        line.replace_range(column..=column, letter.encode_utf8(&mut [0; 4]));
                    } else {
                        line.push(letter);
                    }
                    column += 1;
                }
            }
            while lines.len() <= row {
                lines.push(String::new());
            }
        }
        let lines = lines.into_iter().map(|line| line.trim_end().to_owned());
        lines.filter(|line| !line.is_empty()).collect()
    }
}

trait TakeEscape {
    /// An escape sequence up to its letter.
    fn take_while_inclusive(&mut self) -> String;
}

impl<I: Iterator<Item = char>> TakeEscape for I {
    fn take_while_inclusive(&mut self) -> String {
        let mut code = String::new();
        for letter in self {
            code.push(letter);
            if letter.is_ascii_alphabetic() {
                break;
            }
        }
        code
    }
}

/// A command whose standard error is a terminal.
fn start(place: &Place, words: &str) -> (Child, ChildStdin, ChildStdout, Terminal) {
    let mut terminal = Terminal::new();
    let words: Vec<&str> = words.split_whitespace().collect();
    let mut command = place.command(&words);
    command.env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(terminal.stdio());
    let mut child = command.spawn().unwrap();
    drop(command);
    terminal.end = None;
    let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    (child, input, output, terminal)
}

/// Bytes of a capture after which `gen` has reported progress.
const FIRST_BYTES: u64 = 8 << 20;

#[test]
fn a_bar_with_the_time_left_that_leaves_nothing_behind() {
    let place = Place::new();
    let (mut child, _input, mut output, terminal) = start(&place, "gen -c 200000");
    // The rest is not read before the bar is there, so the command cannot end.
    std::io::copy(&mut (&mut output).take(FIRST_BYTES), &mut std::io::sink()).unwrap();
    terminal.wait_for(&["[", "] ", " %", " left", "packets written"]);
    std::io::copy(&mut output, &mut std::io::sink()).unwrap();
    assert!(child.wait().unwrap().success());
    let screen = terminal.screen();
    assert_eq!(screen.len(), 1, "{screen:?}");
    assert!(screen[0].starts_with("tapdex: wrote 200000 packets"), "{screen:?}");
}

#[test]
fn ctrl_c_leaves_a_clean_line() {
    let place = Place::new();
    let (mut child, _input, mut output, terminal) = start(&place, "gen -c 200000");
    std::io::copy(&mut (&mut output).take(FIRST_BYTES), &mut std::io::sink()).unwrap();
    terminal.wait_for(&["packets written"]);
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(terminal.screen(), [""; 0]);
}

#[test]
fn quiet_shows_nothing() {
    let place = Place::new();
    let (mut child, _input, mut output, terminal) = start(&place, "gen --quiet -c 50000");
    std::io::copy(&mut output, &mut std::io::sink()).unwrap();
    assert!(child.wait().unwrap().success());
    terminal.reader.join().unwrap();
    assert_eq!(*terminal.written.lock().unwrap(), b"");
}

#[test]
fn streams_of_unknown_length_show_what_was_read() {
    let place = Place::new();
    place.words("gen -c 40000 -w a.pcap").done();
    let capture = std::fs::read(place.path("a.pcap")).unwrap();
    let (mut child, mut input, _output, terminal) = start(&place, "index -");
    input.write_all(&capture[..capture.len() / 2]).unwrap();
    terminal.wait_for(&[" packets, ", " M/s"]);
    input.write_all(&capture[capture.len() / 2..]).unwrap();
    drop(input);
    assert!(child.wait().unwrap().success());
    let screen = terminal.screen();
    assert_eq!(screen.len(), 1, "{screen:?}");
    assert!(screen[0].starts_with("tapdex: indexed 40000 packets"), "{screen:?}");

    let (mut child, mut input, _output, terminal) = start(&place, "index-file build - -o t.tdx");
    input.write_all(b"port\n").unwrap();
    let rows = "443\n".repeat(1 << 20);
    input.write_all(rows.as_bytes()).unwrap();
    terminal.wait_for(&[" rows read, ", " MB/s"]);
    drop(input);
    assert!(child.wait().unwrap().success());
    let screen = terminal.screen();
    assert_eq!(screen.len(), 1, "{screen:?}");
    assert!(screen[0].starts_with("tapdex: wrote t.tdx: 1048576 rows"), "{screen:?}");
}

#[test]
fn output_on_the_same_terminal_stays_whole() {
    let place = Place::new();
    let mut terminal = Terminal::new();
    let mut command = place.command(&["demo", "--packets", "150000"]);
    command.env("TERM", "xterm").stdin(Stdio::null());
    command.stdout(terminal.stdio()).stderr(terminal.stdio());
    let mut child = command.spawn().unwrap();
    drop(command);
    terminal.end = None;
    assert!(child.wait().unwrap().success());
    let screen = terminal.screen();
    let starts: Vec<&str> = screen.iter().filter_map(|line| line.split(' ').next()).collect();
    let expected = [
        "generated",
        "indexed",
        "filter",
        "host",
        "udp",
        "tcp[tcpflags]",
        "vlan",
        "icmp6",
        "tapdex",
    ];
    assert_eq!(starts, expected, "{screen:#?}");
}
