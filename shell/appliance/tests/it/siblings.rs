//! Fill from siblings, and what is given to them.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use appliance::filling::peer::PeerConfig;
use appliance::process::config::Text;
use appliance::process::storage::{Config, StorageHandle};
use identity::credentials::Credentials;
use identity::dial::Dial;
use identity::member::Member;
use model::id::Generation;
use model::manifest::{SiteMember, Trust, TrustDocument};
use model::units::BitsPerSecond;
use ureq::unversioned::transport::DefaultConnector;
use wire::v1::identity::Source;
use wire::v1::report::Report;
use wire::v1::signed::Kind;

use upkeep::Cause;

use crate::fleet::{Fleet, ours};
use crate::http::Server;
use crate::origin::Origin;
use crate::rig::{Rig, TestControl, TestFile, version, wait};

/// An appliance that holds these files and lets siblings have them.
pub(crate) struct Sibling {
    member: Member,
    pub(crate) control: Arc<TestControl>,
    pub(crate) rig: Rig,
    pub(crate) handle: StorageHandle,
    pub(crate) address: String,
    _servers: [Server; 2],
}

impl Sibling {
    fn start(name: &str, files: &[TestFile], peer: impl FnOnce(&mut PeerConfig)) -> Self {
        Self::of_site(name, files, &[], |config| peer(&mut config.peer))
    }

    /// One of a site with service addresses.
    pub(crate) fn of_site(
        name: &str,
        files: &[TestFile],
        site: &[SiteMember],
        configure: impl FnOnce(&mut Config),
    ) -> Self {
        let (origin, o) = Origin::start();
        files.iter().for_each(|file| origin.put(&file.path, file.bytes.clone()));
        let (control, c) = TestControl::start("127.0.0.1:0");
        control.name.set(name.to_owned()).unwrap();
        *control.site.lock().unwrap() = site.to_vec();
        control.publish(1, vec![version("film-1", &[o.address], files)], files);
        let mut rig = Rig::named(name, 1, Some(c.address));
        rig.config.peer = PeerConfig {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            address: None,
            rate_max: None,
            connections_max: 4,
        };
        configure(&mut rig.config);
        let handle = rig.start();
        rig.wait_for(files);
        let mut address = None;
        wait("the report of where it is", || {
            address = control.last_report().and_then(|report| report.peer_address);
            address.is_some()
        });
        let (member, address) = (Member::appliance(name), address.unwrap());
        Self { member, control, rig, handle, address, _servers: [o, c] }
    }

    pub(crate) fn source(&self, file: &TestFile) -> Source {
        source(&self.member, &self.address, file)
    }

    fn sent(&self) -> u64 {
        self.handle.peer().sent.load(Ordering::SeqCst)
    }
}

fn source(member: &Member, address: &str, file: &TestFile) -> Source {
    Source {
        url: format!("https://{}:1/v1/objects/{}", member.host(), file.id()),
        address: Some(address.to_owned()),
        expires_unix_s: None,
        same_site: false,
    }
}

/// The appliance that is filled, its control, and its origin.
struct Filled {
    origin: Arc<Origin>,
    origin_server: Server,
    control: Arc<TestControl>,
    control_server: Server,
    rig: Rig,
}

impl Filled {
    fn new(files: &[TestFile], sources: impl Fn(&TestFile) -> Vec<Source>) -> Self {
        let (origin, origin_server) = Origin::start();
        files.iter().for_each(|file| origin.put(&file.path, file.bytes.clone()));
        let (control, control_server) = TestControl::start("127.0.0.1:0");
        control.publish(1, vec![version("film-1", &[origin_server.address], files)], files);
        let told = files.iter().map(|file| (file.id(), sources(file)));
        *control.sources.lock().unwrap() = told.collect();
        let rig = Rig::new(1, Some(control_server.address));
        Self { origin, origin_server, control, control_server, rig }
    }
}

impl Filled {
    /// An object that is given up for a while is begun again later, with other sources: not here.
    fn was_never_given_up(&self) {
        self.was_never_given_up_of(1);
    }

    fn was_never_given_up_of(&self, objects: u64) {
        let all = |report: &Report| report.fill.objects_held == objects;
        let held = || self.control.last_report().filter(all);
        wait("the report of all", || held().is_some());
        assert_eq!(held().unwrap().errors, []);
    }
}

fn files() -> Vec<TestFile> {
    let lens = [0, 1, 65_536, 262_145, 3_000_000];
    lens.iter().map(|len| TestFile::new(&format!("v/{len}.mp4"), *len)).collect()
}

