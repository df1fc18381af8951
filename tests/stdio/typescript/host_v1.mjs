// Host on @modelcontextprotocol/sdk, version 1.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

import { main } from './sessions.mjs';

await main(async ({ command, environment }) => {
  const [program, ...args] = command;
  const transport = new StdioClientTransport({ command: program, args, env: environment });
  const client = new Client({ name: 'raglan-stdio-host', version: '1' });
  // This version does not tell which revision was agreed; it tells the transport.
  let protocolVersion;
  transport.setProtocolVersion = (version) => { protocolVersion = version; };
  await client.connect(transport);
  return { client, protocolVersion };
});
