//! The share of its sessions that an appliance takes: it falls at once, and comes back slowly.
//!
//! ```text
//! load   0 ── rises ──> rises_below ── holds ── cut_above ── cut to their middle ──> 990 ── halved
//! share  lost: 0 ──> back: FLOOR ── the whole in `full_after`, as long as it rises ──> 1000
//!        not heard for a moment: 0 ──> as before
//! ```
//!
//! Steering draws for each session and appliance (`steering`): those beyond the share go elsewhere
//! first. Who was drawn below it keeps its list while the share moves, so a change of a tenth
//! moves a tenth of the sessions.
//!
//! Players follow when they ask again, so a cut shows in the load only a while later: no second one
//! is made before. The gap between the load to which a share may rise and the load at which it is
//! cut is wider than what one step moves: so a share that was cut rises to where it holds, and does
//! not swing. (Both measured: `lab flap`.) All figures are ours, for want of a published source,
//! but for the twenty minutes, which are Open Connect's.

use model::units::{Instant, Nanos};

/// How shares move. Loads are in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// From nothing to the whole, if the load lets it.
    pub full_after: Nanos,
    /// Nearly all players have asked again after this, and the load shows it.
    pub settle: Nanos,
    /// Below this load, a share rises.
    pub rises_below: u64,
    /// Above this load, a share is cut to what takes it to the middle of the two.
    pub cut_above: u64,
}

/// One appliance's share, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    permille: u64,
    /// As it was when the appliance was lost.
    before: u64,
    /// It was lost to one thing after another, with no report as a healthy one between them.
    lost_again: bool,
    /// The part of a thousandth that it has risen beyond `permille`, in nanoseconds of rising.
    rest: u64,
    /// Smoothed, in thousandths.
    load: u64,
    /// When it was heard or lost last.
    at: Instant,
    cut_at: Option<Instant>,
}

pub(crate) const WHOLE: u64 = 1000;
/// Without a few sessions nobody would learn that it serves again.
const FLOOR: u64 = 50;
/// At its limit an appliance cannot show how much more is asked of it.
pub(crate) const FULL: u64 = 990;
/// A report counts for as much of the smoothed load as its time is of this.
const SMOOTHED: Nanos = Nanos::seconds(6);

impl Share {
    /// Of an appliance that nobody has lost.
    pub fn whole(now: Instant) -> Self {
        let (permille, before) = (WHOLE, WHOLE);
        Self { permille, before, lost_again: false, rest: 0, load: 0, at: now, cut_at: None }
    }

    /// In thousandths.
    pub fn permille(&self) -> u64 {
        self.permille
    }

    /// The appliance cannot serve, or does not report. Told once of each.
    pub fn lost(&mut self, now: Instant) {
        if self.permille == 0 {
            self.lost_again = true;
            return;
        }
        // The load and the last cut stay: a moment of silence makes room for nobody.
        (self.before, self.permille, self.at) = (self.permille, 0, now);
    }

    /// When it was lost, if it was to one thing only, and it has not reported since. Time in which
    /// nobody listened is left out.
    pub fn lost_once(&self) -> Option<Instant> {
        (self.permille == 0 && !self.lost_again).then_some(self.at)
    }

    /// Another process of the control plane gives it so much, and has heard it for longer. That
    /// cuts, and never raises: an appliance passes it on.
    pub fn told(&mut self, permille: u64) {
        if permille < self.permille {
            (self.permille, self.rest) = (permille.max(FLOOR).min(self.permille), 0);
        }
    }

    /// It was not lost after all: nobody could hear it.
    pub fn found(&mut self) {
        if self.permille == 0 {
            (self.permille, self.lost_again) = (self.before, false);
        }
    }

    /// Nobody listened to it for so long: that is none of its rise.
    pub fn was_away(&mut self, now: Instant, by: Nanos) {
        self.at = (self.at + by).min(now);
    }

    /// It reports, and serves, with so much of its scarcest resource in use. O(1).
    pub fn heard(&mut self, now: Instant, load: u64, policy: &Policy) {
        let load = load.min(2 * WHOLE);
        let passed = now.since(self.at);
        self.at = now;
        if self.permille == 0 {
            // The time for which it was away is none of its rise.
            *self = Self { permille: FLOOR, load, ..Self::whole(now) };
            return;
        }
        self.load = smoothed(self.load, load, passed);
        let settled = self.cut_at.is_none_or(|at| policy.settle <= now.since(at));
        if policy.cut_above < self.load && settled {
            let cut = if FULL <= self.load {
                self.permille / 2
            } else {
                self.permille * (policy.rises_below + policy.cut_above) / 2 / self.load
            };
            (self.permille, self.rest, self.cut_at) = (cut.max(FLOOR), 0, Some(now));
        } else if self.load < policy.rises_below && settled {
            self.rise(passed.min(policy.full_after), policy);
        }
        self.permille = self.permille.max(FLOOR);
        assert!(self.permille <= WHOLE, "nobody takes more than all");
    }

    fn rise(&mut self, passed: Nanos, policy: &Policy) {
        let each = (policy.full_after.0 / WHOLE).max(1);
        let risen = self.rest + passed.0;
        self.rest = risen % each;
        self.permille = (self.permille + risen / each).min(WHOLE);
    }
}

