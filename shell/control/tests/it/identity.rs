//! Who is let in on the fleet's address, as what, and who is not.

use std::time::{SystemTime, UNIX_EPOCH};

use identity::UnixSeconds;
use identity::authority::Authority;
use identity::credentials::Credentials;
use identity::enrol::EnrolError;
use identity::member::Member;
use identity::signing::VerifyError;
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;
use wire::v1::identity::{Enrol, Enrolled, MemberKind, Renew};
use wire::v1::manifest::Manifest;
use wire::v1::signed::Kind;

use crate::appliance::Appliance;
use crate::control::{Answer, Running, answer};
use crate::link::{Link, enrol, stranger};

const URL: &str = "https://127.0.0.2:8443";

#[test]
fn a_stranger_may_ask_who_we_are_and_enrol_and_nothing_else() {
    let control = Running::start("");
    control.register(&["a1"]);
    let (agent, url) = stranger(&control);
    let object = "00".repeat(32);
    let report = Appliance::new("a1", URL).report;
    let blocks = format!("/v1/objects/{object}/blocks");
    let refused = [
        answer(agent.post(format!("{url}/v1/appliances/a1/report")).send_json(&report)),
        answer(agent.get(format!("{url}/v1/appliances/a1/manifest")).call()),
        answer(agent.get(format!("{url}{blocks}")).call()),
        answer(agent.post(format!("{url}/v1/renew")).send_json(renew(&key()))),
    ];
    for answer in refused {
        assert!(answer.problem(403).contains("enrol first"));
        assert!(answer.json()["type"].as_str().unwrap().ends_with("no-identity"));
    }
    let other = answer(agent.get(format!("{url}/v1/fleet")).call());
    assert!(!other.problem(404).is_empty(), "operators have another address");
    assert!(!control.get("/v1/appliances/a1/manifest").problem(404).is_empty());
    assert!(!control.get(&blocks).problem(404).is_empty());
    // The last, since nobody reads its body and the connection may end with that.
    assert!(!control.post("/v1/appliances/a1/report", &report).problem(404).is_empty());
}

#[test]
fn a_code_is_good_once_and_for_one_member() {
    let control = Running::start("");
    control.register(&["a1", "a2"]);
    let code = control.code("a1");
    let a1 = Member::appliance("a1");
    let refused = |name: &Member, code| match enrol(&control, name, code) {
        Err(EnrolError::Refused { status: 403, text }) => text,
        other => panic!("{other:?}"),
    };
    for member in [Member::appliance("a2"), Member::front("a1"), Member::control()] {
        assert!(refused(&member, &code).contains("for another member"));
    }
    let wrong = identity::code::Code::new([7; 15], &authority(&control).certificate_der().clone());
    assert!(refused(&a1, &wrong).contains("not one of ours"));
    let (agent, url) = stranger(&control);
    let ask = Enrol {
        kind: MemberKind::Appliance,
        name: "a1".to_owned(),
        secret: code.secret(),
        request: "x".to_owned(),
        software: String::new(),
        machine: String::new(),
    };
    let damaged = answer(agent.post(format!("{url}/v1/enrol")).send_json(&ask));
    assert!(damaged.problem(422).contains("certificate request"));

    let credentials = enrol(&control, &a1, &code).expect("nothing of that has used the code up");
    assert_eq!(credentials.seen().member, a1);
    let lifetime = credentials.seen().not_after.0 - now().0;
    assert!((86_300..=86_400).contains(&lifetime), "{lifetime}");
    assert!(refused(&a1, &code).contains("was used before"));
    let listed = control.json("/v1/identities");
    assert_eq!(listed[0]["name"], "a1");
    assert_eq!(listed[0]["serial"], json!(credentials.seen().serial));
    assert_eq!(listed[0]["machine"], crate::link::ABOUT.machine);
}

#[test]
fn a_new_code_replaces_the_one_before_it() {
    let control = Running::start("");
    control.register(&["a1"]);
    let (first, second) = (control.code("a1"), control.code("a1"));
    assert!(enrol(&control, &Member::appliance("a1"), &first).is_err());
    assert!(enrol(&control, &Member::appliance("a1"), &second).is_ok());
}

