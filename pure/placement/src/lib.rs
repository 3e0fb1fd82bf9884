//! Decides which appliances should hold which asset version. It does no I/O.
//!
//! ```text
//! per asset version, in order ──> per site ──> appliances by weighted rendezvous score
//!                                                   │ first `copies_per_site` with room
//!                                                   v
//!                                  Placement { holdings, report of what did not fit and why }
//! ```
//!
//! The whole version goes to an appliance or nothing of it; in a site whose appliances should hold
//! the lower renditions only, these count as the whole. Versions are placed in the order given,
//! so when space runs out the last ones suffer. An appliance that joins or leaves moves only what
//! it wins or held (see `model::rendezvous`); without a shortage of space nothing else moves.
//!
//! [`plan`] places items by demand, one manifest cluster at a time.

pub mod plan;

use std::collections::BTreeMap;
use std::fmt;

use model::id::{ApplianceId, AssetVersionId, SiteId};
use model::rendezvous::Score;
use model::topology::Weight;
use model::units::{BitsPerSecond, Bytes};

/// The settings of placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Appliances of each site that should hold each asset version.
    pub copies_per_site: u32,
    /// Most lines of each list in the report; what is left out is counted.
    pub report_lines_max: usize,
}

/// An appliance that may be given asset versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub id: ApplianceId,
    pub site: SiteId,
    /// Its part among the appliances of its site.
    pub weight: Weight,
    /// Its drives' capacity, reserve taken off; none if it has never said.
    pub usable: Option<Bytes>,
    /// It should hold only renditions of at most so much; none for all. The same in all of a site.
    pub bitrate_max: Option<BitsPerSecond>,
}

/// An asset version that should be held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    pub version: AssetVersionId,
    /// Its room on drives. Objects that two versions share are counted in both: too much
    /// rather than too little.
    pub len: Bytes,
    /// Its renditions that have a bitrate, and the part of the room that each takes.
    pub renditions: Vec<(BitsPerSecond, Bytes)>,
}

impl Demand {
    /// Its room where renditions above this are left out.
    fn len_within(&self, most: Option<BitsPerSecond>) -> Bytes {
        let Some(most) = most else { return self.len };
        let above = self.renditions.iter().filter(|(bitrate, _)| most < *bitrate);
        above.fold(self.len, |left, (_, len)| left.saturating_sub(*len))
    }
}

/// The appliances that should hold each version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// For every candidate, its asset versions in the order of the demands.
    pub holdings: BTreeMap<ApplianceId, Vec<AssetVersionId>>,
    pub report: Report,
}

/// The versions with fewer copies than the policy asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How full each appliance will be.
    pub loads: BTreeMap<ApplianceId, Filled>,
    /// Versions with fewer copies in a site than wanted, first to last.
    pub shortfalls: Vec<Shortfall>,
    /// How many shortfalls there are, also those beyond the list.
    pub shortfall_count: u64,
    /// Appliances that were passed over for a version, first to last.
    pub skips: Vec<Skip>,
    /// How many skips there are, also those beyond the list.
    pub skip_count: u64,
}

/// How full an appliance will be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    pub given: Bytes,
    pub usable: Bytes,
}

/// A version with fewer copies in a site than wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    pub version: AssetVersionId,
    pub site: SiteId,
    /// Copies wanted: never more than the site has appliances.
    pub wanted: u32,
    pub placed: u32,
}

/// An appliance that was first in line for a version and did not get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    pub version: AssetVersionId,
    pub appliance: ApplianceId,
    pub why: SkipReason,
}

/// Why an appliance was passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// It has never reported its drives, so nobody knows what fits.
    NotReported,
    /// Too little room.
    Full {
        free: Bytes,
        /// The room that the version takes.
        needed: Bytes,
    },
}

/// Places every demand, in order, in every site. A site that has no room for a demand costs one
/// comparison: O(demands x sites), and what is placed besides.
pub fn place(candidates: &[Candidate], demands: &[Demand], config: &Config) -> Placement {
    let mut sites: BTreeMap<&SiteId, Vec<&Candidate>> = BTreeMap::new();
    let mut placement = Placement::default();
    for candidate in candidates {
        sites.entry(&candidate.site).or_default().push(candidate);
        let usable = candidate.usable.unwrap_or(Bytes::ZERO);
        let filled = Filled { given: Bytes::ZERO, usable };
        let replaced = placement.report.loads.insert(candidate.id.clone(), filled);
        assert!(replaced.is_none(), "appliance {} is given once", candidate.id);
        placement.holdings.insert(candidate.id.clone(), Vec::new());
    }
    let mut open = Vec::new();
    for (site, members) in &sites {
        let most = members.iter().filter_map(|candidate| candidate.usable).max();
        open.push((*site, members, most.unwrap_or(Bytes::ZERO)));
    }
    for demand in demands {
        for (site, members, most) in &mut open {
            let limit = members.first().and_then(|member| member.bitrate_max);
            let len = demand.len_within(limit);
            if *most < len && placement.counts_only(members, config) {
                continue;
            }
            placement.place_in_site(demand, len, site, members, config);
            *most = placement.most_room(members);
        }
    }
    placement
}

