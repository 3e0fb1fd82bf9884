// The pages themselves: what they say in each state of the fleet, that nothing comes from elsewhere
// or is refused by their policy, that nothing is wider than a phone, and what axe finds.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { test } from "node:test";
import { film, until, wait, withMock, withPage } from "./support.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const LAPTOP = { width: 1280, height: 800 };
const PHONE = { width: 390, height: 844 };
/** One kind of manifest of each player; the self-test of the demo has the others. */
const PLAYERS = ["hls", "dash", "shaka-dash", "videojs-hls"];
const textOf = (page, selector) => page.locator(selector).first().innerText();

/** Opens `path` and runs `action`, then asserts that the page kept its own rules. */
async function visit(mock, path, options, action) {
  await withPage({ viewport: LAPTOP, ...options }, async (page) => {
    const complaints = [];
    const hosts = new Set();
    page.on("pageerror", (error) => complaints.push(String(error)));
    page.on("console", (message) => {
      // video.js reads an answer without a body as XML; Chromium's document for that has styles.
      const ofParser = /style attributes/.test(message.text());
      if (ofParser && /assets\/videojs-/.test(message.location().url)) return;
      if (/Content Security Policy/i.test(message.text())) complaints.push(message.text());
    });
    page.on("request", (request) => hosts.add(new URL(request.url()).hostname));
    await page.goto(mock.url + path);
    await action(page);
    assert.deepEqual(complaints, []);
    const foreign = [...hosts].filter((host) => host && !host.startsWith("127."));
    assert.deepEqual(foreign, [], "nothing comes from elsewhere");
  });
}

const ready = (page) => page.locator("#verdict:not(:text('Asking control'))").waitFor();

async function assertAccessible(page) {
  // As a string in the page's own world: the policy lets no other script in.
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => axe.run());
  const found = violations.map(({ id, nodes: [node] }) => {
    return `${id}: ${node.html} ${node.failureSummary}`;
  });
  assert.deepEqual(found, []);
}

const assertFits = async (page, width) => {
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(wide <= width, `${wide} px wide on ${width}`);
};

const SCENARIOS = [
  ...["lively", "filling", "faults", "routes", "empty", "no-assets"],
  ...["large", "placed", "huge"],
];
for (const scenario of SCENARIOS) {
  test(`status, ${scenario}: fits laptop and phone, accessible in both schemes`, async () => {
    await withMock({ scenario, controls: scenario === "lively" }, (mock) =>
      visit(mock, "/", {}, async (page) => {
        for (const [size, colorScheme] of [[LAPTOP, "light"], [PHONE, "dark"]]) {
          await page.setViewportSize(size);
          // Without motion, or colours are looked at half way from one scheme to the other.
          await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
          await ready(page);
          await assertFits(page, size.width);
          await assertAccessible(page);
        }
      }),
    );
  });
}

test("the heads of the viewers' columns stand apart on a phone", async () => {
  await withMock({ scenario: "faults" }, (mock) =>
    visit(mock, "/", { viewport: PHONE }, async (page) => {
      await page.locator(".viewers-table td").first().waitFor();
      const beyond = await page.evaluate(() => {
        const text = document.createRange();
        const isBeyond = (head) => {
          text.selectNodeContents(head);
          const { paddingRight } = getComputedStyle(head);
          const end = head.getBoundingClientRect().right - parseFloat(paddingRight);
          return end + 1 < text.getBoundingClientRect().right;
        };
        const heads = [...document.querySelectorAll(".viewers-table th[scope=col]")];
        return heads.filter(isBeyond).map((head) => head.textContent);
      });
      assert.deepEqual(beyond, []);
      await assertFits(page, PHONE.width);
    }),
  );
});

