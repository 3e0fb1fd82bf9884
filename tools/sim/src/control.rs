//! The control plane's process: a director, and what is durable beside it. The counterpart of
//! `shell/control`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use director::difference::between;
use director::following::Asks;
use director::front::Player;
use director::masters::{AT_WORK, Reach};
use director::sources::Sources;
use director::wishes::{RuleKind, Unkept, UnkeptWhy, Where, Wishes};
use director::{
    Action, Change, Desired, Director, Event, Expected, Ledger, LedgerEntry, PlanInput,
    RefusedPlan, Report, Snapshot, TrustEntry, Version,
};
use model::id::{ApplianceId, AssetId, AssetVersionId, Generation, ObjectId, SiteId};
use model::inventory::Check;
use model::machine::Machine;
use model::manifest::{AssetVersion, Manifest, Trust, TrustDocument};
use model::number::NumberSet;
use model::topology::Site;
use model::units::{BitsPerSecond, Bytes, Instant, Nanos, UnixSeconds};
use model::view::Health;
use placement::plan::Wanted;
use playback::token::Session;

use crate::canary::Canary;
use crate::hours;
use crate::oracle;
use crate::replication::{Given, Replication};
use crate::stage::{Troupe, WORLD};
use crate::world::{FILL, Party, Said, World};

pub(crate) struct Control {
    world: Rc<World>,
    director: RefCell<Option<Director>>,
    troupe: Cell<Troupe>,
    /// When the database is done with what it was given.
    stored_until: Cell<Instant>,
    durable: RefCell<(Desired, Ledger)>,
    /// When each appliance's newest report came, whoever is there to take it.
    heard: RefCell<BTreeMap<ApplianceId, Instant>>,
    replication: RefCell<Replication>,
    /// What it last began to store, and what it knows to be durable.
    storing: Cell<(Generation, Generation)>,
    given: RefCell<BTreeMap<(ApplianceId, Generation), Arc<Manifest>>>,
    given_trust: RefCell<BTreeMap<Generation, Arc<TrustDocument>>>,
    /// A planted bug: a view that lists are made from, and when it was new.
    old_view: RefCell<Option<(Instant, Arc<Snapshot>)>>,
    /// A planted bug: the first masters of an object, in each fill cluster.
    first_masters: RefCell<BTreeMap<(String, ObjectId), Vec<ApplianceId>>>,
    /// What operators have said.
    pub(crate) said: RefCell<Said>,
}

/// As in a demo: half a second between reports.
pub(crate) const CONFIG: director::Config = director::Config {
    stale_after: Nanos::millis(1500),
    probe_after: Nanos::millis(800),
    shares: director::share::Policy {
        full_after: Nanos::seconds(10),
        settle: Nanos::seconds(2),
        rises_below: 800,
        cut_above: 900,
    },
    titles_load_max: 1250,
    report_interval: Nanos::millis(500),
    objects_held_max: 1000,
    notices_max: 5,
    drain: director::drain::Config {
        leave: Nanos::seconds(1),
        quiet_egress: BitsPerSecond(1_000_000),
        quiet: Nanos::seconds(5),
        bound: Nanos::seconds(60),
    },
    usable_settles: Nanos::seconds(3),
    usable_replans: Nanos::seconds(1),
    rotation_min: Nanos::seconds(1),
    rotation_max: Nanos::seconds(3600),
    sources: director::sources::Config { siblings_max: 4, elsewhere: true },
    tokens_max: Nanos::seconds(30),
    routes_longest: director::RoutesLongest::USUAL,
    withdrawals_max: 3,
    // Met more often than control's own.
    pictures_max: 4,
};
const STEERING: steering::Config =
    steering::Config { pathways_min: 2, pathways_max: 4, explains: false };
const TICK: Nanos = Nanos::millis(100);

/// An operator looks again so soon.
const LOOKS_AGAIN: Nanos = Nanos::millis(100);

