//! `nearcast-lab flap`: whether shares swing when load steps up, and how they come back.
//!
//! ```text
//! sessions ──> poll: steering::rank ──> an appliance ──> its load ──> report ──> Director ──> view
//!    ^                                                                                          │
//!    └──────────── each TTL, by steering's own turns ───────────────────────────────────────────┘
//! ```
//!
//! It drives the product's own `pure/director` and `pure/steering` at model time, without a socket.
//! Two sites hold one version. The near one is for all clients and has room for two thirds of a
//! launch; the far one has room for all of it. Run three times:
//!
//! * with the shares that the director gives;
//! * with a naive control as the rival: by its last report, an appliance takes all or nothing;
//! * with a near site that is lost for two minutes, in an evening without a launch.
//!
//! In such an evening it also looks, with one title or 200, whether titles stay together and the
//! loads of the two near appliances in their bound; and with three near appliances, of which one is
//! lost and comes back, or is added with nothing, whether the others keep their titles meanwhile.
//!
//! A turn of a load counts where it moved by a tenth of what the appliance can serve, from the peak
//! of the launch on; a turn of a share counts however small. The parameters stand in
//! docs/internals/director.md.

mod plot;
mod world;

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use tracing::info;

use world::{Crowd, Event, Rule, World};

/// `nearcast-lab flap`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Sessions that one appliance of the near site can serve
    #[arg(long, default_value_t = 2000,
          value_parser = clap::value_parser!(u32).range(200..=20_000))]
    sessions: u32,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the plot of shares and loads there
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

/// When the launch is, or the loss.
const STEP_S: u32 = 300;
/// How long a run of a launch lasts.
const LAUNCH_S: u32 = 2700;
/// How long the near site is lost.
const LOST_S: u32 = 120;
/// How long a share takes to the whole.
const WHOLE_S: u32 = 1200;
/// How long a site that is back is looked at for too much at once.
const BACK_S: u32 = 60;
/// How long that run lasts: beyond the twenty minutes.
const LOSS_S: u32 = 1920;
/// How long the new one of three takes until it holds all.
const FILL_S: u32 = 1200;
/// How long an evening without either lasts.
const EVEN_S: u32 = 1500;
const TITLES: u32 = 200;

#[derive(Debug, Serialize)]
struct Report {
    sessions: u32,
    seed: u64,
    ours: Swing,
    /// Ours, where a part of the load does not follow the shares.
    stubborn: Swing,
    naive: Swing,
    loss: Loss,
    one_title: Titles,
    many_titles: Titles,
    /// Many, with sessions that are spread whatever their titles.
    spread_titles: Titles,
    /// One of three near appliances is lost for two minutes.
    one_lost: Beside,
    /// The third near appliance is added, and holds nothing.
    one_added: Beside,
    /// Of the near site's load with the rival, the most in the minute after it came back.
    naive_back_permille_max: u64,
}

/// What a launch did to the near site. Of its appliances, the worst of each figure for ours, and
/// the best for the naive control.
#[derive(Debug, Serialize)]
struct Swing {
    /// Turns of the load after its peak, whose own turn is none.
    load_reversals: usize,
    share_reversals: usize,
    /// Loads of the near site in the last ten minutes, in thousandths of what it can serve.
    load_permille_last: [u64; 2],
    /// Of the time that sessions lasted, the part in thousandths in which they were with an
    /// appliance that was asked for more than it can send, from a minute after the launch.
    starved_permille: u64,
    /// Times that a session was sent to another appliance, for each session.
    moves_per_session: f64,
}

/// The near site by titles, in the last ten minutes of an even evening.
#[derive(Debug, Serialize)]
struct Titles {
    /// Of the titles that the site plays, the part that one of its two appliances has.
    titles_per_appliance: f64,
    /// Of its sessions, those in thousandths that are with the appliance that has most of their
    /// title.
    together_permille: u64,
    /// The most that one had of the mean load of both, over a minute.
    load_of_mean_max: f64,
    load_reversals: usize,
    titles_reversals: usize,
    /// The least part of its titles' sessions that one had in the end.
    titles_permille_last: u32,
    moves_per_session: f64,
}

