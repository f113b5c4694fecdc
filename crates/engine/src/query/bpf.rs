//! Filters as libpcap compiles them, and the machine that runs them.
//!
//! libpcap turns a filter into a program for one kind of link. Its instructions are taken over one
//! by one, checked once, and run here: a frame is a slice, so that nothing is copied and every load
//! is checked.
//!
//! # Example
//!
//! ```
//! use tapdex_engine::packet::LinkType;
//! use tapdex_engine::query::bpf::Program;
//!
//! let program = Program::compile("ether dst ff:ff:ff:ff:ff:ff", LinkType::ETHERNET, false)?;
//! let mut frame = [0; 60];
//! assert!(!program.matches(&frame, 60));
//! frame[..6].fill(0xff);
//! assert!(program.matches(&frame, 60));
//! # Ok::<(), tapdex_engine::query::bpf::BpfError>(())
//! ```
//!
//! # What holds
//!
//! - The answers are those of libpcap's own machine: a load past the captured bytes and a division
//!   by zero reject the packet, and numbers have 32 bits that wrap around.
//! - There are two exceptions. A program that reads scratch memory before it stores something there
//!   finds zeros. libpcap compiles such programs, for what follows `geneve` if that does not match,
//!   and its own machine then reads what earlier packets left there. And a program that loops
//!   forever rejects the packet.
//! - A filter that libpcap refuses with "expression rejects all packets" becomes a program that
//!   rejects all packets.
//! - Filters are compiled as `tcpdump -r` compiles them: for a file, optimised, and with 0 for the
//!   netmask, so that `ip broadcast` means the addresses 0.0.0.0 and 255.255.255.255.

mod lists;
mod long;
#[cfg(test)]
mod made;
mod proof;

use super::deep::on_large_stack;
use super::filter::Expr;
use crate::packet::LinkType;
pub(crate) use long::{Long, Notice};
pub(crate) use proof::Sameness;
use std::io::Write;
use std::os::fd::AsRawFd;

/// Why there is no program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BpfError {
    /// libpcap refused the filter for this kind of link.
    #[error("libpcap does not take the filter for {link}: {message}")]
    Refused {
        /// The kind of link.
        link: LinkType,
        /// What libpcap says.
        message: String,
    },
    /// No file could be made for libpcap to compile for.
    #[error("no pipe to libpcap: {0}")]
    Pipe(#[from] std::io::Error),
    /// libpcap gave an instruction that its machine does not have, or a jump out of the program.
    #[error("instruction {at} of the compiled filter is not valid: {instruction}")]
    Instruction {
        /// Its place in the program.
        at: usize,
        /// Code, both jumps and the number, as libpcap has them.
        instruction: String,
    },
}

/// A compiled filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    steps: Vec<Step>,
    /// Sets of numbers that are each tested at once, ascending.
    sets: Vec<Box<[u32]>>,
}

/// An instruction, with its jumps as places in the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    code: Code,
    yes: u32,
    no: u32,
    k: u32,
    /// The number that the loaded value is compared with.
    equal: u32,
}

/// How many bytes a load takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Size {
    Byte,
    Half,
    Word,
}

/// What an instruction computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Alu {
    Add,
    Sub,
    Mul,
    Div,
    Or,
    And,
    Lsh,
    Rsh,
    Mod,
    Xor,
}

/// How a jump compares the accumulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Ask {
    Eq,
    Gt,
    Ge,
    Set,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Code {
    LoadAt(Size),
    /// The same, and then [`Ask::Eq`]: two steps of most programs in one.
    LoadAtAsk(Size),
    LoadFrom(Size),
    LoadLen,
    LoadLenX,
    LoadNumber,
    LoadNumberX,
    LoadMemory,
    LoadMemoryX,
    LoadHeaderLen,
    Store,
    StoreX,
    AluNumber(Alu),
    AluX(Alu),
    Negate,
    Jump,
    AskNumber(Ask),
    AskX(Ask),
    /// Whether the accumulator is in a set.
    AskSet,
    Return,
    ReturnA,
    AToX,
    XToA,
}

