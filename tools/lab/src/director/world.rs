//! The generator of `lab director`: a fleet, a catalogue, routes and what appliances hold, of any
//! size, from one seed. Its parameters stand in docs/internals/director.md.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use director::{Desired, Registered, Version};
use model::id::{ApplianceId, AssetId, ObjectId, SiteId};
use model::manifest::{AssetVersion, File, TokenKey};
use model::number::{GOLDEN, NumberSet, mix};
use model::object::{BlockHash, Blocks, block_count};
use model::topology::{Appliance, Prefix, Site, Weight};
use model::units::{Bytes, UnixSeconds};

/// How large a world is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct Size {
    pub(super) appliances: u32,
    pub(super) sites: u32,
    pub(super) versions: u32,
    pub(super) files: u32,
    /// Files held by all appliances together.
    pub(super) placements: u64,
    pub(super) prefixes: u32,
}

impl Size {
    /// What all is designed for: its bounds are those of this size.
    pub(super) const DESIGN: Self = Self {
        appliances: 20_000,
        sites: 8000,
        versions: 100_000,
        files: 10_000_000,
        placements: 500_000_000,
        prefixes: 1_200_000,
    };
}

/// The world, as far as it is not drawn again when it is asked for.
pub(super) struct World {
    pub(super) size: Size,
    seed: u64,
    pub(super) versions: Vec<Arc<Version>>,
    /// The number of the next file.
    next: u32,
}

/// One in so many sites is an exchange, and has the appliances beyond one per site.
const EXCHANGE: u32 = 20;
/// One in so many versions has the most files: a season in one version.
const LONG: u32 = 64;
const LONG_FILES: u32 = 1200;
const FILES_MIN: u32 = 20;
/// Of the versions, the first part of so many is the head, which half of all holdings are of.
const HEAD: u32 = 50;
/// One in so many appliances lacks the end of one of its versions.
const FILLING: u32 = 20;

