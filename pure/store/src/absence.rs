//! A drive that is set aside, over time: when it is worth trying again.
//!
//! ```text
//! left ──> look, each second ──> its place has changed, and changes no more ──> try it ──> in use
//!   ^                                                                             │
//!   └──────────────────────────── refused: from what was seen there ──────────────┘
//! ```
//!
//! Somebody has to have done something: replaced the drive, formatted it, mounted it anew. A drive
//! that nobody touched would only fail again, and take its objects out of the inventory each time.

/// The facts seen at a drive's place without reading from the drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The stamp that tells one marker from another; none where there is none.
    pub marker: Option<MarkerSeen>,
    /// How often the table of mounts has changed. A file system that is taken away and mounted
    /// again may look as before in everything else.
    pub mounts: u64,
}

/// A marker, as far as the file system's own books tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkerSeen {
    /// The device that its file system is on.
    pub device: u64,
    pub inode: u64,
    /// When it was written or given to somebody, in nanoseconds.
    pub changed_at: i128,
}

/// The absence of one drive.
#[derive(Clone, Copy, Debug)]
pub struct Absence {
    /// The facts seen when it was set aside, or tried last.
    left: Seen,
    /// At the last look.
    before: Seen,
}

impl Absence {
    /// A drive that is set aside now.
    pub fn new(seen: Seen) -> Self {
        Self { left: seen, before: seen }
    }

    /// A look at its place; true if it should be tried now. That is when two looks have found the
    /// same: an operator who formats a drive and gives it to its user does so in steps.
    pub fn look(&mut self, seen: Seen) -> bool {
        let is_settled = seen == self.before;
        self.before = seen;
        is_settled && seen.marker.is_some() && seen != self.left
    }

    /// It was tried, and is no good as it is.
    pub fn refused(&mut self) {
        self.left = self.before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At which of these looks a drive is tried; it was left as at the first, and is refused.
    fn tried(looks: &[(u64, u64)]) -> Vec<usize> {
        let seen = |(inode, mounts): (u64, u64)| {
            let marker = MarkerSeen { device: 1, inode, changed_at: 0 };
            Seen { marker: (inode != 0).then_some(marker), mounts }
        };
        let mut absence = Absence::new(seen(looks[0]));
        let mut tried = Vec::new();
        for (at, look) in looks.iter().enumerate() {
            if absence.look(seen(*look)) {
                absence.refused();
                tried.push(at);
            }
        }
        tried
    }

    #[test]
    fn a_drive_that_nobody_touched_is_not_tried() {
        assert_eq!(tried(&[(1, 1), (1, 1), (1, 1), (1, 1)]), []);
    }

    #[test]
    fn a_place_without_a_marker_is_not_tried() {
        assert_eq!(tried(&[(1, 1), (0, 2), (0, 2), (0, 2)]), []);
        assert_eq!(tried(&[(0, 1), (0, 1), (0, 2), (0, 2)]), []);
    }

    #[test]
    fn a_drive_is_tried_once_when_its_place_has_changed_and_settled() {
        assert_eq!(tried(&[(1, 1), (1, 2), (1, 2), (1, 2)]), [2], "mounted anew");
        assert_eq!(tried(&[(1, 1), (0, 2), (7, 3), (7, 3), (7, 3)]), [3], "replaced");
        assert_eq!(tried(&[(0, 1), (5, 1), (6, 1), (6, 1), (6, 1)]), [3], "formatted in steps");
    }

    #[test]
    fn one_that_was_refused_is_tried_again_when_something_has_changed_again() {
        assert_eq!(tried(&[(1, 1), (1, 2), (1, 2), (1, 3), (1, 3), (1, 3)]), [2, 4]);
    }
}
