//! What an operator should see: what appliances report, what the director noted, and the trouble
//! that fronts have with this writer.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use director::{Cause, Notice};
use model::id::{ApplianceId, SiteId};
use model::units::UnixSeconds;
use wire::v1::fleet::FleetError;

use crate::state::directing::Told;
use crate::state::writer::Control;

/// Errors of one answer.
const ERRORS_MAX: usize = 100;

/// The newest of them, newest first, and how many there are.
pub(super) struct Trouble {
    pub(super) told: Vec<FleetError>,
    pub(super) count: usize,
}

/// An error where it lies.
struct Line<'a> {
    at: u64,
    appliance: &'a str,
    room: &'a str,
    text: &'a str,
}

/// The trouble of the fleet; or of one site, without that of fronts.
pub(super) fn of(
    control: &Control,
    fleet: &[Told],
    notices: &[Notice],
    only: Option<&SiteId>,
) -> Trouble {
    let trouble = among(fleet, notices, only);
    match only {
        Some(_) => trouble,
        None => trouble.after_fronts(control.whole_too_long()),
    }
}

/// The trouble of these appliances, or of those among them that stand in a site: the rest goes
/// first, and then what is too much. O(appliances + errors), of which each has 20 at most.
fn among(fleet: &[Told], notices: &[Notice], only: Option<&SiteId>) -> Trouble {
    let stands =
        |told: &&Told| only.is_none_or(|site| told.status.registered.appliance.site == *site);
    let reported = fleet.iter().filter(stands).flat_map(|told| {
        let errors = told.report.iter().flat_map(|report| &report.errors);
        errors.map(|error| Line {
            at: error.at_unix_s,
            appliance: told.id.as_str(),
            room: &error.room,
            text: &error.text,
        })
    });
    // Of the whole fleet also those that are gone.
    let of_site: Option<BTreeSet<&ApplianceId>> =
        only.map(|_| fleet.iter().filter(stands).map(|told| &told.id).collect());
    let is_meant = |notice: &&Notice| {
        notice.cause != Cause::None
            && of_site.as_ref().is_none_or(|ids| ids.contains(&notice.appliance))
    };
    let noted = notices.iter().filter(is_meant).map(|notice| Line {
        at: notice.at.0,
        appliance: notice.appliance.as_str(),
        room: "health",
        text: &notice.text,
    });
    newest(noted.chain(reported).collect())
}

impl Trouble {
    /// The trouble of fronts comes first: it lasts, whatever is newer.
    fn after_fronts(mut self, trouble: Option<(UnixSeconds, impl ToString)>) -> Self {
        if let Some((since, error)) = trouble {
            let error = FleetError {
                at_unix_s: since.0,
                appliance: "control".to_owned(),
                room: "fronts".to_owned(),
                text: error.to_string(),
            };
            self.told.insert(0, error);
            self.told.truncate(ERRORS_MAX);
            self.count += 1;
        }
        self
    }
}

fn newest(mut lines: Vec<Line<'_>>) -> Trouble {
    let count = lines.len();
    // By more than the time, so that those of one second that are told are the same each time.
    let order = |a: &Line<'_>, b: &Line<'_>| {
        let key = |line: &Line<'_>| Reverse(line.at);
        key(a).cmp(&key(b)).then_with(|| (a.appliance, a.text).cmp(&(b.appliance, b.text)))
    };
    if ERRORS_MAX < count {
        lines.select_nth_unstable_by(ERRORS_MAX, order);
        lines.truncate(ERRORS_MAX);
    }
    lines.sort_by(order);
    let told = |line: Line<'_>| FleetError {
        at_unix_s: line.at,
        appliance: line.appliance.to_owned(),
        room: line.room.to_owned(),
        text: line.text.to_owned(),
    };
    Trouble { told: lines.into_iter().map(told).collect(), count }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_errors_are_told_and_all_are_counted() {
        let of = |at| Line { at, appliance: "a1", room: "fill", text: "it failed" };
        let most = u64::try_from(ERRORS_MAX).unwrap();
        let trouble = newest((1..=most + 7).map(of).collect());
        assert_eq!(trouble.count, ERRORS_MAX + 7);
        let told: Vec<u64> = trouble.told.iter().map(|error| error.at_unix_s).collect();
        assert_eq!(told, (8..=most + 7).rev().collect::<Vec<_>>());
        let fronts = trouble.after_fronts(Some((UnixSeconds(3), "too long")));
        assert_eq!((fronts.told.len(), fronts.count), (ERRORS_MAX, ERRORS_MAX + 8));
        assert_eq!(fronts.told[0].room, "fronts");
    }
}
