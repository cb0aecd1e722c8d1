//! Commands in the pages that cannot run here, for a cluster or a server: the files that they name exist, and their
//! tools have the options that they use.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use credence_e2e::artefacts::Artefacts;

use super::page::{Page, repository};

#[test]
fn files_that_commands_name_exist() {
    let manifests = manifests();
    for (place, words) in commands() {
        let mut after: &str = "";
        for word in &words {
            if FILE_OPTIONS.contains(&after) && !is_the_readers_own(word) {
                assert!(repository().join(word).exists(), "{place}: {word} does not exist");
            }
            // Paths in these folders, such as a chart's, are always this repository's.
            if word.starts_with("envoy-config/") || word.starts_with("docs/") {
                assert!(repository().join(word).exists(), "{place}: {word} does not exist");
            }
            if let Some((kind, name)) = word.split_once('/')
                && KINDS.contains(&kind)
            {
                let named = format!("name: {name}");
                assert!(
                    manifests.lines().any(|line| line.trim() == named),
                    "{place}: no file of envoy-config has {word}"
                );
            }
            after = word;
        }
    }
}

#[test]
fn the_tools_have_the_options_that_commands_use() {
    let mut skipped = Vec::new();
    for (place, words) in commands() {
        let tool = words[0].as_str();
        let Some(program) = program(tool) else {
            assert!(
                TOOLS.contains(&tool),
                "{place}: the options of `{tool}` are not checked: add it to TOOLS"
            );
            if !skipped.contains(&words[0]) {
                eprintln!("SKIPPED: the options of {tool}: it is not built here");
                skipped.push(words[0].clone());
            }
            continue;
        };
        // Subcommands come first, except for kubectl's namespace.
        let behind = match &words[1..] {
            [option, _, behind @ ..] if option == "-n" => behind,
            behind => behind,
        };
        let end = behind
            .iter()
            .position(|word| word.starts_with('-') || word.contains('/'))
            .unwrap_or(behind.len());
        // Behind `--` there is another program's command.
        let own = words.iter().take_while(|word| word.as_str() != "--");
        let options = own.filter(|word| word.starts_with("--"));
        let help = help(&program, &behind[..end]);
        for option in options {
            let name = option.split('=').next().unwrap();
            assert!(help.contains(name), "{place}: `{tool}` knows no {name}:\n{help}");
        }
    }
}

/// Each simple command: its place and its words.
fn commands() -> Vec<(String, Vec<String>)> {
    let mut all = Vec::new();
    for page in Page::all() {
        for commands in page.commands_for_elsewhere() {
            let text = commands.text.replace("\\\n", " ");
            for line in text
                .lines()
                .filter(|line| !line.trim_start().starts_with('#') && !line.trim().is_empty())
            {
                for simple in line.split(" | ").flat_map(|part| part.split(" && ")) {
                    all.push((commands.place.clone(), words(simple)));
                }
            }
        }
    }
    all
}

/// Splits like the shell and removes quotes. An assignment from a command becomes that command.
fn words(command: &str) -> Vec<String> {
    let command = command.trim().trim_start_matches("! ");
    let inner = command.split_once("=$(").filter(|(name, _)| !name.contains(' '));
    let command = inner.map_or(command, |(_, rest)| rest.trim_end_matches(')'));
    let mut words = vec![String::new()];
    let mut quote = None;
    for char in command.chars() {
        match (quote, char) {
            (None, '\'' | '"') => quote = Some(char),
            (Some(open), _) if open == char => quote = None,
            (None, ' ') => words.push(String::new()),
            (None, '#') if words.last().is_some_and(String::is_empty) => break,
            (_, other) => words.last_mut().unwrap().push(other),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// A file that the reader creates, or standard input.
fn is_the_readers_own(word: &str) -> bool {
    word == "-" || !word.contains('/')
}

fn manifests() -> String {
    let mut text = String::new();
    let mut folders = vec![repository().join("envoy-config")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(contents) = fs::read_to_string(&path) {
                text.push_str(&contents);
            }
        }
    }
    text
}

/// The newest built program of this tool, by its name and version.
fn program(tool: &str) -> Option<PathBuf> {
    if tool == "credence" {
        return Some(Artefacts::from_environment().unwrap().credence);
    }
    let tools = fs::read_dir(repository().join(".tools")).ok()?;
    let mut found: Vec<PathBuf> = tools
        .filter_map(|entry| Some(entry.ok()?.path()))
        .flat_map(|path| [path.join(tool), path.join("bin").join(tool), path])
        .filter(|path| is_called(path, tool) && path.is_file())
        .collect();
    found.sort();
    found.pop()
}

fn is_called(path: &Path, tool: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    // After a hyphen there may be another tool's name, as in docker-compose.
    let version = name.strip_prefix(tool).and_then(|rest| rest.strip_prefix('-'));
    let is_version = |text: &str| {
        text.trim_start_matches('v')
            .starts_with(|first: char| first.is_ascii_digit())
    };
    name == tool || version.is_some_and(is_version)
}

/// The tool's help about the longest prefix of these words that is a command.
fn help(program: &Path, words: &[String]) -> String {
    for length in (0..=words.len()).rev() {
        let output = Command::new(program)
            .args(&words[..length])
            .arg("--help")
            .output()
            .unwrap();
        if output.status.success() {
            return String::from_utf8_lossy(&output.stdout).into_owned();
        }
    }
    panic!("{} --help fails", program.display());
}

/// The tools of commands for a cluster.
const TOOLS: &[&str] = &[
    "kubectl", "helm", "istioctl", "egctl", "crane", "credence", "curl", "base64", "docker", "go", "umask", "make",
    "install", "openssl", "export", "sed", "sudo", "echo", "head", "grep", "sort", "df",
];

/// Options that take a file.
const FILE_OPTIONS: &[&str] = &["-f", "--filename", "--values", "-k"];

/// Kinds that `kubectl` takes before a name.
const KINDS: &[&str] = &[
    "job",
    "statefulset",
    "service",
    "svc",
    "secret",
    "configmap",
    "wasmplugin",
    "envoyextensionpolicy",
];
