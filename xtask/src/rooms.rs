//! Refuses breaches of the map: edges between rooms, libraries out of place, `unsafe`.
//!
//! The allowed edges and the libraries on a leash are tables in ARCHITECTURE.md. The rules below
//! them are fixed, and bind the tables too: a table that lets an import go up is itself refused.

use std::collections::{BTreeMap, BTreeSet};

use toml::Value;

use crate::lexer;
use crate::map::Map;
use crate::workspace::{self, Edges, Member, Workspace};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// The file to open, with the line where there is one.
    pub(crate) place: String,
    /// The fault and the remedy.
    pub(crate) text: String,
}

/// Layers, lowest first. Imports go down, or stay within `shell/`.
const LAYERS: [&str; 5] = ["base/", "pure/", "shell/", "tools/", "xtask"];
const COMPOSERS: [&str; 5] = ["worker", "holdings", "upkeep", "director", "ledger"];
const MAP: &str = "ARCHITECTURE.md";
/// Each must have a row in the table of libraries, so that no rule is lost by an edit.
const LEASHED: [&str; 4] = ["serde", "serde_json", "tokio", "anyhow"];
/// Rooms that hold `unsafe`, and where in them it may stand.
const UNSAFE: [(&str, &str); 2] = [("uring", "shell/uring/"), ("tls", "shell/tls/src/aead.rs")];

/// Everything that is wrong, sorted by place.
pub(crate) fn check(workspace: &Workspace, map: &Map, decisions: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    map_is_lawful(workspace, map, &mut findings);
    for member in &workspace.members {
        listed(member, map, &mut findings);
        modules(member, map, &mut findings);
        imports(workspace, member, map, &mut findings);
        libraries(workspace, member, map, &mut findings);
        lints(member, &mut findings);
        unsafe_words(member, &mut findings);
    }
    root_lints(workspace, &mut findings);
    library_records(workspace, decisions, &mut findings);
    findings.sort();
    findings.dedup();
    findings
}

fn add(findings: &mut Vec<Finding>, place: impl Into<String>, text: String) {
    findings.push(Finding { place: place.into(), text });
}

fn layer_rank(layer: &str) -> Option<usize> {
    LAYERS.iter().position(|known| *known == layer)
}

/// The tables name rooms that exist, and allow nothing that the fixed rules forbid.
fn map_is_lawful(workspace: &Workspace, map: &Map, findings: &mut Vec<Finding>) {
    let folders: BTreeSet<_> = workspace.members.iter().map(|m| m.folder.as_str()).collect();
    let by_name: BTreeMap<_, _> = workspace.members.iter().map(|m| (m.name(), m)).collect();
    for folder in map.rooms.keys().filter(|folder| !folders.contains(folder.as_str())) {
        add(findings, MAP, format!("the table of rooms has `{folder}`, which is not there"));
    }
    for (from, allowed) in &map.imports {
        let Some(importer) = by_name.get(from.as_str()) else {
            add(findings, MAP, format!("the table of imports has `{from}`, which is no room"));
            continue;
        };
        for to in allowed {
            match by_name.get(to.as_str()) {
                None => add(findings, MAP, format!("`{from}` may import `{to}`, which is no room")),
                Some(imported) => {
                    if let Some(why) = forbidden(importer, imported) {
                        add(findings, MAP, format!("`{from}` may not import `{to}`: {why}"));
                    }
                }
            }
        }
        if workspace::reach(&map.imports, from).contains(from) {
            add(findings, MAP, format!("the table of imports has a cycle through `{from}`"));
        }
    }
    for library in LEASHED.iter().filter(|library| !map.libraries.contains_key(**library)) {
        add(findings, MAP, format!("the table of libraries has no row for `{library}`"));
    }
}

/// The reason why no table may allow this edge.
fn forbidden(importer: &Member, imported: &Member) -> Option<&'static str> {
    let (from, to) = (importer.layer(), imported.layer());
    let planes = ["appliance", "control"];
    if layer_rank(&from) < layer_rank(&to) {
        Some("imports go down, from tools/ to shell/ to pure/ to base/")
    } else if to == "xtask" || to == "tools/" && from != "tools/" {
        Some("nothing imports a tool but another tool")
    } else if from == "pure/" && imported.name() == "wire" {
        Some("shells convert at the door, so that a change on the wire reaches no decision")
    } else if from == "pure/" && to == "pure/" && !COMPOSERS.contains(&importer.name()) {
        Some("few pure rooms compose others (ARCHITECTURE.md); what two share is a noun")
    } else if planes.contains(&importer.name()) && planes.contains(&imported.name()) {
        Some("the two planes share only wire")
    } else {
        None
    }
}

