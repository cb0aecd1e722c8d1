//! A chain that one worker has verified is known to the other workers, and to a worker whose VM was replaced. Entries
//! that another plugin writes are never trusted.

use std::collections::HashMap;
use std::hash::Hasher;

use credence_e2e::artefacts::Artefacts;
use credence_e2e::audit::{Kind, Record};
use credence_e2e::command::Key;
use credence_e2e::configuration::{Replacement, Watching};
use credence_e2e::grants::READ;
use credence_e2e::{Client, Reply, Request, Stack, StackOptions, waiting};
use sha2::{Digest, Sha256};
use siphasher::sip128::{Hasher128, SipHasher24};

fn book(chain: &str) -> Request {
    Request::get("/v1/catalog/book").delegation(chain)
}

#[track_caller]
fn assert_allowed(reply: &Reply) {
    assert_eq!((reply.status, reply.reason()), (200, None), "{}", reply.text());
}

/// For each decision on the leaf, in the ledger's order: the filter, and where it found the chain.
fn look_ups(stack: &Stack, leaf: &str) -> Vec<(String, String)> {
    let of_leaf = |record: &Record| {
        let decision = record.decision()?;
        let is_on_leaf = decision.delegation_ids.last().is_some_and(|id| id == leaf);
        is_on_leaf.then(|| (record.source.clone(), decision.cache.clone()))
    };
    stack.records().unwrap().iter().filter_map(of_leaf).collect()
}

/// The same, once there are this many.
fn until_looked_up(stack: &Stack, leaf: &str, count: usize) -> Vec<(String, String)> {
    waiting::until(format_args!("{count} decisions on {leaf} to be recorded"), || {
        Ok(Some(look_ups(stack, leaf)).filter(|found| found.len() >= count))
    })
    .unwrap()
}

/// Waits until the workers have shared this many chains.
fn until_shared(stack: &Stack, count: u64) {
    waiting::until(format_args!("{count} chains to be shared"), || {
        let stored = stack.envoy.stat("wasmcustom.credence_shared_cache_stored")?;
        Ok((stored >= count).then_some(()))
    })
    .unwrap();
}

/// The count of each cache level.
fn counted(look_ups: &[(String, String)]) -> HashMap<&str, usize> {
    look_ups.iter().fold(HashMap::new(), |mut counts, (_, cache)| {
        *counts.entry(cache.as_str()).or_default() += 1;
        counts
    })
}

#[test]
fn a_chain_is_verified_once_for_all_workers() {
    let stack = Stack::start(&StackOptions::quick()).unwrap();
    let root = stack
        .mint("alice", &["--id", "root", "--tool", READ, "--max-depth", "1"])
        .unwrap();
    let chain = stack
        .derive(&root, &stack.agent, &["--id", "leaf", "--same-tools"])
        .unwrap();
    let mut workers = stack.envoy.connection_to_every_worker().unwrap();
    let (first, others) = workers.split_first_mut().unwrap();
    assert_allowed(&first.send(&book(&chain)).unwrap());
    // The chain, and its root.
    until_shared(&stack, 2);
    for client in others.iter_mut() {
        for _ in 0..5 {
            assert_allowed(&client.send(&book(&chain)).unwrap());
        }
    }
    let found = until_looked_up(&stack, "leaf", 1 + 5 * others.len());
    let expected = [("none", 1), ("l2", others.len()), ("l1", 4 * others.len())];
    assert_eq!(counted(&found), HashMap::from(expected), "{found:?}");
    let hits = stack.envoy.stat("wasmcustom.credence_shared_cache_hits").unwrap();
    assert_eq!(hits, others.len() as u64);
}

#[test]
fn a_new_vm_knows_the_chains_that_the_previous_one_verified() {
    let options = StackOptions {
        watching: Some(Watching::Listener),
        ..StackOptions::quick()
    };
    let stack = Stack::start(&options).unwrap();
    let chain = stack.mint("alice", &["--id", "leaf", "--tool", READ]).unwrap();
    for client in &mut stack.envoy.connection_to_every_worker().unwrap() {
        assert_allowed(&client.send(&book(&chain)).unwrap());
        until_shared(&stack, 1);
    }
    let before = until_looked_up(&stack, "leaf", 2);

    // Another VM configuration makes another VM, with its own memory and the same vm_id.
    stack
        .reconfigure(&[Replacement::once("vm_id: credence\n", ANOTHER_VM)])
        .unwrap();
    let is_new = |(source, _): &&(String, String)| before.iter().all(|(known, _)| known != source);
    let after = waiting::until("every worker's new VM to decide", || {
        for client in &mut stack.envoy.connection_to_every_worker()? {
            // A new VM is not ready before its first snapshot.
            let reply = client.send(&book(&chain))?;
            assert!([200, 503].contains(&reply.status), "{}", reply.text());
        }
        let found = look_ups(&stack, "leaf");
        let mut sources: Vec<String> = found.iter().filter(is_new).map(|(source, _)| source.clone()).collect();
        sources.sort();
        sources.dedup();
        Ok((sources.len() == 2).then_some(found))
    })
    .unwrap();
    let new: Vec<_> = after.iter().filter(is_new).cloned().collect();
    let counts = counted(&new);
    assert_eq!((counts.get("l2"), counts.get("none")), (Some(&2), None), "{new:?}");
}

