//! SECURITY.md's claims must be shown: each test that it names is there.

use std::collections::BTreeSet;

use super::{Breach, Source, breach};
use crate::lexer::{Token, closing, tokens};

const CLAIMS: &str = "SECURITY.md";

/// Tests named in the tables of SECURITY.md (`a_name_of_words` in back quotes) that no source has.
pub(super) fn unproved(sources: &[Source]) -> Vec<Breach> {
    let Some(claims) = sources.iter().find(|source| source.path == CLAIMS) else {
        return Vec::new();
    };
    let known = tests_of(sources);
    let mut found = Vec::new();
    for (index, line) in claims.text.lines().enumerate().filter(|(_, line)| line.starts_with('|')) {
        for name in line.split('`').skip(1).step_by(2).filter(|name| is_test_name(name)) {
            if !known.contains(name) {
                let text = format!("no test is called {name}: name the one that shows this");
                found.push(breach("claim", CLAIMS, index + 1, text));
            }
        }
    }
    found
}

/// Three words or more, as our tests are named; `seccomp` or `token_key` are none.
fn is_test_name(name: &str) -> bool {
    let letters = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    2 <= name.matches('_').count() && name.bytes().all(letters)
}

/// Names of tests: a function below an attribute that ends in `test`, other attributes between them
/// or not; and `of!(name`, a line in the table of a test that is its own harness.
fn tests_of(sources: &[Source]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for source in sources.iter().filter(|source| source.extension() == "rs") {
        let tokens = tokens(&source.text);
        let mut rest = &tokens[..];
        let mut is_test = false;
        while let [token, after @ ..] = rest {
            rest = after;
            if token.is_mark('#') && after.first().is_some_and(|next| next.is_mark('[')) {
                let end = closing(after, 0);
                is_test |= names_a_test(after.get(1..end).unwrap_or_default());
                rest = after.get(end + 1..).unwrap_or_default();
                continue;
            }
            let name = match after {
                [name, ..] if token.is_word("fn") && is_test => name.word(),
                [bang, open, name, ..]
                    if token.is_word("of") && bang.is_mark('!') && open.is_mark('(') =>
                {
                    name.word()
                }
                _ => None,
            };
            names.extend(name.map(str::to_owned));
            is_test &= token.is_word("async") || token.is_word("pub");
        }
    }
    names
}

/// `test`, or `tokio::test`, whatever stands in parentheses behind it.
fn names_a_test(attribute: &[Token]) -> bool {
    let path = attribute.iter().take_while(|token| !token.is_mark('('));
    path.last().is_some_and(|word| word.is_word("test"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_needs_the_test_that_it_names() {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let claims = source(
            CLAIMS,
            "`not_in_a_table`\n| a stranger | `http1` | `a_stranger_is_refused` |\n\
             | a thief | | `a_thief_is_refused`, `./x lab cut` |\n",
        );
        let test = source("pure/x/src/lib.rs", "#[test]\nfn a_stranger_is_refused() {}\n");
        let found = unproved(&[claims, test]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].line == 3 && found[0].text.contains("a_thief_is_refused"), "{found:?}");
    }

    #[test]
    fn only_what_is_run_as_a_test_is_one() {
        let text = "#[test]\nfn plain_test_of_it() {}\n\
                    #[tokio::test(flavor = \"x\")]\nasync fn awaited_test_of_it() {}\n\
                    #[test]\n#[expect(dead_code, reason = \"[test]\")]\nfn with_more_above() {}\n\
                    #[test]\n#[cfg(a)]\npub fn seen_by_others_too() {}\n\
                    const TRIES: &[Try] = &[of!(cannot_do_that_here, \"EPERM\")];\n\
                    fn no_test_at_all() {}\n#[cfg(test)]\nfn help_for_tests_only() {}\n\
                    #[test]\nfn one() { fn inside_of_a_test() {} }\n\
                    // #[test]\nfn above_in_a_comment() {}\n";
        let source = Source { path: "a/src/lib.rs".into(), text: text.into() };
        let mut names = tests_of(&[source]);
        assert!(names.remove("one"));
        let expected = [
            "awaited_test_of_it",
            "cannot_do_that_here",
            "plain_test_of_it",
            "seen_by_others_too",
            "with_more_above",
        ];
        assert!(names.iter().eq(expected.iter()), "{names:?}");
    }
}
