//! The plan of placement, as operators ask for it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::appliance::Appliance;
use crate::control::Running;
use crate::film::film;
use crate::players::with_appliances;
use crate::popularity::{part, tell};

#[test]
fn an_operator_sees_what_a_plan_moves_and_why_a_title_lies_where_it_does() {
    let (control, _appliances, _) = with_appliances("");
    let plan = control.json("/v1/plan");
    assert_eq!((&plan["refused"], &plan["goes"]), (&json!([]), &json!(0)), "{plan}");
    assert_eq!((&plan["missing"], &plan["at_origin"]), (&json!(0), &json!(0)), "{plan}");
    let why = control.json("/v1/plan/why?site=a&file=film");
    let rows = why.as_array().unwrap();
    assert_eq!(rows.len(), 2 * 4, "two appliances, and four renditions: {why}");
    for row in rows {
        assert_eq!((&row["version"], &row["held"]), (&json!("film-1"), &json!(true)));
    }
    let site = json!({"prefixes": ["127.0.0.0/8"], "bitrate_max_bps": 900_000});
    control.put("/v1/sites/a", &site);
    let number = || control.json("/v1/plan")["number"].as_u64().unwrap();
    let other = control.post("/v1/plan", &json!({"force": number() + 1_000_000}));
    let said = other.problem(409);
    assert!(said.contains("cannot be forced, since the last one is"), "{said}");
    let made = until(|| {
        let made = control.post("/v1/plan", &json!({"force": number()}));
        (made.status != 409).then_some(made)
    });
    assert_eq!(made.status, 202, "{}", made.text());
    let of_upper = || {
        let why = control.json("/v1/plan/why?site=a&file=film-1");
        let rows = why.as_array().unwrap().clone();
        let upper = rows.into_iter().filter(|row| row["held"] == false);
        upper.map(|row| row["why"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of_upper(), vec!["it must not be here: it is above the site's bitrate_max_bps"; 4]);
    control.put("/v1/sites/empty", &json!({"prefixes": []}));
    for (query, wanted) in [
        ("site=z&file=film", "there is no site z: `nearcast site list` has them"),
        ("site=a&file=fil", "there is no asset or version fil: `nearcast asset list` has them"),
        (
            "site=empty&file=film",
            "no appliance stands in empty: `nearcast appliance set APPLIANCE --site empty`",
        ),
    ] {
        let said = control.get(&format!("/v1/plan/why?{query}")).problem(404);
        assert_eq!(said, wanted);
    }
    let said = control.get("/v1/plan/why?site=a").problem(400);
    assert!(said.contains("say which site and which file"), "{said}");
    let newer = |number: u8| {
        let path = format!("/v1/assets/film/versions/film-{number}");
        assert_eq!(control.put(&path, &film(number)).status, 201);
    };
    [2, 3, 4].into_iter().for_each(newer);
    let said = control.get("/v1/plan/why?site=a&file=film-1").problem(404);
    assert!(said.starts_with("film-1 is held nowhere: newer versions of its asset"), "{said}");
    let bad = control.post("/v1/plan", &json!({"forced": true}));
    assert!(bad.status == 422 || bad.status == 400, "{}", bad.text());
}

/// Ten titles, of which two are watched in one site; another has room for two.
#[test]
fn a_site_with_room_for_a_fifth_converges_on_what_is_watched_and_says_why() {
    let mut control = Running::start("");
    control.register(&["a1"]);
    let mut appliance = Appliance::new("a1", "https://127.0.0.2:8443");
    appliance.report(&control);
    while control.json("/v1/appliances").to_string().contains("_bytes\":null") {
        std::thread::sleep(Duration::from_millis(20));
    }
    for title in 0..10_u8 {
        let path = format!("/v1/assets/t{title}/versions/t{title}-1");
        let ingested = control.put(&path, &film(title));
        assert_eq!(ingested.status, 201, "{}", ingested.text());
    }
    let manifest = until(|| {
        appliance.generation = 0;
        appliance.fetch(&control).filter(|of| of.versions.len() == 10)
    });
    // By number, every file of a title; the titles share none but their playlists.
    let mut watched: Vec<(u32, u64)> = Vec::new();
    for version in &manifest.versions {
        let objects: BTreeSet<&str> = version.files.values().map(|of| of.object.as_str()).collect();
        let bytes = if ["t3-1", "t7-1"].contains(&version.id.as_str()) { 1 << 30 } else { 1000 };
        let first = manifest.numbers[&version.id];
        watched.extend((first..).zip(&objects).map(|(file, _)| (file, bytes)));
    }
    watched.sort_unstable();
    for (number, days_ago) in [(1, 4), (2, 3), (3, 2)] {
        assert_eq!(tell(&control, &mut appliance, &part(number, days_ago, &watched)), number);
    }
    let made = control.post("/v1/plan", &json!({}));
    assert_eq!(made.status, 202, "{}", made.text());
    control.restart();
    control.register(&["b1"]);
    let mut small = Appliance::new("b1", "https://127.0.0.3:8443");
    small.report.drives[0].capacity_bytes = 2_600_000;
    small.report.drives[0].free_bytes = 2_600_000;
    small.report(&control);
    let held = until(|| {
        let manifest = small.fetch(&control)?;
        let mut names: Vec<String> = manifest.versions.iter().map(|of| of.id.clone()).collect();
        names.sort();
        (!names.is_empty()).then_some(names)
    });
    assert_eq!(held, ["t3-1", "t7-1"]);
    let why = control.json("/v1/plan/why?site=b&file=t0");
    let rows = why.as_array().unwrap();
    assert!(rows.iter().all(|row| row["held"] == false), "{why}");
    let said = rows[0]["why"].as_str().unwrap();
    assert!(said.contains("bytes a day per MiB, and the cut-off is"), "{said}");
    let plan = control.json("/v1/plan");
    assert_eq!(plan["refused"], json!([]), "{plan}");
}

fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "it does not come to that");
        std::thread::sleep(Duration::from_millis(50));
    }
}
