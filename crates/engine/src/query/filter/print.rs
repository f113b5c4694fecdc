//! From an expression back to text.

use super::{Expr, FilterError, Term, Test};
use std::fmt::{Display, Formatter, Result};

/// The text of an expression, in the language that it was written in, with names resolved.
///
/// For a pcap filter it is what libpcap compiles, and it means the same as the original text.
/// libpcap reads `and` and `or` from left to right, so the first operand needs no parentheses. In
/// Wireshark's language `and` binds tighter.
impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Term(term) => f.write_str(&term.text),
            Self::Not(inner) => match **inner {
                Self::And(_) | Self::Or(_) => write!(f, "not ({inner})"),
                _ => write!(f, "not {inner}"),
            },
            Self::And(list) => joined(f, list, " and "),
            Self::Or(list) => joined(f, list, " or "),
        }
    }
}

fn joined(f: &mut Formatter<'_>, list: &[Expr], joint: &str) -> Result {
    for (at, expr) in list.iter().enumerate() {
        if at > 0 {
            f.write_str(joint)?;
        }
        match expr {
            Expr::And(_) | Expr::Or(_) if at > 0 => write!(f, "({expr})")?,
            Expr::Or(_) if of_fields(expr) => write!(f, "({expr})")?,
            _ => write!(f, "{expr}")?,
        }
    }
    Ok(())
}

/// Whether it is in Wireshark's language; then all its terms are.
fn of_fields(expr: &Expr) -> bool {
    match expr {
        Expr::And(list) | Expr::Or(list) => list.first().is_some_and(of_fields),
        Expr::Not(inner) => of_fields(inner),
        Expr::Term(Term { test, .. }) => matches!(test, Test::Field(_) | Test::Flow { .. }),
    }
}

/// The most letters of a line that are shown.
const LINE_MAX: usize = 200;

impl FilterError {
    /// The message, the line of the text that it refers to, and a mark under the place.
    ///
    /// ```
    /// use tapdex_engine::query::filter::Filter;
    ///
    /// let text = "tcp port and host 10.0.0.1";
    /// let error = Filter::parse(text, 0).unwrap_err();
    /// assert_eq!(
    ///     error.render(text),
    ///     "error: expected a port number or name after `port`\n  \
    ///      tcp port and host 10.0.0.1\n           ^^^"
    /// );
    /// ```
    pub fn render(&self, text: &str) -> String {
        let floor = |at: usize| (0..=at.min(text.len())).rfind(|at| text.is_char_boundary(*at));
        let start = floor(self.span.start).unwrap_or(0);
        let end = floor(self.span.end).unwrap_or(0).max(start);
        let (before, behind) = text.split_at(start);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line_end = behind.find('\n').map_or(text.len(), |at| start + at);
        let part = |from: usize, to: usize| text.get(from..to).unwrap_or("");
        let indent = part(line_start, start).chars().count();
        let marks = part(start, end.min(line_end)).chars().count().clamp(1, LINE_MAX);
        // Only the part of a long line around the place.
        let skipped = if indent + marks > LINE_MAX { indent - indent.min(LINE_MAX / 2) } else { 0 };
        let line = part(line_start, line_end).chars().skip(skipped).take(LINE_MAX);
        let line: String = line.map(|c| if c.is_control() { ' ' } else { c }).collect();
        let indent = indent - skipped;
        format!("error: {}\n  {line}\n  {}{}", self.message, " ".repeat(indent), "^".repeat(marks))
    }
}
