// What the page does; the driver calls it.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

// One session of the TypeScript client: its revision, the tools, and how much it retrieved.
globalThis.session = async ({ url, key, mode }) => {
  const requestInit = { headers: { Authorization: `Bearer ${key}` } };
  const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit });
  const client = new Client({ name: 'raglan-browser', version: '1' }, { versionNegotiation: { mode } });
  await client.connect(transport);
  const { tools } = await client.listTools();
  const found = await client.callTool({ name: 'retrieve', arguments: { query: 'annual leave' } });
  const revision = client.getNegotiatedProtocolVersion();
  await client.close();
  return {
    revision,
    tools: tools.map((tool) => tool.name),
    passages: found.structuredContent.items.length,
  };
};

// One request, as far as the page may see its answer.
globalThis.look = async ({ url, ...options }) => {
  try {
    const answer = await fetch(url, options);
    return {
      status: answer.status,
      headers: Object.fromEntries(answer.headers),
      body: await answer.text(),
    };
  } catch (error) {
    return { error: String(error) };
  }
};
