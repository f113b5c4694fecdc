//! Certificates, shown in real handshakes with a client of rustls.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod place;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use place::{Place, far};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, ProtocolVersion, RootCertStore,
    ServerConnection, SignatureScheme, SupportedProtocolVersion,
};
use tapdex_server::door::tokens::{NewToken, Tokens};
use tapdex_server::door::{Door, WhenEmpty};
use tapdex_server::tls::{
    ClientCertificates, Fingerprint, ServerCertificate, Tls, TlsError, VERSIONS, certificates,
    provider,
};

const DAY: u64 = 86_400_000_000_000;

/// Handshakes look at the clock, so these tests do, too.
fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

/// Somebody who vouches for others.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate and its key in PEM form, valid in those years.
    fn vouch_in(&self, name: &str, years: (i32, i32)) -> (String, String) {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    fn vouch(&self, name: &str) -> (String, String) {
        self.vouch_in(name, (2020, 2500))
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_slice(self.0.pem().as_bytes()).unwrap();
        roots.add(certificate).unwrap();
        roots
    }
}

/// What a client that was told a fingerprint checks: that, and that the server has the key.
#[derive(Debug)]
struct Pinned(Fingerprint);

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match Fingerprint::of(leaf) == self.0 {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(rustls::Error::General("another certificate".to_owned())),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        verify_tls12_signature(message, leaf, signed, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        verify_tls13_signature(message, leaf, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Whom a client trusts, and what it shows.
enum Trust {
    Pin(Fingerprint),
    Roots(RootCertStore),
}

fn client(
    trust: Trust,
    own: Option<&(String, String)>,
    versions: &[&'static SupportedProtocolVersion],
) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(versions).unwrap();
    let builder = match trust {
        Trust::Pin(pin) => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Pinned(pin)))
        }
        Trust::Roots(roots) => builder.with_root_certificates(roots),
    };
    match own {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = CertificateDer::pem_slice_iter(chain.as_bytes());
            let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    }
}

/// What the server knows after a handshake in which a request came through.
#[derive(Debug)]
struct Met {
    version: ProtocolVersion,
    protocol: Option<Vec<u8>>,
    certificate: Option<Vec<u8>>,
}

/// Lets client and server meet, in memory; an error says which of them refused.
fn meet(tls: &Tls, config: ClientConfig, name: &str) -> Result<Met, String> {
    let mut server = ServerConnection::new(Arc::clone(&tls.config)).unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    client.writer().write_all(b"request").unwrap();
    let mut request = Vec::new();
    for _ in 0..20 {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let mut wire = wire.as_slice();
        while !wire.is_empty() {
            server.read_tls(&mut wire).unwrap();
            server.process_new_packets().map_err(|error| format!("server: {error}"))?;
        }
        let mut bytes = [0; 100];
        if let Ok(len) = server.reader().read(&mut bytes) {
            request.extend_from_slice(&bytes[..len]);
        }
        if request == b"request" && !client.is_handshaking() {
            let certificate = server.peer_certificates().map(|chain| chain[0].to_vec());
            return Ok(Met {
                version: server.protocol_version().unwrap(),
                protocol: server.alpn_protocol().map(<[u8]>::to_vec),
                certificate,
            });
        }
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        let mut wire = wire.as_slice();
        while !wire.is_empty() {
            client.read_tls(&mut wire).unwrap();
            client.process_new_packets().map_err(|error| format!("client: {error}"))?;
        }
    }
    Err("nothing came of it".to_owned())
}

impl Place {
    fn self_signed(&self, names: &[&str], now: u64) -> Result<Tls, TlsError> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let server = ServerCertificate::SelfSigned { names: &names };
        Tls::open(&self.state, server, ClientCertificates::None, now)
    }

    /// A file beside the state folder that only we may read.
    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    fn with(
        &self,
        pair: &(String, String),
        clients: ClientCertificates<'_>,
    ) -> Result<Tls, TlsError> {
        let (chain, key) = (self.file("server.pem", &pair.0), self.file("server.key", &pair.1));
        let server = ServerCertificate::Files { chain: &chain, key: &key };
        Tls::open(&self.state, server, clients, now())
    }
}