/// The modules that the map names are there. It need not name them all.
fn modules(member: &Member, map: &Map, findings: &mut Vec<Finding>) {
    for module in map.rooms.get(&member.folder).into_iter().flatten() {
        let source = format!("{}/src/{module}", member.folder);
        let (file, folder) = (format!("{source}.rs"), format!("{source}/"));
        if !member.sources.iter().any(|(path, _)| *path == file || path.starts_with(&folder)) {
            let name = member.name();
            let text = format!("`{name}` has no module `{module}`: correct the table of rooms");
            add(findings, MAP, text);
        }
    }
}

/// A room is on the map, and has the name of its folder.
fn listed(member: &Member, map: &Map, findings: &mut Vec<Finding>) {
    let (folder, name) = (&member.folder, member.name());
    let mut say = |text: String| add(findings, member.manifest_path(), text);
    if layer_rank(&member.layer()).is_none() {
        say(format!("{folder} stands in no layer: rooms live in base/, pure/, shell/, tools/"));
    }
    if !map.rooms.contains_key(folder) {
        say(format!("{folder} is not in the table of rooms of {MAP}: say there what it is for"));
    }
    if !map.imports.contains_key(name) {
        say(format!("{name} has no row in the table of imports of {MAP}: give it one"));
    }
    let package = member.manifest.get("package");
    let given = package.and_then(|package| package.get("name")).and_then(Value::as_str);
    if given != Some(name) {
        say(format!("the package is called {given:?}: name it after its folder, \"{name}\""));
    }
}

/// Every edge to another room is in the table.
fn imports(workspace: &Workspace, member: &Member, map: &Map, findings: &mut Vec<Finding>) {
    let from = member.name();
    let rooms: BTreeSet<_> = workspace.members.iter().map(Member::name).collect();
    let allowed = map.imports.get(from);
    for dependency in member.dependencies() {
        let to = dependency.package.as_str();
        if !rooms.contains(to) || allowed.is_some_and(|allowed| allowed.contains(to)) {
            continue;
        }
        let list = allowed.map(|allowed| allowed.iter().cloned().collect::<Vec<_>>().join(", "));
        let list = list.filter(|list| !list.is_empty()).unwrap_or_else(|| "nothing".into());
        let text = format!(
            "[{}] {from} -> {to} is not an allowed import ({from} may import {list}). Remove the \
             edge: move what both need to model, or compose the two in a composing room or a \
             shell. If the design has changed, change the table in {MAP} and record why",
            dependency.section
        );
        add(findings, member.manifest_path(), text);
    }
}

/// Libraries are inherited, known to the map in base/ and pure/, and never out of place.
fn libraries(workspace: &Workspace, member: &Member, map: &Map, findings: &mut Vec<Finding>) {
    let rooms: BTreeSet<_> = workspace.members.iter().map(Member::name).collect();
    let name = member.name();
    let strict = ["base/", "pure/"].contains(&member.layer().as_str());
    for dependency in member.dependencies() {
        let library = dependency.package.as_str();
        if !dependency.inherited {
            let text = format!(
                "[{}] {library} names its own version or path: put it in [workspace.dependencies] \
                 of the root Cargo.toml and write `{library}.workspace = true`",
                dependency.section
            );
            add(findings, member.manifest_path(), text);
        }
        if rooms.contains(library) {
            continue;
        }
        let for_tests = dependency.section == "dev-dependencies";
        match map.libraries.get(library) {
            Some(places)
                if !stands_in(member, places) && (LEASHED.contains(&library) || !for_tests) =>
            {
                let places = places.iter().cloned().collect::<Vec<_>>().join(", ");
                let text = format!(
                    "[{}] {library} may only be in {places} ({MAP}, table of libraries), not in \
                     {name}: do this work in one of those rooms",
                    dependency.section
                );
                add(findings, member.manifest_path(), text);
            }
            None if strict && !for_tests => {
                let text = format!(
                    "[{}] {library} is not in the table of libraries of {MAP}; a room of base/ or \
                     pure/ takes only what is listed there, and nothing that does I/O, tells \
                     the time or draws at random",
                    dependency.section
                );
                add(findings, member.manifest_path(), text);
            }
            Some(_) | None => {}
        }
    }
    no_runtime(workspace, member, map, findings);
}

fn stands_in(member: &Member, places: &BTreeSet<String>) -> bool {
    places.contains(member.name()) || places.contains(&member.layer())
}

