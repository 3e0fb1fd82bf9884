//! The pathways of a playback, where appliances hold some renditions of its version only.
//!
//! ```text
//!              sorted     low       high            low  high
//!   n1 (low)   n1         n1, f1,   f1, f2     1    n1   f1     named for who has the rendition
//!   f1 (all)   f1         f2                   2    f1   f2     that most appliances hold
//!   f2 (all)   f2                              3    f2   f2     no third for high: as f2 has it
//! ```
//!
//! So the i-th pathway has, for every rendition, the i-th best appliance that holds it; where there
//! are not so many, the one that it is named for if that holds it, else one again. If an appliance
//! is in all of them then and two healthy ones hold all of the version, these lead a pathway each
//! that has nobody else, the better one's only if it must be: whoever is lost, there is a pathway
//! without it.

use model::view::Renditions;

use crate::{Config, Look};

/// One choice of a player.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pathway {
    /// The position among the candidates of the appliance that it is named for.
    pub lead: usize,
    /// The same for each rendition; empty if all of them are there.
    pub renditions: Vec<usize>,
}

/// True if some hold a part of the version only.
pub(crate) fn is_mixed(looks: &[Look<'_>]) -> bool {
    looks.iter().any(|look| look.held != Renditions::ALL && look.held != Renditions::NONE)
}

/// The pathways through appliances in order, by their positions, for a version of so many
/// renditions; and whether every rendition is at a healthy one. O(appliances x renditions).
pub(crate) fn find(looks: &[Look<'_>], renditions: u32, config: &Config) -> (Vec<Pathway>, bool) {
    let holders = |at: u32, is_good: bool| {
        let all = looks.iter().enumerate().filter(move |(_, look)| {
            let standing = look.standing;
            look.held.has(at) && if is_good { standing.is_good() } else { standing.is_possible() }
        });
        all.map(|(position, _)| position).take(config.pathways_max).collect::<Vec<_>>()
    };
    let good: Vec<Vec<usize>> = (0..renditions).map(|at| holders(at, true)).collect();
    let is_good = good.iter().all(|holders| !holders.is_empty());
    // With nobody healthy for it, doubtful ones are better than nobody.
    let best = |(holders_of, at): (Vec<usize>, u32)| {
        if holders_of.is_empty() { holders(at, false) } else { holders_of }
    };
    let each: Vec<Vec<usize>> = good.into_iter().zip(0..).map(best).collect();
    let most_held = each.iter().rev().max_by_key(|holders| holders.len());
    let Some(leads) = most_held.filter(|leads| !leads.is_empty()) else {
        return (Vec::new(), false);
    };
    let pathway = |(nth, lead): (usize, &usize)| {
        let lead = *lead;
        let of = |holders: &Vec<usize>| {
            let again = || holders.get(nth.checked_rem(holders.len())?).copied();
            let own = || holders.contains(&lead).then_some(lead);
            holders.get(nth).copied().or_else(own).or_else(again).unwrap_or(lead)
        };
        let renditions: Vec<usize> = each.iter().map(of).collect();
        let is_whole = renditions.iter().all(|position| *position == lead);
        Pathway { lead, renditions: if is_whole { Vec::new() } else { renditions } }
    };
    let mut pathways: Vec<Pathway> = leads.iter().enumerate().map(pathway).collect();
    lead_around_losses(&mut pathways, looks);
    (pathways, is_good)
}

/// Leaves no appliance in all pathways, if two healthy ones hold all of the version.
fn lead_around_losses(pathways: &mut [Pathway], looks: &[Look<'_>]) {
    let is_whole = |look: &Look<'_>| look.held == Renditions::ALL && look.standing.is_good();
    let mut whole = looks.iter().enumerate().filter(|(_, look)| is_whole(look));
    let (Some((best, _)), Some((second, _))) = (whole.next(), whole.next()) else { return };
    let mut last = pathways.len();
    for lead in [second, best] {
        let in_all = |at: usize| pathways.iter().all(|of| of.positions().any(|other| other == at));
        if last == 0 || !pathways[0].positions().any(in_all) {
            return;
        }
        let own = pathways.iter().position(|pathway| pathway.lead == lead);
        let own = own.unwrap_or_else(|| {
            last -= 1;
            last
        });
        pathways[own] = Pathway::whole(lead);
    }
}

impl Pathway {
    /// All through one appliance.
    pub(crate) fn whole(lead: usize) -> Self {
        Self { lead, renditions: Vec::new() }
    }

    /// The positions of all its appliances.
    pub fn positions(&self) -> impl Iterator<Item = usize> {
        self.renditions.iter().copied().chain([self.lead])
    }

    /// The same, where positions have become others.
    pub(crate) fn moved(self, to: impl Fn(usize) -> usize) -> Self {
        let renditions = self.renditions.into_iter().map(&to).collect();
        Self { lead: to(self.lead), renditions }
    }
}
