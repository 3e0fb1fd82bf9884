//! Who has a place, and who gives it to a newcomer. No I/O and no clock: moments are given.
//!
//! ```text
//! arrive ──> a free place                                                    ──> In
//!            its network has all of its share, or the house is full:
//!            whoever has used a place least goes, strangers before the known ──> In, and who goes
//!            nobody can be let go                                            ──> Crowded, or Full
//! ```
//!
//! An honest client needs a place for as long as its request takes. One that holds places without
//! asking anything is the first to go, so whoever attacks has to come again faster than honest
//! clients are done. The same rule within one network keeps a silent one from taking the places of
//! its neighbours behind the same address.
//!
//! A request says twice how its place stands. That matters only when a newcomer finds no room. So
//! a place that stands later than before stays where it is filed, and is filed anew when its turn
//! comes to go. All verbs are O(log places), but [`Crowd::arrive`] and [`Crowd::recount`] where
//! somebody is to go: O(log places) for each place that was used since it was filed, once.

use std::collections::{BTreeMap, BTreeSet};

/// A place in the house.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlaceId(u64);

/// When a place may be given to a newcomer. The least goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Standing<I> {
    /// A holder that showed a certificate or a token goes after all others.
    pub is_known: bool,
    /// Since when it is not in use. If that is to come, it is in use until then.
    pub unused_since: I,
}

/// All places of a listener: `K` is what has a share of them, a network or a member; `I` a moment;
/// `T` what tells a holder to go.
#[derive(Debug)]
pub struct Crowd<K, I, T> {
    places_max: usize,
    per_network_max: usize,
    next: u64,
    /// Invariant: at most `places_max`.
    places: BTreeMap<PlaceId, Place<K, I, T>>,
    /// By `Place::filed`: who may go, or might have when it was filed.
    order: BTreeSet<(Standing<I>, PlaceId)>,
    /// Of places that count against one. Invariant: none of them has `held == 0`.
    networks: BTreeMap<K, Network<I>>,
}

#[derive(Debug)]
struct Place<K, I, T> {
    /// None counts against no network.
    network: Option<K>,
    /// None: not to be given away, its request is under way.
    standing: Option<Standing<I>>,
    /// Where it is in the orders; none if it is in none. Invariant: not after `standing`, so that
    /// the first of an order whose place stands as it is filed is the least of all.
    filed: Option<Standing<I>>,
    tell: T,
}

#[derive(Debug)]
struct Network<I> {
    /// Invariant: at most `per_network_max`.
    held: usize,
    order: BTreeSet<(Standing<I>, PlaceId)>,
}

/// What becomes of a newcomer.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival<T> {
    /// It has a place, and the connection that had it before is to go.
    In(PlaceId, Option<T>),
    /// Its network has all of its share in use.
    Crowded,
    /// The house is full of requests under way: it has to wait.
    Full,
}

impl<K: Clone + Ord, I: Copy + Ord, T> Crowd<K, I, T> {
    /// Both are at least 1.
    pub fn new(places_max: usize, per_network_max: usize) -> Self {
        assert!(0 < places_max && 0 < per_network_max, "a listener lets somebody in");
        Self {
            places_max,
            per_network_max,
            next: 0,
            places: BTreeMap::new(),
            order: BTreeSet::new(),
            networks: BTreeMap::new(),
        }
    }

    /// A newcomer; one without a network counts against none.
    pub fn arrive(
        &mut self,
        now: I,
        network: Option<K>,
        standing: Standing<I>,
        tell: T,
    ) -> Arrival<T> {
        let is_crowded = network.as_ref().is_some_and(|network| self.has_its_share(network));
        let goes = if is_crowded {
            self.least(network.as_ref())
        } else if self.places_max <= self.places.len() {
            self.least(None)
        } else {
            None
        };
        let goes = goes.filter(|(standing, _)| standing.unused_since <= now);
        let gone = goes.and_then(|(_, id)| self.leave(id));
        if gone.is_none() && is_crowded {
            return Arrival::Crowded;
        }
        if self.places_max <= self.places.len() {
            return Arrival::Full;
        }
        let id = PlaceId(self.next);
        self.next += 1;
        let standing = Some(standing);
        self.enter(id, Place { network, standing, filed: standing, tell });
        Arrival::In(id, gone)
    }

