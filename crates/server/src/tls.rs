//! Certificates: that of the server, and those that clients have to show.
//!
//! TLS 1.2 and 1.3, with *ring*; HTTP/2 and HTTP/1.1. A server has a certificate of its own, or
//! makes one for itself, which clients know by its [`Fingerprint`]. That one is in the state
//! folder, in one file together with its key, and is made anew when it has expired or when the
//! names change.

use std::fmt::{self, Debug, Display};
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, SanType,
};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use sha2::{Digest, Sha256};
use tapdex_engine::beneath::open_named;
use tapdex_engine::time::format_time;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::door::tokens::{hex, unhex};
use crate::state::{State, StateError};

/// The most bytes of a file of certificates or keys.
const FILE_LEN_MAX: u64 = 4 << 20;
/// The folder of the certificate that the server made for itself, and its file there.
const FOLDER_NAME: &str = "tls";
const OWN_NAME: &str = "self-signed.pem";
/// How long such a certificate is valid, and how long before its end another one is made.
const OWN_DAYS: u64 = 365;
const RENEW_DAYS: u64 = 7;
const DAY_NS: u64 = 86_400_000_000_000;

/// What is wrong with a certificate or a key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The state folder.
    #[error(transparent)]
    State(#[from] StateError),
    /// A file that cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file that is not PEM, or has not what is looked for.
    #[error("{}: no {wanted} in it, in PEM form (-----BEGIN ..): {why}", path.display())]
    Pem {
        /// Which.
        path: PathBuf,
        /// What was looked for.
        wanted: &'static str,
        /// What is wrong.
        why: String,
    },
    /// A file with a certificate that is none.
    #[error("{}: certificate {number} is damaged", path.display())]
    Certificate {
        /// Which.
        path: PathBuf,
        /// Which certificate in it, from 1.
        number: usize,
    },
    /// A certificate whose time is over, or has not come.
    #[error("{}: the certificate is valid from {from} to {to} only", path.display())]
    Expired {
        /// Which.
        path: PathBuf,
        /// Its first moment.
        from: String,
        /// Its last moment.
        to: String,
    },
    /// A key that others may read.
    #[error("{}: everybody may read the key (mode {mode:o}): chmod o= {}",
        path.display(), path.display())]
    OpenKey {
        /// Which.
        path: PathBuf,
        /// What others may do.
        mode: u32,
    },
    /// A certificate and a key that do not belong together, or that rustls does not take.
    #[error("{} and {} do not work together: {source}", chain.display(), key.display())]
    Pair {
        /// The certificate.
        chain: PathBuf,
        /// The key.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// Certificates that cannot vouch for others.
    #[error("{}: it cannot vouch for clients: {why}", path.display())]
    Authority {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A name that no certificate can have.
    #[error("{name:?} can stand in no certificate: write a host name or an address")]
    Name {
        /// Which.
        name: String,
    },
    /// A certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Make(String),
}

/// The SHA-256 of a certificate. Written as `SHA256:` and 64 digits; read with colons between the
/// bytes, too, as OpenSSL writes it.
///
/// ```
/// use tapdex_server::tls::Fingerprint;
///
/// let fingerprint = Fingerprint::of(b"abc");
/// let text = fingerprint.to_string();
/// assert!(text.starts_with("SHA256:ba7816bf8f01cfea"));
/// assert_eq!(Fingerprint::parse(&text), Some(fingerprint));
/// assert_eq!(Fingerprint::parse("SHA256:BA:78"), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// That of a certificate (DER).
    pub fn of(certificate: &[u8]) -> Self {
        Self(Sha256::digest(certificate).into())
    }

    /// Reads one.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits = match text.split_at_checked(7) {
            Some((head, digits)) if head.eq_ignore_ascii_case("sha256:") => digits,
            _ => text,
        };
        let is_colons = digits.contains(':');
        if is_colons && !digits.split(':').all(|byte| byte.len() == 2) {
            return None;
        }
        unhex(&digits.replace(':', "").to_ascii_lowercase()).map(Self)
    }
}

impl Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SHA256:{}", hex(&self.0))
    }
}

impl Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Where the certificate of the server is from.
#[derive(Debug, Clone, Copy)]
pub enum ServerCertificate<'a> {
    /// Files in PEM form: the certificate with those that vouch for it, and its key.
    Files {
        /// The certificate first.
        chain: &'a Path,
        /// The key; it may be in the same file.
        key: &'a Path,
    },
    /// The server makes it, for these host names and addresses.
    SelfSigned {
        /// What clients call the server.
        names: &'a [String],
    },
}

