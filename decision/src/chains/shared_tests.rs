//! Two workers, the store that they share, and an attacker who can write to it.

use credence_delegation::{Chain, Limits, TrustAnchor};

use super::*;
use crate::samples::{self, ISSUER, NOW, Store, derived, grant, key, root};

const AT: UnixTime = UnixTime(NOW);

fn keys(current: u8, previous: Option<u8>) -> SealKeys {
    let previous = previous.map(|byte| vec![byte; 32]).unwrap_or_default();
    SealKeys::parse(&[current; 32], &previous).unwrap()
}

fn anchor() -> TrustAnchor {
    TrustAnchor {
        issuer: ISSUER.into(),
        key: key(1).public(),
        key_id: None,
        algorithms: Algorithms::default(),
        asserts_subjects: true,
        delegations: true,
        access_tokens: None,
        same_principals: Vec::new(),
        is_fetched: false,
    }
}

fn context() -> SealContext {
    SealContext::new(&TrustAnchors::new([anchor()]), &Algorithms::default())
}

/// A worker's state.
fn worker() -> SharedChains {
    SharedChains::new([5; 16], 4_096, context())
}

/// A worker with only one bucket.
fn worker_with_one_bucket() -> SharedChains {
    SharedChains::new([5; 16], ENTRIES_PER_BUCKET, context())
}

const TOOLS: &str = r#"{"read":{}}"#;

fn root_named(id: &str) -> String {
    root(grant(id, 2, TOOLS))
}

/// A root, its child, and its grandchild, joined.
fn chain_of_three() -> String {
    let root = root_named("root");
    let child = derived(&root, 2, &grant("child", 3, TOOLS));
    let leaf = derived(&child, 3, &grant("leaf", 4, TOOLS));
    format!("{root}~{child}~{leaf}")
}

fn principal(number: u64) -> UserKey {
    UserKey::new(number << 1)
}

/// Lets a worker verify a chain and write its entry.
fn share(worker: &mut SharedChains, joined: &str, store: &mut Store, keys: &SealKeys) {
    worker.share(&samples::verified(joined), principal(1));
    worker.write_waiting(AT, store, keys);
}

/// For how many of the chain's tokens an entry vouches, and under which key it is sealed.
fn look(
    worker: &mut SharedChains,
    joined: &str,
    now: UnixTime,
    store: &mut Store,
    keys: &SealKeys,
) -> Option<(usize, SealedWith)> {
    let chain = Chain::parse_joined(joined, &Limits::default()).unwrap();
    let found = worker.find(&chain, now, store, keys)?;
    assert_eq!(found.anchor, key(1).public().thumbprint());
    Some((found.beginning.tokens(), found.sealed_with))
}

fn is_found(worker: &mut SharedChains, joined: &str, store: &mut Store) -> bool {
    look(worker, joined, AT, store, &keys(1, None)).is_some()
}

#[test]
fn another_worker_finds_a_verified_chain_after_it_is_written() {
    let (store, keys, chain) = (&mut Store::default(), &keys(1, None), chain_of_three());
    let mut one = worker();
    one.share(&samples::verified(&chain), principal(1));
    assert_eq!(
        look(&mut worker(), &chain, AT, store, keys),
        None,
        "nothing is written yet"
    );
    one.write_waiting(AT, store, keys);
    let mut other = worker();
    assert_eq!(
        look(&mut other, &chain, AT, store, keys),
        Some((3, SealedWith::Current))
    );
    assert_eq!((one.counters.stored, other.counters.hits), (1, 1));
    // A parent without its own entry is not found by its child's.
    let parent = chain.rsplit_once('~').unwrap().0;
    assert_eq!(look(&mut other, parent, AT, store, keys), None);
    assert_eq!(other.counters.misses, 1);
}

#[test]
fn fruitless_look_ups_become_rarer_until_one_succeeds() {
    let (store, keys, chain) = (&mut Store::default(), &keys(1, None), chain_of_three());
    share(&mut worker(), &chain, store, keys);
    let (mut other, unknown) = (worker(), root_named("unknown"));
    let looks = |worker: &SharedChains| worker.counters.hits + worker.counters.misses;
    for _ in 0..PATIENCE + 3 * ONE_IN {
        assert_eq!(look(&mut other, &unknown, AT, store, keys), None);
    }
    assert_eq!(looks(&other), u64::from(PATIENCE) + 3);
    // One of these is made, and after it all.
    let found = (0..ONE_IN + 5).filter(|_| look(&mut other, &chain, AT, store, keys).is_some());
    assert_eq!(found.count(), 6);
    for _ in 0..PATIENCE {
        assert_eq!(look(&mut other, &unknown, AT, store, keys), None);
    }
    assert_eq!(looks(&other), 2 * u64::from(PATIENCE) + 3 + 6);
}

