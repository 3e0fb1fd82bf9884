//! What the sessions say: each kind of pacing against none, link by link and over all of them.
//!
//! A paced session is compared with the unpaced one of the same player in the same round. Worse
//! beyond noise: if it did not matter who was paced, each difference might as well have the other
//! sign, and of all such worlds less than a share of `FALSE_ALARM` would look so bad or worse (a
//! permutation test by signs, one-sided). That share is divided by the number of tests: of all
//! rows, and of all links together. Stalls, which are rare, are judged once more, undivided, over
//! all links and both kinds of pacing.

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use rig::client::Dice;
use rig::statistics::median;
use serde::Serialize;

use super::{Arm, Session};

/// Drops of unpaced sessions over those of paced ones, at least.
const FEWER_MIN: f64 = 5.0;
/// Chance of any false "worse" in all rows; and in what is said of all links; and of stalls.
const FALSE_ALARM: f64 = 0.05;
/// Links for a verdict: three rates, two queues.
const LINKS_MIN: usize = 6;
/// Sessions of each kind behind each link, for a verdict.
const SESSIONS_MIN: usize = 10;
/// Who never began waited for longer than any session.
const NEVER_MS: f64 = 90_000.0;
/// Worlds that are looked at for a test.
const WORLDS: u32 = 20_000;

#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    sessions: usize,
    /// Those of which a player gave up, or never began.
    failed: usize,
    fewer_drops_min: f64,
    /// Over all links: the worse of both kinds of pacing.
    fewer_drops: f64,
    fewer_drops_holds: bool,
    /// The least of all rows.
    fewer_drops_worst_row: f64,
    /// Below this probability a figure of a row is worse beyond noise; one of all links.
    p_min: f64,
    p_min_overall: f64,
    /// Probability that chance alone makes stalls of both kinds of pacing so long.
    p_stalls: f64,
    /// Figures that are, in words.
    worse: Vec<String>,
    not_worse_holds: bool,
    pub(super) rows: Vec<Row>,
    /// Over all links, by kind of pacing.
    overall: Vec<Compared>,
}

/// One link.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) rate_bps: u64,
    pub(super) queue_bytes: u64,
    pub(super) arms: Vec<Figures>,
    compared: Vec<Compared>,
}

/// One kind of pacing, or none, behind one link.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) arm: Arm,
    pub(super) sessions: usize,
    /// Median.
    pub(super) start_ms: f64,
    /// Of all sessions together.
    pub(super) stalls: f64,
    pub(super) stall_s: f64,
    /// Means over sessions.
    pub(super) mean_kbps: f64,
    pub(super) drops: f64,
    pub(super) drops_per_1000: f64,
    pub(super) neighbour_ms_p50: f64,
    pub(super) neighbour_ms_p95: f64,
}

/// Paced against unpaced: pairs of the same player and round.
#[derive(Clone, Debug, Serialize)]
struct Compared {
    arm: Arm,
    pairs: usize,
    /// Drops per packet of the unpaced over those of the paced; drops of none count as half a one.
    fewer_drops: f64,
    /// Probabilities that chance alone is so bad.
    p_start: f64,
    p_stalls: f64,
    p_bitrate: f64,
    p_drops: f64,
    p_neighbour: f64,
}

