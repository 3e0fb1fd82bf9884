//! Whole numbers in base 36 (`0` to `9`, `a` to `z`), the shortest case-free form for a URL.

/// Most digits a `u64` has.
pub const DIGITS_MAX: usize = 13;

/// A number's digits, without an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digits {
    /// Right-aligned; bytes before `start` are no digits.
    bytes: [u8; DIGITS_MAX],
    start: usize,
}

impl Digits {
    /// The digits of `number`, no leading zeros.
    pub fn of(number: u64) -> Self {
        let mut digits = Self { bytes: [b'0'; DIGITS_MAX], start: DIGITS_MAX };
        let mut rest = number;
        loop {
            assert!(0 < digits.start, "no number has more digits");
            digits.start -= 1;
            let digit = u8::try_from(rest % 36).expect("a remainder of 36 is below 36");
            digits.bytes[digits.start] = if digit < 10 { b'0' + digit } else { b'a' + digit - 10 };
            rest /= 36;
            if rest == 0 {
                return digits;
            }
        }
    }

    /// The digits as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[self.start..]).expect("digits are ASCII")
    }
}

/// Reads the text that [`Digits`] writes and nothing else: no upper case, no sign, no leading zero,
/// so that every number has one form.
pub fn parse(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    if bytes.is_empty() || (bytes[0] == b'0' && bytes.len() != 1) {
        return None;
    }
    bytes.iter().try_fold(0_u64, |number, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'z' => byte - b'a' + 10,
            _ => return None,
        };
        number.checked_mul(36)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_number_has_one_form() {
        assert_eq!(Digits::of(0).as_str(), "0");
        assert_eq!(Digits::of(35).as_str(), "z");
        assert_eq!(Digits::of(36).as_str(), "10");
        assert_eq!(Digits::of(u64::MAX).as_str(), "3w5e11264sgsf");
        for bad in ["", "00", "0a", "A", "+1", "-1", " 1", "3w5e11264sgsg", "zzzzzzzzzzzzzz"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_number_is_read_back_as_it_was_written(number: u64) {
            prop_assert_eq!(parse(Digits::of(number).as_str()), Some(number));
        }

        #[test]
        fn whatever_is_read_is_written_back_the_same(text in "[0-9a-zA-Z+ ]{0,14}") {
            if let Some(number) = parse(&text) {
                let digits = Digits::of(number);
                prop_assert_eq!(digits.as_str(), &text);
            }
        }
    }
}
