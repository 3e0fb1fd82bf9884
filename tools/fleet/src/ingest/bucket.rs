//! An asset in a bucket of any S3-compatible server.
//!
//! ```text
//! list: pages of 1,000 keys ─> stamps: length, time of change, ETag
//! read: pieces of 4 MiB, of all files in order, so many requests at a time ─> hash.rs
//!       each asks for the ETag that was listed (If-Match), and its answer's ETag is compared
//!       for servers that do not know If-Match: what changed meanwhile is seen at once
//! ```
//!
//! Requests that fail are tried again by `object_store`, a bounded number of times.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use model::limits::{FILES_PER_VERSION_MAX, OBJECT_LEN_MAX, PATH_LEN_MAX};
use model::units::Bytes;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::list::{PaginatedListOptions, PaginatedListStore as _};
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, Error, GetOptions, GetRange, ObjectMeta, ObjectStore as _,
    ObjectStoreExt as _, RetryConfig,
};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::changed;
use super::credentials::Credentials;
use super::files::{Files, Job};
use super::hash::PIECE_LEN;
use super::walk::Stamp;
use crate::control::is_private;

#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Server {
    /// Of a bucket: URL of its S3 server; none for Amazon's
    #[arg(long, value_name = "URL", env = "AWS_ENDPOINT_URL")]
    endpoint: Option<String>,
    /// Of a bucket: the region that its server is in, or goes by
    #[arg(long, value_name = "NAME", env = "AWS_REGION", default_value = "us-east-1")]
    region: String,
}

#[derive(Debug)]
pub(crate) struct Bucket {
    name: String,
    prefix: String,
    server: String,
    credentials_from: String,
    store: Arc<AmazonS3>,
    runtime: Runtime,
    /// ETags as they were listed.
    tags: Mutex<BTreeMap<String, String>>,
    ahead: Arc<Mutex<Option<Ahead>>>,
}

/// Reads a file.
pub(crate) type Reads = Box<dyn Fn() -> anyhow::Result<Vec<u8>>>;

/// The pieces that were asked for, in order.
type Ahead = mpsc::Receiver<JoinHandle<Result<Vec<u8>, String>>>;

impl Bucket {
    /// The bucket of `s3://bucket/prefix/`. Asks nobody anything yet.
    pub(crate) fn open(source: &str, server: &Server) -> anyhow::Result<Self> {
        let place = wire::convert::Bucket::of(source).with_context(|| {
            format!("\"{source}\" is not a bucket: write for example s3://films/some-film/")
        })?;
        let endpoint = server.endpoint.as_deref().map(|url| url.trim_end_matches('/'));
        if let Some(url) = endpoint {
            ensure!(
                is_private(url),
                "--endpoint {url} must be an https URL: only on this machine may it be http"
            );
        }
        let credentials = Credentials::find()?;
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(place.name)
            .with_region(&server.region)
            .with_access_key_id(&credentials.id)
            .with_secret_access_key(&credentials.secret)
            .with_virtual_hosted_style_request(endpoint.is_none())
            .with_retry(RETRY)
            .with_client_options(
                ClientOptions::new()
                    .with_connect_timeout(CONNECT_WITHIN)
                    .with_timeout(PIECE_WITHIN)
                    .with_allow_http(endpoint.is_some_and(|url| url.starts_with("http://"))),
            );
        if let Some(url) = endpoint {
            builder = builder.with_endpoint(url);
        }
        if let Some(token) = &credentials.token {
            builder = builder.with_token(token);
        }
        Ok(Self {
            name: place.name.to_owned(),
            prefix: place.prefix.to_owned(),
            server: endpoint.unwrap_or("Amazon S3").to_owned(),
            credentials_from: credentials.from,
            store: Arc::new(builder.build().context("cannot speak S3 with these settings")?),
            runtime: tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .context("cannot start threads")?,
            tags: Mutex::default(),
            ahead: Arc::default(),
        })
    }

    /// Its files, by path in their order: each is read when it is asked for.
    pub(crate) fn readers(self) -> anyhow::Result<Vec<(String, Reads)>> {
        let bucket = Arc::new(self);
        let stamps = bucket.list()?;
        let readers = stamps.into_iter().map(|(path, stamp)| {
            let (bucket, of) = (bucket.clone(), path.clone());
            let read: Reads = Box::new(move || bucket.read(&of, stamp));
            (path, read)
        });
        Ok(readers.collect())
    }

