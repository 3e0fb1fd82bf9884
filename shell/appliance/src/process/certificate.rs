//! The viewers' certificates while the process runs, one or two: read anew when their files change
//! or SIGHUP comes. Connections that there are do not notice; what is no good replaces nothing.
//!
//! ```text
//! certbot, cp ──> files ── each second: changed? ──> tls::Acceptor::load ──> all workers
//! SIGHUP ────────────────── now ─────────────────────^            │
//!                           a minute after ──────────^── failed ──┘
//! ```

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use tls::{Acceptor, KeyKind};

use crate::clock;

/// What tells a file from what was there before it: also one that has the same length and time, or
/// other rights alone, which change its ctime.
type Stamp = [Option<(u64, [(i64, i64); 2], u64)>; 2];

/// After a failure that the files do not show the end of, such as an error of the disk.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The certificates' files and what is known of them.
#[derive(Debug)]
pub struct Reload {
    acceptor: Acceptor,
    /// In the order in which the acceptor has them.
    files: Vec<Watched>,
    /// Times that new connections got what was in a certificate's files.
    pub reloads: u64,
    /// Times that a certificate's files were no good.
    pub failures: u64,
}

#[derive(Debug)]
struct Watched {
    files: Files,
    stamp: Stamp,
    /// They were no good, and are read again at this time.
    again: Option<Instant>,
}

/// A certificate chain and its key, PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// An acceptor that shows what is in these files, of which there is at least one pair.
pub fn acceptor(files: &[Files]) -> anyhow::Result<Acceptor> {
    let (first, others) = files.split_first().expect("there is a certificate");
    let acceptor = Acceptor::from_pem_files(&first.certificate, &first.key)
        .context("[serve] certificate and key")?;
    for (at, other) in (1..).zip(others) {
        acceptor
            .load(at, &other.certificate, &other.key)
            .context("[serve] second_certificate and second_key")?;
    }
    Ok(acceptor)
}

impl Reload {
    /// `acceptor` has just been made from these files.
    pub fn new(acceptor: Acceptor, files: Vec<Files>) -> Self {
        let stamped = |files: Files| {
            let stamp = stamp(&files);
            Watched { files, stamp, again: None }
        };
        let files = files.into_iter().map(stamped).collect();
        Self { acceptor, files, reloads: 0, failures: 0 }
    }

    /// Reads the files of those certificates that have changed, or of all if `must`. While one of a
    /// pair has been replaced, they do not go together: that is told, and tried again when the
    /// other one changes, and after a minute. The other certificate is not touched by it.
    pub fn look(&mut self, now: Instant, must: bool) {
        for (at, Watched { files, stamp, again }) in self.files.iter_mut().enumerate() {
            let found = self::stamp(files);
            let is_due = again.is_some_and(|again| again <= now);
            if found == *stamp && !is_due && !must {
                continue;
            }
            *stamp = found;
            *again = None;
            let Files { certificate, key } = &*files;
            match self.acceptor.load(at, certificate, key) {
                Ok(()) => {
                    self.reloads += 1;
                    let (kind, seconds) = left(&self.acceptor).swap_remove(at);
                    tracing::info!(
                        file = %certificate.display(),
                        %kind,
                        seconds,
                        "new connections are shown the certificate as it is now"
                    );
                }
                Err(error) => {
                    self.failures += 1;
                    *again = Some(now + AGAIN_AFTER);
                    tracing::error!(%error, "the certificate stays as it was");
                }
            }
        }
    }

    /// Until each certificate that is shown ends.
    pub fn seconds_left(&self) -> Vec<(KeyKind, u64)> {
        left(&self.acceptor)
    }
}

fn left(acceptor: &Acceptor) -> Vec<(KeyKind, u64)> {
    let now = clock::wall();
    acceptor.ends().into_iter().map(|(kind, ends)| (kind, ends.0.saturating_sub(now.0))).collect()
}

