//! The manifests of the control plane start the real `credence`, and probe it, as they say. `make lint-kubernetes` checks
//! that Kubernetes accepts them.

#![allow(clippy::disallowed_types)] // manifests of our own

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command};
use std::time::{Duration, Instant};

use crate::common::Workbench;
use serde_json::{Value, json};

#[test]
fn the_first_start_ends_with_a_log_that_the_control_plane_then_serves() {
    let bench = volumes();
    let first_start = Container::of("first-start.yaml", "Job", "first-start");
    let created = bench.run(&strs(&first_start.arguments(&bench, [0; 3]))).succeeded();

    let running = Running::start(&bench);
    assert_eq!(created, format!("log_id: {}", running.log_id));
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let (port, path) = running.container.probe(probe);
        // The kubelet repeats its probes too.
        let begin = Instant::now();
        while running.get(&port, &path).0 != "200" {
            assert!(begin.elapsed() < Duration::from_secs(10), "{probe}");
        }
    }
    let monitor = manifest("kubernetes/servicemonitor.yaml", "ServiceMonitor");
    let endpoint = &monitor["spec"]["endpoints"][0];
    let (status, metrics) = running.get(text(&endpoint["port"]), text(&endpoint["path"]));
    assert_eq!(status, "200");
    assert!(metrics.contains("credence_revocation_log_writable 1"), "{metrics}");

    let place = [
        "--control-plane",
        &format!("http://127.0.0.1:{}", running.http),
        "--token-file",
        "operator/token",
    ];
    let revoke = ["revoke", "principal", "--issuer", "https://id.example.com"];
    bench.run(&[&revoke[..], &place].concat()).succeeded();

    let set = manifest("kubernetes/control-plane.yaml", "StatefulSet");
    let patience = set["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].as_u64();
    let asked = Instant::now();
    assert_eq!(running.stop(), 0);
    assert!(asked.elapsed() < Duration::from_secs(patience.unwrap()));
    // The next one keeps the drain promise and starts with the same log.
    assert_eq!(format!("log_id: {}", Running::start(&bench).log_id), created);
}

#[test]
fn a_first_start_on_a_volume_with_a_log_fails_and_a_control_plane_on_an_empty_one_does_too() {
    let bench = volumes();
    let first_start = Container::of("first-start.yaml", "Job", "first-start").arguments(&bench, [0; 3]);
    let control_plane = Container::of("control-plane.yaml", "StatefulSet", "control-plane");
    bench
        .run(&strs(&control_plane.arguments(&bench, [0; 3])))
        .failed(1, &["start once with --init"]);
    bench.run(&strs(&first_start)).succeeded();
    bench
        .run(&strs(&first_start))
        .failed(1, &["is already initialised", "start without --init"]);
}

#[test]
fn it_is_refused_if_all_users_can_read_the_operators_token() {
    let bench = volumes();
    let token = bench.path("operator/token");
    std::fs::set_permissions(token, std::fs::Permissions::from_mode(0o444)).unwrap();
    let control_plane = Container::of("control-plane.yaml", "StatefulSet", "control-plane");
    let first_start = Container::of("first-start.yaml", "Job", "first-start");
    for container in [control_plane, first_start] {
        let ran = bench.run(&strs(&container.arguments(&bench, [0; 3])));
        assert_eq!(ran.code, 1, "{ran:?}");
    }
}

#[test]
fn every_option_is_one_of_the_documented_ones() {
    let documented = std::fs::read_to_string(repository().join("docs/reference/configuration.md")).unwrap();
    for container in [
        Container::of("control-plane.yaml", "StatefulSet", "control-plane"),
        Container::of("first-start.yaml", "Job", "first-start"),
    ] {
        for option in container.args.iter().filter(|arg| arg.starts_with("--")) {
            let name = option.split('=').next().unwrap();
            assert!(
                documented.contains(&format!("| `{name} ")) || documented.contains(&format!("| `{name}`")),
                "{name}"
            );
        }
    }
}

