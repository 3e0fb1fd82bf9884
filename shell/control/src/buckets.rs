//! Buckets of S3-compatible servers: control holds their credentials, and signs URLs that are good
//! for one object and for a while. It connects to none but that which has its own documents.
//!
//! ```text
//! s3://films/a/ + r0.mp4 ──> https://s3.example/films/a/r0.mp4?X-Amz-Expires=3600&X-Amz-..
//! ```
//!
//! The secret is read from a file of its own, which may be replaced at any time: the next URL is
//! signed with what it holds then.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use director::Catalog;
use model::units::{Nanos, UnixSeconds};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::signer::{Method, Signer};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use serde::{Deserialize, Serialize};

/// One `[[s3]]` of the settings.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// `bucket`: its name, as in `s3://NAME/`. Needed.
    pub bucket: String,
    /// `endpoint`: URL of its server; none for Amazon's. Without TLS only on this machine.
    pub endpoint: Option<String>,
    /// `region`: that its server is in, or goes by. Default `us-east-1`.
    #[serde(default = "region")]
    pub region: String,
    /// `access_key_id`: whose URLs these are. Needed. No secret.
    pub access_key_id: String,
    /// `secret_access_key_file`: file with the secret and nothing else, readable by its owner only
    /// (mode 0600). Needed. Read again when it changes.
    pub secret_access_key_file: PathBuf,
    /// `path_style`: the bucket is the first part of the URL's path, and not of its host's name.
    /// Default: true with an endpoint, false without.
    pub path_style: Option<bool>,
    /// `url_lifetime`: how long a URL is good: 1 min to 7 d. A transfer that has begun goes on, and
    /// an appliance asks again when it has to. Default `1 h`.
    #[serde(default = "url_lifetime")]
    pub url_lifetime: String,
}

/// Why settings were refused, or a URL could not be signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BucketError {
    #[error("[[s3]] bucket \"{0}\": use 3 to 63 lower-case letters, digits, dots and hyphens")]
    Name(String),
    #[error("[[s3]] bucket \"{0}\" is there twice: one of them must go")]
    Twice(String),
    #[error("[[s3]] bucket \"{bucket}\": {key}: {reason}")]
    Value { bucket: String, key: &'static str, reason: String },
    #[error(
        "bucket \"{0}\" is not in this control plane's settings: add [[s3]] with bucket = \"{0}\" \
         and restart"
    )]
    Unknown(String),
}

/// A URL that needs no credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signed {
    pub(crate) url: String,
    pub(crate) expires: UnixSeconds,
}

/// All buckets of the settings.
#[derive(Debug, Default)]
pub(crate) struct Buckets(BTreeMap<String, Bucket>);

#[derive(Debug)]
struct Bucket {
    settings: Settings,
    lifetime: Duration,
    signing: Mutex<Option<Signing>>,
}

/// What signs, made from a secret file as it was.
#[derive(Clone, Debug)]
struct Signing {
    file: Stamp,
    store: Arc<AmazonS3>,
}

/// By what a file is known to be the same: device, inode, length, time of change.
type Stamp = (u64, u64, u64, (i64, i64));

impl Buckets {
    /// Checks the settings and reads every secret once, so that mistakes are seen at the start.
    pub(crate) fn open(settings: &[Settings]) -> Result<Self, BucketError> {
        let mut buckets = BTreeMap::new();
        for settings in settings {
            let name = settings.bucket.clone();
            let bucket = Bucket::open(settings.clone())?;
            if buckets.insert(name.clone(), bucket).is_some() {
                return Err(BucketError::Twice(name));
            }
        }
        Ok(Self(buckets))
    }

