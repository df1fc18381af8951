// Driver for @modelcontextprotocol/sdk, version 1.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

import { main } from './sessions.mjs';

// The oldest versions do not tell which revision was agreed; the answer to `initialize` does.
function rememberingVersion(transport) {
  const agreed = {};
  const start = transport.start.bind(transport);
  transport.start = async () => {
    const deliver = transport.onmessage;
    transport.onmessage = (message, extra) => {
      agreed.protocolVersion ??= message?.result?.protocolVersion;
      deliver(message, extra);
    };
    return start();
  };
  return agreed;
}

await main(async ({ url, key }) => {
  const headers = { Authorization: `Bearer ${key}` };
  const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
  const agreed = rememberingVersion(transport);
  const client = new Client({ name: 'raglan-client-matrix', version: '1' });
  await client.connect(transport);
  return { client, protocolVersion: agreed.protocolVersion };
});
