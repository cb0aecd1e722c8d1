//! A new user's path: the commands of the pages, as printed, one after the other in one shell.
//!
//! The shell starts in a copy of the repository, with no program running. Only `make` differs: it checks that its
//! targets exist and does not build, since everything is built already. If the system allows it, the shell has its own
//! network and process ids. Then the printed ports are free, and all processes stop at its end.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use credence_e2e::artefacts::Artefacts;
use credence_e2e::process::Process;
use credence_e2e::waiting;
use tempfile::TempDir;

use super::page::{Commands, Page, repository};

#[test]
fn the_commands_of_the_pages_run_as_printed() {
    let pages: Vec<Page> = WALK.iter().map(|path| Page::read(path)).collect();
    let commands: Vec<Commands> = pages.iter().flat_map(Page::commands).collect();
    let folder = clone_of_the_repository();
    let script = folder.path().join("walk.sh");
    fs::write(&script, script_of(&commands)).unwrap();
    let log = folder.path().join("walk.log");
    let mut walk = Process::start("the walk", &mut shell(folder.path(), &script), &log).unwrap();
    let status = waiting::until_at_most(LONGEST, "the end of the walk", || walk.ended()).unwrap();
    let output = walk.output();
    let mut said = output.split(MARK).skip(1);
    for printed in &commands {
        let place = &printed.place;
        let (at, said) = said.next().and_then(|said| said.split_once('\n')).unwrap_or_default();
        assert_eq!(at, place, "the commands ended before it: {status}\n{output}");
        let prints = printed.prints.as_deref().unwrap_or_default();
        if let Some(line) = first_missing(prints, said) {
            panic!(
                "{place}: expected the output\n{line}\nbut got\n{said}\n{}",
                others(folder.path())
            );
        }
    }
    assert!(
        status.success(),
        "the last commands failed: {status}\n{output}\n{}",
        others(folder.path())
    );
}

#[test]
fn every_page_with_commands_is_walked() {
    for page in Page::all() {
        let path = page.path.as_str();
        let has_commands = !page.commands().is_empty();
        let known = WALK.contains(&path);
        assert!(
            !has_commands || known,
            "no test runs the commands of {path}: add it to WALK"
        );
        assert!(has_commands || !known, "{path} has no commands any more: take it out");
    }
}

