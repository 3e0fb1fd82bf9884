//! The service addresses on a network interface, from where BIRD announces them.
//!
//! What is there is read from the machine: an address that this process has forgotten, or never
//! knew of, would be announced for ever and served by nobody.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use model::topology::Prefix;
use serde::Deserialize;

use crate::programs::Programs;

/// For all that one change asks of `ip`, which takes milliseconds. Less than the second for which
/// the appliance waits for an answer, so that an `ip` that hangs is no agent that hangs. Whoever
/// asks for something else waits behind the change. What was not done in time is done when the
/// appliance says again what it wants, four times a second.
pub(crate) const WITHIN: Duration = Duration::from_millis(700);

/// Addresses that are not where they were wanted, each with the fault and the remedy.
pub(crate) type LeftOut = Vec<(IpAddr, String)>;

/// An interface, and the ranges of which addresses are put on it and taken off.
#[derive(Debug)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) within: Vec<Prefix>,
    /// How long a change may take.
    pub(crate) patience: Duration,
    /// Of which `ip` is one.
    pub(crate) programs: Programs,
}

/// An interface, as `ip -json address show` has it.
#[derive(Deserialize)]
struct Shown {
    #[serde(default)]
    addr_info: Vec<ShownAddress>,
}

#[derive(Deserialize)]
struct ShownAddress {
    local: Option<String>,
    prefixlen: Option<u8>,
}

impl Interface {
    /// Puts these addresses on the interface and takes all others of the ranges off. An error says
    /// that one is still there, or may be. Takes `patience` and little more.
    pub(crate) fn set(&self, right: &BTreeSet<IpAddr>) -> anyhow::Result<LeftOut> {
        let until = Instant::now() + self.patience;
        let there = self.addresses(until)?;
        let mut refused = None;
        for address in there.difference(right) {
            match self.change("del", *address, until) {
                Ok(()) => tracing::info!(%address, "taken off"),
                Err(error) => refused = Some(error),
            }
        }
        let mut left_out = LeftOut::new();
        for address in right.difference(&there) {
            match self.change("replace", *address, until) {
                Ok(()) => tracing::info!(%address, "put on"),
                Err(error) => left_out.push((*address, format!("{error:#}"))),
            }
        }
        // Somebody else may have taken it off meanwhile, which is as good.
        let is_left = |error| match self.addresses(until) {
            Ok(there) if there.is_subset(right) => None,
            Ok(_) | Err(_) => Some(error),
        };
        match refused.and_then(is_left) {
            Some(error) => {
                Err(error.context("an address that this machine gives away is still on"))
            }
            None => Ok(left_out),
        }
    }

    /// Those of the ranges that are on it, each by itself as they are put on: not an address with
    /// its network, nor one of the loopback's own.
    fn addresses(&self, until: Instant) -> anyhow::Result<BTreeSet<IpAddr>> {
        let said = self.ip(&["-json", "address", "show", "dev", &self.name], until)?;
        let shown: Vec<Shown> = serde_json::from_str(&said)
            .with_context(|| format!("ip does not say which addresses {} has", self.name))?;
        let ours = |shown: ShownAddress| {
            let address: IpAddr = shown.local?.parse().ok()?;
            let is_ours = shown.prefixlen == Some(bits(address))
                && !address.is_loopback()
                && self.within.iter().any(|range| range.contains(&address));
            is_ours.then_some(address)
        };
        Ok(shown.into_iter().flat_map(|shown| shown.addr_info).filter_map(ours).collect())
    }

    fn change(&self, verb: &str, address: IpAddr, until: Instant) -> anyhow::Result<()> {
        let target = format!("{address}/{}", bits(address));
        let mut arguments = vec!["address", verb, &target, "dev", &self.name];
        if address.is_ipv6() && verb != "del" {
            arguments.push("nodad");
        }
        self.ip(&arguments, until).map(|_| ())
    }

    /// Its output, with its warnings: a list that it warns of is not to be trusted, and is no JSON.
    fn ip(&self, arguments: &[&str], until: Instant) -> anyhow::Result<String> {
        let mut command = Command::new(self.programs.installed("ip")?);
        let left = until.saturating_duration_since(Instant::now());
        ensure!(!left.is_zero(), "ip {}: no time was left for it", arguments.join(" "));
        let whom = Path::new(&self.name);
        let printed =
            self.programs.run(command.args(arguments), whom, left).map_err(anyhow::Error::msg)?;
        ensure!(printed.is_success, "ip {}: {}", arguments.join(" "), printed.text.trim());
        Ok(printed.text)
    }
}

/// The length of a prefix that holds one address.
fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// An `ip` that keeps the addresses in the file `on` beside it, and fails, hangs, or takes
    /// 0.2 s with the verb that the file `fails` names.
    const IP: &str = r#"#!/bin/sh
cd "$(dirname "$0")" || exit 1
case "$(cat fails)" in
"$2") echo "it fails" >&2; exit 2 ;;
"$2 hangs") exec sleep 60 ;;
"$2 is slow") sleep 0.2 ;;
esac
case "$*" in
"-json address show dev lo")
    s=; printf '[{"addr_info":['
    while IFS=/ read -r a n; do printf '%s{"local":"%s","prefixlen":%s}' "$s" "$a" "$n"; s=,; done <on
    echo ']}]' ;;
