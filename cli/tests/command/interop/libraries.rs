//! The JOSE libraries, and the programs in interop/ that use them.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};

use super::{ISSUER, SERVICE, TOOL, up_to};
use crate::common::Workbench;

/// A library, and the `alg` values that it can be made to write and read.
pub(crate) struct Library {
    pub(crate) name: &'static str,
    pub(crate) language: Language,
    pub(crate) algorithms: &'static [&'static str],
    /// The program or function of docs/start/agents.md that mints with it.
    pub(crate) snippet: &'static str,
    /// The `alg` that the snippet writes.
    pub(crate) snippet_algorithm: &'static str,
}

pub(crate) const LIBRARIES: [Library; 5] = [
    Library {
        name: "pyjwt",
        language: Language::Python,
        algorithms: &["Ed25519", "EdDSA", "ES256", "ES256K"],
        snippet: "mint_pyjwt.py",
        snippet_algorithm: "Ed25519",
    },
    Library {
        name: "joserfc",
        language: Language::Python,
        algorithms: &["Ed25519", "EdDSA", "ES256", "ES256K"],
        snippet: "mint_joserfc.py",
        snippet_algorithm: "Ed25519",
    },
    Library {
        name: "jose",
        language: Language::Node,
        algorithms: &["Ed25519", "EdDSA", "ES256"],
        snippet: "mint.mjs",
        snippet_algorithm: "Ed25519",
    },
    Library {
        name: "golang-jwt",
        language: Language::Go,
        algorithms: &["Ed25519", "EdDSA", "ES256"],
        snippet: "mint_golang_jwt.go",
        snippet_algorithm: "Ed25519",
    },
    Library {
        name: "go-jose",
        language: Language::Go,
        algorithms: &["Ed25519", "EdDSA", "ES256"],
        snippet: "mint_go_jose.go",
        snippet_algorithm: "EdDSA",
    },
];

#[derive(Clone, Copy)]
pub(crate) enum Language {
    Python,
    Node,
    Go,
}

/// A running program that executes requests with a library; interop/README.md has the requests.
pub(crate) struct Peer {
    pub(crate) library: Library,
    program: Child,
    /// `None` once it was told that no request follows.
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// Runs `check` for each library that exists here, with each of its algorithms.
pub(crate) fn each_library_and_algorithm(check: impl Fn(&mut Peer, &'static str)) {
    for library in LIBRARIES {
        let (name, algorithms) = (library.name, library.algorithms);
        let Some(mut peer) = Peer::start(library) else { continue };
        for algorithm in algorithms {
            // Shown only if the check fails.
            eprintln!("with {name} and {algorithm}:");
            check(&mut peer, algorithm);
        }
    }
}

impl Library {
    /// Runs that program in the folder of `issuer.jwk` and `planner.pub`.
    pub(crate) fn run_snippet(&self, bench: &Workbench) -> Option<String> {
        let mut command = self.language.command(self.snippet)?;
        if matches!(self.language, Language::Go) {
            command = self.shown_command(bench);
        }
        let output = command.current_dir(bench.path("")).output().unwrap();
        assert!(output.status.success(), "{}: {output:?}", self.name);
        Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }

    /// The command by which the page runs a snippet that is a function, in a folder with this repository's `interop`.
    fn shown_command(&self, bench: &Workbench) -> Command {
        let page = std::fs::read_to_string(repository().join("docs/start/agents.md")).unwrap();
        let shown = page
            .lines()
            .find(|line| line.starts_with("go run ") && line.contains(&format!(" {} mint ", self.name)))
            .unwrap_or_else(|| panic!("docs/start/agents.md does not say how to run {}", self.snippet));
        std::os::unix::fs::symlink(repository().join("interop"), bench.path("interop")).unwrap();
        let mut command = Command::new("sh");
        // As scripts/setup-interop.sh builds it: with the installed Go.
        command.args(["-c", shown]).env("GOTOOLCHAIN", "local");
        command
    }
}

impl Language {
    const fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Node => "node",
            Self::Go => "go",
        }
    }

