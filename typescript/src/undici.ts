/**
 * Presents a delegation with the requests of undici.
 *
 * @packageDocumentation
 */

import { stringify } from "node:querystring";

import type { Dispatcher } from "undici";

import { joined, MAX_BODY_BYTES } from "./body.js";
import { InvalidInputError } from "./errors.js";
import { type Credential, refuseCredentials, type Service } from "./service.js";

type Handler = Dispatcher.DispatchHandler;

/** Bytes can be sent again, anything else cannot. */
type Body = Uint8Array | AsyncIterable<Uint8Array | string> | null;

/**
 * An interceptor for one service and one credential: `new Agent().compose(delegationInterceptor(…))`.
 *
 * - A request to the service's origin gets the credential, and a new proof where the rule asks for one. If the service
 *   would deny it, it fails with `Denied` before anything is sent. `fetch` wraps that: see the error's `cause`.
 * - A request to another origin is sent without a credential.
 * - A denial with a nonce is retried once with a new proof, unless the body is a stream that no rule reads.
 *
 * To follow redirects, compose undici's `redirect` interceptor after this one, or use undici's `fetch`: then each of the
 * requests passes here. A redirect interceptor composed before this one is turned off for the service's requests.
 * Upgrades are refused.
 */
export function delegationInterceptor(
  service: Service,
  credential: Credential,
): Dispatcher.DispatcherComposeInterceptor {
  return (dispatch) => (options, handler) => {
    const exchange = new Exchange(service, credential, dispatch, options, handler);
    exchange.start().catch((error: unknown) => {
      exchange.fail(error);
    });
    return true;
  };
}

/** One request and its answer. */
class Exchange {
  readonly #service: Service;
  readonly #credential: Credential;
  readonly #dispatch: Dispatcher.Dispatch;
  readonly #options: Dispatcher.DispatchOptions;
  readonly #handler: Handler;

  constructor(
    service: Service,
    credential: Credential,
    dispatch: Dispatcher.Dispatch,
    options: Dispatcher.DispatchOptions,
    handler: Handler,
  ) {
    this.#service = service;
    this.#credential = credential;
    this.#dispatch = dispatch;
    this.#options = options;
    this.#handler = handler;
  }

  async start(): Promise<void> {
    const url = requestUrl(this.#options);
    const headers = headerList(this.#options.headers);
    refuseCredentials(headers.map(([name]) => name));
    if (!this.#service.isAt(url)) {
      this.#dispatch(this.#options, this.#handler);
      return;
    }
    if (typeof this.#options.upgrade === "string" || this.#options.upgrade === true) {
      throw new InvalidInputError("upgrades cannot present a delegation here; use `Service.authorize`");
    }
    if (headers.some(([name, value]) => name.toLowerCase() === "host" && value !== url.host)) {
      throw new InvalidInputError("the `host` header is not the service's; leave it out");
    }
    await this.#attempt(url, headers, bodyOf(this.#options.body), true);
  }

  /** An error before the request was sent. */
  fail(error: unknown): void {
    const reason = error instanceof Error ? error : new Error(String(error));
    // There is no controller yet: undici's own interceptors pass null too.
    this.#handler.onResponseError?.(null as unknown as Dispatcher.DispatchController, reason);
  }

  async #attempt(url: URL, headers: [string, string][], body: Body, mayRetry: boolean): Promise<void> {
    const readBody = async (): Promise<Uint8Array> => {
      if (body !== null && !(body instanceof Uint8Array)) body = await collected(body);
      return body ?? new Uint8Array();
    };
    const { method } = this.#options;
    const own = headers.filter(([name]) => name.toLowerCase() !== "host");
    const outgoing = { method, url, headers: own, hasBody: body !== null, readBody };
    const authorization = await this.#service.authorize(outgoing, this.#credential);
    const set = authorization.headers.map(([name]) => name);
    const kept = headers.filter(([name]) => !set.includes(name.toLowerCase()));
    const options: Dispatcher.DispatchOptions & { maxRedirections: number } = {
      ...this.#options,
      path: url.pathname + url.search,
      headers: [...kept, ...authorization.headers].flat(),
      // Read already, or as it was given.
      body: body instanceof Uint8Array ? body : (this.#options.body ?? null),
      // A redirect would carry the credential elsewhere.
      maxRedirections: 0,
    };
    // It is in the path now.
    delete options.query;
    const canRepeat = mayRetry && authorization.isProven && (body === null || body instanceof Uint8Array);
    const repeat = (): void => {
      this.#attempt(url, headers, body, false).catch((error: unknown) => {
        this.fail(error);
      });
    };
    const answered = new AnswerHandler(this.#service, this.#handler, canRepeat ? repeat : undefined);
    this.#dispatch(options, answered);
  }
}

/** Passes an answer on, unless it is a denial with a nonce and the request can be repeated. */
class AnswerHandler implements Handler {
  readonly #service: Service;
  readonly #handler: Handler;
  readonly #repeat: (() => void) | undefined;
  #isDropped = false;

