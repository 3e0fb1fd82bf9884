//! `nearcast explain`: why a client gets the appliances it gets, in this order.

use std::net::IpAddr;

use model::id::AssetId;
use model::units::Bytes;
use serde_json::Value;
use wire::v1::fleet::{ExplainCandidate, ExplainOut, ExplainReason};

use crate::control::{Query, encoded};
use crate::output::{self, Cell, Table, Tone};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Asset that the client wants to play
    #[arg(long, value_name = "NAME")]
    asset: AssetId,
    /// Address of the client
    #[arg(long, value_name = "ADDR")]
    client: IpAddr,
    /// A running playback, to see its own list [default: one that might begin now]
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// For a player without TLS, as the demo offers
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    query: Query,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut path = format!("/v1/explain?asset={}&client={}", args.asset, args.client);
    if let Some(session) = &args.session {
        path.push_str(&format!("&session={}", encoded(session)));
    }
    if args.plain {
        path.push_str("&plain=1");
    }
    let control = args.query.control.client()?;
    if args.query.json {
        return output::json(&control.get::<Value>(&path)?);
    }
    let explanation: ExplainOut = control.get(&path)?;
    lines(&explanation, args.client, output::colours()).iter().try_for_each(|l| output::line(l))
}

fn lines(explanation: &ExplainOut, client: IpAddr, colours: bool) -> Vec<String> {
    let ExplainOut { asset, asset_version, version_note, client_range, candidates, others } =
        explanation;
    let offered = candidates.iter().filter(|candidate| candidate.rank.is_some()).count();
    let mut lines = vec![format!(
        "A player at {client} (steered as {client_range}) that asks for {asset} gets \
         {asset_version} from {offered} of {} appliances.",
        Bytes::of(candidates.len()).0 + others
    )];
    lines.extend(version_note.as_ref().map(|note| format!("Not the current version: {note}.")));
    lines.push(String::new());
    lines.extend(table(candidates, *others, colours));
    lines
}

/// Everybody who was looked at, and why each is where it is.
pub(crate) fn table(candidates: &[ExplainCandidate], others: u64, colours: bool) -> Vec<String> {
    let mut table = Table::new(&[">RANK", "APPLIANCE", "SITE", "WHY"]);
    for candidate in candidates {
        let (rank, tone) = match candidate.rank {
            Some(rank) => (rank.to_string(), Tone::Good),
            None => ("-".to_owned(), Tone::Dim),
        };
        for (index, ExplainReason { text, .. }) in candidate.reasons.iter().enumerate() {
            let once = |text: &str| Cell::new(if index == 0 { text } else { "" }, tone);
            table.row(vec![
                once(&rank),
                once(&candidate.appliance),
                once(&candidate.site),
                text.as_str().into(),
            ]);
        }
    }
    let mut lines = table.lines(colours);
    if others != 0 {
        lines.push(String::new());
        lines.push(format!("{others} more were not looked at: those above are nearer, or enough."));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_appliance_is_there_with_its_reasons_below_each_other() {
        let explanation: ExplainOut = serde_json::from_value(serde_json::json!({
            "asset": "film", "asset_version": "film-0123456789ab", "version_note": null,
            "client_range": "127.0.0.1/32",
            "candidates": [
                {"appliance": "a2", "site": "s1", "rank": 1, "why": "",
                 "reasons": [
                    {"kind": "locate", "text": "own site: 127.0.0.1/32 is the longest match"},
                    {"kind": "content", "text": "holds the whole version"},
                    {"kind": "load", "text": "load 0.0 % (CPU), takes 100.0 % of its sessions"}]},
                {"appliance": "a3", "site": "s2", "rank": null, "why": "",
                 "reasons": [{"kind": "content", "text": "does not hold the whole version"}]}],
        }))
        .unwrap();
        let expected = [
            "A player at 127.0.0.1 (steered as 127.0.0.1/32) that asks for film gets \
             film-0123456789ab from 1 of 2 appliances.",
            "",
            "RANK  APPLIANCE  SITE  WHY",
            "   1  a2         s1    own site: 127.0.0.1/32 is the longest match",
            "                       holds the whole version",
            "                       load 0.0 % (CPU), takes 100.0 % of its sessions",
            "   -  a3         s2    does not hold the whole version",
        ];
        let client = "127.0.0.1".parse().unwrap();
        assert_eq!(lines(&explanation, client, false), expected);
        let of_many = lines(&ExplainOut { others: 98, ..explanation }, client, false);
        assert!(of_many[0].ends_with("1 of 100 appliances."), "{}", of_many[0]);
        let last = "98 more were not looked at: those above are nearer, or enough.";
        assert_eq!(of_many.last().map(String::as_str), Some(last));
    }
}
