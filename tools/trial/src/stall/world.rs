//! Two appliances of a site, each with a drive that can be stopped.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rig::cpu;
use rig::stage::{Appliance, Film, Object, Setup, Stage};

use super::client::Client;
use super::hold::Held;

/// One appliance and what is around it.
pub(crate) struct Place {
    // Ended before its drive is.
    pub(crate) appliance: Appliance,
    pub(crate) stage: Stage,
    /// Where the film is, without host and with a token.
    pub(crate) base: String,
    pub(crate) drive: Held,
    pub(crate) drives: Vec<PathBuf>,
    pub(crate) state: PathBuf,
}

/// Both, and what lies where.
pub(crate) struct World {
    pub(crate) near: Place,
    pub(crate) far: Place,
    pub(crate) film: Film,
    /// On the drives of the near one that are never stopped.
    pub(crate) healthy: Vec<Object>,
    /// The same, and nobody has asked for them.
    pub(crate) fresh: Vec<Object>,
    /// On the drive of the near one that is stopped at times, and on no such drive of the other.
    pub(crate) sick: Vec<Object>,
    /// On both appliances' stopped drives, and nobody asks for them before both are.
    pub(crate) sick_on_both: Vec<Object>,
    /// Of many chunks, on the drive of the near one.
    pub(crate) large_sick: Vec<Object>,
}

const LEN: u64 = 512 * 1024;
const COUNT: usize = 72;
const LARGE_LEN: u64 = 24 << 20;
const LARGE_COUNT: usize = 6;
/// Objects that are kept for when files are to be opened.
const FRESH: usize = 8;
/// Memory for hot blocks: none, so that every answer comes from its drive, and all of the film.
pub(crate) const FROM_DRIVES: &str = "0 B";
const FROM_MEMORY: &str = "256 MiB";
const FILLED: Duration = Duration::from_secs(60);
const SERVED: Duration = Duration::from_secs(20);

impl Place {
    /// Its own process on the first CPU, its drive's on the second.
    fn new(
        dir: &Path,
        film: &Film,
        (other, hot): (&str, &'static str),
        (cpu, drive_cpu): (usize, usize),
    ) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        // What is started inherits the CPU.
        cpu::pin(drive_cpu)?;
        let drive = Held::start(&dir.join("folder"), &dir.join("drive-2"))?;
        let drives = vec![dir.join("drive-0"), dir.join("drive-1"), drive.mount.clone()];
        for path in &drives {
            Appliance::format(path)?;
        }
        let mut stage = Stage::new(dir)?;
        stage.other = Some(other.parse().ok().context("a name")?);
        stage.publish(&[film])?;
        let (base, state) = (stage.base(film)?, dir.join("state"));
        cpu::pin(cpu)?;
        let appliance = Self::appliance(&stage, &drives, &state, hot)?;
        Ok(Self { appliance, stage, base, drive, drives, state })
    }

    /// A process with these drives, and so much memory for hot blocks.
    pub(crate) fn appliance(
        stage: &Stage,
        drives: &[PathBuf],
        state: &Path,
        hot: &str,
    ) -> Result<Appliance> {
        let settings = [("APPLIANCE_HOT_MEMORY", hot.to_owned())];
        let more = "[fill]\nconcurrency = 2\n";
        stage.start(&Setup { more, settings: &settings, ..Setup::new("appliance", drives, state) })
    }

    /// Where an object is asked for, and by which path.
    pub(crate) fn at(&self, object: &Object) -> (SocketAddr, String) {
        (self.appliance.address, format!("{}{}", self.base, object.path))
    }

    fn wait_until_filled(&mut self, film: &Film) -> Result<()> {
        self.stage.wait_until_held(&mut self.appliance, &[film], FILLED)
    }

    /// Looked for below the mount: that of a stopped drive would wait.
    fn is_on_the_drive(&self, object: &Object) -> bool {
        object.is_on(&self.drive.folder)
    }
}

impl World {
    /// Starts both and waits until they hold the film.
    pub(crate) fn new(dir: &Path, server_cpu: usize, other_cpu: usize) -> Result<Self> {
        let large = std::iter::repeat_n(LARGE_LEN, LARGE_COUNT);
        let film = Film::new("film", std::iter::repeat_n(LEN, COUNT).chain(large), 1);
        let near_cpus = (server_cpu, other_cpu);
        let mut near = Place::new(&dir.join("near"), &film, ("far", FROM_DRIVES), near_cpus)?;
        // All drives are folders of one device here. What the sibling reads for those who are sent
        // to it would make the near one's drives slower; in a fleet it has its own.
        let far_cpus = (other_cpu, other_cpu);
        let mut far = Place::new(&dir.join("far"), &film, ("near", FROM_MEMORY), far_cpus)?;
        near.wait_until_filled(&film)?;
        far.wait_until_filled(&film)?;
        for (place, name, other) in [(&near, "far", &far), (&far, "near", &near)] {
            let url = format!("http://{}", other.appliance.address);
            place.stage.control.set_siblings(BTreeMap::from([(name.to_owned(), url)]));
        }
        let (small, large) = film.objects.split_at(COUNT);
        let of = |objects: &[Object], sick: bool| -> Vec<Object> {
            objects.iter().filter(|o| near.is_on_the_drive(o) == sick).cloned().collect()
        };
        let (mut healthy, sick, large_sick) = (of(small, false), of(small, true), of(large, true));
        let (sick_on_both, sick): (Vec<Object>, Vec<Object>) =
            sick.into_iter().partition(|object| far.is_on_the_drive(object));
        ensure!(FRESH < healthy.len() && !sick.is_empty(), "a drive has nothing");
        ensure!(!sick_on_both.is_empty(), "both drives have nothing in common");
        ensure!(!large_sick.is_empty(), "no large object is on the drive that is stopped");
        let fresh = healthy.split_off(healthy.len() - FRESH);
        let world = Self { near, far, film, healthy, fresh, sick, sick_on_both, large_sick };
        world.wait_until_served(&world.sick)?;
        Ok(world)
    }

    /// Waits until the near one serves these itself, and the other appliance too.
    pub(crate) fn wait_until_served(&self, objects: &[Object]) -> Result<()> {
        let object = objects.first().context("an object to wait for")?;
        let mut client = Client::new();
        for place in [&self.near, &self.far] {
            let what = format!("serving {} again", object.path);
            rig::until(&what, SERVED, Duration::from_millis(20), || {
                let answer = client.get(&place.at(object), object);
                Ok(answer.is_ok_and(|answer| answer.is_right()))
            })?;
        }
        Ok(())
    }
}
