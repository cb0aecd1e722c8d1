//! A damaged revocation log: truncated, missing, replaced, or an old copy.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use credence_e2e::artefacts::Artefacts;
use credence_e2e::assertions::assert_denied;
use credence_e2e::configuration::{Replacement, Watching};
use credence_e2e::control_plane::{ControlPlane, copy_folder};
use credence_e2e::envoy::WORKERS;
use credence_e2e::grants::READ;
use credence_e2e::late_allows::Load;
use credence_e2e::operator::Operator;
use credence_e2e::{Request, Stack, StackOptions, waiting};

use super::{MAX_STALENESS, load_of, request_for};

/// A stack under load. Every worker knows that bob is revoked.
struct Case {
    stack: Stack,
    load: Load,
    revoked: Instant,
}

impl Case {
    fn begin() -> Self {
        Self::begin_with(&StackOptions::quick())
    }

    fn begin_with(options: &StackOptions) -> Self {
        let stack = Stack::start(options).unwrap();
        let load = load_of(&stack, &["alice", "bob"]);
        Self::revoke_bob(stack, load)
    }

    fn revoke_bob(stack: Stack, load: Load) -> Self {
        let revoked = Operator::of(&stack.control_plane).unwrap().raise("bob").unwrap().at;
        Self { stack, load, revoked }
    }

    fn data(&self) -> PathBuf {
        self.stack.control_plane.data_dir()
    }

    fn log_file(&self) -> PathBuf {
        self.data().join("log/state.redb")
    }

    /// The control plane refuses to serve the log.
    fn assert_refused(&mut self, words: &str) {
        let refused = self.stack.control_plane.restart().unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
        self.load.until_denied("alice", "stale").unwrap();
    }

    /// The control plane serves the log, and every filter refuses it repeatedly and says why.
    fn assert_not_believed(&mut self) {
        self.load.until_denied("alice", "stale").unwrap();
        let before = self.refusals();
        waiting::until("every filter to refuse the log, in Envoy's log", || {
            Ok((self.refusals() >= before + VMS).then_some(()))
        })
        .unwrap();
        self.load.until_denied("alice", "stale").unwrap();
    }

    fn refusals(&self) -> usize {
        let log = self.stack.envoy.log();
        log.matches("another log, or one restored from an old copy").count()
    }

    /// The filters accept the log again, and still deny the revoked principals.
    fn assert_cured(self) {
        self.load.until_allowed("alice").unwrap();
        self.assert_never_allowed();
    }

    fn assert_never_allowed(self) {
        self.load.go_on_beyond(Instant::now(), "bob").unwrap();
        self.load.finish().unwrap().assert_no_late_allows("bob", self.revoked);
    }
}

#[test]
fn a_truncated_log_is_not_served() {
    let mut case = Case::begin();
    case.stack.control_plane.stop().unwrap();
    let log = case.log_file();
    let whole = fs::read(&log).unwrap();
    fs::write(&log, &whole[..whole.len() - 1]).unwrap();
    case.assert_refused("log/state.redb is damaged");
    fs::write(&log, &whole).unwrap();
    case.stack.control_plane.restart().unwrap();
    case.assert_cured();
}

#[test]
fn a_log_with_a_flipped_bit_in_a_revoked_id_is_not_served() {
    let mut case = Case::begin();
    let chain = case.stack.mint("carol", &["--tool", READ]).unwrap();
    let request = Request::get("/v1/catalog/book").delegation(&chain);
    assert_eq!(case.stack.send(&request).unwrap().status, 200);
    case.stack.revoke(&["delegation", "--chain", &chain]).unwrap();
    assert_denied(&case.stack.send(&request).unwrap(), 401, "revoked_delegation");
    case.stack.control_plane.stop().unwrap();

    let log = case.log_file();
    let whole = fs::read(&log).unwrap();
    let mut flipped = whole.clone();
    // Only the entry of carol's delegation has that name.
    let carol = whole.windows(5).rposition(|window| window == b"carol").unwrap();
    flipped[carol] ^= 1;
    fs::write(&log, flipped).unwrap();
    case.assert_refused("log/state.redb is damaged");
    assert_ne!(case.stack.send(&request).unwrap().status, 200);

    fs::write(&log, whole).unwrap();
    case.stack.control_plane.restart().unwrap();
    case.load.until_allowed("alice").unwrap();
    assert_denied(&case.stack.send(&request).unwrap(), 401, "revoked_delegation");
    case.assert_cured();
}

