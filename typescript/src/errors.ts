/** The errors of this package. All extend {@link CredenceError}. No message contains a token or a key. */

/** The base of all errors of this package. */
export class CredenceError extends Error {
  /** The name of the class. */
  override readonly name: string = "CredenceError";
}

/** An argument, a delegation or a document cannot be used. The message names the place and the fix. */
export class InvalidInputError extends CredenceError {
  /** The name of the class. */
  override readonly name = "InvalidInputError";
}

/** A key cannot be used: it cannot be read, it cannot sign, or the delegation names another key. */
export class KeyError extends CredenceError {
  /** The name of the class. */
  override readonly name = "KeyError";
}

/** The rules of a service cannot be fetched or used. Nothing was sent. */
export class RulesError extends CredenceError {
  /** The name of the class. */
  override readonly name = "RulesError";
}

/** The Wasm module failed. The next operation starts a new one. */
export class ModuleError extends CredenceError {
  /** The name of the class. */
  override readonly name = "ModuleError";
}

/** The answer that the service's filter would give. */
export interface Denial {
  /** A stable code, such as `argument_not_allowed`. */
  readonly reason: string;
  /** The argument or the tool that is denied, if there is one. */
  readonly argument: string | null;
  /** The step of section 8 of draft-niyikiza-oauth-attenuating-agent-tokens-02 that failed, such as `6b`. */
  readonly step: string | null;
  /** One sentence about the reason. */
  readonly title: string;
  /** The HTTP status, such as 403. */
  readonly status: number;
  /** The headers of the answer. */
  readonly headers: readonly (readonly [string, string])[];
  /** The body of the answer. */
  readonly body: string;
}

/**
 * The filter would deny the request, or the delegation does not grant the call. Nothing was sent.
 *
 * The same delegation is denied again. Ask for one that grants the call, or change the call.
 */
export class Denied extends CredenceError {
  /** The name of the class. */
  override readonly name = "Denied";
  /** A stable code, such as `argument_not_allowed`. */
  readonly reason: string;
  /** The argument or the tool that is denied. */
  readonly argument: string | undefined;
  /** The step of the draft's section 8 that failed, such as `6b`. */
  readonly step: string | undefined;
  /** One sentence about the reason. */
  readonly title: string;
  /** The HTTP status of the answer that the filter would give. */
  readonly status: number;
  /** The headers of that answer. */
  readonly headers: readonly (readonly [string, string])[];
  /** The body of that answer. */
  readonly body: string;

  constructor(denial: Denial) {
    const about = denial.argument === null ? "" : ` (${denial.argument})`;
    super(`denied, nothing was sent: ${denial.reason}${about}: ${denial.title}`);
    this.reason = denial.reason;
    this.argument = denial.argument ?? undefined;
    this.step = denial.step ?? undefined;
    this.title = denial.title;
    this.status = denial.status;
    this.headers = denial.headers;
    this.body = denial.body;
  }

  /** The problem document (RFC 9457) of the answer, or `undefined` for gRPC. In MCP it is the error's `data`. */
  get problem(): Readonly<Record<string, unknown>> | undefined {
    try {
      const body = JSON.parse(this.body) as { error?: { data?: Record<string, unknown> } };
      return body.error?.data ?? body;
    } catch {
      return undefined;
    }
  }
}
