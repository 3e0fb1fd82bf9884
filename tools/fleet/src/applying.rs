//! `nearcast apply`: makes the fleet as a file declares it, after showing the difference.
//!
//! ```text
//! file ──> declared ─┐
//!                    ├─ apply::difference ──> shown ──> one request of control for each step
//! control ─> current ┘
//! ```
//!
//! Between the look and the last step somebody else may change the fleet: a step that does not fit
//! any more is refused by control, and applying the file again goes on from what is there.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use apply::{Act, Difference, Settings, Step, Thing, Value, key};
use serde_json::{Value as Json, json};

use crate::control::{Control, Query, encoded};
use crate::declared::{self, Declared};
use crate::output::{self, Tone};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file that declares the fleet; - for standard input
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: PathBuf,
    /// Show the difference, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Remove sites, appliances and fronts that the file does not name, and close public assets
    #[arg(long)]
    prune: bool,
    #[command(flatten)]
    query: Query,
}

/// The fleet is as the file says, but for what waits. The process ends with status 3.
#[derive(Debug, thiserror::Error)]
#[error("all else is as the file says; {0} of it waits, as said above")]
pub(crate) struct Waiting(usize);

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut declared = Declared::read(&args.file)?;
    ensure!(
        !args.prune || !declared.things.is_empty(),
        "the file declares nothing, and --prune would remove the whole fleet: is it the right file?"
    );
    let control = args.query.control.client()?;
    let current = declared::current(&control)?;
    declared.beside(&current);
    let difference = match apply::difference(&declared.things, &current, args.prune) {
        Ok(difference) => difference,
        Err(conflicts) => return declared.refuse_conflicts(&conflicts),
    };
    if args.query.json {
        output::json(&shown(&difference, args.dry_run))?;
    } else {
        show(&difference, args.dry_run)?;
    }
    if args.dry_run {
        return Ok(());
    }
    let all = difference.steps.len();
    for (taken, step) in difference.steps.iter().enumerate() {
        take(&control, step).with_context(|| {
            format!("{taken} of {all} steps are taken, and this one is not: {step}")
        })?;
    }
    if !args.query.json && 0 < all {
        output::line(&format!("applied: {}", steps(all)))?;
    }
    match difference.waits.len() {
        0 => Ok(()),
        count => Err(Waiting(count).into()),
    }
}

/// Writes the fleet as a file that declares it.
pub(crate) fn export(query: &Query) -> anyhow::Result<()> {
    let things = declared::current(&query.control.client()?)?;
    if query.json {
        let things = things.iter().map(|(thing, settings)| {
            json!({ "thing": thing.to_string(), "settings": declared::body(settings) })
        });
        return output::json(&json!({ "things": things.collect::<Vec<_>>() }));
    }
    output::line(declared::file(&things).trim_end())
}

fn show(difference: &Difference, dry_run: bool) -> anyhow::Result<()> {
    let colours = output::colours();
    for step in &difference.steps {
        let tone = match step.act {
            Act::Make => Tone::Good,
            Act::Change(_) => Tone::Plain,
            Act::Remove => Tone::Bad,
        };
        output::line(&output::paint(&step.to_string(), tone, colours))?;
    }
    for wait in &difference.waits {
        output::line(&output::paint(&format!("wait: {wait}"), Tone::Warn, colours))?;
    }
    match difference.steps.len() {
        0 => output::line("nothing to change: the fleet is as the file says"),
        count if dry_run => output::line(&format!("{} to take; nothing is changed", steps(count))),
        _ => Ok(()),
    }
}

fn steps(count: usize) -> String {
    if count == 1 { "1 step".to_owned() } else { format!("{count} steps") }
}

fn shown(difference: &Difference, dry_run: bool) -> Json {
    let step = |step: &Step| {
        let (act, changes) = match &step.act {
            Act::Make => ("make", declared::body(&step.settings)),
            Act::Remove => ("remove", json!({})),
            Act::Change(changes) => {
                let to: Settings = changes.iter().map(|(key, of)| (*key, of.to.clone())).collect();
                ("change", declared::body(&to))
            }
        };
        json!({ "act": act, "thing": step.thing.to_string(), "to": changes,
            "text": step.to_string() })
    };
    let waits: Vec<String> = difference.waits.iter().map(ToString::to_string).collect();
    json!({ "dry_run": dry_run, "waits": waits,
        "steps": difference.steps.iter().map(step).collect::<Vec<_>>() })
}

/// Has control take one step.
fn take(control: &Control, step: &Step) -> anyhow::Result<()> {
    let mut body = declared::body(&step.settings);
    if step.act == Act::Make && matches!(step.thing, Thing::Site(_)) && body["prefixes"].is_null() {
        // A new site is for nobody until the file says for whom.
        body["prefixes"] = json!([]);
    }
    let is_gone = step.act == Act::Remove;
    let path = path(&step.thing);
    let is_closed = step.settings.get(key::PUBLIC) == Some(&Value::Flag(false));
    if is_gone || (matches!(step.thing, Thing::Asset(_)) && is_closed) {
        return control.delete(&path);
    }
    control.put(&path, &body).map(drop)
}

/// Where control keeps what is declared of a thing.
fn path(thing: &Thing) -> String {
    match thing {
        Thing::Policy => "/v1/policy".to_owned(),
        Thing::Site(name) => format!("/v1/sites/{}", encoded(name)),
        Thing::Appliance(name) => format!("/v1/appliances/{}", encoded(name)),
        Thing::Front(name) => format!("/v1/fronts/{}/identity", encoded(name)),
        Thing::Asset(name) => format!("/v1/assets/{}/public", encoded(name)),
        Thing::Version(asset, version) => {
            format!("/v1/assets/{}/versions/{}/window", encoded(asset), encoded(version))
        }
    }
}
