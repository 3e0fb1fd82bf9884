//! The worker's read buffers, each with the count of those who still need it.

use model::handle::BufferId;

/// A pool of buffers, each with a count of pins. A buffer is pinned by the read that fills it, by
/// the transfer whose next bytes it holds, by every `Send` that was not carried out yet, and for as
/// long as the block in it is hot; it is free again when nobody needs it.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// The last is taken first: the one used last is still in the processor's cache.
    free: Vec<BufferId>,
    /// Invariant: zero exactly for free buffers.
    pins: Vec<u32>,
}

impl Buffers {
    pub(crate) fn new(count: u16) -> Self {
        Self { free: (0..count).rev().map(BufferId).collect(), pins: vec![0; usize::from(count)] }
    }

    pub(crate) fn any_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Takes a free buffer, pinned once.
    pub(crate) fn take(&mut self) -> Option<BufferId> {
        let buffer = self.free.pop()?;
        assert_eq!(self.pins[buffer.as_usize()], 0, "nobody needs a free buffer");
        self.pins[buffer.as_usize()] = 1;
        Some(buffer)
    }

    pub(crate) fn pins(&self, buffer: BufferId) -> u32 {
        self.pins[buffer.as_usize()]
    }

    /// One more user needs the buffer.
    pub(crate) fn pin(&mut self, buffer: BufferId) {
        let pins = &mut self.pins[buffer.as_usize()];
        assert!(0 < *pins, "only what somebody holds can be held by another");
        *pins += 1;
    }

    /// One user fewer; the last makes the buffer free.
    pub(crate) fn unpin(&mut self, buffer: BufferId) {
        let pins = &mut self.pins[buffer.as_usize()];
        assert!(0 < *pins, "a pin is taken out once");
        *pins -= 1;
        if *pins == 0 {
            self.free.push(buffer);
            assert!(self.free.len() <= self.pins.len(), "a buffer is free once");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_free_when_its_last_pin_is_out() {
        let mut buffers = Buffers::new(1);
        let buffer = buffers.take().unwrap();
        buffers.pin(buffer);
        buffers.unpin(buffer);
        assert_eq!(buffers.take(), None);
        buffers.unpin(buffer);
        assert_eq!(buffers.take(), Some(buffer));
    }

    #[test]
    fn the_buffer_used_last_is_used_next() {
        let mut buffers = Buffers::new(3);
        let (first, second) = (buffers.take().unwrap(), buffers.take().unwrap());
        buffers.unpin(first);
        buffers.unpin(second);
        assert_eq!(buffers.take(), Some(second));
    }
}
