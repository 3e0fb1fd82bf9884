//! Load at times that were drawn before: who is late stays late, and is not asked later instead.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rig::client::Dice;
use rig::stage::Object;

use super::client::{Body, Chain, Client};
use super::world::World;

/// When to ask, from the beginning of a window.
pub(crate) struct Load {
    healthy: Vec<Duration>,
    sick: Vec<Duration>,
    seed: u64,
}

/// What came in a window.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Response times of objects on drives that are never stopped, from when they were due.
    pub(crate) healthy_ms: Vec<f64>,
    /// Answers for these that were not the object.
    pub(crate) healthy_failed: u64,
    /// What became of requests for objects of the drive that is stopped at times.
    pub(crate) sick: Vec<Chain>,
}

/// Players; each has one request at a time. More than are ever at work at once.
const PLAYERS: usize = 128;
/// The same for the drive that is stopped, where each may wait.
const SICK_PLAYERS: usize = 24;
/// Players at once while the rate is looked for.
const CALIBRATORS: usize = 16;
/// Of so many requests one is for the drive that is stopped.
const SICK_EVERY: f64 = 20.0;
/// All is under way when a window begins.
const WARM_UP: Duration = Duration::from_secs(1);
/// Of so many objects from drives that are never stopped, one is compared.
const COMPARE_EVERY: usize = 16;

/// Requests per second that the near appliance can answer, the players being as fast as they are.
pub(crate) fn calibrate(world: &World, span: Duration, seed: u64) -> Result<f64> {
    let (count, began) = (AtomicUsize::new(0), Instant::now());
    std::thread::scope(|scope| {
        let player = |n: u64| {
            let (mut client, mut dice) = (Client::new(), Dice::new(seed ^ (n << 32)));
            while began.elapsed() < span {
                let object = choose(&mut dice, &world.healthy);
                let body = compare_or_count(count.fetch_add(1, Ordering::Relaxed));
                let answer = client.take(&world.near.at(object), object, body)?;
                ensure!(answer.is_right(), "while the rate is looked for: {answer:?}");
            }
            Ok(())
        };
        let players: Vec<_> =
            (0..u64::try_from(CALIBRATORS)?).map(|n| scope.spawn(move || player(n))).collect();
        players.into_iter().try_for_each(|p| p.join().ok().context("a player panicked")?)
    })?;
    let answers = u32::try_from(count.into_inner())?;
    Ok(f64::from(answers) / began.elapsed().as_secs_f64())
}

impl Load {
    /// Times at which so many requests per second come, each independent of the others.
    pub(crate) fn draw(rate: f64, seconds: u32, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut times = |rate: f64| {
            let (mut times, mut at) = (Vec::new(), 0.0);
            loop {
                let upper = u32::try_from(dice.throw() >> 32).unwrap_or(u32::MAX);
                let share = (f64::from(upper) + 1.0) / (f64::from(u32::MAX) + 1.0);
                at -= share.ln() / rate;
                if WARM_UP.as_secs_f64() + f64::from(seconds) <= at {
                    return times;
                }
                times.push(Duration::from_secs_f64(at));
            }
        };
        let sick = rate / SICK_EVERY;
        // The window, and before it what makes connections and opens files.
        Self { healthy: times(rate - sick), sick: times(sick), seed }
    }

    /// Asks at these times; returns when all is answered. The drive is stopped as the window
    /// begins, or not.
    pub(crate) fn run(&self, world: &World, hung: bool) -> Result<Seen> {
        let seen = Mutex::new(Seen::default());
        let (next_healthy, next_sick) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let began = Instant::now() + Duration::from_millis(20);
        let stopped = std::thread::scope(|scope| {
            for _ in 0..PLAYERS {
                scope.spawn(|| {
                    let mut client = Client::new();
                    let mut own = Seen::default();
                    while let Some((n, due)) = take(&self.healthy, &next_healthy, began) {
                        let object = self.object(n, &world.healthy);
                        let body = compare_or_count(n);
                        let answer = client.take(&world.near.at(object), object, body);
                        if began + WARM_UP <= due {
                            own.healthy_ms.push(due.elapsed().as_secs_f64() * 1000.0);
                        }
                        let right = answer.is_ok_and(|answer| answer.is_right());
                        own.healthy_failed += u64::from(!right);
                    }
                    let mut all = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    all.healthy_ms.append(&mut own.healthy_ms);
                    all.healthy_failed += own.healthy_failed;
                });
            }
            for _ in 0..SICK_PLAYERS {
                scope.spawn(|| {
                    let mut client = Client::new();
                    while let Some((n, _)) = take(&self.sick, &next_sick, began) {
                        let object = self.object(n, &world.sick);
                        let chain = client.follow(world.near.at(object), object);
                        seen.lock().unwrap_or_else(PoisonError::into_inner).sick.push(chain);
                    }
                });
            }
            std::thread::sleep((began + WARM_UP).saturating_duration_since(Instant::now()));
            hung.then(|| world.near.drive.stop()).transpose()
        });
        // Until all is answered.
        drop(stopped?);
        rig::stop::check()?;
        Ok(seen.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// The same for the same request in both windows of a pair.
    fn object<'a>(&self, n: usize, objects: &'a [Object]) -> &'a Object {
        let n = u64::try_from(n).unwrap_or(0);
        choose(&mut Dice::new(self.seed ^ n.wrapping_mul(0x9e37_79b9)), objects)
    }
}

/// One body of so many is compared.
fn compare_or_count(n: usize) -> Body {
    if n.is_multiple_of(COMPARE_EVERY) { Body::Compare } else { Body::Count }
}

fn choose<'a>(dice: &mut Dice, objects: &'a [Object]) -> &'a Object {
    let count = u64::try_from(objects.len()).unwrap_or(1);
    let at = usize::try_from(dice.below(count)).unwrap_or(0);
    &objects[at]
}

/// Waits for the next time that nobody has taken.
fn take(times: &[Duration], next: &AtomicUsize, began: Instant) -> Option<(usize, Instant)> {
    let n = next.fetch_add(1, Ordering::Relaxed);
    let due = began + *times.get(n)?;
    std::thread::sleep(due.saturating_duration_since(Instant::now()));
    Some((n, due))
}
