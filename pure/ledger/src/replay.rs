//! Makes the decisions of a file again, as they were or under other conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use model::id::{ApplianceId, AssetVersionId, SiteId};
use model::members::Members;
use model::near::Near;
use model::topology::Weight;
use model::units::{Bytes, UnixSeconds};
use model::view::{FleetView, Placed, SiteView};
use steering::{Candidate, Config, Query, RankedList, Reason, Wanted};

use crate::block::{Fault, Opened};
use crate::codec::Input;
use crate::copies::FewerCopies;
use crate::entry::Entry;
use crate::near;
use crate::picture::{self, NUMBERS_MAX, Vital};
use crate::record::{ANSWERS_MAX, Answer, Answered, Kind, Record};

/// Other conditions than those of the file. What is not named stays as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WhatIf {
    /// These sites are not there, nor what stands in them.
    pub without_sites: BTreeSet<SiteId>,
    pub without_appliances: BTreeSet<ApplianceId>,
    pub weights: BTreeMap<ApplianceId, Weight>,
    /// The share of its sessions that an appliance takes all the time, in thousandths.
    pub shares: BTreeMap<ApplianceId, u32>,
    /// Appliances of a site that hold a version, at most: of those that did, the ones that
    /// placement would have chosen first. More of them are not known.
    pub copies: Option<u32>,
    /// Whether a site serves clients that none of its prefixes covers.
    pub serves_strangers: BTreeMap<SiteId, bool>,
    pub pathways_min: Option<usize>,
    pub pathways_max: Option<usize>,
}

/// What became of a file's decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub decisions: u64,
    /// Of which playbacks that began; the others are steering answers.
    pub begun: u64,
    pub from: UnixSeconds,
    pub until: UnixSeconds,
    /// Decisions that are others now: in their answer, and under the conditions of the file in a
    /// reason, too.
    pub differing: u64,
    /// The first of them.
    pub differences: Vec<Difference>,
    /// Decisions whose first appliance is another one now, from site to site; none where nobody
    /// was, or is, offered.
    pub moved: BTreeMap<(Option<SiteId>, Option<SiteId>), Moved>,
    /// Sessions of all decisions, by their draw.
    pub sessions: BTreeSet<[u8; 8]>,
    /// Names of [`WhatIf`] that the file does not know.
    pub unknown: BTreeSet<String>,
}

/// Decisions that go elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    pub decisions: u64,
    /// By their draw.
    pub sessions: BTreeSet<[u8; 8]>,
}

/// A decision that is another one now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// From 1, in the order of the file.
    pub number: u64,
    pub kind: Kind,
    pub at: UnixSeconds,
    /// Of the picture that it was made of.
    pub generation: u64,
    pub recorded: Vec<String>,
    pub now: Vec<String>,
    /// The steps that found something else of an appliance that is in both answers.
    pub steps: BTreeSet<&'static str>,
    /// Another number of appliances was not looked at.
    pub others: bool,
}

/// A decision, with everybody who was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// From 1, in the order of the file.
    pub number: u64,
    pub kind: Kind,
    pub at: UnixSeconds,
    /// Of the picture that it was made of.
    pub generation: u64,
    /// For a player without TLS.
    pub plain: bool,
    /// None if the picture did not know it.
    pub version: Option<AssetVersionId>,
    /// Of a steering answer, the pathways that its playback began with.
    pub pathways: Option<usize>,
    /// The list as it comes out now, best first: a record has no room for who was left out, and
    /// for words.
    pub candidates: Vec<Looked>,
    /// The first so many are for the player.
    pub offered_count: usize,
    /// Those who were not looked at.
    pub others: u64,
    /// Where that is not what was recorded, and the list is not the one that the player got.
    pub difference: Option<Difference>,
}

/// One who was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    pub appliance: ApplianceId,
    pub site: SiteId,
    /// One of each step, in their order.
    pub reasons: [Reason; 5],
}

impl Told {
    fn of(
        number: u64,
        record: &Record,
        version: Option<AssetVersionId>,
        (view, list): (&FleetView, &RankedList),
        difference: Option<Difference>,
    ) -> Self {
        let looked = |of: &Candidate| {
            let Placed { site, appliance, .. } = view.placed(of.appliance)?;
            let (appliance, site) = (appliance.id.clone(), site.id.clone());
            Some(Looked { appliance, site, reasons: of.reasons(view) })
        };
        Self {
            number,
            kind: record.kind,
            at: record.at,
            generation: record.generation,
            plain: record.plain,
            version,
            pathways: record.answered.among.as_ref().map(|among| among.len()),
            candidates: list.candidates.iter().filter_map(looked).collect(),
            offered_count: list.offered_count,
            others: list.others,
            difference,
        }
    }
}

/// Differences that are told one by one; the rest is counted.
const DIFFERENCES_MAX: usize = 20;

