//! The rules of form.

use std::collections::BTreeSet;

use super::{Breach, Source, breach};
use crate::lexer::{Kind, Token, closing, tokens};

const COLUMNS_MAX: usize = 100;
const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 1_000;

/// A breach for each line of which `find` has something to say; it is given the line's number.
fn in_lines(
    rule: &'static str,
    source: &Source,
    find: impl Fn(usize, &str) -> Option<String>,
) -> Vec<Breach> {
    let lines = (1..).zip(source.text.lines());
    lines.filter_map(|(at, line)| Some(breach(rule, &source.path, at, find(at, line)?))).collect()
}

/// Lines over 100 columns, but for what cannot be broken: a row of a Markdown table, a word that is
/// itself too long, a line inside a string of several lines.
pub(super) fn long_lines(source: &Source) -> Vec<Breach> {
    let table = |line: &str| source.extension() == "md" && line.starts_with('|');
    let word = |line: &str| {
        let longest = line.split_whitespace().map(|word| word.chars().count()).max();
        let indent = line.chars().take_while(|c| c.is_whitespace()).count();
        COLUMNS_MAX < indent + longest.unwrap_or(0)
    };
    let quoted = lines_in_texts(source);
    in_lines("line", source, |at, line| {
        let columns = line.chars().count();
        let unbreakable = || table(line) || word(line) || quoted.contains(&at);
        (COLUMNS_MAX < columns && !unbreakable())
            .then(|| format!("the line has {columns} columns, over {COLUMNS_MAX}: break it"))
    })
}

/// Lines of a Rust file that lie in a string of several lines, without a `\\` that joins them.
fn lines_in_texts(source: &Source) -> BTreeSet<usize> {
    let mut lines = BTreeSet::new();
    if source.extension() == "rs" {
        for token in tokens(&source.text) {
            if let Kind::Text(text) = &token.kind
                && !text.contains("\\\n")
                && token.line < token.end
            {
                lines.extend(token.line..=token.end);
            }
        }
    }
    lines
}

pub(super) fn long_file(source: &Source) -> Option<Breach> {
    let lines = source.text.lines().count();
    let text = format!("the file has {lines} lines: split it where the piece has a name");
    (FILE_LINES_MAX < lines).then(|| breach("file", &source.path, lines, text))
}

/// Functions over 70 lines, from `fn` to the closing brace.
pub(super) fn long_functions(source: &Source, tokens: &[Token]) -> Vec<Breach> {
    let mut found = Vec::new();
    for (index, pair) in tokens.windows(2).enumerate() {
        let [keyword, name] = pair else { continue };
        let Some(name) = name.word().filter(|_| keyword.is_word("fn")) else { continue };
        let Some(open) = body(tokens, index + 2) else { continue };
        let lines = tokens[closing(tokens, open)].line - keyword.line + 1;
        if FUNCTION_LINES_MAX < lines {
            let text = format!(
                "{name} has {lines} lines, over {FUNCTION_LINES_MAX}: give a piece of it a name"
            );
            found.push(breach("function", &source.path, keyword.line, text));
        }
    }
    found
}

/// The brace that opens the body; none for a declaration.
fn body(tokens: &[Token], mut at: usize) -> Option<usize> {
    loop {
        match tokens.get(at)?.kind {
            Kind::Mark('{') => return Some(at),
            Kind::Mark(';') => return None,
            Kind::Mark('(' | '[') => at = closing(tokens, at),
            Kind::Mark(_) | Kind::Word(_) | Kind::Text(_) | Kind::Other => {}
        }
        at += 1;
    }
}

/// Notes to fix something later.
pub(super) fn markers(source: &Source) -> Vec<Breach> {
    // Written in two halves, so that this file passes.
    let banned = [concat!("FIX", "ME"), concat!("TO", "DO"), concat!("XX", "X")];
    in_lines("marker", source, |_, line| {
        let mut words = line.split(|c: char| !c.is_alphanumeric());
        let word = words.find(|word| banned.contains(word))?;
        Some(format!("{word}: do it now, or open an issue and take the note out"))
    })
}

/// Macros that stand for missing code.
pub(super) fn stubs(source: &Source, tokens: &[Token]) -> Vec<Breach> {
    let stub = |pair: &[Token]| {
        let name = pair[0].word().filter(|name| ["todo", "unimplemented"].contains(name))?;
        let text = format!("{name}! stands for missing code: write it, or leave the promise out");
        pair[1].is_mark('!').then(|| breach("stub", &source.path, pair[0].line, text))
    };
    tokens.windows(2).filter_map(stub).collect()
}

