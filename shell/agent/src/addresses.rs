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

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use model::topology::router_number;
use wire::v1::agent::{Answer, Held, Request, TICKLES_MAX};

use crate::config::{Addresses, By, Settings};
use crate::interface::{Interface, LeftOut, WITHIN};
use crate::programs::{FOLDERS, Programs};
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
    /// With BIRD.
    interface: Interface,
    state: Mutex<State>,
    /// Of the next batch of tickles: another in each round, so that a client whose window one is in
    /// is out of order for the next.
    sequence: AtomicU32,
}

#[derive(Default)]
struct State {
    /// The last word of the appliance, or that it has none: in force, as far as that went.
    wanted: BTreeMap<IpAddr, u8>,
    told: Option<Instant>,
    /// With keepalived: what its files say. Of a priority, or of the addresses, nothing while they
    /// may say something else.
    written: BTreeMap<IpAddr, u8>,
    configured: Option<BTreeSet<IpAddr>>,
    keepalived: Option<Child>,
    started: Option<Instant>,
    /// With BIRD: the addresses of the ranges that the interface has, if that is known, and since
    /// when others wait.
    put: Option<BTreeSet<IpAddr>>,
    waiting: BTreeMap<IpAddr, Instant>,
    /// Those of the last word that are not in force, and why, so that it is logged once.
    left_out: LeftOut,
    /// It has given its addresses away for good.
    has_left: bool,
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
    let programs = Programs::new(FOLDERS.map(PathBuf::from).into());
    programs.installed(if addresses.by == By::Keepalived { "keepalived" } else { "ip" })?;
    let (socket, who) = (addresses.socket.clone(), settings.who());
    let mover = Arc::new(Mover::new(addresses, programs));
    let looking = Arc::clone(&mover);
    std::thread::spawn(move || {
        loop {
            looking.look();
            std::thread::sleep(LOOK_EVERY);
        }
    });
    // Where it cannot answer at all, another agent may: the addresses are that one's.
    answer_at(&socket, &who, Arc::clone(&mover))?;
    mover.leave();
    Ok(())
}

