//! Simulated players: an entry manifest from a front, segments from appliances, steering between.
//!
//! ```text
//! fronts, in order ── entry manifest ──> pathways ──> segments, while under 12 s are buffered
//!                  <── steering, every TTL; a front that does not answer is asked again later
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tracing::debug;

use super::film::{self, Film, SEGMENT};
use super::model::{Buffer, Pathways};

/// A player loads while less than this is buffered.
const BUFFER_MAX: Duration = Duration::from_secs(12);
/// hls.js gives a request so long before it tries again.
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// A service behind a list of fronts does not wait longer for one of them.
const FRONT_MAX: Duration = Duration::from_secs(2);
/// hls.js waits so long after a 5xx before it asks the same server again; the second 5xx in a row
/// makes this player leave.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// No document or segment of the lab's film is longer.
const ANSWER_LEN_MAX: u64 = 1 << 20;
/// How often a player looks at its clock.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What all players of a run know.
#[derive(Clone, Debug)]
pub(crate) struct World {
    /// Base URLs, asked in this order.
    pub(crate) fronts: Vec<String>,
    pub(crate) asset: String,
    pub(crate) film: Film,
    /// Believes the appliances' certificates. Each player makes connections of its own with it.
    pub(crate) client: ureq::config::Config,
}

#[derive(Debug)]
pub(crate) struct Playback {
    world: Arc<World>,
    agent: ureq::Agent,
    pub(crate) front: usize,
    pub(crate) pathways: Pathways,
    steering: Option<Steering>,
    next: usize,
}

#[derive(Debug)]
struct Steering {
    url: String,
    ttl: Duration,
    asked: Instant,
}

/// What became of a player.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// How often its buffer ran empty.
    pub(crate) stalls: u32,
    pub(crate) stalled: Duration,
    /// Segments that came, every byte compared.
    pub(crate) segments: usize,
    /// Times that it left a pathway that failed.
    pub(crate) failovers: u32,
    /// Steering answers, and questions without one.
    pub(crate) steered: (u32, u32),
    pub(crate) pathway: String,
}

enum Fault {
    /// Leave the pathway: refused, reset, too late, or 4xx.
    Gone(String),
    /// Ask again in a second: 5xx.
    Busy(String),
}

impl Playback {
    /// Gets leave to play, as a service would, and an entry manifest from the first front that
    /// gives both.
    pub(crate) fn begin(world: &Arc<World>) -> Result<Self> {
        let agent = ureq::Agent::new_with_config(world.client.clone());
        let mut said = Vec::new();
        for (front, base) in world.fronts.iter().enumerate() {
            let manifest = grant(&agent, base, &world.asset)
                .and_then(|path| get(&agent, &format!("{base}{path}"), FRONT_MAX));
            match manifest {
                Ok(bytes) => {
                    let (pathways, steering) = entry(&String::from_utf8(bytes)?)?;
                    let ttl = Duration::from_secs(1); // hls.js asks at once, then by the answer
                    let steering = steering.map(|url| Steering { url, ttl, asked: Instant::now() });
                    let world = world.clone();
                    return Ok(Self { world, agent, front, pathways, steering, next: 0 });
                }
                Err(Fault::Gone(error) | Fault::Busy(error)) => said.push(error),
            }
        }
        bail!("no front gives an entry manifest: {}", said.join("; "))
    }

    /// Loads the media playlist and the first segment from whichever pathway gives them.
    pub(crate) fn first_segment(&mut self) -> Result<()> {
        let end = Instant::now() + REQUEST_MAX;
        loop {
            let text = self.load("media.m3u8").map(|bytes| bytes.starts_with(b"#EXTM3U"));
            let segment = text.and_then(|_| self.load(&film::name(0)));
            match segment {
                Ok(bytes) => return self.world.film.check(0, &bytes),
                Err(Fault::Gone(error) | Fault::Busy(error)) => {
                    ensure!(Instant::now() < end, "no first segment: {error}");
                    self.pathways.fail(Instant::now());
                }
            }
        }
    }

    /// Plays until `stop` or the film's end.
    pub(crate) fn play(&mut self, stop: &AtomicBool) -> Result<Outcome> {
        let (mut buffer, mut outcome) = (Buffer::default(), Outcome::default());
        let mut busy = false;
        while !stop.load(Ordering::Relaxed) && self.next < self.world.film.segments() {
            self.ask_steering(&mut outcome);
            if BUFFER_MAX < buffer.ahead(Instant::now()) + SEGMENT {
                std::thread::sleep(LOOK_EVERY);
                continue;
            }
            match self.load(&film::name(self.next)) {
                Ok(bytes) => {
                    self.world
                        .film
                        .check(self.next, &bytes)
                        .with_context(|| format!("from {}", self.pathways.current().id))?;
                    buffer.append(Instant::now(), SEGMENT);
                    outcome.segments += 1;
                    self.next += 1;
                    busy = false;
                }
                Err(Fault::Busy(error)) if !busy => {
                    debug!(error, "asking again");
                    busy = true;
                    std::thread::sleep(AGAIN_AFTER);
                }
                Err(Fault::Gone(error) | Fault::Busy(error)) => {
                    debug!(error, pathway = self.pathways.current().id, "leaving a pathway");
                    let before = self.pathways.current().id.clone();
                    self.pathways.fail(Instant::now());
                    outcome.failovers += u32::from(before != self.pathways.current().id);
                    // With nobody left a player goes round, and not as fast as it can.
                    std::thread::sleep(LOOK_EVERY);
                    busy = false;
                }
            }
        }
        if self.next < self.world.film.segments() {
            buffer.settle(Instant::now());
        }
        outcome.pathway = self.pathways.current().id.clone();
        Ok(Outcome { stalls: buffer.stalls, stalled: buffer.stalled, ..outcome })
    }

