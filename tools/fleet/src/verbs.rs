//! `nearcast THING VERB`: every verb that is a request of control's API, as one table. A thing's
//! verbs are beside each other.

use clap::{ArgMatches, Command};

use crate::grammar::{Route, Shows, Take, Verb, What, name, take, texts, verb};
use crate::list::{self, Kind};
use crate::{audit, fill, find, remove};

/// The commands of all things.
pub(crate) fn commands() -> impl Iterator<Item = Command> {
    THINGS.iter().map(|(thing, about)| {
        let verbs = VERBS.iter().filter(|verb| verb.thing == *thing).map(Verb::command);
        let thing = Command::new(*thing).about(*about).subcommand_required(true);
        thing.arg_required_else_help(true).subcommands(verbs)
    })
}

/// Does what was asked for, if it is in the table.
pub(crate) fn run(matches: &ArgMatches) -> Option<anyhow::Result<()>> {
    let (thing, matches) = matches.subcommand()?;
    let (name, matches) = matches.subcommand()?;
    let verb = VERBS.iter().find(|verb| verb.thing == thing && verb.verb == name)?;
    Some(verb.run(matches))
}

/// What there is, and what is said of it.
const THINGS: &[(&str, &str)] = &[
    ("fleet", "The whole fleet, and the control plane itself"),
    ("site", "Places with appliances, and the clients that they are near to"),
    ("appliance", "Appliances as registered and as they report"),
    ("front", "Control processes that answer players while the writer is away"),
    ("identity", "Certificates of appliances and fronts"),
    ("route", "What sites hear from their routers"),
    ("shed", "Clients that were led past their nearest site, and why"),
    ("policy", "How asset versions are spread"),
    ("fill", "When sites fetch what they should hold, and how far they are"),
    ("placement", "Which appliance should hold what"),
    ("plan", "What placement moves, and why"),
    ("pin", "Versions that must lie somewhere, whatever is expected of them"),
    ("ban", "Versions that must not lie somewhere"),
    ("launch", "Versions that begin, and how much they will be watched"),
    ("asset", "Titles: who may play them, and when"),
    ("withdrawal", "Titles that were taken down, and who has confirmed it"),
    ("playback", "Playbacks, as a service begins and ends them"),
    ("token", "API tokens"),
    ("session", "The token in use"),
    ("key", "Keys of playback tokens"),
    ("signing-key", "Keys that sign manifests and snapshots"),
    ("audit", "Who changed something, or tried to"),
];

const FLEET: Route = ("GET", "/v1/fleet");

