//! Coverage zones, in the JSON that Apache Traffic Control uses: a cache group, here a site, with
//! its networks and where it is.
//!
//! ```text
//! {"revision": "...", "customerName": "...",
//!  "coverageZones": {"berlin": {"network": ["192.0.2.0/24"], "network6": ["2001:db8::/32"],
//!                               "coordinates": {"latitude": 52.5, "longitude": 13.4}}}}
//! ```

use std::collections::BTreeMap;

use model::place::{Place, Point};
use model::topology::Prefix;
use serde::Deserialize;

use crate::Faults;

/// A zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    pub prefixes: Vec<Prefix>,
    /// Where its clients are, if the file says so.
    pub place: Option<Place>,
}

/// The text is no such file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a file of coverage zones: {0}")]
pub struct NotZones(String);

#[derive(Deserialize)]
struct File {
    #[serde(rename = "coverageZones")]
    zones: BTreeMap<String, Listed>,
}

#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    network: Vec<String>,
    #[serde(default)]
    network6: Vec<String>,
    coordinates: Option<Coordinates>,
}

#[derive(Deserialize)]
struct Coordinates {
    latitude: f64,
    longitude: f64,
}

/// Reads the zones by name. A network that is no prefix is left out and told.
pub fn parse(text: &str) -> Result<(BTreeMap<String, Zone>, Faults), NotZones> {
    let file: File = serde_json::from_str(text).map_err(|error| NotZones(error.to_string()))?;
    let mut faults = Faults::default();
    let mut zone = |name: &str, Listed { network, network6, coordinates }: Listed| {
        let mut prefixes = Vec::new();
        for text in network.iter().chain(&network6) {
            match crate::prefix(text) {
                Some(prefix) => prefixes.push(prefix),
                None => {
                    let shown: String = text.chars().take(60).collect();
                    faults.add_at(name, format!("\"{shown}\" is no prefix"));
                }
            }
        }
        let point = coordinates.map(|at| Point::new(at.latitude, at.longitude));
        if point == Some(None) {
            faults.add_at(name, "its coordinates are not on the globe".to_owned());
        }
        let place = point.flatten().map(|point| Place { point: Some(point), ..Place::default() });
        Zone { prefixes, place }
    };
    let zones = file.zones.into_iter().map(|(name, listed)| {
        let zone = zone(&name, listed);
        (name, zone)
    });
    let zones = zones.collect();
    Ok((zones, faults))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_controls_own_file_is_read() {
        let text = r#"{"revision": "2014-10-01", "customerName": "CDN", "coverageZones": {
            "berlin": {"network": ["192.0.2.0/24", "odd"], "network6": ["2001:db8::/32"],
                "coordinates": {"latitude": 52.5, "longitude": 13.4}},
            "moon": {"network": [], "coordinates": {"latitude": 99, "longitude": 0}},
            "bare": {"network6": ["2001:db8:1::1"]}}}"#;
        let (zones, faults) = parse(text).unwrap();
        assert_eq!(zones["berlin"].prefixes.len(), 2);
        assert!(zones["berlin"].place.is_some() && zones["moon"].place.is_none());
        assert_eq!(zones["bare"].prefixes[0].to_string(), "2001:db8:1::1/128");
        assert_eq!(
            faults.to_string(),
            "zone berlin: \"odd\" is no prefix\nzone moon: its coordinates are not on the globe\n"
        );
        assert!(parse("[]").is_err() && parse("{}").unwrap_err().to_string().contains("missing"));
    }
}