test("a link with a token logs in only who is not logged in", async () => {
  const token = "nc_0123456789ab_ff";
  for (const [status, expected] of [[200, []], [503, []], [401, [token]]]) {
    const given = [];
    const back = await withMock({}, (mock) =>
      withPage({}, async (page) => {
        await page.route("**/v1/session", (route) => {
          const request = route.request();
          if (request.method() === "GET") return route.fulfill({ status, json: {} });
          given.push(request.postDataJSON().token);
          return route.fulfill({ status: 200, json: {} });
        });
        await page.goto(`${mock.url}/login.html#${token}/play`);
        if (status === 503) {
          await page.locator("#outcome:has-text('answered 503')").waitFor();
          assert.equal(await page.inputValue("#token"), token, "it can be sent again");
        } else {
          if (status === 200) {
            await page.locator("#outcome:has-text('logged in here already')").waitFor();
          }
          await page.waitForURL((url) => url.pathname === "/play");
        }
        return new URL(page.url()).pathname;
      }),
    );
    assert.deepEqual(given, expected, `${status}`);
    assert.equal(back, status === 503 ? "/login.html" : "/play");
  }
});

test("a well fleet is called healthy, with its figures and units", async () => {
  await withMock({}, (mock) =>
    visit(mock, "/", {}, async (page) => {
      await ready(page);
      assert.equal(await textOf(page, "#verdict"), "All 3 appliances are healthy");
      assert.match(await textOf(page, ".gauge-now"), /[\d.]+\s+Gb\/s/);
      assert.match(await textOf(page, "#appliance-a1"), /127\.0\.0\.2:18243/);
      assert.match(await textOf(page, "#appliance-a1"), /206\sGB of 1\.92\sTB/);
      assert.equal(await page.locator(".faults:visible").count(), 0, "no buttons but in the demo");
    }),
  );
});

test("each trouble is named where it is, and in the first sentence", async () => {
  await withMock({ scenario: "faults" }, (mock) =>
    visit(mock, "/", {}, async (page) => {
      await ready(page);
      assert.equal(await textOf(page, "#verdict"), "3 of 4\u00a0appliances need a look");
      const concerns = await page.locator(".concern").allInnerTexts();
      assert.deepEqual(concerns.map((text) => text.replace(/\s/g, " ")), [
        "a1: drive /d/1 set aside",
        "a2: silent for 14 s",
        "a4: never seen",
      ]);
      assert.match(await textOf(page, "#appliance-a1 .drives"), /set aside: read did not finish/);
      assert.match(await textOf(page, "#appliance-a2 .figures"), /–/);
      assert.match(await textOf(page, "#appliance-a4"), /Its configuration must name this control/);
      assert.equal(await page.locator(".row.error").count(), 3);
    }),
  );
});

test("what routers announce is there where a site hears it, with what is wrong", async () => {
  await withMock({ scenario: "routes" }, (mock) =>
    visit(mock, "/", {}, async (page) => {
      await ready(page);
      assert.equal(await textOf(page, "#verdict"), "1 of 2\u00a0sites needs a look");
      const concern = await textOf(page, ".concern");
      assert.equal(concern, "site s1: its appliances hear different routes");
      assert.match(await textOf(page, "#site-s1 .site-facts"), /^embedded · .*52,431.* by BGP$/);
      await page.locator("#routes-panel:visible").waitFor();
      const rows = await page.locator(".row.route").allInnerTexts();
      assert.match(rows[0], /a2: session isp_a is Active, Socket: Connection refused/);
      assert.match(rows[1], /Left out: 1 too long \(21\.1\.1\.0\/25 of isp_b\), 2 default/);
    }),
  );
  await withMock({}, (mock) =>
    visit(mock, "/", {}, async (page) => {
      await ready(page);
      await wait(1_500);
      assert.equal(await page.locator("#routes-panel:visible").count(), 0, "nobody hears any");
    }),
  );
});

