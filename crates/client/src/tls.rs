//! TLS for ureq: certificates are trusted because somebody vouches for them, or by fingerprint.

use std::fmt;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, OtherError,
    RootCertStore, SignatureScheme, StreamOwned,
};
use sha2::{Digest, Sha256};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport,
    TransportAdapter,
};

use crate::credentials::{Credentials, CredentialsError, fingerprint_text};

/// How to talk to a server with these credentials.
pub(crate) fn config(credentials: &Credentials) -> Result<ClientConfig, CredentialsError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let place = || credentials.ca.clone().unwrap_or_default();
    let failed = |error: &dyn fmt::Display| CredentialsError::Certificate {
        path: place(),
        reason: error.to_string(),
    };
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| failed(&error))?;
    let builder = match credentials.fingerprint {
        Some(expected) => {
            let verifier = Pinned { expected, provider };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
        None => {
            let roots = roots(credentials.ca.as_deref())?;
            if roots.is_empty() {
                // Nothing can be trusted; the error comes when a server is asked.
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Nobody))
            } else {
                let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider);
                let verifier = verifier.build().map_err(|error| failed(&error))?;
                builder.with_webpki_verifier(verifier)
            }
        }
    };
    let Some((certificate, key)) = &credentials.certificate else {
        return Ok(builder.with_no_client_auth());
    };
    let certificates = certificates(certificate)?;
    let read = |error: &dyn fmt::Display| CredentialsError::Certificate {
        path: key.clone(),
        reason: error.to_string(),
    };
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| read(&error))?;
    builder.with_client_auth_cert(certificates, secret).map_err(|error| read(&error))
}

/// Who may vouch for servers.
fn roots(ca: Option<&Path>) -> Result<RootCertStore, CredentialsError> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| CredentialsError::Certificate {
                    path: path.to_owned(),
                    reason: error.to_string(),
                })?;
            }
        }
        // What cannot be read of the machine's store vouches for nobody.
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CredentialsError> {
    let failed = |reason: String| CredentialsError::Certificate { path: path.to_owned(), reason };
    let all = CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))?;
    let all: Result<Vec<_>, _> = all.collect();
    let all = all.map_err(|error| failed(error.to_string()))?;
    if all.is_empty() {
        return Err(failed("it has no certificate in PEM form".to_owned()));
    }
    Ok(all)
}

/// Another certificate than expected.
#[derive(Debug)]
pub(crate) struct Mismatch {
    pub(crate) expected: String,
    pub(crate) found: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the fingerprint is {}, not {}", self.found, self.expected)
    }
}

impl std::error::Error for Mismatch {}

/// Trusts one certificate, whoever vouches for it.
#[derive(Debug)]
struct Pinned {
    expected: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = Sha256::digest(certificate);
        if *found == self.expected {
            return Ok(ServerCertVerified::assertion());
        }
        let [expected, found] = [&self.expected[..], &found[..]].map(fingerprint_text);
        Err(rustls::Error::Other(OtherError(Arc::new(Mismatch { expected, found }))))
    }

    // That the server has the key of the certificate.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Trusts no certificate: there is nobody who could vouch for one.
#[derive(Debug)]
struct Nobody;

impl ServerCertVerifier for Nobody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Err(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer))
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Puts TLS on a connection, if its address says so.
#[derive(Debug)]
pub(crate) struct TlsConnector(pub(crate) Option<Arc<ClientConfig>>);

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = Either<In, TlsTransport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        let Some(transport) = chained else { return Ok(None) };
        let config = match (&self.0, details.uri.scheme_str()) {
            (Some(config), Some("https")) => config,
            (None, Some("http")) => return Ok(Some(Either::A(transport))),
            _ => return Err(ureq::Error::Tls("an address without TLS")),
        };
        let host = details.uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host)
            .map_err(|_| ureq::Error::Tls("no certificate can have this name"))?;
        let failed = |error: rustls::Error| ureq::Error::Io(std::io::Error::other(error));
        let mut connection = ClientConnection::new(Arc::clone(config), name).map_err(failed)?;
        let mut socket = TransportAdapter::new(transport.boxed(), details.current_time.clone());
        socket.set_timeout(details.timeout);
        connection.complete_io(&mut socket)?;
        let stream = StreamOwned { conn: connection, sock: socket };
        let buffers = LazyBuffers::new(
            details.config.input_buffer_size(),
            details.config.output_buffer_size(),
        );
        Ok(Some(Either::B(TlsTransport { buffers, stream })))
    }
}

/// A connection with TLS.
pub(crate) struct TlsTransport {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsTransport").finish_non_exhaustive()
    }
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        self.stream.write_all(output)?;
        self.stream.flush()?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        let read = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(read);
        Ok(read > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}