/// Jumps after which a packet is rejected. `protochain` loops, and some programs for it loop
/// forever on some packets, in libpcap's machine as well; no packet has this many headers.
const JUMPS_MAX: usize = 1 << 16;

/// Words of scratch memory.
const MEMORY: usize = 16;

/// Filters of this many bytes or more are optimised only when needed: libpcap may take minutes for
/// it.
const OPTIMIZED_LEN_MAX: usize = 8 << 10;

/// The most bytes of a filter that is compared with its optimised program. Compiling longer ones
/// takes longer than answering them.
const COMPARED_LEN_MAX: usize = 1 << 10;

/// Filters of up to this many bytes are compiled on any stack.
const SHORT_LEN: usize = 2 << 10;

/// The snapshot length of the files that filters are compiled for.
const SNAPLEN: u32 = 262_144;

impl Program {
    /// Compiles a filter for a kind of link. A file in the other byte order is `swapped`.
    ///
    /// libpcap compiles for the handle of an open file: for some links its code depends on that
    /// file's byte order. So it is given one that has a header and nothing else.
    pub fn compile(text: &str, link: LinkType, swapped: bool) -> Result<Self, BpfError> {
        Self::compile_as(text, link, swapped, true)
    }

    fn compile_as(
        text: &str,
        link: LinkType,
        swapped: bool,
        optimize: bool,
    ) -> Result<Self, BpfError> {
        let steps = Step::compile(text, link, swapped, optimize)?;
        Ok(Self { steps: joined(steps), sets: Vec::new() })
    }

    /// Whether it means what its filter says, or the optimiser changed the meaning.
    fn compare_with_plain(
        &self,
        text: &str,
        link: LinkType,
        swapped: bool,
    ) -> Result<Sameness, BpfError> {
        let plain = Self::compile_as(text, link, swapped, false)?;
        Ok(proof::compare(self, &plain, proof::STEPS_MAX))
    }

    /// Whether no packet can match: libpcap calls it "expression rejects all packets".
    pub fn rejects_all(&self) -> bool {
        matches!(self.steps.as_slice(), [Step { code: Code::Return, k: 0, .. }])
    }

    /// How many instructions it has.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether it has none; a compiled program has at least one.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether it matches a frame; `frame` is the captured part, `wire_len` the length on the wire.
    pub fn matches(&self, frame: &[u8], wire_len: u32) -> bool {
        self.run(frame, wire_len, &mut [0; MEMORY]).unwrap_or(0) != 0
    }

    /// Whether it ends for this frame; if not, libpcap's machine loops forever.
    #[cfg(feature = "testing")]
    pub fn ends(&self, frame: &[u8], wire_len: u32) -> bool {
        let mut jumps = JUMPS_MAX;
        _ = self.run_for(frame, wire_len, &mut [0; MEMORY], &mut jumps);
        jumps > 0
    }

    /// Whether, for this frame, it reads scratch memory before storing something there. libpcap's
    /// machine then finds what earlier packets left.
    #[cfg(feature = "testing")]
    pub fn reads_unset_memory(&self, frame: &[u8], wire_len: u32) -> bool {
        let mut memory = Watched { words: [0; MEMORY], stored: [false; MEMORY], unset: false };
        _ = self.run(frame, wire_len, &mut memory);
        memory.unset
    }

    /// What it returns; `None` if a load or a division ended it.
    fn run(&self, frame: &[u8], wire_len: u32, memory: &mut impl Memory) -> Option<u32> {
        self.run_for(frame, wire_len, memory, &mut { JUMPS_MAX })
    }

