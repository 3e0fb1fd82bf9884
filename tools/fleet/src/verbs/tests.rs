use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::control::Control;
use crate::grammar::{Call, Take, flatten};

/// Verbs without a thing, and the routes that they use.
const OTHERS: &[(&str, &[Route])] = &[
    (
        "apply",
        &[
            ("PUT", "/v1/policy"),
            ("PUT", "/v1/sites/{site}"),
            ("PUT", "/v1/appliances/{id}"),
            ("PUT", "/v1/assets/{asset}/public"),
            ("PUT", "/v1/assets/{asset}/versions/{version}/window"),
            ("DELETE", "/v1/sites/{site}"),
            ("DELETE", "/v1/appliances/{id}"),
            ("DELETE", "/v1/fronts/{name}/identity"),
            ("DELETE", "/v1/assets/{asset}/public"),
        ],
    ),
    (
        "export",
        &[
            ("GET", "/v1/policy"),
            ("GET", "/v1/sites"),
            ("GET", "/v1/appliances"),
            ("GET", "/v1/identities"),
            ("GET", "/v1/assets"),
        ],
    ),
    (
        "drain",
        &[
            ("PUT", "/v1/appliances/{id}/drain"),
            ("DELETE", "/v1/appliances/{id}/drain"),
            ("GET", "/v1/appliances/{id}"),
        ],
    ),
    ("ingest", &[("PUT", "/v1/assets/{asset}/versions/{version}")]),
    ("explain", &[("GET", "/v1/explain")]),
    ("qoe", &[("GET", "/v1/viewers")]),
    ("popularity", &[("GET", "/v1/popularity")]),
    ("replay", &[("GET", "/v1/ledger"), ("GET", "/v1/ledger/{file}")]),
];

/// Routes that no person uses: those of players, and of the page's login.
const NOT_FOR_PEOPLE: &[Route] = &[
    ("GET", "/v1/play/{file}"),
    ("GET", "/steer/v1/{session}"),
    ("POST", "/events/v1/{session}"),
    ("POST", "/v1/session"),
    ("DELETE", "/v1/session"),
];

/// The same, by what the document says of them: those between machines, and the pages themselves.
const TAGS_NOT_FOR_PEOPLE: [&str; 2] = ["members", "pages"];

fn document() -> Value {
    serde_json::to_value(control::api::document()).unwrap()
}

/// All operations of the document.
fn operations(document: &Value) -> impl Iterator<Item = (String, &str, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    paths.iter().flat_map(|(path, item)| {
        let operations = item.as_object().unwrap().iter();
        operations.map(|(method, operation)| (method.to_uppercase(), path.as_str(), operation))
    })
}

#[test]
fn every_route_of_controls_api_has_a_verb() {
    let used = VERBS.iter().map(|verb| verb.routes).chain(OTHERS.iter().map(|(_, routes)| *routes));
    let used: BTreeSet<Route> = used.flatten().copied().collect();
    let document = document();
    let mut known = BTreeSet::new();
    for (method, path, operation) in operations(&document) {
        let tag = operation["tags"][0].as_str().unwrap();
        let route = (method.as_str(), path);
        let is_left_out = TAGS_NOT_FOR_PEOPLE.contains(&tag) || NOT_FOR_PEOPLE.contains(&route);
        let has_verb = used.iter().any(|of| *of == route);
        assert!(has_verb || is_left_out, "{method} {path} has no verb: give it a line of VERBS");
        assert!(!(has_verb && is_left_out), "{method} {path} has one, though it is left out");
        known.insert((method.clone(), path));
    }
    for (method, path) in used {
        assert!(known.contains(&(method.to_owned(), path)), "control has no {method} {path}");
    }
    let command = crate::command();
    for (verb, _) in OTHERS {
        assert!(command.find_subcommand(verb).is_some(), "there is no verb {verb}");
    }
}

#[test]
fn a_verb_takes_what_its_route_takes() {
    let document = document();
    for verb in VERBS.iter().filter(|verb| !matches!(verb.shows, Shows::By(_))) {
        let (method, path) = verb.routes[0];
        let takes = |of: &dyn Fn(&Take) -> bool| -> BTreeSet<&str> {
            verb.takes.iter().filter(|take| of(take)).map(|take| take.name).collect()
        };
        let names: BTreeSet<&str> =
            path.split('{').skip(1).filter_map(|rest| rest.split('}').next()).collect();
        let place = format!("nearcast {} {}", verb.thing, verb.verb);
        assert_eq!(takes(&|take| take.what == What::Name), names, "{place}: names");
        let body = &document["paths"][path][method.to_lowercase()]["requestBody"];
        let schema = &body["content"]["application/json"]["schema"]["$ref"];
        let fields = schema.as_str().map(|pointer| {
            let schema = document.pointer(pointer.trim_start_matches('#')).unwrap();
            schema["properties"].as_object().unwrap().keys().map(String::as_str).collect()
        });
        let operation = &document["paths"][path][method.to_lowercase()];
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let parameters = parameters.filter(|of| of["in"] == "query");
        let parameters: BTreeSet<&str> =
            parameters.map(|of| of["name"].as_str().unwrap()).collect();
        assert_eq!(takes(&|take| take.what.is_query()), parameters, "{place}: query");
        let of_body =
            |take: &Take| !matches!(take.what, What::Name | What::MayName) && !take.what.is_query();
        assert_eq!(takes(&of_body), fields.unwrap_or_default(), "{place}: options");
    }
}

