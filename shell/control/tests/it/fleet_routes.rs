//! Every route of the fleet's address, asked by a stranger, by the appliance that it is about, by
//! another appliance, and by a front.

use std::fmt::Write as _;

use identity::member::Member;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use wire::v1::demand::DemandPart;
use wire::v1::identity::{Enrol, MemberKind, Renew};
use wire::v1::manifest::Lacking;
use wire::v1::routes::Part;
use wire::v1::sheds::ShedReport;

use crate::appliance::Appliance;
use crate::control::{Running, answer};
use crate::film::film;
use crate::link::{Link, enrol, stranger};

const URL: &str = "https://127.0.0.2:8443";

/// Routes, by the document that control has of itself: a unit test holds it to the table.
fn routes(control: &Running) -> Vec<(String, String)> {
    let document = control.json("/openapi.json");
    let mut found = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let of_members = |operation: &Value| operation["tags"] == json!(["members"]);
        let methods = methods.as_object().unwrap().iter();
        let methods = methods.filter(|(_, operation)| of_members(operation));
        found.extend(methods.map(|(method, _)| (method.to_uppercase(), path.clone())));
    }
    found
}

/// A body that the route takes, if it takes one.
fn body(control: &Running, path: &str) -> Value {
    let key = KeyPair::generate().unwrap();
    let request = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
    let body = match path {
        "/v1/enrol" => serde_json::to_value(Enrol {
            kind: MemberKind::Appliance,
            name: "a3".to_owned(),
            secret: control.code("a3").secret(),
            request,
            software: String::new(),
            machine: String::new(),
        }),
        "/v1/renew" => serde_json::to_value(Renew { request }),
        "/v1/appliances/{id}/report" => serde_json::to_value(Appliance::new("a1", URL).report),
        "/v1/appliances/{id}/documents" => {
            serde_json::to_value(Lacking { documents: vec!["0".repeat(64)] })
        }
        "/v1/appliances/{id}/demand" => serde_json::to_value(DemandPart::default()),
        "/v1/replica/sheds" => serde_json::to_value(ShedReport::default()),
        "/v1/appliances/{id}/routes" => {
            let to = format!("0-{}", "0".repeat(32));
            serde_json::to_value(Part { to, is_last: true, ..Part::default() })
        }
        other => panic!("no body for {other}: give it one here"),
    };
    body.unwrap()
}

fn ask(control: &Running, caller: Option<&Link>, method: &str, path: &str, full: &str) -> u16 {
    let (agent, url) = stranger(control);
    let body = (method == "POST").then(|| body(control, path));
    let answer = match (caller, body) {
        (Some(link), Some(body)) => link.post(full, &body),
        (Some(link), None) => link.get(full),
        (None, Some(body)) => answer(agent.post(format!("{url}{full}")).send_json(&body)),
        (None, None) => answer(agent.get(format!("{url}{full}")).call()),
    };
    assert!(answer.status != 403 || !answer.problem(403).is_empty());
    answer.status
}

#[test]
fn each_fleet_route_answers_the_members_that_it_is_for() {
    let control = Running::start("");
    control.register(&["a1", "a2", "a3"]);
    let film = film(0);
    let object = film.files["v/r0.mp4"].object.clone();
    let mut a1 = Appliance::new("a1", URL);
    a1.report(&control);
    while control.json("/v1/appliances/a1").to_string().contains("_bytes\":null") {
        std::thread::yield_now();
    }
    assert_eq!(control.put("/v1/assets/film/versions/film-1", &film).status, 201);
    let code = control.post("/v1/fronts/f1/enrolment", &()).json()["code"].clone();
    let code = code.as_str().unwrap().parse().unwrap();
    let f1 = Link::new(&control, enrol(&control, &Member::front("f1"), &code).unwrap());
    let a2 = Link::enrolled(&control, "a2");
    let callers = [None, Some(a1.link(&control)), Some(a2), Some(f1)];
    let mut table = "stranger a1   a2   f1".to_owned();
    for (method, path) in routes(&control) {
        let full = path.replace("/objects/{id}", &format!("/objects/{object}"));
        let full = full.replace("{id}", "a1").replace("{object}", &object);
        table.push('\n');
        for (caller, width) in callers.iter().zip([9, 5, 5, 5]) {
            let status = match caller {
                // With the key of its identity, which the link has.
                Some(link) if path == "/v1/renew" => link.renewed().map_or(403, |_| 200),
                caller => ask(&control, caller.as_ref(), &method, &path, &full),
            };
            write!(table, "{status:<width$}").unwrap();
        }
        write!(table, "{method} {path}").unwrap();
    }
    insta::assert_snapshot!(table, @"
    stranger a1   a2   f1
    403      200  403  403  POST /v1/appliances/{id}/demand
    403      200  403  403  POST /v1/appliances/{id}/documents
    403      200  403  403  GET /v1/appliances/{id}/expected
    403      200  403  403  GET /v1/appliances/{id}/manifest
    403      200  403  403  POST /v1/appliances/{id}/report
    403      200  403  403  POST /v1/appliances/{id}/routes
    403      200  403  403  GET /v1/appliances/{id}/sources/{object}
    403      200  403  403  GET /v1/appliances/{id}/ticket-keys
    403      200  403  403  GET /v1/appliances/{id}/trust
    200      200  200  200  GET /v1/authority
    200      200  200  200  POST /v1/enrol
    403      200  200  403  GET /v1/objects/{id}/blocks
    403      200  200  200  POST /v1/renew
    403      403  403  200  GET /v1/replica/keys
    403      403  403  204  POST /v1/replica/sheds
    403      403  403  200  GET /v1/replica/snapshot
    ");
}
