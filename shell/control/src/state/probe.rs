//! Connection attempts to late appliances.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::config::BaseUrl;

/// Asks, beside everything else, whether anything answers at the appliance's address. With too
/// many attempts under way none is made: the report's age decides then, as it does anyway.
pub(crate) fn probe<Said: Future<Output = ()> + Send>(
    probes: &Arc<Semaphore>,
    base_url: &str,
    say: impl FnOnce(bool) -> Said + Send + 'static,
) {
    let permit = Arc::clone(probes).try_acquire_owned();
    let address = base_url.parse::<BaseUrl>().ok().map(|url| with_port(&url, base_url));
    let (Ok(permit), Some(address)) = (permit, address) else { return };
    tokio::spawn(async move {
        let answered = match timeout(WITHIN, TcpStream::connect(&address)).await {
            Ok(connected) => connected.is_ok(),
            // No answer is no proof: the report's age decides.
            Err(_) => true,
        };
        say(answered).await;
        drop(permit);
    });
}

fn with_port(url: &BaseUrl, text: &str) -> String {
    let authority = url.authority();
    let has_port = authority.rsplit(']').next().is_some_and(|rest| rest.contains(':'));
    let port = if text.starts_with("https:") { 443 } else { 80 };
    if has_port { authority.to_owned() } else { format!("{authority}:{port}") }
}

/// How long a connection attempt may take.
const WITHIN: Duration = Duration::from_millis(400);

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
