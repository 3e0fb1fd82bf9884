//! The catalog: assets, their versions, and the entry manifests among the files.

use std::sync::Arc;

use model::id::{AssetId, AssetVersionId, Item, ObjectId};
use model::limits::DIRECT_ALIGN;
use model::manifest::AssetVersion;
use model::names::{Names, hash_of};
use model::number::{NumberSet, OWN_FILES, index};
use model::units::{BitsPerSecond, Bytes, UnixSeconds};
use model::view::Renditions as Held;
use playback::renditions::RENDITIONS_MAX;
use playback::{Reference, dash, hls};

use crate::renditions::Renditions;

/// All assets. Cheap to clone: versions are shared.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Newest first: the first version of each is current. No list is empty.
    assets: Names<AssetId, OfAsset>,
    /// All of them, by name. Invariant: those of `assets`.
    versions: Names<AssetVersionId, Arc<Version>>,
}

/// The versions of an asset: most have one, which is found without a list.
#[derive(Clone, Debug)]
enum OfAsset {
    One(Arc<Version>),
    Several(Vec<Arc<Version>>),
}

impl OfAsset {
    fn as_slice(&self) -> &[Arc<Version>] {
        match self {
            Self::One(version) => std::slice::from_ref(version),
            Self::Several(versions) => versions,
        }
    }
}

impl From<Vec<Arc<Version>>> for OfAsset {
    fn from(versions: Vec<Arc<Version>>) -> Self {
        match &*versions {
            [version] => Self::One(Arc::clone(version)),
            _ => Self::Several(versions),
        }
    }
}

/// One version of an asset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    pub files: Arc<AssetVersion>,
    pub entries: Vec<Entry>,
    /// Grows with every version that becomes current.
    pub sequence: u64,
    pub window: Window,
    /// That of its files, and the hash by which it is looked up: a list for a player reads neither
    /// files nor name.
    id: AssetVersionId,
    id_hash: u64,
    /// The number of the first of its objects, in the order of their ids; none if it has no durable
    /// numbers.
    pub first_file: Option<u32>,
    /// In the order of their ids.
    objects: Box<[ObjectId]>,
    len_on_drive: Bytes,
    renditions: Renditions,
}

/// Versions without durable numbers that may be there at a time.
const OWN_SEQUENCES: u64 = 1 << 24;

/// What is placed of a version as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Items {
    first: u32,
    /// The numbers of renditions, the lowest first; empty if it is placed as a whole.
    renditions: Box<[u8]>,
}

impl Items {
    /// Of a rendition; of any that is not placed by itself, that of the lowest.
    pub fn of(&self, rendition: u8) -> Item {
        let is_placed = self.renditions.contains(&rendition);
        let lowest = self.renditions.first().copied().unwrap_or(0);
        Item::of(self.first, u32::from(if is_placed { rendition } else { lowest }))
    }

    /// Those with which the objects of a rendition are held: its own, or, of what belongs to none
    /// that is placed by itself, any of them.
    pub(crate) fn with(&self, rendition: u8) -> impl Iterator<Item = Item> {
        let is_placed = self.renditions.contains(&rendition);
        let with = move |of: &(u8, Item)| !is_placed || of.0 == rendition;
        self.each().filter(with).map(|(_, item)| item)
    }

    /// Above all numbers of other versions' items that are below.
    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    /// All of them, each with its room on drives: the lowest with what belongs to none of them.
    pub(crate) fn lens(&self, version: &Version) -> impl Iterator<Item = (Item, Bytes)> {
        let (len, rest) = (|of| Self::len(version, of), self.common(version));
        let of_item = |(at, (of, item)): (usize, (u8, Item))| match (at, of) {
            (_, 0) => (item, version.len_on_drive),
            (0, of) => (item, len(of) + rest),
            (_, of) => (item, len(of)),
        };
        self.each().enumerate().map(of_item).collect::<Vec<_>>().into_iter()
    }

