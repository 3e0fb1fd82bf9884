//! Why a client gets its list, in the words of those who decided.

#![expect(unused_qualifications, reason = "utoipa's macro qualifies what it is given")]

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::{Query, State};
use director::front::{Choice, Player};
use director::masters::Reach;
use director::waits::Wait;
use director::wishes::{Rule, RuleKind, Where, Wishes, last_copy};
use model::id::{ApplianceId, AssetId, AssetVersionId};
use model::units::UnixSeconds;
use model::view::{FleetView, Placed};
use serde::Deserialize;
use utoipa::IntoParams;
use wire::v1::fleet::{
    ExplainCandidate, ExplainOut, ExplainPathway, ExplainReason, ExplainRendition,
};
use wire::v1::identity::Escalation;

use super::asking_for::AskingFor;
use super::fill::escalation;
use super::problem::Problem;
use super::wishes::{said, words, words_of_rule};
use super::{Shared, named};
use crate::state::convert;
use crate::state::writer::Control;

/// Whose list to explain.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ExplainQuery {
    asset: String,
    /// Address to steer for, instead of the one that asks.
    client: Option<String>,
    /// `1` for a player without TLS.
    plain: Option<String>,
    /// A playback, to see its own list; without, the list of one that might begin now.
    session: Option<String>,
}

/// Why this client would get this list for this asset.
#[utoipa::path(get, path = "/v1/explain", tag = "fleet", params(ExplainQuery),
    responses((status = 200, body = ExplainOut)))]
pub(crate) async fn explain(
    State(control): Shared,
    asking: AskingFor,
    Query(query): Query<ExplainQuery>,
) -> Result<Json<ExplainOut>, Problem> {
    let asset: AssetId = named(&query.asset)?;
    let snapshot = control.snapshot();
    let client = asking.client_range(&snapshot, query.client.as_deref())?;
    let session = match &query.session {
        Some(text) => text.parse().map_err(|_| Problem::bad_request("session: not a session"))?,
        None => control.keys().session(),
    };
    let plain = matches!(query.plain.as_deref(), Some("1" | "true"));
    let player = Player { client, session: &session, plain };
    let now = control.clock.unix();
    let config = steering::Config { explains: true, ..control.steering_config() };
    let choice = match snapshot.choose(&asset, &player, now, &config) {
        Ok(choice) => choice,
        // The list is empty then, and every appliance says why it is not in it.
        Err(error) => {
            let current = snapshot.catalog.versions(&asset).first().ok_or(error)?;
            let list = snapshot.rank(current.id(), &player, &config);
            Choice { version: current, list }
        }
    };
    let current = snapshot.catalog.versions(&asset).first().map(|version| version.id().clone());
    let note = current.filter(|current| current != choice.version.id()).map(|current| {
        format!("no healthy appliance holds the current version {current} wholly yet")
    });
    let note = match snapshot.is_withdrawn(choice.version.id(), now) {
        true => Some("no playback begins: its time has not come, or is over".to_owned()),
        false => note,
    };
    let Wished { wishes, keepers } = said_of(&control, choice.version.id()).await;
    let launch = wishes.launches.get(choice.version.id()).map(|launch| said(&words(launch)));
    let note = [note, launch].into_iter().flatten().reduce(|one, other| format!("{one}; {other}"));
    let offered = choice.list.offered_count;
    let candidate = |(i, candidate): (usize, &steering::Candidate)| {
        let Placed { site, appliance, .. } = snapshot.view.placed(candidate.appliance)?;
        let reasons = candidate.reasons(&snapshot.view);
        let rule = snapshot.sites.get(&site.id);
        let rule = rule.and_then(|site| wishes.rule_at(choice.version.id(), site, now));
        let waits = control.waits().of(now, &appliance.id).cloned();
        let waits = waits.filter(|of| of.version == *choice.version.id());
        let waits = waits.map(|wait| waits_out(&wait));
        let is_last = keepers.contains(&appliance.id);
        let rule = rule.map(|rule| rule_out(rule, is_last.then_some(choice.version.id())));
        let reasons: Vec<ExplainReason> =
            reasons.map(reason_out).into_iter().chain(rule).chain(waits).collect();
        let texts: Vec<&str> = reasons.iter().map(|reason| reason.text.as_str()).collect();
        Some(ExplainCandidate {
            appliance: appliance.id.to_string(),
            site: site.id.to_string(),
            rank: (i < offered).then_some(i + 1),
            why: texts.join("; "),
            reasons,
        })
    };
    Ok(Json(ExplainOut {
        asset: asset.to_string(),
        asset_version: choice.version.id().to_string(),
        version_note: note,
        client_range: client.to_string(),
        candidates: choice.list.candidates.iter().enumerate().filter_map(candidate).collect(),
        others: choice.list.others,
        pathways: pathways_out(&choice, &snapshot.view),
    }))
}

/// What operators say of a version, and who keeps its last copy though it is banned there.
#[derive(Default)]
struct Wished {
    wishes: Wishes,
    keepers: BTreeSet<ApplianceId>,
}

