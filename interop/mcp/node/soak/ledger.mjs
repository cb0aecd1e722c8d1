// Reads the filter's evidence.

import { setTimeout as pause } from 'node:timers/promises';

/** How long evidence may take. The filter sends it within milliseconds. */
const TIMEOUT_MS = 30_000;

/** A function that gives a checker the evidence since the last time: at least for all that ran. */
export function ledger(credence, timeout = TIMEOUT_MS) {
  let index = 0;
  return async (check) => {
    const until = Date.now() + timeout;
    for (;;) {
      for (const event of await credence.allowedFrom(index)) {
        check.allowedBy(event);
        index = event.index + 1;
      }
      if (!check.isUndecided() || Date.now() > until) break;
      await pause(200);
    }
    check.endEvidence();
  };
}
