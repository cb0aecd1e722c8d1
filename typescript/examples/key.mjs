import { PrivateKey } from "credence-agent";
import { writeKeyFile } from "credence-agent/node";

const key = await PrivateKey.generate({ extractable: true });
await writeKeyFile("agent.jwk", key);
console.log(JSON.stringify(key.publicJwk));
