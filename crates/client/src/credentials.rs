//! Whom servers get to know, and which servers are trusted.
//!
//! No secret is on a command line, where all users of a machine could read it. A token comes from,
//! in this order:
//!
//! 1. the environment: `TAPDEX_TOKEN`
//! 2. a file that is named: `--token-file`
//! 3. `tapdex/credentials.toml` in `$XDG_CONFIG_HOME`, or else in `~/.config`
//!
//! The first two are for all servers of a command; the file has a table for each:
//!
//! ```toml
//! ["https://sensor1:8443"]
//! token = "tapdex_1_.."
//! fingerprint = "SHA256:.."     # of the server's certificate; nothing else is trusted then
//!
//! ["https://sensor2:8443"]
//! ca = "/etc/tapdex/ca.pem"     # who vouches for the server
//! certificate = "me.pem"        # of the client
//! key = "me.key"
//! ```
//!
//! Paths in it start from its folder. Files with secrets are refused if others may read them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

pub use crate::error::CredentialsError;

/// The most bytes of a file with credentials.
const FILE_LEN_MAX: u64 = 1 << 20;
/// The most bytes of a token.
const TOKEN_LEN_MAX: usize = 4_096;

/// The environment variable that may have a token.
pub const TOKEN_VARIABLE: &str = "TAPDEX_TOKEN";

/// What must not be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text, to be sent.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// A token that was read from `place`.
    fn new(text: &str, place: impl FnOnce() -> String) -> Result<Self, CredentialsError> {
        let text = text.trim();
        let is_token = !text.is_empty()
            && text.len() <= TOKEN_LEN_MAX
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        match is_token {
            true => Ok(Self(text.to_owned())),
            false => Err(CredentialsError::Token { place: place() }),
        }
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

/// What is known about one server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Says who asks.
    pub token: Option<Secret>,
    /// Certificates that vouch for the server, instead of those that the machine trusts.
    pub ca: Option<PathBuf>,
    /// The SHA-256 of the server's certificate: then nothing needs to vouch for it.
    pub fingerprint: Option<[u8; 32]>,
    /// The client's certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// Where credentials are looked for.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// A token for all servers.
    pub token: Option<Secret>,
    /// A file with a token for all servers.
    pub token_file: Option<PathBuf>,
    /// Certificates that vouch for all servers.
    pub ca: Option<PathBuf>,
    /// A file with a table for each server. It need not exist.
    pub file: Option<PathBuf>,
}

impl Sources {
    /// The environment, and the file of the user.
    pub fn of_user() -> Self {
        let folder = std::env::var_os("XDG_CONFIG_HOME").filter(|path| !path.is_empty());
        let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".config"));
        let folder = folder.map(PathBuf::from).or_else(home);
        let token = std::env::var(TOKEN_VARIABLE).ok();
        Self {
            token: token.filter(|token| !token.trim().is_empty()).map(Secret),
            token_file: None,
            ca: None,
            file: folder.map(|folder| folder.join("tapdex").join("credentials.toml")),
        }
    }

    /// What is known about a server.
    pub fn of_server(&self, address: &str) -> Result<Credentials, CredentialsError> {
        let mut known = match &self.file {
            Some(path) => in_file(path, address)?,
            None => Credentials::default(),
        };
        if let Some(token) = &self.token {
            known.token = Some(Secret::new(token.text(), || TOKEN_VARIABLE.to_owned())?);
        } else if let Some(path) = &self.token_file {
            let text = private(path)?;
            known.token = Some(Secret::new(&text, || path.display().to_string())?);
        }
        if let Some(ca) = &self.ca {
            known.ca = Some(ca.clone());
            // Whoever names an authority wants it to be asked.
            known.fingerprint = None;
        }
        Ok(known)
    }
}

/// A server in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    token: Option<String>,
    ca: Option<PathBuf>,
    fingerprint: Option<String>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