impl Compared {
    fn tests(&self) -> [(&'static str, f64); 5] {
        [
            ("start-up", self.p_start),
            ("stalls", self.p_stalls),
            ("bitrate", self.p_bitrate),
            ("drops", self.p_drops),
            ("neighbour's delay", self.p_neighbour),
        ]
    }

    /// Figures that are worse beyond noise, each a line that begins with `name`.
    fn worse(&self, name: &str, p_min: f64) -> Vec<String> {
        let bad = self.tests().into_iter().filter(|(_, p)| *p < p_min);
        bad.map(|(figure, p)| format!("{name}: {figure} (p = {p:.4})")).collect()
    }
}

impl Report {
    pub(super) fn of(sessions: &[Session]) -> Result<Self> {
        let mut links: Vec<(u64, u64)> =
            sessions.iter().map(|one| (one.rate_bps, one.queue_bytes)).collect();
        links.sort_unstable();
        links.dedup();
        let rows: Result<Vec<Row>> = links.iter().map(|link| row(sessions, *link)).collect();
        let rows = rows?;
        let all: Vec<&Session> = sessions.iter().collect();
        let paced = [Arm::Cmcd, Arm::Silent];
        let overall: Vec<Compared> =
            paced.iter().map(|arm| compare(&all, *arm)).collect::<Result<_>>()?;
        let of_rows: Vec<(String, &Compared)> = rows
            .iter()
            .flat_map(|row| {
                let name = |one: &Compared| format!("{}: {}", row.name(), one.arm.name());
                row.compared.iter().map(move |one| (name(one), one))
            })
            .collect();
        let share = |all: usize| anyhow::Ok(FALSE_ALARM / f64::from(u32::try_from(all * 5)?));
        let (p_min, p_min_overall) = (share(of_rows.len())?, share(overall.len())?);
        let name = |one: &Compared| format!("all links: {}", one.arm.name());
        let mut worse: Vec<String> =
            of_rows.iter().flat_map(|(name, one)| one.worse(name, p_min)).collect();
        worse.extend(overall.iter().flat_map(|one| one.worse(&name(one), p_min_overall)));
        let stalls: Vec<f64> = paced
            .iter()
            .flat_map(|arm| pairs(&all, *arm))
            .map(|(paced, unpaced)| paced.stall_ms - unpaced.stall_ms)
            .collect();
        let p_stalls = chance(&stalls);
        if p_stalls < FALSE_ALARM {
            worse.push(format!("all links, all that are paced: stalls (p = {p_stalls:.4})"));
        }
        let least = |all: &mut dyn Iterator<Item = &Compared>| {
            all.map(|one| one.fewer_drops).fold(f64::INFINITY, f64::min)
        };
        let fewer_drops = least(&mut overall.iter());
        let failed = |one: &&Session| one.error.is_some() || one.start_ms.is_none();
        Ok(Self {
            sessions: sessions.len(),
            failed: sessions.iter().filter(failed).count(),
            fewer_drops_min: FEWER_MIN,
            fewer_drops,
            fewer_drops_holds: FEWER_MIN <= fewer_drops,
            fewer_drops_worst_row: least(&mut rows.iter().flat_map(|row| &row.compared)),
            p_min,
            p_min_overall,
            p_stalls,
            not_worse_holds: worse.is_empty(),
            worse,
            rows,
            overall,
        })
    }

    /// An error unless pacing spares the queues, nothing is worse for it, and all players played.
    pub(super) fn verdict(&self) -> Result<()> {
        ensure!(
            LINKS_MIN <= self.rows.len(),
            "{} links say too little: {LINKS_MIN} at least",
            self.rows.len()
        );
        let arms = || self.rows.iter().flat_map(|row| &row.arms);
        let fewest = arms().map(|arm| arm.sessions).min().unwrap_or(0);
        ensure!(
            SESSIONS_MIN <= fewest,
            "{fewest} sessions of a kind behind a link say too little: {SESSIONS_MIN} at least"
        );
        ensure!(self.failed == 0, "{} sessions failed", self.failed);
        ensure!(self.not_worse_holds, "worse for being paced: {}", self.worse.join("; "));
        ensure!(
            self.fewer_drops_holds,
            "drops are fewer by {:.1}, not by {FEWER_MIN}",
            self.fewer_drops
        );
        Ok(())
    }

