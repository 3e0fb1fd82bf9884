//! Who should hold what, and the manifests that say so: worked out beside the director, which takes
//! them over as they are.
//!
//! ```text
//! catalogue, policy, hardware, demand, keys change ──> Action::Place(input) ──> another thread:
//!     placement, manifests, digests ──> Event::Placed(plan) ──> staged ──> Action::Store
//! ```
//!
//! One plan is in the making at a time. What changes meanwhile is for the next one, which begins
//! when that one has come and is stored: so its thread has the ledger that it is compared with, and
//! the generation of what differs. A plan that is old by then is taken all the same, or a catalogue
//! that changes more often than a plan takes would never be planned; whatever waits for manifests
//! that are as desired state wants them (receipts of withdrawals, keys that may sign) waits until
//! no plan is in the making. Keys alone place nothing anew: manifests are made of the last
//! placement.
//!
//! A plan costs O(items log items + clusters x what each may hold) on its thread. Here an input
//! costs O(appliances), to say what each has; a plan that has come costs O(1), and so does one that
//! is stored. Whatever takes long to be freed is freed elsewhere: [`Action::Free`].
//!
//! While an item stays for another appliance, the next plan begins half an hour after the last one
//! began, once an appliance that hands over or takes reports that it holds something else.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use model::id::{ApplianceId, AssetVersionId, Generation, Item, SiteId};
use model::manifest::{AssetVersion, FileNumbers, Manifest, SiteMember, TokenKey, Trust};
use model::names::Names;
use model::topology::Appliance;
use model::units::{Instant, UnixSeconds};
use model::view::Renditions;
use placement::plan::Change;

use crate::catalog::{Part, Version};
use crate::desired::{Desired, Registered};
use crate::having::{Having, is_whole};
use crate::last::brought;
use crate::observed::Wholes;
use crate::places::{Expected, Ground, Places, Question};
use crate::publish::{Base, Digest, Draft, Manifests, digest};
use crate::refused::{self, Emptied, RefusedPlan};
use crate::shelf::Holdings;
use crate::trust::document;
use crate::withdrawal::Withdrawal;
use crate::{Action, Director, Role};

/// What a plan is worked out of. Immutable, and nothing else is asked for.
#[derive(Clone, Debug)]
pub struct PlanInput {
    number: u64,
    ground: Ground,
    token_keys: Vec<TokenKey>,
    trust: Trust,
    /// It is taken whatever it evicts.
    is_forced: bool,
    /// The placement that holds still; none if something has changed that it follows from.
    places: Option<Arc<Places>>,
    base: Base,
}

/// A plan: the answer to [`Action::Place`].
#[derive(Clone, Debug)]
pub struct Plan {
    number: u64,
    places: Arc<Places>,
    /// None if nothing was placed anew; then whether that was refused.
    refused: Option<Option<Box<RefusedPlan>>>,
    /// Whom it empties, where nothing goes from any other.
    emptied: Option<Emptied>,
    /// What it moves.
    change: Change,
    /// Who may have what stays at another that must not hold it.
    brought: BTreeSet<ApplianceId>,
    draft: Draft,
}

/// A plan that was carried out, and moved something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarriedOut {
    pub at: UnixSeconds,
    /// Of all appliances, whatever it was for.
    pub change: Change,
}

/// Seconds from one plan to the next while something stays that another is to have: at full size a
/// plan takes about 40 seconds of one core (docs/numbers.md), so 2 % of it.
const HANDED_OVER_EVERY: u64 = 1_800;

/// Plans that are remembered: two months of one a day.
const CARRIED_OUT_MAX: usize = 64;

/// What nobody here needs any more.
#[derive(Clone, Debug, PartialEq)]
pub struct Spent {
    pub(crate) places: Option<Arc<Places>>,
    pub(crate) manifests: Manifests,
}

