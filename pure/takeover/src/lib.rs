//! When an appliance takes a sibling's service addresses over, and when it gives them back.
//!
//! ```text
//! manifest ── Site ──┐                                 ┌──> Announce: a priority for each address,
//! a sibling ─ Heard ─┤                                 │    from which VRRP elects who has it
//! agent ───── Held ──┼──> priorities, clients, rounds ─┼──> Tickle: clients to be reset
//!            LeftOut ┤                                 └──> Drain: addresses that go back soon
//!            Tickled ┘
//! ```
//!
//! Who has an address is not decided here: that is elected by the priorities. A client that waits
//! for the rest of a response sends nothing, so that its new server has nothing to answer with a
//! reset. Each appliance therefore knows its siblings' clients. When it is elected to have an
//! address, has one whose owner is silent, or has its own again, it has each client of that address
//! tickled: sent an ACK that is out of order, which the client answers (RFC 9293 section 3.10.7.4),
//! and that answer is reset by the kernel, which knows no such connection. A tickle to a client of
//! a live connection changes nothing, so that one too many costs a packet, and a wrong suspicion
//! costs no viewer anything.
//!
//! ```text
//! owner:   away ── serves ──> waits ── no sibling is busy with its addresses ──> has them
//! sibling:         has them ─────────> drains: sends requests on to its own address
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use model::id::ApplianceId;
use model::machine::Machine;
use model::manifest::SiteMember;
use model::units::{Instant, Nanos};

#[cfg(test)]
mod tests;

/// A client's connection: the address that it reached, and its own.
pub type Client = (SocketAddr, SocketAddr);

/// A sibling that has said nothing for so long is taken to be away.
pub const SILENT: Nanos = Nanos::millis(800);
/// Longest wait of an owner for its addresses to be drained. Most responses take less.
pub const DRAIN_MAX: Nanos = Nanos::seconds(30);
/// When clients are tickled after an address has come: the first may be too early for switches and
/// neighbours, which learn of the new place of an address at the same time.
pub const ROUNDS: [Nanos; 3] = [Nanos(0), Nanos::millis(500), Nanos::millis(1500)];
/// Clients tickled at a time, and the pause after it: 20,000 a second.
pub const BATCH: usize = 1000;
const PAUSE: Nanos = Nanos::millis(50);
/// Clients of one sibling that are kept; of more than that the rest goes without.
pub const CLIENTS_MAX: usize = 131_072;
/// Addresses that a sibling may say it has of others.
const BUSY_MAX: usize = 256;
/// Siblings on either side, in the order of names, that an appliance asks for their clients.
pub const NEAR: usize = 8;

/// Priorities of VRRP (RFC 9568 section 5.2.4): 255 would say that the address is the machine's for
/// good, 0 that it goes away.
mod priority {
    /// An owner that serves.
    pub(super) const OWNER: u8 = 200;
    /// The first sibling; each further one has one less.
    pub(super) const SIBLING: u8 = 150;
    pub(super) const SIBLING_MIN: u8 = 30;
    /// An owner that waits.
    pub(super) const WAITS: u8 = 20;
    /// Whoever does not serve.
    pub(super) const AWAY: u8 = 1;
}

/// What is known of a sibling's list, and what it is asked with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Drawn when its process started.
    pub start: u64,
    /// The state that the next answer begins from; 0 if nothing is known.
    pub state: u64,
    /// The list of all came up to this client, and goes on after it.
    pub after: Option<Client>,
}

/// The answer of a sibling that was asked for its clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Drawn when its process started.
    pub start: u64,
    /// The state that the lists begin from; 0 for the beginning of all that is open.
    pub from: u64,
    pub to: u64,
    pub open: Vec<Client>,
    pub gone: Vec<Client>,
    /// All that is open goes on after this client: that is asked for next.
    pub next: Option<Client>,
    /// It serves, and waits for its addresses.
    pub waits: bool,
    /// Others' addresses that it has, with responses under way.
    pub busy: Vec<IpAddr>,
}

