//! A player of the lab: its requests, what it says with them, and the network that is planted.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use rig::url::Url;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::model::{Felt, Picture, State};
use crate::outage::{self, SEGMENT, World};

/// A player loads while less than this is buffered.
const BUFFER_MAX: Duration = Duration::from_secs(8);
/// What another appliance is asked for, after one was given up, comes so late.
const LATE_AFTER_MOVE: Duration = Duration::from_millis(1_500);
/// From data to a picture: a decoder's.
const DECODES: Duration = Duration::from_millis(30);
/// How often a player looks at its clock.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Nothing is waited for so long.
const ANSWER_MAX: Duration = Duration::from_secs(30);
const BITRATE_KBPS: u64 = 394;

/// How a player speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// As hls.js: query, one buffer of video and audio.
    Hls,
    /// As Shaka: query, video and audio apart, `bs` with video only.
    Shaka,
    /// As dash.js: query, video and audio apart, `bs` with both.
    Dash,
    /// As Media3: header fields.
    Media3,
    /// As hls.js with version 2.
    Second,
    /// The same, and it sends events.
    Events,
    /// It says nothing.
    Silent,
}

/// What happens while a segment is loaded, or before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Plant {
    /// It comes so late.
    Late(Duration),
    /// It comes so much later than the buffer lasts.
    Stall(Duration),
    /// The viewer pauses first, for so long; the player loads on.
    Pause(Duration),
    /// The viewer jumps first, to what is not there.
    Jump,
    /// Another appliance is asked from here on.
    Move,
    /// It does not come; so much later than the buffer lasts, another appliance is asked.
    GiveUp(Duration),
}

/// One session of a viewer.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) number: u8,
    pub(crate) kind: Kind,
    /// By the number of the segment.
    pub(crate) plants: Vec<(usize, Plant)>,
    pub(crate) segments: usize,
}

impl Session {
    /// Its viewer's address, and network.
    pub(crate) fn address(&self) -> [u8; 4] {
        [127, 0, 1, self.number]
    }
}

/// A connection from the viewer's address.
type Connection = StreamOwned<ClientConnection, TcpStream>;

/// A player that plays.
struct Player<'a> {
    session: &'a Session,
    world: &'a World,
    tls: &'a Arc<ClientConfig>,
    /// Where appliances have the film's files: hosts, and the path that all share.
    appliances: Vec<Url>,
    appliance: usize,
    /// Two for each appliance, which go to different workers.
    connections: Vec<Option<Connection>>,
    picture: Picture,
    /// When the first frame is shown of what has come.
    shows_at: Option<Instant>,
    /// When the viewer plays on.
    resumes_at: Option<Instant>,
    /// `bs` is to be said with video, and with audio.
    starved: [bool; 2],
    stalls_said: u32,
    events_url: String,
    agent: ureq::Agent,
    sid: String,
}

/// Plays a session; what was felt.
pub(crate) fn play(session: &Session, world: &World, tls: &Arc<ClientConfig>) -> Result<Felt> {
    let agent = ureq::Agent::new_with_config(world.client.clone());
    let front = &world.fronts[0];
    let [a, b, c, d] = session.address();
    let client = IpAddr::from([a, b, c, d]);
    let wish = serde_json::json!({ "asset": world.asset, "client": client });
    let given = rig::api::post_by(&agent, &format!("{front}/v1/playbacks"), &wish)?;
    let begins = given["hls_url"].as_str().context("no hls_url")?;
    let mut picture = Picture::new(Instant::now());
    let answer = agent.get(format!("{front}{begins}")).call()?.body_mut().read_to_string()?;
    let urls = outage::entry_urls(&answer)?;
    let appliances = urls.iter().map(|url| Url::parse(url)).collect::<Result<Vec<_>>>()?;
    picture.take_changes();
    let mut player = Player {
        connections: (0..2 * appliances.len()).map(|_| None).collect(),
        session,
        world,
        tls,
        appliances,
        appliance: 0,
        picture,
        shows_at: None,
        resumes_at: None,
        starved: [false; 2],
        stalls_said: 0,
        events_url: given["events_url"].as_str().context("no events_url")?.to_owned(),
        agent,
        sid: format!("6e2fb550-c457-11e9-bb97-0800200c{:04x}", session.number),
    };
    player.run()
}

