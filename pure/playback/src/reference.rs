//! A URI reference in a manifest, and the file of the asset version that it means.
//!
//! Paths are as in `model::manifest::AssetVersion::files`: relative to the version's root,
//! `/`-separated, not percent-encoded. References are as the packager wrote them. They are
//! resolved as browsers do (RFC 3986, section 5.2), but may not leave the version.

use std::collections::BTreeSet;

use model::limits::PATH_LEN_MAX;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::PlaylistError;

/// Where a reference leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The path, decoded. Ends in `/`, or is empty, if it is a directory.
    pub path: String,
    /// What followed the path: a query or a fragment as written, or nothing.
    pub suffix: String,
}

/// Files that a manifest refers to; bounded, and so is how often it refers to them: a template of
/// forty bytes can name one file a hundred thousand times.
#[derive(Debug)]
pub(crate) struct Files {
    paths: BTreeSet<String>,
    references: usize,
    files_max: usize,
    /// The first is enough.
    is_full: bool,
}

/// Resolves `uri`, found in the manifest at path `from`.
pub fn resolve(from: &str, uri: &str) -> Result<Target, PlaylistError> {
    let outside = || PlaylistError::Outside(uri.to_owned());
    let not_a_file = || PlaylistError::NotAFile(uri.to_owned());
    if is_absolute(uri) || uri.starts_with('/') {
        return Err(outside());
    }
    if URI_LEN_MAX < uri.len() {
        return Err(not_a_file());
    }
    let (path, suffix) = uri.split_at(uri.find(['?', '#']).unwrap_or(uri.len()));
    if path.is_empty() {
        return Err(not_a_file());
    }
    let mut parts: Vec<String> = directory(from).split_terminator('/').map(str::to_owned).collect();
    let mut ends_in_directory = false;
    for part in path.split('/') {
        let part = percent_decode_str(part).decode_utf8().map_err(|_| not_a_file())?;
        ends_in_directory = matches!(part.as_ref(), "" | "." | "..");
        match part.as_ref() {
            "" | "." => {}
            ".." => {
                parts.pop().ok_or_else(outside)?;
            }
            name if name.contains(|c: char| c.is_control() || c == '/' || c == '\\') => {
                return Err(not_a_file());
            }
            name => parts.push(name.to_owned()),
        }
    }
    if ends_in_directory && !parts.is_empty() {
        parts.push(String::new());
    }
    let path = parts.join("/");
    if PATH_LEN_MAX < path.len() {
        return Err(not_a_file());
    }
    Ok(Target { path, suffix: suffix.to_owned() })
}

/// True of a URI with a scheme (RFC 3986, section 3.1) or a host.
pub fn is_absolute(uri: &str) -> bool {
    let scheme_len = uri.find([':', '/', '?', '#']).unwrap_or(uri.len());
    let scheme = &uri[..scheme_len];
    let begins = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    uri.starts_with("//")
        || (uri[scheme_len..].starts_with(':')
            && begins
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)))
}

/// The directory of a path: all up to the last slash, that included; empty at the root.
pub fn directory(path: &str) -> &str {
    &path[..path.rfind('/').map_or(0, |slash| slash + 1)]
}

/// A path as it stands in a URL.
pub fn encode(path: &str) -> String {
    utf8_percent_encode(path, NOT_IN_PATH).to_string()
}

impl Target {
    /// The target under a base URL that ends in a slash.
    pub fn under(&self, base: &str) -> String {
        format!("{base}{}{}", encode(&self.path), self.suffix)
    }

    /// True of a target that can be a file.
    pub fn is_file(&self) -> bool {
        !self.path.is_empty() && !self.path.ends_with('/')
    }
}

impl Files {
    /// None yet, and never more than `files_max`, nor twice as many references.
    pub(crate) fn new(files_max: usize) -> Self {
        Self { paths: BTreeSet::new(), references: 0, files_max, is_full: false }
    }

    /// None yet, and one at most: whoever adds it is told that there are too many.
    pub(crate) fn one(files_max: usize) -> Self {
        Self { is_full: true, ..Self::new(files_max) }
    }

    pub(crate) fn files_max(&self) -> usize {
        self.files_max
    }

    /// Adds the file that `uri` means in the manifest at path `from`.
    pub(crate) fn add(&mut self, from: &str, uri: &str) -> Result<(), PlaylistError> {
        let target = resolve(from, uri)?;
        if target.is_file() { self.add_path(target.path) } else { not_a_file(uri) }
    }

