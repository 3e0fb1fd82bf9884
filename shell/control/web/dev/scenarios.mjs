// Invented fleets, each a function of the clock, in the shape of GET /v1/fleet.
//   lively     three appliances of two sites, all well: what `./x demo` looks like
//   filling    the same, one appliance half filled, one nearly
//   faults     one of each trouble: stale, a drive set aside, draining, never seen, errors
//   empty      nothing registered yet
//   no-assets  appliances, but nothing ingested
//   routes     two sites that hear routers, of which one does so badly
//   large      twelve sites of eight appliances
//   placed     the three appliances of `lively`, whose sites say where they are
//   huge       400 sites of five appliances, all over the world

const GB = 1e9;
const HISTORY_S = 120;

/** Smooth noise between 0 and 1: three waves that do not meet again soon. */
function wave(t, seed) {
  const w = (period, phase) => Math.sin((2 * Math.PI * t) / period + phase * seed);
  return 0.5 + 0.22 * w(47, 1.3) + 0.16 * w(17, 2.9) + 0.12 * w(5.3, 4.1);
}

/** What wave() adds up to from 0 to t. */
function waved(t, seed) {
  const w = (period, phase) =>
    (period / (2 * Math.PI)) * -Math.cos((2 * Math.PI * t) / period + phase * seed);
  return 0.5 * t + 0.22 * w(47, 1.3) + 0.16 * w(17, 2.9) + 0.12 * w(5.3, 4.1);
}

const EGRESS = 2.4 * GB;

function report(now, seed, changes = {}) {
  const egress = Math.round(wave(now % 1e6, seed) * EGRESS);
  const wanted = changes.wanted ?? 40;
  const held = changes.held ?? wanted;
  const share = wanted === 0 ? 0 : held / wanted;
  const bytesWanted = wanted * 10.3 * GB;
  return {
    start_id: seed,
    sequence: Math.floor(now),
    uptime_s: 5_400 + seed * 300 + (Math.floor(now) % 100_000),
    software: "0.1.0",
    base_url: `https://127.0.0.${seed + 1}:18243`,
    plain_url: `http://127.0.0.${seed + 1}:18280`,
    generation: 7,
    load: {
      serving: changes.serving ?? true,
      connections: Math.round(180 + 160 * wave(now, seed + 9)),
      connections_max: 20_000,
      egress_bits_per_second: egress,
      egress_max_bits_per_second: 10 * GB,
      egress_bytes: Math.round((waved(now % 1e6, seed) * EGRESS) / 8),
      requests: 48_211 + Math.floor(now % 10_000) * 37,
      request_errors: changes.requestErrors ?? 0,
      cpu_percent: 6 + (egress / GB) * 14 + 4 * wave(now, seed + 3),
    },
    drives: [0, 1].map((index) => ({
      id: `${seed}${index}`.padEnd(32, "a0c4e9"),
      path: seed === 3 ? `/var/lib/nearcast/a3/drive${index}` : `/d/${index}`,
      state: "ok",
      capacity_bytes: 1_920 * GB,
      free_bytes: Math.round((1_920 - (206 + index * 31) * share) * GB),
      objects: Math.round(share * 20),
      ...(changes.drives?.[index] ?? {}),
    })),
    fill: {
      objects_wanted: wanted,
      objects_held: held,
      bytes_wanted: bytesWanted,
      bytes_held: Math.round((changes.fillShare ?? share) * bytesWanted),
      bits_per_second: held < wanted ? Math.round((0.6 + 0.3 * wave(now, seed)) * GB) : 0,
    },
    errors: changes.errors ?? [],
  };
}

function appliance(now, id, seed, changes = {}) {
  const seen = changes.state !== "never_seen";
  const silentFor = changes.silent_s ?? 0;
  return {
    id,
    state: changes.state ?? "healthy",
    reason: changes.reason ?? "",
    since_s: changes.since_s ?? 5_400,
    last_report_ms: seen ? silentFor * 1_000 + 180 + Math.round((now % 1) * 700) : null,
    report: seen ? report(now - silentFor, seed, changes) : null,
    objects_held: seen ? (changes.held ?? changes.wanted ?? 40) : 0,
    weight: changes.weight ?? 1,
    base_url: seen ? `https://127.0.0.${seed + 1}:18243` : null,
  };
}