    fn len(version: &Version, rendition: u8) -> Bytes {
        let of = version.renditions.each().get(usize::from(rendition));
        of.map_or(Bytes::ZERO, |of| of.len_on_drive)
    }

    /// The room of what belongs to none of them and goes along with each; none of a whole version.
    pub(crate) fn common(&self, version: &Version) -> Bytes {
        let divided = self.renditions.iter().map(|of| Self::len(version, *of));
        let divided = divided.fold(Bytes::ZERO, |sum, len| sum + len);
        if self.renditions.is_empty() {
            Bytes::ZERO
        } else {
            version.len_on_drive.saturating_sub(divided)
        }
    }

    /// All of them, each with the number of its rendition, the lowest first; 0 for all of it.
    pub fn each(&self) -> impl Iterator<Item = (u8, Item)> {
        let whole = self.renditions.is_empty().then_some(0);
        self.renditions.iter().copied().chain(whole).map(|of| (of, self.of(of)))
    }
}

/// Some of a version's renditions, with their files.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) files: Arc<AssetVersion>,
    /// Which of the version's objects: their places in the order of ids.
    pub(crate) objects: Arc<NumberSet>,
}

type Versions<'a> = &'a [Arc<Version>];

/// A version as it was before, and as it is.
pub(crate) type Beside<'a> = (Option<&'a Arc<Version>>, Option<&'a Arc<Version>>);

/// When a version may be shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// No playback begins before; none for no such time.
    pub from: Option<UnixSeconds>,
    /// From then on it is withdrawn; none for never.
    pub until: Option<UnixSeconds>,
}

impl Window {
    /// True while playbacks may begin.
    pub fn is_open(&self, now: UnixSeconds) -> bool {
        self.from.is_none_or(|from| from <= now) && !self.is_over(now)
    }

    /// True once it may never be shown again.
    pub fn is_over(&self, now: UnixSeconds) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

/// An entry manifest: the playlist or MPD that a player loads first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its path in the asset version.
    pub path: String,
    pub format: Format,
    pub text: Arc<str>,
}

impl Entry {
    /// What it refers to. Ingest has looked that it can be read.
    fn references(&self) -> Vec<Reference> {
        let references = match self.format {
            Format::Hls => hls::references(&self.path, &self.text),
            Format::Dash => dash::references(&self.path, &self.text),
        };
        references.unwrap_or_default()
    }
}

/// Format of an entry manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    Hls,
    Dash,
}

/// The pace of viewers whose players say nothing, over the highest peak of its renditions:
/// a player that measures three times the bitrate it plays has no reason to go down.
const PACE_PER_PEAK: u64 = 3;
/// No version is paced below this.
const PACE_MIN: BitsPerSecond = BitsPerSecond(8_000_000);

/// The pace of a version with these entries; none if they name no bitrate.
fn pace(entries: &[Entry]) -> Option<BitsPerSecond> {
    let peak = |entry: &Entry| match entry.format {
        Format::Hls => hls::peak(&entry.text),
        Format::Dash => dash::peak(&entry.text),
    };
    let peak = entries.iter().filter_map(peak).max()?;
    Some(PACE_MIN.max(BitsPerSecond(peak.0.saturating_mul(PACE_PER_PEAK))))
}

impl Version {
    /// A version; its pace, objects and room are computed from its files and entries.
    pub fn new(mut files: Arc<AssetVersion>, entries: Vec<Entry>, sequence: u64) -> Self {
        if files.pace.is_none() {
            let pace = pace(&entries);
            if pace.is_some() {
                Arc::make_mut(&mut files).pace = pace;
            }
        }
        let mut lens: Vec<(ObjectId, Bytes)> =
            files.files.values().map(|file| (file.object, file.len)).collect();
        lens.sort_unstable();
        lens.dedup_by_key(|(object, _)| *object);
        let on_drive = |(_, len): &(ObjectId, Bytes)| len.align_up(DIRECT_ALIGN).0;
        let len_on_drive = lens.iter().map(on_drive).fold(0, u64::saturating_add);
        let objects = lens.into_iter().map(|(object, _)| object).collect();
        let (len_on_drive, window) = (Bytes(len_on_drive), Window::default());
        let id = files.id.clone();
        Self {
            files,
            entries,
            sequence,
            window,
            id_hash: hash_of(id.as_str().as_bytes()),
            id,
            first_file: None,
            objects,
            len_on_drive,
            renditions: Renditions::default(),
        }
    }

