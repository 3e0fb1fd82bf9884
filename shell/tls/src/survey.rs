//! Which library seals a cipher's records. No one is fastest on every processor, so it is measured
//! at start, with the call that serves (docs/decisions/2026-11-23-aead-kernels.md).
//!
//! ```text
//! candidates ── known answers, each against the first ──> sound ── measure ──> choose ──> Kernels
//! ```
//!
//! A library that gives one wrong byte is not used, whatever the operator wants.

use std::time::{Duration, Instant};

use model::units::Nanos;
use seal::{Form, PLAINTEXT_MAX, TAG_LEN};

use crate::aead::{KEY_LEN_MAX, Key};
use crate::kernel::{Cipher, Kernel, Kernels, Wanted};

mod sample;

use sample::Sample;

/// How a candidate did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    pub kernel: Kernel,
    pub cipher: Cipher,
    /// Time that a core takes to seal a gigabyte (10^9 bytes) from memory, what it has to copy
    /// included; none if it was not measured. Or what is wrong with it.
    pub found: Result<Option<Nanos>, Unsound>,
}

/// Why a candidate is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsound {
    #[error("does not give the known answer for {0} bytes")]
    Answer(usize),
    /// It seals the same record to other bytes than a library before it, which knew the answers.
    #[error("differs from another library in a record of {0} bytes")]
    Differs(usize),
}

/// What was found at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Of every candidate under every cipher of `Cipher::CHOSEN`.
    pub trials: Vec<Trial>,
    pub kernels: Kernels,
}

/// All candidates are unsound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no library seals {} rightly: this machine or this build is broken. Install the package \
     again; if that does not help, use another machine",
    .0.name()
)]
pub struct NoKernel(Cipher);

/// Examines all candidates, and measures them if there is a choice: for `MEASURED_FOR` each.
pub fn survey(wanted: Wanted) -> Result<Survey, NoKernel> {
    survey_of(wanted, &seal_sample)
}

