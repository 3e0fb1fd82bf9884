//! How asset versions are spread and fetched: the policy.

use axum::extract::State;
use axum::{Extension, Json};
use director::{AFTER_MAX, FillPolicy, MASTERS_MAX, Policy};
use model::hours::Windows;
use model::units::Nanos;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wire::convert::{WireError, profiles_in, rate};
use wire::v1::appliance::Abilities;

use super::Shared;
use super::problem::{Problem, Said};
use super::put_said::put_said;

/// How asset versions are spread.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyBody {
    /// Copies of each asset version at a site, or in a manifest cluster, where drives have room for
    /// more than viewers need, 1 to 64. What many watch has as many copies as that takes, however
    /// many these are. Default 2.
    #[serde(default = "two")]
    #[schema(minimum = 1, maximum = 64)]
    copies: u32,
    /// Versions of an asset that are held, 1 to 16: the current one and those before it, for the
    /// sessions that began with them. Default 2.
    #[serde(default = "two")]
    #[schema(minimum = 1, maximum = 16)]
    versions_kept: u32,
    /// What machines of profile `flash` serve at most, in bits per second. 0 for unknown.
    /// Without it, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flash_throughput_bps: Option<u64>,
    /// What machines of profile `flash` hold at most. 0 for unknown.
    /// Without it, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flash_capacity_bytes: Option<u64>,
    /// What machines of profile `flash` fetch at most, in bits per second. 0 for unknown.
    /// Without it, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flash_fill_bps: Option<u64>,
    /// What machines of profile `storage` serve at most, in bits per second. 0 for unknown.
    /// Without it, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    storage_throughput_bps: Option<u64>,
    /// What machines of profile `storage` hold at most. 0 for unknown.
    /// Without it, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    storage_capacity_bytes: Option<u64>,
    /// What machines of profile `storage` fetch at most, in bits per second. 0 for unknown.
    /// Without it, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    storage_fill_bps: Option<u64>,
    /// What machines of profile `global` serve at most, in bits per second. 0 for unknown.
    /// Without it, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    global_throughput_bps: Option<u64>,
    /// What machines of profile `global` hold at most. 0 for unknown.
    /// Without it, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    global_capacity_bytes: Option<u64>,
    /// What machines of profile `global` fetch at most, in bits per second. 0 for unknown.
    /// Without it, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    global_fill_bps: Option<u64>,
    /// Windows of a day in which sites fill that say nothing else, by local time, at most 4; or
    /// `always`, which is the default. Without it, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "02:00-14:00")]
    fill_windows: Option<String>,
    /// What an appliance fetches at most of what is urgent outside of its windows, in bits per
    /// second, from 1,000,000; 0 for the default, which is 100 Mb/s. Without it, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fill_urgent_bps: Option<u64>,
    /// How many of a fill cluster fetch an object from its origin, at most 16; the others fetch it
    /// from them. 0 if all may. Default 1. Without it, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 16)]
    fill_masters: Option<u32>,
    /// Whoever has lacked an object for so long while its fill was open asks other fill clusters,
    /// too; two days at most. Default 300. Without it, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 172_800)]
    fill_elsewhere_after_s: Option<u64>,
    /// Whoever has lacked it for so long asks its origins; two days at most. Default 900. Without
    /// it, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 172_800)]
    fill_origin_after_s: Option<u64>,
}

fn two() -> u32 {
    2
}

impl PolicyBody {
    /// What is said of fill, over what was known.
    fn fill_over(&self, known: FillPolicy) -> Result<FillPolicy, Problem> {
        let windows = match self.fill_windows.as_deref() {
            None => known.windows,
            Some("") => Windows::ALWAYS,
            Some(text) => {
                let said = text.parse().map_err(WireError::Windows);
                said.map_err(Problem::bad_request)?
            }
        };
        let masters = self.fill_masters.unwrap_or(known.masters);
        if MASTERS_MAX < masters {
            return Err(Problem::bad_request(format!("fill_masters: use 0 to {MASTERS_MAX}")));
        }
        let after = |name: &str, said: Option<u64>, known: Nanos| {
            let most = AFTER_MAX.as_seconds();
            let wrong = || Problem::bad_request(format!("{name}: use 0 to {most} seconds"));
            let Some(said) = said else { return Ok(known) };
            if said <= most { Ok(Nanos::seconds(said)) } else { Err(wrong()) }
        };
        let urgent_max = match self.fill_urgent_bps {
            None => known.urgent_max,
            Some(bps) => {
                let rate = rate("fill_urgent_bps", bps).map_err(Problem::bad_request)?;
                rate.unwrap_or_else(|| FillPolicy::default().urgent_max)
            }
        };
        Ok(FillPolicy {
            windows,
            urgent_max,
            masters,
            elsewhere_after: after(
                "fill_elsewhere_after_s",
                self.fill_elsewhere_after_s,
                known.elsewhere_after,
            )?,
            origin_after: after(
                "fill_origin_after_s",
                self.fill_origin_after_s,
                known.origin_after,
            )?,
        })
    }

