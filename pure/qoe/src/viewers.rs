//! Playbacks that one appliance serves, by their keys.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use model::units::{Instant, Nanos};

use crate::playback::{Request, Told};
use crate::silent::Silent;
use crate::sums::{Dimension, Key, Rows, Source, Sums};

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
    /// Invariant: at most config.playbacks_max.
    playbacks: BTreeMap<u128, Playback>,
    /// Each playback once, by when it was last looked at.
    quiet: VecDeque<(Instant, u128)>,
    rows: Rows,
    unfollowed: u64,
}

#[derive(Debug)]
struct Playback {
    heard: Instant,
    names: [(Dimension, Arc<str>); 4],
    player: Player,
}

#[derive(Debug)]
enum Player {
    Silent(Silent, Instant),
    Told(Told),
}

impl Viewers {
    /// Nobody. What they feel stands in rows of this site.
    pub fn new(config: Config, site: &str) -> Self {
        assert!(0 < config.playbacks_max && 0 < config.rows_max, "there is room for one");
        Self {
            config,
            site: site.into(),
            playbacks: BTreeMap::new(),
            quiet: VecDeque::new(),
            rows: Rows::default(),
            unfollowed: 0,
        }
    }

    /// A response to a viewer is over; responses of a playback come in the order of their ends.
    /// O(log playbacks + log rows).
    pub fn take(&mut self, viewer: &Viewer<'_>, request: &Request) {
        let now = request.ended;
        self.forget(now);
        let full = self.config.playbacks_max <= self.playbacks.len();
        if full && !self.playbacks.contains_key(&viewer.key) {
            self.unfollowed += 1;
            return;
        }
        let site = &self.site;
        let quiet = &mut self.quiet;
        let playback = self.playbacks.entry(viewer.key).or_insert_with(|| {
            quiet.push_back((now, viewer.key));
            Playback {
                heard: now,
                names: names(site, viewer),
                player: Player::Silent(Silent::default(), request.begun),
            }
        });
        playback.heard = playback.heard.max(now);
        let mut sums = Sums::default();
        let source = playback.take(request, &mut sums);
        assert!(sums.stalls_unmeasured <= sums.stalls, "what is unmeasured is counted");
        if !sums.is_empty() {
            for (dimension, name) in &playback.names {
                let key = Key { dimension: *dimension, name: name.clone(), source };
                self.rows.add(&key, &sums, self.config.rows_max);
            }
        }
        assert!(self.playbacks.len() <= self.config.playbacks_max, "a newcomer found room");
    }

    /// True of a playback that is followed, and of which `take` reads no names at this time.
    pub fn knows(&mut self, ended: Instant, key: u128) -> bool {
        self.forget(ended);
        self.playbacks.contains_key(&key)
    }

    /// Forgets who was not heard of for long. O(1) for each request.
    pub fn forget(&mut self, now: Instant) {
        while let Some(&(looked, key)) = self.quiet.front() {
            if now.since(looked) < self.config.silent_max {
                break;
            }
            self.quiet.pop_front();
            let heard = self.playbacks.get(&key).map_or(Instant(0), |playback| playback.heard);
            if now.since(heard) < self.config.silent_max {
                self.quiet.push_back((heard.max(looked), key));
            } else {
                self.playbacks.remove(&key);
            }
        }
        assert_eq!(self.quiet.len(), self.playbacks.len(), "each playback waits once");
    }

    /// What was added since this was last asked.
    pub fn take_rows(&mut self) -> Rows {
        std::mem::take(&mut self.rows)
    }

    /// Playbacks that are followed.
    pub fn len(&self) -> usize {
        self.playbacks.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.playbacks.is_empty()
    }

    /// Responses to those that were too many to be followed.
    pub fn unfollowed(&self) -> u64 {
        self.unfollowed
    }
}

fn names(site: &Arc<str>, viewer: &Viewer<'_>) -> [(Dimension, Arc<str>); 4] {
    [
        (Dimension::Site, site.clone()),
        (Dimension::Asset, viewer.asset.into()),
        (Dimension::Network, viewer.network.into()),
        (Dimension::Player, viewer.player.into()),
    ]
}

impl Playback {
    fn take(&mut self, request: &Request, sums: &mut Sums) -> Source {
        if let Player::Silent(silent, first) = &mut self.player {
            if !request.hints.told {
                silent.take(request, sums);
                count_sent(request, sums);
                // Of one that may speak yet nothing is guessed.
                if !silent.is_known() {
                    *sums = Sums::default();
                }
                return Source::Estimate;
            }
            self.player = Player::Told(Told::new(*first));
        }
        let Player::Told(told) = &mut self.player else { unreachable!("it has just spoken") };
        told.take(request, sums);
        count_sent(request, sums);
        Source::Requests
    }
}

fn count_sent(request: &Request, sums: &mut Sums) {
    sums.sent_bytes += request.sent.0;
    sums.sent_time += request.ended.since(request.begun).0;
    sums.cut += u64::from(!request.whole);
}
