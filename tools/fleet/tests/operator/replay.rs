//! `nearcast replay` of files that a process wrote, and of files that somebody changed.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use ledger::{Answered, Decision, HASH_LEN, Kind, Ledger, SIGNATURE_LEN};
use model::id::{SiteId, hex};
use model::members::Members;
use model::near::{By, Class, Near, Route, Step};
use model::topology::Weight;
use model::units::UnixSeconds;
use model::view::{ApplianceView, FleetView, Health, Load, SiteView};
use steering::{Config, Query, Wanted, rank};

use crate::running::Running;
use crate::s3_server::{ID, REGION, SECRET, Server};

const LISTS: Config = Config { pathways_min: 2, pathways_max: 4, explains: false };

/// Decisions of a file.
const EACH: u32 = 500;

#[test]
fn a_ledger_is_replayed_and_one_that_was_changed_is_refused() {
    let place = Written::new();
    let [one, two] = &place.files;
    let said = place.says(&[one, two], &[]);
    assert!(said.starts_with("1000 decisions for 1000 players (1000 lists of playbacks"), "{said}");
    assert!(said.ends_with("\n1000 decisions, the same\n"), "{said}");
    let json: serde_json::Value =
        serde_json::from_str(&place.says(&[one, two], &["--json"])).unwrap();
    assert_eq!((&json["decisions"], &json["differing"]), (&1000.into(), &0.into()));

    let bytes = fs::read(one).unwrap();
    let changed = |name: &str, bytes: &[u8]| {
        let path = place.folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    let flipped = changed("flipped", &flipped);
    let said = place.refused(&[&flipped], &[]);
    assert!(said.contains("flipped is refused: the seal of block 0 does not fit"), "{said}");
    let cut = changed("cut", &bytes[..bytes.len() - 1]);
    let said = place.refused(&[&cut], &[]);
    assert!(said.contains("it is cut off in block 0") && said.contains("--unfinished"), "{said}");
    let said = place.refused(&[&cut], &["--unfinished"]);
    assert!(said.contains("no file of this version has a block that is whole"), "{said}");
    let said = place.refused(&[two, one], &[]);
    assert!(said.contains("is not younger than the file before it: oldest first"), "{said}");
    let said = place.refused(&[one], &["--key", &"00".repeat(32)]);
    assert!(said.contains("another process than that of the key"), "{said}");
    let said = place.refused(&[one], &["--without-site", "s9"]);
    assert!(said.contains("s9 is in none of the files"), "{said}");
}

#[test]
fn a_file_that_a_crash_tore_is_taken_up_to_there_and_that_is_said() {
    let place = Written::new();
    let [_, two] = &place.files;
    let torn = place.folder.path().join("torn");
    let (whole, half) = Written::halves();
    fs::write(&torn, [&whole[..], &half[..half.len() / 2]].concat()).unwrap();
    let said = place.refused(&[&torn], &[]);
    assert!(said.contains("it is cut off in block 1"), "{said}");
    let output = place.run(&[&torn], &["--unfinished", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let left_out = format!("is torn in block 1: its last {} bytes are left out", half.len() / 2);
    assert!(json["torn"][0].as_str().unwrap().ends_with(&left_out), "{json}");
    assert_eq!(json["decisions"], EACH);
    assert!(String::from_utf8(output.stderr).unwrap().contains(&left_out));

    let first = place.folder.path().join("first");
    fs::write(&first, &whole[..whole.len() - 1]).unwrap();
    let output = place.run(&[&first, two], &["--unfinished"]);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("first is torn in its first block, and left out"), "{said}");
}

#[test]
fn an_older_file_and_one_that_is_torn_in_its_first_block_are_no_success() {
    let place = Written::new();
    let path = |name: &str| place.folder.path().join(name);
    let (older, torn) = (path("older"), path("torn"));
    let (first, _) = Written::halves();
    fs::write(&torn, &first[..first.len() / 2]).unwrap();
    fs::write(&older, as_of_an_earlier_version(&fs::read(&place.files[0]).unwrap())).unwrap();
    for files in [&[&older][..], &[&older, &torn], &[&torn]] {
        let said = place.refused(files, &["--unfinished"]);
        assert!(said.contains("nothing is replayed: no file of this version has a"), "{said}");
    }
    let said = place.refused(&[&older, &torn], &["--unfinished"]);
    assert!(said.contains("older is left out: its seals hold, and it is of an earlier"), "{said}");
    assert!(said.contains("torn is torn in its first block, and left out"), "{said}");
}

#[test]
fn without_a_site_or_under_another_policy_the_summary_says_who_would_go_where() {
    let place = Written::new();
    let [one, two] = &place.files;
    let said = place.says(&[one, two], &["--without-site", "s0"]);
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let last = words(said.lines().last().unwrap());
    assert_eq!(last, ["s0", "s1", "500", "500"], "{said}");
    assert!(said.contains("500 of 1000 players would go elsewhere first"), "{said}");
    let policy = place.folder.path().join("policy.toml");
    fs::write(&policy, "pathways_max = 1\n[weights]\na0 = 1000\n").unwrap();
    let said = place.says(&[one], &["--policy", policy.to_str().unwrap()]);
    assert_eq!(words(said.lines().last().unwrap())[..2], ["s0", "s0"], "{said}");
    let under = |text: &str, of: fn(&Written, &[&PathBuf], &[&str]) -> String| {
        fs::write(&policy, text).unwrap();
        of(&place, &[one], &["--policy", policy.to_str().unwrap()])
    };
    let said = under("[shares]\na0 = 0\na1 = 0\n", Written::says);
    assert_eq!(words(said.lines().last().unwrap())[..2], ["s0", "s1"], "{said}");
    let said = under("copies = 1\n", Written::says);
    assert!(said.contains("500 lists would be others"), "of two in each site one: {said}");
    let said = under("copies = 2\n", Written::says);
    assert!(said.contains("0 of 500 players") && said.contains("0 lists"), "{said}");
    for (text, wanted) in [
        ("copies = 0\n", "copies: use 1 or more"),
        ("[shares]\na0 = 101\n", "shares: a0: use 0 to 100"),
        ("[shares]\na9 = 50\n", "a9 is in none of the files"),
        ("placement = 1\n", "unknown field `placement`"),
    ] {
        let said = under(text, Written::refused);
        assert!(said.contains(wanted), "{said}");
    }
}

#[test]
fn of_one_playback_each_decision_is_told_with_all_its_reasons() {
    let place = Written::new();
    let [one, two] = &place.files;
    let mark = hex(&draw(EACH + 3)[..4]);
    let said = place.says(&[one, two], &["--session", &mark]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "2027-01-15T08:08:23Z", "{said}");
    let head = "The playback began: film-1, from 4 of 4 appliances (generation 0)";
    assert_eq!(lines[1], head, "{said}");
    assert!(lines[3].starts_with("RANK  APPLIANCE  SITE  WHY"), "{said}");
    assert!(lines[4].contains("s1    own site: 10.0.0.0/24 is the longest match"), "{said}");
    assert!(said.contains("holds the whole version"), "{said}");
    assert_eq!(said.matches("load 0.0 % (CPU)").count(), 4, "{said}");
    let json: serde_json::Value =
        serde_json::from_str(&place.says(&[one, two], &["--session", &mark, "--json"])).unwrap();
    let [decision] = &json["decisions"].as_array().unwrap()[..] else { panic!("{json}") };
    assert_eq!(
        (&decision["kind"], &decision["at_unix_s"]),
        (&"begun".into(), &1_800_000_503.into())
    );
    let first = &decision["candidates"][0];
    assert_eq!((&first["rank"], &first["site"]), (&1.into(), &"s1".into()));
    assert_eq!(first["reasons"][0]["code"], "first");

    let said = place.refused(&[one], &["--session", &mark]);
    assert!(said.contains("no decision about this playback is in these files"), "{said}");
    let output = place.run(&[one], &["--session", "nobody"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let output = place.run(&[one], &["--session", &mark, "--without-site", "s0"]);
    assert_eq!(output.status.code(), Some(2), "a player who went elsewhere is another question");
}

#[test]
fn an_archive_is_replayed_from_its_folder_or_its_bucket() {
    let place = Written::new();
    let server = Server::start();
    let archive = place.folder.path().join("archive");
    let of_key = archive.join(&place.key);
    fs::create_dir_all(&of_key).unwrap();
    for (number, file) in place.files.iter().enumerate() {
        let (name, bytes) = (format!("{number:010}-0f0f.ledger"), fs::read(file).unwrap());
        fs::write(of_key.join(&name), &bytes).unwrap();
        server.bucket().put(&format!("ledgers/{}/{name}", place.key), bytes);
    }
    server.bucket().put("ledgers/another-key/0000000000-0f0f.ledger", *b"of another process");
    let address = PathBuf::from("s3://films/ledgers/");
    let endpoint = server.endpoint();
    let in_bucket = ["--endpoint", &endpoint, "--region", REGION];
    for (of, more) in [(&archive, &[][..]), (&of_key, &[]), (&address, &in_bucket)] {
        let said = place.says(&[of], more);
        assert!(said.ends_with("\n1000 decisions, the same\n"), "{said}");
    }
    let said = place.refused(&[&PathBuf::from("s3://films/ledgers")], &in_bucket);
    assert!(said.contains("with a slash at the end"), "{said}");
    let said = place.refused(&[&PathBuf::from("s3://films/elsewhere/")], &in_bucket);
    assert!(said.contains("no files of the process with this key"), "{said}");
    let said = place.refused(&[&archive], &["--key", &"00".repeat(32)]);
    assert!(said.contains("archive has no files of a ledger, nor 0000"), "{said}");
}

#[test]
fn files_between_which_one_is_missing_are_taken_where_that_is_said() {
    let place = Written::new();
    let mut ledger = Ledger::new(LISTS, 2);
    let mut file = || {
        decide(&mut ledger, 3 * EACH);
        ledger.seal(UnixSeconds(9), true, sign)
    };
    file();
    let fourth = place.folder.path().join("fourth");
    fs::write(&fourth, file()).unwrap();
    let [one, two] = &place.files;
    let said = place.refused(&[one, two, &fourth], &[]);
    assert!(said.contains("fourth is refused") && said.contains("say --gaps"), "{said}");
    let output = place.run(&[one, two, &fourth], &["--gaps", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["decisions"], 3 * EACH);
    let said = json["gaps"][0].as_str().unwrap();
    assert!(said.starts_with("1 files before") && said.ends_with("fourth are missing"), "{said}");
    let replaced = place.folder.path().join("replaced");
    let mut other = Ledger::new(LISTS, 0);
    decide(&mut other, 7);
    fs::write(&replaced, other.seal(UnixSeconds(9), true, sign)).unwrap();
    let said = place.refused(&[&replaced, two], &["--gaps"]);
    assert!(said.contains("that was replaced, or is cut"), "{said}");
}

#[test]
fn a_control_plane_without_a_ledger_says_so() {
    let control = Running::start();
    let output = control.nearcast(&["replay"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("there is no ledger yet"), "{said}");
}

/// Two files of a process, and its key.
struct Written {
    folder: tempfile::TempDir,
    key: String,
    files: [PathBuf; 2],
}

impl Written {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::new(LISTS, 0);
        let files = [0, 1].map(|file| {
            decide(&mut ledger, file * EACH);
            let path = folder.path().join(format!("{file}.ledger"));
            fs::write(&path, ledger.seal(UnixSeconds(9), true, sign)).unwrap();
            path
        });
        Self { folder, key: hex(pair().public_key().as_ref()), files }
    }

    /// Two blocks of a file.
    fn halves() -> (Vec<u8>, Vec<u8>) {
        let mut ledger = Ledger::new(LISTS, 0);
        decide(&mut ledger, 0);
        let first = ledger.seal(UnixSeconds(9), false, sign);
        decide(&mut ledger, EACH);
        (first, ledger.seal(UnixSeconds(9), false, sign))
    }

    fn run(&self, files: &[&PathBuf], arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nearcast"));
        command.arg("replay").args(files).args(arguments);
        command.env("AWS_ACCESS_KEY_ID", ID).env("AWS_SECRET_ACCESS_KEY", SECRET);
        if !arguments.contains(&"--key") {
            command.args(["--key", &self.key]);
        }
        command.output().unwrap()
    }

    fn says(&self, files: &[&PathBuf], arguments: &[&str]) -> String {
        let output = self.run(files, arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn refused(&self, files: &[&PathBuf], arguments: &[&str]) -> String {
        let output = self.run(files, arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

/// A file of one block, as a program of version 1 would have sealed it.
fn as_of_an_earlier_version(file: &[u8]) -> Vec<u8> {
    let mut bytes = file[..file.len() - SIGNATURE_LEN].to_vec();
    bytes[4] = 1;
    let seal = sign(blake3::hash(&bytes).as_bytes());
    bytes.extend(seal);
    bytes
}

fn pair() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[9; 32]).unwrap()
}

fn sign(hash: &[u8; HASH_LEN]) -> [u8; SIGNATURE_LEN] {
    pair().sign(&ledger::message(hash)).as_ref().try_into().unwrap()
}

/// Decisions for clients of two sites with two appliances each, in turns.
fn decide(ledger: &mut Ledger, from: u32) {
    let names: [SiteId; 2] = ["s0", "s1"].map(|name| name.parse().unwrap());
    let view = Arc::new(fleet(&names));
    let version = "film-1".parse().unwrap();
    for n in from..from + EACH {
        let (first, then) = if n % 2 == 0 { (0, 1) } else { (1, 0) };
        let near = [near(first, 24, Step::First), near(then, 8, Step::Prefix)];
        let draw = draw(n);
        let wanted = Wanted::of(&view, &version);
        let query =
            Query { near: &near, version: wanted, session: &draw, plain: false, among: None };
        let list = rank(&view, &query, &LISTS);
        ledger.put(&Decision {
            kind: Kind::Begun,
            at: UnixSeconds(1_800_000_000 + u64::from(n)),
            draw,
            plain: false,
            version: &version,
            view: &view,
            near: &near,
            answered: &Answered::of(&view, &list, None),
        });
    }
}

fn draw(n: u32) -> [u8; 8] {
    blake3::hash(&n.to_le_bytes()).as_bytes()[..8].try_into().unwrap()
}

fn near(site: u32, len: u8, step: Step) -> Near {
    let prefix = model::topology::Prefix::new([10, 0, 0, 0].into(), len).unwrap();
    let (neighbour, med) = (None, None);
    let class = Class::Private;
    let route = Route { prefix, class, is_static: false, path_len: 1, neighbour, med };
    Near { number: site, by: By::Route(route), step }
}

fn fleet(names: &[SiteId; 2]) -> FleetView {
    let mut view = FleetView::default();
    for (number, name) in (0..).zip(names) {
        let appliance = |n: u32| ApplianceView {
            id: format!("a{n}").parse().unwrap(),
            number: n,
            weight: Weight::ONE,
            health: Health::Healthy,
            share_permille: 1000,
            titles_permille: 400,
            base_url: Some("https://a".into()),
            plain_url: None,
            load: Load::default(),
        };
        let appliances = vec![appliance(2 * number), appliance(2 * number + 1)];
        let site = SiteView { id: name.clone(), serves_strangers: true, appliances };
        view.put_site(number, Arc::new(site));
    }
    Arc::make_mut(&mut view.versions).insert("film-1".parse().unwrap(), 0);
    view.holders.push(Members::from([0, 1, 2, 3]).into());
    view
}
