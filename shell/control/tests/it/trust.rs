//! The trust document: what all appliances share, signed once.

use identity::signing;
use wire::v1::manifest::{Manifest, Trust};
use wire::v1::signed::Kind;

use crate::appliance::Appliance;
use crate::control::Running;
use crate::link::Link;

const URL: &str = "https://127.0.0.2:8443";

fn trust(link: &Link, name: &str, known: u64) -> Option<Trust> {
    let answer = link.get(&format!("/v1/appliances/{name}/trust?known={known}"));
    if answer.status == 204 {
        return None;
    }
    assert_eq!((answer.status, &*answer.kind), (200, "application/vnd.nearcast.signed"));
    let keys = link.credentials.signing_keys();
    let payload = signing::verify(&keys, Kind::Trust, &answer.bytes).unwrap();
    Some(serde_json::from_slice(payload).unwrap())
}

fn manifest(link: &Link, query: &str) -> Manifest {
    link.open(&link.get(&format!("/v1/appliances/a1/manifest?{query}")).bytes).unwrap()
}

/// Reports that it follows this trust document: the generations that it should have.
fn report(a: &mut Appliance, control: &Running, followed: Option<u64>) -> (u64, u64) {
    a.report.trust = followed;
    let reply = a.report(control);
    (reply.generation, reply.trust)
}

fn signed(control: &Running, what: &str) -> u64 {
    let page = control.get("/metrics").text();
    let line = format!("nearcast_control_{what}_signed_total ");
    page.lines().find_map(|of| of.strip_prefix(&line)).unwrap().parse().unwrap()
}

#[test]
fn a_revoked_certificate_signs_one_document_and_no_manifest() {
    let mut control = Running::start("");
    control.register(&["a1", "a2", "a3"]);
    let [mut a1, mut a2] = ["a1", "a2"].map(|name| Appliance::new(name, URL));
    let (link, other) = (a1.link(&control), a2.link(&control));
    Link::enrolled(&control, "a3");
    let (_, first) = report(&mut a1, &control, Some(0));
    let (before, first) = report(&mut a1, &control, Some(first));
    report(&mut a2, &control, Some(first));
    let document = trust(&link, "a1", 0).unwrap();
    assert_eq!((document.generation, document.revoked.len()), (first, 0));
    assert_eq!((document.token_keys.len(), document.signing_keys.len()), (1, 1));
    assert_eq!(trust(&link, "a1", first), None, "no older one is ever given");
    let apart = manifest(&link, "short=true&trust=true");
    assert_eq!((apart.trust, apart.token_keys.len()), (Some(first), 0));
    assert_eq!((apart.signing_keys.len(), apart.revoked.len()), (0, 0));
    let before_whole = signed(&control, "manifests");
    let [whole, _] = [(); 2].map(|()| manifest(&link, "trust=true"));
    assert_eq!((whole.trust, &whole.token_keys), (None, &document.token_keys), "it is kept");
    assert_eq!(signed(&control, "manifests"), before_whole + 1);
    let of_before = manifest(&link, "short=true");
    assert_eq!((of_before.trust, of_before.token_keys), (None, document.token_keys.clone()));

    let (documents, manifests) =
        (signed(&control, "trust_documents"), signed(&control, "manifests"));
    assert_eq!(control.delete("/v1/appliances/a3/identity").status, 204);
    let (after, second) = report(&mut a1, &control, Some(first));
    assert!(first < second);
    assert_eq!(after, before);
    let [one, two] = [(&link, "a1"), (&other, "a2")].map(|(link, name)| trust(link, name, first));
    assert_eq!(one, two);
    let revoked = one.unwrap();
    assert_eq!((revoked.generation, revoked.revoked.len()), (second, 1));
    assert_eq!(signed(&control, "trust_documents"), documents + 1);
    assert_eq!(signed(&control, "manifests"), manifests);

    control.restart();
    let link = Link::new(&control, link.credentials);
    let again = trust(&link, "a1", 0).unwrap();
    assert_eq!((again.generation, again.revoked), (second, revoked.revoked));
    let (after, _) = (manifest(&link, "short=true&trust=true").generation, second);
    assert_eq!(after, before);
}

#[test]
fn an_appliance_of_before_gets_a_manifest_with_each_change_of_keys() {
    let control = Running::start("");
    control.register(&["a1", "a2"]);
    let mut a1 = Appliance::new("a1", URL);
    let link = a1.link(&control);
    Link::enrolled(&control, "a2");
    let (before, _) = report(&mut a1, &control, None);
    assert_eq!(control.delete("/v1/appliances/a2/identity").status, 204);
    let after = loop {
        let (after, _) = report(&mut a1, &control, None);
        if before < after && !manifest(&link, "short=true").revoked.is_empty() {
            break after;
        }
    };
    let told = manifest(&link, &format!("known={before}&short=true"));
    assert_eq!((told.generation, told.revoked.len(), told.trust), (after, 1, None));
}
