//! A small world around one real appliance: films, an origin that counts, a control plane that says
//! what it is told to say.
//!
//! ```text
//! Film ──> Origin ── bytes ──> nearcast-appliance <── manifest ── Control
//!                              (the real binary)   ── reports ──>
//! ```
//!
//! The appliance is the product, unchanged; what is around it is the lab's, so that a manifest
//! comes when the lab wants it and every byte is known.

mod appliance;
mod control;
mod fleet;
mod http;
mod origin;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use identity::credentials::Credentials;
use identity::member::Member;
use model::id::{ApplianceId, AssetVersionId, Generation, ObjectId};
use model::manifest::{AssetVersion, File, Manifest, TokenKey, Trust};
use model::object::{BLOCK_LEN, BlockHash, Blocks, block_hash};
use model::units::{BitsPerSecond, Bytes, UnixSeconds};
use playback::token::{Grant, Scope, Session, SigningInput, assemble};

use crate::certificate::{self, Certificate};
use crate::client::Dice;
use fleet::Fleet;

pub use appliance::{Appliance, Got, Setup, Viewer, differing, free_ports};
pub use control::Control;
pub use origin::Origin;

/// A file of a film.
#[derive(Clone, Debug)]
pub struct Object {
    pub path: String,
    pub bytes: Arc<Vec<u8>>,
    pub blocks: Blocks,
}

/// An asset version, with all its bytes.
#[derive(Clone, Debug)]
pub struct Film {
    /// Its name, also the first folder of its files at the origin.
    pub name: String,
    pub objects: Vec<Object>,
    /// Of viewers whose players do not say what they need.
    pub pace: Option<BitsPerSecond>,
}

/// Everything around the appliance.
pub struct Stage {
    dir: PathBuf,
    pub origin: Origin,
    pub control: Control,
    certificate: Certificate,
    fleet: Fleet,
    /// The appliance's.
    identity: Credentials,
    key: Ed25519KeyPair,
    generation: u64,
    /// Who else in the site holds the same, if somebody does.
    pub other: Option<ApplianceId>,
    /// Where an appliance finds this machine, if it is on another.
    pub host: Option<String>,
}

/// The appliance's name.
pub const APPLIANCE: &str = "lab";
/// The name of the key that tokens are signed with.
const KEY: &str = "lab";

impl Object {
    /// So many bytes, the same for the same seed, others for another.
    pub fn new(path: String, len: u64, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut bytes = Vec::new();
        while Bytes::of(bytes.len()).0 < len {
            bytes.extend(dice.throw().to_le_bytes());
        }
        bytes.truncate(Bytes(len).as_usize());
        Self::of(path, bytes)
    }

    /// A file with these bytes.
    pub fn of(path: String, bytes: Vec<u8>) -> Self {
        let len = Bytes::of(bytes.len());
        let pieces: Vec<&[u8]> = bytes.chunks(BLOCK_LEN.as_usize()).collect();
        let single = pieces.len() == 1;
        let hashes: Vec<BlockHash> =
            (0..).zip(&pieces).map(|(i, piece)| block_hash(i, piece, single)).collect();
        let blocks = Blocks::of_hashes(len, hashes).expect("one hash for each block");
        Self { path, bytes: Arc::new(bytes), blocks }
    }

    /// Its name everywhere.
    pub fn id(&self) -> ObjectId {
        self.blocks.id()
    }

    /// True if a drive has it in a file of its own; what has none is in a unit.
    pub fn is_on(&self, drive: &Path) -> bool {
        let id = self.id().to_string();
        drive.join("objects").join(&id[..2]).join(&id).is_file()
    }
}

impl Film {
    /// Files of these lengths.
    pub fn new(name: &str, lens: impl IntoIterator<Item = u64>, seed: u64) -> Self {
        let object = |(i, len): (u64, u64)| {
            Object::new(format!("{i}.mp4"), len, seed ^ (i + 1).wrapping_mul(0x9e37_79b9))
        };
        let objects = (0..).zip(lens).map(object).collect();
        Self { name: name.to_owned(), objects, pace: None }
    }

    /// The files of a folder.
    pub fn read(name: &str, dir: &Path) -> Result<Self> {
        let mut objects = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let path = entry.file_name().into_string().ok().context("a name that is no text")?;
            objects.push(Object::of(path, std::fs::read(entry.path())?));
        }
        Ok(Self { name: name.to_owned(), objects, pace: None })
    }

    pub fn bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.blocks.len().0).sum()
    }
}

impl Stage {
    /// A world without films, whose own files are in `dir`.
    pub fn new(dir: &Path) -> Result<Self> {
        Self::with_key(dir, certificate::Key::default())
    }

