// Random choices that a seed repeats.

/** The choices of one part of a run: the same numbers give the same choices. */
export function choices(...numbers) {
  let state = numbers.reduce((mixed, number) => mix(mixed ^ (number >>> 0)), 0x9e3779b9);
  const next = () => {
    state = (state + 0x6d2b79f5) | 0;
    return mix(state) / 2 ** 32;
  };
  const below = (count) => Math.floor(next() * count);
  const pick = (list) => list[below(list.length)];
  return {
    below, pick,
    number: () => below(2 ** 32),
    oneIn: (count) => below(count) === 0,
    /** One of the keys, by their weights. */
    weighted(weights) {
      const all = Object.entries(weights);
      let place = below(all.reduce((sum, [, weight]) => sum + weight, 0));
      return all.find(([, weight]) => (place -= weight) < 0)[0];
    },
  };
}

/** The last steps of MurmurHash3. */
function mix(number) {
  let mixed = number;
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}
