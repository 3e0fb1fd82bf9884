//! What is known for `mover`: classes of drives, heat of objects, what is left of the day's bytes.
//!
//! ```text
//! samples of workers ── note ──> heat ──┐ tiering.heat, now and then and at the end
//! control's forecast ── expect ───^     │
//! configuration, devices ──> classes ───┼──> plan ──> mover ── spend ──> budget ── tiering.budget
//! ```

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use fill::budget::Budget;
use fill::heat::{self, Heat};
use fill::tier::{self, Class, Move};
use holdings::Holdings;
use model::expected::ExpectedObject;
use model::extent::DriveIndex;
use model::id::ObjectId;
use model::object::BLOCK_LEN;
use model::units::{Bytes, Instant, Nanos};
use serde::{Deserialize, Serialize};
use store::parcel::PartId;
use upkeep::mover::movable;
use upkeep::{Ledger as _, at_once};

use crate::clock;
use crate::counters::{TierCounters, now};
use crate::lock::lock;
use crate::storage::drives::{self, DriveError, OpenError};
use crate::storage::mounts::Medium;
use crate::storage::shared::Shared;

/// A drive's class as the configuration says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClassName {
    /// Serves what many ask for.
    Fast,
    /// Holds what nobody asks for often.
    Bulk,
}

/// What the configuration says, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiering {
    /// One for each drive; empty for what the drives are.
    pub classes: Vec<ClassName>,
    /// Most bytes a day, of all moves together; zero for none.
    pub daily_max: Bytes,
    /// Between two looks at what should move.
    pub every: Nanos,
}

/// How objects are moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub classes: Vec<Class>,
    /// Most bytes a day, of all moves together.
    pub daily_max: Bytes,
    /// What viewers were sent for each sample.
    pub sample: Bytes,
    /// Between two looks at what should move.
    pub every: Nanos,
    /// How long the old file stays when workers were told of the new one: see [`LINGER`].
    pub linger: Nanos,
}

/// A worker reads its letters within milliseconds. Until it has, it opens the old file.
pub const LINGER: Nanos = Nanos::seconds(1);
/// A look at all objects for so many moves.
const MOVES_MAX: usize = 64;
/// Two change places if it is worth it: less is lost by what is not than by what is in vain.
const GAIN_MIN: u64 = 2;
/// One sample is chance.
const SAMPLES_MIN: u64 = 2;
/// 3 MB in memory and 5 MB kept. Of films cut into segments, those of a hundred titles.
const HEAT: heat::Config =
    heat::Config { objects_max: 65_536, half_life: Nanos::seconds(24 * 3600) };
/// As fast as flash on SATA, or faster: what a read of 256 KiB should take there.
const FAST_TARGET: Nanos = Nanos::millis(5);

const HEAT_FILE: &str = "tiering.heat";
const BUDGET_FILE: &str = "tiering.budget";

impl Tiering {
    /// For drives on these media, and a worker's sample for so many blocks; none where there is
    /// nothing to do.
    pub(crate) fn config(&self, media: &[Medium], verify_every: u32) -> Option<Config> {
        let classes = match &self.classes[..] {
            [] => classes_of(media),
            given => given.iter().map(|class| (*class).into()).collect(),
        };
        let has = |class| classes.contains(&class);
        let is_wanted = self.daily_max != Bytes::ZERO && verify_every != 0;
        (is_wanted && has(Class::Fast) && has(Class::Bulk)).then(|| Config {
            classes,
            daily_max: self.daily_max,
            sample: Bytes(BLOCK_LEN.0 * u64::from(verify_every)),
            every: self.every,
            linger: LINGER,
        })
    }
}

impl From<ClassName> for Class {
    fn from(name: ClassName) -> Self {
        match name {
            ClassName::Fast => Self::Fast,
            ClassName::Bulk => Self::Bulk,
        }
    }
}

/// The best flash that there is is fast, all else is bulk: what reads faster than the rest.
fn classes_of(media: &[Medium]) -> Vec<Class> {
    let best = media.iter().map(|medium| medium.target).min().unwrap_or(FAST_TARGET);
    let is_fast = |medium: &Medium| medium.target == best && best <= FAST_TARGET;
    media.iter().map(|of| if is_fast(of) { Class::Fast } else { Class::Bulk }).collect()
}

/// How far the moves are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TieringStatus {
    pub classes: Vec<Class>,
    pub counters: TierCounters,
    pub heat_objects: u64,
    /// Bytes that may still be written today.
    pub left: Bytes,
}

