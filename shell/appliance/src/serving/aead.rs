//! What seals here: chosen once, at start, and told where operators look.

use std::fmt::Write as _;
use std::time::Duration;

use model::metric::Metric;
use serde::Serialize;
use tls::{NoKernel, Processor, Survey, Trial, Wanted};
use tracing::field::display;
use wire::prometheus::Page;

/// Chooses, and says so in the log. Takes some tens of milliseconds if there is a choice.
pub(crate) fn choose(wanted: Wanted) -> Result<Survey, NoKernel> {
    let survey = tls::survey(wanted)?;
    for trial in &survey.trials {
        let (cipher, kernel) = (trial.cipher.name(), trial.kernel);
        if let Err(error) = trial.found {
            tracing::warn!(cipher, %kernel, %error, "this library is not used: it seals wrongly");
        } else if survey.kernels.of(trial.cipher) == kernel {
            let seconds_per_gb = seconds(trial).map(|seconds| display(format!("{seconds:.3}")));
            tracing::info!(cipher, %kernel, seconds_per_gb, "this library seals");
        }
    }
    Ok(survey)
}

/// For `/metrics`.
pub(crate) fn put(page: &mut Page, survey: &Survey) {
    let mut put = |metric: &Metric, trial: &Trial, value: f64| {
        let labels = format!("cipher=\"{}\",kernel=\"{}\"", trial.cipher.name(), trial.kernel);
        page.put(metric, &labels, value);
    };
    let help = "1: records of this cipher are sealed by this library.";
    let is_used = |trial: &&Trial| survey.kernels.of(trial.cipher) == trial.kernel;
    for trial in survey.trials.iter().filter(is_used) {
        put(&Metric::gauge("aead_info", help), trial, 1.0);
    }
    let help = "Time of a core to seal 10^9 bytes from memory, measured at start.";
    for (trial, seconds) in survey.trials.iter().filter_map(|trial| Some((trial, seconds(trial)?)))
    {
        put(&Metric::gauge("aead_seconds_per_gigabyte", help), trial, seconds);
    }
}

/// What `inspect --aead` found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InspectedAead {
    /// As the kernel names it; none if it does not.
    pub processor: Option<String>,
    /// Each library under each cipher.
    pub trials: Vec<InspectedTrial>,
}

/// One library under one cipher.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InspectedTrial {
    pub cipher: &'static str,
    /// The library.
    pub kernel: &'static str,
    /// Time of a core to seal 10^9 bytes from memory.
    pub seconds_per_gigabyte: Option<f64>,
    /// An appliance that may choose uses this one.
    pub chosen: bool,
    pub wrong: Option<String>,
}

/// Examines and measures all candidates on this machine.
pub(crate) fn inspect() -> Result<InspectedAead, NoKernel> {
    let survey = tls::survey(Wanted::Auto)?;
    let trial = |trial: &Trial| InspectedTrial {
        cipher: trial.cipher.name(),
        kernel: trial.kernel.name(),
        seconds_per_gigabyte: seconds(trial),
        chosen: survey.kernels.of(trial.cipher) == trial.kernel,
        wrong: trial.found.err().map(|error| error.to_string()),
    };
    let trials = survey.trials.iter().map(trial).collect();
    let processor = Processor::read().map(|processor| processor.name).unwrap_or_default();
    Ok(InspectedAead { processor: Some(processor).filter(|name| !name.is_empty()), trials })
}

impl InspectedAead {
    /// True if no library seals wrongly.
    pub fn is_sound(&self) -> bool {
        self.trials.iter().all(|trial| trial.wrong.is_none())
    }

    /// What an operator reads.
    pub fn text(&self) -> String {
        let mut out = self.processor.clone().unwrap_or_else(|| "unknown processor".to_owned());
        for trial in &self.trials {
            let InspectedTrial { cipher, kernel, seconds_per_gigabyte, chosen, wrong } = trial;
            let _ = write!(out, "\n  {cipher} by {kernel}: ");
            let _ = match (seconds_per_gigabyte, wrong) {
                (_, Some(wrong)) => write!(out, "not used, {wrong}"),
                (Some(seconds), None) => write!(out, "{seconds:.3} s/GB"),
                (None, None) => write!(out, "not measured"),
            };
            out.push_str(if *chosen { ", chosen" } else { "" });
        }
        out
    }
}

fn seconds(trial: &Trial) -> Option<f64> {
    trial.found.ok().flatten().map(|nanos| Duration::from(nanos).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::units::Nanos;
    use tls::{Cipher, Kernel, Kernels};

    #[test]
    fn metrics_say_what_seals_and_how_fast_the_others_are() {
        let trial = |kernel, millis| Trial {
            kernel,
            cipher: Cipher::Aes128,
            found: Ok(Some(Nanos::millis(millis))),
        };
        let trials = vec![trial(Kernel::AwsLc, 190), trial(Kernel::Ring, 147)];
        let kernels = Kernels { aes_128: Kernel::Ring, aes_256: Kernel::AwsLc };
        let mut page = Page::new("");
        put(&mut page, &Survey { trials, kernels });
        let text = page.into_text();
        let told: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let wanted = [
            "aead_info{cipher=\"aes-128-gcm\",kernel=\"ring\"} 1",
            "aead_seconds_per_gigabyte{cipher=\"aes-128-gcm\",kernel=\"aws-lc\"} 0.19",
            "aead_seconds_per_gigabyte{cipher=\"aes-128-gcm\",kernel=\"ring\"} 0.147",
        ];
        assert_eq!(told, wanted);
    }

    #[test]
    fn an_inspection_names_each_library_and_marks_one_for_each_cipher() {
        let found = inspect().unwrap();
        assert!(found.is_sound());
        let chosen = found.trials.iter().filter(|trial| trial.chosen).count();
        assert_eq!((found.trials.len(), chosen), (4, 2));
        let text = found.text();
        let (_, measured) = text.split_once("aes-256-gcm by ring: ").unwrap();
        let (seconds, _) = measured.split_once(" s/GB").unwrap();
        assert!(0.0 < seconds.parse::<f64>().unwrap() && text.contains(", chosen"), "{text}");
        let name = Processor::read().unwrap().name;
        assert!(text.starts_with(&format!("{name}\n")), "{text}");
    }
}
