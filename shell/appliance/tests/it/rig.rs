//! An appliance's storage side on temporary drives, with its origin and its control.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use appliance::filling::peer::PeerConfig;
use appliance::process::config::Text;
use appliance::process::storage::{
    About, Config, ControlConfig, FillConfig, News, Serving, Storage, StorageHandle,
};
use appliance::storage::drives::Drive;
use identity::member::Member;
use identity::signing::SigningKey;
use model::drives::DriveSet;
use model::expected::FirstBlocks;
use model::extent::{DriveIndex, Extent};
use model::id::{ApplianceId, DocumentId, DriveId, Generation, ObjectId};
use model::limits::DIRECT_ALIGN;
use model::manifest::{
    AssetVersion, File, FileNumbers, Manifest, SiteMember, Trust, TrustDocument,
};
use model::object::{BLOCK_LEN, BlockHash, Blocks, block_hash};
use model::units::{BitsPerSecond, Bytes, Nanos, UnixSeconds};
use model::update::Update;
use store::layout;
use store::log::Sequence;
use store::marker::{Marker, Reserve};
use wire::convert::document_out;
use wire::v1::demand::{DemandPart, DemandTaken};
use wire::v1::expected::Expected;
use wire::v1::fill::FillRules;
use wire::v1::identity::{Source, Sources};
use wire::v1::manifest::Lacking;
use wire::v1::report::ReportReply;
use wire::v1::routes::Wanted;
use wire::v1::signed::Kind;

use crate::fleet;
use crate::http::{Request, Server, answer};

/// A file of an asset version, and what it is as an object.
#[derive(Clone)]
pub(crate) struct TestFile {
    pub(crate) path: String,
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(crate) blocks: Blocks,
}

impl TestFile {
    /// Bytes that differ from block to block and from file to file.
    pub(crate) fn new(path: &str, len: usize) -> Self {
        let mut bytes = vec![0; len];
        blake3::Hasher::new().update(path.as_bytes()).finalize_xof().fill(&mut bytes);
        Self::of(path, bytes)
    }

    /// These bytes.
    pub(crate) fn of(path: &str, bytes: Vec<u8>) -> Self {
        let pieces: Vec<&[u8]> = bytes.chunks(BLOCK_LEN.as_usize()).collect();
        let single = pieces.len() == 1;
        let hashes: Vec<BlockHash> =
            (0..).zip(&pieces).map(|(i, piece)| block_hash(i, piece, single)).collect();
        let blocks = Blocks::of_hashes(Bytes::of(bytes.len()), hashes).unwrap();
        Self { path: path.to_owned(), bytes: Arc::new(bytes), blocks }
    }

    pub(crate) fn id(&self) -> ObjectId {
        self.blocks.id()
    }
}

/// One asset version of these files.
pub(crate) fn version(name: &str, sources: &[SocketAddr], files: &[TestFile]) -> AssetVersion {
    let file = |file: &TestFile| {
        let content_type = "video/mp4".into();
        let entry = File { object: file.id(), len: file.blocks.len(), content_type };
        (file.path.clone(), entry)
    };
    AssetVersion {
        id: name.parse().unwrap(),
        asset: "film".parse().unwrap(),
        sources: sources.iter().map(|address| format!("http://{address}/film/")).collect(),
        modified: UnixSeconds(1_700_000_000),
        pace: None,
        files: files.iter().map(file).collect(),
    }
}