fn total(files: &[TestFile]) -> u64 {
    files.iter().map(|file| file.blocks.len().0).sum()
}

#[test]
fn all_comes_from_a_sibling_and_nothing_from_the_origin() {
    let files = files();
    let sibling = Sibling::start("a2", &files, |_| {});
    let mut filled = Filled::new(&files, |file| vec![sibling.source(file)]);
    let handle = filled.rig.start();
    filled.rig.wait_for(&files);
    assert_eq!((filled.origin.sent(), sibling.sent()), (0, total(&files)));
    assert_eq!(handle.fill().from_siblings.0, total(&files));
    wait("the report of the rate", || {
        let reports = filled.control.reports.lock().unwrap();
        reports.iter().any(|report| 0 < report.fill.sibling_bits_per_second)
    });
}

#[test]
fn a_sibling_that_dies_is_replaced_by_the_origin_without_starting_over() {
    let files = [TestFile::new("v.mp4", 40_000_000)];
    let mut sibling = Sibling::start("a2", &files, |peer| {
        peer.rate_max = Some(Text(BitsPerSecond(80_000_000)));
    });
    let mut filled = Filled::new(&files, |file| vec![sibling.source(file)]);
    let handle = filled.rig.start();
    wait("a part of it", || 10_000_000 < handle.fill().from_siblings.0);
    sibling.handle.stop();
    filled.rig.wait_for(&files);
    let (from_sibling, from_origin) = (sibling.sent(), filled.origin.sent());
    assert!(10_000_000 < from_sibling && 10_000_000 < from_origin);
    assert!((from_sibling + from_origin) * 100 <= 40_000_000 * 105, "{from_sibling} {from_origin}");
    assert_eq!(handle.fill().fetched.0, 40_000_000, "no block came twice");
}

#[test]
fn a_sibling_that_falls_silent_or_breaks_off_is_replaced_and_left_out() {
    for silent in [true, false] {
        let files = [TestFile::new("v.mp4", 3_000_000), TestFile::new("w.mp4", 3_000_000)];
        let member = Member::appliance("a3");
        let (bad, b) = Origin::start_sibling(&member);
        files.iter().for_each(|file| bad.put_object(file));
        let fault = if silent { &bad.faults.silent_after } else { &bad.faults.cut_after };
        fault.store(400_000, Ordering::SeqCst);
        let at = b.address.to_string();
        let mut filled = Filled::new(&files, |file| vec![source(&member, &at, file)]);
        filled.rig.config.fill.concurrency = 1;
        let handle = filled.rig.start();
        filled.rig.wait_for(&files);
        assert_eq!(bad.requests.load(Ordering::SeqCst), 1, "it was asked for one object only");
        assert_eq!(handle.fill().from_siblings.0, 262_144, "the block that was whole is kept");
        assert_eq!(handle.fill().fetched.0, 6_000_000);
    }
}

#[test]
fn a_sibling_that_sends_wrong_bytes_is_dropped_and_the_operator_told() {
    let files = [TestFile::new("v.mp4", 3_000_000), TestFile::new("w.mp4", 3_000_000)];
    let member = Member::appliance("a3");
    let (liar, l) = Origin::start_sibling(&member);
    files.iter().for_each(|file| liar.put_object(file));
    liar.faults.wrong_byte.store(300_000, Ordering::SeqCst);
    let at = l.address.to_string();
    let mut filled = Filled::new(&files, |file| vec![source(&member, &at, file)]);
    filled.rig.config.fill.concurrency = 1;
    let _handle = filled.rig.start();
    filled.rig.wait_for(&files);
    assert_eq!(liar.requests.load(Ordering::SeqCst), 1, "no second question, of any object");
    wait("the report of it", || {
        let errors = filled.control.last_report().unwrap().errors;
        let wanted = format!("the appliance at {at} sent wrong bytes in block 1");
        errors.iter().any(|e| e.room == "fill" && e.text.contains(&wanted))
    });
}

/// A client that is asked for a client certificate, and shows this one.
pub(crate) fn ask(
    credentials: &Credentials,
    sibling: &Sibling,
    path: &str,
    range: &str,
) -> Option<(u16, Vec<u8>)> {
    let mut answer = begin(credentials, sibling, path, range)?;
    let mut body = Vec::new();
    answer.body_mut().as_reader().read_to_end(&mut body).ok()?;
    Some((answer.status().as_u16(), body))
}