impl Control {
    /// A control plane that is not up yet.
    pub(crate) fn new(world: &Rc<World>, desired: Desired) -> Rc<Self> {
        Rc::new(Self {
            world: Rc::clone(world),
            director: RefCell::new(None),
            troupe: Cell::new(WORLD),
            stored_until: Cell::new(Instant(0)),
            durable: RefCell::new((desired, Ledger::default())),
            heard: RefCell::default(),
            replication: RefCell::new(Replication::new()),
            storing: Cell::default(),
            given: RefCell::default(),
            given_trust: RefCell::default(),
            old_view: RefCell::default(),
            first_masters: RefCell::default(),
            said: RefCell::default(),
        })
    }

    pub(crate) fn start(self: &Rc<Self>) {
        let stage = self.world.stage.clone();
        let troupe = Troupe(stage.number());
        self.troupe.set(troupe);
        let (desired, ledger) = self.durable.borrow().clone();
        self.storing.set((ledger.generation, ledger.generation));
        let director = Director::new(CONFIG, desired, ledger, self.now(), self.world.wall());
        *self.director.borrow_mut() = Some(director);
        stage.say(|| "control starts".to_owned());
        self.carry_out();
        let control = Rc::clone(self);
        stage.clone().spawn(troupe, async move {
            loop {
                let at = control.director.borrow().as_ref().and_then(Director::deadline);
                stage.sleep(at.map_or(TICK, |at| at.since(control.now()))).await;
                let wall = control.world.wall();
                control.tell(Event::Tick(wall));
            }
        });
    }

    pub(crate) fn kill(&self) {
        self.world.stage.say(|| "control killed".to_owned());
        self.world.stage.kill(self.troupe.get());
        self.director.borrow_mut().take();
        self.heard.borrow_mut().clear();
        self.replication.borrow_mut().forget();
    }

    /// True while it runs.
    pub(crate) fn is_up(&self) -> bool {
        self.director.borrow().is_some()
    }

    fn now(&self) -> Instant {
        let stands = self.world.has(Canary::ClockStands);
        if stands { Instant(1) } else { self.world.stage.now() }
    }

    /// Desired state changes: durable first.
    pub(crate) fn change(self: &Rc<Self>, change: Change) {
        let mut desired = self.durable.borrow().0.clone();
        match &change {
            Change::Version(version) => {
                Arc::make_mut(&mut desired.catalog).put(Arc::clone(version));
            }
            Change::Policy(policy) => desired.policy = *policy,
            Change::Withdrawn(withdrawal) => {
                Arc::make_mut(&mut desired.catalog).remove(withdrawal.versions.keys());
                desired.withdrawals.insert(withdrawal.id, withdrawal.clone());
            }
            Change::Revoked(revoked) => desired.revoked = Arc::new(revoked.clone()),
            Change::Superseded(versions) => {
                Arc::make_mut(&mut desired.catalog).remove(versions.iter());
            }
            Change::Site(site) => {
                Arc::make_mut(&mut desired.sites).insert(site.id.clone(), site.clone());
            }
            Change::Urgent(urgent) => desired.urgent = urgent.clone(),
            Change::Wishes(wishes) => desired.wishes = Arc::clone(wishes),
            Change::SiteGone(_)
            | Change::Appliance(_)
            | Change::ApplianceGone(_)
            | Change::Usable(..)
            | Change::SigningKeys(_)
            | Change::TokenKeys(..)
            | Change::Enrolled { .. }
            | Change::IdentityRevoked(_)
            | Change::CloneGone(_)
            | Change::Drain(..)
            | Change::Playbacks(_) => unreachable!("the simulation changes nothing of this"),
        }
        self.durable.borrow_mut().0 = desired;
        self.tell(Event::Changed(change));
    }

