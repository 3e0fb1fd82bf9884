//! `nearcast-lab handshake`: what a start costs us, and what it costs a peer, in turns.
//!
//! ```text
//! both servers, as for compare ──> a pair: full ours, full peer, first ours,
//!                                          resumed ours, resumed peer
//! a start: connect, handshake, one byte asked for and received; then the client resets
//! full:    our worker knows the token that is shown
//! first:   full, and our worker has never seen the token: a viewer's first start
//! resumed: the token is known, too: a viewer comes back
//! report: the median over pairs of (our starts per CPU second) / (the peer's)
//! ```
//!
//! A peer has no tokens: its first starts are its full ones, and are not done twice.
//!
//! Both have the same certificate, and the client offers one group and one cipher suite. The byte
//! is part of it since a start without a request is none, and since its answer shows that the
//! server has finished, too: tickets have come before it.

use std::fmt::Write;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use model::units::Bytes;
use rig::certificate::{Certificate, Key};
use rig::client::{Begun, GROUP, Starts, Target};
use rig::cpu;
use rig::statistics::{Spread, median_of};
use rig::url::Url;
use serde::Serialize;
use tracing::{info, warn};

use super::ours::Site;
use super::report::{Sides, doubts};
use super::workload::Workload;
use super::{Asking, Bench, Common, OURS, Room, Server, Tuned, ours, peer};

/// `nearcast-lab handshake`
#[derive(Debug, clap::Args)]
#[command(mut_arg("seconds", |seconds| seconds.default_value("3")))]
#[command(mut_arg("warm_up", |warm_up| warm_up.default_value("1")))]
#[command(mut_arg("verify_every", |every| {
    every.help("Verify the signature of every n-th full handshake; of the others, the certificate")
}))]
pub(crate) struct Args {
    #[command(flatten)]
    against: peer::Chosen,
    /// The kind of key that both have.
    #[arg(long, value_enum, default_value_t)]
    key: Key,
    /// Handshakes under way at once.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,
    /// Fail if a full or a resumed handshake costs more CPU than so many of the peer's.
    #[arg(long)]
    bound: Option<f64>,
    #[command(flatten)]
    common: Common,
}

/// What the client does after each handshake, with either side.
const AFTER: &str = "one byte is asked for, with a token that our worker knows, in first starts \
                     with one that it does not know, and received; then the client resets the \
                     connection";
/// Tokens of first starts, used in turn in all windows. A worker keeps a token until another comes
/// to its place, one of 4,096 (`pure/worker/src/grants.rs`): of a token that comes round it has
/// seen 32,767 others since, so that it still knows one in 3,000 (e to the -8).
const TOKENS: usize = 8 * 4096;
/// By how much tokens verified per start may differ from 0, or from 1. Arbitrary: the known token
/// is verified once in a window, so it is far less.
const VERIFIED_TOLERANCE: f64 = 0.05;

/// The whole result; one JSON object.
#[derive(Clone, Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    sides: Sides,
    group: String,
    certificate: &'static str,
    cipher: String,
    after: &'static str,
    connections: u32,
    pairs: usize,
    full: Kind,
    /// Beside the peer's full starts.
    first: Kind,
    resumed: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Full,
    First,
    Resumed,
}

/// All windows of one kind of start.
#[derive(Clone, Debug, Serialize)]
struct Kind {
    ours_per_cpu_s: f64,
    peer_per_cpu_s: f64,
    /// Ours divided by the peer's, in starts per CPU second: more is better.
    ratio: f64,
    ratio_iqr: f64,
    /// The same ratio with all that ran on the server's CPU, kernel threads included.
    ratio_cpu_busy: f64,
    /// What our worker verified: about 1 in first starts, about 0 in others.
    tokens_verified_per_start: f64,
    /// The sum of all windows, of which all starts are resumed or none.
    ours: Begun,
    peer: Begun,
    /// The client's share of its CPU, in the worse of both turns.
    client_cpu_share: f64,
    windows: Vec<Pair>,
}

