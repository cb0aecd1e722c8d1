/** The current time, in whole seconds since the Unix epoch. */
export function now(): number {
  return Math.floor(Date.now() / 1000);
}