    /// Viewers are expected to watch some items much, some little, and some not at all.
    pub(crate) fn forecast(self: &Rc<Self>) {
        let stage = &self.world.stage;
        let catalog = Arc::clone(&self.durable.borrow().0.catalog);
        let items = catalog.all().filter_map(|version| version.items());
        let mut items: Vec<_> =
            items.flat_map(|of| of.each().map(|(_, item)| item).collect::<Vec<_>>()).collect();
        items.sort_unstable();
        let wanted = items.into_iter().filter(|_| !stage.one_in(3)).map(|item| Wanted {
            item,
            day: Bytes(1 << stage.between(1, 40)),
            peak: BitsPerSecond(1 << stage.between(1, 30)),
        });
        let expected = Arc::new(Expected { regions: [(None, wanted.collect())].into() });
        self.durable.borrow_mut().1.expected = Some(Arc::clone(&expected));
        stage.say(|| "another forecast".to_owned());
        self.tell(Event::Expected(expected));
    }

    /// An operator means whatever the last plan evicts.
    pub(crate) fn force_plan(self: &Rc<Self>) {
        self.force_if(|_| true);
    }

    /// An operator looks at the last plan, and forces it if it is refused for how much it evicts.
    /// What has no source may not be lost.
    pub(crate) fn force_what_is_meant(self: &Rc<Self>) {
        let is_meant = |words: Vec<String>| words.iter().all(|why| why.contains("may go: look"));
        self.force_if(move |of| of.refused().map(RefusedPlan::words).is_some_and(is_meant));
    }

    /// While another is made she waits for that, and looks again.
    fn force_if(self: &Rc<Self>, is_meant: impl Fn(&Director) -> bool + 'static) {
        let look = |of: &Director| {
            let number = of.last_plan();
            of.may_force(number).then(|| is_meant(of).then_some(number))
        };
        let looked = self.director.borrow().as_ref().and_then(look);
        match looked {
            Some(Some(number)) => self.tell(Event::PlanNow { forces: Some(number) }),
            Some(None) => {}
            None => {
                let stage = &self.world.stage;
                let me = Rc::clone(self);
                stage.at(WORLD, stage.now() + LOOKS_AGAIN, move || me.force_if(is_meant));
            }
        }
    }

    pub(crate) fn versions(&self) -> Vec<(AssetVersionId, AssetId)> {
        let desired = &self.durable.borrow().0;
        let versions = desired.catalog.assets();
        let named = |(asset, versions): (&AssetId, &[Arc<Version>])| {
            let names = versions.iter().map(|version| (version.id().clone(), asset.clone()));
            names.collect::<Vec<_>>()
        };
        versions.flat_map(named).collect()
    }

    pub(crate) fn sites(&self) -> Vec<Site> {
        self.durable.borrow().0.sites.values().cloned().collect()
    }

    /// The hours of an appliance's site, as an operator put them.
    pub(crate) fn hours(&self, id: &ApplianceId) -> Option<hours::Told> {
        let desired = &self.durable.borrow().0;
        let site = &desired.appliances.get(id)?.appliance.site;
        let urgent = desired.urgent.keys().cloned().collect();
        desired.sites.get(site).map(|site| hours::Told::of(site, urgent))
    }

    /// Versions that are urgent.
    pub(crate) fn urgent(&self) -> BTreeMap<AssetVersionId, Option<UnixSeconds>> {
        self.durable.borrow().0.urgent.clone()
    }

    /// Operators say something else of versions.
    pub(crate) fn say(self: &Rc<Self>, change: impl FnOnce(&mut Wishes)) {
        let mut told = {
            let mut said = self.said.borrow_mut();
            change(&mut said.all);
            said.all.clone()
        };
        let is_forgotten = |kind| match kind {
            RuleKind::Ban => self.world.has(Canary::BanForgotten),
            RuleKind::Pin => self.world.has(Canary::PinForgotten),
        };
        told.rules.retain(|_, rule| !is_forgotten(rule.kind));
        self.change(Change::Wishes(Arc::new(told)));
        if self.world.has(Canary::LastCopyGoes) {
            self.force_plan();
        }
    }

    /// Versions that are to be held, of each asset the newest.
    pub(crate) fn kept(&self) -> Vec<Arc<Version>> {
        let desired = &self.durable.borrow().0;
        let count = usize::try_from(desired.policy.versions_kept).unwrap_or(usize::MAX);
        let newest = |(_, all)| {
            let all: &[Arc<Version>] = all;
            all.iter().take(count).cloned().collect::<Vec<_>>()
        };
        desired.catalog.assets().flat_map(newest).collect()
    }

