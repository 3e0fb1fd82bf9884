//! The steering document: one JSON for HLS (draft-pantos-content-steering) and DASH (ETSI TS
//! 103 998).
//!
//! Always sent with status 200: some players end steering for good on 404, 410 or 429.

use serde::Serialize;

use model::units::Nanos;

#[derive(Serialize)]
#[serde(rename_all = "SCREAMING-KEBAB-CASE")]
struct Document<'a> {
    version: u32,
    ttl: u64,
    reload_uri: &'a str,
    pathway_priority: &'a [&'a str],
}

/// The document: ask again after `ttl` at `reload_uri`, and meanwhile prefer `pathways` in order.
///
/// The list names pathways of the player's manifest and is never empty: an empty one is an error
/// in the specification, and players do not agree on what it means.
pub fn steering_doc(ttl: Nanos, reload_uri: &str, pathways: &[&str]) -> String {
    assert!(!pathways.is_empty(), "a steering document names at least one pathway");
    let document = Document {
        version: 1,
        ttl: ttl.as_seconds().max(1),
        reload_uri,
        pathway_priority: pathways,
    };
    // Grown step by step it would be moved.
    let names: usize = pathways.iter().map(|name| name.len() + FIELD_LEN).sum();
    let mut text = Vec::with_capacity(reload_uri.len() + names + FRAME_LEN);
    serde_json::to_writer(&mut text, &document).expect("strings and numbers always become JSON");
    String::from_utf8(text).expect("JSON is UTF-8")
}

/// Two quotes and a comma.
const FIELD_LEN: usize = 3;
/// All but the URI and the names, with the longest TTL.
const FRAME_LEN: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_the_fields_of_the_specification() {
        let text =
            steering_doc(Nanos::seconds(10), "https://c.example/steer/v1/s", &["a1", "b\"2"]);
        assert_eq!(
            text,
            r#"{"VERSION":1,"TTL":10,"RELOAD-URI":"https://c.example/steer/v1/s","#.to_owned()
                + r#""PATHWAY-PRIORITY":["a1","b\"2"]}"#
        );
    }

    #[test]
    fn a_document_is_written_into_memory_of_its_size() {
        let names = ["a"; 16];
        let text = steering_doc(Nanos(u64::MAX), "u", &names);
        assert_eq!(text.capacity(), 1 + 16 * (1 + FIELD_LEN) + FRAME_LEN);
        assert!(text.capacity() - text.len() < FRAME_LEN / 4, "{}", text.len());
    }

    #[test]
    fn a_ttl_below_a_second_is_a_second() {
        assert!(steering_doc(Nanos::millis(200), "u", &["a"]).contains("\"TTL\":1,"));
    }

    #[test]
    #[should_panic(expected = "at least one pathway")]
    fn an_empty_list_is_our_own_error() {
        steering_doc(Nanos::seconds(10), "u", &[]);
    }
}
