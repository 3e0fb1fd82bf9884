//! Error numbers on command.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

use super::{Kind, Watch};

/// Operations that fail from now on.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// Which operations.
    pub(crate) kinds: Vec<Kind>,
    /// On paths that contain this; all if empty.
    pub(crate) on: String,
    /// With what.
    pub(crate) errno: Errno,
}

/// A drive's faults; none at first.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    faults: Mutex<Vec<Fault>>,
}

impl Faults {
    /// These from now on, and no others.
    pub(crate) fn set(&self, faults: Vec<Fault>) {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner) = faults;
    }
}

impl Watch for Faults {
    fn admit(&self, kind: Kind, path: &Path) -> Result<(), Errno> {
        let faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let path = path.to_string_lossy();
        let hit = |fault: &&Fault| fault.kinds.contains(&kind) && path.contains(&fault.on);
        faults.iter().find(hit).map_or(Ok(()), |fault| Err(fault.errno))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_told_to_fails() {
        let faults = Faults::default();
        let path = Path::new("objects/ab/abcd");
        assert_eq!(faults.admit(Kind::Read, path), Ok(()));
        let kinds = vec![Kind::Read, Kind::Open];
        faults.set(vec![Fault { kinds, on: "objects/".to_owned(), errno: Errno::NODATA }]);
        assert_eq!(faults.admit(Kind::Open, path), Err(Errno::NODATA));
        assert_eq!(faults.admit(Kind::Write, path), Ok(()));
        assert_eq!(faults.admit(Kind::Read, Path::new("index/log")), Ok(()));
        faults.set(Vec::new());
        assert_eq!(faults.admit(Kind::Read, path), Ok(()));
    }
}
