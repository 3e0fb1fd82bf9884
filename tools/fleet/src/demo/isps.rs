//! `nearcast demo --bgp`: two ISPs, each with a site in it that hears its router through a BIRD.
//!
//! ```text
//! isp1 ── BGP ── s1: BIRD <── nearcast-agent routes <── a1, a2
//! isp2 ── BGP ── s2: BIRD <── nearcast-agent routes <── a3
//! page, keyboard ─> withdraw | announce ─> the ISP's router: its own clients, to its site
//! ```
//!
//! Each router announces the other ISP's clients, too, as a network further away: so the clients
//! of a prefix that is withdrawn have a second way. Routers and BIRDs are in namespaces; all else
//! is on loopback, as ever.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::ValueEnum;
use routers::{Announced, Plan, Routers};
use serde_json::{Value, json};
use tracing::info;

use super::child::{self, Child};
use super::place::Place;
use crate::control::Control;

const PLAN: Plan = Plan {
    family: "ncdemo",
    speakers: &[("isp1", 64501), ("isp2", 64502), ("s1", 64601), ("s2", 64602)],
    sessions: &[("isp1", "s1"), ("isp2", "s2")],
};

/// An ISP, and the site in it.
#[derive(Debug)]
pub(super) struct Isp {
    pub(super) name: &'static str,
    pub(super) site: &'static str,
    /// Its place in the plan's addresses.
    number: u8,
    system: u32,
    /// One of its clients: a viewer who comes through its door.
    pub(super) client: &'static str,
}

pub(super) const ISPS: [Isp; 2] = [
    Isp { name: "isp1", site: "s1", number: 1, system: 64501, client: "21.1.1.1" },
    Isp { name: "isp2", site: "s2", number: 2, system: 64502, client: "21.2.1.1" },
];

/// What a person may do to an ISP's routes, by the verb of a URL or of a typed line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum RouteOrder {
    /// Its router announces its own clients to its site no more.
    #[value(alias = "w")]
    Withdraw,
    /// It announces them again.
    #[value(alias = "a")]
    Announce,
}

/// The routers, the sites' BIRDs and agents. Dropping it ends them, and the namespaces go.
#[derive(Debug)]
pub(super) struct Isps {
    // Before the namespaces, which they are in.
    children: Vec<Child>,
    routers: Routers,
    /// Sockets of the sites' agents.
    folder: PathBuf,
    /// Of each ISP, in their order.
    withdrawn: [bool; 2],
}

/// An error that says what is missing for it, and what to do.
pub(super) fn can_be_had() -> anyhow::Result<()> {
    let lacking = routers::lacking();
    ensure!(lacking.is_empty(), "--bgp lacks {}", lacking.join("; and "));
    Ok(())
}

impl Isps {
    /// Starts all of it, on the main thread (see [`child`]).
    pub(super) fn start(place: &Place, agent: &Path) -> anyhow::Result<Self> {
        let (folder, logs) = (place.make_dir("routes")?, place.make_dir("logs")?);
        let announces = |from: &str, _: &str| {
            let isp = ISPS.iter().find(|isp| isp.name == from);
            isp.map(|isp| isp.announces(RouteOrder::Announce)).unwrap_or_default()
        };
        let routers = Routers::make(PLAN, &folder, std::process::id(), announces)?;
        let mut isps = Self { children: Vec::new(), routers, folder, withdrawn: [false; 2] };
        for (name, _) in PLAN.speakers {
            let words = isps.routers.command(name);
            let (program, rest) = words.split_first().context("a command has a program")?;
            let mut command = child::command(Path::new(program))?;
            command.args(rest);
            let log = logs.join(format!("{name}.bird.log"));
            isps.children.push(Child::start(&format!("BIRD of {name}"), command, &log)?);
        }
        for isp in &ISPS {
            let config = json!({
                "user": "root",
                "group": "root",
                "drives": { "paths": [isps.folder] },
                "routes": {
                    "bird": isps.routers.control(isp.site),
                    "socket": isps.socket(isp.site),
                },
            });
            let text = toml::to_string(&config).context("cannot write TOML")?;
            let config = place.write(&format!("{}.agent.toml", isp.site), &text)?;
            let mut command = child::command(agent)?;
            command.args(["routes", "--config"]).arg(config);
            let log = logs.join(format!("{}.agent.log", isp.site));
            isps.children.push(Child::start(&format!("agent of {}", isp.site), command, &log)?);
        }
        Ok(isps)
    }