/// What operators say of a version. A front does not know it, and a director that is busy says
/// nothing.
async fn said_of(control: &Control, version: &AssetVersionId) -> Wished {
    let of = version.clone();
    let found = control.directing.ask(move |desk, _| {
        let wishes = &desk.director.desired().wishes;
        let rules = wishes.rules_of(&of).map(|(at, rule)| ((of.clone(), at.clone()), *rule));
        let launches = wishes.launches.get(&of).map(|launch| (of.clone(), launch.clone()));
        let wishes = Wishes { rules: rules.collect(), launches: launches.into_iter().collect() };
        Wished { wishes, keepers: desk.director.places().keepers(&of).cloned().collect() }
    });
    found.await.unwrap_or_default()
}

/// A pin or a ban, as a reason why an appliance holds a version or not.
fn rule_out((at, rule): (&Where, Rule), kept: Option<&AssetVersionId>) -> ExplainReason {
    let said = said(&words_of_rule(at, &rule));
    let text = match kept.filter(|_| rule.kind == RuleKind::Ban) {
        Some(version) => format!("{said}; {}", last_copy(version)),
        None => said,
    };
    ExplainReason { kind: "content".to_owned(), code: Some(rule.kind.to_string()), text }
}

/// Why an appliance does not have all of a version yet: a master is to fetch it first.
fn waits_out(wait: &Wait) -> ExplainReason {
    let Wait { masters, since, further, .. } = wait;
    let text = words_of_wait(masters, *since, *further);
    ExplainReason { kind: "content".to_owned(), code: Some("waits".to_owned()), text }
}

fn words_of_wait(
    masters: &[ApplianceId],
    since: UnixSeconds,
    further: Option<(Reach, UnixSeconds)>,
) -> String {
    let names = masters.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
    let whom = if names.is_empty() { "a master that is not known yet" } else { &names };
    let further = further.and_then(|(reach, at)| {
        let whom = match escalation(reach)? {
            Escalation::Elsewhere => "other fill clusters",
            Escalation::Origin => "the origin",
        };
        Some(format!("; it asks {whom} at {}", convert::time_out(at)))
    });
    let further = further.unwrap_or_default();
    format!("it waits for {whom} to fetch it, since {}{further}", convert::time_out(since))
}

/// Each pathway, and where its renditions come from if they are apart. O(files of the version).
fn pathways_out(choice: &Choice<'_>, view: &FleetView) -> Vec<ExplainPathway> {
    let Choice { version, list } = choice;
    let name = |at: &usize| {
        let placed = view.placed(list.candidates[*at].appliance);
        placed.map(|of| of.appliance.id.to_string()).unwrap_or_default()
    };
    let renditions = version.renditions();
    let mut each: Vec<ExplainRendition> = (0..)
        .zip(renditions.each())
        .map(|(number, of)| {
            let bitrate_bps = of.bitrate.map(|bitrate| bitrate.0);
            ExplainRendition { number, bitrate_bps, ..ExplainRendition::default() }
        })
        .collect();
    for (path, number) in version.files.files.keys().zip(renditions.of_files()) {
        let file = &mut each[usize::from(*number)].file;
        if file.is_empty() {
            *file = path.to_string();
        }
    }
    let pathway = |pathway: &steering::Pathway| {
        // Those of no rendition, or of several, are 0, and come from the appliance of the pathway.
        let known = each.iter().skip(1).zip(&pathway.renditions);
        let rendition = |(of, at): (&ExplainRendition, &usize)| ExplainRendition {
            appliance: name(at),
            ..of.clone()
        };
        let renditions = known.map(rendition).collect();
        ExplainPathway { appliance: name(&pathway.lead), renditions }
    };
    list.pathways.iter().map(pathway).collect()
}

fn reason_out(reason: steering::Reason) -> ExplainReason {
    let (kind, code) = (reason.step().to_owned(), reason.code().to_owned());
    ExplainReason { kind, code: Some(code), text: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_an_appliance_waits_for_since_when_and_what_comes_next_is_said() {
        let wait = |masters: &[&str], further| {
            let masters: Vec<_> = masters.iter().map(|id| id.parse().unwrap()).collect();
            words_of_wait(&masters, UnixSeconds(1_774_656_000), further)
        };
        let at = UnixSeconds(1_774_670_400);
        assert_eq!(
            wait(&["m1", "m2"], Some((Reach::Origin, at))),
            "it waits for m1 or m2 to fetch it, since 2026-03-28T00:00:00Z; it asks the origin at \
             2026-03-28T04:00:00Z"
        );
        assert_eq!(
            wait(&[], None),
            "it waits for a master that is not known yet to fetch it, since 2026-03-28T00:00:00Z"
        );
    }

    #[test]
    fn a_ban_that_is_not_kept_says_why_and_a_pin_says_nothing_of_it() {
        let film = "film-1".parse().unwrap();
        let text = |kind| {
            let rule = Rule { kind, until: None };
            rule_out((&Where::Everywhere, rule), Some(&film)).text
        };
        let last = "; ban not kept: last copy of film-1 has no source";
        assert_eq!(text(RuleKind::Ban), format!("an operator says: banned everywhere{last}"));
        assert_eq!(text(RuleKind::Pin), "an operator says: pinned everywhere");
    }
}
