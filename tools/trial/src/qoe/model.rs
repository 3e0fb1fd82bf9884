//! The clock of a player: what it has buffered, and when its picture stood still.

use std::time::{Duration, Instant};

/// What a player felt, by its own clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Felt {
    /// From the wish to play to the first frame.
    pub(crate) start: Duration,
    pub(crate) stalls: u32,
    pub(crate) stalled: Duration,
    /// Of that, before the player gave an appliance up for another: no appliance can know it.
    pub(crate) unseen: Duration,
    /// Stalls of which a part is unseen.
    pub(crate) given_up: u32,
}

/// What a player does, with the letter of CMCD version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Starting,
    Playing,
    Rebuffering,
    Seeking,
    Paused,
}

impl State {
    pub(crate) fn letter(self) -> char {
        match self {
            Self::Starting => 's',
            Self::Playing => 'p',
            Self::Rebuffering => 'r',
            Self::Seeking => 'k',
            Self::Paused => 'a',
        }
    }
}

/// A player's buffer and picture.
#[derive(Debug)]
pub(crate) struct Picture {
    wished: Instant,
    state: State,
    /// Since when it is in that state, and where the picture was then.
    since: Instant,
    position: Duration,
    /// Media that is there, from the film's beginning.
    loaded: Duration,
    felt: Felt,
    /// Changes of state, for events.
    changes: Vec<(Instant, State)>,
}

impl Picture {
    /// Somebody wants to play now.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            wished: now,
            state: State::Starting,
            since: now,
            position: Duration::ZERO,
            loaded: Duration::ZERO,
            felt: Felt::default(),
            changes: vec![(now, State::Starting)],
        }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// What is buffered now; the picture moves on until then.
    pub(crate) fn ahead(&mut self, now: Instant) -> Duration {
        self.pass(now);
        let moved = match self.state {
            State::Playing => now.saturating_duration_since(self.since),
            State::Starting | State::Rebuffering | State::Seeking | State::Paused => Duration::ZERO,
        };
        self.loaded.saturating_sub(self.position + moved)
    }

    /// The buffer may have run dry since the last look.
    fn pass(&mut self, now: Instant) {
        if self.state != State::Playing {
            return;
        }
        let left = self.loaded.saturating_sub(self.position);
        let dry = self.since + left;
        if dry < now {
            self.felt.stalls += 1;
            self.position = self.loaded;
            self.becomes(dry, State::Rebuffering);
        }
    }

    fn becomes(&mut self, at: Instant, state: State) {
        if self.state == State::Playing && state != State::Rebuffering {
            self.position += at.saturating_duration_since(self.since);
        }
        if self.state == State::Rebuffering {
            self.felt.stalled += at.saturating_duration_since(self.since);
        }
        (self.state, self.since) = (state, at);
        self.changes.push((at, state));
    }

    /// Media has come.
    pub(crate) fn append(&mut self, now: Instant, length: Duration) {
        self.pass(now);
        self.loaded += length;
    }

    /// The picture moves from now on, if it does not.
    pub(crate) fn play(&mut self, now: Instant) {
        self.pass(now);
        if self.state == State::Playing {
            return;
        }
        if self.state == State::Starting {
            self.felt.start = now.saturating_duration_since(self.wished);
        }
        self.becomes(now, State::Playing);
    }

    /// Another appliance is asked for what did not come.
    pub(crate) fn give_up(&mut self, now: Instant) {
        self.pass(now);
        if self.state == State::Rebuffering {
            self.felt.given_up += 1;
            self.felt.unseen += now.saturating_duration_since(self.since);
        }
    }

    pub(crate) fn pause(&mut self, now: Instant) {
        self.pass(now);
        self.becomes(now, State::Paused);
    }

    /// The viewer wants what is not there: all that is buffered is dropped.
    pub(crate) fn jump(&mut self, now: Instant) {
        self.pass(now);
        self.becomes(now, State::Seeking);
        self.position = self.loaded;
    }

    /// What was felt so far.
    pub(crate) fn felt(&self) -> Felt {
        self.felt.clone()
    }

    /// Changes of state since this was last asked.
    pub(crate) fn take_changes(&mut self) -> Vec<(Instant, State)> {
        std::mem::take(&mut self.changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_stands_still_exactly_as_long_as_nothing_is_there() {
        let begun = Instant::now();
        let at = |millis: u64| begun + Duration::from_millis(millis);
        let mut picture = Picture::new(begun);
        picture.append(at(700), Duration::from_secs(2));
        picture.play(at(730));
        assert_eq!(picture.ahead(at(1_730)), Duration::from_secs(1));
        assert_eq!(picture.ahead(at(4_000)), Duration::ZERO);
        picture.give_up(at(3_730));
        picture.append(at(5_000), Duration::from_secs(2));
        picture.play(at(5_030));
        picture.pause(at(6_030));
        assert_eq!(picture.ahead(at(9_030)), Duration::from_secs(1));
        picture.play(at(9_030));
        picture.jump(at(9_130));
        assert_eq!(picture.ahead(at(9_500)), Duration::ZERO);
        let felt = picture.felt();
        assert_eq!(
            (felt.start.as_millis(), felt.stalls, felt.stalled.as_millis()),
            (730, 1, 2_300)
        );
        assert_eq!((felt.given_up, felt.unseen.as_millis()), (1, 1_000));
        let states: String = picture.take_changes().iter().map(|(_, of)| of.letter()).collect();
        assert_eq!(states, "sprpapk");
    }
}