/// A control plane of a few lines: the newest manifest, block hashes, and the reports it got.
#[derive(Default)]
pub(crate) struct TestControl {
    pub(crate) manifest: Mutex<Option<Manifest>>,
    pub(crate) manifests_asked: AtomicU64,
    /// What is given out instead of the manifest, signed as it should be.
    pub(crate) envelope: Mutex<Option<Vec<u8>>>,
    /// Whose control it is; `a1` where nothing is said.
    pub(crate) name: OnceLock<String>,
    /// What is answered when an object's sources are asked for; others are unknown.
    pub(crate) sources: Mutex<BTreeMap<ObjectId, Vec<Source>>>,
    pub(crate) sources_asked: AtomicU64,
    /// For what a master is to fetch first, with all that was said of the time it was lacked for.
    pub(crate) waiting: Mutex<BTreeMap<ObjectId, Vec<u64>>>,
    /// Who asks goes to the sources that are named, and no further.
    pub(crate) only: AtomicBool,
    /// Serial numbers that manifests revoke.
    pub(crate) revoked: Mutex<BTreeSet<String>>,
    /// Certificates given out to renew others.
    pub(crate) renewed: AtomicU64,
    /// The members of its site that have service addresses, in manifests.
    pub(crate) site: Mutex<Vec<SiteMember>>,
    /// Where siblings let others fetch, in replies.
    pub(crate) peers: Mutex<BTreeMap<String, String>>,
    /// What all appliances share, and its envelope. None where a control has no such document.
    pub(crate) trust: Mutex<Option<(TrustDocument, Vec<u8>)>>,
    /// What is told of it, where that is another generation.
    pub(crate) trust_told: AtomicU64,
    /// Who signs manifests, where it is another key than the fleet's first.
    pub(crate) signer: Mutex<Option<SigningKey>>,
    /// Gives out whole manifests only, as the release before short ones did.
    pub(crate) is_old: AtomicBool,
    /// It has no document.
    pub(crate) lost_documents: AtomicBool,
    /// Documents are asked for in vain, with this status; 0 for not.
    pub(crate) documents_refused: AtomicU16,
    /// So many more documents are given, one in an answer, then 503; none for all.
    pub(crate) documents_left: Mutex<Option<usize>>,
    pub(crate) documents_asked: Mutex<Vec<String>>,
    blocks: Mutex<BTreeMap<String, Vec<u8>>>,
    pub(crate) reports: Mutex<Vec<wire::v1::report::Report>>,
    /// Replies ask for what routers announce, and parts of it are answered so; 0 asks for nothing.
    pub(crate) parts_answered: AtomicU16,
    pub(crate) parts: Mutex<Vec<wire::v1::routes::Part>>,
    /// Demand is answered so; 0 is a control that cannot count.
    pub(crate) demand_answered: AtomicU16,
    pub(crate) demand: Mutex<Vec<DemandPart>>,
    /// What viewers are expected to be sent; none of a control that knows of no such thing.
    pub(crate) expected: Mutex<Option<Expected>>,
    /// What was asked for with it.
    pub(crate) expected_asked: Mutex<Vec<String>>,
    /// The rules for fill, told to whoever goes by others; none where control knows of none.
    pub(crate) rules: Mutex<Option<FillRules>>,
    /// The next reply claims to know nothing.
    pub(crate) forget: AtomicBool,
    /// Manifests have numbers, and inventories are read by them.
    pub(crate) by_number: AtomicBool,
    /// The process that reports, and the state of its inventory that is known.
    known: Mutex<(u64, u64)>,
}

impl TestControl {
    pub(crate) fn start(address: &str) -> (Arc<Self>, Server) {
        let control = Arc::new(Self::default());
        let server = control.serve(address);
        (control, server)
    }

    pub(crate) fn serve(self: &Arc<Self>, address: &str) -> Server {
        self.serve_as(address, &Member::control())
    }

    pub(crate) fn serve_as(self: &Arc<Self>, address: &str, member: &Member) -> Server {
        let control = Arc::clone(self);
        let handler =
            Arc::new(move |r: &Request, out: &mut dyn std::io::Write| control.answer(r, out));
        fleet::ours().serve(address, member, handler)
    }