/// Whether clients have to show a certificate, and who vouches for it.
#[derive(Debug, Clone, Copy)]
pub enum ClientCertificates<'a> {
    /// None is asked for.
    None,
    /// Whoever has one may show it.
    Optional(&'a Path),
    /// Nobody comes in without.
    Required(&'a Path),
}

/// What a server needs for TLS.
#[derive(Debug, Clone)]
pub struct Tls {
    /// For rustls.
    pub config: Arc<rustls::ServerConfig>,
    /// That of the server's certificate.
    pub fingerprint: Fingerprint,
    /// When the server's certificate expires, in nanoseconds since 1970.
    pub expires_ns: u64,
}

/// The one provider of cryptography.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The versions of TLS that are spoken.
pub const VERSIONS: &[&rustls::SupportedProtocolVersion] =
    &[&rustls::version::TLS13, &rustls::version::TLS12];

impl Tls {
    /// Reads certificates and keys, or makes them.
    pub fn open(
        state: &State,
        server: ServerCertificate<'_>,
        clients: ClientCertificates<'_>,
        now_ns: u64,
    ) -> Result<Self, TlsError> {
        let (chain_path, key_path, chain, key) = match server {
            ServerCertificate::Files { chain, key } => {
                (chain.to_owned(), key.to_owned(), certificates(chain)?, private_key(key)?)
            }
            ServerCertificate::SelfSigned { names } => {
                let path = state.path_of(FOLDER_NAME).join(OWN_NAME);
                let (certificate, key) = own(state, names, now_ns)?;
                (path.clone(), path, vec![certificate], key)
            }
        };
        let Some(leaf) = chain.first() else {
            let why = "it is empty".to_owned();
            return Err(TlsError::Pem { path: chain_path, wanted: "certificate", why });
        };
        let damaged = || TlsError::Certificate { path: chain_path.clone(), number: 1 };
        let (from_ns, expires_ns) = validity(leaf).ok_or_else(damaged)?;
        if now_ns < from_ns || expires_ns < now_ns {
            let [from, to] = [from_ns, expires_ns].map(format_time);
            return Err(TlsError::Expired { path: chain_path, from, to });
        }
        let fingerprint = Fingerprint::of(leaf);
        let builder = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)
            .map_err(|error| TlsError::Make(error.to_string()))?;
        let builder = match verifier(clients)? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let config = builder.with_single_cert(chain, key);
        let mut config =
            config.map_err(|source| TlsError::Pair { chain: chain_path, key: key_path, source })?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), fingerprint, expires_ns })
    }
}

/// The bytes of a file that the user has named, and its mode.
fn read(path: &Path) -> Result<(Vec<u8>, u32), TlsError> {
    let read = || {
        let file = open_named(path)?;
        let mode = file.metadata()?.mode();
        let mut bytes = Vec::new();
        file.take(FILE_LEN_MAX).read_to_end(&mut bytes)?;
        Ok((bytes, mode))
    };
    read().map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

/// The certificates of a file in PEM form; at least one.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let (bytes, _) = read(path)?;
    let wrong = |why: String| TlsError::Pem { path: path.to_owned(), wanted: "certificate", why };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| wrong(error.to_string()))?;
    if found.is_empty() {
        return Err(wrong("there is none".to_owned()));
    }
    for (index, certificate) in found.iter().enumerate() {
        if X509Certificate::from_der(certificate).is_err() {
            return Err(TlsError::Certificate { path: path.to_owned(), number: index + 1 });
        }
    }
    Ok(found)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let (bytes, mode) = read(path)?;
    if mode & 0o007 != 0 {
        return Err(TlsError::OpenKey { path: path.to_owned(), mode: mode & 0o7777 });
    }
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| TlsError::Pem {
        path: path.to_owned(),
        wanted: "private key",
        why: error.to_string(),
    })
}

/// The times from and to which a certificate is valid.
fn validity(certificate: &[u8]) -> Option<(u64, u64)> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let ns = |seconds: i64| u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000_000);
    let validity = parsed.validity();
    Some((ns(validity.not_before.timestamp()), ns(validity.not_after.timestamp())))
}

