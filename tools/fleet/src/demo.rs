//! `nearcast demo`: a whole Nearcast on one machine, and a film that plays through its faults.
//!
//! ```text
//! film ─> ffmpeg: 3 rungs, HLS + DASH ─> origin 127.0.0.1 ─┐ fill
//!                                        control 127.0.0.1 ─┼─> a1 127.0.0.2 ┐ site s1 ┐
//!              ingest ─> control                            ├─> a2 127.0.0.3 ┘         ├ siblings
//!                                                           └─> a3 127.0.0.4   site s2 ┘
//! page, keyboard, self-test ─> controls ─> kill | hang | stop | restore an appliance
//! ```
//!
//! Ctrl-C ends it and leaves nothing but encoded films. The origin and the controls run in this
//! process; control plane and appliances are the real programs, started from beside this one.

use std::io::{BufRead as _, IsTerminal as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::ValueEnum as _;
use indicatif::ProgressBar;
use model::units::{Bytes, Nanos};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
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
use place::Place;
use ports::Ports;
use processes::{APPLIANCES, Fault, Fleet, Programs};
use selftest::Setup;
use tokens::Tokens;

mod browser;
mod certificates;
pub(crate) mod child;
mod controls;
mod film;
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
        self.place = None;
    }
}

struct Ready {
    control: Control,
    tokens: Tokens,
    controls_url: String,
    film: Film,
    done: Ingested,
    certificates: Certificates,
    orders: mpsc::Receiver<Order>,
}

async fn play(args: &Args, stage: &mut Stage) -> anyhow::Result<()> {
    if args.only_film {
        return film::film(&directory()?.join(FILMS), args.film.as_deref()).await.map(|_| ());
    }
    let start = Instant::now();
    let mut ready = prepare(args, stage).await?;
    let took = output::span(Nanos::from(start.elapsed()));
    let fleet = stage.fleet.as_mut().context("the fleet is up")?;
    let place = stage.place.as_ref().context("the place is made")?;
    if args.selftest {
        return selftest(args, fleet, place, &mut ready).await;
    }
    announce(args, &ready, &took)?;
    if !args.no_browser {
        stage.browser = open_browser(place, &ready);
    }
    Err(serve_orders(fleet, &mut stage.browser, &mut ready).await)
}

/// Where the demo keeps its own, and encoded films in [`FILMS`].
fn directory() -> anyhow::Result<PathBuf> {
    Ok(ingest::user_directory()?.join("demo"))
}

/// From nothing to a filled fleet.
async fn prepare(args: &Args, stage: &mut Stage) -> anyhow::Result<Ready> {
    let programs = Programs::find()?;
    let demo = directory()?;
    let film = film::film(&demo.join(FILMS), args.film.as_deref()).await?;
    let place = stage.place.insert(Place::new(&demo, args.keep)?);
    if args.keep {
        place.write(place::KEPT, "")?;
        info!(dir = %place.dir().display(), "kept after the demo");
    }
    let count = u8::try_from(APPLIANCES.len()).context("a handful of appliances")?;
    let certificates = Certificates::make(place, count + 1)?;
    let ports = Ports::find(count, args.ports_from)?;
    let origin_url = start_origin(&film, &certificates, ports, args.ports_from)?;
    let (orders_in, orders) = controls::orders();
    let listener = ports::listener(ports, args.ports_from)?;
    let path = controls::secret_path()?;
    let controls_url = format!("http://{}{path}", listener.local_addr()?);
    tokio::spawn(controls::serve(listener, path, orders_in.clone(), ports.control));
    let config = processes::write_control_config(place, ports, &controls_url)?;
    let admin = tokens::admin(&programs.control, &config).await?;
    let control = Control::new(&format!("http://127.0.0.1:{}", ports.control), &admin)?;
    let fleet = Fleet::start(programs, place, &certificates, ports, &config).await?;
    let fleet = stage.fleet.insert(fleet);
    fleet.register(&control).await?;
    let tokens = Tokens::make(&admin, &control, place)?;
    let done = ingest_film(&film, origin_url, place, &control).await?;
    info!(version = done.version, files = done.files, "ingested");
    fill(fleet, &control, &done).await?;
    if std::io::stdin().is_terminal() && !args.selftest {
        listen_to_keyboard(orders_in);
    }
    Ok(Ready { control, tokens, controls_url, film, done, certificates, orders })
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
    let (own, token_file) = (own.display(), ready.tokens.admin_file.display());
    for line in [
        String::new(),
        format!("{} in {took}{encoded}.", head("Nearcast is ready")),
        String::new(),
        format!("  watch   {}", head(&format!("{play}&plain=1"))),
        "          in any browser on this machine: the address logs it in, so it is a secret"
            .to_owned(),
        format!("  fleet   {}", ready.tokens.login(&ready.control, "/")),
        format!("  ask     {own} list --control {base} --token-file {token_file}"),
        format!("  break   use the buttons on these pages, or {keyboard}"),
        "  end     Ctrl-C stops everything and leaves nothing but the encoded film".to_owned(),
        String::new(),
    ] {
        output::line(&line)?;
    }
    Ok(())
}

