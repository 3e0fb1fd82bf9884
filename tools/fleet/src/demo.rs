//! `nearcast demo`: a whole Nearcast on one machine, and a film that plays through its faults.
//!
//! ```text
//! film ─> ffmpeg: 3 rungs, HLS + DASH ─> origin 127.0.0.1 ─┐ fill
//!                                        control 127.0.0.1 ─┼─> a1 127.0.0.2 ┐ site s1 ┐
//!              ingest ─> control                            ├─> a2 127.0.0.3 ┘         ├ siblings
//!                                                           └─> a3 127.0.0.4   site s2 ┘
//! page, keyboard, self-test ─> controls ─> kill | hang | stop | restore an appliance
//!                                          withdraw | announce an ISP's routes (`isps`, `doors`)
//! ```
//!
//! Ctrl-C ends it and leaves nothing but encoded films. The origin and the controls run in this
//! process; control plane and appliances are the real programs, started from beside this one.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use indicatif::ProgressBar;
use model::units::{Bytes, Nanos};
use serde_json::json;
use tokio::sync::mpsc;
use tracing::{info, warn};
use wire::v1::fleet::FleetOut;

use crate::control::Control;
use crate::ingest::{self, Ingested};
use crate::origin::{self, Origin};
use crate::output;
use crate::remove::Window;
use crate::tree::Tree;
use certificates::Certificates;
use child::Child;
use controls::Order;
use film::Film;
use isps::{ISPS, Isp, Isps};
use place::Place;
use ports::Ports;
use processes::{APPLIANCES, Fault, Fleet, Programs};
use selftest::Setup;
use tokens::Tokens;

mod browser;
mod certificates;
pub(crate) mod child;
mod controls;
mod doors;
mod film;
mod isps;
mod keyboard;
mod ladder;
mod place;
mod ports;
mod processes;
mod selftest;
mod tokens;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// A film to play, of any format that ffmpeg reads [default: one of three minutes, made here]
    film: Option<PathBuf>,
    /// Let a headless browser play through faults, and check what is promised
    #[arg(long)]
    selftest: bool,
    /// Test this player, also several times [default: the first four]
    #[arg(long, value_name = "NAME", requires = "selftest",
        value_parser = clap::builder::PossibleValuesParser::new(selftest::PLAYERS))]
    player: Vec<String>,
    /// Put each site into an ISP's network behind a real BIRD, and let routes lead clients: as
    /// root, with iproute2 and bird2
    #[arg(long, conflicts_with = "player")]
    bgp: bool,
    /// Print one JSON object: addresses when all is ready, or the self-test's result
    #[arg(long)]
    json: bool,
    /// Open no browser
    #[arg(long)]
    no_browser: bool,
    /// Only encode the film, if it is not there yet: ./x does so while it compiles the rest
    #[arg(long)]
    only_film: bool,
    /// Keep configurations, logs and drives when the demo ends, and say where
    #[arg(long)]
    keep: bool,
    /// Take all ports from this one on [default: 8443, 8480, 9443, 8080, 8081, or the next free
    /// ones]
    #[arg(long, value_name = "PORT")]
    ports_from: Option<u16>,
    /// Directory of the browser script [default: tools/browser of the checkout]
    #[arg(long, value_name = "DIR")]
    browser_tools: Option<PathBuf>,
    /// Keep the self-test's screenshots in this directory
    #[arg(long, value_name = "DIR")]
    screenshots: Option<PathBuf>,
}

/// Runs the demo until it is done or told to stop.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    // On this thread: children are bound to the life of the thread that starts them.
    let result = runtime.block_on(async {
        let mut stage = Stage::default();
        let result = tokio::select! {
            result = play(args, &mut stage) => result,
            () = output::stop_signal() => match args.selftest {
                true => Err(anyhow::anyhow!("the self-test was interrupted")),
                false => Ok(()),
            },
        };
        stage.clear().await;
        result
    });
    runtime.shutdown_background();
    result
}

/// Processes and files to end and remove, however the demo ends.
#[derive(Debug, Default)]
struct Stage {
    browser: Option<Child>,
    fleet: Option<Fleet>,
    isps: Option<Isps>,
    place: Option<Place>,
}

