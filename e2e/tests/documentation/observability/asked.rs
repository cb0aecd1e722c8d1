//! The rules and the dashboard of envoy-config/observability.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The path of envoy-config/observability.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../envoy-config/observability")
}

/// A recording rule or an alert.
#[derive(Debug, Deserialize)]
pub(crate) struct Rule {
    pub(crate) record: Option<String>,
    pub(crate) alert: Option<String>,
    pub(crate) expr: String,
    #[serde(default)]
    pub(crate) annotations: Annotations,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Annotations {
    #[serde(default)]
    pub(crate) runbook_url: String,
}

/// An expression of the dashboard with values for its variables, and the label names of its legend.
#[derive(Debug)]
pub(crate) struct Drawn {
    pub(crate) panel: String,
    pub(crate) expr: String,
    pub(crate) legend: Vec<String>,
}

/// Every rule of every file.
pub(crate) fn rules() -> Vec<Rule> {
    let mut rules = Vec::new();
    for entry in fs::read_dir(folder().join("rules")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let file: RuleFile = serde_saphyr::from_str(&text).unwrap();
        rules.extend(file.groups.into_iter().flat_map(|group| group.rules));
    }
    assert!(rules.len() > 40, "{} rules", rules.len());
    rules
}

/// Every expression of the dashboard.
pub(crate) fn drawn() -> Vec<Drawn> {
    let text = fs::read_to_string(folder().join("grafana/dashboards/credence.json")).unwrap();
    let dashboard: Dashboard = serde_json::from_str(&text).unwrap();
    let expressions = dashboard.panels.into_iter().flat_map(|panel| {
        let title = panel.title;
        panel.targets.into_iter().map(move |target| Drawn {
            panel: title.clone(),
            expr: with_values(&target.expr),
            legend: legend(&target.legend_format),
        })
    });
    let variables = dashboard.templating.list.into_iter().filter_map(|variable| {
        let query = variable.definition?;
        let (expr, label) = query
            .strip_prefix("label_values(")?
            .strip_suffix(')')?
            .rsplit_once(", ")?;
        Some(Drawn {
            panel: format!("the variable {}", variable.name),
            expr: with_values(expr),
            legend: vec![label.to_owned()],
        })
    });
    let drawn: Vec<Drawn> = expressions.chain(variables).collect();
    assert!(drawn.len() > 60, "{} expressions", drawn.len());
    drawn
}

/// As Grafana sends it with "All" selected.
fn with_values(expression: &str) -> String {
    let mut expression = expression.replace("$__rate_interval", "1m");
    for variable in ["$job", "$envoy", "$control_plane"] {
        expression = expression.replace(variable, ".*");
    }
    assert!(!expression.contains('$'), "an unknown variable: {expression}");
    expression
}

/// The labels in `{{label}} and {{other}}`.
fn legend(format: &str) -> Vec<String> {
    let labels = format.split("{{").skip(1).filter_map(|rest| rest.split_once("}}"));
    labels.map(|(label, _)| label.trim().to_owned()).collect()
}

#[derive(Deserialize)]
struct RuleFile {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Dashboard {
    panels: Vec<Panel>,
    templating: Templating,
}

#[derive(Deserialize)]
struct Panel {
    title: String,
    #[serde(default)]
    targets: Vec<Target>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Target {
    expr: String,
    legend_format: String,
}

#[derive(Deserialize)]
struct Templating {
    list: Vec<Variable>,
}

#[derive(Deserialize)]
struct Variable {
    name: String,
    definition: Option<String>,
}