    pub(crate) fn site_of(&self, id: &ApplianceId) -> Option<SiteId> {
        Some(self.durable.borrow().0.appliances.get(id)?.appliance.site.clone())
    }

    /// True if an appliance's newest manifest wants a version.
    pub(crate) fn wants(&self, id: &ApplianceId, version: &AssetVersionId) -> bool {
        let director = self.director.borrow();
        let manifest = director.as_ref().and_then(|of| of.manifest(id).ok().flatten());
        manifest.is_some_and(|of| of.versions.iter().any(|of| of.id == *version))
    }

    /// True if it tells that there is no room for a version at a site where it is pinned.
    pub(crate) fn tells_no_room(&self, version: &AssetVersionId, site: &SiteId) -> bool {
        let director = self.director.borrow();
        let Some(director) = director.as_ref() else { return false };
        let is_it = |of: &Unkept| {
            let is_there = of.version == *version && of.at == Where::Site(site.clone());
            is_there && matches!(of.why, UnkeptWhy::NoRoom(_) | UnkeptWhy::NoDrives)
        };
        director.places().report.pins_missing.iter().any(is_it)
    }

    pub(crate) fn appliances(&self) -> Vec<ApplianceId> {
        self.durable.borrow().0.appliances.keys().cloned().collect()
    }

    /// Receipts that are missing.
    pub(crate) fn unsigned(&self) -> usize {
        let withdrawals = &self.durable.borrow().0.withdrawals;
        let receipts = withdrawals.values().flat_map(|withdrawal| withdrawal.receipts.values());
        receipts.filter(|receipt| receipt.is_none()).count()
    }

    fn tell(self: &Rc<Self>, event: Event<'_>) {
        let now = self.now();
        if let Some(director) = &mut *self.director.borrow_mut() {
            director.handle(now, event);
        }
        self.carry_out();
    }

    fn carry_out(self: &Rc<Self>) {
        loop {
            let action = self.director.borrow_mut().as_mut().and_then(Director::poll);
            let Some(action) = action else { return };
            match action {
                Action::Place(input) => self.place(*input),
                Action::Store(ledger) => self.store(ledger),
                Action::StoreTrust(entry) => self.store_trust(entry),
                Action::StoreUsable { appliance, usable } => {
                    let mut durable = self.durable.borrow_mut();
                    if let Some(known) =
                        Arc::make_mut(&mut durable.0.appliances).get_mut(&appliance)
                    {
                        known.usable = Some(usable);
                    }
                    drop(durable);
                    if let Some(director) = &mut *self.director.borrow_mut() {
                        director.handle(self.now(), Event::UsableStored(appliance, usable));
                    }
                }
                Action::StoreHardware { appliance, hardware } => {
                    let mut durable = self.durable.borrow_mut();
                    if let Some(known) =
                        Arc::make_mut(&mut durable.0.appliances).get_mut(&appliance)
                    {
                        known.hardware = Some(Arc::new(hardware));
                    }
                }
                Action::StoreCloned(appliance) => {
                    self.world.stage.fail(format!("{appliance} is taken for two machines"));
                }
                Action::Probe { appliance, .. } => self.probe(appliance),
                Action::RemoveSuperseded(versions) => self.change(Change::Superseded(versions)),
                Action::StoreReceipt { withdrawal, appliance, receipt } => {
                    let durable = &mut self.durable.borrow_mut().0;
                    let Some(known) = durable.withdrawals.get_mut(&withdrawal) else { continue };
                    oracle::signed(&self.world, &appliance, known);
                    known.receipts.insert(appliance, Some(receipt));
                }
                Action::ForgetWithdrawals(ids) => {
                    let durable = &mut self.durable.borrow_mut().0;
                    durable.withdrawals.retain(|id, _| !ids.contains(id));
                }
                Action::WithdrawEnded(_) => {
                    self.world.stage.fail("a window ends that nobody has set".to_owned());
                }
                Action::Free(_)
                | Action::UseNextSigningKey
                | Action::UseNextTokenKey
                | Action::DropOldTokenKeys
                | Action::Tell(_) => {}
            }
        }
    }