    /// The table, with what it comes to below it.
    pub(super) fn markdown(&self) -> String {
        let mut text = String::from(
            "| link, queue | served | sessions | start-up, s | stalls | stalled, s | Mb/s | drops \
             per 1,000 | fewer by | neighbour, ms: median, p95 |\n\
             | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
        );
        for row in &self.rows {
            for arm in &row.arms {
                let fewer = row.compared.iter().find(|one| one.arm == arm.arm);
                let fewer = fewer.map_or_else(String::new, |one| format!("{:.1}", one.fewer_drops));
                let _ = writeln!(
                    text,
                    "| {} | {} | {} | {:.2} | {} | {:.1} | {:.2} | {:.2} | {fewer} | {:.0}, \
                     {:.0} |",
                    row.name(),
                    arm.arm.name(),
                    arm.sessions,
                    arm.start_ms / 1e3,
                    arm.stalls,
                    arm.stall_s,
                    arm.mean_kbps / 1e3,
                    arm.drops_per_1000,
                    arm.neighbour_ms_p50,
                    arm.neighbour_ms_p95,
                );
            }
        }
        for one in &self.overall {
            let chances = one.tests().map(|(figure, p)| format!("{figure} {p:.3}")).join(", ");
            let (name, pairs, fewer) = (one.arm.name(), one.pairs, one.fewer_drops);
            let _ = write!(
                text,
                "\nOver all links, {name}: {pairs} pairs, drops fewer by {fewer:.1}; p of \
                 {chances}."
            );
        }
        let _ = write!(text, "\nStalls of all that are paced: p = {:.3}.", self.p_stalls);
        let worse = if self.worse.is_empty() { "none".to_owned() } else { self.worse.join("; ") };
        let (row, all) = (self.p_min, self.p_min_overall);
        let _ = writeln!(
            text,
            "\nWorse beyond noise (p < {row:.4} of a row, {all:.3} of all links, {FALSE_ALARM} of \
             all stalls): {worse}."
        );
        text
    }
}

impl Row {
    pub(super) fn name(&self) -> String {
        format!("{} Mb/s, {} KiB", self.rate_bps / 1_000_000, self.queue_bytes >> 10)
    }
}

fn row(sessions: &[Session], link: (u64, u64)) -> Result<Row> {
    let of_it = |one: &&Session| (one.rate_bps, one.queue_bytes) == link;
    let here: Vec<&Session> = sessions.iter().filter(of_it).collect();
    let arms = [Arm::Unpaced, Arm::Cmcd, Arm::Silent];
    let arms: Result<_> = arms.iter().map(|arm| figures(&here, *arm)).collect();
    let compared: Result<_> =
        [Arm::Cmcd, Arm::Silent].iter().map(|arm| compare(&here, *arm)).collect();
    let (rate_bps, queue_bytes) = link;
    Ok(Row { rate_bps, queue_bytes, arms: arms?, compared: compared? })
}

fn figures(here: &[&Session], arm: Arm) -> Result<Figures> {
    let of_it: Vec<&Session> = here.iter().copied().filter(|one| one.arm == arm).collect();
    ensure!(!of_it.is_empty(), "no session is {}", arm.name());
    let sum = |of: &dyn Fn(&Session) -> f64| of_it.iter().map(|one| of(one)).sum::<f64>();
    let count = sum(&|_| 1.0);
    let starts: Vec<f64> = of_it.iter().map(|one| start(one)).collect();
    let drops = sum(&|one| float(one.drops));
    Ok(Figures {
        arm,
        sessions: of_it.len(),
        start_ms: median(&starts).context("a session at least")?,
        stalls: sum(&|one| one.stalls),
        stall_s: sum(&|one| one.stall_ms) / 1e3,
        mean_kbps: sum(&|one| one.mean_kbps) / count,
        drops: drops / count,
        drops_per_1000: drops * 1e3 / sum(&|one| float(one.packets)).max(1.0),
        neighbour_ms_p50: sum(&|one| one.neighbour_ms_p50) / count,
        neighbour_ms_p95: sum(&|one| one.neighbour_ms_p95) / count,
    })
}

/// Each paced session with the unpaced one of the same player in the same round.
fn pairs<'a>(here: &[&'a Session], arm: Arm) -> Vec<(&'a Session, &'a Session)> {
    let of = |one: &Session| (one.rate_bps, one.queue_bytes, one.round);
    let unpaced = |paced: &Session| {
        let same = |one: &&&'a Session| {
            one.arm == Arm::Unpaced && of(one) == of(paced) && one.player == paced.player
        };
        here.iter().find(same).copied()
    };
    let paced = here.iter().copied().filter(|one| one.arm == arm);
    paced.filter_map(|one| Some((one, unpaced(one)?))).collect()
}