impl Player<'_> {
    fn run(&mut self) -> Result<Felt> {
        self.say_events(&[(Instant::now(), State::Starting)])?;
        self.load("media.m3u8", "ot=m,su", 0, |_, _| Duration::ZERO)?;
        for at in 0..self.session.segments {
            rig::stop::check()?;
            let plants = self.session.plants.clone();
            let planted = plants.iter().filter(|(segment, _)| *segment == at).map(|(_, of)| *of);
            let mut hold = None;
            if plants.iter().any(|(segment, _)| *segment == at) {
                self.show();
            }
            for plant in planted {
                match plant {
                    Plant::Late(_) | Plant::Stall(_) | Plant::GiveUp(_) => hold = Some(plant),
                    Plant::Pause(time) => {
                        self.picture.pause(Instant::now());
                        self.resumes_at = Some(Instant::now() + time);
                    }
                    Plant::Jump => {
                        self.picture.jump(Instant::now());
                        // hls.js cannot tell the two apart.
                        self.starved[0] = true;
                    }
                    Plant::Move => self.appliance = (self.appliance + 1) % self.appliances.len(),
                }
            }
            // What is planted counts from when the viewer watches.
            while (hold.is_some() && self.resumes_at.is_some())
                || BUFFER_MAX < self.picture.ahead(Instant::now()) + SEGMENT
            {
                self.show();
                std::thread::sleep(LOOK_EVERY);
                self.resume();
            }
            self.segment(at, hold)?;
        }
        self.show();
        self.picture.ahead(Instant::now());
        let changes = self.picture.take_changes();
        self.say_events(&changes)?;
        Ok(self.picture.felt())
    }

    fn segment(&mut self, at: usize, hold: Option<Plant>) -> Result<()> {
        let name = outage::segment_name(at);
        let apart = matches!(self.session.kind, Kind::Shaka | Kind::Dash);
        if apart {
            // Audio comes at once, and is never what is missing.
            let said = self.words(Instant::now(), "a");
            self.load(&name, &said, 1, |_, _| Duration::ZERO)?;
        }
        let object = if apart { "v" } else { "av" };
        let mut hold = hold;
        if let Some(Plant::GiveUp(time)) = hold {
            let said = self.words(Instant::now(), object);
            self.load(&name, &said, at % 2, |picture, now| picture.ahead(now) + time)?;
            self.picture.give_up(Instant::now());
            self.appliance = (self.appliance + 1) % self.appliances.len();
            hold = Some(Plant::Late(LATE_AFTER_MOVE));
        }
        let said = self.words(Instant::now(), object);
        let body = self.load(&name, &said, at % 2, |picture, now| match hold {
            Some(Plant::Late(time)) => time,
            Some(Plant::Stall(time)) => picture.ahead(now) + time,
            _ => Duration::ZERO,
        })?;
        self.world.film.check(at, &body)?;
        self.picture.append(Instant::now(), SEGMENT);
        if !matches!(self.picture.state(), State::Playing | State::Paused) {
            self.shows_at = Some(Instant::now() + DECODES);
        }
        // hls.js asks for the next segment before the first frame of this one is shown.
        if !matches!(self.session.kind, Kind::Hls | Kind::Second | Kind::Events) {
            self.show();
        }
        let changes = self.picture.take_changes();
        self.say_events(&changes)
    }

    /// What has come is seen from now on, if it was not.
    fn show(&mut self) {
        if let Some(at) = self.shows_at.take() {
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            self.picture.play(at);
        }
    }

    /// The viewer plays on, if it is time.
    fn resume(&mut self) {
        if let Some(at) = self.resumes_at.take_if(|at| *at <= Instant::now()) {
            self.picture.play(at);
        }
    }

    /// What it says with a request for media, version 1 and without escapes.
    fn words(&mut self, now: Instant, object: &str) -> String {
        let ahead = self.picture.ahead(now);
        let stalls = self.picture.felt().stalls;
        if self.stalls_said < stalls {
            self.stalls_said = stalls;
            self.starved = [true, self.session.kind == Kind::Dash];
        }
        let buffer = (ahead.as_millis() + 50) / 100 * 100;
        let millis = SEGMENT.as_millis();
        let mut said = format!(
            "bl={buffer},br={BITRATE_KBPS},d={millis},mtp=25300,ot={object},sf=h,st=v,tb={BITRATE_KBPS}"
        );
        let starved = &mut self.starved[usize::from(object == "a")];
        if std::mem::take(starved) {
            said.push_str(",bs");
        }
        if !matches!(self.picture.state(), State::Playing | State::Paused) {
            said.push_str(",su");
        }
        said
    }

    /// One file, of which the second half comes after `hold`.
    fn load(
        &mut self,
        name: &str,
        said: &str,
        connection: usize,
        hold: impl Fn(&mut Picture, Instant) -> Duration,
    ) -> Result<Vec<u8>> {
        let place = 2 * self.appliance + connection;
        let mut stream = match self.connections[place].take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        let request = self.request(name, said);
        stream.write_all(request.as_bytes())?;
        stream.flush()?;
        self.show();
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            ensure!(head.len() < 16 << 10, "a head without an end");
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head)?;
        ensure!(head.starts_with("HTTP/1.1 200 "), "{name}: {head}");
        let len = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let len: usize = len.context("no length")?.trim().parse()?;
        let mut body = vec![0; len];
        let half = len / 2;
        stream.read_exact(&mut body[..half])?;
        std::thread::sleep(hold(&mut self.picture, Instant::now()));
        stream.read_exact(&mut body[half..])?;
        self.connections[place] = Some(stream);
        Ok(body)
    }

    fn request(&self, name: &str, said: &str) -> String {
        let url = &self.appliances[self.appliance];
        let base = url.path.rsplit_once('/').map_or("", |(base, _)| base);
        let sid = format!("sid=\"{}\"", self.sid);
        let (mut query, mut fields) = (String::new(), String::new());
        let agent = match self.session.kind {
            Kind::Media3 => "lab/1.0 (Linux;Android 16) AndroidXMedia3/1.11.0",
            Kind::Hls | Kind::Shaka | Kind::Dash | Kind::Second | Kind::Events | Kind::Silent => {
                "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"
            }
        };
        match self.session.kind {
            Kind::Silent => {}
            Kind::Media3 => {
                let (request, other): (Vec<&str>, Vec<&str>) =
                    said.split(',').partition(|word| word.starts_with("bl=") || *word == "su");
                let _ = write!(
                    fields,
                    "CMCD-Request: {}\r\nCMCD-Object: {}\r\nCMCD-Session: {sid},v=1\r\n",
                    request.join(","),
                    other.join(",")
                );
            }
            Kind::Second | Kind::Events => {
                query = format!("?CMCD={}", escaped(&second(&format!("{said},{sid},v=2"))));
            }
            Kind::Hls | Kind::Shaka | Kind::Dash => {
                query = format!("?CMCD={}", escaped(&format!("{said},{sid},v=1")));
            }
        }
        let host = url.authority();
        format!(
            "GET {base}/{name}{query} HTTP/1.1\r\nHost: {host}\r\n\
             User-Agent: {agent}\r\n{fields}\r\n"
        )
    }

    fn connect(&self) -> Result<Connection> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
        let url = &self.appliances[self.appliance];
        let SocketAddr::V4(to) = url.resolve()? else { bail!("the lab listens on IPv4") };
        let socket =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrV4::new(self.session.address().into(), 0))?;
        connect(&socket, &to)?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_nodelay(true)?;
        let name = rustls::pki_types::ServerName::from(IpAddr::V4(*to.ip()));
        let tls = ClientConnection::new(self.tls.clone(), name)?;
        Ok(StreamOwned::new(tls, stream))
    }

    /// Sends what happened since, if it sends events.
    fn say_events(&self, changes: &[(Instant, State)]) -> Result<()> {
        if self.session.kind != Kind::Events || changes.is_empty() {
            return Ok(());
        }
        let (now, unix) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH)?);
        let mut lines = String::new();
        for (at, state) in changes {
            let ago = now.saturating_duration_since(*at);
            let millis = unix.saturating_sub(ago).as_millis();
            let state = state.letter();
            let sid = &self.sid;
            writeln!(lines, "e=ps,sid=\"{sid}\",sta={state},ts={millis},v=2,br=({BITRATE_KBPS})")?;
        }
        let request = self.agent.post(&self.events_url).content_type("application/cmcd");
        let answer = request.send(lines)?;
        ensure!(answer.status() == 204, "events: {}", answer.status());
        Ok(())
    }
}

/// Version 2 has lists where version 1 has numbers.
fn second(said: &str) -> String {
    let listed = ["bl=", "br=", "mtp=", "tb="];
    let word = |word: &str| match word.split_once('=') {
        Some((key, value)) if listed.iter().any(|of| word.starts_with(of)) => {
            format!("{key}=({value})")
        }
        _ => word.to_owned(),
    };
    said.split(',').map(word).collect::<Vec<_>>().join(",")
}

fn escaped(text: &str) -> String {
    text.replace('=', "%3D").replace(',', "%2C").replace('"', "%22")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_player_speaks_as_players_do() {
        let said = "bl=2100,br=394,d=2000,ot=av,bs";
        assert_eq!(second(said), "bl=(2100),br=(394),d=2000,ot=av,bs");
        assert_eq!(escaped("br=(1),sid=\"x\""), "br%3D(1)%2Csid%3D%22x%22");
    }
}