#[test]
fn a_client_that_knows_the_fingerprint_meets_the_right_server() {
    let place = Place::new();
    let tls = place.self_signed(&["sensor.example", "10.0.0.5"], now()).unwrap();
    for (version, expected) in
        VERSIONS.iter().zip([ProtocolVersion::TLSv1_3, ProtocolVersion::TLSv1_2])
    {
        let config = client(Trust::Pin(tls.fingerprint), None, &[version]);
        let met = meet(&tls, config, "whatever.example").unwrap();
        assert_eq!((met.version, met.certificate), (expected, None));
    }
    let other = Place::new().self_signed(&["sensor.example"], now()).unwrap();
    assert_ne!(other.fingerprint, tls.fingerprint);
    let config = client(Trust::Pin(tls.fingerprint), None, VERSIONS);
    let refused = meet(&other, config, "sensor.example").unwrap_err();
    assert!(refused.contains("another certificate"), "{refused}");
    // The text that is printed is what the client is given.
    let told: Fingerprint = Fingerprint::parse(&tls.fingerprint.to_string()).unwrap();
    assert!(meet(&tls, client(Trust::Pin(told), None, VERSIONS), "x").is_ok());
}

#[test]
fn a_self_signed_certificate_has_its_names() {
    let place = Place::new();
    let names = ["sensor.example", "10.0.0.5", "2001:db8::5", "*.lab.example"];
    let tls = place.self_signed(&names, now()).unwrap();
    let path = place.path("tls").join("self-signed.pem");
    let met = |name: &str| {
        let mut roots = RootCertStore::empty();
        roots.add(certificates(&path).unwrap().remove(0)).unwrap();
        meet(&tls, client(Trust::Roots(roots), None, VERSIONS), name)
    };
    for name in ["sensor.example", "10.0.0.5", "2001:db8::5", "a.lab.example"] {
        met(name).unwrap();
    }
    for name in ["sensor.test", "lab.example", "10.0.0.6"] {
        let refused = met(name).unwrap_err();
        assert!(refused.contains("not valid for name"), "{refused}");
    }
    for name in ["", "a b", "a/b", "-", "*.*.example", "*"] {
        let error = place.self_signed(&[name], now()).unwrap_err();
        assert!(matches!(error, TlsError::Name { .. }), "{name:?}: {error}");
    }
}

#[test]
fn a_self_signed_certificate_is_kept_as_long_as_it_is_good() {
    let place = Place::new();
    let now = now();
    let first = place.self_signed(&["a.example"], now).unwrap();
    let path = place.path("tls").join("self-signed.pem");
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&place.path("tls"))), (0o600, 0o700));
    let same = |names: &[&str], now| {
        place.self_signed(names, now).unwrap().fingerprint == first.fingerprint
    };
    assert!(same(&["a.example"], now) && same(&["a.example"], now + 300 * DAY));
    assert!(first.expires_ns > now + 300 * DAY && first.expires_ns < now + 400 * DAY);
    let kept = fs::read(&path).unwrap();
    for (names, at) in [
        (&["b.example"][..], now),
        (&["a.example", "b.example"], now),
        (&[], now),
        (&["a.example"], first.expires_ns - DAY),
        (&["a.example"], first.expires_ns + 10 * DAY),
        (&["a.example"], now - 10 * DAY),
    ] {
        fs::write(&path, &kept).unwrap();
        assert!(!same(names, at), "{names:?} {at}");
        assert_ne!(fs::read(&path).unwrap(), kept);
    }
    // What is damaged is made anew; what is not ours is refused.
    for damaged in ["", "-----BEGIN CERTIFICATE-----\n", "garbage"] {
        fs::write(&path, damaged).unwrap();
        assert!(!same(&["a.example"], now), "{damaged}");
    }
    fs::remove_file(&path).unwrap();
    let elsewhere = place.file("elsewhere.pem", &String::from_utf8(kept).unwrap());
    std::os::unix::fs::symlink(elsewhere, &path).unwrap();
    assert!(matches!(place.self_signed(&["a.example"], now), Err(TlsError::State(_))));
}

