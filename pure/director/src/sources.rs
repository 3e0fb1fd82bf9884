//! Decides where an appliance should fetch an object from, best first, and why.
//!
//! ```text
//! the site, its fill cluster, and some elsewhere ──> Suitability: site, cluster, elsewhere, or out
//!                        │ within each: the draw for (object, who asks), by weight
//!                        v
//!        at most so many siblings, then origins: every source of every version that has it
//! ```
//!
//! How far it goes, `masters` says: who is no master of its fill cluster is told siblings of that
//! cluster alone, and where none has the object, to wait.
//!
//! Elsewhere at most [`ELSEWHERE_MAX`] are looked at: drawn for the pair among those that hold all
//! of a version with the object, and as many among all. So an answer costs no more in a large
//! fleet, and a small one is looked at as a whole.
//!
//! The draw is for the pair, so that appliances that fill the same film at once ask different
//! siblings, and one that fills many objects asks all of them in turn.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::id::{ApplianceId, AssetVersionId, ObjectId, SiteId};
use model::manifest::{AssetVersion, FileNumbers, Manifest};
use model::number::NumberSet;
use model::rendezvous::{Draws, Score};
use model::topology::Weight;
use model::units::{Bytes, Nanos};
use model::view::{Health, Load};

use crate::Director;
use crate::masters::{self, Part, Reach};

/// How many, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub siblings_max: usize,
    /// Siblings of other fill clusters are asked too.
    pub elsewhere: bool,
}

/// A question for sources: the appliance, and the object that it lacks.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    pub asker: &'a ApplianceId,
    pub site: &'a SiteId,
    /// The object that it should hold and lacks.
    pub object: &'a ObjectId,
    /// How far it may go.
    pub reach: Reach,
}

/// An appliance that may be asked.
#[derive(Clone, Copy, Debug)]
pub struct Sibling<'a> {
    pub id: &'a ApplianceId,
    pub site: &'a SiteId,
    /// It stands in the asker's fill cluster, whatever its site.
    pub same_cluster: bool,
    /// Its part among those of its site.
    pub weight: Weight,
    pub health: Health,
    pub load: Load,
    /// Where siblings fetch from it, if it lets them: `host:port`.
    pub address: Option<&'a Arc<str>>,
    pub holds: bool,
}

/// Whether a sibling is asked, best first. Only the first three are; all others are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suitability {
    /// It holds the object and stands in the same site.
    SameSite,
    /// It holds the object and stands in another site of the same fill cluster.
    SameCluster,
    /// It holds the object and stands in another fill cluster.
    Elsewhere,
    Asker,
    Unwell(Health),
    /// It does not let siblings fetch.
    NoAddress,
    Lacks,
    /// Its viewers need all that it can send.
    AtLimit,
    /// It stands in another fill cluster, and those are not asked.
    OtherCluster,
    /// The same, as long as the asker may not go that far.
    TooFar,
}

/// An appliance and the decision about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    pub id: &'a ApplianceId,
    /// Whether it is asked, and why not.
    pub suitability: Suitability,
    /// Its draw; the lowest is first. None if it is left out.
    pub score: Option<Score>,
    /// The address at which it serves siblings; none if it has reported none.
    pub address: Option<&'a Arc<str>>,
}

/// Where to fetch an object from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// Appliances that hold it, best first.
    pub siblings: Vec<Named>,
    /// Versions that it belongs to and that the asker should hold.
    pub versions: Vec<Arc<AssetVersion>>,
    /// How far the asker may go: to the origins of these versions, or to these siblings alone.
    pub reach: Reach,
    /// It is no master, and goes so far because it has waited for long.
    pub escalated: bool,
    /// Nobody may be asked now: the asker comes again after this.
    pub wait: Option<Nanos>,
    /// How far it may go next, and after how long; none if it may go to the origin now.
    pub further: Option<(Reach, Nanos)>,
    /// Who fetches first in its fill cluster; nobody where everybody may.
    pub masters: Vec<ApplianceId>,
}

/// An appliance that is named as a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub id: ApplianceId,
    /// `host:port` at which it serves siblings.
    pub address: Arc<str>,
    /// It stands in the asker's site: what it sends takes nothing of the site's uplink.
    pub same_site: bool,
}

/// A file in an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'a> {
    /// Base URL that ends in `/`, or a bucket.
    pub source: &'a str,
    /// Path below it, not percent-encoded.
    pub path: &'a str,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSources {
    #[error("this appliance is not registered")]
    NotRegistered,
    #[error("no asset version in this appliance's manifest has such an object")]
    NotWanted,
}