const asset = (id, changes = {}) => ({
  id,
  current_version: `${id}-2026-11-20-9f3c2a`,
  files: 11,
  bytes: 88_904_112,
  copies_wanted: 2,
  copies_complete: 2,
  entries: [
    { path: "master.m3u8", format: "hls" },
    { path: "manifest.mpd", format: "dash" },
  ],
  ...changes,
});

function sitesOf(now, changes = {}) {
  return [
    {
      id: "s1",
      prefixes: ["127.0.0.1/32", "10.0.0.0/8"],
      appliances: [appliance(now, "a1", 1, changes.a1), appliance(now, "a2", 2, changes.a2)],
    },
    {
      id: "s2",
      prefixes: ["192.0.2.0/24"],
      appliances: [
        appliance(now, "a3", 3, changes.a3),
        ...(changes.a4 ? [appliance(now, "a4", 4, changes.a4)] : []),
      ],
    },
  ];
}

/** Five minutes from empty to full, again and again. */
const fillShare = (now, offset) => Math.min(1, ((now + offset) % 300) / 280);

const FAULTS = {
  a1: {
    requestErrors: 12,
    drives: [
      {},
      {
        state: "set_aside",
        reason: "read did not finish within 2 s (5 times in 60 s)",
        free_bytes: 0,
        objects: 0,
      },
    ],
    held: 31,
    fillShare: 0.77,
  },
  a2: { state: "stale", reason: "no report for 14 s", silent_s: 14, since_s: 12 },
  a3: {
    state: "draining",
    reason: "asked to drain; 37 connections left",
    since_s: 95,
    serving: false,
  },
  a4: { state: "never_seen", reason: "registered 3 min ago, has not reported yet", since_s: 190 },
};

const errorsAt = (now) => [
  {
    at_unix_s: Math.floor(now) - 21,
    appliance: "a1",
    room: "drive",
    text:
      "/d/1 set aside: read did not finish within 2 s (5 times in 60 s). " +
      "Check its cable and SMART log; restart the appliance to take it back.",
  },
  {
    at_unix_s: Math.floor(now) - 64,
    appliance: "a1",
    room: "fill",
    text:
      "source answered 404 for r2.mp4 of film: " +
      "publish the file again or delete this asset version.",
  },
  {
    at_unix_s: Math.floor(now) - 3_700,
    appliance: "a3",
    room: "control",
    text: "control did not answer for 8 s; serving went on with manifest 6.",
  },
];

/** What a demo leaves behind: one appliance killed and restored again and again. */
const manyErrors = (now) =>
  Array.from({ length: 9 }, (_, index) => ({
    at_unix_s: Math.floor(now) - 40 * (index >> 1),
    appliance: "a1",
    room: "health",
    text: index % 2 ? "healthy again" : "stale: no report for 1.6 s",
  }));

function large(now) {
  return Array.from({ length: 12 }, (_, site) => ({
    id: `site-${String(site + 1).padStart(2, "0")}`,
    prefixes: [`10.${site}.0.0/16`],
    appliances: Array.from({ length: 8 }, (_, index) => {
      const seed = site * 8 + index + 1;
      const broken = seed === 13 ? FAULTS.a2 : seed === 47 ? FAULTS.a1 : {};
      return appliance(now, `site${site + 1}-${index + 1}`, seed, broken);
    }),
  }));
}

