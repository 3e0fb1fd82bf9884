//! `nearcast route find`: the sites of an address, in order, and the step that put each behind the
//! one before.

use serde_json::Value;
use wire::v1::fleet::{RouteFound, RouteSite};

use crate::grammar::Call;
use crate::output::{self, Cell, Table, Tone};

pub(crate) fn find(call: &Call<'_>) -> anyhow::Result<()> {
    let path = call.path(0);
    if call.json {
        return output::json(&call.control.get::<Value>(&path)?);
    }
    let found: RouteFound = call.control.get(&path)?;
    let address = call.name("address")?;
    lines(&found, address, output::colours()).iter().try_for_each(|line| output::line(line))
}

fn lines(found: &RouteFound, address: &str, colours: bool) -> Vec<String> {
    let RouteFound { client_range, longest, sites } = found;
    let covered = match longest {
        Some(prefix) => format!("{prefix} is the longest prefix that covers it"),
        None => "no site has a prefix that covers it".to_owned(),
    };
    let mut lines = vec![format!("{address} is led as {client_range}: {covered}.")];
    if sites.is_empty() {
        lines.push("All sites that serve strangers share it.".to_owned());
        return lines;
    }
    lines.push(String::new());
    let headings =
        [">#", "SITE", "PREFIX", "BY", "AS PATH", ">MED", "COMMUNITIES", "BEHIND THE ONE BEFORE"];
    let mut table = Table::new(&headings);
    for (number, site) in (1..).zip(sites) {
        table.row(row(number, site));
    }
    lines.extend(table.lines(colours));
    lines
}

fn row(number: usize, site: &RouteSite) -> Vec<Cell> {
    let dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let path: Vec<String> = site.as_path.iter().map(ToString::to_string).collect();
    let way = site.prefix.clone().or_else(|| site.place.clone());
    let tone = if number == 1 { Tone::Good } else { Tone::Plain };
    let why = if number == 1 { "-" } else { &site.why };
    vec![
        number.to_string().into(),
        Cell::new(site.site.as_str(), tone),
        dash(way.unwrap_or_default()).into(),
        site.by.as_str().into(),
        dash(path.join(" ")).into(),
        dash(site.med.map(|med| med.to_string()).unwrap_or_default()).into(),
        dash(site.communities.join(" ")).into(),
        why.into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(found: Value) -> Vec<String> {
        lines(&serde_json::from_value(found).unwrap(), "198.51.100.7", false)
    }

    #[test]
    fn the_sites_of_an_address_are_a_table_in_their_order() {
        let found = json!({
            "client_range": "198.51.100.0/24", "longest": "198.51.0.0/16",
            "sites": [
                {"site": "isp-a", "prefix": "198.51.0.0/16", "by": "embedded",
                 "as_path": [64501], "med": null, "communities": [], "place": null,
                 "code": "first", "why": "before all others"},
                {"site": "ix-1", "prefix": "198.51.0.0/16", "by": "public",
                 "as_path": [64502, 64501], "med": 20, "communities": ["64502:7"], "place": null,
                 "code": "class", "why": "after closer peering"},
                {"site": "ix-2", "prefix": null, "by": "place", "as_path": [], "med": null,
                 "communities": [], "place": "in the same country, 310 km away",
                 "code": "no_route", "why": "after sites with a route"}],
        });
        let expected = [
            "198.51.100.7 is led as 198.51.100.0/24: 198.51.0.0/16 is the longest prefix that \
             covers it.",
            "",
            "#  SITE   PREFIX                            BY        AS PATH      MED  COMMUNITIES  \
             BEHIND THE ONE BEFORE",
            "1  isp-a  198.51.0.0/16                     embedded  64501          -  -            \
             -",
            "2  ix-1   198.51.0.0/16                     public    64502 64501   20  64502:7      \
             after closer peering",
            "3  ix-2   in the same country, 310 km away  place     -              -  -            \
             after sites with a route",
        ];
        assert_eq!(shown(found), expected);
    }

    #[test]
    fn an_address_without_a_site_is_told_so() {
        let none = json!({"client_range": "198.51.100.0/24", "longest": null, "sites": []});
        let expected = [
            "198.51.100.7 is led as 198.51.100.0/24: no site has a prefix that covers it.",
            "All sites that serve strangers share it.",
        ];
        assert_eq!(shown(none), expected);
    }
}
