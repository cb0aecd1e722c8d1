use std::os::unix::fs::PermissionsExt as _;

use credence_delegation::JwkSet;
use tempfile::TempDir;

use super::*;

const PASSPHRASE: &[u8] = b"correct horse battery staple";
const NOW: u64 = 1_800_000_000;
const LEAD: u64 = 600;
const TOKEN: u64 = 3600;

fn created() -> (TempDir, Keys) {
    let folder = tempfile::tempdir().unwrap();
    let keys = Keys::create(folder.path(), PASSPHRASE).unwrap();
    (folder, keys)
}

fn signer(keys: &Keys, now: u64) -> String {
    keys.signing(now).key_id.unwrap().to_owned()
}

fn published(keys: &Keys, now: u64) -> Vec<String> {
    let set = JwkSet::parse(keys.jwks(now).as_bytes()).unwrap();
    set.keys().iter().map(|key| key.id.clone().unwrap()).collect()
}

fn error(opened: Result<Keys, KeysError>) -> String {
    opened.expect_err("an error").to_string()
}

#[test]
fn opened_keys_are_the_created_ones() {
    let (folder, created) = created();
    let opened = Keys::open(folder.path(), PASSPHRASE).unwrap();
    assert_eq!(opened.jwks(NOW), created.jwks(NOW));
    let (one, other) = (created.signing(NOW), opened.signing(NOW));
    assert_eq!((one.key.sign(b"x"), one.key_id), (other.key.sign(b"x"), other.key_id));
    assert_eq!(one.key_id.unwrap(), one.key.public().thumbprint().to_string());
    assert_eq!(opened.mac("code", b"x"), created.mac("code", b"x"));
    let mode = std::fs::metadata(folder.path().join(FILE))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn keys_are_never_replaced_by_new_ones() {
    let (folder, keys) = created();
    assert!(error(Keys::create(folder.path(), PASSPHRASE)).contains("keys.sealed: the file exists"));
    assert_eq!(Keys::open(folder.path(), PASSPHRASE).unwrap().jwks(NOW), keys.jwks(NOW));
}

#[test]
fn jwks_are_public_and_say_what_they_are_for() {
    let (_folder, keys) = created();
    let jwks = keys.jwks(NOW);
    for part in [r#""alg":"Ed25519""#, r#""use":"sig""#] {
        assert!(jwks.contains(part), "{jwks}");
    }
    assert!(!jwks.contains(r#""d":"#), "{jwks}");
    let public: Vec<PublicKey> = keys.public(NOW).collect();
    assert_eq!(public, [keys.signing(NOW).key.public()]);
}

#[test]
fn an_error_names_the_file_and_the_cure() {
    let (folder, _) = created();
    let path = folder.path().join(FILE);
    let opened = |passphrase: &[u8]| error(Keys::open(folder.path(), passphrase));
    let wrong = opened(b"incorrect horse battery staple");
    assert!(wrong.contains("keys.sealed") && wrong.contains("passphrase"), "{wrong}");
    let mut newer = std::fs::read(&path).unwrap();
    newer[21] = b'2';
    std::fs::write(&path, newer).unwrap();
    assert!(opened(PASSPHRASE).contains("this version of credence"));
    std::fs::write(&path, "{}").unwrap();
    assert!(opened(PASSPHRASE).contains("backup"));
    std::fs::remove_file(&path).unwrap();
    assert!(opened(PASSPHRASE).contains("keys create"));
    assert!(error(Keys::create(folder.path(), b"short")).contains("15 bytes"));
}

/// As an attacker who can write the file, but knows no passphrase.
#[test]
fn no_changed_byte_and_no_cut_goes_unnoticed() {
    let (folder, keys) = created();
    let path = folder.path().join(FILE);
    let whole = std::fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        std::fs::write(&path, &changed).unwrap();
        assert!(keys.reload().is_err(), "byte {at}");
        std::fs::write(&path, &whole[..at]).unwrap();
        assert!(keys.reload().is_err(), "{at} bytes");
    }
    std::fs::write(&path, &whole).unwrap();
    keys.reload().unwrap();
}

#[test]
fn a_file_that_is_too_large_is_not_read() {
    let (folder, _) = created();
    std::fs::write(folder.path().join(FILE), vec![b' '; 1 << 20]).unwrap();
    assert!(error(Keys::open(folder.path(), PASSPHRASE)).contains("larger than"));
}

#[test]
fn a_new_key_is_published_before_it_signs_and_the_old_one_until_its_tokens_have_expired() {
    let (folder, mut keys) = created();
    let old = signer(&keys, NOW);
    keys.rotate(NOW, LEAD, TOKEN).unwrap();
    let begins = NOW + LEAD;
    let new = signer(&keys, begins);
    assert_ne!(new, old);
    assert_eq!(signer(&keys, begins - 1), old);
    let both = [old.clone(), new.clone()];
    assert_eq!(published(&keys, NOW), both);
    assert_eq!(published(&keys, begins + TOKEN - 1), both);
    assert_eq!(published(&keys, begins + TOKEN), std::slice::from_ref(&new));
    // The file says the same, and forgets the old key at the next rotation.
    keys = Keys::open(folder.path(), PASSPHRASE).unwrap();
    assert_eq!(published(&keys, NOW), both);
    keys.rotate(begins + TOKEN, LEAD, TOKEN).unwrap();
    assert!(!published(&keys, NOW).contains(&old));
}

#[test]
fn rotations_in_quick_succession_keep_their_order() {
    let (_folder, mut keys) = created();
    keys.rotate(NOW, LEAD, TOKEN).unwrap();
    let second = signer(&keys, NOW + LEAD);
    // With a shorter lead: it does not sign before the second one, which then never signs.
    keys.rotate(NOW + 1, 0, TOKEN).unwrap();
    let [first, _, third] = &published(&keys, NOW)[..] else {
        panic!("three keys");
    };
    assert_eq!(&signer(&keys, NOW + LEAD - 1), first);
    for later in [NOW + LEAD, NOW + LEAD + TOKEN, u64::MAX] {
        assert_eq!(&signer(&keys, later), third);
        assert_ne!(third, &second);
    }
    // A clock that went backwards still finds a key.
    assert_eq!(&signer(&keys, 0), first);
}

#[test]
fn verifiers_need_to_fetch_only_a_few_keys() {
    let (_folder, mut keys) = created();
    for _ in 1..MAX_KEYS {
        keys.rotate(NOW, LEAD, TOKEN).unwrap();
    }
    let jwks = keys.jwks(NOW);
    assert!(matches!(keys.rotate(NOW, LEAD, TOKEN), Err(KeysError::TooMany(_))));
    assert_eq!(keys.jwks(NOW), jwks);
    keys.rotate(NOW + LEAD + TOKEN, LEAD, TOKEN).unwrap();
}

#[test]
fn a_rotation_by_another_process_is_noticed() {
    let (folder, mut running) = created();
    let mut other = Keys::open(folder.path(), PASSPHRASE).unwrap();
    assert!(running.is_current().unwrap());
    other.rotate(NOW, LEAD, TOKEN).unwrap();
    assert!(other.is_current().unwrap());
    assert!(!running.is_current().unwrap());
    assert_eq!(running.reload().unwrap().jwks(NOW), other.jwks(NOW));
    // Keys that were read before a rotation do not undo it.
    running.rotate(NOW, LEAD, TOKEN).unwrap();
    assert_eq!(published(&running, NOW).len(), 3);
}

#[test]
fn a_mac_counts_for_its_label_and_message_only() {
    let (_folder, keys) = created();
    let mac = keys.mac("code", b"1");
    assert!(keys.is_mac("code", b"1", &mac));
    for (label, message) in [
        ("code", b"2".as_slice()),
        ("refresh", b"1"),
        ("cod", b"e1"),
        ("code1", b""),
    ] {
        assert!(!keys.is_mac(label, message, &mac), "{label}");
    }
    assert!(!keys.is_mac("code", b"1", &mac[..31]));
    let (_folder, others) = created();
    assert!(!others.is_mac("code", b"1", &mac));
}

#[test]
fn debug_shows_no_secret() {
    let (_folder, keys) = created();
    let shown = format!("{keys:?}");
    assert!(shown.contains(&signer(&keys, NOW)), "{shown}");
    assert_eq!(
        shown,
        format!("Keys({}, [{:?}])", keys.path.display(), signer(&keys, NOW))
    );
}
