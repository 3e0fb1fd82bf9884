//! What sites hear from their routers, and what is wrong with it.

#![expect(unused_qualifications, reason = "utoipa's macro qualifies what it is given")]

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Query, State};
use director::{Director, Snapshot};
use model::id::SiteId;
use model::topology::Prefix;
use routes::Digest;
use serde::Deserialize;
use utoipa::IntoParams;
use wire::v1::fleet::{RoutesAppliance, RoutesOut, RoutesSite};
use wire::v1::routes::{Example, LeftOut};

use super::fleet::standing_in;
use super::problem::Problem;
use super::registry::no_site;
use super::{Shared, named};
use crate::state::directing::{Desk, Told};
use crate::state::writer::Control;

/// Which sites.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RoutesQuery {
    /// This one alone.
    site: Option<String>,
}

/// What sites hear from their routers: sessions, what was left out and why, appliances of one site
/// that do not hear the same, and prefixes that no other site has a way to, as they were counted
/// last: once a minute if there are many. O(appliances); of one site O(its own + sites).
#[utoipa::path(get, path = "/v1/routes", tag = "fleet", params(RoutesQuery),
    responses((status = 200, body = RoutesOut)))]
pub(crate) async fn routes(
    State(control): Shared,
    Query(query): Query<RoutesQuery>,
) -> Result<Json<RoutesOut>, Problem> {
    let only: Option<SiteId> = query.site.as_deref().map(named).transpose()?;
    let snapshot = control.snapshot();
    let names = match &only {
        Some(site) if !snapshot.sites.contains_key(site) => return Err(no_site(site.as_str())),
        Some(site) => vec![site.clone()],
        None => snapshot.sites.keys().cloned().collect(),
    };
    let mut sites = heard_by(&control, &snapshot, names).await?;
    let told = match &only {
        Some(site) => control.directing.those(standing_in(&snapshot.view, site)).await?,
        None => control.directing.fleet().await?,
    };
    told.into_iter().for_each(|told| add_appliance(&mut sites, told));
    let unshared = control.unshared.seen();
    let mut out = RoutesOut::default();
    for (id, Known { mut site, .. }) in sites {
        if let Some((count, examples)) = unshared.by_site.get(&id) {
            site.unshared = *count;
            site.unshared_examples = examples.iter().map(ToString::to_string).collect();
        }
        out.sites.push(site);
    }
    let (v4, v6) = snapshot.routes.len();
    (out.prefixes_v4, out.prefixes_v6) = (count(v4), count(v6));
    Ok(Json(out))
}

/// A site, and what it hears and is not believed.
struct Known {
    site: RoutesSite,
    refused: Refused,
}

/// What these sites are known to hear: some in one step of the director.
async fn heard_by(
    control: &Control,
    snapshot: &Snapshot,
    names: Vec<SiteId>,
) -> Result<BTreeMap<SiteId, Known>, Problem> {
    let mut sites = BTreeMap::new();
    for names in names.chunks(SITES_AT_ONCE) {
        let names = names.to_vec();
        let heard = move |desk: &Desk, _| {
            let one = |id: SiteId| Heard::of(&desk.director, id);
            names.into_iter().map(one).collect::<Vec<_>>()
        };
        for Heard { id, digest, differ, refused } in control.directing.ask(heard).await? {
            let Some(site) = snapshot.sites.get(&id) else { continue };
            let site = RoutesSite {
                site: id.to_string(),
                about: site.into(),
                prefixes: digest.map(|digest| digest.count),
                digest: digest.map(|digest| digest.to_string()),
                differ,
                ..RoutesSite::default()
            };
            sites.insert(id, Known { site, refused });
        }
    }
    Ok(sites)
}

/// What an appliance hears, by its last report.
fn add_appliance(sites: &mut BTreeMap<SiteId, Known>, told: Told) {
    let heard = told.report.and_then(|report| report.routes.clone());
    let Some(known) = sites.get_mut(&told.status.registered.appliance.site) else { return };
    let (Some(mut heard), Known { site, refused }) = (heard, known) else { return };
    // Of all that say the same, whoever is first.
    let is_told = site.appliances.iter().any(|of| of.heard.digest == heard.digest);
    let is_ours = heard.digest.is_some() && site.digest == heard.digest;
    if !is_told && is_ours {
        heard.left_out.extend(by_control(refused));
    }
    site.appliances.push(RoutesAppliance { appliance: told.id.to_string(), heard });
}

/// What a site is known to hear.
struct Heard {
    id: SiteId,
    digest: Option<Digest>,
    differ: bool,
    refused: Refused,
}

/// How much of it is not believed, and the first of that.
type Refused = (usize, Vec<Prefix>);

impl Heard {
    fn of(director: &Director, id: SiteId) -> Self {
        let differ = director.differing().any(|of| *of == id);
        Self { digest: director.heard(&id), differ, refused: director.refused_routes(&id), id }
    }
}

/// Sites that are looked at in one step.
const SITES_AT_ONCE: usize = 64;

/// What its appliance let in, and control did not.
fn by_control((found, first): &Refused) -> Option<LeftOut> {
    let example = |prefix: &Prefix| Example { prefix: prefix.to_string(), ..Example::default() };
    (*found != 0).then(|| LeftOut {
        cause: "refused_by_control".to_owned(),
        why: "refused by control: shorter than anybody has, or longer than its [routes] allow"
            .to_owned(),
        count: count(*found),
        examples: first.iter().map(example).collect(),
    })
}

fn count(len: usize) -> u64 {
    model::units::Bytes::of(len).0
}
