//! Values as constraints compare them: two values are equal exactly if their JCS serialisations are (draft section
//! 3.4).

use crate::canonical::{self, canonical_order};
use crate::json::{Json, Object};
use crate::number::{Double, Number};
use crate::sort::sort_by;

/// A JSON value whose numbers are all admissible. Equality is equality of canonical forms.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number.
    Number(Double),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Value>),
    /// An object.
    Object(Members),
}

/// The members of an object: distinct names with their values, in canonical order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Members(Vec<(String, Value)>);

/// The arguments of one invocation.
pub type Arguments = Members;

/// A number whose canonical form does not denote the written number (draft section 3.4).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the number {0} loses digits in canonical form (RFC 8785); write it as a string")]
pub struct InadmissibleNumber(pub String);

impl Value {
    /// The value of a JSON text.
    ///
    /// # Errors
    /// Names the first number that is not admissible.
    pub fn from_json(json: &Json<'_>) -> Result<Self, InadmissibleNumber> {
        Self::read(json, &admissible)
    }

    fn read<E>(json: &Json<'_>, double: &impl Fn(Number<'_>) -> Result<Double, E>) -> Result<Self, E> {
        Ok(match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => Self::Number(double(*number)?),
            Json::String(text) => Self::String(text.clone().into_owned()),
            Json::Array(elements) => {
                let elements = elements.iter().map(|element| Self::read(element, double));
                let mut elements = elements.collect::<Result<Vec<_>, _>>()?;
                elements.shrink_to_fit();
                Self::Array(elements)
            }
            Json::Object(object) => {
                let mut members = Members::read(object, double)?;
                members.0.shrink_to_fit();
                Self::Object(members)
            }
        })
    }

    /// The value of a number.
    ///
    /// # Errors
    /// If it is not admissible.
    pub fn from_number(number: Number<'_>) -> Result<Self, InadmissibleNumber> {
        admissible(number).map(Self::Number)
    }

    /// An object with these members. Of several members with the same name, the first one counts.
    pub fn object(members: impl IntoIterator<Item = (String, Value)>) -> Self {
        let mut members: Vec<_> = members.into_iter().enumerate().collect();
        sort_by(&mut members, |(i, (a, _)), (j, (b, _))| {
            canonical_order(a, b).then(i.cmp(j))
        });
        let mut members: Vec<_> = members.into_iter().map(|(_, member)| member).collect();
        members.dedup_by(|(a, _), (b, _)| a == b);
        members.shrink_to_fit();
        Self::Object(Members(members))
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>().saturating_add(self.heap_bytes())
    }

    /// Bytes on the heap, not counting the value itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Null | Self::Bool(_) | Self::Number(_) => 0,
            Self::String(text) => text.capacity(),
            Self::Array(elements) => elements.iter().map(Self::bytes).fold(0, usize::saturating_add),
            Self::Object(Members(members)) => members
                .iter()
                .map(|(name, value)| {
                    size_of::<String>()
                        .saturating_add(name.capacity())
                        .saturating_add(value.bytes())
                })
                .fold(0, usize::saturating_add),
        }
    }

    /// The JCS serialisation (RFC 8785).
    pub fn canonical(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(true) => out.push_str("true"),
            Self::Bool(false) => out.push_str("false"),
            Self::Number(number) => canonical::write_number(number.value(), out),
            Self::String(text) => canonical::write_string(text, out),
            Self::Array(elements) => {
                out.push('[');
                for (index, element) in elements.iter().enumerate() {
                    separate(index, out);
                    element.write(out);
                }
                out.push(']');
            }
            Self::Object(members) => members.write(out),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

pub(crate) fn admissible(number: Number<'_>) -> Result<Double, InadmissibleNumber> {
    let admissible = number.admissible();
    admissible.ok_or_else(|| InadmissibleNumber(number.text().to_owned()))
}

/// The canonical form of any JSON text (RFC 8785). `None` if a number is beyond a double's range, which has no
/// canonical form.
pub fn canonicalize(json: &Json<'_>) -> Option<String> {
    let rounded = Value::read(json, &|number| number.double().ok_or(()));
    rounded.ok().map(|value| value.canonical())
}

impl Members {
    /// No members.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a member. `false`, without an effect, if the name is taken.
    pub fn insert(&mut self, name: String, value: Value) -> bool {
        match self.0.binary_search_by(|(n, _)| canonical_order(n, &name)) {
            Ok(_) => false,
            Err(place) => {
                self.0.insert(place, (name, value));
                true
            }
        }
    }

    /// The members of a JSON object.
    ///
    /// # Errors
    /// Names the first number that is not admissible (draft section 8, step 6b).
    pub fn from_json(object: &Object<'_>) -> Result<Self, InadmissibleNumber> {
        Self::read(object, &admissible)
    }

    fn read<E>(object: &Object<'_>, double: &impl Fn(Number<'_>) -> Result<Double, E>) -> Result<Self, E> {
        // All at once: inserting one by one would take quadratic time.
        let mut members = object
            .iter()
            .map(|(name, value)| Ok((name.to_owned(), Value::read(value, double)?)))
            .collect::<Result<Vec<_>, _>>()?;
        sort_by(&mut members, |(a, _), (b, _)| canonical_order(a, b));
        Ok(Self(members))
    }

    /// The value of the member, or argument, of that name.
    pub fn argument(&self, name: &str) -> Option<&Value> {
        let place = self.0.binary_search_by(|(n, _)| canonical_order(n, name)).ok()?;
        self.0.get(place).map(|(_, value)| value)
    }

    /// The members, in canonical order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The members themselves, in canonical order.
    pub fn into_vec(self) -> Vec<(String, Value)> {
        self.0
    }

    /// The JCS serialisation (RFC 8785).
    pub fn canonical(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        out.push('{');
        for (index, (name, value)) in self.iter().enumerate() {
            separate(index, out);
            canonical::write_string(name, out);
            out.push(':');
            value.write(out);
        }
        out.push('}');
    }
}

fn separate(index: usize, out: &mut String) {
    if index > 0 {
        out.push(',');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        Value::from_json(&Json::parse(text.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn equal_when_the_canonical_forms_are() {
        for (a, b) in [
            ("1", "1.0"),
            ("1e2", "100"),
            ("-0", "0"),
            (r#"{"a":1,"b":2}"#, r#"{"b":2.0,"a":1}"#),
        ] {
            assert_eq!(value(a), value(b), "{a} {b}");
            assert_eq!(value(a).canonical(), value(b).canonical());
        }
        for (a, b) in [
            ("1", "\"1\""),
            ("null", "false"),
            ("[1,2]", "[2,1]"),
            ("\"e\u{301}\"", "\"é\""),
        ] {
            assert_ne!(value(a), value(b), "{a} {b}");
        }
    }

    #[test]
    fn names_the_number_that_loses_digits() {
        let json = Json::parse(br#"{"a":[{"b":9007199254740993}]}"#).unwrap();
        assert_eq!(
            Value::from_json(&json),
            Err(InadmissibleNumber("9007199254740993".into()))
        );
    }

    #[test]
    fn an_argument_is_given_once() {
        let mut arguments = Arguments::new();
        assert!(arguments.insert("b".into(), "1".into()));
        assert!(arguments.insert("a".into(), "2".into()));
        assert!(!arguments.insert("b".into(), "3".into()));
        assert_eq!(arguments.argument("b"), Some(&"1".into()));
        assert_eq!(arguments.canonical(), r#"{"a":"2","b":"1"}"#);
    }
}
