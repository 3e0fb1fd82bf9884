//! nginx as a peer: several configurations that people recommend, of which the best is taken.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;

use super::{Place, Variant, Version, said};
use crate::process::{On, Process};

/// With TLS and no kernel TLS, `sendfile` means reading through `output_buffers`; the default of
/// these is two of 32 KiB. `directio` bypasses the page cache, and blocks unless `aio threads`.
/// `ssl_buffer_size` is what it copies before it calls the TLS library; records are 16 KiB at most.
pub const VARIANTS: [Variant; 10] = [
    Variant { name: "sendfile", lines: "sendfile on; sendfile_max_chunk 2m;" },
    Variant { name: "sendfile-512k", lines: "sendfile on; output_buffers 2 512k;" },
    Variant { name: "read-64k", lines: "sendfile off; output_buffers 2 64k;" },
    Variant { name: "read-128k", lines: "sendfile off; output_buffers 2 128k;" },
    Variant { name: "read-512k", lines: "sendfile off; output_buffers 2 512k;" },
    Variant {
        name: "read-64k-ssl-64k",
        lines: "sendfile off; output_buffers 2 64k; ssl_buffer_size 64k;",
    },
    Variant {
        name: "read-256k-ssl-32k",
        lines: "sendfile off; output_buffers 2 256k; ssl_buffer_size 32k;",
    },
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

pub fn version(program: &[String]) -> Result<Version> {
    Ok(version_in(&said(program, "-V")?))
}

fn version_in(text: &str) -> Version {
    let line = |start: &str| text.lines().find_map(|line| line.strip_prefix(start));
    let own = line("nginx version: ").unwrap_or("nginx of unknown version");
    let tls = line("built with ").unwrap_or("unknown TLS library");
    let tls = tls.split_once("(running with ").map_or(tls, |(_, now)| now.trim_end_matches(')'));
    Version { server: own.to_owned(), tls: tls.to_owned() }
}

/// Starts it without TLS, as Debian configures it where that matters for what requests it takes.
pub fn start_plain(address: SocketAddr, root: &Path, room: &Path) -> Result<Process> {
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
events {{ worker_connections 1024; }}
http {{
{temp}
  access_log off;
  default_type video/mp4;
  keepalive_requests 1000000000;
  open_file_cache max=100;
  server {{ listen {address}; root {root}; }}
}}
"
    );
    fs::write(&config, text)?;
    let path = |path: &Path| path.display().to_string();
    let command = ["nginx", "-p", &path(room), "-c", &path(&config)].map(str::to_owned);
    let on = On { cpus: &[0], joins: &[] };
    Process::listening("nginx", &command, on, &room.join("log"), address)
}

/// No access log; CPUs are inherited. The client offers one version and one cipher suite, so none
/// is named here: aws-lc has no command for it.
pub fn text(variant: Variant, place: &Place<'_>) -> String {
    let (address, root, room) = (place.address, place.root.display(), place.room.display());
    let (chain, key) = (place.certificate.chain.display(), place.certificate.key.display());
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
  ssl_protocols TLSv1.2 TLSv1.3;
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
        fn check(text: &str, server: &str, tls: &str) {
            let wanted = Version { server: server.to_owned(), tls: tls.to_owned() };
            assert_eq!(version_in(text), wanted);
        }
        let text = "nginx version: nginx/1.22.1\nbuilt with OpenSSL 3.0.22 25 Aug 2026 \
            (running with OpenSSL 3.0.19 27 Jan 2026)\nTLS SNI support enabled\n";
        check(text, "nginx/1.22.1", "OpenSSL 3.0.19 27 Jan 2026");
        let same = "nginx version: nginx/1.26.3\nbuilt with OpenSSL 3.5.7 1 Jan 2026\n";
        check(same, "nginx/1.26.3", "OpenSSL 3.5.7 1 Jan 2026");
        let other = "nginx version: nginx/1.31.4\nbuilt by gcc 12.2.0\nbuilt with OpenSSL 1.1.1 \
            (compatible; AWS-LC 5.12.0) (running with AWS-LC 5.12.0)\nTLS SNI support enabled\n";
        check(other, "nginx/1.31.4", "AWS-LC 5.12.0");
    }
}
