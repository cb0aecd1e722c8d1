/**
 * Presents a delegation with the messages of the official MCP client.
 *
 * @packageDocumentation
 */

import { StreamableHTTPClientTransport, type StreamableHTTPClientTransportOptions } from "@modelcontextprotocol/client";

import { Denied } from "./errors.js";
import { delegatedFetch } from "./fetch.js";
import type { Credential, Service } from "./service.js";

/**
 * A transport for `client.connect`, whose messages present the credential. `options` are the transport's own.
 *
 * A call that the delegation does not grant rejects with `Denied` before anything is sent. Versions
 * with sessions open a stream with `GET`. If the service's rule does not allow it, the client gets the denial as a
 * response, and works without the stream.
 */
export function delegatedTransport(
  url: URL,
  service: Service,
  credential: Credential,
  options: StreamableHTTPClientTransportOptions = {},
): StreamableHTTPClientTransport {
  const send = delegatedFetch(service, credential, { fetch: (options.fetch ?? fetch) as typeof fetch });
  return new StreamableHTTPClientTransport(url, {
    ...options,
    fetch: async (input, init) => {
      try {
        return await send(input, init);
      } catch (error) {
        if (error instanceof Denied && init?.method !== "POST") return answer(error);
        throw error;
      }
    },
  });
}

/** The denial as the service's filter would send it. */
function answer(denied: Denied): Response {
  return new Response(denied.body, { status: denied.status, headers: denied.headers.map(([...pair]) => pair) });
}
