//! What appliances report: what is let in of their files has its bounds, and one form.

use model::inventory::{Check, FILES_CHANGED_MAX, FILES_HELD_MAX};
use wire::convert::{files_in, files_out};
use wire::v1::report::Report;

/// Of more files, one by one is slow, and shows nothing else.
const SLOW_FROM: u64 = 1 << 12;

/// Files are no more than control can take in while others wait, survive the way out and in, and
/// have the same check, in whatever order they come and go.
pub fn report(bytes: &[u8]) {
    let Ok(read) = serde_json::from_slice::<Report>(bytes) else { return };
    let Some(Ok(files)) = read.files.as_ref().map(files_in) else { return };
    let most = if files.from == 0 { FILES_HELD_MAX } else { FILES_CHANGED_MAX };
    assert!(files.came.len() <= most, "{} came", files.came.len());
    assert!(files.gone.len() <= FILES_CHANGED_MAX, "{} are gone", files.gone.len());
    assert!(files.check.count <= FILES_HELD_MAX, "{} are held", files.check.count);
    let out = files_out(&files);
    assert_eq!(files_in(&out), Ok(files.clone()), "files survive the way out and in");
    if SLOW_FROM < files.came.len() + files.gone.len() {
        return;
    }
    let mut check = Check::default();
    files.gone.iter().for_each(|file| check.put_file(file));
    files.came.iter().for_each(|file| check.put_file(file));
    files.gone.iter().for_each(|file| check.take_file(file));
    assert_eq!(check, Check::of_files(&files.came), "a check is kept up with each change");
}
