//! The part of the sessions of its titles that an appliance has, and the bound of its load by that
//! of its site.
//!
//! ```text
//! load   0 ── rises ──> 8/9 of the bound ── holds ── bound ── cut to their middle ──> full: least
//! bound  1.25 x the mean of those of the site that serve, which counts as 30 % at least; but not
//!        above the load below which shares rise
//! ```
//!
//! The draw of a title leads to one appliance of a site (`steering`), and so many of the title's
//! sessions follow it; the others are spread over the site as if there were no titles. With none
//! that follow, an appliance has its part of its site by weight: so there is a part that keeps any
//! bound, however few the titles. This is consistent hashing with bounded loads (Mirrokni, Thorup
//! and Zadimoghaddam, 2016), but for whom the bound is kept: loads come from reports, and players
//! follow within a TTL.
//!
//! A cut is worked out, since the load by titles is in proportion to the sessions that come: those
//! that follow, and the appliance's part of the others. As in `share`, none is made before players
//! have asked again. One that is full cannot show how much more is asked of it, and gives
//! up all at once. The rise is in proportion, too: by a fifth of a percent of the load in a second,
//! which is at most a twentieth while players follow, and the gap in which it holds is a ninth. So
//! it does not swing, whatever the number of appliances (`lab flap`).

use model::id::ApplianceId;
use model::units::{Bytes, Instant, Nanos};
use model::view::Health;

use crate::observed::Report;
use crate::share::{self, FULL, WHOLE, smoothed};
use crate::{Director, Member};

/// The part of one appliance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Titles {
    /// In billionths, of which the rise of a report is some.
    part: u64,
    /// Smoothed, in thousandths, of which `CUT` are the bound.
    load: u64,
    at: Instant,
    cut_at: Option<Instant>,
}

/// What an appliance is measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beside {
    /// The mean load of those of its site that serve, by weight, itself among them.
    pub mean: u64,
    /// Its part of the site by the weight that counts, in billionths.
    pub part: u64,
}

const ALL: u64 = 1_000_000_000;
/// More than nothing, which says that titles are not drawn for.
const LEAST: u64 = ALL / WHOLE;
/// The bound in the units of `Titles::load`, and where a rise ends.
const CUT: u64 = 900;
const RISES: u64 = 800;
/// Loads are worth no more than this: full, and idle siblings.
const LOAD_MAX: u64 = 4 * WHOLE;
/// A site whose mean is below this has room for its mean to be passed: no need to spread.
const IDLE: u64 = 300;
/// The load by titles would grow by itself in so long.
const GROWS_IN: Nanos = Nanos::seconds(500);

impl Titles {
    /// Of an appliance that nobody has seen loaded.
    pub(crate) fn whole(now: Instant) -> Self {
        Self { part: ALL, load: 0, at: now, cut_at: None }
    }

    /// In thousandths.
    pub(crate) fn permille(&self) -> u64 {
        self.part / (ALL / WHOLE)
    }

    /// Another process of the control plane gives it so much, and has heard it for longer.
    pub(crate) fn told(&mut self, permille: u64) {
        let told = permille.min(WHOLE) * (ALL / WHOLE);
        self.part = self.part.min(told.max(LEAST));
    }

    /// It reports, and serves, with so much of its scarcest resource in use, and may have so many
    /// thousandths of the mean. True if it was cut. O(1).
    pub(crate) fn heard(
        &mut self,
        now: Instant,
        load: u64,
        beside: Beside,
        load_max: u64,
        shares: &share::Policy,
    ) -> bool {
        let passed = now.since(self.at);
        self.at = now;
        let bound = beside.mean.max(IDLE) * load_max / WHOLE;
        let bound = bound.min(shares.rises_below).max(1);
        let of_bound = (load.min(LOAD_MAX) * CUT / bound).min(LOAD_MAX);
        self.load = smoothed(self.load, of_bound, passed);
        // Alone it has all of its site either way.
        let Some(rest) = ALL.checked_sub(beside.part).filter(|rest| 0 < *rest) else {
            return false;
        };
        if self.cut_at.is_some_and(|at| now.since(at) < shares.settle) {
            return false;
        }
        let comes = beside.part + of(self.part, rest);
        let part = if self.load < RISES {
            let grown = u128::from(comes) * u128::from(passed.0.min(shares.settle.0));
            let grown = u64::try_from(grown / u128::from(GROWS_IN.0)).unwrap_or(ALL);
            self.part.saturating_add(ratio(grown, rest))
        } else if self.load <= CUT {
            self.part
        } else if FULL <= load {
            LEAST
        } else {
            let may_come = comes.saturating_mul((RISES + CUT) / 2) / self.load.max(of_bound);
            ratio(may_come.saturating_sub(beside.part), rest).min(self.part)
        };
        let part = part.clamp(LEAST, ALL);
        let is_cut = part < self.part;
        if is_cut {
            self.cut_at = Some(now);
        }
        self.part = part;
        is_cut
    }
}

