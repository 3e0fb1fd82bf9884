//! Control's answers to operators and their programs: the fleet, why a client gets its list,
//! withdrawals, keys.

use model::view::Health;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::appliance::{Abilities, ApplianceAbout};
use super::is_zero;
use super::report::{Inventory, Report};
use super::routes::Heard;
use super::site::SiteAbout;

/// The fleet as it is now.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FleetOut {
    /// The server's clock, seconds since 1970.
    pub now_unix_s: u64,
    /// Newest generation of manifests.
    pub generation: u64,
    /// All sites with their appliances, or the one that was asked for.
    pub sites: Vec<FleetSite>,
    /// Appliances that need no look are left out of the sites, and all beyond the first 100 that
    /// need one: the fleet has more than `appliances_max` of the request.
    #[serde(default)]
    pub brief: bool,
    /// Those that have a version; the first 100 where it is `brief` or of one site.
    pub assets: Vec<FleetAsset>,
    /// All assets.
    #[serde(default)]
    pub asset_count: usize,
    /// What an operator should see, newest first: of all, or of the site that was asked for, the
    /// newest 100.
    pub errors: Vec<FleetError>,
    /// How many there are; 0 from a control plane that does not know this field.
    #[serde(default)]
    pub error_count: usize,
    /// The last two minutes, once a second, or the span that was asked for, oldest first.
    pub history: Vec<FleetSample>,
    /// Where the demo listens for fault buttons; null unless this is the demo.
    pub demo_controls: Option<String>,
}

/// A site.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FleetSite {
    /// Name.
    pub id: String,
    /// Clients that it is for, by an operator's word; the first 4 where the fleet is `brief`.
    pub prefixes: Vec<String>,
    /// How many there are; 0 from a control plane that does not know this field.
    #[serde(default)]
    pub prefix_count: usize,
    #[serde(flatten)]
    pub about: SiteAbout,
    /// Prefixes that it hears from its routers; null if it has none.
    #[serde(default)]
    pub routes: Option<u64>,
    /// Its appliances hear different tables, for longer than a change takes.
    #[serde(default)]
    pub routes_differ: bool,
    /// Prefixes that no other site has a way to, when they were counted last; left out if none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub routes_unshared: u64,
    /// All of its appliances in one.
    #[serde(default)]
    pub summary: SiteSummary,
    /// Appliances in it.
    pub appliances: Vec<FleetAppliance>,
    /// Versions that one of its appliances holds wholly, most copies first, 100 at most. Told where
    /// the day of one site is asked for.
    #[serde(default)]
    pub held: Vec<HeldVersion>,
    /// How many there are.
    #[serde(default)]
    pub held_count: usize,
}

/// A site's appliances in one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SiteSummary {
    /// All that are registered.
    pub appliances: u64,
    pub healthy: u64,
    /// Draining or drained.
    pub leaving: u64,
    /// Those that need a look: silent, unable to serve, or with a drive that is not read.
    pub ill: u64,
    /// Those that fetch what they do not hold yet.
    pub filling: u64,
    /// Sum over those that report.
    pub egress_bits_per_second: u64,
    pub fill_bits_per_second: u64,
    /// Mean of their CPU shares, 0 to 100.
    pub cpu_percent: f32,
    /// Mean over its healthy appliances of what each has left where it is nearest to its limit
    /// (`load` of each), 0 to 100; null if none is healthy.
    pub headroom_percent: Option<f32>,
    pub bytes_held: u64,
    pub bytes_wanted: u64,
}

/// A version that a site holds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeldVersion {
    pub version: String,
    /// Appliances of the site that hold all of it.
    pub copies: u64,
}