/// The appliances beside one that is back, or new, until it takes all of its sessions.
#[derive(Debug, Serialize)]
struct Beside {
    /// The least part of its titles' sessions that one of them had before, and meanwhile.
    titles_permille_before: u32,
    titles_permille_least: u32,
    /// The most that one had of what it can serve, meanwhile.
    load_permille_max: u64,
    moves_per_session: f64,
}

#[derive(Debug, Serialize)]
struct Loss {
    /// From the last report until no new session is sent there.
    lost_after_s: u32,
    /// The share with the first report, in thousandths.
    share_back_permille: u32,
    /// From the first report until the share is whole.
    whole_after_s: u32,
    share_reversals: usize,
    /// The most of the near site's load in the minute after it came back.
    back_permille_max: u64,
}

/// One appliance in one second.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    share_permille: u32,
    titles_permille: u32,
    /// Asked of it, above 1000 if that is more than it can serve.
    load_permille: u64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let run_of = |titles, rule, crowd, seconds, event| {
        info!(?rule, ?crowd, ?event, titles, "runs");
        let mut world = World::new(args.sessions, args.seed, rule, crowd, titles, event)?;
        world.run(seconds).map(|()| world)
    };
    let run = |rule, crowd, seconds, event| run_of(1, rule, crowd, seconds, event);
    let even = |titles, rule| run_of(titles, rule, Crowd::Prompt, EVEN_S, Event::Even);
    let launch = Event::Launch(STEP_S);
    let lost = Event::Loss { from: STEP_S, until: STEP_S + LOST_S };
    let ours = run(Rule::Shares, Crowd::Prompt, LAUNCH_S, launch)?;
    let stubborn = run(Rule::Shares, Crowd::Stubborn, LAUNCH_S, launch)?;
    let naive = run(Rule::Naive, Crowd::Prompt, LAUNCH_S, launch)?;
    let loss = run(Rule::Shares, Crowd::Prompt, LOSS_S, lost)?;
    let naive_loss = run(Rule::Naive, Crowd::Prompt, STEP_S + LOST_S + BACK_S, lost)?;
    let third = |event| run_of(TITLES, Rule::Shares, Crowd::Prompt, LOSS_S, event);
    let one_lost = third(Event::OneLost { from: STEP_S, until: STEP_S + LOST_S })?;
    let one_added = third(Event::Added { from: STEP_S, full: STEP_S + FILL_S })?;
    let report = Report {
        sessions: args.sessions,
        seed: args.seed,
        ours: swing(&ours, |counts| counts.max())?,
        stubborn: swing(&stubborn, |counts| counts.max())?,
        naive: swing(&naive, |counts| counts.min())?,
        loss: judge_loss(&loss)?,
        one_title: judge_titles(&even(1, Rule::Shares)?),
        many_titles: judge_titles(&even(TITLES, Rule::Shares)?),
        spread_titles: judge_titles(&even(TITLES, Rule::Spread)?),
        one_lost: judge_beside(&one_lost, STEP_S + LOST_S..STEP_S + LOST_S + WHOLE_S)?,
        one_added: judge_beside(&one_added, STEP_S..STEP_S + FILL_S)?,
        naive_back_permille_max: back_max(&naive_loss).context("a load")?,
    };
    if let Some(path) = &args.plot {
        let text = plot::svg(&ours, &naive, &loss);
        std::fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    rig::say_all(args.json, &report)?;
    hold(&report)
}

