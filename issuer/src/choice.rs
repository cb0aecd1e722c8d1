//! What a person leaves of an offer: the form on the consent page.
//!
//! Fields are numbered as on the page, so that no name of a client's choosing is in a field's name: `t0` grants the first
//! tool, `t0a1max` lowers the upper bound of its second argument, `t0a2v0` keeps the first value of a list, and
//! `t0a3only` allows one value instead of any. `seconds` and `depth` are about the whole grant.

use std::collections::BTreeMap;

use credence_delegation::{Number, Value};

use crate::policy::Offer;
use crate::tools::Tools;
use crate::words::{self, Descriptions};

/// The fields that the browser sent, each once.
#[derive(Debug, Default)]
pub(crate) struct Form(pub(crate) BTreeMap<String, String>);

/// What was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) tools: Tools,
    /// The life of the grant, in seconds.
    pub(crate) seconds: u32,
    pub(crate) depth: u32,
}

/// What the person has to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChoiceError {
    #[error("choose at least one thing to allow, or refuse")]
    Nothing,
    #[error("{0}: choose at least one value")]
    NoValue(String),
    #[error("{0}: write a number")]
    NoNumber(String),
    #[error("{0}: this is more than what was asked for, or leaves nothing")]
    Beyond(String),
    #[error("choose how long, out of the list")]
    Duration,
    #[error("choose how often it may be handed on, out of the list")]
    Depth,
}

/// How a person can narrow one argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Narrowing {
    /// The bounds of a range, if it has them.
    Bounds {
        min: Option<Value>,
        max: Option<Value>,
    },
    /// Some of these values.
    Values(Vec<Value>),
    /// One value instead of any.
    Only,
    None,
}

impl Narrowing {
    /// How this constraint can be narrowed.
    pub(crate) fn of(constraint: &Value) -> Self {
        let Value::Object(members) = constraint else {
            return Self::None;
        };
        match members.argument("constraint_type") {
            Some(Value::String(kind)) => match (kind.as_str(), members.argument("values")) {
                ("range", _) => Self::Bounds {
                    min: members.argument("min").cloned(),
                    max: members.argument("max").cloned(),
                },
                ("one_of", Some(Value::Array(values))) if values.len() > 1 => Self::Values(values.clone()),
                ("wildcard", _) => Self::Only,
                _ => Self::None,
            },
            _ => Self::None,
        }
    }
}

/// The longest life of the grant, and shorter ones, in seconds.
pub(crate) fn durations(most: u32) -> Vec<u32> {
    const USUAL: [u32; 6] = [900, 3_600, 28_800, 86_400, 604_800, 2_592_000];
    let shorter = USUAL.into_iter().filter(|seconds| *seconds < most);
    shorter.chain([most]).collect()
}

/// What the form leaves of the offer. The result is within the offer for every form. Problems are in the operator's words.
pub(crate) fn choose(offer: &Offer, form: &Form, descriptions: &Descriptions) -> Result<Choice, ChoiceError> {
    let mut tools = Vec::new();
    for (index, (tool, constraints)) in offer.tools.iter().enumerate() {
        let field = format!("t{index}");
        if !form.0.contains_key(&field) {
            continue;
        }
        let narrowed = match constraints {
            Value::Object(members) => {
                let title = |name: &str| words::argument(tool, name, descriptions);
                let narrowed = members.iter().enumerate().map(|(index, (name, constraint))| {
                    let narrowed = narrow(name, constraint, &format!("{field}a{index}"), form, &title)?;
                    Ok((name.to_owned(), narrowed))
                });
                Value::object(narrowed.collect::<Result<Vec<_>, ChoiceError>>()?)
            }
            other => other.clone(),
        };
        let beyond = || ChoiceError::Beyond(words::title(tool, descriptions));
        let narrowed = Tools::of([(tool.to_owned(), narrowed)]).map_err(|_| beyond())?;
        let offered = offer.tools.only(tool).ok_or_else(beyond)?;
        if !offered.cover(&narrowed) {
            return Err(beyond());
        }
        tools.extend(
            narrowed
                .iter()
                .map(|(tool, constraints)| (tool.to_owned(), constraints.clone())),
        );
    }
    let number = |field: &str| form.0.get(field).and_then(|text| text.parse::<u32>().ok());
    let seconds = number("seconds").filter(|seconds| durations(offer.terms.grant_seconds).contains(seconds));
    let depth = number("depth").filter(|depth| *depth <= offer.terms.depth);
    if tools.is_empty() {
        return Err(ChoiceError::Nothing);
    }
    Ok(Choice {
        tools: Tools::of(tools).map_err(|_| ChoiceError::Nothing)?,
        seconds: seconds.ok_or(ChoiceError::Duration)?,
        depth: depth.ok_or(ChoiceError::Depth)?,
    })
}

/// The constraint on an argument, narrowed by the fields that begin with this one.
fn narrow(
    name: &str,
    constraint: &Value,
    field: &str,
    form: &Form,
    title: &dyn Fn(&str) -> String,
) -> Result<Value, ChoiceError> {
    let written = |part: &str| {
        let text = form.0.get(&format!("{field}{part}")).map(|text| text.trim());
        text.filter(|text| !text.is_empty())
    };
    let mut changed = Vec::new();
    match Narrowing::of(constraint) {
        Narrowing::Bounds { min, max } => {
            for (bound, inclusive, offered) in [("min", "min_inclusive", min), ("max", "max_inclusive", max)] {
                let Some(text) = written(bound) else { continue };
                let number = Number::parse(text).and_then(|number| Value::from_number(number).ok());
                let number = number.ok_or_else(|| ChoiceError::NoNumber(title(name)))?;
                if offered.as_ref() != Some(&number) {
                    changed.push((bound.to_owned(), number));
                    // The person's own bound is a value that they allow.
                    changed.push((inclusive.to_owned(), Value::Bool(true)));
                }
            }
        }
        Narrowing::Values(values) => {
            let kept = values.into_iter().enumerate();
            let kept = kept.filter(|(index, _)| written(&format!("v{index}")).is_some());
            let kept: Vec<_> = kept.map(|(_, value)| value).collect();
            if kept.is_empty() {
                return Err(ChoiceError::NoValue(title(name)));
            }
            changed.push(("values".to_owned(), Value::Array(kept)));
        }
        // The `*` entry stands for arguments without a name.
        Narrowing::Only if name != "*" => {
            if let Some(text) = written("only") {
                changed.push(("constraint_type".to_owned(), "exact".into()));
                changed.push(("value".to_owned(), text.into()));
            }
        }
        Narrowing::Only | Narrowing::None => {}
    }
    // Of two members with the same name, the first one counts.
    let unchanged = match constraint {
        Value::Object(members) => members.clone().into_vec(),
        _ => return Ok(constraint.clone()),
    };
    Ok(Value::object(changed.into_iter().chain(unchanged)))
}