/// An appliance.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FleetAppliance {
    /// Name.
    pub id: String,
    /// Whether it can serve.
    #[serde(with = "ApplianceState")]
    #[cfg_attr(feature = "openapi", schema(value_type = ApplianceState))]
    pub state: Health,
    /// Why, where there is something to say.
    pub reason: Option<String>,
    /// Seconds in this state.
    pub since_s: u64,
    /// Age of its last report in milliseconds.
    pub last_report_ms: Option<u64>,
    /// Its last report, without the inventory.
    #[serde(serialize_with = "without_inventory", deserialize_with = "with_no_inventory")]
    pub report: Option<Report>,
    /// Objects that it holds.
    pub objects_held: usize,
    /// Its part among the appliances of its site.
    pub weight: u32,
    /// The share of its sessions that it takes now, in thousandths: less where it was lost a while
    /// ago, or is short of something. None from a control plane that does not know this field.
    #[serde(default)]
    pub share_permille: Option<u32>,
    /// Of the sessions of titles whose draw leads to it, so many follow it, in thousandths: less
    /// where its load was too far above the mean of its site. None where titles are not drawn for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub titles_permille: Option<u32>,
    /// What is in use of each thing that it can run short of, the bottleneck first.
    #[serde(default)]
    pub load: Vec<FleetLoad>,
    /// Base URL for players.
    pub base_url: Option<String>,
    /// Until when its identity is good, seconds since 1970; null if it has none.
    pub identity_expires_unix_s: Option<u64>,
    /// When it is drained, or will be; null if an operator does not want that.
    #[serde(default)]
    pub drain: Option<DrainOut>,
    #[serde(flatten)]
    pub about: ApplianceAbout,
    /// What it is able to do, by its own figures or its profile's; null if nobody said anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abilities: Option<Abilities>,
}

/// How an appliance is now.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApplianceNow {
    /// Whether it can serve.
    #[serde(with = "ApplianceState")]
    #[cfg_attr(feature = "openapi", schema(value_type = ApplianceState))]
    pub state: Health,
    /// Why, where there is something to say.
    #[serde(default)]
    pub reason: Option<String>,
    /// Seconds in this state.
    #[serde(default)]
    pub since_s: u64,
    /// Age of its last report in milliseconds; null without one.
    #[serde(default)]
    pub last_report_ms: Option<u64>,
    /// By its last report; null without one.
    #[serde(default)]
    pub egress_bits_per_second: Option<u64>,
}

/// When an appliance is drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DrainOut {
    /// From then on, seconds since 1970.
    pub from_unix_s: u64,
    /// Then it serves again, seconds since 1970; null for not before an operator says so.
    pub until_unix_s: Option<u64>,
}

/// What is in use of one thing that an appliance can run short of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FleetLoad {
    /// `cpu`, `egress`, `drives`, `connections`, `memory` or `drops` (of the network card).
    pub name: String,
    /// In use, in thousandths; 1000 and above leaves no room.
    pub permille: u64,
}

/// Whether an appliance can serve.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(remote = "Health", rename_all = "snake_case")]
pub enum ApplianceState {
    /// It reports and takes sessions.
    Healthy,
    /// It reports, and gets no new sessions.
    Draining,
    /// The same, and next to nothing leaves it: it may be stopped.
    Drained,
    /// It reports that it cannot serve.
    Unhealthy,
    /// Its reports have stopped.
    Stale,
    /// It has not reported since control started.
    NeverSeen,
}

/// An asset.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FleetAsset {
    /// Name.
    pub id: String,
    /// Its current version.
    pub current_version: String,
    /// Anybody may play it, without a grant.
    pub public: bool,
    /// How many files that has.
    pub files: usize,
    /// Sum of their lengths.
    pub bytes: u64,
    /// Copies that the policy asks for in the fleet as it is.
    pub copies_wanted: u64,
    /// Appliances that hold the whole version.
    pub copies_complete: usize,
    /// What players can begin with.
    pub entries: Vec<EntryOut>,
}

/// Something that an operator should see.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FleetError {
    /// When, seconds since 1970.
    pub at_unix_s: u64,
    pub appliance: String,
    /// Where: a room of the appliance, or `health`.
    pub room: String,
    /// What happened.
    pub text: String,
}

