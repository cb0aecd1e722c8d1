//! `credence`: all commands around delegations except the proxy. Each command has a file of its name.

#![deny(
    clippy::print_stderr,
    reason = "eprintln! panics if standard error cannot be written; use stderr::print"
)]

mod audit;
mod chain_text;
mod clock;
mod cluster;
mod columns;
mod config;
mod confirmation;
mod control_plane;
mod derive;
mod events;
mod failure;
mod files;
mod following;
mod grant;
mod inspect;
mod invocation;
mod issuer;
mod keygen;
mod keys;
mod log;
mod mint;
mod principal;
mod principal_name;
mod prove;
mod proxy;
mod random;
mod revoke;
mod serve;
mod settings_file;
mod statement;
mod stderr;
mod store;
mod terminal;
mod token;
mod verify;
mod watch;
mod yaml;

use std::io::{self, Write};
use std::process::ExitCode;

/// Evidence is many small objects: the system's allocator takes a tenth of the time of receiving and verifying it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use clap::Parser;

use crate::failure::{Failure, Outcome};

/// Mint, derive, prove, inspect, verify and revoke delegations, and run the control plane.
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
    #[command(subcommand)]
    Revoke(Box<revoke::Revoke>),
    Principal(principal::Principal),
    Watch(watch::Watch),
    #[command(subcommand)]
    Audit(Box<audit::Audit>),
    Serve(Box<serve::Serve>),
    #[command(subcommand)]
    Issuer(Box<issuer::IssuerCommand>),
    Proxy(Box<proxy::Proxy>),
    #[command(subcommand)]
    Cluster(Box<cluster::Cluster>),
    Token(token::Token),
    #[command(subcommand)]
    Config(config::Config),
}

const EXIT_CODES: &str = "Exit codes:\n  0  done; for a decision: allow\n  1  denied, or the operation failed\n  \
                          2  wrong usage or unusable input";

fn main() -> ExitCode {
    let command_line = match CommandLine::try_parse() {
        Ok(command_line) => command_line,
        Err(error) if quotes_a_private_jwk(&error) => {
            stderr::print(
                "credence: found what looks like a private JWK where the command line cannot have one. It is not \
                 repeated here; give its file where an option asks for a key (see --help), and replace the key, \
                 because other users of this machine can see command lines",
            );
            return ExitCode::from(2);
        }
        Err(error) => error.exit(),
    };
    let mut out = io::stdout().lock();
    let result = command_line.command.run(&mut out).and_then(|outcome| {
        out.flush()?;
        Ok(outcome)
    });
    match result {
        Ok(outcome) => outcome.exit_code(),
        Err(failure) => {
            if !failure.is_closed_pipe() {
                stderr::print(format_args!("credence: {}", terminal::printable(&failure.to_string())));
            }
            failure.exit_code()
        }
    }
}

/// Whether an error about the command line would print a private JWK, which it quotes.
fn quotes_a_private_jwk(error: &clap::Error) -> bool {
    error.use_stderr() && error.to_string().contains(files::PRIVATE_MEMBER)
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
            Self::Principal(command) => command.run(out),
            Self::Watch(command) => command.run(out),
            Self::Audit(command) => command.run(out),
            Self::Serve(command) => command.run(out),
            Self::Issuer(command) => command.run(out),
            Self::Proxy(command) => command.run(out),
            Self::Cluster(command) => command.run(out),
            Self::Token(command) => command.run(out),
            Self::Config(command) => command.run(out),
        }
    }
}
