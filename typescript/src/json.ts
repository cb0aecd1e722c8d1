/** Values that callers pass, as JSON. */

import { InvalidInputError } from "./errors.js";

/** A JSON value. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json };

/** Arguments of a tool, by name. */
export type Arguments = Readonly<Record<string, unknown>>;

/**
 * The value as `JSON.stringify` sends it.
 *
 * @throws {@link InvalidInputError} `JSON.stringify` would change it: NaN and infinite numbers would become `null`.
 */
export function jsonValue(value: unknown, place: string): Json {
  try {
    const text = JSON.stringify(value, (name, member: unknown) => {
      if (typeof member === "number" && !Number.isFinite(member)) {
        throw new InvalidInputError(`${place}: \`${name}\` is ${String(member)}, which JSON does not have`);
      }
      return member;
    });
    return JSON.parse(text) as Json;
  } catch (error) {
    if (error instanceof InvalidInputError) throw error;
    throw new InvalidInputError(`${place} must be JSON values`, { cause: error });
  }
}