fn compare<'a>(here: &[&'a Session], arm: Arm) -> Result<Compared> {
    let pairs = pairs(here, arm);
    ensure!(!pairs.is_empty(), "no session is {} and has another to compare with", arm.name());
    let rate = |which: &dyn Fn(&(&'a Session, &'a Session)) -> &'a Session| {
        let all = pairs.iter().map(which);
        let (mut drops, mut packets) = (0, 0);
        for one in all {
            drops += one.drops;
            packets += one.packets;
        }
        float(drops).max(0.5) / float(packets).max(1.0)
    };
    let unpaced = rate(&|pair| pair.1);
    let worse_by = |of: &dyn Fn(&Session) -> f64| {
        let by: Vec<f64> = pairs.iter().map(|(paced, unpaced)| of(paced) - of(unpaced)).collect();
        chance(&by)
    };
    Ok(Compared {
        arm,
        pairs: pairs.len(),
        fewer_drops: unpaced / rate(&|pair| pair.0),
        p_start: worse_by(&start),
        p_stalls: worse_by(&|one| one.stall_ms),
        p_bitrate: worse_by(&|one| -one.mean_kbps),
        p_drops: worse_by(&|one| float(one.drops) / float(one.packets).max(1.0)),
        p_neighbour: worse_by(&|one| one.neighbour_ms_p95),
    })
}

fn start(one: &Session) -> f64 {
    one.start_ms.unwrap_or(NEVER_MS)
}

/// How likely the sum of these differences is by chance, or a greater one.
fn chance(by: &[f64]) -> f64 {
    let seen: f64 = by.iter().sum();
    let mut dice = Dice::new(7);
    let as_bad = (0..WORLDS).filter(|_| {
        let sum: f64 = by.iter().map(|one| if dice.below(2) == 0 { *one } else { -one }).sum();
        // Sums of the same terms in the same order are the same but for this.
        seen - seen.abs() * 1e-9 <= sum
    });
    // The world that was seen is one of them.
    f64::from(1 + u32::try_from(as_bad.count()).unwrap_or(WORLDS)) / f64::from(1 + WORLDS)
}