"address del "*" dev lo") grep -vxF "$3" on >new; cat new >on ;;
"address replace "*" dev lo" | "address replace "*" dev lo nodad") echo "$3" >>on ;;
*) exit 1 ;;
esac
"#;

    /// The interface `lo` of that `ip`, in a folder, with these addresses.
    pub(crate) fn interface(folder: &Path, within: &[&str], on: &[&str]) -> Interface {
        let program = folder.join("ip");
        std::fs::write(&program, IP).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(
            folder.join("on"),
            on.iter().map(|at| format!("{at}\n")).collect::<String>(),
        )
        .unwrap();
        fail(folder, "");
        let within = within.iter().map(|range| range.parse().unwrap()).collect();
        let programs = Programs::new(vec![folder.to_owned()]);
        // A busy machine runs a script in more than milliseconds.
        let patience = Duration::from_secs(10);
        Interface { name: "lo".to_owned(), within, patience, programs }
    }

    pub(crate) fn fail(folder: &Path, verb: &str) {
        std::fs::write(folder.join("fails"), verb).unwrap();
    }

    pub(crate) fn on(folder: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(folder.join("on")).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    fn set(of: &[&str]) -> BTreeSet<IpAddr> {
        of.iter().map(|at| at.parse().unwrap()).collect()
    }

    #[test]
    fn what_an_agent_before_left_is_taken_off_and_nothing_that_is_not_of_the_ranges() {
        let dir = tempfile::tempdir().unwrap();
        let others = ["127.0.0.1/8", "::1/128", "198.51.100.1/32", "192.0.2.9/24", "127.0.0.2/32"];
        let left = ["192.0.2.7/32", "192.0.2.8/32", "2001:db8::7/128"];
        let ranges = ["192.0.2.0/24", "2001:db8::/32", "127.0.0.0/8", "::/16"];
        let lo = interface(dir.path(), &ranges, &[&others[..], &left[..]].concat());
        assert_eq!(lo.set(&set(&["192.0.2.8", "2001:db8::8"])).unwrap(), []);
        let right = ["192.0.2.8/32", "2001:db8::8/128"];
        assert_eq!(on(dir.path()), [&others[..], &right[..]].concat());
        lo.set(&set(&[])).unwrap();
        assert_eq!(on(dir.path()), others);
    }

    #[test]
    fn an_address_that_is_still_there_is_an_error_until_it_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let lo = interface(dir.path(), &["192.0.2.0/24"], &["192.0.2.7/32"]);
        let program = dir.path().join("ip");
        let away = dir.path().join("away");
        std::fs::rename(&program, &away).unwrap();
        let missing = lo.set(&set(&[])).unwrap_err().to_string();
        assert!(missing.contains("ip is not installed"), "{missing}");
        std::fs::rename(&away, &program).unwrap();
        fail(dir.path(), "del");
        let failed = format!("{:#}", lo.set(&set(&[])).unwrap_err());
        assert!(failed.contains("still on: ip address del 192.0.2.7/32 dev lo: it"), "{failed}");
        fail(dir.path(), "");
        lo.set(&set(&[])).unwrap();
        assert!(on(dir.path()).is_empty());
    }

    #[test]
    fn an_ip_that_hangs_keeps_nobody_waiting_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let ours = interface(dir.path(), &["192.0.2.0/24"], &["192.0.2.7/32"]);
        let lo = Interface { patience: WITHIN, ..ours };
        for verb in ["address", "del", "replace"] {
            fail(dir.path(), &format!("{verb} hangs"));
            let start = Instant::now();
            let error = match lo.set(&set(&["192.0.2.8", "192.0.2.9"])) {
                Ok(left_out) => left_out[0].1.clone(),
                Err(error) => format!("{error:#}"),
            };
            assert!(error.contains("ip did not end within 1 s"), "{verb}: {error}");
            assert!(start.elapsed() < Duration::from_secs(30), "{verb}");
            // The one that was killed is waited for elsewhere.
            let start = Instant::now();
            fail(dir.path(), "");
            while lo.set(&set(&["192.0.2.7"])).is_err() {
                assert!(start.elapsed() < Duration::from_secs(30), "it is gone");
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(on(dir.path()), ["192.0.2.7/32"]);
        }
    }

    #[test]
    fn an_address_that_cannot_be_put_on_is_left_out_and_the_others_are_put_on() {
        let dir = tempfile::tempdir().unwrap();
        let lo = interface(dir.path(), &["192.0.2.0/24"], &["192.0.2.7/32"]);
        fail(dir.path(), "replace");
        let left_out = lo.set(&set(&["192.0.2.7", "192.0.2.8"])).unwrap();
        assert_eq!(left_out[0].0, IpAddr::from([192, 0, 2, 8]));
        assert!(left_out[0].1.ends_with("it fails"), "{left_out:?}");
        assert_eq!(on(dir.path()), ["192.0.2.7/32"]);
    }
}