#[test]
fn a_certificate_of_ones_own_is_used_with_its_chain() {
    let place = Place::new();
    let authority = Authority::new("authority");
    let pair = authority.vouch("sensor.example");
    let tls = place.with(&pair, ClientCertificates::None).unwrap();
    let der = CertificateDer::from_pem_slice(pair.0.as_bytes()).unwrap();
    assert_eq!(tls.fingerprint, Fingerprint::of(&der));
    let mut config = client(Trust::Roots(authority.roots()), None, VERSIONS);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let met = meet(&tls, config, "sensor.example").unwrap();
    assert_eq!((met.version, met.protocol), (ProtocolVersion::TLSv1_3, Some(b"h2".to_vec())));
    let mut config = client(Trust::Roots(authority.roots()), None, VERSIONS);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let met = meet(&tls, config, "sensor.example").unwrap();
    assert_eq!(met.protocol, Some(b"http/1.1".to_vec()));
    let mut config = client(Trust::Roots(authority.roots()), None, VERSIONS);
    config.alpn_protocols = vec![b"gopher".to_vec()];
    assert!(meet(&tls, config, "sensor.example").unwrap_err().starts_with("server"));
    let refused = |trust: RootCertStore, name: &str| {
        meet(&tls, client(Trust::Roots(trust), None, VERSIONS), name).unwrap_err()
    };
    assert!(refused(authority.roots(), "other.example").contains("not valid for name"));
    let stranger = Authority::new("stranger");
    assert!(refused(stranger.roots(), "sensor.example").contains("invalid peer certificate"));
    // Both in one file.
    let both = place.file("both.pem", &format!("{}{}", pair.0, pair.1));
    let server = ServerCertificate::Files { chain: &both, key: &both };
    let both = Tls::open(&place.state, server, ClientCertificates::None, now()).unwrap();
    assert_eq!(both.fingerprint, tls.fingerprint);
}

