//! The one form of a path inside an asset version.

use crate::limits::PATH_LEN_MAX;

/// True of a path that may name a file of an asset version: relative, `/`-separated, no empty, `.`
/// or `..` parts, no control characters, no backslash, at most [`PATH_LEN_MAX`] bytes.
///
/// A path in any other form is refused wherever it comes in, and never brought into this one: two
/// readers of one path could otherwise mean two files.
pub fn is_path(path: &str) -> bool {
    let part_is_good = |part: &str| !part.is_empty() && part != "." && part != "..";
    path.len() <= PATH_LEN_MAX
        && path.split('/').all(part_is_good)
        && !path.contains(|c: char| c.is_control() || c == '\\')
}

/// The first `depth` parts of `path`; none if it has fewer. Zero of them is the empty text.
pub fn first_parts(path: &str, depth: usize) -> Option<&str> {
    let Some(last) = depth.checked_sub(1) else { return Some("") };
    let mut ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    ends.nth(last).map(|end| &path[..end])
}

/// True if `path` is `prefix` or begins with all its parts. Every path is below the empty text.
pub fn is_below(path: &str, prefix: &str) -> bool {
    let rest = path.strip_prefix(prefix);
    rest.is_some_and(|rest| prefix.is_empty() || rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_form() {
        for good in ["a", "a/b", "v/r0.mp4", "é b/…", "a..b/.c/d.", &"x".repeat(PATH_LEN_MAX)] {
            assert!(is_path(good), "{good}");
        }
        let long = "x".repeat(PATH_LEN_MAX + 1);
        let bad = ["", "/", "/a", "a/", "a//b", ".", "..", "a/./b", "a/../b", "a\\b", "a\0", "\n"];
        for bad in bad.into_iter().chain(["a\u{85}b", &long]) {
            assert!(!is_path(bad), "{bad}");
        }
    }

    #[test]
    fn first_parts_are_counted_from_the_left() {
        for (depth, parts) in [(0, Some("")), (1, Some("a")), (2, Some("a/b")), (3, None)] {
            assert_eq!(first_parts("a/b", depth), parts, "{depth}");
        }
        assert_eq!(first_parts("a", usize::MAX), None);
    }

    #[test]
    fn below_is_by_whole_parts() {
        for (path, prefix) in [("a/b", ""), ("a/b", "a"), ("a/b", "a/b")] {
            assert!(is_below(path, prefix), "{path} {prefix}");
        }
        for (path, prefix) in [("ab", "a"), ("a", "a/b"), ("b/a", "a"), ("A/b", "a")] {
            assert!(!is_below(path, prefix), "{path} {prefix}");
        }
    }
}
