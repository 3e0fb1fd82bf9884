//! `nearcast-lab conformance`: RFC 9110 and RFC 9112 section by section, asked of a peer.
//!
//! ```text
//! fixtures/conformance.toml ──> table ──┬─> odd::probe, answer ──> nginx          this verb
//!                                       ├─> odd::probe, answer ──> the appliance  its tests
//!                                       └─> page ──> docs/http-conformance.md     equal, by test
//! ```

mod answer;
mod page;
mod table;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use rig::peer::Peer;
use serde::Serialize;
use tracing::info;

use crate::odd::{Changed, probe, served, tell};
use table::rows;

/// `nearcast-lab conformance`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The peer, which is started.
    #[arg(long, value_parser = ["nginx"], default_value = "nginx")]
    peer: String,
    /// Where it listens, on loopback.
    #[arg(long, default_value_t = 19_080)]
    port: u16,
    /// Ask nobody, and print the table as a page.
    #[arg(long)]
    page: bool,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    peer: String,
    version: String,
    rows: usize,
    sections: usize,
    /// Where the peer answers otherwise than we do.
    differences: usize,
    /// Where we do not do what a SHOULD says.
    departures: usize,
    /// Where it answered otherwise than the table says: the table has to be looked at again.
    changed: Vec<Changed>,
}

/// For an answer to come.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks, prints, and fails if the table does not say what came.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.page {
        return rig::print(&page::render(&rows(), &crate::odd::table::cases()));
    }
    let room = tempfile::tempdir().context("cannot make a folder")?;
    let names = served::names();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let _peer = served::by_nginx(address, &names, room.path())?;
    let rows = rows();
    let mut changed = Vec::new();
    for row in &rows {
        let taken = probe::exchange(address, &row.sent(&names), served::CONTENT, PATIENCE);
        let taken = taken.with_context(|| format!("{}: cannot ask", row.name))?;
        let got = answer::describe(&taken, &names, served::CONTENT, &row.look);
        if got != row.nginx {
            changed.push(Changed { name: row.name.clone(), table: row.nginx.clone(), got });
        }
    }
    let version = Peer::Nginx.found()?.version()?;
    let report = Report {
        peer: args.peer.clone(),
        version: format!("{}, {}", version.server, version.tls),
        rows: rows.len(),
        sections: rows.chunk_by(|a, b| a.section == b.section).count(),
        differences: rows.iter().filter(|row| row.ours != row.nginx).count(),
        departures: rows.iter().filter(|row| !row.departs.is_empty()).count(),
        changed,
    };
    let wrong = report.changed.len();
    info!(rows = report.rows, differences = report.differences, changed = wrong, "asked");
    tell(&report, wrong, args.json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::odd::table::cases;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    /// The page that is kept equal to the table.
    const PAGE: &str = "docs/http-conformance.md";

    #[test]
    fn the_page_says_what_the_table_says() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let wanted = page::render(&rows(), &cases());
        let page = fs::read_to_string(root.join(PAGE)).unwrap_or_default();
        assert!(page == wanted, "{PAGE} is not of the table: ./x lab conformance --page >{PAGE}");
    }

    #[test]
    fn every_difference_is_explained_and_nothing_else() {
        let rows = rows();
        let mut sections = BTreeSet::new();
        for group in rows.chunk_by(|a, b| a.section == b.section) {
            let section = &group[0].section;
            assert!(section.starts_with("RFC 911"), "{section}");
            assert!(sections.insert(section.clone()), "{section}: in one place");
        }
        for row in &rows {
            let name = &row.name;
            assert!(!row.ours.is_empty() && !row.nginx.is_empty(), "{name}");
            let force = ["MUST", "SHOULD", "MAY", "ought"];
            assert!(force.iter().any(|word| row.says.contains(word)), "{name}: how strongly?");
            assert_eq!(row.ours != row.nginx, !row.differs.is_empty(), "{name}");
            assert!(!row.ours.contains("not Content-Length"), "{name}: bodies end where they say");
        }
        assert!(120 <= rows.len(), "{} rows", rows.len());
    }

    #[test]
    fn no_request_is_in_both_tables_or_twice_in_one() {
        let names = served::names();
        let mut seen: BTreeSet<Vec<u8>> = cases().iter().map(|case| case.bytes(&names)).collect();
        let mut known = BTreeSet::new();
        for row in rows() {
            assert!(seen.insert(row.sent(&names).bytes), "{}: asked already", row.name);
            assert!(known.insert(row.name.clone()), "{}: a name is for one row", row.name);
        }
    }
}
