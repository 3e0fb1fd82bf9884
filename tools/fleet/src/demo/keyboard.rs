//! Orders of a person who types them where the demo runs.

use std::io::BufRead as _;

use clap::ValueEnum as _;
use tokio::sync::oneshot;

use super::controls::{Order, Orders};
use super::isps::RouteOrder;
use super::processes::Fault;
use crate::output;

/// Reads `kill a1`, `withdraw s1` and the like from stdin, on a thread of its own: reading cannot
/// be cut off.
pub(super) fn listen(orders: Orders) {
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (answer, answered) = oneshot::channel();
            let (name, order) = match *words {
                [] => continue,
                [verb, name] => (name, typed(verb, name, answer)),
                _ => ("", None),
            };
            let Some(order) = order else {
                let _ = output::line(
                    "kill, hang, stop, near or restore, and a1, a2 or a3; with --bgp w or a \
                     (withdraw, announce), and s1 or s2; Ctrl-C ends",
                );
                continue;
            };
            if orders.blocking_send(order).is_err() {
                return;
            }
            let said = match answered.blocking_recv() {
                Ok(Ok(condition)) => format!("{name} is {condition}"),
                Ok(Err(error)) => error,
                Err(_) => return,
            };
            let _ = output::line(&said);
        }
    });
}

/// The order of a line; none if its verb is none.
fn typed(
    verb: &str,
    name: &str,
    answer: oneshot::Sender<Result<&'static str, String>>,
) -> Option<Order> {
    match (Fault::from_str(verb, false), RouteOrder::from_str(verb, false)) {
        (Ok(fault), _) => Some(Order::Fault(name.to_owned(), fault, answer)),
        (_, Ok(order)) => Some(Order::Route(name.to_owned(), order, answer)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_withdraws_or_announces_and_a_verb_of_nobody_is_none() {
        let order = |verb| typed(verb, "s1", oneshot::channel().0);
        for verb in ["w", "withdraw"] {
            assert!(
                matches!(order(verb), Some(Order::Route(_, RouteOrder::Withdraw, _))),
                "{verb}"
            );
        }
        assert!(matches!(order("a"), Some(Order::Route(_, RouteOrder::Announce, _))));
        assert!(matches!(order("kill"), Some(Order::Fault(_, Fault::Kill, _))));
        assert!(order("k").is_none());
    }
}
