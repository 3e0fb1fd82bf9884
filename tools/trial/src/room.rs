//! The folder in which a run keeps its files.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// `--room`
#[derive(Debug, clap::Args)]
pub(crate) struct RoomArgs {
    /// Keep everything, logs included, in this directory. Without it, a directory is made and
    /// removed.
    #[arg(long)]
    room: Option<PathBuf>,
}

/// The folder; removed when this is dropped, unless it was named.
#[derive(Debug)]
pub(crate) struct Room {
    path: PathBuf,
    _made: Option<TempDir>,
}

impl RoomArgs {
    /// Makes the folder.
    pub(crate) fn open(&self) -> Result<Room> {
        let Some(path) = self.room.clone() else {
            let made = tempfile::Builder::new().prefix("nearcast-").tempdir()?;
            return Ok(Room { path: made.path().to_owned(), _made: Some(made) });
        };
        std::fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(Room { path, _made: None })
    }
}

impl Deref for Room {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}
