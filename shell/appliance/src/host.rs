//! The appliance as the procedures of `upkeep` see it: threads, on which an awaited operation
//! blocks and is ready when it returns (`upkeep::at_once`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdings::{Chores, Claim, Holdings};
use model::extent::DriveIndex;
use model::units::{Bytes, Instant, Nanos};
use store::layout::{Choice, DriveSpace};
use upkeep::Sample;
use upkeep::{Cause, Checked, Host, Told};

use crate::drives::Drive;
use crate::filler;
use crate::shared::Shared;
use crate::tiering;

#[cfg(test)]
mod tests;

impl Host for Shared {
    type Drive = Drive;
    type Keep = Arc<Drive>;

    fn now(&self) -> Instant {
        Self::now(self)
    }

    fn is_stopping(&self) -> bool {
        Self::is_stopping(self)
    }

    async fn sleep_until(&self, until: Instant) -> bool {
        Self::sleep_until(self, until)
    }

    fn ask<R>(&self, look: impl FnOnce(&Holdings) -> R) -> R {
        Self::ask(self, look)
    }

    fn change<R>(&self, change: impl FnOnce(&mut Holdings) -> R) -> R {
        self.with(change)
    }

    async fn claim_fetch(&self) -> Option<Claim> {
        self.next_fetch()
    }

    async fn next_errand(&self, drive: DriveIndex) -> Option<Chores> {
        Self::next_errand(self, drive)
    }

    async fn pause(&self) {
        std::thread::yield_now();
    }

    async fn next_sample(&self) -> Option<Sample> {
        Self::next_sample(self)
    }

    fn returns(&self) -> u64 {
        Self::returns(self)
    }

    fn drives(&self) -> Vec<Arc<Drive>> {
        self.open_drives()
    }

    fn drive(&self, index: DriveIndex) -> Option<Arc<Drive>> {
        Self::drive(self, index)
    }

    fn answers(&self, drive: &Drive) -> bool {
        drive.answers(self.now())
    }

    fn spaces(&self) -> Vec<DriveSpace> {
        Self::spaces(self)
    }

    fn linger(&self) -> Nanos {
        self.tier.as_ref().map_or(tiering::LINGER, |tier| tier.config.linger)
    }

    async fn set_aside(&self, drive: &Drive, cause: Cause) {
        self.set_drive_aside(drive, cause);
    }

    fn tell(&self, told: Told<'_, Drive>) {
        let path = |drive: &Drive| drive.path().display().to_string();
        match told {
            Told::Failed(drive, error) => self.note("drive", format!("{}: {error}", path(drive))),
            Told::Miswritten(drive) => {
                self.note("drive", format!("{}: {}", path(drive), Cause::Miswritten));
            }
            Told::Adopted(drive, file, objects) => {
                let drive = drive.marker().id;
                tracing::info!(%drive, file = %file.0, objects, "adopted");
            }
            Told::SetAside(drive, object, why) => {
                tracing::warn!(drive = %drive.marker().id, %object, why, "object set aside");
                self.integrity.objects_set_aside.fetch_add(1, Ordering::Relaxed);
                let text = format!("object {object} {why}; it is filled again");
                self.note("drive", format!("{}: {text}", path(drive)));
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
                let set_aside = &self.integrity.objects_set_aside;
                set_aside.fetch_add(Bytes::of(objects).0, Ordering::Relaxed);
                let text = format!("a unit of {objects} objects {why}; filled again");
                self.note("drive", format!("{}: {text}", path(drive)));
            }
            Told::UnitUnknown(drive, error) => {
                self.note("drive", format!("{}: {error}", path(drive)));
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
                self.note("fill", format!("{}: {why}", filler::name(fetch)));
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
        let (integrity, id) = (&self.integrity, drive.marker().id);
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
                self.scrub(drive.index()).at.store(first, Ordering::Relaxed);
                add(&integrity.scrubbed_objects, 1);
            }
            Checked::Pass => {
                add(&self.scrub(drive.index()).passes, 1);
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