fn verifier(
    clients: ClientCertificates<'_>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let (path, is_optional) = match clients {
        ClientCertificates::None => return Ok(None),
        ClientCertificates::Optional(path) => (path, true),
        ClientCertificates::Required(path) => (path, false),
    };
    let wrong = |why: String| TlsError::Authority { path: path.to_owned(), why };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    let builder = if is_optional { builder.allow_unauthenticated() } else { builder };
    builder.build().map(Some).map_err(|error| wrong(error.to_string()))
}

/// The certificate that the server made for itself, if it is still good; otherwise a new one.
fn own(
    state: &State,
    names: &[String],
    now_ns: u64,
) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), TlsError> {
    let folder = state.folder(FOLDER_NAME)?;
    let wanted = names.iter().map(|name| alternative(name)).collect::<Result<Vec<_>, _>>()?;
    let _lock = folder.lock(OWN_NAME)?;
    if let Some(text) = folder.read(OWN_NAME, FILE_LEN_MAX)?
        && let Ok(certificate) = CertificateDer::from_pem_slice(text.as_bytes())
        && let Ok(key) = PrivateKeyDer::from_pem_slice(text.as_bytes())
        && is_good(&certificate, &wanted, now_ns)
    {
        return Ok((certificate, key));
    }
    let (text, certificate, key) = make(wanted, now_ns)?;
    folder.write(OWN_NAME, text.as_bytes())?;
    Ok((certificate, key))
}

/// A name as certificates have it.
fn alternative(name: &str) -> Result<SanType, TlsError> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    let wrong = || TlsError::Name { name: name.to_owned() };
    let is_host = |name: &str| rustls::pki_types::DnsName::try_from(name).is_ok();
    let host = name.strip_prefix("*.").unwrap_or(name);
    if !is_host(host) {
        return Err(wrong());
    }
    name.try_into().map(SanType::DnsName).map_err(|_| wrong())
}

/// Whether a certificate is for just these names, and will be valid for some time.
fn is_good(certificate: &[u8], wanted: &[SanType], now_ns: u64) -> bool {
    let Some((from_ns, to_ns)) = validity(certificate) else { return false };
    if now_ns < from_ns || to_ns < now_ns.saturating_add(RENEW_DAYS * DAY_NS) {
        return false;
    }
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return false };
    let Ok(Some(found)) = parsed.subject_alternative_name() else { return wanted.is_empty() };
    let is_same = |(found, wanted): (&GeneralName<'_>, &SanType)| match (found, wanted) {
        (GeneralName::DNSName(found), SanType::DnsName(wanted)) => *found == wanted.as_str(),
        (GeneralName::IPAddress(found), SanType::IpAddress(IpAddr::V4(wanted))) => {
            *found == wanted.octets()
        }
        (GeneralName::IPAddress(found), SanType::IpAddress(IpAddr::V6(wanted))) => {
            *found == wanted.octets()
        }
        _ => false,
    };
    let names = &found.value.general_names;
    names.len() == wanted.len() && names.iter().zip(wanted).all(is_same)
}

/// A text with a certificate and its key, and both of them.
fn make(
    names: Vec<SanType>,
    now_ns: u64,
) -> Result<(String, CertificateDer<'static>, PrivateKeyDer<'static>), TlsError> {
    let failed = |error: rcgen::Error| TlsError::Make(error.to_string());
    let mut params = CertificateParams::default();
    params.subject_alt_names = names;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "tapdex");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // A day earlier: clocks differ.
    let (year, month, first) = day(now_ns.saturating_sub(DAY_NS))?;
    params.not_before = rcgen::date_time_ymd(year, month, first);
    let (year, month, last) = day(now_ns.saturating_add(OWN_DAYS * DAY_NS))?;
    params.not_after = rcgen::date_time_ymd(year, month, last);
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    let text = format!("{}{}", certificate.pem(), key.serialize_pem());
    let der = PrivateKeyDer::try_from(key.serialize_der());
    let der = der.map_err(|why| TlsError::Make(why.to_owned()))?;
    Ok((text, certificate.der().clone(), der))
}

/// The day of a time: year, month and day.
fn day(ns: u64) -> Result<(i32, u8, u8), TlsError> {
    let text = format_time(ns);
    let part = |range: std::ops::Range<usize>| text.get(range).unwrap_or_default();
    let parts = (part(0..4).parse(), part(5..7).parse(), part(8..10).parse());
    match parts {
        (Ok(year), Ok(month), Ok(day)) => Ok((year, month, day)),
        _ => Err(TlsError::Make(format!("{text} is no day"))),
    }
}
