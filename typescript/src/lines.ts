/** Lines of a stream of bytes. */

import { joined } from "./body.js";

/** A line without its end. */
export interface Line {
  /** Counted from 1. */
  readonly number: number;
  readonly text: Uint8Array;
}

/**
 * The lines that are not blank. A byte order mark before the first one is left out. Of a line that is too long, one byte
 * more than the limit is kept, so that it is denied.
 */
export async function* lines(input: AsyncIterable<Uint8Array>): AsyncGenerator<Line> {
  const line = new PartialLine();
  let number = 0;
  for await (const chunk of input) {
    let start = 0;
    for (let end = chunk.indexOf(NEW_LINE); end >= 0; end = chunk.indexOf(NEW_LINE, start)) {
      line.add(chunk.subarray(start, end));
      start = end + 1;
      number += 1;
      const text = line.take(number === 1);
      if (!isBlank(text)) yield { number, text };
    }
    line.add(chunk.subarray(start));
  }
  number += 1;
  const last = line.take(number === 1);
  if (!isBlank(last)) yield { number, text: last };
}

class PartialLine {
  #chunks: Uint8Array[] = [];
  #length = 0;

  add(chunk: Uint8Array): void {
    const kept = chunk.subarray(0, MAX_LINE_BYTES + 1 - this.#length);
    this.#chunks.push(kept);
    this.#length += kept.length;
  }

  take(isFirst: boolean): Uint8Array {
    const text = joined(this.#chunks, this.#length);
    this.#chunks = [];
    this.#length = 0;
    const hasMark = isFirst && BYTE_ORDER_MARK.every((byte, index) => text[index] === byte);
    return hasMark ? text.subarray(BYTE_ORDER_MARK.length) : text;
  }
}

function isBlank(text: Uint8Array): boolean {
  return text.every((byte) => WHITE_SPACE.includes(byte));
}

const NEW_LINE = 0x0a;
const WHITE_SPACE = [0x20, 0x09, 0x0a, 0x0c, 0x0d];
const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf];
const MAX_LINE_BYTES = 16 << 20;
