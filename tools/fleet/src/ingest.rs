//! `nearcast ingest`: reads a directory or a bucket once and publishes it at the control plane.
//!
//! ```text
//! list ─> playlists: read, checked ─> the rest: block hashes ─> version name ─> PUT to control
//!            missing file, live playlist:  ^ state file: an interrupted
//!            error, nothing is published     ingest goes on where it was
//! ```
//!
//! Files stay opaque: nothing is refused by its type, and DRM needs nothing. The media bytes never
//! go through here: appliances fetch them from the source URLs and check them by these hashes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use indicatif::ProgressBar;
use model::id::{AssetId, AssetVersionId};
use model::object::{BlockHash, Blocks};
use model::units::{Bytes, Nanos};
use serde::Serialize;
use wire::v1::ingest::{NewFile, NewVersion};

use crate::content_type::{content_type, first_content_type};
use crate::control::{Control, Where};
use crate::output::{self, now_unix_s};
use crate::remove::Window;
use crate::tree::Tree;
use files::{Files, Job};
use manifests::Manifests;
use state::State;
use walk::Stamp;

mod bucket;
mod credentials;
mod files;
mod hash;
mod manifests;
mod state;
mod walk;

pub(crate) use bucket::{Bucket, Reads, Server};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    request: Request,
    #[command(flatten)]
    control: Where,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Request {
    /// Directory with the asset, or s3://BUCKET/PREFIX/: HLS and DASH manifests and whatever they
    /// name
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// What viewers will call it: a-z, 0-9, '-', '_' and '.'
    #[arg(long, value_name = "NAME")]
    pub(crate) asset: AssetId,
    /// URL of the same directory for appliances to fill from, ending in "/"; of several the best
    /// first. A bucket is its own source
    #[arg(long, value_name = "URL/")]
    pub(crate) source: Vec<String>,
    #[command(flatten)]
    pub(crate) server: Server,
    /// Where progress is remembered [default: below the user's cache directory, one per DIR]
    #[arg(long, value_name = "FILE")]
    pub(crate) state: Option<PathBuf>,
    /// Read all files again, whatever is remembered
    #[arg(long)]
    pub(crate) reread: bool,
    /// Ingest a directory without manifests: appliances will hold it, players cannot be sent to it
    #[arg(long)]
    pub(crate) no_manifests: bool,
    #[command(flatten)]
    pub(crate) window: Window,
    /// Take it though it was withdrawn: it may be shown again
    #[arg(long)]
    pub(crate) again: bool,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Ingested {
    pub(crate) asset: String,
    /// Its version, now the current one.
    pub(crate) version: String,
    pub(crate) files: usize,
    pub(crate) bytes: u64,
    /// Bytes that had to be read for it; the rest was remembered.
    bytes_read: u64,
    /// Paths of the entry manifests.
    entries: Vec<String>,
    /// True if control did not have this version yet.
    created: bool,
    elapsed_ms: u64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let bar = progress_bar();
    let done = ingest(&args.request, &args.control.client()?, &bar);
    bar.finish_and_clear();
    let done = done?;
    if args.json {
        return output::json(&done);
    }
    let rate = Bytes(done.bytes_read).per(Nanos::millis(done.elapsed_ms));
    let read = output::bytes(Bytes(done.bytes_read));
    let read = match done.bytes_read {
        RATE_SHOWN_FROM.. => format!("{read} read at {}", output::rate(rate)),
        _ => format!("{read} read"),
    };
    let word = if done.created { "ingested" } else { "already there" };
    output::line(&format!(
        "{} {word} as {}: {} files, {}; {read}",
        done.asset,
        done.version,
        done.files,
        output::bytes(Bytes(done.bytes)),
    ))?;
    let none = if done.entries.is_empty() { "none" } else { "" };
    output::line(&format!("entry manifests: {none}{}", done.entries.join(", ")))
}

/// A bar for bytes on stderr; nothing where that is no terminal.
pub(crate) fn progress_bar() -> ProgressBar {
    output::bar(
        "{prefix}{bar:32.cyan} {decimal_bytes} of {decimal_total_bytes}  \
         {decimal_bytes_per_sec}  {eta} left  {wide_msg}",
    )
}

/// Reads the files and publishes them at `control`.
pub(crate) fn ingest(
    request: &Request,
    control: &Control,
    bar: &ProgressBar,
) -> anyhow::Result<Ingested> {
    let mut sources = request.source.clone();
    // A bucket may be written with or without a slash at its end.
    if let Some(bucket) = request.dir.to_str().filter(|dir| dir.starts_with("s3://")) {
        let source = format!("{}/", bucket.trim_end_matches('/'));
        let bucket = Bucket::open(&source, &request.server)?;
        if !sources.contains(&source) {
            sources.push(source);
        }
        check_sources(&sources)?;
        let state = state_path(request, bucket.identity().as_bytes())?;
        return ingest_files(request, &bucket, &state, sources, control, bar);
    }
    let tree = Tree::open(&request.dir)?;
    check_sources(&sources)?;
    let state = state_path(request, tree.path().as_os_str().as_encoded_bytes())?;
    ensure_outside(&state, &tree)?;
    ingest_files(request, &tree, &state, sources, control, bar)
}

fn check_sources(sources: &[String]) -> anyhow::Result<()> {
    ensure!(
        !sources.is_empty(),
        "appliances need a URL to fill from: say where the same directory is served with --source"
    );
    for source in sources {
        let web = source.starts_with("https://") || source.starts_with("http://");
        ensure!(
            (web && source.ends_with('/')) || wire::convert::Bucket::of(source).is_some(),
            "source \"{source}\" must be an http, https or s3 URL that ends in \"/\""
        );
    }
    Ok(())
}

fn ingest_files(
    request: &Request,
    from: &dyn Files,
    state_path: &Path,
    sources: Vec<String>,
    control: &Control,
    bar: &ProgressBar,
) -> anyhow::Result<Ingested> {
    let start = Instant::now();
    let stamps = from.list()?;
    let manifests = Manifests::read(from, &stamps)?;
    let entries = manifests.check(&stamps)?;
    ensure!(
        request.no_manifests || !entries.is_empty(),
        "{} holds no entry manifest (an HLS multivariant playlist or a DASH MPD), so no player \
         could be sent to it: add one, or say --no-manifests",
        from.name()
    );
    let mut state = State::open(state_path, &stamps)?;
    if request.reread {
        state.clear()?;
    }
    let (files, bytes_read) = hash_all(from, &stamps, &manifests, &mut state, bar)?;
    from.check_all(&stamps)?;
    let version = version_name(&request.asset, &files, content_type)?;
    let entries_paths = entries.iter().map(|entry| entry.path.clone()).collect();
    let renditions = manifests.renditions(&stamps)?.into_iter().chain(std::iter::repeat(0));
    let numbered = files.iter().zip(renditions);
    let new = NewVersion {
        sources,
        modified_unix_s: now_unix_s(),
        files: numbered.map(|((path, blocks), number)| new_file(path, blocks, number)).collect(),
        entries,
        window: request.window.said(),
        again: request.again,
    };
    let created = control.put(&format!("/v1/assets/{}/versions/{version}", request.asset), &new)?;
    Ok(Ingested {
        asset: request.asset.to_string(),
        version: version.to_string(),
        files: files.len(),
        bytes: stamps.values().map(|stamp| stamp.len.0).sum(),
        bytes_read: bytes_read.0,
        entries: entries_paths,
        created,
        elapsed_ms: u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
    })
}

/// The user's directory for what can be made again: XDG_CACHE_HOME, else ~/.cache.
pub(crate) fn user_directory() -> anyhow::Result<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|h| h.join(".cache")));
    let base = base.context("neither XDG_CACHE_HOME nor HOME names a directory: set one")?;
    Ok(base.join("nearcast"))
}

