//! Moves the service addresses of a site: `nearcast-agent addresses`.
//!
//! ```text
//! appliance ── priorities, 4 a second ──> keepalived: a virtual router for each address (VRRP)
//!        │                            or> loopback: addresses that BIRD announces
//!        └──── clients to tickle ───────> raw socket, by addresses that this machine has
//! ```
//!
//! An appliance that says nothing for a second does not serve: its machine wants the addresses less
//! than any other. Who has them then is between the machines of the site.

use std::collections::BTreeMap;
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use wire::v1::agent::{Answer, Request, TICKLES_MAX};

use crate::config::{Addresses, By, Settings};
use crate::programs::FOLDERS;
use crate::server::{self, Answerer, answer_at};
use crate::tickle::Tickler;

/// Without a word of the appliance for so long it does not serve. It speaks four times a second.
const SILENT: Duration = Duration::from_secs(1);
/// How often that, and keepalived, is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Between two starts of keepalived: without it an address stays where it is, or is nowhere.
const START_EVERY: Duration = Duration::from_secs(1);
/// Of an appliance that does not serve.
const AWAY: u8 = 1;
/// An owner that waits has this at most, and its address is not announced.
const WAITS_MAX: u8 = 20;
/// With BIRD an address at `WAITS_MAX` is announced all the same when it has waited for so long: an
/// appliance that hears no sibling waits for ever, and with VRRP would have it unless somebody
/// wants it more. Longer than `takeover::DRAIN_MAX`.
const WAIT_MAX: Duration = Duration::from_secs(35);
/// Three of these without word of a better router, and the next takes over: at most 0.8 s.
const ADVERTISE_EVERY: &str = "0.2";

struct Mover {
    settings: Addresses,
    state: Mutex<State>,
    /// Of the next batch of tickles: another in each round, so that a client whose window one is in
    /// is out of order for the next.
    sequence: AtomicU32,
}

#[derive(Default)]
struct State {
    wanted: BTreeMap<IpAddr, u8>,
    told: Option<Instant>,
    keepalived: Option<Child>,
    started: Option<Instant>,
    /// With BIRD: the addresses that were put on the interface, and since when others wait.
    put: Vec<IpAddr>,
    waiting: BTreeMap<IpAddr, Instant>,
}

/// Moves addresses until SIGTERM or SIGINT.
pub(crate) fn run(settings: &Settings) -> anyhow::Result<()> {
    let addresses = settings.addresses.clone();
    let addresses = addresses.context("the configuration has no [addresses]: nothing to do")?;
    for family in ["ipv4", "ipv6"] {
        let path = format!("/proc/sys/net/{family}/ip_nonlocal_bind");
        let is_set = std::fs::read_to_string(&path).is_ok_and(|text| text.trim() == "1");
        ensure!(!is_set, "{path} is 1, which hides where an address is: set it to 0 (sysctl)");
    }
    if addresses.by == By::Keepalived {
        program("keepalived")?;
    } else {
        program("ip")?;
    }
    let (socket, who) = (addresses.socket.clone(), settings.who());
    let mover = Arc::new(Mover {
        settings: addresses,
        state: Mutex::default(),
        sequence: AtomicU32::default(),
    });
    let looking = Arc::clone(&mover);
    std::thread::spawn(move || {
        loop {
            looking.look();
            std::thread::sleep(LOOK_EVERY);
        }
    });
    let answered = answer_at(&socket, &who, Arc::clone(&mover));
    mover.leave();
    answered
}

/// A program's path; PATH is not asked.
fn program(name: &str) -> anyhow::Result<PathBuf> {
    let found = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    let package = if name == "ip" { "iproute2" } else { name };
    found
        .into_iter()
        .find(|path| path.is_file())
        .with_context(|| format!("{name} is not installed: install the package {package}"))
}

impl Answerer for Mover {
    fn answer(&self, request: Request) -> Result<Answer, String> {
        match request {
            Request::Addresses { wanted } => self.take(wanted),
            Request::Held => Ok(held(self.state().wanted.keys())),
            Request::Tickle { clients } => self.tickle(&clients),
            Request::Drives
            | Request::Trim { .. }
            | Request::Health
            | Request::Routes
            | Request::RoutesPart { .. } => Err(server::ELSEWHERE.to_owned()),
        }
    }
}

