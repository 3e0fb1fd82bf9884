//! h2o as a peer. Version 2.2 has few switches for files: it reads 64 KB at a time with pread
//! and hands them to OpenSSL; open files are kept as long as there are requests for them.

use anyhow::Result;

use super::{Place, Variant, Version, said};

/// One thread, as it has one CPU; two hide a read that blocks, where data is cold.
pub(super) const VARIANTS: [Variant; 4] = [
    Variant { name: "one-thread", lines: "num-threads: 1" },
    Variant { name: "one-thread-no-etag", lines: "num-threads: 1\nfile.etag: OFF" },
    Variant { name: "two-threads", lines: "num-threads: 2" },
    Variant { name: "eight-threads", lines: "num-threads: 8" },
];

pub(super) fn version(program: &[String]) -> Result<Version> {
    Ok(version_in(&said(program, "--version")?))
}

fn version_in(text: &str) -> Version {
    let line = |start: &str| text.lines().find_map(|line| line.strip_prefix(start));
    let server = format!("h2o/{}", line("h2o version ").unwrap_or("unknown").trim());
    let tls = line("OpenSSL: ").unwrap_or("unknown TLS library").trim().to_owned();
    Version { server, tls }
}

/// No access log; CPUs are inherited. Its own process for the private key costs a handshake time
/// and a byte nothing, so it is off; TLS 1.3 comes from OpenSSL (its own picotls is of a draft).
pub(super) fn text(variant: Variant, place: &Place<'_>) -> String {
    let (root, room) = (place.root.display(), place.room.display());
    let (chain, key) = (place.certificate.chain.display(), place.certificate.key.display());
    let user = if rustix::process::geteuid().is_root() { "user: root" } else { "" };
    format!(
        "{user}
{lines}
max-connections: 8192
http1-request-timeout: 300
error-log: \"{room}/error.log\"
temp-buffer-path: \"{room}\"
listen:
  host: \"{ip}\"
  port: {port}
  ssl:
    certificate-file: \"{chain}\"
    key-file: \"{key}\"
    minimum-version: TLSv1.2
    ocsp-update-interval: 0
    neverbleed: OFF
hosts:
  default:
    paths:
      /:
        file.dir: \"{root}\"
",
        lines = variant.lines,
        ip = place.address.ip(),
        port = place.address.port(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_names_the_tls_library() {
        let text = "h2o version 2.2.5\nOpenSSL: OpenSSL 3.0.19 27 Jan 2026\nmruby: YES\n";
        let wanted = Version {
            server: "h2o/2.2.5".to_owned(),
            tls: "OpenSSL 3.0.19 27 Jan 2026".to_owned(),
        };
        assert_eq!(version_in(text), wanted);
    }
}