/// The player's page. With its own default, a player would hold most of the film before a fault
/// comes; with 12 s a fault is felt.
fn play_url(ready: &Ready) -> String {
    let path = format!("/play?asset={}&player=hls&buffer=12", ready.done.asset);
    ready.tokens.login(&ready.control, &path)
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
    let pages = [play_url(ready), ready.tokens.login(&ready.control, "/")];
    let opened = browser::open(&program, place, &ready.certificates.spki, &pages);
    opened.inspect_err(|error| warn!(error = format!("{error:#}"), "no browser opened")).ok()
}

/// Follows orders of the page and the keyboard until a process ends that should run.
async fn serve_orders(
    fleet: &mut Fleet,
    browser: &mut Option<Child>,
    ready: &mut Ready,
) -> anyhow::Error {
    let mut look = tokio::time::interval(LOOK_EVERY);
    loop {
        let order = tokio::select! {
            order = ready.orders.recv() => order,
            _ = look.tick() => {
                if let Err(error) = fleet.must_run() {
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

/// Reads `kill a1` and the like from stdin, on a thread of its own: reading cannot be cut off.
fn listen_to_keyboard(orders: controls::Orders) {
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let order = match *words {
                [] => continue,
                [verb, name] => Fault::from_str(verb, false).ok().map(|fault| (fault, name)),
                _ => None,
            };
            let Some((fault, name)) = order else {
                let _ = output::line(
                    "kill, hang, stop, near or restore, and a1, a2 or a3; Ctrl-C ends",
                );
                continue;
            };
            let (answer, answered) = oneshot::channel();
            if orders.blocking_send(Order::Fault(name.to_owned(), fault, answer)).is_err() {
                return;
            }
            let said = match answered.blocking_recv() {
                Ok(Ok(condition)) => format!("{name} is {condition}"),
                Ok(Err(error)) => error,
                Err(_) => return,
            };
            let _ = output::line(&said);
        }
    });
}

/// Plays with each player, restores the fleet between them, and checks what is promised.
async fn selftest(
    args: &Args,
    fleet: &mut Fleet,
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
        control_url: ready.control.base().to_owned(),
        token: ready.tokens.viewer.clone(),
        controls_url: ready.controls_url.clone(),
        asset: ready.done.asset.clone(),
        origin_dir: ready.film.dir.clone(),
        spki: ready.certificates.spki.clone(),
        chromium,
        screenshots_dir,
        scratch: place.make_dir("scratch")?,
    };
    let mut players = Vec::new();
    let mut no_browser = None; // the script has its own
    let chosen = selftest::chosen(&args.player);
    for player in &chosen {
        let played = tokio::select! {
            played = selftest::play(&tools, &setup, player) => played,
            error = serve_orders(fleet, &mut no_browser, ready) => Err(error),
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
