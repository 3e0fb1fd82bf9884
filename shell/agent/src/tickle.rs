//! Packets that make a client answer, so that the kernel can reset a connection that it does not
//! know: an acknowledgement out of order, from the address that the client speaks to
//! (RFC 9293 section 3.10.7.4: an unacceptable segment is answered with an acknowledgement).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto};

/// A TCP header without options (RFC 9293 section 3.1). Without a timestamp: Linux drops in silence
/// an acknowledgement whose timestamp is old (measured: a quarter of 18,000 clients got no answer
/// through), and which one a client would take is not known here.
const HEADER_LEN: usize = 20;
/// The checksum's place in it.
const CHECKSUM_AT: usize = 16;
const PROTOCOL_TCP: u8 = 6;
const ACK: u8 = 0x10;
/// In units of 32 bits, in the upper half of its byte.
const DATA_OFFSET: u8 = 5 << 4;
/// Anything but 0, which would say that nothing may be sent.
const WINDOW: u16 = 1024;

/// Sends from one address.
#[derive(Debug)]
pub(crate) struct Tickler {
    from: IpAddr,
    socket: OwnedFd,
}

impl Tickler {
    /// Needs `CAP_NET_RAW`, and the address on this machine.
    pub(crate) fn open(from: IpAddr) -> io::Result<Self> {
        let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::RAW, flags, Some(ipproto::TCP))?;
        rustix::net::bind(&socket, &SocketAddr::new(from, 0))?;
        Ok(Self { from, socket })
    }

    /// Sends one packet; one that the network does not take is lost like any other.
    pub(crate) fn tickle(
        &self,
        from_port: u16,
        client: SocketAddr,
        sequence: u32,
    ) -> io::Result<()> {
        let packet = packet(SocketAddr::new(self.from, from_port), client, sequence);
        let to = SocketAddr::new(client.ip(), 0);
        rustix::net::sendto(&self.socket, &packet, SendFlags::DONTWAIT, &to)?;
        Ok(())
    }
}

/// Out of order for all clients but those whose window holds `sequence`: one of 256 with a window
/// of 16 MB.
fn packet(from: SocketAddr, to: SocketAddr, sequence: u32) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[0..2].copy_from_slice(&from.port().to_be_bytes());
    header[2..4].copy_from_slice(&to.port().to_be_bytes());
    header[4..8].copy_from_slice(&sequence.to_be_bytes());
    header[12] = DATA_OFFSET;
    header[13] = ACK;
    header[14..16].copy_from_slice(&WINDOW.to_be_bytes());
    let checksum = checksum(from.ip(), to.ip(), &header);
    header[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&checksum.to_be_bytes());
    header
}

/// Over addresses, length, protocol and header (RFC 9293 section 3.1, RFC 8200 section 8.1).
fn checksum(from: IpAddr, to: IpAddr, header: &[u8; HEADER_LEN]) -> u16 {
    let mut bytes = Vec::with_capacity(64);
    for ip in [from, to] {
        match ip {
            IpAddr::V4(ip) => bytes.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => bytes.extend_from_slice(&ip.octets()),
        }
    }
    let len = u16::try_from(HEADER_LEN).expect("twenty");
    bytes.extend_from_slice(&[0, PROTOCOL_TCP]);
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes.extend_from_slice(header);
    let words = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while 0xffff < sum {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !u16::try_from(sum).expect("folded")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Over a segment with its right checksum the sum is 0 (RFC 1071 section 1).
    #[test]
    fn a_packet_has_the_checksum_of_its_family() {
        for (from, to) in
            [("192.0.2.1:443", "10.1.2.3:50000"), ("[2001:db8::1]:443", "[2001:db8:ffff::9]:65535")]
        {
            let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
            let packet = packet(from, to, 0x5555_5555);
            assert_eq!(checksum(from.ip(), to.ip(), &packet), 0);
            assert_eq!(&packet[..2], &443_u16.to_be_bytes());
            assert_eq!(&packet[2..4], &to.port().to_be_bytes());
        }
    }
}
