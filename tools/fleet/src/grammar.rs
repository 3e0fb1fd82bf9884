//! What a line of the table of verbs can say, and what is made of it.
//!
//! ```text
//! a line of `verbs` ──┬─> its command line, help, completion and manual page (clap)
//!                   ├─> its request: names into the path, options into the body
//!                   └─> its answer: a table, facts, a sentence
//! ```
//!
//! A field's name says how it is shown: `_bytes` is a quantity, `_unix_s` how long ago or ahead it
//! is, or a time if operators set it ([`SET`]). Where an answer wants more than that, the line
//! names a function.

use std::net::IpAddr;

use anyhow::{Context as _, bail};
use clap::{Arg, ArgAction, ArgMatches, Args as _, Command, FromArgMatches as _};
use model::units::Bytes;
use serde_json::{Map, Value, json};

use crate::control::{Control, Query, encoded};
use crate::output::{self, Cell, Table, Tone};

/// Among a list's texts: it is empty.
const NONE: &str = "none";

/// One verb of a thing.
pub(crate) struct Verb {
    pub(crate) thing: &'static str,
    pub(crate) verb: &'static str,
    pub(crate) about: &'static str,
    /// Requests that it makes. Its own is the first; the second, where the path has a name that may
    /// be given and was.
    pub(crate) routes: &'static [Route],
    pub(crate) takes: &'static [Take],
    pub(crate) shows: Shows,
}

/// A method, and a path as control's document has it.
pub(crate) type Route = (&'static str, &'static str);

/// One argument.
pub(crate) struct Take {
    pub(crate) name: &'static str,
    help: &'static str,
    pub(crate) what: What,
}

/// What becomes of an argument's value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// It stands in the path.
    Name,
    /// The same, and may be left out.
    MayName,
    /// It stands in the body, and has its place on the command line.
    Field,
    /// Option `--name`: a text in the body.
    Text,
    /// The same, and must be given.
    MustText,
    /// The same, and must be given for a thing that control does not know.
    FirstText,
    /// Option `--name`: a text in the body. Without it control says what becomes of the one there
    /// is.
    LooseText,
    Number,
    /// Option `--name true`, or `false`.
    Flag,
    /// Option `--name`: it stands in the path's query.
    Query,
    /// The same, and must be given.
    MustQuery,
    /// A time in UTC.
    Time,
    /// Option `--singular`, again for each: a list in the body, under the argument's name.
    Texts(&'static str),
    /// The same, of addresses.
    Addresses,
    /// Option `--name`, which the verb's own function reads.
    Switch,
    Count(usize),
}

