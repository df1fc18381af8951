// Opens the page in Chromium and judges what it saw. driver.mjs BUNDLE; the environment names the rest.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer, request } from 'node:http';

import { chromium } from 'playwright-core';

const { RAGLAN_URL: url, RAGLAN_KEY: key, RAGLAN_SLOW_KEY: slowKey, CHROMIUM, PAGE_PORT } = process.env;
const bundle = readFileSync(process.argv[2]);
const SWITCHES = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--no-proxy-server',
  '--disable-background-networking', '--disable-component-update', '--disable-sync',
];

function servePage(port) {
  const server = createServer((asked, answer) => {
    const isBundle = asked.url === '/bundle.mjs';
    answer.setHeader('content-type', isBundle ? 'text/javascript' : 'text/html');
    answer.end(isBundle ? bundle : '<!doctype html><script type="module" src="/bundle.mjs"></script>');
  });
  return new Promise((ready) => server.listen(port, '127.0.0.1', () => {
    ready({ origin: `http://127.0.0.1:${server.address().port}`, close: () => server.close() });
  }));
}

// Stands in front of raglan, changes nothing and keeps what the browser sent.
function listenIn(passed) {
  const { hostname, port } = new URL(url);
  const server = createServer((asked, answer) => {
    passed.push(asked);
    const { method, url: path, headers } = asked;
    const onwards = request({ hostname, port, method, path, headers }, (reply) => {
      answer.writeHead(reply.statusCode, reply.rawHeaders);
      reply.pipe(answer);
    });
    asked.pipe(onwards);
  });
  return new Promise((ready) => server.listen(0, '127.0.0.1', () => {
    ready({ url: `http://127.0.0.1:${server.address().port}/mcp`, close: () => server.close() });
  }));
}

// The headers as they are on the wire: name and value, repeated ones as well.
function onTheWire(options) {
  return new Promise((resolve, reject) => {
    const sent = request(url, options, (answer) => {
      answer.resume();
      const raw = answer.rawHeaders;
      const values = (name) => raw.filter((_, at) => at % 2 && raw[at - 1].toLowerCase() === name);
      resolve({ status: answer.statusCode, values });
    });
    sent.on('error', reject);
    sent.end(options.body);
  });
}

const post = (authorization) => ({
  method: 'POST',
  headers: {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    ...(authorization && { authorization: `Bearer ${authorization}` }),
  },
  body: JSON.stringify({
    jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'retrieve', arguments: { query: 'leave' } },
  }),
});
// Three parts that look like a token; its issuer does not answer.
const uncheckable = ['{"alg":"ES256","kid":"k"}', '{}', 'x'].map((part) => btoa(part)).join('.').replaceAll('=', '');

const allowed = await servePage(Number(PAGE_PORT));
const other = await servePage(0);
const browser = await chromium.launch({ executablePath: CHROMIUM, headless: true, args: SWITCHES });
const passed = [];
const front = await listenIn(passed);

async function open(origin) {
  const page = await (await browser.newContext()).newPage();
  await page.goto(origin);
  await page.waitForFunction(() => 'look' in globalThis);
  return {
    session: (mode) => page.evaluate((options) => session(options), { url: front.url, key, mode }),
    look: (options, address = front.url) => page.evaluate((all) => look(all), { url: address, ...options }),
  };
}