    pub(crate) fn add_path(&mut self, path: String) -> Result<(), PlaylistError> {
        self.paths.insert(path);
        self.references += 1;
        let many = self.files_max < self.paths.len() || self.files_max * 2 < self.references;
        if many || self.is_full { Err(PlaylistError::TooManyFiles) } else { Ok(()) }
    }

    pub(crate) fn into_inner(self) -> BTreeSet<String> {
        self.paths
    }
}

fn not_a_file(uri: &str) -> Result<(), PlaylistError> {
    Err(PlaylistError::NotAFile(uri.to_owned()))
}

/// Longest reference: a path with every byte escaped, and a query. Templates copy theirs often.
const URI_LEN_MAX: usize = 8 * PATH_LEN_MAX;

/// All but the unreserved characters, the slash, and what a path may also hold and no attribute
/// or shell minds (RFC 3986, section 3.3).
const NOT_IN_PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/')
    .remove(b'+')
    .remove(b'=')
    .remove(b'@')
    .remove(b',');

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn references_resolve_against_the_directory_of_their_manifest() {
        check("master.m3u8", "v0.m3u8", "v0.m3u8");
        check("hls/master.m3u8", "v0.m3u8", "hls/v0.m3u8");
        check("hls/master.m3u8", "../media/v0.mp4", "media/v0.mp4");
        check("a/b/m.mpd", "./c//d.mp4", "a/b/c/d.mp4");
        check("a/b/m.mpd", "..", "a/");
        check("a/m.mpd", "../", "");
        check("a b/m.mpd", "c%20d%C3%A9.mp4", "a b/c dé.mp4");
        check("m.mpd", "v%2e%2e.mp4", "v...mp4");
        assert_eq!(resolve("m.m3u8", "k?a=/../b#c").unwrap().suffix, "?a=/../b#c");
    }

    #[test]
    fn what_leaves_the_directory_is_refused() {
        for uri in [
            "/v0.mp4",
            "//host/v0.mp4",
            "https://host/v0.mp4",
            "data:,x",
            "skd://k",
            "../x",
            "a/../../x",
            "%2e%2e/x",
        ] {
            let refused = resolve("master.m3u8", uri);
            assert_eq!(refused, Err(PlaylistError::Outside(uri.to_owned())), "{uri}");
        }
    }

    #[test]
    fn what_cannot_name_a_file_is_refused() {
        let long = "x".repeat(PATH_LEN_MAX + 1);
        for uri in ["", "?q", "#f", "a%2Fb", "a%5Cb", "a%00", "%ff", &long] {
            let refused = resolve("master.m3u8", uri);
            assert_eq!(refused, Err(PlaylistError::NotAFile(uri.to_owned())), "{uri}");
        }
        assert!(Files::new(1).add("m.m3u8", "dir/").is_err());
    }

    #[test]
    fn a_colon_in_a_later_part_is_no_scheme() {
        assert!(!is_absolute("./a:b") && !is_absolute("a/b:c") && !is_absolute("1a:b"));
        assert!(is_absolute("a:b") && is_absolute("HTTP+x-y.z:b"));
    }

    proptest! {
        #[test]
        fn a_path_survives_its_way_through_a_url(
            path in "[^/\\\\\\p{Cc}]{1,20}(/[^/\\\\\\p{Cc}]{1,20})?"
        ) {
            prop_assume!(path.split('/').all(|part| part != "." && part != ".."));
            let encoded = encode(&path);
            prop_assert!(encoded.is_ascii());
            let target = resolve("", &format!("./{encoded}")).unwrap();
            prop_assert_eq!(target.path, path);
        }

        #[test]
        fn no_reference_leads_outside(
            from in "[a-c/.]{0,9}", uri in "[a-c/.%2e?#:]{0,12}|.{0,20}"
        ) {
            if let Ok(target) = resolve(&from, &uri) {
                let good = |part: &str| part != "..";
                prop_assert!(!target.path.starts_with('/') || from.starts_with('/'));
                prop_assert!(target.path.split('/').all(good) || from.contains(".."));
            }
        }
    }

    fn check(from: &str, uri: &str, path: &str) {
        assert_eq!(resolve(from, uri).map(|target| target.path), Ok(path.to_owned()), "{uri}");
    }
}