    /// Works a plan out, which takes its time.
    fn place(self: &Rc<Self>, input: PlanInput) {
        let stage = &self.world.stage;
        let span = if stage.one_in(4) { stage.millis(2, 1500) } else { stage.millis(1, 20) };
        let control = Rc::clone(self);
        stage.at(self.troupe.get(), stage.now() + span, move || {
            control.tell(Event::Placed(Box::new(input.work_out())));
            let director = control.director.borrow();
            let stays = director.as_ref().map_or(0, |of| of.places().report.staying);
            control.world.count(|counts| counts.stays += stays);
        });
    }

    /// Makes a ledger durable, which takes its time, and may not come to an end.
    fn store(self: &Rc<Self>, ledger: Ledger) {
        let generation = ledger.generation;
        self.storing.set((generation, self.storing.get().1));
        let stage = &self.world.stage;
        stage.say(|| {
            let whose: Vec<_> = ledger.entries.keys().map(ApplianceId::as_str).collect();
            format!("control stores generation {generation}, of {whose:?}")
        });
        if self.world.has(Canary::NotDurable) {
            let control = Rc::clone(self);
            stage.at(self.troupe.get(), stage.now(), move || {
                control.tell(Event::Stored(generation));
            });
            return;
        }
        let control = Rc::clone(self);
        let fails = !self.world.is_calm.get() && stage.one_in(10);
        // One after the other, as a database does it.
        let span = if stage.one_in(4) { stage.millis(2, 1500) } else { stage.millis(2, 30) };
        let when = self.stored_until.get().max(stage.now()) + span;
        self.stored_until.set(when);
        stage.at(self.troupe.get(), when, move || {
            if fails {
                return;
            }
            {
                let mut durable = control.durable.borrow_mut();
                durable.1.generation = durable.1.generation.max(generation);
                durable.1.entries.take_all(&ledger.entries);
                durable.1.holds.take_all(&ledger.holds);
            }
            // Killed here, it is durable, and nobody was told.
            let again = Rc::clone(&control);
            let stage = &control.world.stage;
            let soon = stage.now() + stage.millis(1, 20);
            control.stored_until.set(control.stored_until.get().max(soon));
            stage.at(control.troupe.get(), soon, move || {
                again.world.stage.say(|| format!("generation {generation} is durable"));
                again.storing.set((again.storing.get().0, generation));
                again.tell(Event::Stored(generation));
            });
        });
    }

    /// The same of a trust document's generation.
    fn store_trust(self: &Rc<Self>, entry: TrustEntry) {
        let stage = &self.world.stage;
        let fails = !self.world.is_calm.get() && stage.one_in(10);
        let when = self.stored_until.get().max(stage.now()) + stage.millis(2, 30);
        self.stored_until.set(when);
        let control = Rc::clone(self);
        stage.at(self.troupe.get(), when, move || {
            if fails {
                return;
            }
            control.durable.borrow_mut().1.trust = entry;
            let again = Rc::clone(&control);
            let stage = &control.world.stage;
            let soon = stage.now() + stage.millis(1, 20);
            control.stored_until.set(control.stored_until.get().max(soon));
            stage.at(control.troupe.get(), soon, move || {
                again.tell(Event::TrustStored(entry.generation));
            });
        });
    }

    fn probe(self: &Rc<Self>, appliance: ApplianceId) {
        let machines = self.world.machines.borrow();
        let machine = machines.iter().find(|machine| machine.id == appliance).cloned();
        let Some(machine) = machine else { return };
        let control = Rc::clone(self);
        let troupe = self.troupe.get();
        self.world.stage.spawn(troupe, async move {
            let world = Rc::clone(&control.world);
            world.stage.sleep(world.stage.millis(1, 20)).await;
            let party = Party::Machine(machine.index);
            let answered = machine.is_up.get() && world.is_connected(party, Party::Control);
            control.tell(Event::Probed { appliance, answered });
        });
    }

