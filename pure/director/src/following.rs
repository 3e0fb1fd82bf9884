//! How a front follows its writer by differences: what the writer keeps, how a front asks, and how
//! it takes what it is given.
//!
//! ```text
//! writer: Step ──> Log, bounded ──> since(known): at most RUN_MAX ──┐
//! front:  Follower::asks ──> newer than known, or the whole         v
//!         Follower::run ──> Run::apply, one after the other ──> Run::end ──> Follower::believe
//!                                 its check is not right ──> Follower::refuse ──> the whole
//! ```

use std::collections::VecDeque;

use model::id::Generation;
use model::units::{Instant, Nanos, UnixSeconds};

use crate::desired::Desired;
use crate::difference::{Check, Difference};

/// Desired state as a front knows it.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Which of the writer's states it is.
    pub generation: Generation,
    pub issued: UnixSeconds,
    /// Newest generation of manifests.
    pub manifests: Generation,
    pub desired: Desired,
}

/// A difference does not lead from what is known, or not to what the writer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// A front is given so many differences at a time, and then asks again.
pub const RUN_MAX: usize = 64;

/// Differences, each as it is sent, oldest first: each leads from the one before it. A front that
/// they do not reach gets a whole snapshot.
#[derive(Debug)]
pub struct Log<T> {
    all: VecDeque<(Generation, T, usize)>,
    len: usize,
    len_max: usize,
}

impl<T> Log<T> {
    /// Nothing yet, and never more than that.
    pub fn new(len_max: usize) -> Self {
        Self { all: VecDeque::new(), len: 0, len_max }
    }

    /// The newest, which leads from this generation, and its length. The oldest go for it; one that
    /// is longer than all may be is as good as a snapshot.
    pub fn push(&mut self, from: Generation, difference: T, len: usize) {
        self.len += len;
        self.all.push_back((from, difference, len));
        while self.len_max < self.len
            && let Some((_, _, oldest)) = self.all.pop_front()
        {
            self.len -= oldest;
        }
    }

    /// The first [`RUN_MAX`] that lead on from a generation; none if that is too long ago.
    pub fn since(&self, known: Generation) -> Option<impl Iterator<Item = &T>> {
        // Generations grow, and there is one of each.
        let first = self.all.binary_search_by_key(&known, |(from, _, _)| *from).ok()?;
        Some(self.all.range(first..).take(RUN_MAX).map(|(_, difference, _)| difference))
    }

    /// True if a whole snapshot of that generation, of that age, which is not the newest, is good
    /// for a front that has `known`: it is newer than what the front may have wrong, and
    /// differences lead on from it. One run of them, so that the front soon has the newest; while
    /// it is young, any number: more may come in the time in which one is made and fetched, and
    /// nobody would get one then.
    pub fn leads_on(&self, whole: Generation, age: Nanos, known: Generation) -> bool {
        let first = self.all.binary_search_by_key(&whole, |(from, _, _)| *from);
        let is_soon = |first| age < WHOLE_YOUNG || self.all.len() - first <= RUN_MAX;
        known < whole && first.is_ok_and(is_soon)
    }
}

/// The generation after this one, for what is signed `now`: also above all that were given out
/// after a backup was made from which the writer was restored.
pub fn next_generation(last: Generation, now: UnixSeconds) -> Generation {
    last.next().max(Generation(now.0))
}

/// No appliance can have a generation that is so far above: 68 years of seconds.
pub(crate) const OVERTAKEN_MAX: u64 = 1 << 31;

/// Differences that are applied one after the other, and looked at as a whole: none of it is in
/// force before the end.
#[derive(Clone, Debug)]
pub struct Run {
    picture: Picture,
    check: Option<Check>,
    count: usize,
}

impl Run {
    /// On from there.
    pub fn new(picture: Picture) -> Self {
        Self { picture, check: None, count: 0 }
    }

    /// What the differences so far lead to. Nobody has looked at its check.
    pub fn picture(&self) -> &Picture {
        &self.picture
    }

    /// True if there is no room for another.
    pub fn is_full(&self) -> bool {
        RUN_MAX <= self.count
    }

    /// The next. One that does not lead on changes nothing. O(what differs).
    pub fn apply(&mut self, difference: &Difference) -> Result<(), Lost> {
        let Self { picture, check, count } = self;
        let Difference { from, generation, issued, manifests, .. } = *difference;
        if RUN_MAX <= *count || from != picture.generation || generation <= from {
            return Err(Lost);
        }
        difference.apply(&mut picture.desired);
        (picture.generation, picture.issued, picture.manifests) = (generation, issued, manifests);
        (*check, *count) = (Some(difference.check), *count + 1);
        Ok(())
    }

