//! `nearcast drain`: takes an appliance out of players' lists, and waits until it may be stopped.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use model::units::Nanos;
use model::view::Health;
use serde_json::json;
use wire::v1::fleet::{ApplianceNow, DrainOut};

use crate::control::{Control, Query, encoded};
use crate::grammar::time;
use crate::output;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Its id: `nearcast appliance list` has them
    appliance: String,
    /// From then on, in UTC: 2027-01-31T02:00:00Z [default: now]
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "end")]
    at: Option<String>,
    /// For so long, as in 30m or 2h; then it serves again [default: until --end]
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration,
        conflicts_with = "end")]
    lasts: Option<Duration>,
    /// Wait until it is drained, and may be stopped
    #[arg(long, conflicts_with_all = ["end", "at"])]
    wait: bool,
    /// End its drain, or take back one that is to come
    #[arg(long)]
    end: bool,
    #[command(flatten)]
    query: Query,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let control = args.query.control.client()?;
    let id = &args.appliance;
    let path = format!("/v1/appliances/{}/drain", encoded(id));
    if args.end {
        control.delete(&path)?;
        return match args.query.json {
            true => output::json(&json!({ "drain": null })),
            false => output::line(&format!("{id} is drained no more")),
        };
    }
    let body = json!({ "at": args.at, "for_s": args.lasts.map(|lasts| lasts.as_secs()) });
    let drain = control.ask("PUT", &path, Some(&body))?;
    let drain: DrainOut = serde_json::from_value(drain).context("control's answer")?;
    let state = if args.wait { Some(wait(&control, id)?) } else { None };
    if args.query.json {
        let state = state.as_ref().map(|found| found.state.to_string());
        return output::json(&json!({ "drain": drain, "state": state }));
    }
    let until = drain.until_unix_s.map_or_else(|| "an operator ends it".to_owned(), output::time);
    output::line(&format!(
        "{id} is drained from {} until {until}",
        output::time(drain.from_unix_s)
    ))?;
    match state {
        Some(found) => output::line(&found.reason.unwrap_or_else(|| "it is drained".to_owned())),
        None => Ok(()),
    }
}