    /// The same, where the appliance's certificate has a key of this kind.
    pub fn with_key(dir: &Path, kind: certificate::Key) -> Result<Self> {
        let certificate = Certificate::make_with(dir, kind)?;
        let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).ok().context("no signing key")?;
        let fleet = Fleet::new()?;
        let identity = fleet.credentials(&Member::appliance(APPLIANCE))?;
        let (origin, control) = (Origin::start()?, Control::start(APPLIANCE, &fleet)?);
        let dir = dir.to_owned();
        Ok(Self {
            dir,
            origin,
            control,
            certificate,
            fleet,
            identity,
            key,
            generation: 0,
            other: None,
            host: None,
        })
    }

    /// From now on these films are wanted, and no others.
    pub fn publish(&mut self, films: &[&Film]) -> Result<()> {
        self.generation += 1;
        films.iter().for_each(|film| self.origin.offer(film));
        let versions: Result<_> = films.iter().map(|film| self.version(film)).collect();
        let public_key = self.key.public_key().as_ref().try_into()?;
        let manifest = Manifest {
            appliance: APPLIANCE.parse().ok().context("the constant is a name")?,
            generation: Generation(self.generation),
            token_keys: vec![TokenKey { kid: KEY.to_owned(), public_key }],
            trust: Trust::default(),
            versions: versions?,
            numbers: BTreeMap::new(),
            siblings: self.siblings(films)?,
            site: Vec::new(),
        };
        self.control.publish(&manifest, films, &self.fleet);
        Ok(())
    }

    /// Every film should be on the other appliance too, if there is another.
    fn siblings(&self, films: &[&Film]) -> Result<BTreeMap<AssetVersionId, Vec<ApplianceId>>> {
        let Some(other) = &self.other else { return Ok(BTreeMap::new()) };
        let version = |film: &&Film| {
            let id = film.name.parse().ok().context("not a name of an asset version")?;
            Ok((id, vec![other.clone()]))
        };
        films.iter().map(version).collect()
    }

    /// Where a viewer finds a film's files, without host and with a token in it.
    pub fn base(&self, film: &Film) -> Result<String> {
        let expires = UnixSeconds(wall()?.0 + 24 * 3600);
        let scope = Scope::whole(&film.name).context("not a name of an asset version")?;
        let grant = Grant { session: Session::of_random([9; 12]), expires, scope };
        let input = SigningInput::new(KEY, grant);
        let signature = self.key.sign(input.as_bytes()).as_ref().try_into()?;
        Ok(format!("/t/{}/{}/", assemble(KEY, grant, &signature), film.name))
    }

    /// What viewers trust, PEM.
    pub fn trust(&self) -> &Path {
        &self.certificate.ca
    }

    /// What viewers are shown by the appliance.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Where the appliance finds control.
    pub fn control_url(&self) -> String {
        self.seen(&self.control.url())
    }

    /// Makes a state directory that of an appliance which has enrolled.
    pub fn enrol(&self, state: &Path) -> Result<()> {
        std::fs::create_dir_all(state)?;
        Ok(self.identity.save(state)?)
    }

    /// Starts the appliance, which has enrolled; returns when it listens.
    pub fn start(&self, setup: &Setup<'_>) -> Result<Appliance> {
        // What a cut left of the identity may be nothing; an operator would enrol again.
        if Credentials::load(setup.state).is_err() {
            self.enrol(setup.state)?;
        }
        Appliance::start(&self.dir, &self.certificate, &self.control.url(), setup)
    }

    /// Waits until the appliance says that it holds these films, and nothing else.
    pub fn wait_until_held(
        &self,
        appliance: &mut Appliance,
        films: &[&Film],
        within: Duration,
    ) -> Result<()> {
        let all = ids(films.iter().copied());
        appliance.wait_until("holding the films", within, || self.control.held() == all)
    }

    /// A URL of this machine as the appliance has to say it.
    fn seen(&self, url: &str) -> String {
        match &self.host {
            Some(host) => url.replace("127.0.0.1", host),
            None => url.to_owned(),
        }
    }

    fn version(&self, film: &Film) -> Result<Arc<AssetVersion>> {
        let file = |object: &Object| {
            let len = object.blocks.len();
            let content_type = match object.path.rsplit('.').next() {
                Some("m3u8") => "application/vnd.apple.mpegurl",
                Some("mpd") => "application/dash+xml",
                _ => "video/mp4",
            };
            let file = File { object: object.id(), len, content_type: content_type.into() };
            (object.path.clone(), file)
        };
        Ok(Arc::new(AssetVersion {
            id: film.name.parse().ok().context("not a name of an asset version")?,
            asset: "lab".parse().ok().context("not a name of an asset")?,
            sources: vec![format!("{}/{}/", self.seen(&self.origin.url()), film.name)],
            modified: UnixSeconds(1_700_000_000),
            pace: film.pace,
            files: film.objects.iter().map(file).collect::<BTreeMap<_, _>>(),
        }))
    }
}

pub fn ids<'a>(films: impl IntoIterator<Item = &'a Film>) -> BTreeSet<String> {
    let objects = films.into_iter().flat_map(|film| &film.objects);
    objects.map(|object| object.id().to_string()).collect()
}

fn wall() -> Result<UnixSeconds> {
    let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH)?;
    Ok(UnixSeconds(now.as_secs()))
}