/** Cities with sites, so many of each as the world has people there. */
const CITIES = [
  ["52.52,13.405 DE DE-BE Berlin", 5],
  ["48.86,2.35 FR FR-IDF Paris", 6],
  ["51.51,-0.13 GB GB-ENG London", 8],
  ["40.42,-3.7 ES ES-MD Madrid", 4],
  ["41.9,12.5 IT IT-62 Rome", 4],
  ["59.33,18.06 SE SE-AB Stockholm", 3],
  ["52.23,21.01 PL PL-14 Warsaw", 4],
  ["41.01,28.98 TR TR-34 Istanbul", 6],
  ["30.04,31.24 EG EG-C Cairo", 5],
  ["6.52,3.38 NG NG-LA Lagos", 6],
  ["-1.29,36.82 KE KE-30 Nairobi", 3],
  ["-26.2,28.05 ZA ZA-GP Johannesburg", 5],
  ["25.2,55.27 AE AE-DU Dubai", 4],
  ["19.08,72.88 IN IN-MH Mumbai", 14],
  ["28.61,77.21 IN IN-DL Delhi", 12],
  ["12.97,77.59 IN IN-KA Bengaluru", 8],
  ["13.76,100.5 TH TH-10 Bangkok", 5],
  ["1.35,103.82 SG SG-01 Singapore", 6],
  ["-6.21,106.85 ID ID-JK Jakarta", 10],
  ["14.6,120.98 PH PH-00 Manila", 6],
  ["37.57,126.98 KR KR-11 Seoul", 8],
  ["35.68,139.69 JP JP-13 Tokyo", 12],
  ["34.69,135.5 JP JP-27 Osaka", 6],
  ["-33.87,151.21 AU AU-NSW Sydney", 6],
  ["-31.95,115.86 AU AU-WA Perth", 2],
  ["-36.85,174.76 NZ NZ-AUK Auckland", 2],
  ["40.71,-74.01 US US-NY New York", 14],
  ["41.88,-87.63 US US-IL Chicago", 10],
  ["32.78,-96.8 US US-TX Dallas", 10],
  ["34.05,-118.24 US US-CA Los Angeles", 12],
  ["47.61,-122.33 US US-WA Seattle", 6],
  ["33.75,-84.39 US US-GA Atlanta", 8],
  ["39.74,-104.99 US US-CO Denver", 5],
  ["43.65,-79.38 CA CA-ON Toronto", 6],
  ["49.28,-123.12 CA CA-BC Vancouver", 3],
  ["19.43,-99.13 MX MX-CMX Mexico City", 10],
  ["4.71,-74.07 CO CO-DC Bogota", 5],
  ["-12.05,-77.04 PE PE-LMA Lima", 4],
  ["-23.55,-46.63 BR BR-SP Sao Paulo", 14],
  ["-22.91,-43.17 BR BR-RJ Rio de Janeiro", 6],
  ["-34.6,-58.38 AR AR-C Buenos Aires", 6],
];
const SITES_HUGE = 400;

function huge(now) {
  const turns = CITIES.flatMap(([place, people]) => Array(people).fill(place));
  const counts = new Map();
  return Array.from({ length: SITES_HUGE }, (_, index) => {
    const place = turns[index % turns.length];
    const country = place.split(" ")[1].toLowerCase();
    const number = (counts.get(country) ?? 0) + 1;
    counts.set(country, number);
    const id = `${country}-${String(number).padStart(2, "0")}`;
    // Of a few the nearest city is all that is known.
    const [point, ...words] = place.split(" ");
    const [north, east] = point.split(",").map(Number);
    const spread = (of) => ((index * of) % 17) / 10 - 0.8;
    const at = [north + spread(5), east + spread(11)].map((of) => of.toFixed(2)).join(",");
    return {
      id,
      kind: index % 3 ? "embedded" : "exchange",
      place: index % 57 === 56 ? "" : `${at} ${words.join(" ")}`,
      prefixes: [],
      routes: 1_000 + index * 37,
      routes_unshared: index % 47 === 3 ? 3 * index : 0,
      appliances: Array.from({ length: 5 }, (_, one) => {
        const seed = index * 5 + one + 1;
        const broken = seed % 503 === 2 ? FAULTS.a2 : seed % 611 === 7 ? FAULTS.a1 : {};
        return appliance(now, `${id}-${one + 1}`, seed, broken);
      }),
    };
  });
}

