//! The viewers' certificate while the process runs: read anew when its files change or SIGHUP
//! comes. Connections that there are do not notice; what is no good replaces nothing.
//!
//! ```text
//! certbot, cp ──> files ── each second: changed? ──> tls::Acceptor::reload ──> all workers
//! SIGHUP ────────────────── now ─────────────────────^
//! ```

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tls::Acceptor;

use crate::clock;

/// What tells a file from what was there before it: also one that has the same length and time.
type Stamp = [Option<(u64, i64, i64, u64)>; 2];

/// The certificate's files and what is known of them.
#[derive(Debug)]
pub struct Reload {
    acceptor: Acceptor,
    certificate: PathBuf,
    key: PathBuf,
    stamp: Stamp,
    /// Times that new connections got what was in the files.
    pub reloads: u64,
    /// Times that the files were no good.
    pub failures: u64,
}

impl Reload {
    /// `acceptor` has just been made from these files.
    pub fn new(acceptor: Acceptor, certificate: &Path, key: &Path) -> Self {
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        let stamp = stamp(&certificate, &key);
        Self { acceptor, certificate, key, stamp, reloads: 0, failures: 0 }
    }

    /// Reads the files if they have changed, or if `must`. While one of two has been replaced, they
    /// do not go together: that is told, and tried again when the other one changes.
    pub fn look(&mut self, must: bool) {
        let now = stamp(&self.certificate, &self.key);
        if now == self.stamp && !must {
            return;
        }
        self.stamp = now;
        match self.acceptor.reload(&self.certificate, &self.key) {
            Ok(()) => {
                self.reloads += 1;
                let seconds = self.seconds_left();
                tracing::info!(seconds, "new connections are shown the certificate as it is now");
            }
            Err(error) => {
                self.failures += 1;
                tracing::error!(%error, "the certificate stays as it was");
            }
        }
    }

    /// Until the certificate that is shown ends.
    pub fn seconds_left(&self) -> u64 {
        self.acceptor.ends().0.saturating_sub(clock::wall().0)
    }
}

fn stamp(certificate: &Path, key: &Path) -> Stamp {
    [certificate, key].map(|path| {
        let data = std::fs::metadata(path).ok()?;
        Some((data.ino(), data.mtime(), data.mtime_nsec(), data.size()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn a_pair_that_does_not_fit_replaces_nothing_and_is_tried_again_when_it_does() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // As certbot does: links to files that are never changed.
        let put = |name: &str, text: &str, link: &str| {
            std::fs::write(at(name), text).unwrap();
            std::os::unix::fs::symlink(name, at("next")).unwrap();
            std::fs::rename(at("next"), at(link)).unwrap();
        };
        let (first, second) = (pair(), pair());
        put("c1", &first.0, "chain");
        put("k1", &first.1, "key");
        let acceptor = Acceptor::from_pem_files(&at("chain"), &at("key")).unwrap();
        let mut reload = Reload::new(acceptor, &at("chain"), &at("key"));
        let state = |reload: &Reload| (reload.reloads, reload.failures);
        reload.look(false);
        assert_eq!(state(&reload), (0, 0));
        put("c2", &second.0, "chain");
        reload.look(false);
        reload.look(false);
        assert_eq!(state(&reload), (0, 1), "told once");
        put("k2", &second.1, "key");
        reload.look(false);
        assert_eq!(state(&reload), (1, 1));
        reload.look(true);
        assert_eq!(state(&reload), (2, 1));
        std::fs::remove_file(at("key")).unwrap();
        reload.look(false);
        assert_eq!(state(&reload), (2, 2));
        assert!(0 < reload.seconds_left());
    }
}
