//! Counts assertions in `pure/`: a decision asserts the facts that it takes for granted.

use super::{Breach, Source, breach};
use crate::lexer::{Token, tokens, without_tests};

const ROOMS: &str = "pure/";
/// At least so many in a thousand lines, tests left out.
const PER_1000_LINES: usize = 12;

/// Too few assertions in all of `pure/` together: some rooms have state, and some have none.
pub(super) fn too_few(sources: &[Source]) -> Option<Breach> {
    let (mut assertions, mut lines) = (0, 0);
    for source in sources.iter().filter(|source| is_counted(&source.path)) {
        let (tokens, tests) = without_tests(tokens(&source.text));
        assertions += tokens.windows(2).filter(|pair| is_assertion(pair)).count();
        lines += source.text.lines().count().saturating_sub(tests);
    }
    let missing = (lines * PER_1000_LINES).div_ceil(1000).saturating_sub(assertions);
    let text = format!(
        "{assertions} assertions in {lines} lines of {ROOMS}, {missing} fewer than \
         {PER_1000_LINES} in 1,000: say what must be true where it is relied on"
    );
    (0 < missing).then(|| breach("assertions", ROOMS, 0, text))
}

fn is_counted(path: &str) -> bool {
    let name = path.rsplit('/').next().and_then(|name| name.strip_suffix(".rs"));
    let is_code = name.is_some_and(|name| name != "tests" && !name.ends_with("_tests"));
    path.starts_with(ROOMS) && path.contains("/src/") && is_code
}

fn is_assertion(pair: &[Token]) -> bool {
    let name = pair[0].word().map(|word| word.strip_prefix("debug_").unwrap_or(word));
    let is_one = name.is_some_and(|name| ["assert", "assert_eq", "assert_ne"].contains(&name));
    is_one && pair[1].is_mark('!')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_without_state_may_lean_on_one_that_asserts() {
        let source = |path: &str, asserts: usize, lines: usize| {
            let text = "assert!(a);\n".repeat(asserts) + &"\n".repeat(lines - asserts);
            Source { path: path.into(), text }
        };
        let few = |sources: &[Source]| {
            let found = too_few(sources)?.text;
            found.split(", ").nth(1)?.split(' ').next()?.parse::<usize>().ok()
        };
        assert_eq!(few(&[source("pure/a/src/lib.rs", 12, 1000)]), None);
        assert_eq!(few(&[source("pure/a/src/lib.rs", 11, 1000)]), Some(1));
        let two = [source("pure/a/src/lib.rs", 24, 1000), source("pure/b/src/c.rs", 0, 1000)];
        assert_eq!(few(&two), None);
        assert_eq!(few(&[source("shell/a/src/lib.rs", 0, 1000)]), None);
        let tests = [source("pure/a/src/lib.rs", 0, 1000), source("pure/a/src/tests.rs", 90, 100)];
        assert_eq!(few(&tests), Some(12), "tests count for nothing");
        let text = format!("{}#[cfg(test)]\nmod tests {{\nassert!(a);\n}}\n", "\n".repeat(1000));
        assert_eq!(few(&[Source { path: "pure/a/src/b.rs".into(), text }]), Some(12));
    }
}
