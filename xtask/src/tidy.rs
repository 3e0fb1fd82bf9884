//! Checks the form of the text: long lines, long functions, words that are not ours.
//!
//! ```text
//! line       over 100 columns                     file      over 1,000 lines of code
//! function   over 70 lines                        marker    a note to fix something later
//! stub       a macro that stands for missing code  ignored   a test that does not run
//! name       a banned word in a public name       path      a path of one person's machine
//! metric     a metric without help                claim     SECURITY.md names a test that is not
//! doc        a public item without a doc          index     a document that no index names
//! assertions fewer than 12 in 1,000 lines of pure/
//! ```

mod assertions;
mod claims;
mod index;
mod names;
mod rules;

use std::path::Path;
use std::process::Command;
use std::{fs, io};

use anyhow::{Context, Result};

pub(crate) use names::banned_words;

use crate::{lexer, workspace};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Breach {
    pub(crate) rule: &'static str,
    pub(crate) path: String,
    pub(crate) line: usize,
    /// The fault and the remedy.
    pub(crate) text: String,
}

fn breach(rule: &'static str, path: &str, line: usize, text: String) -> Breach {
    Breach { rule, path: path.to_owned(), line, text }
}

#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Source {
    fn extension(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        name.rsplit_once('.').map_or(name, |(_, extension)| extension)
    }

    fn is_code(&self) -> bool {
        let code = ["rs", "ts", "js", "mjs", "css", "html", "sh", "toml", "x", "run", "sql", "py"];
        code.contains(&self.extension())
    }

    /// Prose or code. Fixtures were written by other programs, and stay as they came.
    fn is_ours(&self) -> bool {
        (self.is_code() || self.extension() == "md") && !self.path.contains("/fixtures/")
    }
}

/// All breaches in these files, sorted.
pub(crate) fn breaches(sources: &[Source], banned: &[names::Banned]) -> Vec<Breach> {
    let mut found = Vec::new();
    for source in sources {
        found.extend(rules::machine_paths(source));
        if !source.is_ours() {
            continue;
        }
        found.extend(rules::long_lines(source));
        if source.is_code() {
            found.extend(rules::long_file(source));
            found.extend(rules::markers(source));
        }
        if source.extension() == "rs" {
            let tokens = lexer::tokens(&source.text);
            found.extend(rules::long_functions(source, &tokens));
            found.extend(rules::stubs(source, &tokens));
            found.extend(rules::undocumented(source));
            found.extend(rules::ignored_tests(source, &tokens));
            found.extend(rules::silent_metrics(source, &tokens));
            found.extend(names::banned_names(source, &tokens, banned));
        }
    }
    found.extend(claims::unproved(sources));
    found.extend(assertions::too_few(sources));
    found.extend(index::unlisted(sources));
    found.sort();
    found
}

/// The text files of the repository: those git knows or would add, or all when git is not there.
pub(crate) fn sources(root: &Path) -> Result<Vec<Source>> {
    let mut paths = git_files(root).map_or_else(|| walk(root), Ok)?;
    paths.sort();
    let mut sources = Vec::new();
    for path in paths {
        match fs::read_to_string(root.join(&path)) {
            Ok(text) => sources.push(Source { path, text }),
            // Pictures and films, and what git still lists but is gone.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("cannot read {path}")),
        }
    }
    Ok(sources)
}

fn git_files(root: &Path) -> Option<Vec<String>> {
    let asked = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(asked).current_dir(root).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let paths: Vec<_> = text.split('\0').filter(|p| !p.is_empty()).map(str::to_owned).collect();
    (output.status.success() && !paths.is_empty()).then_some(paths)
}

fn walk(root: &Path) -> Result<Vec<String>> {
    let paths = workspace::files_below(root, &["target", "node_modules", "dist", ".git"])?;
    Ok(paths.iter().map(|path| workspace::from_root(root, path)).collect())
}
