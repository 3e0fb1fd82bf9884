//! The appliances of a site in one: for a page that cannot show each of thousands.

use model::units::Bytes;
use model::view::{Health, Load};
use wire::v1::fleet::SiteSummary;
use wire::v1::report::{DriveState, Report};

/// A site's appliances, added up one by one.
#[derive(Debug, Default)]
pub(crate) struct SiteSums {
    out: SiteSummary,
    count: usize,
    reporting: u16,
    healthy: f32,
    headroom: f32,
}

impl SiteSums {
    /// One appliance more; true if it needs a look.
    pub(crate) fn add(&mut self, health: Health, load: &Load, report: Option<&Report>) -> bool {
        self.count += 1;
        let is_serving = match health {
            Health::Healthy => {
                self.out.healthy += 1;
                true
            }
            Health::Draining | Health::Drained => {
                self.out.leaving += 1;
                true
            }
            Health::Unhealthy | Health::Stale | Health::NeverSeen => false,
        };
        let is_read =
            |drive: &wire::v1::report::Drive| matches!(drive.state, DriveState::Ok) && !drive.hung;
        let is_ill = !is_serving || report.is_some_and(|report| !report.drives.iter().all(is_read));
        self.out.ill += u64::from(is_ill);
        let Some(report) = report.filter(|_| is_serving) else { return is_ill };
        let Report { load: told, fill, .. } = report;
        self.reporting = self.reporting.saturating_add(1);
        // An appliance may say anything.
        for (sum, told) in [
            (&mut self.out.egress_bits_per_second, told.egress_bits_per_second),
            (&mut self.out.fill_bits_per_second, fill.bits_per_second),
            (&mut self.out.bytes_held, fill.bytes_held),
            (&mut self.out.bytes_wanted, fill.bytes_wanted),
        ] {
            *sum = sum.saturating_add(told);
        }
        self.out.cpu_percent += told.cpu_percent;
        if health == Health::Healthy {
            self.out.filling += u64::from(fill.objects_held < fill.objects_wanted);
            self.headroom += headroom(load);
            self.healthy += 1.0;
        }
        is_ill
    }

    /// All were added.
    pub(crate) fn done(self) -> SiteSummary {
        let cpu_percent = self.out.cpu_percent / f32::from(self.reporting.max(1));
        SiteSummary {
            appliances: Bytes::of(self.count).0,
            cpu_percent,
            headroom_percent: (0.0 < self.healthy).then(|| self.headroom / self.healthy),
            ..self.out
        }
    }
}

/// What a load leaves, 0 to 100.
fn headroom(load: &Load) -> f32 {
    let left = 1000_u64.saturating_sub(load.permille());
    f32::from(u16::try_from(left).unwrap_or(0)) / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::v1::report::{Drive, Fill};

    fn report(egress_bits_per_second: u64, cpu_percent: f32) -> Report {
        let load = wire::v1::report::Load {
            egress_bits_per_second,
            cpu_percent,
            ..wire::v1::report::Load::default()
        };
        let fill = Fill { objects_held: 1, objects_wanted: 2, ..Fill::default() };
        Report { load, fill, drives: vec![Drive::default()], ..Report::default() }
    }

    fn connections(connections: u64) -> Load {
        Load { connections, connections_max: 1000, ..Load::default() }
    }

    #[test]
    fn a_site_is_the_sum_of_those_that_serve_and_as_near_to_its_limit_as_they_are() {
        let mut sums = SiteSums::default();
        assert!(!sums.add(Health::Healthy, &connections(500), Some(&report(500, 10.0))));
        assert!(!sums.add(Health::Healthy, &connections(750), Some(&report(0, 10.0))));
        assert!(!sums.add(Health::Drained, &connections(0), Some(&report(7, 100.0))));
        assert!(sums.add(Health::Stale, &connections(999), Some(&report(900, 99.0))));
        assert!(sums.add(Health::NeverSeen, &Load::default(), None));
        let told = sums.done();
        assert_eq!((told.appliances, told.healthy, told.leaving, told.ill), (5, 2, 1, 2));
        assert_eq!((told.egress_bits_per_second, told.cpu_percent), (507, 40.0));
        assert_eq!((told.headroom_percent, told.filling), (Some(37.5), 2));
        assert_eq!(SiteSums::default().done().headroom_percent, None);
    }

    #[test]
    fn numbers_that_are_no_good_are_added_up_all_the_same() {
        let mut sums = SiteSums::default();
        for _ in 0..2 {
            let mut told = report(u64::MAX, 1e30);
            told.fill.bits_per_second = u64::MAX;
            (told.fill.bytes_held, told.fill.bytes_wanted) = (u64::MAX, u64::MAX);
            let told = crate::state::convert::shown(told);
            assert!(!sums.add(Health::Healthy, &Load::default(), Some(&told)));
        }
        let told = sums.done();
        assert_eq!((told.egress_bits_per_second, told.bytes_wanted), (u64::MAX, u64::MAX));
        assert_eq!(told.cpu_percent, 100.0);
    }

    #[test]
    fn an_appliance_that_serves_with_a_drive_that_is_not_read_needs_a_look() {
        let mut ill = report(1, 1.0);
        ill.drives[0].hung = true;
        assert!(SiteSums::default().add(Health::Healthy, &Load::default(), Some(&ill)));
        (ill.drives[0].hung, ill.drives[0].state) = (false, DriveState::SetAside);
        assert!(SiteSums::default().add(Health::Draining, &Load::default(), Some(&ill)));
    }
}