#[derive(Clone, Debug, Serialize)]
struct Pair {
    ratio: f64,
    ours: Turn,
    peer: Turn,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Turn {
    #[serde(flatten)]
    begun: Begun,
    seconds: f64,
    server_cpu_s: f64,
    /// Seconds in which the server's CPU was not idle, whoever used it.
    cpu_busy_s: f64,
    /// Handshakes per CPU second of the server.
    per_cpu_s: f64,
    client_cpu_share: f64,
    /// Signatures, from the first start to the last. A peer has none.
    tokens_verified_per_start: f64,
}

/// Our side, and what first starts show it.
struct OurSide<'a> {
    site: Site<'a>,
    server: Server,
    /// The one file under tokens, of which the first has not been shown for longest.
    fresh: Vec<Target>,
}

/// Compares, prints the result on stdout.
pub(crate) fn run(args: &Args) -> Result<()> {
    let peer = args.against.found()?;
    // An error now if it cannot run.
    peer.version()?;
    ours::check_binaries()?;
    let room = Room::open(&args.common)?;
    let workload = workload(usize::try_from(args.connections)?);
    let bench = Bench::open(&args.common, Asking::default(), workload, &room.path)?;
    let certificate = Certificate::make_with(&room.path, args.key)?;
    let bench = Bench { certificate, key: args.key, ..bench };
    let variant = match &args.against.peer_config {
        Some(name) => peer.peer().variant(name)?,
        // They differ in how files are read, and one byte is.
        None => *peer.peer().variants().first().context("a peer has a configuration")?,
    };
    let congestion = args.against.peer_congestion.as_ref().unwrap_or(&args.common.congestion);
    let asset = bench.asset();
    let (mut ours, library) = OurSide::open(&bench, args.common.port + 1, &asset)?;
    let peer = peer.sealing_with(&library);
    let version = peer.version()?;
    let tuned = Tuned { peer, variant, congestion: congestion.clone() };
    let mut theirs = bench.peer(&tuned, args.common.port)?;
    let (mut full, mut first, mut resumed) = (Vec::new(), Vec::new(), Vec::new());
    let mut our_turn = |start| ours.turn(&bench, start).context("our side failed");
    let mut peer_turn = |start| bench.starts(&mut theirs, start).context("the peer failed");
    for pair in 0..args.common.pairs {
        info!(
            pair = pair + 1,
            of = args.common.pairs,
            "full, first and resumed, ours and the peer"
        );
        let (our_full, (peer_full, _)) = (our_turn(Start::Full)?, peer_turn(Start::Full)?);
        full.push((our_full, peer_full));
        first.push((our_turn(Start::First)?, peer_full));
        resumed.push((our_turn(Start::Resumed)?, peer_turn(Start::Resumed)?.0));
    }
    let report = Report {
        sides: bench.sides(tuned, version, OURS, &library),
        group: format!("{GROUP:?}"),
        certificate: args.key.label(),
        cipher: format!("{:?}", args.common.tls.suite(args.key)),
        after: AFTER,
        connections: args.connections,
        pairs: full.len(),
        full: Kind::new(full)?,
        first: Kind::new(first)?,
        resumed: Kind::new(resumed)?,
    };
    for doubt in report.doubts() {
        warn!("{doubt}");
    }
    rig::say(args.common.json, &report, || report.table())?;
    args.bound.map_or(Ok(()), |bound| report.verdict(bound))
}

/// One small file, so that nothing but the start costs anything.
fn workload(connections: usize) -> Workload {
    Workload {
        label: "handshake",
        catalogue: "handshake",
        files: 1,
        file_len: Bytes::mib(1),
        connections,
        range_len: Bytes(1),
        memory_max: None,
        hot_memory: Bytes::mib(64),
        forget: false,
    }
}