    /// The same, with a limit of jumps, which is counted down.
    fn run_for(
        &self,
        frame: &[u8],
        wire_len: u32,
        memory: &mut impl Memory,
        jumps: &mut usize,
    ) -> Option<u32> {
        let (mut a, mut x) = (0_u32, 0_u32);
        let mut at = 0_usize;
        loop {
            let step = self.steps.get(at)?;
            let k = step.k;
            at += 1;
            match step.code {
                Code::LoadAt(size) => a = load(frame, u64::from(k), size)?,
                Code::LoadAtAsk(size) => {
                    a = load(frame, u64::from(k), size)?;
                    at = step.next(a == step.equal);
                }
                Code::LoadFrom(size) => a = load(frame, u64::from(x) + u64::from(k), size)?,
                Code::LoadLen => a = wire_len,
                Code::LoadLenX => x = wire_len,
                Code::LoadNumber => a = k,
                Code::LoadNumberX => x = k,
                Code::LoadMemory => a = memory.load(k as usize)?,
                Code::LoadMemoryX => x = memory.load(k as usize)?,
                Code::LoadHeaderLen => x = (load(frame, u64::from(k), Size::Byte)? & 15) << 2,
                Code::Store => memory.store(k as usize, a)?,
                Code::StoreX => memory.store(k as usize, x)?,
                Code::AluNumber(alu) => a = alu.apply(a, k)?,
                Code::AluX(alu) => a = alu.apply(a, x)?,
                Code::Negate => a = a.wrapping_neg(),
                Code::Jump => {
                    // Only these jump backwards.
                    *jumps = jumps.checked_sub(1)?;
                    at = step.yes as usize;
                }
                Code::AskNumber(ask) => at = step.next(ask.holds(a, k)),
                Code::AskX(ask) => at = step.next(ask.holds(a, x)),
                Code::AskSet => {
                    at = step.next(self.sets.get(k as usize)?.binary_search(&a).is_ok());
                }
                Code::Return => return Some(k),
                Code::ReturnA => return Some(a),
                Code::AToX => x = a,
                Code::XToA => a = x,
            }
        }
    }
}

/// A filter that answers like libpcap's optimised program for it, however long it is.
#[derive(Debug)]
pub(crate) enum Compiled {
    /// That program.
    Program(Program),
    /// A long filter, which compiles that program only if it is needed.
    Long(Box<Long>),
}

impl Compiled {
    /// Compiles a filter for a kind of link. `notice`, if given, is called with what takes long.
    pub(crate) fn of(
        expr: &Expr,
        link: LinkType,
        swapped: bool,
        notice: Option<Notice>,
    ) -> Result<Self, BpfError> {
        if let Some(program) = Program::widened(expr, lists::LIST_MIN, link, swapped)? {
            return Ok(Self::Program(program));
        }
        let text = expr.to_string();
        if text.len() < OPTIMIZED_LEN_MAX || !Self::is_kept(expr, link, swapped) {
            return Ok(Self::Program(Program::compile(&text, link, swapped)?));
        }
        Ok(Self::Long(Box::new(Long::of(expr, link, swapped, notice)?)))
    }

    /// Whether libpcap's optimiser keeps the meaning of a filter; assumed so if it cannot be found
    /// out. Of many conditions that differ only in their values, just some are looked at.
    pub(crate) fn is_kept(expr: &Expr, link: LinkType, swapped: bool) -> bool {
        let mut text = expr.to_string();
        if text.len() > COMPARED_LEN_MAX {
            text = long::outline(expr, |_| true).to_string();
        }
        if text.len() > COMPARED_LEN_MAX {
            return true;
        }
        let compared = Program::compile(&text, link, swapped)
            .and_then(|program| program.compare_with_plain(&text, link, swapped));
        !matches!(compared, Ok(Sameness::Differs))
    }

    /// Whether no packet can match: libpcap calls it "expression rejects all packets". Always
    /// `false` for long filters.
    pub(crate) fn rejects_all(&self) -> bool {
        match self {
            Self::Program(program) => program.rejects_all(),
            Self::Long(_) => false,
        }
    }

    /// Whether it matches a frame; `frame` is the captured part, `wire_len` the length on the wire.
    pub(crate) fn matches(&self, frame: &[u8], wire_len: u32) -> bool {
        match self {
            Self::Program(program) => program.matches(frame, wire_len),
            Self::Long(long) => long.matches(frame, wire_len),
        }
    }
}

