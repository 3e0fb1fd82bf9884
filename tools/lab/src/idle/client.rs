//! One of the processes that hold connections.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rig::client::{shake, tls_config};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

/// `nearcast-lab idle-client`, which `idle` starts.
#[derive(Debug, clap::Args)]
pub(crate) struct ClientArgs {
    /// Connections to hold.
    #[arg(long)]
    count: u32,
    #[arg(long)]
    server: SocketAddr,
    /// Certificates to trust, PEM.
    #[arg(long)]
    trust: PathBuf,
    /// What each asks for once.
    #[arg(long)]
    path: String,
    /// Which of the clients: each has source addresses of its own.
    #[arg(long)]
    number: u8,
}

const DATA: u8 = 23;
/// Connections from one source address: fewer than there are ports.
const PER_ADDRESS: u32 = 10_000;
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest answer: a head, the object, and tickets before it.
const ANSWER_LEN_MAX: usize = 8192;

/// Connects, and holds on until standard input ends.
pub(crate) fn run(args: &ClientArgs) -> Result<()> {
    rig::raise_file_limit()?;
    let config = tls_config(&args.trust, &[])?;
    let name = ServerName::try_from(args.server.ip().to_string())?;
    let request = format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", args.path);
    let mut held = Vec::with_capacity(usize::try_from(args.count)?);
    for n in 0..args.count {
        let last = u8::try_from(n / PER_ADDRESS + 1).context("too many connections")?;
        let from = Ipv4Addr::new(127, 9, args.number, last);
        let one = connect(args, from, &config, &name, request.as_bytes());
        held.push(one.with_context(|| format!("connection {n}"))?);
    }
    let mut nothing = Vec::new();
    std::io::stdin().read_to_end(&mut nothing)?;
    drop(held);
    Ok(())
}

fn connect(
    args: &ClientArgs,
    from: Ipv4Addr,
    config: &Arc<ClientConfig>,
    name: &ServerName<'static>,
    request: &[u8],
) -> Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddr::from((from, 0)))?;
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    rustix::net::connect(&socket, &args.server)?;
    let mut socket = TcpStream::from(socket);
    // The request does not wait until the end of the handshake is acknowledged.
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut keys = shake(config, name, &mut socket)?;
    let mut record = Vec::new();
    keys.send.seal(DATA, request, &mut record);
    socket.write_all(&record)?;
    answer(&mut socket, &mut keys)?;
    Ok(socket)
}

/// Reads records until the head and the object have come.
fn answer(socket: &mut TcpStream, keys: &mut rig::client::Keys) -> Result<()> {
    let mut plain = Vec::new();
    while !is_whole(&plain)? {
        let mut header = [0; 5];
        socket.read_exact(&mut header).context("no answer")?;
        let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
        ensure!(len <= ANSWER_LEN_MAX, "an answer that was not asked for");
        let mut record = vec![0; len];
        socket.read_exact(&mut record)?;
        if let (rig::client::Content::Data, content) = keys.receive.open(header, &mut record)? {
            plain.extend_from_slice(content);
        }
    }
    Ok(())
}

fn is_whole(plain: &[u8]) -> Result<bool> {
    let Some(end) = plain.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(false);
    };
    ensure!(plain.starts_with(b"HTTP/1.1 200 "), "refused");
    Ok(end + 4 + usize::try_from(super::SMALL[0])? <= plain.len())
}