/// The candidates, best first for `version`. Their order does not depend on who else is there.
pub fn rank<'a>(version: &AssetVersionId, candidates: &[&'a Candidate]) -> Vec<&'a Candidate> {
    let named = candidates.iter().map(|c| (&c.id, c.weight));
    order(version, named).into_iter().map(|at| candidates[at]).collect()
}

/// The places of appliances of one site among these, best first for `version`.
pub fn order<'a>(
    version: &AssetVersionId,
    appliances: impl IntoIterator<Item = (&'a ApplianceId, Weight)>,
) -> Vec<usize> {
    let key = version.as_str().as_bytes();
    let score = |id: &ApplianceId, weight| Score::of(key, id.as_str().as_bytes(), weight);
    let scored = appliances.into_iter().enumerate();
    let mut scored: Vec<_> = scored.map(|(at, (id, weight))| (score(id, weight), id, at)).collect();
    scored.sort_unstable();
    scored.into_iter().map(|(_, _, at)| at).collect()
}

/// Copies wanted in a site of so many appliances.
pub fn wanted(config: &Config, appliance_count: usize) -> u32 {
    config.copies_per_site.min(u32::try_from(appliance_count).unwrap_or(u32::MAX))
}

impl Placement {
    /// Counts a demand that fits nowhere in a site, if there is no line left to say so; else false.
    fn counts_only(&mut self, members: &[&Candidate], config: &Config) -> bool {
        let most = config.report_lines_max;
        if self.report.skips.len() < most || self.report.shortfalls.len() < most {
            return false;
        }
        if wanted(config, members.len()) != 0 {
            self.report.shortfall_count += 1;
            self.report.skip_count += u64::try_from(members.len()).unwrap_or(u64::MAX);
        }
        true
    }

    fn most_room(&self, members: &[&Candidate]) -> Bytes {
        let free = |candidate: &&Candidate| {
            let filled =
                self.report.loads.get(&candidate.id).filter(|_| candidate.usable.is_some());
            filled.map(|filled| filled.usable.saturating_sub(filled.given))
        };
        members.iter().filter_map(free).max().unwrap_or(Bytes::ZERO)
    }

    fn place_in_site(
        &mut self,
        demand: &Demand,
        len: Bytes,
        site: &SiteId,
        members: &[&Candidate],
        config: &Config,
    ) {
        let wanted = wanted(config, members.len());
        let mut placed = 0;
        for candidate in rank(&demand.version, members) {
            if placed == wanted {
                return;
            }
            match self.give(candidate, demand, len) {
                Ok(()) => placed += 1,
                Err(why) => {
                    let (version, appliance) = (demand.version.clone(), candidate.id.clone());
                    self.report.skip_count += 1;
                    let skip = Skip { version, appliance, why };
                    push_bounded(&mut self.report.skips, skip, config.report_lines_max);
                }
            }
        }
        assert!(placed <= wanted, "no more copies than are wanted");
        if placed < wanted {
            let (version, site) = (demand.version.clone(), site.clone());
            self.report.shortfall_count += 1;
            let shortfall = Shortfall { version, site, wanted, placed };
            push_bounded(&mut self.report.shortfalls, shortfall, config.report_lines_max);
        }
    }

    fn give(
        &mut self,
        candidate: &Candidate,
        demand: &Demand,
        len: Bytes,
    ) -> Result<(), SkipReason> {
        if candidate.usable.is_none() {
            return Err(SkipReason::NotReported);
        }
        let filled = self.report.loads.get_mut(&candidate.id).expect("every candidate has one");
        assert!(filled.given <= filled.usable, "{} was given too much before", candidate.id);
        let free = filled.usable.saturating_sub(filled.given);
        if free < len {
            return Err(SkipReason::Full { free, needed: len });
        }
        filled.given += len;
        assert!(filled.given <= filled.usable, "no more is given than fits");
        let holdings = self.holdings.get_mut(&candidate.id).expect("every candidate has some");
        holdings.push(demand.version.clone());
        Ok(())
    }
}

fn push_bounded<T>(list: &mut Vec<T>, item: T, most: usize) {
    if list.len() < most {
        list.push(item);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (appliance, filled) in &self.loads {
            let Filled { given, usable } = filled;
            writeln!(f, "{appliance}: {} MiB of {} MiB", given.0 >> 20, usable.0 >> 20)?;
        }
        for Shortfall { version, site, wanted, placed } in &self.shortfalls {
            writeln!(f, "{version}: {placed} of {wanted} copies in {site}")?;
        }
        for Skip { version, appliance, why } in &self.skips {
            writeln!(f, "{version}: not on {appliance}: {why}")?;
        }
        let listed = self.shortfalls.len() + self.skips.len();
        let unlisted = (self.shortfall_count + self.skip_count)
            .saturating_sub(u64::try_from(listed).unwrap_or(u64::MAX));
        if unlisted != 0 { writeln!(f, "and {unlisted} more lines") } else { Ok(()) }
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReported => f.write_str("it has not reported its drives yet"),
            Self::Full { free, needed } => {
                write!(f, "{} MiB are left and {} MiB are needed", free.0 >> 20, needed.0 >> 20)
            }
        }
    }
}

#[cfg(test)]
mod tests;
