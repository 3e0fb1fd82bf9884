//! What the process counts. A line here is all that a new counter needs: the field and its row of
//! `/metrics` follow from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use director::Refused;
use model::metric::Metric;
use wire::prometheus::Page;

/// A number that grows, or is set.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds so many.
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Of one that goes up and down.
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counted by the process; what the director counts is in `director::Counters`.
pub(crate) type Metrics = Counts<Counter>;

/// What listeners count; they share it.
pub(crate) type DoorCounters = DoorCounts<Counter>;

model::metrics! {
    /// See `Metrics`.
    pub(crate) struct Counts {
        /// Entry manifests and playbacks given to players.
        playbacks: Counter("playbacks_total"),
        /// Playbacks that could not begin: no good grant, no such asset, or no appliance.
        playbacks_refused: Counter("playbacks_refused_total"),
        /// Steering documents given to players.
        steering_answers: Counter("steering_answers_total"),
        /// Steering requests of players that use another pathway than their best.
        steering_failovers: Counter("steering_failovers_total"),
        /// Steering documents with a longer TTL, since more players ask than `[steering] rate_max`.
        steering_delayed: Counter("steering_delayed_total"),
        /// Event reports of players that were taken.
        events_taken: Counter("event_reports_total"),
        /// Event reports refused with 401 or 403: no ticket of ours, or one that is over.
        events_refused: Counter("event_reports_refused_total"),
        /// Event reports dropped with 429 or 503: their playback says too much, or too many do.
        events_dropped: Counter("event_reports_dropped_total"),
        /// Batches of what viewers felt that told of more than an appliance's viewers can feel: the
        /// rest was cut off.
        viewer_batches_cut: Counter("viewer_batches_cut_total"),
        /// Requests answered 503 because too many were under way.
        requests_shed: Counter("requests_shed_total"),
        /// Requests answered 401, 403 or 429 for their token, role or origin.
        requests_refused: Counter("requests_refused_total"),
        /// Reports that were asked to come again because too many were being read.
        reports_shed: Counter("reports_shed_total"),
        /// Writes to the database that failed.
        store_errors: Counter("store_errors_total"),
        /// Asset versions that were ingested or made current again.
        ingests: Counter("ingests_total"),
        /// Requests answered 408 because their small body did not come in time.
        bodies_timed_out: Counter("bodies_timed_out_total"),
        /// Requests answered 400 for what a trusted proxy said of their client.
        forwarded_refused: Counter("forwarded_refused_total"),
        /// Entry manifests refused with 401: no grant, and the asset is not public.
        grants_missing: Counter("grants_missing_total"),
        /// Entry manifests refused with 401: a grant that is not ours, or was changed.
        grants_unknown: Counter("grants_unknown_total"),
        /// Entry manifests refused with 403: the grant has expired.
        grants_expired: Counter("grants_expired_total"),
        /// Entry manifests refused with 403: the grant is for another asset.
        grants_other_asset: Counter("grants_other_asset_total"),
        /// Entry manifests refused with 403: the session was revoked.
        grants_revoked: Counter("grants_revoked_total"),
        /// Steering requests refused with 401: a URL that is not ours, or was changed.
        tickets_unknown: Counter("tickets_unknown_total"),
        /// Steering requests refused with 403: the playback's time is over.
        tickets_expired: Counter("tickets_expired_total"),
        /// Steering requests refused with 403: the session was revoked.
        tickets_revoked: Counter("tickets_revoked_total"),
        /// Whole snapshots that fronts were given.
        snapshots_given: Counter("replica_snapshots_total"),
        /// Whole snapshots for fronts that would be longer than they may be: none was given.
        snapshots_too_long: Counter("replica_snapshots_too_long_total"),
        /// Answers to fronts with the differences since what they had.
        differences_given: Counter("replica_differences_total"),
        /// Counts of sheds that a front could not tell its writer; they come with the next ones.
        shed_reports_failed: Counter("shed_reports_failed_total"),
        /// Sessions that services have ended.
        sessions_revoked: Counter("sessions_revoked_total"),
        /// Requests of members whose identity was revoked, superseded or has expired.
        members_refused: Counter("members_refused_total"),
        /// One-time codes that were traded for an identity.
        enrolments: Counter("enrolments_total"),
        /// Attempts to enrol that were refused.
        enrolments_refused: Counter("enrolments_refused_total"),
        /// Certificates of members that were renewed.
        renewals: Counter("renewals_total"),
        /// Identities that an operator revoked.
        revocations: Counter("revocations_total"),
        /// Manifests that were signed: whole ones once for each generation that was asked for,
        /// short ones for each that asked.
        manifests_signed: Counter("manifests_signed_total"),
        /// Trust documents that were signed: once for each generation that was asked for.
        trust_documents_signed: Counter("trust_documents_signed_total"),
        /// Requests for documents of versions that were answered 503: too much was on its way.
        manifest_documents_shed: Counter("manifest_documents_shed_total"),
        /// Bytes of documents of versions that appliances were given.
        manifest_documents_bytes: Counter("manifest_documents_bytes_total"),
        /// Asset versions that an operator, or the end of their time, took down.
        versions_withdrawn: Counter("versions_withdrawn_total"),
        /// Old asset versions that went because no playback could use them any more.
        versions_superseded: Counter("versions_superseded_total"),
        /// Documents with block hashes that were written.
        documents_written: Counter("documents_written_total"),
        /// Documents that could not be written or read: the folder or the bucket does not answer,
        /// or what is there is damaged.
        documents_failed: Counter("documents_failed_total"),
        /// Documents that nobody needed any more and that were removed.
        documents_removed: Counter("documents_removed_total"),
        /// Documents that the database names and that are not there, when all were looked at last.
        documents_missing: Gauge("documents_missing"),
        /// Parts of appliances' demand that were counted.
        demand_parts: Counter("demand_parts_total"),
        /// Parts that had been counted before, and were not counted again.
        demand_parts_again: Counter("demand_parts_again_total"),
        /// Parts that were asked to come again: too many waited, or another of their appliance, or
        /// the database did not answer.
        demand_parts_shed: Counter("demand_parts_shed_total"),
        /// Parts that were asked to come again since their hour, or a later one, was counted: their
        /// appliance's clock was wrong, or somebody tells what is not true.
        demand_parts_late: Counter("demand_parts_late_total"),
        /// Parts that were refused: they had more bytes than their appliance can send.
        demand_parts_refused: Counter("demand_parts_refused_total"),
        /// Bytes sent to viewers, by what was counted.
        demand_bytes: Counter("demand_bytes_total"),
        /// Bytes in counted parts that are of no item: of files of versions that are gone, of files
        /// that were too many, of hours that are too old.
        demand_bytes_lost: Counter("demand_lost_bytes_total"),
        /// Receipts of appliances that refuse what was withdrawn.
        receipts: Counter("withdrawal_receipts_total"),
    }
}

