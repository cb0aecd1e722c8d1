/** Bodies of bounded size. */

/** Reads a body. Of one that is longer than `most` bytes, reads a little more than that and cancels the rest. */
export async function readAtMost(body: ReadableStream<Uint8Array> | null, most: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  const reader = body?.getReader();
  while (reader !== undefined && length <= most) {
    const { done, value } = await reader.read();
    if (done) break;
    chunks.push(value);
    length += value.length;
  }
  if (length > most) await reader?.cancel();
  return joined(chunks, length);
}

/** The chunks in one array. */
export function joined(chunks: readonly Uint8Array[], length: number): Uint8Array {
  const all = new Uint8Array(length);
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.length;
  }
  return all;
}

/** Bytes of a body that a rule reads. No service reads more. */
export const MAX_BODY_BYTES = 1 << 20;