fn float(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(arm: Arm, round: u32, kbps: f64, drops: u64) -> Session {
        Session {
            rate_bps: 3_000_000,
            queue_bytes: 32_768,
            round,
            arm,
            player: "hls.js".to_owned(),
            start_ms: Some(500.0),
            stalls: 0.0,
            stall_ms: 0.0,
            played_s: 45.0,
            mean_kbps: kbps,
            error: None,
            packets: 10_000,
            drops,
            neighbour_ms_p50: 10.0,
            neighbour_ms_p95: 40.0,
            neighbour_lost: 0,
        }
    }

    fn report(paced: impl Fn(u32) -> (f64, u64)) -> Report {
        Report::of(&sessions(12, paced)).unwrap()
    }

    /// Behind each of six links.
    fn six(mut sessions: Vec<Session>) -> Vec<Session> {
        let first = sessions.clone();
        for link in 1..6 {
            sessions.extend(first.iter().map(|one| {
                let queue_bytes = one.queue_bytes + link;
                Session { queue_bytes, ..one.clone() }
            }));
        }
        sessions
    }

    fn sessions(rounds: u32, paced: impl Fn(u32) -> (f64, u64)) -> Vec<Session> {
        (0..rounds)
            .flat_map(|round| {
                let (kbps, drops) = paced(round);
                let unpaced = 1000.0 + f64::from(round % 4);
                [
                    session(Arm::Unpaced, round, unpaced, 100),
                    session(Arm::Cmcd, round, kbps, drops),
                    session(Arm::Silent, round, unpaced, drops),
                ]
            })
            .collect()
    }

    #[test]
    fn the_verdict_is_an_error_for_each_thing_that_is_bad() {
        let of = |sessions: &[Session]| {
            Report::of(sessions).unwrap().verdict().map_err(|error| error.to_string())
        };
        let sessions = |rounds, paced: fn(u32) -> (f64, u64)| six(sessions(rounds, paced));
        let good = || sessions(12, |_| (1002.0, 10));
        assert_eq!(of(&good()), Ok(()));
        let says = |sessions: &[Session], text: &str| {
            let error = of(sessions).unwrap_err();
            assert!(error.contains(text), "{error}, not {text}");
        };
        says(&sessions(9, |_| (1002.0, 10)), "9 sessions");
        says(&sessions(12, |_| (1002.0, 30)), "fewer by 3.3");
        says(&sessions(12, |_| (900.0, 10)), "bitrate");
        let with = |change: &dyn Fn(&mut Session)| {
            let mut sessions = good();
            sessions.iter_mut().filter(|one| one.arm == Arm::Cmcd).for_each(change);
            sessions
        };
        says(&with(&|one| one.neighbour_ms_p95 = 50.0), "neighbour's delay");
        let mut five = good();
        five.retain(|one| one.queue_bytes != 32_768);
        says(&five, "5 links");
        // Too few for a row, and for either kind of pacing alone.
        let mut rare = good();
        let stalls = rare.iter_mut().filter(|one| one.arm != Arm::Unpaced && one.round == 3);
        stalls.take(6).for_each(|one| one.stall_ms = 900.0);
        says(&rare, "all that are paced: stalls");
        let mut one_link = good();
        let drops = one_link.iter_mut().filter(|one| one.arm == Arm::Silent);
        drops.take(12).for_each(|one| one.drops = 101);
        says(&one_link, "3 Mb/s, 32 KiB: paced, silent: drops");
        let mut one_fails = good();
        one_fails[1].error = Some("gave up".to_owned());
        says(&one_fails, "1 sessions failed");
        let never = Report::of(&with(&|one| one.start_ms = None)).unwrap();
        assert_eq!(never.rows[0].arms[1].start_ms.to_string(), "90000");
        assert_eq!(never.failed, 72);
    }

    #[test]
    fn what_is_worse_each_time_is_beyond_noise_and_what_varies_is_not() {
        let worse = report(|_| (900.0, 10)).worse;
        assert_eq!(worse.len(), 2, "the row and all links: {worse:?}");
        assert!(worse[0].starts_with("3 Mb/s, 32 KiB: paced, CMCD: bitrate"), "{worse:?}");
        let varies = report(|round| (if round % 2 == 0 { 900.0 } else { 1090.0 }, 10));
        assert!(varies.not_worse_holds, "{:?}", varies.worse);
    }

    #[test]
    fn drops_are_told_as_a_ratio_and_none_is_half_a_one() {
        let ratio = |drops| report(|_| (1000.0, drops)).fewer_drops;
        assert_eq!(ratio(10).round().to_string(), "10");
        assert_eq!(ratio(0).round().to_string(), "2400");
        assert!(!report(|_| (1000.0, 30)).fewer_drops_holds);
        assert!(report(|_| (1000.0, 20)).fewer_drops_holds);
    }

    #[test]
    fn chance_is_one_where_nothing_differs() {
        assert_eq!(chance(&[0.0; 12]).to_string(), "1");
        assert!(chance(&[1.0; 12]) < 0.001);
        assert!(0.4 < chance(&[1.0, -1.0, 1.0, -1.0]));
    }
}
