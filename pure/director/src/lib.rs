//! The control plane's state: what should be (desired) and what is (observed). It does no I/O.
//!
//! ```text
//! desired change (durable already) ─┐              ┌─> poll() ─> Action::{Store, Probe, Tell, ..}
//! report ───────────────────────> Director ────────┤
//! probe result, tick ───────────────┘              ├─> reply(appliance), manifest(appliance)
//!            placement, health, generations        └─> snapshot() ─> fronts (see `front`)
//! ```
//!
//! Desired state is durable before it comes here, and a new generation of manifests is durable
//! before anybody sees it: `Action::Place`, `Event::Placed`, `Action::Store`, `Event::Stored`. So
//! after a crash no generation is ever given to two different manifests. Observed state lives here
//! only and is bounded.
//!
//! A director is a writer's, or a replica: that follows another's desired state, which arrives as a
//! whole (`Event::Replaced`), observes by itself, places nothing and stores nothing.
//!
//! Names are looked up where an event comes in; inside, versions, their files, sites and appliances
//! have numbers (`files`, `map`). With f objects in a delta, s appliances in a site:
//!
//! * a report costs O(f + s + log appliances), whatever the fleet and the catalogue; the mean load
//!   of a site, which bounds what titles bring, O(1) of that (`titles`);
//! * a tick, O(those whose clock is due + s of each site that changed), and once a second
//!   O(appliances) for the history;
//! * a playback or a poll, see `steering`; a route, see `routes`;
//! * a version that comes or goes, O(its objects + those that may hold some of it);
//! * a plan, O(appliances) when it begins, O(1) when it has come and when it is stored. It is made
//!   elsewhere (`plan`), after a change of the catalogue, of the policy, of hardware or of what
//!   viewers are expected to watch: of what should be where; after one of a key, of the manifests
//!   alone.
//!
//! Placement follows desired state, what drives can hold and what is expected. That an appliance is
//! silent changes where players are sent, never where files go: an operator decides when one is
//! gone for good.

mod catalog;
mod changes;
mod counters;
mod desired;
pub mod difference;
pub mod drain;
mod event;
mod expectations;
mod files;
mod fill;
pub mod following;
pub mod front;
mod having;
mod heard;
mod history;
mod identity;
mod kept;
mod keys;
pub mod lacking;
mod last;
mod machines;
mod map;
pub mod masters;
mod members;
mod observed;
mod places;
mod plan;
mod playbacks;
mod publish;
mod refused;
mod renditions;
mod reply;
mod sealed;
pub mod share;
mod shelf;
pub mod sources;
mod status;
mod titles;
mod token_keys;
mod trust;
mod usable;
pub mod waits;
mod watch;
pub mod wishes;
mod withdrawal;

use std::collections::VecDeque;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use model::id::{ApplianceId, AssetVersionId, Generation, SiteId};
use model::machine::Machine;
use model::manifest::Manifest;
use model::number::NumberSet;
use model::units::{Instant, Nanos, UnixSeconds};
use model::view::Health;

pub use catalog::{Catalog, Entry, Format, Version, Window};
pub use counters::Counters;
pub use desired::{Change, Desired, Policy, Registered};
pub use event::{Action, Beside, Event, NotRegistered, Notice, Reply, RoutesWanted};
use files::Files;
use fill::Zones;
pub use fill::{AFTER_MAX, FillPolicy, MASTERS_MAX};
pub use front::Snapshot;
pub use history::{History, Sample, Span};
use kept::ToldFiles;
use machines::Order;
pub use machines::{Hardware, Moved};
use map::Map;
use masters::Clusters;
use members::Members;
pub use observed::{Cause, Hears, Report};
use observed::{Known, Observed, Wholes};
pub use places::{Expected, Held, Moves, Places, Question};
pub use plan::{CarriedOut, Plan, PlanInput, Spent};
use plan::{Planning, Replan};
pub use playbacks::{Playbacks, PlaybacksChange, Refused};
use publish::Publisher;
pub use publish::{Digest, Ledger, LedgerEntry};
pub use refused::RefusedPlan;
pub use renditions::{Rendition, Renditions};
pub use routes::filter::Longest as RoutesLongest;
use share::Share;
pub use status::ApplianceStatus;
use titles::{Counted, Titles};
pub use token_keys::TokenRotation;
pub use trust::TrustEntry;
use usable::Usable;
use watch::{Healthy, Looks};
use withdrawal::Takedown;
pub use withdrawal::{Reason, Receipt, Withdrawal};

