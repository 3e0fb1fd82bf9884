//! The tests, in their order. Each leaves the machine so that the next finds all films held.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::Test;
use super::player::Seen;
use super::world::{DRIVES, World, format, make_file_system, mount};

/// All of them.
pub(super) const ALL: [(&str, Test<World>); 9] = [
    ("every-byte-is-right", every_byte_is_right),
    ("media-errors", media_errors),
    ("mounted-anew", mounted_anew),
    ("slow-drive", slow_drive),
    ("unplugged", unplugged),
    ("replaced", replaced),
    ("fill-writes-fail", fill_writes_fail),
    ("log-of-health", log_of_health),
    ("all-drives-in-use", all_drives_in_use),
];

const WRITES: usize = 0;
const MEDIA: usize = 1;
const SLOW: usize = 2;
const PULLED: usize = 3;
/// A drive as slow as this answers nothing within `[drives] hang_after`.
const OPERATIONS: u32 = 1;

fn every_byte_is_right(world: &mut World) -> Result<Option<f64>> {
    for drive in 0..DRIVES {
        ensure!(!world.objects_on(drive)?.is_empty(), "nothing is on d{drive}");
        ensure!(!world.is_set_aside(drive), "d{drive} is set aside");
    }
    world.check_all()?;
    Ok(None)
}

/// Reads fail for good: the drive is set aside, though nobody asks for more than one file of it,
/// and what was on it is filled again elsewhere.
fn media_errors(world: &mut World) -> Result<Option<f64>> {
    let was_on_it = world.objects_on(MEDIA)?;
    let asked = was_on_it.first().cloned();
    world.ask_for(|id| asked.as_deref() == Some(id) || !was_on_it.contains(id))?;
    let since = Instant::now();
    world.machine.fail(MEDIA, "read")?;
    let took = world.until_gone(MEDIA, since, &was_on_it)?;
    world.ask_for(|_| true)?;
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

/// The operator unmounts the file system that failed and mounts it again: it is used again, without
/// a restart. What was filled elsewhere meanwhile is held once.
fn mounted_anew(world: &mut World) -> Result<Option<f64>> {
    world.machine.heal(MEDIA)?;
    world.unmount(MEDIA)?;
    mount(&mut world.machine, MEDIA)?;
    world.wait("the drive to be used again", |world| !world.is_set_aside(MEDIA))?;
    world.offer_another("second", 12, 2)?;
    world.wait_until_whole()?;
    ensure!(!world.objects_on(MEDIA)?.is_empty(), "nothing new is on it");
    world.check_all()?;
    Ok(None)
}

/// Another drive is put in, formatted and mounted.
fn replaced(world: &mut World) -> Result<Option<f64>> {
    let before = world.drive(PULLED).id;
    world.unmount(PULLED)?;
    let file = world.dir.join("replaced.img");
    make_file_system(&file)?;
    world.machine.plug(PULLED, &file)?;
    world.wait_for_device(PULLED)?;
    mount(&mut world.machine, PULLED)?;
    ensure!(world.is_set_aside(PULLED), "it is used without a marker");
    format(&mut world.machine, PULLED)?;
    world.wait("the drive to be used", |world| !world.is_set_aside(PULLED))?;
    ensure!(world.drive(PULLED).id != before, "it has the name of the one before");
    world.offer_another("third", 12, 3)?;
    world.wait_until_whole()?;
    ensure!(!world.objects_on(PULLED)?.is_empty(), "nothing is on it");
    world.check_all()?;
    Ok(None)
}

/// Only writes fail, and only fill writes: the drive is set aside all the same.
fn fill_writes_fail(world: &mut World) -> Result<Option<f64>> {
    let (was_on_it, since) = (world.objects_on(WRITES)?, Instant::now());
    world.machine.fail(WRITES, "write")?;
    world.offer_another("fourth", 8, 4)?;
    let took = world.until_gone(WRITES, since, &was_on_it)?;
    world.wait_until_whole()?;
    world.machine.heal(WRITES)?;
    world.unmount(WRITES)?;
    mount(&mut world.machine, WRITES)?;
    world.wait("the drive to be used again", |world| !world.is_set_aside(WRITES))?;
    world.check_all()?;
    Ok(Some(took))
}

/// A drive says of itself that it is failing: the report does too, and it stays in use.
fn log_of_health(world: &mut World) -> Result<Option<f64>> {
    /// "The subsystem's reliability is degraded" (NVMe, the log page of health).
    const DEGRADED: u8 = 4;
    world.machine.warn(SLOW, DEGRADED)?;
    let path = format!("/srv/nearcast/d{SLOW}");
    world.wait("the report to say so", |world| {
        let mut errors = world.report().errors.into_iter();
        errors.any(|error| error.text.contains(&path) && error.text.contains("failing"))
    })?;
    world.machine.warn(SLOW, 0)?;
    ensure!(!world.is_set_aside(SLOW), "it was set aside");
    Ok(None)
}

fn all_drives_in_use(world: &mut World) -> Result<Option<f64>> {
    world.offer_another("fifth", 16, 5)?;
    world.wait_until_whole()?;
    for drive in 0..DRIVES {
        ensure!(!world.is_set_aside(drive), "d{drive} is set aside");
        ensure!(!world.objects_on(drive)?.is_empty(), "nothing is on d{drive}");
    }
    world.check_all()?;
    Ok(None)
}

/// Files a second that came in whole.
fn played_since(before: Seen, after: Seen, began: Instant) -> f64 {
    let files = u32::try_from(after.files_right - before.files_right).unwrap_or(u32::MAX);
    f64::from(files) / began.elapsed().as_secs_f64()
}
