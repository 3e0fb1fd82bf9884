//! Ports for a demo: the usual ones where they are free, the next free ones where not.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::bail;

/// Address of appliance `index`: 127.0.0.2, .3 and .4. One port for all, for some players ban by
/// host name and forget the port.
pub(super) const fn appliance_address(index: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 2 + index)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    pub(super) tls: u16,
    pub(super) plain: u16,
    /// Of every appliance, for its siblings. TLS and plain HTTP are for viewers.
    pub(super) peer: u16,
    pub(super) control: u16,
    /// Of the control plane, for appliances.
    pub(super) fleet: u16,
}

impl Ports {
    /// Finds ports: from the usual ones on, or all from `from` on. Between finding and binding
    /// another program may take one; its child then says so.
    pub(super) fn find(appliances: u8, from: Option<u16>) -> anyhow::Result<Self> {
        let edge: Vec<Ipv4Addr> = (0..appliances).map(appliance_address).collect();
        let tls = first_free(&edge, from.unwrap_or(8443))?;
        let plain = first_free(&edge, from.map_or(8480, |_| tls.saturating_add(1)))?;
        let peer = first_free(&edge, from.map_or(9443, |_| plain.saturating_add(1)))?;
        let after = from.map_or(8080, |_| peer.saturating_add(1));
        let control = first_free(&[Ipv4Addr::LOCALHOST], after)?;
        let fleet = first_free(&[Ipv4Addr::LOCALHOST], control.saturating_add(1))?;
        Ok(Self { tls, plain, peer, control, fleet })
    }
}

/// A listener on 127.0.0.1: on any port, or on the first free one after those of `ports`.
pub(super) fn listener(ports: Ports, from: Option<u16>) -> anyhow::Result<TcpListener> {
    let port = match from {
        None => 0,
        Some(_) => first_free(&[Ipv4Addr::LOCALHOST], ports.fleet.saturating_add(1))?,
    };
    crate::origin::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

fn first_free(addresses: &[Ipv4Addr], from: u16) -> anyhow::Result<u16> {
    let is_free = |port: &u16| addresses.iter().all(|ip| TcpListener::bind((*ip, *port)).is_ok());
    let last = from.saturating_add(TRIES_MAX);
    match (from..=last).find(is_free) {
        Some(port) => Ok(port),
        None => bail!(
            "no port from {from} to {last} is free on {}: name another with --ports-from",
            addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        ),
    }
}

const TRIES_MAX: u16 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_taken_on_one_address_is_passed_over_on_all() {
        let taken = TcpListener::bind((appliance_address(1), 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let addresses = [appliance_address(0), appliance_address(1)];
        assert_ne!(first_free(&addresses, port).unwrap(), port);
        let ports = Ports::find(3, Some(port)).unwrap();
        let found = [port, ports.tls, ports.plain, ports.peer, ports.control, ports.fleet];
        assert!(found.is_sorted_by(|a, b| a < b), "{found:?}");
    }
}
