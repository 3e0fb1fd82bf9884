//! BIRD's configuration of each speaker.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use crate::Plan;

/// What a router announces in one session.
#[derive(Clone, Debug, Default)]
pub struct Announced {
    /// Prefixes of both families, each with the AS that it comes from if that is not the router's
    /// own.
    routes: BTreeMap<String, Option<u32>>,
}

impl Announced {
    /// The prefixes of an ISP with this number.
    pub fn isp(number: u8) -> Self {
        Self::default().and(&[&format!("21.{number}.0.0/22"), &format!("2a0b:{number}::/32")])
    }

    /// And these, as its own.
    #[must_use]
    pub fn and(mut self, prefixes: &[&str]) -> Self {
        self.routes.extend(prefixes.iter().map(|prefix| ((*prefix).to_owned(), None)));
        self
    }

    /// And all of another's, as heard from this AS.
    #[must_use]
    pub fn and_by_way_of(mut self, number: u32, other: &Self) -> Self {
        self.routes.extend(other.routes.keys().map(|prefix| (prefix.clone(), Some(number))));
        self
    }

    #[must_use]
    pub fn without(mut self, prefix: &str) -> Self {
        self.routes.remove(prefix);
        self
    }

    /// Its prefixes, of both families.
    pub fn prefixes(&self) -> impl Iterator<Item = &str> {
        self.routes.keys().map(String::as_str)
    }

    fn text(&self, v6: bool) -> String {
        let of_family = self.routes.iter().filter(|(prefix, _)| prefix.contains(':') == v6);
        let route = |(prefix, by): (&String, &Option<u32>)| match by {
            None => format!("route {prefix} blackhole; "),
            Some(by) => format!("route {prefix} blackhole {{ bgp_path.prepend({by}); }}; "),
        };
        of_family.map(route).collect()
    }
}

/// The end of a speaker's address, and its AS.
fn speaker(plan: &Plan, name: &str) -> Result<(u8, u32)> {
    let found = (1..).zip(plan.speakers).find(|(_, (of, _))| *of == name);
    found.map(|(at, (_, number))| (at, *number)).context("no such speaker")
}

/// The configuration of the speaker `name`. A site's is as docs/operate/routes.md says it.
pub(crate) fn of(
    plan: &Plan,
    announced: &BTreeMap<(String, String), Announced>,
    name: &str,
) -> Result<String> {
    let (own, number) = speaker(plan, name)?;
    let mut text = format!(
        "log stderr {{ warning, error, fatal, auth }};\nrouter id 10.98.0.{own};\n\
         protocol device {{}}\n"
    );
    for (from, to) in plan.sessions {
        let is_router = *from == name;
        if !is_router && *to != name {
            continue;
        }
        let other = if is_router { to } else { from };
        let (peer, peer_number) = speaker(plan, other)?;
        // BIRD's own wait after an error is a minute.
        let session = format!(
            "local 10.98.0.{own} as {number}; neighbor 10.98.0.{peer} as {peer_number}; \
             hold time 9; keepalive time 3; connect delay time 1; error wait time 1, 5;"
        );
        let key = ((*from).to_owned(), (*to).to_owned());
        if let (true, Some(announced)) = (is_router, announced.get(&key)) {
            let [v4, v6] = [false, true].map(|v6| announced.text(v6));
            text.push_str(&format!(
                "ipv4 table four_{to}; ipv6 table six_{to};\n\
                 protocol static s4_{to} {{ ipv4 {{ table four_{to}; }}; {v4} }}\n\
                 protocol static s6_{to} {{ ipv6 {{ table six_{to}; }}; {v6} }}\n\
                 protocol bgp {to} {{ {session}\n\
                 ipv4 {{ table four_{to}; import none; export all; next hop self; }};\n\
                 ipv6 {{ table six_{to}; import none; export all; \
                 next hop address fd98::{own}; }}; }}\n"
            ));
        } else {
            text.push_str(&format!(
                "protocol bgp {other} {{ {session}\n\
                 ipv4 {{ import all; export none; }}; ipv6 {{ import all; export none; }}; }}\n"
            ));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_of_another_network_is_announced_with_that_network_on_its_way() {
        let all = Announced::isp(1).and_by_way_of(64502, &Announced::isp(2));
        assert_eq!(
            all.text(false),
            "route 21.1.0.0/22 blackhole; \
             route 21.2.0.0/22 blackhole { bgp_path.prepend(64502); }; "
        );
        let less = all.without("2a0b:1::/32");
        assert_eq!(less.text(true), "route 2a0b:2::/32 blackhole { bgp_path.prepend(64502); }; ");
    }
}
