//! The options of `prove` and `verify` that describe one use of a tool.

use std::path::PathBuf;

use credence_delegation::json::Json;
use credence_delegation::{Arguments, InadmissibleNumber, Value};

use crate::failure::Failure;
use crate::files;

/// A tool call's arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct InvocationOptions {
    /// A file with one JSON object: the arguments.
    #[arg(long = "args", value_name = "FILE")]
    arguments_file: Option<PathBuf>,

    /// A string argument (repeatable).
    #[arg(long = "arg", value_name = "NAME=TEXT")]
    texts: Vec<String>,

    /// An argument of any JSON type, such as amount=25 (repeatable).
    #[arg(long = "arg-json", value_name = "NAME=JSON")]
    values: Vec<String>,
}

impl InvocationOptions {
    /// The arguments, each given once. The inner error is for a verifier: a number that canonical JSON cannot represent
    /// (draft section 8, step 6b).
    pub(crate) fn arguments(&self) -> Result<Result<Arguments, InadmissibleNumber>, Failure> {
        let mut arguments = Arguments::new();
        if let Some(path) = &self.arguments_file {
            let place = format!("the arguments file {}", path.display());
            let text = files::read(path, "a JSON object of arguments")?;
            let json = Json::parse(&text).map_err(|error| Failure::input(format!("{place}: {error}")))?;
            let object = json.as_object().ok_or_else(|| {
                Failure::input(format!(
                    "{place}: not a JSON object; write one that maps argument names to values"
                ))
            })?;
            match Arguments::from_json(object) {
                Ok(read) => arguments = read,
                Err(error) => return Ok(Err(error)),
            }
        }
        let mut add = |name: &str, value: Value| {
            if arguments.insert(name.to_owned(), value) {
                Ok(())
            } else {
                Err(Failure::input(format!(
                    "the argument \"{name}\" is given twice; give each argument once"
                )))
            }
        };
        for option in &self.texts {
            let (name, text) = split(option, "--arg", "NAME=TEXT")?;
            add(name, Value::from(text))?;
        }
        for option in &self.values {
            let (name, text) = split(option, "--arg-json", "NAME=JSON")?;
            let json = Json::parse(text.as_bytes()).map_err(|error| {
                Failure::input(format!("--arg-json {option}: {error}; for a string use --arg {name}=…"))
            })?;
            match Value::from_json(&json) {
                Ok(value) => add(name, value)?,
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(arguments))
    }
}

fn split<'a>(option: &'a str, name: &str, form: &str) -> Result<(&'a str, &'a str), Failure> {
    option
        .split_once('=')
        .ok_or_else(|| Failure::input(format!("{name} {option}: write {name} {form}")))
}
