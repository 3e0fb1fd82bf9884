//! What is around the processes: objects, machines, the network, the origin, and what is counted.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use aws_lc_rs::signature::Ed25519KeyPair;
use director::FillPolicy;
use director::wishes::Wishes;
use model::hours::{FillRules, Windows};
use model::id::{ApplianceId, AssetVersionId, Generation, ObjectId};
use model::manifest::{Manifest, TrustDocument};
use model::object::{BLOCK_LEN, Blocks, block_hash};
use model::units::{BitsPerSecond, Bytes, Instant, Nanos, UnixSeconds};
use worker::Now;

use crate::canary::Canary;
use crate::drive::Drive;
use crate::hours;
use crate::stage::{Slot, Stage, Troupe, WORLD};

pub(crate) struct Object {
    pub(crate) id: ObjectId,
    pub(crate) bytes: Vec<u8>,
    pub(crate) blocks: Blocks,
}

impl Object {
    /// Bytes that nobody else has.
    pub(crate) fn draw(stage: &Stage, len: usize) -> Rc<Self> {
        let bytes = stage.bytes(len);
        let chunks: Vec<&[u8]> = bytes.chunks(BLOCK_LEN.as_usize()).collect();
        let single = chunks.len() == 1;
        let hashes =
            (0..).zip(&chunks).map(|(index, chunk)| block_hash(index, chunk, single)).collect();
        let blocks = Blocks::of_hashes(Bytes::of(len), hashes).expect("one hash for each block");
        Rc::new(Self { id: blocks.id(), bytes, blocks })
    }

    pub(crate) fn len(&self) -> Bytes {
        Bytes::of(self.bytes.len())
    }
}

/// Waits that a simulation has time for: at most 160 s behind a master at work.
pub(crate) const FILL: FillPolicy = FillPolicy {
    windows: Windows::ALWAYS,
    urgent_max: BitsPerSecond(4_000_000),
    masters: 1,
    elsewhere_after: Nanos::seconds(4),
    origin_after: Nanos::seconds(10),
};

/// What operators say in calm, and what was there then.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) all: Wishes,
    /// They have said what must hold in the end.
    pub(crate) is_final: bool,
    /// Versions without a source that somebody was to hold then.
    pub(crate) alone: BTreeSet<AssetVersionId>,
}

/// Who sends and who receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Party {
    Machine(usize),
    Control,
    Front(u64),
    Viewer(u64),
    Origin,
}

