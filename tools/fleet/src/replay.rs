//! `nearcast replay`: makes the decisions of a ledger again, as they were or under others.

mod told;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use ledger::{Fault, HASH_LEN, Moved, Opened, Outcome, SIGNATURE_LEN, WhatIf};
use model::id::{ApplianceId, SiteId, parse_hex};
use model::topology::Weight;
use serde::Deserialize;
use serde_json::json;
use wire::v1::fleet::{LedgerFile, LedgerOut};

use crate::control::{Control, Query, encoded};
use crate::output::{self, Table};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files of one process's ledger, oldest first [default: all that control has]
    #[arg(value_name = "LOG")]
    files: Vec<PathBuf>,
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
    /// What if these were the weights, the pathways and the sites for all? A TOML file
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
    /// By site: whether it serves clients that none of its prefixes covers.
    #[serde(default)]
    serves_strangers: BTreeMap<String, bool>,
}

/// A file, and where it is from.
struct Log {
    name: String,
    read: Box<dyn Fn() -> anyhow::Result<Vec<u8>>>,
    /// It may lack its last block.
    unfinished: bool,
}

/// What was not replayed of the files, in words.
#[derive(Debug, Default)]
struct LeftOut {
    torn: Vec<String>,
    older: Vec<String>,
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
    let LeftOut { torn, older } = each(args, |opened| {
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
    let (logs, key) = logs(args)?;
    let (mut left_out, mut made, mut empty) = (LeftOut::default(), 0_u32, 0);
    let mut before: Option<(u64, [u8; HASH_LEN])> = None;
    for Log { name, read, unfinished } in &logs {
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
        follows(before, &opened).with_context(|| format!("{name} is refused"))?;
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
    left_out.torn.iter().chain(&left_out.older).for_each(|said| eprintln!("{said}"));
    ensure!(0 < made, "nothing is replayed: no file of this version has a block that is whole");
    Ok(left_out)
}

/// The files, and the key of their seals.
fn logs(args: &Args) -> anyhow::Result<(Vec<Log>, [u8; 32])> {
    let asked = || args.query.control.client()?.get::<LedgerOut>("/v1/ledger");
    if args.files.is_empty() {
        let shown = asked()?;
        let key = key(args.key.as_ref().unwrap_or(&shown.public_key))?;
        let control = args.query.control.client()?;
        let log = |file: LedgerFile| {
            let (control, save, name) = (control.clone(), args.save.clone(), file.name.clone());
            Log {
                name: file.name,
                read: Box::new(move || fetch(&control, &name, save.as_deref())),
                unfinished: file.open || args.unfinished,
            }
        };
        return Ok((shown.files.into_iter().map(log).collect(), key));
    }
    let key = match &args.key {
        Some(text) => key(text)?,
        None => key(&asked().context("whose seals are these? say --key")?.public_key)?,
    };
    let log = |path: &PathBuf| {
        let (name, path) = (path.display().to_string(), path.clone());
        let read = move || fs::read(&path).with_context(|| path.display().to_string());
        Log { name, read: Box::new(read), unfinished: args.unfinished }
    };
    Ok((args.files.iter().map(log).collect(), key))
}

fn fetch(control: &Control, name: &str, save: Option<&Path>) -> anyhow::Result<Vec<u8>> {
    let bytes = control.bytes(&format!("/v1/ledger/{}", encoded(name)))?;
    if let Some(folder) = save {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let path = folder.join(Path::new(name).file_name().context("a file without a name")?);
        fs::write(&path, &bytes).with_context(|| path.display().to_string())?;
    }
    Ok(bytes)
}

fn key(text: &str) -> anyhow::Result<[u8; 32]> {
    let mut key = [0; 32];
    ensure!(parse_hex(text, &mut key), "\"{text}\" is no key: 32 bytes in hex are wanted");
    Ok(key)
}

fn is_sealed(key: &[u8; 32], hash: &[u8; HASH_LEN], seal: &[u8; SIGNATURE_LEN]) -> bool {
    UnparsedPublicKey::new(&ED25519, key).verify(&ledger::message(hash), seal).is_ok()
}

/// A file follows the one before it, unless its process had just started.
fn follows(before: Option<(u64, [u8; HASH_LEN])>, opened: &Opened<'_>) -> anyhow::Result<()> {
    let Some((number, hash)) = before else { return Ok(()) };
    ensure!(number < opened.file, "it is not younger than the file before it: oldest first");
    let is_first = opened.before == [0; HASH_LEN];
    ensure!(
        is_first || (opened.file == number + 1 && opened.before == hash),
        "it does not follow the file before it: one is missing between them, or was replaced"
    );
    Ok(())
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
