//! What BIRD 2 answers on its control socket, a line at a time.
//!
//! ```text
//! 1007-Table master4:
//!  8.8.8.0/24           unicast [isp1 08:17:08.301] * (100) [AS64500i]
//!  <TAB>via 192.0.2.1 on eth0
//! 1008-<TAB>Type: BGP univ
//! 1012-<TAB>BGP.as_path: 64500 64501
//!  <TAB>BGP.med: 10
//!  <TAB>BGP.community: (64500,100) (64500,200)
//!                       unicast [isp2 08:17:09.000] (100) [AS64500i]     another way to it
//! 0000
//! ```
//!
//! A line begins with a code of four digits and `-` or, on the last one, a space; or with a space,
//! which means the code before. BIRD 3 writes `bgp_path` where BIRD 2 writes `BGP.as_path`.

use std::collections::BTreeMap;

use model::topology::Prefix;

use crate::attributes::{COMMUNITIES_MAX, Community, PATH_MAX};
use crate::hearing::Told;

/// A line that ends a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Done,
    /// The command was refused, with this code.
    Refused(u16),
}

/// Longest line that is read; a path of a thousand networks fits.
pub const LINE_MAX: usize = 16 * 1024;

/// Splits a line of a reply: its text, and whether the reply ends with it. None for a line that is
/// none of a reply.
pub fn line(line: &str) -> Option<(&str, Option<End>)> {
    let line = line.trim_end_matches(['\n', '\r']);
    if let Some(text) = line.strip_prefix(' ') {
        return Some((text, None));
    }
    let (code, rest) = line.split_at_checked(4)?;
    let is_code = code.bytes().all(|byte| byte.is_ascii_digit());
    let code: u16 = code.parse().ok().filter(|_| is_code)?;
    if let Some(text) = rest.strip_prefix('-') {
        return Some((text, None));
    }
    let text = rest.strip_prefix(' ').or_else(|| rest.is_empty().then_some(""))?;
    let end = if code < 8000 { End::Done } else { End::Refused(code) };
    Some((text, Some(end)))
}

/// Reads the reply to `show route all`.
#[derive(Debug, Default)]
pub struct RouteReader {
    prefix: Option<Prefix>,
    told: Option<Told>,
    is_bgp: bool,
}

impl RouteReader {
    /// The next line's text; gives the route before it, if that is complete now and BGP's.
    pub fn text(&mut self, text: &str) -> Option<Told> {
        let Some(attribute) = text.strip_prefix('\t') else { return self.begin(text) };
        let told = self.told.as_mut()?;
        let (name, value) = attribute.split_once(':')?;
        let value = value.trim();
        match name.trim() {
            "Type" => self.is_bgp = value.starts_with("BGP"),
            "BGP.as_path" | "bgp_path" => as_path(value, told),
            "BGP.med" | "bgp_med" => told.med = value.parse().ok(),
            "BGP.community" | "bgp_community" => communities::<2>(value, told),
            "BGP.large_community" | "bgp_large_community" => communities::<3>(value, told),
            _ => {}
        }
        None
    }

    /// The reply is over; gives the last route.
    pub fn end(&mut self) -> Option<Told> {
        self.prefix = None;
        let is_bgp = std::mem::take(&mut self.is_bgp);
        self.told.take().filter(|_| is_bgp)
    }

    /// A line that begins a route, or that is none of any.
    fn begin(&mut self, text: &str) -> Option<Told> {
        let is_bgp = std::mem::take(&mut self.is_bgp);
        let before = self.told.take().filter(|_| is_bgp);
        let first = text.split_whitespace().next().unwrap_or_default();
        if !text.starts_with(' ') {
            self.prefix = first.parse().ok();
        }
        let session = text.split_once('[').and_then(|(_, rest)| rest.split([' ', ']']).next());
        if let (Some(prefix), Some(session)) = (self.prefix, session) {
            let (as_path, communities) = (Vec::new(), Vec::new());
            let session = session.into();
            let told = Told { prefix, session, as_path, has_set: false, med: None, communities };
            self.told = Some(told);
        }
        before
    }
}

/// `64500 64501 {64502 64503}`; confederations are in round brackets and count for nothing.
fn as_path(text: &str, told: &mut Told) {
    told.has_set = text.contains('{');
    let mut depth = 0_u32;
    for word in text.split_whitespace() {
        depth += u32::from(word.starts_with(['(', '{']));
        if depth == 0 {
            match word.parse() {
                Ok(number) if told.as_path.len() < PATH_MAX => told.as_path.push(number),
                Ok(_) | Err(_) => {}
            }
        }
        depth = depth.saturating_sub(u32::from(word.ends_with([')', '}'])));
    }
    assert!(told.as_path.len() <= PATH_MAX, "the rest was left out");
}

