//! What people and services ask of a process of the control plane, and programs of each other.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use ureq::http::Response;
use ureq::{Agent, Body, Error};

/// For an answer of the control plane.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Asks, and takes any status as an answer, unless it comes too late.
pub fn agent(within: Duration) -> Agent {
    let config = Agent::config_builder().http_status_as_error(false).timeout_global(Some(within));
    config.build().into()
}

pub fn get(url: &str) -> Result<Value> {
    body("GET", url, agent(ANSWER_MAX).get(url).call())
}

pub fn put(url: &str, value: &Value) -> Result<Value> {
    body("PUT", url, agent(ANSWER_MAX).put(url).send_json(value))
}

pub fn post(url: &str, value: &Value) -> Result<Value> {
    post_by(&agent(ANSWER_MAX), url, value)
}

/// The same by an agent that is kept, and with it its connection.
pub fn post_by(agent: &Agent, url: &str, value: &Value) -> Result<Value> {
    body("POST", url, agent.post(url).send_json(value))
}

pub fn delete(url: &str) -> Result<Value> {
    body("DELETE", url, agent(ANSWER_MAX).delete(url).call())
}

/// A page as text, for example of metrics.
pub fn page(url: &str) -> Result<String> {
    let what = || format!("GET {url}");
    let mut answer = agent(ANSWER_MAX).get(url).call().with_context(what)?;
    ensure!(answer.status().is_success(), "{}: {}", what(), answer.status());
    answer.body_mut().read_to_string().with_context(what)
}

/// The figure behind a name of a page of metrics, labels and all but the prefix of all names; none
/// if it is not there.
pub fn metric<T: FromStr>(page: &str, name: &str) -> Option<T> {
    let mut rest =
        page.lines().filter_map(|line| line.strip_prefix("nearcast_")?.strip_prefix(name));
    rest.find_map(|rest| rest.strip_prefix(' ')?.trim().parse().ok())
}

/// The JSON of an answer, or the answer's own words as an error.
fn body(method: &str, url: &str, answer: Result<Response<Body>, Error>) -> Result<Value> {
    let what = || format!("{method} {url}");
    let mut answer = answer.with_context(what)?;
    let text = answer.body_mut().read_to_string().with_context(what)?;
    ensure!(answer.status().is_success(), "{}: {}: {text}", what(), answer.status());
    if text.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_str(&text).with_context(|| format!("{}: no JSON: {text}", what()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_read_by_its_whole_name() {
        let page = "nearcast_a_total_since 3\nnearcast_a_total 29\nnearcast_b{of=\"x\"} 0.5\n";
        assert_eq!((metric(page, "a_total"), metric(page, "b{of=\"x\"}")), (Some(29), Some(0.5)));
        assert_eq!(metric::<u64>(page, "a"), None);
    }
}
