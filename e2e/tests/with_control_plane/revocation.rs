//! Revoked delegations are denied at once, on every worker, under any fault of the control plane.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use credence_e2e::assertions::assert_denied;
use credence_e2e::grants::READ;
use credence_e2e::{Client, Failure, ISSUER, Reply, Request, Stack, StackOptions, waiting};

/// Shared by all tests that leave the control plane alone; it stops with the process.
fn stack() -> &'static Stack {
    static STACK: LazyLock<Stack> = LazyLock::new(|| Stack::start(&StackOptions::quick()).unwrap());
    &STACK
}

fn book(chain: &str) -> Request {
    Request::get("/v1/catalog/book").delegation(chain)
}

#[track_caller]
fn assert_allowed(reply: &Reply) {
    assert_eq!((reply.status, reply.reason()), (200, None), "{}", reply.text());
}

/// Makes every worker cache the chain, revokes, and checks that every worker denies the next request.
fn assert_revoked_at_once(chain: &str, what: &[&str], reason: &str) {
    let mut workers = stack().envoy.connection_to_every_worker().unwrap();
    for client in &mut workers {
        assert_allowed(&client.send(&book(chain)).unwrap());
    }
    stack().revoke(what).unwrap();
    for client in &mut workers {
        assert_denied(&client.send(&book(chain)).unwrap(), 401, reason);
    }
}

mod a_revocation {
    use super::*;

    #[test]
    fn of_a_principal_revokes_earlier_delegations_only() {
        let chain = stack().mint("bob", &["--tool", READ]).unwrap();
        assert_revoked_at_once(
            &chain,
            &["principal", "--issuer", ISSUER, "--subject", "bob"],
            "revoked_principal",
        );
        let said = stack()
            .revoke(&["principal", "--issuer", ISSUER, "--subject", "bob", "--json"])
            .unwrap();
        let epoch = said
            .split(r#""epoch":"#)
            .nth(1)
            .unwrap()
            .split([',', '}'])
            .next()
            .unwrap()
            .trim();
        let anew = stack().mint("bob", &["--tool", READ, "--epoch", epoch]).unwrap();
        let mut workers = stack().envoy.connection_to_every_worker().unwrap();
        for client in &mut workers {
            assert_allowed(&client.send(&book(&anew)).unwrap());
        }
        for other in ["bobby", "Bob"] {
            let chain = stack().mint(other, &["--tool", READ]).unwrap();
            assert_allowed(&stack().send(&book(&chain)).unwrap());
        }
    }

    #[test]
    fn that_disables_a_principal_lasts_until_it_is_enabled() {
        let name = ["principal", "--issuer", ISSUER, "--subject", "dora"];
        let disable = [&name[..], &["--disable"]].concat();
        let chain = stack().mint("dora", &["--tool", READ]).unwrap();
        assert_revoked_at_once(&chain, &disable, "disabled_principal");
        stack().revoke(&[&name[..], &["--enable"]].concat()).unwrap();
        // Delegations from before stay invalid.
        assert_denied(&stack().send(&book(&chain)).unwrap(), 401, "revoked_principal");
    }

    #[test]
    fn of_one_delegation_leaves_its_siblings() {
        let root = stack().mint("carol", &["--tool", READ, "--max-depth", "1"]).unwrap();
        let sibling = || stack().derive(&root, &stack().agent, &["--same-tools"]).unwrap();
        let (one, two) = (sibling(), sibling());
        assert_revoked_at_once(&one, &["delegation", "--chain", &one], "revoked_delegation");
        assert_allowed(&stack().send(&book(&two)).unwrap());
        assert_allowed(&stack().send(&book(&root)).unwrap());
        // Revoking the root revokes all that was derived from it.
        assert_revoked_at_once(
            &two,
            &["delegation", "--chain", &two, "--token", "1"],
            "revoked_delegation",
        );
    }

    #[test]
    fn of_a_delegation_that_reuses_the_id_of_another_leaves_that_one() {
        let root = |id| {
            stack()
                .mint("grace", &["--tool", READ, "--max-depth", "1", "--id", id])
                .unwrap()
        };
        let (one, two) = (root("grace-1"), root("grace-2"));
        let derive = |parent: &str, id| {
            stack()
                .derive(parent, &stack().agent, &["--same-tools", "--id", id])
                .unwrap()
        };
        let (impostor, sibling) = (derive(&one, "grace-2"), derive(&two, "leaf"));
        assert_revoked_at_once(&impostor, &["delegation", "--chain", &impostor], "revoked_delegation");
        for chain in [&one, &two, &sibling] {
            assert_allowed(&stack().send(&book(chain)).unwrap());
        }
    }

    #[test]
    fn of_a_key_revokes_every_chain_with_that_key() {
        let helper = stack().credence.keygen("leaked").unwrap();
        let root = stack().mint("erin", &["--tool", READ, "--max-depth", "2"]).unwrap();
        let chain = stack().derive(&root, &helper, &["--same-tools"]).unwrap();
        assert_revoked_at_once(&chain, &["key", "--key", helper.path()], "revoked_key");
        assert_allowed(&stack().send(&book(&root)).unwrap());
    }

    #[test]
    fn of_an_issuer_revokes_what_it_issued_until_then() {
        let stack = Stack::start(&StackOptions::quick()).unwrap();
        let a_minute_ago = (credence_e2e::forge::now() - 60).to_string();
        let old = stack
            .mint("frank", &["--tool", READ, "--issued-at", &a_minute_ago])
            .unwrap();
        let new = stack.mint("frank", &["--tool", READ]).unwrap();
        stack
            .revoke(&["issuer", "--issuer", ISSUER, "--issued-up-to", &a_minute_ago])
            .unwrap();
        for client in &mut stack.envoy.connection_to_every_worker().unwrap() {
            assert_denied(&client.send(&book(&old)).unwrap(), 401, "revoked_issuer");
            assert_allowed(&client.send(&book(&new)).unwrap());
        }
    }
}

mod a_control_plane {
    use super::*;