test("many errors are cut to the latest, and shown when asked for", async () => {
  await withMock({ scenario: "large" }, (mock) =>
    visit(mock, "/", {}, async (page) => {
      await ready(page);
      assert.equal(await page.locator(".row.error").count(), 6);
      await page.getByRole("button", { name: "Show all 11" }).click();
      assert.equal(await page.locator(".row.error").count(), 11);
      await wait(1_500);
      assert.equal(await page.locator(".row.error").count(), 11, "still after the next answer");
    }),
  );
});

test("2,000 appliances are a map and a list of sites, drawn without a long stop", async () => {
  await withMock({ scenario: "huge" }, (mock) =>
    visit(mock, "/", {}, async (page) => {
      const sizes = [];
      page.on("response", async (response) => {
        if (response.url().includes("/v1/fleet?")) sizes.push((await response.body()).length);
      });
      await ready(page);
      const verdict = await textOf(page, "#verdict");
      assert.match(verdict, /^8 of 2,000\sappliances need a look/);
      assert.equal(await page.locator(".card").count(), 0);
      assert.equal(await page.locator(".sites-table tbody tr").count(), 20);
      const said = await page.locator(".map svg").getAttribute("aria-label");
      assert.match(said.replaceAll("\u00a0", " "), /^A map of 393 of 400 sites, 8 of which need/);
      // Each answer is drawn in one turn of the page; a long one is told as a long task.
      const longest = await page.evaluate(async () => {
        let most = 0;
        new PerformanceObserver((list) => {
          for (const { duration } of list.getEntries()) most = Math.max(most, duration);
        }).observe({ type: "longtask" });
        await new Promise((resolve) => setTimeout(resolve, 5_000));
        return most;
      });
      assert.ok(longest < 200, `${longest} ms to draw an answer`);
      assert.ok(sizes.length >= 3 && Math.max(...sizes) < 400_000, `${sizes} bytes`);
    }),
  );
});

test("a site is found and opened by keyboard, and has its own page", async () => {
  await withMock({ scenario: "huge" }, (mock) =>
    visit(mock, "/", {}, async (page) => {
      await ready(page);
      await page.locator("#site-search").focus();
      await page.keyboard.type("jp-03-4");
      const rows = page.locator(".sites-table tbody tr");
      await until("one row", 5_000, async () => (await rows.count()) === 1);
      assert.match(await textOf(page, ".overview-said"), /^1 of 400\ssites$/);
      await page.keyboard.press("Tab");
      await page.keyboard.press("Enter");
      await page.waitForURL(/\?site=jp-03$/);
      await page.locator("#verdict:has-text('jp-03: All 5 appliances are healthy')").waitFor();
      assert.equal(await page.locator(".card").count(), 5);
      await page.locator(".day-words:has-text('at the worst 4 of 5')").waitFor();
      assert.equal(await page.locator(".row.held").count(), 2);
      await page.locator("#routes-panel:visible .row.route").waitFor();
      assert.equal(await page.locator("#routes .row.route").count(), 1);
      await page.getByRole("button", { name: "Day" }).click();
      await page.locator(".gauge-span:has-text('1 d')").first().waitFor();
      for (const size of [LAPTOP, PHONE]) {
        await page.setViewportSize(size);
        await page.emulateMedia({ reducedMotion: "reduce" });
        await assertFits(page, size.width);
        await assertAccessible(page);
      }
      await page.getByRole("link", { name: "All sites" }).click();
      await page.locator(".sites-table").waitFor();
    }),
  );
});

test("a site that nobody registered is said so, and is no outage", async () => {
  await withMock({}, (mock) =>
    visit(mock, "/?site=gone", {}, async (page) => {
      await page.locator("#verdict:has-text('There is no site named gone')").waitFor();
      // Longer than control may be silent.
      await wait(4_500);
      assert.equal(await page.locator("#outage:visible").count(), 0);
      assert.equal(await textOf(page, "#freshness"), "live");
      for (const part of ["#fleet", "#gauges", "#welcome"]) {
        assert.equal(await page.locator(`${part}:visible`).count(), 0, part);
      }
      await assertAccessible(page);
      await page.getByRole("link", { name: "All sites" }).click();
      await page.locator("#verdict:has-text('All 3 appliances are healthy')").waitFor();
    }),
  );
});