    /// Fails if a source lies in a bucket that is not in the settings.
    pub(crate) fn check(&self, source: &str) -> Result<(), BucketError> {
        match wire::convert::Bucket::of(source) {
            Some(place) if !self.0.contains_key(place.name) => {
                Err(BucketError::Unknown(place.name.to_owned()))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// What is wrong with those sources of a catalog that lie in no bucket of the settings.
    pub(crate) fn unknown(&self, catalog: &Catalog) -> BTreeSet<String> {
        let versions = catalog.assets().flat_map(|(_, versions)| versions);
        let sources = versions.flat_map(|version| &version.files.sources);
        sources.filter_map(|source| self.check(source).err()).map(|e| e.to_string()).collect()
    }

    /// Speaks with the server of a bucket.
    pub(crate) fn client(&self, name: &str) -> Result<Arc<AmazonS3>, BucketError> {
        let bucket = self.0.get(name).ok_or_else(|| BucketError::Unknown(name.to_owned()))?;
        bucket.store()
    }

    /// A URL for the file at `path` below `source`; none if `source` is no bucket.
    pub(crate) async fn sign(
        &self,
        source: &str,
        path: &str,
        now: UnixSeconds,
    ) -> Option<Result<Signed, BucketError>> {
        let place = wire::convert::Bucket::of(source)?;
        let Some(bucket) = self.0.get(place.name) else {
            return Some(Err(BucketError::Unknown(place.name.to_owned())));
        };
        Some(bucket.sign(&format!("{}{path}", place.prefix), now).await)
    }
}

impl Bucket {
    fn open(settings: Settings) -> Result<Self, BucketError> {
        let refused = |key, reason: &str| BucketError::Value {
            bucket: settings.bucket.clone(),
            key,
            reason: reason.to_owned(),
        };
        if wire::convert::Bucket::of(&format!("s3://{}/", settings.bucket)).is_none() {
            return Err(BucketError::Name(settings.bucket.clone()));
        }
        let visible = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        if !settings.endpoint.as_deref().is_none_or(is_endpoint) {
            return Err(refused(
                "endpoint",
                "use an https URL without a path; http is good only for loopback addresses",
            ));
        }
        if !visible(&settings.region) {
            return Err(refused("region", "use a name such as us-east-1"));
        }
        if !visible(&settings.access_key_id) {
            return Err(refused("access_key_id", "it is empty or has a space in it"));
        }
        let lifetime: Nanos = settings
            .url_lifetime
            .parse()
            .map_err(|error| refused("url_lifetime", &format!("{error}")))?;
        // Signatures last a week at most (AWS Signature Version 4, query parameters).
        if !(Nanos::seconds(60)..=Nanos::seconds(7 * 86_400)).contains(&lifetime) {
            return Err(refused("url_lifetime", "use 1 min to 7 d"));
        }
        let lifetime = Duration::from_nanos(lifetime.0);
        let bucket = Self { settings, lifetime, signing: Mutex::default() };
        bucket.store()?;
        Ok(bucket)
    }

    async fn sign(&self, key: &str, now: UnixSeconds) -> Result<Signed, BucketError> {
        let store = self.store()?;
        let wrong = |error: &dyn fmt::Display| self.refused("url", error.to_string());
        let key = Path::parse(key).map_err(|error| wrong(&error))?;
        let url = store.signed_url(Method::GET, &key, self.lifetime).await;
        let url = url.map_err(|error| wrong(&error))?.into();
        Ok(Signed { url, expires: UnixSeconds(now.0 + self.lifetime.as_secs()) })
    }

    /// What signs now: made anew when the secret's file has changed.
    fn store(&self) -> Result<Arc<AmazonS3>, BucketError> {
        let path = &self.settings.secret_access_key_file;
        let fault =
            |error: std::io::Error| self.secret_refused(format!("{}: {error}", path.display()));
        let now = stamp(&std::fs::metadata(path).map_err(fault)?);
        let mut signing = self.signing.lock().unwrap_or_else(PoisonError::into_inner);
        match &*signing {
            Some(signing) if signing.file == now => Ok(signing.store.clone()),
            before => {
                if before.is_some() {
                    tracing::info!(bucket = self.settings.bucket, "secret access key has changed");
                }
                let mut file = File::open(path).map_err(fault)?;
                let metadata = file.metadata().map_err(fault)?;
                if metadata.mode() & 0o077 != 0 {
                    return Err(self.secret_refused(format!(
                        "{}: others than its owner can read it (mode {:o}): chmod 600 it",
                        path.display(),
                        metadata.mode() & 0o777
                    )));
                }
                let mut secret = String::new();
                file.by_ref().take(SECRET_LEN_MAX).read_to_string(&mut secret).map_err(fault)?;
                let store = Arc::new(self.build(secret.trim())?);
                *signing = Some(Signing { file: stamp(&metadata), store: store.clone() });
                Ok(store)
            }
        }
    }

    fn build(&self, secret: &str) -> Result<AmazonS3, BucketError> {
        if secret.is_empty() || !secret.bytes().all(|b| b.is_ascii_graphic()) {
            let path = self.settings.secret_access_key_file.display();
            return Err(self.secret_refused(format!("{path}: it must hold one word, the secret")));
        }
        let Settings { bucket, endpoint, region, access_key_id, path_style, .. } = &self.settings;
        let path_style = path_style.unwrap_or(endpoint.is_some());
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(bucket)
            .with_region(region)
            .with_access_key_id(access_key_id)
            .with_secret_access_key(secret)
            .with_retry(RETRY)
            // Not every server knows it.
            .with_disable_bulk_delete(true)
            .with_client_options(
                ClientOptions::new()
                    .with_connect_timeout(CONNECT_WITHIN)
                    .with_timeout(ANSWER_WITHIN),
            )
            .with_virtual_hosted_style_request(!path_style);
        if let Some(endpoint) = endpoint {
            let endpoint = endpoint.trim_end_matches('/');
            builder = builder
                .with_allow_http(endpoint.starts_with("http://"))
                // The library wants the bucket in the host's name there already.
                .with_endpoint(if path_style {
                    endpoint.to_owned()
                } else {
                    hosted(endpoint, bucket)
                });
        }
        builder.build().map_err(|error| self.refused("settings", error.to_string()))
    }

    fn secret_refused(&self, reason: String) -> BucketError {
        self.refused("secret_access_key_file", reason)
    }

    fn refused(&self, key: &'static str, reason: String) -> BucketError {
        BucketError::Value { bucket: self.settings.bucket.clone(), key, reason }
    }
}

/// `https://s3.example` to `https://bucket.s3.example`.
fn hosted(endpoint: &str, bucket: &str) -> String {
    match endpoint.split_once("://") {
        Some((scheme, host)) => format!("{scheme}://{bucket}.{host}"),
        None => endpoint.to_owned(),
    }
}

/// Scheme, host and port. Without TLS, whoever listens could use what he hears until it expires.
fn is_endpoint(url: &str) -> bool {
    let url = url.strip_suffix('/').unwrap_or(url);
    let Some((scheme, host)) = url.split_once("://") else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_here = name == "localhost"
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    let visible = |b: u8| b.is_ascii_alphanumeric() || b".-:[]".contains(&b);
    let is_host = !name.is_empty() && host.bytes().all(visible);
    is_host && (scheme == "https" || (scheme == "http" && is_here))
}

fn stamp(metadata: &std::fs::Metadata) -> Stamp {
    let changed = (metadata.ctime(), metadata.ctime_nsec());
    (metadata.dev(), metadata.ino(), metadata.len(), changed)
}

fn region() -> String {
    "us-east-1".to_owned()
}

fn url_lifetime() -> String {
    "1 h".to_owned()
}

const SECRET_LEN_MAX: u64 = 4096;

/// A request that failed is made again after a moment: a server that starts anew is not away.
const RETRY: RetryConfig = RetryConfig {
    backoff: BackoffConfig {
        init_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_secs(1),
        base: 2.0,
    },
    max_retries: 3,
    retry_timeout: Duration::from_secs(3),
};
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// The largest document, 48 MiB, at 20 Mbit/s.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// All tries of a request: the last one begins a moment after the time for new ones at most.
pub(crate) const TRIES_WITHIN: Duration =
    RETRY.retry_timeout.saturating_add(RETRY.backoff.max_backoff).saturating_add(ANSWER_WITHIN);

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[tokio::test]
    async fn a_url_is_signed_for_one_object_and_for_a_while() {
        let (_dir, settings) = settings("");
        let buckets = Buckets::open(&[settings]).unwrap();
        let sign = async |source, path| buckets.sign(source, path, UnixSeconds(1000)).await;
        let signed = sign("s3://films/a b/", "v/r+0 é.mp4").await.unwrap().unwrap();
        assert_eq!(signed.expires, UnixSeconds(1000 + 7200));
        let (base, query) = signed.url.split_once('?').unwrap();
        assert_eq!(base, "https://s3.example:9000/films/a%20b/v/r%2B0%20%C3%A9.mp4");
        assert!(query.contains("X-Amz-Expires=7200&"), "{query}");
        assert!(query.contains("X-Amz-Credential=AK1%2F"), "{query}");
        assert!(!signed.url.contains("the-secret"));
        assert_eq!(sign("https://o.example/", "r0.mp4").await, None);
        let unknown = sign("s3://other/", "r0.mp4").await.unwrap();
        assert_eq!(unknown, Err(BucketError::Unknown("other".to_owned())));
    }

    #[tokio::test]
    async fn the_bucket_is_in_the_path_or_in_the_host() {
        let base = async |change: &dyn Fn(&mut Settings)| {
            let (_dir, mut settings) = settings("");
            change(&mut settings);
            let buckets = Buckets::open(&[settings]).unwrap();
            let signed = buckets.sign("s3://films/", "x", UnixSeconds(0)).await.unwrap().unwrap();
            signed.url.split_once('?').unwrap().0.to_owned()
        };
        assert_eq!(base(&|_| ()).await, "https://s3.example:9000/films/x");
        let hosted = base(&|s| s.path_style = Some(false)).await;
        assert_eq!(hosted, "https://films.s3.example:9000/x");
        let amazon = base(&|s| s.endpoint = None).await;
        assert_eq!(amazon, "https://films.s3.us-east-1.amazonaws.com/x");
    }

    #[tokio::test]
    async fn a_secret_that_was_replaced_signs_the_next_url() {
        let (dir, settings) = settings("");
        let file = settings.secret_access_key_file.clone();
        let buckets = Buckets::open(&[settings]).unwrap();
        let store = |buckets: &Buckets| buckets.0["films"].store();
        let before = store(&buckets).unwrap();
        assert!(Arc::ptr_eq(&before, &store(&buckets).unwrap()), "made once");
        write(&dir.path().join("new"), "another-secret", 0o600);
        std::fs::rename(dir.path().join("new"), &file).unwrap();
        assert!(!Arc::ptr_eq(&before, &store(&buckets).unwrap()), "made anew");
        write(&file, "a-secret-for-all", 0o644);
        assert!(store(&buckets).unwrap_err().to_string().contains("chmod 600"));
        std::fs::remove_file(&file).unwrap();
        let gone = buckets.sign("s3://films/", "x", UnixSeconds(0)).await.unwrap();
        assert!(gone.unwrap_err().to_string().contains("No such file"));
    }

    #[test]
    fn mistakes_are_refused_with_what_to_do_and_without_the_secret() {
        let refused = |change: &dyn Fn(&mut Settings)| {
            let (_dir, mut settings) = settings("");
            change(&mut settings);
            let said = Buckets::open(&[settings]).unwrap_err().to_string();
            assert!(!said.contains("the-secret"), "{said}");
            said
        };
        assert!(refused(&|s| s.bucket = "Films".to_owned()).contains("lower-case letters"));
        for endpoint in ["http://s3.example", "s3.example", "https://", "https://s3.example/x"] {
            let said = refused(&|s| s.endpoint = Some(endpoint.to_owned()));
            assert!(said.contains("use an https URL"), "{said}");
        }
        assert!(refused(&|s| s.url_lifetime = "8 d".to_owned()).contains("use 1 min to 7 d"));
        assert!(refused(&|s| s.url_lifetime = "3600".to_owned()).contains("unit"));
        assert!(refused(&|s| s.access_key_id.clear()).contains("access_key_id"));
        let file = |text: &'static str, mode| {
            move |s: &mut Settings| write(&s.secret_access_key_file, text, mode)
        };
        assert!(refused(&file("the-secret", 0o640)).contains("chmod 600"));
        assert!(refused(&file("", 0o600)).contains("one word"));
        assert!(refused(&file("the-secret of the-fleet", 0o600)).contains("one word"));
        assert!(
            refused(&|s| s.secret_access_key_file = "/no".into()).contains("/no: No such file")
        );
        let (_dir, settings) = settings("");
        let twice = Buckets::open(&[settings.clone(), settings]).unwrap_err();
        assert_eq!(twice, BucketError::Twice("films".to_owned()));
    }

    #[test]
    fn what_is_printed_can_be_read_back() {
        let (_dir, settings) = settings("path_style = false");
        let printed = format!("[[s3]]\n{}", toml::to_string(&settings).unwrap());
        let again: File = toml::from_str(&printed).unwrap();
        assert_eq!(toml::to_string(&again.s3[0]).unwrap(), toml::to_string(&settings).unwrap());
        assert!(toml::from_str::<File>("[[s3]]\nbukket = \"x\"").is_err());
    }

    #[derive(Debug, Deserialize)]
    struct File {
        s3: Vec<Settings>,
    }

    fn settings(more: &str) -> (tempfile::TempDir, Settings) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("secret");
        write(&file, "the-secret\n", 0o600);
        let text = format!(
            "[[s3]]\nbucket = \"films\"\nendpoint = \"https://s3.example:9000\"\n\
             access_key_id = \"AK1\"\nsecret_access_key_file = {file:?}\n\
             url_lifetime = \"2 h\"\n{more}"
        );
        let file: File = toml::from_str(&text).unwrap();
        (dir, file.s3.into_iter().next().unwrap())
    }

    fn write(file: &std::path::Path, text: &str, mode: u32) {
        std::fs::write(file, text).unwrap();
        std::fs::set_permissions(file, PermissionsExt::from_mode(mode)).unwrap();
    }
}