impl Stage {
    async fn clear(&mut self) {
        if let Some(mut browser) = self.browser.take() {
            browser.stop(BROWSER_STOP_WITHIN).await;
        }
        if let Some(fleet) = self.fleet.take() {
            info!("stopping");
            fleet.stop().await;
        }
        if let Some(isps) = self.isps.take() {
            isps.stop().await;
        }
        self.place = None;
    }
}

struct Ready {
    control: Control,
    tokens: Tokens,
    controls_url: String,
    /// Of each ISP's door, in their order; without ISPs there is none.
    doors: Vec<String>,
    film: Film,
    done: Ingested,
    certificates: Certificates,
    orders: mpsc::Receiver<Order>,
}

impl Ready {
    /// Where browsers come in: as a client of the first ISP, if there is one.
    fn entrance(&self) -> &str {
        self.doors.first().map_or_else(|| self.control.base(), String::as_str)
    }
}

async fn play(args: &Args, stage: &mut Stage) -> anyhow::Result<()> {
    if args.only_film {
        return film::film(&directory()?.join(FILMS), args.film.as_deref()).await.map(|_| ());
    }
    if args.bgp {
        isps::can_be_had()?;
    }
    let start = Instant::now();
    let mut ready = prepare(args, stage).await?;
    let took = output::span(Nanos::from(start.elapsed()));
    let fleet = stage.fleet.as_mut().context("the fleet is up")?;
    let place = stage.place.as_ref().context("the place is made")?;
    let running = Running { fleet, isps: stage.isps.as_mut() };
    if args.selftest {
        return selftest(args, running, place, &mut ready).await;
    }
    announce(args, &ready, &took)?;
    if !args.no_browser {
        stage.browser = open_browser(place, &ready);
    }
    Err(serve_orders(running, &mut stage.browser, &mut ready).await)
}

/// What orders are about.
#[derive(Debug)]
struct Running<'a> {
    fleet: &'a mut Fleet,
    isps: Option<&'a mut Isps>,
}

/// Where the demo keeps its own, and encoded films in [`FILMS`].
fn directory() -> anyhow::Result<PathBuf> {
    Ok(ingest::user_directory()?.join("demo"))
}

/// From nothing to a filled fleet.
async fn prepare(args: &Args, stage: &mut Stage) -> anyhow::Result<Ready> {
    let programs = Programs::find(args.bgp)?;
    let demo = directory()?;
    let place = stage.place.insert(Place::new(&demo, args.keep)?);
    if args.keep {
        place.write(place::KEPT, "")?;
        info!(dir = %place.dir().display(), "kept after the demo");
    }
    // First of all: it may be refused, and a film takes a while.
    if let Some(agent) = &programs.agent {
        stage.isps = Some(Isps::start(place, agent)?);
    }
    let film = film::film(&demo.join(FILMS), args.film.as_deref()).await?;
    let count = u8::try_from(APPLIANCES.len()).context("a handful of appliances")?;
    let certificates = Certificates::make(place, count + 1)?;
    let ports = Ports::find(count, args.ports_from)?;
    let origin_url = start_origin(&film, &certificates, ports, args.ports_from)?;
    let (orders_in, orders) = controls::orders();
    let listener = ports::listener(ports, args.ports_from)?;
    let path = controls::secret_path()?;
    let controls_url = format!("http://{}{path}", listener.local_addr()?);
    let (doors, door_ports) = match args.bgp {
        true => open_doors(ports, args.ports_from)?,
        false => Default::default(),
    };
    let page_ports = [&[ports.control], &door_ports[..]].concat();
    tokio::spawn(controls::serve(listener, path, orders_in.clone(), page_ports));
    let config = processes::write_control_config(place, ports, &controls_url, args.bgp)?;
    let admin = tokens::admin(&programs.control, &config).await?;
    let control = Control::new(&format!("http://127.0.0.1:{}", ports.control), &admin)?;
    let isps = stage.isps.as_ref();
    let fleet = Fleet::start(programs, place, &certificates, ports, &config, isps).await?;
    let fleet = stage.fleet.insert(fleet);
    fleet.register(&control).await?;
    let tokens = Tokens::make(&admin, &control, place)?;
    let done = ingest_film(&film, origin_url, place, &control).await?;
    info!(version = done.version, files = done.files, "ingested");
    fill(fleet, &control, &done).await?;
    if args.bgp {
        let what = "both sites to hear the clients of both ISPs";
        fleet.until(isps::HEARD_WITHIN, what, || isps::are_heard(&control)).await?;
    }
    if std::io::stdin().is_terminal() && !args.selftest {
        keyboard::listen(orders_in);
    }
    Ok(Ready { control, tokens, controls_url, doors, film, done, certificates, orders })
}

