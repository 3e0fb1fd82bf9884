//! The table as a page to read.

use std::fmt::Write as _;

use super::table::Case;

pub(crate) fn render(cases: &[Case]) -> String {
    let differing = cases.iter().filter(|case| case.ours != case.nginx).count();
    let mut out = format!(
        "# Odd requests

Malformed, hostile and odd requests, what an appliance answers, what Debian 12's nginx 1.22.1
answers when it serves the same file, and why they differ where they do. Made from
`tools/trial/fixtures/odd-requests.toml`, where the bytes are; a test keeps the two equal.

{} requests, {differing} differences. `cargo test --workspace --test odd` puts them to an
appliance's worker over a socket, `./x lab odd --peer nginx --json` to nginx. Behind each, in the
same write, comes a probe, a request for three bytes. The answer's last word says what became of
it:

* `keep`: it was answered as the request behind, with its own three bytes.
* `close`: nothing more came, and the connection was closed.
* `wait`: the connection was open and nothing came.

Nothing else is possible, so nothing hides behind a request: no bytes of it are taken for another
request, and no bytes of the next for its body. `0.9` is a body without a head.
",
        cases.len()
    );
    let mut group = "";
    for case in cases {
        if case.group != group {
            group = &case.group;
            let head = "| request | we | nginx | why | why nginx differs |";
            let line = "| --- | --- | --- | --- | --- |";
            write!(out, "\n## {group}\n\n{head}\n{line}\n").expect("a string takes all");
        }
        let Case { name, ours, nginx, why, differs, .. } = case;
        writeln!(out, "| `{name}` | {ours} | {nginx} | {why} | {differs} |")
            .expect("a string takes all");
    }
    out
}
