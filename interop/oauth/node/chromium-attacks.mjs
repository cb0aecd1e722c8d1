// Attacks that only a browser can show: frames, scripts, and forms of other sites.

import assert from 'node:assert/strict';
import { person, requestUrl, startPages } from './chromium.mjs';
import { until } from './processes.mjs';
import { attacked } from './report.mjs';

const form = (action, fields) => `<form method="post" action="${action}">${
  Object.entries(fields).map(([name, value]) => `<input name="${name}" value="${value}">`).join('')
}<button>Win a prize</button></form>`;

const hidden = (victim, name) => victim.page.locator(`input[name=${name}]`).first().inputValue();

export async function attacks(here) {
  const { url } = here;
  const attacker = await startPages();
  const name = '<script>document.title = "evil"</script><img src=x>';
  const request = requestUrl(here, name, attacker.serve('<p>done'));
  const withScripts = (user) => person(user, here, { javaScriptEnabled: true });

  await attacked('clickjacking: Chromium shows no page of ours in a frame', async () => {
    const victim = await withScripts('framed');
    await victim.openGrants();
    const other = attacker.serve('<p>shown');
    // An error needs no session, whose cookie is not sent from another site.
    for (const [host, refused] of [
      [EVIL, [`${url}/authorize`]],
      ['127.0.0.1', [`${url}/authorize`, `${url}/`, request]],
    ]) {
      const frames = [...refused, other].map((page) => `<iframe src="${page}"></iframe>`).join('');
      await victim.page.goto(attacker.serve(frames, host));
      const shown = victim.page.frames().slice(1).map((frame) => frame.locator('body').innerText());
      const texts = await Promise.all(shown);
      assert.equal(texts.pop(), 'shown');
      for (const text of texts) assert.doesNotMatch(text, /cannot be used|delegated|act for you/);
      const violations = () => victim.complaints.filter((text) => /Framing .* violates .*frame-ancestors/.test(text));
      await until('each refusal', () => violations().length === refused.length);
      victim.complaints.length = 0;
    }
    await victim.close();
  });
  await attacked('scripts: the name of a client is text, and the policy stops a script that is in the page', async () => {
    const victim = await withScripts('scripted');
    await victim.open(request);
    assert.ok((await victim.page.getByRole('main').innerText()).includes(name));
    assert.equal(await victim.page.title(), `Let ${name} act for you?`);
    assert.deepEqual([await victim.page.locator('script, b, img').count(), victim.complaints], [0, []]);
    await assert.rejects(victim.page.addScriptTag({ content: 'document.title = "evil"' }));
    assert.match(await victim.page.title(), /^Let/);
    assert.match(victim.complaints.join(), /violates the following Content Security Policy/);
    await victim.close();
  });
  await attacked('CSRF: a form of another site decides nothing, even with the secrets of ours', async () => {
    const victim = await person('forged', here);
    await victim.open(request);
    const consent = await hidden(victim, 'consent');
    const fields = { consent, decision: 'allow', t1: 'on', seconds: 900, depth: 0 };
    await victim.page.goto(attacker.serve(form(`${url}/consent`, fields), EVIL));
    await victim.press('Win a prize');
    assert.equal(await victim.page.title(), 'Begin again');
    await victim.openGrants();
    assert.equal(await victim.page.getByRole('button', { name: 'Take it back' }).count(), 0);
    // The same form counts at the same site.
    await victim.page.goto(attacker.serve(form(`${url}/consent`, fields)));
    await victim.press('Win a prize');
    await victim.openGrants();
    assert.equal(await victim.page.getByRole('button', { name: 'Take it back' }).count(), 1);

    const [own, granted] = [await hidden(victim, 'form'), await hidden(victim, 'grant')];
    await victim.page.goto(attacker.serve(form(`${url}/withdraw`, { form: own, grant: granted }), EVIL));
    await victim.press('Win a prize');
    assert.equal(await victim.page.title(), 'Begin again');
    await victim.openGrants();
    assert.equal(await victim.page.getByRole('button', { name: 'Take it back' }).count(), 1);
    assert.match(await victim.takeAllBack(), /^Taken back/);
    await victim.close();
  });
  await attacker.stop();
}

/** Another site: browsers find every name below `localhost` on this machine. */
const EVIL = 'evil.localhost';
