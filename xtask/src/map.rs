//! ARCHITECTURE.md as data: the tables that the checks hold the workspace to.
//!
//! ```text
//! | room | modules | ...     every room there is, by folder, and its modules
//! | importer | may import |   which room may depend on which
//! | library | only in |        libraries that not every room may have
//! ```
//!
//! Only text in `code marks` counts; the prose beside it is for people.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(crate) struct Map {
    /// Folders in the table of rooms, each with the modules that the table names.
    pub(crate) rooms: BTreeMap<String, BTreeSet<String>>,
    /// Importer to what it may import. A room without an entry is unlisted.
    pub(crate) imports: BTreeMap<String, BTreeSet<String>>,
    /// Library to where it may be: names of rooms, or layers written as `pure/`.
    pub(crate) libraries: BTreeMap<String, BTreeSet<String>>,
}

/// Reads the three tables, or says which is missing.
pub(crate) fn parse(text: &str) -> Result<Map, String> {
    let rooms = table(text, "| room | modules")?;
    let imports = table(text, "| importer | may import")?;
    let libraries = table(text, "| library | only in")?;
    Ok(Map { rooms: by_left(rooms), imports: by_left(imports), libraries: by_left(libraries) })
}

type Row = (Vec<String>, BTreeSet<String>);

/// The rows under a header: the marked words of the first cell, and those of the second.
fn table(text: &str, header: &str) -> Result<Vec<Row>, String> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with(header));
    if lines.next().is_none() {
        return Err(format!("no table begins with \"{header}\": the checks read it"));
    }
    let body = lines.skip(1).take_while(|line| line.starts_with('|'));
    Ok(body.map(row).collect())
}

fn row(line: &str) -> Row {
    let mut cells = line.trim_matches('|').split('|');
    let mut marked = || cells.next().map(marks).unwrap_or_default();
    (marked(), marked().into_iter().collect())
}

/// The texts between backticks.
pub(crate) fn marks(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// One entry per name in the first cell; a name in several rows gets them all.
fn by_left(rows: Vec<Row>) -> BTreeMap<String, BTreeSet<String>> {
    let mut map = BTreeMap::<String, BTreeSet<String>>::new();
    for (left, right) in rows {
        for name in left {
            map.entry(name).or_default().extend(right.iter().cloned());
        }
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# Map
| room | modules | purpose |
| --- | --- | --- |
| `base/model` | `id` `units` | nouns |
| `pure/worker` | | one `core` |

| importer | may import |
| --- | --- |
| `model` | nothing |
| `worker` `fill` | `model`, `seal` (for its keys) |

| library | only in |
| --- | --- |
| `serde` | `wire`, `tools/` |
after
| `not` | `table` |
";

    #[test]
    fn only_marked_words_count() {
        let map = parse(TEXT).unwrap();
        assert_eq!(map.rooms.keys().collect::<Vec<_>>(), ["base/model", "pure/worker"]);
        assert_eq!(map.rooms["base/model"].iter().collect::<Vec<_>>(), ["id", "units"]);
        assert_eq!(map.rooms["pure/worker"].len(), 0);
        assert_eq!(map.imports["model"].len(), 0);
        assert_eq!(map.imports["fill"].iter().collect::<Vec<_>>(), ["model", "seal"]);
        assert_eq!(map.libraries["serde"].iter().collect::<Vec<_>>(), ["tools/", "wire"]);
        assert!(!map.libraries.contains_key("not"));
    }

    #[test]
    fn a_missing_table_is_an_error_and_not_an_empty_one() {
        let text = TEXT.replace("| importer | may", "| importer | can");
        assert!(parse(&text).unwrap_err().contains("| importer | may import"));
    }
}