    /// The same, with these numbers of its files.
    pub fn numbered(self, first_file: Option<u32>) -> Self {
        Self { first_file, ..self }
    }

    /// The same, with its files' renditions told apart: the number of each file's, in the order of
    /// paths, and 0 for none.
    pub fn divided(self, of_files: Vec<u8>) -> Self {
        if of_files.is_empty() {
            return self;
        }
        let references = self.entries.iter().map(Entry::references).collect();
        let renditions = Renditions::new(&self.files, &self.objects, references, of_files);
        Self { renditions, ..self }
    }

    /// The same, to be shown at these times.
    pub fn shown(self, window: Window) -> Self {
        Self { window, ..self }
    }

    /// Its name.
    pub fn id(&self) -> &AssetVersionId {
        &self.id
    }

    /// [`hash_of`] its name.
    pub(crate) fn id_hash(&self) -> u64 {
        self.id_hash
    }

    /// What is placed of it as one: its renditions that have a bitrate, or all of it. None if it
    /// has no durable numbers.
    pub fn items(&self) -> Option<Items> {
        self.first_file.map(|first| self.items_from(first))
    }

    /// The same; with numbers of this process, as nothing durable is said of them, if it has no
    /// durable ones.
    pub(crate) fn items_or_own(&self) -> Items {
        let sequence = u32::try_from(self.sequence % OWN_SEQUENCES).expect("it fits");
        let own = OWN_FILES + sequence * u32::from(RENDITIONS_MAX);
        self.items_from(self.first_file.unwrap_or(own))
    }

    fn items_from(&self, first: u32) -> Items {
        let all = self.renditions.placed();
        // Items are numbered as files are: each rendition needs one.
        let is_divided =
            2 <= all.len() && usize::from(self.renditions.count()) <= self.objects.len();
        Items { first, renditions: if is_divided { all } else { Box::default() } }
    }

    /// The item that a file's bytes count for; none if it has no such file. What belongs to no
    /// rendition, or to several, counts for the lowest one.
    pub fn item_of(&self, file: u32) -> Option<Item> {
        let at = file.checked_sub(self.first_file?)?;
        self.objects.get(index(at))?;
        let rendition = self.renditions.of_objects().get(index(at)).copied().unwrap_or(0);
        self.items().map(|items| items.of(rendition))
    }

    /// The numbers of the files whose bytes count for an item, as [`Self::item_of`] says. O(files).
    pub(crate) fn files_of(&self, item: Item) -> NumberSet {
        let (Some(first), Some(items)) = (self.first_file, self.items()) else {
            return NumberSet::new();
        };
        let of_objects = self.renditions.of_objects();
        let rendition = |at: usize| of_objects.get(at).copied().unwrap_or(0);
        let numbers = (first..).zip(0..self.objects.len());
        let of_item = numbers.filter(|(_, at)| items.of(rendition(*at)) == item);
        of_item.map(|(number, _)| number).collect()
    }

    /// The renditions that take at most so much.
    pub(crate) fn within(&self, most: BitsPerSecond) -> Held {
        let each = self.renditions.each();
        let is_left = |number: u8| {
            let bitrate = each.get(usize::from(number)).and_then(|of| of.bitrate);
            bitrate.is_none_or(|bitrate| bitrate <= most)
        };
        let left = (1..=self.renditions.count()).filter(|number| is_left(*number));
        left.fold(Held::NONE, |held, number| held.with(u32::from(number) - 1))
    }