test("a link to an appliance leads to its card, which is not there at first", async () => {
  await withMock({ scenario: "large" }, (mock) =>
    visit(mock, "/?site=site-03#appliance-site3-8", { viewport: PHONE }, async (page) => {
      const here = () => page.evaluate(() => document.activeElement?.id);
      await until("the card has the focus", 5_000, async () => {
        return (await here()) === "appliance-site3-8";
      });
      const { y } = await page.locator("#appliance-site3-8").boundingBox();
      assert.ok(y >= 0 && y < PHONE.height, `${y}`);
      await page.evaluate(() => scrollTo(0, 0));
      await wait(1_500);
      assert.equal(await page.evaluate(() => scrollY), 0, "it goes there once");
    }),
  );
});

test("a spot of several sites leaves their cards, and gives the others back", async () => {
  await withMock({ scenario: "large" }, (mock) =>
    withPage({ viewport: LAPTOP }, async (page) => {
      await page.route("**/v1/fleet?*", async (route) => {
        const response = await route.fetch();
        const fleet = await response.json();
        for (const site of fleet.sites.slice(0, 2)) site.place = "52.5,13.4 DE DE-BE Berlin";
        await route.fulfill({ response, json: fleet });
      });
      await page.goto(mock.url);
      await ready(page);
      const shown = () => page.locator("section.site").count();
      assert.equal(await shown(), 12);
      await page.locator(".map-spot").click();
      await until("two sites", 500, async () => (await shown()) === 2);
      assert.equal(new URL(page.url()).search, "", "it is the same page");
      await wait(1_500);
      assert.equal(await shown(), 2, "still after the next answer");
      await page.getByRole("button", { name: "Show sites of the whole map" }).click();
      await until("all sites", 500, async () => (await shown()) === 12);
    }),
  );
});

test("a row that is focused keeps the focus when it moves up", async () => {
  await withMock({ scenario: "huge" }, (mock) =>
    withPage({ viewport: LAPTOP }, async (page) => {
      await page.goto(mock.url);
      await ready(page);
      const link = page.locator(".sites-table tbody a").nth(3);
      const name = await link.innerText();
      await page.route("**/v1/fleet?*", async (route) => {
        const response = await route.fetch();
        const fleet = await response.json();
        const { summary } = fleet.sites.find(({ id }) => id === name);
        summary.egress_bits_per_second = 1e15;
        await route.fulfill({ response, json: fleet });
      });
      await link.focus();
      await until("it is the first", 5_000, async () => {
        return (await textOf(page, ".sites-table tbody a")) === name;
      });
      assert.equal(await page.evaluate(() => document.activeElement.textContent), name);
    }),
  );
});

test("a page in the background asks seldom, and at once when it is looked at", async () => {
  await withMock({ scenario: "huge" }, (mock) =>
    visit(mock, "/?site=de-01", {}, async (page) => {
      await page.addInitScript(() => {
        window.inBackground = true;
        Object.defineProperty(document, "hidden", { get: () => window.inBackground });
      });
      await page.reload();
      // All is there before somebody looks.
      await page.locator(".day-words:has-text('at the worst')").waitFor({ timeout: 15_000 });
      await page.locator(".card").first().waitFor();
      let asked = 0;
      page.on("request", (request) => (asked += request.url().includes("/v1/fleet?") ? 1 : 0));
      await wait(3_000);
      assert.ok(asked <= 1, `${asked} in the background`);
      asked = 0;
      await page.evaluate(() => {
        window.inBackground = false;
        document.dispatchEvent(new Event("visibilitychange"));
      });
      await until("control is asked", 500, () => asked === 1);
    }),
  );
});