pub(super) fn ignored_tests(source: &Source, tokens: &[Token]) -> Vec<Breach> {
    let ignored = |three: &[Token]| {
        let hit = three[0].is_mark('#') && three[1].is_mark('[') && three[2].is_word("ignore");
        let text = "an ignored test tests nothing: repair it, or move it to `./x nightly`";
        hit.then(|| breach("ignored", &source.path, three[0].line, text.into()))
    };
    tokens.windows(3).filter_map(ignored).collect()
}

/// A Prometheus text that states a metric's type and not its help, or a metric with empty help.
pub(super) fn silent_metrics(source: &Source, tokens: &[Token]) -> Vec<Breach> {
    let mut found = Vec::new();
    let has = |token: &&Token, word| matches!(&token.kind, Kind::Text(text) if text.contains(word));
    let says_help = tokens.iter().any(|token| has(&token, "# HELP"));
    for token in tokens.iter().filter(|token| has(token, "# TYPE") && !says_help) {
        let text = "a metric's # TYPE without its # HELP: say what it counts, and in what unit";
        found.push(breach("metric", &source.path, token.line, text.into()));
    }
    for pair in tokens.windows(3) {
        let empty = pair[2].kind == Kind::Text(String::new());
        if pair[0].is_word("help") && pair[1].is_mark(':') && empty {
            let text = "a metric without help: say what it counts, and in what unit";
            found.push(breach("metric", &source.path, pair[2].line, text.into()));
        }
    }
    found
}

/// Public items of the rooms that others import which have no doc. Fields and variants need none
/// where name and type say it all.
pub(super) fn undocumented(source: &Source) -> Vec<Breach> {
    const ITEMS: [&str; 8] =
        ["fn ", "const ", "struct ", "enum ", "trait ", "type ", "static ", "unsafe fn "];
    let layers = ["base/", "pure/", "shell/"];
    let is_library = layers.iter().any(|layer| source.path.starts_with(layer))
        && source.path.contains("/src/")
        && !source.path.ends_with("tests.rs");
    let mut found = Vec::new();
    let (mut has_doc, mut open) = (false, 0);
    for (index, line) in source.text.lines().map(str::trim_start).enumerate() {
        let public = line.strip_prefix("pub ");
        if is_library
            && !has_doc
            && public.is_some_and(|rest| ITEMS.iter().any(|item| rest.starts_with(item)))
        {
            let text = "a public item without a doc: say what its name and signature cannot";
            found.push(breach("doc", &source.path, index + 1, text.into()));
        }
        // Attributes, of several lines too, stand between an item and its doc.
        let brackets = |mark| i64::try_from(line.matches(mark).count()).unwrap_or(0);
        let is_attribute = 0 < open || line.starts_with("#[");
        open = if is_attribute { open + brackets('[') - brackets(']') } else { 0 };
        // A macro is given the docs of its items.
        has_doc = line.starts_with("///") || line.contains("#[$") || has_doc && is_attribute;
    }
    found
}

/// Paths that exist on one person's machine only.
pub(super) fn machine_paths(source: &Source) -> Vec<Breach> {
    let roots = [
        concat!("/ho", "me/"),
        concat!("/ro", "ot/"),
        concat!("/Us", "ers/"),
        concat!("/wo", "rk/"),
    ];
    in_lines("path", source, |_, line| {
        let root = roots.iter().find(|root| starts_a_path(line, root))?;
        Some(format!("{root} is a path of one machine: use a relative or a given one"))
    })
}

