//! What Prometheus reads at `/metrics`: one row per metric.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counted by the process; what the director counts is added when asked for.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Entry manifests written for players.
    pub(crate) playbacks: Counter,
    /// Playbacks that could not begin.
    pub(crate) playbacks_refused: Counter,
    /// Steering answers.
    pub(crate) steering_answers: Counter,
    /// Steering answers to URLs that are not ours.
    pub(crate) steering_unknown: Counter,
    /// Steering requests of players that use another pathway than the first of their list.
    pub(crate) steering_failovers: Counter,
    /// Requests refused because too many were under way.
    pub(crate) requests_shed: Counter,
    /// Requests refused for their token, their role or their origin.
    pub(crate) requests_refused: Counter,
    /// Reports that were asked to come again because too many were being read.
    pub(crate) reports_shed: Counter,
    /// Writes to the database that failed.
    pub(crate) store_errors: Counter,
    /// Versions that were ingested, or made current again.
    pub(crate) ingests: Counter,
    /// Versions that were taken down.
    pub(crate) versions_withdrawn: Counter,
    /// Old versions that went because no playback could use them.
    pub(crate) versions_superseded: Counter,
    /// Appliances that said that they refuse a withdrawal.
    pub(crate) receipts: Counter,
    /// TLS handshakes that failed. The listener counts them.
    pub(crate) handshakes_refused: Arc<Counter>,
    /// Requests of members whose identity is no longer good.
    pub(crate) members_refused: Counter,
    /// One-time codes that were traded for an identity.
    pub(crate) enrolments: Counter,
    /// Attempts to enrol that failed.
    pub(crate) enrolments_refused: Counter,
    /// Certificates that were renewed.
    pub(crate) renewals: Counter,
    /// Identities that were revoked.
    pub(crate) revocations: Counter,
    /// Manifests that were signed.
    pub(crate) manifests_signed: Counter,
}

/// A metric of Prometheus.
pub(crate) struct Row {
    /// Its name, unit included.
    pub(crate) name: &'static str,
    /// `counter` or `gauge`.
    pub(crate) kind: &'static str,
    /// What it counts.
    pub(crate) help: &'static str,
    /// How many.
    pub(crate) value: u64,
}

impl Metrics {
    /// The rows of what the process counts.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let row = |name, help, counter: &Counter| Row {
            name,
            kind: "counter",
            help,
            value: counter.value(),
        };
        vec![
            row(
                "nearcast_control_playbacks_total",
                "Entry manifests and playbacks given to players",
                &self.playbacks,
            ),
            row(
                "nearcast_control_playbacks_refused_total",
                "Playbacks that could not begin: no such asset, or no appliance",
                &self.playbacks_refused,
            ),
            row(
                "nearcast_control_steering_answers_total",
                "Steering documents given to players",
                &self.steering_answers,
            ),
            row(
                "nearcast_control_steering_unknown_total",
                "Steering requests with a URL that this control plane did not make",
                &self.steering_unknown,
            ),
            row(
                "nearcast_control_steering_failovers_total",
                "Steering requests of players that use another pathway than their best",
                &self.steering_failovers,
            ),
            row(
                "nearcast_control_requests_shed_total",
                "Requests answered 503 because too many were under way",
                &self.requests_shed,
            ),
            row(
                "nearcast_control_requests_refused_total",
                "Requests answered 401, 403 or 429 for their token, role or origin",
                &self.requests_refused,
            ),
            row(
                "nearcast_control_reports_shed_total",
                "Reports that were asked to come again because too many were being read",
                &self.reports_shed,
            ),
            row(
                "nearcast_control_store_errors_total",
                "Writes to the database that failed",
                &self.store_errors,
            ),
            row(
                "nearcast_control_ingests_total",
                "Asset versions that were ingested or made current again",
                &self.ingests,
            ),
        ]
    }

    /// The rows of what the process counts about versions that go.
    pub(crate) fn withdrawal_rows(&self) -> Vec<Row> {
        let rows = [
            (
                "nearcast_control_versions_withdrawn_total",
                "Asset versions that an operator, or the end of their time, took down",
                &self.versions_withdrawn,
            ),
            (
                "nearcast_control_versions_superseded_total",
                "Old asset versions that went because no playback could use them any more",
                &self.versions_superseded,
            ),
            (
                "nearcast_control_withdrawal_receipts_total",
                "Receipts of appliances that refuse what was withdrawn",
                &self.receipts,
            ),
        ];
        rows.map(counter_row).into()
    }

    /// The rows of what the process counts about identities.
    pub(crate) fn identity_rows(&self) -> Vec<Row> {
        let rows = [
            (
                "nearcast_control_handshakes_refused_total",
                "TLS handshakes that failed: no TLS, a certificate that is not ours, or too slow",
                &*self.handshakes_refused,
            ),
            (
                "nearcast_control_members_refused_total",
                "Requests of members whose identity was revoked, superseded or has expired",
                &self.members_refused,
            ),
            (
                "nearcast_control_enrolments_total",
                "One-time codes that were traded for an identity",
                &self.enrolments,
            ),
            (
                "nearcast_control_enrolments_refused_total",
                "Attempts to enrol that were refused",
                &self.enrolments_refused,
            ),
            (
                "nearcast_control_renewals_total",
                "Certificates of members that were renewed",
                &self.renewals,
            ),
            (
                "nearcast_control_revocations_total",
                "Identities that an operator revoked",
                &self.revocations,
            ),
            (
                "nearcast_control_manifests_signed_total",
                "Manifests that were signed: once for each generation that was asked for",
                &self.manifests_signed,
            ),
        ];
        rows.map(counter_row).into()
    }
}

fn counter_row((name, help, counter): (&'static str, &'static str, &Counter)) -> Row {
    Row { name, kind: "counter", help, value: counter.value() }
}

/// The text that Prometheus reads.
pub(crate) fn text(rows: &[Row]) -> String {
    let mut out = String::new();
    for Row { name, kind, help, value } in rows {
        write!(out, "# HELP {name} {help}.\n# TYPE {name} {kind}\n{name} {value}\n")
            .expect("a string takes all");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_a_name_a_kind_and_help() {
        let metrics = Metrics::default();
        metrics.playbacks.count();
        let rows = metrics.rows();
        let text = text(&rows[..1]);
        assert_eq!(
            text,
            "# HELP nearcast_control_playbacks_total Entry manifests and playbacks given to \
             players.\n\
             # TYPE nearcast_control_playbacks_total counter\nnearcast_control_playbacks_total 1\n"
        );
        assert!(rows.iter().all(|row| row.name.ends_with("_total") && !row.help.is_empty()));
    }
}
