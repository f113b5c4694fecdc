//! The index builder of IMC'13 as its authors describe it: a separate program, measured for
//! comparison.
//!
//! It is made from `bench/gpu/imc13.cu` and prints lines of CSV.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The peer's names for its steps, in order.
pub const STEPS: [&str; 8] =
    ["copy in", "sort", "chunks", "merge", "fills", "fuse", "table", "copy out"];

/// A line that the peer prints: one codec on one column.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The name of the codec, `wah` or `plwah`.
    pub codec: String,
    /// Bits of a value.
    pub bits: u32,
    /// Records of the column.
    pub records: usize,
    /// How many different values it has.
    pub values: u64,
    /// Words of the index a record.
    pub words: f64,
    /// Milliseconds of the whole, the median.
    pub ms: f64,
    /// Milliseconds of each of [`STEPS`], the medians.
    pub steps: [f64; STEPS.len()],
}

/// Why there are no results of the peer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// It could not be started. Name a program made from `bench/gpu/imc13.cu`.
    #[error("cannot run {program}", program = .program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It ended with an error. Its output says more.
    #[error("{program} failed: {why}", program = .program.display())]
    Failed {
        /// The program.
        program: PathBuf,
        /// What it wrote to standard error.
        why: String,
    },
    /// A line has another format. Perhaps it is another program.
    #[error("cannot make sense of {found:?}")]
    BadLine {
        /// The line.
        found: String,
    },
}

/// Runs the peer, and parses its output.
pub fn run(program: &Path) -> Result<Vec<Line>, PeerError> {
    let start = |source| PeerError::Start { program: program.to_owned(), source };
    let output = Command::new(program).output().map_err(start)?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(PeerError::Failed { program: program.to_owned(), why });
    }
    parse(&String::from_utf8_lossy(&output.stdout))
}

/// All lines but the first, which has headings.
fn parse(text: &str) -> Result<Vec<Line>, PeerError> {
    let lines = text.lines().skip(1).filter(|line| !line.is_empty());
    let bad = |line: &str| PeerError::BadLine { found: line.to_owned() };
    lines.map(|line| parse_line(line).ok_or_else(|| bad(line))).collect()
}

fn parse_line(line: &str) -> Option<Line> {
    let cells: Vec<&str> = line.split(',').collect();
    let number = |at: usize| cells.get(at)?.parse::<f64>().ok();
    Some(Line {
        codec: (*cells.first()?).to_owned(),
        bits: cells.get(1)?.parse().ok()?,
        records: cells.get(2)?.parse().ok()?,
        values: cells.get(3)?.parse().ok()?,
        words: number(4)?,
        ms: number(5)?,
        steps: (6..cells.len()).map(number).collect::<Option<Vec<f64>>>()?.try_into().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let text = "codec,bits,records,values,words a record,all ms,copy in ms\n\
                    plwah,16,20000000,256,0.992,4.415,1,2,3,4,5,6,7,0.5\n\n\
                    wah,8,5,256,1.5,2,1,1,1,1,1,1,1,1\n";
        let lines = parse(text).unwrap();
        let first = Line {
            codec: "plwah".to_owned(),
            bits: 16,
            records: 20_000_000,
            values: 256,
            words: 0.992,
            ms: 4.415,
            steps: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 0.5],
        };
        assert_eq!((&lines[0], lines.len()), (&first, 2));
        for line in ["plwah,16,many", "wah,8,5,256,1.5,2,1,1,1,1,1,1,1"] {
            let error = parse(&format!("headings\n{line}\n")).unwrap_err();
            assert_eq!(error.to_string(), format!("cannot make sense of {line:?}"));
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = run(Path::new("/no/such/program")).unwrap_err();
        assert_eq!(error.to_string(), "cannot run /no/such/program");
    }
}