/// All of them.
const VERBS: &[Verb] = &[
    verb("fleet", "show", "Show sites, appliances, assets and errors, one line each", &[FLEET])
        .by(|call| list::list(call, None)),
    verb("fleet", "health", "Say whether playbacks can begin", &[("GET", "/healthz")]),
    verb("fleet", "metrics", "Print control's metrics, as Prometheus reads them", METRICS).raw(),
    verb("fleet", "openapi", "Print the document of control's API", OPENAPI).raw(),
    // Sites
    verb("site", "list", "List sites, one line each", &[FLEET])
        .by(|call| list::list(call, Some(Kind::Site))),
    verb("site", "show", "Show a site and its appliances", &[FLEET])
        .takes(&[name("site", "Its name: `nearcast site list` has them")])
        .by(|call| list::show(call, Kind::Site)),
    verb("site", "set", "Make a site, or change what is said of it", SITE)
        .takes(&[
            name("site", "Its name: a new one, or one of `nearcast site list`"),
            texts("prefixes", "prefix", "Clients that it is for: all of them, none for nobody"),
            take("kind", "embedded in an ISP, or exchange, for all", What::Text),
            take("place", "Degrees north and east, country, region, city", What::Text),
            take("open", "An embedded one is for clients of other networks, too", What::Flag),
            take("bitrate_max_bps", "It holds renditions up to this only; 0 for all", What::Number),
            take("time_zone", "By IANA's name: Europe/Berlin", What::Text),
            take(
                "uplink_bps",
                "Bits per second from outside, for fill; 0 for unknown",
                What::Number,
            ),
            take(
                "manifest_cluster",
                "Sites that are planned together; \"\" for itself",
                What::Text,
            ),
            take("fill_cluster", "Manifest clusters that fill from one another", What::Text),
            take("fill_windows", WINDOWS_OF_SITE, What::Text),
        ])
        .says("site {site} is kept: `nearcast site show {site}` has all that is said of it"),
    verb("site", "remove", "Remove a site in which no appliance stands", REMOVE_SITE)
        .takes(&[name("site", "Its name: `nearcast site list` has them")])
        .says("site {site} is gone"),
    // Appliances
    verb("appliance", "list", "List appliances, one line each", &[FLEET])
        .by(|call| list::list(call, Some(Kind::Appliance))),
    verb("appliance", "show", "Show all about an appliance", SHOW_APPLIANCE)
        .takes(&[name("id", "Its id: `nearcast appliance list` has them")])
        .by(|call| list::show(call, Kind::Appliance)),
    verb("appliance", "set", "Register an appliance, or change what is said of it", APPLIANCE)
        .takes(&[
            name("id", "Its id: a new one, or one of `nearcast appliance list`"),
            take("site", "Where it stands; a new one needs it", What::FirstText),
            take("weight", "Its part among those of its site, 1 to 1000", What::Number),
            take("addresses", "Its service addresses: all of them, or none", What::Addresses),
            take("profile", "flash, storage, global or none: the policy has figures", What::Text),
            take("profile_name", "Your own name for its kind; \"\" for none", What::LooseText),
            take("throughput_bps", "What it serves at most; 0 for its profile's", What::Number),
            take(
                "capacity_bytes",
                "What it holds at most; 0 for what its drives report",
                What::Number,
            ),
            take("fill_bps", "What it fetches at most; 0 for its profile's", What::Number),
            texts("tags", "tag", "A word for people: all of them, or none"),
        ])
        .says("appliance {id} stands in {site}, with a weight of {weight}, addresses {addresses}"),
    verb("appliance", "remove", "Remove an appliance for good: its copies move", REMOVE_APPLIANCE)
        .takes(&[name("id", "Its id: `nearcast appliance list` has them")])
        .says("appliance {id} is gone, and its identity is refused"),
    verb("appliance", "accept", "Say that its drives hold so little for good: files move", ACCEPT)
        .takes(&[name("id", "Its id: `nearcast appliance list` has them")])
        .says("{id} is planned with {usable_bytes} from now on; it was with {planned_bytes}"),
    verb("appliance", "enrol", "Make a one-time code with which a machine becomes it", ENROL)
        .takes(&[name("id", "Its id: `nearcast appliance list` has them")])
        .only("code"),
    verb("appliance", "revoke", "Refuse its identity from now on", REVOKE)
        .takes(&[name("id", "Its id: `nearcast appliance list` has them")])
        .says("the identity of {id} is refused from now on"),
    verb("appliance", "trust", "Say that the second machine under its identity is gone", TRUST)
        .takes(&[name("id", "Its id: `nearcast appliance list` has them")])
        .says("players are sent to {id} again"),
    // Fronts and identities
    verb("front", "list", "List fronts that have an identity", IDENTITIES)
        .shows(Shows::RowsOf("front", IDENTITY)),
    verb(
        "front",
        "enrol",
        "Make a one-time code with which a machine becomes a front",
        FRONT_ENROL,
    )
    .takes(&[name("name", "Its name: a new one, or one of `nearcast front list`")])
    .only("code"),
    verb("front", "revoke", "Refuse its identity from now on", FRONT_REVOKE)
        .takes(&[name("name", "Its name: `nearcast front list` has them")])
        .says("the identity of {name} is refused from now on"),
    verb("identity", "list", "List identities that are good", IDENTITIES)
        .shows(Shows::Rows(IDENTITY)),
    // Sheds
    verb("shed", "list", "List how often and with how many bytes, by site and version", SHEDS)
        .takes(&[
            take("site", "One site, with the versions that were led past it", What::Query),
            take("worst", "This many sites, worst first: past which most was led", What::Query),
        ])
        .shows(Shows::Rows(SHED)),
    // Policy and placement
    verb("policy", "show", "Show how asset versions are spread", &[("GET", "/v1/policy")]),
    verb("policy", "set", "Change how asset versions are spread", POLICY).takes(&[
        take(
            "copies",
            "Copies of each version at a site, where room is left: 1 to 64",
            What::Number,
        ),
        take("versions_kept", "Versions of an asset that are held, 1 to 16", What::Number),
        take(
            "flash_throughput_bps",
            "Bits per second served of profile flash at most; 0 for unknown",
            What::Number,
        ),
        take(
            "flash_capacity_bytes",
            "Bytes held by one of profile flash at most; 0 for unknown",
            What::Number,
        ),
        take(
            "flash_fill_bps",
            "Bits per second fetched by one of profile flash at most; 0 for unknown",
            What::Number,
        ),
        take(
            "storage_throughput_bps",
            "Bits per second served of profile storage at most; 0 for unknown",
            What::Number,
        ),
        take(
            "storage_capacity_bytes",
            "Bytes held by one of profile storage at most; 0 for unknown",
            What::Number,
        ),
        take(
            "storage_fill_bps",
            "Bits per second fetched by one of profile storage at most; 0 for unknown",
            What::Number,
        ),
        take(
            "global_throughput_bps",
            "Bits per second served of profile global at most; 0 for unknown",
            What::Number,
        ),
        take(
            "global_capacity_bytes",
            "Bytes held by one of profile global at most; 0 for unknown",
            What::Number,
        ),
        take(
            "global_fill_bps",
            "Bits per second fetched by one of profile global at most; 0 for unknown",
            What::Number,
        ),
        take("fill_windows", "When sites fill that say nothing else, as 02:00-14:00", What::Text),
        take(
            "fill_urgent_bps",
            "Bits per second for urgent versions outside of windows, at most",
            What::Number,
        ),
        take(
            "fill_masters",
            "How many of a fill cluster fetch from the origin, at most 16; 0 for all",
            What::Number,
        ),
        take(
            "fill_elsewhere_after_s",
            "Seconds without an object until others ask other fill clusters",
            What::Number,
        ),
        take(
            "fill_origin_after_s",
            "Seconds without an object until others ask the origin",
            What::Number,
        ),
    ]),
    // Fill
    verb("fill", "list", "List windows, what is missing, and when it will be there", FILL)
        .takes(&[take("site", "One site alone", What::Query)])
        .by(fill::list),
    verb("fill", "pause", "Let a site fetch nothing: what runs stops where it is", PAUSE)
        .takes(&[
            name("site", "Its name: `nearcast site list` has them"),
            take("until", "Until then, in UTC: 2027-01-31T22:00:00Z", What::Time),
        ])
        .says("site {site} fetches nothing until {until|further notice}"),
    verb("fill", "resume", "Let a site fetch again in its windows", RESUME)
        .takes(&[name("site", "Its name: `nearcast site list` has them")])
        .says("site {site} fetches again in its windows"),
    verb("fill", "urgent", "Have a version fetched first, outside of windows too", URGENT)
        .takes(&[
            name("version", "One of `nearcast asset show`"),
            take("until", "Until then, in UTC: 2027-01-31T22:00:00Z", What::Time),
        ])
        .says("{version} is fetched first until {until|further notice}, also outside of windows"),
    verb("fill", "usual", "Have a version fetched as all others", USUAL)
        .takes(&[name("version", "One of `nearcast fill list`")])
        .says("{version} is fetched as all others"),
    verb("placement", "show", "Show who should hold what, and what did not fit", PLACEMENT)
        .takes(&[take("appliance", "Of this one alone; of all without it", What::Query)]),
    verb("plan", "show", "Show why the last plan was refused, and what it would move", PLAN),
    verb("plan", "make", "Make a plan now", MAKE_PLAN)
        .takes(&[take(
            "force",
            "The number of the last plan: carry it out whatever it evicts",
            What::Number,
        )])
        .says("a plan is made: `nearcast plan show` says what came of it"),
    verb("plan", "why", "Show why a site's appliances should hold a title, or not", WHY_PLAN)
        .takes(&[
            take("file", "An asset for its current version, or a version", What::MustQuery),
            take("site", "Of the appliances", What::MustQuery),
        ])
        .shows(Shows::Rows(&[
            ("APPLIANCE", "appliance"),
            ("VERSION", "version"),
            ("RENDITION", "rendition"),
            ("HELD", "held"),
            ("WHY", "why"),
        ])),
    // What operators say of versions
    verb("pin", "list", "List versions that must lie somewhere", &[("GET", "/v1/pins")])
        .shows(Shows::Rows(RULE)),
    verb("pin", "set", "Have a version lie somewhere, whatever is expected of it", PIN)
        .takes(&[VERSION, SITE_OF_RULE, CLUSTER_OF_RULE, UNTIL])
        .says("{version} is pinned {at} until {until|further notice}"),
    verb("pin", "remove", "End a pin", UNPIN)
        .takes(&[VERSION, IN_SITE, IN_CLUSTER])
        .says("{version} is not pinned there any more"),
    verb("ban", "list", "List versions that must not lie somewhere", &[("GET", "/v1/bans")])
        .shows(Shows::Rows(RULE)),
    verb("ban", "set", "Keep a version away from a place: its copies there go", BAN)
        .takes(&[VERSION, SITE_OF_RULE, CLUSTER_OF_RULE, UNTIL])
        .says("{version} is banned {at} until {until|further notice}"),
    verb("ban", "remove", "End a ban", UNBAN)
        .takes(&[VERSION, IN_SITE, IN_CLUSTER])
        .says("{version} is not banned there any more"),
    verb("launch", "list", "List versions that begin", &[("GET", "/v1/launches")])
        .shows(Shows::Rows(LAUNCH)),
    verb("launch", "set", "Say how much a version that begins will be watched", SET_LAUNCH)
        .takes(&[
            VERSION,
            take("begin", "When it begins, in UTC; now without this", What::Time),
            take("day_bytes", "Bytes on a day, of all renditions and sites", What::Number),
            take("like", "Another version that it will be like", What::Text),
            take("days", "Like its first days, which is usual, or like present ones", What::Text),
        ])
        .says("{version} counts as a launch until {ends_unix_s}, from the next forecast on"),
    verb("launch", "remove", "Say nothing of how much a version will be watched", NO_LAUNCH)
        .takes(&[VERSION])
        .says("{version} is no launch any more"),
    // Assets
    verb("asset", "list", "List assets, one line each", &[FLEET])
        .by(|call| list::list(call, Some(Kind::Asset))),
    verb("asset", "show", "Show an asset and its versions", SHOW_ASSET)
        .takes(&[name("asset", "Its id: `nearcast asset list` has them")])
        .by(|call| list::show(call, Kind::Asset)),
    verb("asset", "public", "Let anybody play an asset, without a grant", PUBLIC)
        .takes(&[name("asset", "Its id: `nearcast asset list` has them")])
        .says("anybody may play {asset} from now on, without a grant"),
    verb("asset", "private", "Let nobody play an asset without a grant", PRIVATE)
        .takes(&[name("asset", "Its id: `nearcast asset list` has them")])
        .says("playing {asset} needs a grant from now on"),
    verb("asset", "window", "Say from when and until when a title may be shown", WINDOW)
        .takes(&[
            name("asset", "Its id: `nearcast asset list` has them"),
            take("version", "Which of its versions; without it, all of them", What::MayName),
            take("from", "No playback begins before, in UTC: 2027-01-31T22:00:00Z", What::Time),
            take("until", "From then on it is withdrawn, in UTC", What::Time),
        ])
        .says("{version|asset} is shown from {from|now} until {until|further notice}"),
    verb("asset", "remove", "Take a title down: at once for new playbacks", REMOVE)
        .takes(&[
            name("asset", "Its id: `nearcast asset list` has them"),
            take("version", "Which of its versions; without it, all of them", What::MayName),
            take("wait", "Wait until every appliance that reports has confirmed it", What::Switch),
        ])
        .by(remove::remove),
    verb("withdrawal", "list", "List what was taken down, newest first", WITHDRAWALS)
        .by(remove::withdrawals),
    verb("withdrawal", "show", "Show who has confirmed a withdrawal", WITHDRAWAL)
        .takes(&[name("number", "Its number")])
        .by(remove::withdrawal),
    verb("route", "show", "Show sessions, what is left out, and what has no second way", ROUTES)
        .takes(&[take("site", "This one alone", What::Query)]),
    verb("route", "find", "Show the sites of an address in order, and why", FIND_ROUTE)
        .takes(&[name("address", "Of a client")])
        .by(find::find),
    // Services
    verb("playback", "begin", "Get leave to play an asset, as a service does", PLAYBACK).takes(&[
        take("asset", "What to play", What::Field),
        take("client", "Address of the player; without it, one's own", What::Text),
    ]),
    verb("playback", "end", "End a playback", END_PLAYBACK)
        .takes(&[name("session", "Its session")])
        .says("playback {session} is refused from now on"),
    // Access
    verb("token", "list", "List API tokens, without their secrets", &[("GET", "/v1/tokens")])
        .shows(Shows::Rows(&[
            ("ID", "id"),
            ("ROLE", "role"),
            ("NAME", "name"),
            ("MADE", "created_unix_s"),
            ("LAST USED", "last_used_unix_s"),
        ])),
    verb("token", "make", "Make an API token: it is shown this one time", MAKE_TOKEN)
        .takes(&[
            take("role", "viewer, operator, admin, or service (for playbacks)", What::MustText),
            take("name", "Whose it is, or what uses it", What::MustText),
        ])
        .only("token"),
    verb("token", "remove", "Remove an API token: logins with it end", REMOVE_TOKEN)
        .takes(&[name("id", "Its id, as `nearcast token list` has it")])
        .says("token {id} is removed, and its logins have ended"),
    verb("session", "show", "Show whose token this is, and its role", &[("GET", "/v1/session")]),
    verb("key", "list", "List the keys of playback tokens", &[("GET", "/v1/keys")])
        .shows(Shows::Rows(KEY)),
    verb("key", "rotate", "Announce a new key: it signs once every appliance knows it", ROTATE)
        .shows(Shows::Rows(KEY)),
    verb("signing-key", "list", "List the keys that sign manifests", SIGNING_KEYS)
        .shows(Shows::Rows(SIGNING_KEY)),
    verb("signing-key", "rotate", "Announce a new key: it signs once all know it", ROTATE_SIGNING)
        .shows(Shows::Rows(SIGNING_KEY)),
    verb("audit", "list", "List changes and refusals, newest first", &[("GET", "/v1/audit")])
        .takes(&[take("count", "How many lines", What::Count(50))])
        .by(audit::list),
];

