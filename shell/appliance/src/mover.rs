//! Carries out what `tiering` plans: moves files that are watched much to fast drives, and others
//! away from them (`upkeep::mover`), as far as the day's budget goes.

use std::sync::atomic::Ordering;

use fill::tier::Class;
use model::object::BLOCK_LEN;
use model::units::{Bytes, Nanos};
use upkeep::at_once;
use upkeep::mover::{self, Moved};

use crate::ledger::Ledger;
use crate::pages::Pages;
use crate::shared::Shared;
use crate::tiering::Tier;

/// What is known of heat is kept so often: a kill forgets no more.
const KEEP_EVERY: Nanos = Nanos::seconds(600);

/// Runs until all must stop.
pub(crate) fn run(shared: &Shared, tier: &Tier) {
    let ledger = &shared.ledger;
    let mut buffer = Pages::zeroed(BLOCK_LEN);
    let mut kept_at = ledger.now();
    while ledger.sleep_until(ledger.now() + tier.config.every) {
        while round(shared, tier, &mut buffer) {}
        if KEEP_EVERY <= ledger.now().since(kept_at) {
            keep_heat(ledger, tier);
            kept_at = ledger.now();
        }
    }
    keep_heat(ledger, tier);
}

fn keep_heat(ledger: &Ledger, tier: &Tier) {
    if let Err(error) = tier.keep_heat() {
        tracing::warn!(%error, "what is watched is not kept");
        ledger.note("tiering", format!("cannot keep what is watched: {error}"));
    }
}

/// Plans, and carries it out; false if nothing was moved.
fn round(shared: &Shared, tier: &Tier, buffer: &mut Pages) -> bool {
    let (mut up, mut down, mut bytes, mut kept) = (0, 0, Bytes::ZERO, true);
    for one in tier.plan(shared) {
        if shared.ledger.is_stopping() {
            break;
        }
        let room = match at_once(mover::carry_out(shared, &one, |room| tier.spend(room), buffer)) {
            Ok(Moved::There(room)) => room,
            Ok(Moved::Abandoned) => {
                tier.counters.abandoned.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            Ok(Moved::Stays) => continue,
            Err(error) => {
                let what_to_do = "is the state directory full or read-only?";
                let text = format!("nothing is moved: {error}: {what_to_do}");
                shared.ledger.note("tiering", text);
                kept = false;
                break;
            }
        };
        tier.moved(one.to, room);
        bytes += room;
        match tier.class(one.to) {
            Class::Fast => up += 1,
            Class::Bulk => down += 1,
        }
    }
    if bytes == Bytes::ZERO {
        return false;
    }
    let (bytes, left) = (bytes.0, tier.left().0);
    tracing::info!(up, down, bytes, left, "objects moved between drives");
    kept && !shared.ledger.is_stopping()
}