/// A part of a number.
fn of(part: u64, number: u64) -> u64 {
    u64::try_from(u128::from(part) * u128::from(number) / u128::from(ALL)).unwrap_or(ALL)
}

/// The part that one number is of another.
fn ratio(number: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(number) * u128::from(ALL) / u128::from(whole.max(1))).unwrap_or(ALL)
}

/// An appliance's part of its site's sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub site: u32,
    pub weight: u64,
    /// Objects, or files.
    pub held: u64,
    /// The part of its sessions that it takes, in thousandths: at least one.
    pub takes: u64,
    /// As if its share were whole, in thousandths.
    pub load: u64,
}

impl Counted {
    /// One that has this share and load, beside others. O(1).
    fn new(site: u32, (weight, held): (u64, u64), share: u64, load: u64, beside: Serving) -> Self {
        let most = beside.held.checked_div(beside.appliances).unwrap_or(0) * HELD_RATIO;
        let held = held.min(if most == 0 { HELD_MAX } else { most });
        let all = (beside.appliances + 1, beside.weights + weight, beside.held + held);
        let part = |own: u64, all_own: u64| match own * all.2 {
            0 => WHOLE,
            mean => (held * all_own).saturating_mul(WHOLE) / mean,
        };
        let holds = part(1, all.0).max(part(weight, all.1)).min(WHOLE);
        let share = share.clamp(1, WHOLE);
        let takes = (share * holds / WHOLE).max(1);
        Self { site, weight, held, takes, load: (load.min(WHOLE) * WHOLE / share).min(WHOLE) }
    }

    fn counts(&self) -> u64 {
        self.weight * self.takes
    }
}

/// It holds no more than so many times the mean of those beside it, whatever it says: one that lied
/// and idled would be the mean of its site.
const HELD_RATIO: u64 = 8;

/// More is not believed of the first.
const HELD_MAX: u64 = 1 << 32;

/// The sums of those of a site that serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Serving {
    appliances: u64,
    weights: u64,
    held: u64,
    /// Weights times the parts of their sessions that they take.
    counts: u64,
    /// These times loads.
    loads: u64,
}

impl Serving {
    pub(crate) fn add(&mut self, of: &Counted) {
        self.appliances += 1;
        self.weights += of.weight;
        self.held += of.held;
        self.counts += of.counts();
        self.loads += of.counts() * of.load;
    }

    pub(crate) fn take(&mut self, of: &Counted) {
        let less = |sum: &mut u64, by: u64| {
            *sum = sum.checked_sub(by).expect("it was counted");
        };
        less(&mut self.appliances, 1);
        less(&mut self.weights, of.weight);
        less(&mut self.held, of.held);
        less(&mut self.counts, of.counts());
        less(&mut self.loads, of.counts() * of.load);
        assert!(0 < self.appliances || *self == Self::default(), "nothing is left of nobody");
    }
}

impl Director {
    /// An appliance reports: what it adds to its site is other, and its part of its titles moves.
    pub(crate) fn move_titles(&mut self, now: Instant, id: &ApplianceId, report: &Report) {
        self.count_load(id);
        let Some(member) = self.members.get_mut(id) else { return };
        let Some(counted) = member.counted else { return };
        let Serving { counts, loads, .. } = self.map.serving(counted.site);
        assert!(0 < counts, "it is one of them");
        let beside = Beside { mean: loads / counts, part: ratio(counted.counts(), counts) };
        let before = member.titles.permille();
        let (load_max, shares) = (self.config.titles_load_max, &self.config.shares);
        if load_max == 0 {
            return;
        }
        let observed = member.observed.as_ref();
        let load = observed.map_or(0, |observed| observed.said.load.permille());
        let is_cut = member.titles.heard(now, load, beside, load_max, shares);
        let (others, own) = (report.told_titles, report.own_titles);
        let told = observed.and_then(|of| of.word(now, shares.settle, others, own));
        told.iter().for_each(|told| member.titles.told(*told));
        self.counters.titles_cuts += u64::from(is_cut);
        if member.titles.permille() != before {
            self.map.outdate(member.site);
        }
    }

