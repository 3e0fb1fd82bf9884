//! `nearcast token`, `keys`, `audit`, `public`, `enrol-code`, `revoke`: who may do what, and who
//! did.

use anyhow::ensure;
use model::units::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use wire::v1::fleet::KeyOut;

use crate::control::{Query, Where, encoded};
use crate::output::{self, Cell, Table, Tone, ago, until};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum TokenVerb {
    /// List the API tokens, without their secrets
    List(Query),
    /// Make an API token and print it: it is shown this one time
    Make {
        /// What it allows: viewer, operator, admin, or service (only begins and ends playbacks)
        #[arg(long)]
        role: String,
        /// Whose it is, or what uses it
        #[arg(long)]
        name: String,
        #[command(flatten)]
        query: Query,
    },
    /// Remove an API token; logins with it end
    Remove {
        /// Its id, as `nearcast token list` has it
        id: String,
        #[command(flatten)]
        control: Where,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct KeysArgs {
    /// Announce a new key: it signs once every appliance knows it, or after a day
    #[arg(long)]
    rotate: bool,
    #[command(flatten)]
    query: Query,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AuditArgs {
    /// How many lines, newest first
    #[arg(long, value_name = "N", default_value_t = 50)]
    count: usize,
    #[command(flatten)]
    query: Query,
}

#[derive(Debug, clap::Args)]
pub(crate) struct EnrolArgs {
    /// Which appliance
    appliance: String,
    #[command(flatten)]
    query: Query,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RevokeArgs {
    /// Which appliance
    appliance: String,
    #[command(flatten)]
    control: Where,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PublicArgs {
    /// Which asset
    asset: String,
    /// Not any more: playing it needs a grant again
    #[arg(long)]
    off: bool,
    #[command(flatten)]
    control: Where,
}

#[derive(Debug, Deserialize)]
struct Token {
    id: String,
    name: String,
    role: String,
    created_unix_s: u64,
    last_used_unix_s: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct AuditPage {
    lines: Vec<Value>,
    next: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AuditLine {
    at_unix_s: u64,
    name: Option<String>,
    role: Option<String>,
    peer: Option<String>,
    method: String,
    target: String,
    outcome: Option<u16>,
    summary: String,
}

pub(crate) fn token(verb: &TokenVerb) -> anyhow::Result<()> {
    match verb {
        TokenVerb::List(query) => list(query),
        TokenVerb::Make { role, name, query } => {
            let body = json!({ "role": role, "name": name });
            print_made(query, "/v1/tokens", &body, "token")
        }
        TokenVerb::Remove { id, control } => {
            control.client()?.delete(&format!("/v1/tokens/{}", encoded(id)))?;
            output::line(&format!("token {id} is removed, and its logins have ended"))
        }
    }
}

fn list(query: &Query) -> anyhow::Result<()> {
    let tokens: Vec<Value> = query.control.client()?.get("/v1/tokens")?;
    if query.json {
        return output::json(&json!({ "tokens": tokens }));
    }
    let mut table = Table::new(&["ID", "ROLE", "NAME", "MADE", "LAST USED"]);
    for token in tokens {
        let token: Token = serde_json::from_value(token)?;
        let used = token.last_used_unix_s.map_or_else(|| "never".to_owned(), ago);
        let made = ago(token.created_unix_s);
        table.row([token.id, token.role, token.name, made, used].map(Cell::from).into());
    }
    table.print()
}

/// Lists the keys of playback tokens, after announcing a new one if asked to.
pub(crate) fn keys(args: &KeysArgs) -> anyhow::Result<()> {
    let control = args.query.control.client()?;
    let keys: Vec<Value> = match args.rotate {
        true => control.post("/v1/keys/rotate", &json!({}))?,
        false => control.get("/v1/keys")?,
    };
    if args.query.json {
        return output::json(&json!({ "keys": keys }));
    }
    let mut table = Table::new(&["KEY", "STATE"]);
    for key in keys {
        let key: KeyOut = serde_json::from_value(key)?;
        let state = match (key.signs, key.announced_unix_s, key.retires_unix_s) {
            (true, ..) => Cell::new("signs", Tone::Good),
            (_, Some(at), _) => format!("announced {}", ago(at)).into(),
            (_, None, Some(at)) => format!("goes in {}", until(at)).into(),
            (_, None, None) => "".into(),
        };
        table.row(vec![key.kid.into(), state]);
    }
    table.print()
}

pub(crate) fn audit(args: &AuditArgs) -> anyhow::Result<()> {
    ensure!((1..=COUNT_MAX).contains(&args.count), "--count: use 1 to {COUNT_MAX}");
    let control = args.query.control.client()?;
    let mut lines = Vec::new();
    let mut before = String::new();
    while lines.len() < args.count {
        let limit = (args.count - lines.len()).min(PAGE);
        let page: AuditPage = control.get(&format!("/v1/audit?limit={limit}{before}"))?;
        lines.extend(page.lines);
        let Some(next) = page.next else { break };
        before = format!("&before={next}");
    }
    if args.query.json {
        return output::json(&json!({ "lines": lines }));
    }
    let mut table = Table::new(&["WHEN", "WHO", "ROLE", "FROM", "WHAT", ">OUTCOME", "SUMMARY"]);
    for line in lines {
        let line: AuditLine = serde_json::from_value(line)?;
        let tone = match line.outcome {
            Some(200..=399) => Tone::Good,
            Some(_) => Tone::Warn,
            None => Tone::Bad,
        };
        let outcome = line.outcome.map_or_else(|| "?".to_owned(), |status| status.to_string());
        table.row(vec![
            ago(line.at_unix_s).into(),
            line.name.unwrap_or_else(|| "nobody".to_owned()).into(),
            line.role.unwrap_or_default().into(),
            line.peer.unwrap_or_default().into(),
            format!("{} {}", line.method, line.target).into(),
            Cell::new(outcome, tone),
            Cell::new(line.summary, Tone::Dim),
        ]);
    }
    table.print()
}

pub(crate) fn enrol_code(args: &EnrolArgs) -> anyhow::Result<()> {
    let path = format!("/v1/appliances/{}/enrolment", encoded(&args.appliance));
    print_made(&args.query, &path, &json!({}), "code")
}

/// Has control make a secret at `path`, and prints it: it stands in `field` of the answer.
fn print_made(query: &Query, path: &str, body: &Value, field: &str) -> anyhow::Result<()> {
    let made: Value = query.control.client()?.post(path, body)?;
    if query.json {
        return output::json(&made);
    }
    output::line(made[field].as_str().ok_or_else(|| missing(field))?)
}

/// Says that an appliance's drives hold for good what it reports.
pub(crate) fn accept(args: &RevokeArgs) -> anyhow::Result<()> {
    let id = &args.appliance;
    let path = format!("/v1/appliances/{}/usable", encoded(id));
    let accepted: Value = args.control.client()?.post(&path, &())?;
    let bytes = |field: &str| accepted[field].as_u64().map(Bytes).ok_or_else(|| missing(field));
    let (now, before) = (bytes("usable_bytes")?, bytes("planned_bytes")?);
    output::line(&format!("{id} is planned with {now} from now on; it was with {before}"))
}

pub(crate) fn revoke(args: &RevokeArgs) -> anyhow::Result<()> {
    let id = &args.appliance;
    let path = format!("/v1/appliances/{}/identity", encoded(id));
    args.control.client()?.delete(&path)?;
    output::line(&format!("the identity of {id} is refused from now on"))
}

pub(crate) fn public(args: &PublicArgs) -> anyhow::Result<()> {
    let asset = &args.asset;
    let path = format!("/v1/assets/{}/public", encoded(asset));
    let control = args.control.client()?;
    if args.off {
        control.delete(&path)?;
        return output::line(&format!("playing {asset} needs a grant from now on"));
    }
    control.put(&path, &json!({}))?;
    output::line(&format!("anybody may play {asset} from now on, without a grant"))
}

fn missing(field: &str) -> anyhow::Error {
    anyhow::anyhow!("control's answer has no {field}: is it of this version?")
}

/// Lines of the audit log that are asked for at once: as many as control gives.
const PAGE: usize = 1000;

/// As many as control keeps.
const COUNT_MAX: usize = 100_000;