/// What is shown of an answer.
pub(crate) enum Shows {
    /// A list's fields by their headings.
    Rows(&'static [(&'static str, &'static str)]),
    /// The same of those whose first field has this value.
    RowsOf(&'static str, &'static [(&'static str, &'static str)]),
    /// All fields of one thing.
    Facts,
    /// One field, alone.
    Only(&'static str),
    /// A sentence with `{name}`s: of arguments or of fields of the answer.
    Says(&'static str),
    /// As control writes it.
    Raw,
    /// This function makes the request, too.
    By(fn(&Call<'_>) -> anyhow::Result<()>),
}

/// A verb with its arguments.
pub(crate) struct Call<'a> {
    pub(crate) verb: &'a Verb,
    pub(crate) matches: &'a ArgMatches,
    pub(crate) control: Control,
    pub(crate) json: bool,
}

impl Verb {
    pub(crate) fn command(&self) -> Command {
        let command = Command::new(self.verb).args(self.takes.iter().map(Take::arg));
        // Its own words, after those of the options that all verbs have.
        Query::augment_args(command).about(self.about).long_about(None)
    }

    pub(crate) fn run(&self, matches: &ArgMatches) -> anyhow::Result<()> {
        let query = Query::from_arg_matches(matches)?;
        let (control, json) = (query.control.client()?, query.json);
        let call = Call { verb: self, matches, control, json };
        match self.shows {
            Shows::By(function) => function(&call),
            Shows::Rows(_)
            | Shows::RowsOf(..)
            | Shows::Facts
            | Shows::Only(_)
            | Shows::Says(_)
            | Shows::Raw => call.show(&call.ask()?),
        }
    }
}

impl Take {
    fn arg(&self) -> Arg {
        // Clap wants texts that live on; the command line is made once.
        let keep = |text: String| -> &'static str { text.leak() };
        let long = keep(self.name.replace('_', "-"));
        let arg = Arg::new(self.name).help(self.help);
        let arg = match self.what {
            What::Texts(one) => arg.value_name(keep(one.to_uppercase())),
            What::Addresses => arg.value_name("ADDRESS"),
            What::Time => arg.value_name("TIME"),
            What::Number | What::Count(_) => arg.value_name("N"),
            What::Name
            | What::MayName
            | What::Field
            | What::Text
            | What::MustText
            | What::Query
            | What::MustQuery
            | What::LooseText
            | What::FirstText => arg.value_name(keep(self.name.to_uppercase())),
            What::Flag => arg.value_name("true|false"),
            What::Switch => arg,
        };
        let number = clap::value_parser!(u64);
        match self.what {
            What::Name | What::Field => arg.required(true),
            What::MayName => arg,
            What::Text | What::FirstText | What::LooseText | What::Query => arg.long(long),
            What::MustText | What::MustQuery => arg.long(long).required(true),
            What::Number => arg.long(long).value_parser(number),
            What::Flag => arg.long(long).value_parser(clap::value_parser!(bool)),
            What::Count(count) => {
                arg.long(long).value_parser(number).default_value(keep(count.to_string()))
            }
            What::Time => arg.long(long).value_parser(time),
            What::Texts(one) => arg.long(one).action(ArgAction::Append),
            What::Addresses => arg.long("address").action(ArgAction::Append).value_parser(address),
            What::Switch => arg.long(long).action(ArgAction::SetTrue),
        }
    }
}

/// A time as control takes it.
pub(crate) fn time(text: &str) -> Result<String, String> {
    match humantime::parse_rfc3339(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("write UTC, as in 2027-01-31T22:00:00Z (RFC 3339)".to_owned()),
    }
}

/// An address, or none at all.
fn address(text: &str) -> Result<String, String> {
    match text.parse::<IpAddr>() {
        Err(_) if text != NONE => Err(format!("{text} is no address")),
        _ => Ok(text.to_owned()),
    }
}

impl Call<'_> {
    /// An argument's text.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let is_text = self.verb.takes.iter().any(|take| take.name == name && take.what.is_text());
        is_text.then(|| self.matches.get_one::<String>(name).map(String::as_str)).flatten()
    }

    /// An argument that is always given.
    pub(crate) fn name(&self, name: &str) -> anyhow::Result<&str> {
        self.text(name).with_context(|| format!("{name} is not given"))
    }

    pub(crate) fn switch(&self, name: &str) -> bool {
        self.matches.get_flag(name)
    }

    pub(crate) fn count(&self, name: &str) -> u64 {
        self.matches.get_one(name).copied().unwrap_or_default()
    }

    /// The path of one of its routes, with the names that were given.
    pub(crate) fn path(&self, route: usize) -> String {
        let mut path = self.verb.routes[route].1.to_owned();
        for take in self.verb.takes {
            if let Some(text) = self.text(take.name) {
                path = path.replace(&format!("{{{}}}", take.name), &encoded(text));
            }
        }
        path
    }

    /// Its own route: with a name that may be given, the one that has it.
    pub(crate) fn own(&self) -> usize {
        let optional = self.verb.takes.iter().find(|take| take.what == What::MayName);
        usize::from(optional.is_some_and(|take| self.text(take.name).is_some()))
    }

    /// Makes the request.
    fn ask(&self) -> anyhow::Result<Value> {
        let own = self.own();
        let method = self.verb.routes[own].0;
        let path = self.path(own);
        let body = match method {
            "GET" | "DELETE" => None,
            _ => Some(Value::Object(self.body(&path)?)),
        };
        let asked = format!("{path}{}", self.query());
        self.control.ask(method, &asked, body.as_ref())
    }

    /// What was given of the path's query.
    fn query(&self) -> String {
        let of_query = self.verb.takes.iter().filter(|take| take.what.is_query());
        let given = of_query.filter_map(|take| Some((take.name, self.text(take.name)?)));
        let pairs: Vec<String> =
            given.map(|(name, text)| format!("{name}={}", encoded(text))).collect();
        if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
    }

    /// Fields that were given, over those that the thing has, where control can be asked for them.
    fn body(&self, path: &str) -> anyhow::Result<Map<String, Value>> {
        let mut body = Map::new();
        let has = self.verb.routes.iter().any(|(method, _)| *method == "GET");
        let known = if has { self.control.find(path)? } else { None };
        for take in self.verb.takes {
            let texts = || self.matches.get_many::<String>(take.name);
            let given = match take.what {
                What::Name
                | What::MayName
                | What::Switch
                | What::Count(_)
                | What::Query
                | What::MustQuery => continue,
                What::Field
                | What::Text
                | What::MustText
                | What::FirstText
                | What::LooseText
                | What::Time => self.text(take.name).map(|text| json!(text)),
                What::Number => self.matches.get_one::<u64>(take.name).map(|number| json!(number)),
                What::Flag => self.matches.get_one::<bool>(take.name).map(|is_so| json!(is_so)),
                What::Texts(_) | What::Addresses => texts().map(|texts| {
                    let texts: Vec<&String> = texts.filter(|text| *text != NONE).collect();
                    json!(texts)
                }),
            };
            if take.what == What::FirstText && given.is_none() && known.is_none() {
                let name = path.rsplit('/').next().unwrap_or_default();
                bail!("{name} is not registered: say --{}", take.name);
            }
            let known = known.as_ref().filter(|_| take.what != What::LooseText);
            let known = known.and_then(|known| known.get(take.name)).cloned();
            let empty = matches!(take.what, What::Texts(_) | What::Addresses).then(|| json!([]));
            if let Some(value) = given.or(known).or(empty) {
                body.insert(take.name.to_owned(), value);
            }
        }
        Ok(body)
    }

    fn show(&self, answer: &Value) -> anyhow::Result<()> {
        if self.json && !matches!(self.verb.shows, Shows::Raw) {
            // One object, whatever control says.
            let list = self.verb.routes[0].1.split('/').nth(2).unwrap_or("list").replace('-', "_");
            return match answer {
                Value::Array(_) => output::json(&json!({ list: answer })),
                Value::Null => output::json(&json!({})),
                Value::Object(_) | Value::String(_) | Value::Number(_) | Value::Bool(_) => {
                    output::json(answer)
                }
            };
        }
        match self.verb.shows {
            Shows::Rows(columns) => rows(answer, columns, |_| true).print(),
            Shows::RowsOf(value, columns) => {
                rows(answer, columns, |row| row[columns[0].1] == value).print()
            }
            Shows::Facts => facts(answer),
            Shows::Only(field) => output::line(
                answer[field]
                    .as_str()
                    .with_context(|| format!("control's answer has no {field}"))?,
            ),
            Shows::Says(sentence) => output::line(&self.sentence(sentence, answer)),
            Shows::Raw => match answer.as_str() {
                Some(text) => output::line(text.trim_end()),
                None => output::json(answer),
            },
            Shows::By(_) => Ok(()),
        }
    }

    /// The sentence with its names replaced. `{a|b}` is `a` if there is one, else `b`; a last one
    /// that is nowhere stands for itself.
    pub(crate) fn sentence(&self, sentence: &str, answer: &Value) -> String {
        let mut parts = sentence.split('{');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (names, rest) = part.split_once('}').unwrap_or((part, ""));
            let known = |name: &str| {
                let given = self.text(name).map(str::to_owned);
                given.or_else(|| Some(shown(name, answer.get(name).filter(|of| !of.is_null())?)))
            };
            let found = names.split('|').find_map(known);
            let last = names.rsplit('|').next().unwrap_or_default();
            text.push_str(&found.unwrap_or_else(|| last.to_owned()));
            text.push_str(rest);
        }
        text
    }
}

impl What {
    fn is_text(self) -> bool {
        matches!(
            self,
            Self::Name
                | Self::MayName
                | Self::Field
                | Self::Text
                | Self::MustText
                | Self::FirstText
                | Self::LooseText
                | Self::Query
                | Self::MustQuery
                | Self::Time
        )
    }

