//! `nearcast replay`: makes the decisions of a ledger again, as they were or under others.

mod logs;
mod told;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};
use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use ledger::{Fault, HASH_LEN, Moved, Opened, Outcome, SIGNATURE_LEN, WhatIf};
use model::id::{ApplianceId, SiteId};
use model::topology::Weight;
use serde::Deserialize;
use serde_json::json;

use crate::control::Query;
use crate::ingest::Server;
use crate::output::{self, Table};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files of one process's ledger, oldest first; a folder or s3://BUCKET/PREFIX/ stands for all
    /// of that process in it [default: all that control has]
    #[arg(value_name = "LOG")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    server: Server,
    /// Public key of the process that wrote them, in hex [default: control is asked]
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Keep the files that control gives in this folder, too
    #[arg(long, value_name = "FOLDER", conflicts_with = "files")]
    save: Option<PathBuf>,
    /// Take files without a last block, and without one that is torn: their process was stopped in
    /// the middle, or writes them still
    #[arg(long)]
    unfinished: bool,
    /// Take files between which others are missing
    #[arg(long)]
    gaps: bool,
    /// Tell the decisions of this playback one by one, each with all reasons: a session, or its
    /// mark in logs
    #[arg(
        long,
        value_name = "SESSION",
        value_parser = told::draw,
        conflicts_with_all = ["without_site", "without_appliance", "policy"]
    )]
    session: Option<told::Draw>,
    /// What if this site were not there? May be given again
    #[arg(long, value_name = "SITE")]
    without_site: Vec<SiteId>,
    /// What if this appliance were not there? May be given again
    #[arg(long, value_name = "APPLIANCE")]
    without_appliance: Vec<ApplianceId>,
    /// What if these were the weights, shares, copies, pathways and sites for all? A TOML file
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    #[command(flatten)]
    query: Query,
}

/// Another policy. What is not said stays as it was.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Policy {
    pathways_min: Option<usize>,
    pathways_max: Option<usize>,
    /// By appliance.
    #[serde(default)]
    weights: BTreeMap<String, u32>,
    /// By appliance: the share of its sessions that it takes, in percent.
    #[serde(default)]
    shares: BTreeMap<String, u32>,
    /// Appliances of each site that hold a version, at most.
    copies: Option<u32>,
    /// By site: whether it serves clients that none of its prefixes covers.
    #[serde(default)]
    serves_strangers: BTreeMap<String, bool>,
}

/// What was not replayed of the files, in words.
#[derive(Debug, Default)]
struct LeftOut {
    torn: Vec<String>,
    older: Vec<String>,
    gaps: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.session {
        Some(draw) => told::run(args, draw),
        None => run_all(args),
    }
}

fn run_all(args: &Args) -> anyhow::Result<()> {
    let what_if = what_if(args)?;
    let mut outcome = Outcome::default();
    let LeftOut { torn, older, gaps } = each(args, |opened| {
        outcome.add(ledger::replay(opened, &what_if)?);
        Ok(())
    })?;
    if let Some(name) = outcome.unknown.first() {
        bail!("{name} is in none of the files: `nearcast fleet show` has the names");
    }
    if args.query.json {
        let mut object = object(&outcome);
        object["torn"] = torn.into();
        object["older"] = older.into();
        object["gaps"] = gaps.into();
        output::json(&object)?;
    } else {
        lines(&outcome, what_if != WhatIf::default()).iter().try_for_each(|of| output::line(of))?;
    }
    let is_other = what_if == WhatIf::default() && 0 < outcome.differing;
    ensure!(!is_other, "{} decisions cannot be made again as they were", outcome.differing);
    Ok(())
}