/// A clone of the repository, with what `make test` has built, at the usual paths.
fn clone_of_the_repository() -> TempDir {
    let built = Artefacts::from_environment().unwrap();
    let folder = TempDir::with_prefix("credence-walk-").unwrap();
    let at = |path: &str| folder.path().join(path);
    for name in ["Makefile", "docs", "envoy-config", "scripts"] {
        symlink(repository().join(name), at(name)).unwrap();
    }
    for name in ["target/release", "build", ".tools", "bin"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    symlink(built.filter_of_answers().unwrap(), at("build/credence-filter-mcp.wasm")).unwrap();
    symlink(built.credence, at("target/release/credence")).unwrap();
    symlink(built.filter, at("build/credence-filter.wasm")).unwrap();
    symlink(built.envoy, at(&format!(".tools/envoy-{}", envoy_version()))).unwrap();
    let path = at("bin/make");
    let top = repository();
    let make = format!(
        "#!/bin/sh\nexec {} -C '{}' -n \"$@\" >/dev/null\n",
        real_make(),
        top.display()
    );
    fs::write(&path, make).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// The version that the Makefile installs and the page names.
fn envoy_version() -> String {
    let versions = fs::read_to_string(repository().join("scripts/versions.sh")).unwrap();
    let version = versions.lines().find_map(|line| line.strip_prefix("ENVOY_VERSION="));
    version.expect("scripts/versions.sh names Envoy's version").to_owned()
}

fn real_make() -> String {
    let found = Command::new("sh").args(["-c", "command -v make"]).output().unwrap();
    String::from_utf8(found.stdout).unwrap().trim().to_owned()
}

/// Each block after a line that identifies it.
fn script_of(commands: &[Commands]) -> String {
    let fences = commands
        .iter()
        .map(|Commands { place, text, .. }| format!("printf '%s\\n' '{MARK}{place}'\n{text}"));
    // A user would stop these by hand; without its own process namespace, only this stops them.
    let end = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT";
    format!("set -e -o pipefail\n{end}\n{}", fences.collect::<String>())
}

fn shell(folder: &Path, script: &Path) -> Command {
    let is_allowed = |command: &str| {
        Command::new("unshare")
            .args(APART)
            .args(["sh", "-c", command])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let mut command = if is_allowed("ip link set lo up") {
        let mut command = Command::new("unshare");
        command
            .args(APART)
            .args(["sh", "-c", "ip link set lo up && exec bash \"$0\""]);
        command
    } else {
        Command::new("bash")
    };
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .arg(script)
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", folder.join("bin").display()));
    // Variables that a new user's shell does not have.
    for variable in [
        "CREDENCE_TOKEN_FILE",
        "CREDENCE_CONTROL_PLANE",
        "CREDENCE_CONFIG",
        "MAKEFLAGS",
        "MAKELEVEL",
    ] {
        command.env_remove(variable);
    }
    command
}

/// The first line of `prints` that is not printed after the lines before it. `…` stands for any text.
fn first_missing<'a>(prints: &'a str, said: &str) -> Option<&'a str> {
    let mut said = said.lines();
    prints
        .lines()
        .find(|line| !line.trim().is_empty() && !said.by_ref().any(|said| fits(line.trim(), said.trim())))
}

fn fits(pattern: &str, said: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('…') else {
        return pattern == said;
    };
    let (middle, end) = rest.rsplit_once('…').unwrap_or(("", rest));
    let behind_middle = said.strip_prefix(begin).and_then(|said| {
        let mut parts = middle.split('…');
        parts.try_fold(said, |said, part| Some(said.split_once(part)?.1))
    });
    behind_middle.is_some_and(|said| said.ends_with(end))
}

/// The end of what the programs have written into files.
fn others(folder: &Path) -> String {
    let files = fs::read_dir(folder.join("try")).into_iter().flatten().flatten();
    let mut last_words = String::new();
    for path in files
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|end| end == "log"))
    {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines.get(lines.len().saturating_sub(20)..).unwrap_or_default();
        last_words.push_str(&format!("== {}\n{}\n", path.display(), last.join("\n")));
    }
    last_words
}

#[test]
fn an_ellipsis_matches_any_text() {
    for (pattern, said, expected) in [
        ("reason: expired", "reason: expired", true),
        ("reason: expired", "reason: expired, or so", false),
        ("at … by …", "at 7 by ada", true),
        ("at … by ada", "at 7 by bob", false),
        ("…reason\":\"stale\"…", "{\"reason\":\"stale\",\"x\":1}", true),
        ("x …", "y z", false),
        ("{\"a\":…}", "{\"a\":{},\"b\":1}", true),
        ("a…b…c", "abc", true),
        ("a…b", "a", false),
    ] {
        assert_eq!(fits(pattern, said), expected, "{pattern} / {said}");
    }
}

/// In a new user's order: each page starts where the previous one ended.
const WALK: &[&str] = &[
    "docs/start/envoy.md",
    "docs/start/agents.md",
    "docs/start/proxy.md",
    "docs/start/mcp.md",
    "README.md",
    "docs/operate/investigate.md",
    "docs/operate/control-plane.md",
    "docs/operate/images.md",
    "docs/reference/api.md",
    "docs/reference/evidence.md",
    "docs/internals/ledger.md",
    "docs/operate/alerts.md",
    "docs/operate/enforce.md",
    "docs/operate/debug.md",
    "docs/operate/revoke.md",
    "docs/operate/rotate.md",
    "docs/operate/backup.md",
    "docs/operate/upgrade.md",
    "docs/start/issuer.md",
    "CONTRIBUTING.md",
];

/// Its own network and process ids. Its processes end with `unshare`.
const APART: &[&str] = &["--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child"];

/// Marks the output of a block.
const MARK: &str = "@@ ";

/// It takes seconds on an idle machine.
const LONGEST: Duration = Duration::from_secs(180);