const placed = (now) => {
  const [first, second] = sitesOf(now);
  return [
    { ...first, place: "52.52,13.405 DE DE-BE Berlin" },
    { ...second, kind: "embedded", place: "41.01,28.98 TR TR-34 Istanbul" },
  ];
};

/** What control adds up of a site. */
function summaryOf({ appliances }) {
  const isServing = ({ state }) => ["healthy", "draining", "drained"].includes(state);
  const isIll = (one) => !isServing(one) || one.report?.drives.some(({ state }) => state !== "ok");
  const serving = appliances.filter(isServing).filter(({ report }) => report);
  const sum = (of) => serving.reduce((total, { report }) => total + of(report), 0);
  const count = (is) => appliances.filter(is).length;
  const left = ({ load }) =>
    100 - Math.max(load.cpu_percent, (100 * load.egress_bits_per_second) / (10 * GB));
  return {
    appliances: appliances.length,
    healthy: count(({ state }) => state === "healthy"),
    leaving: count(({ state }) => state === "draining" || state === "drained"),
    ill: count(isIll),
    filling: count(({ report }) => report && report.fill.objects_held < report.fill.objects_wanted),
    egress_bits_per_second: sum(({ load }) => load.egress_bits_per_second),
    fill_bits_per_second: sum(({ fill }) => fill.bits_per_second),
    cpu_percent: sum(({ load }) => load.cpu_percent) / Math.max(1, serving.length),
    headroom_percent: serving.length ? sum(left) / serving.length : null,
    bytes_held: sum(({ fill }) => fill.bytes_held),
    bytes_wanted: sum(({ fill }) => fill.bytes_wanted),
  };
}

/** A day as control keeps it: the evening is the peak; one was away, and later one drained. */
function dayOf(sites, now) {
  const total = sites.reduce((sum, { appliances }) => sum + appliances.length, 0);
  const last = Math.floor(now / 600) * 600;
  return Array.from({ length: 144 }, (_, index) => {
    const at = last - (143 - index) * 600;
    const hour = (at / 3600) % 24;
    const isDrained = index > 90 && index < 114;
    const shape = 0.45 + 0.4 * Math.cos(((hour - 20) / 12) * Math.PI) + 0.05 * wave(at, 3);
    return {
      at_unix_s: at,
      egress_bits_per_second: Math.round(total * EGRESS * shape),
      cpu_percent: 8 + 40 * shape,
      fill_bits_per_second: hour > 2 && hour < 6 ? Math.round(total * 0.4 * GB) : 0,
      healthy: (index > 40 && index < 44) || isDrained ? total - 1 : total,
      leaving: isDrained ? 1 : 0,
      appliances: total,
    };
  });
}

/** GET /v1/fleet with its parameters. */
export function fleetWith(name, now, query) {
  const fleet = fleetAt(name, now);
  const only = query.get("site");
  const most = Number(query.get("appliances_max") ?? Infinity);
  const span = query.get("history") ?? "minutes";
  const all = fleet.sites.reduce((sum, { appliances }) => sum + appliances.length, 0);
  fleet.brief = only === null && all > most;
  fleet.asset_count = fleet.assets.length;
  fleet.sites = fleet.sites.filter(({ id }) => only === null || id === only);
  for (const site of fleet.sites) {
    Object.assign(site, { kind: "exchange", place: "", open: false, ...site });
    site.summary = summaryOf(site);
    if (only && span === "day") {
      site.held = fleet.assets.map(({ current_version: version }) => ({ version, copies: 2 }));
      site.held_count = site.held.length;
    }
    if (!fleet.brief) continue;
    const isIll = (one) => one.state !== "healthy" || one.report.drives.some((of) => of.reason);
    site.appliances = site.appliances.filter(isIll);
  }
  const here = fleet.sites.flatMap(({ appliances }) => appliances.map(({ id }) => id));
  if (only) fleet.errors = fleet.errors.filter(({ appliance: of }) => here.includes(of));
  fleet.error_count = fleet.errors.length;
  if (only) fleet.history = [];
  if (span === "day") fleet.history = dayOf(fleet.sites, now);
  return fleet;
}

