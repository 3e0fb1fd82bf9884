//! The picture that a front answers players from: immutable, and all the state that it has.
//!
//! A playback's URLs carry all that answers need: a [`Grant`] to begin with, a [`Ticket`] to be
//! steered by.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use model::id::{ApplianceId, AssetId, AssetVersionId, SiteId};
use model::names::Names;
use model::topology::{Prefix, Site};
use model::units::{BitsPerSecond, UnixSeconds};
use model::view::{FleetView, Renditions};
use playback::token::Session;
use routes::filter::Longest;
use steering::{Nearest, Query, RankedList, Wanted};

use crate::catalog::{Catalog, Version};
use crate::desired::Policy;
use crate::files::Alone;
use crate::playbacks::{Playbacks, Refused};
pub use crate::sealed::{Grant, Sealed, Ticket};

/// The picture. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub view: Arc<FleetView>,
    /// The sites of each client.
    pub routes: routes::Table,
    /// As they should be.
    pub sites: Arc<Names<SiteId, Site>>,
    pub catalog: Arc<Catalog>,
    /// What the catalogue says of assets that have one version.
    pub(crate) alone: Arc<Names<AssetId, Alone>>,
    pub policy: Policy,
    pub playbacks: Playbacks,
    /// Versions that were taken down, as far as they are listed.
    pub withdrawn: Arc<BTreeSet<AssetVersionId>>,
    /// Serial numbers of certificates that every member refuses though they have not expired.
    pub revoked: Arc<BTreeSet<String>>,
}

/// The player that asks.
#[derive(Clone, Copy, Debug)]
pub struct Player<'a> {
    /// Its address, or the range that is known of it.
    pub client: Prefix,
    pub session: &'a Session,
    /// Wants URLs without TLS.
    pub plain: bool,
}

/// The answer to a player: a version, and the appliances to ask.
#[derive(Clone, Debug)]
pub struct Choice<'a> {
    pub version: &'a Version,
    /// From which appliances, best first.
    pub list: RankedList,
}

/// The answer to a playback that is steered.
#[derive(Clone, Debug)]
pub struct Steered<'a> {
    /// All appliances of its pathways, by number, but for those that are not registered any more.
    pub among: Vec<u32>,
    /// Those, best first.
    pub list: RankedList,
    /// Its pathways as they should be used now, best first. Never empty if the ticket's are not.
    pub pathways: Vec<&'a ApplianceId>,
    /// Its nearest site, and whether the first pathway leads past it.
    pub nearest: Option<Nearest>,
    /// What its session was drawn by.
    pub draw: [u8; 8],
    /// The highest of its version; nothing if the catalogue does not know it.
    pub bitrate: BitsPerSecond,
}

/// Why there is nothing to play.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unplayable {
    #[error("there is no such asset: GET /v1/assets lists them")]
    UnknownAsset,
    /// No version of it may be shown now. Players are told no more than that there is no asset.
    #[error("none of its versions may be shown now: GET /v1/assets/{{asset}} has their times")]
    NotShown,
    #[error("no appliance has reported yet that could serve it: GET /v1/fleet shows them")]
    NoAppliance,
}

impl Snapshot {
    /// The range by which a client is led while it plays: a /24 or /48, which names no single
    /// person, or a longer prefix, which only an operator gives or lets sites hear. Never a
    /// shorter one, so that a network that announces its prefix in pieces keeps its clients.
    pub fn client_range(&self, client: IpAddr) -> Prefix {
        let client = client.to_canonical();
        let len = if client.is_ipv4() { Longest::USUAL.v4 } else { Longest::USUAL.v6 };
        let longer = self.routes.longest(&client.into()).filter(|of| len < of.prefix_len());
        let range = longer.unwrap_or_else(|| {
            Prefix::new(client, len).expect("both families have such a length").trunc()
        });
        assert!(range.contains(&client), "a client is in its range");
        range
    }

