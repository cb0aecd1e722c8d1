/** Calls the operations of the Wasm module. */

import { compile } from "#wasm";
import { type Denial, Denied, InvalidInputError, ModuleError } from "./errors.js";

/** The exports of the module. */
interface Exports {
  readonly memory: WebAssembly.Memory;
  credence_input(bytes: number): number;
  credence_answer(operationBytes: number): number;
  credence_answer_bytes(): number;
}

type Answer<T> = T & { readonly error?: string; readonly denied?: Denial };

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });
const NO_BYTES = new Uint8Array();

/**
 * One instance of the module, started when it is first used. An operation runs to its end without another one in
 * between, because nothing in it is asynchronous.
 */
export class AgentModule {
  /** Grows with each failure: the services that were open before are gone, and their numbers are given again. */
  generation = 0;
  readonly #compile: () => WebAssembly.Module;
  #exports: Exports | undefined;

  constructor(compileModule: () => WebAssembly.Module) {
    this.#compile = compileModule;
  }

  /**
   * Carries out one operation: a JSON object, and bytes beside it.
   *
   * @throws {@link Denied} The request would be denied.
   * @throws {@link InvalidInputError} The operation cannot be carried out.
   * @throws {@link ModuleError} The module failed.
   */
  // eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters -- the module's answer has this shape
  call<T>(operation: object, bytes: Uint8Array = NO_BYTES): T {
    const answer = JSON.parse(this.answer(operation, bytes)) as Answer<T>;
    if (answer.denied !== undefined) throw new Denied(answer.denied);
    if (answer.error !== undefined) throw new InvalidInputError(answer.error);
    return answer;
  }

  /**
   * The answer of one operation, as text.
   *
   * @throws {@link ModuleError} The module failed.
   */
  answer(operation: object, bytes: Uint8Array = NO_BYTES): string {
    const text = encoder.encode(JSON.stringify(operation));
    try {
      const exports = (this.#exports ??= this.#start());
      const input = exports.credence_input(text.length + bytes.length);
      // The memory may have grown: each call makes a new view of it.
      const room = new Uint8Array(exports.memory.buffer, input, text.length + bytes.length);
      room.set(text);
      room.set(bytes, text.length);
      const start = exports.credence_answer(text.length);
      const length = exports.credence_answer_bytes();
      return decoder.decode(new Uint8Array(exports.memory.buffer, start, length));
    } catch (error) {
      // Its memory may be inconsistent now.
      this.#exports = undefined;
      this.generation += 1;
      throw new ModuleError("the Wasm module failed; the next operation starts a new one", { cause: error });
    }
  }

  #start(): Exports {
    return new WebAssembly.Instance(this.#compile()).exports as unknown as Exports;
  }
}

/** The instance that the package uses. */
export const agentModule = new AgentModule(compile);
