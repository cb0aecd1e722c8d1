// Executes requests with jose: one JSON object a line on standard input. ../README.md has the requests.

import { createInterface } from "node:readline";
import { SignJWT, exportJWK, generateKeyPair, importJWK, jwtVerify } from "jose";
import * as tokens from "./tokens.js";

const requests = {
  async generate_key({ algorithm }) {
    const { privateKey } = await generateKeyPair(algorithm, { extractable: true });
    return exportJWK(privateKey);
  },

  async mint(request) {
    return sign(tokens.root(request), request, tokens.TOKEN);
  },

  async derive(request) {
    return sign(await tokens.derived(request), request, tokens.TOKEN);
  },

  async prove(request) {
    return sign(tokens.proof(request), request, tokens.PROOF);
  },

  async tamper({ token }) {
    return tokens.withMoreTime(token);
  },

  async verify({ algorithm, key, typ, token }) {
    const publicKey = await importJWK(tokens.publicHalf(key), algorithm);
    const { payload } = await jwtVerify(token, publicKey, { algorithms: [algorithm], typ });
    return payload;
  },
};

async function sign(claims, { key, algorithm }, typ) {
  return new SignJWT(claims).setProtectedHeader({ alg: algorithm, typ }).sign(await importJWK(key, algorithm));
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  const answer = await requests[request.do](request).then(
    (ok) => ({ ok }),
    (error) => ({ error: `${error.name}: ${error.message}` }),
  );
  console.log(JSON.stringify(answer));
}
