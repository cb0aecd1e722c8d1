// Takes the pictures of the issuer's pages for the documentation. Usage: node screenshots.mjs FOLDER
//
// Everything is real, also the calls that the list shows. Only addresses and times are replaced in the pictures: each run
// would have others.

import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { authority, selfSigned } from './certificates.mjs';
import { launch, person } from './chromium.mjs';
import { ALGORITHMS, signingKeys, startIssuer } from './issuer.mjs';
import { startPlanner } from './mcp-consent.mjs';
import { freePorts, stop, until } from './processes.mjs';
import { startService } from './service.mjs';
import { startShopIssuer } from './shop-issuer.mjs';
import { trusted as trustedShopIssuer } from './shop.mjs';
import { startStack } from './stack.mjs';

const [pictures] = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), 'credence-screenshots-'));

async function main() {
  const here = await start();
  const ada = await person('Ada Lovelace', here, { viewport: { width: 720, height: 300 }, deviceScaleFactor: 2 });
  const planner = await startPlanner(here);
  planner.application.decide = async (url) => {
    await ada.open(url);
    await take(ada, 'issuer-consent');
    await ada.tick('read orders');
    await ada.tick('charge an account');
    await ada.tool('charge an account').getByLabel('travel').check();
    await ada.tool('charge an account').getByLabel('at most').fill('250');
    await ada.press('Allow');
    await take(ada, 'issuer-problem');
    await ada.tool('charge an account').getByLabel('at most').fill('40');
    await ada.press('Allow');
  };
  // The filter takes the issuer's keys from the control plane.
  await until('the first call', () => planner.connect().then(() => true));
  await planner.readOrders(2026);
  await planner.charge('travel', 15);
  await until('the call to be listed', async () => {
    await ada.openGrants();
    return (await ada.page.getByRole('main').innerText()).includes('charge an account (allowed)');
  });
  await take(ada, 'issuer-grants');
  await Promise.all([ada.close(), planner.stop()]);
  await here.stop();
}

async function start() {
  const secret = randomBytes(24).toString('hex');
  const [port, tlsPort, http, grpc, issuerPort] = await freePorts(5);
  const [origin, url] = [`http://127.0.0.1:${port}`, `http://127.0.0.1:${issuerPort}`];
  const certificate = await selfSigned(folder, 'server');
  const oidc = await startIssuer({
    port: 0, keys: await signingKeys('only'), secret, redirect: `${origin}/callback`, certificate, consentUrls: [url],
  });
  const service = await startService();
  const programs = {
    root: process.env.CREDENCE_ROOT,
    credence: process.env.CREDENCE_BIN,
    wasm: process.env.CREDENCE_WASM,
    envoy: process.env.CREDENCE_ENVOY,
  };
  const issuers = [{ issuer: oidc.issuer, algorithms: ALGORITHMS }, trustedShopIssuer(url, oidc.issuer)];
  const ports = { port, tlsPort, http, grpc };
  const stack = await startStack({ programs, folder, issuers, servicePort: service.port, ports, certificate });
  const shop = await startShopIssuer({
    programs, folder, secret, url, origin, controlPlane: `http://127.0.0.1:${http}`, oidc,
    authority: await authority(folder, 'authority'),
  });
  const browser = await launch();
  return {
    ...shop,
    browser,
    stop: async () => {
      await Promise.all([browser.close(), shop.stop(), stop(stack.envoy), stop(stack.controlPlane)]);
      await Promise.all([oidc.stop(), service.stop()]);
    },
  };
}

async function take({ page }, name) {
  await page.evaluate(() => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const times = ['2026-03-02 09:30:02', '2026-03-09 09:30:02', '2026-03-02 09:31:07'];
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
      text.data = text.data
        .replace(/http:\/\/127\.0\.0\.1:\d+\/shop/g, 'https://shop.example')
        .replaceAll('127.0.0.1', 'planner.example')
        .replace(/\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?/g, () => times.shift());
    }
  });
  await page.screenshot({ path: join(pictures, `${name}.png`), fullPage: true });
}

await main();
rmSync(folder, { recursive: true });
process.exit(0);