    /// Takes a report of an appliance that then held these files, by number.
    pub(crate) fn report(
        self: &Rc<Self>,
        id: &ApplianceId,
        report: &Report,
        truth: Option<&NumberSet>,
    ) -> Option<director::Reply> {
        self.world
            .stage
            .say(|| format!("report {} of {id}, start {}", report.sequence, report.start_id));
        let now = self.now();
        let (reply, counters) = {
            let mut director = self.director.borrow_mut();
            let director = director.as_mut()?;
            let taken = director.counters().reports;
            let read = self.read(director, id, report);
            director.handle(now, Event::Reported { appliance: id, report: &read });
            let reply = director.reply(id).ok();
            let state = read.files.as_ref().map(|files| files.to);
            let is_up_to_date = state.is_some() && reply.as_ref().map(|r| r.inventory) == state;
            if is_up_to_date && taken < director.counters().reports {
                self.world.stage.must(director.files_held(id) == truth, || {
                    format!("what control knows of {id} is not what it holds")
                });
            }
            (reply, director.counters())
        };
        self.world.stage.must(counters.inventory_differences == 0, || {
            format!("what control knows of {id} is not what it says that it holds")
        });
        self.heard.borrow_mut().insert(id.clone(), self.world.stage.now());
        self.carry_out();
        reply
    }

    /// The report as it was sent, unless a bug is planted: one that fits whatever is known.
    fn read(&self, director: &Director, id: &ApplianceId, report: &Report) -> Report {
        let mut report = report.clone();
        if self.world.has(Canary::CheckUnread)
            && let Some(files) = &mut report.files
        {
            let known = director.files_held(id).filter(|_| files.from != 0);
            let known = known.cloned().unwrap_or_default();
            files.check = Check::of_files(&((known - &files.gone) | &files.came));
        }
        report
    }

    /// The newest manifest of an appliance. It is durable, and never given out with other content.
    pub(crate) fn manifest(&self, id: &ApplianceId) -> Option<Arc<Manifest>> {
        let director = self.director.borrow();
        let manifest = director.as_ref()?.manifest(id).ok().flatten()?;
        let durable = self.durable.borrow();
        let entry: Option<&LedgerEntry> = durable.1.entries.get(id);
        let stage = &self.world.stage;
        stage.must(entry.is_some_and(|entry| manifest.generation <= entry.generation), || {
            format!("{id}: generation {} is given out and not durable", manifest.generation)
        });
        let key = (id.clone(), manifest.generation);
        let mut given = self.given.borrow_mut();
        let first = given.entry(key).or_insert_with(|| Arc::clone(&manifest));
        stage.must(*first == manifest, || {
            format!("{id}: generation {} stands for two manifests", manifest.generation)
        });
        Some(manifest)
    }

    /// The newest trust document. It is durable, and never given out with other content.
    pub(crate) fn trust(&self) -> Option<Arc<TrustDocument>> {
        let director = self.director.borrow();
        let document = director.as_ref()?.trust()?;
        let (generation, durable) = (document.trust.generation, self.durable.borrow());
        let stage = &self.world.stage;
        stage.must(generation <= durable.1.trust.generation, || {
            format!("the trust document {generation} is given out and not durable")
        });
        let mut given = self.given_trust.borrow_mut();
        let first = given.entry(generation).or_insert_with(|| Arc::clone(document));
        stage.must(first == document, || format!("{generation} stands for two trust documents"));
        Some(Arc::clone(document))
    }

    /// The answer to who asks for the trust document. Until calm one in four is an old one, which
    /// somebody on the way kept: its signature is good.
    pub(crate) fn trust_given(&self) -> Option<Arc<TrustDocument>> {
        let newest = self.trust()?;
        let (stage, given) = (&self.world.stage, self.given_trust.borrow());
        if self.world.is_calm.get() || !stage.one_in(4) {
            return Some(newest);
        }
        // The first is of before the simulation.
        let first = Trust { generation: Generation(1), ..Trust::default() };
        let first = Arc::new(TrustDocument { token_keys: Vec::new(), trust: first });
        let old: Vec<_> = std::iter::once(first).chain(given.values().cloned()).collect();
        stage.pick(&old).cloned()
    }

