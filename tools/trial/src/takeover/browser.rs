//! Real players in Chromium, by `tools/browser/selftest.mjs`: while they play, the machine that
//! serves them is cut off, comes back, and is cut off again.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use rig::fleet::Role;
use serde_json::{Value, json};
use tracing::info;

use super::world::{ASSET, World};

/// The players that are tried, as the script names them.
pub(super) const PLAYERS: [&str; 4] = ["hls.js", "dash.js", "Shaka", "video.js"];
/// What players may have buffered, in seconds.
const BUFFER_S: u64 = 12;

/// The film that the demo has made, unless another folder is named.
pub(super) fn film(named: Option<&Path>) -> Result<PathBuf> {
    let home = std::env::var("HOME").context("no HOME: name the film's folder with --film")?;
    let own = Path::new(&home).join(".cache/nearcast/demo/films/demo-2");
    let film = named.map_or(own, Path::to_owned);
    ensure!(
        film.join("master.m3u8").is_file(),
        "{} holds no film with a master.m3u8: run ./x demo once, which makes one, or name another \
         with --film",
        film.display()
    );
    Ok(film)
}

/// Plays with each of these players; what the script says of each.
pub(super) fn play(world: &World, film: &Path, players: &[String]) -> Result<Vec<Value>> {
    let controls = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let at = controls.local_addr()?;
    let orders = world.orders();
    std::thread::spawn(move || {
        for stream in controls.incoming().flatten() {
            // One that cannot be answered is tried again by the script, or fails it.
            let _ = answer(&stream, &orders);
        }
    });
    players.iter().map(|player| one(world, film, player, at)).collect()
}

fn one(world: &World, film: &Path, player: &str, controls: SocketAddr) -> Result<Value> {
    info!(player, "the browser plays");
    let options = json!({
        "control_url": world.fleet.url(Role::Writer),
        "controls_url": format!("http://{controls}"),
        "asset": ASSET,
        "origin_dir": film,
        "spki": world.spki,
        "player": player,
        "buffer_s": BUFFER_S,
        "any_server": true,
        "planned": false,
    });
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../browser");
    let output = Command::new("node")
        .args(["selftest.mjs", &options.to_string()])
        .current_dir(&folder)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start node: install Debian's packages nodejs and chromium")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let last = said.lines().next_back().unwrap_or_default();
    let result: Value = serde_json::from_str(last)
        .with_context(|| format!("{player}: selftest.mjs gave no result: {last}"))?;
    ensure!(result["error"].is_null(), "{player}: {}", result["error"]);
    Ok(result)
}

/// `POST /appliances/{id}/kill|hang|restore`: a machine is cut off, or is there again.
fn answer(mut stream: &TcpStream, order: &dyn Fn(&str, bool) -> Result<()>) -> Result<()> {
    let mut line = String::new();
    let mut reader = BufReader::new(stream);
    reader.read_line(&mut line)?;
    let mut rest = String::from(" ");
    while !rest.trim_end().is_empty() {
        rest.clear();
        reader.read_line(&mut rest)?;
    }
    let parts: Vec<&str> = line.split([' ', '/']).collect();
    let status = match parts.as_slice() {
        ["POST", "", "appliances", id, verb @ ("kill" | "hang" | "restore"), ..] => {
            order(id, *verb != "restore")?;
            "200 OK"
        }
        _ => "404 Not Found",
    };
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}")?;
    Ok(())
}
