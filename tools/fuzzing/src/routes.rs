//! What routers and files of others tell of prefixes: what is read is read the same when it is
//! written again.

use routes::bird::{RouteReader, SessionReader, line};
use routes::{Community, Told, geofeed, zones};

/// BIRD's reply, a geofeed, or a file of coverage zones.
pub fn routes(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let told = read(text);
    let again: String = told.iter().map(written).collect();
    assert_eq!(read(&again), told, "{again}");
    let mut sessions = SessionReader::default();
    text.lines().filter_map(line).for_each(|(text, _)| sessions.text(text));
    let names: Vec<_> = sessions.done().into_iter().map(|session| session.name).collect();
    assert!(names.is_sorted_by(|a, b| a < b), "each session once");
    let (places, _) = geofeed::parse(text);
    let line = |(prefix, place): &(model::topology::Prefix, model::place::Place)| {
        let part = |part: &Option<Box<str>>| part.as_deref().unwrap_or_default().to_owned();
        format!(
            "{prefix},{},{},{},\n",
            part(&place.country),
            part(&place.region),
            part(&place.city)
        )
    };
    let again: String = places.iter().map(line).collect();
    assert_eq!(geofeed::parse(&again).0, places, "{again}");
    if let Ok((zones, _)) = zones::parse(text) {
        assert!(
            zones.values().flat_map(|zone| &zone.prefixes).all(|prefix| *prefix == prefix.trunc())
        );
    }
}

fn read(text: &str) -> Vec<Told> {
    let mut reader = RouteReader::default();
    let lines = text.lines().filter_map(line);
    let mut told: Vec<Told> = lines.filter_map(|(text, _)| reader.text(text)).collect();
    told.extend(reader.end());
    told
}

/// As BIRD would tell it.
fn written(told: &Told) -> String {
    let Told { prefix, session, as_path, has_set, med, communities } = told;
    let path: String = as_path.iter().map(|number| format!("{number} ")).collect();
    let set = if *has_set { "{1}" } else { "" };
    let mut text = format!(" {prefix} unicast [{session} now]\n \tType: BGP\n");
    text.push_str(&format!(" \tBGP.as_path: {path}{set}\n"));
    if let Some(med) = med {
        text.push_str(&format!(" \tBGP.med: {med}\n"));
    }
    for community in communities {
        text.push_str(&match community {
            Community::Plain(a, b) => format!(" \tBGP.community: ({a},{b})\n"),
            Community::Large(a, b, c) => format!(" \tBGP.large_community: ({a}, {b}, {c})\n"),
        });
    }
    text
}