    /// Counts a place against another network from now on. None: nobody of that one can go, and
    /// the place is free again; else who goes for it.
    pub fn recount(&mut self, id: PlaceId, now: I, network: K) -> Option<Option<T>> {
        let place = self.take(id)?;
        let mut gone = None;
        if self.has_its_share(&network) {
            let least = self.least(Some(&network));
            let (_, least) = least.filter(|(standing, _)| standing.unused_since <= now)?;
            gone = self.leave(least);
        }
        self.enter(id, Place { network: Some(network), filed: place.standing, ..place });
        Some(gone)
    }

    /// When the place may be given away from now on; none while it must not be.
    pub fn stands(&mut self, id: PlaceId, standing: Option<Standing<I>>) {
        let Some(place) = self.places.get_mut(&id) else { return };
        place.standing = standing;
        let is_earlier = |standing| place.filed.is_none_or(|filed| standing < filed);
        if standing.is_some_and(is_earlier) {
            self.file(id);
        }
    }

    /// Who goes first, of a network or of all. Files anew those that stand later than they are
    /// filed, until one does not.
    fn least(&mut self, network: Option<&K>) -> Option<(Standing<I>, PlaceId)> {
        loop {
            let order = match network {
                Some(network) => &self.networks.get(network)?.order,
                None => &self.order,
            };
            let (filed, id) = *order.first()?;
            let place = self.places.get(&id).expect("who is filed has a place");
            if place.standing == Some(filed) {
                return Some((filed, id));
            }
            self.file(id);
        }
    }

    /// Brings a place to where it stands in the orders.
    fn file(&mut self, id: PlaceId) {
        let Some(place) = self.places.get_mut(&id) else { return };
        let before = std::mem::replace(&mut place.filed, place.standing);
        let mut orders = [Some(&mut self.order), None];
        if let Some(network) = &place.network {
            let network = self.networks.get_mut(network).expect("a place counts in its network");
            orders[1] = Some(&mut network.order);
        }
        for order in orders.into_iter().flatten() {
            if let Some(before) = before {
                assert!(order.remove(&(before, id)), "who is filed is in the order");
            }
            order.extend(place.filed.map(|filed| (filed, id)));
        }
    }

    /// A place is free; nothing happens if it is so already.
    pub fn leave(&mut self, id: PlaceId) -> Option<T> {
        self.take(id).map(|place| place.tell)
    }

    fn has_its_share(&self, network: &K) -> bool {
        let held = self.networks.get(network).map_or(0, |network| network.held);
        self.per_network_max <= held
    }

    fn enter(&mut self, id: PlaceId, place: Place<K, I, T>) {
        let key = place.filed.map(|filed| (filed, id));
        self.order.extend(key);
        if let Some(network) = place.network.clone() {
            let network = self.networks.entry(network).or_insert_with(Network::new);
            network.held += 1;
            network.order.extend(key);
        }
        self.places.insert(id, place);
    }

    fn take(&mut self, id: PlaceId) -> Option<Place<K, I, T>> {
        let place = self.places.remove(&id)?;
        let key = place.filed.map(|filed| (filed, id));
        key.inspect(|key| assert!(self.order.remove(key), "who is filed is in the order"));
        if let Some(address) = &place.network {
            let network = self.networks.get_mut(address).expect("a place counts in its network");
            network.held -= 1;
            key.inspect(|key| assert!(network.order.remove(key), "in its network's order, too"));
            if network.held == 0 {
                self.networks.remove(address);
            }
        }
        Some(place)
    }
}

