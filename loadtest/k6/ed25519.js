// In its own file, since only our build of k6 can load it.
import { ed25519 } from "k6/x/credence";

export function signer(jwk) {
  const key = ed25519(jwk.d);
  return (text) => key.sign(text);
}
