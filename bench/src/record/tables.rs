//! What was measured, as tables and plots.

use tapdex_report::{Line, Lines, Plot, Report, Sheet};

use super::open::Answer;
use super::programs::Program;
use super::{Cell, Measured};

impl Measured {
    /// All rounds of a contestant at a load.
    fn cells(&self, contestant: usize, load: usize) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(move |cell| cell.contestant == contestant && cell.load == load)
    }

    /// The middle one of a value of all rounds; `None` if it took no part.
    fn median(&self, contestant: usize, load: usize, of: fn(&Cell) -> f64) -> Option<f64> {
        let mut values: Vec<f64> = self.cells(contestant, load).map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }

    /// Percent of all packets that were sent at a load in all rounds and are not stored.
    fn loss(&self, contestant: usize, load: usize) -> Option<f64> {
        let (lost, sent) = self
            .cells(contestant, load)
            .fold((0, 0), |(lost, sent), cell| (lost + cell.lost(), sent + cell.sent.packets));
        (sent > 0).then(|| 100.0 * lost as f64 / sent as f64)
    }

    /// How many loads, from the lowest on, a contestant took without a loss in any round.
    fn loads_without_loss(&self, contestant: usize) -> usize {
        let has_none = |load: &usize| {
            let mut cells = self.cells(contestant, *load).peekable();
            cells.peek().is_some() && cells.all(|cell| cell.lost() == 0)
        };
        (0..self.loads.len()).take_while(has_none).count()
    }

    /// The highest of those loads, and the packets a second that were sent then.
    fn best(&self, contestant: usize) -> Option<(usize, f64)> {
        let load = self.loads_without_loss(contestant).checked_sub(1)?;
        Some((load, self.median(contestant, load, Cell::packets_a_second)?))
    }

    /// Those of a program with the ring that all have.
    fn number_of(&self, program: Program) -> Option<usize> {
        self.contestants.iter().position(|who| who.program == program && !who.own)
    }

    /// The highest load that all with the same ring took without a loss; the lowest if there is
    /// none.
    fn common_load(&self) -> usize {
        let same = (0..self.contestants.len()).filter(|&number| !self.contestants[number].own);
        let fewest = same.map(|number| self.loads_without_loss(number)).min();
        fewest.unwrap_or(0).saturating_sub(1)
    }
}

