//! The appliance as the procedures of `upkeep` see it: threads, on which an awaited operation
//! blocks and is ready when it returns (`upkeep::at_once`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fill::plan::Fetch;
use holdings::{Chores, Claim, Holdings};
use model::extent::DriveIndex;
use model::units::{Bytes, Instant, Nanos};
use store::layout::{Choice, DriveSpace};
use upkeep::Sample;
use upkeep::{Cause, Checked, Host, Told};

use crate::counters::now;
use crate::drives::Drive;
use crate::shared::Shared;

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

    async fn claim_fetch(&self) -> Option<Claim> {
        self.ledger.next_fetch()
    }

    async fn next_errand(&self, drive: DriveIndex) -> Option<Chores> {
        self.ledger.next_errand(drive)
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

    fn answers(&self, drive: &Drive) -> bool {
        drive.answers(self.now())
    }

    fn spaces(&self) -> Vec<DriveSpace> {
        Self::spaces(self)
    }

    fn linger(&self) -> Nanos {
        self.linger
    }

    async fn set_aside(&self, drive: &Drive, cause: Cause) {
        self.set_drive_aside(drive, cause);
    }

    fn tell(&self, told: Told<'_, Drive>) {
        let path = |drive: &Drive| drive.path().display().to_string();
        match told {
            Told::Failed(drive, error) => {
                self.ledger.note("drive", format!("{}: {error}", path(drive)))
            }
            Told::Miswritten(drive) => {
                self.ledger.note("drive", format!("{}: {}", path(drive), Cause::Miswritten));
            }
            Told::Adopted(drive, file, objects) => {
                let drive = drive.marker().id;
                tracing::info!(%drive, file = %file.0, objects, "adopted");
            }
            Told::SetAside(drive, object, why) => {
                tracing::warn!(drive = %drive.marker().id, %object, why, "object set aside");
                self.counters.integrity.objects_set_aside.fetch_add(1, Ordering::Relaxed);
                let text = format!("object {object} {why}; it is filled again");
                self.ledger.note("drive", format!("{}: {text}", path(drive)));
            }
            Told::Right(object) => tracing::info!(%object, "every block of it is right"),
            Told::Tended(drive, chores) => tracing::info!(
                drive = drive.0,
                evicted = chores.evict.len(),
                parts = chores.drop_parts.len(),
                "no longer wanted"
            ),
            Told::Checked(drive, checked) => self.count_checked(drive, checked),
            Told::LeftInUnit(drive, object, error) => {
                let (drive, error) = (drive.marker().id, error.map(ToString::to_string));
                tracing::warn!(%drive, %object, error, "not right in its unit, left there");
            }
            Told::UnitLost(drive, objects, why) => {
                tracing::warn!(drive = %drive.marker().id, objects, why, "unit set aside");
                let set_aside = &self.counters.integrity.objects_set_aside;
                set_aside.fetch_add(Bytes::of(objects).0, Ordering::Relaxed);
                let text = format!("a unit of {objects} objects {why}; filled again");
                self.ledger.note("drive", format!("{}: {text}", path(drive)));
            }
            Told::UnitUnknown(drive, error) => {
                self.ledger.note("drive", format!("{}: {error}", path(drive)));
            }
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
            Told::Shows(..)
            | Told::Removes(..)
            | Told::Spare(..)
            | Told::Copies(..)
            | Told::Begun(..) => {}
        }
    }
}

impl Shared {
    fn count_checked(&self, drive: &Drive, checked: Checked<'_>) {
        let (integrity, id) = (&self.counters.integrity, drive.marker().id);
        let add = |counter: &AtomicU64, count| {
            counter.fetch_add(count, Ordering::Relaxed);
        };
        match checked {
            Checked::Files(walked) => {
                drive.set_units(walked.units);
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

/// What an operator knows an object by: its first URL, without a query, which may hold a signature.
fn name(fetch: &Fetch) -> String {
    let url = fetch.urls.first().map(|url| url.split(['?', '#']).next().unwrap_or(""));
    url.map_or_else(|| fetch.object.to_string(), str::to_owned)
}
