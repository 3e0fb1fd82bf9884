//! Every document is linked from an index, so that it can be found.

use super::{Breach, Source, breach};

const DOCS: &str = "docs/";

/// Documents that neither docs/README.md nor the README.md of their own folder links to.
pub(super) fn unlisted(sources: &[Source]) -> Vec<Breach> {
    let text_of = |path: &str| sources.iter().find(|source| source.path == path);
    let links = |folder: &str, path: &str| {
        let target = path.strip_prefix(folder).unwrap_or(path);
        text_of(&format!("{folder}README.md"))
            .is_some_and(|index| index.text.contains(&format!("]({target})")))
    };
    let is_listed = |path: &str| {
        let folder = &path[..=path.rfind('/').unwrap_or(0)];
        links(DOCS, path) || links(folder, path)
    };
    let documents = sources.iter().map(|source| source.path.as_str()).filter(|path| {
        path.starts_with(DOCS) && path.ends_with(".md") && !path.ends_with("/README.md")
    });
    let text = format!("no index names it: link to it in {DOCS}README.md, for those who need it");
    let unlisted = documents.filter(|path| !is_listed(path));
    unlisted.map(|path| breach("index", path, 1, text.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_stands_in_an_index_of_its_own_folder_or_above() {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let mut sources = vec![
            source("docs/README.md", "[drives](operate/drives.md)"),
            source("docs/operate/drives.md", ""),
            source("docs/reports/README.md", "[scan](scan.md)"),
            source("docs/reports/scan.md", ""),
        ];
        assert_eq!(unlisted(&sources), []);
        sources.push(source("docs/operate/pacing.md", ""));
        let found = unlisted(&sources);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "docs/operate/pacing.md");
    }
}
