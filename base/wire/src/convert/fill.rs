//! What control tells appliances about fetching, to nouns and back.

use model::hours::{FillRules, Hours, OFFSETS_MAX, Offset, URGENT_MAX, Windows};
use model::id::AssetVersionId;
use model::units::{BitsPerSecond, UnixSeconds};

use super::WireError;
use crate::v1;

/// An offset of a zone is less than a day.
const AHEAD_MAX: u32 = 86_400;

/// The rules as an appliance is told them.
pub fn fill_rules_out(rules: &FillRules) -> v1::fill::FillRules {
    let FillRules { state, hours, rate_max, outside_max, urgent, urgent_max } = rules;
    let offset = |offset: &Offset| v1::fill::FillOffset {
        from_unix_s: offset.from.0,
        ahead_s: offset.ahead_s,
    };
    v1::fill::FillRules {
        state: *state,
        windows: hours.windows.minutes().map(|(from, until)| [from, until]).collect(),
        offsets: hours.offsets.iter().map(offset).collect(),
        paused_until_unix_s: hours.paused_until.map(|until| until.0),
        rate_max_bps: rate_max.map_or(0, |most| most.0),
        outside_max_bps: outside_max.map_or(0, |most| most.0),
        urgent: urgent.iter().map(ToString::to_string).collect(),
        urgent_max_bps: urgent_max.map_or(0, |most| most.0),
    }
}

/// The rules off the wire. An appliance that understands none of them keeps those that it has.
pub fn fill_rules_in(wire: &v1::fill::FillRules) -> Result<FillRules, WireError> {
    let windows = Windows::new(wire.windows.iter().map(|[from, until]| (*from, *until)))?;
    let offset = |of: &v1::fill::FillOffset| Offset {
        from: UnixSeconds(of.from_unix_s),
        ahead_s: of.ahead_s,
    };
    let offsets: Vec<Offset> = wire.offsets.iter().map(offset).collect();
    let is_sorted = offsets.is_sorted_by(|one, next| one.from < next.from);
    let is_zone = offsets.iter().all(|of| of.ahead_s.unsigned_abs() < AHEAD_MAX);
    if !is_sorted || !is_zone || OFFSETS_MAX < offsets.len() {
        return Err(WireError::Offsets);
    }
    if URGENT_MAX < wire.urgent.len() {
        return Err(WireError::Urgent);
    }
    let urgent: Vec<AssetVersionId> =
        wire.urgent.iter().map(|id| id.parse()).collect::<Result<_, _>>()?;
    let paused_until = wire.paused_until_unix_s.map(UnixSeconds);
    let rate = |most: u64| Some(BitsPerSecond(most)).filter(|most| most.0 != 0);
    Ok(FillRules {
        state: wire.state,
        hours: Hours { windows, offsets: offsets.into(), paused_until },
        rate_max: rate(wire.rate_max_bps),
        outside_max: rate(wire.outside_max_bps),
        urgent: urgent.into(),
        urgent_max: rate(wire.urgent_max_bps),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::hours::NEVER;

    #[test]
    fn rules_survive_the_way_out_and_in() {
        let offset = |from, ahead_s| Offset { from: UnixSeconds(from), ahead_s };
        let rules = FillRules {
            state: 7,
            hours: Hours {
                windows: "22:00-06:00, 12:00-13:00".parse().unwrap(),
                offsets: [offset(5, 3600), offset(9, -7200)].into(),
                paused_until: Some(NEVER),
            },
            rate_max: Some(BitsPerSecond(1_000_000)),
            outside_max: Some(BitsPerSecond(2_000_000)),
            urgent: ["film-1", "film-2"].map(|id| id.parse().unwrap()).into(),
            urgent_max: Some(BitsPerSecond(3_000_000)),
        };
        for rules in [rules, FillRules::default()] {
            let text = serde_json::to_string(&fill_rules_out(&rules)).unwrap();
            let wire = serde_json::from_str(&text).unwrap();
            assert_eq!(fill_rules_in(&wire), Ok(rules));
        }
        let old = serde_json::from_str(r#"{"state": 3, "later": true}"#).unwrap();
        assert_eq!(fill_rules_in(&old), Ok(FillRules { state: 3, ..FillRules::default() }));
    }

    #[test]
    fn rules_that_say_no_hours_are_refused() {
        let refused = |json: &str| {
            let wire: v1::fill::FillRules = serde_json::from_str(json).unwrap();
            fill_rules_in(&wire).unwrap_err().to_string()
        };
        assert!(refused(r#"{"state": 1, "windows": [[5, 5]]}"#).contains("ends when it begins"));
        assert!(refused(r#"{"state": 1, "windows": [[5, 1441]]}"#).contains("is no window"));
        let zone = |offsets: &str| refused(&format!(r#"{{"state": 1, "offsets": [{offsets}]}}"#));
        let one = r#"{"from_unix_s": 5, "ahead_s": 0}"#;
        for offsets in [
            r#"{"from_unix_s": 5, "ahead_s": 86400}"#.to_owned(),
            format!("{one},{one}"),
            [one; 17].join(","),
        ] {
            assert!(zone(&offsets).contains("16 ascending times"), "{offsets}");
        }
        let urgent = |ids: &[&str]| {
            let ids = serde_json::to_string(ids).unwrap();
            refused(&format!(r#"{{"state": 1, "urgent": {ids}}}"#))
        };
        assert!(urgent(&["film-1"; 65]).contains("64 versions"));
        assert!(urgent(&["no name!"]).contains("no name!"));
    }
}