/// The fleet, or a site, in one second, or in a step of a longer span: the means.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FleetSample {
    /// When, seconds since 1970.
    pub at_unix_s: u64,
    /// Egress of all appliances.
    pub egress_bits_per_second: u64,
    /// Mean of their CPU shares, 0 to 100.
    pub cpu_percent: f32,
    /// Fill of all appliances.
    pub fill_bits_per_second: u64,
    /// Appliances that were healthy; in a step, when most were lost.
    #[serde(default)]
    pub healthy: u32,
    /// Those that were draining or drained then.
    #[serde(default)]
    pub leaving: u32,
    /// All that were registered then.
    #[serde(default)]
    pub appliances: u32,
}

/// An entry manifest.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EntryOut {
    /// Its path among the files.
    pub path: String,
    /// `hls` or `dash`.
    pub format: String,
}

/// The files of a process's ledger of decisions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LedgerOut {
    /// Decisions of one session in so many are kept; of none if it is 0.
    pub one_in: u32,
    /// The key of the seals, Ed25519, in hex.
    pub public_key: String,
    /// Oldest first.
    pub files: Vec<LedgerFile>,
}

/// A file of the ledger.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LedgerFile {
    pub name: String,
    pub bytes: u64,
    /// It is written to now, and has no last block yet.
    #[serde(default)]
    pub open: bool,
}

/// Why a client gets its list.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExplainOut {
    pub asset: String,
    /// The version that would be played.
    pub asset_version: String,
    /// Why it is not the current version, where it is not.
    pub version_note: Option<String>,
    /// The range by which the client is steered.
    pub client_range: String,
    /// Every appliance that was looked at, best first.
    pub candidates: Vec<ExplainCandidate>,
    /// Appliances far from the client that were not looked at: those above are enough.
    #[serde(default)]
    pub others: u64,
    /// What the player may choose from, best first.
    #[serde(default)]
    pub pathways: Vec<ExplainPathway>,
}

/// One choice of a player.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExplainPathway {
    /// The appliance that it is named for.
    pub appliance: String,
    /// Where its renditions come from; empty if all do from that appliance.
    #[serde(default)]
    pub renditions: Vec<ExplainRendition>,
}

/// A rendition of a pathway.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExplainRendition {
    /// Its number, from 1.
    pub number: usize,
    /// The first of its files.
    pub file: String,
    /// What it takes at most, by an entry manifest; null if none says so.
    pub bitrate_bps: Option<u64>,
    /// From which appliance it comes.
    pub appliance: String,
}

/// What was decided of one appliance.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExplainCandidate {
    pub appliance: String,
    pub site: String,
    /// Its place in the player's list, from 1; null if left out.
    pub rank: Option<usize>,
    /// Why it is where it is, or why it was left out: all `reasons` in one line.
    pub why: String,
    /// The same, one by one: one of each step, in their order.
    pub reasons: Vec<ExplainReason>,
}

/// Why an appliance has its place in a list.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExplainReason {
    /// The step: `locate`, `health`, `content`, `load` or `affinity`.
    pub kind: String,
    /// Its finding. Of `locate`, the step of the order that put its site behind the one before:
    /// `first`, `prefix`, `class`, `path`, `med`, `place`, `name`, `no_route`, or `elsewhere`; or
    /// `others_only`, if its site is for the clients of its own network alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// In words.
    pub text: String,
}

/// What sites hear from their routers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RoutesOut {
    /// Prefixes of IPv4 in the table, static ones included.
    pub prefixes_v4: u64,
    /// The same of IPv6.
    pub prefixes_v6: u64,
    pub sites: Vec<RoutesSite>,
}

/// What one site hears.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RoutesSite {
    pub site: String,
    #[serde(flatten)]
    pub about: SiteAbout,
    /// Prefixes that it hears; null if it has no routers.
    pub prefixes: Option<u64>,
    /// Of the table that is in force for it.
    pub digest: Option<String>,
    /// Its appliances hear different tables, for longer than a change takes: part of its clients
    /// are sent elsewhere, or to an appliance that has no route to them.
    pub differ: bool,
    /// Prefixes that no other site has a way to: if this one fails, their clients have none.
    pub unshared: u64,
    /// The first of them.
    pub unshared_examples: Vec<String>,
    /// What each of its appliances hears, by its last report.
    pub appliances: Vec<RoutesAppliance>,
}

/// What one appliance hears.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RoutesAppliance {
    pub appliance: String,
    pub heard: Heard,
}