impl Start {
    fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::First => "first",
            Self::Resumed => "resumed",
        }
    }

    /// Tokens verified per start, of so many that asked; an error unless they are as many as there
    /// should be.
    fn verified_per_start(self, verified: u64, asked: usize) -> Result<f64> {
        let wanted = if self == Self::First { 1.0 } else { 0.0 };
        let seen = f64::from(u32::try_from(verified)?) / f64::from(u32::try_from(asked)?);
        ensure!(
            (seen - wanted).abs() <= VERIFIED_TOLERANCE,
            "{} starts: our worker verified {seen:.3} tokens per start and not {wanted}: if it \
             keeps other tokens now (pure/worker/src/grants.rs), change TOKENS in \
             compare/handshake.rs",
            self.name()
        );
        Ok(seen)
    }
}

impl<'a> OurSide<'a> {
    /// Started and filled; and the library that seals for it.
    fn open(bench: &'a Bench<'_>, port: u16, asset: &'a str) -> Result<(Self, String)> {
        let (server, library) = bench.ours(port)?;
        let site = bench.site(port, bench.workload.catalogue, asset);
        let files = |base: &Url| bench.catalogue.targets(&base.path);
        let fresh = site.playbacks(TOKENS)?.iter().flat_map(files).collect();
        Ok((Self { site, server, fresh }, library))
    }

    /// One turn of ours, which must have verified a token per first start, and no other.
    fn turn(&mut self, bench: &Bench<'_>, start: Start) -> Result<Turn> {
        let before = self.site.tokens_verified()?;
        let (turn, asked) = if start == Start::First {
            std::mem::swap(&mut self.server.plan.targets, &mut self.fresh);
            let seen = bench.starts(&mut self.server, start)?;
            std::mem::swap(&mut self.server.plan.targets, &mut self.fresh);
            let shown = seen.1 % self.fresh.len();
            self.fresh.rotate_left(shown);
            seen
        } else {
            bench.starts(&mut self.server, start)?
        };
        let verified = self.site.tokens_verified()? - before;
        let tokens_verified_per_start = start.verified_per_start(verified, asked)?;
        Ok(Turn { tokens_verified_per_start, ..turn })
    }
}

impl Bench<'_> {
    /// One turn of one side, and how many starts there were in it, counted or not.
    fn starts(&self, server: &mut Server, start: Start) -> Result<(Turn, usize)> {
        self.catalogue.preload()?;
        let resume = start == Start::Resumed;
        let (turn, asked) = self.watched(server, |plan, meter| {
            let shown = &self.certificate.chain;
            let mut starts = Starts::connect(plan, self.catalogue.truth(), shown, resume)?;
            starts.drive(Instant::now() + self.pace.warm_up)?;
            let (meter_before, client) = (meter()?, cpu::of_this_thread()?);
            let (before, start) = (starts.begun(), Instant::now());
            starts.drive(start + self.pace.window)?;
            let (begun, seconds) = (starts.begun(), start.elapsed().as_secs_f64());
            let client = (cpu::of_this_thread()? - client).as_secs_f64();
            let after = meter()?;
            let asked = starts.finish()?;
            let used = after.used.saturating_sub(meter_before.used).as_secs_f64();
            let busy = after.busy.saturating_sub(meter_before.busy).as_secs_f64();
            Ok((Turn::new(before, begun, [seconds, used, busy, client / seconds])?, asked))
        })?;
        info!(
            start = start.name(),
            per_cpu_s = format!("{:.0}", turn.per_cpu_s),
            handshakes = turn.begun.handshakes,
            client_cpu_share = format!("{:.2}", turn.client_cpu_share),
            "window"
        );
        Ok((turn, asked))
    }
}