#[test]
fn errors_say_which_file_and_what_is_wrong() {
    let place = Place::new();
    let authority = Authority::new("authority");
    let good = authority.vouch("sensor.example");
    let other = authority.vouch("other.example");
    let old = authority.vouch_in("sensor.example", (2001, 2002));
    let early = authority.vouch_in("sensor.example", (2400, 2500));
    let pair = |chain: &str, key: &str| (chain.to_owned(), key.to_owned());
    let damaged = good.0.replacen("MII", "AAA", 1);
    for ((chain, key), expected) in [
        (pair(&good.0, &other.1), "server.key do not work together"),
        (pair("", &good.1), "server.pem: no certificate in it"),
        (pair("text", &good.1), "server.pem: no certificate in it"),
        (pair(&good.1, &good.1), "server.pem: no certificate in it"),
        (pair(&damaged, &good.1), "server.pem: certificate 1 is damaged"),
        (pair(&format!("{}{damaged}", good.0), &good.1), "server.pem: certificate 2 is damaged"),
        (pair(&good.0, ""), "server.key: no private key in it"),
        (pair(&good.0, &good.0), "server.key: no private key in it"),
        (old, "server.pem: the certificate is valid from 2001-01-01T00:00:00"),
        (early, "server.pem: the certificate is valid from 2400-01-01T00:00:00"),
    ] {
        let error = place.with(&(chain, key), ClientCertificates::None).unwrap_err();
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
    let (chain, key) = (place.file("a.pem", &good.0), place.file("a.key", &good.1));
    let open = |chain: &std::path::Path, key: &std::path::Path| {
        let server = ServerCertificate::Files { chain, key };
        Tls::open(&place.state, server, ClientCertificates::None, now())
    };
    open(&chain, &key).unwrap();
    let missing = place.folder.path().join("missing");
    for (chain, key) in [(&missing, &key), (&chain, &missing)] {
        let error = open(chain, key).unwrap_err();
        assert!(matches!(&error, TlsError::Read { path, .. } if *path == missing), "{error}");
    }
    assert!(matches!(open(place.folder.path(), &key), Err(TlsError::Read { .. })));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let error = open(&chain, &key).unwrap_err();
    assert!(matches!(error, TlsError::OpenKey { mode: 0o644, .. }), "{error}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    open(&chain, &key).unwrap();
    for text in ["", "text", &good.1] {
        let ca = place.file("ca.pem", text);
        let error = place.with(&good, ClientCertificates::Required(&ca)).unwrap_err();
        assert!(error.to_string().contains("ca.pem: no certificate"), "{error}");
    }
}

#[test]
fn clients_show_certificates_of_the_right_authority() {
    let place = Place::new();
    let (authority, own, stranger) =
        (Authority::new("server"), Authority::new("clients"), Authority::new("stranger"));
    let pair = authority.vouch("sensor.example");
    let ca = place.file("ca.pem", &own.0.pem());
    let required = place.with(&pair, ClientCertificates::Required(&ca)).unwrap();
    let optional = place.with(&pair, ClientCertificates::Optional(&ca)).unwrap();
    let none = place.with(&pair, ClientCertificates::None).unwrap();
    let ours = own.vouch("desk");
    let foreign = stranger.vouch("desk");
    let forged = Authority::new("clients").vouch("desk");
    let old = own.vouch_in("desk", (2001, 2002));
    let early = own.vouch_in("desk", (2400, 2500));
    for version in VERSIONS {
        let met = |tls: &Tls, shown: Option<&(String, String)>| {
            let config = client(Trust::Roots(authority.roots()), shown, &[version]);
            meet(tls, config, "sensor.example")
        };
        let der = CertificateDer::from_pem_slice(ours.0.as_bytes()).unwrap().to_vec();
        for tls in [&required, &optional] {
            assert_eq!(met(tls, Some(&ours)).unwrap().certificate.as_ref(), Some(&der));
            for wrong in [&foreign, &forged, &old, &early] {
                let refused = met(tls, Some(wrong)).unwrap_err();
                assert!(refused.starts_with("server: invalid peer certificate"), "{refused}");
            }
        }
        assert!(met(&required, None).unwrap_err().starts_with("server"));
        assert_eq!(met(&optional, None).unwrap().certificate, None);
        assert_eq!(met(&none, Some(&ours)).unwrap().certificate, None, "it is not asked for");
    }
}

#[test]
fn whoever_shows_a_known_certificate_is_let_in() {
    let place = Place::new();
    let (authority, own) = (Authority::new("server"), Authority::new("clients"));
    let ca = place.file("ca.pem", &own.0.pem());
    let tls = place.with(&authority.vouch("sensor.example"), ClientCertificates::Required(&ca));
    let tls = tls.unwrap();
    let (known, unknown) = (own.vouch("desk"), own.vouch("desk"));
    let leaf = certificates(&place.file("desk.pem", &known.0)).unwrap().remove(0);
    let certificate = Some(Fingerprint::of(&leaf));
    let new = NewToken { name: "desk", role: "extract", certificate, expires_ns: None };
    Tokens::add(&place.state, &new, now()).unwrap();
    let door = Door::open(&place.state, WhenEmpty::Locked).unwrap();
    let admitted = |pair| {
        let config = client(Trust::Roots(authority.roots()), Some(pair), VERSIONS);
        let met = meet(&tls, config, "sensor.example").unwrap();
        door.admit(None, met.certificate.as_deref(), far(), now())
    };
    assert_eq!(admitted(&known).unwrap().name(), "desk");
    // The authority vouches for it, but nobody has let it in.
    assert_eq!(admitted(&unknown).unwrap_err().status(), 401);
}

#[test]
fn fingerprints_are_read_as_others_write_them() {
    let fingerprint = Fingerprint::of(b"certificate");
    let text = fingerprint.to_string();
    let digits = text.strip_prefix("SHA256:").unwrap();
    let pairs: Vec<&str> = (0..32).map(|at| &digits[2 * at..2 * at + 2]).collect();
    let colons = pairs.join(":").to_uppercase();
    for text in [text.as_str(), digits, &colons, &format!("sha256:{colons}"), &format!(" {text}\n")]
    {
        assert_eq!(Fingerprint::parse(text), Some(fingerprint), "{text}");
    }
    let short = &digits[1..];
    for text in ["", "SHA256:", short, &format!("SHA1:{digits}"), &format!("{digits}00"), "\u{e9}"]
    {
        assert_eq!(Fingerprint::parse(text), None, "{text}");
    }
    assert_eq!(Fingerprint::parse(&colons.replacen(':', "", 1)), None);
}