fn shown(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

/// A share that is not 0 is not shown as 0.
fn percent(value: Option<f64>) -> String {
    match value {
        Some(0.0) => "0".to_owned(),
        Some(value) if value < 0.01 => "< 0.01".to_owned(),
        value => shown(value, 2),
    }
}

/// Writes all tables.
pub fn write(
    report: &mut Report<'_>,
    measured: &[Measured],
    answers: &[Answer],
) -> anyhow::Result<()> {
    verdicts(report, measured)?;
    summary(report, measured)?;
    open(report, answers)?;
    for one in measured {
        loss(report, one)?;
        cpu(report, one)?;
        searchable(report, one)?;
    }
    every_cell(report, measured)
}

/// What was to be shown, and whether it was.
fn verdicts(report: &mut Report<'_>, measured: &[Measured]) -> anyhow::Result<()> {
    let headings = ["what", "measured", "goal", "is"];
    let mut sheet = Sheet::new("verdicts", "What was to be shown", &headings).of_words();
    let said = |is_met: bool| if is_met { "met" } else { "missed" }.to_owned();
    for one in measured {
        let free = |program| one.number_of(program).map(|number| one.loads_without_loss(number));
        let best = |program| one.best(one.number_of(program)?);
        let name = |program| {
            best(program).map_or("none".to_owned(), |(load, rate)| {
                format!("{} ({:.1} k reached)", one.loads[load].name(), rate / 1e3)
            })
        };
        sheet.row(vec![
            format!("{}: highest step without loss, tapdex, with the index built", one.name),
            name(Program::Tapdex),
            format!("at least dumpcap's: {}", name(Program::Dumpcap)),
            said(free(Program::Tapdex) >= free(Program::Dumpcap)),
        ]);
    }
    for program in [Program::Tapdex, Program::Dumpcap, Program::Tcpdump] {
        let of_program = measured.iter().flat_map(|one| {
            one.cells.iter().filter(move |cell| one.contestants[cell.contestant].program == program)
        });
        let balanced: Vec<bool> = of_program.map(Cell::is_balanced).collect();
        let good = balanced.iter().filter(|&&is_good| is_good).count();
        sheet.row(vec![
            format!("{}: stored and reported losses are what was sent", program.name()),
            format!("{good} of {} times", balanced.len()),
            "always".to_owned(),
            said(good == balanced.len()),
        ]);
    }
    report.table(&sheet, None)?;
    Ok(())
}

/// The main numbers of each program.
fn summary(report: &mut Report<'_>, measured: &[Measured]) -> anyhow::Result<()> {
    let mut sheet = Sheet::new(
        "summary",
        "Highest rate without loss, and what is lost above",
        &[
            "traffic, program",
            "step",
            "k packets/s",
            "Gb/s",
            "lost at top, %",
            "with two senders, %",
            "CPU, ns a packet",
        ],
    );
    for one in measured {
        let common = one.common_load();
        for (number, who) in one.contestants.iter().enumerate() {
            let best = one.best(number).map(|(load, _)| load);
            let at_best = |of| best.and_then(|load| one.median(number, load, of));
            let lost_at = |back: usize| one.loss(number, one.loads.len() - back);
            sheet.row(vec![
                format!("{}, {}", one.name, who.name()),
                best.map_or("none".to_owned(), |load| one.loads[load].name()),
                shown(at_best(Cell::packets_a_second).map(|rate| rate / 1e3), 1),
                shown(at_best(Cell::gigabits_a_second), 2),
                percent(lost_at(2)),
                percent(lost_at(1)),
                shown(one.median(number, common, Cell::cpu_ns), 0),
            ]);
        }
        sheet.remarks.push(format!(
            "{}: processor time is that at step {}, the highest at which none of those with the \
             same ring lost a packet, or else the lowest.",
            one.name,
            one.loads[common].name()
        ));
    }
    sheet.remarks.push(
        "The rates are those that the sender reached in the median round, not those it was asked \
         for."
            .to_owned(),
    );
    report.table(&sheet, None)?;
    Ok(())
}

/// A heading for each contestant behind the first.
fn headings<'a>(one: &'a Measured, first: &'a str) -> Vec<&'a str> {
    std::iter::once(first).chain(one.contestants.iter().map(|who| who.name())).collect()
}

/// A line for each contestant over the rates that were reached.
fn lines(
    one: &Measured,
    value: impl Fn(usize, usize) -> Option<f64>,
    is_shown: impl Fn(usize) -> bool,
) -> Vec<Line> {
    let of = |(number, label): (usize, &str)| {
        let mut points: Vec<(f64, f64)> = (0..one.loads.len())
            .filter_map(|load| {
                let rate = one.median(number, load, Cell::packets_a_second)?;
                Some((rate / 1e3, value(number, load)?))
            })
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Line { label: label.to_owned(), points_only: false, points }
    };
    let names = one.contestants.iter().map(|who| who.name()).enumerate();
    names.filter(|(number, _)| is_shown(*number)).map(of).collect()
}

fn loss(report: &mut Report<'_>, one: &Measured) -> anyhow::Result<()> {
    let title = format!("Lost packets, {} frames: percent of those that were sent", one.name);
    let name = format!("loss-{}", one.name);
    let mut sheet = Sheet::new(&name, &title, &headings(one, "packets/s"));
    for (load, how) in one.loads.iter().enumerate() {
        let losses = (0..one.contestants.len()).map(|number| percent(one.loss(number, load)));
        sheet.row(std::iter::once(how.name()).chain(losses).collect());
    }
    let plot = Plot::Lines(Lines {
        title: format!("Lost packets, {} frames", one.name),
        x: "thousand packets/s that were sent".to_owned(),
        y: "percent lost".to_owned(),
        log_x: false,
        log_y: false,
        lines: lines(one, |number, load| one.loss(number, load), |_| true),
    });
    report.table(&sheet, Some(&plot))?;
    Ok(())
}

fn cpu(report: &mut Report<'_>, one: &Measured) -> anyhow::Result<()> {
    let title = format!("Processor time of the recorder, {} frames: ns a packet stored", one.name);
    let mut sheet = Sheet::new(&format!("cpu-{}", one.name), &title, &headings(one, "packets/s"));
    let value = |number, load| one.median(number, load, Cell::cpu_ns);
    for (load, how) in one.loads.iter().enumerate() {
        let times = (0..one.contestants.len()).map(|number| shown(value(number, load), 0));
        sheet.row(std::iter::once(how.name()).chain(times).collect());
    }
    let plot = Plot::Lines(Lines {
        title: format!("Processor time of a packet, {} frames", one.name),
        x: "thousand packets/s that were sent".to_owned(),
        y: "ns a packet, user and system".to_owned(),
        log_x: false,
        log_y: false,
        lines: lines(one, value, |number| !one.contestants[number].own),
    });
    report.table(&sheet, Some(&plot))?;
    Ok(())
}

/// How long until all is sealed and indexed.
fn searchable(report: &mut Report<'_>, one: &Measured) -> anyhow::Result<()> {
    let Some(tapdex) = one.number_of(Program::Tapdex) else { return Ok(()) };
    let mut sheet = Sheet::new(
        &format!("searchable-{}", one.name),
        &format!("tapdex, {} frames: from the last packet to all sealed and indexed", one.name),
        &["packets/s", "ms", "from", "to", "packets", "k packets/s, first to searchable", "Gb/s"],
    );
    let end_ms = |cell: &Cell| 1e3 * cell.stored.end_seconds;
    let end_gigabits = |cell: &Cell| {
        8e-9 * cell.done_a_second() * cell.sent.bytes as f64 / cell.sent.packets.max(1) as f64
    };
    for (load, how) in one.loads.iter().enumerate() {
        let all = || one.cells(tapdex, load).map(end_ms);
        let packets = |cell: &Cell| cell.stored.packets as f64;
        sheet.row(vec![
            how.name(),
            shown(one.median(tapdex, load, end_ms), 0),
            shown(all().min_by(f64::total_cmp), 0),
            shown(all().max_by(f64::total_cmp), 0),
            shown(one.median(tapdex, load, packets), 0),
            shown(one.median(tapdex, load, Cell::done_a_second).map(|rate| rate / 1e3), 1),
            shown(one.median(tapdex, load, end_gigabits), 2),
        ]);
    }
    report.table(&sheet, None)?;
    Ok(())
}

/// How long answers take while the recording is open.
fn open(report: &mut Report<'_>, answers: &[Answer]) -> anyhow::Result<()> {
    let mut sheet = Sheet::new(
        "open",
        "Questions about a recording that is being written, and when it is complete",
        &[
            "traffic, question",
            "packets",
            "found",
            "tcpdump, ms",
            "tapdex, open, ms",
            "times",
            "tapdex, complete, ms",
        ],
    );
    for one in answers {
        sheet.row(vec![
            format!("{}, `{}`", one.traffic, one.question),
            one.packets.to_string(),
            one.found.to_string(),
            format!("{:.1}", 1e3 * one.tcpdump_seconds),
            format!("{:.1}", 1e3 * one.open_seconds),
            format!("{:.1}", one.tcpdump_seconds / one.open_seconds),
            format!("{:.1}", 1e3 * one.sealed_seconds),
        ]);
    }
    sheet.remarks.push(
        "Whole processes, their start included; tcpdump reads the same unfinished file.".to_owned(),
    );
    report.table(&sheet, None)?;
    Ok(())
}

fn every_cell(report: &mut Report<'_>, measured: &[Measured]) -> anyhow::Result<()> {
    let mut sheet = Sheet::new(
        "cells",
        "Every time",
        &[
            "traffic, program",
            "packets/s",
            "round",
            "k packets/s",
            "Gb/s",
            "sent",
            "delivered",
            "stored",
            "lost",
            "reported as lost",
            "adds up",
            "CPU, s",
            "CPU, ns a packet",
            "end, s",
        ],
    );
    for one in measured {
        for cell in &one.cells {
            sheet.row(vec![
                format!("{}, {}", one.name, one.contestants[cell.contestant].name()),
                one.loads[cell.load].name(),
                (cell.round + 1).to_string(),
                format!("{:.1}", cell.packets_a_second() / 1e3),
                format!("{:.3}", cell.gigabits_a_second()),
                cell.sent.packets.to_string(),
                cell.sent.delivered.to_string(),
                cell.stored.packets.to_string(),
                cell.lost().to_string(),
                cell.stored.lost.to_string(),
                if cell.is_balanced() { "yes" } else { "no" }.to_owned(),
                format!("{:.3}", cell.stored.cpu_seconds),
                format!("{:.0}", cell.cpu_ns()),
                format!("{:.3}", cell.stored.end_seconds),
            ]);
        }
    }
    report.table(&sheet, None)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::programs::{Contestant, Stored};
    use super::super::wire::{Load, Sent};
    use super::*;

    /// Two programs at three loads; the losses of each, load by load, with a round each.
    fn measured(losses: [[&[u64]; 3]; 2]) -> Measured {
        let mut cells = Vec::new();
        for (contestant, loads) in losses.iter().enumerate() {
            for (load, rounds) in loads.iter().enumerate() {
                for (round, &lost) in (0..).zip(*rounds) {
                    let sent = Sent { packets: 100, bytes: 7_000, seconds: 0.1, delivered: 100 };
                    let packets = 100 - lost;
                    let stored = Stored { packets, lost, cpu_seconds: 1e-5, end_seconds: 0.1 };
                    cells.push(Cell { round, load, contestant, sent, stored });
                }
            }
        }
        Measured {
            name: "mixed",
            mean_len: 70.0,
            contestants: [Program::Tapdex, Program::Dumpcap]
                .map(|program| Contestant { program, own: false })
                .to_vec(),
            loads: vec![Load::PerSecond(1_000), Load::PerSecond(2_000), Load::Top],
            cells,
        }
    }

    #[test]
    fn no_loss_in_any_round_up_to_the_highest() {
        // One round of the second load loses a packet; what comes after it does not count.
        let one = measured([[&[0, 0], &[0, 1], &[0, 0]], [&[0, 0], &[0, 0], &[0, 9]]]);
        assert_eq!((one.loads_without_loss(0), one.loads_without_loss(1)), (1, 2));
        assert_eq!(one.common_load(), 0);
        assert_eq!(one.loss(0, 1), Some(0.5));
        assert_eq!(one.loss(1, 2), Some(4.5));
        let all = measured([[&[0], &[0], &[0]], [&[0], &[0], &[0]]]);
        assert_eq!((all.loads_without_loss(0), all.common_load()), (3, 2));
        let none = measured([[&[1], &[0], &[0]], [&[0], &[0], &[]]]);
        assert_eq!((none.loads_without_loss(0), none.common_load()), (0, 0));
        // It took no part in the last one.
        assert_eq!((none.loads_without_loss(1), none.loss(1, 2)), (2, None));
    }

    #[test]
    fn a_loss_is_never_shown_as_none() {
        assert_eq!(percent(Some(0.0)), "0");
        assert_eq!(percent(Some(0.001)), "< 0.01");
        assert_eq!(percent(Some(12.345)), "12.35");
        assert_eq!(percent(None), "-");
    }

    #[test]
    fn the_goal_is_dumpcaps_highest_step() {
        let verdict = |one: Measured| {
            let mut out = Vec::new();
            let mut report = Report::new(&mut out, None).unwrap();
            verdicts(&mut report, &[one]).unwrap();
            String::from_utf8(out).unwrap()
        };
        let text = verdict(measured([[&[0], &[0], &[0]], [&[0], &[0], &[5]]]));
        assert!(text.contains("at least dumpcap's: 2 k (1.0 k reached)  met"), "{text}");
        let text = verdict(measured([[&[0], &[5], &[0]], [&[0], &[0], &[5]]]));
        assert!(text.contains("1 k") && text.contains("missed"), "{text}");
    }
}
