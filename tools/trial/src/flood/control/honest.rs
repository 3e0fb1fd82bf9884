//! Those who should be served: players with a service behind them, an operator, appliances.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use identity::credentials::Credentials;
use identity::enrol::{self, Address};
use rig::fleet::{Fleet, Role};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use serde::Serialize;
use serde_json::{Value, json};
use wire::v1::report::{Inventory, ReportReply};

use crate::storm;

/// All of them, and what they need.
pub(super) struct Crowd {
    pub(super) players: SocketAddr,
    asset: String,
    service: String,
    operator: String,
    members: Address,
    reporters: Vec<Credentials>,
}

/// What they got in one window.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Seen {
    /// Requests answered rightly and in time.
    pub(super) right: u64,
    pub(super) right_per_s: f64,
    /// All others that were sent, and why.
    pub(super) wrong: BTreeMap<String, u64>,
    pub(super) response_ms_p99: f64,
    pub(super) reports: u64,
    pub(super) reports_lost: u64,
}

#[derive(Default)]
struct Tally {
    millis: Vec<f64>,
    wrong: BTreeMap<String, u64>,
    reports: u64,
    reports_lost: u64,
}

/// Playbacks begin at this rate on each of the players' threads.
const PLAYBACK_EVERY: Duration = Duration::from_millis(200);
const PLAYER_THREADS: u8 = 4;
const OPERATOR_EVERY: Duration = Duration::from_millis(200);
const REPORT_EVERY: Duration = Duration::from_millis(500);
/// A player turns elsewhere after about so long.
const IN_TIME: Duration = Duration::from_secs(1);
/// Until then an appliance would be missed (`health.stale_after`).
const REPORT_IN_TIME: Duration = Duration::from_millis(1500);
const SERVICE: [u8; 4] = [127, 0, 20, 1];
const OPERATOR: [u8; 4] = [127, 0, 20, 2];

impl Crowd {
    /// Enrols the reporters, makes tokens: from then on nobody is admin by being here.
    pub(super) fn gather(fleet: &Fleet, asset: &str, reporters: u32) -> Result<Self> {
        let reporters = storm::register(fleet, reporters)?;
        let url = fleet.url(Role::Writer);
        let players = url.strip_prefix("http://").context("control's URL")?.parse()?;
        let token = |name: &str, by: Option<&str>| -> Result<String> {
            let body = json!({ "name": name, "role": name }).to_string();
            let (status, text) = ask(players, [127, 0, 0, 1], ("POST", "/v1/tokens"), by, &body)?;
            ensure!(status == 201, "no token {name}: {text}");
            let made: Value = serde_json::from_str(&text)?;
            Ok(made["token"].as_str().context("no token")?.to_owned())
        };
        let admin = token("admin", None)?;
        let members = format!("https://{}", fleet.members());
        Ok(Self {
            players,
            asset: asset.to_owned(),
            service: token("service", Some(&admin))?,
            operator: token("operator", Some(&admin))?,
            members: members.parse().map_err(anyhow::Error::msg)?,
            reporters,
        })
    }

    /// Lets all of them act for so long.
    pub(super) fn act(&self, window: Duration) -> Result<Seen> {
        let tally = Mutex::new(Tally::default());
        let began = Instant::now();
        let end = began + window;
        std::thread::scope(|scope| -> Result<()> {
            let tally = &tally;
            for thread in 0..PLAYER_THREADS {
                let from = [127, 0, 21, thread + 1];
                scope.spawn(move || {
                    paced(PLAYBACK_EVERY, began, end, || self.play(from, tally));
                });
            }
            scope.spawn(move || paced(OPERATOR_EVERY, began, end, || self.look(tally)));
            for credentials in &self.reporters {
                let agent = enrol::agent(&self.members, credentials.client_tls()?);
                scope.spawn(move || {
                    let mut sequence = 0;
                    paced(REPORT_EVERY, began, end, || {
                        sequence += 1;
                        self.report(&agent, credentials, sequence, tally);
                    });
                });
            }
            Ok(())
        })?;
        rig::stop::check()?;
        let Tally { mut millis, wrong, reports, reports_lost } =
            tally.into_inner().map_err(|_| anyhow::anyhow!("an honest one panicked"))?;
        millis.sort_unstable_by(f64::total_cmp);
        let p99 = millis.get(millis.len() * 99 / 100).copied().unwrap_or(f64::NAN);
        let right = u64::try_from(millis.len())?;
        let right_per_s = f64::from(u32::try_from(right)?) / window.as_secs_f64();
        Ok(Seen { right, right_per_s, wrong, response_ms_p99: p99, reports, reports_lost })
    }