/// Scratch memory.
trait Memory {
    fn load(&mut self, at: usize) -> Option<u32>;
    fn store(&mut self, at: usize, value: u32) -> Option<()>;
}

impl Memory for [u32; MEMORY] {
    #[inline]
    fn load(&mut self, at: usize) -> Option<u32> {
        self.get(at).copied()
    }

    #[inline]
    fn store(&mut self, at: usize, value: u32) -> Option<()> {
        *self.get_mut(at)? = value;
        Some(())
    }
}

/// Scratch memory, and whether something was loaded that had not been stored.
#[cfg(feature = "testing")]
struct Watched {
    words: [u32; MEMORY],
    stored: [bool; MEMORY],
    unset: bool,
}

#[cfg(feature = "testing")]
impl Memory for Watched {
    fn load(&mut self, at: usize) -> Option<u32> {
        self.unset |= !self.stored.get(at)?;
        self.words.load(at)
    }

    fn store(&mut self, at: usize, value: u32) -> Option<()> {
        *self.stored.get_mut(at)? = true;
        self.words.store(at, value)
    }
}

/// What libpcap says about a filter that matches nothing.
const REJECTS_ALL: &str = "expression rejects all packets";

fn libpcap_message(error: pcap::Error) -> String {
    match error {
        pcap::Error::PcapError(message) => message,
        other => other.to_string(),
    }
}

/// A file of that kind of link, without packets.
fn savefile(
    link: LinkType,
    swapped: bool,
) -> Result<Result<pcap::Capture<pcap::Offline>, pcap::Error>, BpfError> {
    let big = swapped == cfg!(target_endian = "little");
    let word = |value: u32| if big { value.swap_bytes() } else { value }.to_le_bytes();
    let half = |value: u16| if big { value.swap_bytes() } else { value }.to_le_bytes();
    let mut header = Vec::with_capacity(24);
    header.extend(word(0xA1B2_C3D4));
    header.extend(half(2));
    header.extend(half(4));
    header.extend([0; 8]);
    header.extend(word(SNAPLEN));
    header.extend(word(u32::from(link.0)));
    let (reader, mut writer) = std::io::pipe()?;
    writer.write_all(&header)?;
    drop(writer);
    Ok(pcap::Capture::from_file(format!("/dev/fd/{}", reader.as_raw_fd())))
}

/// Joins each load with the test that follows. The test also stays where it is: other instructions
/// may jump to it.
fn joined(mut steps: Vec<Step>) -> Vec<Step> {
    for at in 1..steps.len() {
        let (load, ask) = (steps[at - 1], steps[at]);
        if let (Code::LoadAt(size), Code::AskNumber(Ask::Eq)) = (load.code, ask.code) {
            let code = Code::LoadAtAsk(size);
            steps[at - 1] = Step { code, yes: ask.yes, no: ask.no, k: load.k, equal: ask.k };
        }
    }
    steps
}

impl Step {
    /// Compiles a filter with libpcap.
    fn compile(
        text: &str,
        link: LinkType,
        swapped: bool,
        optimize: bool,
    ) -> Result<Vec<Self>, BpfError> {
        let refused =
            |error: pcap::Error| BpfError::Refused { link, message: libpcap_message(error) };
        let file = savefile(link, swapped)?.map_err(refused)?;
        let lines = move || -> Result<Vec<String>, pcap::Error> {
            let compiled = file.compile(text, optimize)?;
            Ok(compiled.get_instructions().iter().map(ToString::to_string).collect())
        };
        // libpcap recurses for each condition that follows another.
        let lines = match text.len() {
            ..SHORT_LEN => lines(),
            _ => on_large_stack(lines)?,
        };
        match lines {
            Ok(lines) => Self::from_lines(&lines),
            Err(pcap::Error::PcapError(message)) if message == REJECTS_ALL => {
                Ok(vec![Self { code: Code::Return, yes: 0, no: 0, k: 0, equal: 0 }])
            }
            Err(error) => Err(refused(error)),
        }
    }

