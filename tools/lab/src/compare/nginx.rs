//! nginx as a peer: several configurations that people recommend, of which the best is taken.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::certificate::Certificate;
use super::process::Process;

/// One way to configure it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Variant {
    /// Named in reports.
    pub(crate) name: &'static str,
    lines: &'static str,
}

/// With TLS and no kernel TLS, `sendfile` means reading through `output_buffers`; the default of
/// these is two of 32 KiB. `directio` bypasses the page cache, and blocks unless `aio threads`.
pub(crate) const VARIANTS: [Variant; 8] = [
    Variant { name: "sendfile", lines: "sendfile on; sendfile_max_chunk 2m;" },
    Variant { name: "sendfile-512k", lines: "sendfile on; output_buffers 2 512k;" },
    Variant { name: "read-64k", lines: "sendfile off; output_buffers 2 64k;" },
    Variant { name: "read-128k", lines: "sendfile off; output_buffers 2 128k;" },
    Variant { name: "read-512k", lines: "sendfile off; output_buffers 2 512k;" },
    Variant { name: "aio-512k", lines: "sendfile off; aio threads; output_buffers 2 512k;" },
    Variant {
        name: "aio-directio-512k",
        lines: "sendfile off; aio threads; directio 4k; directio_alignment 4k; \
            output_buffers 2 512k;",
    },
    Variant {
        name: "aio-directio-1m",
        lines: "sendfile off; aio threads; directio 4k; directio_alignment 4k; \
            output_buffers 2 1m;",
    },
];

/// The variant of this name.
pub(crate) fn variant(name: &str) -> Result<Variant> {
    let names: Vec<&str> = VARIANTS.iter().map(|variant| variant.name).collect();
    let found = VARIANTS.into_iter().find(|variant| variant.name == name);
    found.with_context(|| format!("no configuration {name}; there are {}", names.join(", ")))
}

/// nginx's own version and that of its TLS library.
pub(crate) fn version() -> Result<String> {
    let output = Command::new("nginx")
        .arg("-V")
        .output()
        .context("cannot run nginx: install it (Debian: apt-get install nginx-light)")?;
    ensure!(output.status.success(), "nginx -V failed");
    Ok(version_in(&String::from_utf8_lossy(&output.stderr)))
}

fn version_in(text: &str) -> String {
    let line = |start: &str| text.lines().find_map(|line| line.strip_prefix(start));
    let own = line("nginx version: ").unwrap_or("nginx of unknown version");
    let tls = line("built with ").unwrap_or("unknown TLS library");
    let tls = tls.split_once("(running with ").map_or(tls, |(_, now)| now.trim_end_matches(')'));
    format!("{own}, {tls}")
}

/// Starts it with `root` as its document root.
pub(crate) fn start(
    variant: Variant,
    address: SocketAddr,
    root: &Path,
    certificate: &Certificate,
    room: &Path,
    cpu: usize,
    joins: &[PathBuf],
) -> Result<Process> {
    let room = room.join(format!("nginx-{}", variant.name));
    fs::create_dir_all(&room)?;
    let config = room.join("nginx.conf");
    fs::write(&config, text(variant, address, root, certificate, &room))?;
    let path = |path: &Path| path.display().to_string();
    let command = ["nginx", "-p", &path(&room), "-c", &path(&config)].map(str::to_owned);
    let mut process = Process::start("nginx", &command, cpu, joins, &room.join("log"))?;
    process.wait_for_port(address)?;
    Ok(process)
}

/// Starts it without TLS, as Debian configures it where that matters for what requests it takes.
pub(crate) fn start_plain(address: SocketAddr, root: &Path, room: &Path) -> Result<Process> {
    let temp: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("  {kind}_temp_path {}/{kind};\n", room.display()))
        .concat();
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let config = room.join("nginx.conf");
    let (shown, root) = (room.display(), root.display());
    let text = format!(
        "{user}
daemon off;
worker_processes 1;
error_log {shown}/error.log crit;
pid {shown}/pid;
events {{ worker_connections 256; }}
http {{
{temp}
  access_log off;
  default_type video/mp4;
  server {{ listen {address}; root {root}; }}
}}
"
    );
    fs::write(&config, text)?;
    let path = |path: &Path| path.display().to_string();
    let command = ["nginx", "-p", &path(room), "-c", &path(&config)].map(str::to_owned);
    let mut process = Process::start("nginx", &command, 0, &[], &room.join("log"))?;
    process.wait_for_port(address)?;
    Ok(process)
}

/// No access log, since the appliance logs nothing per request either; CPUs are inherited.
fn text(
    variant: Variant,
    address: SocketAddr,
    root: &Path,
    certificate: &Certificate,
    room: &Path,
) -> String {
    let (root, room) = (root.display(), room.display());
    let (chain, key) = (certificate.chain.display(), certificate.key.display());
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    // Requests that share a cached descriptor would switch direct I/O on and off for each other.
    let cached = if variant.lines.contains("directio") {
        ""
    } else {
        "open_file_cache max=10000 inactive=1h; open_file_cache_valid 1h;"
    };
    let temp: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("  {kind}_temp_path {room}/{kind};\n"))
        .concat();
    format!(
        "{user}
daemon off;
worker_processes 1;
error_log {room}/error.log warn;
pid {room}/pid;
thread_pool default threads=32 max_queue=65536;
events {{ worker_connections 8192; multi_accept on; }}
http {{
{temp}
  access_log off;
  default_type video/mp4;
  tcp_nopush on;
  tcp_nodelay on;
  keepalive_requests 1000000000;
  keepalive_time 1d;
  keepalive_timeout 300s;
  {cached}
  ssl_protocols TLSv1.3;
  ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;
  ssl_buffer_size 16k;
  server {{
    listen {address} ssl backlog=4096;
    server_name localhost;
    ssl_certificate {chain};
    ssl_certificate_key {key};
    root {root};
    {lines}
  }}
}}
",
        lines = variant.lines
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_names_the_tls_library_that_runs() {
        let text = "nginx version: nginx/1.22.1\nbuilt with OpenSSL 3.0.22 25 Aug 2026 \
            (running with OpenSSL 3.0.19 27 Jan 2026)\nTLS SNI support enabled\n";
        assert_eq!(version_in(text), "nginx/1.22.1, OpenSSL 3.0.19 27 Jan 2026");
        let same = "nginx version: nginx/1.26.3\nbuilt with OpenSSL 3.5.7 1 Jan 2026\n";
        assert_eq!(version_in(same), "nginx/1.26.3, OpenSSL 3.5.7 1 Jan 2026");
    }

    #[test]
    fn an_unknown_variant_is_answered_with_the_known_ones() {
        assert_eq!(variant("sendfile").unwrap().name, "sendfile");
        let error = variant("fast").unwrap_err().to_string();
        assert!(error.contains("read-512k, aio-512k"), "{error}");
    }
}