impl Turn {
    /// Of the counts when a window opened and when it closed; seconds, the server's CPU seconds,
    /// those of its CPU and the client's share.
    fn new(before: Begun, after: Begun, times: [f64; 4]) -> Result<Self> {
        let [seconds, server_cpu_s, cpu_busy_s, client_cpu_share] = times;
        let begun = Begun {
            handshakes: after.handshakes - before.handshakes,
            resumed: after.resumed - before.resumed,
            tickets: after.tickets - before.tickets,
        };
        ensure!(0 < begun.handshakes && 0.0 < server_cpu_s, "no handshake ended within the window");
        Ok(Self {
            begun,
            seconds,
            server_cpu_s,
            cpu_busy_s,
            per_cpu_s: f64::from(u32::try_from(begun.handshakes)?) / server_cpu_s,
            client_cpu_share,
            tokens_verified_per_start: 0.0,
        })
    }
}

impl Kind {
    fn new(turns: Vec<(Turn, Turn)>) -> Result<Self> {
        let pair = |(ours, peer): (Turn, Turn)| Pair {
            ratio: ours.per_cpu_s / peer.per_cpu_s,
            ours,
            peer,
        };
        let windows: Vec<Pair> = turns.into_iter().map(pair).collect();
        let of = |value: fn(&Pair) -> f64| median_of(&windows, value);
        let ratios: Vec<f64> = windows.iter().map(|pair| pair.ratio).collect();
        let Spread { median: ratio, iqr: ratio_iqr } = Spread::of(&ratios)?;
        let total = |side: fn(&Pair) -> &Turn| {
            windows.iter().map(side).fold(Begun::default(), |sum, turn| Begun {
                handshakes: sum.handshakes + turn.begun.handshakes,
                resumed: sum.resumed + turn.begun.resumed,
                tickets: sum.tickets + turn.begun.tickets,
            })
        };
        Ok(Self {
            ours_per_cpu_s: of(|pair| pair.ours.per_cpu_s)?,
            peer_per_cpu_s: of(|pair| pair.peer.per_cpu_s)?,
            ratio,
            ratio_iqr,
            ratio_cpu_busy: of(|pair| {
                let busy = |turn: &Turn| turn.per_cpu_s * turn.server_cpu_s / turn.cpu_busy_s;
                busy(&pair.ours) / busy(&pair.peer)
            })?,
            tokens_verified_per_start: of(|pair| pair.ours.tokens_verified_per_start)?,
            ours: total(|pair| &pair.ours),
            peer: total(|pair| &pair.peer),
            client_cpu_share: of(|pair| {
                pair.ours.client_cpu_share.max(pair.peer.client_cpu_share)
            })?,
            windows,
        })
    }

    /// What a reader should know before believing the figures.
    fn doubts(&self) -> Vec<String> {
        let share = |value: fn(&Pair) -> f64| median_of(&self.windows, value).unwrap_or(0.0);
        let ours = share(|pair| pair.ours.cpu_busy_s / pair.ours.seconds);
        let peer = share(|pair| pair.peer.cpu_busy_s / pair.peer.seconds);
        let own = [
            share(|pair| pair.ours.server_cpu_s / pair.ours.seconds),
            share(|pair| pair.peer.server_cpu_s / pair.peer.seconds),
        ];
        doubts(self.client_cpu_share, [("ours", ours, own[0]), ("the peer", peer, own[1])])
    }
}

impl Report {
    /// An error if a full or a resumed handshake costs more than so many of the peer's.
    fn verdict(&self, bound: f64) -> Result<()> {
        for (start, kind) in [(Start::Full, &self.full), (Start::Resumed, &self.resumed)] {
            let cost = 1.0 / kind.ratio;
            let name = start.name();
            ensure!(cost <= bound, "a {name} handshake costs {cost:.3} of the peer's, not {bound}");
        }
        Ok(())
    }