    /// Publishes a manifest of these versions.
    pub(crate) fn publish(&self, generation: u64, versions: Vec<AssetVersion>, files: &[TestFile]) {
        let mut blocks = self.blocks.lock().unwrap();
        for file in files {
            blocks.insert(file.id().to_string(), wire::v1::blocks::encode(&file.blocks));
        }
        let by_number = self.by_number.load(Ordering::SeqCst);
        let named = versions.iter().filter(|_| by_number).map(|version| version.id.clone());
        let numbers = named.zip((700..).step_by(100).map(FileNumbers::from)).collect();
        *self.manifest.lock().unwrap() = Some(Manifest {
            appliance: self.name().parse().unwrap(),
            generation: Generation(generation),
            token_keys: Vec::new(),
            trust: Trust { revoked: self.revoked.lock().unwrap().clone(), ..Trust::default() },
            numbers,
            siblings: BTreeMap::new(),
            site: self.site.lock().unwrap().clone(),
            versions: versions.into_iter().map(Arc::new).collect(),
        });
    }

    /// The state that is known after a report, as control finds it.
    fn known(&self, report: &wire::v1::report::Report) -> u64 {
        let ids = &report.inventory;
        let (from, to) = match &report.files {
            Some(files) if self.by_number.load(Ordering::SeqCst) => (files.from, files.to),
            _ => (ids.from, ids.to),
        };
        let mut known = self.known.lock().unwrap();
        if known.0 != report.start_id {
            *known = (report.start_id, 0);
        }
        let fits = from == 0 || from == known.1;
        known.1 = if self.forget.swap(false, Ordering::SeqCst) || !fits { 0 } else { to };
        known.1
    }

    fn name(&self) -> &str {
        self.name.get_or_init(|| "a1".to_owned())
    }

    fn sources_of(&self, object: &ObjectId, waited: &str) -> Option<Sources> {
        self.sources_asked.fetch_add(1, Ordering::SeqCst);
        let waited = waited.strip_prefix("waited_s=").expect("it is said").parse().unwrap();
        if let Some(said) = self.waiting.lock().unwrap().get_mut(object) {
            said.push(waited);
            return Some(Sources { only: true, wait_s: Some(1), ..Sources::default() });
        }
        let sources = self.sources.lock().unwrap().get(object).cloned()?;
        let only = self.only.load(Ordering::SeqCst);
        Some(Sources { sources, only, ..Sources::default() })
    }

    pub(crate) fn last_report(&self) -> Option<wire::v1::report::Report> {
        self.reports.lock().unwrap().last().cloned()
    }

    pub(crate) fn answer(
        &self,
        request: &Request,
        out: &mut dyn std::io::Write,
    ) -> std::io::Result<bool> {
        let manifest = self.manifest.lock().unwrap().clone();
        let generation = manifest.as_ref().map_or(0, |manifest| manifest.generation.0);
        let parts: Vec<&str> = request.target.split(['/', '?', '&']).skip(1).collect();
        match (request.method.as_str(), parts.as_slice()) {
            ("POST", ["v1", "appliances", name, "report"]) if *name == self.name() => {
                let report: wire::v1::report::Report =
                    serde_json::from_slice(&request.body).unwrap();
                let inventory = self.known(&report);
                let reply = self.reply(generation, inventory, report.fill_rules);
                self.reports.lock().unwrap().push(report);
                answer(out, 200, &serde_json::to_vec(&reply).unwrap())
            }
            ("POST", ["v1", "appliances", name, "routes"]) if *name == self.name() => {
                self.parts.lock().unwrap().push(serde_json::from_slice(&request.body).unwrap());
                answer(out, self.parts_answered.load(Ordering::SeqCst), b"{\"next\":0}")
            }
            ("POST", ["v1", "appliances", name, "demand"]) if *name == self.name() => {
                let (status, taken) = self.take_demand(&request.body);
                answer(out, status, &taken)
            }
            ("GET", ["v1", "appliances", name, "manifest", known, "short=true", "trust=true"])
                if *name == self.name() =>
            {
                self.manifests_asked.fetch_add(1, Ordering::SeqCst);
                match manifest.filter(|m| format!("known={}", m.generation.0) != *known) {
                    Some(manifest) => answer(out, 200, &self.signed(&manifest)),
                    None => answer(out, 204, b""),
                }
            }
            ("GET", ["v1", "appliances", name, "trust", known]) if *name == self.name() => {
                let (status, envelope) = self.envelope_of_trust(known);
                answer(out, status, &envelope)
            }
            ("POST", ["v1", "appliances", name, "documents"]) if *name == self.name() => {
                let (status, lines) = self.documents(&request.body);
                answer(out, status, &lines)
            }
            ("GET", ["v1", "appliances", name, "sources", object, waited])
                if *name == self.name() =>
            {
                match self.sources_of(&object.parse().unwrap(), waited) {
                    Some(sources) => answer(out, 200, &serde_json::to_vec(&sources).unwrap()),
                    None => answer(out, 404, b"{}"),
                }
            }
            _ => self.answer_others(request, &parts, out),
        }
    }

