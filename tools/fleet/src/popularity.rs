//! `nearcast popularity`: what viewers of a region will watch tomorrow, and how good such forecasts
//! were.

use model::units::{BitsPerSecond, Bytes};
use serde_json::Value;
use wire::v1::demand::{BacktestOut, PopularItem, Popularity, REST};

use crate::control::{Query, encoded};
use crate::output::{self, Cell, Table};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A manifest cluster, or `-` for all sites that are in none [default: those, if any]
    #[arg(long, value_name = "REGION", allow_hyphen_values = true)]
    region: Option<String>,
    /// Test the last seven days: how good would their forecasts have been?
    #[arg(long)]
    backtest: bool,
    /// Most items, those with the most bytes for each byte of room first
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    most: usize,
    #[command(flatten)]
    query: Query,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut path = format!("/v1/popularity?most={}&backtest={}", args.most, args.backtest);
    if let Some(region) = &args.region {
        path.push_str(&format!("&region={}", encoded(region)));
    }
    let control = args.query.control.client()?;
    if args.query.json {
        return output::json(&control.get::<Value>(&path)?);
    }
    let popularity: Popularity = control.get(&path)?;
    lines(&popularity, output::colours()).iter().try_for_each(|line| output::line(line))
}

fn lines(popularity: &Popularity, colours: bool) -> Vec<String> {
    let Popularity { region, regions, top, backtest, .. } = popularity;
    let name = |region: &str| match region {
        REST => "of all sites that are in no manifest cluster".to_owned(),
        cluster => format!("of manifest cluster {cluster}"),
    };
    let day = output::time(popularity.day_unix_s);
    let mut lines = vec![format!(
        "Viewers {} will be sent {} of {} items on the day that begins at {day}.",
        name(region),
        amount(popularity.expected_bytes),
        popularity.items,
    )];
    lines.push(format!(
        "{} days before it are known, the last until {}; the last whole one had {}.",
        popularity.days_known,
        output::time(popularity.known_until_unix_s),
        amount(popularity.day_before_bytes),
    ));
    if popularity.cut_bytes != 0 {
        lines.push(format!(
            "Of that, {} of rare items no forecast has.",
            amount(popularity.cut_bytes)
        ));
    }
    let others = regions.iter().filter(|other| *other != region);
    let others: Vec<&str> = others.map(String::as_str).collect();
    if !others.is_empty() {
        lines.push(format!("Other regions: {}.", others.join(", ")));
    }
    if !top.is_empty() {
        lines.push(String::new());
        lines.extend(table(top).lines(colours));
    }
    if let Some(backtest) = backtest {
        lines.push(String::new());
        lines.extend(tested(backtest, colours));
    }
    lines
}

fn table(top: &[PopularItem]) -> Table {
    let headings =
        ["VERSION", "RENDITION", ">ROOM", ">TOMORROW", ">TIMES ITS ROOM", ">BUSIEST HOUR"];
    let mut table = Table::new(&headings);
    for of in top {
        let bitrate = of.bitrate_bps.map(|bitrate| output::rate(BitsPerSecond(bitrate)));
        let number = of.rendition.to_string();
        let rendition = if of.rendition == 0 { "all" } else { &number };
        let times = of.popularity_permille;
        table.row(vec![
            of.version.as_str().into(),
            bitrate.as_deref().unwrap_or(rendition).into(),
            amount(of.len_bytes).as_str().into(),
            amount(of.expected_bytes).as_str().into(),
            Cell::from(format!("{}.{}", times / 1000, times % 1000 / 100).as_str()),
            output::rate(BitsPerSecond(of.peak_bps)).as_str().into(),
        ]);
    }
    table
}