#[test]
fn the_longest_known_beginning_is_found_within_few_looks() {
    let (store, keys, chain) = (&mut Store::default(), &keys(1, None), chain_of_three());
    let parent = chain.rsplit_once('~').unwrap().0;
    let root = parent.rsplit_once('~').unwrap().0;
    let mut one = worker();
    share(&mut one, root, store, keys);
    let mut other = worker();
    assert_eq!(
        look(&mut other, &chain, AT, store, keys),
        Some((1, SealedWith::Current))
    );
    share(&mut one, parent, store, keys);
    assert_eq!(
        look(&mut other, &chain, AT, store, keys),
        Some((2, SealedWith::Current))
    );
    assert_eq!(other.counters.beginnings, 2);

    let deeper = format!(
        "{chain}~{}",
        derived(chain.rsplit('~').next().unwrap(), 4, &grant("last", 5, TOOLS))
    );
    store.reads = 0;
    assert_eq!(
        look(&mut other, &deeper, AT, store, keys),
        Some((2, SealedWith::Current))
    );
    let elsewhere = &mut Store::default();
    share(&mut one, root, elsewhere, keys);
    elsewhere.reads = 0;
    assert_eq!(
        look(&mut other, &deeper, AT, elsewhere, keys),
        None,
        "the root is one look too far"
    );
    assert_eq!(elsewhere.reads, MAX_LOOKS);
}

#[test]
fn an_entry_ends_with_its_chain() {
    let (store, keys, chain) = (&mut Store::default(), &keys(1, None), root_named("root"));
    share(&mut worker(), &chain, store, keys);
    let mut at = |now| look(&mut worker(), &chain, UnixTime(now), store, keys).is_some();
    assert!(at(NOW + 3599));
    assert!(!at(NOW + 3600));
}

#[test]
fn an_entry_of_the_previous_key_counts_but_an_older_one_does_not() {
    let (store, chain) = (&mut Store::default(), root_named("root"));
    share(&mut worker(), &chain, store, &keys(1, None));
    let mut with = |keys| look(&mut worker(), &chain, AT, store, &keys).map(|(_, with)| with);
    assert_eq!(with(keys(1, Some(0))), Some(SealedWith::Current));
    assert_eq!(with(keys(2, Some(1))), Some(SealedWith::Previous));
    assert_eq!(with(keys(3, Some(2))), None);
    assert_eq!(with(keys(9, None)), None, "another node's");
}

#[test]
fn a_chain_is_rewritten_under_the_present_key() {
    let (store, chain) = (&mut Store::default(), root_named("root"));
    share(&mut worker(), &chain, store, &keys(1, None));
    share(&mut worker(), &chain, store, &keys(2, Some(1)));
    assert!(look(&mut worker(), &chain, AT, store, &keys(3, Some(2))).is_some());
    store.overwrite(|_, bucket| assert_eq!(bucket.len(), Entry::BYTES, "in the place of the old entry"));
}

#[test]
fn an_existing_entry_is_not_written_again() {
    let (store, keys, chain) = (&mut Store::default(), &keys(1, None), root_named("root"));
    let mut one = worker();
    share(&mut one, &chain, store, keys);
    share(&mut one, &chain, store, keys);
    assert_eq!(
        one.counters,
        Counters {
            stored: 1,
            ..Counters::default()
        }
    );
}

#[test]
fn an_entry_is_invalid_under_other_trust_anchors_or_algorithms() {
    let (store, chain) = (&mut Store::default(), root_named("root"));
    share(&mut worker(), &chain, store, &keys(1, None));
    let with = |change: &dyn Fn(&mut TrustAnchor)| {
        let mut changed = anchor();
        change(&mut changed);
        TrustAnchors::new([changed])
    };
    let (ed25519, both) = (
        Algorithms::default(),
        Algorithms::new([Algorithm::Ed25519, Algorithm::EdDsa]),
    );
    let more = TrustAnchor {
        key: key(7).public(),
        ..anchor()
    };
    let contexts = [
        SealContext::new(&TrustAnchors::default(), &ed25519),
        SealContext::new(&with(&|anchor| anchor.issuer.push('/')), &ed25519),
        SealContext::new(&with(&|anchor| anchor.key = key(7).public()), &ed25519),
        SealContext::new(&with(&|anchor| anchor.key_id = Some("one".into())), &ed25519),
        SealContext::new(&with(&|anchor| anchor.key_id = Some(String::new())), &ed25519),
        SealContext::new(&with(&|anchor| anchor.algorithms = both.clone()), &ed25519),
        SealContext::new(&with(&|anchor| anchor.asserts_subjects = false), &ed25519),
        SealContext::new(&TrustAnchors::new([anchor(), more]), &ed25519),
        SealContext::new(&TrustAnchors::new([anchor()]), &both),
    ];
    for (index, context) in contexts.into_iter().enumerate() {
        assert!(
            !is_found(&mut SharedChains::new([5; 16], 4_096, context), &chain, store),
            "{index}"
        );
        assert!(!contexts[..index].contains(&context), "{index}");
    }
    assert!(is_found(&mut worker(), &chain, store));
}