/// True if `root` stands in the line as the beginning of a path, not inside a longer one.
fn starts_a_path(line: &str, root: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || "._-/}*".contains(c);
    line.match_indices(root).any(|(at, _)| !line[..at].ends_with(inside))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexer::tokens;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    #[track_caller]
    fn check(found: impl IntoIterator<Item = Breach>, want: &[(usize, &str)]) {
        let found: Vec<_> = found.into_iter().map(|found| (found.line, found.text)).collect();
        let same = found.iter().zip(want).all(|(of, want)| of.0 == want.0 && of.1.contains(want.1));
        assert!(same && found.len() == want.len(), "found {found:?}, wanted {want:?}");
    }

    #[track_caller]
    fn check_rust(rule: fn(&Source, &[Token]) -> Vec<Breach>, text: &str, want: &[usize]) {
        let found = rule(&source("a.rs", text), &tokens(text));
        assert_eq!(found.iter().map(|b| b.line).collect::<Vec<_>>(), want, "{text}");
    }

    #[test]
    fn public_items_of_libraries_have_docs() {
        let of = |path: &str, text: &str| {
            let source = Source { path: path.into(), text: text.into() };
            undocumented(&source).len()
        };
        assert_eq!(of("pure/x/src/lib.rs", "pub fn bare() {}\n"), 1);
        assert_eq!(of("tools/x/src/lib.rs", "pub fn bare() {}\n"), 0);
        let attributes = "/// Said.\n#[error(\n    \"text\"\n)]\npub struct Said(u8);\n";
        assert_eq!(of("pure/x/src/lib.rs", attributes), 0);
        assert_eq!(of("pure/x/src/lib.rs", "/// Said.\nlet x = 1;\npub enum Bare {}\n"), 1);
        assert_eq!(
            of("pure/x/src/lib.rs", "/// Said.\npub struct Said {\n    pub field: u8,\n}"),
            0
        );
    }

    #[test]
    fn a_line_of_101_columns_is_refused() {
        let text = format!("{}\n{}\n", "é ".repeat(50), "é ".repeat(50) + "é");
        check(long_lines(&source("a.rs", &text)), &[(2, "")]);
    }

    #[test]
    fn a_line_that_cannot_be_broken_is_excused() {
        let word = "x".repeat(101);
        check(long_lines(&source("a.css", &format!("/* {word} */"))), &[]);
        let words = "x ".repeat(51);
        check(long_lines(&source("a.md", &format!("| {words}|\n{words}"))), &[(2, "")]);
        check(long_lines(&source("a.rs", &format!("| {words}|"))), &[(1, "")]);
        check(long_lines(&source("a.rs", &format!("f(r\"\n{words}\n\")"))), &[]);
        check(long_lines(&source("a.rs", &format!("f(\"\\\n{words}\")"))), &[(2, "")]);
        check(long_lines(&source("a.rs", &format!("f(\"{words}\")"))), &[(1, "")]);
    }

    #[test]
    fn a_file_of_1001_lines_is_refused() {
        check(long_file(&source("a.rs", &"\n".repeat(1_000))), &[]);
        check(long_file(&source("a.rs", &"\n".repeat(1_001))), &[(1_001, "1001 lines")]);
    }

    #[test]
    fn a_function_of_71_lines_is_refused() {
        let function =
            |lines: usize| format!("\nfn f(a: [u8; {{2}}]) -> u8 {{{}}}", "\n".repeat(lines - 1));
        let found = |text: &str| long_functions(&source("a.rs", text), &tokens(text));
        check(found(&function(70)), &[]);
        check(found(&function(71)), &[(2, "f has 71 lines")]);
        check(found(&format!("trait T {{ fn g(); {} }}", function(71))), &[(2, "f has 71 lines")]);
        check(found(&format!("type F = fn(u8); mod m {{ {} }}", "\n".repeat(99))), &[]);
    }

    #[test]
    fn notes_to_fix_later_are_refused() {
        let text =
            format!("// {}: later\nlet {}S = 1;\n", concat!("TO", "DO"), concat!("TO", "DO"));
        check(markers(&source("a.rs", &text)), &[(1, "")]);
        check(markers(&source("x", concat!("# FIX", "ME(me)"))), &[(1, "")]);
        check(markers(&source("a.css", concat!("/* XX", "X */"))), &[(1, "")]);
    }

    #[test]
    fn stubs_are_refused() {
        check_rust(stubs, "fn f() {\n todo!() }\nfn g() { unimplemented!(\"x\") }", &[2, 3]);
        check_rust(stubs, "// todo!()\nlet todo = \"todo!()\";", &[]);
    }

    #[test]
    fn ignored_tests_are_refused() {
        check_rust(ignored_tests, "#[test]\n#[ignore = \"slow\"]\nfn f() {}", &[2]);
        check_rust(ignored_tests, "// #[ignore]\nfn ignore() {}", &[]);
    }

    #[test]
    fn metrics_without_help_are_refused() {
        check_rust(silent_metrics, "Row { name: \"a\",\nhelp: \"\" }", &[2]);
        check_rust(silent_metrics, "Row { name: \"a\", help: \"Bytes sent.\" }", &[]);
        check_rust(silent_metrics, "write!(\"# TYPE a counter\")", &[1]);
        check_rust(silent_metrics, "write!(\"# HELP a Bytes.\\n# TYPE a counter\")", &[]);
    }

    #[test]
    fn paths_of_one_machine_are_refused() {
        let text = [concat!("cd /ho", "me/me"), concat!("a/ho", "me/b"), "/var/lib"].join("\n");
        check(machine_paths(&source("a.md", &text)), &[(1, "")]);
        check(machine_paths(&source("a.json", concat!("\"/wo", "rk/x\""))), &[(1, "")]);
    }
}
