//! The workspace as its manifests describe it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use toml::{Table, Value};

/// From names to names.
pub(crate) type Edges = BTreeMap<String, BTreeSet<String>>;

/// All that the rules ask about.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    pub(crate) root: Table,
    pub(crate) members: Vec<Member>,
    /// Cargo.lock: package to the packages it brings along, by name.
    pub(crate) lock: Edges,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Member {
    /// Its folder from the root: `pure/worker`.
    pub(crate) folder: String,
    pub(crate) manifest: Table,
    /// Its Rust sources: path from the root, and text.
    pub(crate) sources: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// The package's own name; a dependency may be renamed here.
    pub(crate) package: String,
    /// The section: `dependencies`, `dev-dependencies` or `build-dependencies`.
    pub(crate) section: &'static str,
    /// True if it takes version and source from the root manifest.
    pub(crate) inherited: bool,
}

impl Member {
    /// Its name: the last word of the folder.
    pub(crate) fn name(&self) -> &str {
        self.folder.rsplit('/').next().unwrap_or(&self.folder)
    }

    /// The folder it stands in, `pure/`, or its own name when it stands at the root.
    pub(crate) fn layer(&self) -> String {
        match self.folder.split_once('/') {
            Some((layer, _)) => format!("{layer}/"),
            None => self.folder.clone(),
        }
    }

    pub(crate) fn manifest_path(&self) -> String {
        format!("{}/Cargo.toml", self.folder)
    }

    /// Everything it depends on, those of single targets too.
    pub(crate) fn dependencies(&self) -> Vec<Dependency> {
        let mut found = sections(&self.manifest);
        if let Some(Value::Table(targets)) = self.manifest.get("target") {
            found.extend(targets.values().filter_map(Value::as_table).flat_map(sections));
        }
        found
    }
}

fn sections(table: &Table) -> Vec<Dependency> {
    let mut found = Vec::new();
    for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
        let Some(Value::Table(lines)) = table.get(section) else { continue };
        for (name, value) in lines {
            let renamed = value.get("package").and_then(Value::as_str);
            let inherited = value.get("workspace").and_then(Value::as_bool) == Some(true);
            let package = renamed.unwrap_or(name).to_owned();
            found.push(Dependency { package, section, inherited });
        }
    }
    found
}

/// Reads the manifests, Cargo.lock and every Rust source of the workspace at `root`.
pub(crate) fn read(root: &Path) -> Result<Workspace> {
    let manifest = table_at(root, "Cargo.toml")?;
    let globs = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("members"))
        .and_then(Value::as_array)
        .context("Cargo.toml: [workspace] has no members")?;
    let mut members = Vec::new();
    for folder in globs.iter().filter_map(Value::as_str) {
        for folder in expand(root, folder)? {
            let sources = rust_sources(root, &root.join(&folder))?;
            let manifest = table_at(root, &format!("{folder}/Cargo.toml"))?;
            members.push(Member { folder, manifest, sources });
        }
    }
    let lock = lock_edges(&table_at(root, "Cargo.lock")?);
    Ok(Workspace { root: manifest, members, lock })
}

fn table_at(root: &Path, path: &str) -> Result<Table> {
    crate::read(root, path)?.parse().with_context(|| format!("{path} is not TOML"))
}

/// The folders that a member pattern names; only a last `*` is known, as cargo itself is not asked.
fn expand(root: &Path, pattern: &str) -> Result<Vec<String>> {
    let Some(parent) = pattern.strip_suffix("/*") else {
        if pattern.contains('*') {
            bail!("Cargo.toml: the member pattern \"{pattern}\" is unknown here: end it in /*");
        }
        return Ok(vec![pattern.to_owned()]);
    };
    let mut folders = Vec::new();
    for path in entries(&root.join(parent))? {
        if let Some(name) = path.file_name().and_then(|name| name.to_str())
            && path.join("Cargo.toml").is_file()
        {
            folders.push(format!("{parent}/{name}"));
        }
    }
    Ok(folders)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let listed =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut paths = listed.map(|e| e.map(|e| e.path())).collect::<Result<Vec<_>, _>>()?;
    paths.sort();
    Ok(paths)
}

/// All files below a folder, in order, but for those below folders of these names.
pub(crate) fn files_below(folder: &Path, skipped: &[&str]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in entries(folder)? {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !path.is_dir() {
            found.push(path);
        } else if !skipped.contains(&name) {
            found.extend(files_below(&path, skipped)?);
        }
    }
    Ok(found)
}

/// A path as it is written from the root.
pub(crate) fn from_root(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

fn rust_sources(root: &Path, folder: &Path) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for path in files_below(folder, &["node_modules", "target"])? {
        if path.extension().is_some_and(|extension| extension == "rs") {
            let path = from_root(root, &path);
            let text = crate::read(root, &path)?;
            found.push((path, text));
        }
    }
    Ok(found)
}

/// Edges by name: two versions of one package are taken together, which errs on the strict side.
pub(crate) fn lock_edges(lock: &Table) -> Edges {
    let mut edges = Edges::new();
    let packages = lock.get("package").and_then(Value::as_array);
    for package in packages.into_iter().flatten() {
        let Some(name) = package.get("name").and_then(Value::as_str) else { continue };
        let needs = package.get("dependencies").and_then(Value::as_array);
        let names = needs.into_iter().flatten().filter_map(Value::as_str);
        let names = names.filter_map(|text| text.split(' ').next()).map(str::to_owned);
        edges.entry(name.to_owned()).or_default().extend(names);
    }
    edges
}

/// All that edges lead to from `from`, in one step or more.
pub(crate) fn reach<'e>(edges: &'e Edges, from: &'e String) -> BTreeSet<&'e String> {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(at) = next.pop() {
        next.extend(edges.get(at).into_iter().flatten().filter(|to| seen.insert(*to)));
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_of_every_section_and_target_are_seen() {
        let text = "
            [dependencies]
            model.workspace = true
            sneaky = { package = \"tokio\", version = \"1\" }
            [dev-dependencies]
            insta = \"1\"
            [target.'cfg(unix)'.dependencies]
            libc.workspace = true";
        let member = Member { manifest: text.parse().unwrap(), ..Member::default() };
        let found = member.dependencies();
        let names: Vec<_> = found.iter().map(|d| (d.package.as_str(), d.inherited)).collect();
        assert_eq!(names, [("model", true), ("tokio", false), ("insta", false), ("libc", true)]);
        assert_eq!(found[2].section, "dev-dependencies");
    }

    #[test]
    fn a_room_is_named_by_its_folder() {
        let member = Member { folder: "pure/fill".into(), ..Member::default() };
        assert_eq!((member.name(), member.layer().as_str()), ("fill", "pure/"));
    }

    #[test]
    fn versions_in_the_lock_file_are_left_out() {
        let text = "[[package]]\nname = \"a\"\ndependencies = [\"b\", \"syn 2.0.1\"]";
        let edges = lock_edges(&text.parse().unwrap());
        assert_eq!(edges["a"].iter().collect::<Vec<_>>(), ["b", "syn"]);
    }
}
