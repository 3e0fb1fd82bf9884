//! What appliances hold between two plans: the facts for `placement::plan::handover`.

use model::id::Item;
use model::number::NumberSet;
use model::units::Bytes;
use placement::plan::{Cluster, ClusterPlan, Density, Handing, Handover, Order, handover};

use super::Together;
use crate::having::Having;
use crate::last::Past;
use crate::shelf::Shelf;

/// What is to know of the appliances of a cluster.
struct Members<'a> {
    shelf: &'a Shelf,
    order: &'a Order<'a>,
    having: &'a Having,
    of: &'a Together<'a>,
}

impl Handing for Members<'_> {
    fn has(&self, member: usize, item: Item) -> Option<bool> {
        self.having.has(&self.of.registered[member].appliance.id, self.shelf, item)
    }

    fn density(&self, item: Item) -> Density {
        self.order.density(item).unwrap_or_default()
    }

    fn room(&self, item: Item) -> (Bytes, Bytes) {
        let len = self.order.catalogue().get(item).map_or(Bytes::ZERO, |piece| piece.len);
        let of = self.shelf.find(item);
        (len, of.map_or(Bytes::ZERO, |of| of.items.common(&of.version)))
    }

    fn is_alone(&self, item: Item) -> bool {
        self.shelf.find(item).is_some_and(|of| of.version.files.sources.is_empty())
    }
}

/// Of each appliance of a cluster, what stays there and what waits for its room.
pub(super) fn handovers(
    (of, cluster): (&Together<'_>, &Cluster<'_>),
    plan: &ClusterPlan,
    past: &Past<'_>,
    (shelf, order, having): (&Shelf, &Order<'_>, &Having),
) -> Vec<Handover> {
    let none = NumberSet::new();
    let now = |id| past.now.get(id).map_or(&none, |now| &**now);
    let now: Vec<&NumberSet> = of.registered.iter().map(|of| now(&of.appliance.id)).collect();
    handover(cluster, plan, &now, &Members { shelf, order, having, of })
}
