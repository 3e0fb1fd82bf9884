//! What is said of an appliance besides where it stands: the same for operators, in the database
//! and for fronts.

use serde::{Deserialize, Serialize};

use super::is_zero;

/// All of it may be left out: nobody said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApplianceAbout {
    /// The kind of machine: the policy says what it is able to do, where nothing is said below.
    #[serde(default, skip_serializing_if = "ProfileName::is_none")]
    pub profile: ProfileName,
    /// An operator's own name for the kind of machine, for people. Empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub profile_name: String,
    /// What it serves at most, in bits per second. 0 for its profile's.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub throughput_bps: u64,
    /// What it holds at most. 0 for its profile's.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub capacity_bytes: u64,
    /// What it fetches at most, in bits per second. 0 for its profile's.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fill_bps: u64,
    /// Words for people, at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// A kind of machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProfileName {
    #[default]
    None,
    Flash,
    Storage,
    Global,
}

/// What a machine is able to do. 0 if nobody said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Abilities {
    /// What it serves at most, in bits per second.
    pub throughput_bps: u64,
    /// What it holds at most.
    pub capacity_bytes: u64,
    /// What it fetches at most, in bits per second.
    pub fill_bps: u64,
}

/// What machines of each profile are able to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Profiles {
    pub flash: Abilities,
    pub storage: Abilities,
    pub global: Abilities,
}

impl Profiles {
    /// By the keys of a policy.
    pub fn figures(self) -> [(&'static str, u64); 9] {
        let Self { flash, storage, global } = self;
        [
            ("flash_throughput_bps", flash.throughput_bps),
            ("flash_capacity_bytes", flash.capacity_bytes),
            ("flash_fill_bps", flash.fill_bps),
            ("storage_throughput_bps", storage.throughput_bps),
            ("storage_capacity_bytes", storage.capacity_bytes),
            ("storage_fill_bps", storage.fill_bps),
            ("global_throughput_bps", global.throughput_bps),
            ("global_capacity_bytes", global.capacity_bytes),
            ("global_fill_bps", global.fill_bps),
        ]
    }
}

impl ProfileName {
    /// No profile is said.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}
