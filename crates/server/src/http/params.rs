//! The parameters of a request: of its address, or of a JSON object in its body.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde_json::Value;
use tapdex_answers::question::{Language, Question};

use super::error::ApiError;

/// The most parameters.
const PARAMS_MAX: usize = 32;

/// Parameters by their names. Each is taken once; [`finish`](Self::finish) refuses what is left.
#[derive(Debug, Default)]
pub(super) struct Params(BTreeMap<String, String>);

impl Params {
    /// Those of the part of an address behind `?`.
    pub(super) fn of_query(query: &str) -> Result<Self, ApiError> {
        let mut params = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            params.add(name.into_owned(), value.into_owned())?;
        }
        Ok(params)
    }

    /// Adds those of a JSON object, whose values are text, numbers, or true and false.
    pub(super) fn add_json(&mut self, body: &[u8]) -> Result<(), ApiError> {
        let members: BTreeMap<String, Value> = serde_json::from_slice(body)
            .map_err(|error| ApiError::bad(format!("the body is no JSON object: {error}")))?;
        for (name, value) in members {
            let value = match value {
                Value::Null => continue,
                Value::String(text) => text,
                Value::Number(number) => number.to_string(),
                Value::Bool(value) => value.to_string(),
                Value::Array(_) | Value::Object(_) => {
                    let expected = "expected text, a number, true or false";
                    return Err(ApiError::bad(format!("{}: {expected}", shown(&name))));
                }
            };
            self.add(name, value)?;
        }
        Ok(())
    }

    fn add(&mut self, name: String, value: String) -> Result<(), ApiError> {
        if self.0.len() >= PARAMS_MAX {
            return Err(ApiError::bad(format!("more than {PARAMS_MAX} parameters")));
        }
        if self.0.contains_key(&name) {
            return Err(ApiError::bad(format!("{} is given twice", shown(&name))));
        }
        self.0.insert(name, value);
        Ok(())
    }

    /// A parameter as text.
    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    /// A parameter of another type, or what holds without it.
    pub(super) fn get<T: FromStr>(
        &mut self,
        name: &'static str,
        expected: &str,
    ) -> Result<Option<T>, ApiError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let value = text
            .parse()
            .map_err(|_| ApiError::bad(format!("{name}={}: expected {expected}", shown(&text))))?;
        Ok(Some(value))
    }

    /// Whether something is asked for: `true`, `1`, or the name alone.
    pub(super) fn flag(&mut self, name: &'static str) -> Result<bool, ApiError> {
        match self.text(name).as_deref() {
            None | Some("false" | "0") => Ok(false),
            Some("" | "true" | "1") => Ok(true),
            Some(other) => {
                let other = shown(other);
                Err(ApiError::bad(format!("{name}={other}: expected true or false")))
            }
        }
    }

    /// The question.
    pub(super) fn question(&mut self) -> Result<Question, ApiError> {
        let syntax = match self.text("syntax").as_deref() {
            None | Some("" | "auto") => None,
            Some("pcap") => Some(Language::Pcap),
            Some("wireshark") => Some(Language::Wireshark),
            Some(other) => {
                let expected = "expected pcap, wireshark or auto";
                return Err(ApiError::bad(format!("syntax={}: {expected}", shown(other))));
            }
        };
        Ok(Question {
            q: self.text("q").unwrap_or_default(),
            syntax,
            from: self.text("from"),
            to: self.text("to"),
            utc: true,
            through_tags: self.flag("through_tags")?,
        })
    }

    /// Refuses parameters that nobody has taken.
    pub(super) fn finish(mut self) -> Result<(), ApiError> {
        // Times without a zone are always UTC here; clients may say so.
        self.flag("utc")?;
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => {
                let text = format!("{} is no parameter of this", shown(name));
                Err(ApiError::bad(text).with_hint("/openapi.json lists the parameters"))
            }
        }
    }
}

/// Text of a client for a message: short, without control characters.
pub(super) fn shown(text: &str) -> String {
    const LEN_MAX: usize = 60;
    let start: String = text.chars().take(LEN_MAX).collect();
    let dots = if start.len() < text.len() { ".." } else { "" };
    format!("{}{dots}", start.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_addresses_and_bodies_are_the_same() {
        let mut params =
            Params::of_query("q=udp%20port+53&n=7&whole&follow=0&from=-1h&reason=").unwrap();
        let mut json = Params::default();
        json.add_json(br#"{"q":"udp port 53","n":7,"whole":true,"follow":false,"from":"-1h"}"#)
            .unwrap();
        for params in [&mut params, &mut json] {
            let question = params.question().unwrap();
            assert_eq!(
                (question.q.as_str(), question.from.as_deref()),
                ("udp port 53", Some("-1h"))
            );
            assert_eq!(params.get::<u64>("n", "a number").unwrap(), Some(7));
            assert!(params.flag("whole").unwrap() && !params.flag("follow").unwrap());
        }
        assert_eq!(params.text("reason").as_deref(), Some(""));
        params.finish().unwrap();
        json.finish().unwrap();
    }

    #[test]
    fn what_nobody_expects_is_refused() {
        assert!(Params::of_query("n=1&n=2").is_err());
        assert!(Params::of_query("x=1").unwrap().finish().is_err());
        assert!(Params::of_query("n=-1").unwrap().get::<u64>("n", "a number").is_err());
        assert!(Params::of_query("follow=maybe").unwrap().flag("follow").is_err());
        assert!(Params::of_query("syntax=sql").unwrap().question().is_err());
        let many: Vec<String> = (0..=PARAMS_MAX).map(|n| format!("p{n}=1")).collect();
        assert!(Params::of_query(&many.join("&")).is_err());
        for body in ["", "[]", "1", r#"{"q":["udp"]}"#, r#"{"q":{}}"#, "{\"q\":\"\\ud800\"}"] {
            assert!(Params::default().add_json(body.as_bytes()).is_err(), "{body}");
        }
    }
}
