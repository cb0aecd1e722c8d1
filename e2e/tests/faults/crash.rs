//! A control plane that is killed (`kill -9`).

use std::thread;
use std::time::Duration;

use credence_e2e::late_allows::Load;
use credence_e2e::operator::Operator;
use credence_e2e::tracer::{Step, Tracer};
use credence_e2e::{Request, Stack, StackOptions, waiting};

use super::request_for;

/// The thread that writes, publishes and acknowledges revocations is killed as it enters each system call of a raise,
/// one after the other. Between two system calls, no data leaves the process.
#[test]
fn a_crash_at_any_step_of_a_raise_keeps_acknowledged_revocations_whole() {
    let stacks = [(); 3].map(|()| Stack::start(&StackOptions::quick()).unwrap());
    // The first raise writes more than later ones: each stack does it now.
    let [steps, ..] = &stacks.each_ref().map(steps_of_a_raise);
    // Rounds mostly wait, so each stack runs a share of the steps in parallel.
    let shares = stacks.len();
    let done = thread::scope(|scope| {
        let started: Vec<_> = (stacks.into_iter().enumerate())
            .map(|(share, mut stack)| {
                scope.spawn(move || {
                    let mine = steps.iter().skip(share).step_by(shares);
                    let rounds: Vec<Round> = mine.map(|step| Round::killed_at(step, &mut stack)).collect();
                    (stack, rounds)
                })
            })
            .collect();
        started
            .into_iter()
            .map(|share| share.join().unwrap())
            .collect::<Vec<_>>()
    });

    let outcomes: Vec<_> = (done.iter().flat_map(|(_, rounds)| rounds).map(Round::outcome)).collect();
    let killed_at = |call| outcomes.iter().filter(move |(step, ..)| step.call == call);
    // Before the write, the revocation does not exist; afterwards the system keeps it, synced or not.
    assert!(
        killed_at("pwrite64").any(|(.., is_in_force)| !is_in_force),
        "{outcomes:?}"
    );
    assert!(
        killed_at("fdatasync").any(|(_, is_acknowledged, _)| !is_acknowledged),
        "{outcomes:?}"
    );
    let is_unanswered = |(_, is_acknowledged, is_in_force): &&(&Step, bool, bool)| !is_acknowledged && *is_in_force;
    assert!(outcomes.iter().any(|outcome| is_unanswered(&outcome)), "{outcomes:?}");

    // Permanently: after one more restart, and for new filters.
    let denied = [(); 2].map(|()| Some("revoked_principal".to_owned()));
    for (mut stack, rounds) in done {
        stack.control_plane.kill().unwrap();
        stack.control_plane.restart().unwrap();
        stack.restart_envoy().unwrap();
        for round in &rounds {
            assert_eq!(verdicts(&stack, &round.request), denied, "{:?}", round.step);
        }
    }
}

/// The steps of a raise that is not killed. The last one waits for the next raise.
fn steps_of_a_raise(stack: &Stack) -> Vec<Step> {
    let tracer = Tracer::watch(stack.control_plane.id(), WRITER, stack.folder()).unwrap();
    Operator::of(&stack.control_plane).unwrap().commit("subject").unwrap();
    waiting::until("the writer to wait again", || {
        let steps = tracer.steps();
        let is_waiting = steps.len() > 3 && steps.last().is_some_and(|step| step.call == "futex");
        Ok(is_waiting.then_some(()))
    })
    .unwrap();
    // Without the one in which the thread was waiting when the tracer started.
    tracer.steps().into_iter().skip(1).collect()
}

const WRITER: &str = "revocation-log";

struct Round {
    step: Step,
    request: Request,
    is_acknowledged: bool,
    /// After the restart, before the retry.
    is_in_force: bool,
}

impl Round {
    fn killed_at(step: &Step, stack: &mut Stack) -> Self {
        let subject = format!("person-{}-{}", step.call, step.occurrence);
        let request = request_for(stack, &subject);
        let load = Load::start(&stack.envoy, &[(&subject, request.clone())]).unwrap();
        load.until_allowed(&subject).unwrap();

        let tracer = Tracer::kill_at(step, stack.control_plane.id(), WRITER, stack.folder()).unwrap();
        let raised = Operator::of(&stack.control_plane).unwrap().commit(&subject);
        // The wakeups of other threads differ from raise to raise. Then it gets killed here, after its answer.
        if !stack.control_plane.has_ended_by(Duration::from_millis(500)).unwrap() {
            assert!(raised.is_ok(), "neither ended nor answered, at {step:?}");
            stack.control_plane.kill().unwrap();
        }
        drop(tracer);
        stack.control_plane.restart().unwrap();
        stack.wait_until_synced().unwrap();

        // Until it has reconnected, a worker may use its earlier state until its lease ends.
        stack.wait_until_followed().unwrap();
        let in_step = format!("the workers to agree, after {step:?}");
        let is_in_force = waiting::until(&in_step, || {
            let [one, other] = verdicts(stack, &request).map(|verdict| verdict.is_some());
            let is_settled = one == other && (one || raised.is_err());
            Ok(is_settled.then_some(one))
        })
        .unwrap();

        // A client without an answer tries again.
        let again = Operator::of(&stack.control_plane).unwrap().raise(&subject).unwrap();
        load.go_on_beyond(again.at, &subject).unwrap();
        load.finish().unwrap().assert_no_late_allows(&subject, again.at);
        Self {
            step: step.clone(),
            request,
            is_acknowledged: raised.is_ok(),
            is_in_force,
        }
    }

    fn outcome(&self) -> (&Step, bool, bool) {
        (&self.step, self.is_acknowledged, self.is_in_force)
    }
}

/// Why each worker denies the request; `None` where it is allowed.
fn verdicts(stack: &Stack, request: &Request) -> [Option<String>; 2] {
    let workers = stack.envoy.connection_to_every_worker().unwrap();
    let replies = workers.into_iter().map(|mut client| client.send(request).unwrap());
    let verdicts: Vec<Option<String>> = replies.map(|reply| reply.reason()).collect();
    verdicts.try_into().unwrap()
}