    /// Counts an appliance as it is now among those of its site that serve. O(1).
    pub(crate) fn count_load(&mut self, id: &ApplianceId) {
        let registered = self.desired.appliances.get(id);
        let Some((member, registered)) = self.members.get_mut(id).zip(registered) else { return };
        self.map.count(member.counted.take().as_ref(), None);
        let observed = member.observed.as_ref().filter(|_| member.health == Health::Healthy);
        let now = observed.map(|observed| {
            let beside = self.map.serving(member.site);
            let weight = registered.appliance.weight.value().into();
            let held = Bytes::of(observed.known_count()).0;
            let (share, load) = (member.share.permille(), observed.said.load.permille());
            Counted::new(member.site, (weight, held), share, load, beside)
        });
        member.counted = now;
        self.map.count(None, now.as_ref());
    }
}

impl Member {
    pub(crate) fn titles_permille(&self, load_max: u64) -> u32 {
        let permille = if load_max == 0 { 0 } else { self.titles.permille() };
        u32::try_from(permille).expect("it is at most the whole")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const SHARES: share::Policy = share::Policy {
        full_after: Nanos::seconds(1200),
        settle: Nanos::seconds(20),
        rises_below: 800,
        cut_above: 900,
    };
    const LOAD_MAX: u64 = 1250;
    /// Reports, of which there is one every two seconds, until players have followed.
    const LATE: usize = 5;

    fn at(second: u64) -> Instant {
        Instant(0) + Nanos::seconds(second)
    }

    /// A site under its titles, whose players follow late.
    struct Site {
        weights: Vec<u64>,
        /// The load of each appliance by the titles that lead to it, if they went to it alone.
        titles: Vec<u64>,
        parts: Vec<Titles>,
        /// As they were told, with those that players follow first.
        told: Vec<Vec<u64>>,
    }

    impl Site {
        fn new(weights: &[u64], titles: &[u64]) -> Self {
            let parts = vec![Titles::whole(at(0)); weights.len()];
            let told = vec![vec![WHOLE; weights.len()]; LATE];
            Self { weights: weights.to_vec(), titles: titles.to_vec(), parts, told }
        }

        fn loads(&self) -> Vec<u64> {
            let parts = &self.told[self.told.len() - LATE];
            // In sessions that an appliance of the weight 1 can serve 1,000 of.
            let follow = |n: usize| self.titles[n] * self.weights[n] * parts[n] / WHOLE;
            let all = |n: usize| self.titles[n] * self.weights[n];
            let spread: u64 = (0..self.weights.len()).map(|n| all(n) - follow(n)).sum();
            let weights: u64 = self.weights.iter().sum();
            (0..self.weights.len())
                .map(|n| follow(n) / self.weights[n] + spread / weights)
                .collect()
        }

        fn mean(&self) -> u64 {
            let (loads, weights) = (self.loads(), self.weights.iter().sum::<u64>());
            loads.iter().zip(&self.weights).map(|(load, weight)| load * weight).sum::<u64>()
                / weights
        }

        fn run(&mut self, seconds: std::ops::Range<u64>) {
            for second in seconds.step_by(2) {
                let (loads, mean) = (self.loads(), self.mean());
                let weights: u64 = self.weights.iter().sum();
                for (n, titles) in self.parts.iter_mut().enumerate() {
                    let beside = Beside { mean, part: ratio(self.weights[n], weights) };
                    // A link carries no more than it can.
                    titles.heard(at(second), loads[n].min(WHOLE), beside, LOAD_MAX, &SHARES);
                }
                self.told.push(self.parts.iter().map(Titles::permille).collect());
            }
        }

        /// Turns of one after so many reports.
        fn reversals(&self, n: usize, after: usize) -> usize {
            let steps = self.told[after..].windows(2).map(|pair| pair[1][n].cmp(&pair[0][n]));
            let moves: Vec<_> = steps.filter(|step| step.is_ne()).collect();
            moves.windows(2).filter(|pair| pair[0] != pair[1]).count()
        }
    }

    #[test]
    fn one_title_of_a_site_goes_to_as_many_as_the_bound_wants_and_does_not_swing() {
        for (appliances, load) in [(2, 800), (2, 1400), (3, 1500), (10, 4000), (40, 30_000)] {
            let mut titles = vec![0; appliances];
            titles[1] = load;
            let mut site = Site::new(&vec![1; appliances], &titles);
            site.run(2..4000);
            let (loads, mean) = (site.loads(), site.mean());
            let bound = (mean.max(IDLE) * LOAD_MAX / WHOLE).min(SHARES.rises_below);
            let most = loads[1];
            assert!(most <= bound + 5, "{appliances} {load}: {most} of {bound}");
            assert!(bound * 8 / 9 <= most + 15 || mean <= most, "{appliances} {load}: no more");
            assert!(site.reversals(1, 0) <= 1, "{appliances} {load}: {:?}", site.told);
        }
    }

    #[test]
    fn a_site_with_little_to_do_keeps_its_titles_together() {
        let mut site = Site::new(&[1, 1], &[330, 0]);
        site.run(2..1000);
        assert_eq!(site.parts[0].permille(), WHOLE);
        assert_eq!(site.loads(), [330, 0], "twice the mean, and room enough");
    }

    #[test]
    fn what_was_given_up_comes_back_when_it_is_wanted_less() {
        let mut site = Site::new(&[1, 1], &[1000, 0]);
        site.run(2..600);
        assert!(site.parts[0].permille() < 250, "{}", site.parts[0].permille());
        site.titles = vec![400, 400];
        site.run(600..1800);
        assert_eq!(site.parts[0].permille(), WHOLE);
        assert_eq!(site.reversals(0, 0), 1);
    }

    #[test]
    fn what_one_says_that_it_holds_moves_the_mean_little() {
        for (siblings, load) in [3, 9, 39].into_iter().flat_map(|n| [(n, 130), (n, 450), (n, 900)])
        {
            let mut site = Serving::default();
            let mut counted: Vec<Counted> = Vec::new();
            for n in 0..3 * (siblings + 1) {
                let (held, load) =
                    if n % (siblings + 1) == 0 { (1 << 24, 0) } else { (1000, load) };
                if siblings < n {
                    site.take(&counted.remove(0));
                }
                counted.push(Counted::new(0, (1, held), WHOLE, load, site));
                site.add(counted.last().unwrap());
            }
            let (mean, by_weight) = (site.loads / site.counts, load * siblings / (siblings + 1));
            let little = by_weight * 2 / 3..=by_weight;
            assert!(little.contains(&mean), "{siblings} {load}: {mean}, by weight {by_weight}");
        }
    }

    #[test]
    fn one_that_is_full_gives_up_all_and_none_is_cut_before_players_have_asked_again() {
        let beside = Beside { mean: 500, part: ALL / 2 };
        let mut titles = Titles::whole(at(0));
        assert!(!titles.heard(at(2), 990, beside, LOAD_MAX, &SHARES), "one report is not enough");
        assert!(titles.heard(at(6), 990, beside, LOAD_MAX, &SHARES));
        assert_eq!(titles.permille(), 1);
        let mut titles = Titles::whole(at(0));
        assert!(titles.heard(at(6), 700, beside, LOAD_MAX, &SHARES));
        let cut = titles.permille();
        // 850 / 900 of 625 take 843 of 1,000 sessions that come now: 686 and half of the others.
        assert!((680..=690).contains(&cut), "{cut}");
        for second in (8..26).step_by(2) {
            assert!(!titles.heard(at(second), 700, beside, LOAD_MAX, &SHARES), "{second}");
        }
        assert!(titles.heard(at(26), 700, beside, LOAD_MAX, &SHARES));
    }

    #[test]
    fn anothers_word_cuts_and_never_raises() {
        let mut titles = Titles::whole(at(0));
        titles.told(300);
        assert_eq!(titles.permille(), 300);
        titles.told(700);
        assert_eq!(titles.permille(), 300);
        titles.told(0);
        assert_eq!(titles.permille(), 1, "0 says that titles are not drawn for");
    }

    proptest! {
        #[test]
        fn loads_come_into_their_bound_and_do_not_swing(
            site in vec((1_u64..5, 0_u64..1500), 2..8)
        ) {
            let (weights, titles): (Vec<u64>, Vec<u64>) = site.into_iter().unzip();
            let mut site = Site::new(&weights, &titles);
            site.run(2..3000);
            let (loads, mean) = (site.loads(), site.mean());
            let bound = (mean.max(IDLE) * LOAD_MAX / WHOLE).min(SHARES.rises_below);
            for (n, load) in loads.iter().enumerate() {
                prop_assert!(*load <= bound.max(mean) + 12, "{n}: {load} of {bound}, mean {mean}");
                // Those of others are among their first turns.
                prop_assert!(site.reversals(n, 300) <= 1, "{n}: {:?}", site.told);
            }
        }

        #[test]
        fn senseless_reports_do_no_harm(
            reports in vec((any::<u64>(), any::<u64>(), 0..=ALL, 0_u64..100), 1..40)
        ) {
            let mut titles = Titles::whole(at(0));
            let mut now = 0;
            for (load, mean, part, passed) in reports {
                now += passed;
                let mean = mean.min(WHOLE);
                titles.heard(at(now), load, Beside { mean, part }, LOAD_MAX, &SHARES);
                prop_assert!((1..=WHOLE).contains(&titles.permille()));
            }
        }
    }
}
