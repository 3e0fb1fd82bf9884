//! Why a client gets its list, in the words of those who decided.

#![expect(unused_qualifications, reason = "utoipa's macro qualifies what it is given")]

use axum::Json;
use axum::extract::{Query, State};
use director::front::{Choice, Player};
use director::wishes::{Rule, Where, Wishes};
use model::id::{AssetId, AssetVersionId};
use model::view::{FleetView, Placed};
use serde::Deserialize;
use utoipa::IntoParams;
use wire::v1::fleet::{
    ExplainCandidate, ExplainOut, ExplainPathway, ExplainReason, ExplainRendition,
};

use super::asking_for::AskingFor;
use super::problem::Problem;
use super::wishes::{said, words, words_of_rule};
use super::{Shared, named};
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
    let wishes = said_of(&control, choice.version.id()).await;
    let launch = wishes.launches.get(choice.version.id()).map(|launch| said(&words(launch)));
    let note = [note, launch].into_iter().flatten().reduce(|one, other| format!("{one}; {other}"));
    let offered = choice.list.offered_count;
    let candidate = |(i, candidate): (usize, &steering::Candidate)| {
        let Placed { site, appliance, .. } = snapshot.view.placed(candidate.appliance)?;
        let reasons = candidate.reasons(&snapshot.view);
        let rule = snapshot.sites.get(&site.id);
        let rule = rule.and_then(|site| wishes.rule_at(choice.version.id(), site, now));
        let reasons: Vec<ExplainReason> =
            reasons.map(reason_out).into_iter().chain(rule.map(rule_out)).collect();
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

/// What operators say of a version. A front does not know it, and a director that is busy says
/// nothing.
async fn said_of(control: &Control, version: &AssetVersionId) -> Wishes {
    let of = version.clone();
    let found = control.directing.ask(move |desk, _| {
        let wishes = &desk.director.desired().wishes;
        let rules = wishes.rules_of(&of).map(|(at, rule)| ((of.clone(), at.clone()), *rule));
        let launches = wishes.launches.get(&of).map(|launch| (of.clone(), launch.clone()));
        Wishes { rules: rules.collect(), launches: launches.into_iter().collect() }
    });
    found.await.unwrap_or_default()
}

/// A pin or a ban, as a reason why an appliance holds a version or not.
fn rule_out((at, rule): (&Where, Rule)) -> ExplainReason {
    let text = said(&words_of_rule(at, &rule));
    ExplainReason { kind: "content".to_owned(), code: Some(rule.kind.to_string()), text }
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