fn state_path(request: &Request, location: &[u8]) -> anyhow::Result<PathBuf> {
    if let Some(path) = &request.state {
        return Ok(path.clone());
    }
    let hash = blake3::hash(location).to_hex();
    Ok(user_directory()?.join("ingest").join(format!("{}.state", &hash[..16])))
}

fn ensure_outside(path: &Path, tree: &Tree) -> anyhow::Result<()> {
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        Some(_) | None => Path::new("."),
    };
    let inside = parent.canonicalize().is_ok_and(|parent| parent.starts_with(tree.path()));
    ensure!(
        !inside,
        "the state file {} would lie in the directory being ingested: name another place",
        path.display()
    );
    Ok(())
}

fn hash_all(
    from: &dyn Files,
    stamps: &BTreeMap<String, Stamp>,
    manifests: &Manifests,
    state: &mut State,
    bar: &ProgressBar,
) -> anyhow::Result<(BTreeMap<String, Blocks>, Bytes)> {
    let rest = |(path, stamp): (&String, &Stamp)| {
        let job = job(path, *stamp, state);
        (manifests.bytes(path).is_none() && job.from < stamp.len).then_some(job)
    };
    let jobs: Vec<Job> = stamps.iter().filter_map(rest).collect();
    bar.set_length(jobs.iter().map(|job| (job.stamp.len - job.from).0).sum());
    bar.reset_eta();
    from.expect(jobs);
    let mut read = manifests.len();
    let mut files = BTreeMap::new();
    for (path, stamp) in stamps {
        bar.set_message(path.clone());
        let blocks = match manifests.bytes(path) {
            Some(bytes) => Blocks::of_hashes(stamp.len, hash::hash_bytes(bytes))?,
            None => hash_one(from, path, *stamp, state, &mut |piece| {
                bar.inc(piece.0);
                read += piece;
                Ok(())
            })?,
        };
        files.insert(path.clone(), blocks);
    }
    state.flush()?;
    Ok((files, read))
}

