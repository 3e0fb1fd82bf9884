//! What Prometheus reads at `/metrics`: one row per metric.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use director::Refused;

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
    /// Entry manifests that were refused for their grant.
    pub(crate) grants: Refusals,
    /// Steering answers that were refused for their ticket.
    pub(crate) tickets: Refusals,
    /// Sessions that services have ended.
    pub(crate) sessions_revoked: Counter,
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
    /// What a trusted proxy said of its client could not be read.
    pub(crate) forwarded_refused: Counter,
    /// Bodies that did not come in time.
    pub(crate) bodies_timed_out: Counter,
    /// What the listeners count.
    pub(crate) doors: Arc<DoorCounters>,
}

/// What listeners count.
#[derive(Debug, Default)]
pub(crate) struct DoorCounters {
    /// Connections that gave their place to a newcomer.
    pub(crate) let_go: Counter,
    /// Newcomers whose address had all of its connections in use.
    pub(crate) crowded: Counter,
    /// Connections closed for a head that did not end, or an answer that was not taken.
    pub(crate) timed_out: Counter,
    /// Connections of proxies without a PROXY header in order.
    pub(crate) proxy_headers_refused: Counter,
}

/// Grants or tickets that were refused, by reason.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    missing: Counter,
    unknown: Counter,
    expired: Counter,
    other_asset: Counter,
    revoked: Counter,
}

impl Refusals {
    /// Counts one.
    pub(crate) fn count(&self, refused: Refused) {
        let counter = match refused {
            Refused::Missing => &self.missing,
            Refused::Unknown => &self.unknown,
            Refused::Expired => &self.expired,
            Refused::OtherAsset => &self.other_asset,
            Refused::Revoked => &self.revoked,
        };
        counter.count();
    }
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
                "Playbacks that could not begin: no good grant, no such asset, or no appliance",
                &self.playbacks_refused,
            ),
            row(
                "nearcast_control_steering_answers_total",
                "Steering documents given to players",
                &self.steering_answers,
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
        rows.map(counted).into()
    }

    /// The rows of who was not let in, and of who had to go.
    pub(crate) fn door_rows(&self) -> Vec<Row> {
        let rows = [
            (
                "nearcast_control_connections_let_go_total",
                "Connections that gave their place to a newcomer, the longest unused first",
                &self.doors.let_go,
            ),
            (
                "nearcast_control_connections_refused_total",
                "Connections closed on arrival: their address had its share, all in use",
                &self.doors.crowded,
            ),
            (
                "nearcast_control_connections_timed_out_total",
                "Connections closed for a head that did not end, or an answer not taken",
                &self.doors.timed_out,
            ),
            (
                "nearcast_control_bodies_timed_out_total",
                "Requests answered 408 because their small body did not come in time",
                &self.bodies_timed_out,
            ),
            (
                "nearcast_control_proxy_headers_refused_total",
                "Connections of trusted proxies without a PROXY header that is in order",
                &self.doors.proxy_headers_refused,
            ),
            (
                "nearcast_control_forwarded_refused_total",
                "Requests answered 400 for what a trusted proxy said of their client",
                &self.forwarded_refused,
            ),
        ];
        rows.map(counted).into()
    }

    /// The rows of who may not play.
    pub(crate) fn refusal_rows(&self) -> Vec<Row> {
        let Self { grants, tickets, .. } = self;
        let rows = [
            (
                "nearcast_control_grants_missing_total",
                "Entry manifests refused with 401: no grant, and the asset is not public",
                &grants.missing,
            ),
            (
                "nearcast_control_grants_unknown_total",
                "Entry manifests refused with 401: a grant that is not ours, or was changed",
                &grants.unknown,
            ),
            (
                "nearcast_control_grants_expired_total",
                "Entry manifests refused with 403: the grant has expired",
                &grants.expired,
            ),
            (
                "nearcast_control_grants_other_asset_total",
                "Entry manifests refused with 403: the grant is for another asset",
                &grants.other_asset,
            ),
            (
                "nearcast_control_grants_revoked_total",
                "Entry manifests refused with 403: the session was revoked",
                &grants.revoked,
            ),
            (
                "nearcast_control_tickets_unknown_total",
                "Steering requests refused with 401: a URL that is not ours, or was changed",
                &tickets.unknown,
            ),
            (
                "nearcast_control_tickets_expired_total",
                "Steering requests refused with 403: the playback's time is over",
                &tickets.expired,
            ),
            (
                "nearcast_control_tickets_revoked_total",
                "Steering requests refused with 403: the session was revoked",
                &tickets.revoked,
            ),
            (
                "nearcast_control_sessions_revoked_total",
                "Sessions that services have ended",
                &self.sessions_revoked,
            ),
        ];
        rows.map(counted).into()
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
        rows.map(counted).into()
    }
}

fn counted((name, help, counter): (&'static str, &'static str, &Counter)) -> Row {
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