#[derive(Debug, Default)]
pub(crate) struct Net {
    /// Nothing passes between these.
    pub(crate) cut: BTreeSet<(Party, Party)>,
    /// One message in so many is lost; 0 for none.
    pub(crate) lost_one_in: u64,
    /// One message in so many is seconds late; 0 for none.
    pub(crate) late_one_in: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OriginMood {
    #[default]
    Well,
    Down,
    /// It sends so slowly that it is given up.
    Slow,
    /// One block in three is wrong.
    Wrong,
    BreaksOff,
}

/// A machine in somebody's rack: what outlives its processes.
pub(crate) struct Machine {
    pub(crate) index: usize,
    pub(crate) id: ApplianceId,
    pub(crate) drives: RefCell<Vec<Rc<Drive>>>,
    /// Drives that were pulled, and others are in their places.
    pub(crate) retired: RefCell<Vec<Rc<Drive>>>,
    /// How often its table of mounts has changed.
    pub(crate) mounts: Cell<u64>,
    /// The manifest in its state directory.
    pub(crate) kept: RefCell<Option<Arc<Manifest>>>,
    /// And the trust document beside it.
    pub(crate) kept_trust: RefCell<Option<Arc<TrustDocument>>>,
    /// What control told last of fetching.
    pub(crate) kept_rules: RefCell<Option<(FillRules, hours::Told)>>,
    /// What its process goes by.
    pub(crate) hours: RefCell<hours::InForce>,
    /// What its process claimed together last, to be fetched into one file.
    pub(crate) claims: RefCell<Vec<BTreeSet<ObjectId>>>,
    pub(crate) is_up: Cell<bool>,
    /// Its power is off: it does not even refuse.
    pub(crate) is_dark: Cell<bool>,
    /// What it has signed to refuse.
    pub(crate) signed: RefCell<BTreeSet<AssetVersionId>>,
    /// How much its wall clock is ahead, in seconds, above `CLOCK_ZERO`.
    pub(crate) clock: Cell<u64>,
    /// What the outside saw it publish and not take back, and where.
    pub(crate) shown: RefCell<BTreeMap<ObjectId, Rc<Drive>>>,
    /// Newest generation that was in force.
    pub(crate) generation: Cell<Generation>,
    /// What the manifest in force wants.
    pub(crate) wants: RefCell<BTreeSet<ObjectId>>,
    /// Newest generation of a trust document that was in force.
    pub(crate) trust: Cell<Generation>,
    /// Its release is one that tells ids, and no numbers, and reads no trust document.
    pub(crate) tells_ids: bool,
    /// The tasks of its process, also while that is starting.
    pub(crate) troupe: Cell<Troupe>,
}

/// A wall clock that is right.
pub(crate) const CLOCK_ZERO: u64 = 1_000_000;

impl Machine {
    pub(crate) fn drive(&self, index: usize) -> Option<Rc<Drive>> {
        self.drives.borrow().get(index).cloned()
    }

    /// These were claimed together. An older claim of one of them is over.
    pub(crate) fn notes_claim(&self, claimed: BTreeSet<ObjectId>) {
        let mut claims = self.claims.borrow_mut();
        claims.retain(|of| of.is_disjoint(&claimed));
        if 1 < claimed.len() {
            claims.push(claimed);
        }
    }

