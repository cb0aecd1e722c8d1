// What axe finds wrong with the issuer's pages, and whether they fit on a phone.

import assert from 'node:assert/strict';
import axe from 'axe-core';
import { person, requestUrl, startPages } from './chromium.mjs';
import { grant } from './report.mjs';

/** Every page, as people have it. */
export async function grants(here) {
  const { url } = here;
  const returned = await startPages();
  const request = requestUrl(here, 'Planner', returned.serve('<p>done'));
  for (const [screen, options] of [
    ['wide', {}],
    ['dark phone', { viewport: { width: 320, height: 640 }, colorScheme: 'dark' }],
  ]) {
    await grant(`accessibility: axe finds nothing wrong with any page: ${screen}`, async () => {
      const reader = await person(screen, here, { javaScriptEnabled: true, ...options });
      const found = [];
      const check = async () => {
        found.push(...await violations(reader));
        const overflow = await reader.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (overflow > 0) found.push(`${reader.page.url()}: ${overflow} pixels wider than the screen`);
      };
      await reader.open(request);
      await check();
      await reader.press('Allow');
      assert.equal(await reader.page.getByRole('alert').count(), 1);
      await check();
      await reader.tick('read orders');
      await reader.press('Allow');
      await reader.openGrants();
      await check();
      await reader.takeAllBack();
      await check();
      await reader.page.goto(`${url}/authorize`);
      await check();
      await reader.openGrants();
      await reader.press('Sign out');
      await check();
      assert.deepEqual(found, []);
      await reader.close();
    });
  }
  await returned.stop();
}

/** What axe finds wrong with the page that is open, by rule and element. */
async function violations({ page }) {
  await page.evaluate(axe.source);
  const { violations: found, passes } = await page.evaluate(() => globalThis.axe.run());
  assert.ok(passes.length > 10);
  return found.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${page.url()}: ${id}: ${html}`));
}
