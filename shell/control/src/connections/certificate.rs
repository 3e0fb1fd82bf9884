//! The certificate of the operators' and players' listener: read from files, and read anew when
//! they change. Connections that are open stay open.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};

use crate::connections::listener::Tls;
use crate::metrics::DoorCounters;

/// How the listener speaks TLS, and from which files it learned that.
pub(crate) struct Certificate {
    /// The chain, its own first, and its key: both in PEM.
    files: [PathBuf; 2],
    tls: Tls,
    stamp: Mutex<Stamp>,
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("[serve] {setting} {path}: {reason}")]
    File {
        /// `certificate` or `key`.
        setting: &'static str,
        path: PathBuf,
        reason: String,
    },
    #[error("[serve] certificate and key: {0}; are they of one pair?")]
    Pair(#[from] rustls::Error),
}

/// When each file changed and how long it is: differs if it was written anew.
type Stamp = [Option<(SystemTime, u64)>; 2];

impl Certificate {
    /// Reads the files.
    pub(crate) fn open(
        files: [PathBuf; 2],
        counters: Arc<DoorCounters>,
    ) -> Result<Self, CertificateError> {
        let stamp = Mutex::new(stamp(&files));
        let tls = Tls::new(read(&files)?, counters);
        Ok(Self { files, tls, stamp })
    }

    /// For the listener.
    pub(crate) fn tls(&self) -> Tls {
        self.tls.clone()
    }

    /// Reads the files anew if they have changed, or if `must`. What is no good is told, and the
    /// connections go on as before.
    pub(crate) fn refresh(&self, must: bool) {
        let now = stamp(&self.files);
        let mut known = self.stamp.lock().unwrap_or_else(PoisonError::into_inner);
        if !must && *known == now {
            return;
        }
        *known = now;
        match read(&self.files) {
            Ok(config) => {
                self.tls.replace(config);
                tracing::info!("new connections get the certificate as it is now");
            }
            Err(error) => tracing::warn!(%error, "the certificate stays as it was"),
        }
    }
}

fn stamp(files: &[PathBuf; 2]) -> Stamp {
    files.each_ref().map(|path| {
        let data = fs::metadata(path).ok()?;
        Some((data.modified().ok()?, data.len()))
    })
}

fn read([chain, key]: &[PathBuf; 2]) -> Result<ServerConfig, CertificateError> {
    let fault = |setting, path: &PathBuf, reason: &dyn std::fmt::Display| CertificateError::File {
        setting,
        path: path.clone(),
        reason: reason.to_string(),
    };
    let no_chain = |error: &dyn std::fmt::Display| fault("certificate", chain, error);
    let certificates = CertificateDer::pem_file_iter(chain).map_err(|error| no_chain(&error))?;
    let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(|e| no_chain(&e))?;
    if certificates.is_empty() {
        return Err(no_chain(&"there is no certificate in it, in PEM"));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| fault("key", key, &error))?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13, &TLS12])?
        .with_no_client_auth()
        .with_single_cert(certificates, private)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_good_are_refused_by_name_and_replace_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["c.pem", "k.pem"].map(|name| folder.path().join(name));
        let open = || Certificate::open(files.clone(), Arc::default());
        let refused = |part: &str| {
            let error = open().err().expect("it is refused").to_string();
            assert!(error.contains(part), "{error}");
        };
        refused("[serve] certificate ");
        fs::write(&files[0], "").unwrap();
        refused("there is no certificate in it");
        let (chain, key) = pair();
        fs::write(&files[0], &chain).unwrap();
        refused("[serve] key ");
        fs::write(&files[1], pair().1).unwrap();
        refused("are they of one pair?");
        fs::write(&files[1], key).unwrap();
        let certificate = open().unwrap();
        let before = certificate.tls.config();
        fs::write(&files[0], "nonsense and more").unwrap();
        certificate.refresh(false);
        assert!(Arc::ptr_eq(&before, &certificate.tls.config()), "the old one stays");
        fs::write(&files[0], chain).unwrap();
        certificate.refresh(false);
        let after = certificate.tls.config();
        assert!(!Arc::ptr_eq(&before, &after), "the next good one counts");
        certificate.refresh(false);
        assert!(Arc::ptr_eq(&after, &certificate.tls.config()), "nothing changed");
        certificate.refresh(true);
        assert!(!Arc::ptr_eq(&after, &certificate.tls.config()), "SIGHUP");
    }

    fn pair() -> (String, String) {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (pair.cert.pem(), pair.signing_key.serialize_pem())
    }
}