/// Does something with each file, oldest first, once all its seals hold and it follows the one
/// before. One is in memory at a time.
fn each(
    args: &Args,
    mut make: impl FnMut(&Opened<'_>) -> Result<(), Fault>,
) -> anyhow::Result<LeftOut> {
    let (logs, key) = logs::logs(args)?;
    let (mut left_out, mut made, mut empty) = (LeftOut::default(), 0_u32, 0);
    let mut before: Option<(u64, [u8; HASH_LEN])> = None;
    for logs::Log { name, read, unfinished } in &logs {
        let bytes = read()?;
        // One that is opened now has nothing to say.
        if bytes.is_empty() && args.files.is_empty() {
            empty += 1;
            continue;
        }
        let opened = ledger::open(&bytes, *unfinished, |hash, seal| is_sealed(&key, hash, seal));
        if *unfinished && opened == Err(Fault::Cut(0)) {
            left_out.torn.push(format!("{name} is torn in its first block, and left out"));
            continue;
        }
        let opened = opened.with_context(|| format!("{name} is refused"))?;
        left_out.torn.extend(tail(name, &opened));
        let gap = gap(before, &opened).with_context(|| format!("{name} is refused"))?;
        ensure!(
            gap == 0 || args.gaps,
            "{name} is refused: it does not follow the file before it: {gap} files between \
             them are missing. Find them, or say --gaps to replay without them"
        );
        left_out.gaps.extend((0 < gap).then(|| format!("{gap} files before {name} are missing")));
        before = Some((opened.file, opened.hash));
        match make(&opened) {
            Err(fault @ Fault::Older) => {
                left_out.older.push(format!("{name} is left out: {fault}"));
            }
            Err(fault) => return Err(fault).with_context(|| name.clone()),
            Ok(()) => made += 1,
        }
    }
    ensure!(
        empty < logs.len(),
        "there is no ledger yet: it is written once a playback has begun, unless [ledger] one_in \
         is 0"
    );
    let LeftOut { torn, older, gaps } = &left_out;
    torn.iter().chain(older).chain(gaps).for_each(|said| eprintln!("{said}"));
    ensure!(0 < made, "nothing is replayed: no file of this version has a block that is whole");
    Ok(left_out)
}

fn is_sealed(key: &[u8; 32], hash: &[u8; HASH_LEN], seal: &[u8; SIGNATURE_LEN]) -> bool {
    UnparsedPublicKey::new(&ED25519, key).verify(&ledger::message(hash), seal).is_ok()
}

/// How many files are missing between one and the one before it; of the first of a process, which
/// follows none, nobody knows.
fn gap(before: Option<(u64, [u8; HASH_LEN])>, opened: &Opened<'_>) -> anyhow::Result<u64> {
    let Some((number, hash)) = before else { return Ok(0) };
    ensure!(
        number != opened.file,
        "its number is there twice: two processes had one key. Name the files of one, oldest first"
    );
    ensure!(number < opened.file, "it is not younger than the file before it: oldest first");
    if opened.before == [0; HASH_LEN] {
        return Ok(0);
    }
    let gap = opened.file - number - 1;
    ensure!(
        0 < gap || opened.before == hash,
        "it does not follow the file before it: that was replaced, or is cut"
    );
    Ok(gap)
}

/// The end of a file that is left out.
fn tail(name: &str, opened: &Opened<'_>) -> Option<String> {
    let (torn, block) = (opened.torn.0, opened.blocks.len());
    (0 < torn)
        .then(|| format!("{name} is torn in block {block}: its last {torn} bytes are left out"))
}

fn what_if(args: &Args) -> anyhow::Result<WhatIf> {
    let mut what_if = WhatIf {
        without_sites: args.without_site.iter().cloned().collect(),
        without_appliances: args.without_appliance.iter().cloned().collect(),
        ..WhatIf::default()
    };
    let Some(path) = &args.policy else { return Ok(what_if) };
    let shown = || format!("--policy {}", path.display());
    let text = fs::read_to_string(path).with_context(shown)?;
    let policy: Policy = toml::from_str(&text).with_context(shown)?;
    for (key, of) in [("pathways_min", policy.pathways_min), ("pathways_max", policy.pathways_max)]
    {
        ensure!(of.is_none_or(|of| (1..=4).contains(&of)), "{}: {key}: use 1 to 4", shown());
    }
    (what_if.pathways_min, what_if.pathways_max) = (policy.pathways_min, policy.pathways_max);
    for (name, weight) in policy.weights {
        let weight = Weight::new(weight).with_context(|| format!("{name}: use 1 to 1000"));
        let id = name.parse().with_context(shown)?;
        what_if.weights.insert(id, weight.with_context(shown)?);
    }
    for (name, share) in policy.shares {
        ensure!(share <= 100, "{}: shares: {name}: use 0 to 100", shown());
        what_if.shares.insert(name.parse().with_context(shown)?, 10 * share);
    }
    ensure!(policy.copies != Some(0), "{}: copies: use 1 or more", shown());
    what_if.copies = policy.copies;
    for (name, serves) in policy.serves_strangers {
        what_if.serves_strangers.insert(name.parse().with_context(shown)?, serves);
    }
    Ok(what_if)
}

fn lines(outcome: &Outcome, is_what_if: bool) -> Vec<String> {
    let Outcome { decisions, begun, from, until, differing, sessions, .. } = outcome;
    let players = sessions.len();
    let steered = decisions - begun;
    let mut lines = vec![format!(
        "{decisions} decisions for {players} players ({begun} lists of playbacks that began, \
         {steered} steering answers), from {} until {}",
        output::time(from.0),
        output::time(until.0)
    )];
    match (is_what_if, differing) {
        (false, 0) => lines.push(format!("{decisions} decisions, the same")),
        (false, differing) => {
            lines.push(format!("{differing} decisions differ:"));
            lines.extend(outcome.differences.iter().map(ToString::to_string));
            let more = differing - model::units::Bytes::of(outcome.differences.len()).0;
            lines.extend((0 < more).then(|| format!("and {more} more")));
        }
        (true, differing) => {
            let moved = outcome.sessions_moved();
            lines.push(format!(
                "{moved} of {players} players would go elsewhere first; {differing} lists would \
                 be others"
            ));
            lines.extend(ways(outcome).lines(output::colours()));
        }
    }
    lines
}

/// Who would go from where to where.
fn ways(outcome: &Outcome) -> Table {
    let mut table = Table::new(&["FROM", "TO", ">PLAYERS", ">DECISIONS"]);
    for ((from, to), Moved { decisions, sessions }) in &outcome.moved {
        table.row(vec![
            named(from.as_ref()).into(),
            named(to.as_ref()).into(),
            sessions.len().to_string().into(),
            decisions.to_string().into(),
        ]);
    }
    table
}

fn named(site: Option<&SiteId>) -> String {
    site.map_or_else(|| "nobody".to_owned(), ToString::to_string)
}

fn object(outcome: &Outcome) -> serde_json::Value {
    let moved = outcome.moved.iter().map(|((from, to), moved)| {
        json!({
            "from": from.as_ref().map(ToString::to_string),
            "to": to.as_ref().map(ToString::to_string),
            "players": moved.sessions.len(),
            "decisions": moved.decisions,
        })
    });
    json!({
        "decisions": outcome.decisions,
        "begun": outcome.begun,
        "players": outcome.sessions.len(),
        "from_unix_s": outcome.from.0,
        "until_unix_s": outcome.until.0,
        "differing": outcome.differing,
        "differences": outcome.differences.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "players_moved": outcome.sessions_moved(),
        "moved": moved.collect::<Vec<_>>(),
    })
}