#[test]
fn each_thing_is_described_and_has_verbs_of_different_names() {
    for (thing, about) in THINGS {
        let verbs: Vec<_> =
            VERBS.iter().filter(|of| of.thing == *thing).map(|of| of.verb).collect();
        let different: BTreeSet<_> = verbs.iter().collect();
        assert!(!verbs.is_empty() && different.len() == verbs.len(), "{thing}: {verbs:?}");
        assert!(!about.is_empty());
    }
    assert!(VERBS.iter().all(|verb| THINGS.iter().any(|(thing, _)| *thing == verb.thing)));
    let command = crate::command();
    for verb in VERBS {
        let found =
            command.find_subcommand(verb.thing).unwrap().find_subcommand(verb.verb).unwrap();
        assert_eq!(
            found.get_about().unwrap().to_string(),
            verb.about,
            "{} {}",
            verb.thing,
            verb.verb
        );
    }
    // Clap's own checks of the whole command line.
    command.debug_assert();
}

#[test]
fn a_sentence_says_what_was_given_and_what_was_answered() {
    let verb = VERBS.iter().find(|of| (of.thing, of.verb) == ("asset", "window")).unwrap();
    let check = |arguments: &[&str], answer: Value, expected: &str| {
        let arguments = [&["nearcast", "asset", "window"], arguments].concat();
        let matches = crate::command().try_get_matches_from(arguments).unwrap();
        let (_, matches) = matches.subcommand().unwrap();
        let (_, matches) = matches.subcommand().unwrap();
        let control = Control::new("http://127.0.0.1:1", "nc_1_2").unwrap();
        let call = Call { verb, matches, control, json: false };
        let Shows::Says(sentence) = verb.shows else { panic!() };
        assert_eq!(call.sentence(sentence, &answer), expected);
    };
    let (from, until) = ("2027-01-31T22:00:00Z", "2027-12-31T23:00:00Z");
    check(&["film"], json!({}), "film is shown from now until further notice");
    check(
        &["film", "film-1", "--until", until],
        json!({ "until": until }),
        &format!("film-1 is shown from now until {until}"),
    );
    let answer = json!({ "from": from, "until": null });
    check(
        &["film", "--from", from],
        answer,
        &format!("film is shown from {from} until further notice"),
    );
    let refused = crate::command()
        .try_get_matches_from(["nearcast", "asset", "window", "film", "--from", "tomorrow"]);
    assert!(refused.unwrap_err().to_string().contains("write UTC"));
}

#[test]
fn what_is_no_address_is_refused_before_control_is_asked() {
    let take = |address| {
        let words = ["nearcast", "appliance", "set", "a1", "--address", address];
        crate::command().try_get_matches_from(words)
    };
    let error = take("300.1.1.1").unwrap_err().to_string();
    assert!(error.contains("--address") && error.contains("300.1.1.1 is no address"), "{error}");
    for good in ["192.0.2.11", "2001:db8::11", "none"] {
        assert!(take(good).is_ok(), "{good}");
    }
}

#[test]
fn why_a_title_lies_somewhere_is_asked_with_both() {
    let take = |words: &[&str]| {
        let words = [&["nearcast", "plan", "why"], words].concat();
        crate::command().try_get_matches_from(words)
    };
    let missing = |words: &[&str]| -> Vec<String> {
        let error = take(words).unwrap_err().to_string();
        let lines = error.lines().map(str::trim).filter(|line| line.starts_with("--"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(missing(&["--site", "s1"]), ["--file <FILE>"]);
    assert_eq!(missing(&[]), ["--file <FILE>", "--site <SITE>"]);
    assert!(take(&["--site", "s1", "--file", "film"]).is_ok());
}

#[test]
fn fields_are_shown_by_their_names() {
    let mut lines = Vec::new();
    let answer = json!({
        "usable_bytes": 41_290_000, "name": "a1", "cloned": false, "list": ["x", "y"], "none": [],
        "nothing": null, "count": 7, "inside": [{"id": "p1"}, {"id": "p2"}],
        "until_unix_s": 4_105_044_000_u64,
    });
    flatten("", &answer, &mut lines);
    let lines: Vec<String> = lines.iter().map(|(name, text)| format!("{name}: {text}")).collect();
    let mut expected = [
        "usable_bytes: 41.2 MB",
        "name: a1",
        "cloned: no",
        "list: x, y",
        "none: none",
        "nothing: -",
        "count: 7",
        "inside 1 id: p1",
        "inside 2 id: p2",
        "until_unix_s: 2100-01-31T02:00:00Z",
    ];
    let mut sorted = lines.clone();
    sorted.sort();
    expected.sort_unstable();
    assert_eq!(sorted, expected);
}