    /// Where the agent of a site answers.
    pub(super) fn socket(&self, site: &str) -> PathBuf {
        self.folder.join(format!("{site}.agent.sock"))
    }

    /// The ISP of a site withdraws or announces its own clients; twice is the same as once. Gives
    /// `withdrawn` or `announced`.
    pub(super) fn order(&mut self, site: &str, order: RouteOrder) -> anyhow::Result<&'static str> {
        let known = || ISPS.each_ref().map(|isp| isp.site).join(" and ");
        let found = ISPS.iter().zip(&mut self.withdrawn).find(|(isp, _)| isp.site == site);
        let Some((isp, withdrawn)) = found else {
            bail!("there is no site \"{site}\" with an ISP: there are {}", known());
        };
        self.routers.announce(isp.name, isp.site, &isp.announces(order))?;
        *withdrawn = order == RouteOrder::Withdraw;
        let now = condition(*withdrawn);
        info!(isp = isp.name, site, "{now}");
        Ok(now)
    }

    /// Every ISP, as the page is told.
    pub(super) fn conditions(&self) -> Value {
        let one = |(isp, withdrawn): (&Isp, &bool)| {
            json!({
                "site": isp.site,
                "isp": isp.name,
                "client": isp.client,
                "prefixes": isp.own().prefixes().collect::<Vec<_>>(),
                "condition": condition(*withdrawn),
            })
        };
        ISPS.iter().zip(&self.withdrawn).map(one).collect()
    }

    /// An error if one of its programs has ended.
    pub(super) fn must_run(&mut self) -> anyhow::Result<()> {
        self.children.iter_mut().try_for_each(Child::must_run)
    }

    /// Ends its programs, and then the namespaces.
    pub(super) async fn stop(mut self) {
        for child in &mut self.children {
            child.stop(STOP_WITHIN).await;
        }
    }
}

impl Isp {
    fn own(&self) -> Announced {
        Announced::isp(self.number)
    }

    fn announces(&self, order: RouteOrder) -> Announced {
        let own = match order {
            RouteOrder::Announce => self.own(),
            RouteOrder::Withdraw => Announced::default(),
        };
        let others = ISPS.iter().filter(|other| other.number != self.number);
        others.fold(own, |all, other| all.and_by_way_of(other.system, &other.own()))
    }
}

fn condition(withdrawn: bool) -> &'static str {
    if withdrawn { "withdrawn" } else { "announced" }
}

/// Both sites are in an ISP's network. They serve strangers, too: whoever opens control's own
/// address is one.
pub(super) fn register_sites(control: &Control) -> anyhow::Result<()> {
    let site = json!({ "prefixes": [], "kind": "embedded", "open": true });
    ISPS.iter().try_for_each(|isp| control.put(&format!("/v1/sites/{}", isp.site), &site).map(drop))
}

/// True once both sites hear the clients of both ISPs, in both families.
pub(super) fn are_heard(control: &Control) -> anyhow::Result<bool> {
    let routes: Value = control.get("/v1/routes")?;
    let hears_all = |isp: &Isp| {
        let mut sites = routes["sites"].as_array().into_iter().flatten();
        sites.any(|site| site["site"] == isp.site && site["prefixes"] == 4)
    };
    Ok(ISPS.iter().all(hears_all))
}

pub(super) const HEARD_WITHIN: Duration = Duration::from_secs(30);
const STOP_WITHIN: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_isp_withdraws_is_its_own_clients_and_the_others_stay() {
        let prefixes =
            |order| ISPS[0].announces(order).prefixes().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            prefixes(RouteOrder::Announce),
            ["21.1.0.0/22", "21.2.0.0/22", "2a0b:1::/32", "2a0b:2::/32"]
        );
        assert_eq!(prefixes(RouteOrder::Withdraw), ["21.2.0.0/22", "2a0b:2::/32"]);
    }
}
