//! How much may wait in a socket to be sent.

use model::tcp::TcpSample;
use model::units::Bytes;

/// What a connection's socket may hold unsent: `least`, or as much as is on its way, in steps of
/// two. A client far away takes what is on its way within one round trip, and acknowledges it at
/// once: with less at hand, and the kernel asking for more only when a third of its buffer is free,
/// the way runs dry (docs/decisions/2026-11-23-shallow-sockets.md). What a client has on its way
/// that takes little is little, unless a deep queue on the path holds it: then as much may wait
/// here as lies there, and what that costs is not measured.
///
/// `held` is what it may hold now. One step down is not made: an amount beside a power of two would
/// cost a system call at each look.
pub fn unsent_max(least: Bytes, held: Bytes, sample: &TcpSample) -> Bytes {
    let on_its_way = u64::from(sample.unacked) * sample.segment.0;
    let enough = least.max(Bytes(on_its_way.checked_next_power_of_two().unwrap_or(u64::MAX)));
    let is_near = enough <= held && held.0 <= enough.0.saturating_mul(2);
    if is_near { held } else { enough }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_may_wait_as_is_on_its_way() {
        fn check(unacked: u32, segment: u64, most: Bytes) {
            let sample = TcpSample { unacked, segment: Bytes(segment), ..TcpSample::default() };
            let least = Bytes::kib(128);
            assert_eq!(unsent_max(least, least, &sample), most, "{sample:?}");
        }
        check(0, 1448, Bytes::kib(128));
        check(90, 1448, Bytes::kib(128));
        check(91, 1448, Bytes::kib(256));
        check(2000, 1448, Bytes::mib(4));
        check(u32::MAX, u64::from(u32::MAX), Bytes(u64::MAX));
    }

    #[test]
    fn an_amount_beside_a_power_of_two_changes_the_bound_once() {
        let least = Bytes::kib(128);
        let after = |held: &mut Bytes, unacked: u32| {
            let sample = TcpSample { unacked, segment: Bytes::kib(1), ..TcpSample::default() };
            *held = unsent_max(least, *held, &sample);
            *held
        };
        let mut held = least;
        let seen = [1000, 1030, 1000, 1030, 520, 1030].map(|unacked| after(&mut held, unacked));
        assert_eq!(seen.map(|bound| bound.0 >> 20), [1, 2, 2, 2, 2, 2]);
        // Half of it is no reason yet, a quarter is one.
        assert_eq!(
            [513, 512, 10].map(|unacked| after(&mut held, unacked).0 >> 10),
            [2048, 512, 128]
        );
        assert_eq!(after(&mut held, 129), Bytes::kib(256));
        assert_eq!(after(&mut held, 1), Bytes::kib(256), "one step above the least stays");
    }
}
