//! `nearcast-lab odd`: asks a peer what the appliance's tests ask, and tells where they differ.
//!
//! ```text
//! fixtures/odd-requests.toml ──> table ──┬─> probe ──> nginx                    this verb
//!                                        ├─> probe ──> the appliance   shell/appliance/tests/odd
//!                                        └─> page ──> docs/http-odd-requests.md   equal, by test
//! ```

mod page;
pub(crate) mod probe;
pub(crate) mod served;
pub(crate) mod table;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rig::peer::Peer;
use serde::Serialize;
use tracing::info;

use served::CONTENT;
use table::{Case, Names, cases};

/// `nearcast-lab odd`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The peer, which is started.
    #[arg(long, value_parser = ["nginx"], default_value = "nginx")]
    peer: String,
    /// Where it listens, on loopback.
    #[arg(long, default_value_t = 18_980)]
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
    cases: usize,
    /// Where the peer answers otherwise than we do.
    differences: usize,
    /// Where it answered otherwise than the table says: the table has to be looked at again.
    changed: Vec<Changed>,
}

/// An answer that is not the table's.
#[derive(Serialize)]
pub(crate) struct Changed {
    pub(crate) name: String,
    pub(crate) table: String,
    pub(crate) got: String,
}

/// For an answer to come. A server that says nothing for so long waits for more.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks, prints, and fails if the table does not say what came.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.page {
        return rig::print(&page::render(&cases()));
    }
    let room = tempfile::tempdir().context("cannot make a folder")?;
    let names = served::names();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let _peer = served::by_nginx(address, &names, room.path())?;
    let cases = cases();
    let mut changed = Vec::new();
    for case in &cases {
        let got = ask(address, case, &names)?;
        if got != case.nginx {
            changed.push(Changed { name: case.name.clone(), table: case.nginx.clone(), got });
        }
    }
    let differences = cases.iter().filter(|case| case.ours != case.nginx).count();
    let version = Peer::Nginx.found()?.version()?;
    let version = format!("{}, {}", version.server, version.tls);
    info!(cases = cases.len(), differences, changed = changed.len(), version, "asked");
    let wrong = changed.len();
    let peer = args.peer.clone();
    let report = Report { peer, version, cases: cases.len(), differences, changed };
    tell(&report, wrong, args.json)
}

/// Prints a report on a table; an error if `wrong` answers are not the table's.
pub(crate) fn tell(report: &impl Serialize, wrong: usize, json: bool) -> Result<()> {
    rig::say_all(json, report)?;
    ensure!(wrong == 0, "{wrong} answers are not those of the table");
    Ok(())
}

fn ask(address: SocketAddr, case: &Case, names: &Names) -> Result<String> {
    let taken = probe::take(address, case, names, CONTENT, PATIENCE);
    taken.with_context(|| format!("{}: cannot ask", case.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    /// The page that is kept equal to the table.
    const PAGE: &str = "docs/http-odd-requests.md";

    #[test]
    fn the_page_says_what_the_table_says() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let wanted = page::render(&cases());
        let page = fs::read_to_string(root.join(PAGE)).unwrap_or_default();
        assert!(page == wanted, "{PAGE} is not of the table: ./x lab odd --page >{PAGE}");
    }

    #[test]
    fn every_difference_is_explained_and_nothing_else() {
        let cases = cases();
        for case in &cases {
            let name = &case.name;
            assert!(!case.nginx.is_empty() && !case.why.is_empty(), "{name}");
            assert_eq!(case.ours != case.nginx, !case.differs.is_empty(), "{name}");
            assert!(!case.ours.contains("0.9"), "{name}: we send no body without a head");
        }
        let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), cases.len(), "a name is for one case");
        assert!(100 <= names.len(), "at least a hundred");
    }
}