/// To apply a file again, or in another order, must not undo another file.
#[test]
fn each_object_is_in_one_file_only() {
    let mut owners: BTreeMap<[String; 3], Vec<&str>> = BTreeMap::new();
    for file in [
        "kubernetes/namespace.yaml",
        "kubernetes/first-start.yaml",
        "kubernetes/control-plane.yaml",
        "kubernetes/servicemonitor.yaml",
        "kubernetes/podmonitor.yaml",
        "istio/control-plane/cluster.yaml",
        "istio/control-plane/settings.yaml",
        "istio/control-plane/sidecar.yaml",
    ] {
        for document in documents(file) {
            let metadata = &document["metadata"];
            let namespace = metadata["namespace"].as_str().unwrap_or_default();
            let object = [text(&document["kind"]), namespace, text(&metadata["name"])];
            owners.entry(object.map(str::to_owned)).or_default().push(file);
        }
    }
    owners.retain(|_, files| files.len() > 1);
    assert!(owners.is_empty(), "{owners:#?}");
}

/// The pod does not start without its settings, and no other object replaces them.
#[test]
fn the_settings_are_in_the_one_config_map_that_the_pod_names() {
    let set = manifest("kubernetes/control-plane.yaml", "StatefulSet");
    let volumes = set["spec"]["template"]["spec"]["volumes"].as_array().unwrap();
    let settings = volumes.iter().find(|volume| volume["name"] == "settings").unwrap();
    assert_eq!(
        *settings,
        json!({"name": "settings", "configMap": {"name": "credence-settings"}})
    );
    let plain = manifest("kubernetes/control-plane.yaml", "ConfigMap");
    let istio = manifest("istio/control-plane/settings.yaml", "ConfigMap");
    assert_eq!(text(&plain["metadata"]["name"]), "credence-settings");
    assert_eq!(text(&istio["metadata"]["name"]), "credence-settings-istio");
    for map in [&plain, &istio] {
        let files: Vec<_> = map["data"].as_object().unwrap().keys().collect();
        assert_eq!(files, ["credence.yaml"]);
    }

    let bench = Workbench::new();
    bench.file("istio.yaml", text(&istio["data"]["credence.yaml"]));
    bench
        .run(&["config", "check", "--control-plane", "istio.yaml"])
        .succeeded();
}

#[test]
fn the_chart_and_the_manifests_have_the_same_settings_for_istio() {
    let values = documents("helm/credence-control-plane/ci/istio-values.yaml").remove(0);
    let istio = manifest("istio/control-plane/settings.yaml", "ConfigMap");
    let mut settings: Value = serde_saphyr::from_str(text(&istio["data"]["credence.yaml"])).unwrap();
    // Helm would keep the chart's `open`.
    settings["access"]["grpc"] = json!("required");
    assert_eq!(values["settings"], settings);
    let policy = manifest("istio/control-plane/settings.yaml", "NetworkPolicy");
    assert_eq!(values["networkPolicy"]["egress"], policy["spec"]["egress"]);
}

/// The paths in the settings of Istio are those that the pod mounts and that Istio's agent writes to.
#[test]
fn the_certificate_of_istio_is_where_its_settings_look_for_it() {
    let set = manifest("kubernetes/control-plane.yaml", "StatefulSet");
    let template = &set["spec"]["template"];
    let annotations = &template["metadata"]["annotations"];
    let agent: Value = serde_saphyr::from_str(text(&annotations["proxy.istio.io/config"])).unwrap();
    let folder = text(&agent["proxyMetadata"]["OUTPUT_CERTS"]);
    let mounted: Value = serde_json::from_str(text(&annotations["sidecar.istio.io/userVolumeMount"])).unwrap();
    assert_eq!(mounted[0]["mountPath"], folder);
    let mounts = template["spec"]["containers"][0]["volumeMounts"].as_array().unwrap();
    let mount = mounts.iter().find(|mount| mount["mountPath"] == folder).unwrap();
    assert_eq!(mount["name"], mounted[0]["name"]);

    let istio = manifest("istio/control-plane/settings.yaml", "ConfigMap");
    let settings: Value = serde_saphyr::from_str(text(&istio["data"]["credence.yaml"])).unwrap();
    for file in ["certificate", "key", "client_ca"] {
        let path = text(&settings["tls"]["grpc"][file]);
        assert_eq!(Path::new(path).parent(), Some(Path::new(folder)), "{file}");
    }
}