    /// What they lead to, if it is what the writer has. Once for all of them: O(sites + appliances
    /// + versions).
    pub fn end(self) -> Result<Picture, Lost> {
        let desired = &self.picture.desired;
        let stands = |site| desired.sites.contains_key(site);
        let all_stand = desired.appliances.unordered().all(|(_, of)| stands(&of.appliance.site));
        let is_right = all_stand && self.check == Some(Check::of(desired));
        if is_right { Ok(self.picture) } else { Err(Lost) }
    }
}

/// What a front knows, and what it wants next.
#[derive(Clone, Debug, Default)]
pub struct Follower {
    picture: Option<Picture>,
    wants: Wants,
    /// Whole ones that were refused, one after the other.
    refused: u32,
    /// No whole one is asked for before.
    not_before: Instant,
    /// Differences do not reach back to what is known: what is newer would come whole.
    is_behind: bool,
}

/// Beside what is newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wants {
    #[default]
    Newer,
    /// The whole, since it is shorter than all differences. What is known is right.
    Shorter,
    /// The whole, since a difference was lost.
    Whole,
}

/// What to ask the writer for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// What is newer than this, by differences if there are any.
    Newer(Generation),
    /// All that there is, whatever is known: this.
    Whole(Generation),
    /// Nothing yet.
    Nothing,
}

impl Follower {
    /// The state in force; none before the first.
    pub fn picture(&self) -> Option<&Picture> {
        self.picture.as_ref()
    }

    /// The generation in force; 0 before the first.
    pub fn known(&self) -> Generation {
        self.picture.as_ref().map_or(Generation(0), |picture| picture.generation)
    }

    /// What to ask for now.
    pub fn asks(&self, now: Instant) -> Asks {
        let (known, may) = (self.known(), self.not_before <= now);
        match (&self.picture, self.wants) {
            (None, _) | (_, Wants::Whole | Wants::Shorter) if may => Asks::Whole(known),
            (None, _) | (_, Wants::Whole) => Asks::Nothing,
            (_, Wants::Newer | Wants::Shorter) if self.is_behind && !may => Asks::Nothing,
            (_, Wants::Newer | Wants::Shorter) => Asks::Newer(known),
        }
    }

    /// A whole one has to be newer than that. One that was asked for to mend something may be the
    /// one that should be there.
    pub fn newest_old(&self) -> Generation {
        let asked_for = self.picture.is_some() && self.wants != Wants::Newer;
        Generation(self.known().0.saturating_sub(u64::from(asked_for)))
    }

    /// For the differences that have come; none before the first whole one.
    pub fn run(&self) -> Option<Run> {
        self.picture.clone().map(Run::new)
    }

    /// A run, or a whole one, is in force from now on.
    pub fn believe(&mut self, picture: Picture) {
        (self.picture, self.is_behind) = (Some(picture), false);
    }

    /// What is in force came whole.
    pub fn came_whole(&mut self) {
        (self.wants, self.refused, self.not_before) = (Wants::Newer, 0, Instant::default());
    }

    /// A whole one would be shorter than all the differences that are kept.
    pub fn wants_shorter(&mut self) {
        if self.wants == Wants::Newer {
            self.wants = Wants::Shorter;
        }
    }

    /// What has come as the answer could not be used. Whatever is wrong with differences, a whole
    /// one mends it; after a whole one, or one that the writer has begun, it waits: twice as long
    /// after each, up to [`REFUSED_WAIT_MAX`].
    pub fn refuse(&mut self, now: Instant, asked: Asks, was_whole: bool) {
        if was_whole {
            self.is_behind = matches!(asked, Asks::Newer(_));
            let wait = Nanos(REFUSED_WAIT.0 << self.refused.min(16)).min(REFUSED_WAIT_MAX);
            self.refused = self.refused.saturating_add(1);
            self.not_before = now + wait;
        } else {
            self.wants = Wants::Whole;
        }
    }
}

/// After a first whole snapshot that was refused.
pub const REFUSED_WAIT: Nanos = Nanos::seconds(1);

/// A whole snapshot may be a gigabyte.
pub const REFUSED_WAIT_MAX: Nanos = Nanos::seconds(60);