    fn answer_others(
        &self,
        request: &Request,
        parts: &[&str],
        out: &mut dyn std::io::Write,
    ) -> std::io::Result<bool> {
        match (request.method.as_str(), parts) {
            ("GET", ["v1", "appliances", name, "expected", room, known])
                if *name == self.name() =>
            {
                self.expected_asked.lock().unwrap().push(format!("{room} {known}"));
                match &*self.expected.lock().unwrap() {
                    Some(told) if *known == format!("known={}", told.state) => {
                        answer(out, 204, b"")
                    }
                    Some(told) => answer(out, 200, &serde_json::to_vec(told).unwrap()),
                    None => answer(out, 404, b"{}"),
                }
            }
            ("POST", ["v1", "renew"]) => {
                let ask: wire::v1::identity::Renew = serde_json::from_slice(&request.body).unwrap();
                self.renewed.fetch_add(1, Ordering::SeqCst);
                let fleet = fleet::ours();
                let a1 = Member::appliance("a1");
                let given = fleet.enrolled(&a1, &ask.request, fleet::now(), 86_400);
                answer(out, 200, &serde_json::to_vec(&given).unwrap())
            }
            ("GET", ["v1", "objects", object, "blocks"]) => {
                match self.blocks.lock().unwrap().get(*object) {
                    Some(hashes) => answer(out, 200, hashes),
                    None => answer(out, 404, b"{}"),
                }
            }
            _ => answer(out, 404, b"{}"),
        }
    }
}

impl TestControl {
    fn signed(&self, manifest: &Manifest) -> Vec<u8> {
        let signer = self.signer.lock().unwrap();
        let signer = signer.as_ref().unwrap_or_else(|| &fleet::ours().signer);
        if let Some(envelope) = self.envelope.lock().unwrap().clone() {
            return envelope;
        }
        if self.is_old.load(Ordering::SeqCst) {
            return sign(signer, manifest);
        }
        match &*self.trust.lock().unwrap() {
            Some((document, _)) => {
                let generation = document.trust.generation;
                let trust = Trust { generation, is_apart: true, ..Trust::default() };
                sign_short(signer, &Manifest { trust, ..manifest.clone() })
            }
            None => sign_short(signer, manifest),
        }
    }

    fn take_demand(&self, body: &[u8]) -> (u16, Vec<u8>) {
        let part: DemandPart = serde_json::from_slice(body).unwrap();
        let taken = DemandTaken { counted: part.number };
        self.demand.lock().unwrap().push(part);
        let status = match self.demand_answered.load(Ordering::SeqCst) {
            0 => 404,
            status => status,
        };
        (status, serde_json::to_vec(&taken).unwrap())
    }

    fn reply(&self, generation: u64, inventory: u64, known: Option<u64>) -> ReportReply {
        let rules = self.rules.lock().unwrap().clone();
        ReportReply {
            fill: rules.filter(|rules| known != Some(rules.state)),
            generation,
            inventory,
            trust: self.trust_told(),
            by_number: self.by_number.load(Ordering::SeqCst),
            interval_ms: 100,
            peers: self.peers.lock().unwrap().clone(),
            routes: (self.parts_answered.load(Ordering::SeqCst) != 0).then(Wanted::default),
            ..ReportReply::default()
        }
    }