#[test]
fn an_appliance_may_ask_for_itself_only_and_a_front_not_at_all() {
    let control = Running::start("");
    control.register(&["a1", "a2"]);
    let a1 = Link::enrolled(&control, "a1");
    let report = Appliance::new("a2", URL).report;
    let code = control.post("/v1/fronts/f1/enrolment", &()).json()["code"].clone();
    let code = code.as_str().unwrap().parse().unwrap();
    let f1 = Link::new(&control, enrol(&control, &Member::front("f1"), &code).unwrap());
    for link in [&a1, &f1] {
        let refused = |answer: Answer| {
            let detail = answer.problem(403);
            assert!(detail.contains(&format!("you are {}", link.credentials.seen().member)));
        };
        refused(link.post("/v1/appliances/a2/report", &report));
        refused(link.get("/v1/appliances/a2/manifest"));
        refused(link.post("/v1/appliances/a2/routes", &json!({})));
    }
    let blocks = format!("/v1/objects/{}/blocks", "00".repeat(32));
    assert!(!f1.get(&blocks).problem(403).is_empty());
    assert!(!a1.get(&blocks).problem(404).is_empty(), "appliances may ask for any object");
    assert_eq!(a1.post("/v1/appliances/a1/report", &report).status, 200);
}

#[test]
fn ticket_keys_are_the_same_within_a_site_and_for_nobody_else() {
    let control = Running::start("");
    // Two of one site, and one of another.
    control.register(&["a1", "a2", "b1"]);
    let [a1, a2, b1] = ["a1", "a2", "b1"].map(|name| (name, Link::enrolled(&control, name)));
    let keys = |(name, link): &(&str, Link)| {
        let answer = link.get(&format!("/v1/appliances/{name}/ticket-keys"));
        assert_eq!(answer.status, 200);
        answer.json()["keys"].as_array().unwrap().clone()
    };
    let site = keys(&a1);
    assert_eq!((site.len(), &keys(&a2)), (2, &site));
    assert!(keys(&b1).iter().all(|key| !site.contains(key)));
    assert!(!b1.1.get("/v1/appliances/a1/ticket-keys").problem(403).is_empty());
    let code = control.post("/v1/fronts/f1/enrolment", &()).json()["code"].clone();
    let code = code.as_str().unwrap().parse().unwrap();
    let f1 = Link::new(&control, enrol(&control, &Member::front("f1"), &code).unwrap());
    assert!(!f1.get("/v1/appliances/a1/ticket-keys").problem(403).is_empty());
    assert_eq!(control.get("/v1/appliances/a1/ticket-keys").status, 404, "not on this address");
}

#[test]
fn whoever_is_revoked_is_refused_from_the_next_request_on_and_its_siblings_are_told() {
    let control = Running::start("");
    control.register(&["a1", "a2"]);
    let (mut a1, mut a2) = (Appliance::new("a1", URL), Appliance::new("a2", URL));
    a1.report(&control);
    a2.report(&control);
    let link = a1.link(&control);
    let renewed = Link::new(&control, link.renewed().unwrap());
    assert!(a2.fetch(&control).unwrap().revoked.is_empty());
    assert_eq!(control.delete("/v1/appliances/a1/identity").status, 204);
    for link in [&link, &renewed] {
        let refused = link.post("/v1/appliances/a1/report", &a1.report);
        assert!(refused.problem(403).contains("revoked"));
        assert!(refused.json()["type"].as_str().unwrap().ends_with("identity-revoked"));
        assert!(matches!(link.renewed(), Err(EnrolError::Refused { status: 403, .. })));
    }
    let told = a2.fetch(&control).expect("a new generation").revoked;
    let serials = [&link, &renewed].map(|link| link.credentials.seen().serial.clone());
    assert!(serials.iter().all(|serial| told.contains(serial)), "{told:?}");
    assert_eq!(control.json("/v1/identities").as_array().unwrap().len(), 1);
    assert!(!control.delete("/v1/appliances/a1/identity").problem(404).is_empty());

    a1.link = None;
    a1.report(&control);
    assert!(link.get("/v1/appliances/a1/manifest").problem(403).contains("revoked"), "for good");
}