/// Bounds and times. No defaults here: the process that knows better gives them.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// An appliance is stale when its last report is older than this.
    pub stale_after: Nanos,
    /// When its last report is older than this, ask whether anything answers at its address.
    pub probe_after: Nanos,
    /// How the share of its sessions that an appliance takes moves.
    pub shares: share::Policy,
    /// Most load by titles, in thousandths of the mean of the site; 0 if sessions are spread
    /// whatever their titles.
    pub titles_load_max: u64,
    pub report_interval: Nanos,
    /// Objects of one appliance that are kept track of though no version has them: about 100 bytes
    /// each. Those of versions have no bound.
    pub objects_held_max: usize,
    /// Notices kept for the status page.
    pub notices_max: usize,
    /// The next signing key signs not before so long after it was announced.
    pub rotation_min: Nanos,
    /// The next signing key signs at the latest so long after it was announced.
    pub rotation_max: Nanos,
    /// A capacity of drives counts when it has been reported for so long.
    pub usable_settles: Nanos,
    /// The fleet is placed anew for that at most so often.
    pub usable_replans: Nanos,
    pub sources: sources::Config,
    pub drain: drain::Config,
    /// Longest that a playback's token is good. A version that is not offered any more goes after
    /// this.
    pub tokens_max: Nanos,
    /// Longest prefixes that sites may hear.
    pub routes_longest: routes::filter::Longest,
    /// Withdrawals that are listed; beyond, the oldest complete one goes, else the oldest.
    pub withdrawals_max: usize,
    /// Most pictures between two ticks that are made only because somebody serves, or holds more.
    /// Beyond, such news waits for the next tick. What a picture shares with the director is copied
    /// where it changes next, so that one for each report would be most of what a director does
    /// that begins.
    pub pictures_max: u32,
}

/// The control plane's state.
#[derive(Debug)]
pub struct Director {
    config: Config,
    desired: Desired,
    members: Members,
    /// Sites, and the picture of them that is in the making.
    map: Map,
    clusters: Clusters,
    /// When each appliance's clock is looked at next.
    looks: Looks,
    /// Who is healthy.
    healthy: Healthy,
    files: Files,
    /// Versions that should be held somewhere, by number.
    kept_numbers: NumberSet,
    told_files: ToldFiles,
    role: Role,
    places: Arc<Places>,
    /// What viewers are expected to watch; none until somebody has said it.
    expected: Option<Arc<Expected>>,
    planning: Planning,
    usable: Usable,
    history: History,
    notices: VecDeque<Notice>,
    /// Bounded but for two. Until polled there are of each appliance one capacity, one mark as
    /// cloned and one receipt for each withdrawal that is listed; so many that can be spared; two
    /// to free; and one of every other kind. An appliance's hardware (`machines`), and lines about
    /// its identity (`Action::can_be_spared`), have no bound but the rate in which they come.
    actions: VecDeque<Action>,
    /// How many of them can be spared.
    spared: usize,
    /// The kind of what was polled last: it is being carried out until the next poll.
    under_way: Option<Discriminant<Action>>,
    snapshot: Arc<Snapshot>,
    /// What sites hear and were given, and the order of each prefix that follows.
    routes: routes::Routes,
    heard: heard::Heard,
    zones: Zones,
    /// Versions that are urgent now, by id.
    urgent: Arc<[AssetVersionId]>,
    /// Something that players' lists depend on has changed. That load has can wait for the next
    /// tick, or a large fleet would do nothing else.
    view_is_old: bool,
    /// The same, but no player is led wrong until the next tick: somebody serves, or holds more.
    view_may_wait: bool,
    /// Pictures since the last tick that could have waited for the next.
    pictures: u32,
    now_unix: UnixSeconds,
    tick_at: Instant,
    counters: Counters,
    /// While two signing keys are desired.
    rotation: Option<Rotation>,
    /// When something was last to be done with the keys of playback tokens.
    token_keys_said: Option<Instant>,
    takedown: Takedown,
}