#[test]
fn an_entry_with_a_flipped_bit_is_ignored() {
    let (store, chain) = (&mut Store::default(), root_named("root"));
    share(&mut worker(), &chain, store, &keys(1, None));
    for bit in 0..Entry::BYTES * 8 {
        let flip = |_: &str, bucket: &mut Vec<u8>| bucket[bit / 8] ^= 1 << (bit % 8);
        store.overwrite(flip);
        assert!(!is_found(&mut worker(), &chain, store), "bit {bit}");
        store.overwrite(flip);
    }
    assert!(is_found(&mut worker(), &chain, store));
}

#[test]
fn a_flipped_bit_affects_only_its_own_entry() {
    let store = &mut Store::default();
    let mut one = worker_with_one_bucket();
    let chains: Vec<_> = (0..3).map(|number| root_named(&number.to_string())).collect();
    for chain in &chains {
        share(&mut one, chain, store, &keys(1, None));
    }
    for byte in 0..3 * Entry::BYTES {
        let flip = |_: &str, bucket: &mut Vec<u8>| bucket[byte] ^= 0x80;
        store.overwrite(flip);
        for (place, chain) in chains.iter().enumerate() {
            assert_eq!(
                is_found(&mut one, chain, store),
                place != byte / Entry::BYTES,
                "byte {byte}"
            );
        }
        store.overwrite(flip);
    }
}

#[test]
fn a_bucket_of_another_layout_is_empty_and_is_overwritten() {
    let (chain, other) = (root_named("root"), root_named("other"));
    for length in (0..Entry::BYTES).chain([Entry::BYTES + 1, Entry::BYTES * (ENTRIES_PER_BUCKET + 1), 1 << 20]) {
        let store = &mut Store::default();
        let mut one = worker_with_one_bucket();
        share(&mut one, &chain, store, &keys(1, None));
        store.overwrite(|_, bucket| bucket.resize(length, 0));
        assert!(!is_found(&mut one, &chain, store), "{length}");
        share(&mut one, &other, store, &keys(1, None));
        assert!(is_found(&mut one, &other, store), "{length}");
        store.overwrite(|_, bucket| assert_eq!(bucket.len(), Entry::BYTES));
    }
}

#[test]
fn an_entry_moved_to_another_chain_is_ignored() {
    let store = &mut Store::default();
    let mut one = worker();
    let (good, bad) = (
        root_named("good"),
        samples::root_by(&key(9), ISSUER, grant("bad", 2, TOOLS)),
    );
    share(&mut one, &good, store, &keys(1, None));
    let digest = |chain: &str| *Chain::parse_joined(chain, &Limits::default()).unwrap().beginnings()[0].digest();
    let (from, to) = (one.place(&digest(&good)).unwrap(), one.place(&digest(&bad)).unwrap());
    let (mut bucket, _) = store.read(&from.key).unwrap().unwrap();
    store.write(&to.key, &bucket, None).unwrap();
    assert!(!is_found(&mut one, &bad, store));
    // With the tag of the bad chain, which anyone who reads the shared secret can compute.
    bucket[..8].copy_from_slice(&to.tag);
    store.overwrite(|key, value| {
        if key == to.key {
            value.clone_from(&bucket);
        }
    });
    assert!(!is_found(&mut one, &bad, store));
    assert!(is_found(&mut one, &good, store));
}

#[test]
fn a_full_bucket_keeps_its_size_and_drops_its_oldest() {
    let store = &mut Store::default();
    let mut one = worker_with_one_bucket();
    let chains: Vec<_> = (0..20).map(|number| root_named(&number.to_string())).collect();
    for chain in &chains {
        share(&mut one, chain, store, &keys(1, None));
        store.overwrite(|_, bucket| assert!(bucket.len() <= ENTRIES_PER_BUCKET * Entry::BYTES));
    }
    let found: Vec<_> = chains.iter().map(|chain| is_found(&mut one, chain, store)).collect();
    assert_eq!(found, [vec![false; 12], vec![true; 8]].concat());
}

