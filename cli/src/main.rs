//! `credence`: everything around a delegation that is not the proxy itself. Each command is a file of its name.

mod audit;
mod chain_text;
mod clock;
mod config;
mod control_plane;
mod derive;
mod failure;
mod files;
mod grant;
mod inspect;
mod invocation;
mod keygen;
mod keys;
mod mint;
mod prove;
mod random;
mod revoke;
mod serve;
mod table;
mod verify;
mod words;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::failure::{Failure, Outcome};

/// Mint, hand on, prove, inspect, verify and revoke delegations, and run the control plane.
#[derive(Debug, Parser)]
#[command(name = "credence", version, after_help = EXIT_CODES, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Keygen(keygen::Keygen),
    Mint(Box<mint::Mint>),
    Derive(Box<derive::Derive>),
    Prove(Box<prove::Prove>),
    Inspect(inspect::Inspect),
    Verify(Box<verify::Verify>),
    Revoke(revoke::Revoke),
    Audit(audit::Audit),
    Serve(serve::Serve),
    Config(config::Config),
}

const EXIT_CODES: &str = "Exit codes:\n  0  done; for a decision: allow\n  1  denied, or the operation failed\n  \
                          2  wrong usage or unusable input";

fn main() -> ExitCode {
    let command_line = CommandLine::parse();
    let mut out = io::stdout().lock();
    let result = command_line.command.run(&mut out).and_then(|outcome| {
        out.flush()?;
        Ok(outcome)
    });
    match result {
        Ok(outcome) => outcome.exit_code(),
        Err(failure) => {
            if !failure.is_closed_pipe() {
                // Nobody may be reading; that changes nothing about the exit code.
                let _ = writeln!(
                    std::io::stderr(),
                    "credence: {}",
                    words::printable(&failure.to_string())
                );
            }
            failure.exit_code()
        }
    }
}

impl Command {
    fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        match self {
            Self::Keygen(command) => command.run(out),
            Self::Mint(command) => command.run(out),
            Self::Derive(command) => command.run(out),
            Self::Prove(command) => command.run(out),
            Self::Inspect(command) => command.run(out),
            Self::Verify(command) => command.run(out),
            Self::Revoke(command) => command.run(out),
            Self::Audit(command) => command.run(out),
            Self::Serve(command) => command.run(out),
            Self::Config(command) => command.run(out),
        }
    }
}