/// The next signing key is announced, and does not sign yet.
#[derive(Clone, Copy, Debug)]
struct Rotation {
    since: Instant,
    said_at: Option<Instant>,
}

/// The part of this director: it decides, or follows one that does.
#[derive(Debug)]
enum Role {
    /// This director: it places, and publishes manifests.
    Writer(Box<Publisher>),
    /// Another, whose newest generation of manifests this is.
    Replica(Generation),
}

/// A registered appliance and the director's knowledge of it.
#[derive(Clone, Debug)]
struct Member {
    /// Its own, and its site's.
    number: u32,
    site: u32,
    health: Health,
    cause: Cause,
    since: Instant,
    /// The share of its sessions that it takes.
    share: Share,
    /// The part of its titles' sessions that follow them to it.
    titles: Titles,
    /// As it is in the sums of its site; none unless it serves.
    counted: Option<Counted>,
    observed: Option<Observed>,
    /// When its hardware was last found to be other.
    moved: Option<Instant>,
    /// When it was last found to be ahead.
    overtaken: Option<Instant>,
    /// The same of the trust document that it follows.
    trust_overtaken: Option<Instant>,
    /// How far an operator's drain of it has come.
    course: drain::Course,
    /// How long it waits between two reports.
    interval: Nanos,
}

impl Director {
    /// Starts from what is durable. Until appliances report, all of them are `NeverSeen`.
    pub fn new(
        config: Config,
        desired: Desired,
        ledger: Ledger,
        now: Instant,
        now_unix: UnixSeconds,
    ) -> Self {
        let places = Arc::new(Places::of(ledger.holds.clone()));
        let known = (desired, places, ledger.expected.clone());
        let role = Role::Writer(Box::new(Publisher::new(ledger)));
        Self::with_role(config, known, role, now, now_unix)
    }

    /// A replica, which knows no desired state until the first [`Event::Replaced`].
    pub fn replica(config: Config, now: Instant) -> Self {
        let role = Role::Replica(Generation(0));
        Self::with_role(config, Default::default(), role, now, UnixSeconds(0))
    }

    fn with_role(
        config: Config,
        (desired, places, expected): (Desired, Arc<Places>, Option<Arc<Expected>>),
        role: Role,
        now: Instant,
        now_unix: UnixSeconds,
    ) -> Self {
        assert!(config.probe_after <= config.stale_after, "a probe comes before the verdict");
        let share::Policy { rises_below, cut_above, .. } = config.shares;
        assert!(rises_below < cut_above, "between the two, a share holds");
        assert!(config.rotation_min <= config.rotation_max, "the earliest is before the latest");
        assert!(0 < config.notices_max && 0 < config.withdrawals_max, "there is room for one");
        assert!(TICK <= config.stale_after, "a silent appliance is seen in time");
        let mut director = Self {
            config,
            desired,
            members: Members::default(),
            map: Map::default(),
            clusters: Clusters::default(),
            looks: Looks::default(),
            healthy: Healthy::default(),
            files: Files::default(),
            kept_numbers: NumberSet::new(),
            told_files: ToldFiles::default(),
            role,
            places,
            expected,
            planning: Planning::default(),
            usable: Usable::default(),
            history: History::default(),
            notices: VecDeque::new(),
            actions: VecDeque::new(),
            spared: 0,
            under_way: None,
            snapshot: Arc::default(),
            routes: routes::Routes::new(config.routes_longest),
            heard: heard::Heard::default(),
            zones: Zones::default(),
            urgent: Arc::default(),
            view_is_old: true,
            view_may_wait: false,
            pictures: 0,
            now_unix,
            tick_at: now + TICK,
            counters: Counters::default(),
            rotation: None,
            token_keys_said: None,
            takedown: Takedown::default(),
        };
        director.begin_rotation(now);
        director.find_places(now, std::iter::empty());
        director.choose_kept(now, director.all_versions());
        director.look_at_withdrawals();
        director.want_plan(Replan::Places);
        director.stage_trust(now);
        director.learn_zones();
        director.learn_urgent();
        director.refresh_view();
        director
    }