    /// The certificates that are refused.
    pub(crate) fn revoked(&self) -> Arc<BTreeSet<String>> {
        Arc::clone(&self.durable.borrow().0.revoked)
    }

    /// The answer to a front.
    pub(crate) fn news(&self, asks: Asks) -> Option<Given> {
        let director = self.director.borrow();
        let director = director.as_ref()?;
        let (desired, manifests) = (director.desired().without_receipts(), director.generation());
        let now = (manifests, self.world.wall());
        Some(self.replication.borrow_mut().answer(desired, now, asks))
    }

    /// True if this is what a generation of states for fronts stands for.
    pub(crate) fn gave(&self, generation: Generation, desired: &Desired) -> bool {
        let replication = self.replication.borrow();
        replication.given(generation).is_some_and(|given| between(given, desired).is_none())
    }

    /// True if it decides by this, as far as fronts see.
    pub(crate) fn decides_by(&self, desired: &Desired) -> bool {
        let director = self.director.borrow();
        director.as_ref().is_some_and(|of| between(of.desired(), desired).is_none())
    }

    /// Where an appliance should fetch an object from that it has lacked for so long.
    pub(crate) fn sources(
        &self,
        asker: &ApplianceId,
        object: &ObjectId,
        waited: Nanos,
    ) -> Option<Sources> {
        let told = self.told(asker, object, waited)?;
        let is_over = Nanos(AT_WORK * FILL.origin_after.0) <= waited;
        let stage = &self.world.stage;
        stage.must(!is_over || told.reach == Reach::Origin, || {
            format!("{asker} has lacked {object} for {waited:?}, and may not ask its origin")
        });
        self.world.count(|counts| {
            counts.waits += u64::from(told.wait.is_some());
            counts.escalated += u64::from(told.escalated);
        });
        let goes = |id: &ApplianceId| {
            self.told(id, object, Nanos(0)).map(|told| told.reach == Reach::Origin)
        };
        // Masters are drawn by the newest plan, and while that is being stored those from whom it
        // takes the object may all go.
        let (storing, stored) = self.storing.get();
        if storing == stored {
            let (cluster, is_urgent) = (self.fill_cluster(asker), self.is_urgent(object));
            oracle::masters(&self.world, (object, is_urgent), &cluster, goes);
        }
        Some(told)
    }

    /// True if a version in the catalogue that has it is urgent.
    fn is_urgent(&self, object: &ObjectId) -> bool {
        let (desired, files) = (&self.durable.borrow().0, self.world.files_of.borrow());
        let mut urgent = desired.urgent.keys().filter(|id| desired.catalog.version(id).is_some());
        urgent.any(|id| files.get(id).is_some_and(|files| files.contains(object)))
    }

    /// What it says to an appliance that asks now and has lacked the object for so long.
    fn told(&self, asker: &ApplianceId, object: &ObjectId, waited: Nanos) -> Option<Sources> {
        let director = self.director.borrow();
        let mut told = director.as_ref()?.sources(asker, object, waited).ok()?;
        if self.world.has(Canary::MasterStays) {
            let cluster = self.cluster_of(asker)?;
            let mut first = self.first_masters.borrow_mut();
            let masters = first.entry((cluster, *object)).or_insert_with(|| told.masters.clone());
            if !masters.is_empty() {
                let is_master = masters.contains(asker);
                told.reach = if is_master { Reach::Origin } else { Reach::Cluster };
                let is_nobody = !is_master && told.siblings.is_empty();
                told.wait = is_nobody.then_some(Nanos::seconds(1));
            }
        }
        Some(told)
    }

    /// Those who fill from one another with this one.
    fn fill_cluster(&self, asker: &ApplianceId) -> Vec<oracle::Member> {
        let own = self.cluster_of(asker);
        let ids = self.appliances().into_iter().filter(|id| self.cluster_of(id) == own);
        let member = |id: ApplianceId| oracle::Member {
            heard: self.heard.borrow().get(&id).copied(),
            is_well: self.health(&id) == Some(Health::Healthy),
            hours: self.hours(&id),
            id,
        };
        ids.map(member).collect()
    }