#[test]
fn an_appliance_that_is_removed_is_no_member_any_more() {
    let control = Running::start("");
    control.register(&["a1"]);
    let link = Link::enrolled(&control, "a1");
    let code = control.code("a1");
    assert_eq!(control.delete("/v1/appliances/a1").status, 204);
    assert!(link.get("/v1/appliances/a1/manifest").problem(403).contains("revoked"));
    assert!(enrol(&control, &Member::appliance("a1"), &code).is_err());
}

#[test]
fn a_second_enrolment_ends_the_first() {
    let control = Running::start("");
    control.register(&["a1"]);
    let first = Link::enrolled(&control, "a1");
    let second = Link::enrolled(&control, "a1");
    assert!(first.get("/v1/appliances/a1/manifest").problem(403).contains("revoked"));
    let signed = second.get("/v1/appliances/a1/manifest");
    let manifest = second.open(&signed.bytes).unwrap();
    assert_eq!(manifest.revoked, [first.credentials.seen().serial.clone()]);
}

#[test]
fn a_renewal_keeps_its_key() {
    let control = Running::start("");
    control.register(&["a1"]);
    let link = Link::enrolled(&control, "a1");
    let renewed = link.renewed().unwrap();
    assert_eq!(renewed.seen().key, link.credentials.seen().key);
    assert_ne!(renewed.seen().serial, link.credentials.seen().serial);
    let renewed = Link::new(&control, renewed);
    for link in [&link, &renewed] {
        assert_eq!(link.get("/v1/appliances/a1/manifest").status, 200);
    }
    let other = link.post("/v1/renew", &renew(&key()));
    assert!(other.problem(403).contains("keeps its key"));
    for _ in 0..6 {
        link.renewed().unwrap();
    }
    let text = link.renewed().unwrap_err().to_string();
    assert!(text.contains("8 good certificates"), "{text}");
}

#[test]
fn certificates_that_are_forged_or_have_expired_get_no_connection() {
    let control = Running::start("");
    control.register(&["a1"]);
    let good = Link::enrolled(&control, "a1");
    let ours = authority(&control);
    let theirs = Authority::create(now()).unwrap();
    let a1 = Member::appliance("a1");
    let connects = |credentials| {
        let link = Link::new(&control, credentials);
        link.try_post("/v1/renew", &()).is_ok()
    };
    let lasting = now().0 + 3600;
    assert!(connects(issued(&ours, &a1, now().0, lasting, |_| ())));
    assert!(!connects(issued(&ours, &a1, now().0 - 7200, now().0 - 60, |_| ())), "expired");
    let tampered = |der: &mut Vec<u8>| *der.last_mut().unwrap() ^= 1;
    assert!(!connects(issued(&ours, &a1, now().0, lasting, tampered)), "its signature");
    let renamed = |der: &mut Vec<u8>| {
        let at = der.windows(12).position(|part| part == b"appliance/a1").unwrap();
        der[at + 11] = b'2';
    };
    assert!(!connects(issued(&ours, &a1, now().0, lasting, renamed)), "its name");
    // Signed by another authority; who looks at the other end is ours all the same.
    let stranger = issued_by(&theirs, &ours, &a1, now().0, lasting, |_| ());
    assert!(!connects(stranger), "another authority");
    assert_eq!(good.get("/v1/appliances/a1/manifest").status, 200);
    let refused = metric(&control, "nearcast_control_handshakes_refused_total");
    assert!(4 <= refused, "{refused}");
}

#[test]
fn a_certificate_that_control_has_no_record_of_is_refused() {
    let control = Running::start("");
    control.register(&["a1"]);
    let ours = authority(&control);
    let request = "/v1/appliances/a1/manifest";
    for member in [Member::appliance("a1"), Member::control()] {
        let forged = issued(&ours, &member, now().0, now().0 + 3600, |_| ());
        let refused = Link::new(&control, forged.clone()).get(request).problem(403);
        assert!(refused.contains("knows no identity"), "{refused}");
    }
    Link::enrolled(&control, "a1");
    let forged = issued(&ours, &Member::appliance("a1"), now().0, now().0 + 3600, |_| ());
    let refused = Link::new(&control, forged).get(request).problem(403);
    assert!(refused.contains("another key"), "{refused}");
    assert_eq!(metric(&control, "nearcast_control_members_refused_total"), 3);
}