/// A smoothed load, with another report after so long.
pub(crate) fn smoothed(before: u64, load: u64, passed: Nanos) -> u64 {
    let weight = passed.0.min(SMOOTHED.0);
    let mixed = u128::from(before) * u128::from(SMOOTHED.0 - weight)
        + u128::from(load) * u128::from(weight);
    u64::try_from(mixed / u128::from(SMOOTHED.0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy {
        full_after: Nanos::seconds(1200),
        settle: Nanos::seconds(15),
        rises_below: 800,
        cut_above: 900,
    };

    fn at(second: u64) -> Instant {
        Instant(0) + Nanos::seconds(second)
    }

    /// The share after each report, two seconds apart, of an appliance whose load follows its share
    /// of so much demand after ten seconds.
    fn follow(share: &mut Share, seconds: std::ops::Range<u64>, demand: u64) -> Vec<u64> {
        let mut shares = vec![share.permille(); 5];
        for second in seconds.step_by(2) {
            let load = demand * shares[shares.len() - 5] / WHOLE;
            share.heard(at(second), load.min(WHOLE), &POLICY);
            shares.push(share.permille());
        }
        shares
    }

    fn reversals(shares: &[u64]) -> usize {
        let steps = shares.windows(2).map(|pair| pair[1].cmp(&pair[0]));
        let moves: Vec<_> = steps.filter(|step| step.is_ne()).collect();
        moves.windows(2).filter(|pair| pair[0] != pair[1]).count()
    }

    #[test]
    fn a_loaded_one_gives_away_what_is_too_much_and_does_not_swing() {
        for demand in [920, 1100, 1500, 2500, 6000] {
            let mut share = Share::whole(at(0));
            let shares = follow(&mut share, 2..4000, demand);
            assert!(reversals(&shares) <= 1, "{demand}: {shares:?}");
            let load = demand * share.permille() / WHOLE;
            assert!((780..=900).contains(&load), "{demand}: {load}");
        }
    }

    #[test]
    fn what_was_given_away_comes_back_when_there_is_room() {
        let mut share = Share::whole(at(0));
        follow(&mut share, 2..600, 1500);
        assert!(share.permille() < 700);
        follow(&mut share, 600..1900, 500);
        assert_eq!(share.permille(), WHOLE);
    }

    #[test]
    fn one_that_was_lost_takes_all_again_after_twenty_minutes() {
        let mut share = Share::whole(at(0));
        share.lost(at(10));
        assert_eq!(share.permille(), 0);
        follow(&mut share, 12..14, 500);
        assert_eq!(share.permille(), FLOOR, "somebody must try it");
        follow(&mut share, 14..612, 500);
        assert!((530..=560).contains(&share.permille()), "{}", share.permille());
        follow(&mut share, 612..1200, 500);
        assert_eq!(share.permille(), WHOLE);
    }

    #[test]
    fn time_that_it_was_away_is_none_of_its_rise() {
        let mut share = Share::whole(at(0));
        share.lost(at(10));
        assert_eq!(share.lost_once(), Some(at(10)));
        share.lost(at(20));
        assert_eq!(share.lost_once(), None);
        share.heard(at(5000), 100, &POLICY);
        assert_eq!(share.permille(), FLOOR);
        share.heard(at(5012), 100, &POLICY);
        assert_eq!(share.permille(), FLOOR + 10);
    }

    #[test]
    fn time_in_which_nobody_listened_is_none_of_its_rise() {
        let mut share = Share::whole(at(0));
        share.lost(at(10));
        follow(&mut share, 12..14, 500);
        share.was_away(at(1000), Nanos::seconds(988));
        share.heard(at(1012), 100, &POLICY);
        assert_eq!(share.permille(), FLOOR + 10);
    }

    #[test]
    fn one_that_was_not_lost_after_all_has_the_share_that_it_had() {
        let mut share = Share::whole(at(0));
        follow(&mut share, 2..600, 1500);
        let before = share.permille();
        share.lost(at(600));
        share.lost(at(601));
        share.found();
        assert_eq!(share.permille(), before);
        share.found();
        assert_eq!(share.permille(), before, "it is not lost");
    }

    #[test]
    fn silences_that_a_load_makes_do_not_put_off_the_cut() {
        let mut share = Share::whole(at(0));
        for second in (0..120).step_by(6) {
            share.heard(at(second), 970, &POLICY);
            share.heard(at(second + 2), 970, &POLICY);
            share.lost(at(second + 4));
            share.found();
        }
        assert!(share.permille() < 930, "{}", share.permille());
    }

    #[test]
    fn a_moment_of_silence_makes_no_second_cut() {
        let mut share = Share::whole(at(0));
        share.load = WHOLE;
        share.heard(at(2), 1000, &POLICY);
        let cut = share.permille();
        assert_eq!(cut, WHOLE / 2);
        share.lost(at(4));
        share.found();
        share.heard(at(6), 1000, &POLICY);
        assert_eq!(share.permille(), cut, "players have not asked again yet");
    }

    #[test]
    fn reports_that_stop_for_long_or_are_senseless_do_no_harm() {
        let mut share = Share::whole(at(0));
        share.lost(at(0));
        share.heard(at(1_000_000), u64::MAX, &POLICY);
        assert!(share.permille() <= WHOLE);
        share.heard(at(3), 0, &Policy { full_after: Nanos(0), settle: Nanos(0), ..POLICY });
        assert!(share.permille() <= WHOLE);
    }
}