const METRICS: &[Route] = &[("GET", "/metrics")];
const OPENAPI: &[Route] = &[("GET", "/openapi.json")];
const SITE: &[Route] = &[("PUT", "/v1/sites/{site}"), ("GET", "/v1/sites/{site}")];
const FILL: &[Route] = &[("GET", "/v1/fill")];
const URGENT: &[Route] = &[("PUT", "/v1/fill/urgent/{version}")];
const USUAL: &[Route] = &[("DELETE", "/v1/fill/urgent/{version}")];
const PAUSE: &[Route] = &[("PUT", "/v1/sites/{site}/fill-pause")];
const RESUME: &[Route] = &[("DELETE", "/v1/sites/{site}/fill-pause")];
const WINDOWS_OF_SITE: &str =
    "When it fills by local time: 22:00-06:00,12:00-14:00, always, or \"\" for the policy's";
const REMOVE_SITE: &[Route] = &[("DELETE", "/v1/sites/{site}")];
const SHOW_APPLIANCE: &[Route] = &[("GET", "/v1/appliances/{id}"), FLEET];
const APPLIANCE: &[Route] = &[("PUT", "/v1/appliances/{id}"), ("GET", "/v1/appliances/{id}")];
const REMOVE_APPLIANCE: &[Route] = &[("DELETE", "/v1/appliances/{id}")];
const ACCEPT: &[Route] = &[("POST", "/v1/appliances/{id}/usable")];
const ENROL: &[Route] = &[("POST", "/v1/appliances/{id}/enrolment")];
const REVOKE: &[Route] = &[("DELETE", "/v1/appliances/{id}/identity")];
const TRUST: &[Route] = &[("DELETE", "/v1/appliances/{id}/clone")];
const IDENTITIES: &[Route] = &[("GET", "/v1/identities")];
const FRONT_ENROL: &[Route] = &[("POST", "/v1/fronts/{name}/enrolment")];
const FRONT_REVOKE: &[Route] = &[("DELETE", "/v1/fronts/{name}/identity")];
const SHEDS: &[Route] = &[("GET", "/v1/sheds")];
const POLICY: &[Route] = &[("PUT", "/v1/policy"), ("GET", "/v1/policy")];
const PLACEMENT: &[Route] = &[("GET", "/v1/placement")];
const PLAN: &[Route] = &[("GET", "/v1/plan")];
const MAKE_PLAN: &[Route] = &[("POST", "/v1/plan")];
const WHY_PLAN: &[Route] = &[("GET", "/v1/plan/why")];
const PIN: &[Route] = &[("PUT", "/v1/pins/{version}")];
const UNPIN: &[Route] = &[("DELETE", "/v1/pins/{version}")];
const BAN: &[Route] = &[("PUT", "/v1/bans/{version}")];
const UNBAN: &[Route] = &[("DELETE", "/v1/bans/{version}")];
const SET_LAUNCH: &[Route] = &[("PUT", "/v1/launches/{version}")];
const NO_LAUNCH: &[Route] = &[("DELETE", "/v1/launches/{version}")];
const VERSION: Take = name("version", "One of `nearcast asset show`");
const UNTIL: Take = take("until", "Until then, in UTC: 2027-01-31T22:00:00Z", What::Time);
const SITE_OF_RULE: Take =
    take("site", "At this site; everywhere without it and --cluster", What::Text);