/// Envoy with a second plugin before the filter that shares its `vm_id`, and obeys its clients.
struct Neighbourhood {
    stack: Stack,
    client: Client,
    minted: usize,
}

impl Neighbourhood {
    fn new(options: StackOptions) -> Self {
        let module = Artefacts::from_environment().unwrap().neighbour().unwrap();
        let module = module.display();
        let filter = "                  - name: credence\n                    typed_config:\n";
        let neighbour = format!(
            r#"                  - name: neighbour
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
                      config:
                        name: neighbour
                        root_id: neighbour
                        vm_config:
                          vm_id: credence
                          runtime: envoy.wasm.runtime.v8
                          code: {{local: {{filename: {module}}}}}
{filter}"#
        );
        let stack = Stack::start(&options.replacing(filter, &neighbour)).unwrap();
        let client = Client::connect(stack.envoy.ingress()).unwrap();
        Self {
            stack,
            client,
            minted: 0,
        }
    }

    fn read(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let reply = self
            .client
            .send(&Request::get("/").header("x-neighbour-key", hex(key)))
            .unwrap();
        (reply.status == 200).then(|| from_hex(&reply.text()))
    }

    fn write(&mut self, key: &[u8], value: &[u8]) {
        let request = Request::get("/")
            .header("x-neighbour-key", hex(key))
            .header("x-neighbour-value", hex(value));
        assert_eq!(self.client.send(&request).unwrap().text(), hex(value));
    }

    /// The key of a chain's entry, and its tag. A plugin that reads the shared data can compute both.
    fn place(&mut self, chain: &str) -> (Vec<u8>, [u8; 8]) {
        let founding = self.read(b"credence/replay/founding/1").unwrap();
        let secret: [u8; 16] = founding[..16].try_into().unwrap();
        let digests: Vec<u8> = chain.split('~').flat_map(Sha256::digest).collect();
        let prefix = b"credence/chains/1/";
        let mut hasher = SipHasher24::new_with_key(&secret);
        hasher.write(prefix);
        hasher.write(&Sha256::digest(digests));
        let hash = hasher.finish128();
        let bucket = u32::try_from(hash.h1 % BUCKETS).unwrap();
        (
            [&prefix[..], bucket.to_string().as_bytes()].concat(),
            hash.h2.to_le_bytes(),
        )
    }

    /// A chain whose bucket holds no other entry, and its id.
    fn mint(&mut self, key: &Key) -> (String, String) {
        let minted = (0..).find_map(|_| {
            self.minted += 1;
            let id = format!("chain-{}", self.minted);
            let chain = self
                .stack
                .mint_with(key, "alice", &["--id", &id, "--tool", READ])
                .unwrap();
            let (bucket, _) = self.place(&chain);
            self.read(&bucket).is_none().then_some((id, chain))
        });
        minted.unwrap()
    }

    fn until_bucket_is(&mut self, key: &[u8], what: &str, is_as_wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        waiting::until(what, || Ok(self.read(key).filter(|bucket| is_as_wanted(bucket)))).unwrap()
    }
}

#[test]
fn an_entry_that_another_plugin_has_damaged_is_verified_again() {
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 6] = [
        ("cut by one byte", |bucket| bucket.truncate(bucket.len() - 1)),
        ("emptied", Vec::clear),
        ("zeroed", |bucket| bucket.fill(0)),
        ("a bit of the seal", |bucket| bucket[ENTRY_BYTES - 1] ^= 1),
        ("a later end", |bucket| bucket[10] ^= 0x40),
        ("far too long", |bucket| bucket.resize(1 << 14, 0xff)),
    ];
    let mut here = Neighbourhood::new(StackOptions::quick());
    let issuer = here.stack.issuer.clone();
    for (what, damage) in damages {
        let (id, chain) = here.mint(&issuer);
        let (key, tag) = here.place(&chain);
        let mut workers = here.stack.envoy.connection_to_every_worker().unwrap();
        let (first, others) = workers.split_first_mut().unwrap();
        assert_allowed(&first.send(&book(&chain)).unwrap());
        let written = here.until_bucket_is(&key, "the chain to be shared", |bucket| bucket.starts_with(&tag));
        let mut damaged = written.clone();
        damage(&mut damaged);
        here.write(&key, &damaged);
        for client in others.iter_mut() {
            assert_allowed(&client.send(&book(&chain)).unwrap());
        }
        let found = until_looked_up(&here.stack, &id, 1 + others.len());
        assert_eq!(counted(&found), HashMap::from([("none", 1 + others.len())]), "{what}");
        here.until_bucket_is(&key, "the damage to be written over", |bucket| bucket == written);
    }
}

