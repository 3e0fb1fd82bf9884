//! How much may wait in a socket to be sent.

use model::tcp::TcpSample;
use model::units::Bytes;

/// What a connection's socket may hold unsent: `least`, or as much as is on its way, in steps of
/// two. A client far away takes what is on its way within one round trip, and acknowledges it at
/// once: with less at hand, and the kernel asking for more only when a third of its buffer is free,
/// the way runs dry (docs/decisions/2026-11-23-shallow-sockets.md). What a slow client
/// has on its way is little, whatever it asks for.
pub fn unsent_max(least: Bytes, sample: &TcpSample) -> Bytes {
    let on_its_way = u64::from(sample.unacked) * sample.segment.0;
    least.max(Bytes(on_its_way.checked_next_power_of_two().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_may_wait_as_is_on_its_way() {
        fn check(unacked: u32, segment: u64, most: Bytes) {
            let sample = TcpSample { unacked, segment: Bytes(segment), ..TcpSample::default() };
            assert_eq!(unsent_max(Bytes::kib(128), &sample), most, "{sample:?}");
        }
        check(0, 1448, Bytes::kib(128));
        check(90, 1448, Bytes::kib(128));
        check(91, 1448, Bytes::kib(256));
        check(2000, 1448, Bytes::mib(4));
        check(u32::MAX, u64::from(u32::MAX), Bytes(u64::MAX));
    }
}