/// The rest of a file: the part whose hashes are not known.
fn job(path: &str, stamp: Stamp, state: &State) -> Job {
    let known = u64::try_from(state.known(path, stamp).len()).unwrap_or(u64::MAX);
    Job { path: path.to_owned(), stamp, from: hash::start(stamp.len, known) }
}

fn hash_one(
    from: &dyn Files,
    path: &str,
    stamp: Stamp,
    state: &mut State,
    on_read: &mut dyn FnMut(Bytes) -> anyhow::Result<()>,
) -> anyhow::Result<Blocks> {
    let known = state.known(path, stamp).len();
    let first = u64::try_from(known).unwrap_or(u64::MAX);
    if first < model::object::block_count(stamp.len) {
        let failed = || format!("\"{path}\" could not be ingested");
        let file = from.open(&job(path, stamp, state)).with_context(failed)?;
        let mut waiting: Vec<BlockHash> = Vec::new();
        hash::hash_file(file, stamp.len, first, &mut |hashes, bytes| {
            on_read(bytes)?;
            waiting.extend_from_slice(hashes);
            if state::LINE_BLOCKS_MAX <= waiting.len() {
                state.append(path, stamp, &waiting)?;
                state.flush()?;
                waiting.clear();
            }
            Ok(())
        })
        .with_context(failed)?;
        // Before its last hashes are remembered: a file that changed meanwhile has no such blocks.
        from.check(path, stamp)?;
        if !waiting.is_empty() {
            state.append(path, stamp, &waiting)?;
        }
    }
    Ok(Blocks::of_hashes(stamp.len, state.known(path, stamp).to_vec())?)
}

/// The same directory has the same name wherever and whenever it is ingested. What a file is said
/// to be is part of it, since players are told: the same bytes under other types are another
/// version. Types of the first table add nothing, so that names which were given before stay.
fn version_name(
    asset: &AssetId,
    files: &BTreeMap<String, Blocks>,
    kind_of: impl Fn(&str) -> &'static str,
) -> anyhow::Result<AssetVersionId> {
    let mut hasher = blake3::Hasher::new();
    for (path, blocks) in files {
        hasher.update(format!("{} {path}\n", blocks.id()).as_bytes());
        let kind = kind_of(path);
        if kind != first_content_type(path) {
            hasher.update(format!("{kind} is the type of {path}\n").as_bytes());
        }
    }
    let hash = hasher.finalize().to_hex();
    let name = format!("{asset}-{}", &hash[..VERSION_DIGITS]);
    name.parse().with_context(|| {
        format!("the asset's name \"{asset}\" is too long: its versions are named \"{name}\"")
    })
}

fn new_file(path: &str, blocks: &Blocks, rendition: u8) -> (String, NewFile) {
    let hashes: Vec<u8> = blocks.hashes().iter().flat_map(|hash| hash.0).collect();
    let file = NewFile {
        object: blocks.id().to_string(),
        len: blocks.len().0,
        content_type: content_type(path).to_owned(),
        blocks: STANDARD.encode(hashes),
        rendition,
    };
    (path.to_owned(), file)
}

fn changed(path: &str) -> String {
    format!(
        "\"{path}\" changed while it was ingested: wait until the files are complete, then try \
         again"
    )
}