/// Ranks all siblings: those to ask come first, best first; those left out follow in any order.
pub fn rank<'a>(
    query: &Query<'_>,
    siblings: impl Iterator<Item = Sibling<'a>>,
    config: &Config,
) -> Vec<Candidate<'a>> {
    let key = key(query);
    let candidate = |sibling: Sibling<'a>| {
        let suitability = Suitability::of(query, &sibling, config);
        let drawn = || Score::of(&key, sibling.id.as_str().as_bytes(), sibling.weight);
        Candidate {
            id: sibling.id,
            suitability,
            score: suitability.is_asked().then(drawn),
            address: sibling.address,
        }
    };
    let mut candidates: Vec<Candidate<'a>> = siblings.map(candidate).collect();
    let is_drawn = |of: &Candidate<'_>| of.score.is_some() == of.suitability.is_asked();
    assert!(candidates.iter().all(is_drawn), "whoever is asked has drawn, and nobody else");
    candidates
        .sort_unstable_by_key(|candidate| (candidate.suitability, candidate.score, candidate.id));
    candidates
}

impl Director {
    /// Where an appliance should fetch an object from that it should hold and has lacked for so
    /// long while its fill was open. O(versions that have it x log versions of the manifest), and
    /// what `elect`, [`ELSEWHERE_MAX`] and the asker's site bound.
    pub fn sources(
        &self,
        asker: &ApplianceId,
        object: &ObjectId,
        waited: Nanos,
    ) -> Result<Sources, NoSources> {
        let registered = self.desired.appliances.get(asker).ok_or(NoSources::NotRegistered)?;
        let manifest = self.manifest(asker).map_err(|_| NoSources::NotRegistered)?;
        let manifest = manifest.ok_or(NoSources::NotWanted)?;
        let files: Vec<u32> = self.files.of(object).collect();
        let having: Vec<u32> = files.iter().map(|file| self.files.version_of(*file)).collect();
        let wanted = |(file, version): (&u32, &u32)| {
            let version = self.files.version(*version)?;
            is_wanted(&manifest, version.id(), *file).then(|| Arc::clone(&version.files))
        };
        let versions: Vec<_> = files.iter().zip(&having).filter_map(wanted).collect();
        if versions.is_empty() {
            return Err(NoSources::NotWanted);
        }
        let policy = &self.desired.policy.fill;
        let site = &registered.appliance.site;
        let mut query = Query { asker, site, object, reach: Reach::Origin };
        let elected = self.elect(asker, &files);
        query.reach = masters::reach(policy, elected.part, waited);
        let siblings = self.siblings(&query, (&files, &having), &elected.members);
        let candidates = rank(&query, siblings.into_iter(), &self.config.sources);
        let asked = candidates.iter().take_while(|candidate| candidate.suitability.is_asked());
        let named = asked.filter_map(|candidate| {
            let same_site = candidate.suitability == Suitability::SameSite;
            let (id, address) = (candidate.id.clone(), candidate.address?.clone());
            Some(Named { id, address, same_site })
        });
        let siblings: Vec<_> = named.take(self.config.sources.siblings_max).collect();
        assert!(siblings.iter().all(|named| named.id != *asker), "nobody fetches from itself");
        let reach = query.reach;
        let is_nobody = siblings.is_empty() && reach != Reach::Origin;
        Ok(Sources {
            siblings,
            versions,
            reach,
            escalated: elected.part != Part::Master && reach != Reach::Cluster,
            wait: is_nobody.then(|| masters::wait(policy, waited)),
            further: masters::further(policy, elected.part, waited),
            masters: elected.masters.into_iter().cloned().collect(),
        })
    }

