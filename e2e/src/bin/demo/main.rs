//! `make run`: a real Envoy allows, denies and stops allowing requests, by the delegations that a person signed and
//! then revoked.
//!
//! Exits 0 only if every case has the expected result. Leaves no process running, even after Ctrl-C.

mod consent;
mod decisions;
mod evidence;
mod mcp;
mod outage;
mod revocations;
mod screen;

use std::io;
use std::process::ExitCode;
use std::time::Instant;

use credence_e2e::artefacts::Artefacts;
use credence_e2e::issuer::Issuer;
use credence_e2e::{Failure, Stack, StackOptions};

use crate::evidence::Expectations;
use crate::screen::Screen;

fn main() -> ExitCode {
    let mut screen = Screen::new(io::stdout().lock());
    match run(&mut screen) {
        Ok(()) if screen.is_all_well() => ExitCode::SUCCESS,
        Ok(()) => {
            eprintln!("error: some cases have an unexpected result: see the lines marked WRONG");
            ExitCode::FAILURE
        }
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(screen: &mut Screen<impl io::Write>) -> Result<(), Failure> {
    let begin = Instant::now();
    screen.say("Starting a service, the control plane, an issuer, and Envoy with the filter ...")?;
    let mut issuer = Issuer::prepare(&Artefacts::from_environment()?.credence)?;
    let options = StackOptions::quick().replacing("rules:\n", mcp::RULES);
    let stack = Stack::start(&issuer.trusted_by(options))?;
    issuer.serve(&stack.control_plane, "")?;
    introduce(&stack, &issuer, begin, screen)?;

    let mut expected = Expectations::default();
    decisions::show(&stack, screen, &mut expected)?;
    let revoked = revocations::show(&stack, screen, &mut expected)?;
    mcp::show(&stack, screen, &mut expected)?;
    consent::show(&stack, &issuer, screen, &mut expected)?;
    let stack = outage::show(stack, &revoked, screen, &mut expected)?;
    evidence::show(&stack, screen, &expected)
}

fn introduce(
    stack: &Stack,
    issuer: &Issuer,
    begin: Instant,
    screen: &mut Screen<impl io::Write>,
) -> Result<(), Failure> {
    let (envoy, control_plane) = (&stack.envoy, &stack.control_plane);
    screen.say(format_args!(
        "  service        http://{}  answers with what it receives",
        stack.upstream.address()
    ))?;
    screen.say(format_args!(
        "  control plane  http://{}  gRPC on {}, log_id {}",
        control_plane.http(),
        control_plane.grpc(),
        control_plane.log_id()
    ))?;
    screen.say(format_args!(
        "  issuer         {}  asks people for consent",
        issuer.url()
    ))?;
    screen.say(format_args!(
        "  Envoy          http://{}  admin on http://{}, envoy-config/envoy.yaml on these ports",
        envoy.ingress(),
        envoy.admin()
    ))?;
    screen.say(format_args!(
        "All are ready after {:.1} s.",
        begin.elapsed().as_secs_f32()
    ))
}
