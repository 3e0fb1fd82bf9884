//! Where clients are, by a geofeed (RFC 8805): `prefix,country,region,city,postal code`.

use model::place::Place;
use model::topology::Prefix;

use crate::Faults;

/// Reads a geofeed. A line that is none is left out and told, the others count. Of the fields after
/// the prefix all may be empty; a prefix without a country is known to be nowhere in particular,
/// and is left out too, without a word.
pub fn parse(text: &str) -> (Vec<(Prefix, Place)>, Faults) {
    let (mut found, mut faults) = (Vec::new(), Faults::default());
    let lines = text.trim_start_matches('\u{feff}').lines();
    for (number, line) in (1_usize..).zip(lines) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if PREFIXES_MAX <= found.len() {
            faults.add(number, format!("more than {PREFIXES_MAX} prefixes"));
            break;
        }
        match entry(line) {
            Ok((prefix, place)) if place.country.is_some() => found.push((prefix, place)),
            Ok(_) => {}
            Err(why) => faults.add(number, why),
        }
    }
    assert!(found.len() <= PREFIXES_MAX, "the rest was left out");
    (found, faults)
}

/// Most prefixes of a file.
pub const PREFIXES_MAX: usize = 2_000_000;

/// Longest name of a city that is kept.
const CITY_LEN_MAX: usize = 64;

fn entry(line: &str) -> Result<(Prefix, Place), String> {
    let mut fields = line.split(',').map(str::trim);
    let shown = |text: &str| text.chars().take(60).collect::<String>();
    let prefix = fields.next().unwrap_or_default();
    let prefix =
        crate::prefix(prefix).ok_or_else(|| format!("\"{}\" is no prefix", shown(prefix)))?;
    let mut next = || fields.next().filter(|field| !field.is_empty());
    let country = next();
    let is_code = |text: &str| text.len() == 2 && text.bytes().all(|b| b.is_ascii_alphabetic());
    if let Some(odd) = country.filter(|code| !is_code(code)) {
        return Err(format!("\"{}\" is no country of two letters", shown(odd)));
    }
    let region = next();
    if let Some(odd) = region.filter(|region| 6 < region.len() || !region.is_ascii()) {
        return Err(format!("\"{}\" is no region, such as DE-BE", shown(odd)));
    }
    let upper = |text: &str| text.to_ascii_uppercase().into_boxed_str();
    let city = next().map(|city| city.chars().take(CITY_LEN_MAX).collect());
    let (country, region) = (country.map(upper), region.map(upper));
    Ok((prefix, Place { country, region, city, point: None }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc_is_read() {
        let text = "# IETF106 (Singapore)\n\
            130.129.0.0/16,SG,SG-01,Singapore,\n\
            2001:df8::/32,SG,SG-01,Singapore,\n\
            31.133.128.0/18,sg,,,\n\
            192.0.2.5,US,US-AL,,  # one address\n\
            198.51.100.0/24,,,,\n\
            nonsense,US\n\
            192.0.2.0/24,USA,,,\n";
        let (found, faults) = parse(text);
        let place = |at: usize| {
            let Place { country, region, city, .. } = &found[at].1;
            [country, region, city].map(|part| part.as_deref().unwrap_or("-").to_owned()).join(" ")
        };
        assert_eq!(found.len(), 4);
        assert_eq!((place(0), place(2)), ("SG SG-01 Singapore".into(), "SG - -".into()));
        assert_eq!(
            (found[3].0.to_string(), place(3)),
            ("192.0.2.5/32".into(), "US US-AL -".into())
        );
        let told: Vec<String> = faults.to_string().lines().map(str::to_owned).collect();
        assert_eq!(
            told,
            ["line 7: \"nonsense\" is no prefix", "line 8: \"USA\" is no country of two letters"]
        );
    }

    proptest::proptest! {
        #[test]
        fn no_text_is_too_odd(text in "([0-9./:a-fA-Z,#é-]|\n){0,200}") {
            let (found, faults) = parse(&text);
            assert!(found.len() + faults.count() <= text.lines().count());
        }
    }
}
