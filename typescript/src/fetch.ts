/** A `fetch` that presents a delegation to one service. */

import { joined, MAX_BODY_BYTES, readAtMost } from "./body.js";
import { InvalidInputError } from "./errors.js";
import { type Credential, refuseCredentials, type Service } from "./service.js";

/** How requests are sent. */
export interface DelegatedFetchOptions {
  /** Sends the requests. It must not follow redirects when `redirect` is `"manual"`. Default: the global `fetch`. */
  readonly fetch?: typeof fetch;
}

/** A request to one URL. The next redirect makes another one. */
interface Hop {
  readonly method: string;
  readonly url: URL;
  readonly headers: Headers;
  readonly body: Body;
}

/** Bytes can be sent again, a stream cannot. */
type Body = Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array> | null;

/**
 * A `fetch` for one service and one credential.
 *
 * - A request to the service's origin gets the credential, and a new proof where the rule asks for one. If the service
 *   would deny it, the call rejects with {@link Denied} before anything is sent.
 * - A request to another origin is sent without a credential.
 * - A redirect inside the origin gets a new proof. A redirect to another origin, and everything after it, gets no
 *   credential, `authorization` or `cookie`.
 * - A denial with a nonce is retried once with a new proof, unless the body is a stream, `Blob` or `FormData` that no rule
 *   reads.
 *
 * A body that a rule reads is buffered, up to 1 MiB. The headers `delegation`, `delegation-proof` and `host` are refused.
 */
export function delegatedFetch(
  service: Service,
  credential: Credential,
  options: DelegatedFetchOptions = {},
): typeof fetch {
  return async (input, init) => {
    const request = new Request(input, init);
    refuseCredentials(request.headers.keys());
    if (request.headers.has("host")) throw new InvalidInputError("the request has a `host` header; leave it out");
    const send = async (hop: Hop): Promise<Response> => {
      const { method, headers, body } = hop;
      const duplex = body instanceof ReadableStream ? { duplex: "half" } : {};
      const settings = { ...init, ...duplex, method, headers, body, redirect: "manual", signal: request.signal };
      return (options.fetch ?? fetch)(hop.url.href, settings as RequestInit);
    };
    const first = await firstHop(request, init?.body);
    return follow(service, credential, first, request.redirect, send);
  };
}

/** Sends a request, and those that its redirects ask for (Fetch standard, HTTP-redirect fetch). */
async function follow(
  service: Service,
  credential: Credential,
  first: Hop,
  redirect: RequestRedirect,
  send: (hop: Hop) => Promise<Response>,
): Promise<Response> {
  let hop = first;
  // Once a redirect has left the service, other parties choose the URLs.
  let isTrusted = true;
  for (let redirects = 0; ; redirects += 1) {
    const response =
      isTrusted && service.isAt(hop.url) ? await present(service, credential, hop, send) : await send(hop);
    const location = response.headers.get("location");
    if (location === null || !REDIRECTS.includes(response.status) || redirect === "manual") return response;
    await response.body?.cancel();
    if (redirect === "error") throw new TypeError('the answer is a redirect, and `redirect` is "error"');
    if (redirects >= MAX_REDIRECTS) throw new TypeError(`more than ${String(MAX_REDIRECTS)} redirects`);
    const next = redirected(hop, response.status, location);
    isTrusted &&= next.url.origin === hop.url.origin;
    hop = next;
  }
}

/** Sends a request to the service with its credential, and once more if the service answers with a nonce. */
async function present(
  service: Service,
  credential: Credential,
  hop: Hop,
  send: (hop: Hop) => Promise<Response>,
): Promise<Response> {
  let body = hop.body;
  const readBody = async (): Promise<Uint8Array> => {
    if (body instanceof ReadableStream) body = copied(await readAtMost(body, MAX_BODY_BYTES));
    return body ?? new Uint8Array();
  };
  const attempt = async (): Promise<{ response: Response; isProven: boolean }> => {
    const outgoing = { method: hop.method, url: hop.url, headers: [...hop.headers], hasBody: body !== null, readBody };
    const authorization = await service.authorize(outgoing, credential);
    const headers = new Headers(hop.headers);
    for (const [name, value] of authorization.headers) headers.set(name, value);
    return { response: await send({ ...hop, headers, body }), isProven: authorization.isProven };
  };
  const { response, isProven } = await attempt();
  const hasNonce = service.learnNonce(response.status, (name) => response.headers.get(name));
  if (!hasNonce || !isProven || body instanceof ReadableStream) return response;
  await response.body?.cancel();
  const again = await attempt();
  service.learnNonce(again.response.status, (name) => again.response.headers.get(name));
  return again.response;
}

async function firstHop(request: Request, given: BodyInit | null | undefined): Promise<Hop> {
  const { method, headers } = request;
  // The fragment is not sent.
  const url = new URL(request.url);
  url.hash = "";
  // Bodies in memory are copied, so that they can be sent again.
  const isInMemory =
    typeof given === "string" ||
    given instanceof URLSearchParams ||
    given instanceof ArrayBuffer ||
    ArrayBuffer.isView(given);
  if (!isInMemory) return { method, url, headers, body: request.body };
  const body = new Uint8Array(await request.arrayBuffer());
  return { method, url, headers, body: body.length === 0 ? null : body };
}

function redirected(hop: Hop, status: number, location: string): Hop {
  const url = new URL(location, hop.url);
  url.hash = "";
  if (url.protocol !== "https:" && url.protocol !== "http:")
    throw new TypeError("the redirect is not to http or https");
  if (url.username !== "" || url.password !== "") throw new TypeError("the redirect's URL has a password");
  const headers = new Headers(hop.headers);
  if (url.origin !== hop.url.origin) for (const name of OWN_TO_ORIGIN) headers.delete(name);
  const becomesGet =
    ((status === 301 || status === 302) && hop.method === "POST") ||
    (status === 303 && hop.method !== "GET" && hop.method !== "HEAD");
  if (becomesGet) {
    for (const name of ABOUT_BODY) headers.delete(name);
    return { method: "GET", url, headers, body: null };
  }
  if (hop.body instanceof ReadableStream) throw new TypeError("the redirect needs the body again, which was a stream");
  return { ...hop, url, headers };
}

function copied(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  return joined([bytes], bytes.length) as Uint8Array<ArrayBuffer>;
}

const REDIRECTS = [301, 302, 303, 307, 308];
const MAX_REDIRECTS = 20;
/** Not sent to another origin. */
const OWN_TO_ORIGIN = ["authorization", "proxy-authorization", "cookie"];
const ABOUT_BODY = ["content-encoding", "content-language", "content-location", "content-type", "content-length"];