#[test]
fn the_chart_accepts_the_settings_that_the_control_plane_accepts() {
    let read = |path: &str| -> Value {
        serde_json::from_str(&std::fs::read_to_string(repository().join(path)).unwrap()).unwrap()
    };
    let values = read("envoy-config/helm/credence-control-plane/values.schema.json");
    let settings = without_escapes(read("docs/control-plane.schema.json"));
    for member in ["type", "properties", "additionalProperties", "required"] {
        assert!(
            values["properties"]["settings"][member] == settings[member],
            "settings.{member} of values.schema.json is not that of docs/control-plane.schema.json: copy it, but for patterns with \\u"
        );
    }
}

#[test]
fn every_value_of_the_chart_is_described_in_values_yaml_and_in_its_schema() {
    let chart = repository().join("envoy-config/helm/credence-control-plane");
    let text = std::fs::read_to_string(chart.join("values.yaml")).unwrap();
    let schema: Value =
        serde_json::from_str(&std::fs::read_to_string(chart.join("values.schema.json")).unwrap()).unwrap();
    let values: Value = serde_saphyr::from_str(&text).unwrap();

    let mut known = BTreeSet::new();
    for (name, part) in schema["properties"].as_object().unwrap() {
        assert!(part["description"].is_string(), "{name}");
        let is_section = part["properties"].is_object() && name != "settings";
        if !is_section {
            known.insert(name.clone());
        }
        for (inner, part) in part["properties"]
            .as_object()
            .filter(|_| is_section)
            .into_iter()
            .flatten()
        {
            assert!(part["description"].is_string(), "{name}.{inner}");
            known.insert(format!("{name}.{inner}"));
        }
    }
    // Helm's, not ours.
    known.remove("global");

    let mut set = BTreeSet::new();
    for (name, value) in values.as_object().unwrap() {
        match value
            .as_object()
            .filter(|_| known.iter().any(|known| known.starts_with(&format!("{name}."))))
        {
            Some(section) => set.extend(section.keys().map(|inner| format!("{name}.{inner}"))),
            None => {
                set.insert(name.clone());
            }
        }
    }
    assert_eq!(
        set, known,
        "values.yaml and values.schema.json do not name the same values"
    );

    let lines: Vec<&str> = text.lines().collect();
    for name in &set {
        let key = name.rsplit('.').next().unwrap();
        let indentation = if name.contains('.') { "  " } else { "" };
        let explained = lines.windows(2).any(|pair| {
            pair[1].starts_with(&format!("{indentation}{key}:")) && pair[0].starts_with(&format!("{indentation}# "))
        });
        assert!(explained, "no comment stands above {name} in values.yaml");
    }
}

/// Helm's regular expressions have no `\u`: the start checks such a pattern.
fn without_escapes(schema: Value) -> Value {
    match schema {
        Value::Object(members) => members
            .into_iter()
            .filter(|(name, value)| !(name == "pattern" && value.as_str().is_some_and(|text| text.contains("\\u"))))
            .map(|(name, value)| (name, without_escapes(value)))
            .collect(),
        Value::Array(elements) => elements.into_iter().map(without_escapes).collect(),
        other => other,
    }
}

/// A container of a manifest.
struct Container {
    json: Value,
    args: Vec<String>,
}

/// The control plane of the StatefulSet, killed with the test.
struct Running {
    container: Container,
    child: Child,
    // Kept open for the server.
    stdout: BufReader<ChildStdout>,
    log_id: String,
    http: u16,
    grpc: u16,
    probes: u16,
}

impl Container {
    fn of(file: &str, kind: &str, name: &str) -> Self {
        let json = manifest(&format!("kubernetes/{file}"), kind)["spec"]["template"]["spec"]["containers"][0].clone();
        assert_eq!(json["name"], name);
        let args = json["args"].as_array().unwrap().iter().map(|arg| text(arg).to_owned());
        Self {
            args: args.collect(),
            json,
        }
    }