model::metrics! {
    /// See `DoorCounters`.
    pub(crate) struct DoorCounts {
        /// Connections that gave their place to a newcomer, the longest unused first.
        let_go: Counter("connections_let_go_total"),
        /// Connections closed on arrival: their address had its share, all in use.
        crowded: Counter("connections_refused_total"),
        /// Connections closed for a head that did not end, or an answer not taken.
        timed_out: Counter("connections_timed_out_total"),
        /// Connections of trusted proxies without a PROXY header that is in order.
        proxy_headers_refused: Counter("proxy_headers_refused_total"),
        /// TLS handshakes that failed: no TLS, a certificate that is not ours, or too slow.
        handshakes_refused: Counter("handshakes_refused_total"),
    }
}

model::metrics! {
    /// What the director's thread counts.
    pub(crate) struct WorkCounts {
        /// Reports and questions refused because the director's queue was full, or it hung.
        refused: Counter("director_refused_total"),
        /// Events, questions and ticks that the director has worked off.
        steps: Counter("director_steps_total"),
        /// Time in which the director worked.
        busy: Counter("director_busy_seconds_total") in Nanos,
        /// Time in which nobody was listened to, for which no appliance is called silent.
        lost: Counter("director_lost_seconds_total") in Nanos,
        /// Longest step of the director in this minute and the one before.
        longest: Gauge("director_step_longest_seconds") in Nanos,
        /// Time since the director's last step. From 5 s on it hangs.
        silent: Gauge("director_silent_seconds") in Nanos,
    }
}

impl Metrics {
    /// Counts a playback that was asked for.
    pub(crate) fn playback_asked(&self, begins: bool) {
        if begins { self.playbacks.count() } else { self.playbacks_refused.count() }
    }

    /// Counts a grant that was refused.
    pub(crate) fn grant_refused(&self, refused: Refused) {
        let counter = match refused {
            Refused::Missing => &self.grants_missing,
            Refused::Unknown => &self.grants_unknown,
            Refused::Expired => &self.grants_expired,
            Refused::OtherAsset => &self.grants_other_asset,
            Refused::Revoked => &self.grants_revoked,
        };
        counter.count();
    }

    /// Counts a ticket that was refused. A ticket stands in the URL and is for what it names.
    pub(crate) fn ticket_refused(&self, refused: Refused) {
        let counter = match refused {
            Refused::Missing | Refused::Unknown | Refused::OtherAsset => &self.tickets_unknown,
            Refused::Expired => &self.tickets_expired,
            Refused::Revoked => &self.tickets_revoked,
        };
        counter.count();
    }
}

/// A page with what the process and its listeners count.
pub(crate) fn page(metrics: &Metrics, doors: &Arc<DoorCounters>) -> Page {
    let mut page = Page::new("nearcast_control_");
    page.table(Counts::METRICS, metrics.map(Counter::value).each().copied());
    page.table(DoorCounts::METRICS, doors.map(Counter::value).each().copied());
    page
}

/// Numbers that go up and down, each with its name and its help.
pub(crate) fn gauges<const N: usize>(
    page: &mut Page,
    gauges: [(&'static str, &'static str, u64); N],
) {
    for (name, help, value) in gauges {
        page.put(&Metric::gauge(name, help), "", value);
    }
}
