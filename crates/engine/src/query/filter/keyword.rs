//! Conditions that start with a keyword of their own.

use super::arithmetic;
use super::lexer::{Token, token};
use super::names;
use super::parser::{Operand, Parsed, Parser};
use super::primitive::TypeQualifier;
use super::{Comparison, Test};

impl Parser<'_> {
    pub(super) fn cast(&mut self, key: &str, proto: Option<&str>, start: usize) -> Parsed<Operand> {
        let made = match key {
            "broadcast" => self.place.broadcast(proto),
            _ => self.place.multicast(proto),
        };
        self.made(made, self.place.shift, start)
    }

    /// A condition that starts with a keyword.
    pub(super) fn primitive(&mut self, key: &'static str, start: usize) -> Parsed<Operand> {
        if TypeQualifier::of(key).is_some()
            || matches!(key, "src" | "dst" | "addr1" | "addr2" | "addr3" | "addr4" | "ra" | "ta")
        {
            return self.qualified(None, start);
        }
        if matches!(key, "type" | "subtype" | "dir") {
            return self.wlan(start);
        }
        self.step()?;
        let shift = self.place.shift;
        match key {
            "broadcast" | "multicast" => self.cast(key, None, start),
            "less" | "greater" => {
                let value = self.number(&format!("a number of bytes after `{key}`"))?;
                let comparison = if key == "less" { Comparison::Le } else { Comparison::Ge };
                let made = Ok((Test::Length(comparison, value), format!("{key} {value}")));
                self.made(made, shift, start)
            }
            "byte" => {
                let at = self.number("the number of a byte after `byte`")?;
                let Token::Sign(sign @ ("&" | "|" | "<" | ">" | "=")) = self.next else {
                    return self.expected("one of `&`, `|`, `<`, `>`, `=`");
                };
                self.step()?;
                let value = self.number("a number to compare the byte with")?;
                self.opaque(format!("byte {at} {sign} {value}"), start)
            }
            "ifindex" | "rnr" | "srnr" => {
                let value = self.number(&format!("a number after `{key}`"))?;
                self.opaque(format!("{key} {value}"), start)
            }
            "vlan" | "mpls" | "pppoes" | "geneve" => {
                let number = self.number_in_parentheses(&format!("a number after `{key}`"))?;
                let made = match key {
                    "vlan" => self.place.vlan(number),
                    "mpls" => self.place.mpls(number),
                    "pppoes" => self.place.pppoes(number),
                    _ => self.place.geneve(number),
                };
                self.made(made, shift, start)
            }
            "pppoed" => self.made(self.place.pppoed(), shift, start),
            "on" | "rset" => {
                let Token::Name(name) = self.next else {
                    return self.expected(&format!("a name after `{key}`"));
                };
                self.step()?;
                self.opaque(format!("{key} \\{name}"), start)
            }
            "reason" => {
                let value = match self.next {
                    Token::Number(value) => Some(value),
                    Token::Name(name) => names::find_any_case(names::PF_REASONS, name),
                    _ => None,
                };
                let Some(value) = value else {
                    return self.expected("a reason of pf after `reason`, such as `match`");
                };
                self.step()?;
                self.opaque(format!("reason {value}"), start)
            }
            "action" => match self.next {
                Token::Name(name) if names::is_any_case(names::PF_ACTIONS, name) => {
                    let text = format!("action \\{}", name.to_ascii_lowercase());
                    self.step()?;
                    self.opaque(text, start)
                }
                _ => self.expected("an action of pf after `action`, such as `pass`"),
            },
            "llc" => {
                let kind = match self.next {
                    Token::Name(name) if names::is_any_case(names::LLC_KINDS, name) => {
                        format!(" {}", name.to_ascii_lowercase())
                    }
                    Token::Key("rnr") => " rnr".to_owned(),
                    Token::Name(name) => {
                        return self.error(format!("`{name}` is not a kind of LLC frame"));
                    }
                    _ => String::new(),
                };
                if !kind.is_empty() {
                    self.step()?;
                }
                let made = self.place.llc();
                let made = made.map(|()| (Test::Opaque { within: None }, format!("llc{kind}")));
                self.made(made, shift, start)
            }
            "vpi" | "vci" | "sio" | "opc" | "dpc" | "sls" | "hsio" | "hopc" | "hdpc" | "hsls" => {
                let values = self.values(key)?;
                self.opaque(format!("{key} {values}"), start)
            }
            "inbound" | "outbound" | "lane" | "metac" | "bcc" | "oam" | "oamf4" | "oamf4ec"
            | "oamf4sc" | "sc" | "ilmic" | "connectmsg" | "metaconnect" | "fisu" | "lssu"
            | "msu" | "hfisu" | "hlssu" | "hmsu" => self.opaque(key.to_owned(), start),
            _ => {
                self.look(start)?;
                self.expected("a condition, such as `tcp` or `host 10.0.0.1`")
            }
        }
    }

    /// The value of a field of ATM or MTP: a number, a comparison, or numbers with `or`.
    fn values(&mut self, key: &str) -> Parsed<String> {
        let what = format!("a number or a comparison after `{key}`");
        if self.take_sign("(")? {
            let mut numbers = vec![self.number("a number")?.to_string()];
            while self.is_key("or") {
                self.step()?;
                numbers.push(self.number("a number")?.to_string());
            }
            if !self.take_sign(")")? {
                return self.expected("`or` or `)`");
            }
            return Ok(format!("({})", numbers.join(" or ")));
        }
        if let Token::Sign(sign) = self.next
            && arithmetic::comparison(sign).is_some()
        {
            self.step()?;
            return Ok(format!("{sign} {}", self.number("a number")?));
        }
        Ok(self.number(&what)?.to_string())
    }

    /// `type`, `subtype` and `dir` of 802.11 frames.
    pub(super) fn wlan(&mut self, start: usize) -> Parsed<Operand> {
        let Token::Key(key) = self.next else { return self.expected("`type`") };
        self.step()?;
        let text = match (key, self.next) {
            ("dir", Token::Number(value)) => format!("dir {value}"),
            ("dir", Token::Name(name)) => {
                match names::find_any_case(names::WLAN_DIRECTIONS, name) {
                    Some(value) => format!("dir {value}"),
                    None => return self.error(format!("`{name}` is not an 802.11 direction")),
                }
            }
            ("dir", _) => return self.expected("an 802.11 direction, such as `tods`"),
            ("subtype", Token::Name(name)) => {
                let found = names::WLAN_SUBTYPES.iter().find_map(|(kind, table)| {
                    names::find_any_case(table, name).map(|subtype| (kind, subtype))
                });
                match found {
                    Some((kind, subtype)) => format!("type {kind} subtype {subtype}"),
                    None => return self.error(format!("`{name}` is not an 802.11 subtype")),
                }
            }
            ("subtype", _) => return self.expected("an 802.11 subtype, such as `beacon`"),
            (_, Token::Number(value)) if value & !0x0C == 0 => self.wlan_subtype(value)?,
            (_, Token::Name(name)) => match names::find_any_case(names::WLAN_TYPES, name) {
                Some(value) => self.wlan_subtype(value)?,
                None => return self.error(format!("`{name}` is not an 802.11 type")),
            },
            _ => return self.expected("an 802.11 type: `mgt`, `ctl` or `data`"),
        };
        self.step()?;
        self.opaque(text, start)
    }

    /// What may follow an 802.11 type. The caller steps over the last token.
    fn wlan_subtype(&mut self, kind: u32) -> Parsed<String> {
        let (next, _) = token(self.text, self.span.end)?;
        if next != Token::Key("subtype") {
            return Ok(format!("type {kind}"));
        }
        self.step()?;
        self.step()?;
        let subtype = match self.next {
            Token::Number(value) if value & !0xF0 == 0 => Some(value),
            Token::Name(name) => names::wlan_subtype(kind, name),
            _ => None,
        };
        match subtype {
            Some(subtype) => Ok(format!("type {kind} subtype {subtype}")),
            None => self.expected("a subtype of that 802.11 type, such as `beacon`"),
        }
    }
}