/// Asks, and reads the head of the answer.
fn begin(
    credentials: &Credentials,
    sibling: &Sibling,
    path: &str,
    range: &str,
) -> Option<ureq::http::Response<ureq::Body>> {
    let dial = Dial::default();
    dial.set(&sibling.member, &sibling.address);
    let own = ours().credentials(&Member::appliance("any")).client_tls().unwrap();
    // The roots are ours whoever asks: what is tested is whom the sibling lets in.
    let tls = ureq::tls::TlsConfig::builder()
        .client_cert(credentials.client_tls().unwrap().client_cert().cloned())
        .root_certs(own.root_certs().clone())
        .unversioned_rustls_crypto_provider(identity::credentials::provider())
        .build();
    let config = ureq::Agent::config_builder()
        .tls_config(tls)
        .http_status_as_error(false)
        .proxy(None)
        .timeout_global(Some(std::time::Duration::from_secs(10)))
        .build();
    let agent = ureq::Agent::with_parts(config, DefaultConnector::new(), dial);
    let url = format!("https://{}:1{path}", sibling.member.host());
    agent.get(&url).header("Range", range).call().ok()
}

#[test]
fn objects_are_given_in_ranges_to_appliances_of_the_fleet() {
    let files = files();
    let sibling = Sibling::start("a2", &files, |_| {});
    let a1 = ours().credentials(&Member::appliance("a1"));
    let file = &files[4];
    let path = format!("/v1/objects/{}", file.id());
    for (first, last) in [(0, 0), (1, 2_999_999), (4095, 4096), (262_143, 524_289), (5, 262_144)] {
        let (status, body) = ask(&a1, &sibling, &path, &format!("bytes={first}-{last}")).unwrap();
        assert!(status == 206 && body == file.bytes[first..=last], "{first}-{last}");
    }
    assert_eq!(ask(&a1, &sibling, &path, "bytes=3000000-").unwrap().0, 416);
    let whole = ask(&a1, &sibling, &path, "lines=1-2").unwrap();
    assert!(whole.0 == 200 && whole.1 == **file.bytes);
    let none = "0".repeat(64);
    for path in [&format!("/v1/objects/{none}"), "/v1/objects/", "/", "/v1/objects/../../etc"] {
        assert_eq!(ask(&a1, &sibling, path, "bytes=0-1").unwrap(), (404, vec![]), "{path}");
    }
}

#[test]
fn who_is_no_appliance_of_the_fleet_gets_nothing() {
    let files = [TestFile::new("v.mp4", 300_000)];
    let sibling = Sibling::start("a2", &files, |_| {});
    let path = format!("/v1/objects/{}", files[0].id());
    let get = |credentials: &Credentials| ask(credentials, &sibling, &path, "bytes=0-99");
    let a1 = Member::appliance("a1");
    assert!(get(&ours().credentials(&a1)).is_some());
    assert_eq!(get(&Fleet::new().credentials(&a1)), None, "of another fleet");
    assert_eq!(get(&ours().ended(&a1)), None, "it has ended");
    assert_eq!(get(&ours().credentials(&Member::control())), None, "control fetches nothing");
    assert_eq!(get(&ours().credentials(&Member::front("f1"))), None);
    assert_eq!(sibling.sent(), 100);
    wait("the count", || sibling.handle.peer().refused.load(Ordering::SeqCst) == 4);
}

#[test]
fn who_is_revoked_gets_nothing_from_then_on() {
    let files = [TestFile::new("v.mp4", 20_000_000)];
    let sibling = Sibling::start("a2", &files, |peer| {
        peer.rate_max = Some(Text(BitsPerSecond(32_000_000)));
    });
    let mut filled = Filled::new(&files, |file| vec![sibling.source(file)]);
    let serial = filled.rig.config.credentials.seen().serial.clone();
    let handle = filled.rig.start();
    // In the middle of a fill, on a connection that is there already.
    wait("a part of it", || 4_000_000 < handle.fill().from_siblings.0);
    sibling.control.revoked.lock().unwrap().insert(serial);
    let version = sibling.rig.told.manifest.lock().unwrap().clone().unwrap().versions[0].clone();
    sibling.control.publish(2, vec![(*version).clone()], &files);
    wait("the manifest that says so", || sibling.handle.fill().generation.0 == 2);
    let before = sibling.sent();
    filled.rig.wait_for(&files);
    assert!(sibling.sent() < before + 2_000_000, "no more than the request that was running");
    assert!(0 < filled.origin.sent());
    let path = format!("/v1/objects/{}", files[0].id());
    assert_eq!(ask(&filled.rig.config.credentials, &sibling, &path, "bytes=0-99"), None);
    let other = ours().credentials(&Member::appliance("a1"));
    assert!(ask(&other, &sibling, &path, "bytes=0-99").is_some(), "its next identity is good");
}

