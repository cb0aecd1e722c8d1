/** Decides cases as a service without any revocations would: section 8 of the draft, and DPoP. */

import { agentModule } from "./module.js";

/** The decision about one case. */
export interface Verdict {
  /** The case's `id`. */
  readonly id: string | number | boolean | null;
  /** The decision. */
  readonly decision: "allow" | "deny";
  /** The step that denied, such as `4p1`; `null` if the case allows or cannot be evaluated. */
  readonly step: string | null;
  /** The reason, for people. */
  readonly reason: string | null;
}

/**
 * The answer to one line of `credence verify --jsonl`.
 * @internal
 */
export interface Answer {
  /** The verdict as JSON, exactly as the command line tool prints it. */
  readonly verdict: string;
  /** For people: anchors that are not used, or what is wrong with the line. */
  readonly notes: readonly string[];
  readonly isCase: boolean;
}

/**
 * Decides a case: `{"id","anchors":[{"iss","jwk"}],"chain","proof","tool","args","now","audience","policy"}`. An
 * invalid case is denied.
 */
export function verify(line: object | string): Verdict {
  const text = typeof line === "string" ? line : JSON.stringify(line);
  return JSON.parse(answerLine(new TextEncoder().encode(text)).verdict) as Verdict;
}

/**
 * Answers one line, without its end.
 * @internal
 */
export function answerLine(line: Uint8Array): Answer {
  const text = agentModule.answer({ verify: {} }, line);
  const { notes, is_case: isCase } = JSON.parse(text) as { notes: string[]; is_case: boolean };
  // The verdict's own text: parsing it would change an id such as 1.50. Quotes in strings are escaped, so the end is
  // found where no string can be.
  const verdict = text.slice(START.length, text.indexOf(',"notes":['));
  return { verdict, notes, isCase };
}

/** How the module's answer starts. */
const START = '{"answer":';
