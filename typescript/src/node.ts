/**
 * Keys and rules in files, for Node.js.
 *
 * @packageDocumentation
 */

import { createPrivateKey, type JsonWebKeyInput } from "node:crypto";
import { open, readFile, stat } from "node:fs/promises";
import { emitWarning, platform } from "node:process";

import { KeyError, RulesError } from "./errors.js";
import { type KeyOptions, type PrivateJwk, PrivateKey } from "./private-key.js";
import { Service, type ServiceOptions } from "./service.js";

/**
 * Reads a private key from a JWK file, such as one of `credence keygen`. Warns if other users can read the file.
 *
 * @throws `KeyError` The file cannot be read, or is no private JWK.
 */
export async function readKeyFile(path: string, options: KeyOptions = {}): Promise<PrivateKey> {
  const text = await keyText(path);
  let jwk: PrivateJwk;
  try {
    jwk = JSON.parse(text) as PrivateJwk;
  } catch {
    // The cause is left out: it quotes the file.
    throw new KeyError(`${path} is no JWK; for a PEM file, use \`readPemFile\``);
  }
  return PrivateKey.fromJwk(jwk, options);
}

/**
 * Writes a private key to a new JWK file that only its owner can read (mode 0600).
 *
 * @throws `KeyError` The file exists, or the key is not extractable.
 */
export async function writeKeyFile(path: string, key: PrivateKey): Promise<void> {
  await writeNew(path, `${JSON.stringify(await key.toPrivateJwk())}\n`);
}

/**
 * Reads a private key from a PEM file: PKCS#8, encrypted with the passphrase (RFC 5958, RFC 8018).
 *
 * @throws `KeyError` The file cannot be read, the passphrase is missing or wrong, or the key is of another kind.
 */
export async function readPemFile(
  path: string,
  passphrase: string | undefined,
  options: KeyOptions = {},
): Promise<PrivateKey> {
  if (!passphrase) throw new KeyError(NO_PASSPHRASE);
  const text = await keyText(path);
  let jwk: unknown;
  try {
    if (!text.includes("-----BEGIN ENCRYPTED PRIVATE KEY-----")) throw new KeyError("not encrypted");
    jwk = createPrivateKey({ key: text, passphrase }).export({ format: "jwk" });
  } catch {
    throw new KeyError(`${path} is no encrypted PKCS#8 key in PEM, or the passphrase is wrong`);
  }
  return PrivateKey.fromJwk(jwk as PrivateJwk, options);
}

/**
 * Writes a private key to a new PEM file that only its owner can read (mode 0600): PKCS#8, encrypted with AES-256-CBC
 * under a key that PBKDF2 makes from the passphrase (RFC 8018).
 *
 * @throws `KeyError` There is no passphrase, the file exists, or the key is not extractable.
 */
export async function writePemFile(path: string, key: PrivateKey, passphrase: string | undefined): Promise<void> {
  if (!passphrase) throw new KeyError(NO_PASSPHRASE);
  const input = { key: await key.toPrivateJwk(), format: "jwk" } as unknown as JsonWebKeyInput;
  const pem = createPrivateKey(input).export({ type: "pkcs8", format: "pem", cipher: "aes-256-cbc", passphrase });
  await writeNew(path, pem.toString());
}

/**
 * The service at this origin, with the rules in a file: what `credence config describe --for-agents` prints.
 *
 * @throws `RulesError` The file cannot be read, or its rules are invalid.
 */
export async function readService(origin: string, path: string, options: ServiceOptions = {}): Promise<Service> {
  let document: Uint8Array;
  try {
    document = await readFile(path);
  } catch (error) {
    throw new RulesError(`${path} cannot be read`, { cause: error });
  }
  return Service.fromDocument(origin, document, options);
}

async function keyText(path: string): Promise<string> {
  try {
    // A warning, because mounted secrets often have such a mode and no other user.
    if (platform !== "win32" && ((await stat(path)).mode & 0o077) !== 0) {
      emitWarning(`${path}: other users may read this key; run \`chmod 600\` on it`);
    }
    return await readFile(path, "utf8");
  } catch (error) {
    throw new KeyError(`${path} cannot be read`, { cause: error });
  }
}

async function writeNew(path: string, text: string): Promise<void> {
  try {
    const file = await open(path, "wx", 0o600);
    try {
      await file.writeFile(text);
      await file.sync();
    } finally {
      await file.close();
    }
  } catch (error) {
    const exists = error instanceof Error && "code" in error && error.code === "EEXIST";
    const why = exists ? "exists already, and keys are not overwritten; choose another name" : "cannot be written";
    throw new KeyError(`${path} ${why}`, { cause: error });
  }
}

const NO_PASSPHRASE =
  "no passphrase given; is its variable set? Without encryption, use `writeKeyFile` and `readKeyFile`";
