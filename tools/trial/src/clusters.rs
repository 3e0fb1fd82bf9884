//! Two fill clusters of three appliances, each in two sites, and an origin that counts. All
//! processes but the origin are the product's.
//!
//! Arbitrary: films of 34 MiB, an origin at 8 MiB/s, which is four seconds for each copy.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rig::api;
use rig::certificate::Certificate;
use rig::client::Pattern;
use rig::fleet::{Fleet, Plan, Role, healthy};
use rig::stage::Origin;
use serde_json::{Value, json};

pub(crate) const APPLIANCES: u16 = 6;
pub(crate) const CLUSTERS: f64 = 2.0;
/// The sites and their fill clusters; appliances stand in them in turns.
pub(crate) const SITES: [(&str, &str); 4] =
    [("de-1", "de"), ("fr-1", "fr"), ("de-2", "de"), ("fr-2", "fr")];
/// Each of two threads loses what its connection had in its buffers, of a request of 1 MiB.
pub(crate) const LOST_MAX: u64 = 2 << 20;
/// Two blocks of 256 KiB may be under way when an appliance stops.
pub(crate) const UNDER_WAY: u64 = 512 << 10;
pub(crate) const WHOLE_MAX: Duration = Duration::from_secs(120);
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(20);
pub(crate) const RENDITIONS: usize = 4;
const LARGE: usize = 8 << 20;
const SMALL: usize = 64 << 10;
const SMALL_COUNT: usize = 8;
const ORIGIN_RATE: u64 = 8 << 20;

/// What an appliance has fetched since its start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fetched {
    pub(crate) siblings: u64,
    pub(crate) origins: u64,
    pub(crate) escalations: u64,
    /// Fill is open now.
    pub(crate) is_open: bool,
}

/// Starts the origin and the fleet; returns when all appliances are healthy.
pub(crate) fn start(room: &Path, port: u16, asset: &str, policy: Value) -> Result<(Origin, Fleet)> {
    let origin = Origin::start()?;
    origin.limit(ORIGIN_RATE);
    let site = |(name, cluster): (&str, &str)| {
        (name.to_owned(), json!({ "prefixes": [], "fill_cluster": cluster }))
    };
    let peers = (0..APPLIANCES)
        .map(|index| json!({ "peer": { "listen": [format!("127.0.0.1:{}", port + 30 + index)] } }));
    let health = json!({
        "report_interval": "500 ms",
        "probe_after": "1 s",
        "stale_after": "2 s",
    });
    let plan = Plan {
        appliances: APPLIANCES,
        sites: SITES.map(site).into(),
        policy,
        source: Some(format!("{}/", origin.url())),
        settings: json!({ "health": health }),
        appliance: json!({ "fill": { "concurrency": 2 } }),
        each: peers.collect(),
        ..Plan::new(room.join("fleet"), port, asset)
    };
    let certificate = Certificate::make(room)?;
    let mut fleet = Fleet::begin(plan, certificate, None)?;
    rig::until("until all appliances are healthy", WHOLE_MAX, LOOK_EVERY, || {
        fleet.check()?;
        Ok(healthy(&fleet.get(Role::Writer, "/v1/fleet")?) == usize::from(APPLIANCES))
    })?;
    Ok((origin, fleet))
}

/// Writes film `number`, has the origin offer it below that number, and makes it the asset's
/// current version; its length.
pub(crate) fn publish(
    fleet: &Fleet,
    origin: &Origin,
    room: &Path,
    asset: &str,
    number: u8,
) -> Result<u64> {
    let folder = room.join(format!("film-{number}"));
    let mut entry = "#EXTM3U\n".to_owned();
    let pattern = Pattern { seed: 0x6d61_7374_0000 + u64::from(number) };
    let mut bytes = 0;
    let mut put = |path: &str, content: Vec<u8>| -> Result<()> {
        fs::write(folder.join(path), &content)?;
        bytes += u64::try_from(content.len())?;
        origin.put(format!("/{number}/{path}"), Arc::new(content));
        Ok(())
    };
    for rendition in 0..RENDITIONS {
        fs::create_dir_all(folder.join(format!("v{rendition}")))?;
        // No file is in it twice: an appliance would fetch it once.
        let name = format!("#FILM:{number}-{rendition}");
        let mut media = format!("#EXTM3U\n#EXT-X-TARGETDURATION:2\n{name}\n");
        for segment in 0..=SMALL_COUNT {
            let mut content = vec![0; if segment == 0 { LARGE } else { SMALL }];
            pattern.fill(rendition * 100 + segment, 0, &mut content);
            let name = format!("s{segment}.mp4");
            put(&format!("v{rendition}/{name}"), content)?;
            writeln!(media, "#EXTINF:2,\n{name}")?;
        }
        media.push_str("#EXT-X-ENDLIST\n");
        put(&format!("v{rendition}/media.m3u8"), media.into_bytes())?;
        let bandwidth = 500_000 * (rendition + 1);
        writeln!(entry, "#EXT-X-STREAM-INF:BANDWIDTH={bandwidth}\nv{rendition}/media.m3u8")?;
    }
    writeln!(entry, "#FILM:{number}")?;
    put("master.m3u8", entry.into_bytes())?;
    fleet.ingest_as(&folder, asset, &format!("{}/{number}/", origin.url()))?;
    Ok(bytes)
}

pub(crate) fn fetched(fleet: &Fleet, index: u16) -> Result<Fetched> {
    let page = api::page(&format!("http://{}/metrics", fleet.metrics(index)))?;
    let metric = |name| api::metric(&page, name).with_context(|| format!("no {name}"));
    let elsewhere: u64 = metric("fill_escalations_total{to=\"elsewhere\"}")?;
    Ok(Fetched {
        siblings: metric("fill_fetched_bytes_total{source=\"sibling\"}")?,
        origins: metric("fill_fetched_bytes_total{source=\"origin\"}")?,
        escalations: elsewhere + metric("fill_escalations_total{to=\"origin\"}")?,
        is_open: metric("fill_open")? == 1,
    })
}

/// The same of all, when nobody fetches any more and each has fetched so much: their pages of
/// metrics are a tenth of a second old, or more where there is no time.
pub(crate) fn settled(fleet: &Fleet, least: u64) -> Result<Vec<Fetched>> {
    let mut settled = Vec::new();
    rig::until("until pages tell all", WHOLE_MAX, LOOK_EVERY, || {
        std::thread::sleep(Duration::from_millis(500));
        let all: Result<Vec<Fetched>> = (0..APPLIANCES).map(|at| fetched(fleet, at)).collect();
        settled = all?;
        Ok(settled.iter().all(|of| least <= of.all()))
    })?;
    Ok(settled)
}

impl Fetched {
    pub(crate) fn all(&self) -> u64 {
        self.siblings + self.origins
    }

    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            siblings: self.siblings.saturating_sub(before.siblings),
            origins: self.origins.saturating_sub(before.origins),
            escalations: self.escalations.saturating_sub(before.escalations),
            is_open: self.is_open,
        }
    }
}

#[expect(clippy::as_conversions, reason = "figures for people, far below 2^53")]
pub(crate) fn ratio(bytes: u64, of: u64) -> f64 {
    bytes as f64 / of as f64
}
