//! Three ISPs' routers, and a BIRD at each of three sites.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rig::process::{On, Process};
use routers::{Announced, Plan, Routers};

const PLAN: Plan = Plan {
    family: "ncro",
    speakers: &[
        ("isp1", 64501),
        ("isp2", 64502),
        ("isp3", 64503),
        ("s1", 64601),
        ("s2", 64602),
        ("ix", 64600),
    ],
    sessions: &[("isp1", "s1"), ("isp2", "s2"), ("isp1", "ix"), ("isp2", "ix"), ("isp3", "ix")],
};

/// The routers and their namespaces; all of it goes when it is dropped.
pub(super) struct Network {
    // Before the namespaces, which BIRDs are in.
    birds: BTreeMap<&'static str, Process>,
    routers: Routers,
}

impl Network {
    /// As root, with iproute2 and bird2. Those of two ports are apart.
    pub(super) fn start(room: &Path, port: u16) -> Result<Self> {
        let announces = |from: &str, _: &str| {
            Announced::isp(from.trim_start_matches("isp").parse().unwrap_or_default())
        };
        let routers = Routers::make(PLAN, room, port.into(), announces)?;
        let mut birds = BTreeMap::new();
        for (name, _) in PLAN.speakers {
            let log = room.join(format!("{name}.bird.log"));
            let command = routers.command(name);
            birds.insert(*name, Process::start(name, &command, On::default(), &log)?);
        }
        Ok(Self { birds, routers })
    }

    /// BIRD's control socket at a site.
    pub(super) fn control(&self, name: &str) -> PathBuf {
        self.routers.control(name)
    }

    /// An ISP announces this to a site from now on, and nothing else.
    pub(super) fn announce(&mut self, from: &str, to: &str, announced: &Announced) -> Result<()> {
        self.routers.announce(from, to, announced)
    }

    /// A router is gone, its sessions with it.
    pub(super) fn kill(&mut self, name: &str) {
        if let Some(mut bird) = self.birds.remove(name) {
            bird.kill();
        }
    }
}