/// All that can happen to a site's member.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// The members of the site that have addresses, by name.
    Site(&'a [SiteMember]),
    /// A sibling has begun to answer.
    Answers(&'a ApplianceId),
    /// It has told a part of its list.
    Heard {
        member: &'a ApplianceId,
        told: Told,
    },
    /// The addresses of the site that the machine has now.
    Held(&'a [IpAddr]),
    /// Whether one machine at a time has an address (VRRP). If not, which is so until this comes,
    /// each has all of them all the time, and routes choose (BIRD).
    Elected(bool),
    /// Those that its agent does not let it have.
    LeftOut(&'a [IpAddr]),
    /// So many clients were sent a packet.
    Tickled(u64),
    /// This process serves, or serves no longer.
    Serving(bool),
    Tick,
}

/// All that it can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Have these clients answer, so that the kernel can reset what it does not know.
    Tickle(Vec<Client>),
    /// Send players that come by these addresses on to the own one; by all others no longer.
    Drain(Vec<IpAddr>),
}

/// One appliance's part in its site.
#[derive(Debug)]
pub struct Member {
    id: ApplianceId,
    site: Vec<SiteMember>,
    siblings: BTreeMap<ApplianceId, Sibling>,
    held: BTreeSet<IpAddr>,
    /// One machine at a time has an address.
    is_elected: bool,
    /// Never here, though somebody may give them: they are not waited for.
    left_out: BTreeSet<IpAddr>,
    /// Of those held: the ones whose clients were, or are being, tickled; and whether for more than
    /// that this machine was elected to have it.
    covered: BTreeMap<IpAddr, bool>,
    /// Since when this process serves.
    serving: Option<Instant>,
    /// It may have its own addresses.
    is_ready: bool,
    /// Its own addresses that were here when this was last looked at.
    had_own: BTreeSet<IpAddr>,
    /// One went without its doing: whoever has it may be out of earshot.
    lost_own: bool,
    drained: Vec<IpAddr>,
    rounds: Vec<(Instant, IpAddr)>,
    /// To be tickled, of covered addresses only. Bound: what the tables of clients hold, once for
    /// each round.
    queue: VecDeque<Client>,
    next_batch: Instant,
    actions: VecDeque<Action>,
    counters: Counters,
}

/// What is known of a sibling.
#[derive(Debug, Default)]
struct Sibling {
    heard: Option<Instant>,
    known: Known,
    clients: BTreeSet<Client>,
    waits: bool,
    busy: Vec<IpAddr>,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Addresses that came here.
    pub taken: u64,
    /// Clients that were tickled: the agent sent each a packet.
    pub tickled: u64,
}

impl Sibling {
    fn is_silent(&self, now: Instant) -> bool {
        self.heard.is_none_or(|at| at + SILENT <= now)
    }

    fn hear(&mut self, now: Instant, told: Told) {
        self.heard = Some(now);
        (self.waits, self.busy) = (told.waits, told.busy);
        self.busy.truncate(BUSY_MAX);
        let Known { start, state, .. } = self.known;
        let follows = told.from != 0 && (told.start, told.from) == (start, state);
        if told.from == 0 {
            self.clients.clear();
        } else if !follows {
            // A difference to something else: all is asked for next.
            self.known = Known::default();
            return;
        }
        self.known = Known { start: told.start, state: told.to, after: told.next };
        for client in told.gone {
            self.clients.remove(&client);
        }
        let room = CLIENTS_MAX - self.clients.len();
        self.clients.extend(told.open.into_iter().take(room));
        assert!(self.clients.len() <= CLIENTS_MAX, "the table is bounded");
    }
}

impl Member {
    /// One that knows of no site and does not serve.
    pub fn new(id: ApplianceId) -> Self {
        Self {
            id,
            site: Vec::new(),
            siblings: BTreeMap::new(),
            held: BTreeSet::new(),
            is_elected: false,
            left_out: BTreeSet::new(),
            covered: BTreeMap::new(),
            serving: None,
            is_ready: false,
            had_own: BTreeSet::new(),
            lost_own: false,
            drained: Vec::new(),
            rounds: Vec::new(),
            queue: VecDeque::new(),
            next_batch: Instant(0),
            actions: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// The siblings that are asked for their clients, with what is known of each. One whose list
    /// goes on is asked for the rest at once.
    pub fn asked(&self) -> impl Iterator<Item = (&ApplianceId, Known)> {
        self.siblings.iter().map(|(id, sibling)| (id, sibling.known))
    }

    /// For each address of the site, the priority with which this machine wants it.
    pub fn priorities(&self) -> Vec<(IpAddr, u8)> {
        let own = self.site.iter().position(|member| member.id == self.id);
        let own = own.unwrap_or(self.site.len());
        let of = |(index, member): (usize, &SiteMember)| {
            let priority = self.priority(own, index);
            member.addresses.iter().map(move |address| (*address, priority)).collect::<Vec<_>>()
        };
        self.site.iter().enumerate().flat_map(of).collect()
    }

    /// The place of `index` counted from here, so that not all addresses go to the same sibling.
    fn priority(&self, own: usize, index: usize) -> u8 {
        use priority::{AWAY, OWNER, SIBLING, SIBLING_MIN, WAITS};
        // Siblings tell their clients to members of the site only: who has no address is none, and
        // would take over blind.
        if self.serving.is_none() || own == self.site.len() {
            return AWAY;
        }
        if own == index {
            return if self.is_ready { OWNER } else { WAITS };
        }
        let places = self.site.len();
        let distance = (own + places - index) % places;
        let lower = u8::try_from(distance).unwrap_or(u8::MAX);
        SIBLING.saturating_sub(lower).max(SIBLING_MIN)
    }

    /// It serves, and its own addresses are still elsewhere: whoever has them is to drain them.
    pub fn waits(&self) -> bool {
        self.serving.is_some() && !self.has_own()
    }

    /// Addresses that are drained here.
    pub fn drained(&self) -> &[IpAddr] {
        &self.drained
    }

    /// Addresses of others that this machine has.
    pub fn taken(&self) -> Vec<IpAddr> {
        let others = self.held.iter().filter(|address| !self.is_own(address));
        others.copied().collect()
    }

    /// Counts since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Clients of siblings that are known.
    pub fn clients(&self) -> usize {
        self.siblings.values().map(|sibling| sibling.clients.len()).sum()
    }

    fn is_own(&self, address: &IpAddr) -> bool {
        self.owner(address) == Some(&self.id)
    }

    fn owner(&self, address: &IpAddr) -> Option<&ApplianceId> {
        let member = self.site.iter().find(|member| member.addresses.contains(address))?;
        Some(&member.id)
    }

    fn take_site(&mut self, site: &[SiteMember]) {
        self.site = site.to_vec();
        let count = site.len();
        let own = site.iter().position(|member| member.id == self.id);
        let is_near = |index: usize| {
            own.is_some_and(|own| {
                let distance = (own + count - index) % count;
                distance.min(count - distance) <= NEAR
            })
        };
        let near =
            site.iter().enumerate().filter(|(index, of)| of.id != self.id && is_near(*index));
        let near: BTreeSet<&ApplianceId> = near.map(|(_, member)| &member.id).collect();
        self.siblings.retain(|id, _| near.contains(id));
        for id in near {
            self.siblings.entry(id.clone()).or_default();
        }
        let known: BTreeSet<IpAddr> = site.iter().flat_map(|of| of.addresses.clone()).collect();
        self.held.retain(|address| known.contains(address));
        self.covered.retain(|address, _| known.contains(address));
        self.queue.retain(|(at, _)| known.contains(&at.ip()));
        self.rounds.retain(|(_, address)| known.contains(address));
    }

    /// It may have its addresses as soon as no sibling has responses under way on them; a sibling
    /// that was not heard of yet may have.
    fn look_at_own(&mut self, now: Instant) {
        let own: BTreeSet<IpAddr> = self.own().collect();
        let here: BTreeSet<IpAddr> = own.intersection(&self.held).copied().collect();
        let has_own = here == own;
        // One that was added was never here, and takes nothing from the others.
        let had_own = std::mem::replace(&mut self.had_own, here);
        let lost = had_own.intersection(&own).any(|address| !self.held.contains(address));
        let Some(since) = &mut self.serving else {
            self.is_ready = false;
            return;
        };
        let is_alone = self.siblings.values().all(|sibling| sibling.is_silent(now));
        self.lost_own = (self.lost_own || lost) && !has_own;
        if lost || (self.lost_own && is_alone) {
            // While it is cut off nothing is known, and the lowest priority is enough where there
            // really is nobody else.
            (*since, self.is_ready) = (now, false);
            return;
        }
        let since = *since;
        let is_busy = |sibling: &Sibling| match sibling.is_silent(now) {
            true => now < since + SILENT,
            false => sibling.busy.iter().any(|address| own.contains(address)),
        };
        // Nobody took them over, as when the process alone was started again.
        self.is_ready |=
            has_own || since + DRAIN_MAX <= now || !self.siblings.values().any(is_busy);
    }

    /// Its service addresses that may be here.
    fn own(&self) -> impl Iterator<Item = IpAddr> {
        let own = self.site.iter().find(|member| member.id == self.id);
        let own = own.map_or(&[][..], |member| &member.addresses);
        own.iter().copied().filter(|address| !self.left_out.contains(address))
    }

    fn has_own(&self) -> bool {
        self.own().all(|address| self.held.contains(&address))
    }

    fn look_at_addresses(&mut self, now: Instant) {
        let cover = |address: &IpAddr| {
            let owner = self.owner(address);
            let of_owner = owner.and_then(|owner| self.siblings.get(owner));
            // Its own while a sibling has it too, as after a link between them was cut: those who
            // went to the sibling are tickled when that is over.
            let is_shared = || {
                let has = |of: &Sibling| !of.is_silent(now) && of.busy.contains(address);
                self.siblings.values().any(has)
            };
            match of_owner {
                // It waits, too, when its agent or its network let the address go.
                Some(sibling) if sibling.is_silent(now) || sibling.waits => Some(true),
                // It may have been told nothing, as when its keepalived hangs: packets come here.
                Some(_) => self.is_elected.then_some(false),
                None => (owner == Some(&self.id) && !is_shared()).then_some(true),
            }
        };
        let covered = self.held.iter().filter_map(|address| Some((*address, cover(address)?)));
        let covered: BTreeMap<IpAddr, bool> = covered.collect();
        if covered != self.covered {
            let begins = |(address, why): &(&IpAddr, &bool)| self.covered.get(address) < Some(why);
            let begun: BTreeSet<IpAddr> =
                covered.iter().filter(begins).map(|(address, _)| *address).collect();
            // Whoever is tickled from now on is queued by the rounds that follow: a sibling that is
            // heard now and then makes nothing grow.
            let goes_on =
                |address: &IpAddr| covered.contains_key(address) && !begun.contains(address);
            self.queue.retain(|(at, _)| goes_on(&at.ip()));
            self.rounds.retain(|(_, address)| goes_on(address));
            let rounds = |address| ROUNDS.iter().map(move |after| (now + *after, address));
            self.rounds.extend(begun.into_iter().flat_map(rounds));
            self.covered = covered;
        }
        let waits = |member: &&SiteMember| {
            self.siblings.get(&member.id).is_some_and(|of| of.waits && !of.is_silent(now))
        };
        let drained: Vec<IpAddr> =
            self.site.iter().filter(waits).flat_map(|member| member.addresses.clone()).collect();
        if drained != self.drained {
            self.drained.clone_from(&drained);
            self.actions.push_back(Action::Drain(drained));
        }
    }

    fn go_on_with_rounds(&mut self, now: Instant) {
        let (due, later) = self.rounds.iter().partition(|(at, _)| *at <= now);
        self.rounds = later;
        let due: Vec<(Instant, IpAddr)> = due;
        for (_, address) in due {
            let clients = self.siblings.values().flat_map(|sibling| &sibling.clients);
            self.queue.extend(clients.filter(|(at, _)| at.ip() == address));
        }
        if self.next_batch <= now && !self.queue.is_empty() {
            let batch: Vec<Client> = self.queue.drain(..BATCH.min(self.queue.len())).collect();
            self.actions.push_back(Action::Tickle(batch));
            self.next_batch = now + PAUSE;
        }
    }
}

impl Machine for Member {
    type Now = Instant;
    type Event<'a> = Event<'a>;
    type Action = Action;

    fn handle(&mut self, now: Instant, event: Event<'_>) {
        match event {
            Event::Site(site) => self.take_site(site),
            Event::Answers(member) => {
                if let Some(sibling) = self.siblings.get_mut(member) {
                    sibling.heard = Some(now);
                }
            }
            Event::Heard { member, told } => {
                if let Some(sibling) = self.siblings.get_mut(member) {
                    sibling.hear(now, told);
                }
            }
            Event::Held(addresses) => {
                let known = addresses.iter().filter(|address| self.owner(address).is_some());
                let held: BTreeSet<IpAddr> = known.copied().collect();
                let came = held.difference(&self.held).filter(|address| !self.is_own(address));
                self.counters.taken += u64::try_from(came.count()).unwrap_or(0);
                self.held = held;
            }
            Event::Elected(is) => self.is_elected = is,
            Event::LeftOut(addresses) => self.left_out = addresses.iter().copied().collect(),
            Event::Tickled(sent) => self.counters.tickled += sent,
            Event::Serving(serves) => {
                self.serving = serves.then(|| self.serving.unwrap_or(now));
            }
            Event::Tick => {}
        }
        self.look_at_own(now);
        self.look_at_addresses(now);
        self.go_on_with_rounds(now);
    }

    fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// While clients are to be tickled. Silence is noticed by the ticks of whoever asks siblings.
    fn deadline(&self) -> Option<Instant> {
        let round = self.rounds.iter().map(|(at, _)| *at).min();
        let batch = (!self.queue.is_empty()).then_some(self.next_batch);
        round.into_iter().chain(batch).min()
    }
}
