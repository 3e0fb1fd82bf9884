//! `nearcast replay --session`: the decisions about one playback, one by one.

use anyhow::ensure;
use ledger::{Kind, Told};
use model::id::parse_hex;
use model::units::Bytes;
use playback::token::Session;
use serde_json::{Value, json};
use wire::v1::fleet::{ExplainCandidate, ExplainReason};

use super::{Args, LeftOut, each};
use crate::{explain, output};

/// How the draw of a session begins.
pub(super) type Draw = Vec<u8>;

/// A session, or its mark in logs: eight digits of hex.
pub(super) fn draw(text: &str) -> Result<Draw, String> {
    let mut mark = [0; 4];
    if parse_hex(text, &mut mark) {
        return Ok(mark.into());
    }
    let session = text.parse::<Session>();
    let session = session.map_err(|_| {
        "it is no session, and no mark of one: 16 letters, digits, \"-\" and \"_\", or 8 digits of \
         hex as in logs"
    })?;
    Ok(session.draw().into())
}

pub(super) fn run(args: &Args, draw: &Draw) -> anyhow::Result<()> {
    let mut told: Vec<Told> = Vec::new();
    let LeftOut { torn, older, gaps } = each(args, |opened| {
        told.extend(ledger::tell(opened, draw)?);
        Ok(())
    })?;
    if args.query.json {
        let decisions: Vec<Value> = told.iter().map(object).collect();
        let object = json!({ "decisions": decisions, "torn": torn, "older": older, "gaps": gaps });
        output::json(&object)?;
    } else {
        lines(&told, output::colours()).iter().try_for_each(|line| output::line(line))?;
    }
    ensure!(
        !told.is_empty(),
        "no decision about this playback is in these files: it is longer ago, another process \
         answered it (ask each by its --control), or [ledger] one_in left its session out"
    );
    let differing = told.iter().filter(|told| told.difference.is_some()).count();
    ensure!(differing == 0, "{differing} decisions cannot be made again as they were");
    Ok(())
}

fn lines(told: &[Told], colours: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = told;
    while let [first, after @ ..] = rest {
        let words = words(first, colours);
        let again = after.iter().take_while(|next| self::words(next, colours) == words).count();
        let (same, after) = after.split_at(again);
        if !lines.is_empty() {
            lines.push(String::new());
        }
        let until = same.last().map(|last| {
            let times = if again == 1 { "once more".to_owned() } else { format!("{again} times") };
            format!("; the same {times} until {}", output::time(last.at.0))
        });
        lines.push(format!("{}{}", output::time(first.at.0), until.unwrap_or_default()));
        lines.extend(words);
        rest = after;
    }
    lines
}

/// All of a decision but when it was made.
fn words(told: &Told, colours: bool) -> Vec<String> {
    let Told { kind, generation, plain, version, pathways, difference, .. } = told;
    let version = version.as_ref().map_or("a version that was not known", |id| id.as_str());
    let offered = told.offered_count;
    let all = Bytes::of(told.candidates.len()).0 + told.others;
    let of = match (kind, pathways) {
        (Kind::Steered, Some(count)) => format!("of the {count} pathways that it began with"),
        _ => format!("from {offered} of {all} appliances"),
    };
    let what = match kind {
        Kind::Begun => "The playback began",
        Kind::Steered => "A steering answer",
    };
    let plain = if *plain { ", for a player without TLS" } else { "" };
    let mut lines = vec![format!("{what}: {version}, {of}{plain} (generation {generation})")];
    lines.extend(difference.as_ref().map(|difference| {
        format!("Not what was decided then: {difference}. This is the list of now:")
    }));
    lines.push(String::new());
    lines.extend(explain::table(&candidates(told), told.others, colours));
    lines
}

fn object(told: &Told) -> Value {
    let Told { at, kind, generation, plain, version, pathways, difference, .. } = told;
    json!({
        "at_unix_s": at.0,
        "kind": match kind {
            Kind::Begun => "begun",
            Kind::Steered => "steered",
        },
        "generation": generation,
        "asset_version": version.as_ref().map(ToString::to_string),
        "plain": plain,
        "pathways": pathways,
        "candidates": candidates(told),
        "others": told.others,
        "difference": difference.as_ref().map(ToString::to_string),
    })
}

/// In the form of `nearcast explain`.
fn candidates(told: &Told) -> Vec<ExplainCandidate> {
    let candidates = told.candidates.iter().enumerate().map(|(at, candidate)| {
        let reasons = candidate.reasons.map(|reason| ExplainReason {
            kind: reason.step().to_owned(),
            code: Some(reason.code().to_owned()),
            text: reason.to_string(),
        });
        ExplainCandidate {
            appliance: candidate.appliance.to_string(),
            site: candidate.site.to_string(),
            rank: (at < told.offered_count).then_some(at + 1),
            why: reasons.each_ref().map(|reason| reason.text.as_str()).join("; "),
            reasons: reasons.into(),
        }
    });
    candidates.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::units::UnixSeconds;

    fn told(at: u64, kind: Kind) -> Told {
        let pathways = (kind == Kind::Steered).then_some(2);
        Told {
            number: 1,
            kind,
            at: UnixSeconds(1_800_000_000 + at),
            generation: 9,
            plain: false,
            version: "film-1".parse().ok(),
            pathways,
            candidates: Vec::new(),
            offered_count: 0,
            others: 7,
            difference: None,
        }
    }

    #[test]
    fn decisions_that_are_the_same_are_told_once() {
        let steered = |at| told(at, Kind::Steered);
        let other = Told { plain: true, generation: 10, ..steered(40) };
        let all = [told(0, Kind::Begun), steered(10), steered(20), steered(30), other];
        let lines = lines(&all, false);
        let heads: Vec<&str> = lines
            .iter()
            .filter(|line| line.starts_with("20") || line.contains("film-1"))
            .map(String::as_str)
            .collect();
        let wanted = [
            "2027-01-15T08:00:00Z",
            "The playback began: film-1, from 0 of 7 appliances (generation 9)",
            "2027-01-15T08:00:10Z; the same 2 times until 2027-01-15T08:00:30Z",
            "A steering answer: film-1, of the 2 pathways that it began with (generation 9)",
            "2027-01-15T08:00:40Z",
            "A steering answer: film-1, of the 2 pathways that it began with, for a player without \
             TLS (generation 10)",
        ];
        assert_eq!(heads, wanted, "{lines:#?}");
        let once = super::lines(&[steered(0), steered(10)], false);
        assert!(once[0].contains("; the same once more until 2027-01-15T08:00:10Z"), "{}", once[0]);
    }

    #[test]
    fn a_playback_is_named_by_its_session_or_by_its_mark_in_logs() {
        let session: Session = "AAECAwQFBgcICQoL".parse().unwrap();
        let whole = draw("AAECAwQFBgcICQoL").unwrap();
        assert_eq!(whole, session.draw());
        let mark: String = session.mark().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(draw(&mark).unwrap(), whole[..4]);
        for odd in ["", "AAECAwQFBgcICQo", "AAECAwQFBgcICQo!", "9F86D081", "9f86d08"] {
            let refused = draw(odd).unwrap_err();
            assert!(refused.contains("8 digits of hex as in logs"), "{refused}");
        }
    }
}
