//! The model's numbers. They stand in docs/internals/year.md, each with its source, and stood there
//! before any result was looked at; a test holds them to that page.

/// How large a fleet is played, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    /// At most as many as [`ZONES`].
    pub(crate) regions: u32,
    /// Of a region, its exchange among them.
    pub(crate) sites: u32,
    /// That are counted, after [`WARM_UP_WEEKS`].
    pub(crate) weeks: u32,
}

pub(crate) const WARM_UP_WEEKS: u32 = 4;
pub(crate) const WEEKS: u32 = 52;
pub(crate) const REGIONS: u32 = 6;
pub(crate) const ZONES: [i32; 6] = [-8, -5, -3, 0, 1, 9];
pub(crate) const SITES: u32 = 50;
pub(crate) const SESSIONS: f64 = 3_000.0;
pub(crate) const SESSIONS_SIGMA: f64 = 0.8;
pub(crate) const SESSIONS_MOST: f64 = 20_000.0;
pub(crate) const EXCHANGE_SESSIONS: f64 = 30_000.0;
pub(crate) const GROWTH: f64 = 0.2;
pub(crate) const HOURS: [f64; 24] = [
    75.0, 50.0, 32.0, 22.0, 18.0, 18.0, 24.0, 36.0, 50.0, 60.0, 68.0, 78.0, 88.0, 92.0, 92.0, 96.0,
    106.0, 124.0, 152.0, 192.0, 232.0, 250.0, 222.0, 135.0,
];
pub(crate) const DAYS: [f64; 7] = [92.0, 91.0, 92.0, 94.0, 104.0, 117.0, 110.0];
pub(crate) const WHOLE_VIEWINGS: f64 = 0.5;
pub(crate) const QUARTERS: u32 = 4;

pub(crate) const VERSIONS: u32 = 2_000;
pub(crate) const MINUTES: f64 = 45.0;
pub(crate) const MINUTES_SIGMA: f64 = 0.4;
pub(crate) const BITRATES_KBPS: [f64; 5] = [800.0, 1_800.0, 3_500.0, 7_000.0, 16_000.0];
pub(crate) const RENDITION_PERCENT: [f64; 5] = [10.0, 20.0, 30.0, 28.0, 12.0];
pub(crate) const REGION_STEP_SIGMA: f64 = 0.25;
pub(crate) const RENDITION_SIGMA: f64 = 0.3;
pub(crate) const ZIPF: f64 = 0.9;
pub(crate) const PLATEAU: f64 = 10.0;
pub(crate) const TASTE_SIGMA: f64 = 0.5;
pub(crate) const AGE_DAYS: f64 = 700.0;
pub(crate) const OLD_PART: f64 = 0.15;
pub(crate) const AGEING_DAYS: f64 = 21.0;
pub(crate) const DRIFT_SIGMA: f64 = 0.05;
pub(crate) const REGION_DRIFT_SIGMA: f64 = 0.05;
pub(crate) const DRIFT_STAYS: f64 = 0.98;
pub(crate) const ADDED_A_WEEK: u32 = 12;
pub(crate) const BIG_WEEKS: u32 = 4;
pub(crate) const BIG_VERSIONS: u32 = 8;
pub(crate) const BIG_RANK: u32 = 1;
pub(crate) const BIG_TIMES: f64 = 3.0;
pub(crate) const LAUNCH_HOUR: u32 = 9;
pub(crate) const SURPRISES_A_WEEK: u32 = 2;
pub(crate) const SURPRISE_TIMES: f64 = 8.0;
pub(crate) const SURPRISE_HALF_DAYS: f64 = 3.0;
pub(crate) const BIG_ERROR_SIGMA: f64 = 0.5;
pub(crate) const ADDED_ERROR_SIGMA: f64 = 0.8;
pub(crate) const URGENT_WEEKS: u32 = 8;
pub(crate) const URGENT_HOURS: [u32; 2] = [16, 18];

pub(crate) const ROOM_PERCENT: [f64; 6] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0];
pub(crate) const THREE_ROOMS: [f64; 3] = [9.0, 9.0, 2.0];
pub(crate) const THREE_THROUGHPUT: [f64; 3] = [20.0, 20.0, 60.0];
pub(crate) const EXCHANGE_ROOM: f64 = 50.0;
pub(crate) const FOUR_ROOMS: [f64; 4] = [20.0, 20.0, 5.0, 5.0];
pub(crate) const FOUR_THROUGHPUT: [f64; 4] = [15.0, 15.0, 35.0, 35.0];
pub(crate) const EMBEDDED_TIMES: f64 = 1.6;
pub(crate) const EXCHANGE_TIMES: f64 = 0.8;
pub(crate) const ISP_SITES: [u32; 4] = [1, 2, 3, 4];
pub(crate) const WITHOUT_EXCHANGE: u32 = 24;
pub(crate) const WINDOW: [u32; 2] = [2, 14];
pub(crate) const FILL_MBPS: u64 = 300;
pub(crate) const EXCHANGE_FILL_MBPS: u64 = 1_200;
pub(crate) const FAST_TRACK_MBPS: u64 = 300;
pub(crate) const LOSS_DAY: [u32; 2] = [40, 5];
pub(crate) const LOSS_HOURS: [u32; 2] = [20, 23];

/// What docs/internals/year.md calls each, and how it says it.
#[cfg(test)]
pub(crate) fn page() -> Vec<(&'static str, String)> {
    [of_demand(), of_catalogue(), of_sites()].concat()
}