impl Mover {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, wanted: Vec<(IpAddr, u8)>) -> Result<Answer, String> {
        if self.settings.by == By::Keepalived {
            check_routers(wanted.iter().map(|(address, _)| *address))?;
        }
        if wanted.iter().any(|(_, priority)| !(1..=254).contains(priority)) {
            return Err("priorities are 1 to 254".to_owned());
        }
        let is_allowed = |at: &IpAddr| self.settings.within.iter().any(|range| range.contains(at));
        if let Some((address, _)) = wanted.iter().find(|(address, _)| !is_allowed(address)) {
            return Err(format!("{address} is in none of the ranges of [addresses] within"));
        }
        let mut state = self.state();
        state.told = Some(Instant::now());
        let wanted: BTreeMap<IpAddr, u8> = wanted.into_iter().collect();
        self.want(&mut state, wanted)?;
        // After the change: what was put on the interface is here.
        Ok(held(state.wanted.keys()))
    }

    /// Puts the addresses and their priorities in force. What failed is tried again whenever it is
    /// asked for again.
    fn want(&self, state: &mut State, wanted: BTreeMap<IpAddr, u8>) -> Result<(), String> {
        if state.wanted == wanted {
            return Ok(());
        }
        let moved = match self.settings.by {
            By::Keepalived => self.tell_keepalived(state, &wanted),
            By::Bird => self.put_on_interface(state, &wanted),
        };
        moved.map_err(|error| format!("{error:#}"))?;
        state.wanted = wanted;
        Ok(())
    }

    fn tell_keepalived(
        &self,
        state: &mut State,
        wanted: &BTreeMap<IpAddr, u8>,
    ) -> anyhow::Result<()> {
        let folder = self.folder();
        let mut written = Ok(());
        for (address, priority) in wanted {
            if state.wanted.get(address) != Some(priority) {
                let path = folder.join(format!("priority-{}", router(*address)));
                let result = std::fs::write(&path, format!("{}\n", priority - AWAY))
                    .with_context(|| format!("cannot write {}", path.display()));
                written = written.and(result);
            }
        }
        written?;
        if state.wanted.keys().eq(wanted.keys()) && state.keepalived.is_some() {
            return Ok(());
        }
        let path = folder.join("keepalived.conf");
        let text = keepalived(&self.settings, wanted.keys(), folder);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        match &state.keepalived {
            Some(child) => {
                let pid = rustix::process::Pid::from_child(child);
                rustix::process::kill_process(pid, rustix::process::Signal::HUP)
                    .context("cannot tell keepalived of its new configuration")
            }
            None => self.start_keepalived(state),
        }
    }

    fn start_keepalived(&self, state: &mut State) -> anyhow::Result<()> {
        if state.started.is_some_and(|at| at.elapsed() < START_EVERY) {
            return Ok(());
        }
        state.started = Some(Instant::now());
        let folder = self.folder();
        let mut command = Command::new(program("keepalived")?);
        command.args(["--dont-fork", "--log-console", "--vrrp"]);
        command.arg("--use-file").arg(folder.join("keepalived.conf"));
        command.arg("--pid").arg(folder.join("keepalived.pid"));
        command.arg("--vrrp_pid").arg(folder.join("vrrp.pid"));
        command.env_clear().env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null());
        state.keepalived = Some(command.spawn().context("cannot start keepalived")?);
        tracing::info!("keepalived started");
        Ok(())
    }

    fn put_on_interface(
        &self,
        state: &mut State,
        wanted: &BTreeMap<IpAddr, u8>,
    ) -> anyhow::Result<()> {
        state.waiting.retain(|address, _| wanted.get(address) == Some(&WAITS_MAX));
        for (address, _) in wanted.iter().filter(|(_, priority)| **priority == WAITS_MAX) {
            state.waiting.entry(*address).or_insert_with(Instant::now);
        }
        let waiting = state.waiting.clone();
        let has_waited =
            |address: &IpAddr| waiting.get(address).is_some_and(|at| WAIT_MAX <= at.elapsed());
        let is_wanted = |address: &IpAddr| {
            let priority = wanted.get(address).copied().unwrap_or(AWAY);
            WAITS_MAX < priority || has_waited(address)
        };
        let (stay, go): (Vec<IpAddr>, Vec<IpAddr>) =
            state.put.drain(..).partition(|address| is_wanted(address));
        state.put = stay;
        let mut moved = Ok(());
        for address in go {
            let gone = self.ip("del", address);
            moved = moved.and(gone);
        }
        for address in wanted.keys().filter(|address| is_wanted(address)) {
            if !state.put.contains(address) {
                match self.ip("replace", *address) {
                    Ok(()) => state.put.push(*address),
                    Err(error) => moved = moved.and(Err(error)),
                }
            }
        }
        moved
    }

    fn ip(&self, verb: &str, address: IpAddr) -> anyhow::Result<()> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let mut command = Command::new(program("ip")?);
        command.args(["address", verb, &format!("{address}/{bits}")]);
        command.args(["dev", &self.settings.interface]).env_clear().stdin(Stdio::null());
        if address.is_ipv6() && verb != "del" {
            command.arg("nodad");
        }
        let output = command.output().context("cannot start ip")?;
        let said = String::from_utf8_lossy(&output.stderr);
        // What was taken away meanwhile is away.
        if !output.status.success() && verb != "del" {
            anyhow::bail!("ip address {verb} {address}: {}", said.trim());
        }
        tracing::info!(%address, "{}", if verb == "del" { "taken off" } else { "put on" });
        Ok(())
    }

    /// Clients of addresses that this machine has, and nobody else's.
    fn tickle(
        &self,
        clients: &[(std::net::SocketAddr, std::net::SocketAddr)],
    ) -> Result<Answer, String> {
        if TICKLES_MAX < clients.len() {
            return Err(format!("tickle at most {TICKLES_MAX} clients at a time"));
        }
        if !self.settings.tickle {
            return Ok(Answer::Tickled(0));
        }
        let wanted = self.state().wanted.clone();
        let sequence = self.sequence.fetch_add(0x5555_5555, Ordering::Relaxed);
        let mut ticklers: BTreeMap<IpAddr, Option<Tickler>> = BTreeMap::new();
        let mut sent = 0;
        for (at, client) in clients {
            // No longer one of the site's, or never: the others are served.
            if !wanted.contains_key(&at.ip()) || at.is_ipv4() != client.is_ipv4() {
                continue;
            }
            let tickler = ticklers.entry(at.ip()).or_insert_with(|| {
                let opened = is_local(at.ip()).then(|| Tickler::open(at.ip()));
                opened.transpose().unwrap_or_else(|error| {
                    tracing::warn!(%error, address = %at.ip(), "clients cannot be tickled");
                    None
                })
            });
            let Some(tickler) = tickler else { continue };
            match tickler.tickle(at.port(), *client, sequence) {
                Ok(()) => sent += 1,
                Err(error) => tracing::debug!(%error, "a client was not tickled"),
            }
        }
        Ok(Answer::Tickled(sent))
    }

    /// What happened without anybody saying so.
    fn look(&self) {
        let mut state = self.state();
        if state.told.is_some_and(|at| SILENT <= at.elapsed()) {
            tracing::warn!("the appliance is silent: this machine gives its addresses away");
            let away = state.wanted.keys().map(|address| (*address, AWAY)).collect();
            // Tried again in a second.
            state.told = self.want(&mut state, away).err().map(|error| {
                tracing::error!(error, "cannot give addresses away");
                Instant::now()
            });
        }
        if state.waiting.values().any(|at| WAIT_MAX <= at.elapsed()) {
            let wanted = state.wanted.clone();
            if let Err(error) = self.put_on_interface(&mut state, &wanted) {
                tracing::error!(error = format!("{error:#}"), "cannot take an address");
            }
        }
        let ended = state.keepalived.as_mut().and_then(|child| child.try_wait().ok().flatten());
        if let Some(status) = ended {
            tracing::error!(%status, "keepalived ended; it is started again");
            state.keepalived = None;
        }
        let is_missing = self.settings.by == By::Keepalived
            && state.keepalived.is_none()
            && !state.wanted.is_empty();
        if is_missing && let Err(error) = self.start_keepalived(&mut state) {
            tracing::error!(error = format!("{error:#}"), "no address moves");
        }
    }

    /// Gives all addresses away: keepalived does when it is asked to end.
    fn leave(&self) {
        let mut state = self.state();
        if let Some(child) = &mut state.keepalived {
            let pid = rustix::process::Pid::from_child(child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = child.wait();
        }
        for address in std::mem::take(&mut state.put) {
            let _ = self.ip("del", address);
        }
    }

    fn folder(&self) -> &Path {
        self.settings.socket.parent().unwrap_or_else(|| Path::new("/"))
    }
}

