//! What sites hear from their routers, and what is wrong with it.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use director::Director;
use model::id::SiteId;
use model::topology::Prefix;
use routes::Digest;
use wire::v1::fleet::{RoutesAppliance, RoutesOut, RoutesSite};
use wire::v1::routes::{Example, LeftOut};

use super::Shared;
use super::problem::Problem;
use crate::state::directing::Desk;

/// Prefixes of a site without a second way that are shown.
const UNSHARED_SHOWN: usize = 100;

/// What sites hear from their routers: sessions, what was left out and why, appliances of one site
/// that do not hear the same, and prefixes that no other site has a way to.
#[utoipa::path(get, path = "/v1/routes", tag = "fleet",
    responses((status = 200, body = RoutesOut)))]
pub(crate) async fn routes(State(control): Shared) -> Result<Json<RoutesOut>, Problem> {
    let mut sites: BTreeMap<String, RoutesSite> = BTreeMap::new();
    let mut refused: BTreeMap<String, Refused> = BTreeMap::new();
    let snapshot = control.snapshot();
    let names: Vec<&SiteId> = snapshot.sites.keys().collect();
    for names in names.chunks(SITES_AT_ONCE) {
        let names: Vec<SiteId> = names.iter().map(|id| (*id).clone()).collect();
        let heard = move |desk: &Desk, _| {
            let one = |id: SiteId| Heard::of(&desk.director, id);
            names.into_iter().map(one).collect::<Vec<_>>()
        };
        for Heard { id, digest, differ, refused: not_taken } in control.directing.ask(heard).await?
        {
            let Some(site) = snapshot.sites.get(&id) else { continue };
            let found = RoutesSite {
                site: id.to_string(),
                about: site.into(),
                prefixes: digest.map(|digest| digest.count),
                digest: digest.map(|digest| digest.to_string()),
                differ,
                ..RoutesSite::default()
            };
            sites.insert(id.to_string(), found);
            refused.insert(id.to_string(), not_taken);
        }
    }
    for told in control.directing.fleet().await? {
        let heard = told.report.and_then(|report| report.routes.clone());
        let name = told.status.registered.appliance.site.as_str();
        if let (Some(site), Some(heard)) = (sites.get_mut(name), heard) {
            let appliance = told.id.to_string();
            let mut found = RoutesAppliance { appliance, heard };
            // Of all that say the same, whoever is first.
            let is_told = site.appliances.iter().any(|of| of.heard.digest == found.heard.digest);
            let is_ours = found.heard.digest.is_some() && site.digest == found.heard.digest;
            if !is_told && is_ours {
                found.heard.left_out.extend(refused.get(name).and_then(by_control));
            }
            site.appliances.push(found);
        }
    }
    let mut out = RoutesOut { sites: sites.into_values().collect(), ..RoutesOut::default() };
    let table = snapshot.routes.clone();
    // All prefixes are looked at: a second at most.
    let looked = move || (table.len(), table.unshared(UNSHARED_SHOWN));
    let ((v4, v6), mut unshared) =
        tokio::task::spawn_blocking(looked).await.expect("nothing in it panics");
    for site in &mut out.sites {
        let found = unshared.by_site.remove(site.site.as_str());
        let (count, examples) = found.unwrap_or_default();
        site.unshared = count;
        site.unshared_examples = examples.iter().map(ToString::to_string).collect();
    }
    (out.prefixes_v4, out.prefixes_v6) = (count(v4), count(v6));
    Ok(Json(out))
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
