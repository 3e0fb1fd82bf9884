//! An S3 server in this process: `s3s` speaks the protocol and judges signatures, dates and access
//! keys as Amazon does, the objects are a map. Control's tests have the same file.
//!
//! ```text
//! request ─> axum ─> s3s: signature, its time, XML ─> Bucket: who may, If-Match, ranges, pages
//! ```

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use axum::body::to_bytes;
use axum::error_handling::HandleError;
use axum::http::StatusCode;
use s3s::auth::{S3Auth, SecretKey};
use s3s::dto::{
    DeleteObjectInput, DeleteObjectOutput, ETag, ETagCondition, GetObjectInput, GetObjectOutput,
    HeadObjectInput, HeadObjectOutput, ListObjectsV2Input, ListObjectsV2Output, Object,
    PutObjectInput, PutObjectOutput, StreamingBlob,
};
use s3s::service::S3ServiceBuilder;
use s3s::{Body, HttpError, S3, S3Request, S3Response, S3Result, s3_error};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};

/// A running server with one bucket, `films`.
pub(crate) struct Server {
    bucket: Bucket,
    port: u16,
    _runtime: Runtime,
}

pub(crate) const ID: &str = "AKFORTESTS";
pub(crate) const SECRET: &str = "a-secret-for-tests-only";
pub(crate) const REGION: &str = "eu-test-1";

/// Its state. Others with it change what the server says.
#[derive(Clone, Default)]
pub(crate) struct Bucket(Arc<Mutex<State>>, Arc<RwLock<()>>);

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Stored>,
    /// Of every access key; only `ID` may do anything.
    secrets: BTreeMap<String, String>,
    puts: u64,
    is_away: bool,
    /// Puts that have begun.
    puts_begun: u64,
}

#[derive(Clone)]
struct Stored {
    bytes: Arc<[u8]>,
    modified: SystemTime,
    tag: Option<ETag>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let bucket = Bucket::default();
        bucket.set_secret(ID, SECRET);
        let mut service = S3ServiceBuilder::new(bucket.clone());
        service.set_auth(bucket.clone());
        let failed = |error: HttpError| async move {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:?}"))
        };
        let app = axum::Router::new().fallback_service(HandleError::new(service.build(), failed));
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, app).await.unwrap();
        });
        Self { bucket, port, _runtime: runtime }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn bucket(&self) -> &Bucket {
        &self.bucket
    }
}

impl Bucket {
    /// Puts an object; one that is there is replaced.
    pub(crate) fn put(&self, key: &str, bytes: impl Into<Arc<[u8]>>) {
        let mut state = self.state();
        state.puts += 1;
        let tag = Some(ETag::Strong(format!("{:032x}", state.puts)));
        let stored = Stored { bytes: bytes.into(), modified: SystemTime::now(), tag };
        state.objects.insert(key.to_owned(), stored);
    }

    /// An ETag is no more told of this object.
    pub(crate) fn forget_tag(&self, key: &str) {
        self.state().objects.get_mut(key).unwrap().tag = None;
    }

    /// What it holds below a prefix: keys without it, and bytes.
    pub(crate) fn below(&self, prefix: &str) -> Vec<(String, Arc<[u8]>)> {
        let state = self.state();
        let below = |(key, stored): (&String, &Stored)| {
            Some((key.strip_prefix(prefix)?.to_owned(), stored.bytes.clone()))
        };
        state.objects.iter().filter_map(below).collect()
    }

    /// The access key goes with this secret from now on, and with no other.
    pub(crate) fn set_secret(&self, id: &str, secret: &str) {
        self.state().secrets.insert(id.to_owned(), secret.to_owned());
    }

    /// Everything is answered 503 from now on, or as before.
    pub(crate) fn set_away(&self, is_away: bool) {
        self.state().is_away = is_away;
    }

    /// Puts are not done as long as this is held.
    pub(crate) fn hold_puts(&self) -> OwnedRwLockWriteGuard<()> {
        self.1.clone().try_write_owned().unwrap()
    }