    /// A report, which is also a sign of life. One of an appliance that is not registered counts
    /// for nothing: `reply` says so.
    fn reported(&mut self, now: Instant, id: &ApplianceId, report: &Report) {
        let Some(member) = self.members.get_mut(id) else { return };
        let starts = member.observed.as_mut().map(|observed| &mut observed.starts);
        let order = starts.map(|starts| starts.order(report.start_id, report.sequence));
        if order == Some(Order::Cloned) {
            self.clone_found(id);
        }
        if self.is_cloned(id) {
            return self.report_of_two(now, id, report);
        }
        if !matches!(order, None | Some(Order::News)) {
            self.counters.reports_late += 1;
            return;
        }
        let most = self.serves_at_most(id);
        let member = self.members.get_mut(id).expect("no report removes a member");
        let known = Known {
            files: &self.files,
            kept: &self.kept_numbers,
            others_max: self.config.objects_held_max,
        };
        let (number, site) = (member.number, member.site);
        let before = member.observed.as_ref().map(Observed::wholes).unwrap_or_default();
        let observed = match &mut member.observed {
            Some(observed) => {
                if observed.take(now, report, most) {
                    self.map.outdate(site);
                    self.view_is_old = true;
                }
                observed
            }
            none => {
                self.looks.add(now + self.config.probe_after, number);
                none.insert(Observed::new(now, report, most, known))
            }
        };
        let is_ahead = matches!(&self.role, Role::Writer(of) if of.is_ahead(id, report.generation));
        let differs = match &report.files {
            Some(_) if is_ahead => {
                observed.disbelieve(known);
                false
            }
            Some(files) => observed.apply_files(files, report.came, known),
            None => observed.apply(now, &report.inventory, known),
        };
        self.told_files.told(number, observed.files_held(), self.files.given());
        self.counters.reports += 1;
        self.counters.inventory_differences += u64::from(differs);
        if observed.inventory_state() != report.state() {
            self.counters.inventory_gaps += 1;
        }
        let wholes = observed.wholes();
        if !before.is(&wholes) {
            self.show_held(number, &before, &wholes);
            self.holds_anew(id, &before);
        }
        // Load alone can wait for the next tick; a change for the worse of players' lists cannot.
        self.map.outdate_loads(site);
        self.learn_usable(now, id, report.usable);
        self.judge(now, id);
        self.move_share(now, id, report);
        self.move_titles(now, id, report);
        self.learn_hardware(now, id, &report.hardware);
        self.overtake(now, id, report.generation);
        self.reads_trust(id, report.trust.is_some());
        self.overtake_trust(now, id, report.trust);
        self.sign_withdrawals(id, report);
        self.compare_routes(now, id);
    }

