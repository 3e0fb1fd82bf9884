//! The appliance as the procedures of `upkeep` see it: threads, on which an awaited operation
//! blocks and is ready when it returns (`upkeep::at_once`).

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fill::plan::{self, Fetch};
use holdings::Holdings;
use model::extent::DriveIndex;
use model::units::{Bytes, Instant, Nanos, UnixSeconds};
use store::layout::Choice;
use upkeep::Sample;
use upkeep::{Cause, Checked, Drive as _, Host, News, Told};

use crate::counters::now;
use crate::storage::drives::Drive;
use crate::storage::format::gigabytes;
use crate::storage::shared::Shared;
use crate::storage::slots::{Aside, Slot};

#[cfg(test)]
mod tests;

impl Host for Shared {
    type Drive = Drive;
    type Keep = Arc<Drive>;

    fn now(&self) -> Instant {
        self.ledger.now()
    }

    fn is_stopping(&self) -> bool {
        self.ledger.is_stopping()
    }

    async fn sleep_until(&self, until: Instant) -> bool {
        self.ledger.sleep_until(until)
    }

    fn ask<R>(&self, look: impl FnOnce(&Holdings) -> R) -> R {
        self.ledger.ask(look)
    }

    fn change<R>(&self, change: impl FnOnce(&mut Holdings) -> R) -> R {
        self.ledger.change(change)
    }

    async fn wait_changed(&self, left: impl Fn(&Holdings) -> Nanos) -> bool {
        self.ledger.wait_changed(left)
    }

    async fn wait_for<T>(
        &self,
        news: News,
        take: impl FnMut(&mut Holdings) -> Option<T>,
    ) -> Option<T> {
        self.ledger.wait_for(news, take)
    }

    fn wake_hands(&self) {
        self.ledger.wake_hands();
    }

    async fn pause(&self) {
        std::thread::yield_now();
    }

    async fn next_sample(&self) -> Option<Sample> {
        self.ledger.next_sample()
    }

    fn returns(&self) -> u64 {
        now(&self.counters.integrity.returns)
    }

    fn drives(&self) -> Vec<Arc<Drive>> {
        self.slots.open()
    }

    fn drive(&self, index: DriveIndex) -> Option<Arc<Drive>> {
        self.slots.drive(index)
    }

    fn linger(&self) -> Nanos {
        self.linger
    }

    fn take_out(&self, drive: &Drive, cause: &Cause) -> Option<Arc<Drive>> {
        let index = drive.index();
        // One that has come back since, in the place of this one, is left alone.
        self.ledger.change(|holdings| {
            let old = if drive.set_aside() { self.slots.drive(index) } else { None }?;
            let (id, weak) = (Some(drive.marker().id), Arc::downgrade(&old));
            let aside = Aside { cause: cause.clone(), id, old: weak };
            self.slots.replace(index, Slot::Aside(aside));
            holdings.let_go(index);
            Some(old)
        })
    }

    fn tell(&self, told: Told<'_, Drive>) {
        let id = |drive: &Drive| drive.marker().id;
        let note = |drive: &Drive, text: &dyn Display| {
            self.ledger.note("drive", format!("{}: {text}", drive.path().display()));
        };
        let lost = &self.counters.integrity.objects_set_aside;
        match told {
            Told::Failed(drive, error) => note(drive, error),
            Told::Miswritten(drive) => note(drive, &Cause::Miswritten),
            Told::Adopted(drive, file, objects) => {
                tracing::info!(drive = %id(drive), file = %file.0, objects, "adopted");
            }
            Told::SetAside(drive, object, why) => {
                tracing::warn!(drive = %id(drive), %object, why, "object set aside");
                lost.fetch_add(1, Ordering::Relaxed);
                note(drive, &format!("object {object} {why}; it is filled again"));
            }
            Told::Right(object) => tracing::info!(%object, "every block of it is right"),
            Told::Tended(drive, chores) => tracing::info!(
                drive = drive.0,
                evicted = chores.evict.len(),
                parts = chores.drop_parts.len(),
                "removed objects and parts that are no longer wanted"
            ),
            Told::Checked(drive, checked) => self.count_checked(drive, checked),
            Told::LeftInUnit(drive, object, error) => {
                let error = error.map(ToString::to_string);
                tracing::warn!(drive = %id(drive), %object, error, "wrong in its unit, and stays");
            }
            Told::UnitLost(drive, objects, why) => {
                tracing::warn!(drive = %id(drive), objects, why, "unit set aside");
                lost.fetch_add(Bytes::of(objects).0, Ordering::Relaxed);
                note(drive, &format!("a unit of {objects} objects {why}; they are filled again"));
            }
            Told::UnitUnknown(drive, error) => note(drive, error),
            Told::Chosen(Choice { drive, passed_over }) => {
                tracing::debug!(?drive, ?passed_over, "drive chosen");
            }
            Told::Filled(claim) => {
                let (object, objects) = (claim.fetch[0].object, claim.fetch.len());
                tracing::debug!(%object, objects, "published");
            }
            Told::Postponed(fetch, why) => {
                tracing::warn!(object = %fetch.object, reason = why, "object postponed");
                self.ledger.note("fill", format!("{}: {why}", name(fetch)));
            }
            Told::Hangs(drive) => {
                tracing::error!(drive = %id(drive), path = ?drive.path(), "drive does not answer");
                let players = "players are sent elsewhere until it does";
                note(
                    drive,
                    &format!("does not answer: {players}. Look at the drive and its cable"),
                );
            }
            Told::Answers(drive) => {
                tracing::info!(drive = %id(drive), path = ?drive.path(), "drive answers again");
                note(drive, &"answers again");
            }
            Told::DriveAside(drive, cause) => self.say_aside(drive, cause),
            Told::Returned(drive, objects) => self.say_returned(drive, objects),
            Told::StaysAside(index, error) => self.say_stays_aside(index, error),
            Told::WithoutRoom(report) => self.say_without_room(report),
            Told::Hours { is_open, until } => say_hours(is_open, until),
            Told::Shows(..)
            | Told::Removes(..)
            | Told::Spare(..)
            | Told::Copies(..)
            | Told::Begun(..) => {}
        }
    }
}