/// The run is not valid where one of these does not hold.
fn hold(report: &Report) -> Result<()> {
    let Report { ours, stubborn, naive, loss, naive_back_permille_max, .. } = report;
    ensure!(5 <= naive.load_reversals, "the naive control turns {} times", naive.load_reversals);
    for (name, of) in [("prompt", ours), ("stubborn", stubborn)] {
        ensure!(of.load_reversals <= 1, "{name}: the load turns {} times", of.load_reversals);
        ensure!(of.share_reversals <= 1, "{name}: a share turns {} times", of.share_reversals);
        let [least, most] = of.load_permille_last;
        ensure!(700 <= least && most <= 950, "{name}: it ends between {least} and {most}");
    }
    ensure!(
        ours.starved_permille * 2 <= naive.starved_permille,
        "ours starves {} of 1,000, the naive one {}",
        ours.starved_permille,
        naive.starved_permille
    );
    ensure!(loss.lost_after_s <= 6, "lost after {} s", loss.lost_after_s);
    ensure!(loss.share_back_permille <= 60, "back with {}", loss.share_back_permille);
    hold_titles(report)?;
    let whole = loss.whole_after_s;
    ensure!((1080..=1260).contains(&whole), "whole after {whole} s, which is not twenty minutes");
    ensure!(loss.share_reversals <= 1, "the share turns {} times", loss.share_reversals);
    let back = loss.back_permille_max;
    ensure!(back <= 100, "in the minute after the loss the load comes to {back}");
    ensure!(3 * back <= *naive_back_permille_max, "that of the rival to {naive_back_permille_max}");
    Ok(())
}

fn hold_titles(report: &Report) -> Result<()> {
    let Report { one_title, many_titles, spread_titles, one_lost, one_added, .. } = report;
    for (name, of) in [("one of three lost", one_lost), ("one added", one_added)] {
        let (before, least) = (of.titles_permille_before, of.titles_permille_least);
        ensure!(before <= least + 100, "{name}: a part of titles falls from {before} to {least}");
    }
    for (name, of) in [("one title", one_title), ("many titles", many_titles)] {
        let most = of.load_of_mean_max;
        ensure!(most <= 1.3, "{name}: an appliance has {most:.3} times the mean load");
        ensure!(of.load_reversals <= 1, "{name}: the load turns {} times", of.load_reversals);
        let turns = of.titles_reversals;
        ensure!(turns <= 1, "{name}: the part of its titles turns {turns} times");
    }
    let (ours, spread) = (many_titles.titles_per_appliance, spread_titles.titles_per_appliance);
    ensure!(ours <= 0.75, "an appliance has {ours:.3} of the titles");
    ensure!(0.85 <= spread, "an appliance has {spread:.3} of the titles, with sessions spread");
    let together = many_titles.together_permille;
    ensure!(700 <= together, "{together} of 1,000 sessions are where their title leads");
    Ok(())
}

fn judge_titles(world: &World) -> Titles {
    let near = world.near();
    let worst = |turns: fn(&[Point]) -> usize| near.iter().map(|of| turns(of)).max().unwrap_or(0);
    let (titles_per_appliance, together_permille) = world.titles();
    let last = near.iter().filter_map(|points| points.last());
    Titles {
        titles_per_appliance,
        together_permille,
        load_of_mean_max: world.of_mean(),
        load_reversals: worst(|points| reversals(points.iter().map(|of| of.load_permille), 100)),
        titles_reversals: worst(|points| {
            reversals(points.iter().map(|of| of.titles_permille.into()), 1)
        }),
        titles_permille_last: last.map(|point| point.titles_permille).min().unwrap_or(0),
        moves_per_session: world.moves_per_session(),
    }
}

