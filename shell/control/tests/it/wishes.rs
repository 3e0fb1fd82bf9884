//! What operators say of versions: pins, bans and launches.

use serde_json::{Value, json};

use crate::control::Running;
use crate::players::with_appliances;
use crate::popularity::{part, tell};
use crate::promtool;

#[test]
fn what_is_wrong_with_a_pin_a_ban_or_a_launch_is_said() {
    let (control, _appliances, _) = with_appliances("");
    for (path, body, status, wanted) in [
        ("pins/none-1", json!({}), 404, "no asset version none-1"),
        ("pins/film-1", json!({"site": "z"}), 409, "there is no site z"),
        ("bans/film-1", json!({"cluster": "z"}), 409, "no site is of manifest cluster z"),
        ("bans/film-1", json!({"site": "a", "cluster": "z"}), 400, "say one of them, or neither"),
        ("pins/film-1", json!({"until": "tomorrow"}), 400, "until: write a time in UTC"),
        ("pins/film-1", json!({"until": "2001-01-31T02:00:00Z"}), 400, "until: this time is past"),
        ("launches/film-1", json!({}), 400, "day_bytes, like: say one of them"),
        (
            "launches/film-1",
            json!({"day_bytes": 0}),
            400,
            "day_bytes: use 1 to 1000000000000000000",
        ),
        ("launches/film-1", json!({"day_bytes": 1, "like": "film-1"}), 400, "say one of them"),
        ("launches/film-1", json!({"like": "film-1"}), 400, "it cannot be like itself"),
        ("launches/film-1", json!({"like": "film-0"}), 404, "no asset version film-0"),
        ("launches/none-1", json!({"day_bytes": 1}), 404, "no asset version none-1"),
        ("launches/film-1", json!({"day_bytes": 1, "days": "first"}), 400, "which version"),
        ("launches/film-1", json!({"like": "film-0", "days": "last"}), 400, "use first or present"),
        ("launches/film-1", json!({"begin": "soon", "day_bytes": 1}), 400, "begin: write a time"),
        (
            "launches/film-1",
            json!({"begin": "2001-01-31T02:00:00Z", "day_bytes": 1}),
            400,
            "within the last 14 days",
        ),
    ] {
        let said = control.put(&format!("/v1/{path}"), &body).problem(status);
        assert!(said.contains(wanted), "{path} {body}: {said}");
    }
    let unknown = control.put("/v1/pins/film-1", &json!({"until_s": 7})).status;
    assert!(unknown == 422 || unknown == 400, "{unknown}");
    for list in ["pins", "bans", "launches"] {
        assert_eq!(control.json(&format!("/v1/{list}")), json!([]));
    }
    let both = control.delete("/v1/pins/film-1?site=a&cluster=b");
    assert_eq!(both.status, 400, "{}", both.text());
}

#[test]
fn what_ends_nothing_says_so_and_what_is_said_of_a_version_that_is_gone_can_be_ended() {
    let (control, _appliances, _) = with_appliances("");
    control.put("/v1/bans/film-1", &json!({"site": "a"}));
    for (path, said) in [
        ("pins/film-1?site=a", "nobody says that film-1 is pinned at site a: `nearcast pin list`"),
        ("bans/film-1?site=z", "nobody says that film-1 is banned at site z: `nearcast ban list`"),
        ("bans/film-1", "nobody says that film-1 is banned everywhere"),
        ("bans/none-1?cluster=z", "none-1 is banned in manifest cluster z"),
        ("launches/film-1", "film-1 is no launch: `nearcast launch list` has them"),
    ] {
        let problem = control.delete(&format!("/v1/{path}")).problem(404);
        assert!(problem.starts_with("nothing ended: ") && problem.contains(said), "{problem}");
    }
    control.put("/v1/launches/film-1", &json!({"day_bytes": 1}));
    let withdrawn = control.delete("/v1/assets/film");
    assert_eq!(withdrawn.status, 200, "{}", withdrawn.text());
    assert_eq!(control.json("/v1/bans")[0]["version"], "film-1");
    assert_eq!(control.delete("/v1/bans/film-1?site=a").status, 204);
    assert_eq!(control.delete("/v1/bans/film-1?site=a").status, 404);
}