/// The number of an address's virtual router: its last byte. So all machines have the same one,
/// whatever other addresses they know of, and it never changes. IPv4 and IPv6 number apart (RFC
/// 9568 section 5.2.3).
fn number(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    }
}

/// The name of an address's virtual router in keepalived's files.
fn router(address: IpAddr) -> String {
    let family = if address.is_ipv4() { 4 } else { 6 };
    format!("v{family}_{}", number(address))
}

fn check_routers(addresses: impl Iterator<Item = IpAddr>) -> Result<(), String> {
    let mut known: BTreeMap<String, IpAddr> = BTreeMap::new();
    for address in addresses {
        if number(address) == 0 {
            return Err(format!("{address} ends with 0, which is no virtual router's number"));
        }
        match known.insert(router(address), address) {
            Some(other) if other != address => {
                return Err(format!(
                    "{other} and {address} end with the same byte, which is the number of their \
                     virtual router: give one of them another address"
                ));
            }
            Some(_) | None => {}
        }
    }
    Ok(())
}

fn held<'a>(addresses: impl Iterator<Item = &'a IpAddr>) -> Answer {
    Answer::Held(addresses.copied().filter(|address| is_local(*address)).collect())
}

/// An address of this machine: one can bind to it. (`ip_nonlocal_bind` is looked at first.)
fn is_local(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// keepalived's configuration: a virtual router for each address, with priority 1 and the number in
/// its file on top. When two had an address and hear each other again, the lower one says so
/// before it leaves (`higher_prio_send_advert`), so that the other tells the segment where the
/// address is: without that, neighbours sent to the one that had left, for ten seconds.
fn keepalived<'a>(
    settings: &Addresses,
    addresses: impl Iterator<Item = &'a IpAddr>,
    folder: &Path,
) -> String {
    let interface = &settings.interface;
    let mut text = String::from("global_defs {\n  vrrp_version 3\n}\n");
    for address in addresses {
        let (router, number) = (router(*address), number(*address));
        let file = folder.join(format!("priority-{router}"));
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let native = if address.is_ipv6() { "  native_ipv6\n" } else { "" };
        text.push_str(&format!(
            "track_file priority_{router} {{\n  file \"{}\"\n  weight 1\n}}\n\
             vrrp_instance nearcast_{router} {{\n  state BACKUP\n  interface {interface}\n\
             {native}  virtual_router_id {number}\n  priority {AWAY}\n  \
             advert_int {ADVERTISE_EVERY}\n  garp_master_delay 1\n  \
             garp_lower_prio_delay 1\n  garp_lower_prio_repeat 3\n  \
             higher_prio_send_advert true\n  track_file {{\n    \
             priority_{router}\n  }}\n  virtual_ipaddress {{\n    \
             {address}/{bits} dev {interface}\n  }}\n}}\n",
            file.display()
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mover(folder: &Path) -> Mover {
        let text = format!(
            "[drives]\npaths = [\"/d\"]\n[addresses]\nby = \"keepalived\"\n\
             within = [\"192.0.2.0/24\", \"2001:db8::/32\"]\n\
             interface = \"eth0\"\nsocket = \"{}/agent.sock\"\n",
            folder.display()
        );
        std::fs::write(folder.join("agent.toml"), text).unwrap();
        let settings = Settings::load(&folder.join("agent.toml")).unwrap().addresses.unwrap();
        Mover { settings, state: Mutex::default(), sequence: AtomicU32::default() }
    }

    fn wanting(folder: &Path, wanted: &[(&str, u8)]) -> Mover {
        let mover = mover(folder);
        let wanted = wanted.iter().map(|(at, priority)| (at.parse().unwrap(), *priority));
        mover.state().wanted = wanted.collect();
        mover
    }

    #[test]
    fn clients_are_tickled_by_wanted_addresses_of_this_machine_only() {
        let dir = tempfile::tempdir().unwrap();
        let mover = wanting(dir.path(), &[("192.0.2.1", 200)]);
        let client = "127.0.0.1:5000".parse().unwrap();
        let ask = |at: &str, client| mover.tickle(&[(at.parse().unwrap(), client)]);
        assert_eq!(ask("127.0.0.1:443", client), Ok(Answer::Tickled(0)), "nobody's");
        assert_eq!(ask("192.0.2.1:443", client), Ok(Answer::Tickled(0)), "it is elsewhere");
        let other = ask("192.0.2.1:443", "[::1]:5000".parse().unwrap());
        assert_eq!(other, Ok(Answer::Tickled(0)), "another family");
        let many = vec![("192.0.2.1:443".parse().unwrap(), client); TICKLES_MAX + 1];
        assert!(mover.tickle(&many).unwrap_err().contains("at most"));
    }

    #[test]
    fn a_machine_whose_appliance_is_silent_gives_its_addresses_away() {
        let dir = tempfile::tempdir().unwrap();
        let mover = wanting(dir.path(), &[("192.0.2.1", 200), ("192.0.2.2", 150)]);
        let priority = |router: u8| {
            std::fs::read_to_string(dir.path().join(format!("priority-v4_{router}"))).unwrap()
        };
        // In keepalived's place.
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        mover.state().keepalived = Some(child);
        mover.state().told = Some(Instant::now());
        mover.look();
        assert!(mover.state().told.is_some(), "it has just spoken");
        mover.state().told = Instant::now().checked_sub(SILENT);
        mover.look();
        assert_eq!([priority(1), priority(2)], ["0\n", "0\n"]);
        // Keepalived ends, and is started again, or that it cannot be is said.
        let mut child = mover.state().keepalived.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn each_address_has_a_virtual_router_and_none_is_taken_beyond_the_ranges() {
        let dir = tempfile::tempdir().unwrap();
        let mover = mover(dir.path());
        let addresses = ["192.0.2.1", "2001:db8::1"].map(|at| at.parse().unwrap());
        let text = keepalived(&mover.settings, addresses.iter(), dir.path());
        assert_eq!(text.matches("virtual_router_id 1\n").count(), 2, "one of each family");
        for line in [
            "vrrp_instance nearcast_v4_1",
            "vrrp_instance nearcast_v6_1",
            "192.0.2.1/32 dev eth0",
            "2001:db8::1/128 dev eth0",
            "native_ipv6",
            &format!("file \"{}/priority-v6_1\"", dir.path().display()),
        ] {
            assert_eq!(text.matches(line).count(), 1, "{line} in {text}");
        }
        let taken = |wanted: &[&str]| {
            mover.take(wanted.iter().map(|at| (at.parse().unwrap(), 1)).collect()).unwrap_err()
        };
        assert!(taken(&["192.0.2.0"]).contains("ends with 0"));
        let alike = taken(&["2001:db8::1:7", "192.0.2.7", "2001:db8::2:7"]);
        assert!(
            alike.contains("2001:db8::1:7 and 2001:db8::2:7 end with the same byte"),
            "{alike}"
        );
        let router = mover.take(vec![("198.51.100.1".parse().unwrap(), 200)]).unwrap_err();
        assert!(router.contains("in none of the ranges"), "{router}");
        assert!(mover.take(vec![(addresses[0], 255)]).unwrap_err().contains("1 to 254"));
    }
}