    /// The grant with which an asset is played; none where none is needed, nor a good one given.
    /// A public asset needs none while a version of it is shown. At other times it is as if there
    /// were no such asset: strangers do not learn its name.
    pub fn admit(
        &self,
        asset: &AssetId,
        grant: Result<Grant, Refused>,
        now: UnixSeconds,
    ) -> Result<Option<Grant>, Refused> {
        let is_open =
            || self.playbacks.public().contains(asset) && self.shown(asset, now).next().is_some();
        match grant.and_then(|grant| self.playbacks.admit(asset, grant, now)) {
            Err(_) if is_open() => Ok(None),
            admitted => admitted.map(Some),
        }
    }

    /// The version to play and from where: the newest that a healthy appliance holds wholly, so
    /// that a new version is not played before it has arrived; else the current one.
    pub fn choose<'a>(
        &'a self,
        asset: &AssetId,
        player: &Player<'_>,
        now: UnixSeconds,
        config: &steering::Config,
    ) -> Result<Choice<'a>, Unplayable> {
        let alone = self.alone.get(asset);
        let is_shown = |of: &&Alone| of.is_always_open || of.version.window.is_open(now);
        if let Some(Alone { version, hash, number, .. }) = alone.filter(is_shown) {
            let list = self.rank_wanted(Wanted::numbered(*number, *hash), player, config);
            let is_playable = list.is_good || !list.offered().is_empty();
            return if is_playable {
                Ok(Choice { version, list })
            } else {
                Err(Unplayable::NoAppliance)
            };
        }
        let choice = |version: &'a Arc<Version>| Choice {
            version,
            list: self.rank_wanted(self.wanted(version), player, config),
        };
        let is_known = !self.catalog.versions(asset).is_empty();
        let none = if is_known { Unplayable::NotShown } else { Unplayable::UnknownAsset };
        let mut shown = self.shown(asset, now).map(choice);
        let current = shown.next().ok_or(none)?;
        if current.list.is_good {
            return Ok(current);
        }
        let playable = shown.find(|choice| choice.list.is_good);
        let choice = playable.unwrap_or(current);
        if choice.list.offered().is_empty() { Err(Unplayable::NoAppliance) } else { Ok(choice) }
    }

    /// Versions that are held and may be shown now, newest first. By the caller's clock: a picture
    /// may be old where nobody makes a new one.
    fn shown(&self, asset: &AssetId, now: UnixSeconds) -> impl Iterator<Item = &Arc<Version>> {
        let kept = usize::try_from(self.policy.versions_kept).unwrap_or(usize::MAX).max(1);
        let versions = self.catalog.versions(asset).iter().take(kept);
        versions.filter(move |version| version.window.is_open(now))
    }

    /// Every appliance for a version, best first.
    pub fn rank(
        &self,
        version: &AssetVersionId,
        player: &Player<'_>,
        config: &steering::Config,
    ) -> RankedList {
        self.rank_wanted(Wanted::of(&self.view, version), player, config)
    }

    fn wanted(&self, version: &Version) -> Wanted {
        Wanted::hashed(&self.view, version.id(), version.id_hash())
    }

    fn rank_wanted(
        &self,
        version: Wanted,
        player: &Player<'_>,
        config: &steering::Config,
    ) -> RankedList {
        let Player { client, session, plain } = *player;
        let near = self.routes.locate(&client).sites;
        let session = &session.draw();
        let query = Query { near: &near, version, session, plain, among: None };
        steering::rank(&self.view, &query, config)
    }

    /// True of a version of which nobody may see more: it was withdrawn, or it is not its time.
    pub fn is_withdrawn(&self, version: &AssetVersionId, now: UnixSeconds) -> bool {
        let known = self.catalog.version(version);
        self.withdrawn.contains(version) || known.is_some_and(|known| !known.window.is_open(now))
    }

    /// The pathways of a playback as they should be used now, best first, lost ones left out: those
    /// with an appliance that is not good. If all are, the order that the playback began with,
    /// those with fewer such appliances first. Never empty if the ticket is not.
    pub fn steer<'a>(&self, ticket: &'a Ticket, config: &steering::Config) -> Vec<&'a ApplianceId> {
        self.steered(ticket, config).pathways
    }

    /// The same, with all that a poll counts and keeps. Its client is looked up once.
    pub fn steered<'a>(&self, ticket: &'a Ticket, config: &steering::Config) -> Steered<'a> {
        let near = self.routes.locate(&ticket.client).sites;
        let ways = self.ways(ticket);
        let mut among: Vec<u32> = ways.iter().flat_map(|way| way.numbers()).collect();
        if !ticket.parts.is_empty() {
            among.sort_unstable();
            among.dedup();
        }
        let (draw, version) = (ticket.session.draw(), self.catalog.version(&ticket.version));
        let wanted = match version {
            Some(known) => Wanted::hashed(&self.view, known.id(), known.id_hash()),
            None => Wanted::of(&self.view, &ticket.version),
        };
        let query = Query {
            near: &near,
            version: wanted,
            session: &draw,
            plain: ticket.plain,
            among: Some(&among),
        };
        // All of them are asked about, not only those that a new playback would get.
        let config = steering::Config { explains: !ticket.parts.is_empty(), ..*config };
        let list = steering::rank(&self.view, &query, &config);
        let ways = sort(ways, &list);
        let nearest = ways.first().and_then(|first| {
            let led: Vec<u32> = first.numbers().collect();
            steering::nearest(&self.view, &query, &led)
        });
        let pathways = ways.into_iter().map(|way| way.pathway).collect();
        let bitrate = version.and_then(|version| version.bitrate()).unwrap_or_default();
        Steered { among, list, pathways, nearest, draw, bitrate }
    }

    /// The nearest site of a player whose playback begins, and whether its list leads past it.
    pub fn nearest(&self, player: &Player<'_>, choice: &Choice<'_>) -> Option<Nearest> {
        let RankedList { candidates, pathways, .. } = &choice.list;
        let positions = pathways.first()?.positions();
        let led: Vec<u32> =
            positions.filter_map(|at| Some(candidates.get(at)?.appliance)).collect();
        let near = self.routes.locate(&player.client).sites;
        let session = &player.session.draw();
        let version = self.wanted(choice.version);
        let query = Query { near: &near, version, session, plain: player.plain, among: None };
        steering::nearest(&self.view, &query, &led)
    }

    /// The pathways of a ticket, in its order.
    fn ways<'a>(&self, ticket: &'a Ticket) -> Vec<Pathway<'a>> {
        let number = |id: &ApplianceId| self.view.appliances.get(id).copied();
        let way = |pathway| {
            let parts = ticket.parts.get(pathway).into_iter().flatten();
            let parts = parts.map(|(id, part)| (number(id), *part)).collect();
            Pathway { pathway, lead: number(pathway), parts }
        };
        ticket.pathways.iter().map(way).collect()
    }
}

