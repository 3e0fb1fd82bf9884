//! Playbacks that one appliance serves, by their keys.

use std::sync::Arc;

use model::cmcd::Response;
use model::units::{Instant, Nanos};

use crate::followed::Followed;
use crate::playback::Told;
use crate::silent::Silent;
use crate::spent::Spent;
use crate::sums::{Dimension, Names, Rows, Source, Sums};
use crate::watch::LastStalled;

/// Bounds.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Most playbacks: about 600 bytes each. With so many, a newcomer is not followed, and counted.
    pub playbacks_max: usize,
    /// A playback that is not heard of for so long is over.
    pub silent_max: Nanos,
    /// Most rows of a dimension.
    pub rows_max: usize,
}

/// Whose playback it is, as far as that is known. All but the key is read when it begins.
#[derive(Clone, Copy, Debug)]
pub struct Viewer<'a> {
    /// Made from names of the playback by a secret: it cannot be led back to them.
    pub key: u128,
    pub asset: &'a str,
    pub network: &'a str,
    pub player: &'a str,
}

/// Who is followed, and what was added since it was last taken.
#[derive(Debug)]
pub struct Viewers {
    config: Config,
    site: Arc<str>,
    followed: Followed<Playback>,
    rows: Rows,
    unfollowed: u64,
}

#[derive(Debug)]
struct Playback {
    names: Names,
    /// When it asked for the first time.
    first: Instant,
    player: Player,
    spent: Spent,
    stalled: LastStalled,
}

#[derive(Debug)]
enum Player {
    Silent(Silent),
    Told(Told),
}

impl Viewers {
    /// Nobody. What they feel stands in rows of this site.
    pub fn new(config: Config, site: &str) -> Self {
        assert!(0 < config.rows_max, "there is room for one");
        let followed = Followed::new(config.playbacks_max, config.silent_max);
        Self { config, site: site.into(), followed, rows: Rows::default(), unfollowed: 0 }
    }

    /// A response to a viewer is over; responses of a playback come in the order of their ends.
    /// O(log playbacks + log rows).
    pub fn take(&mut self, viewer: &Viewer<'_>, response: &Response) {
        let (config, site) = (self.config, &self.site);
        let Some(playback) = self.followed.hear(response.ended, viewer.key, || Playback {
            names: viewer.names(site.clone()),
            first: response.begun,
            player: Player::Silent(Silent::default()),
            spent: Spent::default(),
            stalled: LastStalled::default(),
        }) else {
            self.unfollowed += 1;
            return;
        };
        let mut sums = Sums::default();
        let source = playback.take(response, &mut sums);
        playback.spent.cut(response.ended.since(playback.first), source, &mut sums);
        playback.stalled.count(response.ended, &mut sums);
        assert!(sums.stalls_unmeasured <= sums.stalls, "what is unmeasured is counted");
        if !sums.is_empty() {
            self.rows.add_to(&playback.names, source, &sums, |_| config.rows_max);
        }
    }

    /// True of a playback that is followed, and of which `take` reads no names at this time.
    pub fn knows(&mut self, ended: Instant, key: u128) -> bool {
        self.followed.knows(ended, key)
    }

    /// Forgets who was not heard of for long.
    pub fn forget(&mut self, now: Instant) {
        self.followed.forget(now);
    }

    /// What was added since this was last asked.
    pub fn take_rows(&mut self) -> Rows {
        std::mem::take(&mut self.rows)
    }

    /// Playbacks that are followed.
    pub fn followed(&self) -> usize {
        self.followed.len()
    }

    /// Responses to those that were too many to be followed.
    pub fn unfollowed(&self) -> u64 {
        self.unfollowed
    }
}

impl Viewer<'_> {
    /// The rows of a playback. The site first: who serves it may change.
    pub(crate) fn names(&self, site: Arc<str>) -> Names {
        [
            (Dimension::Site, site),
            (Dimension::Asset, self.asset.into()),
            (Dimension::Network, self.network.into()),
            (Dimension::Player, self.player.into()),
        ]
    }
}

impl Playback {
    fn take(&mut self, response: &Response, sums: &mut Sums) -> Source {
        if let Player::Silent(silent) = &mut self.player {
            if !response.hints.told {
                silent.take(response, sums);
                count_sent(response, sums);
                // Of one that may speak yet nothing is guessed.
                if !silent.is_known() {
                    *sums = Sums::default();
                }
                return Source::Estimate;
            }
            self.player = Player::Told(Told::new(self.first));
        }
        let Player::Told(told) = &mut self.player else { unreachable!("it has just spoken") };
        told.take(response, sums);
        count_sent(response, sums);
        Source::Requests
    }
}

fn count_sent(response: &Response, sums: &mut Sums) {
    sums.sent_bytes += response.sent.0;
    sums.sent_time += response.ended.since(response.begun).0;
    sums.cut += u64::from(!response.whole);
}
