//! The output while recording: a line on the terminal that changes every second, and problems.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use tapdex_engine::time::format_time;
use tapdex_record::messages::Message;
use tapdex_record::status::{Losses, Status};

use super::super::counted;
use super::log;

/// How often losses are reported, if there is no line that shows them.
const LOSSES_EVERY: Duration = Duration::from_secs(10);

/// The line, and what was reported last.
#[derive(Debug)]
pub(super) struct Shown {
    screen: bool,
    is_drawn: bool,
    lost: u64,
    complained: Option<Instant>,
}

impl Shown {
    pub(super) fn new(screen: bool) -> Self {
        Self { screen, is_drawn: false, lost: 0, complained: None }
    }

    /// Reports a message.
    pub(super) fn message(&mut self, message: &Message) {
        self.clear();
        log::write(message);
    }

    /// Shows the status.
    pub(super) fn status(&mut self, status: &Status, quiet: bool) {
        let lost = status.lost().sum();
        let due = self.complained.is_none_or(|at| at.elapsed() >= LOSSES_EVERY);
        if lost > self.lost && due && !quiet {
            let more = lost - self.lost;
            self.clear();
            let Losses { interface, kernel, writer, .. } = *status.lost();
            tracing::warn!(
                lost,
                lost_by_interface = interface,
                lost_by_kernel = kernel,
                lost_by_writer = writer,
                "{more} packets lost: {} in all",
                by_stage(status.lost())
            );
            (self.lost, self.complained) = (lost, Some(Instant::now()));
        }
        if self.screen {
            let line: String = crate::cmd::escaped(&text(status)).chars().take(columns()).collect();
            drop(write!(io::stderr(), "\r\x1b[K{line}"));
            self.is_drawn = true;
        }
    }

    /// Removes the line.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            drop(write!(io::stderr(), "\r\x1b[K"));
        }
    }
}

/// How many characters a line of the terminal has.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
    // One less: the cursor stays in the line.
    size.map_or(80, |size| usize::from(size.ws_col)).saturating_sub(1).max(20)
}

/// The status on one line: what matters most comes first.
fn text(status: &Status) -> String {
    let seconds = status.updated_ns.saturating_sub(status.started_ns) / 1_000_000_000;
    let mut text = String::new();
    if status.paused {
        text.push_str("PAUSED: no room  ");
    }
    text.push_str(&format!(
        "{seconds} s  {} packets  {}pps  {}b/s  lost {}",
        status.run.packets,
        scaled(status.packets_per_second),
        scaled(status.bits_per_second),
        losses(status.lost()),
    ));
    text.push_str(&format!(
        "  ring {:.0} %  queue {:.0} %",
        100.0 * status.ring_fill(),
        100.0 * status.queue_fill()
    ));
    if status.index_lag_seconds >= 1.0 {
        text.push_str(&format!("  index {:.0} s behind", status.index_lag_seconds));
    }
    text.push_str(&format!("  disk {:.0} %", status.disk_percent));
    if status.oldest_packet_ns > 0 {
        let age = status.updated_ns.saturating_sub(status.oldest_packet_ns) / 1_000_000_000;
        text.push_str(&format!("  oldest {}", duration(age)));
    }
    text
}

/// What was lost; few words if nothing was.
fn losses(lost: &Losses) -> String {
    match lost.sum() {
        0 => "0".to_owned(),
        // The indexer never loses any.
        _ => format!("if {} ring {} disk {}", lost.interface, lost.kernel, lost.writer),
    }
}

/// What was lost, and where.
fn by_stage(lost: &Losses) -> String {
    let stages = lost.by_stage();
    let stages: Vec<String> = stages.iter().map(|(name, lost)| format!("{name} {lost}")).collect();
    stages.join(", ")
}

/// A number with the letter for its thousands.
fn scaled(number: f64) -> String {
    let units = ["", "k", "M", "G", "T"];
    let mut scaled = number;
    let mut unit = 0;
    while scaled >= 999.5 && unit + 1 < units.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    let digits = if unit == 0 || scaled >= 99.5 { 0 } else { 1 };
    format!("{scaled:.digits$} {}", units[unit])
}

/// Seconds, in the units that people would use.
fn duration(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// What was recorded, for the end.
pub(super) fn summary(status: &Status, archive: &Path) -> String {
    let run = &status.run;
    let seconds = status.updated_ns.saturating_sub(status.started_ns) as f64 / 1e9;
    let mut text = format!(
        "recorded {}, {} bytes, into {}: {}, {}, {seconds:.1} s; lost {}",
        counted(run.packets, "packet"),
        run.wire_bytes,
        archive.display(),
        counted(status.sealed, "recording"),
        match status.waiting {
            0 => "all indexed".to_owned(),
            waiting => format!("{waiting} not indexed yet"),
        },
        if run.lost.sum() == 0 { "0".to_owned() } else { by_stage(&run.lost) }
    );
    if run.removed_segments > 0 {
        let removed = counted(run.removed_segments, "recording");
        text.push_str(&format!("; {removed} removed to make room"));
    }
    if status.last_packet_ns > 0 {
        text.push_str(&format!("; last packet {}", format_time(status.last_packet_ns)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        for (number, text) in [
            (0.0, "0 "),
            (999.0, "999 "),
            (999.6, "1.0 k"),
            (1_234_567.0, "1.2 M"),
            (123_456_789.0, "123 M"),
            (9.87e9, "9.9 G"),
        ] {
            assert_eq!(scaled(number), text, "{number}");
        }
        assert_eq!([90, 600, 7_200, 864_000].map(duration), ["90 s", "10 min", "2 h", "10 d"]);
    }
}