    /// Names the state file: the same for one bucket, from every folder that ingest is started in.
    pub(super) fn identity(&self) -> String {
        format!("{} {}", self.server, self.name())
    }

    /// All keys below the prefix, a page at a time.
    async fn listed(&self) -> anyhow::Result<Vec<ObjectMeta>> {
        let (mut listed, mut page_token) = (Vec::new(), None);
        let prefix = Some(self.prefix.as_str()).filter(|prefix| !prefix.is_empty());
        loop {
            let options = PaginatedListOptions { page_token, ..PaginatedListOptions::default() };
            let page = self.store.list_paginated(prefix, options).await;
            let page = page.map_err(|error| self.explain(&error))?;
            listed.extend(page.result.objects);
            ensure!(listed.len() <= 2 * FILES_PER_VERSION_MAX, "{}", self.too_many());
            page_token = match page.page_token {
                Some(token) => Some(token),
                None => return Ok(listed),
            };
        }
    }

    /// Some tools make an empty object for every "directory". Only they end in a slash, which
    /// `object_store` takes away: such a name is not there when it is asked for.
    async fn is_directory(&self, meta: &ObjectMeta, next: Option<&ObjectMeta>) -> bool {
        let below = format!("{}/", meta.location);
        let is_parent = next.is_some_and(|next| next.location.as_ref().starts_with(&below));
        meta.size == 0
            && (meta.location.as_ref().len() < self.prefix.len()
                || is_parent
                || matches!(self.store.head(&meta.location).await, Err(Error::NotFound { .. })))
    }

    async fn stamps(&self) -> anyhow::Result<BTreeMap<String, Stamp>> {
        let mut listed = self.listed().await?;
        // A directory's own object before those in it.
        listed.sort_by(|a, b| a.location.as_ref().cmp(b.location.as_ref()));
        let (mut stamps, mut tags) = (BTreeMap::new(), BTreeMap::new());
        for (index, meta) in listed.iter().enumerate() {
            if self.is_directory(meta, listed.get(index + 1)).await {
                continue;
            }
            let key = meta.location.as_ref();
            let path = key.strip_prefix(&self.prefix).unwrap_or_default();
            ensure!(
                model::path::is_path(path),
                "the key {key:?} cannot stand in a media URL below s3://{}/{}: at most \
                 {PATH_LEN_MAX} bytes, no control characters, no backslash",
                self.name,
                self.prefix
            );
            let len = Bytes(meta.size);
            ensure!(
                len <= OBJECT_LEN_MAX,
                "\"{path}\" has {len}, more than an object may have ({OBJECT_LEN_MAX})"
            );
            stamps.insert(path.to_owned(), stamp(meta));
            tags.extend(tag(meta).map(|tag| (path.to_owned(), tag.to_owned())));
        }
        ensure!(stamps.len() <= FILES_PER_VERSION_MAX, "{}", self.too_many());
        ensure!(!stamps.is_empty(), "{} holds no objects", self.name());
        *self.tags.lock().unwrap_or_else(PoisonError::into_inner) = tags;
        Ok(stamps)
    }

    fn too_many(&self) -> String {
        format!(
            "{} holds more than {FILES_PER_VERSION_MAX} objects, the most of one asset version: \
             ingest its parts as assets of their own",
            self.name()
        )
    }

    fn piece(&self, path: &str, stamp: Stamp, from: Bytes, len: Bytes) -> Piece {
        let tags = self.tags.lock().unwrap_or_else(PoisonError::into_inner);
        Piece {
            store: self.store.clone(),
            key: format!("{}{path}", self.prefix),
            path: path.to_owned(),
            tag: tags.get(path).cloned(),
            stamp,
            from,
            len,
        }
    }