/// Makes every decision of a file again. O(decisions x what a list costs), in memory of a picture
/// and the sites of its clients.
///
/// # Errors
/// An entry that cannot be read, though its seal is good; a file of an earlier version.
pub fn replay(opened: &Opened<'_>, what_if: &WhatIf) -> Result<Outcome, Fault> {
    let Replay { mut outcome, known, .. } = Replay::new(what_if).take_all(opened)?;
    outcome.unknown = what_if.names().filter(|name| !known.contains(name)).collect();
    Ok(outcome)
}

/// The decisions of a file about sessions whose draw begins so: 8 bytes are one session's, and the
/// first 4 are its mark in logs. O(entries + decisions that are told x what a list costs).
///
/// # Errors
/// As of [`replay`].
pub fn tell(opened: &Opened<'_>, draw: &[u8]) -> Result<Vec<Told>, Fault> {
    let what_if = WhatIf::default();
    Ok(Replay::new(&what_if).telling(draw).take_all(opened)?.told)
}

impl WhatIf {
    fn names(&self) -> impl Iterator<Item = String> {
        let Self { without_sites, without_appliances, weights, shares, serves_strangers, .. } =
            self;
        let sites = without_sites.iter().chain(serves_strangers.keys()).map(ToString::to_string);
        let appliances = without_appliances.iter().chain(weights.keys()).chain(shares.keys());
        let appliances = appliances.map(ToString::to_string);
        sites.chain(appliances)
    }

    /// A site as it would be.
    fn change(&self, site: &SiteView) -> SiteView {
        let mut site = site.clone();
        if let Some(serves) = self.serves_strangers.get(&site.id) {
            site.serves_strangers = *serves;
        }
        if self.without_sites.contains(&site.id) {
            site.appliances.clear();
        }
        site.appliances.retain(|appliance| !self.without_appliances.contains(&appliance.id));
        for appliance in &mut site.appliances {
            if let Some(weight) = self.weights.get(&appliance.id) {
                appliance.weight = *weight;
            }
            if let Some(share) = self.shares.get(&appliance.id) {
                appliance.share_permille = *share;
            }
        }
        site
    }
}

/// The state of the file at one entry.
struct Replay<'w> {
    what_if: &'w WhatIf,
    /// How the draws of sessions begin whose decisions are told one by one; none to compare all.
    telling: Option<&'w [u8]>,
    told: Vec<Told>,
    config: Config,
    /// Sites as they are in the file.
    sites: BTreeMap<u32, SiteView>,
    /// The picture, under other conditions.
    view: FleetView,
    /// Names of appliances, with their sites: of those that went, too.
    names: BTreeMap<u32, (ApplianceId, SiteId)>,
    versions: BTreeMap<u32, AssetVersionId>,
    fewer: FewerCopies,
    /// The clients' sites, each with their form under other conditions.
    near: Vec<Vec<Near>>,
    known: BTreeSet<String>,
    /// In place of a name that nobody asks for.
    nameless: AssetVersionId,
    outcome: Outcome,
}

impl<'w> Replay<'w> {
    fn new(what_if: &'w WhatIf) -> Self {
        let nameless = "unknown-to-the-ledger".parse().expect("it is a name");
        Self {
            what_if,
            telling: None,
            told: Vec::new(),
            config: Config { pathways_min: 1, pathways_max: 1, explains: false },
            sites: BTreeMap::new(),
            view: FleetView::default(),
            names: BTreeMap::new(),
            versions: BTreeMap::new(),
            fewer: FewerCopies::new(what_if.copies),
            near: Vec::new(),
            known: BTreeSet::new(),
            nameless,
            outcome: Outcome::default(),
        }
    }

    fn telling(self, draw: &'w [u8]) -> Self {
        Self { telling: Some(draw), ..self }
    }

    /// Takes all entries of a file, in their order.
    fn take_all(mut self, opened: &Opened<'_>) -> Result<Self, Fault> {
        if opened.is_older {
            return Err(Fault::Older);
        }
        for (number, entries) in (0_u32..).zip(&opened.blocks) {
            let mut input = Input::new(entries);
            while !input.is_empty() {
                let fault = |what| Fault::Entry { block: number, what };
                let entry = Entry::read(&mut input).map_err(fault)?;
                self.take(entry).map_err(fault)?;
            }
        }
        Ok(self)
    }