/// Numbers that look drawn: splitmix64 (Steele, Lea and Flood, 2014).
#[derive(Clone, Debug)]
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn of(seed: u64, kind: &str, n: u32) -> Self {
        let kind = kind.bytes().fold(seed, |x, b| (x ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        let mut draw = Self(kind ^ u64::from(n).wrapping_mul(GOLDEN));
        draw.next();
        draw
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// Below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: u32) -> u32 {
        let high = ((self.next() >> 32) * u64::from(n)) >> 32;
        u32::try_from(high).unwrap_or(0)
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
        bytes
    }

    pub(crate) fn session(&mut self) -> [u8; 12] {
        self.bytes()
    }
}

impl World {
    /// Draws the catalogue.
    pub(super) fn new(size: Size, seed: u64) -> Result<Self> {
        ensure!(size.sites <= size.appliances, "each site has an appliance");
        ensure!(0 < size.sites && HEAD <= size.versions, "a fleet, and {HEAD} versions");
        ensure!(FILES_MIN * 2 <= size.files / size.versions, "{FILES_MIN} files or more each");
        let (mut versions, mut next) = (Vec::new(), 0);
        for n in 0..size.versions {
            let version = version(&size, seed, n, next)?;
            next = files_of(&version)?.end;
            versions.push(version);
        }
        Ok(Self { size, seed, versions, next })
    }

    /// Takes versions of the same names, numbers and lengths for its own, or none for a while.
    pub(super) fn replace_versions(&mut self, versions: Vec<Arc<Version>>) {
        self.versions = versions;
    }

    fn draw(&self, kind: &str, n: u32) -> Draw {
        Draw::of(self.seed, kind, n)
    }

    /// What should be, before anything was reported.
    pub(super) fn desired(&self) -> Result<Desired> {
        let mut desired = Desired { token_keys: token_keys(), ..Desired::default() };
        let mut prefixes = vec![Vec::new(); usize::try_from(self.size.sites)?];
        for n in 0..self.size.prefixes {
            for site in self.announcers(n) {
                prefixes[usize::try_from(site)?].push(prefix(n)?);
            }
        }
        for (n, prefixes) in (0..).zip(prefixes) {
            let id = site(n)?;
            Arc::make_mut(&mut desired.sites).insert(id.clone(), Site::new(id, prefixes));
        }
        let usable = Some(self.usable());
        for n in 0..self.size.appliances {
            let (id, site) = (appliance(n)?, site(self.site_of(n))?);
            let weight = Weight::ONE;
            let appliance = Appliance::new(id.clone(), site, weight);
            let registered = Registered { usable, ..Registered::new(appliance) };
            Arc::make_mut(&mut desired.appliances).insert(id, registered);
        }
        let catalog = Arc::make_mut(&mut desired.catalog);
        self.versions.iter().for_each(|version| catalog.put(Arc::clone(version)));
        Ok(desired)
    }

    /// The drives of an appliance: its files, and a tenth.
    pub(super) fn usable(&self) -> Bytes {
        let versions = self.versions.iter().map(|version| version.len_on_drive().0);
        let mean = versions.sum::<u64>() / u64::from(self.size.files);
        Bytes(mean * self.files_per_appliance() / 10 * 11)
    }

    fn files_per_appliance(&self) -> u64 {
        self.size.placements / u64::from(self.size.appliances)
    }

    /// Each site has one appliance; what is left stands in exchanges, in turns.
    fn site_of(&self, appliance: u32) -> u32 {
        let sites = self.size.sites;
        match appliance.checked_sub(sites) {
            None => appliance,
            Some(more) => more % sites.div_ceil(EXCHANGE) * EXCHANGE % sites,
        }
    }

    /// The sites that announce a prefix: 7 in 10 have one, the others 2 to 8.
    pub(super) fn announcers(&self, prefix: u32) -> BTreeSet<u32> {
        let mut draw = self.draw("announcers", prefix);
        let count = if draw.below(10) < 7 { 1 } else { 2 + draw.below(7) };
        (0..count).map(|_| draw.below(self.size.sites)).collect()
    }

    /// A version as viewers pick it: half of the time one of the head, the first ones most.
    pub(super) fn popular(&self, draw: &mut Draw) -> usize {
        let (all, head) = (self.size.versions, self.size.versions / HEAD);
        let n = if draw.next() & 1 == 0 {
            let first = draw.below(head);
            draw.below(first + 1)
        } else {
            draw.below(all)
        };
        usize::try_from(n).unwrap_or(0)
    }

    /// The versions of which an appliance holds all, or all but the end of the last.
    pub(super) fn holdings(&self, appliance: u32) -> Holdings<'_> {
        let mut draw = self.draw("holdings", appliance);
        let (mut held, mut files) = (BTreeSet::new(), 0);
        let most = self.files_per_appliance();
        // Bounded: where nearly all is held, the same is drawn again and again.
        for _ in 0..self.size.versions.saturating_mul(4) {
            let n = self.popular(&mut draw);
            if held.insert(n) {
                files += Bytes::of(self.versions[n].objects().len()).0;
            }
            if most <= files {
                break;
            }
        }
        let versions: Vec<_> = held.into_iter().map(|n| &self.versions[n]).collect();
        Holdings { versions, is_filling: draw.below(FILLING) == 0 }
    }
}

/// What an appliance holds.
pub(super) struct Holdings<'a> {
    pub(super) versions: Vec<&'a Arc<Version>>,
    is_filling: bool,
}

impl Holdings<'_> {
    pub(super) fn files(&self) -> Result<NumberSet> {
        let mut files = NumberSet::new();
        for (at, version) in self.versions.iter().enumerate() {
            let mut all = files_of(version)?;
            if self.is_filling && at + 1 == self.versions.len() {
                all.end -= (all.end - all.start) * 3 / 10;
            }
            files.insert_range(all);
        }
        Ok(files)
    }
}

/// The key that playbacks' tokens are signed with.
pub(super) fn token_keys() -> Vec<TokenKey> {
    vec![TokenKey { kid: "k1".to_owned(), public_key: [7; 32] }]
}

/// The numbers of a version's files.
pub(super) fn files_of(version: &Version) -> Result<Range<u32>> {
    let first = version.first_file.context("it has numbers")?;
    Ok(first..first + u32::try_from(version.objects().len())?)
}

pub(super) fn site(n: u32) -> Result<SiteId> {
    Ok(format!("s{n:05}").parse()?)
}

pub(super) fn appliance(n: u32) -> Result<ApplianceId> {
    Ok(format!("a{n:05}").parse()?)
}

pub(super) fn asset(n: u32) -> Result<AssetId> {
    Ok(format!("t{n:06}").parse()?)
}