fn tested(backtest: &BacktestOut, colours: bool) -> Vec<String> {
    let BacktestOut { days, came_bytes, room_bytes, ways } = backtest;
    if *days == 0 {
        return vec![
            "No day can be tested yet: it needs the day before it, and the one a week before."
                .to_owned(),
        ];
    }
    let mut lines = vec![
        format!(
            "The last {days} days that are over had {}. How each way would have done:",
            amount(*came_bytes)
        ),
        String::new(),
    ];
    let stores: Vec<String> = room_bytes.iter().map(|room| format!(">{}", amount(*room))).collect();
    let headings = ["FORECAST".to_owned(), ">OFF BY".to_owned()].into_iter().chain(stores);
    let headings: Vec<&'static str> = headings.map(|heading| &*heading.leak()).collect();
    let mut table = Table::new(&headings);
    for way in ways {
        let name = match way.name.as_str() {
            "forecast" => "by five weeks",
            "yesterday" => "as yesterday",
            "week_ago" => "as a week ago",
            "known" => "as it came",
            other => other,
        };
        let share = |bytes: &u64| Cell::from(percent(*bytes, *came_bytes).as_str());
        let cells = [Cell::from(name), share(&way.off_bytes)];
        table.row(cells.into_iter().chain(way.hit_bytes.iter().map(share)).collect());
    }
    lines.extend(table.lines(colours));
    lines.push(String::new());
    lines.push(
        "OFF BY is the difference of each item, together; below a size is the share of bytes that \
         a store of that size would have had."
            .to_owned(),
    );
    lines
}

/// In tenths.
fn percent(part: u64, of: u64) -> String {
    let permille = u128::from(part) * 1000 / u128::from(of.max(1));
    format!("{}.{} %", permille / 10, permille % 10)
}

fn amount(bytes: u64) -> String {
    output::bytes(Bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::v1::demand::BacktestWay;

    fn popularity() -> Popularity {
        let item = PopularItem {
            item: 700,
            version: "film-1".to_owned(),
            rendition: 2,
            bitrate_bps: Some(3_200_000),
            len_bytes: 2_000_000_000,
            expected_bytes: 41_000_000_000,
            peak_bps: 9_100_000,
            popularity_permille: 20_500,
        };
        let whole = PopularItem {
            version: "short-1".to_owned(),
            rendition: 0,
            bitrate_bps: None,
            ..item.clone()
        };
        Popularity {
            region: "-".to_owned(),
            regions: vec!["-".to_owned(), "south".to_owned()],
            day_unix_s: 1_800_000_000,
            known_until_unix_s: 1_799_950_000,
            days_known: 9,
            day_before_bytes: 40_000_000_000,
            cut_bytes: 0,
            expected_bytes: 82_000_000_000,
            items: 2,
            top: vec![item, whole],
            backtest: None,
        }
    }

    #[test]
    fn items_are_there_with_what_is_expected_of_them() {
        let expected = [
            "Viewers of all sites that are in no manifest cluster will be sent 82.0 GB of 2 items \
             on the day that begins at 2027-01-15T08:00:00Z.",
            "9 days before it are known, the last until 2027-01-14T18:06:40Z; the last whole one \
             had 40.0 GB.",
            "Other regions: south.",
            "",
            "VERSION  RENDITION     ROOM  TOMORROW  TIMES ITS ROOM  BUSIEST HOUR",
            "film-1   3.20 Mb/s  2.00 GB   41.0 GB            20.5     9.10 Mb/s",
            "short-1  all        2.00 GB   41.0 GB            20.5     9.10 Mb/s",
        ];
        assert_eq!(lines(&popularity(), false), expected);
    }

    #[test]
    fn a_back_test_is_a_line_for_each_way() {
        let way = |name: &str, off_bytes, hit| BacktestWay {
            name: name.to_owned(),
            off_bytes,
            hit_bytes: vec![hit],
        };
        let backtest = BacktestOut {
            days: 7,
            came_bytes: 1000,
            room_bytes: vec![5_000_000],
            ways: vec![way("forecast", 165, 940), way("yesterday", 256, 910), way("known", 0, 950)],
        };
        let expected = [
            "FORECAST       OFF BY  5.00 MB",
            "by five weeks  16.5 %   94.0 %",
            "as yesterday   25.6 %   91.0 %",
            "as it came      0.0 %   95.0 %",
        ];
        assert_eq!(tested(&backtest, false)[2..6], expected);
        let none = tested(&BacktestOut::default(), false);
        assert_eq!(
            none,
            ["No day can be tested yet: it needs the day before it, and the one a week before."]
        );
    }
}
