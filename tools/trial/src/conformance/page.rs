//! The table as a page to read.

use std::fmt::Write as _;

use super::table::Row;
use crate::odd::table::Case;

/// The page. The odd requests whose reason names a section are named there too.
pub(crate) fn render(rows: &[Row], odd: &[Case]) -> String {
    let count = |is: &dyn Fn(&Row) -> bool| rows.iter().filter(|row| is(row)).count();
    let differing = count(&|row| row.ours != row.nginx);
    let departing = count(&|row| !row.departs.is_empty());
    let mut out = format!(
        "# HTTP, section by section

What RFC 9110 (semantics) and RFC 9112 (HTTP/1.1) say to a server of files, what an appliance
answers, what Debian 12's nginx 1.22.1 answers when it serves the same file, and why they differ
where they do. Made from `tools/trial/fixtures/conformance.toml`, where the bytes are; a test keeps
the two equal.

{} rows, {differing} differences, {departing} rows where we do not do what a SHOULD says; their
reasons are at the end. `cargo test --workspace --test odd` puts the rows to an appliance's worker
over a socket, `./x lab conformance --peer nginx --json` to nginx. Malformed and hostile requests
are in [http-odd-requests.md](http-odd-requests.md), which is run the same way and has no request
of this page; where its reasons name a section, it is named here.

An answer is the status, the fields that the row looks at, and the body as bytes of the file,
which has 64; `nothing` is no body, `parts` are multipart/byteranges, `{{E}}` is the file's ETag,
`now` the time of the answer. What is written beside an error is everybody's own. Every body is as
long as its `Content-Length`. The last word is as on the other page: behind each row, in the same
write, comes a request for three bytes, and `keep` says that it was answered as the next request,
`close` that the connection was closed without it.
",
        rows.len()
    );
    let mut section = "";
    for row in rows {
        if row.section != section {
            section = &row.section;
            write!(out, "\n## {section}\n\n").expect("a string takes all");
            let also = named(section, odd);
            if !also.is_empty() {
                write!(out, "Odd requests:{also}.\n\n").expect("a string takes all");
            }
            out.push_str("| row | it says | we | nginx | why nginx differs |\n");
            out.push_str("| --- | --- | --- | --- | --- |\n");
        }
        let Row { name, says, ours, nginx, differs, .. } = row;
        let nginx = if nginx == ours { "the same" } else { nginx };
        writeln!(out, "| `{name}` | {says} | {ours} | {nginx} | {differs} |")
            .expect("a string takes all");
    }
    out.push_str("\n## Where we do otherwise\n\n| row | why |\n| --- | --- |\n");
    for Row { name, departs, .. } in rows.iter().filter(|row| !row.departs.is_empty()) {
        writeln!(out, "| `{name}` | {departs} |").expect("a string takes all");
    }
    out
}

/// Of a page's lines.
const COLUMNS_MAX: usize = 100;

/// Cases whose reason names the section of a heading, `RFC 9110 13.1.5 If-Range`.
fn named(section: &str, odd: &[Case]) -> String {
    let number: Vec<&str> = section.splitn(4, ' ').take(3).collect();
    let number = number.join(" ");
    let names = |case: &&Case| {
        case.why.match_indices(&number).any(|(at, _)| {
            let behind = &case.why.as_bytes()[at + number.len()..];
            // Not of a section below: 13.1 is in "13.1.5".
            !matches!(behind, [b'.', digit, ..] if digit.is_ascii_digit())
                && !matches!(behind, [digit, ..] if digit.is_ascii_digit())
        })
    };
    let names: Vec<String> =
        odd.iter().filter(names).map(|case| format!("`{}`", case.name)).collect();
    let mut out = String::new();
    let mut column = "Odd requests:".len();
    for (index, name) in names.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let breaks = COLUMNS_MAX < column + name.len() + 3;
        column = if breaks { name.len() } else { column + name.len() + 2 };
        let space = if breaks { "\n" } else { " " };
        write!(out, "{comma}{space}{name}").expect("a string takes all");
    }
    out
}
