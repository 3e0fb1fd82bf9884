//! The renditions of a version, as far as they can be told apart: which of its objects belong to
//! each, and how much bandwidth it takes.
//!
//! ```text
//! object 0 ──> rendition 2      number 0: of none, or of several: whoever holds a rendition holds
//! object 1 ──> rendition 0      these too
//! object 2 ──> rendition 1
//! ```
//!
//! Two bytes for each file, and only where there are several renditions.

use std::collections::BTreeMap;

use model::id::ObjectId;
use model::limits::DIRECT_ALIGN;
use model::manifest::AssetVersion;
use model::units::{BitsPerSecond, Bytes};
use playback::Reference;

/// The renditions of a version. Empty if it has fewer than two, or nobody told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renditions {
    /// The number of each file's, in the order of paths; 0 for none.
    of_files: Box<[u8]>,
    /// The number of each object's, in the order of ids.
    of_objects: Box<[u8]>,
    /// By number, from 0.
    each: Box<[Rendition]>,
    /// For each entry manifest, the numbers of what it refers to, in its order.
    references: Box<[Box<[u8]>]>,
}

/// One of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rendition {
    /// The most that an entry manifest says it takes; none if none says so, as of sound in HLS.
    pub bitrate: Option<BitsPerSecond>,
    /// Its objects.
    pub objects: u32,
    /// Their room on drives, in whole blocks.
    pub len_on_drive: Bytes,
}

impl Renditions {
    /// Of a version whose files have these numbers, in the order of their paths, and whose entry
    /// manifests have these references. O(files log files).
    pub(crate) fn new(
        version: &AssetVersion,
        objects: &[ObjectId],
        references: Vec<Vec<Reference>>,
        of_files: Vec<u8>,
    ) -> Self {
        let count = usize::from(of_files.iter().copied().max().unwrap_or(0));
        if of_files.len() != version.files.len() || count < 2 {
            return Self::default();
        }
        let mut numbers: BTreeMap<ObjectId, (u8, Bytes)> = BTreeMap::new();
        for (file, number) in version.files.values().zip(&of_files) {
            let known = numbers.entry(file.object).or_insert((*number, file.len));
            known.0 = if known.0 == *number { *number } else { 0 };
        }
        assert_eq!(numbers.len(), objects.len(), "objects are those of the files");
        let mut each = vec![Rendition::default(); count + 1];
        for (number, len) in numbers.values() {
            let of = &mut each[usize::from(*number)];
            of.objects += 1;
            of.len_on_drive += len.align_up(DIRECT_ALIGN);
        }
        let of_paths: BTreeMap<&str, u8> =
            version.files.keys().map(String::as_str).zip(of_files.iter().copied()).collect();
        let mut numbers_of = Vec::with_capacity(references.len());
        for of_entry in references {
            let numbered = |reference: Reference| {
                let number = of_paths.get(reference.file.as_str()).copied().unwrap_or(0);
                let of = &mut each[usize::from(number)];
                of.bitrate = of.bitrate.max(reference.bitrate);
                number
            };
            numbers_of.push(of_entry.into_iter().map(numbered).collect());
        }
        Self {
            of_files: of_files.into(),
            of_objects: numbers.into_values().map(|(number, _)| number).collect(),
            each: each.into(),
            references: numbers_of.into(),
        }
    }

    /// How many there are; 0 if they cannot be told apart.
    pub fn count(&self) -> u8 {
        u8::try_from(self.each.len().saturating_sub(1)).expect("numbers have eight bits")
    }

    /// The number of each file's, in the order of paths; 0 for none.
    pub fn of_files(&self) -> &[u8] {
        &self.of_files
    }

    /// The number of each object's, in the order of ids; 0 for none, or several.
    pub(crate) fn of_objects(&self) -> &[u8] {
        &self.of_objects
    }

    /// All by number, from 0: what belongs to none, or to several, comes first.
    pub fn each(&self) -> &[Rendition] {
        &self.each
    }

    /// The numbers of those that have a bitrate, the lowest first: they are placed by themselves.
    pub(crate) fn placed(&self) -> Box<[u8]> {
        let rated =
            (1..).zip(self.each.iter().skip(1)).filter_map(|(n, of)| Some((of.bitrate?, n)));
        let mut rated: Vec<(BitsPerSecond, u8)> = rated.collect();
        rated.sort_unstable();
        rated.into_iter().map(|(_, number)| number).collect()
    }

    /// The bitrates of those that have one, and their room on drives.
    pub(crate) fn lens(&self) -> impl Iterator<Item = (BitsPerSecond, Bytes)> {
        self.each.iter().skip(1).filter_map(|of| Some((of.bitrate?, of.len_on_drive)))
    }

