//! The smallest HTTP/1.1 server that an appliance can talk to: a thread per connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

pub(super) struct Request {
    pub method: String,
    /// Path and query.
    pub target: String,
    /// `Range: bytes=a-b`, both ends included.
    pub range: Option<(u64, u64)>,
    pub body: Vec<u8>,
}

/// Answers a request; an error closes the connection.
pub(super) type Handler = dyn Fn(&Request, &mut dyn Write) -> std::io::Result<()> + Send + Sync;

/// A server on loopback; it stops listening when it is dropped.
pub(super) struct Server {
    pub address: SocketAddr,
    stopping: Arc<AtomicBool>,
}

impl Server {
    /// Serves on a free port.
    pub(super) fn start(handler: Arc<Handler>) -> Result<Self> {
        Self::start_on(Arc::new(move |tcp| serve(tcp, &*handler)))
    }

    /// The same over TLS.
    pub(super) fn start_tls(tls: Arc<ServerConfig>, handler: Arc<Handler>) -> Result<Self> {
        Self::start_on(Arc::new(move |tcp| {
            if let Ok(connection) = ServerConnection::new(Arc::clone(&tls)) {
                serve(StreamOwned::new(connection, tcp), &*handler);
            }
        }))
    }

    fn start_on(serve: Arc<dyn Fn(TcpStream) + Send + Sync>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        std::thread::spawn(move || {
            for tcp in listener.incoming().flatten() {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let serve = Arc::clone(&serve);
                let _ = tcp.set_nodelay(true);
                std::thread::spawn(move || serve(tcp));
            }
        });
        Ok(Self { address, stopping })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

pub(super) fn answer(out: &mut dyn Write, status: u16, body: &[u8]) -> std::io::Result<()> {
    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", body.len());
    out.write_all(head.as_bytes())?;
    if status != 204 {
        out.write_all(body)?;
    }
    out.flush()
}

fn serve(stream: impl Read + Write, handler: &Handler) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_request(&mut stream) {
        if handler(&request, stream.get_mut()).is_err() {
            return;
        }
    }
}

fn read_request(stream: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (mut range, mut body_len) = (None, 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match (name.to_ascii_lowercase().as_str(), value.trim()) {
            ("range", value) => {
                let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
                range = Some((first.parse().ok()?, last.parse().ok()?));
            }
            ("content-length", value) => body_len = value.parse().ok()?,
            _ => {}
        }
    }
    let mut body = vec![0; body_len];
    stream.read_exact(&mut body).ok()?;
    Some(Request { method, target, range, body })
}