/// tokio does not come in through another library either.
fn no_runtime(workspace: &Workspace, member: &Member, map: &Map, findings: &mut Vec<Finding>) {
    if map.libraries.get("tokio").is_some_and(|places| stands_in(member, places)) {
        return;
    }
    let lasting = member.dependencies().into_iter().filter(|d| d.section != "dev-dependencies");
    for dependency in lasting {
        if let Some(path) = lock_path(&workspace.lock, &dependency.package, "tokio") {
            let text = format!(
                "{} brings an async runtime along ({}): the serve path has none. Take another \
                 library, or switch off the feature that needs it",
                dependency.package,
                path.join(" -> ")
            );
            add(findings, member.manifest_path(), text);
        }
    }
}

/// The packages from `from` to `to` in the lock file, if there is a way.
fn lock_path(lock: &Edges, from: &str, to: &str) -> Option<Vec<String>> {
    let mut seen = BTreeSet::new();
    let mut next = vec![vec![from.to_owned()]];
    while let Some(path) = next.pop() {
        let last = path.last()?;
        if last == to {
            return Some(path);
        }
        let steps = lock.get(last).into_iter().flatten().filter(|step| seen.insert(*step));
        next.extend(steps.map(|step| [&path[..], std::slice::from_ref(step)].concat()));
    }
    None
}

/// Every room inherits the workspace's lints, but for the two that hold `unsafe`.
fn lints(member: &Member, findings: &mut Vec<Finding>) {
    let table = member.manifest.get("lints");
    let level = |tool: &str, lint: &str| table?.get(tool)?.get(lint)?.as_str();
    let mut say = |text: &str| add(findings, member.manifest_path(), text.to_owned());
    if !UNSAFE.iter().any(|(room, _)| *room == member.name()) {
        if table.and_then(|t| t.get("workspace")).and_then(Value::as_bool) != Some(true) {
            say("does not inherit the lints: write `[lints]` and `workspace = true`, which \
                 forbids unsafe code");
        }
        return;
    }
    for lint in ["undocumented_unsafe_blocks", "multiple_unsafe_ops_per_block"] {
        if level("clippy", lint) != Some("deny") {
            say(&format!("holds unsafe code: [lints.clippy] must have {lint} = \"deny\""));
        }
    }
    if member.name() == "tls" && level("rust", "unsafe_code") != Some("deny") {
        say("[lints.rust] must have unsafe_code = \"deny\"; only src/aead.rs lifts it");
    }
}

fn root_lints(workspace: &Workspace, findings: &mut Vec<Finding>) {
    let lints = workspace.root.get("workspace").and_then(|w| w.get("lints"));
    let level = lints.and_then(|l| l.get("rust")).and_then(|r| r.get("unsafe_code"));
    if level.and_then(Value::as_str) != Some("forbid") {
        let text = "[workspace.lints.rust] must have unsafe_code = \"forbid\"";
        add(findings, "Cargo.toml", text.into());
    }
}

/// The word `unsafe` stands only where the map says, in tests too.
fn unsafe_words(member: &Member, findings: &mut Vec<Finding>) {
    for (path, text) in &member.sources {
        if UNSAFE.iter().any(|(_, place)| path.starts_with(place)) {
            continue;
        }
        for token in lexer::tokens(text).iter().filter(|token| token.is_word("unsafe")) {
            let text = "`unsafe` belongs in shell/uring, or in shell/tls/src/aead.rs for the AEAD \
                        call: put the operation there behind a safe function";
            add(findings, format!("{path}:{}", token.line), text.into());
        }
    }
}

/// Every library has a decision behind it, and a use.
fn library_records(workspace: &Workspace, decisions: &str, findings: &mut Vec<Finding>) {
    let rooms: BTreeSet<_> = workspace.members.iter().map(Member::name).collect();
    let used = workspace.members.iter().flat_map(Member::dependencies).map(|d| d.package);
    let used: BTreeSet<String> = used.collect();
    let table = workspace.root.get("workspace").and_then(|w| w.get("dependencies"));
    for library in table.and_then(Value::as_table).into_iter().flat_map(|t| t.keys()) {
        if rooms.contains(library.as_str()) {
            continue;
        }
        if !decisions.contains(&format!("`{library}`")) {
            let text = format!("{library} has no record: say in docs/decisions/ why this one");
            add(findings, "Cargo.toml", text);
        }
        if !used.contains(library) {
            let text = format!("no room uses {library}: take it out of [workspace.dependencies]");
            add(findings, "Cargo.toml", text);
        }
    }
}

#[cfg(test)]
#[path = "rooms_tests.rs"]
mod tests;
