//! Error numbers on command.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

use super::{Kind, Watch};

/// Operations that fail from now on.
#[derive(Clone, Debug)]
pub struct Fault {
    pub kinds: Vec<Kind>,
    /// On paths that contain this; all if empty.
    pub on: String,
    pub errno: Errno,
    /// How often; then all is well again. None for ever.
    pub times: Option<u32>,
}

/// A drive's faults; none at first.
#[derive(Debug, Default)]
pub struct Faults {
    faults: Mutex<Vec<Fault>>,
}

impl Faults {
    /// These from now on, and no others.
    pub fn set(&self, faults: Vec<Fault>) {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner) = faults;
    }
}

impl Watch for Faults {
    fn admit(&self, kind: Kind, path: &Path) -> Result<(), Errno> {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let path = path.to_string_lossy();
        let hit = |fault: &&mut Fault| {
            fault.kinds.contains(&kind) && path.contains(&fault.on) && fault.times != Some(0)
        };
        let Some(fault) = faults.iter_mut().find(hit) else { return Ok(()) };
        fault.times = fault.times.map(|times| times - 1);
        Err(fault.errno)
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
        let (on, errno) = ("objects/".to_owned(), Errno::NODATA);
        faults.set(vec![Fault { kinds, on, errno, times: Some(1) }]);
        assert_eq!(faults.admit(Kind::Open, path), Err(Errno::NODATA));
        assert_eq!(faults.admit(Kind::Write, path), Ok(()));
        assert_eq!(faults.admit(Kind::Read, Path::new("index/log")), Ok(()));
        assert_eq!(faults.admit(Kind::Open, path), Ok(()), "once was told");
    }
}
