//! What the kernel has of connections on loopback.

use std::net::TcpStream;

/// Ports of a client's connection: the server's and its own.
pub(crate) fn ports(client: &TcpStream) -> [u16; 2] {
    [client.peer_addr(), client.local_addr()].map(|at| at.unwrap().port())
}

/// Of the end that has the first port, bytes that were not acknowledged, and bytes that came and
/// were not read.
pub(crate) fn queues([from, to]: [u16; 2]) -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let ends = [from, to].map(|port| format!("0100007F:{port:04X}"));
    let row = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = row.into_iter().find(|row| row[1..3] == ends).expect("a connection that is open");
    let (sending, received) = row[4].split_once(':').unwrap();
    let number = |text| u64::from_str_radix(text, 16).unwrap();
    (number(sending), number(received))
}