fn why(control: &Running, site: &str) -> Vec<(bool, String)> {
    let why = control.json(&format!("/v1/plan/why?site={site}&file=film-1"));
    let row = |row: &Value| (row["held"] == true, row["why"].as_str().unwrap().to_owned());
    why.as_array().unwrap().iter().map(row).collect()
}

#[test]
fn a_ban_and_a_pin_move_files_are_kept_and_are_told_as_reasons() {
    let (mut control, mut appliances, _) = with_appliances("");
    let banned = control.put("/v1/bans/film-1", &json!({"until": "2100-01-31T02:00:00Z"})).json();
    assert_eq!(
        (&banned["at"], &banned["until_unix_s"]),
        (&json!("everywhere"), &json!(4_105_044_000_u64))
    );
    let gone = |appliance: &mut crate::appliance::Appliance, control: &Running| {
        appliance.generation = 0;
        appliance.fetch(control).is_none_or(|manifest| manifest.versions.is_empty())
    };
    wait(|| gone(&mut appliances[0], &control));
    control.restart();
    appliances.iter_mut().for_each(|appliance| appliance.link = None);
    assert_eq!(control.json("/v1/bans").as_array().unwrap().len(), 1);
    assert!(gone(&mut appliances[0], &control), "a restart brings nothing back");
    let said =
        "an operator says: banned everywhere until 2100-01-31T02:00:00Z; it must not be here";
    assert!(why(&control, "a").iter().all(|row| *row == (false, said.to_owned())));
    let explained = control.json("/v1/explain?asset=film");
    let told = &explained["candidates"][0]["why"];
    let wanted = "an operator says: banned everywhere until 2100-01-31T02:00:00Z";
    assert!(told.as_str().unwrap().ends_with(wanted), "{explained}");
    // The narrower one counts.
    let pinned = control.put("/v1/pins/film-1", &json!({"site": "a"})).json();
    assert_eq!((&pinned["at"], &pinned["site"]), (&json!("at site a"), &json!("a")));
    wait(|| !gone(&mut appliances[0], &control) || !gone(&mut appliances[1], &control));
    let held = why(&control, "a");
    assert!(held.iter().any(|(is_held, why)| {
        *is_held && why.starts_with("an operator says: pinned at site a; it must be here")
    }));
    let plan = control.json("/v1/plan");
    assert_eq!(
        (&plan["pins"], &plan["bans"], &plan["launches"]),
        (&json!(1), &json!(1), &json!(0))
    );
    assert_eq!(plan["pins_missing"], json!([]));
    assert_eq!(control.delete("/v1/pins/film-1?site=a").status, 204);
    assert_eq!(control.delete("/v1/bans/film-1").status, 204);
    wait(|| !gone(&mut appliances[0], &control));
    assert_eq!((control.json("/v1/pins"), control.json("/v1/bans")), (json!([]), json!([])));
}

#[test]
fn a_pin_that_cannot_be_kept_is_among_the_errors_and_counted() {
    let (control, _appliances, _) = with_appliances("");
    control.put("/v1/sites/empty", &json!({"prefixes": []}));
    let said = control.put("/v1/pins/film-1", &json!({"site": "empty"}));
    assert_eq!(said.status, 200, "{}", said.text());
    let text = "film-1 is pinned at site empty, and no appliance stands there: end the pin";
    wait(|| control.json("/v1/fleet")["errors"][0]["text"] == text);
    assert_eq!(control.json("/v1/fleet")["errors"][0]["room"], "placement");
    assert_eq!(control.json("/v1/pins")[0]["missing"], json!([text]));
    assert_eq!(control.json("/v1/plan")["pins_missing"], json!([text]));
    let page = control.get("/metrics").text();
    promtool::check(&page).unwrap();
    assert!(page.contains("nearcast_control_pins_missing 1\n"), "{page}");
    assert!(page.contains("nearcast_control_bans_unkept 0\n"), "{page}");
    control.delete("/v1/pins/film-1?site=empty");
    wait(|| control.json("/v1/fleet")["errors"] == json!([]));
}

