// Invented fleets, each a function of the clock, in the shape of GET /v1/fleet.
//   lively     three appliances of two sites, all well: what `./x demo` looks like
//   filling    the same, one appliance half filled, one nearly
//   faults     one of each trouble: stale, a drive set aside, draining, never seen, errors
//   empty      nothing registered yet
//   no-assets  appliances, but nothing ingested
//   large      twelve sites of eight appliances

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
  empty: () => ({ sites: [], assets: [], errors: [] }),
  "no-assets": (now) => ({
    sites: sitesOf(now, { a1: { wanted: 0 }, a2: { wanted: 0 }, a3: { wanted: 0 } }),
    assets: [],
    errors: [],
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
  if (!first) return { now_unix_s: now / 1000, rows: [], warnings: [], networks_left_out: 0 };
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
  const warnings = name === "lively" ? [] : [warning];
  return { now_unix_s: now / 1000, rows, warnings, networks_left_out: name === "large" ? 12 : 0 };
}
