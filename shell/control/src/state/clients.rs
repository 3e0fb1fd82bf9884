//! Files that say where clients are, and which site they are for: read when they change.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use model::id::SiteId;
use model::topology::{Place, Prefix};

use crate::config::Routes;

/// A larger file is refused: a geofeed of the whole internet has some 100 MB.
const FILE_LEN_MAX: u64 = 256 << 20;

/// The files as they were read last.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    /// When each was changed, and its length; none before the first look.
    seen: Option<[Option<(SystemTime, u64)>; 2]>,
}

pub(crate) type Read = (Vec<(Prefix, Place)>, BTreeMap<SiteId, Vec<Prefix>>);

impl Clients {
    /// Looks at the files: what they say, if they have changed. A file that cannot be read or is
    /// none of its kind changes nothing: what was read before stands.
    pub(crate) fn refresh(&mut self, settings: &Routes) -> Option<Read> {
        let seen = [&settings.geofeed, &settings.coverage_zones].map(|path| look(path.as_deref()?));
        let is_unset = settings.geofeed.is_none() && settings.coverage_zones.is_none();
        if is_unset || self.seen == Some(seen) {
            return None;
        }
        self.seen = Some(seen);
        match read(settings) {
            Ok((places, zones)) => {
                let (clients, sites) = (places.len(), zones.len());
                tracing::info!(clients, sites, "files of clients");
                Some((places, zones))
            }
            Err(error) => {
                tracing::warn!(error, "a file of clients is not used: what was read before stands");
                None
            }
        }
    }
}

fn look(path: &Path) -> Option<(SystemTime, u64)> {
    let about = fs::metadata(path).ok()?;
    Some((about.modified().ok()?, about.len()))
}

fn read(settings: &Routes) -> Result<Read, String> {
    let mut places = Vec::new();
    let mut sites = BTreeMap::new();
    if let Some(path) = &settings.coverage_zones {
        let shown = path.display();
        let (zones, faults) =
            routes::zones::parse(&text(path)?).map_err(|error| format!("{shown}: {error}"))?;
        tell(path, &faults);
        for (name, zone) in zones {
            if let Some(place) = &zone.place {
                places.extend(zone.prefixes.iter().map(|prefix| (*prefix, place.clone())));
            }
            match name.parse::<SiteId>() {
                Ok(site) => drop(sites.insert(site, zone.prefixes)),
                Err(_) => tracing::debug!(name, "no site has such a name"),
            }
        }
    }
    if let Some(path) = &settings.geofeed {
        let (found, faults) = routes::geofeed::parse(&text(path)?);
        tell(path, &faults);
        places.extend(found);
    }
    Ok((places, sites))
}

fn text(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let failed = |error: std::io::Error| format!("{shown}: {error}");
    let len = fs::metadata(path).map_err(failed)?.len();
    if FILE_LEN_MAX < len {
        return Err(format!("{shown} has {len} bytes: at most {FILE_LEN_MAX} are read"));
    }
    fs::read_to_string(path).map_err(failed)
}

fn tell(path: &Path, faults: &routes::Faults) {
    if faults.count() != 0 {
        let (found, fault) = (faults.count(), faults.to_string());
        tracing::warn!(path = %path.display(), found, fault, "a file of clients has faults");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_file_are_read_and_a_bad_one_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            Some(path)
        };
        let geofeed = write("feed.csv", "8.8.8.0/24,US,US-CA,,\nodd\n");
        let zones = r#"{"coverageZones": {"berlin": {"network": ["9.9.9.0/24"],
            "coordinates": {"latitude": 52.5, "longitude": 13.4}}, "No Site": {"network": []}}}"#;
        let coverage_zones = write("zones.json", zones);
        let settings = Routes { geofeed, coverage_zones, ..Routes::default() };
        let (places, sites) = read(&settings).unwrap();
        assert_eq!((places.len(), sites.len()), (2, 1));
        assert!(places.iter().any(|(_, place)| place.country.as_deref() == Some("US")));
        let settings = Routes { coverage_zones: write("zones.json", "{}"), ..settings };
        assert!(read(&settings).unwrap_err().contains("zones.json: not a file of coverage zones"));
        let settings = Routes { geofeed: Some("/nothing/here".into()), ..Routes::default() };
        assert!(read(&settings).unwrap_err().contains("/nothing/here"));
    }
}
