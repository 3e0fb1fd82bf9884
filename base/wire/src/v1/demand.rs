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