/// The sites of an address, best first: `GET /v1/routes/{address}`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RouteFound {
    /// The range by which a client of this address is led.
    pub client_range: String,
    /// The longest prefix that covers it; null if none does.
    pub longest: Option<String>,
    /// At most 32: beyond them, and where there is none, sites are as good as each other.
    pub sites: Vec<RouteSite>,
}

/// A site of an address.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RouteSite {
    pub site: String,
    /// That covers the address; null of a site that is near by its place alone.
    pub prefix: Option<String>,
    /// `static`, by an operator's word; `embedded`, `private` or `public`, as the site is joined to
    /// who announced it; or `place`.
    pub by: String,
    /// Networks on the way, the announcing one first.
    #[serde(default)]
    pub as_path: Vec<u32>,
    /// The announcing network's preference among its own announcements: lower is better.
    pub med: Option<u32>,
    #[serde(default)]
    pub communities: Vec<String>,
    /// How far the site is, where nothing else is known, in words.
    pub place: Option<String>,
    /// The step of the order that put it behind the one before it: `first`, `prefix`, `class`,
    /// `path`, `med`, `place`, `name` or `no_route`.
    pub code: String,
    /// The same in words.
    pub why: String,
}

/// Versions that were taken down at one time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WithdrawalOut {
    /// Its number.
    pub id: u64,
    /// When, seconds since 1970.
    pub at_unix_s: u64,
    /// `operator`, or `ended`: its time was over.
    pub reason: String,
    /// What was taken down.
    pub versions: Vec<WithdrawnOut>,
    /// True when no appliance has to sign any more.
    pub complete: bool,
    /// Appliances that refuse it in every worker, by their own word.
    pub receipts: Vec<ReceiptOut>,
    /// Appliances that have not said so yet.
    pub awaited: Vec<AwaitedOut>,
}

/// What was taken down, and what else follows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TakenOut {
    #[serde(flatten)]
    pub withdrawal: WithdrawalOut,
    /// The asset was public, and its last version is gone: should it come again, it needs grants
    /// until an operator says otherwise.
    pub public_no_more: bool,
}

/// A version that was taken down.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WithdrawnOut {
    pub asset: String,
    pub version: String,
}

/// An appliance's own word.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReceiptOut {
    pub appliance: String,
    /// When it came, seconds since 1970.
    pub at_unix_s: u64,
    /// The manifest that it answers by.
    pub generation: u64,
}

/// An appliance that has not signed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AwaitedOut {
    pub appliance: String,
    /// It reports: its receipt is on its way.
    pub reachable: bool,
    /// `healthy`, `stale` and so on, as in `/v1/fleet`.
    pub state: String,
    /// Milliseconds since its last report; none without one since control started.
    pub away_ms: Option<u64>,
}

/// A key of playback tokens, without its secret.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeyOut {
    /// Key id, the first part of the tokens that it signs.
    #[cfg_attr(feature = "openapi", schema(example = "k1"))]
    pub kid: String,
    /// New tokens are signed with it.
    pub signs: bool,
    /// Since when it is announced, seconds since 1970; null once it signs.
    pub announced_unix_s: Option<u64>,
    /// When it is of no more use, seconds since 1970; null before it has been replaced.
    pub retires_unix_s: Option<u64>,
}

fn without_inventory<S: Serializer>(report: &Option<Report>, to: S) -> Result<S::Ok, S::Error> {
    let mut value = serde_json::to_value(report).map_err(serde::ser::Error::custom)?;
    value.as_object_mut().into_iter().for_each(|fields| drop(fields.remove("inventory")));
    value.serialize(to)
}

/// The inventory is long, and `objects_held` says how much.
fn with_no_inventory<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Report>, D::Error> {
    let Some(mut value) = Option::<Value>::deserialize(from)? else { return Ok(None) };
    if let Value::Object(fields) = &mut value {
        let inventory = serde_json::to_value(Inventory::default()).map_err(D::Error::custom)?;
        fields.entry("inventory").or_insert(inventory);
    }
    Report::deserialize(value).map(Some).map_err(D::Error::custom)
}
