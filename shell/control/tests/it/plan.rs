//! The plan of placement, as operators ask for it.

use serde_json::json;

use crate::players::with_appliances;

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
    let made = control.post("/v1/plan", &json!({"force": true}));
    assert_eq!(made.status, 202, "{}", made.text());
    let of_upper = || {
        let why = control.json("/v1/plan/why?site=a&file=film-1");
        let rows = why.as_array().unwrap().clone();
        let upper = rows.into_iter().filter(|row| row["held"] == false);
        upper.map(|row| row["why"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of_upper(), vec!["it must not be here"; 4]);
    let unknown = control.get("/v1/plan/why?site=a&file=other-1");
    let said = unknown.problem(404);
    assert!(said.contains("other-1 is not held by the policy"), "{said}");
    let said = control.get("/v1/plan/why?site=a").problem(400);
    assert!(said.contains("say which site and which file"), "{said}");
    let bad = control.post("/v1/plan", &json!({"forced": true}));
    assert!(bad.status == 422 || bad.status == 400, "{}", bad.text());
}