fn stamp(Files { certificate, key }: &Files) -> Stamp {
    [certificate, key].map(|path| {
        let data = std::fs::metadata(path).ok()?;
        let times = [(data.mtime(), data.mtime_nsec()), (data.ctime(), data.ctime_nsec())];
        Some((data.ino(), times, data.size()))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

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
        let (first, second, now) = (pair(), pair(), Instant::now());
        put("c1", &first.0, "chain");
        put("k1", &first.1, "key");
        let files = vec![Files { certificate: at("chain"), key: at("key") }];
        let mut reload = Reload::new(acceptor(&files).unwrap(), files);
        let state = |reload: &Reload| (reload.reloads, reload.failures);
        reload.look(now, false);
        assert_eq!(state(&reload), (0, 0));
        put("c2", &second.0, "chain");
        reload.look(now, false);
        reload.look(now, false);
        assert_eq!(state(&reload), (0, 1), "told once");
        put("k2", &second.1, "key");
        reload.look(now, false);
        assert_eq!(state(&reload), (1, 1));
        reload.look(now, true);
        assert_eq!(state(&reload), (2, 1));
        std::fs::remove_file(at("key")).unwrap();
        reload.look(now, false);
        assert_eq!(state(&reload), (2, 2));
        assert!(0 < reload.seconds_left()[0].1);
    }

    #[test]
    fn files_that_could_not_be_read_are_tried_again_when_their_rights_change_and_after_a_minute() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let put = |(chain, key): (String, String)| {
            for (name, text) in [("chain", chain), ("key", key)] {
                std::fs::write(at("new"), text).unwrap();
                std::fs::rename(at("new"), at(name)).unwrap();
            }
        };
        put(pair());
        let files = vec![Files { certificate: at("chain"), key: at("key") }];
        let now = Instant::now();
        let mut reload = Reload::new(acceptor(&files).unwrap(), files);
        let stamp = |reload: &Reload| reload.files[0].stamp;
        let before = stamp(&reload);
        // The clock of a file system may stand still for some milliseconds.
        for mode in [0o600, 0o640].into_iter().cycle() {
            std::fs::set_permissions(at("key"), std::fs::Permissions::from_mode(mode)).unwrap();
            reload.look(now, false);
            if stamp(&reload) != before {
                break;
            }
            assert!(now.elapsed() < Duration::from_secs(10), "rights are seen");
        }
        assert_eq!((reload.reloads, reload.failures), (1, 0), "as it is with its new rights");

        put((pair().0, pair().1));
        reload.look(now, false);
        assert_eq!((reload.reloads, reload.failures), (1, 1));
        for (after, failures) in [(0, 1), (59, 1), (60, 2), (61, 2), (119, 2), (120, 3)] {
            reload.look(now + Duration::from_secs(after), false);
            assert_eq!(reload.failures, failures, "after {after} s");
        }
        put(pair());
        for after in [121, 240] {
            reload.look(now + Duration::from_secs(after), false);
            assert_eq!((reload.reloads, reload.failures), (2, 3), "after {after} s");
        }
    }

    #[test]
    fn of_two_certificates_each_is_read_anew_alone_and_neither_takes_the_others_kind() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["ecdsa", "rsa"].map(|name| Files {
            certificate: folder.path().join(format!("{name}.pem")),
            key: folder.path().join(format!("{name}.key")),
        });
        let put = |files: &Files, algorithm, days: u64| {
            let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
            let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
            let seconds = clock::wall().0 + days * 86_400;
            params.not_after = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
            std::fs::write(&files.certificate, params.self_signed(&key).unwrap().pem()).unwrap();
            std::fs::write(&files.key, key.serialize_pem()).unwrap();
        };
        let now = Instant::now();
        let (ecdsa, rsa) = (&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_RSA_SHA256);
        put(&files[0], ecdsa, 10);
        put(&files[1], rsa, 20);
        let mut reload = Reload::new(acceptor(&files).unwrap(), files.to_vec());
        let state = |reload: &Reload| (reload.reloads, reload.failures);
        let days = |reload: &Reload| {
            let left = reload.seconds_left();
            left.into_iter().map(|(kind, left)| (kind, left.div_ceil(86_400))).collect::<Vec<_>>()
        };
        assert_eq!(days(&reload), [(KeyKind::Ecdsa, 10), (KeyKind::Rsa, 20)]);
        put(&files[1], rsa, 30);
        reload.look(now, false);
        assert_eq!(days(&reload), [(KeyKind::Ecdsa, 10), (KeyKind::Rsa, 30)]);
        assert_eq!(state(&reload), (1, 0), "the first is as it was");
        put(&files[1], ecdsa, 40);
        reload.look(now, false);
        assert_eq!(days(&reload), [(KeyKind::Ecdsa, 10), (KeyKind::Rsa, 30)]);
        put(&files[0], ecdsa, 50);
        reload.look(now, false);
        assert_eq!(days(&reload), [(KeyKind::Ecdsa, 50), (KeyKind::Rsa, 30)]);
        assert_eq!(state(&reload), (2, 1));
        let error = format!("{:#}", acceptor(&files).unwrap_err());
        assert!(error.starts_with("[serve] second_certificate and second_key: "), "{error}");
        assert!(error.contains("rsa.pem has a key of ECDSA"), "{error}");
        let absent = Files { certificate: PathBuf::from("/no/such.pem"), ..files[0].clone() };
        let error = format!("{:#}", acceptor(&[absent]).unwrap_err());
        assert!(error.starts_with("[serve] certificate and key: /no/such.pem: "), "{error}");
    }
}