impl PartialEq for PlanInput {
    /// Inputs of one director have numbers.
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

/// The plan in the making, and what has changed since it began.
#[derive(Debug, Default)]
pub(crate) struct Planning {
    /// Of the newest input: no smaller than the time, so that as a rule none comes again after a
    /// restart.
    number: u64,
    /// Of the last plan of places that has come.
    last: u64,
    is_under_way: bool,
    /// None if nothing has changed.
    wanted: Option<Replan>,
    /// The next one is taken whatever it evicts.
    is_forced: bool,
    /// The last one, if it was refused.
    pub(crate) refused: Option<Box<RefusedPlan>>,
    /// The last of those that were not, since this process began.
    carried_out: VecDeque<CarriedOut>,
    /// Who has what, as the one in the making knows it, is out of date for these: all
    /// that reported something else, or came back, since it began. At most every appliance.
    came: BTreeSet<ApplianceId>,
    /// When the last one began, and whether an appliance that hands over or takes has come to hold
    /// something else since.
    begun: UnixSeconds,
    has_news: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Replan {
    /// The same placement, said in other manifests.
    Manifests,
    /// Another placement.
    Places,
}

impl Planning {
    /// True if manifests are, or will be when they are stored, as desired state wants them.
    pub(crate) fn is_done(&self) -> bool {
        let has_vanished = self.refused.as_ref().is_some_and(|of| of.is_of_catalogue());
        !self.is_under_way && self.wanted.is_none() && !has_vanished
    }

    fn note(&mut self, of: CarriedOut) {
        if of.change.comes + of.change.goes == 0 {
            return;
        }
        if self.carried_out.len() == CARRIED_OUT_MAX {
            self.carried_out.pop_front();
        }
        self.carried_out.push_back(of);
    }
}

impl PlanInput {
    /// Works it out. O(items log items), and what every appliance should hold.
    pub fn work_out(self) -> Plan {
        let count = usize::try_from(self.ground.policy.versions_kept).unwrap_or(usize::MAX);
        let mut kept = self.ground.catalog.kept(count);
        if let Some(places) = &self.places {
            let (change, draft) = (Change::default(), self.draft(places, kept));
            let (number, places, brought) = (self.number, Arc::clone(places), BTreeSet::new());
            return Plan { number, places, refused: None, emptied: None, change, brought, draft };
        }
        let before = self.ground.planned_until_now(&kept, |id| self.base.has(id));
        let now = self.ground.named_until_now(&before);
        let places = Arc::new(self.ground.places(&kept, (&before, &now)));
        let (refused, emptied) = self.refused(&before, &places);
        let places = match &refused {
            None => places,
            Some(of) if of.is_of_catalogue() => Arc::clone(&self.ground.known),
            Some(_) => {
                kept = self.ground.with_held(kept, &before);
                let known = (&*self.ground.known, &*places);
                Arc::new(self.ground.as_before(&kept, (&before, &now), known))
            }
        };
        let is_of_catalogue = refused.as_ref().is_some_and(RefusedPlan::is_of_catalogue);
        let draft = match is_of_catalogue {
            true => self.base.clone().nothing(),
            false => self.draft(&places, kept),
        };
        let change = match &refused {
            None => places.change(&before, &self.ground.known),
            Some(_) => Change::default(),
        };
        let brought = brought(&places.last, &before, &places.planned);
        let refused = Some(refused.map(Box::new));
        Plan { number: self.number, places, refused, emptied, change, brought, draft }
    }

    /// Why these places are not taken; none where they are, or are forced. And whom they empty, if
    /// that is told alone.
    fn refused(
        &self,
        before: &Holdings,
        places: &Arc<Places>,
    ) -> (Option<RefusedPlan>, Option<Emptied>) {
        if self.is_forced {
            return (None, None);
        }
        let Ground { appliances, sites, catalog, known, withdrawn_of_late, .. } = &self.ground;
        let bans = self.ground.ruled().bans_of(sites);
        let wish = |id: &ApplianceId| {
            let of = appliances.get(id);
            let site = of.and_then(|of| sites.get(&of.appliance.site));
            refused::Wish {
                room: of.and_then(|of| of.usable).unwrap_or_default(),
                bitrate_max: site.and_then(|of| of.bitrate_max),
                bans: site.and_then(|site| bans.get(&site.id)),
            }
        };
        let asked = refused::Asked { before, known, catalog };
        refused::look(&asked, places, *withdrawn_of_late, wish)
    }