#[test]
fn expired_entries_are_replaced_before_old_ones() {
    let store = &mut Store::default();
    let mut one = worker_with_one_bucket();
    let short_lived = |id: &str| {
        let mut short = grant(id, 2, TOOLS);
        short.expires_at = UnixTime(NOW + 60);
        root(short)
    };
    share(&mut one, &root_named("old"), store, &keys(1, None));
    for number in 0..7 {
        share(&mut one, &short_lived(&number.to_string()), store, &keys(1, None));
    }
    one.share(&samples::verified(&root_named("new")), principal(1));
    one.write_waiting(UnixTime(NOW + 60), store, &keys(1, None));
    store.overwrite(|_, bucket| assert_eq!(bucket.len(), 2 * Entry::BYTES));
    assert!(is_found(&mut one, &root_named("old"), store) && is_found(&mut one, &root_named("new"), store));
}

#[test]
fn the_keys_in_the_store_are_never_more_than_the_buckets() {
    let store = &mut Store::default();
    let mut one = SharedChains::new([5; 16], 30, context());
    let chain = samples::verified(&root_named("root"));
    for number in 0..500u32 {
        one.waiting.push_back(Verified {
            digest: Sha256::digest(number.to_le_bytes()).into(),
            expires_at: chain.expires_at(),
            anchor: chain.anchor(),
            principal: principal(1),
        });
        one.write_waiting(AT, store, &keys(1, None));
    }
    assert_eq!(store.keys(), 4, "30 entries, rounded up to buckets of 8");
}

#[test]
fn a_lost_race_or_a_failing_host_costs_only_the_entry() {
    let (store, chain) = (&mut Store::default(), root_named("root"));
    let mut one = worker();
    store.lose_next_writes = 1;
    share(&mut one, &chain, store, &keys(1, None));
    assert!(!is_found(&mut one, &chain, store));
    store.fail = true;
    share(&mut one, &chain, store, &keys(1, None));
    assert!(!is_found(&mut one, &chain, store));
    store.fail = false;
    assert_eq!((one.counters.stored, one.counters.dropped), (0, 2));
    share(&mut one, &chain, store, &keys(1, None));
    assert!(is_found(&mut one, &chain, store));
}

#[test]
fn waiting_chains_are_bounded_and_written_in_small_steps() {
    let store = &mut Store::default();
    let mut one = worker();
    let chain = samples::verified(&root_named("root"));
    for number in 0..MAX_WAITING as u64 + 10 {
        one.share(&chain, principal(number));
    }
    assert_eq!((one.waiting.len(), one.counters.dropped), (MAX_WAITING, 10));
    one.write_waiting(AT, store, &keys(1, None));
    assert_eq!(one.waiting.len(), MAX_WAITING - MAX_WRITES);
}

#[test]
fn chains_of_one_principal_leave_places_for_another() {
    let mut one = worker();
    let chain = samples::verified(&root_named("root"));
    let mut waiting = |number| {
        let before = one.waiting.len();
        (0..2 * MAX_WAITING).for_each(|_| one.share(&chain, principal(number)));
        one.waiting.len() - before
    };
    assert_eq!((waiting(1), waiting(2)), (MAX_WAITING / 2, MAX_WAITING / 4));
    let store = &mut Store::default();
    while !one.waiting.is_empty() {
        one.write_waiting(AT, store, &keys(1, None));
    }
    one.share(&chain, principal(1));
    assert_eq!(one.waiting.len(), 1, "freed places can be used again");
}

#[test]
fn a_chain_that_expired_while_waiting_is_not_written() {
    let store = &mut Store::default();
    let mut one = worker();
    one.share(&samples::verified(&root_named("root")), principal(1));
    one.write_waiting(UnixTime(NOW + 3600), store, &keys(1, None));
    assert_eq!(store.keys(), 0);
}

#[test]
fn without_capacity_the_store_is_not_read() {
    let (store, chain) = (&mut Store::default(), root_named("root"));
    let mut off = SharedChains::new([5; 16], 0, context());
    share(&mut off, &chain, store, &keys(1, None));
    assert!(!is_found(&mut off, &chain, store));
    assert_eq!((store.reads, store.keys(), off.counters), (0, 0, Counters::default()));
}