/// `(64500,100) (64500,200)`, or `(64500, 1, 7)` with three parts.
fn communities<const N: usize>(text: &str, told: &mut Told) {
    for group in text.split('(').skip(1) {
        let Some((group, _)) = group.split_once(')') else { continue };
        let parts: Vec<u32> =
            group.split(',').filter_map(|part| part.trim().parse().ok()).collect();
        let community = match parts[..] {
            [a, b] if N == 2 => match (u16::try_from(a), u16::try_from(b)) {
                (Ok(a), Ok(b)) => Community::Plain(a, b),
                _ => continue,
            },
            [a, b, c] if N == 3 => Community::Large(a, b, c),
            _ => continue,
        };
        if told.communities.len() < COMMUNITIES_MAX {
            told.communities.push(community);
        }
    }
    assert!(told.communities.len() <= COMMUNITIES_MAX, "the rest was left out");
}

/// A BGP session, as `show protocols all` tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    pub name: Box<str>,
    /// `Established`, `Active`, or the protocol's state where it has none of BGP.
    pub state: Box<str>,
    pub neighbour: Option<Box<str>>,
    pub neighbour_as: Option<u32>,
    /// Routes that BIRD has of it.
    pub routes: u64,
    /// Routes that BIRD's own import filter refused and keeps (`import keep filtered`).
    pub filtered: u64,
    pub last_error: Option<Box<str>>,
    /// Changes with every update that the session brings: the lines that count them.
    marks: String,
}

impl Session {
    /// True if routes come over it.
    pub fn is_up(&self) -> bool {
        &*self.state == "Established"
    }
}

/// Most sessions that are read. Routers of an exchange have some hundreds.
pub const SESSIONS_MAX: usize = 1024;

/// Reads the reply to `show protocols all`.
#[derive(Debug, Default)]
pub struct SessionReader {
    sessions: BTreeMap<Box<str>, Session>,
    /// The one that the next lines are about.
    of: Option<Box<str>>,
}

impl SessionReader {
    /// The next line's text.
    pub fn text(&mut self, text: &str) {
        if !text.starts_with([' ', '\t']) && !text.trim().is_empty() {
            return self.begin(text);
        }
        let session = self.of.as_ref().and_then(|of| self.sessions.get_mut(of));
        let (Some(session), Some((name, value))) = (session, text.split_once(':')) else { return };
        let value = value.trim();
        match name.trim() {
            "BGP state" => session.state = value.into(),
            "Neighbor address" => session.neighbour = Some(value.into()),
            "Neighbor AS" => session.neighbour_as = value.parse().ok(),
            "Last error" => session.last_error = Some(value.chars().take(200).collect()),
            "Routes" => {
                session.routes += number_before(value, "imported");
                session.filtered += number_before(value, "filtered");
            }
            "Import updates" | "Import withdraws" if session.marks.len() < 4096 => {
                session.marks.push_str(value);
                session.marks.push('\n');
            }
            _ => {}
        }
    }

    /// All sessions, by name.
    pub fn done(self) -> Vec<Session> {
        self.sessions.into_values().collect()
    }

    /// `isp1       BGP        ---        up     08:17:07.365  Established`.
    fn begin(&mut self, text: &str) {
        self.of = None;
        let words: Vec<&str> = text.split_whitespace().collect();
        let [name, "BGP", _, state, since, ..] = words[..] else { return };
        if self.sessions.len() < SESSIONS_MAX {
            let name: Box<str> = name.into();
            let session = Session {
                name: name.clone(),
                state: state.into(),
                marks: format!("{state} {since}\n"),
                ..Session::default()
            };
            self.sessions.insert(name.clone(), session);
            self.of = Some(name);
        }
        assert!(self.sessions.len() <= SESSIONS_MAX, "the rest is not looked at");
    }
}

