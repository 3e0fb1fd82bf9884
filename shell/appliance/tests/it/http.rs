//! The smallest HTTP/1.1 server: a thread per connection, one handler for all requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One request.
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    /// `Range: bytes=a-b`, both ends included.
    pub(crate) range: Option<(u64, u64)>,
    pub(crate) body: Vec<u8>,
}

/// A server; it stops listening when it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// Connections accepted.
    pub(crate) connections: Arc<AtomicU64>,
    stopping: Arc<AtomicBool>,
}

/// Answers a request; false closes the connection.
pub(crate) type Handler = dyn Fn(&Request, &mut dyn Write) -> std::io::Result<bool> + Send + Sync;

/// A connection, encrypted or not.
pub(crate) trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

impl Server {
    pub(crate) fn start(address: &str, handler: Arc<Handler>) -> Self {
        Self::start_wrapped(address, handler, Arc::new(|tcp| Box::new(tcp)))
    }

    pub(crate) fn start_wrapped(
        address: &str,
        handler: Arc<Handler>,
        wrap: Arc<dyn Fn(TcpStream) -> Box<dyn Stream> + Send + Sync>,
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        let connections = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&connections);
        std::thread::spawn(move || {
            for tcp in listener.incoming() {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let (handler, wrap) = (Arc::clone(&handler), Arc::clone(&wrap));
                let tcp = tcp.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                let _ = tcp.set_nodelay(true);
                std::thread::spawn(move || serve(wrap(tcp), &*handler));
            }
        });
        Self { address, connections, stopping }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(stream: Box<dyn Stream>, handler: &Handler) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_request(&mut stream) {
        match handler(&request, stream.get_mut()) {
            Ok(true) => {}
            Ok(false) | Err(_) => return,
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

/// Writes a whole answer.
pub(crate) fn answer(out: &mut dyn Write, status: u16, body: &[u8]) -> std::io::Result<bool> {
    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", body.len());
    out.write_all(head.as_bytes())?;
    if status != 204 {
        out.write_all(body)?;
    }
    out.flush()?;
    Ok(true)
}