#[test]
fn a_forged_chain_with_the_entry_of_a_valid_one_stays_denied() {
    let mut here = Neighbourhood::new(StackOptions::quick());
    let issuer = here.stack.issuer.clone();
    let mallory = here.stack.credence.keygen("mallory").unwrap();
    let (_, good) = here.mint(&issuer);
    let (key, good_tag) = here.place(&good);
    assert_allowed(&here.stack.send(&book(&good)).unwrap());
    let bucket = here.until_bucket_is(&key, "the chain to be shared", |bucket| bucket.starts_with(&good_tag));
    let mut denied = 0;
    for _ in 0..3 {
        let (_, forged) = here.mint(&mallory);
        let (forged_key, tag) = here.place(&forged);
        // The valid entry, under the tag of the forged chain.
        let entry = [&tag[..], &bucket[8..ENTRY_BYTES]].concat();
        here.write(&forged_key, &entry);
        for client in &mut here.stack.envoy.connection_to_every_worker().unwrap() {
            for _ in 0..2 {
                let reply = client.send(&book(&forged)).unwrap();
                assert_eq!(
                    (reply.status, reply.reason().as_deref()),
                    (401, Some("delegation_invalid"))
                );
                denied += 1;
            }
        }
        assert_eq!(here.read(&forged_key), Some(entry), "nothing was written for it");
    }
    waiting::until("the denials to be recorded with their reason", || {
        let records = here.stack.records()?;
        let counts = records.iter().filter_map(|record| match &record.kind {
            Kind::Aggregate { reason, count, .. } if reason == "signature_invalid" => Some(*count),
            _ => None,
        });
        Ok((counts.sum::<u64>() == denied).then_some(()))
    })
    .unwrap();
    assert_eq!(here.read(&key), Some(bucket));
    assert_allowed(&here.stack.send(&book(&good)).unwrap());
}

#[test]
fn an_entry_sealed_two_rotations_ago_is_not_trusted() {
    let options = StackOptions {
        serve_options: ["--cache-key-rotation", "1s"].map(str::to_owned).to_vec(),
        ..StackOptions::quick()
    };
    // Without its own cache, the worker reads the shared one each time.
    let own = "default: deny\n";
    let mut here = Neighbourhood::new(options.replacing(own, &format!("limits: {{cache_entries: 0}}\n{INDENT}{own}")));
    let issuer = here.stack.issuer.clone();
    let (id, chain) = here.mint(&issuer);
    let (key, tag) = here.place(&chain);
    let mut client = Client::connect(here.stack.envoy.ingress()).unwrap();
    let mut asked = 0;
    let mut ask = || {
        asked += 1;
        assert_allowed(&client.send(&book(&chain)).unwrap());
        asked
    };
    ask();
    let oldest = here.until_bucket_is(&key, "the chain to be shared", |bucket| bucket.starts_with(&tag));
    let mut present = oldest.clone();
    for _ in 0..2 {
        // A worker that finds an entry sealed with the previous key seals it again.
        present = waiting::until("the chain to be sealed with the next key", || {
            ask();
            Ok(here.read(&key).filter(|bucket| *bucket != present))
        })
        .unwrap();
    }
    here.write(&key, &oldest);
    let count = ask();
    let found = until_looked_up(&here.stack, &id, count);
    let levels: Vec<&str> = found.iter().map(|(_, cache)| cache.as_str()).collect();
    assert_eq!((levels[0], levels[count - 1]), ("none", "none"), "{levels:?}");
    assert!(levels.contains(&"l2"), "{levels:?}");
}

/// The indentation of the filter's settings in envoy-config/envoy.yaml.
const INDENT: &str = "                            ";

const BUCKETS: u64 = 4_096 / 8;
const ENTRY_BYTES: usize = 80;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    let byte = |index| u8::from_str_radix(&text[index..index + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// The VM's identity in shared data, and a VM configuration that differs from the initial one.
const ANOTHER_VM: &str = r#"vm_id: credence
                          configuration: {"@type": type.googleapis.com/google.protobuf.StringValue, value: another}
"#;