impl Shared {
    fn say_aside(&self, drive: &Drive, cause: &Cause) {
        let (id, path, reason) = (drive.marker().id, drive.path().display(), cause.to_string());
        tracing::error!(drive = %id, %path, reason, "drive set aside");
        let what_to_do = "It is used again once it is replaced, formatted or mounted anew";
        self.ledger.note("drive", format!("{path} is set aside: {reason}. {what_to_do}"));
    }

    fn say_returned(&self, drive: &Drive, objects: usize) {
        self.counters.integrity.returns.fetch_add(1, Ordering::Relaxed);
        let (id, path) = (drive.marker().id, drive.path().display());
        tracing::info!(drive = %id, %path, objects, "drive in use again");
        self.ledger.note("drive", format!("{path} is in use again"));
    }

    fn say_stays_aside(&self, index: DriveIndex, error: &str) {
        let path = self.slots.paths[index.as_usize()].display();
        tracing::warn!(%path, error, "drive stays set aside");
        self.ledger.note("drive", format!("{error}. It stays set aside"));
    }

    /// Objects that fit on no drive, when their number changes.
    fn say_without_room(&self, report: &plan::Report) {
        let (count, bytes) = (report.objects_without_room, report.bytes_without_room.0);
        if count != 0 {
            tracing::warn!(objects = count, bytes, "drives are full");
            let bytes = gigabytes(bytes);
            let text = format!("drives are full: {count} wanted objects ({bytes}) find no room");
            self.ledger.note("fill", format!("{text}; add drives, or let this site hold less"));
        }
    }

    fn count_checked(&self, drive: &Drive, checked: Checked<'_>) {
        let (integrity, id) = (&self.counters.integrity, drive.marker().id);
        let add = |counter: &AtomicU64, count| {
            counter.fetch_add(count, Ordering::Relaxed);
        };
        match checked {
            Checked::Files(walked) => {
                drive.condition(|of| of.units = walked.units);
                let (files, found) = (walked.files, walked.found);
                let took_ms = walked.took.as_millis();
                tracing::info!(drive = %id, files, found, took_ms, "drive audited");
            }
            Checked::Bytes(len) => add(&integrity.scrubbed_bytes, len.0),
            Checked::Object(object) => {
                let first = object.0.first_chunk::<8>();
                let first = first.map_or(0, |bytes| u64::from_be_bytes(*bytes));
                self.counters.scrub(drive.index()).at.store(first, Ordering::Relaxed);
                add(&integrity.scrubbed_objects, 1);
            }
            Checked::Pass => {
                add(&self.counters.scrub(drive.index()).passes, 1);
                tracing::info!(drive = %id, "drive scrubbed");
            }
            Checked::Sample(sample, is_right) => {
                add(&integrity.samples, 1);
                if !is_right {
                    add(&integrity.samples_wrong, 1);
                    let (object, block) = (sample.object, sample.block);
                    tracing::warn!(drive = %id, %object, block, "wrong block served");
                }
            }
        }
    }
}

fn say_hours(is_open: bool, until: Option<UnixSeconds>) {
    let until = until.map(|until| until.0);
    tracing::info!(until, "{}", if is_open { "fill opens" } else { "fill closes" });
}

/// What an operator knows an object by: its first URL, without a query, which may hold a signature.
fn name(fetch: &Fetch) -> String {
    let url = fetch.urls.first().map(|url| url.split(['?', '#']).next().unwrap_or(""));
    url.map_or_else(|| fetch.object.to_string(), str::to_owned)
}
