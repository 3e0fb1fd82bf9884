//! What happens by the clock: ageing of reports, and connection attempts to late appliances.

use std::sync::Arc;
use std::time::Duration;

use director::Event;
use model::id::ApplianceId;
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::config::BaseUrl;
use crate::writer::Control;

/// Lets time pass for the director until the process ends.
pub(crate) async fn run(control: Arc<Control>) {
    let every = |span| {
        let mut ticks = interval(span);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    };
    let (mut writes, mut refreshes) = (every(WRITE_EVERY), every(REFRESH_EVERY));
    // Side by side: what waits for the database keeps nobody from noticing who is silent.
    let ticking = async {
        loop {
            tokio::time::sleep(control.tick_in().into()).await;
            control.tick();
            control.renew_own();
        }
    };
    let writing = async {
        loop {
            writes.tick().await;
            control.write_what_is_due().await;
        }
    };
    let refreshing = async {
        loop {
            refreshes.tick().await;
            control.refresh_access().await;
        }
    };
    tokio::join!(ticking, writing, refreshing);
}

/// Asks, beside everything else, whether anything answers at the appliance's address. With too
/// many attempts under way none is made: the report's age decides then, as it does anyway.
pub(crate) fn probe(control: &Arc<Control>, appliance: ApplianceId, base_url: &str) {
    let permit = control.probes.clone().try_acquire_owned();
    let address = base_url.parse::<BaseUrl>().ok().map(|url| with_port(&url, base_url));
    let (Ok(permit), Some(address)) = (permit, address) else { return };
    let control = control.clone();
    tokio::spawn(async move {
        let answered = match timeout(WITHIN, TcpStream::connect(&address)).await {
            Ok(connected) => connected.is_ok(),
            // No answer is no proof: the report's age decides.
            Err(_) => true,
        };
        control.handle(Event::Probed { appliance, answered });
        drop(permit);
    });
}

fn with_port(url: &BaseUrl, text: &str) -> String {
    let authority = url.authority();
    let has_port = authority.rsplit(']').next().is_some_and(|rest| rest.contains(':'));
    let port = if text.starts_with("https:") { 443 } else { 80 };
    if has_port { authority.to_owned() } else { format!("{authority}:{port}") }
}

/// How soon is written what the clock makes the director want.
const WRITE_EVERY: Duration = Duration::from_millis(100);

/// How soon a token counts that the command line made.
const REFRESH_EVERY: Duration = Duration::from_secs(1);

/// How long a connection attempt may take.
const WITHIN: Duration = Duration::from_millis(400);

/// Connection attempts at a time.
pub(crate) const PROBES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_a_port_has_that_of_its_scheme() {
        let check = |text: &str, address: &str| {
            assert_eq!(with_port(&text.parse().unwrap(), text), address);
        };
        check("https://a1.example", "a1.example:443");
        check("http://a1.example/x", "a1.example:80");
        check("https://127.0.0.2:8443", "127.0.0.2:8443");
        check("https://[::1]", "[::1]:443");
        check("https://[::1]:8443", "[::1]:8443");
    }
}