    fn envelope_of_trust(&self, known: &str) -> (u16, Vec<u8>) {
        let known: u64 = known.strip_prefix("known=").unwrap().parse().unwrap();
        if self.trust_told() <= known {
            return (204, Vec::new());
        }
        let trust = self.trust.lock().unwrap();
        trust.as_ref().map_or((204, Vec::new()), |(_, envelope)| (200, envelope.clone()))
    }

    fn trust_told(&self) -> u64 {
        let trust = self.trust.lock().unwrap().as_ref().map(|(of, _)| of.trust.generation.0);
        match self.trust_told.load(Ordering::SeqCst) {
            0 => trust.filter(|_| !self.is_old.load(Ordering::SeqCst)).unwrap_or(0),
            told => told,
        }
    }

    fn documents(&self, body: &[u8]) -> (u16, Vec<u8>) {
        let mut left = self.documents_left.lock().unwrap();
        match self.documents_refused.load(Ordering::SeqCst) {
            0 if *left == Some(0) => return (503, Vec::new()),
            0 => {}
            status => return (status, Vec::new()),
        }
        let Lacking { documents } = serde_json::from_slice(body).unwrap();
        let manifest = self.manifest.lock().unwrap().clone();
        let is_there = !self.lost_documents.load(Ordering::SeqCst);
        let versions = manifest.iter().flat_map(|manifest| &manifest.versions);
        let lines = versions.filter(|_| is_there).map(|version| document_out(version));
        let lines = lines.filter(|line| documents.contains(&DocumentId::of(line).to_string()));
        let most = left.as_mut().map_or(usize::MAX, |left| {
            *left -= 1;
            1
        });
        let lines = lines.take(most).flat_map(|line| [&line[..], b"\n"].concat()).collect();
        self.documents_asked.lock().unwrap().extend(documents);
        (200, lines)
    }
}

/// A manifest as control would give it out.
pub(crate) fn sign(key: &SigningKey, manifest: &Manifest) -> Vec<u8> {
    let wire = wire::convert::manifest_out(manifest);
    key.sign(Kind::Manifest, &serde_json::to_vec(&wire).unwrap())
}

/// The same, with its versions named by their documents.
pub(crate) fn sign_short(key: &SigningKey, manifest: &Manifest) -> Vec<u8> {
    let named = |version: &Arc<AssetVersion>| DocumentId::of(&document_out(version));
    let wire = wire::convert::short_manifest_out(manifest, named);
    key.sign(Kind::Manifest, &serde_json::to_vec(&wire).unwrap())
}

/// Somebody who is told of updates.
pub(crate) type Hearer = Arc<dyn Fn(&Update) + Send + Sync>;

/// Temporary drives and state, and what the workers would have been told.
pub(crate) struct Rig {
    dir: tempfile::TempDir,
    pub(crate) config: Config,
    pub(crate) told: Arc<Told>,
    pub(crate) also: Option<Hearer>,
}

/// What workers know after all updates so far.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) index: Mutex<store::index::Index>,
    pub(crate) small: Mutex<BTreeMap<ObjectId, Arc<[u8]>>>,
    pub(crate) manifest: Mutex<Option<Arc<Manifest>>>,
    pub(crate) siblings: Mutex<Arc<BTreeMap<ApplianceId, Arc<str>>>>,
    pub(crate) updates: AtomicU64,
    pub(crate) expected: Mutex<Vec<FirstBlocks>>,
    /// Drives that nobody is to have open.
    pub(crate) aside: Mutex<BTreeSet<DriveIndex>>,
}

impl Rig {
    /// Formatted drives; control, if any, at this address.
    pub(crate) fn new(drive_count: usize, control: Option<SocketAddr>) -> Self {
        Self::named("a1", drive_count, control)
    }

