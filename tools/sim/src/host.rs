//! A process as the procedures of `upkeep` see it: tasks, of which others run at each await. Looks
//! at what the procedures tell, and plants bugs there.

use std::rc::Rc;

use holdings::Holdings;
use model::extent::{DriveIndex, Extent};
use model::id::ObjectId;
use model::units::{Bytes, Instant, Nanos};
use model::update::Update;
use store::parcel::Parcel;
use upkeep::Sample;
use upkeep::{Cause, Host, Ledger as _, News, Told};

use crate::canary::Canary;
use crate::opened::Opened;
use crate::oracle;
use crate::process::{BETWEEN_SLICES, Process, SLICE};

/// Workers hear of a new place after a microsecond.
const LINGER: Nanos = Nanos::millis(20);

impl Host for Process {
    type Drive = Opened;
    type Keep = Rc<Opened>;

    /// Few, so that there are many slices.
    const SLICE: usize = SLICE;

    fn now(&self) -> Instant {
        Self::now(self)
    }

    /// A process is killed, and does not stop.
    fn is_stopping(&self) -> bool {
        false
    }

    async fn sleep_until(&self, until: Instant) -> bool {
        self.world.stage.sleep_until(until).await;
        true
    }

    fn ask<R>(&self, look: impl FnOnce(&Holdings) -> R) -> R {
        Self::ask(self, look)
    }

    fn change<R>(&self, change: impl FnOnce(&mut Holdings) -> R) -> R {
        self.with(change)
    }

    async fn wait_changed(&self, left: impl Fn(&Holdings) -> Nanos) -> bool {
        loop {
            let left = self.ask(&left);
            if left == Nanos(0) {
                return true;
            }
            self.changed.wait_until(&self.world.stage, self.now() + left).await;
        }
    }

    async fn wait_for<T>(
        &self,
        news: News,
        mut take: impl FnMut(&mut Holdings) -> Option<T>,
    ) -> Option<T> {
        loop {
            let found = self.with(|holdings| {
                let before = holdings.busy().clone();
                let found = take(holdings)?;
                Some((found, holdings.busy() - &before))
            });
            match (found, news) {
                (Some((found, claimed)), _) => {
                    self.machine.notes_claim(claimed);
                    return Some(found);
                }
                (None, News::Changed) => self.changed.wait().await,
                (None, News::HandedOut) => self.handed_out.wait().await,
            }
        }
    }

    fn wake_hands(&self) {
        self.handed_out.ring();
    }

    async fn pause(&self) {
        self.world.stage.sleep(BETWEEN_SLICES).await;
    }

    async fn next_sample(&self) -> Option<Sample> {
        Some(Self::next_sample(self).await)
    }

    fn returns(&self) -> u64 {
        self.returned.get()
    }

    fn drives(&self) -> Vec<Rc<Opened>> {
        self.in_use()
    }

    fn drive(&self, index: DriveIndex) -> Option<Rc<Opened>> {
        Self::drive(self, index)
    }

    fn linger(&self) -> Nanos {
        LINGER
    }

    fn take_out(&self, drive: &Opened, _: &Cause) -> Option<Rc<Opened>> {
        if drive.is_aside() { None } else { self.set_drive_aside(drive.index) }
    }

    fn tell(&self, told: Told<'_, Opened>) {
        let count = |len: usize| Bytes::of(len).0;
        match told {
            Told::Shows(drive, objects) => {
                for (object, extent) in objects {
                    oracle::is_durable(&self.world, drive, *object, extent);
                    // What is nowhere yet was fetched, or found.
                    if self.locate(object).is_some() {
                        oracle::is_read_back(&self.world, drive, *object, extent);
                    }
                }
                self.world.count(|counts| counts.published += count(objects.len()));
            }
            Told::Removes(_, _, objects) => {
                self.world.count(|counts| counts.evicted += count(objects));
            }
            Told::Spare(drive, file, object) => {
                let known = self.locate(&object).map(|extent| extent.file);
                let (world, machine, copy) = (&self.world, &self.machine, (drive, file));
                oracle::is_spare(world, machine, copy, object, known.as_ref());
            }
            Told::Copies(drive, parcel) => self.note_copy(drive, parcel),
            Told::Begun(drive, parcel) => {
                if self.world.has(Canary::ShownEarly) {
                    self.show_early(drive, parcel);
                }
            }
            Told::Filled(claim) => {
                let is_unit = matches!(claim.parcel(), Parcel::Unit(_));
                self.world.count(|counts| counts.units += u64::from(is_unit));
            }
            Told::Postponed(fetch, why) => {
                let object = fetch.object;
                self.say(|| format!("postpones {object}: {why}"));
                if self.world.has(Canary::NeverReleased) {
                    self.claim_soon(object);
                }
            }
            Told::UnitLost(drive, objects, why) => {
                self.say(|| format!("drive {}: a unit of {objects} {why}", drive.index));
            }
            Told::Hangs(drive) => self.say(|| format!("drive {} hangs", drive.index)),
            Told::Answers(drive) => self.say(|| format!("drive {} answers again", drive.index)),
            Told::Failed(drive, error) => self.say(|| format!("drive {}: {error}", drive.index)),
            Told::SetAside(drive, object, why) => {
                self.say(|| format!("sets {object} on drive {} aside: {why}", drive.index));
            }
            Told::DriveAside(drive, cause) => {
                self.say(|| format!("drive {} set aside: {cause}", drive.index));
            }
            Told::Returned(drive, _) => self.returned(drive),
            Told::StaysAside(index, why) => {
                self.say(|| format!("drive {index} stays set aside: {why}"));
            }
            Told::Hours { is_open, .. } => {
                self.world.count(|counts| counts.hours += 1);
                self.say(|| format!("fill is open: {is_open}"));
            }
            Told::Checked(..)
            | Told::Right(_)
            | Told::Tended(..)
            | Told::Miswritten(_)
            | Told::Chosen(_)
            | Told::Adopted(..)
            | Told::LeftInUnit(..)
            | Told::UnitUnknown(..)
            | Told::WithoutRoom(_) => {}
        }
    }
}

impl Process {
    fn note_copy(&self, drive: &Opened, parcel: &Parcel) {
        drive.copies.borrow_mut().insert(parcel.part().file());
        let objects = parcel.entries();
        let lies_here = |object| self.locate(object).is_some_and(|at| at.drive == drive.index);
        if objects.iter().any(|(object, _)| lies_here(object)) {
            self.world.count(|counts| counts.copied += Bytes::of(objects.len()).0);
        }
    }

    /// A planted bug: an object that was given up is claimed again once it was let go.
    fn claim_soon(&self, object: ObjectId) {
        let Some(process) = self.me.upgrade() else { return };
        self.world.stage.at(self.troupe, self.now(), move || {
            process.claim(object);
        });
    }

    /// A planted bug: a part file is shown as if it were whole.
    fn show_early(&self, drive: &Opened, parcel: &Parcel) {
        for (object, entry) in parcel.entries() {
            let extent = entry.extent(&object, drive.index);
            let extent = Extent { file: parcel.part().file(), ..extent };
            for worker in self.workers.borrow().iter() {
                let extent = extent.clone();
                worker.update(Update::Published { object, extent, small: None });
            }
        }
    }
}
