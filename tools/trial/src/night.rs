//! `nearcast-lab night`: what a fleet fetches by its hours, what cannot wait, and what must go.
//!
//! ```text
//! closed    a film is published: nobody fetches a byte
//! urgent    a second one is marked urgent: it comes within its cap, and nothing of the first
//! open      the first comes; the origin has sent each once for each fill cluster
//! closes    in the middle of a third: no transfer goes on; open again: the rest, and nothing twice
//! less      a site may hold the lowest rendition alone: its drive has what the manifest names
//! fifth     a site gets room for three of fifteen films: its drive has those that launches say
//!           are watched, and the plan says why it has no other
//! nothing   all is withdrawn: drives are as empty as before
//! ```
//!
//! The clock is the machine's: the hours are moved around it, each site's in a time zone of its
//! own.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use rig::bounds::{Bounds, DependsOn};
use rig::fleet::{EMPTY_MAX, Fleet, Role, appliance_name};
use rig::stage::Origin;
use serde::Serialize;
use serde_json::{Value, json};
use tracing::info;

use crate::clusters::{
    self, APPLIANCES, CLUSTERS, Fetched, LOOK_EVERY, LOST_MAX, RENDITIONS, SITES, UNDER_WAY,
    WHOLE_MAX, fetched, publish, ratio, settled,
};
use crate::room::RunArgs;

/// `nearcast-lab night`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// First of the ports on 127.0.0.1.
    #[arg(long, default_value_t = 18_760)]
    port: u16,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    film_bytes: u64,
    /// What all fetched while fill was closed and nothing was urgent.
    closed_bytes: u64,
    /// While it was closed, of what was not urgent.
    closed_beside_urgent_bytes: u64,
    /// The fastest appliance's rate for what is urgent, of the cap.
    urgent_of_cap: f64,
    /// What the origin sent of the urgent film, of the first, and of the third, as multiples.
    origin_films_urgent: f64,
    origin_films: f64,
    origin_films_cut: f64,
    /// What one appliance had fetched of the third when fill closed, and the most that one fetched
    /// after it went by that.
    cut_bytes: u64,
    after_close_bytes: u64,
    /// Bytes that somebody fetched though it had them.
    fetched_twice_bytes: u64,
    /// What the drive holds of a site that may hold the lowest rendition alone, and should.
    less_bytes: u64,
    less_wanted_bytes: u64,
    less_s: f64,
    /// What a site's drive holds that has room for a fifth of all films, and that room.
    fifth_bytes: u64,
    fifth_room_bytes: u64,
    /// Renditions that it holds of those that are watched, and of the others, as the plan tells.
    fifth_right: u64,
    fifth_wrong: u64,
    fifth_s: f64,
    /// Why it has no other film.
    fifth_why: String,
    /// On all drives before the first film, and after the last had gone.
    empty_bytes: u64,
    left_bytes: u64,
    left_s: f64,
    bounds: Bounds,
}

/// The trial at work.
struct Night<'a> {
    fleet: Fleet,
    origin: Origin,
    room: &'a Path,
    report: Report,
    /// What each appliance should have fetched until now.
    due: u64,
}

/// Neither knows of summer.
const ZONES: [(&str, u64); 2] = [("Asia/Kathmandu", 345), ("Pacific/Honolulu", 24 * 60 - 600)];
/// Less than the origin sends.
const URGENT_BPS: u64 = 20_000_000;
/// So much comes at once.
const BURST: u64 = 1 << 20;
/// Three reports of an appliance, and more.
const QUIET: Duration = Duration::from_secs(3);
/// Above the lowest rendition's, below the others'.
const LESS_BPS: u64 = 600_000;
/// Films beside the first three, and those of them that are watched: a fifth of all.
const MORE: RangeInclusive<u8> = 4..=15;
const WATCHED: [u8; 3] = [6, 9, 12];
/// Of each of these on a day; nobody is expected to watch the others.
const WATCHED_BYTES: u64 = 1_000_000_000_000;
/// Enough that the origin is no bottleneck for [`MORE`].
const ORIGIN_FAST: u64 = 128 << 20;
/// For the last part of each file's last page; half of a rendition.
const SPARE: u64 = 4 << 20;

/// Runs it and prints the result on stdout.
pub(crate) fn run(args: &Args) -> Result<()> {
    rig::raise_file_limit()?;
    let room = args.run.open()?;
    let policy = json!({ "fill_masters": 1, "fill_urgent_bps": URGENT_BPS });
    let (origin, fleet) = clusters::start(&room, args.port, "plain", policy)?;
    let mut night = Night { fleet, origin, room: &room, report: Report::default(), due: 0 };
    night.hours(false)?;
    night.report.empty_bytes = night.fleet.on_drives(0..APPLIANCES)?;
    night.closed()?;
    night.urgent()?;
    night.opens()?;
    night.cut()?;
    night.less()?;
    night.fifth()?;
    night.nothing()?;
    let report = &mut night.report;
    report.bounds = report.held_against();
    rig::say(args.run.json, report, || format!("{report:#?}\n{}", report.bounds.text()))?;
    report.bounds.verdict()
}