    /// The fill cluster of its site, or the site.
    fn cluster_of(&self, id: &ApplianceId) -> Option<String> {
        let desired = &self.durable.borrow().0;
        let site = desired.sites.get(&desired.appliances.get(id)?.appliance.site)?;
        let by_itself = || format!("site {}", site.id);
        Some(site.fill_cluster.as_ref().map_or_else(by_itself, ToString::to_string))
    }

    /// The newest view of the fleet.
    fn view(&self) -> Option<Arc<Snapshot>> {
        let snapshot = self.director.borrow().as_ref()?.snapshot();
        if !self.world.has(Canary::StaleView) {
            return Some(snapshot);
        }
        let now = self.world.stage.now();
        let mut old = self.old_view.borrow_mut();
        let is_old = old.as_ref().is_some_and(|(at, _)| now.since(*at) < Nanos::seconds(5));
        if !is_old {
            *old = Some((now, snapshot));
        }
        old.as_ref().map(|(_, snapshot)| snapshot.clone())
    }

    /// What to play, and whom to ask, best first.
    pub(crate) fn list(
        &self,
        client: u64,
        session: &Session,
    ) -> Option<(Arc<AssetVersion>, Vec<usize>)> {
        let snapshot = self.view()?;
        let client = format!("10.{client}.0.1/32").parse().ok()?;
        let player = Player { client, session, plain: false };
        let assets: Vec<_> = ["film", "series"].map(|name| name.parse().ok()).into();
        let asset = self.world.stage.pick(&assets)?.clone()?;
        // No title has a window here.
        let choice = snapshot.choose(&asset, &player, UnixSeconds(1), &STEERING).ok()?;
        self.world.count(|counts| counts.lists += 1);
        for candidate in choice.list.offered() {
            let id = &snapshot.view.placed(candidate.appliance)?.appliance.id;
            let heard = self.heard.borrow().get(id).copied();
            let most = CONFIG.stale_after.0 + 2 * TICK.0;
            let silent = heard.is_none_or(|at| most < self.world.stage.now().since(at).0);
            let is_good = candidate.standing.is_good();
            self.world
                .stage
                .must(!(is_good && silent), || format!("a list names {id}, which is silent"));
        }
        let machines = self.world.machines.borrow();
        let place = |id: &ApplianceId| machines.iter().position(|machine| machine.id == *id);
        let offered = choice.list.offered().iter();
        let id = |of: &steering::Candidate| Some(&snapshot.view.placed(of.appliance)?.appliance.id);
        let places = offered.filter_map(|candidate| place(id(candidate)?)).collect();
        Some((Arc::clone(&choice.version.files), places))
    }

    /// True if control knows all of its manifest to be there.
    pub(crate) fn knows_complete(&self, id: &ApplianceId) -> bool {
        let director = self.director.borrow();
        let Some(director) = director.as_ref() else { return false };
        let snapshot = director.snapshot();
        let Some(view) = snapshot.view.appliance(id) else { return false };
        let manifest = director.manifest(id).ok().flatten();
        let healthy = view.health == Health::Healthy;
        let is_complete =
            |version: &Arc<AssetVersion>| snapshot.view.holds(view.number, &version.id);
        manifest.is_some_and(|manifest| healthy && manifest.versions.iter().all(is_complete))
    }

    /// What control takes an appliance for.
    pub(crate) fn health(&self, id: &ApplianceId) -> Option<Health> {
        let director = self.director.borrow();
        Some(director.as_ref()?.snapshot().view.appliance(id)?.health)
    }

    /// Generation of the newest manifest of an appliance.
    pub(crate) fn generation(&self, id: &ApplianceId) -> Option<Generation> {
        let director = self.director.borrow();
        Some(director.as_ref()?.manifest(id).ok().flatten()?.generation)
    }
}
