//! What SECURITY.md claims must be shown: each test that it names is there.

use std::collections::BTreeSet;

use super::{Breach, Source};
use crate::lexer::{Kind, tokens};

const CLAIMS: &str = "SECURITY.md";

/// Tests named in the tables of SECURITY.md (`a_name_of_words` in back quotes) that no source has.
pub(super) fn unproved(sources: &[Source]) -> Vec<Breach> {
    let Some(claims) = sources.iter().find(|source| source.path == CLAIMS) else {
        return Vec::new();
    };
    let known = functions(sources);
    let mut found = Vec::new();
    for (index, line) in claims.text.lines().enumerate().filter(|(_, line)| line.starts_with('|')) {
        for name in line.split('`').skip(1).step_by(2).filter(|name| is_test_name(name)) {
            if !known.contains(name) {
                let text = format!("no test is called {name}: name the one that shows this");
                let path = CLAIMS.to_owned();
                let subject = name.to_owned();
                found.push(Breach {
                    rule: "claim",
                    path,
                    subject,
                    line: index + 1,
                    amount: 1,
                    text,
                });
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

fn functions(sources: &[Source]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for source in sources.iter().filter(|source| source.extension() == "rs") {
        for pair in tokens(&source.text).windows(2) {
            if let [keyword, name] = pair
                && matches!(&keyword.kind, Kind::Word(word) if word == "fn")
                && let Kind::Word(name) = &name.kind
            {
                names.insert(name.clone());
            }
        }
    }
    names
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
        assert_eq!((found[0].line, &*found[0].subject), (3, "a_thief_is_refused"));
    }
}