test("a site's page has its own routes, and what others served its clients", async () => {
  await withMock({ scenario: "huge" }, (mock) =>
    visit(mock, "/?site=de-01", {}, async (page) => {
      const asked = [];
      page.on("request", (request) => asked.push(new URL(request.url())));
      await ready(page);
      await page.locator("#routes .row.route").waitFor();
      const rows = await page.locator("#routes .row.route").allInnerTexts();
      assert.equal(rows.length, 1);
      assert.match(rows[0], /^de-01\s+exchange · 1,000\sprefixes · 5 of 5\ssessions up/);
      const sheds = await page.locator("#sheds .row").allInnerTexts();
      assert.match(sheds[0], /^de-01\s+341\sGB for content, 77\.0\sGB for health · 4\.4\s%/);
      assert.match(sheds[1], /^film-2026-11-20-9f3c2a\s+205\sGB for content$/);
      await wait(10_500);
      const routes = asked.filter(({ pathname }) => pathname === "/v1/routes");
      assert.ok(routes.length > 0 && routes.every(({ search }) => search === "?site=de-01"));
    }),
  );
});

test("a large fleet names sites that others serve, or that have no second way", async () => {
  await withMock({ scenario: "huge" }, (mock) =>
    visit(mock, "/", {}, async (page) => {
      await ready(page);
      await page.locator("#sheds .row").first().waitFor();
      assert.equal(await page.locator("#sheds .row a").count(), 5);
      const alone = await page.locator("#routes-panel .row").allInnerTexts();
      assert.equal(alone.length, 5);
      assert.match(alone[0], /1,137\sprefixes have no second way$/);
      const rest = "and 882\u00a0prefixes of 4\u00a0more sites";
      assert.equal(await textOf(page, "#routes-panel > .nothing"), rest);
    }),
  );
});

test("the player page asks for all of a large fleet once a minute", async () => {
  await withMock({ scenario: "huge" }, (mock) =>
    visit(mock, "/play", {}, async (page) => {
      const asked = [];
      page.on("request", (request) => {
        const { pathname, search } = new URL(request.url());
        if (pathname === "/v1/fleet") asked.push(search);
      });
      await wait(4_000);
      assert.equal(asked.filter((query) => query === "").length, 1, `${asked}`);
      assert.ok(asked.filter((query) => query === "?appliances_max=100").length >= 2, `${asked}`);
    }),
  );
});

test("an empty fleet says what to do next", async () => {
  await withMock({ scenario: "empty" }, (mock) =>
    visit(mock, "/", {}, async (page) => {
      await ready(page);
      assert.equal(await textOf(page, "#verdict"), "No appliances yet");
      const welcome = await textOf(page, "#welcome");
      assert.match(welcome, /nearcast-appliance format/);
      assert.match(welcome, /Authorization: Bearer/);
      assert.match(welcome, /nearcast appliance enrol a1 \| nearcast-appliance enrol/);
      assert.ok(welcome.includes(`NEARCAST_CONTROL=${mock.url}`));
      assert.equal(await page.locator("#gauges:visible").count(), 0);
    }),
  );
});

test("a silent control is said so, what was known stays, and its return is seen", async () => {
  await withPage({ viewport: PHONE }, async (page) => {
    let port = 0;
    await withMock({}, async (mock) => {
      port = Number(new URL(mock.url).port);
      await page.goto(mock.url);
      await ready(page);
      assert.equal(await page.locator("#outage:visible").count(), 0);
      const before = await page.locator("#sites").boundingBox();
      await mock.close();
      await page.locator("#outage:visible").waitFor({ timeout: 10_000 });
      assert.match(await textOf(page, "#outage"), /Control does not answer/);
      assert.match(await textOf(page, "#verdict-detail"), /^as it was \d+\ss ago$/);
      assert.equal(await textOf(page, "#appliance-a1 .figure dd"), "–", "no rate is known now");
      assert.deepEqual(await page.locator("#sites").boundingBox(), before, "nothing jumped");
    }).catch((error) => {
      // The pretend control was closed above; a second time is refused.
      if (error.code !== "ERR_SERVER_NOT_RUNNING") throw error;
    });
    await withMock({ port }, async () => {
      await page.locator("#outage").waitFor({ state: "hidden", timeout: 10_000 });
      assert.equal(await textOf(page, "#verdict"), "All 3 appliances are healthy");
    });
  });
});

