//! Where films come from. Counts what it sends, and keeps to a rate.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use model::units::Bytes;

use super::Film;
use super::http::{Request, Server, answer};

pub struct Origin {
    inner: Arc<Inner>,
    server: Server,
}

#[derive(Default)]
struct Inner {
    files: Mutex<BTreeMap<String, Arc<Vec<u8>>>>,
    /// Body bytes handed to the kernel.
    sent: AtomicU64,
    /// Most bytes per second of all answers together; 0 for no limit.
    rate: AtomicU64,
    /// When the next byte may go, if there is a limit.
    next: Mutex<Option<Instant>>,
}

/// Sent at once.
const PIECE: u64 = 16 * 1024;

impl Origin {
    /// It listens when this returns, and has nothing.
    pub fn start() -> Result<Self> {
        let inner = Arc::new(Inner::default());
        let served = Arc::clone(&inner);
        let server = Server::start(Arc::new(move |request, out| served.answer(request, out)))?;
        Ok(Self { inner, server })
    }

    /// Without a slash at its end.
    pub fn url(&self) -> String {
        format!("http://{}", self.server.address)
    }

    /// Body bytes sent so far, those in the kernel's buffers included.
    pub fn sent(&self) -> u64 {
        self.inner.sent.load(Ordering::SeqCst)
    }

    /// From now on at most so many bytes per second; 0 for as many as there are.
    pub fn limit(&self, bytes_per_second: u64) {
        self.inner.rate.store(bytes_per_second, Ordering::SeqCst);
    }

    pub(crate) fn offer(&self, film: &Film) {
        for object in &film.objects {
            self.put(format!("/{}/{}", film.name, object.path), Arc::clone(&object.bytes));
        }
    }

    /// From now on it has this file there.
    pub fn put(&self, path: String, bytes: Arc<Vec<u8>>) {
        let mut files = self.inner.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.insert(path, bytes);
    }
}

impl Inner {
    fn answer(&self, request: &Request, out: &mut dyn Write) -> std::io::Result<()> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = files.get(&request.target).cloned() else {
            return answer(out, 404, b"none");
        };
        drop(files);
        let total = Bytes::of(file.len()).0;
        let (first, end) = request.range.map_or((0, total), |(first, last)| (first, last + 1));
        let end = end.min(total);
        let head = match request.range {
            None => format!("HTTP/1.1 200 OK\r\nContent-Length: {total}\r\n\r\n"),
            Some(_) => format!(
                "HTTP/1.1 206 Part\r\nContent-Length: {}\r\nContent-Range: bytes {first}-{}/{total}\
                 \r\n\r\n",
                end.saturating_sub(first),
                end.saturating_sub(1),
            ),
        };
        out.write_all(head.as_bytes())?;
        let mut at = first;
        while at < end {
            let to = end.min(at + PIECE);
            self.pace(to - at);
            out.write_all(&file[Bytes(at).as_usize()..Bytes(to).as_usize()])?;
            self.sent.fetch_add(to - at, Ordering::SeqCst);
            at = to;
        }
        out.flush()
    }

    fn pace(&self, len: u64) {
        let rate = self.rate.load(Ordering::SeqCst);
        let Some(nanos) = len.saturating_mul(1_000_000_000).checked_div(rate) else { return };
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let mine = next.filter(|next| now < *next).unwrap_or(now);
        *next = Some(mine + Duration::from_nanos(nanos));
        drop(next);
        std::thread::sleep(mine.saturating_duration_since(now));
    }
}