    /// How many puts have begun, done or not.
    pub(crate) fn puts_begun(&self) -> u64 {
        self.state().puts_begun
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Who is not signed at all did not come here.
    fn judge<T>(&self, request: &S3Request<T>, bucket: &str) -> S3Result<()> {
        let region = request.region.as_ref().map(ToString::to_string);
        if region.as_deref() != Some(REGION) {
            return Err(s3_error!(AuthorizationHeaderMalformed, "expecting '{REGION}'"));
        }
        if request.credentials.as_ref().map(|known| &*known.access_key) != Some(ID) {
            return Err(s3_error!(AccessDenied));
        }
        if self.state().is_away {
            return Err(s3_error!(ServiceUnavailable));
        }
        if bucket != "films" {
            return Err(s3_error!(NoSuchBucket));
        }
        Ok(())
    }

    fn find(&self, key: &str, expected: Option<&ETagCondition>) -> S3Result<Stored> {
        let found = self.state().objects.get(key).cloned();
        let found = found.ok_or_else(|| s3_error!(NoSuchKey))?;
        match (expected, &found.tag) {
            (None | Some(ETagCondition::Any), _) => Ok(found),
            (Some(ETagCondition::ETag(expected)), Some(tag)) if tag.strong_cmp(expected) => {
                Ok(found)
            }
            (Some(ETagCondition::ETag(_)), _) => Err(s3_error!(PreconditionFailed)),
        }
    }
}

#[async_trait::async_trait]
impl S3Auth for Bucket {
    async fn get_secret_key(&self, id: &str) -> S3Result<SecretKey> {
        let secret = self.state().secrets.get(id).cloned();
        Ok(SecretKey::from(secret.ok_or_else(|| s3_error!(InvalidAccessKeyId))?))
    }
}

#[async_trait::async_trait]
impl S3 for Bucket {
    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        self.judge(&request, &request.input.bucket)?;
        let found = self.find(&request.input.key, request.input.if_match.as_ref())?;
        Ok(S3Response::new(HeadObjectOutput {
            content_length: Some(len(&found.bytes)),
            e_tag: found.tag,
            last_modified: Some(found.modified.into()),
            ..HeadObjectOutput::default()
        }))
    }

    async fn get_object(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        self.judge(&request, &request.input.bucket)?;
        let found = self.find(&request.input.key, request.input.if_match.as_ref())?;
        let all = u64::try_from(found.bytes.len()).unwrap();
        let mut output = GetObjectOutput {
            e_tag: found.tag,
            last_modified: Some(found.modified.into()),
            ..GetObjectOutput::default()
        };
        let asked = match request.input.range {
            Some(range) => range.check(all)?,
            None => 0..all,
        };
        if request.input.range.is_some() {
            output.content_range = Some(format!("bytes {}-{}/{all}", asked.start, asked.end - 1));
        }
        let [from, to] = [asked.start, asked.end].map(|at| usize::try_from(at).unwrap());
        let bytes = found.bytes[from..to].to_vec();
        output.content_length = Some(len(&bytes));
        output.body = Some(StreamingBlob::from(Body::from(bytes)));
        Ok(S3Response::new(output))
    }

    async fn put_object(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        self.judge(&request, &request.input.bucket)?;
        self.state().puts_begun += 1;
        let _turn = self.1.read().await;
        let body = request.input.body.ok_or_else(|| s3_error!(IncompleteBody))?;
        let body = axum::body::Body::from_stream(body);
        let bytes = to_bytes(body, 1 << 28).await.map_err(|_| s3_error!(IncompleteBody))?;
        let is_there = self.state().objects.contains_key(&request.input.key);
        if is_there && request.input.if_none_match.is_some() {
            return Err(s3_error!(PreconditionFailed));
        }
        self.put(&request.input.key, bytes.to_vec());
        let e_tag = self.find(&request.input.key, None)?.tag;
        Ok(S3Response::new(PutObjectOutput { e_tag, ..PutObjectOutput::default() }))
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        self.judge(&request, &request.input.bucket)?;
        self.state().objects.remove(&request.input.key);
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        self.judge(&request, &request.input.bucket)?;
        let input = request.input;
        let is_known = input.delimiter.as_deref().is_none_or(|delimiter| delimiter == "/");
        if !is_known || input.start_after.is_some() {
            return Err(s3_error!(NotImplemented));
        }
        let prefix = input.prefix.clone().unwrap_or_default();
        // What lies deeper is left out, and not told of as a common prefix.
        let depth = prefix.len();
        let is_listed = |key: &str| input.delimiter.is_none() || !key[depth..].contains('/');
        let after = input.continuation_token.clone().unwrap_or_default();
        let max = usize::try_from(input.max_keys.unwrap_or(1000)).unwrap().min(1000);
        let state = self.state();
        let left: Vec<_> = state
            .objects
            .iter()
            .filter(|(key, _)| key.starts_with(&prefix) && after < **key && is_listed(key))
            .take(max + 1)
            .collect();
        let page = &left[..max.min(left.len())];
        let object = |(key, stored): &(&String, &Stored)| Object {
            key: Some((*key).clone()),
            e_tag: stored.tag.clone(),
            last_modified: Some(stored.modified.into()),
            size: Some(len(&stored.bytes)),
            ..Object::default()
        };
        let is_truncated = max < left.len();
        let last = page.last().filter(|_| is_truncated);
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: input.prefix,
            key_count: Some(i32::try_from(page.len()).unwrap()),
            contents: Some(page.iter().map(object).collect()),
            is_truncated: Some(is_truncated),
            next_continuation_token: last.map(|(key, _)| (*key).clone()),
            ..ListObjectsV2Output::default()
        }))
    }
}

fn len(bytes: &[u8]) -> i64 {
    i64::try_from(bytes.len()).unwrap()
}