    pub(crate) fn sources(self) -> PathBuf {
        repository().join("interop").join(self.name())
    }

    /// The command that runs a program of the language; Go has only one.
    fn command(self, program: &str) -> Option<Command> {
        let home = self.home()?;
        Some(match self {
            Self::Python => {
                let mut command = Command::new(home.join("bin/python"));
                // -B: leave no compiled files in the sources' folder.
                command.arg("-B").arg(self.sources().join(program));
                command
            }
            Self::Node => {
                let mut command = Command::new("node");
                // From the copy that has the library beside it.
                command.arg(home.join(program));
                command
            }
            Self::Go => Command::new(home.join("interop")),
        })
    }

    /// The folder in which scripts/setup-interop.sh has put the language's dependencies.
    fn home(self) -> Option<&'static Path> {
        static HOMES: [OnceLock<Option<PathBuf>>; 3] = [const { OnceLock::new() }; 3];
        HOMES[self as usize].get_or_init(|| self.prepare()).as_deref()
    }

    fn prepare(self) -> Option<PathBuf> {
        let script = repository().join("scripts/setup-interop.sh");
        let output = Command::new(script)
            .arg(self.name())
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success(),
            "scripts/setup-interop.sh {} failed",
            self.name()
        );
        // The script has printed why, to a standard error that the test harness does not capture.
        said.strip_prefix(&format!("ready {} ", self.name()))
            .map(|home| home.trim().into())
    }
}

impl Peer {
    fn start(library: Library) -> Option<Self> {
        let extension = if matches!(library.language, Language::Node) {
            "js"
        } else {
            "py"
        };
        let mut program = library
            .language
            .command(&format!("peer.{extension}"))?
            .arg(library.name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Some(Self {
            library,
            requests: program.stdin.take(),
            answers: BufReader::new(program.stdout.take().unwrap()),
            program,
        })
    }

    pub(crate) fn key(&mut self, algorithm: &str) -> Value {
        self.ask(json!({"do": "generate_key", "algorithm": algorithm})).unwrap()
    }

    pub(crate) fn mint(&mut self, algorithm: &str, issuer: &Value, holder: &Value) -> String {
        self.token(json!({
            "do": "mint", "algorithm": algorithm, "key": issuer, "issuer": ISSUER, "holder": holder,
            "tools": {TOOL: up_to(100)},
        }))
    }

    pub(crate) fn derive(&mut self, algorithm: &str, key: &Value, parent: &str, holder: &Value) -> String {
        self.token(json!({
            "do": "derive", "algorithm": algorithm, "key": key, "parent": parent, "holder": holder,
            "tools": {TOOL: up_to(20)},
        }))
    }

    pub(crate) fn prove(&mut self, algorithm: &str, key: &Value, leaf: &str) -> String {
        self.token(json!({
            "do": "prove", "algorithm": algorithm, "key": key, "leaf": leaf, "tool": TOOL,
            "arguments": {"account": "a1", "amount": 15}, "audience": SERVICE,
        }))
    }

    pub(crate) fn tamper(&mut self, token: &str) -> String {
        self.token(json!({"do": "tamper", "token": token}))
    }

    /// The claims, or the library's error about the token.
    pub(crate) fn verify(&mut self, algorithm: &str, key: &Value, typ: &str, token: &str) -> Result<Value, Value> {
        self.ask(json!({"do": "verify", "algorithm": algorithm, "key": key, "typ": typ, "token": token}))
    }

    fn token(&mut self, request: Value) -> String {
        self.ask(request).unwrap().as_str().unwrap().to_owned()
    }

    fn ask(&mut self, request: Value) -> Result<Value, Value> {
        writeln!(self.requests.as_mut().unwrap(), "{request}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        let mut answer: Value = serde_json::from_str(&answer)
            .unwrap_or_else(|error| panic!("{} answered {answer:?} to {request}: {error}", self.library.name));
        match answer["ok"].take() {
            Value::Null => Err(answer["error"].take()),
            ok => Ok(ok),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.requests = None;
        let _ = self.program.wait();
    }
}

pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}