/** GET /v1/sheds with its parameters: of `huge`, a third of the sites lack titles. */
export function shedsOf(name, query) {
  if (!["huge", "faults"].includes(name)) return [];
  const { sites } = fleetAt(name, 0);
  const row = (by, site, of, bytes, version) => {
    const answers = Math.round(bytes / 5e6);
    return { by, name: site, version, class: of, begun: 0, answers, reckoned_bytes: bytes };
  };
  const all = sites.flatMap(({ id }, at) => {
    const content = at % 3 ? 0 : ((at * 37 + 11) % 101) * 31 * GB;
    const health = at % 5 ? 0 : ((at * 53 + 7) % 67) * 11 * GB;
    const rows = [["none", 9_000 * GB], ["content", content], ["health", health]];
    return rows.filter(([, bytes]) => bytes).map(([of, bytes]) => row("site", id, of, bytes));
  });
  const site = query.get("site");
  if (site !== null) {
    const own = all.filter(({ name: of }) => of === site);
    const versions = ["film-2026-11-20-9f3c2a", "documentary-2026-11-20-9f3c2a"];
    const classes = ["content", "health"];
    const parts = own.flatMap(({ class: kind, reckoned_bytes: bytes }) => {
      const at = classes.indexOf(kind);
      if (at < 0) return [];
      return [row("site_version", site, kind, bytes * 0.6, versions[at])];
    });
    return [...own, ...parts];
  }
  const missed = new Map();
  for (const { name: of, class: kind, reckoned_bytes: bytes } of all) {
    if (kind !== "none") missed.set(of, (missed.get(of) ?? 0) + bytes);
  }
  const worst = [...missed].sort((a, b) => b[1] - a[1]).map(([of]) => of);
  const most = worst.slice(0, Number(query.get("worst") ?? 0));
  return most.flatMap((of) => all.filter((one) => one.name === of));
}

/** The same sites, as GET /v1/routes tells of them in the scenario `routes`. */
export function routesOf(name = "routes") {
  const session = (name, neighbour_as, routes, changes = {}) => ({
    name,
    state: "Established",
    peering: "public",
    neighbour: "192.0.2.1",
    neighbour_as,
    routes,
    believed: routes,
    filtered: 0,
    ...changes,
  });
  const down = {
    state: "Active",
    routes: 0,
    believed: 0,
    last_error: "Socket: Connection refused",
  };
  const left_out = [
    {
      cause: "too_long",
      why: "a longer prefix than networks hand on",
      count: 1,
      examples: [{ prefix: "21.1.1.0/25", session: "isp_b" }],
    },
    {
      cause: "default",
      why: "a default route",
      count: 2,
      examples: [{ prefix: "0.0.0.0/0", session: "isp_b" }],
    },
  ];
  const heard = (prefixes, sessions, more = {}) => {
    return { digest: `${prefixes}-${"0".repeat(32)}`, prefixes, sessions, left_out: [], ...more };
  };
  const one = (site) => {
    const { kind, place, routes: prefixes, routes_unshared: unshared } = site;
    const appliances = site.appliances.map(({ id: appliance }) => {
      return { appliance, heard: heard(prefixes, [session("isp_a", 64_500, prefixes)]) };
    });
    const unshared_examples = ["21.9.0.0/20", "21.9.64.0/20"].slice(0, unshared);
    const rest = { digest: null, differ: false, unshared, unshared_examples, open: false };
    return { site: site.id, kind, place, prefixes, ...rest, appliances };
  };
  if (name === "huge") return { prefixes_v4: 1, prefixes_v6: 1, sites: huge(0).map(one) };
  const whole = { place: "52.52,13.405 DE DE-BE Berlin", open: false };
  return {
    prefixes_v4: 51_902,
    prefixes_v6: 9_417,
    sites: [
      {
        ...whole,
        site: "s1",
        kind: "embedded",
        prefixes: 52_431,
        digest: null,
        differ: true,
        unshared: 12,
        unshared_examples: ["21.9.0.0/20", "21.9.64.0/20", "21.10.0.0/22", "2a0b:9::/32"],
        appliances: [
          { appliance: "a1", heard: heard(52_431, [session("isp_a", 64_500, 52_431)]) },
          {
            appliance: "a2",
            heard: heard(0, [session("isp_a", 64_500, 0, down)]),
          },
        ],
      },
      {
        ...whole,
        site: "s2",
        kind: "exchange",
        prefixes: 61_319,
        digest: null,
        differ: false,
        unshared: 0,
        unshared_examples: [],
        appliances: [
          {
            appliance: "a3",
            heard: heard(
              61_319,
              [session("isp_a", 64_500, 52_431), session("isp_b", 64_502, 8_891)],
              { left_out },
            ),
          },
        ],
      },
    ],
  };
}