/// Waits until the appliance is drained. Control bounds that; silence, of control or of the
/// appliance, is borne for a while.
fn wait(control: &Control, id: &str) -> anyhow::Result<ApplianceNow> {
    let (began, path) = (Instant::now(), format!("/v1/appliances/{}", encoded(id)));
    let mut waiting = Waiting { id, was_seen: false, quiet_since: None, said: None };
    loop {
        let found = control.look(&path).with_context(|| format!("waiting for {id}"))?;
        let found = found.map_err(|error| format!("control does not answer ({error})"));
        if let Some(found) = waiting.see(began.elapsed(), found)? {
            return Ok(found);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// What was seen of the drain that is waited for.
struct Waiting<'a> {
    id: &'a str,
    /// It has reported while it drained.
    was_seen: bool,
    /// Since then nobody says how it stands.
    quiet_since: Option<Duration>,
    /// The last line for the operator.
    said: Option<String>,
}

impl Waiting<'_> {
    /// The appliance, once it is drained. An error where waiting longer makes no sense.
    fn see(
        &mut self,
        waited: Duration,
        found: Result<ApplianceNow, String>,
    ) -> anyhow::Result<Option<ApplianceNow>> {
        let id = self.id;
        let span = |of: Duration| output::span(Nanos::seconds(of.as_secs()));
        let quiet = match found {
            Ok(found) => match found.state {
                Health::Drained => return Ok(Some(found)),
                Health::Draining => {
                    (self.was_seen, self.quiet_since) = (true, None);
                    let egress = found.egress_bits_per_second.unwrap_or_default();
                    let egress = output::rate(model::units::BitsPerSecond(egress));
                    self.say(format!("{id} is draining, and sends {egress}"));
                    None
                }
                // Control has taken the drain in by now, and has it after a start, too.
                Health::Healthy => {
                    bail!("the drain of {id} has ended after {}: it serves again", span(waited))
                }
                // Control was started anew, or one of them cannot reach the other.
                Health::Stale | Health::NeverSeen if self.was_seen => {
                    Some(format!("{id} is {}", found.state))
                }
                Health::Unhealthy | Health::Stale | Health::NeverSeen => bail!(
                    "{id} is {}: nobody knows whether it is drained. Its reason: {}",
                    found.state,
                    found.reason.as_deref().unwrap_or("none")
                ),
            },
            Err(error) => Some(error),
        };
        if let Some(quiet) = quiet {
            let since = *self.quiet_since.get_or_insert(waited);
            let so_long = waited.saturating_sub(since);
            if QUIET_MAX <= so_long {
                bail!(
                    "for {} nobody has said whether {id} is drained: {quiet}. The drain stands: \
                     ask again with the same command",
                    span(so_long)
                );
            }
            self.say(format!("{quiet}; waiting for up to {}", span(QUIET_MAX)));
        }
        if WAIT_MAX < waited {
            let waited = span(waited);
            bail!("{id} is not drained after {waited}: [drain] bound of control should be shorter");
        }
        Ok(None)
    }

    fn say(&mut self, text: String) {
        if self.said.as_ref() != Some(&text) {
            eprintln!("{text}");
            self.said = Some(text);
        }
    }
}

/// Control's own bound is 10 min unless it is configured otherwise.
const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);
/// A control plane that is started anew hears its appliances within seconds; a machine that is
/// takes minutes, and then nobody waits for the drain of another.
const QUIET_MAX: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn in_state(state: &str) -> Result<ApplianceNow, String> {
        Ok(serde_json::from_value(json!({ "id": "a1", "state": state })).unwrap())
    }

    /// What is seen, a second each; whether it is drained in the end, or the error.
    fn follow(
        seconds: impl IntoIterator<Item = Result<ApplianceNow, String>>,
    ) -> Result<bool, String> {
        let mut waiting = Waiting { id: "a1", was_seen: false, quiet_since: None, said: None };
        for (second, found) in (0..).zip(seconds) {
            match waiting.see(Duration::from_secs(second), found) {
                Ok(None) => {}
                Ok(Some(_)) => return Ok(true),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(false)
    }

    #[test]
    fn control_that_is_started_anew_is_waited_for() {
        let mut seen = vec![in_state("draining")];
        seen.extend((0..100).map(|_| Err("refused".to_owned())));
        seen.extend((0..10).map(|_| in_state("never_seen")));
        seen.push(in_state("draining"));
        seen.extend((0..100).map(|_| in_state("stale")));
        seen.push(in_state("draining"));
        seen.push(in_state("drained"));
        assert_eq!(follow(seen), Ok(true));
    }

    #[test]
    fn silence_for_two_minutes_is_told_with_the_way_to_go_on() {
        let lost = || (0..121).map(|_| Err::<ApplianceNow, _>("control is away".to_owned()));
        assert_eq!(follow(lost().take(120)), Ok(false));
        let error = follow(lost()).unwrap_err();
        assert!(error.contains("control is away") && error.contains("ask again"), "{error}");
        let mixed = lost().take(60).chain((0..61).map(|_| in_state("never_seen")));
        let mixed = std::iter::once(in_state("draining")).chain(mixed);
        assert!(follow(mixed).unwrap_err().contains("never_seen"));
    }

    #[test]
    fn a_drain_that_has_ended_and_an_appliance_that_cannot_serve_are_errors_at_once() {
        assert!(follow([in_state("healthy")]).unwrap_err().contains("serves again"));
        for state in ["unhealthy", "stale", "never_seen"] {
            let error = follow([in_state(state)]).unwrap_err();
            assert!(error.contains("nobody knows") && error.contains(state), "{error}");
        }
    }
}