    /// Instructions from lines of code, both jumps and number, as `tcpdump -ddd` prints them.
    fn from_lines(lines: &[String]) -> Result<Vec<Self>, BpfError> {
        let steps = lines.iter().enumerate().map(|(at, line)| {
            let step = Self::from_line(at, line, lines.len());
            step.ok_or_else(|| BpfError::Instruction { at, instruction: line.clone() })
        });
        let steps = steps.collect::<Result<Vec<_>, _>>()?;
        // Nothing runs off the end: the last instruction returns or jumps.
        match steps.last() {
            Some(Self { code: Code::Return | Code::ReturnA | Code::Jump, .. }) => Ok(steps),
            _ => Err(BpfError::Instruction {
                at: lines.len(),
                instruction: "the program has no end".into(),
            }),
        }
    }

    /// An instruction from its text; `None` if there is no such instruction, or it jumps out of the
    /// program.
    fn from_line(at: usize, line: &str, len: usize) -> Option<Self> {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<i64>);
        let mut number = || numbers.next()?.ok();
        let code = u16::try_from(number()?).ok()?;
        let (jt, jf) = (u8::try_from(number()?).ok()?, u8::try_from(number()?).ok()?);
        let k = number()?;
        let k = u32::try_from(k).ok().or_else(|| i32::try_from(k).ok().map(i32::cast_unsigned))?;
        let alu = |code: u16| {
            Some(match code & 0xF0 {
                0x00 => Alu::Add,
                0x10 => Alu::Sub,
                0x20 => Alu::Mul,
                0x30 => Alu::Div,
                0x40 => Alu::Or,
                0x50 => Alu::And,
                0x60 => Alu::Lsh,
                0x70 => Alu::Rsh,
                0x90 => Alu::Mod,
                0xA0 => Alu::Xor,
                _ => return None,
            })
        };
        let ask = |code: u16| {
            Some(match code & 0xF0 {
                0x10 => Ask::Eq,
                0x20 => Ask::Gt,
                0x30 => Ask::Ge,
                0x40 => Ask::Set,
                _ => return None,
            })
        };
        let code = match code {
            0x20 => Code::LoadAt(Size::Word),
            0x28 => Code::LoadAt(Size::Half),
            0x30 => Code::LoadAt(Size::Byte),
            0x40 => Code::LoadFrom(Size::Word),
            0x48 => Code::LoadFrom(Size::Half),
            0x50 => Code::LoadFrom(Size::Byte),
            0x80 => Code::LoadLen,
            0x81 => Code::LoadLenX,
            0x00 => Code::LoadNumber,
            0x01 => Code::LoadNumberX,
            0x60 => Code::LoadMemory,
            0x61 => Code::LoadMemoryX,
            0xB1 => Code::LoadHeaderLen,
            0x02 => Code::Store,
            0x03 => Code::StoreX,
            0x84 => Code::Negate,
            0x05 => Code::Jump,
            0x06 => Code::Return,
            0x16 => Code::ReturnA,
            0x07 => Code::AToX,
            0x87 => Code::XToA,
            code if code & !0xF0 == 0x04 => Code::AluNumber(alu(code)?),
            code if code & !0xF0 == 0x0C => Code::AluX(alu(code)?),
            code if code & !0xF0 == 0x05 => Code::AskNumber(ask(code)?),
            code if code & !0xF0 == 0x0D => Code::AskX(ask(code)?),
            _ => return None,
        };
        let memory =
            matches!(code, Code::LoadMemory | Code::LoadMemoryX | Code::Store | Code::StoreX);
        if memory && k as usize >= MEMORY {
            return None;
        }
        let target = |offset: i64| {
            let target = i64::try_from(at).ok()?.checked_add(1)?.checked_add(offset)?;
            let inside = usize::try_from(target).is_ok_and(|target| target < len);
            if inside { u32::try_from(target).ok() } else { None }
        };
        let (yes, no) = match code {
            // `protochain` loops: the offset may be negative.
            Code::Jump => {
                let place = target(i64::from(k.cast_signed()))?;
                (place, place)
            }
            Code::AskNumber(_) | Code::AskX(_) => (target(i64::from(jt))?, target(i64::from(jf))?),
            _ => (0, 0),
        };
        Some(Self { code, yes, no, k, equal: 0 })
    }

    fn is_ask(&self) -> bool {
        matches!(self.code, Code::LoadAtAsk(_) | Code::AskNumber(_) | Code::AskX(_))
    }

    fn next(&self, holds: bool) -> usize {
        (if holds { self.yes } else { self.no }) as usize
    }
}

