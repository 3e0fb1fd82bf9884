//! Decides which I/O a drive does next. It does none itself.
//!
//! ```text
//! submit(io) ──> [ serve ][ background ] ──> poll() ──> io for the ring
//!                      ^                        |
//!                      └────── complete() <─────┘
//! ```
//!
//! One scheduler per drive and worker. Reads that viewers wait for go first; background reads get
//! what is left of the depth and always a turn, so that they end. The depth bounds what a drive
//! can hold back: a hung drive keeps `depth` buffers and nothing more.
//!
//! `drive` is its successor: four classes, reads by deadline, and writes that are held back by
//! what they do to reads (`governor`). No worker has it yet.

pub mod drive;
pub mod governor;
pub mod load;

use std::collections::VecDeque;

/// Bounds for one drive.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Most operations in flight on the drive from this worker.
    pub depth: usize,
    /// Most operations that wait.
    pub queue_len_max: usize,
}

/// Who waits for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A viewer.
    Serve,
    /// Nobody: verification, housekeeping.
    Background,
}

/// The queue is full: answer the client otherwise, or wait for a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the drive's queue is full")]
pub struct Full;

/// Serve operations that may pass before a waiting background one gets its turn.
const SERVE_PER_BACKGROUND: u32 = 16;

/// Chooses among the operations waiting for one drive. `T` names an operation to the caller.
#[derive(Debug)]
pub struct Scheduler<T> {
    config: Config,
    serve: VecDeque<T>,
    background: VecDeque<T>,
    /// Invariant: <= config.depth.
    in_flight: usize,
    /// Serve operations passed since background last had a turn.
    passed: u32,
}

impl<T> Scheduler<T> {
    /// An idle drive. Both queues are allocated here, once.
    pub fn new(config: Config) -> Self {
        assert!(0 < config.depth, "a drive needs a depth of at least 1");
        Self {
            config,
            serve: VecDeque::with_capacity(config.queue_len_max),
            background: VecDeque::with_capacity(config.queue_len_max.min(64)),
            in_flight: 0,
            passed: 0,
        }
    }

    /// Queues an operation behind the others of its class.
    pub fn submit(&mut self, class: Class, io: T) -> Result<(), Full> {
        if self.config.queue_len_max <= self.waiting() {
            return Err(Full);
        }
        match class {
            Class::Serve => self.serve.push_back(io),
            Class::Background => self.background.push_back(io),
        }
        Ok(())
    }

    /// The next operation for the drive, if it may have one more.
    pub fn poll(&mut self) -> Option<T> {
        if self.config.depth <= self.in_flight {
            return None;
        }
        let turn = self.serve.is_empty() || SERVE_PER_BACKGROUND <= self.passed;
        let background = if turn { self.background.pop_front() } else { None };
        let io = match background {
            Some(io) => {
                self.passed = 0;
                io
            }
            None => {
                let io = self.serve.pop_front()?;
                self.passed += u32::from(!self.background.is_empty());
                io
            }
        };
        self.in_flight += 1;
        Some(io)
    }

    /// An operation came back, well or badly.
    pub fn complete(&mut self) {
        assert!(0 < self.in_flight, "an operation completes once");
        self.in_flight -= 1;
    }

    /// Operations that wait.
    pub fn waiting(&self) -> usize {
        self.serve.len() + self.background.len()
    }

    /// Operations that the drive has.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scheduler(depth: usize) -> Scheduler<u32> {
        Scheduler::new(Config { depth, queue_len_max: 100 })
    }

    #[test]
    fn viewers_go_first_in_the_order_they_came() {
        let mut drive = scheduler(10);
        drive.submit(Class::Background, 9).unwrap();
        drive.submit(Class::Serve, 1).unwrap();
        drive.submit(Class::Serve, 2).unwrap();
        assert_eq!((drive.poll(), drive.poll()), (Some(1), Some(2)));
        assert_eq!((drive.poll(), drive.poll()), (Some(9), None));
    }

    #[test]
    fn background_gets_a_turn_under_constant_load() {
        let mut drive = scheduler(1);
        drive.submit(Class::Background, 999).unwrap();
        for io in 0..50 {
            drive.submit(Class::Serve, io).unwrap();
        }
        let mut order = Vec::new();
        while let Some(io) = drive.poll() {
            order.push(io);
            drive.complete();
        }
        assert_eq!(order.iter().position(|io| *io == 999), Some(16));
    }

    #[test]
    fn a_hung_drive_holds_its_depth_and_nothing_more() {
        let mut drive = scheduler(3);
        for io in 0..100 {
            drive.submit(Class::Serve, io).unwrap();
        }
        assert_eq!(drive.submit(Class::Serve, 100), Err(Full));
        assert_eq!((0..100).filter_map(|_| drive.poll()).count(), 3);
        drive.complete();
        assert_eq!(drive.poll(), Some(3));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_the_depth_holds(steps in prop::collection::vec(0u8..4, 0..400)) {
            let mut drive = scheduler(4);
            let (mut submitted, mut polled) = (0, 0);
            for step in steps {
                match step {
                    0 => submitted += u32::from(drive.submit(Class::Serve, 0).is_ok()),
                    1 => submitted += u32::from(drive.submit(Class::Background, 0).is_ok()),
                    2 => polled += u32::from(drive.poll().is_some()),
                    _ if 0 < drive.in_flight() => drive.complete(),
                    _ => {}
                }
                prop_assert!(drive.in_flight() <= 4);
                prop_assert_eq!(usize::try_from(submitted - polled).unwrap(), drive.waiting());
            }
        }
    }
}