    /// The same with these renditions alone, and with what is of several, of none, or has no
    /// bitrate, as sound; none if that is all of it. O(files log files).
    pub(crate) fn part(&self, held: Held) -> Option<Part> {
        let placed = self.renditions.placed();
        let is_left = |number: u8| !placed.contains(&number) || held.has(u32::from(number) - 1);
        let of_objects = self.renditions.of_objects();
        if of_objects.iter().all(|number| is_left(*number)) {
            return None;
        }
        let mut files = self.files.as_ref().clone();
        files.files.retain(|_, file| {
            let at = self.objects.binary_search(&file.object).expect("each file's object is one");
            is_left(of_objects[at])
        });
        let left = (0..).zip(of_objects).filter(|(_, number)| is_left(**number));
        Some(Part { files: Arc::new(files), objects: Arc::new(left.map(|(at, _)| at).collect()) })
    }

    /// The numbers of the renditions that an entry manifest of it refers to, in its order; empty if
    /// they cannot be told apart.
    pub fn references(&self, entry: &Entry) -> &[u8] {
        let at = self.entries.iter().position(|of| of.path == entry.path);
        at.map_or(&[], |at| self.renditions.references(at))
    }

    /// Its objects, each once, in the order of their ids.
    pub fn objects(&self) -> &[ObjectId] {
        &self.objects
    }

    /// Its renditions, as far as they can be told apart.
    pub fn renditions(&self) -> &Renditions {
        &self.renditions
    }

    /// True of itself, and of another with the same objects, numbers of them and renditions.
    pub(crate) fn has_same_objects(&self, other: &Self) -> bool {
        let divided = |of: &Self| of.renditions.of_objects() == other.renditions.of_objects();
        let has_same = || self.first_file == other.first_file && self.objects == other.objects;
        std::ptr::eq(self, other) || has_same() && divided(self)
    }

    /// Its room on drives: each object once, in whole blocks.
    pub fn len_on_drive(&self) -> Bytes {
        self.len_on_drive
    }

    /// Sum of the lengths of its files.
    pub fn file_bytes(&self) -> Bytes {
        let lens = self.files.files.values().map(|file| file.len.0);
        Bytes(lens.fold(0, u64::saturating_add))
    }

    /// The highest bitrate that its entry manifests name, by its pace, so never less than 2.7 Mb/s;
    /// none if they name none.
    pub fn bitrate(&self) -> Option<BitsPerSecond> {
        self.files.pace.map(|pace| BitsPerSecond(pace.0 / PACE_PER_PEAK))
    }

    /// The entry manifest of this format: the one at `path`, or else the one nearest the root.
    pub fn entry(&self, format: Format, path: Option<&str>) -> Option<&Entry> {
        let of_format = self.entries.iter().filter(|entry| entry.format == format);
        match path {
            Some(path) => of_format.into_iter().find(|entry| entry.path == path),
            None => of_format.min_by_key(|entry| (entry.path.matches('/').count(), &entry.path)),
        }
    }
}

impl Catalog {
    /// Makes `version` the current one of its asset.
    pub fn put(&mut self, version: Arc<Version>) {
        let known = self.versions.insert(version.id().clone(), Arc::clone(&version));
        if let Some(known) = known {
            self.take_out(&known);
        }
        let asset = version.files.asset.clone();
        let mut versions = self.versions(&asset).to_vec();
        versions.push(version);
        versions.sort_by_key(|version| std::cmp::Reverse(version.sequence));
        self.assets.insert(asset, versions.into());
    }