const page = await open(allowed.origin);
const checks = {};
for (const [mode, revision] of [['legacy', '2025-11-25'], ['auto', '2026-07-28'], [{ pin: '2026-07-28' }, '2026-07-28']]) {
  checks[`the client connects, lists and retrieves (${mode.pin ?? mode})`] = async () => {
    const seen = await page.session(mode);
    assert.equal(seen.revision, revision);
    assert.ok(seen.tools.includes('retrieve') && seen.passages > 0, JSON.stringify(seen));
  };
}
Object.assign(checks, {
  async 'the browser asked first, without a key, and was let in'() {
    const [first, second] = passed;
    assert.deepEqual([first.method, second.method], ['OPTIONS', 'POST']);
    assert.match(first.headers['access-control-request-headers'], /authorization/);
    assert.equal(first.headers.authorization, undefined);
    assert.equal(second.headers.authorization, `Bearer ${key}`);
  },
  async '200: the page reads the headers of the limit'() {
    const seen = await page.look(post(key));
    assert.equal(seen.status, 200);
    assert.ok('ratelimit' in seen.headers && 'ratelimit-policy' in seen.headers, JSON.stringify(seen.headers));
  },
  async '401: the page reads the body and the challenge'() {
    for (const credential of [undefined, 'mk_nobody_has_this_key']) {
      const seen = await page.look(post(credential));
      assert.equal(seen.status, 401, JSON.stringify(seen));
      assert.match(seen.headers['www-authenticate'], /^Bearer .*resource_metadata=/);
      assert.equal(JSON.parse(seen.body).error, 'unauthorized');
    }
  },
  async '429: the page reads when to come back'() {
    await page.look(post(slowKey));
    const seen = await page.look(post(slowKey));
    assert.equal(seen.status, 429, JSON.stringify(seen));
    assert.ok(Number(seen.headers['retry-after']) > 0);
    assert.equal(JSON.parse(seen.body).error, 'rate_limited');
  },
  async '503: the page reads when to come back'() {
    const seen = await page.look(post(uncheckable));
    assert.equal(seen.status, 503, JSON.stringify(seen));
    assert.ok(Number(seen.headers['retry-after']) > 0);
  },
  async 'the metadata for OAuth can be read, with the header that clients add'() {
    const address = new URL('/.well-known/oauth-protected-resource/mcp', url).href;
    const seen = await page.look({ headers: { 'mcp-protocol-version': '2025-11-25' } }, address);
    assert.equal(seen.status, 200, JSON.stringify(seen));
  },
  async 'a key in x-api-key is let through the preflight'() {
    const { headers, ...options } = post();
    const seen = await page.look({ ...options, headers: { ...headers, 'x-api-key': key } });
    assert.equal(seen.status, 200, JSON.stringify(seen));
  },
  async 'each answer allows the origin once: preflight, 200, 401, 429, 503, 405'() {
    const answers = [
      [204, { method: 'OPTIONS', headers: { 'access-control-request-method': 'POST' } }],
      [200, post(key)], [401, post()], [429, post(slowKey)], [503, post(uncheckable)],
      [405, { method: 'GET', headers: {} }],
    ];
    for (const [status, options] of answers) {
      options.headers.origin = allowed.origin;
      const answer = await onTheWire(options);
      assert.equal(answer.status, status);
      assert.deepEqual(answer.values('access-control-allow-origin'), [allowed.origin], `${status}`);
      assert.deepEqual(answer.values('access-control-allow-credentials'), [], `${status}`);
      assert.match(answer.values('vary').join(), /origin/i, `${status}`);
    }
  },
  async 'a page of another origin gets nothing, with or without a key'() {
    const stranger = await open(other.origin);
    const before = passed.length;
    for (const credential of [undefined, key]) {
      const seen = await stranger.look(post(credential));
      assert.match(seen.error ?? '', /Failed to fetch/, JSON.stringify(seen));
    }
    await assert.rejects(stranger.session('auto'));
    // The browser asked, was refused, and sent no call.
    assert.ok(passed.length > before);
    assert.ok(passed.slice(before).every(({ method }) => method === 'OPTIONS'));
    const refused = post(key);
    refused.headers.origin = other.origin;
    const answer = await onTheWire(refused);
    assert.equal(answer.status, 403);
    assert.deepEqual(answer.values('access-control-allow-origin'), []);
  },
});

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`ok      ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${name}\n        ${error.stack ?? error}`);
  }
}
console.log(`browser (Chromium ${browser.version()}): ${Object.keys(checks).length - failed} passed, ${failed} failed`);
await browser.close();
front.close();
allowed.close();
other.close();
process.exit(failed ? 1 : 0);
