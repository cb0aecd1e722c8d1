/** Fetches the rules that a service publishes. */

import { readAtMost } from "./body.js";
import { RulesError } from "./errors.js";

/** Rules as fetched. */
export interface PublishedRules {
  readonly document: Uint8Array;
  /** Until when they may be used, in milliseconds since the Unix epoch. */
  readonly freshUntil: number;
}

/**
 * Fetches `/.well-known/credence-agent-rules` from the service's origin: over https, or from a loopback host.
 *
 * @throws {@link RulesError} The document cannot be fetched.
 */
export async function fetchRules(origin: URL, send: typeof fetch, timeoutMs: number): Promise<PublishedRules> {
  const url = new URL(PATH, origin);
  if (url.protocol !== "https:" && !isLoopback(url.hostname)) {
    throw new RulesError(`${url.href} is not https; use https, or read the rules from a file`);
  }
  const failed = (why: string, cause?: unknown) =>
    new RulesError(`the rules at ${url.href} cannot be fetched: ${why}`, { cause });
  let response: Response;
  let document: Uint8Array;
  try {
    response = await send(url.href, {
      headers: { accept: "application/json" },
      redirect: "manual",
      signal: AbortSignal.timeout(timeoutMs),
    });
    document = await readAtMost(response.body, response.status === 200 ? MAX_BYTES : 0);
  } catch (error) {
    const timedOut = error instanceof Error && error.name === "TimeoutError";
    throw failed(timedOut ? `no complete answer within ${String(timeoutMs)} ms` : innermost(error), error);
  }
  if (response.status !== 200) {
    const hint = response.headers.has("location") ? ", a redirect, which is not followed" : "";
    throw failed(`the status is ${String(response.status)}${hint}; name the origin that publishes them`);
  }
  if (document.length > MAX_BYTES) throw failed(`they are larger than ${String(MAX_BYTES)} bytes`);
  return { document, freshUntil: Date.now() + maxAge(response.headers.get("cache-control")) * 1000 };
}

/** What went wrong in the end: `fetch` says only that it failed. */
function innermost(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error.cause !== undefined) return innermost(error.cause);
  return error.message === "" && "code" in error ? String(error.code) : String(error);
}

/** Seconds, from `Cache-Control` (RFC 9111, section 5.2). */
function maxAge(header: string | null): number {
  const directives = (header ?? "").toLowerCase().split(",");
  const names = directives.map((directive) => directive.trim());
  if (names.includes("no-store") || names.includes("no-cache")) return LEAST_AGE_SECONDS;
  const value = names.find((name) => name.startsWith("max-age="))?.slice("max-age=".length);
  if (value === undefined || !/^\d+$/.test(value)) return DEFAULT_AGE_SECONDS;
  return Math.max(LEAST_AGE_SECONDS, Math.min(Number(value), MAX_AGE_SECONDS));
}

function isLoopback(host: string): boolean {
  return host === "localhost" || host === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(host);
}

const PATH = "/.well-known/credence-agent-rules";
const MAX_BYTES = 8 << 20;
const DEFAULT_AGE_SECONDS = 300;
/** For so long, rules count at least. */
export const LEAST_AGE_SECONDS = 30;
/** For so long, rules count at most. */
export const MAX_AGE_SECONDS = 86_400;
