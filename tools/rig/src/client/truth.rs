//! What the bytes should have been.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// A byte that differs from the source.
#[derive(Debug, thiserror::Error)]
pub enum Wrong {
    #[error("byte {offset} of target {target} is {found:#04x} instead of {wanted:#04x}")]
    Byte {
        /// The target's place in the list.
        target: usize,
        offset: u64,
        found: u8,
        wanted: u8,
    },
    #[error("cannot read the source of target {target} at {offset}: {error}")]
    Source {
        /// The target's place in the list.
        target: usize,
        offset: u64,
        error: std::io::Error,
    },
}

/// Where right bytes come from.
#[derive(Debug)]
pub enum Truth {
    /// The targets are files of a catalogue that the lab made: no file need be read.
    Pattern(Pattern),
    /// The targets are these files, in the order of the list.
    Files(Vec<File>),
}

/// Content that can be computed: every eight bytes of every file of a catalogue are different, so
/// bytes from a wrong place cannot pass for right ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Another seed, other bytes.
    pub seed: u64,
}

impl Pattern {
    /// Fills `out` with the bytes of `file` from `offset` on.
    pub fn fill(self, file: usize, offset: u64, out: &mut [u8]) {
        let mut word = offset / 8;
        let skip = usize::try_from(offset % 8).expect("less than eight");
        let (first, rest) = out.split_at_mut(out.len().min((8 - skip) % 8));
        if !first.is_empty() {
            first.copy_from_slice(&self.word(file, word)[skip..skip + first.len()]);
            word += 1;
        }
        let mut words = rest.chunks_exact_mut(8);
        for eight in &mut words {
            eight.copy_from_slice(&self.word(file, word));
            word += 1;
        }
        let last = words.into_remainder();
        last.copy_from_slice(&self.word(file, word)[..last.len()]);
    }

    /// File in the upper, place in the lower bits, then steps that each can be undone: so no two
    /// words of a catalogue (up to 2^24 files of 8 TiB) are the same.
    fn word(self, file: usize, word: u64) -> [u8; 8] {
        let file = u64::try_from(file).expect("an index fits");
        let mut x = (file << 40 | word).wrapping_add(self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x ^= x >> 32;
        x.wrapping_mul(0xbf58_476d_1ce4_e5b9).to_le_bytes()
    }
}

impl Truth {
    /// Compares `found`, bytes of `target` from `offset` on; `scratch` is room to work in.
    pub fn compare(
        &self,
        target: usize,
        offset: u64,
        found: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<(), Wrong> {
        scratch.resize(found.len(), 0);
        match self {
            Self::Pattern(pattern) => pattern.fill(target, offset, scratch),
            Self::Files(files) => files[target]
                .read_exact_at(scratch, offset)
                .map_err(|error| Wrong::Source { target, offset, error })?,
        }
        if found == scratch.as_slice() {
            return Ok(());
        }
        let pairs = found.iter().zip(scratch.iter()).zip(offset..);
        for ((found, wanted), offset) in pairs {
            if found != wanted {
                return Err(Wrong::Byte { target, offset, found: *found, wanted: *wanted });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::Write;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_piece_of_the_pattern_is_the_same_wherever_it_begins(
            offset in 0u64..100, len in 0usize..100, file in 0usize..3,
        ) {
            let pattern = Pattern { seed: 5 };
            let (mut whole, mut piece) = ([0; 200], vec![0; len]);
            pattern.fill(file, 0, &mut whole);
            pattern.fill(file, offset, &mut piece);
            let from = usize::try_from(offset).unwrap();
            prop_assert_eq!(&whole[from..from + len], &piece[..]);
        }
    }

    #[test]
    fn no_two_words_of_a_catalogue_are_the_same() {
        let pattern = Pattern { seed: 5 };
        let mut seen = BTreeSet::new();
        for file in 0..4 {
            let mut bytes = [0; 8000];
            pattern.fill(file, 1 << 30, &mut bytes);
            seen.extend(bytes.chunks(8).map(<[u8]>::to_vec));
        }
        assert_eq!(seen.len(), 4000);
    }

    #[test]
    fn one_wrong_byte_is_named() {
        let pattern = Pattern { seed: 5 };
        let mut bytes = vec![0; 100];
        pattern.fill(2, 1000, &mut bytes);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[0; 1000]).unwrap();
        file.write_all(&bytes).unwrap();
        let other = tempfile::tempfile().unwrap();
        let files = vec![other.try_clone().unwrap(), other, file];
        for truth in [Truth::Pattern(pattern), Truth::Files(files)] {
            let mut found = bytes.clone();
            truth.compare(2, 1000, &found, &mut Vec::new()).unwrap();
            found[37] ^= 0x80;
            let error = truth.compare(2, 1000, &found, &mut Vec::new()).unwrap_err().to_string();
            let wanted = bytes[37];
            let text =
                format!("byte 1037 of target 2 is {:#04x} instead of {wanted:#04x}", wanted ^ 0x80);
            assert_eq!(error, text);
        }
    }
}