fn swing(
    world: &World,
    worst: impl Fn(std::vec::IntoIter<usize>) -> Option<usize>,
) -> Result<Swing> {
    let near = world.near();
    let load = |point: &Point| point.load_permille;
    let of_load = |points: &&[Point]| reversals(after_peak(points).iter().map(load), 100);
    let share = |point: &Point| u64::from(point.share_permille);
    let of_share = |points: &&[Point]| reversals(points.iter().map(share), 1);
    let loads: Vec<usize> = near.iter().map(of_load).collect();
    let shares: Vec<usize> = near.iter().map(of_share).collect();
    let last = world.near().into_iter().flat_map(|points| &points[points.len() - 600..]);
    let last: Vec<u64> = last.map(|point| point.load_permille).collect();
    let (least, most) = (last.iter().min().copied(), last.iter().max().copied());
    Ok(Swing {
        load_reversals: worst(loads.into_iter()).context("an appliance")?,
        share_reversals: worst(shares.into_iter()).context("an appliance")?,
        load_permille_last: [least.context("a load")?, most.context("a load")?],
        starved_permille: world.starved_permille(),
        moves_per_session: world.moves_per_session(),
    })
}

/// From the highest load in the minute after the launch.
fn after_peak(points: &[Point]) -> &[Point] {
    let from = usize::try_from(STEP_S).unwrap_or(0).min(points.len());
    let minute = &points[from..points.len().min(from + 60)];
    let peak = minute.iter().enumerate().max_by_key(|(_, point)| point.load_permille);
    &points[from + peak.map_or(0, |(at, _)| at)..]
}

fn judge_beside(world: &World, during: std::ops::Range<u32>) -> Result<Beside> {
    let [from, until] = [during.start, during.end].map(model::number::index);
    let [first, second, ..] = world.near()[..] else { bail!("two appliances beside one") };
    let least = |of: [&[Point]; 2]| of.into_iter().flatten().map(|of| of.titles_permille).min();
    let during = [&first[from..until], &second[from..until]];
    Ok(Beside {
        titles_permille_before: least([&first[..from], &second[..from]]).context("a part")?,
        titles_permille_least: least(during).context("a part")?,
        load_permille_max: during
            .into_iter()
            .flatten()
            .map(|of| of.load_permille)
            .max()
            .context("a load")?,
        moves_per_session: world.moves_per_session(),
    })
}

fn judge_loss(world: &World) -> Result<Loss> {
    let near = world.near();
    let points = near.first().context("an appliance")?;
    let (from, until) = (usize::try_from(STEP_S)?, usize::try_from(STEP_S + LOST_S)?);
    let after = |from: usize, is: fn(&Point) -> bool| {
        points[from..].iter().position(is).context("it never is")
    };
    let lost_after = after(from, |point| point.share_permille == 0)?;
    let whole_after = after(until, |point| point.share_permille == 1000)?;
    Ok(Loss {
        lost_after_s: u32::try_from(lost_after)?,
        share_back_permille: points[until].share_permille,
        whole_after_s: u32::try_from(whole_after)?,
        share_reversals: reversals(points.iter().map(|point| point.share_permille.into()), 1),
        back_permille_max: back_max(world).context("a load")?,
    })
}

/// The most of the near site's load in the minute after it came back.
fn back_max(world: &World) -> Option<u64> {
    let [until, end] = [STEP_S + LOST_S, STEP_S + LOST_S + BACK_S].map(model::number::index);
    let minute = world.near().into_iter().flat_map(|points| points.get(until..end)).flatten();
    minute.map(|point| point.load_permille).max()
}