    pub(crate) fn is_query(self) -> bool {
        matches!(self, Self::Query | Self::MustQuery)
    }
}

fn rows(
    answer: &Value,
    columns: &'static [(&'static str, &'static str)],
    is_wanted: impl Fn(&Value) -> bool,
) -> Table {
    let headings: Vec<&'static str> = columns.iter().map(|(heading, _)| *heading).collect();
    let mut table = Table::new(&headings);
    for row in answer.as_array().into_iter().flatten().filter(|row| is_wanted(row)) {
        table.row(columns.iter().map(|(_, field)| shown(field, &row[field]).into()).collect());
    }
    table
}

/// One field to a line; those of a thing inside the thing behind its name.
fn facts(answer: &Value) -> anyhow::Result<()> {
    let mut lines = Vec::new();
    flatten("", answer, &mut lines);
    let mut table = Table::new(&["", ""]);
    for (label, text) in lines {
        table.row(vec![Cell::new(label, Tone::Dim), text.into()]);
    }
    table.lines(output::colours()).iter().skip(1).try_for_each(|line| output::line(line))
}

pub(crate) fn flatten(name: &str, value: &Value, lines: &mut Vec<(String, String)>) {
    let below = |part: &str| match name {
        "" => part.to_owned(),
        name => format!("{name} {part}"),
    };
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(field, value)| flatten(&below(field), value, lines));
        }
        Value::Array(list) if list.iter().any(Value::is_object) => {
            let numbered = (1..).zip(list);
            numbered.for_each(|(number, one)| flatten(&below(&number.to_string()), one, lines));
        }
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            lines.push((name.to_owned(), shown(name, value)));
        }
    }
}

