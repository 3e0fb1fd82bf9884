//! A region whose sites are caches that fill on demand, the exchange's the parent of the others.

use model::number::index;

use crate::cache::{Lens, OnDemand};
use crate::draw::Draw;
use crate::sessions::{Day, SLOTS};
use crate::sites::{Kind, Site};
use crate::tally::Flow;

/// The caches of a region: one at each site, the exchange's last.
#[derive(Debug)]
pub(crate) struct Demanded<C> {
    caches: Vec<C>,
}

impl<C: OnDemand> Demanded<C> {
    /// Empty ones, for so many items.
    pub(crate) fn new(sites: &[Site], kinds: &[Kind], items: usize) -> Self {
        let room = |site: &Site| kinds[site.kind].members.iter().map(|member| member.room).sum();
        Self { caches: sites.iter().map(|site| C::new(room(site), items * 4)).collect() }
    }

    /// Serves a day. Sites go through it one by one; what they lack is asked of the exchange hour
    /// by hour, between its own sessions.
    pub(crate) fn day(
        &mut self,
        (number, day): (u32, &Day),
        sites: &[Site],
        lens: &[u64],
        draw: &mut Draw,
        flow: &mut Flow,
    ) {
        let of = Lens(lens);
        let mut asked: [Vec<(u32, bool)>; SLOTS] = Default::default();
        let (exchange, edges) = self.caches.split_last_mut().expect("a region has an exchange");
        for (at, (cache, site)) in edges.iter_mut().zip(sites).enumerate() {
            for (slot, asked) in asked.iter_mut().enumerate() {
                let hour = index(number) * SLOTS + slot;
                for session in day.at(at, slot) {
                    let first = session.item() << 2;
                    for entry in first..first + session.quarters() {
                        if cache.ask(entry, &of) {
                            continue;
                        }
                        flow.missed(hour, site.kind, of.of(entry));
                        if site.reach.is_empty() {
                            flow.upstream[hour] += of.of(entry);
                        } else {
                            asked.push((entry, true));
                        }
                    }
                }
            }
        }
        for (slot, mut asked) in asked.into_iter().enumerate() {
            let hour = index(number) * SLOTS + slot;
            for session in day.at(edges.len(), slot) {
                let first = session.item() << 2;
                asked.extend((first..first + session.quarters()).map(|entry| (entry, false)));
            }
            draw.shuffle(&mut asked);
            for (entry, is_edge) in asked {
                if exchange.ask(entry, &of) {
                    continue;
                }
                flow.upstream[hour] += of.of(entry);
                if !is_edge {
                    flow.missed(hour, crate::sites::EXCHANGE, of.of(entry));
                }
            }
        }
    }
}