    fn take(&mut self, entry: Entry) -> Result<(), &'static str> {
        match entry {
            Entry::Head { pathways_min, pathways_max } => {
                let most = self.what_if.pathways_max.unwrap_or(pathways_max).min(ANSWERS_MAX);
                let least = self.what_if.pathways_min.unwrap_or(pathways_min).min(most);
                self.config =
                    Config { pathways_min: least.max(1), pathways_max: most.max(1), ..self.config };
            }
            Entry::Site { number, site } => self.site(number, site)?,
            Entry::Vital { site, at, vital } => self.vital(site, at, &vital)?,
            Entry::Size(size) => self.resize(size)?,
            Entry::Holders { version, id, holders } => {
                self.fewer.held(&id, &holders);
                self.hold(&id, holders);
                self.versions.insert(version, id);
            }
            Entry::Partial { version, renditions } => self.hold_partly(version, renditions)?,
            Entry::Near(near) => {
                let gone = |number: u32| {
                    let site = self.sites.get(&number);
                    site.is_some_and(|site| self.what_if.without_sites.contains(&site.id))
                };
                self.near.push(near::without(&near, gone));
            }
            Entry::Decision(record) => self.decide(&record)?,
        }
        Ok(())
    }

    fn site(&mut self, number: u32, site: SiteView) -> Result<(), &'static str> {
        if NUMBERS_MAX <= number {
            return Err("the number of a site");
        }
        self.known.insert(site.id.to_string());
        for appliance in &site.appliances {
            self.known.insert(appliance.id.to_string());
            self.names.insert(appliance.number, (appliance.id.clone(), site.id.clone()));
        }
        self.show(number, &site);
        self.sites.insert(number, site);
        self.fewer.sites_changed();
        Ok(())
    }

    fn vital(&mut self, number: u32, at: usize, vital: &Vital) -> Result<(), &'static str> {
        let mut site = self.sites.remove(&number).ok_or("the site of an appliance")?;
        vital.give(site.appliances.get_mut(at).ok_or("the place of an appliance")?);
        self.show(number, &site);
        self.sites.insert(number, site);
        Ok(())
    }

    fn show(&mut self, number: u32, site: &SiteView) {
        let site = Arc::new(self.what_if.change(site));
        picture::show_site(&mut self.view, number, site);
    }

    /// Versions get numbers of the replay's own, without gaps.
    fn hold(&mut self, id: &AssetVersionId, holders: Members) {
        let before = self.view.versions.get(id).and_then(|at| self.view.holders.get_mut(*at));
        match before {
            Some(before) => before.whole = holders,
            None => {
                let number = self.view.holders.push(holders.into());
                Arc::make_mut(&mut self.view.versions).insert(id.clone(), number);
            }
        }
    }

    fn hold_partly(&mut self, version: u32, renditions: Vec<Members>) -> Result<(), &'static str> {
        let known = self.versions.get(&version).and_then(|id| self.view.versions.get(id));
        let number = *known.ok_or("the version of renditions")?;
        let before = self.view.holders.get(number).map(|of| of.renditions.clone());
        let before = before.unwrap_or_default();
        if before.len() == renditions.len() {
            for (at, holders) in before.zip(renditions) {
                *self.view.partial_holders.get_mut(at).expect("it has one") = holders;
            }
            return Ok(());
        }
        let first = self.view.partial_holders.len();
        for holders in renditions {
            self.view.partial_holders.push(holders);
        }
        let numbers = first..self.view.partial_holders.len();
        self.view.holders.get_mut(number).expect("a version has holders").renditions = numbers;
        Ok(())
    }

    /// A picture that is older than the one before it has fewer. O(size) then; it is rare.
    fn resize(&mut self, size: u32) -> Result<(), &'static str> {
        if NUMBERS_MAX < size {
            return Err("how many numbers of appliances there are");
        }
        let positions = &mut self.view.positions;
        if size < positions.len() {
            let all = std::mem::take(positions);
            for position in all.iter().take(model::number::index(size)) {
                positions.push(*position);
            }
        }
        while positions.len() < size {
            positions.push(None);
        }
        Ok(())
    }

    fn decide(&mut self, record: &Record) -> Result<(), &'static str> {
        if self.telling.is_some_and(|draw| !record.draw.starts_with(draw)) {
            self.outcome.decisions += 1;
            return Ok(());
        }
        if let Some(id) = record.version.and_then(|number| self.versions.get(&number).cloned())
            && let Some(fewer) = self.fewer.of(&id, &self.sites, &self.view)
        {
            self.hold(&id, fewer);
        }
        let near = self.near.get(model::number::index(record.near));
        let near = near.ok_or("the client's sites of a decision")?;
        let version = match record.version {
            Some(number) => self.versions.get(&number).ok_or("the version of a decision")?,
            None => &self.nameless,
        };
        let query = Query {
            near,
            version: Wanted::of(&self.view, version),
            session: &record.draw,
            plain: record.plain,
            among: record.answered.among.as_deref(),
        };
        let list = steering::rank(&self.view, &query, &self.config);
        let explains = Config { explains: true, ..self.config };
        let told = self.telling.map(|_| steering::rank(&self.view, &query, &explains));
        let version = record.version.is_some().then(|| version.clone());
        self.compare(record, &list);
        if let Some(list) = told {
            let (number, difference) = (self.outcome.decisions, self.outcome.differences.pop());
            self.told.push(Told::of(number, record, version, (&self.view, &list), difference));
        }
        Ok(())
    }

    fn compare(&mut self, record: &Record, list: &RankedList) {
        let outcome = &mut self.outcome;
        // Records are in the order in which they were written, which is nearly that of asking.
        outcome.from = if outcome.decisions == 0 { record.at } else { outcome.from.min(record.at) };
        outcome.decisions += 1;
        outcome.begun += u64::from(record.kind == Kind::Begun);
        outcome.until = outcome.until.max(record.at);
        outcome.sessions.insert(record.draw);
        let appliance = |answer: &Answer| answer.appliance;
        let was = &record.answered;
        let now = Answered::of(&self.view, list, was.among.as_deref());
        // Of other conditions only the answer matters: of course a reason is another.
        let is_same = match *self.what_if == WhatIf::default() {
            true => now == *was,
            false => now.answers.iter().map(appliance).eq(was.answers.iter().map(appliance)),
        };
        if is_same {
            return;
        }
        outcome.differing += 1;
        let site =
            |answers: &[Answer]| Some(self.names.get(&answers.first()?.appliance)?.1.clone());
        let first = |answers: &[Answer]| answers.first().map(appliance);
        if first(&now.answers) != first(&was.answers) {
            let moved = outcome.moved.entry((site(&was.answers), site(&now.answers))).or_default();
            moved.decisions += 1;
            moved.sessions.insert(record.draw);
        }
        if outcome.differences.len() < DIFFERENCES_MAX {
            let number = outcome.decisions;
            let difference = self.difference(number, record, &now);
            self.outcome.differences.push(difference);
        }
    }

    fn difference(&self, number: u64, record: &Record, now: &Answered) -> Difference {
        let name = |answer: &Answer| {
            let known = self.names.get(&answer.appliance).map(|(id, _)| id.to_string());
            known.unwrap_or_else(|| format!("appliance {}", answer.appliance))
        };
        let mut steps = BTreeSet::new();
        let was = &record.answered;
        for was in &was.answers {
            let is = now.answers.iter().find(|is| is.appliance == was.appliance);
            steps.extend(is.map(|is| was.differing(is)).unwrap_or_default());
        }
        Difference {
            number,
            kind: record.kind,
            at: record.at,
            generation: record.generation,
            recorded: was.answers.iter().map(name).collect(),
            now: now.answers.iter().map(name).collect(),
            steps,
            others: now.others != was.others,
        }
    }
}

