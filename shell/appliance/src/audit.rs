//! The audit's thread: `upkeep::audit` does the work.

use model::units::Nanos;
use upkeep::{at_once, audit};

use crate::shared::Shared;

/// Between two walks.
const WALK_EVERY: Nanos = Nanos::seconds(6 * 3600);

/// Runs until all must stop.
pub(crate) fn run(shared: &Shared) {
    let drives = u8::try_from(shared.config.drives.len()).unwrap_or(u8::MAX);
    at_once(audit::run(shared, drives, WALK_EVERY));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drives::Drive;
    use model::id::ObjectId;
    use upkeep::Ledger as _;

    fn examine(shared: &Shared, drive: &Drive, object: ObjectId) -> bool {
        at_once(audit::examine(shared, drive, object))
    }

    use crate::shared::tests::{drives, manifest, put, shared_on};
    use holdings::Doubt;
    use model::extent::{DriveIndex, Extent};
    use model::units::Bytes;

    #[test]
    fn a_second_copy_goes_only_when_every_block_of_the_first_is_right() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, object, [first, second]) = held_twice(dir.path());
        let [one, other] = [0, 1].map(|index| shared.drive(DriveIndex(index)).unwrap());
        let path = |drive: &Drive, extent: &Extent| drive.path().join(&*extent.file.0);
        let is_there = || path(&other, &second).exists();

        let right = std::fs::read(path(&one, &first)).unwrap();
        let mut wrong = right.clone();
        wrong[4999] ^= 1;
        std::fs::write(path(&one, &first), wrong).unwrap();
        assert!(examine(&shared, &other, object) && is_there(), "the first is wrong");
        shared.plan();
        let doubted = shared.peek_errand(DriveIndex(0)).unwrap().suspects;
        assert_eq!(doubted.into_iter().collect::<Vec<_>>(), [(object, Doubt::Suspect)]);

        std::fs::write(path(&one, &first), right).unwrap();
        shared.look_at_drive(&one, true);
        assert!(!examine(&shared, &other, object) && is_there(), "it does not answer");
    }

    #[test]
    fn a_second_copy_goes_when_the_first_is_right() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, object, [first, second]) = held_twice(dir.path());
        let other = shared.drive(DriveIndex(1)).unwrap();
        assert!(examine(&shared, &other, object));
        assert!(!other.path().join(&*second.file.0).exists());
        assert_eq!((other.entry(&object), shared.locate(&object)), (None, Some(first)));
    }

    /// An object on two drives, of which the index has the first copy.
    fn held_twice(dir: &std::path::Path) -> (Shared, ObjectId, [Extent; 2]) {
        let drives = drives(dir, 2);
        let (object, first) = put(&drives[0], &[7; 5000]);
        let (_, second) = put(&drives[1], &[7; 5000]);
        let shared = shared_on(drives);
        assert!(shared.set_manifest(manifest(1, &[(object, Bytes(5000))])));
        shared.load([(object, first.clone())].into_iter());
        (shared, object, [first, second])
    }
}