/// A prefix: 4 of 5 are IPv4, from 16 to 24 bits long and most 24; the others IPv6, 32 to 48.
/// No two are the same, and shorter ones cover longer ones.
pub(super) fn prefix(n: u32) -> Result<Prefix> {
    let mut draw = Draw::of(0, "prefix", n);
    let prefix = if n.is_multiple_of(5) {
        let len = [48, 48, 44, 40, 36, 32][usize::try_from(draw.below(6))?];
        let bits = (0x2a00_u128 << 112) | (u128::from(n) << 80);
        Prefix::new(Ipv6Addr::from_bits(bits).into(), len)?
    } else {
        let len = [24, 24, 24, 24, 24, 24, 23, 22, 21, 20][usize::try_from(draw.below(10))?];
        let len = if n.is_multiple_of(97) { 16 } else { len };
        let bits = 0x0100_0000_u32.wrapping_add(n << 8);
        Prefix::new(Ipv4Addr::from_bits(bits).into(), len)?
    };
    Ok(prefix)
}

fn version(size: &Size, seed: u64, n: u32, first_file: u32) -> Result<Arc<Version>> {
    let mut draw = Draw::of(seed, "version", n);
    let mean = size.files / size.versions;
    let long = LONG_FILES / LONG;
    let (is_long, others) = match FILES_MIN * 2 + long < mean {
        true => (n % LONG == LONG - 1, (mean - long) * LONG / (LONG - 1)),
        false => (false, mean),
    };
    let drawn = FILES_MIN + draw.below(2 * (others - FILES_MIN) + 1);
    let count = if is_long { LONG_FILES } else { drawn };
    let content_type: Arc<str> = "video/mp4".into();
    let file = |i: u32| {
        let object = ObjectId(draw.bytes());
        let len = Bytes(u64::from(1 + draw.below(5)) << 20);
        let content_type = Arc::clone(&content_type);
        (format!("v/r{}/{:05}.m4s", i % 8, i / 8), File { object, len, content_type })
    };
    let files = AssetVersion {
        id: format!("t{n:06}-1").parse()?,
        asset: asset(n)?,
        sources: vec![format!("https://origin.example/t{n:06}/")],
        modified: UnixSeconds(1),
        pace: None,
        files: (0..count).map(file).collect(),
    };
    let sequence = u64::from(n) + 1;
    let version = Version::new(Arc::new(files), Vec::new(), sequence);
    Ok(Arc::new(version.numbered(Some(first_file))))
}

/// The same with objects that have blocks, and so other ids, and those.
pub(super) fn with_blocks(version: &Version) -> Result<(Version, Vec<Blocks>)> {
    let (mut files, mut all) = (AssetVersion::clone(&version.files), Vec::new());
    for file in files.files.values_mut() {
        let mut draw = Draw(u64::from_le_bytes(std::array::from_fn(|at| file.object.0[at])));
        let hashes = (0..block_count(file.len)).map(|_| BlockHash(draw.bytes())).collect();
        let blocks = Blocks::of_hashes(file.len, hashes)?;
        file.object = blocks.id();
        all.push(blocks);
    }
    let Version { entries, sequence, first_file, .. } = version.clone();
    Ok((Version::new(Arc::new(files), entries, sequence).numbered(first_file), all))
}

/// Another version, that nobody has yet.
pub(super) fn new_version(world: &World, n: u32) -> Result<Arc<Version>> {
    let first = n.checked_mul(2 * LONG_FILES).and_then(|more| world.next.checked_add(more));
    let n = n.checked_add(world.size.versions).context("a number")?;
    version(&world.size, world.seed, n, first.context("a number")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_world_has_the_size_that_was_asked_for_and_is_the_same_each_time() {
        let size = Size {
            appliances: 300,
            sites: 120,
            versions: 500,
            files: 50_000,
            placements: 300 * 2500,
            prefixes: 2000,
        };
        let world = World::new(size, 1).unwrap();
        let files: usize = world.versions.iter().map(|version| version.objects().len()).sum();
        assert!(files.abs_diff(50_000) < 2500, "{files}");
        let held: u64 = (0..300).map(|n| world.holdings(n).files().unwrap().len()).sum();
        assert!(held.abs_diff(750_000) < 75_000, "{held}");
        let prefixes: BTreeSet<_> = (0..2000).map(|n| prefix(n).unwrap()).collect();
        assert_eq!(prefixes.len(), 2000, "each once");
        let desired = world.desired().unwrap();
        assert_eq!((desired.sites.len(), desired.appliances.len()), (120, 300));
        let again = World::new(size, 1).unwrap();
        assert_eq!(again.holdings(7).files().unwrap(), world.holdings(7).files().unwrap());
        assert_ne!(
            World::new(size, 2).unwrap().holdings(7).files().unwrap(),
            again.holdings(7).files().unwrap()
        );
    }
}