fn in_file(path: &Path, address: &str) -> Result<Credentials, CredentialsError> {
    let text = match private(path) {
        Err(CredentialsError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(Credentials::default());
        }
        text => text?,
    };
    let tables: BTreeMap<String, Table> = toml::from_str(&text).map_err(|error| {
        // The message alone: with its place, it would quote the line, and so the token.
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let reason = error.message().lines().next().unwrap_or_default().to_owned();
        CredentialsError::Syntax { path: path.to_owned(), line, reason }
    })?;
    let same = |name: &String| name.trim_end_matches('/').eq_ignore_ascii_case(address);
    let Some((server, table)) = tables.into_iter().find(|(name, _)| same(name)) else {
        return Ok(Credentials::default());
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let below = |file: PathBuf| folder.join(file);
    let token =
        table.token.map(|token| Secret::new(&token, || format!("{}, at {server}", path.display())));
    let fingerprint = table.fingerprint.map(|text| {
        fingerprint(&text).ok_or_else(|| CredentialsError::Fingerprint {
            path: path.to_owned(),
            server: server.clone(),
        })
    });
    let certificate = match (table.certificate, table.key) {
        (Some(certificate), Some(key)) => Some((below(certificate), below(key))),
        (None, None) => None,
        _ => return Err(CredentialsError::Key { path: path.to_owned(), server }),
    };
    Ok(Credentials {
        token: token.transpose()?,
        ca: table.ca.map(below),
        fingerprint: fingerprint.transpose()?,
        certificate,
    })
}

/// The text of a file that nobody else may read.
fn private(path: &Path) -> Result<String, CredentialsError> {
    let failed = |source| CredentialsError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    // A pipe has no readers but us.
    if about.is_file() && about.permissions().mode() & 0o077 != 0 {
        return Err(CredentialsError::Open { path: path.to_owned() });
    }
    let mut text = String::new();
    file.take(FILE_LEN_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// A SHA-256 as text: `SHA256:` and hexadecimal digits, with or without colons.
pub(crate) fn fingerprint(text: &str) -> Option<[u8; 32]> {
    let text = text.trim();
    let digits = match text.split_at_checked(7) {
        Some((head, digits)) if head.eq_ignore_ascii_case("sha256:") => digits,
        _ => text,
    };
    let digits: String = digits.chars().filter(|&letter| letter != ':').collect();
    let mut bytes = [0; 32];
    if digits.len() != 2 * bytes.len() || !digits.is_ascii() {
        return None;
    }
    for (n, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * n..2 * n + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// The same as `tapdex serve` prints it.
pub(crate) fn fingerprint_text(bytes: &[u8]) -> String {
    format!("SHA256:{}", hex(bytes))
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "https://sensor1:8443";

    fn written(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credentials.toml");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    fn of(text: &str) -> Result<Credentials, CredentialsError> {
        let (_folder, path) = written(text, 0o600);
        Sources { file: Some(path), ..Sources::default() }.of_server(SERVER)
    }

    #[test]
    fn a_server_is_found_in_the_file() {
        let digits = "ab".repeat(32);
        let text = format!(
            "[\"https://other:1\"]\ntoken = \"no\"\n[\"HTTPS://Sensor1:8443/\"]\n\
             token = \"tapdex_1_x\"\nca = \"ca.pem\"\nfingerprint = \"SHA256:{digits}\"\n\
             certificate = \"/c.pem\"\nkey = \"c.key\"\n"
        );
        let known = of(&text).unwrap();
        assert_eq!(known.token.as_ref().unwrap().text(), "tapdex_1_x");
        assert_eq!(known.fingerprint, Some([0xAB; 32]));
        assert!(known.ca.unwrap().ends_with("ca.pem"));
        let (certificate, key) = known.certificate.unwrap();
        assert_eq!(certificate, Path::new("/c.pem"));
        assert!(key.is_absolute() && key.ends_with("c.key"));
        assert_eq!(of("[\"https://other:1\"]\n").unwrap(), Credentials::default());
        let nowhere = Sources { file: Some("/nowhere/x".into()), ..Sources::default() };
        assert_eq!(nowhere.of_server(SERVER).unwrap(), Credentials::default());
    }

    #[test]
    fn secrets_are_neither_shown_nor_shared() {
        for mode in [0o640, 0o604, 0o660, 0o644] {
            let (_folder, path) = written("tapdex_1_x", mode);
            let open = |sources: Sources| {
                let error = sources.of_server(SERVER).unwrap_err();
                assert!(matches!(error, CredentialsError::Open { .. }), "{error}");
            };
            open(Sources { file: Some(path.clone()), ..Sources::default() });
            open(Sources { token_file: Some(path), ..Sources::default() });
        }
        let known = of(&format!("[\"{SERVER}\"]\ntoken = \"tapdex_1_hidden\"\n")).unwrap();
        assert!(!format!("{known:?}").contains("hidden"));
        // Errors of all kinds, beside a token.
        for wrong in ["token = \"hidden", "token = \"hidden\"\ntokem = 1", "token = [\"hidden\"]"] {
            let error = of(&format!("[\"{SERVER}\"]\n{wrong}\n")).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hidden"), "{error:?}");
        }
        let error = of(&format!("[\"{SERVER}\"]\ntoken = \"hid den\"\n")).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hid den"), "{error:?}");
    }

    #[test]
    fn the_environment_comes_first() {
        let (_folder, token_file) = written("tapdex_2_file\n", 0o600);
        let (_other, file) =
            written(&format!("[\"{SERVER}\"]\ntoken = \"tapdex_3_toml\"\n"), 0o600);
        let mut sources = Sources {
            token: Some("tapdex_1_env".to_owned().into()),
            token_file: Some(token_file),
            ca: None,
            file: Some(file),
        };
        let token = |sources: &Sources| sources.of_server(SERVER).unwrap().token.unwrap();
        assert_eq!(token(&sources).text(), "tapdex_1_env");
        sources.token = None;
        assert_eq!(token(&sources).text(), "tapdex_2_file");
        sources.token_file = None;
        assert_eq!(token(&sources).text(), "tapdex_3_toml");
    }

    #[test]
    fn fingerprints_are_read_as_servers_print_them() {
        let bytes: Vec<u8> = (0..32).collect();
        let text = fingerprint_text(&bytes);
        assert_eq!(fingerprint(&text).unwrap(), *bytes);
        assert_eq!(fingerprint(&text.to_uppercase()).unwrap(), *bytes);
        let colons: Vec<String> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
        assert_eq!(fingerprint(&colons.join(":")).unwrap(), *bytes);
        for wrong in [
            "",
            "SHA256:",
            "SHA256:00",
            &text[..70],
            &format!("{text}0"),
            "\u{e9}".repeat(32).as_str(),
        ] {
            assert_eq!(fingerprint(wrong), None, "{wrong}");
        }
    }
}
