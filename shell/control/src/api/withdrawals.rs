//! Titles that are taken down, who has confirmed it, and when they may be shown.

use std::collections::BTreeMap;

use axum::extract::{Path, State};
use axum::{Extension, Json};
use director::{ApplianceStatus, Withdrawal};
use model::id::{ApplianceId, AssetId, AssetVersionId};
use model::view::{FleetView, Health};
use wire::v1::fleet::{AwaitedOut, ReceiptOut, TakenOut, WithdrawalOut, WithdrawnOut};
use wire::v1::ingest::Window;

use super::problem::{Problem, Said};
use super::{Shared, named};
use crate::state::convert::{window_in, window_out};
use crate::state::directing::{Busy, Desk};
use crate::state::store::reason_name;
use crate::state::writer::{Control, said_of_withdrawal};

type Taken = (Extension<Said>, Json<TakenOut>);

/// Takes all versions of an asset down.
#[utoipa::path(delete, path = "/v1/assets/{asset}", tag = "assets",
    responses((status = 200, body = TakenOut)))]
pub(crate) async fn withdraw_asset(
    State(control): Shared,
    Path(asset): Path<String>,
) -> Result<Taken, Problem> {
    let asset: AssetId = named(&asset)?;
    Ok(answer(&control, &control.withdraw(&asset, None).await?).await)
}

/// Takes one version down. If an older one is held, new playbacks get that.
#[utoipa::path(delete, path = "/v1/assets/{asset}/versions/{version}", tag = "assets",
    responses((status = 200, body = TakenOut)))]
pub(crate) async fn withdraw_version(
    State(control): Shared,
    Path((asset, version)): Path<(String, String)>,
) -> Result<Taken, Problem> {
    let version: AssetVersionId = named(&version)?;
    Ok(answer(&control, &control.withdraw(&named(&asset)?, Some(&version)).await?).await)
}

/// Says when all versions of an asset may be shown, in place of what was said before.
#[utoipa::path(put, path = "/v1/assets/{asset}/window", tag = "assets", request_body = Window,
    responses((status = 200, body = Window)))]
pub(crate) async fn put_asset_window(
    State(control): Shared,
    Path(asset): Path<String>,
    Json(window): Json<Window>,
) -> Result<(Extension<Said>, Json<Window>), Problem> {
    let window = window_in(&window)?;
    control.put_window(&named(&asset)?, None, window).await?;
    Ok((Extension(Said(said_of_window(window))), Json(window_out(window))))
}

/// Says when one version may be shown, in place of what was said before.
#[utoipa::path(put, path = "/v1/assets/{asset}/versions/{version}/window", tag = "assets",
    request_body = Window, responses((status = 200, body = Window)))]
pub(crate) async fn put_version_window(
    State(control): Shared,
    Path((asset, version)): Path<(String, String)>,
    Json(window): Json<Window>,
) -> Result<(Extension<Said>, Json<Window>), Problem> {
    let (window, version) = (window_in(&window)?, named::<AssetVersionId>(&version)?);
    control.put_window(&named(&asset)?, Some(&version), window).await?;
    Ok((Extension(Said(said_of_window(window))), Json(window_out(window))))
}

/// Lists withdrawals, newest first: at most 1,000. Beyond, the oldest that is complete goes from
/// the list, else the oldest.
#[utoipa::path(get, path = "/v1/withdrawals", tag = "assets",
    responses((status = 200, body = [WithdrawalOut])))]
pub(crate) async fn withdrawals(
    State(control): Shared,
) -> Result<Json<Vec<WithdrawalOut>>, Problem> {
    let statuses = statuses(&control).await?;
    let view = control.snapshot().view.clone();
    let mut listed = Vec::new();
    let mut below = u64::MAX;
    // One at a time: each may have as many receipts as there are appliances.
    while let Some(withdrawal) = control.directing.ask(move |desk, _| before(desk, below)).await? {
        below = withdrawal.id;
        listed.push(out(&withdrawal, &view, &statuses));
    }
    Ok(Json(listed))
}

fn before(desk: &Desk, below: u64) -> Option<Withdrawal> {
    desk.director.desired().withdrawals.range(..below).next_back().map(|(_, of)| of.clone())
}

async fn statuses(control: &Control) -> Result<Statuses, Busy> {
    let fleet = control.directing.fleet().await?;
    Ok(fleet.into_iter().map(|told| (told.id, told.status)).collect())
}