    /// What a server's refusal means, and what to do.
    fn explain(&self, error: &Error) -> anyhow::Error {
        let Self { name, server, credentials_from, .. } = self;
        let said = format!("{error:?}");
        let between = |open: &str, close: &str| {
            said.split_once(open).and_then(|(_, rest)| rest.split_once(close)).map(|(it, _)| it)
        };
        let code = between("<Code>", "</Code>").unwrap_or_default();
        anyhow::Error::msg(match code {
            "NoSuchBucket" => format!("{server} has no bucket \"{name}\": is --endpoint right?"),
            // The last is versitygw's word for the first.
            "InvalidAccessKeyId"
            | "SignatureDoesNotMatch"
            | "InvalidToken"
            | "ExpiredToken"
            | "XAdminUserNotFound" => format!(
                "{server} does not accept the credentials from {credentials_from} ({code}): are \
                 they current, and meant for this server?"
            ),
            "AccessDenied" => format!(
                "the credentials from {credentials_from} may not read bucket \"{name}\" at \
                 {server}: they need s3:ListBucket and s3:GetObject"
            ),
            "AuthorizationHeaderMalformed" | "PermanentRedirect" => {
                format!("bucket \"{name}\" is in another region: name it with --region")
            }
            _ => {
                let message = between("<Message>", "</Message>");
                let message = message.map(|said| format!("{said} ({code})"));
                let message = message.unwrap_or_else(|| causes(error));
                format!("{server} did not list bucket \"{name}\": {message}")
            }
        })
    }
}

impl Files for Bucket {
    fn name(&self) -> String {
        format!("s3://{}/{}", self.name, self.prefix)
    }

    fn list(&self) -> anyhow::Result<BTreeMap<String, Stamp>> {
        self.runtime.block_on(self.stamps())
    }

    fn read(&self, path: &str, stamp: Stamp) -> anyhow::Result<Vec<u8>> {
        let piece = self.piece(path, stamp, Bytes::ZERO, stamp.len);
        let bytes = self.runtime.block_on(piece.fetch());
        bytes.map_err(|error| anyhow::anyhow!("\"{path}\": {error}"))
    }

    fn expect(&self, jobs: Vec<Job>) {
        let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
        let rest = |job: &Job| self.piece(&job.path, job.stamp, job.from, job.stamp.len - job.from);
        let files: Vec<Piece> = jobs.iter().map(rest).collect();
        self.runtime.spawn(async move {
            for piece in files.iter().flat_map(Piece::split) {
                // Nobody listens any more: the ingest has failed.
                let Ok(room) = sender.reserve().await else { return };
                room.send(tokio::spawn(piece.fetch()));
            }
        });
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner) = Some(receiver);
    }

    fn open(&self, job: &Job) -> io::Result<Box<dyn Read + Send>> {
        let (ahead, runtime) = (self.ahead.clone(), self.runtime.handle().clone());
        let left = job.stamp.len - job.from;
        Ok(Box::new(Reader { ahead, runtime, left, piece: Cursor::default() }))
    }

    /// Every answer was compared with the list already.
    fn check(&self, _: &str, _: Stamp) -> anyhow::Result<()> {
        Ok(())
    }

    fn check_all(&self, stamps: &BTreeMap<String, Stamp>) -> anyhow::Result<()> {
        let now = self.list()?;
        let differs = |path: &&String| now.get(*path) != stamps.get(*path);
        match stamps.keys().chain(now.keys()).find(differs) {
            Some(path) => anyhow::bail!("{}", changed(path)),
            None => Ok(()),
        }
    }
}

/// A run of bytes of one object.
#[derive(Clone, Debug)]
struct Piece {
    store: Arc<AmazonS3>,
    key: String,
    path: String,
    /// The ETag it must have.
    tag: Option<String>,
    stamp: Stamp,
    from: Bytes,
    len: Bytes,
}

impl Piece {
    /// The same bytes in pieces as large as one request asks for.
    fn split(&self) -> impl Iterator<Item = Self> {
        (0..self.len.0.div_ceil(PIECE_LEN.0)).map(|index| {
            let before = Bytes(index * PIECE_LEN.0);
            let len = PIECE_LEN.min(self.len - before);
            Self { from: self.from + before, len, ..self.clone() }
        })
    }

    /// Its bytes, or an error message.
    async fn fetch(self) -> Result<Vec<u8>, String> {
        if self.len == Bytes::ZERO {
            return Ok(Vec::new());
        }
        let key = Path::parse(&self.key).map_err(|error| error.to_string())?;
        let mut tries_left = TRIES;
        loop {
            tries_left -= 1;
            match self.attempt(&key).await {
                // `object_store` tries requests again; the rest of a body only if there is an ETag.
                Err(Error::Generic { .. }) if tries_left != 0 => {}
                Err(error) => return Err(self.explain(&error)),
                Ok(Some(bytes)) => return Ok(bytes),
                Ok(None) => return Err(changed(&self.path)),
            }
        }
    }

