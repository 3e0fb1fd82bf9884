//! What an appliance did to its drive, in order, from one moment on.
//!
//! Whether an object is published is seen from outside: after each flush of the index log the tape
//! holds the drive's next change until somebody has asked the appliance for what may be new. So an
//! object is noted as published at the very flush that made it so, not some writes later.

use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use model::id::ObjectId;
use rig::drive::{Change, Watch};

use super::image::Image;

pub(crate) struct Tape {
    folder: PathBuf,
    /// Recording begins when the index log has grown to this.
    begin_at: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Debug)]
pub(crate) struct Recording {
    /// The drive when recording began; all of it counts as flushed.
    pub(crate) base: Image,
    pub(crate) changes: Vec<Change>,
    /// When objects were first served: after so many changes.
    pub(crate) published: Vec<(usize, ObjectId)>,
    /// When objects were no longer wanted: after so many changes.
    pub(crate) dropped: Vec<(usize, ObjectId)>,
}

#[derive(Default)]
struct State {
    recording: Option<Recording>,
    failed: Option<String>,
    /// True from a flush of the log to `look_is_over`.
    held: bool,
    over: bool,
}

/// A log of the index, wherever the drive is.
const LOG: &str = "index/log";
/// Nobody looks longer; a change that is held for longer goes on.
const LOOK_MAX: Duration = Duration::from_secs(5);

impl Tape {
    /// Records what is done to `folder`, once its index log is `begin_at` long.
    pub(crate) fn new(folder: &Path, begin_at: u64) -> Self {
        let state = Mutex::default();
        Self { folder: folder.to_owned(), begin_at, state, changed: Condvar::new() }
    }

    /// Waits until a change is held, at most so long; true if one is.
    pub(crate) fn wait_for_hold(&self, patience: Duration) -> bool {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, patience, |state| !state.held);
        waited.unwrap_or_else(PoisonError::into_inner).0.held
    }

    /// Everything was looked at: the drive goes on.
    pub(crate) fn look_is_over(&self) {
        self.lock().held = false;
        self.changed.notify_all();
    }

    /// True once recording has begun.
    pub(crate) fn is_recording(&self) -> bool {
        self.lock().recording.is_some()
    }

    /// The object was served now.
    pub(crate) fn note_published(&self, object: ObjectId) {
        if let Some(recording) = &mut self.lock().recording {
            recording.published.push((recording.changes.len(), object));
        }
    }

    /// The objects are no longer wanted from now on.
    pub(crate) fn note_dropped(&self, objects: impl Iterator<Item = ObjectId>) {
        if let Some(recording) = &mut self.lock().recording {
            let at = recording.changes.len();
            recording.dropped.extend(objects.map(|object| (at, object)));
        }
    }

    pub(crate) fn finish(&self) -> Result<Recording> {
        let mut state = self.lock();
        state.over = true;
        state.held = false;
        self.changed.notify_all();
        if let Some(failed) = state.failed.take() {
            anyhow::bail!("the recording failed: {failed}");
        }
        let recording = state.recording.take();
        ensure!(recording.is_some(), "the index log never grew to {}", self.begin_at);
        Ok(recording.expect("looked at above"))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch for Tape {
    fn hold(&self) {
        let state = self.lock();
        drop(self.changed.wait_timeout_while(state, LOOK_MAX, |state| state.held));
    }

    fn changed(&self, change: Change) {
        let mut state = self.lock();
        if state.over {
            return;
        }
        match &mut state.recording {
            Some(recording) => recording.changes.push(change.clone()),
            None => {
                // A flush: what is in the folder now is what recording begins with.
                let long_enough = matches!(&change, Change::FlushFile { path, .. }
                    if path.ends_with(LOG) && self.begin_at <= len_of(&self.folder.join(path)));
                if !long_enough {
                    return;
                }
                match Image::read(&self.folder) {
                    Ok(base) => {
                        let (changes, published, dropped) = Default::default();
                        state.recording = Some(Recording { base, changes, published, dropped });
                    }
                    Err(error) => state.failed = Some(error.to_string()),
                }
            }
        }
        if matches!(&change, Change::FlushFile { path, .. } if path.ends_with(LOG)) {
            state.held = true;
            self.changed.notify_all();
        }
    }
}

fn len_of(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}
