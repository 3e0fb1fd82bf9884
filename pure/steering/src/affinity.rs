//! The order of those that all other steps leave equal: by the session's draw, but for the title's
//! own appliance.
//!
//! ```text
//! by the session's draw    s1 (site x)  s2 (y)  s3 (x)  s4 (x)
//! the title's own of x                                  s4       the lowest draw of the title
//! the session follows it   s4  s1  s2  s3
//! it does not              s1  s2  s3  s4                        s4 stays on its list
//! ```
//!
//! Sessions spread over sites as they would without titles, and within a site titles spread over
//! appliances, both by weight. Who follows is drawn for the session and that appliance alone, so a
//! change of its part by a tenth moves a tenth of the sessions of its titles, and nobody else. All
//! others of a site are in the session's order: so what is too much for one is spread over all of
//! them.
//!
//! The title's own is found among all of the site that hold the version, whatever their health and
//! shares. One that is lost moves only its sessions, to all others evenly as if there were no
//! titles: who would be the next by the draw of the title knows nothing of that load. And it does
//! not depend on the pathways of a playback, which never change; the title's own is one of them, in
//! the last place if need be, so that the session can come back to it.

use model::id::ApplianceId;
use model::rendezvous::{Draws, Score};
use model::view::{FleetView, Renditions};

use crate::chain::{self, Holders};
use crate::{Look, Title};

/// The draws of a session and of its title.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Affinity<'a> {
    view: &'a FleetView,
    holders: &'a Holders<'a>,
    session: Draws,
    title: Draws,
}

/// An appliance of a site that holds some of the version, as the title's draw finds it.
#[derive(Clone, Copy, Debug)]
struct Own {
    score: Score,
    number: u32,
    held: Renditions,
}

impl<'a> Affinity<'a> {
    pub(crate) fn of(
        view: &'a FleetView,
        holders: &'a Holders<'a>,
        session: Draws,
        title: Draws,
    ) -> Self {
        Self { view, holders, session, title }
    }

    /// Sorts equals, of which the first so many are offered: if the others are not told, these
    /// alone. O(equals log equals + appliances of a site), and these as often again as there are
    /// some before the title's own that hold a part of the version.
    pub(crate) fn sort(&self, equals: &mut [Look<'a>], offered: usize, tells_all: bool) {
        for look in &mut *equals {
            look.score = Some(chain::draw(self.session, look.position));
        }
        // Ends with the name, so that equal scores cannot make two lists.
        let order = |a: &Look<'_>, b: &Look<'_>| {
            a.score.cmp(&b.score).then_with(|| self.name(a.number).cmp(&self.name(b.number)))
        };
        if tells_all {
            equals.sort_unstable_by(order);
        } else {
            for at in 0..offered.min(equals.len()) {
                let best = (at..equals.len()).min_by(|a, b| order(&equals[*a], &equals[*b]));
                equals.swap(at, best.expect("one is left"));
            }
        }
        if let [first, ..] = equals
            && first.position.titles_permille != 0
            && 1 < self.view.of_site(first.position.site).len()
        {
            self.put_own_first(first.position.site, equals, offered);
        }
    }

    /// Where the title's own holds some renditions only, the next to which its draw leads is it for
    /// the others, and so on until one has all of them.
    fn put_own_first(&self, site: u32, equals: &mut [Look<'a>], offered: usize) {
        let (mut ahead, mut last) = (0, None);
        while let Some(own) = self.next_own(site, last) {
            last = Some(own);
            if let Some(at) = equals.iter().position(|look| look.number == own.number) {
                let follows = chain::follows(self.session, equals[at].position);
                equals[at].title = if follows { Title::Leads } else { Title::Spread };
                if follows {
                    equals[ahead..=at].rotate_right(1);
                    ahead += 1;
                } else if 1 < offered && offered <= at {
                    equals[offered - 1..=at].rotate_right(1);
                }
            }
            if own.held == Renditions::ALL {
                return;
            }
        }
    }

    /// Where the draw of the title leads after this one, among those of a site that hold some of
    /// the version, and what that holds.
    fn next_own(&self, site: u32, last: Option<Own>) -> Option<Own> {
        let mut own: Option<Own> = None;
        for number in self.view.of_site(site).iter().copied() {
            let held = self.holders.content(number);
            // First, so that most of a large site are neither fetched nor drawn.
            if held == Renditions::NONE {
                continue;
            }
            let Some(position) = self.view.position(number) else { continue };
            let drawn = Own { score: chain::draw(self.title, position), number, held };
            let is_next = last.is_none_or(|last| self.is_before(&last, &drawn));
            if is_next && own.is_none_or(|best| self.is_before(&drawn, &best)) {
                own = Some(drawn);
            }
        }
        own
    }

    fn is_before(&self, a: &Own, b: &Own) -> bool {
        a.score.cmp(&b.score).then_with(|| self.name(a.number).cmp(&self.name(b.number))).is_lt()
    }

    fn name(&self, number: u32) -> Option<&'a ApplianceId> {
        self.view.placed(number).map(|placed| &placed.appliance.id)
    }
}
