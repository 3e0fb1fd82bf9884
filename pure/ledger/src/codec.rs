//! Numbers of 1 to 10 bytes, seven bits in each, the lowest first (LEB128), and short texts.

/// Adds a number.
pub(crate) fn put(bytes: &mut Vec<u8>, number: impl Into<u64>) {
    let mut number = number.into();
    while 0x80 <= number {
        bytes.push(low_bits(number) | 0x80);
        number >>= 7;
    }
    bytes.push(low_bits(number));
}

/// Adds a text with its length.
pub(crate) fn put_text(bytes: &mut Vec<u8>, text: &str) {
    assert!(text.len() < 256, "names have 63 bytes at most");
    put(bytes, model::units::Bytes::of(text.len()).0);
    bytes.extend_from_slice(text.as_bytes());
}

fn low_bits(number: u64) -> u8 {
    u8::try_from(number & 0x7f).expect("seven bits")
}

/// Bytes that are read from the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            let moved = bits << shift;
            if moved >> shift != bits {
                return None;
            }
            number |= moved;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// A number of a narrower type; none if it does not fit.
    pub(crate) fn narrow<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.number()?).ok()
    }

    /// A count of things of which each takes a byte at least: never more than there can be.
    pub(crate) fn count(&mut self) -> Option<usize> {
        let count: usize = self.narrow()?;
        (count <= self.rest.len()).then_some(count)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let len = self.count()?;
        std::str::from_utf8(self.bytes(len)?).ok()
    }

    pub(crate) fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_number_is_read_as_it_was_written(number: u64) {
            let mut bytes = Vec::new();
            put(&mut bytes, number);
            let mut input = Input::new(&bytes);
            prop_assert_eq!((input.number(), input.is_empty()), (Some(number), true));
        }
    }

    #[test]
    fn what_is_no_number_is_none() {
        for odd in [&[][..], &[0x80], &[0xff; 9], &[0xff; 10], &[0x80; 20]] {
            assert_eq!(Input::new(odd).number(), None, "{odd:?}");
        }
    }
}