/// Over less than this, a rate says nothing.
const RATE_SHOWN_FROM: u64 = 64 << 20;

/// 48 bits: two of a million versions of one asset meet once in 500 such catalogues, and then
/// control says so (409).
const VERSION_DIGITS: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt as _;

    /// A film of 160 MiB, mostly holes.
    fn film(dir: &Path) -> (Tree, BTreeMap<String, Stamp>) {
        let file = std::fs::File::create(dir.join("film.mp4")).unwrap();
        file.set_len(160 << 20).unwrap();
        for at in [0, 70 << 20, (160 << 20) - 9] {
            file.write_all_at(b"some data", at).unwrap();
        }
        let tree = Tree::open(dir).unwrap();
        let stamps = walk::walk(&tree).unwrap();
        (tree, stamps)
    }

    #[test]
    fn an_interrupted_ingest_goes_on_behind_the_last_64_mib_it_verified() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("asset")).unwrap();
        let state_path = dir.path().join("state");
        let (tree, stamps) = film(&dir.path().join("asset"));
        let stamp = stamps["film.mp4"];
        let mut state = State::open(&state_path, &stamps).unwrap();
        let mut read = Bytes::ZERO;
        let stopped = hash_one(&tree, "film.mp4", stamp, &mut state, &mut |piece| {
            read += piece;
            ensure!(read < Bytes::mib(140), "the power went");
            Ok(())
        });
        assert!(format!("{:#}", stopped.unwrap_err()).ends_with("the power went"));
        drop(state);
        let mut state = State::open(&state_path, &stamps).unwrap();
        let mut read = Bytes::ZERO;
        let blocks = hash_one(&tree, "film.mp4", stamp, &mut state, &mut |piece| {
            read += piece;
            Ok(())
        });
        assert_eq!(read, Bytes::mib(160 - 128));
        let bytes = std::fs::read(dir.path().join("asset/film.mp4")).unwrap();
        assert_eq!(blocks.unwrap().id().0, *blake3::hash(&bytes).as_bytes());
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("asset")).unwrap();
        let (tree, stamps) = film(&dir.path().join("asset"));
        let mut state = State::open(&dir.path().join("state"), &stamps).unwrap();
        let path = dir.path().join("asset/film.mp4");
        let result = hash_one(&tree, "film.mp4", stamps["film.mp4"], &mut state, &mut |_| {
            let file = std::fs::File::options().write(true).open(&path)?;
            Ok(file.write_all_at(b"other", 100)?)
        });
        let error = result.unwrap_err().to_string();
        assert!(error.starts_with("\"film.mp4\" changed while"), "{error}");
    }

    #[test]
    fn a_versions_name_depends_on_paths_bytes_and_types_and_on_nothing_else() {
        let blocks = |bytes: &[u8]| {
            Blocks::of_hashes(Bytes::of(bytes.len()), hash::hash_bytes(bytes)).unwrap()
        };
        let typed = |files: &[(&str, &[u8])], kind_of: fn(&str) -> &'static str| {
            let files = files.iter().map(|(p, b)| ((*p).to_owned(), blocks(b))).collect();
            version_name(&"film".parse().unwrap(), &files, kind_of).unwrap().to_string()
        };
        let name = |files: &[(&str, &[u8])]| typed(files, content_type);
        let one = name(&[("a", b"1"), ("b", b"2")]);
        assert_eq!(one, name(&[("b", b"2"), ("a", b"1")]));
        assert_ne!(one, name(&[("a", b"2"), ("b", b"1")]));
        assert_ne!(one, name(&[("a", b"1"), ("c", b"2")]));
        assert_eq!(one.len(), "film-".len() + 12);
        assert_eq!(one, typed(&[("a", b"1"), ("b", b"2")], first_content_type));
        let other = |path: &str| if path == "a" { "text/x-new" } else { content_type(path) };
        assert_ne!(one, typed(&[("a", b"1"), ("b", b"2")], other), "another table of types");
        // As it was named before types were a part of it.
        let named = name(&[("master.m3u8", b"#EXTM3U\n"), ("v/1.m4s", b"x"), ("README", b"")]);
        assert_eq!(named, "film-fc76203f6c97");
        let long = "x".repeat(63).parse().unwrap();
        let error = version_name(&long, &BTreeMap::new(), content_type).unwrap_err().to_string();
        assert!(error.contains("too long"), "{error}");
    }
}
