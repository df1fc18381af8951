// Host on @modelcontextprotocol/client, version 2. The first argument is the mode of negotiation:
// `legacy`, `auto` or a protocol revision to insist on.

import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

import { main } from './sessions.mjs';

const mode = process.argv[2];
const negotiation = ['legacy', 'auto'].includes(mode) ? mode : { pin: mode };

await main(async ({ command, environment }) => {
  const [program, ...args] = command;
  const transport = new StdioClientTransport({ command: program, args, env: environment });
  const client = new Client(
    { name: 'raglan-stdio-host', version: '1' },
    { versionNegotiation: { mode: negotiation } },
  );
  await client.connect(transport);
  return { client, protocolVersion: client.getNegotiatedProtocolVersion() };
});