/** Lays what sites hear over a fleet. */
function withRoutes(sites) {
  const { sites: told } = routesOf();
  return sites.map((site, at) => {
    const { kind, place, open, prefixes: routes, differ: routes_differ } = told[at];
    return { ...site, kind, place, open, routes, routes_differ };
  });
}

const SCENARIOS = {
  lively: (now) => ({
    sites: sitesOf(now),
    assets: [asset("film"), asset("trailer", { bytes: 9_120_004, files: 9 })],
    errors: [],
  }),
  filling: (now) => {
    const [half, nearly] = [fillShare(now, 130), fillShare(now, 230)];
    return {
      sites: sitesOf(now, {
        a2: { held: Math.floor(nearly * 40), fillShare: nearly },
        a3: { held: Math.floor(half * 40), fillShare: half },
      }),
      assets: [asset("film"), asset("trailer", { copies_complete: 1 })],
      errors: [],
    };
  },
  faults: (now) => ({
    sites: sitesOf(now, FAULTS),
    assets: [asset("film", { copies_complete: 1 })],
    errors: errorsAt(now),
  }),
  routes: (now) => ({
    sites: withRoutes(sitesOf(now)),
    assets: [asset("film")],
    errors: [],
  }),
  empty: () => ({ sites: [], assets: [], errors: [] }),
  "no-assets": (now) => ({
    sites: sitesOf(now, { a1: { wanted: 0 }, a2: { wanted: 0 }, a3: { wanted: 0 } }),
    assets: [],
    errors: [],
  }),
  placed: (now) => ({ ...SCENARIOS.lively(now), sites: placed(now) }),
  huge: (now) => ({
    sites: huge(now),
    assets: [asset("film"), asset("documentary", { bytes: 12.7 * GB, files: 8 })],
    errors: errorsAt(now).slice(0, 2),
  }),
  large: (now) => ({
    sites: large(now),
    assets: [asset("film"), asset("documentary", { bytes: 12.7 * GB, files: 8 })],
    errors: [...errorsAt(now).slice(0, 2), ...manyErrors(now)],
  }),
};

export const scenarioNames = Object.keys(SCENARIOS);

/** The named fleet at `now` (seconds since 1970), with the 120 s before it. */
export function fleetAt(name, now) {
  const { sites, assets, errors } = SCENARIOS[name](now);
  const reporting = sites.flatMap((site) => site.appliances).filter((one) => one.report);
  const history = Array.from({ length: HISTORY_S }, (_, index) => {
    const at = Math.floor(now) - HISTORY_S + 1 + index;
    const sum = (of) => reporting.reduce((total, one) => total + of(one.report), 0);
    const egress = reporting.reduce(
      (total, one) => total + Math.round(wave(at % 1e6, one.report.start_id) * EGRESS),
      0,
    );
    return {
      at_unix_s: at,
      egress_bits_per_second: egress,
      cpu_percent: reporting.length ? 8 + (egress / reporting.length / GB) * 14 : 0,
      fill_bits_per_second: sum((one) => one.fill.bits_per_second) * (0.8 + 0.2 * wave(at, 2)),
    };
  });
  return {
    now_unix_s: Math.floor(now),
    generation: sites.length ? 7 : 0,
    sites,
    assets,
    errors,
    history: reporting.length ? history : [],
    demo_controls: null,
  };
}