    /// None if the object has changed since it was listed.
    async fn attempt(&self, key: &Path) -> Result<Option<Vec<u8>>, Error> {
        let options = GetOptions {
            if_match: self.tag.clone(),
            range: Some(GetRange::Bounded(self.from.0..(self.from + self.len).0)),
            ..GetOptions::default()
        };
        let answer = self.store.get_opts(key, options).await?;
        let same = match self.tag.as_deref().zip(tag(&answer.meta)) {
            Some((listed, answered)) => listed == answered,
            None => answer.meta.last_modified.timestamp() == self.stamp.modified.0,
        };
        if answer.meta.size != self.stamp.len.0 || !same {
            return Ok(None);
        }
        let bytes = answer.bytes().await?;
        Ok((Bytes::of(bytes.len()) == self.len).then(|| bytes.into()))
    }

    fn explain(&self, error: &Error) -> String {
        if matches!(error, Error::Precondition { .. } | Error::NotFound { .. }) {
            return changed(&self.path);
        }
        let causes = causes(error);
        if matches!(error, Error::PermissionDenied { .. } | Error::Unauthenticated { .. }) {
            return format!(
                "the server listed it and refuses it: is s3:GetObject allowed? {causes}"
            );
        }
        format!("it cannot be read: {causes}")
    }
}

/// One file's part of the pieces that are read ahead.
struct Reader {
    ahead: Arc<Mutex<Option<Ahead>>>,
    runtime: tokio::runtime::Handle,
    left: Bytes,
    piece: Cursor<Vec<u8>>,
}

impl Read for Reader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.piece.read(into)?;
        if count == 0 && !into.is_empty() && self.left != Bytes::ZERO {
            let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
            let next = ahead.as_mut().and_then(mpsc::Receiver::blocking_recv);
            let next = next.ok_or_else(|| io::Error::other("reading ended early"))?;
            let piece = self.runtime.block_on(next).map_err(io::Error::other)?;
            let piece = piece.map_err(io::Error::other)?;
            self.left -= Bytes::of(piece.len());
            self.piece = Cursor::new(piece);
            return self.piece.read(into);
        }
        Ok(count)
    }
}

/// An ETag, if the server gives one.
fn tag(meta: &ObjectMeta) -> Option<&str> {
    meta.e_tag.as_deref().filter(|tag| !tag.trim_matches('"').is_empty())
}

fn stamp(meta: &ObjectMeta) -> Stamp {
    let tag = tag(meta).map_or(0, |tag| {
        let hash = blake3::hash(tag.as_bytes());
        let (first, _) = hash.as_bytes().split_first_chunk().expect("a hash has 32 bytes");
        u64::from_le_bytes(*first)
    });
    let modified = &meta.last_modified;
    let nanos = i64::from(modified.timestamp_subsec_nanos());
    Stamp { len: Bytes(meta.size), modified: (modified.timestamp(), nanos), tag }
}

/// An error with its causes, on one line. The causes name no credentials: signatures travel in
/// headers, and those are not in them.
fn causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Requests under way or read and not yet hashed: 64 MiB, and 4 Gb/s at 120 ms to the server.
const PIECES_AHEAD: usize = 16;

/// A refused or cut request is tried again six times within two minutes.
const RETRY: RetryConfig = RetryConfig {
    backoff: BackoffConfig {
        init_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_secs(15),
        base: 2.0,
    },
    max_retries: 6,
    retry_timeout: Duration::from_secs(120),
};
/// How often an answer may break off.
const TRIES: u32 = 4;
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// 4 MiB at 16 requests at a time: 5 Mbit/s in all.
const PIECE_WITHIN: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_tls_only_this_machine_is_spoken_to() {
        for url in
            ["https://s3.example", "http://127.0.0.1:7070", "http://localhost", "http://[::1]:1"]
        {
            assert!(is_private(url), "{url}");
        }
        let evil = "http://127.0.0.1.evil.example";
        for url in ["http://s3.example", "http://10.0.0.1:9000", evil, "ftp://x", "s3.example", ""]
        {
            assert!(!is_private(url), "{url}");
        }
    }
}
