import { readKeyFile, readPemFile, writePemFile } from "credence-agent/node";

const key = await readKeyFile("agent.jwk", { extractable: true });
await writePemFile("agent.pem", key, process.env.PASSPHRASE);
console.log(String(await readPemFile("agent.pem", process.env.PASSPHRASE)));
