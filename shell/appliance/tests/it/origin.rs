//! An origin that can misbehave in every way that an appliance must bear.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use identity::member::Member;

use crate::fleet;
use crate::http::{Request, Server, Stream};
use crate::rig::TestFile;

/// What it may do wrong.
#[derive(Default)]
pub(crate) struct Faults {
    /// Cut each connection after so many body bytes; 0 for never.
    pub(crate) cut_after: AtomicU64,
    /// Flip a bit of this byte of every file; `u64::MAX` for none.
    pub(crate) wrong_byte: AtomicU64,
    /// Send the whole file whatever the range.
    pub(crate) ignore_range: AtomicBool,
    /// Most bytes per second of one answer; 0 for as many as there are.
    pub(crate) rate: AtomicU64,
    /// Answer with this status; 0 for the right one.
    pub(crate) status: AtomicU64,
    /// Fall silent after so many body bytes of an answer; 0 for never.
    pub(crate) silent_after: AtomicU64,
}

/// Serves these files, well or as its faults say.
pub(crate) struct Origin {
    files: Mutex<BTreeMap<String, Arc<Vec<u8>>>>,
    pub(crate) faults: Faults,
    /// Body bytes, written or about to be.
    pub(crate) sent: AtomicU64,
    /// Requests answered.
    pub(crate) requests: AtomicU64,
}

impl Origin {
    pub(crate) fn start() -> (Arc<Self>, Server) {
        let origin = Self::new();
        let served = Arc::clone(&origin);
        let server = Server::start("127.0.0.1:0", Arc::new(move |r, out| served.answer(r, out)));
        (origin, server)
    }

    /// The same behind TLS.
    pub(crate) fn start_tls(config: Arc<rustls::ServerConfig>) -> (Arc<Self>, Server) {
        let origin = Self::new();
        let served = Arc::clone(&origin);
        let wrap = move |tcp: TcpStream| -> Box<dyn Stream> {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            Box::new(rustls::StreamOwned::new(connection, tcp))
        };
        let handler = Arc::new(move |r: &Request, out: &mut dyn Write| served.answer(r, out));
        let server = Server::start_wrapped("127.0.0.1:0", handler, Arc::new(wrap));
        (origin, server)
    }

    pub(crate) fn new() -> Arc<Self> {
        let origin = Self {
            files: Mutex::default(),
            faults: Faults::default(),
            sent: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        };
        origin.faults.wrong_byte.store(u64::MAX, Ordering::SeqCst);
        Arc::new(origin)
    }

    /// Offers a file under `/film/{path}`.
    pub(crate) fn put(&self, path: &str, bytes: Arc<Vec<u8>>) {
        self.files.lock().unwrap().insert(format!("/film/{path}"), bytes);
    }

    /// Offers an object as a sibling would.
    pub(crate) fn put_object(&self, file: &TestFile) {
        let target = format!("/v1/objects/{}", file.id());
        self.files.lock().unwrap().insert(target, file.bytes.clone());
    }

    /// What else than an appliance may stand behind a sibling's address.
    pub(crate) fn start_sibling(member: &Member) -> (Arc<Self>, Server) {
        let origin = Self::new();
        let served = Arc::clone(&origin);
        let handler = Arc::new(move |r: &Request, out: &mut dyn Write| served.answer(r, out));
        (origin, fleet::ours().serve("127.0.0.1:0", member, handler))
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    pub(crate) fn answer(&self, request: &Request, out: &mut dyn Write) -> std::io::Result<bool> {
        assert_eq!(request.method, "GET");
        self.requests.fetch_add(1, Ordering::SeqCst);
        let status = self.faults.status.load(Ordering::SeqCst);
        if status != 0 {
            return crate::http::answer(out, u16::try_from(status).unwrap(), b"no");
        }
        let Some(file) = self.files.lock().unwrap().get(&request.target).cloned() else {
            return crate::http::answer(out, 404, b"none");
        };
        let total = u64::try_from(file.len()).unwrap();
        let ignored = self.faults.ignore_range.load(Ordering::SeqCst);
        let range = request.range.filter(|_| !ignored);
        let (first, last) = range.unwrap_or((0, total - 1));
        let (status, extra) = match range {
            Some(_) => (206, format!("Content-Range: bytes {first}-{last}/{total}\r\n")),
            None => (200, String::new()),
        };
        let len = last + 1 - first;
        let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {len}\r\n{extra}\r\n");
        out.write_all(head.as_bytes())?;
        self.send(&file, first, last + 1, out)
    }

    fn send(&self, file: &[u8], from: u64, to: u64, out: &mut dyn Write) -> std::io::Result<bool> {
        let cut_after = self.faults.cut_after.load(Ordering::SeqCst);
        let silent_after = self.faults.silent_after.load(Ordering::SeqCst);
        let wrong = self.faults.wrong_byte.load(Ordering::SeqCst);
        let mut at = from;
        while at < to {
            let end = to.min(at + 16_384);
            let range = usize::try_from(at).unwrap()..usize::try_from(end).unwrap();
            let mut piece = file[range].to_vec();
            if (at..end).contains(&wrong) {
                piece[usize::try_from(wrong - at).unwrap()] ^= 1;
            }
            let rate = self.faults.rate.load(Ordering::SeqCst);
            if let Some(nanos) = ((end - at) * 1_000_000_000).checked_div(rate) {
                std::thread::sleep(std::time::Duration::from_nanos(nanos));
            }
            // Counted first, so that nobody can hold a byte that is not counted yet.
            self.sent.fetch_add(end - at, Ordering::SeqCst);
            out.write_all(&piece)?;
            at = end;
            if silent_after != 0 && silent_after <= at - from {
                out.flush()?;
                std::thread::sleep(std::time::Duration::from_secs(5));
                return Ok(false);
            }
            if cut_after != 0 && cut_after <= at - from {
                out.flush()?;
                return Ok(false);
            }
        }
        out.flush()?;
        Ok(true)
    }
}