/// How often a line turns by at least so much, its first direction left out.
fn reversals(line: impl Iterator<Item = u64>, band: u64) -> usize {
    let (mut turns, mut rises) = (0_usize, None);
    let (mut low, mut high) = (u64::MAX, 0);
    for value in line {
        (low, high) = (low.min(value), high.max(value));
        // While it rises only the peak counts, and while it falls the bottom.
        let falls_now = rises != Some(false) && value + band <= high;
        let rises_now = rises != Some(true) && low.saturating_add(band) <= value;
        if falls_now || rises_now {
            turns += usize::from(rises.is_some());
            rises = Some(rises_now && !falls_now);
            (low, high) = (value, value);
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As seed 1 has it, rounded.
    fn sound() -> Report {
        let ours = || Swing {
            load_reversals: 1,
            share_reversals: 1,
            load_permille_last: [806, 904],
            starved_permille: 0,
            moves_per_session: 0.1,
        };
        let naive = Swing { load_reversals: 689, starved_permille: 56, ..ours() };
        let loss = Loss {
            lost_after_s: 3,
            share_back_permille: 50,
            whole_after_s: 1140,
            share_reversals: 1,
            back_permille_max: 69,
        };
        let (stubborn, naive_back_permille_max) = (ours(), 372);
        let beside = || Beside {
            titles_permille_before: 900,
            titles_permille_least: 800,
            load_permille_max: 700,
            moves_per_session: 0.3,
        };
        let titles = || Titles {
            titles_per_appliance: 0.6,
            together_permille: 900,
            load_of_mean_max: 1.2,
            load_reversals: 1,
            titles_reversals: 1,
            titles_permille_last: 400,
            moves_per_session: 0.1,
        };
        Report {
            sessions: 2000,
            seed: 1,
            ours: ours(),
            stubborn,
            naive,
            loss,
            one_title: titles(),
            many_titles: titles(),
            spread_titles: Titles { titles_per_appliance: 0.9, ..titles() },
            one_lost: beside(),
            one_added: beside(),
            naive_back_permille_max,
        }
    }

    #[test]
    fn each_figure_beyond_its_bound_makes_the_run_invalid() {
        hold(&sound()).unwrap();
        let changes: [fn(&mut Report); 25] = [
            |of| of.one_lost.titles_permille_least = 799,
            |of| of.one_added.titles_permille_least = 799,
            |of| of.one_title.load_of_mean_max = 1.31,
            |of| of.one_title.load_reversals = 2,
            |of| of.one_title.titles_reversals = 2,
            |of| of.many_titles.load_of_mean_max = 1.31,
            |of| of.many_titles.load_reversals = 2,
            |of| of.many_titles.titles_reversals = 2,
            |of| of.many_titles.titles_per_appliance = 0.76,
            |of| of.many_titles.together_permille = 699,
            |of| of.spread_titles.titles_per_appliance = 0.84,
            |of| of.ours.load_reversals = 2,
            |of| of.ours.share_reversals = 2,
            |of| of.ours.load_permille_last = [690, 904],
            |of| of.ours.starved_permille = 29,
            |of| of.stubborn.load_reversals = 2,
            |of| of.stubborn.share_reversals = 2,
            |of| of.stubborn.load_permille_last = [806, 960],
            |of| of.naive.load_reversals = 4,
            |of| of.naive_back_permille_max = 200,
            |of| of.loss.lost_after_s = 7,
            |of| of.loss.share_back_permille = 61,
            |of| of.loss.whole_after_s = 1079,
            |of| of.loss.share_reversals = 2,
            |of| of.loss.back_permille_max = 101,
        ];
        for (n, change) in changes.iter().enumerate() {
            let mut report = sound();
            change(&mut report);
            assert!(hold(&report).is_err(), "change {n}: {report:?}");
        }
    }

    #[test]
    fn turns_count_where_they_are_as_large_as_the_band() {
        let of = |line: &[u64], band| reversals(line.iter().copied(), band);
        assert_eq!(of(&[500, 500, 1500, 850, 860, 840, 850], 100), 1);
        assert_eq!(of(&[500, 1500, 0, 1500, 0], 100), 3);
        assert_eq!(of(&[1000, 800, 600, 610, 615], 1), 1);
        assert_eq!(of(&[1000, 800, 600, 610, 615], 20), 0);
        assert_eq!(of(&[1000, 0, 0, 50, 60, 1000, 1000], 1), 1);
        assert_eq!(of(&[7; 9], 1), 0);
        assert_eq!(of(&[100, 150, 120, 190, 160, 250, 240, 310], 100), 0, "it climbs");
    }
}