/// What the mover and those who feed it share.
#[derive(Debug)]
pub(crate) struct Tier {
    pub(crate) config: Config,
    root: OwnedFd,
    heat: Mutex<Heat>,
    /// What viewers are expected to be sent of objects in a day, by what control said last.
    expected: Mutex<BTreeMap<ObjectId, Bytes>>,
    budget: Mutex<Budget>,
    pub(crate) counters: TierCounters<AtomicU64>,
}

impl Tier {
    /// Takes up what was kept. A heat that cannot be read is made anew, a budget that cannot be is
    /// taken to be used up until tomorrow.
    pub(crate) fn open(config: Config, state: &Path, now: Instant) -> Result<Self, OpenError> {
        let root = drives::open_root(state)?;
        let text = |name| match drives::read_small(&root, name) {
            Ok(bytes) => Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) => Err(error.to_string()),
        };
        let heat = text(HEAT_FILE).map(|text| match text {
            Some(text) => Heat::decode(HEAT, now, &text),
            None => Some(Heat::new(HEAT, now)),
        });
        let heat = heat.ok().flatten().unwrap_or_else(|| {
            tracing::warn!(file = HEAT_FILE, "left out: what is watched is learnt anew");
            Heat::new(HEAT, now)
        });
        let budget = text(BUDGET_FILE).map(|text| match text {
            Some(text) => {
                text.parse().map_err(|error: fill::budget::BudgetError| error.to_string())
            }
            None => Ok(Budget::new(clock::wall())),
        });
        let budget = budget.and_then(|budget| budget).unwrap_or_else(|error| {
            tracing::warn!(file = BUDGET_FILE, error, "nothing is moved until tomorrow");
            Budget::used_up(clock::wall())
        });
        let (heat, budget) = (Mutex::new(heat), Mutex::new(budget));
        let (expected, counters) = (Mutex::default(), TierCounters::default());
        Ok(Self { config, root, heat, expected, budget, counters })
    }

    /// The room of fast drives that are in use.
    pub(crate) fn fast_room(&self, shared: &Shared) -> Bytes {
        let spaces = shared.spaces().into_iter();
        let fast = spaces.filter(|of| !of.set_aside && self.class(of.drive) == Class::Fast);
        fast.fold(Bytes::ZERO, |sum, of| sum + of.capacity)
    }

    /// Viewers are expected to be sent so much of these objects, and of no others as much. It
    /// counts once: what was expected before is taken off, and what is there of heat.
    pub(crate) fn expect(&self, now: Instant, objects: &[ExpectedObject]) {
        let told = objects.iter().map(|of| (of.object, of.day)).collect();
        let before = std::mem::replace(&mut *lock(&self.expected), told);
        let mut heat = lock(&self.heat);
        for ExpectedObject { object, day, .. } in objects {
            let before = before.get(object).copied().unwrap_or_default();
            heat.expect(now, *object, (before, *day));
        }
    }

    /// A viewer was sent something of this object.
    pub(crate) fn note(&self, now: Instant, object: ObjectId) {
        lock(&self.heat).note(now, object, self.config.sample);
    }

    /// What should move now.
    pub(crate) fn plan(&self, shared: &Shared) -> Vec<Move<PartId>> {
        // Which day it is.
        lock(&self.budget).spend(clock::wall(), Bytes::ZERO);
        let budget = self.left();
        if budget == Bytes::ZERO {
            return Vec::new();
        }
        // Fill comes first.
        let for_fill = shared.ledger.ask(Holdings::bytes_to_place);
        let mut drives = Vec::new();
        for space in shared.spaces() {
            if shared.answering(space.drive).is_none() {
                continue;
            }
            let class = self.class(space.drive);
            let free = space.free.saturating_sub(for_fill);
            drives.push(tier::Drive { drive: space.drive, class, free });
        }
        let files = at_once(movable(shared));
        let mut heat = lock(&self.heat);
        heat.fade(shared.ledger.now());
        let held = files.held(|object| heat.of(object));
        drop(heat);
        let heat_min = Bytes(self.config.sample.0.saturating_mul(SAMPLES_MIN));
        let config = tier::Config { moves_max: MOVES_MAX, gain_min: GAIN_MIN, heat_min };
        tier::plan(&config, &drives, &held, budget)
    }

    pub(crate) fn class(&self, drive: DriveIndex) -> Class {
        self.config.classes.get(drive.as_usize()).copied().unwrap_or(Class::Bulk)
    }

    /// Bytes that may still be written today.
    pub(crate) fn left(&self) -> Bytes {
        lock(&self.budget).left(clock::wall(), self.config.daily_max)
    }

    /// So much is about to be written: kept before it is, so that no restart gives it again. False
    /// if there is not so much left. What cannot be kept is not spent.
    pub(crate) fn spend(&self, room: Bytes) -> Result<bool, DriveError> {
        // Nobody else spends; who looks does not wait for the state directory.
        let (mut after, now) = (*lock(&self.budget), clock::wall());
        if after.left(now, self.config.daily_max) < room {
            return Ok(false);
        }
        after.spend(now, room);
        drives::replace(&self.root, BUDGET_FILE, after.to_string().as_bytes())?;
        *lock(&self.budget) = after;
        Ok(true)
    }

    /// An object has come to this drive.
    pub(crate) fn moved(&self, to: DriveIndex, room: Bytes) {
        let TierCounters { up, down, .. } = &self.counters;
        let counter = if self.class(to) == Class::Fast { up } else { down };
        counter.fetch_add(room.0, Ordering::Relaxed);
    }

    /// Keeps what is known of heat.
    pub(crate) fn keep_heat(&self) -> Result<(), DriveError> {
        let text = lock(&self.heat).encode();
        drives::replace(&self.root, HEAT_FILE, text.as_bytes())
    }

    pub(crate) fn status(&self) -> TieringStatus {
        TieringStatus {
            classes: self.config.classes.clone(),
            counters: self.counters.map(now),
            heat_objects: Bytes::of(lock(&self.heat).count()).0,
            left: self.left(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(daily_max: Bytes) -> Config {
        let classes = vec![Class::Fast, Class::Bulk];
        let (sample, every) = (Bytes::mib(64), Nanos::seconds(600));
        Config { classes, daily_max, sample, every, linger: LINGER }
    }

    fn media(targets: &[u64]) -> Vec<Medium> {
        let medium = |ms: &u64| Medium { target: Nanos::millis(*ms), deletes_alone: false };
        targets.iter().map(medium).collect()
    }

    #[test]
    fn the_best_flash_is_fast_unless_it_is_said_otherwise() {
        use Class::{Bulk, Fast};
        let classes = |targets: &[u64]| classes_of(&media(targets));
        assert_eq!(classes(&[2, 5, 40]), [Fast, Bulk, Bulk], "NVMe, SATA, a spindle");
        assert_eq!(classes(&[40, 5]), [Bulk, Fast]);
        assert_eq!(classes(&[20, 40]), [Bulk, Bulk], "of what is not known nothing is believed");
        let silent = Tiering {
            classes: Vec::new(),
            daily_max: Bytes::mib(256 * 1024),
            every: Nanos::seconds(600),
        };
        assert_eq!(silent.config(&media(&[2, 2]), 256), None, "all alike");
        let found = silent.config(&media(&[2, 5]), 256).unwrap();
        assert_eq!((found.classes, found.sample), (vec![Fast, Bulk], Bytes::mib(64)));
        let said = Tiering { classes: vec![ClassName::Bulk, ClassName::Fast], ..silent.clone() };
        assert_eq!(said.config(&media(&[2, 2]), 1).unwrap().classes, [Bulk, Fast]);
        assert_eq!(said.config(&media(&[2, 2]), 0), None, "nobody would know what is watched");
        let none = Tiering { daily_max: Bytes::ZERO, ..said };
        assert_eq!(none.config(&media(&[2, 2]), 1), None);
    }

    #[test]
    fn a_restart_gives_nothing_again_and_forgets_no_heat() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Tier::open(config(Bytes(100)), dir.path(), Instant(0)).unwrap();
        let tier = open();
        assert_eq!(tier.left(), Bytes(100));
        assert!(tier.spend(Bytes(60)).unwrap() && !tier.spend(Bytes(41)).unwrap());
        std::fs::remove_file(dir.path().join(BUDGET_FILE)).unwrap();
        std::fs::create_dir(dir.path().join(BUDGET_FILE)).unwrap();
        assert!(tier.spend(Bytes(10)).is_err() && tier.left() == Bytes(40), "it is not kept");
        std::fs::remove_dir(dir.path().join(BUDGET_FILE)).unwrap();
        assert!(tier.spend(Bytes(10)).unwrap());
        tier.note(Instant(0), ObjectId([1; 32]));
        tier.keep_heat().unwrap();
        drop(tier);
        let tier = open();
        assert_eq!((tier.left(), tier.status().heat_objects), (Bytes(30), 1));
        std::fs::write(dir.path().join(BUDGET_FILE), "garbage").unwrap();
        std::fs::write(dir.path().join(HEAT_FILE), [0xff; 9]).unwrap();
        let tier = open();
        assert_eq!((tier.left(), tier.status().heat_objects), (Bytes::ZERO, 0));
    }
}