#[test]
fn who_is_revoked_gets_nothing_before_the_first_manifest_either() {
    let files = [TestFile::new("v.mp4", 300_000)];
    let mut sibling = Sibling::start("a2", &files, |_| {});
    let a1 = ours().credentials(&Member::appliance("a1"));
    let revoked = [a1.seen().serial.clone()].into();
    let trust = Trust { generation: Generation(1), revoked, ..Trust::default() };
    let document = TrustDocument { token_keys: Vec::new(), trust };
    let payload = serde_json::to_vec(&wire::convert::trust_out(&document)).unwrap();
    let envelope = ours().signer.sign(Kind::Trust, &payload);
    sibling.handle.stop();
    let config = &mut sibling.rig.config;
    config.peer.listen = vec![sibling.address.parse().unwrap()];
    std::fs::remove_file(config.state.join("manifest.signed")).unwrap();
    *sibling.control.manifest.lock().unwrap() = None;
    *sibling.control.trust.lock().unwrap() = Some((document, envelope));
    sibling.handle = sibling.rig.start();
    let said = || sibling.control.last_report().and_then(|report| report.trust);
    wait("the trust document", || said() == Some(1));
    assert_eq!(sibling.handle.fill().generation, Generation(0));
    let path = format!("/v1/objects/{}", files[0].id());
    assert_eq!(ask(&a1, &sibling, &path, "bytes=0-99"), None);
    let other = ours().credentials(&Member::appliance("a1"));
    assert!(ask(&other, &sibling, &path, "bytes=0-99").is_some(), "its next identity is good");
}

#[test]
fn who_shows_no_certificate_gives_its_place_to_a_sibling() {
    let files = [TestFile::new("v.mp4", 300_000)];
    let sibling = Sibling::start("a2", &files, |peer| peer.connections_max = 2);
    let a1 = ours().credentials(&Member::appliance("a1"));
    let path = format!("/v1/objects/{}", files[0].id());
    for _ in 0..3 {
        let connect = |_| std::net::TcpStream::connect(&sibling.address).unwrap();
        let _silent: Vec<_> = (0..8).map(connect).collect();
        assert!(ask(&a1, &sibling, &path, "bytes=0-99").is_some());
    }
}

#[test]
fn siblings_beyond_the_limit_are_turned_away_while_all_have_requests_under_way() {
    let files = [TestFile::new("v.mp4", 60_000_000)];
    let sibling = Sibling::start("a2", &files, |peer| peer.connections_max = 2);
    let of = |name: &str| ours().credentials(&Member::appliance(name));
    let path = format!("/v1/objects/{}", files[0].id());
    let asks = |name: &str| ask(&of(name), &sibling, &path, "bytes=0-99").is_some();
    let first = begin(&of("a1"), &sibling, &path, "bytes=0-").unwrap();
    assert!(!asks("a1"), "a member has half of the places");
    assert!(asks("a3"), "the other half is for others");
    let second = begin(&of("a3"), &sibling, &path, "bytes=0-").unwrap();
    assert!(!asks("a4"), "both take their answers");
    drop(first);
    wait("the place to be free", || asks("a4"));
    drop(second);
}

#[test]
fn nothing_is_given_from_a_drive_that_is_set_aside() {
    let files = [TestFile::new("v.mp4", 300_000)];
    let sibling = Sibling::start("a2", &files, |_| {});
    let a1 = ours().credentials(&Member::appliance("a1"));
    let path = format!("/v1/objects/{}", files[0].id());
    assert_eq!(ask(&a1, &sibling, &path, "bytes=0-9").unwrap().0, 206);
    sibling.handle.set_aside(model::extent::DriveIndex(0), Cause::Refused("pulled out".to_owned()));
    assert_eq!(ask(&a1, &sibling, &path, "bytes=0-9").unwrap().0, 404);
}

