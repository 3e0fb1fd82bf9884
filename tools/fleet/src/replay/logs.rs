//! Where the files of a ledger are: given one by one, at control, in a folder or in a bucket.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use model::id::{hex, parse_hex};
use wire::v1::fleet::{LedgerFile, LedgerOut};

use super::Args;
use crate::control::{Control, encoded};
use crate::ingest::{Bucket, Reads};

/// A file, and where it is from.
pub(super) struct Log {
    pub(super) name: String,
    pub(super) read: Reads,
    /// It may lack its last block.
    pub(super) unfinished: bool,
}

/// The files, oldest first, and the key of their seals.
pub(super) fn logs(args: &Args) -> anyhow::Result<(Vec<Log>, [u8; 32])> {
    let asked = || args.query.control.client()?.get::<LedgerOut>("/v1/ledger");
    if args.files.is_empty() {
        let shown = asked()?;
        let key = key(args.key.as_ref().unwrap_or(&shown.public_key))?;
        let control = args.query.control.client()?;
        let log = |file: LedgerFile| {
            let (control, save, name) = (control.clone(), args.save.clone(), file.name.clone());
            Log {
                name: file.name,
                read: Box::new(move || fetch(&control, &name, save.as_deref())),
                unfinished: file.open || args.unfinished,
            }
        };
        return Ok((shown.files.into_iter().map(log).collect(), key));
    }
    let key = match &args.key {
        Some(text) => key(text)?,
        None => key(&asked().context("whose seals are these? say --key")?.public_key)?,
    };
    let mut logs = Vec::new();
    for place in &args.files {
        match place.to_str().filter(|text| text.starts_with("s3:")) {
            Some(address) => logs.extend(in_bucket(args, address, &hex(&key))?),
            None if place.is_dir() => logs.extend(in_folder(args, place, &hex(&key))?),
            None => logs.push(of_file(args, place.clone())),
        }
    }
    Ok((logs, key))
}

fn fetch(control: &Control, name: &str, save: Option<&Path>) -> anyhow::Result<Vec<u8>> {
    let bytes = control.bytes(&format!("/v1/ledger/{}", encoded(name)))?;
    if let Some(folder) = save {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let path = folder.join(Path::new(name).file_name().context("a file without a name")?);
        fs::write(&path, &bytes).with_context(|| path.display().to_string())?;
    }
    Ok(bytes)
}

fn of_file(args: &Args, path: PathBuf) -> Log {
    let name = path.display().to_string();
    let read = move || fs::read(&path).with_context(|| path.display().to_string());
    Log { name, read: Box::new(read), unfinished: args.unfinished }
}

/// Of an archive those of the key, of any other folder all. Names begin with the number.
fn in_folder(args: &Args, folder: &Path, key: &str) -> anyhow::Result<Vec<Log>> {
    let of_key = folder.join(key);
    let folder = if of_key.is_dir() { of_key } else { folder.to_owned() };
    let shown = || folder.display().to_string();
    let mut paths = Vec::new();
    for entry in fs::read_dir(&folder).with_context(shown)? {
        paths.push(entry.with_context(shown)?.path());
    }
    paths.retain(|path| path.extension().is_some_and(|of| of == "ledger"));
    paths.sort();
    ensure!(!paths.is_empty(), "{} has no files of a ledger, nor {key}/", shown());
    Ok(paths.into_iter().map(|path| of_file(args, path)).collect())
}

/// The files of the key below an archive's address.
fn in_bucket(args: &Args, address: &str, key: &str) -> anyhow::Result<Vec<Log>> {
    ensure!(
        address.ends_with('/'),
        "\"{address}\" is not a bucket: write s3://BUCKET/PREFIX/, with a slash at the end"
    );
    let of_key = format!("{key}/");
    let address = match address.ends_with(&of_key) {
        true => address.to_owned(),
        false => format!("{address}{of_key}"),
    };
    let files = Bucket::open(&address, &args.server)?.readers();
    let files = files.context("no files of the process with this key can be read")?;
    let logs = files.into_iter().filter(|(path, _)| path.ends_with(".ledger"));
    let unfinished = args.unfinished;
    Ok(logs
        .map(|(path, read)| Log { name: format!("{address}{path}"), read, unfinished })
        .collect())
}

fn key(text: &str) -> anyhow::Result<[u8; 32]> {
    let mut key = [0; 32];
    ensure!(parse_hex(text, &mut key), "\"{text}\" is no key: 32 bytes in hex are wanted");
    Ok(key)
}
