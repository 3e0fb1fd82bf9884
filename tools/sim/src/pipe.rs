//! The way from a server to a viewer: a line of some rate, which may stall.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use model::units::{Bytes, Instant, Nanos};

use crate::stage::{Bell, Stage, WORLD};
use crate::world::Party;

/// What comes from a server.
#[derive(Clone, Debug)]
pub(crate) enum Packet {
    Bytes(Vec<u8>),
    End,
    Reset,
}

/// The way from a server to a viewer.
pub(crate) struct Pipe {
    pub(crate) party: Party,
    stage: Stage,
    rate: u64,
    stalled_until: Cell<Instant>,
    packets: RefCell<VecDeque<Packet>>,
    came: Bell,
}

impl Pipe {
    /// An empty one, fast if `calm`.
    pub(crate) fn new(stage: &Stage, party: Party, calm: bool) -> Rc<Self> {
        // From a bad mobile line to a good one at home.
        let rate = [100_000, 1_000_000, 10_000_000, 100_000_000];
        let rate = stage.pick(&rate[if calm { 3 } else { 0 }..]).copied().unwrap_or(1_000_000);
        let stalls = !calm && stage.one_in(12);
        let until = stage.now() + if stalls { stage.millis(500, 20_000) } else { Nanos(0) };
        Rc::new(Self {
            party,
            stage: stage.clone(),
            rate,
            stalled_until: Cell::new(until),
            packets: RefCell::default(),
            came: Bell::default(),
        })
    }

    /// How long it takes until so much is taken.
    pub(crate) fn span(&self, len: Bytes) -> Nanos {
        Nanos(len.0 * 1_000_000_000 / self.rate)
    }

    /// True while the viewer takes nothing.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stage.now() < self.stalled_until.get()
    }

    /// Something is on its way to the viewer, behind all that was before.
    pub(crate) fn deliver(self: &Rc<Self>, packet: Packet) {
        let pipe = Rc::clone(self);
        self.stage.at(WORLD, self.stage.now() + Nanos::millis(4), move || {
            pipe.packets.borrow_mut().push_back(packet);
            pipe.came.ring();
        });
    }

    /// The next packet; none if it does not come within `most`.
    pub(crate) async fn next(&self, most: Nanos) -> Option<Packet> {
        let until = self.stage.now() + most;
        loop {
            let packet = self.packets.borrow_mut().pop_front();
            if packet.is_some() || until <= self.stage.now() {
                return packet;
            }
            self.came.wait_until(&self.stage, until).await;
        }
    }
}
