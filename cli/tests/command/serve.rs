//! `credence serve` in bad surroundings: a log that is not read, a wrong path, low limits.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Ran, Workbench};

const SERVE: [&str; 9] = [
    "serve",
    "--data",
    "data",
    "--http",
    "127.0.0.1:0",
    "--grpc",
    "127.0.0.1:0",
    "--init",
    "--fresh",
];

/// A control plane whose standard error the test holds, killed with the test.
struct Served {
    child: Child,
    stderr: Option<ChildStderr>,
    http: String,
    // Kept open for the server: a closed one would be another test.
    _stdout: BufReader<std::process::ChildStdout>,
}

impl Served {
    fn start(bench: &Workbench) -> Self {
        let arguments = [&SERVE[..], &["--operator-token-file", "token"]].concat();
        Self::spawn(bench.command(&arguments))
    }

    /// With a limit of this many kibibytes for files.
    fn start_again_with_file_size_limit(bench: &Workbench, kibibytes: u64) -> Self {
        let first = SERVE.strip_suffix(&["--init", "--fresh"]).unwrap();
        let arguments = [first, &["--operator-token-file", "token"]].concat();
        let program = bench.command(&arguments);
        let mut limited = Command::new("bash");
        limited
            .args(["-c", &format!("ulimit -f {kibibytes} && exec \"$0\" \"$@\"")])
            .arg(program.get_program())
            .args(program.get_args())
            .current_dir(program.get_current_dir().unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self::spawn(limited)
    }

    fn spawn(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let stderr = child.stderr.take();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut http = String::new();
        while !http.starts_with("http: ") {
            http.clear();
            assert_ne!(stdout.read_line(&mut http).unwrap(), 0);
        }
        Self {
            child,
            stderr,
            http: http.trim_start_matches("http: ").trim().to_owned(),
            _stdout: stdout,
        }
    }

    fn revoke(&self, bench: &Workbench) {
        self.try_revoke(bench).succeeded();
    }

    fn try_revoke(&self, bench: &Workbench) -> Ran {
        let place = [
            "--control-plane",
            &format!("http://{}", self.http),
            "--token-file",
            "token",
        ];
        let revoke = ["revoke", "principal", "--issuer", "https://id.example.com"];
        bench.run(&[&revoke[..], &place].concat())
    }

    /// It is ready a moment after it has printed its addresses.
    fn is_ready(&self) -> bool {
        let until = Instant::now() + Duration::from_secs(10);
        while self.status("/readyz") != "200" {
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    fn status(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_closed_standard_error_stops_no_revocation() {
    let bench = Workbench::new();
    let mut served = Served::start(&bench);
    drop(served.stderr.take());
    for _ in 0..3 {
        served.revoke(&bench);
        assert!(served.is_ready());
    }
}

#[test]
fn a_standard_error_that_is_not_read_stops_nothing() {
    let bench = Workbench::new();
    let mut served = Served::start(&bench);
    // Each revocation logs a line of about 150 bytes; a pipe holds 64 KiB.
    let client = |count: usize| {
        let mut stream = TcpStream::connect(&served.http).unwrap();
        let token = std::fs::read_to_string(bench.path("token")).unwrap();
        let body = r#"{"principal": {"issuer": "https://id.example.com"}}"#;
        let request = format!(
            "POST /v1/revocations HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nauthorization: Bearer \
             {}\r\ncontent-length: {}\r\n\r\n{body}",
            token.trim(),
            body.len()
        );
        let mut answer = [0; 4096];
        for _ in 0..count {
            stream.write_all(request.as_bytes()).unwrap();
            let read = stream.read(&mut answer).unwrap();
            assert!(
                answer[..read].starts_with(b"HTTP/1.1 200"),
                "{:?}",
                answer[..read].utf8_chunks()
            );
        }
    };
    client(2_500);
    assert!(served.is_ready());
    for _ in 0..20 {
        assert_eq!(served.status("/v1/audit/events"), "401");
    }
    drop(served.stderr.take());
}

/// Without a handler, the signal of such a write (SIGXFSZ) ends the process silently.
#[test]
fn a_limit_on_file_sizes_is_reported_and_ends_nothing() {
    let bench = Workbench::new();
    let served_before = Served::start(&bench);
    served_before.revoke(&bench);
    drop(served_before);
    // The log's file is larger already: no write beyond the limit succeeds.
    let mut served = Served::start_again_with_file_size_limit(&bench, 8);
    assert!(served.is_ready());
    served.try_revoke(&bench).failed(1, &["File too large", "ulimit -f"]);
    assert_eq!(served.child.try_wait().unwrap(), None, "it has ended");
    assert_eq!(served.status("/readyz"), "503");
    assert_eq!(served.status("/healthz"), "200");
}

#[test]
fn too_low_a_limit_on_open_files_is_refused_with_the_cure_and_a_low_one_is_shared_out() {
    let bench = Workbench::new();
    bench.file("token", &"x".repeat(40));
    std::fs::set_permissions(bench.path("token"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let arguments = [&SERVE[..], &["--operator-token-file", "token"]].concat();
    let limited = |files: u32| {
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!("ulimit -n {files} && exec \"$0\" \"$@\""))
            .arg(env!("CARGO_BIN_EXE_credence"))
            .args(&arguments)
            .current_dir(bench.path("."))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    };
    let refused = limited(100).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("ulimit -n 65536"), "{said}");

    let mut served = limited(200).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(served.stderr.take().unwrap())
        .read_line(&mut said)
        .unwrap();
    served.kill().unwrap();
    served.wait().unwrap();
    assert!(said.contains("leaves room for fewer connections"), "{said}");
}

#[test]
fn a_token_file_inside_the_new_data_directory_is_refused_before_any_file_is_made() {
    let bench = Workbench::new();
    for token in ["data/operator.token", "./data/below/token"] {
        bench
            .run(&[&SERVE[..], &["--operator-token-file", token]].concat())
            .failed(2, &["lies in the data folder", "data.token"]);
        assert!(!bench.path("data").exists());
    }
}

/// A control plane on an existing folder. The caller may read its first three lines.
fn serve_again(bench: &Workbench, options: &[&str]) -> Child {
    let base = [
        "serve",
        "--data",
        "data",
        "--http",
        "127.0.0.1:0",
        "--grpc",
        "127.0.0.1:0",
    ];
    let arguments = [&base[..], &["--operator-token-file", "token"], options].concat();
    bench.command(&arguments).spawn().unwrap()
}

/// Reads lines up to one that contains this.
fn read_until(reader: &mut impl BufRead, expected: &str) -> String {
    let mut line = String::new();
    while !line.contains(expected) {
        line.clear();
        assert_ne!(
            reader.read_line(&mut line).unwrap(),
            0,
            "it ended before it said {expected:?}"
        );
    }
    line
}

fn log_state(served: &Served) -> String {
    let mut stream = TcpStream::connect(&served.http).unwrap();
    stream
        .write_all(b"GET /v1/log HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split("\r\n\r\n").nth(1).unwrap().to_owned()
}

#[test]
fn a_standby_takes_over_when_the_other_is_killed_with_all_acknowledged_data() {
    let bench = Workbench::new();
    let mut first = Served::start(&bench);
    let mut child = serve_again(&bench, &["--standby"]);
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let said = read_until(&mut stderr, "standing by");
    assert!(said.contains(&format!("process {}", first.child.id())), "{said}");
    for _ in 0..5 {
        first.revoke(&bench);
    }
    let before = log_state(&first);
    assert!(before.contains("\"seq\":5"), "{before}");
    // SIGKILL.
    first.child.kill().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let http = read_until(&mut stdout, "http: ");
    let second = Served {
        child,
        stderr: None,
        http: http.trim_start_matches("http: ").trim().to_owned(),
        _stdout: stdout,
    };
    // Keeps the pipe empty while it logs.
    std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    assert_eq!(log_state(&second), before);
    second.revoke(&bench);
    assert!(log_state(&second).contains("\"seq\":6"));
}

#[test]
fn a_standby_takes_over_with_the_credentials_of_that_moment() {
    let bench = Workbench::new();
    let mut first = Served::start(&bench);
    let mut child = serve_again(&bench, &["--standby"]);
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    read_until(&mut stderr, "standing by");
    // The token leaks, and is replaced while the standby waits.
    let leaked = std::fs::read_to_string(bench.path("token")).unwrap();
    std::fs::write(bench.path("token"), "ab".repeat(32)).unwrap();
    first.child.kill().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let http = read_until(&mut stdout, "http: ");
    let second = Served {
        child,
        stderr: None,
        http: http.trim_start_matches("http: ").trim().to_owned(),
        _stdout: stdout,
    };
    std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    second.revoke(&bench);
    std::fs::write(bench.path("token"), leaked).unwrap();
    let refused = second.try_revoke(&bench);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("401"), "{refused:?}");
}

#[test]
fn a_standby_stops_on_a_signal_and_leaves_the_other_running() {
    let bench = Workbench::new();
    let first = Served::start(&bench);
    let mut child = serve_again(&bench, &["--standby"]);
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    read_until(&mut stderr, "standing by");
    let told = Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(told.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    first.revoke(&bench);
}

#[test]
fn a_data_directory_in_use_is_refused_with_the_process_that_uses_it() {
    let bench = Workbench::new();
    let first = Served::start(&bench);
    let refused = serve_again(&bench, &[]).wait_with_output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(
        said.contains("is in use by another process") && said.contains(&format!("process {}", first.child.id())),
        "{said}"
    );
}
