//! The tests, in their order. Each leaves the machine so that the next finds all films held.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::player::Seen;
use super::world::World;

/// A test: how long the inventory took to be right, where something was lost.
type Test = fn(&mut World) -> Result<Option<f64>>;

/// All of them.
pub(super) const ALL: [(&str, Test); 4] = [
    ("every-byte-is-right", every_byte_is_right),
    ("media-errors", media_errors),
    ("slow-drive", slow_drive),
    ("unplugged", unplugged),
];

const MEDIA: usize = 1;
const SLOW: usize = 2;
const PULLED: usize = 3;
/// A drive as slow as this answers nothing within `[drives] hang_after`.
const OPERATIONS: u32 = 1;

fn every_byte_is_right(world: &mut World) -> Result<Option<f64>> {
    for drive in 0..super::world::DRIVES {
        ensure!(!world.objects_on(drive)?.is_empty(), "nothing is on d{drive}");
        ensure!(!world.is_set_aside(drive), "d{drive} is set aside");
    }
    world.check_all()?;
    Ok(None)
}

/// Reads fail for good: the drive is set aside, and what was on it is filled again elsewhere.
fn media_errors(world: &mut World) -> Result<Option<f64>> {
    let (was_on_it, since) = (world.objects_on(MEDIA)?, Instant::now());
    world.machine.fail(MEDIA, "read")?;
    let took = world.until_gone(MEDIA, since, &was_on_it)?;
    world.wait_until_whole()?;
    world.check_all()?;
    Ok(Some(took))
}

/// A drive that hardly answers delays nobody who wants what is on others. It is used again when it
/// answers again.
fn slow_drive(world: &mut World) -> Result<Option<f64>> {
    world.machine.slow(SLOW, OPERATIONS)?;
    world.wait("the drive to be found silent", |world| world.drive(SLOW).hung)?;
    let (before, began) = (world.players.seen(), Instant::now());
    std::thread::sleep(Duration::from_secs(5));
    let rate = played_since(before, world.players.seen(), began);
    ensure!(1.0 < rate, "players got {rate} files a second while one drive hung");
    world.machine.slow(SLOW, 0)?;
    world.wait("the drive to answer again", |world| !world.drive(SLOW).hung)?;
    ensure!(!world.is_set_aside(SLOW), "it was set aside");
    world.wait_until_whole()?;
    world.check_all()?;
    Ok(None)
}

/// A drive is pulled while players stream.
fn unplugged(world: &mut World) -> Result<Option<f64>> {
    let (was_on_it, since) = (world.objects_on(PULLED)?, Instant::now());
    world.machine.unplug(PULLED)?;
    let took = world.until_gone(PULLED, since, &was_on_it)?;
    world.wait_until_whole()?;
    world.check_all()?;
    Ok(Some(took))
}

/// Files a second that came in whole.
fn played_since(before: Seen, after: Seen, began: Instant) -> f64 {
    let files = u32::try_from(after.files_right - before.files_right).unwrap_or(u32::MAX);
    f64::from(files) / began.elapsed().as_secs_f64()
}
