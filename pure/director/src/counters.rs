//! What is counted of the director.

model::metrics! {
    /// The director's counters since the start.
    pub struct Counters {
        /// Reports of appliances.
        reports: Counter("reports_total"),
        /// Reports that came after newer ones and were dropped.
        reports_late: Counter("reports_late_total"),
        /// Inventory deltas that did not fit, so that they were asked for again.
        inventory_gaps: Counter("inventory_gaps_total"),
        /// Reports after which an inventory here was not what the appliance says of it: a mistake
        /// in one of them; all is asked for again, at most every five minutes.
        inventory_differences: Counter("inventory_differences_total"),
        /// Times that placement was worked out.
        placements: Counter("placements_total"),
        /// Changes of appliances' health.
        health_changes: Counter("health_changes_total"),
        /// Cuts of appliances' shares for their load.
        share_cuts: Counter("share_cuts_total"),
        /// Cuts of the part of their titles' sessions that appliances have, for the mean load of
        /// their sites.
        titles_cuts: Counter("titles_cuts_total"),
        /// Connection attempts to appliances whose report was late.
        probes: Counter("probes_total"),
        /// Lines of the log that were left out since too many waited, as while the database hangs.
        /// Lines about identities never are, and the notices are shown. A connection attempt is put
        /// off then, and does not count.
        actions_spared: Counter("director_actions_spared_total"),
        /// Changes of what a site hears that were taken over.
        routes_changes: Counter("routes_changes_total"),
        /// Changes of what a site hears that did not lead to what was told, so that all is asked
        /// for again.
        routes_gaps: Counter("routes_gaps_total"),
        /// Parts of tables of routes that nobody asked for.
        routes_unwanted: Counter("routes_unwanted_total"),
        /// Tables of routes that wait for a later report, since others are on their way.
        routes_waits: Counter("routes_waits_total"),
        /// Tables of routes that are refused: larger than any network has.
        routes_refused: Counter("routes_refused_total"),
        /// Identities that were found on two machines.
        clones: Counter("clones_total"),
        /// Appliances that were found on other hardware under the same identity.
        moves: Counter("moves_total"),
    }
}
