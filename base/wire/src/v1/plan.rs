//! What the plan of placement is asked.

use serde::{Deserialize, Serialize};

/// Why an appliance should hold an item or not: of the answer to `GET /v1/plan/why`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = WhyOut))]
pub struct Why {
    pub appliance: String,
    pub version: String,
    /// The number of the rendition; none of a version that is placed as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rendition: Option<u8>,
    pub held: bool,
    pub why: String,
}
