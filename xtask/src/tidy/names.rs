//! Words that the glossary bans, in names that others see.

use super::{Breach, Source, breach};
use crate::lexer::{Kind, Token, closing};
use crate::map::{self, marks};

/// Words after which comes the name of an item.
const ITEMS: [&str; 9] =
    ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "union"];
/// Words that may stand between `pub` and the item's.
const QUALIFIERS: [&str; 4] = ["async", "unsafe", "extern", "default"];
/// Items that are things. Some words are banned for things only: `sync` is a fine verb.
const THINGS: [&str; 6] = ["struct", "enum", "trait", "type", "mod", "union"];

/// A word, and whether it is banned for things only.
pub(crate) type Banned = (String, bool);

/// The banned words of docs/glossary.md: marked words in the table "| never | say", those followed
/// by `(noun)` for things only.
pub(crate) fn banned_words(glossary: &str) -> Result<Vec<Banned>, String> {
    let rows = map::rows(glossary, "| never | say")?;
    let cells = rows.filter_map(|line| line.trim_matches('|').split('|').next());
    let words = |cell| marks(cell).into_iter().map(move |word| (word, cell.contains("(noun)")));
    Ok(cells.flat_map(words).collect())
}

pub(super) fn banned_names(source: &Source, tokens: &[Token], banned: &[Banned]) -> Vec<Breach> {
    let mut found = Vec::new();
    for (name, item, line) in public_names(tokens) {
        let thing = THINGS.contains(&item);
        for word in words(name) {
            let single = word.strip_suffix('s').unwrap_or(&word);
            let bans = |(entry, only_things): &Banned| {
                (*entry == word || entry == single) && (thing || !only_things)
            };
            if banned.iter().any(bans) {
                let text = format!(
                    "{name} contains \"{word}\": docs/glossary.md says which word we use instead"
                );
                found.push(breach("name", &source.path, line, text));
            }
        }
    }
    found
}

/// Name, kind of item and line of all that is `pub` in any degree; enums with their variants.
fn public_names(tokens: &[Token]) -> Vec<(&str, &str, usize)> {
    let mut found = Vec::new();
    for index in (0..tokens.len()).filter(|index| tokens[*index].is_word("pub")) {
        let mut at = index + 1;
        if tokens.get(at).is_some_and(|token| token.is_mark('(')) {
            at = closing(tokens, at) + 1;
        }
        let Some((item, at)) = item(tokens, at) else { continue };
        let Some(name) = tokens.get(at).and_then(Token::word) else { continue };
        found.push((name, item, tokens[at].line));
        if item == "enum" {
            found.extend(variants(tokens, at));
        }
    }
    found
}

/// The word for what is declared from `at` on, and where its name is.
fn item(tokens: &[Token], mut at: usize) -> Option<(&str, usize)> {
    loop {
        let word = tokens.get(at)?.word()?;
        let next = tokens.get(at + 1)?;
        let of_function = next.word().is_some_and(|w| w == "fn" || QUALIFIERS.contains(&w));
        if QUALIFIERS.contains(&word) || (word == "const" && of_function) {
            // Steps over the "C" of `extern "C"` too.
            at += if matches!(next.kind, Kind::Text(_)) { 2 } else { 1 };
        } else if ITEMS.contains(&word) {
            let skipped = usize::from(next.is_word("mut"));
            return Some((word, at + 1 + skipped));
        } else if next.is_mark(':') && !tokens.get(at + 2)?.is_mark(':') {
            return Some(("field", at));
        } else {
            return None;
        }
    }
}

/// The variants of the enum whose name is at `at`.
fn variants(tokens: &[Token], at: usize) -> Vec<(&str, &str, usize)> {
    let Some(open) = (at..tokens.len()).find(|i| tokens[*i].is_mark('{')) else {
        return Vec::new();
    };
    let end = closing(tokens, open);
    let mut found = Vec::new();
    let mut expected = true;
    let mut at = open + 1;
    while at < end {
        match &tokens[at].kind {
            Kind::Mark(',') => expected = true,
            Kind::Mark('(' | '[' | '{') => at = closing(tokens, at),
            Kind::Word(name) if expected => {
                found.push((name.as_str(), "variant", tokens[at].line));
                expected = false;
            }
            Kind::Mark(_) | Kind::Word(_) | Kind::Text(_) | Kind::Other => {}
        }
        at += 1;
    }
    found
}

/// `DiskCache`, `disk_cache` and `DISK_CACHE` are the words disk and cache.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        was_lower = c.is_lowercase();
        if c != '_'
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexer::tokens;

    #[track_caller]
    fn check(text: &str, want: &[&str]) {
        let banned = banned_words(GLOSSARY).unwrap();
        let source = Source { path: "a.rs".into(), text: text.into() };
        let found = banned_names(&source, &tokens(text), &banned);
        let found: Vec<_> = found.iter().filter_map(|b| b.text.split(' ').next()).collect();
        assert_eq!(found, want, "{text}");
    }

    #[test]
    fn banned_words_in_public_names_are_refused() {
        check("pub struct DriveCache;", &["DriveCache"]);
        check("pub(crate) fn list_nodes() {}", &["list_nodes"]);
        check("pub const DISK_COUNT: u8 = 1;", &["DISK_COUNT"]);
        check("pub mod util; pub mod store;", &["util"]);
        check("pub static mut NODE: u8 = 1;", &["NODE"]);
        check("pub const unsafe extern \"C\" fn node() {}", &["node"]);
        check("pub struct A { pub node: u8, pub drive: u8 }", &["node"]);
        check("pub enum A { #[x(Node)] Drive(Node), Node { disk: u8 }, Ok }", &["Node"]);
    }

    #[test]
    fn private_names_and_other_words_pass() {
        check("struct Node; fn cache() {} let disk = 1;", &[]);
        check("pub fn nodeless() -> Node {}", &[]);
        check("pub use a::Node; pub struct P(pub Node); pub struct Q(pub a::Node);", &[]);
    }

    #[test]
    fn some_words_are_banned_for_things_only() {
        check(
            "pub mod sync; pub struct DriveSync; pub fn sync_directory() {}",
            &["sync", "DriveSync"],
        );
    }

    #[test]
    fn a_glossary_without_the_table_is_an_error() {
        assert!(banned_words("# Words").is_err());
    }

    const GLOSSARY: &str = "\
| never | say |
| --- | --- |
| `cache` `node` | `appliance` |
| `disk` | `drive` |
| `util` | what it is |
| `sync` (noun) | `fill` |
";
}