    /// All manifests. What is worth most is fetched first; among equals current versions come
    /// before older ones, the newest first.
    fn draft<'a>(&'a self, places: &Places, mut kept: Vec<(usize, &'a Arc<Version>)>) -> Draft {
        let worth = places.worth();
        let worth = |version: &Version| worth.get(version.id()).copied().unwrap_or(0);
        kept.sort_by_cached_key(|(age, version)| {
            (Reverse(worth(version)), *age, Reverse(version.sequence))
        });
        let order: BTreeMap<&AssetVersionId, (usize, &Arc<Version>)> =
            kept.iter().enumerate().map(|(at, (_, of))| (of.id(), (at, *of))).collect();
        let holders = Holders::new(&self.ground.appliances, places);
        let mut parts = Parts::default();
        // Who signs is part of it: a manifest is signed anew when the key before is of no more use.
        let signer = self.trust.signing_keys.iter().take(1).cloned().collect();
        let apart = Trust { is_apart: true, signing_keys: signer, ..Trust::default() };
        let manifest = |id: &ApplianceId| {
            let site = holders.site(id);
            let held = places.held(id).filter_map(|(version, held)| {
                let (at, version) = *order.get(version.id())?;
                Some((at, version, held))
            });
            let mut held: Vec<_> = held.collect();
            held.sort_unstable_by_key(|(at, _, _)| *at);
            let siblings = holders.beside(id, !site.is_empty());
            let part = |(_, version, held): (usize, &'a Arc<Version>, Renditions)| {
                (version, parts.of(version, held).cloned())
            };
            let held: Vec<Held<'_>> = held.into_iter().map(part).collect();
            let manifest = Manifest {
                appliance: id.clone(),
                generation: Generation(0), // the draft knows it
                token_keys: Vec::new(),
                trust: apart.clone(),
                numbers: numbers_of(&held),
                versions: held.into_iter().map(files_of).collect(),
                siblings,
                site,
            };
            self.with_keys_or_not(manifest, |version| parts.is_one(version))
        };
        let ids = places.holds.keys().filter(|id| self.ground.appliances.contains_key(*id));
        self.base.clone().draft(ids.map(manifest), &places.holds)
    }

    /// The manifest as it is, which leaves keys to the trust document. With keys if its appliance
    /// reads none, or if it is as it was made with them: then nothing has to be made anew.
    fn with_keys_or_not(
        &self,
        manifest: Manifest,
        is_part: impl Fn(&AssetVersion) -> bool,
    ) -> (Manifest, Digest) {
        let (base, id) = (&self.base, &manifest.appliance);
        let apart = digest(&manifest, &is_part);
        let needs_keys = base.needs_keys(id);
        if needs_keys || base.is_another(id, apart) {
            let (token_keys, trust) = (self.token_keys.clone(), self.trust.clone());
            let keyed = Manifest { token_keys, trust, ..manifest.clone() };
            let digest = digest(&keyed, &is_part);
            if needs_keys || !base.is_another(id, digest) {
                return (keyed, digest);
            }
        }
        (manifest, apart)
    }
}

/// Versions without some of their renditions, each made once for all manifests.
#[derive(Default)]
struct Parts {
    /// By the version and the renditions; none where that is all of it.
    made: BTreeMap<(AssetVersionId, u64), Option<Part>>,
}

impl Parts {
    /// These renditions of a version; none if that is all of it.
    fn of(&mut self, version: &Version, held: Renditions) -> Option<&Part> {
        if held == Renditions::ALL {
            return None;
        }
        let made = self.made.entry((version.id().clone(), held.bits()));
        made.or_insert_with(|| version.part(held)).as_ref()
    }

    fn is_one(&self, version: &AssetVersion) -> bool {
        let of_it = self.made.range((version.id.clone(), 0)..);
        let of_it = of_it.take_while(|((id, _), _)| *id == version.id);
        let mut parts = of_it.filter_map(|(_, part)| part.as_ref());
        parts.any(|part| std::ptr::eq(&*part.files, version))
    }
}

/// A version that an appliance should hold, or the part of it.
type Held<'a> = (&'a Arc<Version>, Option<Part>);

fn files_of((version, part): Held<'_>) -> Arc<AssetVersion> {
    part.map_or_else(|| Arc::clone(&version.files), |part| part.files)
}

/// The numbers of these versions' files, where all have durable ones: an appliance tells numbers of
/// all files, or of none.
fn numbers_of(held: &[Held<'_>]) -> BTreeMap<AssetVersionId, FileNumbers> {
    let numbers = |(version, part): &Held<'_>| {
        let part = part.as_ref().map(|part| Arc::clone(&part.objects));
        Some((version.id().clone(), FileNumbers { first: version.first_file?, part }))
    };
    held.iter().map(numbers).collect::<Option<_>>().unwrap_or_default()
}

impl Director {
    /// Something has changed that manifests follow from. Not in a replica.
    pub(crate) fn want_plan(&mut self, wanted: Replan) {
        if let Role::Writer(_) = &self.role {
            self.planning.wanted = self.planning.wanted.max(Some(wanted));
            self.begin_plan();
        }
    }

