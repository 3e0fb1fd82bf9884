//! A thing that was put, as the audit log has it.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value};

use super::problem::Said;

/// These of its fields, all others that differ from before, and last the one that may be long: the
/// log has the beginning only. None before if it is new. O(what it says of itself).
pub(super) fn put_said<T: Serialize>(
    before: Option<&T>,
    now: &T,
    always: &[&str],
    last: &str,
) -> Said {
    let (before, now) = (before.map(fields), fields(now));
    let all = now.keys().chain(before.iter().flat_map(Map::keys)).map(String::as_str);
    let others: BTreeSet<&str> = all.filter(|key| !always.contains(key) && *key != last).collect();
    let keys = always.iter().copied().chain(others).chain([last]);
    let said = keys.filter_map(|key| {
        let known = before.as_ref().map(|before| before.get(key).unwrap_or(&Value::Null));
        field(key, known, now.get(key).unwrap_or(&Value::Null), always.contains(&key))
    });
    let new = before.is_none().then(|| "new".to_owned());
    Said(new.into_iter().chain(said).collect::<Vec<_>>().join(", "))
}

fn fields(thing: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(thing) {
        Ok(Value::Object(fields)) => fields,
        of => unreachable!("what is put is an object: {of:?}"),
    }
}

/// Of a list that differs, what came and what is gone.
fn field(key: &str, before: Option<&Value>, now: &Value, always: bool) -> Option<String> {
    let Some(before) = before.filter(|before| *before != now) else {
        let is_new = before.is_none() && !texts(now).is_empty();
        return (always || is_new).then(|| format!("{key} {}", text(now)));
    };
    if !before.is_array() && !now.is_array() {
        return Some(format!("{key} {} becomes {}", text(before), text(now)));
    }
    let [before, now] = [before, now].map(|list| texts(list).into_iter().collect::<BTreeSet<_>>());
    let came = now.difference(&before).map(|one| format!(" +{one}"));
    let gone = before.difference(&now).map(|one| format!(" -{one}"));
    let both: String = came.chain(gone).collect();
    let same = if both.is_empty() { " in another order" } else { "" };
    Some(format!("{key}{both}{same}"))
}

fn text(value: &Value) -> String {
    let texts = texts(value);
    if texts.is_empty() { "none".to_owned() } else { texts.join(" ") }
}

/// Those of a list; one of all else; none of nothing.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Null => Vec::new(),
        Value::String(text) if text.is_empty() => Vec::new(),
        Value::String(text) => vec![text.clone()],
        Value::Array(list) => list.iter().flat_map(texts).collect(),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => vec![value.to_string()],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_audit_line_has_what_differs_and_the_long_list_last() {
        let said = |before: Value, now: Value| {
            let before = Some(&before).filter(|before| !before.is_null());
            put_said(before, &now, &["weight"], "many").0
        };
        let known = json!({ "weight": 1, "zone": "UTC", "many": ["a", "b"] });
        assert_eq!(said(known.clone(), known.clone()), "weight 1");
        let moved = json!({ "weight": 2, "zone": "Asia/Tokyo", "many": ["b", "c"], "bps": 7 });
        assert_eq!(
            said(known.clone(), moved.clone()),
            "weight 1 becomes 2, bps none becomes 7, zone UTC becomes Asia/Tokyo, many +c -a"
        );
        assert_eq!(
            said(moved, json!({ "weight": 2 })),
            "weight 2, bps 7 becomes none, zone Asia/Tokyo becomes none, many -b -c"
        );
        let turned = json!({ "weight": 1, "zone": "UTC", "many": ["b", "a"] });
        assert_eq!(said(known.clone(), turned), "weight 1, many in another order");
        assert_eq!(said(Value::Null, known), "new, weight 1, zone UTC, many a b");
        assert_eq!(said(Value::Null, json!({ "weight": 1, "zone": "" })), "new, weight 1");
    }
}