/// A door for each ISP: their addresses and ports.
fn open_doors(ports: Ports, from: Option<u16>) -> anyhow::Result<(Vec<String>, Vec<u16>)> {
    let mut all = (Vec::new(), Vec::new());
    for isp in &ISPS {
        let listener = ports::listener(ports, from)?;
        let address = listener.local_addr()?;
        all.0.push(format!("http://{address}"));
        all.1.push(address.port());
        let door = doors::open(listener, isp.client.to_owned(), ports.control);
        tokio::spawn(async move {
            if let Err(error) = door.await {
                warn!(error = format!("{error:#}"), "a door ended");
            }
        });
    }
    Ok(all)
}

fn start_origin(
    film: &Film,
    certificates: &Certificates,
    ports: Ports,
    from: Option<u16>,
) -> anyhow::Result<String> {
    let listener = ports::listener(ports, from)?;
    let url = format!("https://{}/", listener.local_addr()?);
    let config = origin::tls_config(&certificates.chain, &certificates.key)?;
    let origin = Origin::new(Tree::open(&film.dir)?, None);
    tokio::spawn(async move {
        let ended = origin::serve(listener, config, origin, axum_server::Handle::new()).await;
        if let Err(error) = ended {
            warn!(error = format!("{error:#}"), "the demo's origin ended");
        }
    });
    Ok(url)
}

async fn ingest_film(
    film: &Film,
    source: String,
    place: &Place,
    control: &Control,
) -> anyhow::Result<Ingested> {
    let request = ingest::Request {
        dir: film.dir.clone(),
        asset: film.asset.clone(),
        source: vec![source],
        server: ingest::Server::default(),
        state: Some(place.path("ingest.state")),
        reread: false,
        no_manifests: false,
        window: Window::default(),
        again: false,
    };
    let control = control.clone();
    let work = move || {
        let bar = ingest::progress_bar().with_prefix("ingesting ");
        let done = ingest::ingest(&request, &control, &bar);
        bar.finish_and_clear();
        done
    };
    tokio::task::spawn_blocking(work).await.context("ingest was cut off")?
}

/// Shows how copies fill until all are complete.
async fn fill(fleet: &mut Fleet, control: &Control, done: &Ingested) -> anyhow::Result<()> {
    let bar = ingest::progress_bar().with_prefix("filling ");
    let start = Instant::now();
    let filled = fleet
        .until(FILL_WITHIN, "all copies to be complete", || {
            let view: FleetOut = control.get("/v1/fleet")?;
            Ok(show_fill(&view, done, &bar))
        })
        .await;
    bar.finish_and_clear();
    filled?;
    let copies = APPLIANCES.len();
    info!(copies, took = output::span(Nanos::from(start.elapsed())), "filled");
    Ok(())
}

/// True when control counts all copies of the version complete, or every appliance holds all that
/// it should.
fn show_fill(view: &FleetOut, done: &Ingested, bar: &ProgressBar) -> bool {
    let appliances = || view.sites.iter().flat_map(|site| &site.appliances);
    let fills: Vec<_> = appliances().filter_map(|a| a.report.as_ref()).map(|r| &r.fill).collect();
    bar.set_length(fills.iter().map(|fill| fill.bytes_wanted).sum());
    bar.set_position(fills.iter().map(|fill| fill.bytes_held).sum());
    let version = view.assets.iter().find(|asset| asset.id == done.asset);
    let copies = version.is_some_and(|asset| {
        asset.current_version == done.version
            && 0 < asset.copies_wanted
            && asset.copies_wanted <= Bytes::of(asset.copies_complete).0
    });
    let complete = |fill: &&wire::v1::report::Fill| {
        0 < fill.objects_wanted && fill.objects_wanted == fill.objects_held
    };
    copies || (fills.len() == APPLIANCES.len() && fills.iter().all(complete))
}