    /// Somebody has forecast what viewers will watch. Where that is new, places follow.
    pub(crate) fn expect(&mut self, expected: Arc<Expected>) {
        if self.expected.as_ref() != Some(&expected) {
            self.expected = Some(expected);
            self.want_plan(Replan::Places);
        }
    }

    /// To ask why something lies where it does. As [`Self::having`].
    pub fn question(&self) -> Question {
        self.question_with(self.having())
    }

    /// To ask what is expected of an appliance. O(1).
    pub fn question_of_demand(&self) -> Question {
        self.question_with(Having::default())
    }

    fn question_with(&self, having: Having) -> Question {
        let (expected, known) = (self.expected.as_ref(), (&self.places, having));
        Question { ground: ground(&self.desired, known, expected, self.now_unix) }
    }

    /// An operator wants a plan now; or means the plan of this number, whatever it evicts: then
    /// nothing happens unless that may be forced.
    pub(crate) fn plan_now(&mut self, forces: Option<u64>) {
        if let Some(number) = forces {
            if !self.may_force(number) {
                return;
            }
            self.planning.is_forced = true;
        }
        self.want_plan(Replan::Places);
    }

    /// True of the last plan as long as nothing calls for another: what is forced is made anew, of
    /// the same desired state and forecast. What appliances hold, and which rules have ended, is as
    /// it is then.
    pub fn may_force(&self, number: u64) -> bool {
        let Role::Writer(publisher) = &self.role else { return false };
        let Planning { last, is_under_way, wanted, .. } = &self.planning;
        number != 0
            && number == *last
            && !is_under_way
            && wanted.is_none()
            && !publisher.is_staged()
    }

    /// The number of the last plan, refused or not; 0 before the first.
    pub fn last_plan(&self) -> u64 {
        self.planning.last
    }

    /// The last plan, if it was refused: what was placed before stays, but for what is banned,
    /// until one is not, or until one is forced.
    pub fn refused(&self) -> Option<&RefusedPlan> {
        self.planning.refused.as_deref()
    }

    /// The last plans that were carried out and moved something since this process began, the
    /// newest last.
    pub fn carried_out(&self) -> impl ExactSizeIterator<Item = &CarriedOut> {
        self.planning.carried_out.iter()
    }

    /// Begins the plan that is wanted, if none is in the making or waits to be stored.
    pub(crate) fn begin_plan(&mut self) {
        let Role::Writer(publisher) = &self.role else { return };
        if self.planning.is_under_way || publisher.is_staged() {
            return;
        }
        let Some(wanted) = self.planning.wanted.take() else { return };
        let is_forced = std::mem::take(&mut self.planning.is_forced);
        let mut having = self.having();
        if is_forced {
            having.banned_without_source.clear();
        }
        let Role::Writer(publisher) = &mut self.role else { return };
        self.planning.is_under_way = true;
        self.planning.came.clear();
        if wanted == Replan::Places {
            (self.planning.begun, self.planning.has_news) = (self.now_unix, false);
        }
        self.planning.number = (self.planning.number + 1).max(self.now_unix.0);
        self.counters.placements += u64::from(wanted == Replan::Places);
        let desired = &self.desired;
        let input = PlanInput {
            number: self.planning.number,
            ground: ground(desired, (&self.places, having), self.expected.as_ref(), self.now_unix),
            token_keys: desired.token_keys.clone(),
            trust: document(desired).trust,
            is_forced,
            places: (wanted == Replan::Manifests && self.places.is_planned())
                .then(|| Arc::clone(&self.places)),
            base: publisher.begin(self.now_unix),
        };
        self.actions.push_back(Action::Place(Box::new(input)));
    }