/// Since a whole snapshot was made. A front that waited for one asks again in time, once more if it
/// was cut off, and takes up to a minute for it.
pub const WHOLE_YOUNG: Nanos = Nanos::seconds(300);
const _: () = assert!(3 * REFUSED_WAIT_MAX.0 < WHOLE_YOUNG.0);

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::Arc;

    use model::topology::Site;

    use crate::difference::{Step, between, put_withdrawn};

    const NOW: Instant = Instant(0);

    #[test]
    fn a_log_keeps_the_last_differences_and_no_gap() {
        let mut log = Log::new(8 << 20);
        (0..20).for_each(|from| log.push(Generation(from), from, 1 << 20));
        let run = |log: &Log<u64>, from| log.since(Generation(from)).map(Iterator::count);
        let found = [11, 12, 19, 20].map(|from| run(&log, from));
        assert_eq!(found, [None, Some(8), Some(1), None]);
        log.push(Generation(20), 20, (8 << 20) + 1);
        assert!(log.all.is_empty() && log.len == 0);
        (0..100).for_each(|from| log.push(Generation(from), from, 1));
        let run: Vec<u64> = log.since(Generation(3)).unwrap().copied().collect();
        assert!(run.iter().copied().eq(3..67), "{run:?}");
    }

    #[test]
    fn a_whole_one_is_good_while_it_is_young_or_a_run_leads_on_from_it() {
        let mut log = Log::new(8 << 20);
        (10..110).for_each(|from| log.push(Generation(from), (), 1));
        let young = Nanos(WHOLE_YOUNG.0 - 1);
        let is_good = |log: &Log<()>, whole, age, known| {
            log.leads_on(Generation(whole), age, Generation(known))
        };
        assert!(is_good(&log, 46, WHOLE_YOUNG, 0), "64 lead on from it");
        assert!(!is_good(&log, 45, WHOLE_YOUNG, 0), "one more than a run has");
        for (whole, known, good) in [
            (10, 0, true),
            (10, 9, true),
            (10, 10, false), // What the front has may be wrong.
            (9, 0, false),   // The log does not reach it.
            (110, 0, false), // It is the newest.
        ] {
            assert_eq!(is_good(&log, whole, young, known), good, "{whole} for {known}");
        }
        log.push(Generation(110), (), 8 << 20);
        assert!(!is_good(&log, 10, young, 0), "the log does not reach it any more");
    }

    #[test]
    fn a_run_is_looked_at_once_when_it_has_ended() {
        let [(first, _), (second, last)] = two();
        let mut run = Run::new(picture(1, Desired::default()));
        // Nobody looks at a check but the last.
        run.apply(&Difference { check: Check::default(), ..first }).unwrap();
        run.apply(&second).unwrap();
        let picture = run.end().expect("it leads to what the writer has");
        assert_eq!(picture.generation, Generation(3));
        assert!(between(&picture.desired, &last).is_none());
    }

    #[test]
    fn a_difference_that_does_not_lead_on_changes_nothing_of_a_run() {
        let [(first, desired), (second, _)] = two();
        let mut run = Run::new(picture(1, Desired::default()));
        assert_eq!(run.apply(&second), Err(Lost), "one before it was left out");
        run.apply(&first).unwrap();
        assert_eq!(run.apply(&first), Err(Lost), "it has come before");
        let back = Difference { generation: Generation(2), ..second };
        assert_eq!(run.apply(&back), Err(Lost), "it leads nowhere");
        let picture = run.end().unwrap();
        assert!(between(&picture.desired, &desired).is_none());
    }

    #[test]
    fn a_run_that_lost_something_is_refused_as_a_whole() {
        let [(first, _), (mut second, _)] = two();
        second.changed.sites.clear();
        let mut follower = Follower::default();
        follower.believe(picture(1, Desired::default()));
        follower.came_whole();
        let mut run = follower.run().unwrap();
        run.apply(&first).unwrap();
        run.apply(&second).unwrap();
        assert_eq!(run.end().map(|picture| picture.generation), Err(Lost));
        follower.refuse(NOW, Asks::Newer(Generation(1)), false);
        assert_eq!(follower.known(), Generation(1), "what was in force is");
        assert_eq!(follower.asks(NOW), Asks::Whole(Generation(1)));
        assert_eq!(follower.newest_old(), Generation(0), "the same again may mend it");
    }

    #[test]
    fn a_difference_that_lost_a_withdrawn_version_is_refused() {
        let before = Desired::default();
        let mut now = before.clone();
        let withdrawn = ("film-1".parse().unwrap(), "film".parse().unwrap());
        put_withdrawn(&mut now, [withdrawn].into());
        let step = between(&before, &now).unwrap();
        let (from, generation) = (Generation(1), Generation(2));
        let (issued, manifests) = (UnixSeconds(0), Generation(0));
        let check = step.check(Check::of(&before));
        let Step { changed, gone, .. } = step;
        let whole = Difference { from, generation, issued, manifests, changed, gone, check };
        let mut lost = whole.clone();
        lost.changed.withdrawn.clear();
        let found = [whole, lost].map(|difference| {
            let mut run = Run::new(picture(1, before.clone()));
            run.apply(&difference).unwrap();
            run.end().is_ok()
        });
        assert_eq!(found, [true, false]);
    }

    #[test]
    fn a_run_has_a_bound() {
        let mut run = Run::new(picture(0, Desired::default()));
        let [(first, _), _] = two();
        for from in 0..64 {
            let (from, generation) = (Generation(from), Generation(from + 1));
            assert!(!run.is_full());
            run.apply(&Difference { from, generation, ..first.clone() }).unwrap();
        }
        let (from, generation) = (Generation(64), Generation(65));
        assert!(run.is_full());
        assert_eq!(run.apply(&Difference { from, generation, ..first }), Err(Lost));
    }

    #[test]
    fn a_front_waits_longer_after_each_whole_one_that_it_refused() {
        let mut follower = Follower::default();
        let mut now = NOW;
        let mut waits = Vec::new();
        for _ in 0..9 {
            assert_eq!(follower.asks(now), Asks::Whole(Generation(0)));
            follower.refuse(now, Asks::Whole(Generation(0)), true);
            let began = now;
            while follower.asks(now) == Asks::Nothing {
                now = now + Nanos::millis(500);
            }
            waits.push(now.since(began).0 / 1_000_000_000);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        follower.believe(picture(7, Desired::default()));
        follower.came_whole();
        assert_eq!(follower.asks(now), Asks::Newer(Generation(7)));
        follower.refuse(now, Asks::Newer(Generation(7)), false);
        assert_eq!(follower.asks(now), Asks::Whole(Generation(7)), "it begins anew");
    }

    #[test]
    fn one_that_wants_the_whole_for_its_length_follows_meanwhile() {
        let mut follower = Follower::default();
        follower.believe(picture(7, Desired::default()));
        follower.came_whole();
        follower.wants_shorter();
        assert_eq!(follower.asks(NOW), Asks::Whole(Generation(7)));
        follower.refuse(NOW, Asks::Whole(Generation(7)), true);
        assert_eq!(follower.asks(NOW), Asks::Newer(Generation(7)));
        follower.refuse(NOW, Asks::Newer(Generation(7)), false);
        assert_eq!(follower.asks(NOW), Asks::Nothing, "what is known may be wrong");
    }

    #[test]
    fn one_that_differences_do_not_reach_waits_after_a_whole_one_that_it_refused() {
        let newer = Asks::Newer(Generation(7));
        for wants_shorter in [false, true] {
            let mut follower = Follower::default();
            follower.believe(picture(7, Desired::default()));
            follower.came_whole();
            if wants_shorter {
                follower.wants_shorter();
                follower.refuse(NOW, Asks::Whole(Generation(7)), true);
            }
            assert_eq!(follower.asks(NOW), newer);
            follower.refuse(NOW, newer, true);
            assert_eq!(follower.asks(NOW), Asks::Nothing);
            let later = NOW + REFUSED_WAIT_MAX;
            let asks = if wants_shorter { Asks::Whole(Generation(7)) } else { newer };
            assert_eq!(follower.asks(later), asks);
            follower.believe(picture(8, Desired::default()));
            assert_eq!(follower.asks(NOW), Asks::Newer(Generation(8)), "differences reach it");
        }
    }

    /// Two differences, one after the other, and what each leads to.
    fn two() -> [(Difference, Desired); 2] {
        let mut desired = Desired::default();
        ["s1", "s2"].map(|id| {
            let before = desired.clone();
            let site = Site::new(id.parse().unwrap(), Vec::new());
            Arc::make_mut(&mut desired.sites).insert(site.id.clone(), site);
            let step = between(&before, &desired).unwrap();
            let check = step.check(Check::of(&before));
            let Step { changed, gone, .. } = step;
            let from = Generation(u64::try_from(desired.sites.len()).unwrap());
            let (generation, manifests) = (from.next(), Generation(0));
            let issued = UnixSeconds(0);
            let all = Difference { from, generation, issued, manifests, changed, gone, check };
            (all, desired.clone())
        })
    }

    fn picture(generation: u64, desired: Desired) -> Picture {
        let (issued, manifests) = (UnixSeconds(0), Generation(0));
        Picture { generation: Generation(generation), issued, manifests, desired }
    }
}
