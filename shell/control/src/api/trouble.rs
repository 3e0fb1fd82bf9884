//! What an operator should see: what appliances report, what the director noted, and the trouble
//! that fronts have with this writer.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use director::lacking::{Lack, LackCause};
use director::wishes::Unkept;
use director::{Cause, Notice};
use model::id::{ApplianceId, SiteId};
use model::units::{Bytes, UnixSeconds};
use wire::v1::fleet::FleetError;

use crate::state::convert;
use crate::state::directing::Told;
use crate::state::writer::Control;

/// Errors of one answer.
const ERRORS_MAX: usize = 100;

/// Of them, pins and bans that are not kept.
const UNKEPT_MAX: usize = 10;

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
    let mut lacking: Vec<(ApplianceId, Lack)> =
        control.lacking().known().map(|(id, lack)| (id.clone(), *lack)).collect();
    if let Some(site) = only {
        let of_site = ids_in(fleet, site);
        lacking.retain(|(id, _)| of_site.contains(id));
    }
    // Those beyond are counted, and not told: nobody words them.
    let beyond = lacking.len().saturating_sub(ERRORS_MAX);
    lacking.sort_by_key(|(_, lack)| Reverse(lack.since));
    lacking.truncate(ERRORS_MAX);
    let worded = lacking.iter().map(|(id, lack)| (id.clone(), lack.since, lack_text(lack)));
    let mut trouble = among(fleet, notices, &worded.collect::<Vec<_>>(), only);
    trouble.count += beyond;
    match only {
        Some(_) => trouble,
        None => {
            let unkept = control.unkept().clone();
            let trouble = trouble.with_unkept(unkept.since, &unkept.told, unkept.count);
            trouble.after_fronts(control.whole_too_long())
        }
    }
}

/// The appliances of a site.
fn ids_in<'a>(fleet: &'a [Told], site: &SiteId) -> BTreeSet<&'a ApplianceId> {
    let stands = |told: &&Told| told.status.registered.appliance.site == *site;
    fleet.iter().filter(stands).map(|told| &told.id).collect()
}

/// The trouble of these appliances, or of those among them that stand in a site: the rest goes
/// first, and then what is too much. O(appliances + errors), of which each has 20 at most.
fn among(
    fleet: &[Told],
    notices: &[Notice],
    lacking: &[(ApplianceId, UnixSeconds, String)],
    only: Option<&SiteId>,
) -> Trouble {
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
    let of_site = only.map(|site| ids_in(fleet, site));
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
    let is_among = |id: &ApplianceId| of_site.as_ref().is_none_or(|ids| ids.contains(id));
    let lacking = lacking.iter().filter(|(id, ..)| is_among(id));
    let lacking = lacking.map(|(id, since, text)| Line {
        at: since.0,
        appliance: id.as_str(),
        room: "fill",
        text,
    });
    newest(noted.chain(lacking).chain(reported).collect())
}

impl Trouble {
    /// Pins and bans that are not kept are of no appliance.
    fn with_unkept(mut self, since: UnixSeconds, told: &[Unkept], count: u64) -> Self {
        let error = |unkept: &Unkept| FleetError {
            at_unix_s: since.0,
            appliance: "control".to_owned(),
            room: "placement".to_owned(),
            text: unkept.to_string(),
        };
        self.told.splice(..0, told.iter().take(UNKEPT_MAX).map(error));
        self.told.truncate(ERRORS_MAX);
        self.count = self.count.saturating_add(Bytes(count).as_usize());
        self
    }

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

/// What an appliance lacks, and what to do.
fn lack_text(Lack { wanted, missing, cause, .. }: &Lack) -> String {
    let percent = u128::from(missing.0) * 100 / u128::from(wanted.0.max(1));
    let (giga, tenths) = (missing.0 / 1_000_000_000, missing.0 / 100_000_000 % 10);
    let missing = format!("{percent} % of what it should hold ({giga}.{tenths} GB)");
    let sooner = "To have a version fetched now: nearcast fill urgent VERSION";
    match cause {
        LackCause::Ended { opens } => {
            let opens = opens.map(convert::time_out);
            let opens = opens.map_or_else(
                || "no window opens again".to_owned(),
                |at| format!("it opens at {at}"),
            );
            format!("fill closed, and {missing} is missing; {opens}. {sooner}")
        }
        LackCause::Short { ends, ready } => {
            let ready = ready.map(convert::time_out);
            let ready = ready.map_or_else(
                || "will not be there in years".to_owned(),
                |at| format!("will be there at {at}"),
            );
            let ends = convert::time_out(*ends);
            format!(
                "{missing} is missing, and {ready}: its fill window ends at {ends}. \
                 Widen fill_windows, or raise fill_bps or uplink_bps. {sooner}"
            )
        }
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
    use model::units::Bytes;

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

    #[test]
    fn what_an_appliance_lacks_is_told_of_its_site_with_what_to_do() {
        let lack = |cause| Lack {
            since: UnixSeconds(7),
            wanted: Bytes(50_000_000_000),
            missing: Bytes(6_000_000_000),
            cause,
        };
        let (ends, ready) = (UnixSeconds(1_774_656_000), Some(UnixSeconds(1_774_670_400)));
        let text = |cause| lack_text(&lack(cause));
        assert_eq!(
            text(LackCause::Ended { opens: Some(ends) }),
            "fill closed, and 12 % of what it should hold (6.0 GB) is missing; it opens at \
             2026-03-28T00:00:00Z. To have a version fetched now: nearcast fill urgent VERSION"
        );
        assert_eq!(
            text(LackCause::Short { ends, ready }),
            "12 % of what it should hold (6.0 GB) is missing, and will be there at \
             2026-03-28T04:00:00Z: its fill window ends at 2026-03-28T00:00:00Z. Widen \
             fill_windows, or raise fill_bps or uplink_bps. To have a version fetched now: \
             nearcast fill urgent VERSION"
        );
        let a1 = "a1".parse().unwrap();
        let lacking = [(a1, UnixSeconds(7), "it lacks much".to_owned())];
        let trouble = among(&[], &[], &lacking, None);
        let told = &trouble.told[0];
        assert_eq!((&*told.room, &*told.appliance, told.at_unix_s), ("fill", "a1", 7));
        let elsewhere = "s2".parse().unwrap();
        assert_eq!(among(&[], &[], &lacking, Some(&elsewhere)).count, 0);
    }
}