    /// What control has counted, by the names between `nearcast_control_` and `_total`.
    pub(super) fn counters(&self) -> Result<BTreeMap<String, u64>> {
        let what = ("GET", "/metrics");
        let (status, text) = ask(self.players, OPERATOR, what, Some(&self.operator), "")?;
        ensure!(status == 200, "no metrics: {text}");
        let name = |line: &str| -> Option<(String, u64)> {
            let (name, value) = line.strip_prefix("nearcast_control_")?.split_once(' ')?;
            Some((name.strip_suffix("_total")?.to_owned(), value.parse().ok()?))
        };
        Ok(text.lines().filter_map(name).collect())
    }

    /// A service begins a playback; its player asks for the manifest and is steered once.
    fn play(&self, from: [u8; 4], tally: &Mutex<Tally>) {
        let body = json!({ "asset": self.asset }).to_string();
        let what = ("POST", "/v1/playbacks");
        let begun = self.try_one(SERVICE, what, Some(&self.service), &body, tally, |text| {
            let begun: Value = serde_json::from_str(text).ok()?;
            let path = |field: &str| Some(self.path(begun[field].as_str()?).to_owned());
            Some((path("hls_url")?, path("steering_url")?))
        });
        let Some((manifest, steering)) = begun else { return };
        let is_manifest = |text: &str| text.contains("#EXT-X-STREAM-INF").then_some(());
        self.try_one(from, ("GET", &manifest), None, "", tally, is_manifest);
        let is_steered = |text: &str| text.contains("\"PATHWAY-PRIORITY\":[\"a").then_some(());
        self.try_one(from, ("GET", &steering), None, "", tally, is_steered);
    }

    fn look(&self, tally: &Mutex<Tally>) {
        let is_fleet = |text: &str| text.contains("\"healthy\"").then_some(());
        self.try_one(OPERATOR, ("GET", "/v1/fleet"), Some(&self.operator), "", tally, is_fleet);
    }

    fn path<'a>(&self, url: &'a str) -> &'a str {
        url.strip_prefix(&format!("http://{}", self.players)).unwrap_or(url)
    }

    fn try_one<T>(
        &self,
        from: [u8; 4],
        what: (&str, &str),
        token: Option<&str>,
        body: &str,
        tally: &Mutex<Tally>,
        right: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let began = Instant::now();
        let answer = ask(self.players, from, what, token, body);
        let took = began.elapsed();
        let (found, why) = match answer {
            Ok((200, text)) => (right(&text), "another answer".to_owned()),
            Ok((status, _)) => (None, status.to_string()),
            Err(error) => (None, format!("{error:#}")),
        };
        let mut tally = tally.lock().ok()?;
        if found.is_some() && took <= IN_TIME {
            tally.millis.push(took.as_secs_f64() * 1e3);
        } else {
            let why = if found.is_some() { "late".to_owned() } else { why };
            *tally.wrong.entry(format!("{}: {why}", what.0)).or_default() += 1;
        }
        found
    }

    fn report(
        &self,
        agent: &ureq::Agent,
        credentials: &Credentials,
        sequence: u64,
        tally: &Mutex<Tally>,
    ) {
        let name = &credentials.seen().member.name;
        let url = format!("{}/v1/appliances/{name}/report", enrol::control_url(&self.members));
        let inventory = Inventory { to: 1, ..Inventory::default() };
        let mut report = storm::wire_report(inventory);
        report.sequence = sequence;
        let began = Instant::now();
        let request = agent.post(&url).config().timeout_global(Some(REPORT_IN_TIME)).build();
        let answer = request.send_json(&report);
        let good = answer.is_ok_and(|mut answer| {
            answer.status() == 200 && answer.body_mut().read_json::<ReportReply>().is_ok()
        });
        if let Ok(mut tally) = tally.lock() {
            tally.reports += 1;
            if !good || REPORT_IN_TIME < began.elapsed() {
                tally.reports_lost += 1;
            }
        }
    }
}

/// Acts by the clock; who is late does not wait, and nothing is made up for after the end.
fn paced(every: Duration, began: Instant, end: Instant, mut act: impl FnMut()) {
    let mut at = began;
    while at < end && Instant::now() < end {
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        act();
        at += every;
    }
}

/// One request on a connection of its own, from this address; its status and body.
fn ask(
    to: SocketAddr,
    from: [u8; 4],
    (method, path): (&str, &str),
    token: Option<&str>,
    body: &str,
) -> Result<(u16, String)> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddr::from((from, 0)))?;
    rustix::net::sockopt::set_socket_timeout(
        &socket,
        rustix::net::sockopt::Timeout::Send,
        Some(IN_TIME),
    )?;
    rustix::net::connect(&socket, &to).context("cannot connect to control")?;
    let mut socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(IN_TIME))?;
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {to}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n{}Connection: close\r\n\r\n{body}",
        body.len(),
        token.unwrap_or_default()
    );
    socket.write_all(head.as_bytes()).context("control takes no request")?;
    let mut text = String::new();
    socket.read_to_string(&mut text).context("control gives no whole answer")?;
    let Some((head, body)) = text.split_once("\r\n\r\n") else { bail!("no answer") };
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok((status, body.to_owned()))
}
