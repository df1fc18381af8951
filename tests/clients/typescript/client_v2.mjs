// Driver for @modelcontextprotocol/client, version 2. The first argument is the mode of negotiation:
// `legacy`, `auto` or a protocol revision to insist on.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

import { main } from './sessions.mjs';

const mode = process.argv[2];
const negotiation = ['legacy', 'auto'].includes(mode) ? mode : { pin: mode };

await main(async ({ url, key }) => {
  const headers = { Authorization: `Bearer ${key}` };
  const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
  const client = new Client(
    { name: 'raglan-client-matrix', version: '1' },
    { versionNegotiation: { mode: negotiation } },
  );
  await client.connect(transport);
  return { client, protocolVersion: client.getNegotiatedProtocolVersion() };
});
