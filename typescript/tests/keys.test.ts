import assert from "node:assert/strict";
import { createPrivateKey, sign } from "node:crypto";
import { once } from "node:events";
import { chmodSync, mkdtempSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspect } from "node:util";
import { suite, test } from "node:test";

import {
  Delegation,
  KeyError,
  PrivateKey,
  prove,
  type PrivateJwk,
  type Signer,
  thumbprint,
  verify,
} from "credence-agent";
import { readKeyFile, readPemFile, writeKeyFile, writePemFile } from "credence-agent/node";
import { calculateJwkThumbprint, type JWK } from "jose";

import { ANCHORS, AUDIENCE, mint } from "./support.js";

const folder = mkdtempSync(join(tmpdir(), "credence-"));
const args = { account: "a1", amount: 15 };

for (const algorithm of ["Ed25519", "ES256"] as const) {
  suite(algorithm, () => {
    test("is generated, exported and read again", async () => {
      const key = await PrivateKey.generate({ algorithm, extractable: true });
      const again = await PrivateKey.fromJwk(await key.toPrivateJwk());
      assert.deepEqual(again.publicJwk, key.publicJwk);
      assert.equal(again.algorithm, algorithm);
      assert.equal(key.thumbprint, await calculateJwkThumbprint(key.publicJwk as JWK));
    });

    test("is kept in files that only the owner can read, and that are not overwritten", async () => {
      const key = await PrivateKey.generate({ algorithm, extractable: true });
      const [jwk, pem] = [join(folder, `${algorithm}.jwk`), join(folder, `${algorithm}.pem`)];
      await writeKeyFile(jwk, key);
      await writePemFile(pem, key, "correct horse");
      for (const path of [jwk, pem]) assert.equal(statSync(path).mode & 0o777, 0o600);
      assert.deepEqual((await readKeyFile(jwk)).publicJwk, key.publicJwk);
      assert.deepEqual((await readPemFile(pem, "correct horse")).publicJwk, key.publicJwk);
      assert.match(readFileSync(pem, "utf8"), /BEGIN ENCRYPTED PRIVATE KEY/);
      await assert.rejects(readPemFile(pem, "wrong horse"), KeyError);
      for (const missing of ["", undefined]) {
        await assert.rejects(readPemFile(pem, missing), /no passphrase given/);
        await assert.rejects(writePemFile(pem, key, missing), /no passphrase given/);
      }
      await assert.rejects(writeKeyFile(jwk, key), /not overwritten/);
      await assert.rejects(writePemFile(pem, key, "other"), /not overwritten/);
    });
  });
}

test("a file that others can read is read with a warning", async () => {
  const path = join(folder, "shared.jwk");
  const key = await PrivateKey.generate({ extractable: true });
  await writeKeyFile(path, key);
  chmodSync(path, 0o644);
  const warned = once(process, "warning");
  assert.deepEqual((await readKeyFile(path)).publicJwk, key.publicJwk);
  assert.match(String((await warned)[0]), /shared\.jwk: other users may read this key; run `chmod 600`/);
});

test("a key is not extractable unless asked", async () => {
  const key = await PrivateKey.generate();
  await assert.rejects(key.toPrivateJwk(), /extractable: true/);
  await assert.rejects(writeKeyFile(join(folder, "none.jwk"), key), KeyError);
});

test("a key whose halves do not belong together is refused", async () => {
  for (const algorithm of ["Ed25519", "ES256"] as const) {
    const [one, other] = [
      await PrivateKey.generate({ algorithm, extractable: true }),
      await PrivateKey.generate({ algorithm }),
    ];
    const mixed = { ...other.publicJwk, d: (await one.toPrivateJwk()).d };
    await assert.rejects(PrivateKey.fromJwk(mixed), /do not belong together/);
  }
});

test("anything but a private key is refused", async () => {
  const { publicJwk } = await PrivateKey.generate();
  await assert.rejects(PrivateKey.fromJwk(publicJwk as PrivateJwk), /public key/);
  await assert.rejects(PrivateKey.fromJwk({ ...publicJwk, x: "AA", d: "AA" }), KeyError);
  assert.throws(() => thumbprint({ ...publicJwk, crv: "P-256" }), KeyError);
  writeFileSync(join(folder, "text"), "secret text");
  await assert.rejects(
    readKeyFile(join(folder, "text")),
    (error) => !inspect(error, { depth: 9 }).includes("secret text"),
  );
  await assert.rejects(readKeyFile(join(folder, "missing")), /cannot be read/);
});

test("neither logging nor serializing shows a private key or a token", async () => {
  const key = await PrivateKey.generate({ extractable: true });
  const { d } = await key.toPrivateJwk();
  const token = await mint(key);
  const delegation = Delegation.parse(token);
  const signature = token.slice(token.lastIndexOf(".") + 1);
  for (const value of [key, delegation]) {
    const shown = [inspect(value, { depth: 9, showHidden: true }), JSON.stringify(value), String(value)].join();
    assert.ok(!shown.includes(d));
    assert.ok(!shown.includes(signature));
  }
  assert.match(String(key), /^PrivateKey\(Ed25519, /);
  assert.match(String(delegation), /payments.charge/);
});

test("a signer can be a key elsewhere, such as in a KMS", async () => {
  const key = await PrivateKey.generate({ algorithm: "ES256", extractable: true });
  const held = createPrivateKey({ key: (await key.toPrivateJwk()) as JWK, format: "jwk" });
  const kms = (dsaEncoding: "ieee-p1363" | "der"): Signer => ({
    algorithm: "ES256",
    publicJwk: key.publicJwk,
    sign: (bytes) => sign("sha256", bytes, { key: held, dsaEncoding }),
  });
  const delegation = Delegation.parse(await mint(key));
  const use = { tool: "payments.charge", arguments: args, audience: AUDIENCE };
  const proof = await prove(delegation, kms("ieee-p1363"), use);
  const verdict = verify({
    id: 1,
    anchors: ANCHORS,
    chain: delegation.text,
    proof,
    tool: use.tool,
    args,
    now: Math.floor(Date.now() / 1000),
    audience: [AUDIENCE],
    policy: { algs: ["Ed25519", "ES256"] },
  });
  assert.equal(verdict.decision, "allow", verdict.reason ?? "");
  await assert.rejects(prove(delegation, kms("der"), use), /not DER/);
});
