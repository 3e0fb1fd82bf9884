//! What sites hear from their routers, and what is wrong with it.

#![expect(unused_qualifications, reason = "utoipa's macro qualifies what it is given")]

use std::collections::BTreeMap;
use std::net::IpAddr;

use axum::Json;
use axum::extract::{Path, Query, State};
use director::{Director, Snapshot};
use model::id::SiteId;
use model::near::{By, Class, Near};
use model::topology::Prefix;
use routes::{Digest, Table};
use serde::Deserialize;
use utoipa::IntoParams;
use wire::v1::fleet::{RouteFound, RouteSite, RoutesAppliance, RoutesOut, RoutesSite};
use wire::v1::routes::{Example, LeftOut};

use super::fleet::{sites_asked, told_of};
use super::problem::Problem;
use super::{Shared, named};
use crate::state::directing::{Desk, Told};
use crate::state::writer::Control;

/// Parameters of `GET /v1/routes`.
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
    let names = sites_asked(&snapshot, only.as_ref())?;
    let mut sites = heard_by(&control, &snapshot, names).await?;
    let told = told_of(&control, only.as_ref()).await?;
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
    let heard = |desk: &Desk, id: &SiteId| Some(Heard::of(&desk.director, id));
    for (id, Heard { digest, differ, refused }) in
        control.directing.each(names, SITES_AT_ONCE, heard).await?
    {
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
    digest: Option<Digest>,
    differ: bool,
    refused: Refused,
}

/// How much of it is not believed, and the first of that.
type Refused = (usize, Vec<Prefix>);

impl Heard {
    fn of(director: &Director, id: &SiteId) -> Self {
        let differ = director.differing().any(|of| of == id);
        Self { digest: director.heard(id), differ, refused: director.refused_routes(id) }
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

/// The sites of an address, in the order in which its client is led to them: each with its prefix
/// and what was announced with it, and the step of the order that put it behind the one before.
/// O(log prefixes).
#[utoipa::path(get, path = "/v1/routes/{address}", tag = "fleet",
    responses((status = 200, body = RouteFound)))]
pub(crate) async fn find(
    State(control): Shared,
    Path(address): Path<String>,
) -> Result<Json<RouteFound>, Problem> {
    let client: IpAddr = address.parse().map_err(|_| {
        let detail = format!("\"{address}\" is not an IP address: write for example 192.0.2.7");
        Problem::bad_request(detail)
    })?;
    let snapshot = control.snapshot();
    let range = snapshot.client_range(client);
    let located = snapshot.routes.locate(&range);
    Ok(Json(RouteFound {
        client_range: range.to_string(),
        longest: located.longest.map(|prefix| prefix.to_string()),
        sites: located.sites.iter().map(|near| found_out(&snapshot.routes, near)).collect(),
    }))
}

fn found_out(routes: &Table, near: &Near) -> RouteSite {
    let found = RouteSite {
        site: routes.site(near.number).map(ToString::to_string).unwrap_or_default(),
        code: near.step.as_str().to_owned(),
        why: near.step.to_string(),
        ..RouteSite::default()
    };
    let route = match &near.by {
        By::Route(route) => route,
        By::Place(nearness) => {
            return RouteSite {
                by: "place".to_owned(),
                place: Some(nearness.to_string()),
                ..found
            };
        }
    };
    let by = match (route.is_static, route.class) {
        (true, _) => "static",
        (false, Class::Embedded) => "embedded",
        (false, Class::Private) => "private",
        (false, Class::Public) => "public",
    };
    let heard = routes.announced(&route.prefix, near.number).filter(|_| !route.is_static);
    RouteSite {
        prefix: Some(route.prefix.to_string()),
        by: by.to_owned(),
        as_path: heard.map(|heard| heard.as_path().to_vec()).unwrap_or_default(),
        med: route.med,
        communities: heard
            .map(|heard| heard.communities().iter().map(ToString::to_string).collect())
            .unwrap_or_default(),
        ..found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::topology::{Site, SiteKind};
    use routes::filter::Longest;
    use routes::{Attributes, Community, Difference, Peering, Routes};
    use std::sync::Arc;

    #[test]
    fn the_sites_of_an_address_are_told_with_what_was_announced_and_the_step_between_them() {
        let site = |id: &str, kind, prefixes: &[&str]| {
            let prefixes = prefixes.iter().map(|text| text.parse().unwrap()).collect();
            Site { kind, ..Site::new(id.parse().unwrap(), prefixes) }
        };
        let sites = [
            site("isp", SiteKind::Embedded, &[]),
            site("ix", SiteKind::Exchange, &[]),
            site("old", SiteKind::Exchange, &["198.0.0.0/8"]),
        ];
        let mut routes = Routes::new(Longest::USUAL);
        routes.change_sites(&[], &[(0, &sites[0]), (1, &sites[1]), (2, &sites[2])]);
        let mut hear = |site: &Site, peering, as_path: &[u32], med, communities| {
            let heard = Attributes::new(peering, as_path.to_vec(), med, communities);
            let announced = vec![("198.51.0.0/16".parse().unwrap(), Arc::new(heard))];
            routes.apply(&site.id, &Difference { announced, withdrawn: vec![] }, true);
        };
        hear(&sites[0], Peering::Private, &[64501], None, vec![]);
        let communities = vec![Community::Plain(64502, 7), Community::Large(64502, 1, 2)];
        hear(&sites[1], Peering::Public, &[64502, 64501], Some(20), communities);
        let client = "198.51.100.0/24".parse().unwrap();
        let located = routes.table().locate(&client).sites;
        let line = |near: &Near| {
            let of = found_out(routes.table(), near);
            let prefix = of.prefix.unwrap();
            let (path, med) = (of.as_path, of.med);
            format!(
                "{} {prefix} {} {path:?} {med:?} {:?} {}: {}",
                of.site, of.by, of.communities, of.code, of.why
            )
        };
        let expected = [
            "isp 198.51.0.0/16 embedded [64501] None [] first: before all others",
            "ix 198.51.0.0/16 public [64502, 64501] Some(20) [\"64502:7\", \"64502:1:2\"] class: \
             after closer peering",
            "old 198.0.0.0/8 static [] None [] prefix: after longer prefixes",
        ];
        assert_eq!(located.iter().map(line).collect::<Vec<_>>(), expected);
    }
}