    /// The same for an appliance of this name.
    pub(crate) fn named(name: &str, drive_count: usize, control: Option<SocketAddr>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let drives: Vec<PathBuf> =
            (0..drive_count).map(|i| dir.path().join(format!("d{i}"))).collect();
        for drive in &drives {
            std::fs::create_dir(drive).unwrap();
            let reserve = Reserve::percent(1).unwrap();
            appliance::storage::format::format(drive, reserve, UnixSeconds(1)).unwrap();
        }
        let control = control.map(|address| ControlConfig {
            url: Text(format!("https://{address}").parse().unwrap()),
            fronts: Vec::new(),
            report_interval: Text(Nanos::millis(100)),
        });
        let (silence_max, unit) = (Nanos::seconds(2), Text(Bytes::ZERO));
        let fill = FillConfig { concurrency: 2, silence_max, unit, ..FillConfig::default() };
        let state = dir.path().join("state");
        std::fs::create_dir(&state).unwrap();
        let config = Config {
            appliance: name.parse().unwrap(),
            state,
            credentials: fleet::ours().credentials(&Member::appliance(name)),
            drives,
            silent: DriveSet::NONE,
            control,
            peer: PeerConfig::default(),
            fill,
            small_budget: Bytes::mib(1),
            scrub_rate: None,
            rules: Vec::new(),
            tiering: None,
            hot: Bytes::ZERO,
            takeover: None,
            tickets: tls::Tickets::new(appliance::clock::wall),
            about: About { base_url: "https://127.0.0.2:8443".to_owned(), ..About::default() },
        };
        Self { dir, config, told: Arc::default(), also: None }
    }

    /// One more drive, with those of its folders that these files go to: where folders take a block
    /// each, all of 256 drives would take 270 MB.
    pub(crate) fn add_drive_for(&mut self, files: &[TestFile]) {
        let index = u8::try_from(self.config.drives.len()).unwrap();
        let drive = self.dir.path().join(format!("d{index}"));
        let used = files.iter().map(|file| layout::folder_of(&layout::object_file(&file.id())));
        let object_folders: BTreeSet<_> = layout::object_folders().collect();
        let others = layout::folders().filter(|folder| !object_folders.contains(folder));
        for folder in others.chain(used) {
            std::fs::create_dir_all(drive.join(&*folder.0)).unwrap();
        }
        let id = DriveId([index; 16]);
        let reserve = Reserve::percent(1).unwrap();
        let marker = Marker { id, reserve, direct_align: DIRECT_ALIGN, created: UnixSeconds(1) };
        let empty = store::log::snapshot(id, Sequence(0), &BTreeMap::new());
        std::fs::write(drive.join(layout::LOG), []).unwrap();
        std::fs::write(drive.join(layout::SNAPSHOT), empty).unwrap();
        std::fs::write(drive.join(layout::MARKER), marker.to_string()).unwrap();
        self.config.drives.push(drive);
    }