/// Times that operators set: they are shown as they are said.
const SET: [&str; 3] = ["begin_unix_s", "ends_unix_s", "until_unix_s"];

/// A value for people, by the name of its field.
fn shown(field: &str, value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_u64() {
            Some(bytes) if field.ends_with("_bytes") => output::bytes(Bytes(bytes)),
            Some(at) if SET.contains(&field) => output::time(at),
            Some(at) if field.ends_with("_unix_s") => output::when(at),
            Some(_) | None => number.to_string(),
        },
        Value::Array(list) if list.is_empty() => "none".to_owned(),
        Value::Array(list) => {
            list.iter().map(|one| shown(field, one)).collect::<Vec<_>>().join(", ")
        }
        Value::Object(_) => value.to_string(),
    }
}

pub(crate) const fn verb(
    thing: &'static str,
    verb: &'static str,
    about: &'static str,
    routes: &'static [Route],
) -> Verb {
    Verb { thing, verb, about, routes, takes: &[], shows: Shows::Facts }
}

pub(crate) const fn take(name: &'static str, help: &'static str, what: What) -> Take {
    Take { name, help, what }
}

pub(crate) const fn name(name: &'static str, help: &'static str) -> Take {
    take(name, help, What::Name)
}

pub(crate) const fn texts(name: &'static str, one: &'static str, help: &'static str) -> Take {
    take(name, help, What::Texts(one))
}

impl Verb {
    pub(crate) const fn takes(mut self, takes: &'static [Take]) -> Self {
        self.takes = takes;
        self
    }

    pub(crate) const fn shows(mut self, shows: Shows) -> Self {
        self.shows = shows;
        self
    }

    pub(crate) const fn raw(self) -> Self {
        self.shows(Shows::Raw)
    }

    pub(crate) const fn only(self, field: &'static str) -> Self {
        self.shows(Shows::Only(field))
    }

    pub(crate) const fn says(self, sentence: &'static str) -> Self {
        self.shows(Shows::Says(sentence))
    }

    pub(crate) const fn by(self, function: fn(&Call<'_>) -> anyhow::Result<()>) -> Self {
        self.shows(Shows::By(function))
    }
}