impl Outcome {
    /// Adds the outcome of the next file.
    pub fn add(&mut self, next: Self) {
        let Self { decisions, begun, from, until, differing, differences, .. } = next;
        let Self { moved, sessions, unknown, .. } = next;
        if 0 < decisions {
            self.from = if self.decisions == 0 { from } else { self.from.min(from) };
            self.until = self.until.max(until);
        }
        let before = self.decisions;
        self.decisions += decisions;
        self.begun += begun;
        self.differing += differing;
        let room = DIFFERENCES_MAX.saturating_sub(self.differences.len());
        let numbered = |of: Difference| Difference { number: before + of.number, ..of };
        self.differences.extend(differences.into_iter().take(room).map(numbered));
        for (way, more) in moved {
            let moved = self.moved.entry(way).or_default();
            moved.decisions += more.decisions;
            moved.sessions.extend(more.sessions);
        }
        self.sessions.extend(sessions);
        // What one of them knows is known.
        self.unknown = match before {
            0 => unknown,
            _ => self.unknown.intersection(&unknown).cloned().collect(),
        };
    }

    /// Sessions of which a decision goes elsewhere.
    pub fn sessions_moved(&self) -> u64 {
        let all: BTreeSet<&[u8; 8]> = self.moved.values().flat_map(|of| &of.sessions).collect();
        Bytes::of(all.len()).0
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, kind, at, generation, recorded, now, steps, others } = self;
        let kind = match kind {
            Kind::Begun => "playback begun",
            Kind::Steered => "steering answer",
        };
        let all = |names: &[String]| match names.is_empty() {
            true => "nobody".to_owned(),
            false => names.join(", "),
        };
        write!(f, "decision {number} ({kind} at {}, generation {generation}): ", at.0)?;
        if recorded == now {
            write!(f, "{} as recorded", all(recorded))?;
        } else {
            write!(f, "recorded {}, now {}", all(recorded), all(now))?;
        }
        if !steps.is_empty() {
            let steps: Vec<&str> = steps.iter().copied().collect();
            write!(f, ", with another reason of {}", steps.join(", "))?;
        }
        if *others { f.write_str(", and others were not looked at") } else { Ok(()) }
    }
}
