//! What most runs are told: the folder in which one keeps its files, and how it tells its result.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// `--room` and `--json`
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Keep everything, logs included, in this directory. Without it, a directory is made and
    /// removed.
    #[arg(long)]
    room: Option<PathBuf>,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The folder; removed when this is dropped, unless it was named.
#[derive(Debug)]
pub(crate) struct Room {
    path: PathBuf,
    _made: Option<TempDir>,
}

impl RunArgs {
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
