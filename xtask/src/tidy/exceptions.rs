//! Breaches that are excused, by number, in a list that can only shrink.
//!
//! One exception per line: `rule path[:subject] amount reason`. The amount must be what is there
//! now: a longer function fails, and a shorter one too until its number here is lowered. The file
//! says how many exceptions it holds (`at most N`), so a new one is never slipped in.

use std::collections::BTreeMap;

use super::Breach;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Exception {
    line: usize,
    amount: usize,
}

type Key = (String, String);

/// The breaches that the list does not excuse; each a line for people.
pub(crate) fn judge(breaches: &[Breach], list_path: &str, list: &str) -> Vec<String> {
    let (exceptions, mut wrong) = match parse(list) {
        Ok(parsed) => (parsed, Vec::new()),
        Err(error) => (BTreeMap::new(), vec![format!("{list_path}: {error}")]),
    };
    let mut amounts = BTreeMap::<Key, (usize, Vec<&Breach>)>::new();
    for breach in breaches {
        let entry = amounts.entry(key(breach)).or_default();
        entry.0 += breach.amount;
        entry.1.push(breach);
    }
    for (key, (amount, found)) in &amounts {
        let excused = exceptions.get(key).map_or(0, |exception| exception.amount);
        if excused < *amount {
            let place = |b: &&Breach| format!("{}:{}: {}: {}", b.path, b.line, b.rule, b.text);
            wrong.extend(found.iter().map(place));
        }
    }
    for (key, Exception { line, amount }) in &exceptions {
        let now = amounts.get(key).map_or(0, |(amount, _)| *amount);
        let (rule, subject) = key;
        if now == 0 {
            wrong.push(format!(
                "{list_path}:{line}: {rule} {subject} is no longer needed: take the line out and \
                 lower the count"
            ));
        } else if now < *amount {
            wrong
                .push(format!("{list_path}:{line}: {rule} {subject} is down to {now}: write that"));
        }
    }
    wrong
}

fn key(breach: &Breach) -> Key {
    let colon = if breach.subject.is_empty() { "" } else { ":" };
    (breach.rule.to_owned(), format!("{}{colon}{}", breach.path, breach.subject))
}

fn parse(list: &str) -> Result<BTreeMap<Key, Exception>, String> {
    let mut exceptions = BTreeMap::new();
    let mut most = None;
    for (index, text) in list.lines().enumerate() {
        let line = index + 1;
        if let Some(comment) = text.strip_prefix('#') {
            if let Some(number) = comment.trim().strip_prefix("at most ") {
                most = number.parse::<usize>().ok();
            }
            continue;
        }
        let mut words = text.split_whitespace();
        let Some(rule) = words.next() else { continue };
        let (subject, amount) = (words.next(), words.next().and_then(|n| n.parse().ok()));
        let (Some(subject), Some(amount)) = (subject, amount) else {
            return Err(format!("line {line} is not `rule path[:subject] amount reason`"));
        };
        if words.next().is_none() {
            return Err(format!("line {line} gives no reason"));
        }
        let key = (rule.to_owned(), subject.to_owned());
        if exceptions.insert(key, Exception { line, amount }).is_some() {
            return Err(format!("line {line} repeats an exception"));
        }
    }
    let count = exceptions.len();
    match most {
        Some(most) if most == count => Ok(exceptions),
        Some(most) if count < most => Err(format!("says \"at most {most}\": lower it to {count}")),
        Some(most) => Err(format!("holds {count}, at most {most} allowed: mend the code instead")),
        None => Err("has no line `# at most N`".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(amount: usize) -> Breach {
        let (path, subject, text) = ("a.rs".into(), "f".into(), "is long".into());
        Breach { rule: "function", path, subject, line: 3, amount, text }
    }

    #[track_caller]
    fn check(breaches: &[Breach], list: &str, want: &[&str]) {
        let found = judge(breaches, "list", list);
        let same = found.len() == want.len() && found.iter().zip(want).all(|(f, w)| f.contains(w));
        assert!(same, "found {found:#?}, wanted {want:#?}");
    }

    const ONE: &str = "# at most 1\nfunction a.rs:f 80 a table\n";

    #[test]
    fn a_breach_without_an_exception_stands() {
        check(&[long(80)], "# at most 0", &["a.rs:3: function: is long"]);
    }

    #[test]
    fn an_exception_excuses_exactly_what_is_there() {
        check(&[long(80)], ONE, &[]);
        check(&[long(81)], ONE, &["a.rs:3"]);
        check(&[long(79)], ONE, &["is down to 79"]);
    }

    #[test]
    fn an_exception_that_is_not_needed_is_refused() {
        check(&[], ONE, &["list:2: function a.rs:f is no longer needed"]);
    }

    #[test]
    fn the_list_does_not_grow() {
        check(&[long(80)], "# at most 0\nfunction a.rs:f 80 a table\n", &["holds 1", "a.rs:3"]);
        check(&[], "# at most 2\n", &["lower it to 0"]);
        check(&[], "", &["no line `# at most N`"]);
    }

    #[test]
    fn an_exception_has_a_reason() {
        check(&[long(80)], "# at most 1\nfunction a.rs:f 80\n", &["gives no reason", "a.rs:3"]);
        check(&[], "# at most 1\nfunction a.rs:f\n", &["is not `rule path"]);
    }

    #[test]
    fn breaches_of_one_subject_add_up() {
        let line =
            |line| Breach { rule: "line", subject: String::new(), line, amount: 1, ..long(1) };
        check(&[line(1), line(2)], "# at most 1\nline a.rs 2 urls\n", &[]);
        check(&[line(1), line(2)], "# at most 1\nline a.rs 1 urls\n", &["a.rs:1", "a.rs:2"]);
    }
}
