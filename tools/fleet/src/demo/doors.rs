//! A door for each ISP: an address on loopback through which a browser is one of its clients.
//!
//! ```text
//! browser ─> door of isp1, 127.0.0.1 ─> PROXY TCP4 21.1.1.1 .. ─> control, which believes it
//! ```
//!
//! Control believes what comes from [`SOURCE`] and nothing else. A door changes no byte, so the
//! page, its login and its playbacks are as they are without it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::Context as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tracing::debug;

/// Where doors come from, as control sees it.
pub(super) const SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 11);

/// Lets connections through as those of `client` until the process ends: so many at a time, and
/// more wait to be accepted.
pub(super) async fn open(
    listener: TcpListener,
    client: String,
    control_port: u16,
) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener).context("cannot open a door")?;
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let header = format!("PROXY TCP4 {client} 127.0.0.1 40000 {control_port}\r\n");
    loop {
        let place = Arc::clone(&places).acquire_owned().await?;
        let Ok((browser, _)) = listener.accept().await else {
            tokio::time::sleep(REST).await;
            continue;
        };
        let header = header.clone();
        tokio::spawn(async move {
            if let Err(error) = pass(browser, &header, control_port).await {
                debug!(%error, "a connection through a door ended");
            }
            drop(place);
        });
    }
}

async fn pass(mut browser: TcpStream, header: &str, control_port: u16) -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(IpAddr::V4(SOURCE), 0))?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, control_port));
    let mut control = socket.connect(address).await?;
    control.write_all(header.as_bytes()).await?;
    tokio::io::copy_bidirectional(&mut browser, &mut control).await.map(drop)
}

const CONNECTIONS_MAX: usize = 64;
/// When the process has no files left.
const REST: std::time::Duration = std::time::Duration::from_millis(200);