    /// Drives and state that are there already.
    pub(crate) fn with(config: Config) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir, config, told: Arc::default(), also: None }
    }

    pub(crate) fn rate_max(mut self, bytes_per_second: u64) -> Self {
        self.config.fill.rate_max = Some(Text(BitsPerSecond(bytes_per_second * 8)));
        self
    }

    pub(crate) fn drive(&self, i: usize) -> &Path {
        &self.config.drives[i]
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn counters() -> Arc<Serving> {
        let workers = vec![Arc::default(), Arc::default()];
        Arc::new(Serving { workers, ..Serving::default() })
    }

    /// Starts; what workers knew before is forgotten.
    pub(crate) fn start(&mut self) -> StorageHandle {
        self.start_counting(Self::counters())
    }

    pub(crate) fn start_counting(&mut self, counters: Arc<Serving>) -> StorageHandle {
        self.told = Arc::default();
        let (told, also) = (Arc::clone(&self.told), self.also.clone());
        let listen = self.config.peer.listen.iter();
        let peers = listen.map(|at| appliance::filling::peer::bind(*at).unwrap()).collect();
        let tell = move |news| match news {
            News::Update(update) => {
                also.iter().for_each(|also| also(&update));
                told.apply(update);
            }
            News::Expected(blocks) => *told.expected.lock().unwrap() = blocks.to_vec(),
            News::Directory(drive, directory) => {
                assert!(rustix::fs::fstat(&*directory).is_ok());
                assert!(told.aside.lock().unwrap().remove(&drive), "told before");
            }
        };
        let sink = move |news: Vec<News>| news.into_iter().for_each(&tell);
        Storage::start(self.config.clone(), peers, sink, counters).unwrap()
    }

    /// Waits until exactly these files are visible, and checks their bytes on the drives.
    pub(crate) fn wait_for(&self, files: &[TestFile]) {
        wait("the files to be visible", || {
            let index = self.told.index.lock().unwrap();
            index.len() == files.len() && files.iter().all(|f| index.locate(&f.id()).is_some())
        });
        files.iter().for_each(|file| self.check(file));
    }

    /// Where workers find an object.
    pub(crate) fn extent_of(&self, file: &TestFile) -> Extent {
        self.told.index.lock().unwrap().locate(&file.id()).cloned().unwrap()
    }

    /// Reads an object where the index says it is.
    pub(crate) fn check(&self, file: &TestFile) {
        let extent = self.extent_of(file);
        let bytes = std::fs::read(self.path_of(&extent)).unwrap();
        let (content, rest) = bytes[extent.offset.as_usize()..].split_at(file.bytes.len());
        assert!(*content == **file.bytes, "{} has its bytes", file.path);
        let padding = content.len().next_multiple_of(4096) - content.len();
        assert!(rest[..padding].iter().all(|byte| *byte == 0), "{} ends in zeros", file.path);
        let inspected = appliance::process::inspect::inspect(&self.path_of(&extent)).unwrap();
        assert!(inspected.is_sound(), "{}", inspected.text());
    }

    pub(crate) fn path_of(&self, extent: &Extent) -> PathBuf {
        self.drive(extent.drive.as_usize()).join(&*extent.file.0)
    }

    /// Object files on a drive.
    pub(crate) fn object_files(&self, drive: usize) -> Vec<PathBuf> {
        let folders = std::fs::read_dir(self.drive(drive).join("objects")).unwrap();
        let files = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
        files.map(|file| file.unwrap().path()).collect()
    }

    pub(crate) fn parts(&self, drive: usize) -> usize {
        std::fs::read_dir(self.drive(drive).join("fill")).unwrap().count()
    }

    /// What the drive's own index says after a restart.
    pub(crate) fn reopen(&self, drive: usize) -> appliance::storage::drives::Loaded {
        Drive::open(self.drive(drive), DriveIndex(0)).unwrap().1
    }
}

impl Told {
    fn apply(&self, update: Update) {
        self.updates.fetch_add(1, Ordering::SeqCst);
        let mut index = self.index.lock().unwrap();
        match update {
            Update::Siblings(siblings) => *self.siblings.lock().unwrap() = siblings,
            Update::Manifest(manifest) => *self.manifest.lock().unwrap() = Some(manifest),
            Update::Published { object, extent, small } => {
                index.publish(object, extent);
                if let Some(bytes) = small {
                    self.small.lock().unwrap().insert(object, bytes);
                }
            }
            Update::Removed { object } => {
                assert!(index.remove(&object).is_some(), "only what was published is removed");
                self.small.lock().unwrap().remove(&object);
            }
            Update::DriveSetAside { drive } => {
                self.aside.lock().unwrap().insert(drive);
                index.set_aside(drive);
                for object in index.forget_some(usize::MAX) {
                    self.small.lock().unwrap().remove(&object);
                }
            }
        }
    }
}

/// Waits for something that must come; 20 s is far more than any of it takes.
pub(crate) fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(20), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