impl<I> Network<I> {
    fn new() -> Self {
        Self { held: 0, order: BTreeSet::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    /// A crowd; its moments are seconds, and holders have names.
    struct House {
        crowd: Crowd<IpAddr, u64, &'static str>,
    }

    #[test]
    fn the_one_that_has_been_quiet_longest_gives_its_place_to_the_newcomer() {
        let mut house = House::of(2, 2);
        let first = house.comes("first", 1, 0);
        house.comes("second", 2, 1);
        house.uses(first, 2);
        assert_eq!(house.sends_away("third", 3, 3), Some("second"));
        assert_eq!(house.sends_away("fourth", 4, 4), Some("first"));
    }

    #[test]
    fn a_stranger_takes_no_place_of_somebody_known_as_long_as_another_stranger_has_one() {
        let mut house = House::of(2, 2);
        let member = house.comes("member", 1, 0);
        house.crowd.stands(member, Some(standing(true, 0)));
        house.comes("stranger", 2, 5);
        assert_eq!(house.sends_away("another", 3, 6), Some("stranger"));
    }

    #[test]
    fn a_request_under_way_keeps_its_place_and_the_newcomer_waits() {
        let mut house = House::of(1, 1);
        let busy = house.comes("busy", 1, 0);
        house.crowd.stands(busy, None);
        assert_eq!(house.arrives("newcomer", 2, 100), Arrival::Full);
        // A stranger's request has a while.
        house.crowd.stands(busy, Some(standing(false, 102)));
        assert_eq!(house.arrives("newcomer", 2, 101), Arrival::Full);
        assert_eq!(house.sends_away("newcomer", 2, 102), Some("busy"));
    }

    #[test]
    fn a_network_has_its_share_and_its_quiet_one_goes_not_its_neighbour() {
        let mut house = House::of(10, 2);
        let other = house.comes("other", 2, 0);
        house.comes("a", 1, 1);
        let b = house.comes("b", 1, 2);
        assert_eq!(house.sends_away("c", 1, 3), Some("a"));
        house.crowd.stands(b, None);
        assert_eq!(house.sends_away("d", 1, 4), Some("c"));
        assert_eq!(house.crowd.networks[&address(1)].held, 2);
        let Arrival::In(e, _) = house.arrives("e", 1, 5) else { panic!("d goes") };
        house.crowd.stands(e, None);
        assert_eq!(house.arrives("f", 1, 6), Arrival::Crowded);
        assert_eq!(house.crowd.leave(other), Some("other"));
        assert_eq!(house.crowd.leave(other), None);
    }

    #[test]
    fn what_a_proxy_vouches_for_counts_against_no_network_or_against_the_one_behind_it() {
        let mut house = House::of(10, 1);
        let now = 0;
        for _ in 0..5 {
            let standing = standing(true, 0);
            let arrival = house.crowd.arrive(now, None, standing, "proxied");
            let Arrival::In(id, None) = arrival else { panic!("{arrival:?}") };
            let told = house.crowd.recount(id, now, address(9));
            assert!(matches!(told, Some(None | Some("proxied"))), "{told:?}");
        }
        assert_eq!((house.crowd.places.len(), house.crowd.networks[&address(9)].held), (1, 1));
    }

    #[test]
    fn who_goes_is_the_least_as_all_stand_now_whatever_they_did_before() {
        let mut house = House::of(12, 6);
        let mut stand: BTreeMap<PlaceId, (u8, Option<Standing<u64>>)> = BTreeMap::new();
        let (mut state, mut went) = (7_u64, 0);
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for now in 0..20_000 {
            let from = if draw(3) == 0 { 1 } else { 2 };
            let held: Vec<_> =
                stand.iter().map(|(id, (network, at))| (*at, *id, *network)).collect();
            if draw(3) == 0 {
                let in_it = held.iter().filter(|(_, _, network)| *network == from);
                let is_crowded = 6 <= in_it.clone().count();
                let all: Vec<_> = if is_crowded { in_it.collect() } else { held.iter().collect() };
                let least = all.iter().filter_map(|(at, id, _)| Some((*at.as_ref()?, *id))).min();
                let least = least.filter(|(at, _)| at.unused_since <= now).map(|(_, id)| id);
                let is_full = is_crowded || held.len() == 12;
                match house.arrives("one", from, now) {
                    Arrival::In(id, gone) => {
                        assert_eq!(gone.is_some(), is_full);
                        if let Some(least) = least.filter(|_| is_full) {
                            went += 1;
                            assert!(!house.crowd.places.contains_key(&least));
                            stand.remove(&least);
                        }
                        stand.insert(id, (from, Some(standing(false, now))));
                    }
                    Arrival::Crowded => assert!(is_crowded && least.is_none()),
                    Arrival::Full => assert!(is_full && least.is_none()),
                }
                assert_eq!(house.crowd.places.len(), stand.len());
            } else if let Some((_, id, network)) = held.get(usize::try_from(draw(12)).unwrap()) {
                match draw(12) {
                    0 => {
                        assert_eq!(house.crowd.leave(*id), Some("one"));
                        stand.remove(id);
                        continue;
                    }
                    1 => {
                        let to = 3 - network;
                        let there = || held.iter().filter(|(_, _, network)| *network == to);
                        let least = there().filter_map(|(at, id, _)| Some((*at.as_ref()?, *id)));
                        let least = least.min().filter(|(at, _)| at.unused_since <= now);
                        let gone = least.filter(|_| 6 <= there().count()).map(|(_, id)| id);
                        let told = house.crowd.recount(*id, now, address(to));
                        let (_, at) = stand.remove(id).unwrap();
                        assert_eq!(told.is_none(), 6 <= there().count() && gone.is_none());
                        gone.map(|id| stand.remove(&id));
                        if told.is_some() {
                            stand.insert(*id, (to, at));
                        }
                        assert!(stand.keys().eq(house.crowd.places.keys()));
                        continue;
                    }
                    _ => {}
                }
                let at = (draw(4) != 0)
                    .then(|| standing(draw(4) == 0, (now + draw(9)).saturating_sub(5)));
                house.crowd.stands(*id, at);
                stand.insert(*id, (*network, at));
            }
        }
        assert!(1000 < went, "{went}");
    }

    #[test]
    fn a_place_that_is_used_again_and_again_is_filed_once() {
        let mut house = House::of(2, 2);
        let busy = house.comes("busy", 1, 0);
        let filed = house.crowd.order.clone();
        for second in 1..100 {
            house.crowd.stands(busy, None);
            house.uses(busy, second + 2);
            house.uses(busy, second);
        }
        assert_eq!(house.crowd.order, filed);
        house.comes("silent", 2, 50);
        assert_eq!(house.sends_away("newcomer", 3, 100), Some("silent"));
        assert_eq!(house.crowd.order.first(), Some(&(standing(false, 99), busy)));
    }

    impl House {
        fn of(places_max: usize, per_network_max: usize) -> Self {
            Self { crowd: Crowd::new(places_max, per_network_max) }
        }

        fn arrives(&mut self, name: &'static str, from: u8, second: u64) -> Arrival<&'static str> {
            let standing = standing(false, second);
            self.crowd.arrive(second, Some(address(from)), standing, name)
        }

        fn comes(&mut self, name: &'static str, from: u8, second: u64) -> PlaceId {
            let arrival = self.arrives(name, from, second);
            let Arrival::In(id, None) = arrival else { panic!("{name}: {arrival:?}") };
            id
        }

        fn sends_away(&mut self, name: &'static str, from: u8, at: u64) -> Option<&'static str> {
            let arrival = self.arrives(name, from, at);
            let Arrival::In(_, gone) = arrival else { panic!("{name}: {arrival:?}") };
            gone
        }

        fn uses(&mut self, id: PlaceId, second: u64) {
            let standing = standing(false, second);
            self.crowd.stands(id, Some(standing));
        }
    }

    fn standing(is_known: bool, second: u64) -> Standing<u64> {
        Standing { is_known, unused_since: second }
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }
}
