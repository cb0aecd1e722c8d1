//! The pages that people see: plain HTML without scripts. Templates escape every value.

use askama::Template;
use credence_delegation::Value;
use credence_delegation::inspect::printable;

use crate::choice::{Form, Narrowing, durations};
use crate::clients::Client;
use crate::policy::Offer;
use crate::tools::Tools;
use crate::words::{self, Descriptions};

/// What a client asks for, with a form to allow it.
#[derive(Debug, Template)]
#[template(path = "consent.html")]
pub(crate) struct ConsentPage {
    client: String,
    host: Option<String>,
    person: String,
    problem: Option<String>,
    /// Names the consent, and shows that the form is ours.
    consent: String,
    tools: Vec<ToolView>,
    durations: Vec<Choosable>,
    depths: Vec<Choosable>,
    audience: Vec<String>,
    return_to: String,
}

/// What a person has granted.
#[derive(Debug, Template)]
#[template(path = "grants.html")]
pub(crate) struct GrantsPage {
    pub(crate) person: String,
    pub(crate) notice: Option<&'static str>,
    pub(crate) grants: Vec<GrantView>,
    /// Shows that a form is ours.
    pub(crate) form: String,
}

/// Why something did not work.
#[derive(Debug, Template)]
#[template(path = "error.html")]
pub(crate) struct ErrorPage {
    pub(crate) title: &'static str,
    pub(crate) text: String,
    pub(crate) code: Option<&'static str>,
}

/// A grant in words.
#[derive(Debug)]
pub(crate) struct GrantView {
    pub(crate) id: String,
    pub(crate) client: String,
    pub(crate) tools: Vec<ToolView>,
    pub(crate) depth: String,
    pub(crate) audience: Vec<String>,
    pub(crate) since: String,
    pub(crate) until: String,
    pub(crate) last_use: String,
    pub(crate) is_live: bool,
}

#[derive(Debug)]
pub(crate) struct ToolView {
    field: String,
    name: String,
    title: String,
    is_ticked: bool,
    arguments: Vec<ArgumentView>,
}

#[derive(Debug)]
struct ArgumentView {
    field: String,
    title: String,
    words: String,
    input: Input,
}

/// How the person can narrow an argument.
#[derive(Debug)]
enum Input {
    Bounds { min: String, max: String },
    Values(Vec<ValueView>),
    Only(String),
    None,
}

#[derive(Debug)]
struct ValueView {
    text: String,
    is_ticked: bool,
}

/// An entry of a list.
#[derive(Debug)]
struct Choosable {
    value: u32,
    text: String,
    is_chosen: bool,
}

// === impl ConsentPage ===

impl ConsentPage {
    /// `form` is what the person sent before, with the problem that it has.
    pub(crate) fn new(
        client: &Client,
        person: &str,
        consent: &str,
        offer: &Offer,
        return_to: &str,
        descriptions: &Descriptions,
        (form, problem): (&Form, Option<String>),
    ) -> Self {
        let chosen = |field: &str| form.0.get(field).and_then(|text| text.parse::<u32>().ok());
        let list = |values: Vec<u32>, field: &str, text: fn(u32) -> String| {
            let chosen = chosen(field);
            let listed = values.into_iter().map(|value| Choosable {
                value,
                text: text(value),
                is_chosen: chosen == Some(value),
            });
            listed.collect()
        };
        Self {
            client: printable(&client.name),
            host: client.host.as_deref().map(printable),
            person: printable(person),
            problem,
            consent: consent.to_owned(),
            tools: tool_views(&offer.tools, descriptions, form),
            durations: list(durations(offer.terms.grant_seconds), "seconds", words::duration),
            depths: list((0..=offer.terms.depth).collect(), "depth", words::depth),
            audience: offer.audience.iter().map(|service| printable(service)).collect(),
            return_to: printable(return_to),
        }
    }
}

/// Tools in words, with the fields to narrow them.
pub(crate) fn tool_views(tools: &Tools, descriptions: &Descriptions, form: &Form) -> Vec<ToolView> {
    let views = tools.iter().enumerate().map(|(index, (tool, constraints))| {
        let field = format!("t{index}");
        let members = match constraints {
            Value::Object(members) => members.iter().collect(),
            _ => Vec::new(),
        };
        let mut arguments: Vec<_> = members
            .iter()
            .enumerate()
            .map(|(place, (name, constraint))| {
                argument_view(tool, name, constraint, format!("{field}a{place}"), descriptions, form)
            })
            .collect();
        if arguments.is_empty() {
            arguments.push(ArgumentView {
                field: String::new(),
                title: "everything else".to_owned(),
                words: "is anything".to_owned(),
                input: Input::None,
            });
        }
        ToolView {
            is_ticked: form.0.contains_key(&field),
            name: printable(tool),
            title: words::title(tool, descriptions),
            arguments,
            field,
        }
    });
    views.collect()
}

fn argument_view(
    tool: &str,
    name: &str,
    constraint: &Value,
    field: String,
    descriptions: &Descriptions,
    form: &Form,
) -> ArgumentView {
    let sent = |part: &str| form.0.get(&format!("{field}{part}")).cloned();
    let bound = |part: &str, offered: Option<Value>| {
        sent(part).unwrap_or_else(|| offered.map(|value| value.canonical()).unwrap_or_default())
    };
    let (title, input) = match Narrowing::of(constraint) {
        // The entry for arguments without a name.
        _ if name == "*" => ("everything else".to_owned(), Input::None),
        narrowing => {
            let input = match narrowing {
                Narrowing::Bounds { min, max } => Input::Bounds {
                    min: bound("min", min),
                    max: bound("max", max),
                },
                Narrowing::Values(values) => {
                    let views = values.iter().enumerate().map(|(place, value)| ValueView {
                        text: printable(&value.canonical()),
                        is_ticked: sent(&format!("v{place}")).is_some(),
                    });
                    Input::Values(views.collect())
                }
                Narrowing::Only => Input::Only(sent("only").unwrap_or_default()),
                Narrowing::None => Input::None,
            };
            (words::argument(tool, name, descriptions), input)
        }
    };
    ArgumentView {
        title,
        words: words::constraint(constraint),
        input,
        field,
    }
}

pub(crate) const STYLE: &str = include_str!("../templates/style.css");
