//! What a proxy says of whom it speaks for, before the first byte of its client: the PROXY
//! protocol of HAProxy, version 2 and, since nginx says no other, version 1.
//!
//! ```text
//! v1   "PROXY TCP4 198.51.100.7 192.0.2.1 40000 443\r\n"       at most 107 bytes
//! v2   signature(12) command(1) family(1) length(2) addresses, TLVs
//! ```
//!
//! <https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt>

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tokio::io::{AsyncRead, AsyncReadExt};

/// Reads the header and not a byte more. The client's address; none if the proxy speaks for itself
/// or for what has no address. Anything that is no header is `InvalidData`.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<IpAddr>> {
    // No header of either version is shorter.
    let mut start = [0; SIGNATURE.len()];
    stream.read_exact(&mut start).await?;
    if start == SIGNATURE {
        let mut rest = [0; 4];
        stream.read_exact(&mut rest).await?;
        let [command, family, high, low] = rest;
        let len = usize::from(u16::from_be_bytes([high, low]));
        if V2_LEN_MAX < len {
            return Err(bad("it is too long"));
        }
        let mut body = vec![0; len];
        stream.read_exact(&mut body).await?;
        return version_2(command, family, &body).ok_or_else(|| bad("version 2"));
    }
    let mut line = start.to_vec();
    while !line.ends_with(b"\n") {
        if V1_LEN_MAX <= line.len() || !line.starts_with(b"PROXY ") {
            return Err(bad("no header of version 1 or 2"));
        }
        line.push(stream.read_u8().await?);
    }
    std::str::from_utf8(&line).ok().and_then(version_1).ok_or_else(|| bad("version 1"))
}

/// None if it is not in order.
fn version_2(command: u8, family: u8, body: &[u8]) -> Option<Option<IpAddr>> {
    match (command, family) {
        // LOCAL: the proxy looks whether we live.
        (0x20, _) => Some(None),
        (0x21, 0x11) => {
            // Source, destination, two ports.
            let source: [u8; 4] = body.get(..12)?.first_chunk().copied()?;
            Some(Some(Ipv4Addr::from(source).into()))
        }
        (0x21, 0x21) => {
            let source: [u8; 16] = body.get(..36)?.first_chunk().copied()?;
            Some(Some(Ipv6Addr::from(source).to_canonical()))
        }
        // A socket of its machine, or nothing that it knows.
        (0x21, 0x00 | 0x31) => Some(None),
        _ => None,
    }
}

/// The same, of a line.
fn version_1(line: &str) -> Option<Option<IpAddr>> {
    let mut words = line.strip_suffix("\r\n")?.split(' ').skip(1);
    match words.next()? {
        "UNKNOWN" => Some(None),
        family @ ("TCP4" | "TCP6") => {
            let source: IpAddr = words.next()?.parse().ok()?;
            let destination: IpAddr = words.next()?.parse().ok()?;
            let ports = [words.next()?, words.next()?].map(str::parse::<u16>);
            let fits = |address: IpAddr| address.is_ipv4() == (family == "TCP4");
            let good = fits(source) && fits(destination) && ports.iter().all(Result::is_ok);
            (good && words.next().is_none()).then(|| Some(source.to_canonical()))
        }
        _ => None,
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the PROXY header is not in order: {what}"))
}

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// By the protocol.
const V1_LEN_MAX: usize = 107;
/// Addresses, and what a proxy may add: a server name and some numbers. Far above both.
const V2_LEN_MAX: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_behind_a_proxy_is_read_and_what_comes_after_is_left() {
        good(b"PROXY TCP4 198.51.100.7 192.0.2.1 40000 443\r\n", Some("198.51.100.7"));
        good(b"PROXY TCP6 2001:db8::7 2001:db8::1 40000 443\r\n", Some("2001:db8::7"));
        good(b"PROXY UNKNOWN\r\n", None);
        good(b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None);
        let four = [198, 51, 100, 7, 192, 0, 2, 1, 0x9c, 0x40, 1, 0xbb];
        good(&v2(0x21, 0x11, &four), Some("198.51.100.7"));
        let with_more = [&four[..], &[4, 0, 2, 0, 0]].concat();
        good(&v2(0x21, 0x11, &with_more), Some("198.51.100.7"));
        let mut six = [0; 36];
        six[..16].copy_from_slice(&"2001:db8::7".parse::<Ipv6Addr>().unwrap().octets());
        good(&v2(0x21, 0x21, &six), Some("2001:db8::7"));
        six[..16].copy_from_slice(&"::ffff:198.51.100.7".parse::<Ipv6Addr>().unwrap().octets());
        good(&v2(0x21, 0x21, &six), Some("198.51.100.7"));
        good(&v2(0x20, 0x00, &[]), None);
        good(&v2(0x21, 0x00, &[1, 2, 3]), None);
        good(&v2(0x21, 0x31, &[0; 216]), None);
    }

    #[test]
    fn what_is_no_proxy_header_is_refused() {
        bad(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        bad(b"PROXY TCP4 198.51.100.7 192.0.2.1 40000\r\n");
        bad(b"PROXY TCP4 2001:db8::7 2001:db8::1 1 2\r\n");
        bad(b"PROXY TCP4 198.51.100.7 192.0.2.1 40000 443 x\r\n");
        bad(b"PROXY TCP4 198.51.100.7 192.0.2.1 40000 70000\r\n");
        bad(b"PROXY TCP4 198.51.100.7 192.0.2.1 40000 443\n");
        bad(&[b"PROXY UNKNOWN ".as_slice(), &[b'x'; 200]].concat());
        bad(&v2(0x21, 0x11, &[1, 2, 3]));
        bad(&v2(0x21, 0x12, &[0; 12]));
        bad(&v2(0x31, 0x11, &[0; 12]));
        bad(&v2(0x22, 0x11, &[0; 12]));
        bad(&v2(0x21, 0x00, &[0; 4000]));
        bad(b"PROX");
    }

    fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let len = u16::try_from(body.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &len, body].concat()
    }

    fn good(header: &[u8], expected: Option<&str>) {
        let bytes = [header, b"GET /"].concat();
        let mut rest = bytes.as_slice();
        let expected: Option<IpAddr> = expected.map(|address| address.parse().unwrap());
        assert_eq!(block_on(read(&mut rest)).unwrap(), expected);
        assert_eq!(rest, b"GET /");
    }

    fn bad(mut bytes: &[u8]) {
        let error = block_on(read(&mut bytes)).unwrap_err();
        let kinds = [io::ErrorKind::InvalidData, io::ErrorKind::UnexpectedEof];
        assert!(kinds.contains(&error.kind()), "{error}");
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }
}