/** What viewers felt in that fleet; in all but a healthy one, those of one site stall. */
export function viewersAt(name, now) {
  const minutes = (of) => Array.from({ length: 10 }, (_, at) => of(at));
  const figures = (watched_s, stalls, bits) => ({
    playbacks: Math.ceil(watched_s / 400),
    moved: Math.ceil(watched_s / 8000),
    starts: Math.ceil(watched_s / 420),
    start_ms: 640 + stalls * 3,
    starts_slow: stalls,
    stalls,
    stalled_ms: stalls * 2100,
    stalls_unmeasured: 0,
    stalled_share: (stalls * 2.1) / (watched_s + stalls * 2.1),
    watched_ms: watched_s * 1000,
    bits_per_second: bits,
    top_share: 0.8,
    buffer_ms: 14_300,
    buffer_low_share: 0.01,
    sent_bits_per_second: 31e6,
    measured_bits_per_second: 27e6,
    cut: 1,
    failed: 0,
  });
  const row = (by, of, source, watched_s, stalls, bits) => {
    const recent = figures(watched_s, stalls, bits);
    const bitrates = minutes((at) => bits * (0.7 + 0.3 * wave(Math.floor(now / 6e4) + at, stalls)));
    const stalled_ms = minutes(() => stalls * 210);
    return { by, name: of, source, recent, total: recent, bitrates, stalled_ms };
  };
  const [first, second] = SCENARIOS[name](now / 1000).sites.map(({ id }) => id);
  if (!first) return { now_unix_s: now / 1000, rows: [], warnings: [] };
  const many = name === "lively" ? 2 : 340;
  const rows = [
    row("site", first, "requests", 52_000, many, 5.8e6),
    row("site", first, "events", 9_000, many / 10, 6.1e6),
    row("site", first, "estimate", 4_000, 3, null),
    ...(second ? [row("site", second, "requests", 31_000, 1, 6.4e6)] : []),
    row("asset", "big-buck-bunny", "requests", 61_000, many, 6.2e6),
    row("asset", "sintel", "requests", 22_000, 1, 5.1e6),
    row("network", "10.0.0.0/8", "requests", 70_000, many, 6.0e6),
    row("network", "elsewhere", "requests", 13_000, 1, 5.2e6),
    row("player", "browser-hls", "requests", 50_000, many, 6.2e6),
    row("player", "avplayer", "requests", 33_000, 0, 6.0e6),
  ];
  const share = { stalled_share: 0.034, usual_share: 0.002 };
  const warning = { site: first, since_s: 74, ...share, stalls: 41 };
  return { now_unix_s: now / 1000, rows, warnings: name === "lively" ? [] : [warning] };
}

/** Fill of each site: one has no window open, one is paused, all of `filling` lack something. */
export function fillOf(name, only) {
  const now = Math.floor(Date.now() / 1000);
  const sites = fleetAt(name, now).sites.filter(({ id }) => only === null || id === only);
  const of = ({ id, appliances }, at) => {
    const all = appliances ?? [];
    const rows = all.flatMap(({ id: appliance, report }) => {
      if (!report) return [];
      const { bytes_wanted, bytes_held, bits_per_second } = report.fill;
      const missing = bytes_wanted - bytes_held;
      const left = Math.round((missing * 8) / Math.max(1, bits_per_second));
      const ready = missing && bits_per_second ? now + left : null;
      const rates = { rate_max_bps: null, outside_max_bps: null, has_other_rules: false };
      const told = { appliance, bytes_wanted, bytes_missing: missing, bits_per_second };
      return [{ ...told, ...rates, ready_unix_s: ready }];
    });
    const windows = at % 2 ? "02:00-14:00" : "always";
    const next = at % 2 ? now + 3_700 * (1 + (at % 7)) : null;
    const state = { is_open: at % 4 !== 1, paused_until_unix_s: at === 2 ? now + 7_200 : null };
    const about = { site: id, windows, by_policy: true, time_zone: "Europe/Berlin" };
    return { ...about, ...state, next_change_unix_s: next, appliances: rows };
  };
  return { sites: sites.map(of) };
}