const CLUSTER_OF_RULE: Take =
    take("cluster", "In this manifest cluster; not with --site", What::Text);
const IN_SITE: Take =
    take("site", "At this site; everywhere without it and --cluster", What::Query);
const IN_CLUSTER: Take = take("cluster", "In this manifest cluster; not with --site", What::Query);
const SHOW_ASSET: &[Route] = &[("GET", "/v1/assets/{asset}"), FLEET];
const PUBLIC: &[Route] = &[("PUT", "/v1/assets/{asset}/public")];
const PRIVATE: &[Route] = &[("DELETE", "/v1/assets/{asset}/public")];
const WINDOW: &[Route] = &[
    ("PUT", "/v1/assets/{asset}/window"),
    ("PUT", "/v1/assets/{asset}/versions/{version}/window"),
];
const REMOVE: &[Route] = &[
    ("DELETE", "/v1/assets/{asset}"),
    ("DELETE", "/v1/assets/{asset}/versions/{version}"),
    ("GET", "/v1/withdrawals/{number}"),
];
const WITHDRAWALS: &[Route] = &[("GET", "/v1/withdrawals")];
const WITHDRAWAL: &[Route] = &[("GET", "/v1/withdrawals/{number}")];
const PLAYBACK: &[Route] = &[("POST", "/v1/playbacks")];
const END_PLAYBACK: &[Route] = &[("DELETE", "/v1/playbacks/{session}")];
const ROUTES: &[Route] = &[("GET", "/v1/routes")];
const FIND_ROUTE: &[Route] = &[("GET", "/v1/routes/{address}")];
const MAKE_TOKEN: &[Route] = &[("POST", "/v1/tokens")];
const REMOVE_TOKEN: &[Route] = &[("DELETE", "/v1/tokens/{id}")];
const ROTATE: &[Route] = &[("POST", "/v1/keys/rotate")];
const SIGNING_KEYS: &[Route] = &[("GET", "/v1/signing-keys")];
const ROTATE_SIGNING: &[Route] = &[("POST", "/v1/signing-keys")];

