//! The pathways of a playback, where appliances hold some renditions of its version only.
//!
//! ```text
//!              sorted     low       high            low  high
//!   n1 (low)   n1         n1, f1,   f1, f2     1    n1   f1     named for who has the rendition
//!   f1 (all)   f1         f2                   2    f1   f2     that most appliances hold
//!   f2 (all)   f2                              3    f2   f2     no third for high: as f2 has it
//! ```
//!
//! So the i-th pathway has, for every rendition, the i-th best appliance that holds it, as if that
//! were a version of its own: doubtful ones up to the least, and a near one that is spilled last.
//! Where there are not so many, it has the one that it is named for if that holds the rendition,
//! else one again. If an appliance
//! is in all of them then and two healthy ones hold all of the version, these lead a pathway each
//! that has nobody else, the better one's only if it must be: whoever is lost, there is a pathway
//! without it.

use model::view::Renditions;

use crate::{Config, Look, Standing};

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
    let each: Vec<PartHolders> =
        (0..renditions).map(|at| PartHolders::of(looks, at, config)).collect();
    let is_good = each.iter().all(|holders| 0 < holders.good);
    let most_held = each.iter().rev().max_by_key(|holders| (holders.good, holders.all.len()));
    let leads = most_held.map_or(&[][..], |holders| &holders.all);
    if leads.is_empty() {
        return (Vec::new(), false);
    }
    let pathway = |(nth, lead): (usize, &usize)| {
        let lead = *lead;
        let of = |PartHolders { all, good }: &PartHolders| {
            let in_turn = if *good == 0 { all.len() } else { *good };
            let again = || all.get(nth.checked_rem(in_turn)?).copied();
            let own = || all.contains(&lead).then_some(lead);
            all.get(nth).copied().or_else(own).or_else(again).unwrap_or(lead)
        };
        let renditions: Vec<usize> = each.iter().map(of).collect();
        let is_whole = renditions.iter().all(|position| *position == lead);
        Pathway { lead, renditions: if is_whole { Vec::new() } else { renditions } }
    };
    let mut pathways: Vec<Pathway> = leads.iter().enumerate().map(pathway).collect();
    lead_around_losses(&mut pathways, looks);
    (pathways, is_good)
}

/// Those that hold a rendition, by their positions, best first.
struct PartHolders {
    all: Vec<usize>,
    /// So many of them are good: the first.
    good: usize,
}

impl PartHolders {
    fn of(looks: &[Look<'_>], at: u32, config: &Config) -> Self {
        let Config { pathways_min, pathways_max, .. } = *config;
        let holders = || looks.iter().enumerate().filter(move |(_, look)| look.held.has(at));
        let good = holders().filter(|(_, look)| look.standing.is_good());
        let mut all: Vec<usize> = good.map(|(position, _)| position).collect();
        // As in a list of whole versions (`Ranking::keep_nearest`).
        let is_spilled = |at: &usize| looks[*at].standing == Standing::Spilled;
        let place = |at: usize| looks[at].way.place;
        if let Some(first) = all.iter().position(is_spilled)
            && 1 < pathways_max
            && pathways_max <= first
            && place(all[first]) < place(all[pathways_max - 1])
        {
            all[pathways_max - 1] = all[first];
        }
        all.truncate(pathways_max);
        let good = all.len();
        // With nobody healthy for it, doubtful ones are better than nobody.
        let wanted = if good == 0 { pathways_max } else { pathways_min.min(pathways_max) };
        // Those that hold all of it first: one that is back is a pathway then.
        let is_doubtful = |look: &Look<'_>| look.standing.is_possible() && !look.standing.is_good();
        let is_whole = |look: &Look<'_>| look.held == Renditions::ALL;
        let doubtful = || holders().filter(|(_, look)| is_doubtful(look));
        let whole = doubtful().filter(|(_, look)| is_whole(look));
        let doubtful = whole.chain(doubtful().filter(|(_, look)| !is_whole(look)));
        let doubtful = doubtful.take(wanted.saturating_sub(good));
        all.extend(doubtful.map(|(position, _)| position));
        Self { all, good }
    }
}

/// Leaves no appliance in all pathways, if two healthy ones hold all of the version.
fn lead_around_losses(pathways: &mut [Pathway], looks: &[Look<'_>]) {
    let is_whole = |look: &Look<'_>| look.held == Renditions::ALL && look.standing.is_good();
    let mut whole = looks.iter().enumerate().filter(|(_, look)| is_whole(look));
    let (Some((best, _)), Some((second, _))) = (whole.next(), whole.next()) else { return };
    if pathways.len() < 2 {
        return;
    }
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