  constructor(service: Service, handler: Handler, repeat: (() => void) | undefined) {
    this.#service = service;
    this.#handler = handler;
    this.#repeat = repeat;
  }

  onRequestStart: NonNullable<Handler["onRequestStart"]> = (...given) => this.#handler.onRequestStart?.(...given);

  onRequestUpgrade: NonNullable<Handler["onRequestUpgrade"]> = (...given) => this.#handler.onRequestUpgrade?.(...given);

  onResponseStart: NonNullable<Handler["onResponseStart"]> = (controller, status, headers, message) => {
    const hasNonce = this.#service.learnNonce(status, (name) => [headers[name]].flat()[0]);
    this.#isDropped = hasNonce && this.#repeat !== undefined;
    if (!this.#isDropped) this.#handler.onResponseStart?.(controller, status, headers, message);
  };

  onResponseData: NonNullable<Handler["onResponseData"]> = (...given) => {
    if (!this.#isDropped) this.#handler.onResponseData?.(...given);
  };

  onResponseEnd: NonNullable<Handler["onResponseEnd"]> = (...given) => {
    if (this.#isDropped) this.#repeat?.();
    else this.#handler.onResponseEnd?.(...given);
  };

  onResponseError: NonNullable<Handler["onResponseError"]> = (...given) => this.#handler.onResponseError?.(...given);
}

function requestUrl({ origin, path, query }: Dispatcher.DispatchOptions): URL {
  if (origin === undefined) throw new InvalidInputError("the request has no origin; compose an `Agent`");
  if (!path.startsWith("/")) throw new InvalidInputError("the request's path must begin with `/`");
  const search = query === undefined ? "" : stringify(query);
  const target = search === "" ? path : `${path}?${search}`;
  // Not resolved against the origin, which `//host` would replace.
  const url = new URL(new URL(origin).origin + target);
  if (url.pathname + url.search !== target) {
    throw new InvalidInputError(
      "the request's path is not in the form that URLs have; pass it as `new URL(…)` writes it",
    );
  }
  return url;
}

function headerList(headers: Dispatcher.DispatchOptions["headers"]): [string, string][] {
  if (headers === null || headers === undefined) return [];
  const list: [string, string][] = [];
  const add = (name: string, value: string | string[] | undefined): void => {
    for (const one of [value ?? []].flat()) list.push([name, one]);
  };
  if (Array.isArray(headers) && typeof headers[0] === "string") {
    const flat = headers;
    for (let at = 0; at + 1 < flat.length; at += 2) add(flat[at] ?? "", flat[at + 1]);
  } else if (Symbol.iterator in headers) {
    for (const [name, value] of headers as Iterable<[string, string | string[] | undefined]>) add(name, value);
  } else {
    for (const [name, value] of Object.entries(headers)) add(name, value);
  }
  return list;
}

function bodyOf(body: unknown): Body {
  if (body === null || body === undefined || body === "") return null;
  if (typeof body === "string") return new TextEncoder().encode(body);
  if (body instanceof Uint8Array) return body.length === 0 ? null : body;
  return body as AsyncIterable<Uint8Array | string>;
}

async function collected(body: AsyncIterable<Uint8Array | string>): Promise<Uint8Array> {
  if (!(Symbol.asyncIterator in body)) {
    throw new InvalidInputError("a rule reads the body; pass it as a string, bytes or a stream");
  }
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body) {
    const bytes = typeof chunk === "string" ? new TextEncoder().encode(chunk) : chunk;
    chunks.push(bytes);
    length += bytes.length;
    if (length > MAX_BODY_BYTES) break;
  }
  return joined(chunks, length);
}