fn announce(args: &Args, ready: &Ready, took: &str) -> anyhow::Result<()> {
    let base = ready.control.base();
    let asset = &ready.done.asset;
    let play = play_url(ready);
    let site_pages = ISPS
        .iter()
        .zip(&ready.doors)
        .map(|(isp, door)| (isp, ready.tokens.login(door, &format!("/?site={}", isp.site))));
    let encoded_ms = ready.film.encoded_in.map(|span| Nanos::from(span).as_millis());
    if args.json {
        return output::json(&json!({
            "control": base,
            "token_file": ready.tokens.admin_file,
            "service_token_file": ready.tokens.service_file,
            "controls": ready.controls_url,
            "play": play,
            "plain": format!("{play}&plain=1"),
            "asset": asset,
            "version": ready.done.version,
            "spki": ready.certificates.spki,
            "encoded_ms": encoded_ms,
            "doors": ready.doors,
        }));
    }
    let colours = output::colours();
    let head = |text: &str| output::paint(text, output::Tone::Head, colours);
    let encoded = match ready.film.encoded_in {
        Some(span) => format!(", {} of it to encode the film", output::span(Nanos::from(span))),
        None => String::new(),
    };
    let kill = format!("{}/appliances/a1/kill", ready.controls_url);
    let keyboard = match std::io::stdin().is_terminal() {
        true => "type kill a1, hang a1, stop a1 or restore a1 here".to_owned(),
        false => format!("curl -X POST {kill} (or hang, stop, restore)"),
    };
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let ask = |words: &str| asking(&own, words, base, &ready.tokens.admin_file);
    for line in [
        String::new(),
        format!("{} in {took}{encoded}.", head("Nearcast is ready")),
        String::new(),
        format!("  watch   {}", head(&format!("{play}&plain=1"))),
        "          in any browser on this machine: the address logs it in, so it is a secret"
            .to_owned(),
        format!("  fleet   {}", ready.tokens.login(base, "/")),
        format!("  ask     {}", ask(OVERVIEW)),
        format!("  break   use the buttons on these pages, or {keyboard}"),
        "  end     Ctrl-C stops everything and leaves nothing but the encoded film".to_owned(),
        String::new(),
    ] {
        output::line(&line)?;
    }
    for (isp, page) in site_pages {
        let Isp { name, site, client, .. } = isp;
        output::line(&format!("  {name}    {page}"))?;
        output::line(&format!(
            "          its button, or w {site} and a {site} here, withdraws and \
            announces {name}'s routes"
        ))?;
        output::line(&format!("          where they lead: {}", ask(&explaining(asset, client))))?;
    }
    Ok(())
}

/// A command of this program that asks the demo's control, as it is typed.
fn asking(own: &Path, words: &str, control: &str, token_file: &Path) -> String {
    let (own, token_file) = (own.display(), token_file.display());
    format!("{own} {words} --control {control} --token-file {token_file}")
}

const OVERVIEW: &str = "fleet show";

fn explaining(asset: &str, client: &str) -> String {
    format!("explain --asset {asset} --client {client}")
}

/// The player's page. With its own default, a player would hold most of the film before a fault
/// comes; with 12 s a fault is felt.
fn play_url(ready: &Ready) -> String {
    let path = format!("/play?asset={}&player=hls&buffer=12", ready.done.asset);
    ready.tokens.login(ready.entrance(), &path)
}

/// A browser that cannot be opened is no reason to end: any other will do.
fn open_browser(place: &Place, ready: &Ready) -> Option<Child> {
    if !browser::has_display() {
        info!("no display here: open the address in a browser that can reach this machine");
        return None;
    }
    let Some(program) = browser::find() else {
        info!("no Chromium here: open the address in any browser");
        return None;
    };
    let pages = [play_url(ready), ready.tokens.login(ready.entrance(), "/")];
    let opened = browser::open(&program, place, &ready.certificates.spki, &pages);
    opened.inspect_err(|error| warn!(error = format!("{error:#}"), "no browser opened")).ok()
}