    #[test]
    fn that_crashes_stops_the_filters_after_max_staleness_and_keeps_all_revocations() {
        let mut stack = Stack::start(&StackOptions::quick()).unwrap();
        let bob = stack.mint("bob", &["--tool", READ]).unwrap();
        let alice = stack.mint("alice", &["--tool", READ]).unwrap();
        assert_allowed(&stack.send(&book(&bob)).unwrap());

        stack
            .revoke(&["principal", "--issuer", ISSUER, "--subject", "bob"])
            .unwrap();
        stack.control_plane.kill().unwrap();
        let begin = Instant::now();
        // Just after the crash and until the lease ends, revoked delegations are denied.
        assert_denied(&stack.send(&book(&bob)).unwrap(), 401, "revoked_principal");
        assert_allowed(&stack.send(&book(&alice)).unwrap());
        stack.wait_until_stale().unwrap();
        assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
        let reply = stack.send(&book(&alice)).unwrap();
        assert_denied(&reply, 503, "stale");
        assert_eq!(reply.header("retry-after"), Some("1"));
        // An open path needs no control plane.
        assert_allowed(&stack.send(&Request::get("/healthz")).unwrap());

        stack.control_plane.restart().unwrap();
        stack.wait_until_synced().unwrap();
        for client in &mut stack.envoy.connection_to_every_worker().unwrap() {
            assert_allowed(&client.send(&book(&alice)).unwrap());
            assert_denied(&client.send(&book(&bob)).unwrap(), 401, "revoked_principal");
        }

        // The reconnected streams carry new revocations.
        stack
            .revoke(&["principal", "--issuer", ISSUER, "--subject", "alice"])
            .unwrap();
        for client in &mut stack.envoy.connection_to_every_worker().unwrap() {
            assert_denied(&client.send(&book(&alice)).unwrap(), 401, "revoked_principal");
        }

        // A new Envoy learns all revocations before it decides.
        stack.restart_envoy().unwrap();
        for client in &mut stack.envoy.connection_to_every_worker().unwrap() {
            assert_denied(&client.send(&book(&bob)).unwrap(), 401, "revoked_principal");
            assert_denied(&client.send(&book(&alice)).unwrap(), 401, "revoked_principal");
        }
    }

    #[test]
    fn that_is_restarted_as_planned_denies_no_request() {
        // A filter that fails to connect for 2.5 s may wait for another 5 s before it retries.
        let options = StackOptions {
            serve_options: ["--drain-promise", "9s", "--max-staleness", "2s"]
                .map(str::to_owned)
                .to_vec(),
            ..StackOptions::quick()
        };
        let mut stack = Stack::start(&options).unwrap();
        let alice = stack.mint("alice", &["--tool", READ]).unwrap();
        let request = book(&alice);
        let mut workers = stack.envoy.connection_to_every_worker().unwrap();
        let done = AtomicBool::new(false);
        let (sent, worst) = thread::scope(|scope| {
            let load = scope.spawn(|| {
                let (mut sent, mut worst) = (0_u64, None);
                while !done.load(Ordering::Relaxed) {
                    for client in &mut workers {
                        let reply = client.send(&request)?;
                        sent += 1;
                        worst = worst.or((reply.status != 200).then_some(reply));
                    }
                    thread::sleep(Duration::from_millis(2));
                }
                Ok::<_, Failure>((sent, worst))
            });
            let status = stack.control_plane.stop().unwrap();
            assert!(status.success(), "{status}");
            // Longer than filters would trust a silent control plane.
            thread::sleep(Duration::from_millis(2_500));
            stack.control_plane.restart().unwrap();
            // Returns once the drain promise has ended.
            stack
                .revoke(&["principal", "--issuer", ISSUER, "--subject", "bob"])
                .unwrap();
            done.store(true, Ordering::Relaxed);
            load.join().unwrap().unwrap()
        });
        assert!(worst.is_none(), "of {sent}: {worst:?}");
        stack
            .revoke(&["principal", "--issuer", ISSUER, "--subject", "alice"])
            .unwrap();
        for client in &mut workers {
            assert_denied(&client.send(&book(&alice)).unwrap(), 401, "revoked_principal");
        }
    }

    #[test]
    fn with_another_log_is_never_trusted() {
        let options = StackOptions {
            log_id: Some("f".repeat(32)),
            unsynced: true,
            ..StackOptions::quick()
        };
        let stack = Stack::start(&options).unwrap();
        let alice = stack.mint("alice", &["--tool", READ]).unwrap();
        waiting::until("the control plane to turn every filter away", || {
            let mut client = Client::connect(stack.control_plane.http())?;
            let metrics = client.send(&Request::get("/metrics"))?.text();
            let ended = metrics
                .lines()
                .filter(|line| line.contains("watch_ended") && line.contains("FAILED_PRECONDITION"));
            let count: u64 = ended
                .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
                .sum();
            Ok((count >= 3).then_some(()))
        })
        .unwrap();
        for client in &mut stack.envoy.connection_to_every_worker().unwrap() {
            assert_denied(&client.send(&book(&alice)).unwrap(), 503, "not_ready");
        }
        assert!(
            stack.envoy.log().contains("log_id"),
            "the log does not say what to do:\n{}",
            stack.envoy.log()
        );
    }
}