    fn kinds(&self) -> [(&'static str, &Kind); 3] {
        let Self { full, first, resumed, .. } = self;
        [(Start::Full, full), (Start::First, first), (Start::Resumed, resumed)]
            .map(|(start, kind)| (start.name(), kind))
    }

    /// What a reader should know before believing the figures, of each kind.
    fn doubts(&self) -> Vec<String> {
        let of_kind = |(name, kind): (&str, &Kind)| {
            let doubts = kind.doubts().into_iter();
            doubts.map(|doubt| format!("{name}: {doubt}")).collect::<Vec<_>>()
        };
        self.kinds().into_iter().flat_map(of_kind).collect()
    }

    fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "handshakes against {}, {} pairs, {}, {}, {}",
            self.sides.peer_line(),
            self.pairs,
            self.group,
            self.certificate,
            self.cipher
        );
        let _ = write!(text, "{}", self.sides.lines());
        let _ = writeln!(text, "after each, {}", self.after);
        let _ = writeln!(
            text,
            "{:<22}{:>10}{:>10}{:>10}{:>10}{:>18}",
            "per CPU s", "ours", "peer", "ratio", "IQR", "tokens verified"
        );
        for (name, kind) in self.kinds() {
            let _ = writeln!(
                text,
                "{name:<22}{:>10.0}{:>10.0}{:>10.3}{:>10.3}{:>18.3}",
                kind.ours_per_cpu_s,
                kind.peer_per_cpu_s,
                kind.ratio,
                kind.ratio_iqr,
                kind.tokens_verified_per_start
            );
        }
        let _ = writeln!(text, "tokens verified per start of ours; the peer's first are its full");
        let [ours, peer] = [self.resumed.ours, self.resumed.peer];
        let _ = writeln!(
            text,
            "resumed: {} of our {}, {} of the peer's {}",
            ours.resumed, ours.handshakes, peer.resumed, peer.handshakes
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::report::tests::sides;

    fn turn(handshakes: u64, resume: bool, server_cpu_s: f64) -> Turn {
        let resumed = if resume { handshakes } else { 0 };
        let before = Begun { handshakes: 5, resumed: 5, tickets: 9 };
        let after =
            Begun { handshakes: 5 + handshakes, resumed: 5 + resumed, tickets: 9 + 2 * handshakes };
        Turn::new(before, after, [3.0, server_cpu_s, 2.5, 0.5]).unwrap()
    }

    fn report() -> Report {
        let full = vec![(turn(100, false, 1.0), turn(100, false, 2.0)); 3];
        let first = [0.96, 1.0, 1.0].map(|verified| {
            let ours = turn(80, false, 1.0);
            (Turn { tokens_verified_per_start: verified, ..ours }, turn(100, false, 2.0))
        });
        let resumed = [(300, 200), (100, 200), (400, 200)]
            .map(|(ours, peer)| (turn(ours, true, 1.0), turn(peer, true, 1.0)));
        Report {
            sides: sides(),
            group: format!("{GROUP:?}"),
            certificate: "ECDSA P-256",
            cipher: "TLS13_AES_128_GCM_SHA256".to_owned(),
            after: AFTER,
            connections: 64,
            pairs: 3,
            full: Kind::new(full).unwrap(),
            first: Kind::new(first.to_vec()).unwrap(),
            resumed: Kind::new(resumed.to_vec()).unwrap(),
        }
    }

    #[test]
    fn the_ratio_is_the_median_of_the_pairs_and_more_is_better() {
        let report = report();
        assert_eq!((report.full.ratio, report.full.ratio_iqr), (2.0, 0.0));
        assert_eq!((report.full.ours_per_cpu_s, report.full.peer_per_cpu_s), (100.0, 50.0));
        assert_eq!((report.resumed.ratio, report.resumed.ratio_iqr), (1.5, 0.75));
        assert_eq!((report.first.ratio, report.first.ours_per_cpu_s), (1.6, 80.0));
        assert_eq!(report.full.ratio_cpu_busy, 1.0);
        assert!(report.verdict(0.67).is_ok());
        let error = report.verdict(0.6).unwrap_err().to_string();
        assert_eq!(error, "a resumed handshake costs 0.667 of the peer's, not 0.6");
        assert!(report.verdict(0.4).unwrap_err().to_string().starts_with("a full handshake"));
    }

    #[test]
    fn what_speaks_against_figures_is_said_of_each_kind() {
        let doubts = report().doubts();
        assert_eq!(doubts.len(), 6, "{doubts:?}");
        for (doubt, kind) in doubts.chunks(2).zip(["full", "first", "resumed"]) {
            let wanted = format!("{kind}: while ours ran, 50 % of its CPU");
            assert!(doubt[0].starts_with(&wanted), "{doubts:?}");
        }
    }

    #[test]
    fn a_first_start_has_its_token_verified_and_no_other_has() {
        let check = |start: Start, verified, seen: Result<f64, &str>| {
            let found = start.verified_per_start(verified, 1000).map_err(|error| error.to_string());
            match (found, seen) {
                (Ok(found), Ok(seen)) => assert_eq!(found, seen),
                (Err(found), Err(says)) => assert!(found.starts_with(says), "{found}"),
                (found, seen) => panic!("{start:?} {verified}: {found:?} and not {seen:?}"),
            }
        };
        check(Start::Full, 1, Ok(0.001));
        check(Start::Resumed, 0, Ok(0.0));
        check(Start::First, 1000, Ok(1.0));
        check(Start::First, 960, Ok(0.96));
        let known = "first starts: our worker verified 0.500 tokens per start and not 1: ";
        check(Start::First, 500, Err(known));
        check(Start::First, 1100, Err("first starts: our worker verified 1.100 "));
        check(Start::Full, 60, Err("full starts: our worker verified 0.060 "));
        check(Start::Resumed, 1000, Err("resumed starts: our worker verified 1.000 "));
    }

    #[test]
    fn tokens_that_were_verified_are_in_text_and_json() {
        let report = report();
        let text = report.table();
        let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(row("first ").ends_with("1.600     0.000             1.000"), "{text}");
        assert!(row("full ").ends_with("2.000     0.000             0.000"), "{text}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["first"]["tokens_verified_per_start"], 1.0);
        assert_eq!(json["first"]["windows"][0]["ours"]["tokens_verified_per_start"], 0.96);
        assert_eq!(json["first"]["peer"], json["full"]["peer"]);
        for kind in ["full", "resumed"] {
            assert_eq!(json[kind]["tokens_verified_per_start"], 0.0);
        }
    }

    #[test]
    fn what_was_resumed_is_counted_for_both() {
        let report = report();
        assert_eq!((report.full.ours.resumed, report.full.peer.resumed), (0, 0));
        let wanted = Begun { handshakes: 800, resumed: 800, tickets: 1600 };
        assert_eq!(report.resumed.ours, wanted);
        assert_eq!(report.resumed.peer.resumed, 600);
        let text = report.table();
        assert!(text.ends_with("resumed: 800 of our 800, 600 of the peer's 600\n"), "{text}");
        assert!(text.contains("X25519, ECDSA P-256, TLS13_AES_128_GCM_SHA256\n"), "{text}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["resumed"]["peer"]["resumed"], 600);
        assert_eq!((&json["after"], &json["processor"]), (&AFTER.into(), &"AMD EPYC".into()));
    }

    /// Nothing is drawn by lot: each start asks for the only byte.
    #[test]
    fn there_is_no_seed() {
        use clap::Args as _;
        let mut command = Args::augment_args(clap::Command::new("handshake"));
        assert!(!command.render_long_help().to_string().contains("--seed"));
        let tried = command.try_get_matches_from(["handshake", "--peer", "nginx", "--seed", "2"]);
        let told = tried.unwrap_err().to_string();
        assert!(told.contains("unexpected argument '--seed'"), "{told}");
    }

    #[test]
    fn a_window_without_a_handshake_is_no_figure() {
        let none = Begun::default();
        assert!(Turn::new(none, none, [3.0, 1.0, 1.0, 0.5]).is_err());
        assert!(Kind::new(Vec::new()).is_err());
    }
}