    fn load(&self, name: &str) -> Result<Vec<u8>, Fault> {
        let playlist = &self.pathways.current().url;
        let base = playlist.rsplit_once('/').map_or("", |(base, _)| base);
        get(&self.agent, &format!("{base}/{name}"), REQUEST_MAX)
    }

    /// Asks if it is time to. No answer changes nothing but the time of the next question.
    fn ask_steering(&mut self, outcome: &mut Outcome) {
        let Some(steering) = &mut self.steering else { return };
        let now = Instant::now();
        if now < steering.asked + steering.ttl {
            return;
        }
        steering.asked = now;
        let separator = if steering.url.contains('?') { '&' } else { '?' };
        let pathway = &self.pathways.current().id;
        let url = format!("{}{separator}_HLS_pathway={pathway}", steering.url);
        let answer = get(&self.agent, &url, FRONT_MAX).ok();
        let document = answer.and_then(|bytes| serde_json::from_slice::<Document>(&bytes).ok());
        let Some(document) = document else {
            outcome.steered.1 += 1;
            steering.ttl = steering.ttl.max(Duration::from_secs(5));
            return;
        };
        outcome.steered.0 += 1;
        steering.ttl = Duration::from_secs(document.ttl);
        steering.url = document.reload_uri;
        self.pathways.steer(now, document.pathway_priority);
    }
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "SCREAMING-KEBAB-CASE")]
struct Document {
    ttl: u64,
    reload_uri: String,
    pathway_priority: Vec<String>,
}

/// Pathways and steering address of a multivariant playlist.
fn entry(text: &str) -> Result<(Pathways, Option<String>)> {
    let (pathways, steering) = parts(text)?;
    Ok((Pathways::new(pathways), steering))
}

/// Where the pathways of a multivariant playlist have its media playlist, best first.
pub(crate) fn entry_urls(text: &str) -> Result<Vec<String>> {
    Ok(parts(text)?.0.into_iter().map(|(_, url)| url).collect())
}

/// Names and addresses of pathways, and where steering is.
type Parts = (Vec<(String, String)>, Option<String>);

fn parts(text: &str) -> Result<Parts> {
    let (mut pathways, mut steering, mut id) = (Vec::new(), None, None);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("#EXT-X-CONTENT-STEERING:") {
            steering = attribute(rest, "SERVER-URI");
        } else if let Some(rest) = line.strip_prefix("#EXT-X-STREAM-INF:") {
            id = Some(attribute(rest, "PATHWAY-ID").unwrap_or_else(|| ".".to_owned()));
        } else if !line.starts_with('#')
            && let Some(id) = id.take()
        {
            pathways.push((id, line.to_owned()));
        }
    }
    ensure!(!pathways.is_empty(), "an entry manifest without a pathway: {text}");
    Ok((pathways, steering))
}

fn attribute(list: &str, name: &str) -> Option<String> {
    let (_, rest) = list.split_once(&format!("{name}=\""))?;
    rest.split_once('"').map(|(value, _)| value.to_owned())
}

/// Where a front's own answer to `POST /v1/playbacks` says that an HLS player begins.
fn grant(agent: &ureq::Agent, base: &str, asset: &str) -> Result<String, Fault> {
    let request = agent.post(format!("{base}/v1/playbacks"));
    let request = request.config().timeout_global(Some(FRONT_MAX)).build();
    let bytes = body(request.send_json(serde_json::json!({ "asset": asset })))?;
    let given: Option<Given> = serde_json::from_slice(&bytes).ok();
    given.and_then(|given| given.hls_url).ok_or_else(|| Fault::Gone("no hls_url".to_owned()))
}

#[derive(serde::Deserialize)]
struct Given {
    hls_url: Option<String>,
}

fn get(agent: &ureq::Agent, url: &str, within: Duration) -> Result<Vec<u8>, Fault> {
    body(agent.get(url).config().timeout_global(Some(within)).build().call())
}

fn body(answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Result<Vec<u8>, Fault> {
    let gone = |error: ureq::Error| Fault::Gone(error.to_string());
    let mut answer = answer.map_err(gone)?;
    let status = answer.status();
    if status.is_server_error() {
        return Err(Fault::Busy(status.to_string()));
    }
    if !status.is_success() {
        return Err(Fault::Gone(status.to_string()));
    }
    answer.body_mut().with_config().limit(ANSWER_LEN_MAX).read_to_vec().map_err(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_manifest_says_where_to_load_and_whom_to_ask() {
        let text = "#EXTM3U\n#EXT-X-CONTENT-STEERING:SERVER-URI=\"http://f/steer/v1/x\",\
            PATHWAY-ID=\"a1\"\n#EXT-X-STREAM-INF:BANDWIDTH=1,PATHWAY-ID=\"a1\"\nhttps://a1/m.m3u8\n\
            #EXT-X-STREAM-INF:BANDWIDTH=1,PATHWAY-ID=\"a2\"\nhttps://a2/m.m3u8\n";
        let (mut pathways, steering) = entry(text).unwrap();
        assert_eq!(steering.as_deref(), Some("http://f/steer/v1/x"));
        assert_eq!(pathways.current().url, "https://a1/m.m3u8");
        pathways.fail(Instant::now());
        assert_eq!(pathways.current().id, "a2");
        assert!(entry("#EXTM3U\n").is_err());
    }
}
