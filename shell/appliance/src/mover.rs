//! Carries out what `tiering` plans: moves files that are watched much to fast drives, and others
//! away from them (`upkeep::mover`), as far as the day's budget goes.

use std::sync::atomic::Ordering;

use fill::tier::Class;
use model::object::BLOCK_LEN;
use model::units::{Bytes, Nanos};
use upkeep::at_once;
use upkeep::mover::{self, Moved};

use crate::pages::Pages;
use crate::shared::Shared;
use crate::tiering::Tier;

/// What is known of heat is kept so often: a kill forgets no more.
const KEEP_EVERY: Nanos = Nanos::seconds(600);

/// Runs until all must stop.
pub(crate) fn run(shared: &Shared) {
    let Some(tier) = &shared.tier else { return };
    let mut buffer = Pages::zeroed(BLOCK_LEN);
    let mut kept_at = shared.now();
    while shared.sleep_until(shared.now() + tier.config.every) {
        while round(shared, tier, &mut buffer) {}
        if KEEP_EVERY <= shared.now().since(kept_at) {
            keep_heat(shared, tier);
            kept_at = shared.now();
        }
    }
    keep_heat(shared, tier);
}

fn keep_heat(shared: &Shared, tier: &Tier) {
    if let Err(error) = tier.keep_heat() {
        tracing::warn!(%error, "what is watched is not kept");
        shared.note("tiering", format!("cannot keep what is watched: {error}"));
    }
}

/// Plans, and carries it out; false if nothing was moved.
fn round(shared: &Shared, tier: &Tier, buffer: &mut Pages) -> bool {
    let (mut up, mut down, mut bytes, mut kept) = (0, 0, Bytes::ZERO, true);
    for one in tier.plan(shared) {
        if shared.is_stopping() {
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
                shared.note("tiering", text);
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
    kept && !shared.is_stopping()
}
