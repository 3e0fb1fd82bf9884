//! What a peer serves while it is asked: the files that the appliance's tests publish.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use rig::peer::nginx;
use rig::process::Process;

use super::table::Names;

pub(crate) const CONTENT: &[u8; 64] =
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";

/// When it was changed: the example of RFC 9110 section 5.6.7, Sun, 06 Nov 1994 08:49:37 GMT.
const MODIFIED: u64 = 784_111_777;
/// 2100-01-01, for the file whose time is yet to come.
const LATER: u64 = 4_102_444_800;

/// Starts nginx on the files.
pub(crate) fn by_nginx(address: SocketAddr, names: &Names, room: &Path) -> Result<Process> {
    let root = room.join("www");
    let files: [(&str, &[u8], u64); 3] = [
        (&names.path, CONTENT, MODIFIED),
        (&names.empty, b"", MODIFIED),
        (&names.later, CONTENT, LATER),
    ];
    for (path, content, modified) in files {
        let path = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
        fs::write(&path, content)?;
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(modified);
        File::options().write(true).open(&path)?.set_modified(at)?;
    }
    nginx::start_plain(address, &root, room)
}

/// The peer knows no tokens: to it they are folders, and a forged one is none. Its ETag is the time
/// and the length.
pub(crate) fn names() -> Names {
    let token = format!("k1.tro8w0.0.AAECAwQFBgcICQoL.{}", "s".repeat(86));
    let forged = token.replace('s', "A");
    Names {
        path: format!("/t/{token}/film-1/v.mp4"),
        etag: format!("\"{MODIFIED:x}-{:x}\"", CONTENT.len()),
        empty: format!("/t/{token}/film-1/empty.mp4"),
        later: format!("/t/{token}/film-3/v.mp4"),
        token,
        forged,
    }
}