    /// The picture that fronts answer players from: another one when something in it is other.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot)
    }

    /// The newest manifest of an appliance; none before its first was stored, and in a replica.
    pub fn manifest(&self, id: &ApplianceId) -> Result<Option<Arc<Manifest>>, NotRegistered> {
        if !self.members.contains_key(id) {
            return Err(NotRegistered);
        }
        Ok(match &self.role {
            Role::Writer(publisher) => publisher.manifest(id),
            Role::Replica(_) => None,
        })
    }

    /// Desired state.
    pub fn desired(&self) -> &Desired {
        &self.desired
    }

    /// Newest generation that was published.
    pub fn generation(&self) -> Generation {
        match &self.role {
            Role::Writer(publisher) => publisher.generation(),
            Role::Replica(generation) => *generation,
        }
    }

    /// The files that an appliance says that it holds, by number; none if it tells no numbers.
    pub fn files_held(&self, id: &ApplianceId) -> Option<&NumberSet> {
        self.members.get(id)?.observed.as_ref()?.files_held()
    }

    /// The past of the fleet.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The last day of a site, as [`Span::Day`] has it, oldest first.
    pub fn site_history(&self, site: &SiteId) -> impl Iterator<Item = &Sample> {
        let number = self.map.known_number(site);
        number.into_iter().flat_map(|number| self.map.day(number))
    }

    /// Changes of state that an operator would note, newest last.
    pub fn notices(&self) -> impl DoubleEndedIterator<Item = &Notice> {
        self.notices.iter()
    }

    /// The items that each appliance should hold, and what is missing.
    pub fn places(&self) -> &Arc<Places> {
        &self.places
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Wants what may have failed, unless it waits or is being carried out. O(actions that wait).
    fn say_again(&mut self, action: Action) {
        if !self.is_said(&action) {
            self.actions.push_back(action);
        }
    }

    /// Whether one of this kind waits or is being carried out. O(actions that wait).
    fn is_said(&self, action: &Action) -> bool {
        let kind = discriminant(action);
        let waits = || self.actions.iter().any(|waiting| discriminant(waiting) == kind);
        self.under_way == Some(kind) || waits()
    }

    /// Wants this, unless it can be spared and too much of that waits. True if it waits now.
    fn say_if_room(&mut self, action: Action) -> bool {
        let can_be_spared = action.can_be_spared();
        let most = SPARED_MAX_EACH * self.members.len() + self.config.notices_max;
        if can_be_spared && most <= self.spared {
            // A probe is only put off: it is wanted again in a second.
            self.counters.actions_spared += u64::from(matches!(action, Action::Tell(_)));
            return false;
        }
        self.spared += usize::from(can_be_spared);
        self.actions.push_back(action);
        true
    }

    /// # Panics
    /// If this is a replica: it has nothing to publish.
    fn publisher(&mut self) -> &mut Publisher {
        match &mut self.role {
            Role::Writer(publisher) => publisher,
            Role::Replica(_) => panic!("a replica publishes nothing: only its writer does"),
        }
    }

    /// An appliance holds other versions than before: lists have it in the next picture.
    fn show_held(&mut self, number: u32, before: &Wholes, now: &Wholes) {
        let moved = self.map.holds(number, before, now);
        self.view_is_old |= moved.gone;
        self.view_may_wait |= moved.came;
    }

    fn show_what_waits(&mut self) {
        self.view_is_old |= self.map.is_outdated() || self.view_may_wait;
        self.pictures = 0;
        self.draw_loads();
    }

    fn refresh_view(&mut self) {
        self.draw_sites();
        let view = self.map.picture(self.generation(), &self.files);
        self.snapshot = Arc::new(Snapshot {
            view: Arc::new(view),
            routes: self.routes.table().clone(),
            sites: self.desired.sites.clone(),
            catalog: self.desired.catalog.clone(),
            alone: self.files.alone().clone(),
            policy: self.desired.policy,
            playbacks: self.desired.playbacks.clone(),
            withdrawn: self.takedown.withdrawn.clone(),
            revoked: self.desired.revoked.clone(),
        });
        self.pictures += u32::from(!self.view_is_old);
        (self.view_is_old, self.view_may_wait) = (false, false);
    }
}

impl Machine for Director {
    type Now = Instant;
    type Event<'a> = Event<'a>;
    type Action = Action;