impl Night<'_> {
    /// Opens or closes all sites, and waits until all appliances go by that.
    fn hours(&self, open: bool) -> Result<()> {
        let minutes = SystemTime::UNIX_EPOCH.elapsed()?.as_secs() / 60;
        for (at, (site, cluster)) in SITES.iter().enumerate() {
            let (zone, ahead) = ZONES[at % ZONES.len()];
            let clock = |after: u64| {
                let minute = (minutes + ahead + after) % (24 * 60);
                format!("{:02}:{:02}", minute / 60, minute % 60)
            };
            let (from, to) = if open { (23 * 60, 60) } else { (6 * 60, 8 * 60) };
            let body = json!({
                "prefixes": [],
                "fill_cluster": cluster,
                "time_zone": zone,
                "fill_windows": format!("{}-{}", clock(from), clock(to)),
            });
            self.fleet.put(&format!("/v1/sites/{site}"), &body)?;
        }
        self.until("all go by these hours", |night| {
            let fill = night.fleet.get(Role::Writer, "/v1/fill")?;
            let sites = list(&fill["sites"]);
            let is_so = |site: &Value| {
                let mut all = list(&site["appliances"]).iter();
                site["is_open"] == open && all.all(|one| one["has_other_rules"] == false)
            };
            Ok(sites.len() == SITES.len() && sites.iter().all(is_so))
        })?;
        info!(open, "all go by these hours");
        Ok(())
    }

    /// Publishes a film as this asset's, and waits until all know that they lack it.
    fn publish(&mut self, asset: &str, number: u8) -> Result<()> {
        let before = self.missing()?;
        let film = publish(&self.fleet, &self.origin, self.room, asset, number)?;
        self.report.film_bytes = film;
        self.due += film;
        self.until("all lack the film", |night| {
            let now = night.missing()?;
            Ok(now.iter().zip(&before).all(|(now, before)| before + film <= *now))
        })?;
        Ok(())
    }

    fn closed(&mut self) -> Result<()> {
        self.publish("plain", 1)?;
        std::thread::sleep(QUIET);
        self.report.closed_bytes = self.origin.sent() + sum(&self.fetched()?);
        Ok(())
    }

    fn urgent(&mut self) -> Result<()> {
        self.publish("urgent", 2)?;
        let version = self.version("urgent")?;
        let film = self.report.film_bytes;
        let began = Instant::now();
        self.fleet.put(&format!("/v1/fill/urgent/{version}"), &json!({}))?;
        let mut fastest = 0.0_f64;
        let mut came = vec![false; usize::from(APPLIANCES)];
        self.until("the urgent film is everywhere", |night| {
            for (fetched, came) in night.fetched()?.iter().zip(&mut came) {
                if film <= fetched.all() && !*came {
                    *came = true;
                    let bits = ratio((film - BURST) * 8, URGENT_BPS);
                    fastest = fastest.max(bits / began.elapsed().as_secs_f64());
                }
            }
            Ok(came.iter().all(|came| *came))
        })?;
        std::thread::sleep(QUIET);
        let beside = |fetched: &Fetched| fetched.all().saturating_sub(film);
        self.report.closed_beside_urgent_bytes = self.fetched()?.iter().map(beside).sum();
        self.report.urgent_of_cap = fastest;
        self.report.origin_films_urgent = ratio(self.origin.sent(), film);
        self.fleet.delete(&format!("/v1/fill/urgent/{version}"))?;
        Ok(())
    }

    fn opens(&mut self) -> Result<()> {
        let sent = self.origin.sent();
        self.hours(true)?;
        self.until_whole()?;
        self.report.origin_films = ratio(self.origin.sent() - sent, self.report.film_bytes);
        Ok(())
    }

    /// A third film, in the middle of which fill closes.
    fn cut(&mut self) -> Result<()> {
        let sent = self.origin.sent();
        let had = self.due;
        self.hours(false)?;
        self.publish("cut", 3)?;
        self.hours(true)?;
        let middle = had + self.report.film_bytes / 4;
        self.until("somebody is in the middle of the third", |night| {
            Ok(night.fetched()?.iter().any(|fetched| middle <= fetched.all()))
        })?;
        self.hours(false)?;
        let before = self.fetched_when_closed()?;
        let all = before.iter().map(Fetched::all);
        self.report.cut_bytes = all.clone().max().unwrap_or(0) - had;
        let is_cut = all.min().is_some_and(|least| least < self.due);
        ensure!(is_cut, "fill ended before its hours did");
        std::thread::sleep(QUIET);
        let after = self.fetched()?;
        let came = after.iter().zip(&before).map(|(after, before)| after.all() - before.all());
        self.report.after_close_bytes = came.max().unwrap_or(0);
        self.hours(true)?;
        self.until_whole()?;
        self.report.origin_films_cut = ratio(self.origin.sent() - sent, self.report.film_bytes);
        let twice = |fetched: &Fetched| fetched.all().saturating_sub(self.due);
        self.report.fetched_twice_bytes = settled(&self.fleet, self.due)?.iter().map(twice).sum();
        Ok(())
    }

    /// The third appliance is alone in its site.
    fn less(&mut self) -> Result<()> {
        let began = Instant::now();
        let before = self.fleet.on_drives(2..3)?;
        let body = json!({ "prefixes": [], "bitrate_max_bps": LESS_BPS });
        self.fleet.put("/v1/sites/de-2", &body)?;
        let wanted = |night: &Self| -> Result<u64> {
            let fill = night.fleet.get(Role::Writer, "/v1/fill?site=de-2")?;
            Ok(fill["sites"][0]["appliances"][0]["bytes_wanted"].as_u64().unwrap_or(u64::MAX))
        };
        self.until("it is told to hold less", |night| Ok(wanted(night)? < before / 2))?;
        self.report.less_wanted_bytes = wanted(self)?;
        let most = less_max(self.report.less_wanted_bytes);
        self.until("its drive holds no more", |night| Ok(night.fleet.on_drives(2..3)? <= most))?;
        self.report.less_bytes = self.fleet.on_drives(2..3)?;
        self.report.less_s = began.elapsed().as_secs_f64();
        Ok(())
    }

    /// The fourth appliance is alone in its site.
    fn fifth(&mut self) -> Result<()> {
        self.origin.limit(ORIGIN_FAST);
        for number in MORE {
            publish(&self.fleet, &self.origin, self.room, &title(number), number)?;
        }
        self.until("all have all that they should", |night| {
            let is_there = || -> Result<bool> {
                let held = night.rows("fr-2", &title(*MORE.end()))?;
                Ok(!held.is_empty() && held.iter().all(|row| row["held"] == true))
            };
            Ok(is_there()? && night.missing()?.iter().all(|missing| *missing == 0))
        })?;
        for number in WATCHED {
            let version = self.version(&title(number))?;
            let launch = json!({ "day_bytes": WATCHED_BYTES });
            self.fleet.put(&format!("/v1/launches/{version}"), &launch)?;
        }
        let began = Instant::now();
        let films = u64::try_from(WATCHED.len())?;
        self.report.fifth_room_bytes = films * self.report.film_bytes + SPARE;
        let body = json!({ "site": "fr-2", "capacity_bytes": self.report.fifth_room_bytes });
        self.fleet.put(&format!("/v1/appliances/{}", appliance_name(3)), &body)?;
        self.fleet.post("/v1/plan", &json!({}))?;
        let most = self.report.fifth_room_bytes + EMPTY_MAX;
        self.until("its drive holds a fifth", |night| Ok(night.fleet.on_drives(3..4)? <= most))?;
        self.report.fifth_bytes = self.fleet.on_drives(3..4)?;
        for number in MORE {
            let rows = self.rows("fr-2", &title(number))?;
            let held = rows.iter().filter(|row| row["held"] == true).count();
            let is_right = WATCHED.contains(&number);
            let sum =
                if is_right { &mut self.report.fifth_right } else { &mut self.report.fifth_wrong };
            *sum += u64::try_from(held)?;
        }
        // As `nearcast explain` asks for a site that lacks a version.
        let rows = self.rows("fr-2", &title(*MORE.start()))?;
        let why = rows.first().and_then(|row| row["why"].as_str());
        self.report.fifth_why = why.context("the plan says why")?.to_owned();
        self.report.fifth_s = began.elapsed().as_secs_f64();
        Ok(())
    }

    /// The plan's words of each rendition of an asset, at a site of one appliance.
    fn rows(&self, site: &str, asset: &str) -> Result<Vec<Value>> {
        let path = format!("/v1/plan/why?site={site}&file={asset}");
        Ok(list(&self.fleet.get(Role::Writer, &path)?).to_vec())
    }

    fn version(&self, asset: &str) -> Result<String> {
        let asset = self.fleet.get(Role::Writer, &format!("/v1/assets/{asset}"))?;
        let version = asset["versions"][0]["id"].as_str();
        Ok(version.context("the asset has a version")?.to_owned())
    }

    fn nothing(&mut self) -> Result<()> {
        let began = Instant::now();
        let more = MORE.map(title);
        for asset in ["plain", "urgent", "cut"].map(str::to_owned).into_iter().chain(more) {
            self.fleet.delete(&format!("/v1/assets/{asset}"))?;
        }
        let most = self.report.empty_bytes + EMPTY_MAX * u64::from(APPLIANCES);
        self.until("all drives are empty", |night| {
            Ok(night.fleet.on_drives(0..APPLIANCES)? <= most)
        })?;
        self.report.left_bytes = self.fleet.on_drives(0..APPLIANCES)?;
        self.report.left_s = began.elapsed().as_secs_f64();
        Ok(())
    }

    /// What each lacks, as it told.
    fn missing(&self) -> Result<Vec<u64>> {
        let fill = self.fleet.get(Role::Writer, "/v1/fill")?;
        let all = list(&fill["sites"]).iter().flat_map(|site| list(&site["appliances"]));
        Ok(all.map(|one| one["bytes_missing"].as_u64().unwrap_or(0)).collect())
    }

    fn fetched(&self) -> Result<Vec<Fetched>> {
        (0..APPLIANCES).map(|index| fetched(&self.fleet, index)).collect()
    }

    /// What each had fetched by the first page of its metrics that says that fill is closed.
    fn fetched_when_closed(&self) -> Result<Vec<Fetched>> {
        let mut found = vec![None; usize::from(APPLIANCES)];
        self.until("all tell that fill is closed", |night| {
            for (found, fetched) in found.iter_mut().zip(night.fetched()?) {
                *found = found.or((!fetched.is_open).then_some(fetched));
            }
            Ok(found.iter().all(Option::is_some))
        })?;
        Ok(found.into_iter().flatten().collect())
    }

    fn until_whole(&self) -> Result<()> {
        self.until("all have all", |night| {
            let have_fetched = night.fetched()?.iter().all(|fetched| night.due <= fetched.all());
            Ok(have_fetched && night.missing()?.iter().all(|missing| *missing == 0))
        })
    }

    fn until(&self, what: &str, mut is_so: impl FnMut(&Self) -> Result<bool>) -> Result<()> {
        let took = rig::until(what, WHOLE_MAX, LOOK_EVERY, || is_so(self))?;
        info!(after_ms = took.as_millis(), "{what}");
        Ok(())
    }
}

