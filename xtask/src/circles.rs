//! Finds files of one room that import each other in a circle: none of them is read alone.
//!
//! ```text
//! use crate::a::b, super::c ──> edges between the parts of each folder ──> circles of them
//!                                (a part: a file, with the folder of its name)
//! ```
//!
//! A module and its children may know each other; what a test knows counts for nothing, and a name
//! that a module hands on is its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::lexer::{self, Token, closing};
use crate::rooms::Finding;
use crate::workspace::{Edges, Member, Workspace, reach};

/// The circles of all rooms, each with the folder that its modules are in.
pub(crate) fn find(workspace: &Workspace) -> Vec<Finding> {
    workspace.members.iter().flat_map(of_room).collect()
}

fn of_room(room: &Member) -> Vec<Finding> {
    let source = format!("{}/src/", room.folder);
    let modules: BTreeMap<Vec<&str>, &str> = room
        .sources
        .iter()
        .filter_map(|(path, text)| Some((module(path.strip_prefix(&source)?), text.as_str())))
        .filter(|(module, _)| !module.last().is_some_and(|name| is_test(name)))
        .collect();
    let mut folders: BTreeMap<&[&str], Edges> = BTreeMap::new();
    for (from, text) in &modules {
        for path in imports(text, from) {
            let mut to: Vec<&str> = path.iter().map(String::as_str).collect();
            while !to.is_empty() && !modules.contains_key(&to) {
                to.pop();
            }
            let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            // One is the other, or its parent.
            let (Some(a), Some(b)) = (from.get(common), to.get(common)) else { continue };
            let edges = folders.entry(&from[..common]).or_default();
            edges.entry((*a).to_owned()).or_default().insert((*b).to_owned());
        }
    }
    let circle = |(folder, edges): (&&[&str], &Edges)| {
        let place = [&[source.trim_end_matches('/')], *folder].concat().join("/");
        let finding = move |modules: BTreeSet<String>| {
            let modules: Vec<String> = modules.into_iter().collect();
            let text = format!(
                "{} import each other: move what they share below them all, or hand it in",
                modules.join(" ")
            );
            Finding { place: place.clone(), text }
        };
        mutual(edges).into_iter().map(finding).collect::<Vec<_>>()
    };
    folders.iter().flat_map(circle).collect()
}

/// The module of a file below `src/`.
fn module(path: &str) -> Vec<&str> {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let mut module: Vec<&str> = path.split('/').collect();
    module.pop_if(|last| ["mod", "lib", "main"].contains(last));
    module
}

fn is_test(name: &str) -> bool {
    name == "tests" || name.ends_with("_tests")
}

/// Groups of modules in which each reaches all others.
fn mutual(edges: &Edges) -> BTreeSet<BTreeSet<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        edges.keys().map(|from| (from, reach(edges, from))).collect();
    let group = |(from, all): (&&String, &BTreeSet<&String>)| {
        let is_back = |to: &&String| reached.get(to).is_some_and(|back| back.contains(from));
        all.iter().copied().filter(is_back).cloned().collect()
    };
    reached.iter().map(group).filter(|group: &BTreeSet<String>| 1 < group.len()).collect()
}

/// Paths that a file of `module` names, from the root of the room, tests left out.
fn imports(text: &str, module: &[&str]) -> Vec<Vec<String>> {
    let (tokens, _) = lexer::without_tests(lexer::tokens(text));
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let is_path =
            tokens[at].word().is_some_and(|word| ["crate", "super", "self"].contains(&word))
                && (at == 0 || !tokens[at - 1].is_mark(':'));
        if is_path {
            let mut paths = Vec::new();
            tree(&tokens, at, &[], &mut paths);
            found.extend(paths.iter().filter_map(|path| from_root(path, module)));
        }
    }
    found
}

/// Reads a path, or a tree of them in braces; says where it ends.
fn tree(tokens: &[Token], mut at: usize, before: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let mut path = before.to_vec();
    while let Some(token) = tokens.get(at) {
        if token.is_mark('{') {
            let end = closing(tokens, at);
            at += 1;
            while at < end {
                at = tree(tokens, at, &path, found).max(at + 1);
            }
            return end + 1;
        }
        let Some(word) = token.word() else { break };
        path.push(word.to_owned());
        let goes_on = |at: usize| tokens.get(at).is_some_and(|token| token.is_mark(':'));
        if !(goes_on(at + 1) && goes_on(at + 2)) {
            at += 1;
            break;
        }
        at += 3;
    }
    found.push(path);
    at
}

/// The path from the root of the room; none if it leads out of it.
fn from_root(path: &[String], module: &[&str]) -> Option<Vec<String>> {
    let mut root: Vec<String> = module.iter().map(|name| (*name).to_owned()).collect();
    let mut rest = path;
    while let [first, after @ ..] = rest {
        match first.as_str() {
            "crate" => root.clear(),
            "super" => root.pop().map(drop)?,
            "self" => {}
            _ => break,
        }
        rest = after;
    }
    root.extend_from_slice(rest);
    Some(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sources: &[(&str, &str)], want: &[&str]) {
        let source =
            |(path, text): &(&str, &str)| (format!("pure/x/src/{path}"), (*text).to_owned());
        let sources = sources.iter().map(source).collect();
        let room = Member { folder: "pure/x".to_owned(), sources, ..Member::default() };
        let found = of_room(&room);
        let shown = found.iter().map(|of| format!("{}: {}", of.place, of.text));
        let same = shown.zip(want).all(|(of, want)| of.starts_with(&format!("{want} import")));
        assert!(same && found.len() == want.len(), "{found:?}");
    }

    #[test]
    fn files_that_import_each_other_are_a_circle_however_long() {
        let a = ("a.rs", "use crate::b::B;");
        check(&[a, ("b.rs", "struct B;")], &[]);
        check(&[a, ("b.rs", "use super::a;")], &["pure/x/src: a b"]);
        check(
            &[a, ("b.rs", "fn f() { crate::c::g() }"), ("c.rs", "use crate::{d, a::{A, E}};")],
            &["pure/x/src: a b c"],
        );
        check(
            &[a, ("b/mod.rs", "mod c;"), ("b/c.rs", "use super::super::a;")],
            &["pure/x/src: a b"],
        );
        let siblings = [("b/c.rs", "use super::d::D;"), ("b/d.rs", "use crate::b::c;")];
        check(&siblings, &["pure/x/src/b: c d"]);
    }

    #[test]
    fn a_module_and_its_children_and_tests_may_know_each_other() {
        check(
            &[("lib.rs", "mod a; use a::A;"), ("a.rs", "use crate::Root; use super::Other;")],
            &[],
        );
        check(&[("a.rs", "use self::b::B;"), ("a/b.rs", "use super::A;")], &[]);
        let text =
            "#[cfg(test)]\npub(crate) mod tests { use crate::b::B; }\n#[cfg(test)]\nuse crate::b;";
        check(&[("a.rs", text), ("b.rs", "use crate::a;"), ("b_tests.rs", "use crate::a;")], &[]);
        check(
            &[("a.rs", "// crate::b\nconst B: &str = \"crate::b\";"), ("b.rs", "use crate::a;")],
            &[],
        );
    }
}
