// What a client with access tokens sees. The environment names the issuer, the endpoint and a key.

import assert from 'node:assert/strict';

import { Client, ClientCredentialsProvider, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const { OAUTH_ISSUER: issuer, OAUTH_RESOURCE: resource, RAGLAN_KEY: key } = process.env;
const secretOf = (clientId) => `${clientId}-secret-of-a-test`;

// The token endpoint's answer, asked as any HTTP client would.
async function tokenOf(clientId, parameters) {
  const metadata = await (await fetch(`${issuer}/.well-known/openid-configuration`)).json();
  const answer = await fetch(metadata.token_endpoint, {
    method: 'POST',
    headers: { authorization: `Basic ${btoa(`${clientId}:${secretOf(clientId)}`)}` },
    body: new URLSearchParams({ grant_type: 'client_credentials', ...parameters }),
  });
  const { access_token: token, ...rest } = await answer.json();
  assert.ok(token, JSON.stringify(rest));
  return token;
}

async function call(token, method = 'tools/list', params = {}) {
  const answer = await fetch(resource, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...(token && { authorization: `Bearer ${token}` }),
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
  });
  return { status: answer.status, headers: answer.headers, body: await answer.json() };
}

const toolsOf = ({ body }) => body.result.tools.map((tool) => tool.name).sort();
const ALL = ['ask', 'get_knowledge_base', 'get_task', 'list_documents', 'list_knowledge_bases', 'retrieve'];

const checks = {
  async 'a TypeScript client finds the issuer, gets a token and works'() {
    const authProvider = new ClientCredentialsProvider({ clientId: 'agent', clientSecret: secretOf('agent'), scope: 'raglan', expectedIssuer: issuer });
    const transport = new StreamableHTTPClientTransport(new URL(resource), { authProvider });
    const client = new Client({ name: 'raglan-oauth', version: '1' }, { versionNegotiation: { mode: 'auto' } });
    await client.connect(transport);
    const { tools } = await client.listTools();
    assert.deepEqual(tools.map((tool) => tool.name).sort(), ALL);
    const found = await client.callTool({ name: 'retrieve', arguments: { query: 'annual leave' } });
    assert.ok(found.structuredContent.items.length > 0);
    await client.close();
  },
  async 'without a token: 401 that leads to the metadata of this server'() {
    const { status, headers, body } = await call(undefined);
    assert.equal(status, 401);
    assert.equal(body.www_authenticate, headers.get('www-authenticate'));
    const [, url] = /resource_metadata="([^"]+)"/.exec(headers.get('www-authenticate'));
    const metadata = await (await fetch(url)).json();
    assert.deepEqual([metadata.resource, metadata.authorization_servers], [resource, [issuer]]);
  },
  async 'a token for this server: 200, with all that was granted'() {
    const answer = await call(await tokenOf('agent', { resource, scope: 'raglan' }));
    assert.equal(answer.status, 200);
    assert.deepEqual(toolsOf(answer), ALL);
  },
  async 'the scope raglan:retrieve leaves retrieve'() {
    const token = await tokenOf('agent', { resource, scope: 'raglan:retrieve' });
    assert.deepEqual(toolsOf(await call(token)), ['retrieve']);
    const refused = await call(token, 'tools/call', { name: 'ask', arguments: { question: 'leave?' } });
    assert.equal(refused.body.error.code, -32001);
  },
  async 'a subject with less gets less, whatever its scope'() {
    const token = await tokenOf('reader', { resource, scope: 'raglan', expectedIssuer: issuer });
    assert.deepEqual(toolsOf(await call(token)), ['retrieve']);
  },
  async 'a token for another server: 401'() {
    const token = await tokenOf('agent', { resource: 'https://other.example/mcp', scope: 'raglan', expectedIssuer: issuer });
    assert.equal((await call(token)).status, 401);
  },
  async 'a token without our scope: 403 that names it'() {
    const { status, headers } = await call(await tokenOf('agent', { resource, scope: 'other' }));
    assert.equal(status, 403);
    assert.match(headers.get('www-authenticate'), /error="insufficient_scope".*scope="raglan"/);
  },
  async 'a subject without a grant: the same 401 as with no token'() {
    const token = await tokenOf('stranger', { resource, scope: 'raglan', expectedIssuer: issuer });
    const [refused, nothing] = [await call(token), await call(undefined)];
    assert.equal(refused.status, 401);
    assert.deepEqual({ ...refused.body, request_id: '' }, { ...nothing.body, request_id: '' });
  },
  async 'a changed token: 401'() {
    const [header, , signature] = (await tokenOf('reader', { resource, scope: 'raglan' })).split('.');
    const claims = { iss: issuer, aud: resource, sub: 'agent', scope: 'raglan', exp: Date.now() };
    const forged = Buffer.from(JSON.stringify(claims)).toString('base64url');
    assert.equal((await call([header, forged, signature].join('.'))).status, 401);
  },
  async 'an opaque token: 401'() {
    assert.equal((await call(await tokenOf('agent', {}))).status, 401);
  },
  async 'a key works beside tokens'() {
    assert.deepEqual(toolsOf(await call(key)), ALL);
  },
};

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
console.log(`oauth: ${Object.keys(checks).length - failed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