    /// Takes versions out; true if one of them was there.
    pub fn remove<'a>(&mut self, ids: impl Iterator<Item = &'a AssetVersionId>) -> bool {
        let before = self.version_count();
        for id in ids {
            if let Some(known) = self.versions.remove(id) {
                self.take_out(&known);
            }
        }
        assert!(self.version_count() <= before, "what is taken out is not there any more");
        self.version_count() < before
    }

    fn take_out(&mut self, known: &Version) {
        let asset = &known.files.asset;
        let mut versions = self.versions(asset).to_vec();
        versions.retain(|version| version.id() != known.id());
        if versions.is_empty() {
            self.assets.remove(asset);
        } else {
            self.assets.insert(asset.clone(), versions.into());
        }
    }

    /// All assets by name, each with its versions, newest first.
    pub fn assets(&self) -> impl Iterator<Item = (&AssetId, &[Arc<Version>])> {
        self.first_assets(usize::MAX)
    }

    /// The first of them, so many at most. O(assets + most log most).
    pub fn first_assets(&self, most: usize) -> impl Iterator<Item = (&AssetId, &[Arc<Version>])> {
        self.assets.first(most).into_iter().map(|(id, versions)| (id, versions.as_slice()))
    }

    /// How many assets there are. O(1).
    pub fn asset_count(&self) -> usize {
        self.assets.len()
    }

    /// The versions of an asset, newest first; empty if there is no such asset.
    pub fn versions(&self, asset: &AssetId) -> &[Arc<Version>] {
        self.assets.get(asset).map_or(&[], OfAsset::as_slice)
    }

    /// The version of this name.
    pub fn version(&self, id: &AssetVersionId) -> Option<&Arc<Version>> {
        self.versions.get(id)
    }

    /// All versions, by name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Version>> {
        self.versions.values()
    }

    /// How many versions there are in all.
    pub fn version_count(&self) -> usize {
        self.versions.len()
    }

    /// Of assets whose versions may be others than before: each version that was held then, of this
    /// number of an asset, and each that is now. One that is held both times stands beside itself.
    /// O(assets near those that changed); of all of them, if the number is another.
    pub(crate) fn kept_beside<'a>(
        &'a self,
        before: &'a Self,
        (was, count): (usize, usize),
    ) -> Vec<Beside<'a>> {
        let newest = |all: Versions<'a>, count: usize| &all[..all.len().min(count)];
        let mut pairs: Vec<(Versions<'a>, Versions<'a>)> = Vec::new();
        let mut put = |known: Option<&'a OfAsset>, found: Option<&'a OfAsset>| {
            let all = |of: Option<&'a OfAsset>| of.map_or(&[][..], OfAsset::as_slice);
            pairs.push((newest(all(known), was), newest(all(found), count)));
        };
        if was == count {
            let assets = self.assets.beside(&before.assets);
            assets.for_each(|(_, known, found)| put(known, found));
        } else {
            let found = self.assets.unordered();
            found.for_each(|(asset, found)| put(before.assets.get(asset), Some(found)));
            let gone = before.assets.unordered().filter(|(id, _)| !self.assets.contains_key(*id));
            gone.for_each(|(_, known)| put(Some(known), None));
        }
        let beside = |(known, found): (Versions<'a>, Versions<'a>)| {
            let of = |all: Versions<'a>, id| all.iter().find(|of| of.id() == id);
            let here = found.iter().map(move |version| (of(known, version.id()), Some(version)));
            let gone = known.iter().filter(move |version| of(found, version.id()).is_none());
            here.chain(gone.map(|version| (Some(version), None)))
        };
        pairs.into_iter().flat_map(beside).collect()
    }

    /// The newest `count` versions of every asset with their age (0 is current), the current ones
    /// of all assets first, and among those of one age the oldest first: what was placed first
    /// keeps its place when space runs out.
    pub fn kept(&self, count: usize) -> Vec<(usize, &Arc<Version>)> {
        let newest = |versions: &'_ [Arc<Version>]| versions.len().min(count);
        let mut kept: Vec<(usize, &Arc<Version>)> = self
            .assets
            .values()
            .map(OfAsset::as_slice)
            .flat_map(|versions| versions[..newest(versions)].iter().enumerate())
            .collect();
        kept.sort_by_key(|(age, version)| (*age, version.sequence));
        assert!(kept.iter().all(|(age, _)| *age < count), "no more of an asset than is kept");
        kept
    }
}