    /// The numbers of what an entry manifest refers to, in its order; empty if they cannot be told
    /// apart.
    pub fn references(&self, entry: usize) -> &[u8] {
        self.references.get(entry).map_or(&[], AsRef::as_ref)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use model::id::Item;
    use model::manifest::File;
    use model::units::UnixSeconds;
    use model::view::Renditions as Held;

    use crate::{Entry, Format, Version};

    const MASTER: &str = "#EXTM3U\n\
        #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"a\",URI=\"a.m3u8\"\n\
        #EXT-X-STREAM-INF:BANDWIDTH=800,AUDIO=\"a\"\nl.m3u8\n\
        #EXT-X-STREAM-INF:BANDWIDTH=3000,AUDIO=\"a\"\nh.m3u8\n";
    const MPD: &str = "<MPD><Period><AdaptationSet>\
        <Representation bandwidth='2500'><BaseURL>h.mp4</BaseURL></Representation>\
        <Representation bandwidth='900'><BaseURL>l.mp4</BaseURL></Representation>\
        </AdaptationSet></Period></MPD>";

    /// Two of video and one of sound, which share an object (`same`).
    fn version(numbers: &[u8]) -> Version {
        let file = |n: u8| File {
            object: ObjectId([n; 32]),
            len: Bytes(u64::from(n) * 5_000),
            content_type: "video/mp4".into(),
        };
        let paths =
            ["a.m3u8", "a.mp4", "h.m3u8", "h.mp4", "h.same", "l.m3u8", "l.mp4", "l.same", "m.jpg"];
        let objects = [1, 2, 3, 4, 9, 6, 7, 9, 8];
        let files = paths.map(str::to_owned).into_iter().zip(objects.map(file)).collect();
        let version = AssetVersion {
            id: "film-1".parse().unwrap(),
            asset: "film".parse().unwrap(),
            sources: Vec::new(),
            modified: UnixSeconds(0),
            pace: None,
            files,
        };
        let entry = |path: &str, format, text: &str| Entry {
            path: path.to_owned(),
            format,
            text: text.into(),
        };
        let entries = vec![entry("m.m3u8", Format::Hls, MASTER), entry("m.mpd", Format::Dash, MPD)];
        Version::new(Arc::new(version), entries, 1).divided(numbers.to_vec())
    }

    #[test]
    fn entry_manifests_say_what_each_takes_and_refer_to_them() {
        let version = version(&[1, 1, 2, 2, 2, 3, 3, 3, 0]);
        let renditions = version.renditions();
        assert_eq!(renditions.count(), 3);
        let told = renditions.each().iter().map(|of| of.bitrate.map(|bitrate| bitrate.0));
        assert_eq!(told.collect::<Vec<_>>(), [None, None, Some(3000), Some(900)]);
        assert_eq!(renditions.references(0), [1, 3, 2]);
        assert_eq!(renditions.references(1), [2, 3]);
        assert!(renditions.references(2).is_empty());
    }

    #[test]
    fn the_items_of_a_version_are_its_renditions_with_a_bitrate() {
        let version = version(&[1, 1, 2, 2, 2, 3, 3, 3, 0]).numbered(Some(700));
        let items = version.items().unwrap();
        let (low, high) = (Item(702), Item(701));
        assert_eq!(items.each().collect::<Vec<_>>(), [(3, low), (2, high)]);
        let of_files: Vec<_> = (699..709).map(|file| version.item_of(file)).collect();
        // Objects 1 and 2 are sound, 8 is the entry manifest, and 9 is of two.
        let counted = [low, low, high, high, low, low, low, low].map(Some);
        assert_eq!(of_files[1..9], counted);
        assert_eq!((of_files[0], of_files[9]), (None, None));
    }

    #[test]
    fn what_cannot_be_told_apart_is_one_item() {
        let each = |version: Version| version.items().map(|of| of.each().collect::<Vec<_>>());
        assert_eq!(each(version(&[]).numbered(Some(700))), Some(vec![(0, Item(700))]));
        assert_eq!(each(version(&[1, 1, 2, 2, 2, 3, 3, 3, 0])), None, "it has no numbers");
        let version = version(&[1, 1, 2, 2, 2, 3, 3, 3, 0]).numbered(Some(700));
        assert!(version.part(Held::ALL).is_none(), "that is all of it");
        let low = version.part(Held::NONE.with(2)).unwrap();
        let paths: Vec<&str> = low.files.files.keys().map(String::as_str).collect();
        assert_eq!(paths, ["a.m3u8", "a.mp4", "h.same", "l.m3u8", "l.mp4", "l.same", "m.jpg"]);
        assert_eq!(low.objects.iter().collect::<Vec<_>>(), [0, 1, 4, 5, 6, 7]);
    }

    #[test]
    fn an_object_of_several_belongs_to_none() {
        let version = version(&[1, 1, 2, 2, 2, 3, 3, 3, 0]);
        let renditions = version.renditions();
        assert_eq!(renditions.of_objects(), [1, 1, 2, 2, 3, 3, 0, 0]);
        let counts: Vec<u32> = renditions.each().iter().map(|of| of.objects).collect();
        assert_eq!(counts, [2, 2, 2, 2]);
        let len: u64 = renditions.each().iter().map(|of| of.len_on_drive.0).sum();
        assert_eq!(Bytes(len), version.len_on_drive());
    }

    #[test]
    fn what_does_not_fit_divides_nothing() {
        for numbers in [&[1, 2][..], &[1; 9], &[0; 9], &[]] {
            assert_eq!(*version(numbers).renditions(), Renditions::default());
        }
    }
}