    /// True if this object, or one with which it was claimed last, is such.
    pub(crate) fn is_claimed_with(
        &self,
        object: &ObjectId,
        is_such: impl Fn(&ObjectId) -> bool,
    ) -> bool {
        let claims = self.claims.borrow();
        let with = claims.iter().find(|of| of.contains(object));
        is_such(object) || with.is_some_and(|with| with.iter().any(is_such))
    }
}

/// Numbers with names, which add up.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What was counted over a simulation.
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct Counts {
            $($(#[$doc])* pub(crate) $name: u64,)*
        }

        impl Counts {
            /// Adds those of another simulation.
            pub(crate) fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counts! {
    requests,
    bytes,
    failed_over,
    redirects,
    published,
    evicted,
    moved,
    units_moved,
    units,
    copied,
    /// Drives that were set aside and are in use again.
    drives_returned,
    /// Of these, empty ones in the place of others.
    drives_replaced,
    starts,
    power_cuts,
    faults,
    messages_lost,
    lists,
    rotten_served,
    withdrawals,
    receipts,
    /// Runs of differences that fronts took.
    fronts_differences,
    /// Runs that they refused, since something was lost.
    fronts_mended,
    /// What was asked of sources or read from them by appliances whose sites have windows.
    fetched_by_hours,
    /// Questions for sources that were answered with a wait for a master.
    waits,
    /// Those after a wait that was too long.
    escalated,
    /// Looks at who of a fill cluster may go to the origin, while somebody there is fit.
    masters,
    /// How often fill opened or closed.
    hours,
    /// Whole states that they were given.
    fronts_whole,
    /// Blocks of urgent versions that came while fill was closed.
    urgent_blocks,
    /// Looks at a rule of operators at a site, in calm, which is kept.
    rules_kept,
    /// The same of a last copy that stays where it is banned.
    last_copies,
    /// The same of a pin for which there is no room.
    pins_without_room,
    /// Items that a plan leaves where they are until another has them.
    stays,
}

pub(crate) struct World {
    pub(crate) stage: Stage,
    pub(crate) canary: Option<Canary>,
    /// What a wall clock that is right shows when it begins.
    pub(crate) first_second: u64,
    /// Sites have windows, and pauses.
    pub(crate) has_hours: Cell<bool>,
    /// Fill stays closed in calm, and all is urgent.
    pub(crate) stays_closed: bool,
    pub(crate) objects: RefCell<BTreeMap<ObjectId, Rc<Object>>>,
    /// The objects of each version that there ever was.
    pub(crate) files_of: RefCell<hours::FilesOf>,
    pub(crate) machines: RefCell<Vec<Rc<Machine>>>,
    pub(crate) net: RefCell<Net>,
    pub(crate) origin: Cell<OriginMood>,
    pub(crate) counts: RefCell<Counts>,
    /// No more faults: from now on all must come right.
    pub(crate) is_calm: Cell<bool>,
    pub(crate) calm_from: Cell<Instant>,
    pub(crate) key: Ed25519KeyPair,
    pub(crate) versions: Cell<u64>,
    /// The next number of a file.
    pub(crate) next_file: Cell<u32>,
    /// Versions are taken down.
    pub(crate) withdraws: Cell<bool>,
    /// A planted bug: right blocks that are written wrong, as they came from a source.
    pub(crate) unverified: RefCell<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl World {
    /// True if this bug is planted.
    pub(crate) fn has(&self, canary: Canary) -> bool {
        self.canary == Some(canary)
    }

    /// Both clocks, as a machine sees them.
    pub(crate) fn now(&self, machine: &Machine) -> Now {
        let instant = self.stage.now();
        let wall = self.first_second + instant.0 / 1_000_000_000 + machine.clock.get() - CLOCK_ZERO;
        Now { instant, wall: UnixSeconds(wall) }
    }

    /// The wall clock of control, which is right.
    pub(crate) fn wall(&self) -> UnixSeconds {
        UnixSeconds(self.first_second + self.stage.now().0 / 1_000_000_000)
    }

    pub(crate) fn object(&self, id: &ObjectId) -> Option<Rc<Object>> {
        self.objects.borrow().get(id).cloned()
    }

    /// True if messages pass between the two.
    pub(crate) fn is_connected(&self, one: Party, other: Party) -> bool {
        let cut = &self.net.borrow().cut;
        !cut.contains(&(one, other)) && !cut.contains(&(other, one))
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.borrow_mut());
    }

    /// A message on its way; false if it is lost.
    pub(crate) async fn pass(&self, from: Party, to: Party) -> bool {
        let (lost, late) = {
            let net = self.net.borrow();
            (net.lost_one_in, net.late_one_in)
        };
        let is_late = late != 0 && self.stage.one_in(late);
        let span = if is_late { self.stage.millis(500, 9000) } else { self.stage.millis(1, 20) };
        self.stage.sleep(span).await;
        let passes = self.is_connected(from, to) && !(lost != 0 && self.stage.one_in(lost));
        self.count(|counts| counts.messages_lost += u64::from(!passes));
        passes
    }

    /// Asks somebody and waits for the answer, at most so long. `answer` happens there, if the
    /// question arrives, also when nobody waits any more.
    pub(crate) async fn ask<T: 'static>(
        self: &Rc<Self>,
        (from, to): (Party, Party),
        most: Nanos,
        answer: impl FnOnce() -> Option<T> + 'static,
    ) -> Option<T> {
        let slot = Slot::default();
        let (told, late) = (slot.clone(), slot.clone());
        let world = Rc::clone(self);
        self.stage.spawn(WORLD, async move {
            if world.pass(from, to).await {
                let answer = answer();
                if answer.is_none() || world.pass(to, from).await {
                    told.put(answer);
                }
            }
        });
        self.stage.at(WORLD, self.stage.now() + most, move || late.put(None));
        slot.await
    }
}
