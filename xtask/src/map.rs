//! ARCHITECTURE.md as data: the tables that the checks hold the workspace to.
//!
//! ```text
//! | room | modules | ...     every room there is, by folder, and its modules
//! | importer | may import |   which room may depend on which
//! | library | only in |        libraries that not every room may have
//! ```
//!
//! Only text in `code marks` counts; the prose beside it is for people.

use crate::workspace::Edges;

#[derive(Debug, Default)]
pub(crate) struct Map {
    /// Folders in the table of rooms, each with the modules that the table names.
    pub(crate) rooms: Edges,
    /// Importer to what it may import. A room without an entry is unlisted.
    pub(crate) imports: Edges,
    /// Library to where it may be: names of rooms, or layers written as `pure/`.
    pub(crate) libraries: Edges,
}

/// Reads the three tables, or says which is missing.
pub(crate) fn parse(text: &str) -> Result<Map, String> {
    Ok(Map {
        rooms: table(text, "| room | modules")?,
        imports: table(text, "| importer | may import")?,
        libraries: table(text, "| library | only in")?,
    })
}

/// The names in the first cells, each with those of the second; a name in several rows gets them
/// all.
fn table(text: &str, header: &str) -> Result<Edges, String> {
    let mut map = Edges::new();
    for row in rows(text, header)? {
        let mut cells = row.trim_matches('|').split('|').map(marks);
        let (left, right) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        for name in left {
            map.entry(name).or_default().extend(right.iter().cloned());
        }
    }
    Ok(map)
}

/// The rows of the table that begins with `header`.
pub(crate) fn rows<'t>(
    text: &'t str,
    header: &str,
) -> Result<impl Iterator<Item = &'t str>, String> {
    let mut lines = text.lines().skip_while(move |line| !line.starts_with(header));
    lines.next().ok_or_else(|| format!("no table begins with \"{header}\": the checks read it"))?;
    Ok(lines.skip(1).take_while(|line| line.starts_with('|')))
}

/// The texts between backticks.
pub(crate) fn marks(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
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
