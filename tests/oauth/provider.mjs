// An OpenID provider on a loopback port: provider.mjs PORT. Its clients get access tokens with their own
// name as subject, for whichever server they name (RFC 8707), as JWTs with RS256.

import { generateKeyPairSync } from 'node:crypto';

import Provider from 'oidc-provider';

const port = Number(process.argv[2]);
const key = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'jwk' });

const client = (name) => ({
  client_id: name,
  client_secret: `${name}-secret-of-a-test`,
  grant_types: ['client_credentials'],
  redirect_uris: [],
  response_types: [],
});

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: ['agent', 'reader', 'stranger'].map(client),
  scopes: ['raglan', 'raglan:retrieve', 'other'],
  jwks: { keys: [{ ...key, kid: 'k1', use: 'sig', alg: 'RS256' }] },
  features: {
    devInteractions: { enabled: false },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_context, resource) => ({
        scope: 'raglan raglan:retrieve other',
        audience: resource,
        accessTokenTTL: 300,
        accessTokenFormat: 'jwt',
        jwt: { sign: { alg: 'RS256' } },
      }),
    },
  },
});
provider.listen(port, '127.0.0.1');