#[test]
fn manifests_are_signed_once_and_a_changed_one_is_seen() {
    let control = Running::start("");
    control.register(&["a1"]);
    let link = Link::enrolled(&control, "a1");
    let path = "/v1/appliances/a1/manifest";
    let (first, second) = (link.get(path).bytes, link.get(path).bytes);
    assert_eq!(first, second);
    assert_eq!(metric(&control, "nearcast_control_manifests_signed_total"), 1);
    let manifest = link.open(&first).unwrap();
    assert!(now().0 - manifest.issued_unix_s < 60);
    assert_eq!(manifest.signing_keys.len(), 1);
    assert_eq!(manifest.signing_keys[0].kid, "s1");
    let mut changed = first.clone();
    *changed.last_mut().unwrap() ^= 1;
    assert_eq!(link.open(&changed), Err(VerifyError::BadSignature));
    let known = format!("{path}?known={}", manifest.generation);
    assert_eq!(link.get(&known).status, 204, "no older one is ever given");
}

#[test]
fn identities_and_codes_outlive_a_restart() {
    let mut control = Running::start("");
    control.register(&["a1", "a2"]);
    let (a1, code) = (Link::enrolled(&control, "a1"), control.code("a2"));
    let path = "/v1/appliances/a1/manifest";
    let before = a1.get(path).bytes;
    control.restart();
    let a1 = Link::new(&control, a1.credentials);
    let (before, after) = (a1.open(&before).unwrap(), a1.open(&a1.get(path).bytes).unwrap());
    assert_eq!(before.generation, after.generation);
    assert!(enrol(&control, &Member::appliance("a2"), &code).is_ok());
    control.delete("/v1/appliances/a1/identity");
    control.restart();
    assert!(!Link::new(&control, a1.credentials).get(path).problem(403).is_empty());
}