const IDENTITY: &[(&str, &str)] = &[
    ("KIND", "kind"),
    ("NAME", "name"),
    ("MACHINE", "machine"),
    ("SOFTWARE", "software"),
    ("ISSUED", "issued_unix_s"),
    ("EXPIRES", "expires_unix_s"),
];
const SHED: &[(&str, &str)] = &[
    ("BY", "by"),
    ("NAME", "name"),
    ("VERSION", "version"),
    ("CLASS", "class"),
    ("BEGUN", "begun"),
    ("ANSWERS", "answers"),
    ("RECKONED", "reckoned_bytes"),
];
const RULE: &[(&str, &str)] =
    &[("VERSION", "version"), ("WHERE", "at"), ("UNTIL", "until_unix_s"), ("MISSING", "missing")];
const LAUNCH: &[(&str, &str)] = &[
    ("VERSION", "version"),
    ("BEGIN", "begin_unix_s"),
    ("A DAY", "day_bytes"),
    ("LIKE", "like"),
    ("DAYS", "days"),
    ("UNTIL", "ends_unix_s"),
];
const KEY: &[(&str, &str)] = &[
    ("KEY", "kid"),
    ("SIGNS", "signs"),
    ("ANNOUNCED", "announced_unix_s"),
    ("RETIRES", "retires_unix_s"),
];
const SIGNING_KEY: &[(&str, &str)] = &[("KEY", "kid"), ("PUBLIC KEY", "public_key")];

#[cfg(test)]
mod tests;