/// How a candidate seals a sample.
type SealFn<'f> = &'f dyn Fn(Kernel, &Sample<'_>) -> Vec<u8>;

fn survey_of(wanted: Wanted, seal: SealFn<'_>) -> Result<Survey, NoKernel> {
    let far = match wanted {
        Wanted::Auto => vec![1; FAR_LEN],
        Wanted::Only(_) => Vec::new(),
    };
    let (mut trials, mut chosen) = (Vec::new(), Vec::new());
    for cipher in Cipher::CHOSEN {
        let mut here = examine(cipher, seal);
        if wanted == Wanted::Auto {
            measure(&mut here, &far);
        }
        chosen.push(choose(wanted, &here).ok_or(NoKernel(cipher))?);
        trials.extend(here);
    }
    Ok(Survey { trials, kernels: Kernels { aes_128: chosen[0], aes_256: chosen[1] } })
}

/// What is wanted if it is sound, else the fastest that is. One that is faster than those before it
/// by less than a twentieth is not: that is noise, and those before copy less.
fn choose(wanted: Wanted, trials: &[Trial]) -> Option<Kernel> {
    let sound = || trials.iter().filter_map(|trial| Some((trial.kernel, trial.found.ok()?)));
    let asked = sound().find(|(kernel, _)| wanted == Wanted::Only(*kernel));
    asked.map(|(kernel, _)| kernel).or_else(|| {
        let faster = |best: (Kernel, Option<Nanos>), next: (Kernel, Option<Nanos>)| match next.1 {
            Some(took) if best.1.is_none_or(|best| took.0 < best.0 / 20 * 19) => next,
            _ => best,
        };
        sound().reduce(faster).map(|(kernel, _)| kernel)
    })
}

/// Lengths around the steps of kernels: 16 bytes, 6, 8 and 16 times as many, and 3 KiB; with the
/// content type, which is sealed behind, and without. A whole record is last.
const LENGTHS: [usize; 24] = [
    0, 1, 14, 15, 16, 17, 31, 32, 95, 96, 97, 127, 128, 129, 255, 256, 257, 767, 768, 3071, 3072,
    8191, 16_383, 16_384,
];
const _: () = assert!(LENGTHS[23] == PLAINTEXT_MAX, "a whole record is last");

/// Compares each kernel with the known answers, then each correct one with the first correct one.
fn examine(cipher: Cipher, seal: SealFn<'_>) -> [Trial; Kernel::ALL.len()] {
    let content = sample::content();
    let mut trials = Kernel::ALL.map(|kernel| {
        let wrong = sample::answers(cipher, &content)
            .into_iter()
            .find(|answer| !answer.is(&seal(kernel, &answer.sample)));
        let wrong = wrong.map(|answer| Unsound::Answer(answer.sample.plain.len()));
        Trial { kernel, cipher, found: wrong.map_or(Ok(None), Err) }
    });
    let first = trials.iter().find(|trial| trial.found.is_ok()).map(|trial| trial.kernel);
    for trial in trials.iter_mut().filter(|trial| trial.found.is_ok()) {
        let differs = LENGTHS.into_iter().find(|len| {
            let sample = Sample::of(cipher, &content[..*len]);
            first.is_some_and(|first| seal(trial.kernel, &sample) != seal(first, &sample))
        });
        trial.found = differs.map_or(Ok(None), |len| Err(Unsound::Differs(len)));
    }
    trials
}

fn seal_sample(kernel: Kernel, sample: &Sample<'_>) -> Vec<u8> {
    let key = Key::of(kernel, sample.cipher, sample.key, sample.nonce);
    let mut sealed = vec![0; sample.plain.len() + 1 + TAG_LEN];
    key.seal_under(sample.nonce, sample.header, sample.plain, &[sample.kind], &mut sealed);
    sealed
}

/// Beyond the cache of most processors, as what comes from drives and hot blocks is: a copy costs
/// more there.
const FAR_LEN: usize = 64 * 1024 * 1024;
/// As long as the chunk that a worker seals at once, which stays in the cache.
const NEAR_RECORDS: usize = 16;
/// Each candidate is measured for so long under each cipher. Two candidates and two ciphers take
/// 20 ms of a start.
const MEASURED_FOR: Duration = Duration::from_millis(5);
/// Each candidate has so many turns, even where they take longer. If the machine stands still
/// during some of them, others show how fast it is.
const TURNS_MIN: u32 = 8;
/// Records between two looks at the clock: a tenth of a millisecond and more.
const TURN: usize = 64;

/// Measures those that are sound by turns, so that what the machine does besides falls on all. The
/// best turn counts: everything else that a processor does makes it slower, never faster.
fn measure(trials: &mut [Trial], far: &[u8]) {
    let mut records = far.chunks_exact(PLAINTEXT_MAX).cycle();
    let mut near = vec![1; NEAR_RECORDS * RECORD_LEN];
    let mut spent = Duration::ZERO;
    let sound = trials.iter_mut().filter(|trial| trial.found.is_ok());
    let key = |trial: &Trial| Key::of(trial.kernel, trial.cipher, [7; KEY_LEN_MAX], [7; 12]);
    let mut sound: Vec<_> = sound.map(|trial| (key(trial), trial)).collect();
    let rounds = u32::try_from(sound.len()).unwrap_or(u32::MAX);
    for round in 0.. {
        if TURNS_MIN <= round && MEASURED_FOR * rounds <= spent {
            break;
        }
        for (key, trial) in &mut sound {
            let started = Instant::now();
            for (sequence, plain) in (0..).zip(records.by_ref().take(TURN)) {
                let at = sequence % NEAR_RECORDS * RECORD_LEN;
                let kind = seal::ContentType::ApplicationData;
                let number = u64::try_from(sequence).unwrap_or(0);
                key.seal(number, kind, plain, &mut near[at..at + RECORD_LEN]);
            }
            let turn = started.elapsed();
            spent += turn;
            let took = Nanos(per_gigabyte(turn));
            let best = trial.found.ok().flatten().map_or(took, |best| best.min(took));
            trial.found = Ok(Some(best));
        }
    }
}

const RECORD_LEN: usize = PLAINTEXT_MAX + Form::Tls13.overhead();

/// Nanoseconds for 10^9 bytes, if a turn took this.
fn per_gigabyte(turn: Duration) -> u64 {
    let bytes = u128::try_from(TURN * PLAINTEXT_MAX).unwrap_or(u128::MAX);
    u64::try_from(turn.as_nanos() * 1_000_000_000 / bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(kernel: Kernel, found: Result<Option<Nanos>, Unsound>) -> Trial {
        Trial { kernel, cipher: Cipher::Aes128, found }
    }

    fn chosen(wanted: Wanted, millis: [Option<u64>; 2]) -> Option<Kernel> {
        let found = |millis: Option<u64>| match millis {
            Some(millis) => Ok(Some(Nanos::millis(millis))),
            None => Err(Unsound::Answer(1)),
        };
        let [aws_lc, ring] = millis;
        choose(wanted, &[trial(Kernel::AwsLc, found(aws_lc)), trial(Kernel::Ring, found(ring))])
    }

    #[test]
    fn the_fastest_sound_kernel_is_chosen_unless_another_is_wanted() {
        let (auto, ring) = (Wanted::Auto, Wanted::Only(Kernel::Ring));
        assert_eq!(chosen(auto, [Some(190), Some(147)]), Some(Kernel::Ring));
        assert_eq!(chosen(auto, [Some(85), Some(147)]), Some(Kernel::AwsLc));
        assert_eq!(chosen(auto, [Some(100), Some(96)]), Some(Kernel::AwsLc), "noise");
        assert_eq!(chosen(ring, [Some(85), Some(147)]), Some(Kernel::Ring));
        assert_eq!(chosen(auto, [Some(190), None]), Some(Kernel::AwsLc));
        assert_eq!(chosen(auto, [None, Some(147)]), Some(Kernel::Ring));
        assert_eq!(chosen(ring, [Some(190), None]), Some(Kernel::AwsLc), "wanted, and unsound");
        assert_eq!(chosen(auto, [None, None]), None);
        let unmeasured = Kernel::ALL.map(|kernel| trial(kernel, Ok(None)));
        assert_eq!(choose(ring, &unmeasured), Some(Kernel::Ring));
        assert_eq!(choose(auto, &unmeasured), Some(Kernel::AwsLc));
    }

    #[test]
    fn all_candidates_give_the_known_answers_and_the_same_bytes() {
        for cipher in [Cipher::Aes128, Cipher::Aes256, Cipher::Chacha20] {
            for trial in examine(cipher, &seal_sample) {
                assert_eq!(trial.found, Ok(None), "{trial:?}");
            }
        }
    }

    /// What a survey says of a library that is wrong in records of this length.
    fn survey_with_a_liar(liar: Kernel, wrong_len: usize, wanted: Wanted) -> Survey {
        let lie = |kernel: Kernel, sample: &Sample<'_>| {
            let mut sealed = seal_sample(kernel, sample);
            if kernel == liar && sample.plain.len() == wrong_len {
                sealed[wrong_len / 2] ^= 1;
            }
            sealed
        };
        survey_of(wanted, &lie).unwrap()
    }

    #[test]
    fn a_library_that_is_wrong_in_one_bit_is_not_used() {
        let all = |kernel| Kernels { aes_128: kernel, aes_256: kernel };
        let found = |survey: &Survey, of: Kernel| {
            let of: Vec<_> = survey.trials.iter().filter(|trial| trial.kernel == of).collect();
            assert_eq!(of.len(), Cipher::CHOSEN.len());
            of[0].found
        };
        for wanted in [Wanted::Auto, Wanted::Only(Kernel::Ring)] {
            let survey = survey_with_a_liar(Kernel::Ring, 3072, wanted);
            assert_eq!(found(&survey, Kernel::Ring), Err(Unsound::Differs(3072)));
            assert_eq!(survey.kernels, all(Kernel::AwsLc));
        }
        let survey = survey_with_a_liar(Kernel::Ring, 0, Wanted::Auto);
        assert_eq!(found(&survey, Kernel::Ring), Err(Unsound::Differs(0)));
        // That aws-lc is right is known from others than aws-lc.
        for wrong in [sample::VECTOR_LEN, PLAINTEXT_MAX] {
            let survey = survey_with_a_liar(Kernel::AwsLc, wrong, Wanted::Auto);
            assert_eq!(found(&survey, Kernel::AwsLc), Err(Unsound::Answer(wrong)));
            assert_eq!(survey.kernels, all(Kernel::Ring));
        }
    }

    #[test]
    fn with_no_sound_library_there_is_no_survey() {
        let silent = |_: Kernel, sample: &Sample<'_>| vec![0; sample.plain.len() + 1 + TAG_LEN];
        let error = survey_of(Wanted::Auto, &silent).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("aes-128-gcm") && text.contains("Install the package"), "{text}");
    }

    #[test]
    fn what_is_sound_is_measured_where_there_is_a_choice() {
        let survey = survey(Wanted::Auto).unwrap();
        assert!(survey.trials.iter().all(|trial| matches!(trial.found, Ok(Some(_)))));
        let survey = super::survey(Wanted::Only(Kernel::Ring)).unwrap();
        assert!(survey.trials.iter().all(|trial| trial.found == Ok(None)));
        assert_eq!(survey.kernels, Kernels { aes_128: Kernel::Ring, aes_256: Kernel::Ring });
    }

    #[test]
    fn what_is_wanted_is_read_and_printed_in_one_form() {
        for text in ["auto", "aws-lc", "ring"] {
            assert_eq!(text.parse::<Wanted>().unwrap().to_string(), text);
        }
        let error = "openssl".parse::<Wanted>().unwrap_err().to_string();
        assert!(error.contains("\"openssl\"") && error.contains("\"auto\""), "{error}");
    }
}
