//! The authorities whose certificates are believed: the system's, read once for all connections.
//!
//! A system keeps them in one file of some 150 certificates. The reader that comes with rustls takes nineteen
//! million instructions for it, ten times what everything else at the start of a function takes, so the file is read
//! here where it is as usual. Whatever is not as usual is left to that reader: the variables `SSL_CERT_FILE` and
//! `SSL_CERT_DIR`, systems that keep certificates elsewhere, and files that this one does not understand.

use std::io;
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper_rustls::ConfigBuilderExt as _;
use memchr::{memchr_iter, memmem};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};

/// Where systems keep the file.
const BUNDLES: [&str; 3] = [
    // Amazon Linux, Fedora
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    // Debian, Ubuntu, Alpine
    "/etc/ssl/certs/ca-certificates.crt",
    // SUSE
    "/etc/ssl/ca-bundle.pem",
];
/// An operator says with these where the certificates are.
const VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];
/// RFC 7468 §5
const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";
const END: &[u8] = b"-----END CERTIFICATE-----";

/// TLS as a client, with the system's certificates. They are read at the first call.
///
/// # Errors
/// When there are none.
pub fn client_config() -> io::Result<ClientConfig> {
    static CONFIG: OnceLock<ClientConfig> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(config.clone());
    }
    let builder = builder()?;
    let builder = match usual_roots() {
        Some(roots) => builder.with_root_certificates(roots),
        None => builder.with_native_roots()?,
    };
    let config = builder.with_no_client_auth();
    Ok(CONFIG.get_or_init(|| config).clone())
}

/// For connections without TLS, whose type wants a configuration.
///
/// # Errors
/// When rustls has no protocol version for its own cryptography.
pub fn trusting_nobody() -> io::Result<ClientConfig> {
    let builder = builder()?.with_root_certificates(RootCertStore::empty());
    Ok(builder.with_no_client_auth())
}

fn builder() -> io::Result<ConfigBuilder<ClientConfig, WantsVerifier>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)
}

fn usual_roots() -> Option<RootCertStore> {
    if VARIABLES
        .iter()
        .any(|name| std::env::var_os(name).is_some())
    {
        return None;
    }
    let bundle = BUNDLES.iter().find_map(|path| std::fs::read(path).ok())?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(&bundle)?);
    (!roots.is_empty()).then_some(roots)
}

/// The certificates of a file in PEM form; `None` where it holds something that has to be looked at closely.
fn certificates(bundle: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let mut found = Vec::new();
    let mut base64 = Vec::new();
    let mut rest = bundle;
    while let Some(at) = memmem::find(rest, BEGIN) {
        let (before, body) = (&rest[..at], &rest[at + BEGIN.len()..]);
        if before.last().is_some_and(|byte| *byte != b'\n') {
            return None;
        }
        let length = memmem::find(body, END)?;
        base64.clear();
        let mut start = 0;
        for end in memchr_iter(b'\n', &body[..length]) {
            base64.extend_from_slice(body[start..end].trim_ascii());
            start = end + 1;
        }
        // What ends a certificate stands at the beginning of a line, like what begins it.
        if start != length {
            return None;
        }
        found.push(STANDARD.decode(&base64).ok()?.into());
        rest = &body[length + END.len()..];
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    fn pem(der: &[u8], line_end: &str) -> String {
        let text = STANDARD.encode(der);
        let lines: Vec<_> = text
            .as_bytes()
            .chunks(64)
            .map(String::from_utf8_lossy)
            .collect();
        format!(
            "-----BEGIN CERTIFICATE-----{line_end}{}{line_end}-----END CERTIFICATE-----{line_end}",
            lines.join(line_end)
        )
    }

    /// What the reader of rustls finds; `None` if it has found an error.
    fn read_closely(bundle: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
        CertificateDer::pem_slice_iter(bundle)
            .collect::<Result<_, _>>()
            .ok()
    }

    #[test]
    fn comments_and_other_objects_between_certificates_are_skipped() {
        let bundle = format!(
            "# Amazon Root CA 1\n{}\n# a key that should not be here\n-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n{}",
            pem(b"one", "\n"),
            pem(&[7; 900], "\r\n"),
        );
        let found = certificates(bundle.as_bytes()).unwrap();
        assert_eq!(found, [b"one".to_vec().into(), vec![7; 900].into()]);
        assert_eq!(found, read_closely(bundle.as_bytes()).unwrap());
    }

    #[test]
    fn a_damaged_file_is_left_to_the_careful_reader() {
        let good = pem(&[7; 90], "\n");
        for damaged in [
            good.replace("\n-----END CERTIFICATE-----", ""),
            good.replacen("Bwc", "B*c", 1),
            good.replace("-----END CERTIFICATE", " -----END CERTIFICATE"),
            format!("# {good}"),
        ] {
            assert_eq!(certificates(damaged.as_bytes()), None, "{damaged}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_found_the_careful_reader_finds_too(
            parts in proptest::collection::vec(
                prop_oneof![
                    proptest::collection::vec(any::<u8>(), 0..200).prop_map(|der| pem(&der, "\n")),
                    proptest::collection::vec(any::<u8>(), 0..200).prop_map(|der| pem(&der, "\r\n")),
                    "[ -~\n]{0,40}",
                    Just("-----BEGIN CERTIFICATE-----\n".to_owned()),
                    Just("-----END CERTIFICATE-----\n".to_owned()),
                ],
                0..6,
            )
        ) {
            let bundle = parts.concat();
            if let Some(found) = certificates(bundle.as_bytes()) {
                prop_assert_eq!(Some(found), read_closely(bundle.as_bytes()), "{}", bundle);
            }
        }
    }
}
