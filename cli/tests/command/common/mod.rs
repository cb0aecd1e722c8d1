//! Runs the built program in its own folder.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use tempfile::TempDir;

/// A folder to run commands in.
pub(crate) struct Workbench {
    folder: TempDir,
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Workbench {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// A path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file; returns its name.
    pub(crate) fn file<'a>(&self, name: &'a str, contents: &str) -> &'a str {
        std::fs::write(self.path(name), contents).unwrap();
        name
    }

    /// Makes key pairs: `NAME.jwk` is the private key, `NAME.pub` the public one.
    pub(crate) fn keys(&self, names: &[&str]) {
        for name in names {
            let made = self.run(&["keygen", "--out", &format!("{name}.jwk")]).succeeded();
            self.file(&format!("{name}.pub"), &made);
        }
    }

    /// A root by `issuer.jwk` for the holder of `agent.pub`, with these further options.
    pub(crate) fn mint_root(&self, options: &[&str]) -> String {
        let mint = [
            "mint",
            "--key",
            "issuer.jwk",
            "--issuer",
            "https://id.example.com",
            "--holder",
            "agent.pub",
        ];
        self.run(&[&mint[..], options].concat()).succeeded()
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.run_with_input(arguments, "")
    }

    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &str) -> Ran {
        self.run_with_bytes(arguments, input.as_bytes())
    }

    pub(crate) fn run_with_bytes(&self, arguments: &[&str], input: &[u8]) -> Ran {
        let mut child = self.command(arguments).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_owned();
        // On another thread, since the program prints while it reads, and neither side may wait for the other. It may
        // also end before it has read everything.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        Ran {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The program, not yet started, with its three streams piped.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_credence"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_remove("CREDENCE_CONTROL_PLANE")
            .env_remove("CREDENCE_TOKEN_FILE")
            .env_remove("CREDENCE_CA")
            .env_remove("CREDENCE_CERT")
            .env_remove("CREDENCE_CLIENT_KEY")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

/// A program that runs beside the test and is killed with it.
pub(crate) struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    pub(crate) fn start(bench: &Workbench, arguments: &[&str]) -> Self {
        let mut child = bench.command(arguments).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Sends this signal, expects success, and returns what it printed to standard error.
    pub(crate) fn ends_well_on(mut self, signal: &str) -> String {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ran {
    /// The standard output, trimmed, of a command that must succeed.
    #[track_caller]
    pub(crate) fn succeeded(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.stdout.trim().to_owned()
    }

    /// Asserts that the command failed with this exit code, printed nothing to standard output, and printed each of
    /// these texts to standard error.
    #[track_caller]
    pub(crate) fn failed(&self, code: i32, said: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        for words in said {
            assert!(self.stderr.contains(words), "{words:?} is not in {}", self.stderr);
        }
    }
}