fn title(number: u8) -> String {
    format!("title-{number}")
}

fn sum(all: &[Fetched]) -> u64 {
    all.iter().map(Fetched::all).sum()
}

/// A unit's own parts are 0.2 % of one.
fn less_max(wanted: u64) -> u64 {
    wanted + wanted / 200 + EMPTY_MAX
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

impl Report {
    fn held_against(&self) -> Bounds {
        let (mut bounds, nothing) = (Bounds::default(), DependsOn::Nothing);
        let bytes = |bytes: u64| ratio(bytes, 1);
        let mut most = |of, most, shown| bounds.at_most(of, most, shown, nothing);
        most("closed_bytes", 0.0, bytes(self.closed_bytes));
        most("closed_beside_urgent_bytes", 0.0, bytes(self.closed_beside_urgent_bytes));
        most("urgent_of_cap", 1.0, self.urgent_of_cap);
        most("origin_films_urgent", CLUSTERS * 1.02, self.origin_films_urgent);
        most("origin_films", CLUSTERS * 1.02, self.origin_films);
        // Each of two that fetched from the origin was cut once.
        let lost = CLUSTERS * ratio(LOST_MAX, self.film_bytes);
        most("origin_films_cut", CLUSTERS * 1.02 + lost, self.origin_films_cut);
        most("after_close_bytes", bytes(UNDER_WAY), bytes(self.after_close_bytes));
        most("fetched_twice_bytes", bytes(UNDER_WAY), bytes(self.fetched_twice_bytes));
        most("less_bytes", bytes(less_max(self.less_wanted_bytes)), bytes(self.less_bytes));
        most("fifth_bytes", bytes(self.fifth_room_bytes + EMPTY_MAX), bytes(self.fifth_bytes));
        most("fifth_wrong", 0.0, bytes(self.fifth_wrong));
        let empty = self.empty_bytes + EMPTY_MAX * u64::from(APPLIANCES);
        most("left_bytes", bytes(empty), bytes(self.left_bytes));
        let right = u64::try_from(WATCHED.len() * RENDITIONS).unwrap_or(u64::MAX);
        bounds.at_least("fifth_right", bytes(right), bytes(self.fifth_right), nothing);
        for (of, films) in [
            ("origin_films_urgent", self.origin_films_urgent),
            ("origin_films", self.origin_films),
            ("origin_films_cut", self.origin_films_cut),
        ] {
            bounds.at_least(of, 1.0, films, nothing);
        }
        bounds
    }
}
