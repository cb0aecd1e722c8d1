//! Argument constraints (draft section 3.4): the allowed values, and when one constraint is at least as tight as
//! another (section 4.5).

mod budget;
mod check;
mod parse;
mod subsume;
mod words;

pub(crate) use budget::Budget;
pub use words::in_words;

use crate::number::Double;
use crate::sort::sort;
use crate::value::Value;

/// A well-formed constraint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Constraint {
    /// The argument equals this scalar.
    Exact(Value),
    /// The argument is a number within bounds.
    Range(Range),
    /// The argument is one of these; never empty.
    OneOf(Set),
    /// The argument is none of these.
    NotOneOf(Set),
    /// The argument is an array with at least these elements.
    Contains(Set),
    /// The argument is an array with at most these elements.
    Subset(Set),
    /// Any value.
    Wildcard,
    /// Every clause accepts the argument; never empty.
    All(Vec<Constraint>),
    /// At least one clause accepts the argument; never empty.
    Any(Vec<Constraint>),
}

/// The bounds of a `range`; an absent one is unbounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Range {
    min: Option<Bound>,
    max: Option<Bound>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bound {
    value: Double,
    inclusive: bool,
}

/// A set of values, compared by canonical form.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Set {
    /// Sorted and without duplicates.
    values: Vec<Value>,
    /// The number of values, including nested ones.
    weight: usize,
}

impl Set {
    fn new(mut values: Vec<Value>) -> Self {
        sort(&mut values);
        values.dedup();
        values.shrink_to_fit();
        let weight = values.iter().map(weight).fold(0, usize::saturating_add);
        Self { values, weight }
    }

    fn contains(&self, value: &Value) -> bool {
        self.values.binary_search(value).is_ok()
    }

    fn contains_all(&self, other: &Self) -> bool {
        other.values.iter().all(|value| self.contains(value))
    }
}

/// The number of values, including nested ones: an upper bound of the cost of a comparison.
fn weight(value: &Value) -> usize {
    let inside = match value {
        Value::Array(elements) => elements.iter().map(weight).fold(0, usize::saturating_add),
        Value::Object(members) => members
            .iter()
            .map(|(_, value)| weight(value))
            .fold(0, usize::saturating_add),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    };
    inside.saturating_add(1)
}

impl Constraint {
    /// Bytes on the heap, not counting the constraint itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Exact(value) => value.heap_bytes(),
            Self::OneOf(set) | Self::NotOneOf(set) | Self::Contains(set) | Self::Subset(set) => {
                set.values.iter().map(Value::bytes).fold(0, usize::saturating_add)
            }
            Self::All(clauses) | Self::Any(clauses) => clauses
                .iter()
                .map(|clause| size_of::<Self>().saturating_add(clause.heap_bytes()))
                .fold(0, usize::saturating_add),
            Self::Range(_) | Self::Wildcard => 0,
        }
    }
}

/// Why a constraint is not well-formed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("constraint of {place}: {fault}")]
pub struct ConstraintError {
    /// The tool and the argument, as `tool.argument`.
    pub place: String,
    /// What is wrong.
    pub fault: Fault,
}

/// Why a constraint is malformed (draft section 3.4).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Not an object.
    #[error("a constraint is a JSON object")]
    NotAnObject,
    /// `constraint_type` is missing or not a string.
    #[error("\"constraint_type\" must be a string")]
    Untyped,
    /// A type that is not implemented, which denies (draft section 3.4).
    #[error(
        "unknown constraint_type \"{0}\"; the types are exact, range, one_of, not_one_of, contains, subset, wildcard, all \
         and any"
    )]
    UnknownType(String),
    /// A member that the type does not define, or not in this place.
    #[error("\"{0}\" does not belong here")]
    UnknownMember(String),
    /// A member that is missing or of the wrong type.
    #[error("\"{member}\" must be {expected}")]
    Member {
        /// The member's name.
        member: &'static str,
        /// The expected value.
        expected: &'static str,
    },
    /// `min` is greater than `max`.
    #[error("\"min\" is greater than \"max\"")]
    EmptyRange,
    /// A number that JCS cannot represent.
    #[error("{0}")]
    Inadmissible(#[from] crate::value::InadmissibleNumber),
    /// `all` and `any` nest too deep.
    #[error("nested deeper than {} levels", crate::limits::CONSTRAINT_DEPTH)]
    TooDeep,
    /// The `*` entry is not a plain `wildcard`.
    #[error("the entry \"*\" must be a wildcard without \"optional\"")]
    Rest,
}