test("a lively page does not jump, and keeps the focus", async () => {
  await withMock({ controls: true }, (mock) =>
    visit(mock, "/", {}, async (page) => {
      await ready(page);
      await wait(500);
      const boxes = () =>
        page.evaluate(() =>
          [...document.querySelectorAll(".gauge, .card, .panel, .button")].map((element) => {
            const { x, y, width, height } = element.getBoundingClientRect();
            return [x, y, width, height].join(" ");
          }),
        );
      await page.getByRole("button", { name: "Restore a2" }).focus();
      const before = await boxes();
      await wait(4_000);
      assert.deepEqual(await boxes(), before);
      const focus = await page.evaluate(() => document.activeElement.getAttribute("aria-label"));
      assert.equal(focus, "Restore a2");
    }),
  );
});

for (const player of PLAYERS) {
  test(`player, ${player}: plays, and a kill from the page moves it to another`, async () => {
    await withMock({ film: film() }, (mock) =>
      visit(mock, `/play?asset=film&player=${player}&buffer=8`, {}, async (page) => {
        const state = () => page.evaluate(() => window.nearcast.state());
        const metrics = () => page.evaluate(() => window.nearcast.metrics());
        await until("three seconds played", 15_000, async () => (await metrics()).played_s > 3);
        assert.equal((await state()).serving.video, "a1");
        assert.equal(await textOf(page, "#served-name"), "a1");
        await page.getByRole("button", { name: "Kill a1" }).click();
        await until("a2 serves", 20_000, async () => (await state()).serving.video === "a2");
        const { moves, trouble } = await state();
        assert.equal(moves, 1);
        assert.equal(trouble, null);
        const { stalls, bytes_by_appliance: sums, requests } = await metrics();
        assert.equal(stalls, 0);
        assert.ok(sums.a1 > 0 && sums.a2 > 0);
        assert.ok(requests.some(({ kind, range }) => kind === "video" && /^bytes=/.test(range)));
        assert.ok(!JSON.stringify(requests).includes("pretend-token"), "no token in the log");
        await page.getByRole("button", { name: "Restore a1" }).click();
        await page.locator("#sources > :first-child[data-state=healthy]").waitFor();
        const label = () => page.locator(".strip-frame").getAttribute("aria-label");
        const both = /^Video from a1 0:00 to \d:\d\d, a2 /;
        await until("the strip to show both", 2_000, async () => both.test(await label()));
      }),
    );
  });
}

