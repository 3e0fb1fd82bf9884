//! Plans, in one thread that waits for no drive. What a plan finds is done by a thread for each
//! drive (`upkeep::keeper`), so that one which hangs in the middle of it holds up nothing but
//! itself.

use crate::format::gigabytes;
use crate::shared::Shared;

/// Plans until all must stop.
pub(crate) fn run(shared: &Shared) {
    let mut without_room = 0;
    while shared.ledger.wait_for_planning() {
        shared.plan();
        without_room = say_what_finds_no_room(shared, without_room);
    }
}

/// Reports objects that fit on no drive, when their number changes; returns it.
fn say_what_finds_no_room(shared: &Shared, said: u64) -> u64 {
    let report = shared.ledger.ask(|holdings| holdings.plan_report().clone());
    let count = report.objects_without_room;
    if count != said && 0 < count {
        let bytes = gigabytes(report.bytes_without_room.0);
        tracing::warn!(objects = count, bytes = report.bytes_without_room.0, "drives are full");
        let text = format!("drives are full: {count} wanted objects ({bytes}) find no room");
        shared.ledger.note("fill", format!("{text}; add drives, or let this site hold less"));
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{Gate, Mode, Writes};
    use crate::mounts::Medium;
    use crate::shared::tests::{drives, manifest, put, shared_on};
    use iosched::drive::Class;
    use model::extent::DriveIndex;
    use model::id::ObjectId;
    use model::units::{BitsPerSecond, Bytes, Nanos};
    use upkeep::{at_once, keeper};

    /// Until then something has to happen that takes milliseconds.
    fn wait(what: &str, mut done: impl FnMut() -> bool) {
        let began = std::time::Instant::now();
        while !done() {
            assert!(began.elapsed().as_secs() < 20, "waited in vain for {what}");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    #[test]
    fn a_drive_that_hangs_in_a_delete_holds_up_no_other_and_no_plan() {
        let dir = tempfile::tempdir().unwrap();
        let mut drives = drives(dir.path(), 2);
        let held: Vec<_> =
            drives.iter().map(|drive| put(drive, &[7 + drive.index().0; 9])).collect();
        let (mode, targets, depth) = (Mode::Governor, vec![Nanos::millis(5)], 4);
        let writes = Writes { mode, targets, depth, rate: None, floor: BitsPerSecond(1) };
        let medium = Medium { target: Nanos::millis(5), deletes_alone: true };
        drives[0].put_behind(Gate::new(&writes.rules(0, &medium), Vec::new(), 0));
        let shared = shared_on(drives);
        shared.load(held.clone().into_iter());
        assert!(shared.set_manifest(manifest(1, &[])));
        let file = |n: usize| dir.path().join(n.to_string()).join(&*held[n].1.file.0);
        // A delete on the first waits for another that never ends, as it would in the kernel.
        let first = shared.slots.drive(DriveIndex(0)).unwrap();
        let _hangs = first.gate().enter(Class::Delete, Bytes::ZERO);
        std::thread::scope(|scope| {
            // However this ends, the threads have to.
            let _stop = Stop(&shared);
            scope.spawn(|| run(&shared));
            for index in shared.slots.indexes() {
                let shared = &shared;
                scope.spawn(move || at_once(keeper::tend(shared, index)));
            }
            wait("the second drive's file to go", || !file(1).exists());
            assert!(file(0).exists());
            let wanted = ObjectId([1; 32]);
            assert!(shared.set_manifest(manifest(2, &[(wanted, Bytes(5))])));
            wait("a plan", || {
                shared.ledger.ask(|holdings| holdings.plan_report().objects_wanted) == 1
            });
            assert!(file(0).exists(), "it is still being removed");
        });
    }

    struct Stop<'a>(&'a Shared);

    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.stop();
        }
    }
}
