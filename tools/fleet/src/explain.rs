//! `nearcast explain`: why a client gets the appliances it gets, in this order.

use std::net::IpAddr;

use model::id::AssetId;
use model::units::{BitsPerSecond, Bytes};
use serde_json::Value;
use wire::v1::fleet::{ExplainCandidate, ExplainOut, ExplainPathway, ExplainReason};
use wire::v1::plan::Why;

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
    let colours = output::colours();
    let mut lines = lines(&explanation, args.client, colours);
    for site in lacking(&explanation.candidates) {
        let path = format!(
            "/v1/plan/why?site={}&file={}",
            encoded(site),
            encoded(&explanation.asset_version)
        );
        match control.find(&path) {
            Ok(Some(why)) => {
                let items: Vec<Why> = serde_json::from_value(why)?;
                lines.extend(planned(site, &items, colours));
            }
            // A front does not know the plan.
            Ok(None) => {}
            // What was asked for is known all the same.
            Err(error) => lines.extend([String::new(), unplanned(site, &error)]),
        }
    }
    lines.iter().try_for_each(|line| output::line(line))
}

/// More sites are not asked about.
const SITES_MAX: usize = 2;

/// The client's own sites where an appliance lacks the version or some of it, nearest first.
fn lacking(candidates: &[ExplainCandidate]) -> Vec<&str> {
    let has = |of: &ExplainCandidate, kind: &str, codes: &[&str]| {
        let code = of.reasons.iter().find(|of| of.kind == kind).and_then(|of| of.code.as_deref());
        code.is_some_and(|code| codes.contains(&code))
    };
    let mut sites: Vec<&str> = Vec::new();
    for of in candidates {
        let is_far = has(of, "locate", &["elsewhere", "no_route", "others_only"]);
        if !is_far && has(of, "content", &["lacks", "part"]) && !sites.contains(&of.site.as_str()) {
            sites.push(&of.site);
        }
    }
    sites.truncate(SITES_MAX);
    sites
}

fn unplanned(site: &str, error: &anyhow::Error) -> String {
    format!("Why {site} holds no more of it is not known: {error:#}")
}

/// Why the plan brings no more of the version to a site.
fn planned(site: &str, items: &[Why], colours: bool) -> Vec<String> {
    let mut table = Table::new(&["APPLIANCE", "RENDITION", "PLANNED", "WHY"]);
    for Why { appliance, rendition, held, why, .. } in items {
        let tone = if *held { Tone::Plain } else { Tone::Warn };
        table.row(vec![
            appliance.as_str().into(),
            rendition.map_or_else(|| "all".to_owned(), |of| of.to_string()).into(),
            Cell::new(if *held { "held" } else { "not held" }, tone),
            why.as_str().into(),
        ]);
    }
    let head = [String::new(), format!("By the plan, {site} holds of it:")];
    head.into_iter().chain(table.lines(colours)).collect()
}

fn lines(explanation: &ExplainOut, client: IpAddr, colours: bool) -> Vec<String> {
    let ExplainOut { asset, asset_version, version_note, client_range, candidates, .. } =
        explanation;
    let others = &explanation.others;
    let offered = candidates.iter().filter(|candidate| candidate.rank.is_some()).count();
    let mut lines = vec![format!(
        "A player at {client} (steered as {client_range}) that asks for {asset} gets \
         {asset_version} from {offered} of {} appliances.",
        Bytes::of(candidates.len()).0 + others
    )];
    lines.extend(version_note.as_ref().map(|note| format!("Not the current version: {note}.")));
    lines.push(String::new());
    lines.extend(table(candidates, *others, colours));
    lines.extend(pathways(&explanation.pathways, colours));
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

/// A table of pathways, where one of them has renditions from elsewhere.
fn pathways(pathways: &[ExplainPathway], colours: bool) -> Vec<String> {
    if pathways.iter().all(|pathway| pathway.renditions.is_empty()) {
        return Vec::new();
    }
    let mut table = Table::new(&["PATHWAY", "RENDITION", ">UP TO", "FROM"]);
    for ExplainPathway { appliance, renditions } in pathways {
        if renditions.is_empty() {
            table.row([appliance.as_str(), "all", "-", appliance].map(Cell::from).into());
        }
        for (index, of) in renditions.iter().enumerate() {
            let bitrate = of.bitrate_bps.map(|bps| output::rate(BitsPerSecond(bps)));
            let tone = if of.appliance == *appliance { Tone::Plain } else { Tone::Warn };
            table.row(vec![
                if index == 0 { appliance.as_str() } else { "" }.into(),
                of.file.as_str().into(),
                bitrate.unwrap_or_else(|| "-".to_owned()).into(),
                Cell::new(of.appliance.as_str(), tone),
            ]);
        }
    }
    [String::new()].into_iter().chain(table.lines(colours)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_own_sites_that_lack_it_the_plan_is_asked() {
        let candidate = |site: &str, locate: &str, content: &str| {
            serde_json::from_value::<ExplainCandidate>(serde_json::json!({
                "appliance": format!("{site}-1"), "site": site, "rank": null, "why": "",
                "reasons": [{"kind": "locate", "code": locate, "text": ""},
                            {"kind": "content", "code": content, "text": ""}]}))
            .unwrap()
        };
        let all = [
            candidate("far", "elsewhere", "lacks"),
            candidate("near", "first", "part"),
            candidate("near", "first", "lacks"),
            candidate("whole", "prefix", "whole"),
            candidate("second", "prefix", "lacks"),
            candidate("third", "place", "lacks"),
        ];
        assert_eq!(lacking(&all), ["near", "second"]);
        let planned = |rendition, held, why: &str| Why {
            appliance: "near-1".to_owned(),
            version: "film-1".to_owned(),
            rendition,
            held,
            why: why.to_owned(),
        };
        let items = [planned(Some(1), true, "it is worth it"), planned(None, false, "it is not")];
        let expected = [
            "",
            "By the plan, near holds of it:",
            "APPLIANCE  RENDITION  PLANNED   WHY",
            "near-1     1          held      it is worth it",
            "near-1     all        not held  it is not",
        ];
        assert_eq!(super::planned("near", &items, false), expected);
        let away = anyhow::anyhow!("it does not answer").context("GET /v1/plan/why");
        let said =
            "Why near holds no more of it is not known: GET /v1/plan/why: it does not answer";
        assert_eq!(unplanned("near", &away), said);
    }

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

    #[test]
    fn pathways_are_told_where_renditions_come_from_several() {
        let told: Vec<ExplainPathway> = serde_json::from_value(serde_json::json!([
            {"appliance": "a1", "renditions": [
                {"number": 1, "file": "v/r0.m3u8", "bitrate_bps": 900_000, "appliance": "a1"},
                {"number": 2, "file": "v/r1.m3u8", "bitrate_bps": 2_500_000, "appliance": "b1"},
                {"number": 3, "file": "v/sound.m3u8", "bitrate_bps": null, "appliance": "a1"}]},
            {"appliance": "b1", "renditions": []}]))
        .unwrap();
        let expected = [
            "",
            "PATHWAY  RENDITION         UP TO  FROM",
            "a1       v/r0.m3u8      900 kb/s  a1",
            "         v/r1.m3u8     2.50 Mb/s  b1",
            "         v/sound.m3u8          -  a1",
            "b1       all                   -  b1",
        ];
        assert_eq!(pathways(&told, false), expected);
        assert!(pathways(&told[1..], false).is_empty(), "all of it from one each");
    }
}