    /// Its arguments, with the mounted paths in the bench's folder and the ports replaced. The bench must have every
    /// mount.
    fn arguments(&self, bench: &Workbench, [http, grpc, probes]: [u16; 3]) -> Vec<String> {
        let mut args = self.args.clone();
        for mount in self.json["volumeMounts"].as_array().unwrap() {
            let folder = bench.path(match text(&mount["name"]) {
                "data" => "data",
                "settings" => "settings",
                "operator-token" => "operator",
                "istio-certificate" => "istio",
                other => panic!("no folder stands for the volume {other}"),
            });
            for arg in &mut args {
                *arg = arg.replace(text(&mount["mountPath"]), folder.to_str().unwrap());
            }
        }
        let folder = bench.path("").to_str().unwrap().to_owned();
        for arg in &mut args {
            if let Some((name, path)) = arg.split_once("=/") {
                assert!(
                    format!("/{path}").starts_with(&folder),
                    "{name}: /{path} is not mounted"
                );
            }
            *arg = arg
                .replace("0.0.0.0:7070", &format!("127.0.0.1:{http}"))
                .replace("0.0.0.0:7071", &format!("127.0.0.1:{grpc}"))
                .replace("0.0.0.0:7072", &format!("127.0.0.1:{probes}"));
        }
        args
    }

    /// Port and path.
    fn probe(&self, name: &str) -> (String, String) {
        let get = &self.json[name]["httpGet"];
        (text(&get["port"]).to_owned(), text(&get["path"]).to_owned())
    }
}

impl Running {
    fn start(bench: &Workbench) -> Self {
        let container = Container::of("control-plane.yaml", "StatefulSet", "control-plane");
        let [http, grpc, probes] = [free_port(), free_port(), free_port()];
        let arguments = container.arguments(bench, [http, grpc, probes]);
        let mut child = bench.command(&strs(&arguments)).spawn().unwrap();
        // The control plane goes on if its log is not read.
        drop(child.stderr.take());
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut announced = |name: &str| {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            line.strip_prefix(name)
                .unwrap_or_else(|| panic!("{line:?}"))
                .trim()
                .to_owned()
        };
        let log_id = announced("log_id: ");
        announced("http: ");
        announced("grpc: ");
        announced("probes: ");
        Self {
            container,
            child,
            stdout,
            log_id,
            http,
            grpc,
            probes,
        }
    }

    /// Status and body of a GET on the port of this name, over HTTP/1.1.
    fn get(&self, port: &str, path: &str) -> (String, String) {
        let ports = self.container.json["ports"].as_array().unwrap();
        let port = ports.iter().find(|known| known["name"] == port).unwrap();
        let port = match port["containerPort"].as_u64() {
            Some(7070) => self.http,
            Some(7071) => self.grpc,
            Some(7072) => self.probes,
            other => panic!("{other:?}"),
        };
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        // By the address, as the kubelet and Prometheus ask.
        let request = format!("GET {path} HTTP/1.1\r\nhost: 10.0.0.1:{port}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().to_owned();
        let body = answer.split_once("\r\n\r\n").unwrap().1.to_owned();
        (status, body)
    }

    /// Stops it as the kubelet does, and waits; returns its exit code.
    fn stop(mut self) -> i32 {
        let asked = Command::new("kill")
            .args(["-TERM", &self.child.id().to_string()])
            .status();
        assert!(asked.unwrap().success());
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the manifests mount without Istio: a fresh volume, the settings, and the operator's token as a Secret with
/// `fsGroup` has it.
fn volumes() -> Workbench {
    let bench = Workbench::new();
    for folder in ["data/lost+found", "settings", "operator", "istio"] {
        std::fs::create_dir_all(bench.path(folder)).unwrap();
    }
    let settings = manifest("kubernetes/control-plane.yaml", "ConfigMap");
    bench.file("settings/credence.yaml", text(&settings["data"]["credence.yaml"]));
    bench.file("operator/token", &"0123456789abcdef".repeat(4));
    std::fs::set_permissions(bench.path("operator/token"), std::fs::Permissions::from_mode(0o440)).unwrap();
    bench
}

/// The only document of this kind in a file of envoy-config.
fn manifest(file: &str, kind: &str) -> Value {
    let mut found = documents(file);
    found.retain(|document| document["kind"] == kind);
    assert_eq!(found.len(), 1, "objects of kind {kind} in {file}");
    found.remove(0)
}

fn documents(file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(repository().join("envoy-config").join(file)).unwrap();
    text.split("\n---\n")
        .map(|document| serde_saphyr::from_str::<Value>(document).unwrap())
        .collect()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn text(json: &Value) -> &str {
    json.as_str().unwrap_or_else(|| panic!("no text: {json}"))
}

fn strs(strings: &[String]) -> Vec<&str> {
    strings.iter().map(String::as_str).collect()
}