    /// The appliances that may be asked for an object, which has these numbers in these versions:
    /// those of the asker's site, these of its fill cluster, and some elsewhere.
    fn siblings<'a>(
        &'a self,
        query: &Query<'_>,
        (files, versions): (&[u32], &[u32]),
        cluster: &[&'a ApplianceId],
    ) -> Vec<Sibling<'a>> {
        let own = self.members.get(query.asker).map(|member| member.site);
        let beside = own.into_iter().flat_map(|site| self.map.standing(site));
        let mut siblings: Vec<_> = beside.filter_map(|id| self.sibling(own, id, files)).collect();
        let stands_beside =
            |id: &ApplianceId| self.members.get(id).is_none_or(|member| Some(member.site) == own);
        let of_cluster = cluster.iter().copied().filter(|id| !stands_beside(id));
        let mut others: BTreeSet<&ApplianceId> = of_cluster.collect();
        if self.config.sources.elsewhere && query.reach != Reach::Cluster {
            let found = self.elsewhere(query, versions);
            others.extend(found.into_iter().filter(|id| !stands_beside(id)));
        }
        siblings.extend(others.into_iter().filter_map(|id| self.sibling(own, id, files)));
        siblings
    }

    /// All of a small fleet; of a large one, at most [`ELSEWHERE_MAX`] for each of two reasons.
    fn elsewhere(&self, query: &Query<'_>, versions: &[u32]) -> Vec<&ApplianceId> {
        if self.members.len() <= 2 * ELSEWHERE_MAX {
            return self.members.iter().map(|(id, _)| id).collect();
        }
        let mut numbers = NumberSet::new();
        let draws = Draws::of(&key(query));
        for holders in versions.iter().filter_map(|version| self.map.holders(*version)) {
            let drawn = draws.looks(holders.count()).take(ELSEWHERE_MAX);
            numbers.extend(drawn.filter_map(|at| holders.nth(at)));
            if Bytes::of(ELSEWHERE_MAX).0 <= numbers.len() {
                break;
            }
        }
        let all = draws.looks(self.map.numbers_end()).take(ELSEWHERE_MAX);
        numbers.extend(all);
        numbers.iter().filter_map(|number| self.members.name(number)).collect()
    }

    fn sibling<'a>(
        &'a self,
        own: Option<u32>,
        id: &'a ApplianceId,
        files: &[u32],
    ) -> Option<Sibling<'a>> {
        let (member, registered) = (self.members.get(id)?, self.desired.appliances.get(id)?);
        let observed = member.observed.as_ref();
        Some(Sibling {
            id,
            site: &registered.appliance.site,
            same_cluster: own.is_some_and(|own| self.clusters.is_same(own, member.site)),
            weight: registered.appliance.weight,
            health: member.health,
            load: observed.map(|observed| observed.said.load).unwrap_or_default(),
            address: observed.and_then(|observed| observed.peer_address.as_ref()),
            holds: observed.is_some_and(|observed| observed.holds(files)),
        })
    }
}

/// True if a manifest wants this file of a version. O(log versions); where its files have no
/// durable numbers, O(versions).
fn is_wanted(manifest: &Manifest, version: &AssetVersionId, file: u32) -> bool {
    match manifest.numbers.get(version) {
        Some(FileNumbers { part: None, .. }) => true,
        Some(FileNumbers { first, part: Some(part) }) => {
            file.checked_sub(*first).is_some_and(|at| part.contains(at))
        }
        None => {
            let mut all = manifest.versions.iter();
            manifest.numbers.is_empty() && all.any(|of| of.id == *version)
        }
    }
}

/// Most appliances of other sites that are looked at for each of two reasons.
pub const ELSEWHERE_MAX: usize = 32;

fn key(query: &Query<'_>) -> Vec<u8> {
    let mut key = Vec::with_capacity(64);
    key.extend_from_slice(&query.object.0);
    key.extend_from_slice(query.asker.as_str().as_bytes());
    key
}

/// Where the origins have an object: every source of every version, the first path of each, and no
/// more than `most`.
pub fn origins<'a>(
    versions: &'a [Arc<AssetVersion>],
    object: &ObjectId,
    most: usize,
) -> Vec<Origin<'a>> {
    let mut origins = Vec::new();
    for version in versions {
        let file = version.files.iter().find(|(_, file)| file.object == *object);
        let Some((path, _)) = file else { continue };
        for source in &version.sources {
            let origin = Origin { source, path };
            if origins.len() < most && !origins.contains(&origin) {
                origins.push(origin);
            }
        }
    }
    origins
}

impl Suitability {
    /// True of those that are asked.
    pub fn is_asked(self) -> bool {
        matches!(self, Self::SameSite | Self::SameCluster | Self::Elsewhere)
    }

    fn of(query: &Query<'_>, sibling: &Sibling<'_>, config: &Config) -> Self {
        let same_site = sibling.site == query.site;
        let same_cluster = same_site || sibling.same_cluster;
        if sibling.id == query.asker {
            Self::Asker
        } else if sibling.health != Health::Healthy {
            Self::Unwell(sibling.health)
        } else if sibling.address.is_none() {
            Self::NoAddress
        } else if !same_cluster && !config.elsewhere {
            Self::OtherCluster
        } else if !same_cluster && query.reach == Reach::Cluster {
            Self::TooFar
        } else if !sibling.holds {
            Self::Lacks
        } else if sibling.load.is_at_limit() {
            Self::AtLimit
        } else if same_site {
            Self::SameSite
        } else if same_cluster {
            Self::SameCluster
        } else {
            Self::Elsewhere
        }
    }
}

#[cfg(test)]
mod tests;