    /// What is said of profiles, over what was known.
    fn over(&self, known: wire::v1::appliance::Profiles) -> wire::v1::appliance::Profiles {
        let able = |said: [Option<u64>; 3], known: Abilities| Abilities {
            throughput_bps: said[0].unwrap_or(known.throughput_bps),
            capacity_bytes: said[1].unwrap_or(known.capacity_bytes),
            fill_bps: said[2].unwrap_or(known.fill_bps),
        };
        wire::v1::appliance::Profiles {
            flash: able(
                [self.flash_throughput_bps, self.flash_capacity_bytes, self.flash_fill_bps],
                known.flash,
            ),
            storage: able(
                [self.storage_throughput_bps, self.storage_capacity_bytes, self.storage_fill_bps],
                known.storage,
            ),
            global: able(
                [self.global_throughput_bps, self.global_capacity_bytes, self.global_fill_bps],
                known.global,
            ),
        }
    }
}

fn policy_out(policy: Policy) -> PolicyBody {
    let wire::v1::appliance::Profiles { flash, storage, global } = policy.profiles.into();
    PolicyBody {
        copies: policy.copies,
        versions_kept: policy.versions_kept,
        flash_throughput_bps: Some(flash.throughput_bps),
        flash_capacity_bytes: Some(flash.capacity_bytes),
        flash_fill_bps: Some(flash.fill_bps),
        storage_throughput_bps: Some(storage.throughput_bps),
        storage_capacity_bytes: Some(storage.capacity_bytes),
        storage_fill_bps: Some(storage.fill_bps),
        global_throughput_bps: Some(global.throughput_bps),
        global_capacity_bytes: Some(global.capacity_bytes),
        global_fill_bps: Some(global.fill_bps),
        fill_windows: Some(policy.fill.windows.to_string()),
        fill_urgent_bps: Some(policy.fill.urgent_max.0),
        fill_masters: Some(policy.fill.masters),
        fill_elsewhere_after_s: Some(policy.fill.elsewhere_after.as_seconds()),
        fill_origin_after_s: Some(policy.fill.origin_after.as_seconds()),
    }
}

/// How asset versions are spread.
#[utoipa::path(get, path = "/v1/policy", tag = "registry",
    responses((status = 200, body = PolicyBody)))]
pub(crate) async fn policy(State(control): Shared) -> Json<PolicyBody> {
    Json(policy_out(control.snapshot().policy))
}

/// Changes how asset versions are spread.
#[utoipa::path(put, path = "/v1/policy", tag = "registry", request_body = PolicyBody,
    responses((status = 200, body = PolicyBody)))]
pub(crate) async fn put_policy(
    State(control): Shared,
    Json(body): Json<PolicyBody>,
) -> Result<(Extension<Said>, Json<PolicyBody>), Problem> {
    let PolicyBody { copies, versions_kept, .. } = body;
    if !(1..=64).contains(&copies) {
        return Err(Problem::bad_request("copies: use 1 to 64"));
    }
    if !(1..=16).contains(&versions_kept) {
        return Err(Problem::bad_request("versions_kept: use 1 to 16"));
    }
    let mut before = None;
    let merge = |known: Policy| {
        before = Some(policy_out(known));
        let profiles = body.over(known.profiles.into());
        let profiles = profiles_in(&profiles).map_err(Problem::bad_request)?;
        let fill = body.fill_over(known.fill)?;
        Ok::<_, Problem>(Policy { copies, versions_kept, profiles, fill })
    };
    let policy = control.put_policy(merge).await?;
    let out = policy_out(policy);
    let said = put_said(before.as_ref(), &out, &["copies", "versions_kept"], "");
    Ok((Extension(said), Json(out)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::registry::tests::{assert_has, at_once, one_by_one};
    use crate::state::writer::tests::open;
    use serde_json::{Value, json};

    #[tokio::test]
    async fn fields_of_the_policy_that_are_put_at_once_are_all_there() {
        let (_directory, control) = open("").await;
        let fields = json!({"flash_throughput_bps": 1_000_000, "flash_fill_bps": 2_000_000,
            "storage_capacity_bytes": 3_000_000_000_u64, "global_throughput_bps": 4_000_000});
        let put = |body: Value| {
            let body = Json(serde_json::from_value(body).unwrap());
            put_policy(State(control.clone()), body)
        };
        at_once(one_by_one(&fields, &json!({})).map(put)).await;
        let Json(found) = policy(State(control.clone())).await;
        assert_has(&serde_json::to_value(found).unwrap(), &fields);
    }

    #[tokio::test]
    async fn the_audit_line_of_the_policy_has_what_differs() {
        let (_directory, control) = open("").await;
        let put = async |body: Value| {
            let body = Json(serde_json::from_value(body).unwrap());
            put_policy(State(control.clone()), body).await.unwrap().0.0.0
        };
        let said = put(json!({"copies": 2, "flash_fill_bps": 400_000_000})).await;
        assert_eq!(said, "copies 2, versions_kept 2, flash_fill_bps 300000000 becomes 400000000");
        assert_eq!(put(json!({"copies": 2})).await, "copies 2, versions_kept 2");
    }
}