#[test]
fn a_launch_is_in_the_forecast_and_in_the_plan_as_it_was_said() {
    let (mut control, mut appliances, _) = with_appliances("");
    let launch = |body: Value| control.put("/v1/launches/film-1", &body);
    let said = launch(json!({"day_bytes": 8_000_000_000_u64})).json();
    let begin = said["begin_unix_s"].as_u64().unwrap();
    assert_eq!(said["ends_unix_s"], begin + 14 * 86_400);
    let out = control.json("/v1/popularity");
    assert_eq!(out["items"], 4, "each rendition: {out}");
    let expected = out["expected_bytes"].as_u64().unwrap();
    assert!((7_900_000_000..=8_000_000_000).contains(&expected), "{out}");
    let why = &control.json("/v1/plan/why?site=a&file=film-1")[0]["why"];
    assert!(why.as_str().unwrap().starts_with("an operator says: a launch at "), "{why}");
    assert!(why.as_str().unwrap().contains(", by hand 8000000000 bytes a day; "), "{why}");
    let made = control.post("/v1/plan", &json!({}));
    assert_eq!(made.status, 202, "{}", made.text());
    let worth = "bytes a day per MiB, and the cut-off is ";
    wait(|| self::why(&control, "a").iter().any(|(_, why)| why.contains(worth)));
    let day = |(_, why): &(bool, String)| why.contains(" MiB a day are expected of it here");
    assert!(self::why(&control, "a").iter().all(day));
    // Its holders are told, each of its part.
    let link = appliances[0].link(&control);
    let expected = |rest: &str| link.get(&format!("/v1/appliances/a1/expected?{rest}"));
    let told = expected("bytes=1000000000000").json();
    let items = told["items"].as_array().unwrap();
    assert!(items.len() == 4 && items.iter().all(|of| of["version"] == "film-1"), "{told}");
    assert!(items.iter().all(|of| 1_000_000 < of["day_bytes_per_mib"].as_u64().unwrap()), "{told}");
    let state = told["state"].as_u64().unwrap();
    assert_eq!(expected(&format!("bytes=1000000000000&known={state}")).status, 204);
    assert_eq!(expected("bytes=1").json()["items"].as_array().unwrap()[..], items[..1]);
    // Another version of the film, like the first: that is watched, and this is not yet.
    control.restart();
    appliances.iter_mut().for_each(|appliance| appliance.link = None);
    assert_eq!(control.json("/v1/launches")[0]["day_bytes"], 8_000_000_000_u64);
    assert_eq!(control.delete("/v1/launches/film-1").status, 204);
    let film = crate::film::film(7);
    assert_eq!(control.put("/v1/assets/other/versions/other-1", &film).status, 201);
    let first = first_of(&control, &mut appliances[0], "film-1");
    for (number, days_ago) in [(1, 3), (2, 2), (3, 1)] {
        tell(&control, &mut appliances[0], &part(number, days_ago, &[(first, 6_000_000_000)]));
    }
    let now = control.json("/v1/popularity")["expected_bytes"].as_u64().unwrap();
    let other = json!({"like": "film-1", "days": "present"});
    let said = control.put("/v1/launches/other-1", &other).json();
    assert_eq!((&said["like"], &said["days"]), (&json!("film-1"), &json!("present")));
    let both = control.json("/v1/popularity");
    let expected = both["expected_bytes"].as_u64().unwrap();
    assert!(expected.abs_diff(2 * now) < 1000, "{now} of the one, {expected} of both: {both}");
    let made = control.post("/v1/plan", &json!({}));
    assert_eq!(made.status, 202, "{}", made.text());
}

fn first_of(control: &Running, appliance: &mut crate::appliance::Appliance, version: &str) -> u32 {
    appliance.generation = 0;
    appliance.fetch(control).unwrap().numbers[version]
}

fn wait(mut look: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !look() {
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "it does not come to that");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}