for (const player of PLAYERS) {
  test(`player, ${player}: paused for longer than its media URLs are good, plays on`, async () => {
    await withMock({ film: film(), tokenLivesS: [4] }, (mock) =>
      visit(mock, `/play?asset=film&player=${player}&buffer=6`, {}, async (page) => {
        const state = () => page.evaluate(() => window.nearcast.state());
        const metrics = () => page.evaluate(() => window.nearcast.metrics());
        await until("a second played", 15_000, async () => (await metrics()).played_s > 1);
        await page.evaluate(() => document.querySelector("video").pause());
        const { current_time: paused, buffer_s: ahead } = await metrics();
        await wait(5_000);
        assert.equal((await state()).paused, true, "it does not go on by itself");
        await page.evaluate(() => document.querySelector("video").play());
        const far = paused + ahead + 6;
        await until("past what it had", 25_000, async () => (await metrics()).current_time > far);
        const { renewals, trouble } = await state();
        assert.equal(renewals, 1);
        assert.equal(trouble, null);
        const { played_s: played, current_time: now, requests } = await metrics();
        assert.ok(Math.abs(now - played) < 1.5, `nothing was left out: ${now} s, ${played} played`);
        assert.ok(requests.some(({ status }) => status === 403), "it was refused");
        assert.match(await textOf(page, "#events"), /this playback's time was over/);
      }),
    );
  });
}

/** How control answers when it is asked for the next playback, before it gives one. */
const RENEWALS = {
  "is busy first": (route) => route.fulfill({ status: 503, json: { detail: "busy" } }),
  "closes the connection first": (route) => route.abort(),
  "does not answer first": () => {},
};

for (const [how, answer] of Object.entries(RENEWALS)) {
  test(`the player page goes on when its time is over and control ${how}`, async () => {
    await withMock({ film: film(), tokenLivesS: [4] }, (mock) =>
      visit(mock, "/play?asset=film&player=hls&buffer=12", {}, async (page) => {
        const state = () => page.evaluate(() => window.nearcast.state());
        const played = () => page.evaluate(() => window.nearcast.metrics().played_s);
        await until("a second played", 15_000, async () => (await played()) > 1);
        let asked = 0;
        await page.route("**/v1/playbacks", (route) => {
          asked += 1;
          return asked === 1 ? answer(route) : route.continue();
        });
        await until("control to be asked", 20_000, () => asked > 0);
        const before = await played();
        await until("it to play what it has", 5_000, async () => (await played()) > before + 1);
        await until("control to be asked again", 15_000, () => asked > 1);
        const far = (await played()) + 12 + 4;
        await until("past what it had", 30_000, async () => (await played()) > far);
        const { renewals, trouble } = await state();
        assert.deepEqual([renewals, trouble, asked], [1, null, 2]);
      }),
    );
  });
}

test("a playback that is refused at once is said so, and not asked for for ever", async () => {
  await withMock({ film: film(), grantsOver: 100 }, (mock) =>
    visit(mock, "/play?asset=film", {}, async (page) => {
      await page.locator("#trouble:visible").waitFor({ timeout: 10_000 });
      assert.match(await textOf(page, "#trouble"), /This film is refused/);
      assert.ok(mock.state.grants.given.size <= 2, `${mock.state.grants.given.size} playbacks`);
    }),
  );
});

for (const [size, scheme] of [[LAPTOP, "dark"], [PHONE, "light"]]) {
  test(`player, ${size.width} px, ${scheme}: fits and is accessible`, async () => {
    await withMock({ film: film() }, (mock) =>
      visit(mock, "/play", { viewport: size, colorScheme: scheme }, async (page) => {
        const played = () => page.evaluate(() => window.nearcast.metrics().played_s);
        await until("the first asset to play by itself", 15_000, async () => (await played()) > 1);
        await assertFits(page, size.width);
        await assertAccessible(page);
      }),
    );
  });
}

test("an asset that control does not know is said so", async () => {
  await withMock({ film: film() }, (mock) =>
    visit(mock, "/play?asset=nothing", {}, async (page) => {
      await page.locator("#trouble:visible").waitFor({ timeout: 10_000 });
      assert.match(await textOf(page, "#trouble"), /Control knows no asset named nothing/);
    }),
  );
});

test("a browser that does not trust the certificates is offered plain HTTP", async () => {
  const { certificate } = await import("./support.mjs");
  const tls = certificate();
  try {
    await withMock({ film: film(), tls }, (mock) =>
      visit(mock, "/play?asset=film&buffer=12", {}, async (page) => {
        await page.locator("#trouble:visible").waitFor({ timeout: 15_000 });
        const link = page.getByRole("link", { name: "Play over plain HTTP" });
        await link.waitFor({ timeout: 15_000 });
        assert.match(await link.getAttribute("href"), /asset=film.*plain=1.*buffer=12/);
      }),
    );
  } finally {
    tls.remove();
  }
});
