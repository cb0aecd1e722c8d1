/**
 * Checks the tool calls of the Vercel AI SDK against a delegation.
 *
 * @packageDocumentation
 */

import type { Tool } from "ai";

import type { Delegation } from "./delegation.js";
import { InvalidInputError } from "./errors.js";
import type { Arguments } from "./json.js";

/** How a tool is checked. */
export interface DelegatedToolOptions {
  /** The agent's delegation. */
  readonly delegation: Delegation;
  /** The tool's name in the delegation, such as `payments.charge`. Models often cannot use such a name. */
  readonly name: string;
  /** The arguments in the delegation, from the model's input. Default: the input itself. */
  readonly arguments?: (input: unknown) => Arguments;
}

/**
 * The tool, which is executed only if the delegation grants the call. Otherwise `execute` throws `Denied`, and the
 * SDK tells the model so.
 *
 * This saves a call that would fail. It protects nothing by itself: the service decides, by the request's proof.
 *
 * @throws `InvalidInputError` The tool has no `execute`.
 */
export function delegatedTool<T extends Tool>(tool: T, options: DelegatedToolOptions): T {
  const execute = tool.execute;
  if (execute === undefined) throw new InvalidInputError(`the tool for ${options.name} has no \`execute\` to protect`);
  const { delegation, name, arguments: args = (input: unknown) => input as Arguments } = options;
  const checked: typeof execute = (input, details) => {
    delegation.check(name, args(input));
    return execute(input, details) as unknown;
  };
  return { ...tool, execute: checked };
}