#[cfg(test)]
fn of_demand() -> Vec<(&'static str, String)> {
    let hours = ZONES.map(|zone| zone.to_string()).join(", ");
    vec![
        ("weeks of warm-up, not counted", WARM_UP_WEEKS.to_string()),
        ("weeks counted", WEEKS.to_string()),
        ("regions", REGIONS.to_string()),
        ("hours ahead of UTC, by region", hours),
        ("sites of a region", SITES.to_string()),
        ("sessions a day at an embedded site, median", thousands(SESSIONS)),
        ("most sessions a day at an embedded site", thousands(SESSIONS_MOST)),
        ("sessions a day at the exchange of a region", thousands(EXCHANGE_SESSIONS)),
        ("growth of sessions over the year", GROWTH.to_string()),
        ("hours of the day, in relation to each other", list(HOURS)),
        ("days of the week, percent of the mean, Monday first", list(DAYS)),
        ("a whole viewing, share of sessions", WHOLE_VIEWINGS.to_string()),
        ("quarters of an item, as caches see it", QUARTERS.to_string()),
        ("its spread, sigma of the logarithm", SESSIONS_SIGMA.to_string()),
    ]
}

#[cfg(test)]
fn of_catalogue() -> Vec<(&'static str, String)> {
    vec![
        ("versions at the beginning", thousands(VERSIONS)),
        ("minutes of a version, median", MINUTES.to_string()),
        ("its spread, sigma of the logarithm", MINUTES_SIGMA.to_string()),
        ("renditions, kb/s", list(BITRATES_KBPS)),
        ("their sessions, percent", list(RENDITION_PERCENT)),
        (
            "taste of a region for higher ones, sigma of the logarithm for each step",
            REGION_STEP_SIGMA.to_string(),
        ),
        (
            "taste of a version's viewers for one rendition, sigma of the logarithm",
            RENDITION_SIGMA.to_string(),
        ),
        ("Zipf exponent", ZIPF.to_string()),
        ("Zipf plateau: this is added to ranks", PLATEAU.to_string()),
        ("taste of a region for a version, sigma of the logarithm", TASTE_SIGMA.to_string()),
        ("ages at the beginning, days, mean of an exponential", AGE_DAYS.to_string()),
        ("demand that is left when a version is old", OLD_PART.to_string()),
        ("days after which the rest is half", AGEING_DAYS.to_string()),
        (
            "drift, sigma of the logarithm each day, for all regions together",
            DRIFT_SIGMA.to_string(),
        ),
        ("drift, the same, for each region by itself", REGION_DRIFT_SIGMA.to_string()),
        ("drift that stays to the next day", DRIFT_STAYS.to_string()),
        ("versions added each week, mean", ADDED_A_WEEK.to_string()),
        ("weeks between big launches", BIG_WEEKS.to_string()),
        ("versions of a big launch", BIG_VERSIONS.to_string()),
        ("rank of a big launch, and of an urgent version", BIG_RANK.to_string()),
        ("times that rank's weight, of a big launch's versions together", BIG_TIMES.to_string()),
        ("hour of a launch, local", LAUNCH_HOUR.to_string()),
        ("surprises a week", SURPRISES_A_WEEK.to_string()),
        ("times that demand grows in a surprise", SURPRISE_TIMES.to_string()),
        ("days after which a surprise is half", SURPRISE_HALF_DAYS.to_string()),
        (
            "error of what the operator says of a big launch, sigma of the logarithm",
            BIG_ERROR_SIGMA.to_string(),
        ),
        ("the same for other new versions", ADDED_ERROR_SIGMA.to_string()),
        ("weeks between urgent versions", URGENT_WEEKS.to_string()),
        ("hours at which an urgent one comes and is shown", list(URGENT_HOURS)),
    ]
}

#[cfg(test)]
fn of_sites() -> Vec<(&'static str, String)> {
    vec![
        ("disks, percent of the catalogue at the first counted day", list(ROOM_PERCENT)),
        ("three appliances: their disks, percent", list(THREE_ROOMS)),
        ("three appliances: their part of the site's throughput, percent", list(THREE_THROUGHPUT)),
        ("disk of an exchange, percent", EXCHANGE_ROOM.to_string()),
        ("four appliances: their disks, percent", list(FOUR_ROOMS)),
        ("four appliances: their part of the throughput, percent", list(FOUR_THROUGHPUT)),
        (
            "throughput of an embedded site, times its busiest expected hour",
            EMBEDDED_TIMES.to_string(),
        ),
        (
            "throughput of an exchange, times the busiest expected hour of its region",
            EXCHANGE_TIMES.to_string(),
        ),
        ("sites of an ISP, in turn", list(ISP_SITES)),
        ("sites that no exchange is in reach of, one in", WITHOUT_EXCHANGE.to_string()),
        ("fill window, local hours", list(WINDOW)),
        ("fill of an appliance, Mb/s", FILL_MBPS.to_string()),
        ("fill of an appliance of an exchange, Mb/s", EXCHANGE_FILL_MBPS.to_string()),
        ("fast-track of an appliance, Mb/s", FAST_TRACK_MBPS.to_string()),
        ("day of a loss, week and day", list(LOSS_DAY)),
        ("hours of a loss, local", list(LOSS_HOURS)),
    ]
}

#[cfg(test)]
fn list<T: ToString>(of: impl IntoIterator<Item = T>) -> String {
    of.into_iter().map(|one| one.to_string()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
fn thousands(n: impl Into<f64>) -> String {
    let digits = n.into().to_string();
    let (front, back) = digits.split_at(digits.len().saturating_sub(3));
    if front.is_empty() { back.to_owned() } else { format!("{front},{back}") }
}