    fn handle(&mut self, now: Instant, event: Event<'_>) {
        let (is_tick, was_busy) = (matches!(event, Event::Tick(_)), self.routes.is_busy());
        match event {
            Event::Reported { appliance, report } => self.reported(now, appliance, report),
            Event::Changed(change) => self.change(now, change),
            Event::Replaced { desired, generation } => {
                self.replace_desired(now, *desired, generation);
            }
            Event::Heard { appliance, part } => self.hear(now, appliance, part),
            Event::Clients { places, zones } => self.place_clients(places, zones),
            Event::Probed { appliance, answered } => self.probed(now, &appliance, answered),
            Event::Placed(plan) => self.placed(now, *plan),
            Event::Stored(generation) => self.stored(generation),
            Event::TrustStored(generation) => self.trust_stored(generation),
            Event::UsableStored(appliance, usable) => self.usable_stored(&appliance, usable),
            Event::Late(by) => self.was_away(now, by),
            Event::TurnedAway(id) => self.lives(now, &id),
            Event::Expected(expected) => self.expect(expected),
            Event::PlanNow { forces } => self.plan_now(forces),
            Event::Tick(now_unix) => {
                self.now_unix = now_unix;
                // Between two that are due there are those that go on with routes.
                if !was_busy || self.tick_at <= now {
                    self.tick_at = now + TICK;
                    self.show_what_waits();
                }
                self.learn_zones();
                self.learn_urgent();
                // Before the rotations: they wait until no plan is in the making.
                self.go_on_with_overtaking();
                self.watch(now);
                self.settle_usable(now);
                self.go_on_with_handovers();
                self.watch_routes(now);
                self.go_on_with_trust(now);
                self.go_on_with_rotation(now);
                self.go_on_with_token_keys(now);
                self.go_on_with_withdrawals(now);
                if self.history.wants(now_unix) {
                    self.sample();
                }
                if let Role::Writer(publisher) = &mut self.role {
                    let again = publisher.again(now).map(Action::Store);
                    again.into_iter().for_each(|store| self.say_again(store));
                }
            }
        }
        // What came now and is short is done now, the rest in ticks, between which others have
        // their turn.
        if is_tick || !was_busy {
            self.go_on_with_routes(now);
        }
        if self.view_is_old || self.view_may_wait && self.pictures < self.config.pictures_max {
            self.refresh_view();
        }
    }

    fn poll(&mut self) -> Option<Action> {
        let next = self.actions.pop_front();
        self.spared -= usize::from(next.as_ref().is_some_and(Action::can_be_spared));
        self.under_way = next.as_ref().map(discriminant);
        next
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.routes_due().map_or(self.tick_at, |due| due.min(self.tick_at)))
    }
}

impl Member {
    /// Nothing was heard of it yet.
    fn unknown(now: Instant, number: u32, site: u32) -> Self {
        Self {
            number,
            site,
            health: Health::NeverSeen,
            cause: Cause::NoReportYet,
            since: now,
            share: Share::whole(now),
            titles: Titles::whole(now),
            counted: None,
            observed: None,
            moved: None,
            overtaken: None,
            trust_overtaken: None,
            course: drain::Course::default(),
            interval: Nanos(0), // whoever registers it says
        }
    }

    fn share_permille(&self) -> u32 {
        u32::try_from(self.share.permille()).expect("it is at most the whole")
    }
}

fn is_reporting(health: Health) -> bool {
    match health {
        Health::Healthy | Health::Draining | Health::Drained | Health::Unhealthy => true,
        Health::Stale | Health::NeverSeen => false,
    }
}

/// How often time passes, so that a stale appliance is seen in time.
const TICK: Nanos = Nanos::millis(100);

/// An appliance that falls silent and is back makes about so many actions that can be spared. Times
/// the appliances, and with `notices_max`, it is one bound for all: one may have them all.
const SPARED_MAX_EACH: usize = 4;

/// How long to wait for the shell to do something before saying it again.
const SAY_AGAIN_AFTER: Nanos = Nanos::seconds(1);

#[cfg(test)]
impl Director {
    /// A report and its answer.
    pub(crate) fn report(
        &mut self,
        now: Instant,
        appliance: &ApplianceId,
        report: &Report,
    ) -> Result<Reply, NotRegistered> {
        self.handle(now, Event::Reported { appliance, report });
        self.reply(appliance)
    }
}

#[cfg(test)]
mod drain_tests;
#[cfg(test)]
mod identity_tests;
#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod replica_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod withdrawal_tests;
