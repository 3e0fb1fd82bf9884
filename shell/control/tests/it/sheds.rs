//! Clients that are led past their nearest site are counted, by class.

use serde_json::{Value, json};

use crate::control::Running;
use crate::film::film;
use crate::players::with_appliances;

#[test]
fn what_the_nearest_site_did_not_serve_is_counted_by_class_site_and_version() {
    let (control, mut appliances, _) = with_appliances("");
    let ingested = control.put("/v1/assets/other/versions/other-1", &film(1));
    assert_eq!(ingested.status, 201, "{}", ingested.text());
    for appliance in &mut appliances[..2] {
        let manifest = appliance.fetch(&control).expect("with the other one, too");
        appliance.hold(&control, &manifest);
    }
    assert_eq!(control.json("/v1/sheds"), json!([]));
    let begin = |asset: &str| -> Value {
        control.post("/v1/playbacks", &json!({"asset": asset, "client": "10.9.8.7"})).json()
    };
    let steer = |begun: &Value| control.get(begun["steering_url"].as_str().unwrap()).json();
    let first = |asset: &str| begin(asset)["pathways"][0]["appliance"].clone();
    while first("other") == "b1" {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let film = begin("film");
    assert_eq!(steer(&film)["PATHWAY-PRIORITY"][0], "b1");
    let bytes_before = row(&control, "site", "b", "none")["reckoned_bytes"].as_u64().unwrap();
    assert!(0 < bytes_before, "it was answered once");
    assert_ne!(steer(&begin("other"))["PATHWAY-PRIORITY"][0], "b1");
    for (by, name) in [("site", "b"), ("version", "other-1")] {
        let row = row(&control, by, name, "content");
        assert!(0 < row["begun"].as_u64().unwrap(), "{row}");
        assert_eq!(row["answers"], 1);
        assert!(0 < row["reckoned_bytes"].as_u64().unwrap(), "{row}");
    }
    let of_site = control.json("/v1/sheds?site=b");
    let is_other = |row: &&Value| row["by"] == "site_version" && row["version"] == "other-1";
    let other = of_site.as_array().unwrap().iter().find(is_other).unwrap();
    assert_eq!(
        (&other["name"], &other["class"], &other["answers"]),
        (&json!("b"), &json!("content"), &json!(1))
    );
    assert_eq!(control.json("/v1/sheds?worst=1")[0]["name"], "b");
    assert!(control.get("/v1/sheds?site=c").problem(404).contains("there is no site c"));
    assert!(control.get("/v1/sheds?worst=0").problem(400).contains("use 1 to 1000"));
    let both = control.get("/v1/sheds?site=b&worst=5").problem(400);
    assert!(both.contains("site and worst: use one"), "{both}");
    appliances[2].report.load.serving = false;
    appliances[2].report(&control);
    while steer(&film)["PATHWAY-PRIORITY"][0] == "b1" {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(0 < row(&control, "version", "film-1", "health")["answers"].as_u64().unwrap());
    let page = control.get("/metrics").text();
    let line = "nearcast_control_nearest_decisions_total{site=\"b\",class=\"content\"}";
    assert!(page.lines().any(|of| of.starts_with(line)), "{page}");
    assert!(!page.contains("other-1"), "versions are in no metric");
}

fn row(control: &Running, by: &str, name: &str, class: &str) -> Value {
    let rows = control.json("/v1/sheds");
    let is = |row: &&Value| row["by"] == by && row["name"] == name && row["class"] == class;
    rows.as_array().unwrap().iter().find(is).unwrap_or_else(|| panic!("{rows}")).clone()
}
