// The clients of both MCP SDKs, with their own OAuth; that of version 2 has DPoP, too.

import {
  Client, ClientCredentialsProvider, DpopSession, InsufficientScopeError, StreamableHTTPClientTransport,
  UnauthorizedError,
} from '@modelcontextprotocol/client';
import { UnauthorizedError as OldUnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { Client as OldClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as OldTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { authorize } from './user.mjs';

/** The SDK's own provider for services, with a DPoP key. */
class ServiceProvider extends ClientCredentialsProvider {
  constructor(options, alg) {
    super(options);
    this.session = DpopSession.create({ alg });
  }

  dpop() {
    return this.session;
  }
}

/** What an application with a user remembers for the SDK. */
export class Remembered {
  session = DpopSession.create();

  dpop() {
    return this.session;
  }

  tokens() {
    return this.saved;
  }

  saveTokens(tokens) {
    this.saved = tokens;
  }

  codeVerifier() {
    return this.verifier;
  }

  saveCodeVerifier(verifier) {
    this.verifier = verifier;
  }

  discoveryState() {
    return this.discovery;
  }

  saveDiscoveryState(state) {
    this.discovery = state;
  }
}

/**
 * It is a registered client: if the SDK registered it, it would do so with the scope of the first challenge, and
 * oidc-provider would refuse the larger one.
 */
class UserProvider extends Remembered {
  scopes = [];

  constructor(redirect, secret) {
    super();
    Object.assign(this, { redirectUrl: redirect, secret });
  }

  get clientMetadata() {
    return { client_name: 'agent', redirect_uris: [this.redirectUrl], token_endpoint_auth_method: 'none' };
  }

  clientInformation() {
    return { client_id: 'agent' };
  }

  async redirectToAuthorization(url) {
    this.scopes.push(url.searchParams.get('scope'));
    this.callback = await authorize(url, this.redirectUrl, this.secret);
  }
}

/** A service that does not ask for a larger scope. Returns what the SDK says that it would need. */
export async function refusedTool({ url, issuer, secret, id, alg }) {
  const provider = new ServiceProvider({ clientId: id, clientSecret: secret, expectedIssuer: issuer }, alg);
  const seen = observe(provider);
  const client = new Client({ name: 'agent', version: '1.0.0' });
  await client.connect(new StreamableHTTPClientTransport(new URL(url), {
    authProvider: provider, fetch: seen.fetch, onInsufficientScope: 'throw',
  }));
  try {
    await client.callTool({ name: 'whoami', arguments: {} });
    return { status: 200 };
  } catch (error) {
    if (!(error instanceof InsufficientScopeError)) throw error;
    return { status: parseInt(seen.answers.at(-1), 10), scope: error.requiredScope };
  } finally {
    await client.close();
  }
}

/** A service without a user. Returns what the tool says, and the scopes of the tokens that it took. */
export async function callAsService({ url, issuer, secret, id, alg }) {
  const provider = new ServiceProvider({ clientId: id, clientSecret: secret, expectedIssuer: issuer }, alg);
  const seen = observe(provider);
  const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: provider, fetch: seen.fetch });
  const client = new Client({ name: 'agent', version: '1.0.0' });
  await client.connect(transport);
  const answer = await client.callTool({ name: 'whoami', arguments: {} });
  await client.close();
  return { caller: JSON.parse(answer.content[0].text), scopes: seen.scopes, answers: seen.answers };
}

/** What an application uses of version 2 of the SDK, and of version 1, which sends bearers. */
export const SDK_2 = {
  Client,
  Transport: StreamableHTTPClientTransport,
  UnauthorizedError,
  finish: (transport, callback) => transport.finishAuth(callback),
};
export const SDK_1 = {
  Client: OldClient,
  Transport: OldTransport,
  UnauthorizedError: OldUnauthorizedError,
  finish: (transport, callback) => transport.finishAuth(callback.get('code')),
};

/** An application with a user, who is asked again for the larger scope. */
export async function callAsUser(sdk, { url, redirect, secret }) {
  const provider = new UserProvider(redirect, secret);
  const seen = observe(provider);
  let transport;
  const connect = async () => {
    transport = new sdk.Transport(new URL(url), { authProvider: provider, fetch: seen.fetch });
    const client = new sdk.Client({ name: 'agent', version: '1.0.0' });
    await client.connect(transport);
    return client;
  };
  /** As the SDK's documentation has it: after the redirect, the application finishes and tries again. */
  const authorized = async (action) => {
    try {
      return await action();
    } catch (error) {
      if (!(error instanceof sdk.UnauthorizedError)) throw error;
      await sdk.finish(transport, provider.callback.searchParams);
      return action();
    }
  };
  const client = await authorized(connect);
  const answer = await authorized(() => client.callTool({ name: 'whoami', arguments: {} }));
  await client.close();
  return { caller: JSON.parse(answer.content[0].text), scopes: provider.scopes, answers: seen.answers };
}

/** Records the answers of the service and the scopes of tokens; changes neither. */
export function observe(provider) {
  const scopes = [];
  const answers = [];
  const save = provider.saveTokens.bind(provider);
  provider.saveTokens = (tokens) => scopes.push(tokens.scope) && save(tokens);
  return {
    scopes,
    answers,
    fetch: async (address, init) => {
      const response = await fetch(address, init);
      const challenge = response.headers.get('www-authenticate') ?? '';
      answers.push(`${response.status} ${challenge.match(/error="([^"]+)"/)?.[1] ?? ''}`.trim());
      return response;
    },
  };
}