/// A pathway of a ticket.
struct Pathway<'a> {
    pathway: &'a ApplianceId,
    /// The number of the appliance that it is named for; none if that is not registered any more.
    lead: Option<u32>,
    /// Where it has several: each of them, with the renditions that it has there.
    parts: Vec<(Option<u32>, Renditions)>,
}

impl Pathway<'_> {
    fn each(&self) -> impl Iterator<Item = (Option<u32>, Renditions)> {
        let alone = self.parts.is_empty().then_some((self.lead, Renditions::ALL));
        self.parts.iter().copied().chain(alone)
    }

    fn numbers(&self) -> impl Iterator<Item = u32> {
        self.each().filter_map(|(number, _)| number)
    }
}

/// The good ones of a list of a playback's pathways; all of them if there is none, those that have
/// lost less first. O(pathways x appliances of the list), which are few.
fn sort<'a>(mut ways: Vec<Pathway<'a>>, list: &RankedList) -> Vec<Pathway<'a>> {
    let good = list.candidates.iter().filter(|candidate| candidate.standing.is_good());
    let place = |number: Option<u32>| {
        let mut good = good.clone().enumerate();
        good.find(|(_, of)| Some(of.appliance) == number)
    };
    // Healthy, with a rendition that the player does not have from it, is not good.
    let has = |(number, part): &(Option<u32>, Renditions)| {
        let place = place(*number);
        place.is_some_and(|(_, of)| of.held.has_all(*part))
    };
    let lost = |way: &Pathway<'_>| way.each().filter(|part| !has(part)).count();
    if ways.iter().any(|way| lost(way) == 0) {
        ways.retain(|way| lost(way) == 0);
        ways.sort_by_key(|way| place(way.lead).map(|(at, _)| at));
    } else {
        ways.sort_by_key(lost);
    }
    ways
}
