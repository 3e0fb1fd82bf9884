//! The law of FreeBSD's cam_iosched as the study describes it: a mean over about a thousand reads,
//! looked at every five seconds, moves the limit by a fifth. A control, not something to use.

use model::units::{Bytes, Instant, Nanos};

const INTERVAL: Nanos = Nanos::seconds(5);
const LOW: Nanos = Nanos::millis(1);
const HIGH: Nanos = Nanos::millis(5);
const RATE_MIN: u64 = 5_000_000;
const RATE_MAX: u64 = 4_000_000_000;

#[derive(Clone, Debug)]
pub(super) struct Cam {
    rate: u64,
    /// Mean latency in 1/512 ns, each read weighing 1/512.
    sum: u64,
    reads: u32,
    next: Instant,
}

impl Cam {
    pub(super) fn new(start: Bytes) -> Self {
        Self { rate: start.0, sum: 0, reads: 0, next: Instant(0) + INTERVAL }
    }

    pub(super) fn next(&self) -> Instant {
        self.next
    }

    pub(super) fn read(&mut self, span: Nanos) {
        self.sum = if self.sum == 0 { 512 * span.0 } else { self.sum - self.sum / 512 + span.0 };
        self.reads += 1;
    }

    /// The new limit, when it is time for one.
    pub(super) fn steer(&mut self, now: Instant) -> Option<Bytes> {
        if now < self.next {
            return None;
        }
        self.next = now + INTERVAL;
        let mean = self.sum / 512;
        if self.reads < 10 || mean < LOW.0 {
            self.rate = self.rate * 6 / 5;
        } else if HIGH.0 < mean {
            self.rate = self.rate * 4 / 5;
        }
        self.reads = 0;
        self.rate = self.rate.clamp(RATE_MIN, RATE_MAX);
        Some(Bytes(self.rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_does_not_see_that_one_read_in_ten_is_late() {
        let mut cam = Cam::new(Bytes(100_000_000));
        for second in 0..60 {
            for read in 0..1_000 {
                cam.read(if read % 10 == 0 { Nanos::millis(12) } else { Nanos::millis(2) });
            }
            cam.steer(Instant(Nanos::seconds(second).0));
        }
        assert_eq!(cam.rate, 100_000_000, "the mean is 3 ms, between its marks");
    }
}