/// Follows orders of the page and the keyboard until a process ends that should run.
async fn serve_orders(
    Running { fleet, mut isps }: Running<'_>,
    browser: &mut Option<Child>,
    ready: &mut Ready,
) -> anyhow::Error {
    let mut look = tokio::time::interval(LOOK_EVERY);
    loop {
        let order = tokio::select! {
            order = ready.orders.recv() => order,
            _ = look.tick() => {
                let isps_run = isps.as_mut().map_or(Ok(()), |isps| isps.must_run());
                if let Err(error) = fleet.must_run().and(isps_run) {
                    return error;
                }
                note_end(browser);
                continue;
            }
        };
        // An answer that nobody waits for any more is dropped.
        match order {
            Some(Order::Fault(name, fault, answer)) => {
                let done = fleet.fault(&ready.control, &name, fault).await;
                let _ = answer.send(done.map_err(|error| format!("{error:#}")));
            }
            Some(Order::List(answer)) => {
                let _ = answer.send(fleet.conditions());
            }
            Some(Order::Route(site, order, answer)) => {
                let done = match &mut isps {
                    Some(isps) => isps.order(&site, order),
                    None => Err(anyhow::anyhow!("there are no ISPs: start the demo with --bgp")),
                };
                let _ = answer.send(done.map_err(|error| format!("{error:#}")));
            }
            Some(Order::ListRoutes(answer)) => {
                let none = || json!([]);
                let _ = answer.send(isps.as_ref().map_or_else(none, |isps| isps.conditions()));
            }
            Some(Order::FirstFrame(millis)) => {
                info!("first frame {millis} ms after the page was opened");
            }
            None => std::future::pending().await,
        }
    }
}

/// Says so if the browser has ended: closing it does not end the demo.
fn note_end(browser: &mut Option<Child>) {
    if let Some(ended) = browser.as_mut().and_then(|browser| browser.must_run().err()) {
        info!("{ended}");
        *browser = None;
    }
}

/// Plays with each player, restores the fleet between them, and checks what is promised.
async fn selftest(
    args: &Args,
    Running { fleet, mut isps }: Running<'_>,
    place: &Place,
    ready: &mut Ready,
) -> anyhow::Result<()> {
    let tools = selftest::tools(args.browser_tools.as_deref())?;
    selftest::install(&tools).await?;
    let screenshots_dir = match &args.screenshots {
        None => place.make_dir("screenshots")?,
        Some(dir) => {
            std::fs::create_dir_all(dir)
                .with_context(|| format!("cannot create {}", dir.display()))?;
            dir.canonicalize().context("the screenshots' directory is there")?
        }
    };
    let chromium = browser::find().context("Chromium is not installed: install it first")?;
    let setup = Setup {
        control_url: ready.entrance().to_owned(),
        token: ready.tokens.viewer.clone(),
        controls_url: ready.controls_url.clone(),
        asset: ready.done.asset.clone(),
        origin_dir: ready.film.dir.clone(),
        spki: ready.certificates.spki.clone(),
        chromium,
        screenshots_dir,
        scratch: place.make_dir("scratch")?,
    };
    let mut no_browser = None; // the script has its own
    if isps.is_some() {
        let running = Running { fleet, isps: isps.take() };
        let moved = tokio::select! {
            moved = selftest::withdraw(&tools, &setup) => moved,
            error = serve_orders(running, &mut no_browser, ready) => Err(error),
        };
        let moved = moved?;
        output::json(&moved)?;
        return selftest::check_moved(&moved);
    }
    let mut players = Vec::new();
    let chosen = selftest::chosen(&args.player);
    for player in &chosen {
        let played = tokio::select! {
            played = selftest::play(&tools, &setup, player) => played,
            error = serve_orders(Running { fleet, isps: None }, &mut no_browser, ready) => {
                Err(error)
            }
        };
        players.push(played?);
        for (name, _) in APPLIANCES {
            fleet.fault(&ready.control, name, Fault::Restore).await?;
        }
        fleet.until_healthy(&ready.control).await?;
        fill(fleet, &ready.control, &ready.done).await?;
    }
    let result = selftest::result(players);
    output::json(&result)?;
    let broken = selftest::broken_promises(&result, &chosen);
    anyhow::ensure!(broken.is_empty(), "promises were broken: {}", broken.join("; "));
    Ok(())
}

const FILMS: &str = "films";
const FILL_WITHIN: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(500);
const BROWSER_STOP_WITHIN: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_printed_as_they_run() {
        let taken = |words: &str| {
            let own = Path::new("/usr/bin/nearcast");
            let line = asking(own, words, "http://127.0.0.1:8480", Path::new("/tmp/demo/token"));
            crate::command().try_get_matches_from(line.split_whitespace()).unwrap()
        };
        taken(OVERVIEW);
        for isp in &ISPS {
            let matches = taken(&explaining("demo", isp.client));
            assert_eq!(matches.subcommand_name(), Some("explain"));
        }
    }
}