/// The number before a word: of `2 imported, 0 filtered` 2 before `imported`.
fn number_before(text: &str, word: &str) -> u64 {
    let mut before = None;
    for found in text.split([' ', ',']).filter(|found| !found.is_empty()) {
        if found == word {
            return before.unwrap_or(0);
        }
        before = found.parse().ok();
    }
    0
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const ROUTES: &str = include_str!("../tests/show-route-all.txt");
    const SESSIONS: &str = include_str!("../tests/show-protocols-all.txt");

    fn routes(reply: &str) -> (Vec<Told>, Option<End>) {
        let (mut reader, mut found) = (RouteReader::default(), Vec::new());
        // The first line greets.
        for text in reply.lines().skip(1) {
            let Some((text, end)) = line(text) else { continue };
            if end.is_some() {
                found.extend(reader.end());
                return (found, end);
            }
            found.extend(reader.text(text));
        }
        (found, None)
    }

    #[test]
    fn a_table_of_both_families_is_read_with_all_ways_to_a_prefix() {
        let (found, end) = routes(ROUTES);
        assert_eq!(end, Some(End::Done));
        let shown: Vec<String> = found
            .iter()
            .map(|told| {
                let Told { prefix, session, as_path, has_set, med, communities } = told;
                let communities: Vec<String> =
                    communities.iter().map(ToString::to_string).collect();
                format!("{prefix} {session} {as_path:?} {has_set} {med:?} {communities:?}")
            })
            .collect();
        assert_eq!(
            shown,
            [
                r#"198.51.100.0/24 isp1 [64500] false Some(10) ["64500:100", "64500:200"]"#,
                r#"198.51.100.0/24 isp2 [64510, 64500] false None []"#,
                r#"203.0.113.0/24 isp1 [64500, 64500] true Some(50) []"#,
                r#"2001:db8:100::/40 isp1 [64500] false None ["64500:1:7"]"#,
            ]
        );
    }

    #[test]
    fn sessions_are_read_and_an_update_changes_their_marks() {
        let read = |reply: &str| {
            let mut reader = SessionReader::default();
            reply.lines().filter_map(line).for_each(|(text, _)| reader.text(text));
            reader.done()
        };
        let found = read(SESSIONS);
        let [isp1, isp2] = &found[..] else { panic!("{found:?}") };
        assert!(isp1.is_up() && !isp2.is_up());
        assert_eq!((isp1.routes, isp1.filtered, isp1.neighbour_as), (3, 4, Some(64500)));
        assert_eq!(isp1.neighbour.as_deref(), Some("192.0.2.1"));
        assert_eq!((&*isp2.state, isp2.routes), ("Active", 0));
        assert_eq!(isp2.last_error.as_deref(), Some("Socket: Connection refused"));
        assert_eq!(read(SESSIONS), found, "timers are no change");
        let ticked = SESSIONS.replace("7.804/9", "6.804/9");
        assert_eq!(read(&ticked), found);
        let med = SESSIONS.replacen("Import updates:              2", "Import updates:    3", 1);
        assert_ne!(read(&med), found, "a MED changed, and no count of routes");
    }

    #[test]
    fn a_refusal_ends_a_reply_and_other_lines_are_none() {
        assert_eq!(line("8007 Access denied"), Some(("Access denied", Some(End::Refused(8007)))));
        assert_eq!(line("0000 \n"), Some(("", Some(End::Done))));
        assert_eq!(line("0000"), Some(("", Some(End::Done))));
        for none in ["", "12", "12ab-x", "+123 x", "0000x", "éééé-"] {
            assert_eq!(line(none), None, "{none}");
        }
    }

    /// Lines of routes and of sessions, right ones and odd ones.
    const LINES: [&str; 7] = [
        concat!(
            "(1007-| )(8\\.[0-9]\\.0\\.0/(16|24|33)|2a0b::/(32|129)|[0-9a-f:./]{0,9}) ",
            " *unicast (\\[isp[12]|\\[|isp1)[ \\]]08:17\\] \\* \\(100\\)\n",
            "( \tType: BGP univ\n)?"
        ),
        "(1008-| )\t?Type: ?(BGP|static)? univ\n",
        "(1012-| )\t(BGP\\.as_path|bgp_path): ([0-9(){} ]{0,40}|(65 ){0,300})\n",
        "(1012-| )\t(BGP\\.med: [0-9-]{0,11}|BGP\\.(large_)?community: (\\([0-9, ]{0,12}\\)?){0,9})\n",
        "(1002-| )(isp[12]|[a-c ]{0,3}) +(BGP|Static) +--- +(up|start) +08:17  (Established|Active)?\n",
        "(1006-| ) +(BGP state|Routes|Import updates|Last error):? *[0-9a-z, ]{0,9}(imported)?,?\n",
        "[ 0-9a-f:./\\[\\]{}(),\t-]{0,40}\n?",
    ];

    #[test]
    fn no_text_is_too_odd() {
        use proptest::test_runner::{Config, TestRunner};
        let (routes_found, sessions_found) = (Cell::new(0), Cell::new(0));
        let mut runner = TestRunner::new(Config::with_source_file(file!()));
        let reply = format!("({}){{0,60}}", LINES.join("|"));
        let reply = proptest::string::string_regex(&reply).unwrap();
        let result = runner.run(&reply, |reply| {
            let (found, _) = routes(&format!("\n{reply}"));
            routes_found.set(routes_found.get() + found.len());
            for told in found {
                assert!(told.as_path.len() <= PATH_MAX);
                assert!(told.communities.len() <= COMMUNITIES_MAX);
            }
            let mut reader = SessionReader::default();
            reply.lines().filter_map(line).for_each(|(text, _)| reader.text(text));
            let sessions = reader.done();
            sessions_found.set(sessions_found.get() + sessions.len());
            assert!(sessions.is_sorted_by(|a, b| a.name < b.name), "each once");
            Ok(())
        });
        result.unwrap();
        let found = (routes_found.get(), sessions_found.get());
        assert!(50 < found.0 && 50 < found.1, "routes and sessions were among them: {found:?}");
    }
}