#[test]
fn whoever_tries_many_secrets_has_to_wait() {
    let control = Running::start("");
    control.register(&["a1"]);
    let wrong = identity::code::Code::new([7; 15], &authority(&control).certificate_der().clone());
    let mut statuses = Vec::new();
    for _ in 0..25 {
        match enrol(&control, &Member::appliance("a1"), &wrong) {
            Err(EnrolError::Refused { status, .. }) => statuses.push(status),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((statuses[0], statuses[24]), (403, 429));
    assert_eq!(metric(&control, "nearcast_control_enrolments_refused_total"), 25);
    // A guess beyond the limit is not looked at, though it is right, and burns nothing.
    let code = control.code("a1");
    let lucky = enrol(&control, &Member::appliance("a1"), &code);
    assert!(matches!(lucky, Err(EnrolError::Refused { status: 429, .. })), "{lucky:?}");
    assert_eq!(metric(&control, "nearcast_control_codes_open"), 1);
    assert_eq!(metric(&control, "nearcast_control_identities"), 0);
}

#[test]
fn what_happens_to_identities_is_counted() {
    let control = Running::start("");
    control.register(&["a1", "a2"]);
    let link = Link::enrolled(&control, "a1");
    link.renewed().unwrap();
    control.code("a2");
    let gauge = |name: &str| metric(&control, &format!("nearcast_control_{name}"));
    assert_eq!((gauge("enrolments_total"), gauge("renewals_total")), (1, 1));
    assert_eq!((gauge("identities"), gauge("codes_open")), (1, 1));
    assert_eq!((gauge("identities_expiring"), gauge("certificates_revoked")), (0, 0));
    control.delete("/v1/appliances/a1/identity");
    assert_eq!((gauge("revocations_total"), gauge("certificates_revoked")), (1, 2));
    assert_eq!(gauge("identities"), 0);
}

#[test]
fn a_cloned_appliance_is_shown_and_offered_to_nobody_until_that_is_settled() {
    let mut control = Running::start("");
    control.register(&["a1"]);
    let mut machines = [Appliance::new("a1", URL), Appliance::new("a1", URL)];
    machines[0].report(&control);
    machines[1].link = machines[0].link.clone();
    machines[1].report.start_id = 78;
    let both = |machines: &mut [Appliance; 2], control: &Running| {
        for _ in 0..4 {
            for machine in machines.iter_mut() {
                machine.report(control);
            }
        }
    };
    both(&mut machines, &control);
    let state = |control: &Running| {
        let appliance = control.json("/v1/fleet")["sites"][0]["appliances"][0].clone();
        (appliance["state"].clone(), appliance["reason"].to_string())
    };
    let (cloned, reason) = state(&control);
    assert_eq!(cloned, "unhealthy");
    assert!(reason.contains("two machines report under its identity"), "{reason}");
    let errors = control.json("/v1/fleet")["errors"].to_string();
    assert!(errors.contains("a1 is unhealthy: two machines"), "{errors}");
    assert_eq!(metric(&control, "nearcast_control_clones_total"), 1);

    std::thread::sleep(std::time::Duration::from_millis(300));
    control.restart();
    machines[0].link = machines[0].link.take().map(|link| Link::new(&control, link.credentials));
    machines[0].report(&control);
    assert_eq!(state(&control).0, "unhealthy", "it is remembered");
    assert_eq!(control.delete("/v1/appliances/a1/clone").status, 204);
    assert!(!control.delete("/v1/appliances/a1/clone").problem(404).is_empty());
    machines[0].report(&control);
    assert_eq!(state(&control).0, "healthy");
    machines[1].link = machines[0].link.clone();
    both(&mut machines, &control);
    assert_eq!(state(&control).0, "unhealthy", "it was not gone");
    machines[0].link = None;
    machines[0].report(&control);
    assert_eq!(state(&control).0, "healthy", "enrolled anew, and alone");
    let refused = machines[1].link.as_ref().unwrap().get("/v1/appliances/a1/manifest");
    assert!(refused.problem(403).contains("revoked"));
}

#[test]
fn a_disk_that_woke_up_in_another_machine_is_told() {
    let control = Running::start("");
    control.register(&["a1"]);
    let mut a1 = Appliance::new("a1", URL);
    a1.report.machine = crate::link::ABOUT.machine.to_owned();
    a1.report(&control);
    assert_eq!(metric(&control, "nearcast_control_moves_total"), 0, "as it enrolled");
    let mut moved = Appliance::new("a1", URL);
    moved.link = a1.link.clone();
    moved.report.start_id = 78;
    moved.report.machine = "fedcba9876543210fedcba9876543210".to_owned();
    moved.report.drives[0].id = "cd".repeat(16);
    moved.report(&control);
    let told = control.json("/v1/fleet")["errors"].to_string();
    assert!(told.contains("a1 is healthy: it moved to other hardware"), "{told}");
    assert_eq!(metric(&control, "nearcast_control_moves_total"), 1);
}

#[test]
fn a_rotated_signing_key_is_announced_by_the_old_one_and_signs_then() {
    let control = Running::start("");
    control.register(&["a1"]);
    let mut a1 = Appliance::new("a1", URL);
    a1.settle(&control);
    assert_eq!(control.post("/v1/signing-keys", &()).status, 202);
    let kids = || {
        let keys = control.json("/v1/signing-keys");
        let kids =
            keys.as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap().to_owned());
        kids.collect::<Vec<_>>()
    };
    assert_eq!(kids(), ["s1", "s2"]);
    let announced = fetch_until(&mut a1, &control, |manifest| manifest.signing_keys.len() == 2);
    let link = a1.link(&control);
    assert_eq!(kids(), ["s1", "s2"], "it was fetched, and not followed yet");
    a1.report(&control);
    let begun = std::time::Instant::now();
    while kids() != ["s2"] {
        assert!(begun.elapsed().as_secs() < 10, "{:?}", kids());
        a1.report(&control);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let path = "/v1/appliances/a1/manifest";
    let begun = std::time::Instant::now();
    let signed = loop {
        let signed = link.get(path).bytes;
        if link.open(&signed) == Err(VerifyError::UnknownKey("s2".to_owned())) {
            break signed;
        }
        assert!(begun.elapsed().as_secs() < 10);
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    let keys: Vec<_> = announced.signing_keys.iter().map(key_in).collect();
    let payload = identity::signing::verify(&keys, Kind::Manifest, &signed).unwrap();
    let manifest: Manifest = serde_json::from_slice(payload).unwrap();
    assert_eq!(manifest.signing_keys, announced.signing_keys[1..]);
    assert!(announced.generation < manifest.generation);
    let renewed = Link::new(&control, link.renewed().unwrap());
    assert!(renewed.open(&signed).is_ok(), "whoever was away learns it with a renewal");
}

fn fetch_until(
    appliance: &mut Appliance,
    control: &Running,
    condition: impl Fn(&Manifest) -> bool,
) -> Manifest {
    let begun = std::time::Instant::now();
    loop {
        if let Some(manifest) = appliance.fetch(control).filter(&condition) {
            return manifest;
        }
        assert!(begun.elapsed().as_secs() < 10, "it never came");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn key_in(key: &wire::v1::manifest::TokenKey) -> model::manifest::TokenKey {
    let bytes: model::id::ObjectId = key.public_key.parse().unwrap();
    model::manifest::TokenKey { kid: key.kid.clone(), public_key: bytes.0 }
}

#[test]
fn the_authoritys_secrets_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let control = Running::start("");
    for name in ["authority.toml", "signing.toml"] {
        let mode = std::fs::metadata(control.state().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

/// The authority itself, with which a test can make any certificate.
fn authority(control: &Running) -> Authority {
    let text = std::fs::read_to_string(control.state().join("authority.toml")).unwrap();
    let stored: toml::Table = text.parse().unwrap();
    let text = |key: &str| stored[key].as_str().unwrap().to_owned();
    Authority::from_pem(&text("key"), &text("certificate")).unwrap()
}

/// An identity that control has no record of, its certificate changed after it was signed.
fn issued(
    authority: &Authority,
    member: &Member,
    from: u64,
    to: u64,
    change: fn(&mut Vec<u8>),
) -> Credentials {
    issued_by(authority, authority, member, from, to, change)
}

fn issued_by(
    authority: &Authority,
    believed: &Authority,
    member: &Member,
    from: u64,
    to: u64,
    change: fn(&mut Vec<u8>),
) -> Credentials {
    let key = key();
    let issued =
        authority.issue(member, &request(&key), [7; 16], UnixSeconds(from), to - from).unwrap();
    let mut der = pem::decode(&issued.certificate);
    change(&mut der);
    let given = Enrolled {
        certificate: pem::encode(&der),
        authority: believed.certificate_pem().to_owned(),
        signing_keys: Vec::new(),
    };
    Credentials::new(&key.serialize_pem(), &given).unwrap()
}

fn key() -> KeyPair {
    KeyPair::generate().unwrap()
}

fn request(key: &KeyPair) -> String {
    CertificateParams::default().serialize_request(key).unwrap().pem().unwrap()
}

fn renew(key: &KeyPair) -> Renew {
    Renew { request: request(key) }
}

fn metric(control: &Running, name: &str) -> u64 {
    let text = control.get("/metrics").text();
    let line = text.lines().find(|line| line.split(' ').next() == Some(name));
    line.unwrap_or_else(|| panic!("{name} is there")).split(' ').nth(1).unwrap().parse().unwrap()
}

fn now() -> UnixSeconds {
    UnixSeconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs())
}

/// The armour of RFC 7468.
mod pem {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    pub(super) fn decode(text: &str) -> Vec<u8> {
        let lines = text.lines().filter(|line| !line.starts_with("-----"));
        STANDARD.decode(lines.collect::<String>()).unwrap()
    }

    pub(super) fn encode(der: &[u8]) -> String {
        let text = STANDARD.encode(der);
        format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
    }
}