impl Alu {
    fn apply(self, a: u32, b: u32) -> Option<u32> {
        Some(match self {
            Self::Add => a.wrapping_add(b),
            Self::Sub => a.wrapping_sub(b),
            Self::Mul => a.wrapping_mul(b),
            Self::Div => a.checked_div(b)?,
            Self::Or => a | b,
            Self::And => a & b,
            Self::Lsh => a.checked_shl(b).unwrap_or(0),
            Self::Rsh => a.checked_shr(b).unwrap_or(0),
            Self::Mod => a.checked_rem(b)?,
            Self::Xor => a ^ b,
        })
    }
}

impl Ask {
    fn holds(self, a: u32, b: u32) -> bool {
        match self {
            Self::Eq => a == b,
            Self::Gt => a > b,
            Self::Ge => a >= b,
            Self::Set => a & b != 0,
        }
    }
}

#[allow(clippy::big_endian_bytes, reason = "network headers")]
fn load(frame: &[u8], at: u64, size: Size) -> Option<u32> {
    let tail = frame.get(usize::try_from(at).ok()?..)?;
    Some(match size {
        Size::Byte => u32::from(*tail.first()?),
        Size::Half => u32::from(u16::from_be_bytes(*tail.first_chunk()?)),
        Size::Word => u32::from_be_bytes(*tail.first_chunk()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(lines: &[&str]) -> Result<Program, BpfError> {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        Ok(Program { steps: joined(Step::from_lines(&lines)?), sets: Vec::new() })
    }

    /// Runs instructions, and then returns the accumulator.
    fn run(lines: &[&str], frame: &[u8]) -> Option<u32> {
        let mut lines = lines.to_vec();
        lines.push("22 0 0 0");
        program(&lines).unwrap().run(frame, 1000, &mut [0; MEMORY])
    }

    #[test]
    fn loads() {
        let frame = [1, 2, 3, 4, 0x45, 6];
        assert_eq!(run(&["32 0 0 2"], &frame), Some(0x0304_4506));
        assert_eq!(run(&["32 0 0 3"], &frame), None);
        assert_eq!(run(&["40 0 0 4"], &frame), Some(0x4506));
        assert_eq!(run(&["40 0 0 5"], &frame), None);
        assert_eq!(run(&["48 0 0 5"], &frame), Some(6));
        assert_eq!(run(&["48 0 0 6"], &frame), None);
        assert_eq!(run(&["48 0 0 4294967295"], &frame), None);
        assert_eq!(run(&["1 0 0 1", "64 0 0 1"], &frame), Some(0x0304_4506));
        assert_eq!(run(&["1 0 0 1", "64 0 0 2"], &frame), None);
        // The sum of index and offset does not wrap around.
        assert_eq!(run(&["1 0 0 2", "80 0 0 4294967295"], &frame), None);
        assert_eq!(run(&["128 0 0 0"], &frame), Some(1000));
        assert_eq!(run(&["129 0 0 0", "135 0 0 0"], &frame), Some(1000));
        assert_eq!(run(&["177 0 0 4", "135 0 0 0"], &frame), Some(20));
        assert_eq!(run(&["177 0 0 6", "135 0 0 0"], &frame), None);
        assert_eq!(run(&["0 0 0 7", "2 0 0 15", "0 0 0 1", "96 0 0 15"], &frame), Some(7));
        assert_eq!(run(&["1 0 0 9", "3 0 0 3", "97 0 0 3", "135 0 0 0"], &frame), Some(9));
    }

    #[test]
    fn arithmetic_has_32_bits() {
        let alu = |code: u16, a: u32, b: u32| {
            let (load, number) = (format!("0 0 0 {a}"), format!("{code} 0 0 {b}"));
            let index = (format!("1 0 0 {b}"), format!("{} 0 0 0", code + 8));
            let by_number = run(&[&load, &number], &[]);
            assert_eq!(by_number, run(&[&load, &index.0, &index.1], &[]), "{code}");
            by_number
        };
        assert_eq!(alu(0x04, u32::MAX, 2), Some(1));
        assert_eq!(alu(0x14, 1, 2), Some(u32::MAX));
        assert_eq!(alu(0x24, 1 << 31, 3), Some(1 << 31));
        assert_eq!(alu(0x34, 7, 2), Some(3));
        assert_eq!(alu(0x34, 7, 0), None);
        assert_eq!(alu(0x44, 5, 2), Some(7));
        assert_eq!(alu(0x54, 6, 3), Some(2));
        assert_eq!(alu(0x64, 3, 31), Some(1 << 31));
        assert_eq!(alu(0x64, 3, 32), Some(0));
        assert_eq!(alu(0x74, 1 << 31, 31), Some(1));
        assert_eq!(alu(0x74, 1 << 31, 40), Some(0));
        assert_eq!(alu(0x94, 7, 4), Some(3));
        assert_eq!(alu(0x94, 7, 0), None);
        assert_eq!(alu(0xA4, 6, 3), Some(5));
        assert_eq!(run(&["0 0 0 1", "132 0 0 0"], &[]), Some(u32::MAX));
    }

    #[test]
    fn programs_that_lead_out_are_refused() {
        assert!(program(&[]).is_err());
        assert!(program(&["0 0 0 0"]).is_err());
        assert!(program(&["5 0 0 1", "6 0 0 0"]).is_err());
        assert!(program(&["5 0 0 4294967294", "6 0 0 0"]).is_err());
        assert!(program(&["21 0 1 0", "6 0 0 0"]).is_err());
        assert!(program(&["96 0 0 16", "6 0 0 0"]).is_err());
        assert!(program(&["255 0 0 0", "6 0 0 0"]).is_err());
        assert!(program(&["6 0 0"]).is_err());
        assert!(program(&["5 0 0 4294967295", "6 0 0 0"]).is_ok());
    }

    #[test]
    fn programs_that_go_round_come_to_an_end() {
        let program = program(&["5 0 0 4294967295", "6 0 0 1"]).unwrap();
        assert!(!program.matches(&[], 0));
    }

    #[test]
    fn a_filter_that_rejects_all_is_a_program_that_does() {
        let program = Program::compile("ip and arp", LinkType::ETHERNET, false).unwrap();
        assert_eq!((program.len(), program.is_empty()), (1, false));
        assert!(!program.matches(&[0; 60], 60));
    }

    #[test]
    fn the_byte_order_of_the_file_counts() {
        // The address family of a BSD loopback frame is in the order of the machine that wrote it.
        let (little, big) = ([2, 0, 0, 0, 0x45], [0, 0, 0, 2, 0x45]);
        let native = Program::compile("ip", LinkType::NULL, false).unwrap();
        let swapped = Program::compile("ip", LinkType::NULL, true).unwrap();
        let little_is_native = cfg!(target_endian = "little");
        assert_eq!(native.matches(&little, 5), little_is_native);
        assert_eq!(native.matches(&big, 5), !little_is_native);
        assert_eq!(swapped.matches(&little, 5), !little_is_native);
        assert_eq!(swapped.matches(&big, 5), little_is_native);
    }

    #[test]
    fn libpcap_says_why() {
        let error = Program::compile("vlan", LinkType::RAW, false).unwrap_err();
        assert!(error.to_string().contains("no VLAN support"), "{error}");
        let error = Program::compile("tcp and\0", LinkType::RAW, false).unwrap_err();
        assert!(matches!(error, BpfError::Refused { .. }), "{error}");
    }
}