impl Answerer for Mover {
    fn answer(&self, request: Request) -> Result<Answer, String> {
        match request {
            Request::Addresses { wanted } => self.take(wanted),
            Request::Held => Ok(Answer::Held(self.held(&self.state(), LeftOut::new()))),
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
    /// Its appliance has a second to say what it wants: addresses that an agent before left are
    /// taken off then.
    fn new(settings: Addresses, programs: Programs) -> Self {
        let (name, within) = (settings.interface.clone(), settings.within.clone());
        let state = State {
            told: Some(Instant::now()),
            configured: Some(BTreeSet::new()),
            ..State::default()
        };
        Self {
            settings,
            interface: Interface { name, within, patience: WITHIN, programs },
            state: Mutex::new(state),
            sequence: AtomicU32::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, wanted: Vec<(IpAddr, u8)>) -> Result<Answer, String> {
        if wanted.iter().any(|(_, priority)| !(1..=254).contains(priority)) {
            return Err("priorities are 1 to 254".to_owned());
        }
        let (wanted, mut left_out) = self.allowed(wanted);
        let mut state = self.state();
        if state.has_left {
            return Err("this agent ends, and has given its addresses away".to_owned());
        }
        let moved = self.want(&mut state, wanted);
        // Now and not before: a change may take as long as a silence, and whoever waits for it to
        // end is not silent.
        state.told = Some(Instant::now());
        left_out.extend(moved?);
        if state.left_out != left_out {
            for (address, why) in &left_out {
                tracing::warn!("{address} is left out: {why}");
            }
            state.left_out.clone_from(&left_out);
        }
        // After the change: what was put on the interface is here.
        Ok(Answer::Held(self.held(&state, left_out)))
    }

    /// Those of the last word that are here, also if it could not be put in force.
    fn held(&self, state: &State, left_out: LeftOut) -> Held {
        let here = state.wanted.keys().copied().filter(|address| is_local(*address)).collect();
        Held { here, left_out, is_elected: self.settings.by == By::Keepalived }
    }

    /// Those that this machine may have, and the others. Of two with one virtual router the first
    /// has it: the order is the same for all machines of the site.
    fn allowed(&self, wanted: Vec<(IpAddr, u8)>) -> (BTreeMap<IpAddr, u8>, LeftOut) {
        let (mut allowed, mut left_out) = (BTreeMap::new(), LeftOut::new());
        let mut routers = BTreeMap::new();
        for (address, priority) in wanted {
            match self.refusal(address, &mut routers) {
                Some(why) => left_out.push((address, why)),
                None => _ = allowed.insert(address, priority),
            }
        }
        (allowed, left_out)
    }

    fn refusal(&self, at: IpAddr, routers: &mut BTreeMap<String, IpAddr>) -> Option<String> {
        if !self.settings.within.iter().any(|range| range.contains(&at)) {
            let why = "it is in none of the ranges of [addresses] within: add it to agent.toml of \
                       this machine, and restart nearcast-addresses";
            return Some(why.to_owned());
        }
        if self.settings.by == By::Bird {
            return None;
        }
        if router_number(at) == 0 {
            let why = "it ends with 0, which is no virtual router's number: give another address";
            return Some(why.to_owned());
        }
        let first = *routers.entry(router(at)).or_insert(at);
        (first != at).then(|| {
            format!(
                "it ends with the same byte as {first}, which is the number of their virtual \
                 router: give one of them another address"
            )
        })
    }

    /// Puts the addresses and their priorities in force. What failed is tried again whenever it is
    /// asked for again.
    fn want(&self, state: &mut State, wanted: BTreeMap<IpAddr, u8>) -> Result<LeftOut, String> {
        state.wanted = wanted;
        let moved = match self.settings.by {
            By::Keepalived => self.tell_keepalived(state).map(|()| LeftOut::new()),
            By::Bird => self.put_on_interface(state),
        };
        moved.map_err(|error| format!("{error:#}"))
    }

    fn tell_keepalived(&self, state: &mut State) -> anyhow::Result<()> {
        let State { wanted, written, .. } = state;
        let folder = self.folder();
        written.retain(|address, priority| wanted.get(address) == Some(priority));
        let mut all = Ok(());
        for (address, priority) in &*wanted {
            if !written.contains_key(address) {
                let path = folder.join(format!("priority-{}", router(*address)));
                match std::fs::write(&path, format!("{}\n", priority - AWAY)) {
                    Ok(()) => _ = written.insert(*address, *priority),
                    Err(error) => {
                        all =
                            Err(error).with_context(|| format!("cannot write {}", path.display()));
                    }
                }
            }
        }
        all?;
        let addresses: BTreeSet<IpAddr> = wanted.keys().copied().collect();
        // One that ended is started again by `look`.
        if state.configured.as_ref() == Some(&addresses) {
            return Ok(());
        }
        state.configured = None;
        let path = folder.join("keepalived.conf");
        let text = keepalived(&self.settings, addresses.iter(), folder);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        match &state.keepalived {
            Some(child) => {
                let pid = rustix::process::Pid::from_child(child);
                rustix::process::kill_process(pid, rustix::process::Signal::HUP)
                    .context("cannot tell keepalived of its new configuration")?;
            }
            None => self.start_keepalived(state)?,
        }
        state.configured = Some(addresses);
        Ok(())
    }

    fn start_keepalived(&self, state: &mut State) -> anyhow::Result<()> {
        if state.started.is_some_and(|at| at.elapsed() < START_EVERY) {
            return Ok(());
        }
        state.started = Some(Instant::now());
        let folder = self.folder();
        let mut command = Command::new(self.interface.programs.installed("keepalived")?);
        command.args(["--dont-fork", "--log-console", "--vrrp"]);
        command.arg("--use-file").arg(folder.join("keepalived.conf"));
        command.arg("--pid").arg(folder.join("keepalived.pid"));
        command.arg("--vrrp_pid").arg(folder.join("vrrp.pid"));
        command.env_clear().env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null());
        state.keepalived = Some(command.spawn().context("cannot start keepalived")?);
        tracing::info!("keepalived started");
        Ok(())
    }

    fn put_on_interface(&self, state: &mut State) -> anyhow::Result<LeftOut> {
        let State { wanted, waiting, .. } = state;
        waiting.retain(|address, _| wanted.get(address) == Some(&WAITS_MAX));
        for (address, _) in wanted.iter().filter(|(_, priority)| **priority == WAITS_MAX) {
            waiting.entry(*address).or_insert_with(Instant::now);
        }
        let has_waited =
            |address: &IpAddr| waiting.get(address).is_some_and(|at| WAIT_MAX <= at.elapsed());
        let is_right =
            |(address, priority): &(&IpAddr, &u8)| WAITS_MAX < **priority || has_waited(address);
        let right: BTreeSet<IpAddr> =
            wanted.iter().filter(is_right).map(|(address, _)| *address).collect();
        // One that somebody took off is put on again.
        if state.put.as_ref() == Some(&right) && right.iter().all(|address| is_local(*address)) {
            return Ok(LeftOut::new());
        }
        state.put = None;
        let left_out = self.interface.set(&right)?;
        state.put = left_out.is_empty().then_some(right);
        Ok(left_out)
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
        if state.has_left {
            return;
        }
        if state.told.is_some_and(|at| SILENT <= at.elapsed()) {
            if !state.wanted.is_empty() {
                tracing::warn!("the appliance is silent: this machine gives its addresses away");
            }
            let away = state.wanted.keys().map(|address| (*address, AWAY)).collect();
            // Tried again in a second.
            state.told = self.want(&mut state, away).err().map(|error| {
                tracing::error!(error, "cannot give addresses away");
                Instant::now()
            });
        }
        let has_waited = state.waiting.values().any(|at| WAIT_MAX <= at.elapsed());
        if has_waited && let Err(error) = self.put_on_interface(&mut state) {
            tracing::error!(error = format!("{error:#}"), "cannot take an address");
        }
        let ended = state.keepalived.as_mut().and_then(|child| child.try_wait().ok().flatten());
        if let Some(status) = ended {
            tracing::error!(%status, "keepalived ended; it is started again");
            state.keepalived = None;
        }
        let is_configured = state.configured.as_ref().is_some_and(|of| !of.is_empty());
        let is_missing = state.keepalived.is_none() && is_configured;
        if is_missing && let Err(error) = self.start_keepalived(&mut state) {
            tracing::error!(error = format!("{error:#}"), "no address moves");
        }
    }

    /// Gives all addresses away: keepalived does when it is asked to end.
    fn leave(&self) {
        let mut state = self.state();
        state.has_left = true;
        if let Some(child) = &mut state.keepalived {
            let pid = rustix::process::Pid::from_child(child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = child.wait();
        }
        if self.settings.by == By::Bird
            && let Err(error) = self.interface.set(&BTreeSet::new())
        {
            tracing::error!(error = format!("{error:#}"), "cannot give addresses away");
        }
    }

    fn folder(&self) -> &Path {
        self.settings.socket.parent().unwrap_or_else(|| Path::new("/"))
    }
}

/// The name of an address's virtual router in keepalived's files.
fn router(address: IpAddr) -> String {
    let family = if address.is_ipv4() { 4 } else { 6 };
    format!("v{family}_{}", router_number(address))
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
        let (router, number) = (router(*address), router_number(*address));
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
    use std::io::Read as _;

    use super::*;
    use crate::interface::tests::{fail, interface, on};

    fn mover(folder: &Path) -> Mover {
        mover_by("keepalived", folder)
    }

    fn mover_by(by: &str, folder: &Path) -> Mover {
        let text = format!(
            "[drives]\npaths = [\"/d\"]\n[addresses]\nby = \"{by}\"\n\
             within = [\"192.0.2.0/24\", \"2001:db8::/32\"]\n\
             interface = \"lo\"\nsocket = \"{}/agent.sock\"\n",
            folder.display()
        );
        std::fs::write(folder.join("agent.toml"), text).unwrap();
        let settings = Settings::load(&folder.join("agent.toml")).unwrap().addresses.unwrap();
        Mover::new(settings, Programs::new(vec![folder.to_owned()]))
    }

    fn take(mover: &Mover, wanted: &[(&str, u8)]) -> Result<Vec<(String, String)>, String> {
        let wanted = wanted.iter().map(|(at, priority)| (at.parse().unwrap(), *priority));
        let Answer::Held(Held { left_out, is_elected, .. }) = mover.take(wanted.collect())? else {
            panic!("another answer");
        };
        assert_eq!(is_elected, mover.settings.by == By::Keepalived);
        Ok(left_out.into_iter().map(|(address, why)| (address.to_string(), why)).collect())
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
        start_keepalived(&mover);
        mover.state().told = Some(Instant::now());
        mover.look();
        assert!(mover.state().told.is_some(), "it has just spoken");
        mover.state().told = Instant::now().checked_sub(SILENT);
        mover.look();
        assert_eq!([priority(1), priority(2)], ["0\n", "0\n"]);
        end_keepalived(&mover);
    }

    /// A process in the place of keepalived: it does not end either when it is told of another
    /// configuration.
    fn start_keepalived(mover: &Mover) {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' HUP; echo; exec sleep 60"]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let is_ready = child.stdout.take().unwrap().read(&mut [0]).unwrap();
        assert_eq!(is_ready, 1);
        mover.state().keepalived = Some(child);
    }

    fn end_keepalived(mover: &Mover) {
        let mut child = mover.state().keepalived.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_priority_that_could_not_be_written_is_written_when_it_is_wanted_again() {
        let dir = tempfile::tempdir().unwrap();
        let mover = mover(dir.path());
        start_keepalived(&mover);
        let file = |router: u8| dir.path().join(format!("priority-v4_{router}"));
        let (whole, away) =
            ([("192.0.2.1", 200), ("192.0.2.2", 150)], [("192.0.2.1", AWAY), ("192.0.2.2", AWAY)]);
        assert!(take(&mover, &whole).unwrap().is_empty());
        std::fs::remove_file(file(2)).unwrap();
        std::fs::create_dir(file(2)).unwrap();
        assert!(take(&mover, &away).unwrap_err().contains("cannot write"));
        assert_eq!(std::fs::read_to_string(file(1)).unwrap(), "0\n", "the rest was done");
        assert!(take(&mover, &whole).unwrap_err().contains("cannot write"));
        assert_eq!(std::fs::read_to_string(file(1)).unwrap(), "199\n");
        std::fs::remove_dir(file(2)).unwrap();
        assert!(take(&mover, &whole).unwrap().is_empty());
        assert_eq!(std::fs::read_to_string(file(2)).unwrap(), "149\n");
        end_keepalived(&mover);
    }

    #[test]
    fn an_appliance_that_waited_for_a_slow_change_has_not_been_silent() {
        let dir = tempfile::tempdir().unwrap();
        let _ = interface(dir.path(), &[], &[]);
        fail(dir.path(), "replace is slow");
        let mover = mover_by("bird", dir.path());
        let began = Instant::now();
        assert!(take(&mover, &[("192.0.2.1", 200)]).unwrap().is_empty());
        let told = mover.state().told.unwrap();
        assert!(Duration::from_millis(200) <= told - began, "{:?}", told - began);
        mover.look();
        assert_eq!(on(dir.path()), ["192.0.2.1/32"]);
    }

    #[test]
    fn with_bird_it_is_known_what_is_here_though_another_address_cannot_be_taken_off() {
        let dir = tempfile::tempdir().unwrap();
        let _ = interface(dir.path(), &[], &["192.0.2.1/32"]);
        let mut mover = mover_by("bird", dir.path());
        mover.settings.within.push("127.0.0.0/8".parse().unwrap());
        fail(dir.path(), "del");
        let refused = take(&mover, &[("127.0.0.9", 200), ("192.0.2.1", 1)]).unwrap_err();
        assert!(refused.contains("still on"), "{refused}");
        let here = vec!["127.0.0.9".parse().unwrap()];
        let held = Held { here, ..Held::default() };
        assert_eq!(mover.answer(Request::Held), Ok(Answer::Held(held)));
    }

    #[test]
    fn each_address_has_a_virtual_router_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let mover = mover(dir.path());
        let addresses = ["192.0.2.1", "2001:db8::1"].map(|at| at.parse().unwrap());
        let text = keepalived(&mover.settings, addresses.iter(), dir.path());
        assert_eq!(text.matches("virtual_router_id 1\n").count(), 2, "one of each family");
        for line in [
            "vrrp_instance nearcast_v4_1",
            "vrrp_instance nearcast_v6_1",
            "192.0.2.1/32 dev lo",
            "2001:db8::1/128 dev lo",
            "native_ipv6",
            &format!("file \"{}/priority-v6_1\"", dir.path().display()),
        ] {
            assert_eq!(text.matches(line).count(), 1, "{line} in {text}");
        }
        assert!(mover.take(vec![(addresses[0], 255)]).unwrap_err().contains("1 to 254"));
    }

    #[test]
    fn an_address_that_a_machine_may_not_have_takes_nothing_from_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let keepalived = mover(dir.path());
        start_keepalived(&keepalived);
        keepalived.state().told = None;
        let wanted = [
            ("192.0.2.0", 200),
            ("2001:db8::1:7", 200),
            ("192.0.2.7", 150),
            ("2001:db8::2:7", 150),
            ("198.51.100.1", 150),
        ];
        let left_out = take(&keepalived, &wanted).unwrap();
        for ((address, why), (wrong, what)) in left_out.iter().zip([
            ("192.0.2.0", "ends with 0"),
            ("2001:db8::2:7", "the same byte as 2001:db8::1:7"),
            ("198.51.100.1", "in none of the ranges"),
        ]) {
            assert!(address == wrong && why.contains(what), "{address} {why}");
        }
        assert_eq!(left_out.len(), 3);
        assert!(keepalived.state().told.is_some(), "it has spoken");
        let path = dir.path().join("keepalived.conf");
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text.matches("vrrp_instance").count(), 2, "{text}");
        assert!(text.contains("2001:db8::1:7/128") && text.contains("192.0.2.7/32"), "{text}");
        end_keepalived(&keepalived);

        let _ = interface(dir.path(), &[], &[]);
        let bird = mover_by("bird", dir.path());
        let left_out = take(&bird, &[("192.0.2.7", 200), ("198.51.100.1", 150)]).unwrap();
        assert_eq!((left_out.len(), &*left_out[0].0), (1, "198.51.100.1"));
        assert_eq!(on(dir.path()), ["192.0.2.7/32"]);
        bird.look();
        assert_eq!(on(dir.path()), ["192.0.2.7/32"], "and it stays");
        let once = take(&bird, &[("192.0.2.7", 200), ("192.0.2.0", 150)]).unwrap();
        assert!(once.is_empty(), "a route has no number: {once:?}");
    }

    #[test]
    fn with_bird_no_address_is_forgotten_before_it_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let _ = interface(dir.path(), &[], &["192.0.2.1/32", "192.0.2.2/32"]);
        let mover = mover_by("bird", dir.path());
        mover.look();
        assert_eq!(on(dir.path()).len(), 2, "its appliance has a second to speak");
        assert!(take(&mover, &[("192.0.2.1", 200), ("192.0.2.2", 1)]).unwrap().is_empty());
        assert_eq!(on(dir.path()), ["192.0.2.1/32"], "an agent before this one left it");
        let program = dir.path().join("ip");
        std::fs::remove_file(&program).unwrap();
        let away = [("192.0.2.1", 1)];
        assert!(take(&mover, &away).unwrap_err().contains("ip is not installed"));
        let _ = interface(dir.path(), &[], &["192.0.2.1/32"]);
        fail(dir.path(), "del");
        assert!(take(&mover, &away).unwrap_err().contains("it fails"));
        fail(dir.path(), "");
        assert!(take(&mover, &away).unwrap().is_empty());
        assert!(on(dir.path()).is_empty());

        // Nobody says anything to the next one.
        let _ = interface(dir.path(), &[], &["192.0.2.1/32"]);
        let next = mover_by("bird", dir.path());
        next.state().told = Instant::now().checked_sub(SILENT);
        next.look();
        assert!(on(dir.path()).is_empty());
        // It ends while its appliance speaks.
        assert!(take(&next, &[("192.0.2.1", 200)]).unwrap().is_empty());
        next.leave();
        assert!(take(&next, &[("192.0.2.1", 200)]).unwrap_err().contains("this agent ends"));
        assert!(on(dir.path()).is_empty());
    }
}
