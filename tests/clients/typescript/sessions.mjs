// What both TypeScript drivers share: they read sessions from standard input and print one JSON line
// per operation, with the SDK's own result or error. The protocol is described in ../sessions.md.

import { text } from 'node:stream/consumers';

// More than any operation needs; a client that hangs must not hold up the others.
const TIMEOUT_MILLISECONDS = 30_000;

function describe(error) {
  const cause = error?.cause ? ` (${error.cause.message ?? error.cause})` : '';
  return {
    type: error?.constructor?.name ?? typeof error,
    message: `${error?.message ?? error}${cause}`,
    code: typeof error?.code === 'number' ? error.code : null,
  };
}

function withTimeout(work) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error('no answer in time')), TIMEOUT_MILLISECONDS);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

function perform(client, operation) {
  switch (operation.do) {
    case 'list_tools': return client.listTools();
    case 'call_tool': return client.callTool({ name: operation.name, arguments: operation.arguments });
    case 'list_prompts': return client.listPrompts();
    case 'get_prompt': return client.getPrompt({ name: operation.name, arguments: operation.arguments });
    case 'list_resources': return client.listResources();
    case 'read_resource': return client.readResource({ uri: operation.uri });
  }
  throw new Error(operation.do);
}

// `connect` opens a session and returns the client and the revision that was agreed.
export async function main(connect) {
  const sessions = JSON.parse(await text(process.stdin));
  for (const [session, description] of sessions.entries()) {
    const write = (operation, outcome) =>
      console.log(JSON.stringify({ session, do: operation, ...outcome }));
    try {
      const { client, protocolVersion } = await withTimeout(connect(description));
      write('connect', {
        result: {
          protocolVersion,
          capabilities: client.getServerCapabilities(),
          serverInfo: client.getServerVersion(),
        },
      });
      for (const operation of description.operations) {
        try {
          write(operation.do, { result: await withTimeout(perform(client, operation)) });
        } catch (error) {
          write(operation.do, { error: describe(error) });
        }
      }
      await withTimeout(client.close());
      write('disconnect', { result: {} });
    } catch (error) {
      write('session', { error: describe(error) });
    }
  }
  // A client that leaves a timer or a socket behind would keep the process alive.
  process.exit(0);
}