#[test]
fn with_control_away_the_manifests_own_sources_are_used() {
    let files = [TestFile::new("v.mp4", 8_000_000)];
    let (nowhere, member) = ("127.0.0.1:1", Member::appliance("a9"));
    let mut filled = Filled::new(&files, |file| vec![source(&member, nowhere, file)]);
    filled.rig.config.fill.rate_max = Some(Text(BitsPerSecond(64_000_000)));
    let mut handle = filled.rig.start();
    wait("a part", || 2_000_000 <= handle.fill().fetched.0);
    assert_eq!(handle.fill().from_siblings.0, 0, "it cannot be reached");
    handle.stop();
    drop(filled.control_server);
    filled.rig.config.fill.rate_max = None;
    let _handle = filled.rig.start();
    filled.rig.wait_for(&files);
}

#[test]
fn what_waits_for_a_master_holds_nothing_up_and_is_no_failure() {
    let files = [TestFile::new("v/a.mp4", 3_000_000), TestFile::new("v/b.mp4", 2_000_000)];
    let mut filled = Filled::new(&files, |_| vec![]);
    let [a, b] = [files[0].id(), files[1].id()];
    let waiting = &filled.control.waiting;
    waiting.lock().unwrap().insert(a, Vec::new());
    filled.rig.config.fill.concurrency = 1;
    let handle = filled.rig.start();
    wait("b", || filled.rig.told.index.lock().unwrap().locate(&b).is_some());
    let said = || waiting.lock().unwrap()[&a].clone();
    wait("four questions", || 4 <= said().len());
    let said = said();
    assert!(said.is_sorted() && (3..=6).contains(said.last().unwrap()), "{said:?}");
    assert_eq!((filled.origin.sent(), handle.fill().objects_waiting), (2_000_000, 1));
    let parts = std::fs::read_dir(filled.rig.drive(0).join("fill")).unwrap().count();
    assert_eq!(parts, 0, "no room is taken for it");
    assert_eq!(filled.control.last_report().unwrap().errors, []);
    waiting.lock().unwrap().clear();
    filled.rig.wait_for(&files);
    assert_eq!((filled.origin.sent(), handle.fill().objects_waiting), (5_000_000, 0));
    filled.was_never_given_up_of(2);
}

#[test]
fn a_url_that_expires_is_asked_for_again() {
    let files = [TestFile::new("v.mp4", 6_000_000)];
    let mut filled = Filled::new(&files, |_| vec![]);
    let base = format!("http://{}/film/v.mp4", filled.origin_server.address);
    let presigned = |lasts: u64| {
        let expires_unix_s = Some(appliance::clock::wall().0 + lasts);
        let url = format!("{base}?signed={lasts}");
        vec![Source { url, address: None, expires_unix_s, same_site: false }]
    };
    for lasts in [4, 600] {
        filled.origin.put(&format!("v.mp4?signed={lasts}"), files[0].bytes.clone());
    }
    let say = |lasts| {
        let told = [(files[0].id(), presigned(lasts))].into();
        *filled.control.sources.lock().unwrap() = told;
    };
    say(4);
    filled.rig.config.fill.rate_max = Some(Text(BitsPerSecond(8_000_000)));
    let _handle = filled.rig.start();
    wait("the first question", || 0 < filled.control.sources_asked.load(Ordering::SeqCst));
    say(600);
    filled.rig.wait_for(&files);
    assert_eq!(filled.control.sources_asked.load(Ordering::SeqCst), 2, "once more");
    filled.was_never_given_up();
    assert!(filled.origin.sent() * 100 <= 6_000_000 * 105);
}

#[test]
fn a_url_that_is_refused_before_its_time_is_asked_for_again() {
    let files = [TestFile::new("v.mp4", 3_000_000)];
    let mut filled = Filled::new(&files, |_| vec![]);
    let base = format!("http://{}/film/v.mp4", filled.origin_server.address);
    let say = |signature: &str| {
        let expires_unix_s = Some(appliance::clock::wall().0 + 600);
        let url = format!("{base}?signed={signature}");
        let told = vec![Source { url, address: None, expires_unix_s, same_site: false }];
        *filled.control.sources.lock().unwrap() = [(files[0].id(), told)].into();
    };
    say("old");
    filled.origin.faults.status.store(403, Ordering::SeqCst);
    filled.origin.put("v.mp4?signed=new", files[0].bytes.clone());
    let _handle = filled.rig.start();
    wait("the refusal", || 0 < filled.origin.requests.load(Ordering::SeqCst));
    filled.origin.faults.status.store(0, Ordering::SeqCst);
    say("new");
    filled.rig.wait_for(&files);
    assert!(2 <= filled.control.sources_asked.load(Ordering::SeqCst));
    filled.was_never_given_up();
    assert_eq!(filled.origin.sent(), 3_000_000);
}