    /// A plan has come: its manifests are staged. If it changes none, the next one begins.
    pub(crate) fn placed(&mut self, now: Instant, plan: Plan) {
        let Role::Writer(publisher) = &mut self.role else { return };
        let is_ours = self.planning.is_under_way && plan.number == self.planning.number;
        assert!(is_ours, "a plan is the answer to the last input, and comes once");
        self.planning.is_under_way = false;
        if let Some(refused) = plan.refused {
            (self.planning.refused, self.planning.last) = (refused, plan.number);
        }
        self.planning.note(CarriedOut { at: self.now_unix, change: plan.change });
        let places = Some(std::mem::replace(&mut self.places, plan.places));
        let (store, manifests) = publisher.stage(now, plan.draft);
        if let Some(ledger) = store {
            self.actions.retain(|action| !matches!(action, Action::Store(_)));
            self.actions.push_back(Action::Store(ledger));
        }
        self.actions.push_back(Action::Free(Spent { places, manifests }));
        if let Some(of) = plan.emptied {
            self.say_of(&of.appliance, of.to_string());
        }
        self.settle_withdrawals();
        let came = std::mem::take(&mut self.planning.came);
        for id in came.union(&plan.brought) {
            self.holds_anew(id, &Wholes::default());
        }
        self.begin_plan();
    }

    /// The manifests of a generation are durable: they are published, and the next plan begins.
    pub(crate) fn stored(&mut self, generation: Generation) {
        let Some(manifests) = self.publisher().stored(generation) else { return };
        self.actions.push_back(Action::Free(Spent { places: None, manifests }));
        self.settle_withdrawals();
        self.begin_plan();
        self.view_is_old = true;
    }
}

impl Director {
    /// Plans again while something stays where it was until another has it. O(1).
    pub(crate) fn go_on_with_handovers(&mut self) {
        let since = self.now_unix.0.checked_sub(self.planning.begun.0);
        let is_due = since.is_none_or(|since| HANDED_OVER_EVERY <= since);
        if self.planning.has_news && is_due && self.places.report.staying != 0 {
            self.want_plan(Replan::Places);
        }
    }

    /// What those have who are well. O(appliances + bans).
    fn having(&self) -> Having {
        let catalog = &self.desired.catalog;
        let banned = self.desired.wishes.banned(self.now_unix);
        let banned = banned.filter_map(|id| catalog.version(id));
        let alone = banned.filter(|version| version.files.sources.is_empty());
        let items = |version: &Arc<Version>| -> Vec<u32> {
            version.items_or_own().each().map(|(_, item)| item.0).collect()
        };
        let well = self.members.iter().filter(|(_, member)| member.health.is_well());
        let wholes = well.filter_map(|(id, member)| {
            // One that has not told its whole inventory to this process may hold anything.
            let observed = member.observed.as_ref().filter(|of| of.inventory_state() != 0)?;
            Some((id.clone(), observed.wholes()))
        });
        Having {
            numbers: self.files.picture(),
            wholes: wholes.collect(),
            banned_without_source: alone.flat_map(items).collect(),
        }
    }

    /// An appliance holds something else now, or is well again. O(log appliances).
    pub(crate) fn holds_anew(&mut self, id: &ApplianceId, before: &Wholes) {
        self.planning.has_news |= self.places.hand_over.contains(id);
        self.look_at_last_copies(id, before);
    }

    /// An appliance holds something else now, or is well again. If that is the copy for which
    /// another waits, which must not hold it, that one's may go. O(items that stay anywhere), and
    /// O(log appliances) while a plan is in the making, which knows nothing of it.
    fn look_at_last_copies(&mut self, id: &ApplianceId, before: &Wholes) {
        if self.planning.is_under_way {
            self.planning.came.insert(id.clone());
        }
        let Some(holds) = self.places.holds.get(id).filter(|_| !self.places.last.is_empty()) else {
            return;
        };
        let Some(now) = self.members.get(id).and_then(|member| member.observed.as_ref()) else {
            return;
        };
        let now = now.wholes();
        let others = self.places.last.iter().filter(|(other, _)| *other != id);
        let awaited = others.flat_map(|(_, items)| items.iter());
        let mut awaited = awaited.filter(|item| holds.contains(*item));
        let numbers = self.files.picture();
        let has_come = awaited.any(|item| {
            let of_it = numbers.of_item(&self.places.shelf, Item(item));
            of_it.is_some_and(|of| is_whole(of, &now) && !is_whole(of, before))
        });
        if has_come {
            self.want_plan(Replan::Places);
        }
    }
}

/// An appliance, and the renditions that it should hold of a version.
type Holder<'a> = (&'a ApplianceId, Renditions);