/** What operators say of versions. */
const SAID = { pins: 12, bans: 2, launches: 3 };

const STAYS =
  "film-9 is banned everywhere, and isp-a-1 keeps it (ban not kept: last copy of film-9 has no " +
  "source): pin it elsewhere, give it a source, or take it down";

/** A month of plans, of which the last is refused in `faults`. */
export function planOf(name) {
  const now = Math.floor(Date.now() / 1000);
  const day = (at) => {
    const comes = 40 + ((at * 37) % 61);
    const moved = { comes, comes_bytes: comes * 2.2 * GB, goes: comes - 9 };
    return { at_unix_s: now - (21 - at) * 86_400, ...moved, goes_bytes: (comes - 9) * 2.1 * GB };
  };
  const carried_out = name === "empty" ? [] : Array.from({ length: 20 }, (_, at) => day(at));
  const refused = name === "faults" ? ["the plan evicts 3.1 TB of 5.2 TB in all"] : [];
  const moves = { comes: 0, comes_bytes: 0, goes: 0, goes_bytes: refused.length ? 3_100 * GB : 0 };
  const lacks = "film-7 is pinned at site isp-a, and 9216 MiB of it have no room there";
  const pins_missing = name === "faults" ? [lacks] : [];
  const bans_unkept = name === "faults" ? [STAYS] : [];
  const said = name === "empty" ? { pins: 0, bans: 0, launches: 0 } : SAID;
  const counts = { at_origin: 17, missing: 3, staying: 5, waiting: 4 };
  const lies = { ...counts, pins_missing, bans_unkept, ...said };
  return { number: 1_795_804_200, refused, ...moves, appliances: [], ...lies, carried_out };
}

/** Demand by Zipf, of two regions. */
export function popularityOf(region, backtest) {
  const top = Array.from({ length: 400 }, (_, at) => {
    const expected = Math.round((900 * GB) / (at + 3) ** 0.9);
    const len = (1 + ((at * 29) % 17) / 6) * GB;
    const rates = { rendition: 1 + (at % 5), bitrate_bps: 3_500_000, peak_bps: expected / 5_000 };
    const said = { item: at, version: `film-${at >> 2}`, len_bytes: len, expected_bytes: expected };
    return { ...said, ...rates, popularity_permille: Math.round((1000 * expected) / len) };
  });
  const expected_bytes = top.reduce((all, { expected_bytes: of }) => all + of, 0);
  const now = Math.floor(Date.now() / 1000);
  const hits = (by) => [0.12, 0.3, 0.44, 0.61, 0.88].map((of) => of * by * 7 * expected_bytes);
  const way = (of, by) => ({ name: of, off_bytes: 0, hit_bytes: hits(by) });
  const ways = [["forecast", 0.97], ["yesterday", 0.93], ["week_ago", 0.89], ["known", 1]];
  const tested = { days: 7, came_bytes: 7 * expected_bytes, room_bytes: [0, 0, 0, 0, 0] };
  return {
    region: region ?? "-",
    regions: ["-", "north"],
    day_unix_s: now - (now % 86_400) + 86_400,
    known_until_unix_s: now - (now % 3_600),
    days_known: 23,
    day_before_bytes: expected_bytes * 0.98,
    cut_bytes: 0,
    expected_bytes,
    items: 400,
    top,
    ...(backtest ? { backtest: { ...tested, ways: ways.map(([of, by]) => way(of, by)) } } : {}),
  };
}