type Statuses = BTreeMap<ApplianceId, ApplianceStatus>;

/// One withdrawal.
#[utoipa::path(get, path = "/v1/withdrawals/{number}", tag = "assets",
    params(("number" = u64, Path, description = "Its number")),
    responses((status = 200, body = WithdrawalOut)))]
pub(crate) async fn withdrawal(
    State(control): Shared,
    Path(number): Path<String>,
) -> Result<Json<WithdrawalOut>, Problem> {
    let number: u64 = named(&number)?;
    let look = move |desk: &Desk, _| desk.director.desired().withdrawals.get(&number).cloned();
    let found = control.directing.ask(look).await?;
    let found = found.ok_or_else(|| {
        Problem::not_found(format!("GET /v1/withdrawals lists no withdrawal {number}"))
    })?;
    let statuses = statuses(&control).await?;
    Ok(Json(out(&found, &control.snapshot().view, &statuses)))
}

async fn answer(control: &Control, (withdrawal, public_no_more): &(Withdrawal, bool)) -> Taken {
    let said = said_of_withdrawal(withdrawal);
    let said = if *public_no_more { format!("{said}; public no more") } else { said };
    // It is made, whether or not the director has time to say how long appliances are away.
    let statuses = statuses(control).await.unwrap_or_default();
    let withdrawal = out(withdrawal, &control.snapshot().view, &statuses);
    let out = TakenOut { withdrawal, public_no_more: *public_no_more };
    (Extension(Said(said)), Json(out))
}

/// An appliance without a status is as the picture has it.
fn out(withdrawal: &Withdrawal, view: &FleetView, statuses: &Statuses) -> WithdrawalOut {
    let (mut receipts, mut awaited) = (Vec::new(), Vec::new());
    for (id, receipt) in &withdrawal.receipts {
        let appliance = id.to_string();
        match receipt {
            Some(receipt) => receipts.push(ReceiptOut {
                appliance,
                at_unix_s: receipt.at.0,
                generation: receipt.generation.0,
            }),
            None => {
                let status = statuses.get(id);
                let seen = || view.appliance(id).map(|appliance| appliance.health);
                let health = status.map(|status| status.health).or_else(seen);
                let health = health.unwrap_or(Health::NeverSeen);
                awaited.push(AwaitedOut {
                    appliance,
                    reachable: !matches!(health, Health::Stale | Health::NeverSeen),
                    state: health.to_string(),
                    away_ms: status.and_then(|s| s.last_report).map(|since| since.as_millis()),
                });
            }
        }
    }
    WithdrawalOut {
        id: withdrawal.id,
        at_unix_s: withdrawal.at.0,
        reason: reason_name(withdrawal.reason).to_owned(),
        versions: withdrawal
            .versions
            .iter()
            .map(|(version, asset)| WithdrawnOut {
                asset: asset.to_string(),
                version: version.to_string(),
            })
            .collect(),
        complete: withdrawal.is_complete(),
        receipts,
        awaited,
    }
}

fn said_of_window(window: director::Window) -> String {
    let shown = window_out(window);
    let or = |time: Option<String>, none: &str| time.unwrap_or_else(|| none.to_owned());
    format!("shown from {} until {}", or(shown.from, "now"), or(shown.until, "further notice"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::directing::tests::{registered, report};
    use director::Reason;
    use model::units::UnixSeconds;

    #[tokio::test]
    async fn a_takedown_says_how_appliances_are_though_the_director_has_no_time() {
        let (_directory, control) = crate::state::writer::tests::open("").await;
        let a1 = registered(&control).await;
        control.directing.report(report(&a1, 1), ()).await.unwrap().unwrap();
        let withdrawal = Withdrawal {
            id: 1,
            at: UnixSeconds(1),
            reason: Reason::Operator,
            versions: std::sync::Arc::default(),
            receipts: [(a1, None), ("a2".parse().unwrap(), None)].into(),
        };
        let out = out(&withdrawal, &control.snapshot().view, &Statuses::new());
        let told: Vec<_> =
            out.awaited.iter().map(|of| (of.state.as_str(), of.reachable, of.away_ms)).collect();
        assert_eq!(told, [("healthy", true, None), ("never_seen", false, None)]);
    }
}
