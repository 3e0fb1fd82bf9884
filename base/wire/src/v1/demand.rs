//! What an appliance sent viewers in an hour, by file.
//!
//! ```text
//! POST /v1/appliances/{id}/demand   DemandPart      answer DemandTaken
//! ```
//!
//! Parts are told in the order of their numbers, each until it is answered; one whose number is not
//! above that which was counted last is answered and not counted again. A control of the release
//! before has no such path: its answer is 404, and the parts are kept for the next.

use serde::{Deserialize, Serialize};

use super::is_zero;

/// Bytes of the files that viewers were sent something of, in an hour or a part of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DemandPart {
    /// Grows from part to part, also after a restart, and is never given twice.
    pub number: u64,
    /// The hour, counted from 1970-01-01 00:00 UTC.
    pub hour: u32,
    /// Numbers of files, ascending: those of the manifest.
    pub files: Vec<u32>,
    /// What viewers were sent of each, none of them 0. Of a file with few viewers in the hour it is
    /// rounded, up or down by chance.
    pub bytes: Vec<u64>,
    /// Bytes of files that are not listed, because there were too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub beyond_bytes: u64,
}

/// A part was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DemandTaken {
    /// The number of the last part of this appliance that is counted, and on a drive: parts up to
    /// it need not be kept.
    pub counted: u64,
}

/// Files of a part at most.
pub const PART_FILES_MAX: usize = 65_536;

/// A part is no longer: a number of a file and of bytes are 32 digits at most with their commas.
pub const PART_LEN_MAX: usize = PART_FILES_MAX * 32 + 1024;

/// The name of the region of all sites that are in no manifest cluster.
pub const REST: &str = "-";

/// What a region will watch: the answer to `GET /v1/popularity`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Popularity {
    /// A manifest cluster, or `-`, all sites that are in none.
    pub region: String,
    /// All regions of which anything is known.
    pub regions: Vec<String>,
    /// The first second of the day that is forecast: the next that begins, in UTC.
    pub day_unix_s: u64,
    /// What came until then is known, but of appliances that were away from control since.
    pub known_until_unix_s: u64,
    /// Days before of which anything is known.
    pub days_known: u32,
    /// What viewers were sent on the last day that is over.
    pub day_before_bytes: u64,
    /// Of that, bytes of items beyond those that are kept, which no forecast has.
    pub cut_bytes: u64,
    /// What they will be sent on the day that is forecast, of all that is in the catalogue.
    pub expected_bytes: u64,
    /// Items of which anything is expected.
    pub items: u64,
    /// Those with the most bytes for each byte of room.
    pub top: Vec<PopularItem>,
    /// How good such forecasts were, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backtest: Option<BacktestOut>,
}

/// What is expected of an item on a day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PopularItem {
    pub item: u32,
    /// The asset version that it is of.
    pub version: String,
    /// The number of the rendition; 0 for all of the version.
    pub rendition: u8,
    /// What its renditions take at most, if an entry manifest says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bitrate_bps: Option<u64>,
    /// Its room on drives.
    pub len_bytes: u64,
    pub expected_bytes: u64,
    /// The mean bit rate of its busiest hour.
    pub peak_bps: u64,
    /// Expected bytes by room, in thousandths.
    pub popularity_permille: u64,
}

/// Days that are over, forecast by the days before them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BacktestOut {
    /// How many were tested: those that have a day before them, and one a week before.
    pub days: u32,
    /// Bytes that viewers were sent on them.
    pub came_bytes: u64,
    /// Stores of these sizes: 1, 5, 10, 20 and 50 hundredths of the catalogue.
    pub room_bytes: Vec<u64>,
    /// `forecast`, `yesterday`, `week_ago`, and `known`: by what came itself, which nobody knows.
    pub ways: Vec<BacktestWay>,
}

/// How a way to forecast did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BacktestWay {
    pub name: String,
    /// The differences between what it said of each item and what came, together.
    pub off_bytes: u64,
    /// For each store, the bytes that came of what it would have put there.
    pub hit_bytes: Vec<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_part_is_no_longer_than_said() {
        let part = DemandPart {
            number: u64::MAX,
            hour: u32::MAX,
            files: vec![u32::MAX; PART_FILES_MAX],
            bytes: vec![u64::MAX; PART_FILES_MAX],
            beyond_bytes: u64::MAX,
        };
        let text = serde_json::to_string(&part).unwrap();
        assert!(text.len() <= PART_LEN_MAX, "{}", text.len());
        assert_eq!(serde_json::from_str::<DemandPart>(&text).unwrap(), part);
    }

    #[test]
    fn what_a_newer_appliance_tells_besides_is_not_read() {
        let text = r#"{"number":7,"hour":3,"files":[1],"bytes":[2],"sessions":[9]}"#;
        let part =
            DemandPart { number: 7, hour: 3, files: vec![1], bytes: vec![2], beyond_bytes: 0 };
        assert_eq!(serde_json::from_str::<DemandPart>(text).unwrap(), part);
    }
}