fn ground(
    desired: &Desired,
    (places, having): (&Arc<Places>, Having),
    expected: Option<&Arc<Expected>>,
    now_unix: UnixSeconds,
) -> Ground {
    let is_of_late =
        |of: &Withdrawal| now_unix.0 < of.at.0.saturating_add(refused::WITHDRAWN_OF_LATE);
    Ground {
        withdrawn_of_late: desired.withdrawals.values().any(is_of_late),
        sites: Arc::clone(&desired.sites),
        appliances: Arc::clone(&desired.appliances),
        catalog: Arc::clone(&desired.catalog),
        policy: desired.policy,
        wishes: Arc::clone(&desired.wishes),
        having,
        expected: expected.cloned(),
        known: Arc::clone(places),
        now_unix,
    }
}

/// The appliances that should hold a version, site by site, and those with service addresses.
/// O(versions held by all appliances) to make.
struct Holders<'a> {
    appliances: &'a Names<ApplianceId, Registered>,
    by_site: BTreeMap<&'a SiteId, BTreeMap<&'a AssetVersionId, Vec<Holder<'a>>>>,
    members: BTreeMap<&'a SiteId, Vec<SiteMember>>,
}

impl<'a> Holders<'a> {
    fn new(appliances: &'a Names<ApplianceId, Registered>, places: &'a Places) -> Self {
        let mut by_site: BTreeMap<_, BTreeMap<_, Vec<_>>> = BTreeMap::new();
        for id in places.holds.keys() {
            let Some(registered) = appliances.get(id) else { continue };
            let site = by_site.entry(&registered.appliance.site).or_default();
            for (version, held) in places.held(id) {
                site.entry(version.id()).or_default().push((id, held));
            }
        }
        let mut members: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for Appliance { id, site, addresses, .. } in appliances.values().map(|of| &of.appliance) {
            if !addresses.is_empty() {
                let member = SiteMember { id: id.clone(), addresses: addresses.clone() };
                members.entry(site).or_default().push(member);
            }
        }
        Self { appliances, by_site, members }
    }

    /// The others of its site that should hold a version, and all that this one holds of it: for
    /// every version that an appliance should hold; with `all`, for every version of its site,
    /// since players who come by an address that it took over may ask for any.
    fn beside(&self, id: &ApplianceId, all: bool) -> BTreeMap<AssetVersionId, Vec<ApplianceId>> {
        let site = self.appliances.get(id).map(|of| &of.appliance.site);
        let Some(site) = site.and_then(|site| self.by_site.get(site)) else {
            return BTreeMap::new();
        };
        let others = |(version, holders): (&&AssetVersionId, &Vec<Holder<'_>>)| {
            let own = holders.iter().find(|(other, _)| *other == id).map(|(_, held)| *held);
            if own.is_none() && !all {
                return None;
            }
            let own = own.unwrap_or(Renditions::NONE);
            let others = holders.iter().filter(|(other, held)| *other != id && held.has_all(own));
            let ids: Vec<_> =
                others.take(SIBLINGS_MAX).map(|(other, _)| (*other).clone()).collect();
            (!ids.is_empty()).then(|| ((*version).clone(), ids))
        };
        site.iter().filter_map(others).collect()
    }

    /// The appliances of its site that have service addresses.
    fn site(&self, id: &ApplianceId) -> Vec<SiteMember> {
        let site = self.appliances.get(id).map(|of| &of.appliance.site);
        site.and_then(|site| self.members.get(site)).cloned().unwrap_or_default()
    }
}

/// More siblings of a version than this are not named: one would do.
const SIBLINGS_MAX: usize = 4;
