//! Names in the pages exist: metrics, tests, benchmarks.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use credence_e2e::artefacts::Artefacts;

use super::page::{Page, repository};

#[test]
fn the_generated_reference_is_up_to_date() {
    let credence = Artefacts::from_environment().unwrap().credence;
    let mut script = Command::new("python3");
    script.arg(repository().join("scripts/reference.py")).arg("--check");
    let output = script.env("CREDENCE_BIN", credence).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// These pages name a test by its file and its name, each in backticks, in one row of a table. All names after a file,
/// up to the next file, are tests in it. Tests after `*soak*` are those that `make test` does not run.
#[test]
fn the_tests_that_the_pages_name_exist() {
    let mut named = 0;
    let mut missing = Vec::new();
    for page in ["docs/internals/promises.md", "docs/internals/threat-model.md"].map(Page::read) {
        let prose = page.prose();
        for row in prose.lines().filter(|line| line.starts_with('|')) {
            let mut file: Option<(&str, String)> = None;
            let mut soak = false;
            for (number, word) in row.split('`').enumerate() {
                if number % 2 == 0 {
                    soak |= word.contains("*soak*");
                } else if word.ends_with(".rs") && word.contains('/') {
                    let text = fs::read_to_string(repository().join(word))
                        .unwrap_or_else(|error| panic!("{}: {word}: {error}", page.path));
                    file = Some((word, text));
                    soak = false;
                } else if let Some((path, text)) = &file {
                    named += 1;
                    match test(word, text) {
                        None => missing.push(format!("{}: {path} has no test {word}", page.path)),
                        Some(is_long) if is_long != soak => {
                            missing.push(format!(
                                "{}: {word}: *soak* is for #[ignore], and for nothing else",
                                page.path
                            ));
                        }
                        Some(_) => {}
                    }
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(named > 100, "only {named} tests are named");
}

#[test]
fn the_metrics_that_the_pages_name_are_documented() {
    let metrics = Page::read("docs/reference/metrics.md");
    let documented: BTreeSet<String> = metrics
        .text
        .lines()
        .filter_map(|line| {
            let (name, _) = line.strip_prefix("| `credence_")?.split_once('`')?;
            Some(format!("credence_{name}"))
        })
        .collect();
    for page in Page::all() {
        for word in page
            .text
            .split(|char: char| !(char.is_ascii_alphanumeric() || char == '_'))
        {
            // A name that ends with `_` is the prefix of several.
            let is_metric = word.starts_with("credence_")
                && !word.ends_with('_')
                && !OTHER_NAMES.iter().any(|other| word.starts_with(other));
            // Suffixes that Prometheus adds to a counter or a histogram.
            let without = ["_total", "_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| word.strip_suffix(end));
            let known = documented.contains(word)
                || documented.contains(&format!("{word}_total"))
                || without.is_some_and(|name| documented.contains(name));
            assert!(!is_metric || known, "{}: no metric is called {word}", page.path);
        }
    }
}

#[test]
fn the_benchmarks_that_the_pages_name_exist() {
    for page in Page::all() {
        for rest in page.text.split("BENCH=").skip(1) {
            let name: String = rest
                .chars()
                .take_while(|char| char.is_ascii_lowercase() || *char == '-')
                .collect();
            assert!(
                repository().join("loadtest").join(format!("bench-{name}")).exists(),
                "{}: make bench BENCH={name}: there is no such benchmark",
                page.path
            );
        }
    }
}

#[test]
fn the_source_files_that_the_pages_name_exist() {
    let mut named = 0;
    for page in Page::all() {
        let files = page
            .text
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|word| word.contains('/') && word.ends_with(".rs"));
        for file in files {
            assert!(repository().join(file).exists(), "{}: there is no {file}", page.path);
            named += 1;
        }
    }
    assert!(named > 50, "{named}");
}

/// In docs/operate/scale.md, the last column of a table names the command, or says "the same", and then the members of
/// its output.
#[test]
fn each_figure_names_the_member_that_its_benchmark_prints() {
    let page = Page::read("docs/operate/scale.md");
    let mut programs = String::new();
    let mut named = 0;
    for row in page
        .text
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| what |"))
    {
        let source = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let (command, members) = source
            .split_once(": ")
            .unwrap_or_else(|| panic!("docs/operate/scale.md: {row}: whose figure?"));
        if command != "the same" {
            let (_, benchmark) = command.trim_matches('`').split_once("BENCH=").unwrap();
            programs = programs_of(benchmark);
        }
        for member in members.split('`').skip(1).step_by(2) {
            assert!(
                programs.contains(member),
                "docs/operate/scale.md: {row}: nothing prints {member}"
            );
            named += 1;
        }
    }
    assert!(named > 15, "only {named} figures have a source");
}

/// The text of a benchmark, and of the programs whose output it passes on.
fn programs_of(benchmark: &str) -> String {
    let read =
        |path: &str| fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let script = read(&format!("loadtest/bench-{benchmark}"));
    let more = match benchmark {
        "revocation" => "e2e/examples/propagation.rs",
        "audit-query" => "ledger/examples/audit-query.rs",
        "ledger" => "control-plane/examples/ledger-load/main.rs",
        _ => return script,
    };
    script + &read(more)
}

/// Whether the test of this name, in this module if named, has `#[ignore]`; `None` if there is no such test.
fn test(name: &str, text: &str) -> Option<bool> {
    let (module, name) = match name.rsplit_once("::") {
        Some((module, name)) => (Some(module), name),
        None => (None, name),
    };
    if module.is_some_and(|module| !text.contains(&format!("mod {module} {{"))) {
        return None;
    }
    let signature = format!("fn {name}(");
    let marked = text.split("#[test]").chain(text.split("#[tokio::test"));
    let mut attributes = marked.filter_map(|rest| {
        let before = rest.split('{').next().unwrap_or_default();
        before.contains(&signature).then(|| before.contains("#[ignore"))
    });
    let by_macro = || text.contains("macro_rules!") && text.split_whitespace().any(|word| word == name);
    attributes.next().or_else(|| by_macro().then_some(false))
}

/// Names that look like metrics: the detail of a denial in Envoy's access log, and crates.
const OTHER_NAMES: &[&str] = &[
    "credence_control_plane",
    "credence_delegation_",
    "credence_subject",
    "credence_expired",
    "credence_revoked_principal",
];