#[test]
fn a_missing_log_is_replaced_only_if_the_operator_says_so() {
    let mut watching = StackOptions {
        watching: Some(Watching::Filter),
        ..StackOptions::quick()
    };
    // Delegations issued within the allowed skew after the new log's start are invalid too.
    let skew = "pop_clock_skew: 1s";
    let less_skew = format!("{skew}\n                            max_iat_skew: 2s");
    watching.replacements.push(Replacement::once(skew, less_skew));
    let mut case = Case::begin_with(&watching);
    let old = case.stack.control_plane.log_id().to_owned();
    case.stack.control_plane.kill().unwrap();
    fs::remove_dir_all(case.data()).unwrap();
    case.assert_refused("starting an empty one would forget every revocation");

    // The operator creates a new one, and the filters still wait for the one that they pin.
    case.stack.control_plane.restart_as_a_new_log().unwrap();
    case.assert_not_believed();

    // The operator pins the new log. It does not know the earlier revocations, so all delegations issued before it are
    // invalid.
    let new = case.stack.control_plane.log_id();
    assert_ne!(new, old);
    let pinned = |log_id: &str| format!("log_id: {log_id}");
    case.stack
        .reconfigure(&[Replacement::once(pinned(&old), pinned(new))])
        .unwrap();
    case.load.until_denied("alice", "revoked_issuer").unwrap();
    case.load.until_denied("bob", "revoked_issuer").unwrap();
    waiting::until("new delegations to be allowed", || {
        let reply = case.stack.send(&request_for(&case.stack, "alice"))?;
        Ok((reply.status == 200).then_some(()))
    })
    .unwrap();
    case.assert_never_allowed();
}

#[test]
fn another_log_is_refused() {
    let mut case = Case::begin();
    let program = Artefacts::from_environment().unwrap().credence;
    let elsewhere = tempfile::tempdir().unwrap();
    let mut other = ControlPlane::start(&program, elsewhere.path(), &[]).unwrap();
    // As long as the pinned log, and longer.
    for subject in ["carol", "dave"] {
        Operator::of(&other).unwrap().commit(subject).unwrap();
    }
    other.kill().unwrap();
    case.stack.control_plane.kill().unwrap();
    let (ours, theirs) = (case.data(), other.data_dir());
    let aside = ours.with_extension("aside");
    fs::rename(&ours, &aside).unwrap();
    fs::rename(&theirs, &ours).unwrap();
    case.stack.control_plane.restart().unwrap();
    case.assert_not_believed();

    case.stack.control_plane.kill().unwrap();
    fs::rename(&ours, &theirs).unwrap();
    fs::rename(&aside, &ours).unwrap();
    case.stack.control_plane.restart().unwrap();
    case.assert_cured();
}

#[test]
fn an_old_copy_is_refused_by_filters_that_have_seen_more() {
    let stack = Stack::start(&StackOptions::quick()).unwrap();
    let load = load_of(&stack, &["alice", "bob"]);
    Operator::of(&stack.control_plane).unwrap().raise("carol").unwrap();
    let data = stack.control_plane.data_dir();
    let copy = data.with_extension("copy");
    copy_folder(&data, &copy).unwrap();
    let mut case = Case::revoke_bob(stack, load);
    case.stack.control_plane.kill().unwrap();
    let aside = data.with_extension("aside");
    fs::rename(&data, &aside).unwrap();
    copy_folder(&copy, &data).unwrap();
    case.stack.control_plane.restart().unwrap();
    case.assert_not_believed();
    // Also with as many entries as were lost, and more.
    for subject in ["dave", "erin"] {
        Operator::of(&case.stack.control_plane)
            .unwrap()
            .commit(subject)
            .unwrap();
    }
    case.assert_not_believed();

    case.stack.control_plane.kill().unwrap();
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&aside, &data).unwrap();
    case.stack.control_plane.restart().unwrap();
    case.assert_cured();
}

#[test]
fn a_copy_of_the_last_state_is_accepted() {
    let mut case = Case::begin();
    case.stack.control_plane.kill().unwrap();
    let data = case.data();
    let copy = data.with_extension("copy");
    copy_folder(&data, &copy).unwrap();
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&copy, &data).unwrap();
    case.stack.control_plane.restart().unwrap();
    let again = Operator::of(&case.stack.control_plane).unwrap().raise("alice").unwrap();
    case.load.go_on_beyond(again.at + MAX_STALENESS, "alice").unwrap();
    let seen = case.load.finish().unwrap();
    seen.assert_no_late_allows("alice", again.at);
    seen.assert_no_late_allows("bob", case.revoked);
    let reply = case.stack.send(&request_for(&case.stack, "bob")).unwrap();
    assert_denied(&reply, 401, "revoked_principal");
}

/// One for each worker, and one for Envoy's main thread.
const VMS: usize = WORKERS + 1;
