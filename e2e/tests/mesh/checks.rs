//! Istio's own tools accept the files.

use std::path::Path;
use std::process::Command;

use credence_e2e::mesh::shipped;
use credence_e2e::mesh::tools::Tools;

/// Runs istioctl, and returns whether it succeeded, and its output.
fn istioctl(arguments: &[&str], files: &[&Path]) -> (bool, String) {
    let tools = Tools::from_environment().unwrap();
    let ran = Command::new(tools.istioctl)
        .args(arguments)
        .args(files)
        .output()
        .unwrap();
    let said = [ran.stdout, ran.stderr].concat();
    (ran.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
#[ignore = "needs Istio: make test-mesh"]
fn istioctl_validates_every_file() {
    for file in shipped::all().unwrap() {
        let (is_valid, said) = istioctl(&["validate", "-f"], &[&file]);
        // The warning about every EnvoyFilter.
        let is_usual = |line: &str| line.contains("EnvoyFilter exposes internal implementation details");
        let other = said
            .lines()
            .find(|line| line.trim_start().starts_with('*') && !is_usual(line));
        assert!(is_valid && other.is_none(), "{}: {said}", file.display());
    }
}

#[test]
#[ignore = "needs Istio: make test-mesh"]
fn istioctl_finds_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for (file, text, error) in [
        (
            "wasmplugin.yaml",
            "failStrategy: FAIL_RELOAD",
            "failStrategy: FAIL_SOMEHOW",
        ),
        ("wasmplugin.yaml", "sha256: \"0", "sha256: \""),
        ("control-plane/cluster.yaml", "mode: ISTIO_MUTUAL", "mode: MUTUAL_OR_SO"),
        ("control-plane/outside.yaml", "resolution: STATIC", "resolution: GUESS"),
    ] {
        let shipped = shipped::read(file).unwrap();
        assert!(shipped.contains(text), "{file} has no {text}");
        let changed = folder.path().join("changed.yaml");
        std::fs::write(&changed, shipped.replacen(text, error, 1)).unwrap();
        let (is_valid, said) = istioctl(&["validate", "-f"], &[&changed]);
        assert!(!is_valid, "{file} with {error}: {said}");
    }
}

#[test]
#[ignore = "needs Istio: make test-mesh"]
fn istioctl_analyzes_every_way_to_install_it_without_a_finding() {
    let files = shipped::all().unwrap();
    let named = |name: &str| files.iter().find(|file| file.ends_with(name)).unwrap().as_path();
    // Only one WasmPlugin of that name can be in a namespace: these are alternatives.
    for protection in [
        "wasmplugin.yaml",
        "wasmplugin-gateway.yaml",
        "wasmplugin-waypoint.yaml",
        "envoyfilter.yaml",
    ] {
        let together: Vec<&Path> = [
            "cluster.yaml",
            "outside.yaml",
            "settings.yaml",
            "sidecar.yaml",
            protection,
        ]
        .into_iter()
        .map(named)
        .collect();
        let (is_sound, said) = istioctl(
            &["analyze", "--use-kube=false", "--failure-threshold", "Info"],
            &together,
        );
        assert!(is_sound, "{protection}: {said}");
    }
}
