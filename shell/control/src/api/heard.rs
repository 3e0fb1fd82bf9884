//! What sites hear from their routers, and what is wrong with it.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use model::topology::Prefix;
use wire::v1::fleet::{RoutesAppliance, RoutesOut, RoutesSite};
use wire::v1::routes::{Example, LeftOut};

use super::Shared;

/// Prefixes of a site without a second way that are shown.
const UNSHARED_SHOWN: usize = 100;

/// What sites hear from their routers: sessions, what was left out and why, appliances of one site
/// that do not hear the same, and prefixes that no other site has a way to.
#[utoipa::path(get, path = "/v1/routes", tag = "fleet",
    responses((status = 200, body = RoutesOut)))]
pub(crate) async fn routes(State(control): Shared) -> Json<RoutesOut> {
    let (mut out, table) = {
        let state = control.state();
        let director = &state.director;
        let mut sites: BTreeMap<String, RoutesSite> = BTreeMap::new();
        for site in director.desired().sites.values() {
            let heard = director.heard(&site.id);
            let found = RoutesSite {
                site: site.id.to_string(),
                about: site.into(),
                prefixes: heard.map(|heard| heard.count),
                digest: heard.map(|heard| heard.to_string()),
                differ: director.differing().any(|of| *of == site.id),
                ..RoutesSite::default()
            };
            sites.insert(site.id.to_string(), found);
        }
        for (id, registered) in director.desired().appliances.as_ref() {
            let heard = state.reports.get(id).and_then(|report| report.routes.clone());
            let site = sites.get_mut(registered.appliance.site.as_str());
            if let (Some(site), Some(heard)) = (site, heard) {
                let appliance = id.to_string();
                let mut found = RoutesAppliance { appliance, heard };
                // Of all that say the same, whoever is first.
                let is_told =
                    site.appliances.iter().any(|of| of.heard.digest == found.heard.digest);
                let is_ours = found.heard.digest.is_some() && site.digest == found.heard.digest;
                if !is_told && is_ours {
                    let refused = director.refused_routes(&registered.appliance.site);
                    found.heard.left_out.extend(by_control(refused));
                }
                site.appliances.push(found);
            }
        }
        let out = RoutesOut { sites: sites.into_values().collect(), ..RoutesOut::default() };
        (out, director.snapshot().routes)
    };
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
    Json(out)
}

/// What its appliance let in, and control did not.
fn by_control((found, first): (usize, Vec<Prefix>)) -> Option<LeftOut> {
    let example = |prefix: &Prefix| Example { prefix: prefix.to_string(), ..Example::default() };
    (found != 0).then(|| LeftOut {
        cause: "refused_by_control".to_owned(),
        why: "refused by control: shorter than anybody has, or longer than its [routes] allow"
            .to_owned(),
        count: count(found),
        examples: first.iter().map(example).collect(),
    })
}

fn count(len: usize) -> u64 {
    model::units::Bytes::of(len).0
}
