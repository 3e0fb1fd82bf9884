//! Appliances for the status page.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::id::ApplianceId;
use model::units::{Instant, Nanos};
use model::view::{Health, Load};

use crate::observed::{Cause, Observed};
use crate::{Director, Member, Registered};

/// One appliance for the status page.
#[derive(Clone, Debug)]
pub struct ApplianceStatus {
    pub registered: Registered,
    pub health: Health,
    pub cause: Cause,
    /// How long it has been so.
    pub since: Nanos,
    /// How old its last report is; none without a report.
    pub last_report: Option<Nanos>,
    pub base_url: Option<Arc<str>>,
    pub objects_held: usize,
    /// By its last report.
    pub load: Load,
    /// The share of its sessions that it takes, in thousandths.
    pub share_permille: u32,
    /// Of the sessions of titles that lead to it, so many follow them, in thousandths; 0 where
    /// titles are not drawn for.
    pub titles_permille: u32,
}

impl Director {
    /// Every registered appliance.
    pub fn appliances(&self, now: Instant) -> BTreeMap<ApplianceId, ApplianceStatus> {
        self.appliances_after(now, None, usize::MAX).into_iter().collect()
    }

    /// So many registered appliances, whose names come after this one. Whoever tells of a large
    /// fleet asks slice by slice, and reports have their turn between.
    pub fn appliances_after(
        &self,
        now: Instant,
        after: Option<&ApplianceId>,
        most: usize,
    ) -> Vec<(ApplianceId, ApplianceStatus)> {
        let slice = self.members.after(after).take(most);
        slice.map(|(id, member)| (id.clone(), self.status(now, id, member))).collect()
    }

    /// One registered appliance.
    pub fn appliance(&self, now: Instant, id: &ApplianceId) -> Option<ApplianceStatus> {
        self.members.get(id).map(|member| self.status(now, id, member))
    }

    fn status(&self, now: Instant, id: &ApplianceId, member: &Member) -> ApplianceStatus {
        let observed = member.observed.as_ref();
        ApplianceStatus {
            registered: self.desired.appliances[id].clone(),
            health: member.health,
            cause: member.cause.lasting(observed.map(|of| now.since(of.last_report))),
            since: now.since(member.since),
            last_report: observed.map(|observed| now.since(observed.last_report)),
            base_url: observed.map(|observed| observed.base_url.clone()),
            objects_held: observed.map_or(0, Observed::held_count),
            load: observed.map(|observed| observed.said.load).unwrap_or_default(),
            share_permille: member.share_permille(),
            titles_permille: member.titles_permille(self.config.titles_load_max),
        }
    }
}
