//! Random pairs of related constraints, and related arguments.
//!
//! All values of one pair come from one small [`World`], so that they meet: two constraints over unrelated values would
//! show nothing about attenuation.

use credence_delegation::{Double, Value};

use crate::text::{self, value};

/// A constraint in the generator's form; [`Sketch::json`] writes it as JSON.
#[derive(Debug, Clone)]
pub(crate) enum Sketch {
    Exact(Value),
    Range(Option<Bound>, Option<Bound>),
    OneOf(Vec<Value>),
    NotOneOf(Vec<Value>),
    Contains(Vec<Value>),
    Subset(Vec<Value>),
    Wildcard,
    All(Vec<Sketch>),
    Any(Vec<Sketch>),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    value: f64,
    inclusive: bool,
}

// === How sketches are made ===

impl Sketch {
    /// Any constraint, with at most this many levels of `all` and `any`.
    pub(crate) fn random(world: &World, random: &mut Random, levels: usize) -> Self {
        match random.below(if levels == 0 { 7 } else { 9 }) {
            0 => Self::Exact(world.scalar(random)),
            1 => {
                let bound = |random: &mut Random| {
                    random.chance(75).then(|| Bound {
                        value: world.number(random),
                        inclusive: random.chance(60),
                    })
                };
                let (min, max) = (bound(random), bound(random));
                match (min, max) {
                    (Some(a), Some(b)) if a.value > b.value => Self::Range(max, min),
                    _ => Self::Range(min, max),
                }
            }
            2 => Self::OneOf(world.values(random, 1, 4)),
            3 => Self::NotOneOf(world.values(random, 0, 3)),
            4 => Self::Contains(world.values(random, 0, 3)),
            5 => Self::Subset(world.values(random, 0, 4)),
            6 => Self::Wildcard,
            kind => {
                let clauses = (0..=random.below(3))
                    .map(|_| Self::random(world, random, levels - 1))
                    .collect();
                if kind == 7 {
                    Self::All(clauses)
                } else {
                    Self::Any(clauses)
                }
            }
        }
    }

    /// A child that the draft's table allows for this parent (section 4.5).
    pub(crate) fn narrowed(&self, world: &World, random: &mut Random) -> Self {
        match self {
            Self::Exact(value) => Self::Exact(value.clone()),
            Self::Range(min, max) => {
                let number = world.number(random);
                if random.chance(35) && accepts_number(*min, *max, number) {
                    return Self::Exact(world.number_value(number));
                }
                let min = tighter(*min, world, random, |value, bound| value > bound);
                let max = tighter(*max, world, random, |value, bound| value < bound);
                match (min, max) {
                    (Some(a), Some(b)) if a.value > b.value => self.clone(),
                    _ => Self::Range(min, max),
                }
            }
            Self::OneOf(values) => {
                let member = random.pick(values);
                if random.chance(35) && is_scalar(member) {
                    return Self::Exact(member.clone());
                }
                let mut fewer = some_of(values, random);
                if fewer.is_empty() {
                    fewer.push(member.clone());
                }
                Self::OneOf(fewer)
            }
            Self::NotOneOf(values) => Self::NotOneOf(and_more(values, world, random)),
            Self::Contains(values) => Self::Contains(and_more(values, world, random)),
            Self::Subset(values) => Self::Subset(some_of(values, random)),
            Self::Wildcard => Self::random(world, random, 2),
            Self::All(clauses) => {
                let mut narrower: Vec<_> = clauses.iter().map(|clause| clause.narrowed(world, random)).collect();
                if random.chance(40) {
                    narrower.push(Self::random(world, random, 1));
                }
                random.shuffle(&mut narrower);
                Self::All(narrower)
            }
            Self::Any(clauses) => Self::Any(
                (0..=random.below(3))
                    .map(|_| random.pick(clauses).clone().narrowed(world, random))
                    .collect(),
            ),
        }
    }

    /// The same with one small change, which may narrow it, widen it, or neither.
    pub(crate) fn disturbed(&self, world: &World, random: &mut Random) -> Self {
        match self {
            Self::Exact(_) => Self::Exact(world.scalar(random)),
            Self::Range(min, max) => {
                let (mut min, mut max) = (*min, *max);
                disturb_bound(if random.chance(50) { &mut min } else { &mut max }, world, random);
                match (min, max) {
                    (Some(a), Some(b)) if a.value > b.value => Self::Range(max, min),
                    _ => Self::Range(min, max),
                }
            }
            Self::OneOf(values) => {
                let mut changed = disturbed_set(values, world, random);
                if changed.is_empty() {
                    changed.push(world.value(random));
                }
                Self::OneOf(changed)
            }
            Self::NotOneOf(values) => Self::NotOneOf(disturbed_set(values, world, random)),
            Self::Contains(values) => Self::Contains(disturbed_set(values, world, random)),
            Self::Subset(values) => Self::Subset(disturbed_set(values, world, random)),
            Self::Wildcard => Self::random(world, random, 1),
            Self::All(clauses) => Self::All(disturbed_clauses(clauses, world, random)),
            Self::Any(clauses) => Self::Any(disturbed_clauses(clauses, world, random)),
        }
    }
}

fn tighter(
    bound: Option<Bound>,
    world: &World,
    random: &mut Random,
    inside: impl Fn(f64, f64) -> bool,
) -> Option<Bound> {
    let value = world.number(random);
    let inclusive = random.chance(60);
    match bound {
        None => random.chance(60).then_some(Bound { value, inclusive }),
        Some(bound) if inside(value, bound.value) => Some(Bound { value, inclusive }),
        Some(bound) => Some(Bound {
            value: bound.value,
            inclusive: bound.inclusive && inclusive,
        }),
    }
}

fn disturb_bound(bound: &mut Option<Bound>, world: &World, random: &mut Random) {
    *bound = match *bound {
        None => Some(Bound {
            value: world.number(random),
            inclusive: random.chance(50),
        }),
        Some(Bound { value, inclusive }) => match random.below(4) {
            0 => None,
            1 => Some(Bound {
                value,
                inclusive: !inclusive,
            }),
            2 => Some(Bound {
                value: neighbour(value, random),
                inclusive,
            }),
            _ => Some(Bound {
                value: world.number(random),
                inclusive,
            }),
        },
    };
}

fn disturbed_set(values: &[Value], world: &World, random: &mut Random) -> Vec<Value> {
    let mut values = values.to_vec();
    if values.is_empty() || random.chance(50) {
        values.push(world.value(random));
    }
    if values.len() > 1 && random.chance(50) {
        values.swap_remove(random.below(values.len()));
    }
    values
}

fn disturbed_clauses(clauses: &[Sketch], world: &World, random: &mut Random) -> Vec<Sketch> {
    let mut clauses = clauses.to_vec();
    match random.below(4) {
        0 => clauses.push(Sketch::random(world, random, 1)),
        1 if clauses.len() > 1 => {
            clauses.swap_remove(random.below(clauses.len()));
        }
        _ => {
            let place = random.below(clauses.len());
            clauses[place] = clauses[place].disturbed(world, random);
        }
    }
    clauses
}

/// A random selection of values, in which a value may occur several times.
fn some_of(values: &[Value], random: &mut Random) -> Vec<Value> {
    if values.is_empty() {
        return Vec::new();
    }
    let count = random.below(values.len() + 2);
    (0..count).map(|_| random.pick(values).clone()).collect()
}

fn and_more(values: &[Value], world: &World, random: &mut Random) -> Vec<Value> {
    let mut more = world.values(random, 0, 2);
    more.extend_from_slice(values);
    random.shuffle(&mut more);
    more
}

// === What sketches mean ===

impl Sketch {
    /// Whether the constraint accepts the value. This is a direct implementation of the draft's table (section 3.4)
    /// over canonical texts (RFC 8785), for comparison with the real one.
    pub(crate) fn accepts(&self, argument: &Value) -> bool {
        let same = |a: &Value, b: &Value| a.canonical() == b.canonical();
        let member = |value: &Value, values: &[Value]| values.iter().any(|other| same(value, other));
        match (self, argument) {
            (Self::Exact(value), _) => same(value, argument),
            (Self::Range(min, max), Value::Number(number)) => accepts_number(*min, *max, number.value()),
            (Self::OneOf(values), _) => member(argument, values),
            (Self::NotOneOf(values), _) => !member(argument, values),
            (Self::Contains(required), Value::Array(elements)) => required.iter().all(|value| member(value, elements)),
            (Self::Subset(allowed), Value::Array(elements)) => elements.iter().all(|element| member(element, allowed)),
            (Self::Range(..) | Self::Contains(_) | Self::Subset(_), _) => false,
            (Self::Wildcard, _) => true,
            (Self::All(clauses), _) => clauses.iter().all(|clause| clause.accepts(argument)),
            (Self::Any(clauses), _) => clauses.iter().any(|clause| clause.accepts(argument)),
        }
    }

    /// An argument that is likely to be accepted, or to be just refused.
    pub(crate) fn witness(&self, world: &World, random: &mut Random) -> Value {
        match self {
            Self::Exact(value) => value.clone(),
            Self::Range(min, max) => {
                let near = |bound: &Option<Bound>, random: &mut Random| {
                    let value = bound.map_or_else(|| world.number(random), |bound| bound.value);
                    if random.chance(30) {
                        neighbour(value, random)
                    } else {
                        value
                    }
                };
                let (low, high) = (near(min, random), near(max, random));
                let number = match random.below(4) {
                    0 => low,
                    1 => high,
                    _ => low / 2.0 + high / 2.0,
                };
                world.number_value(number)
            }
            Self::OneOf(values) => random.pick(values).clone(),
            Self::NotOneOf(_) | Self::Wildcard => world.argument(random),
            Self::Contains(values) => Value::Array(and_more(values, world, random)),
            Self::Subset(values) => Value::Array(some_of(values, random)),
            Self::All(clauses) | Self::Any(clauses) => random.pick(clauses).witness(world, random),
        }
    }

    /// The index of its type in [`text::TYPES`].
    pub(crate) fn kind(&self) -> usize {
        match self {
            Self::Exact(_) => 0,
            Self::Range(..) => 1,
            Self::OneOf(_) => 2,
            Self::NotOneOf(_) => 3,
            Self::Contains(_) => 4,
            Self::Subset(_) => 5,
            Self::Wildcard => 6,
            Self::All(_) => 7,
            Self::Any(_) => 8,
        }
    }

    /// The constraint's text, with its numbers in some notation.
    pub(crate) fn json(&self, random: &mut Random) -> String {
        match self {
            Self::Exact(value) => text::exact(&written(value, random)),
            Self::Range(min, max) => {
                let bound = |bound: &Option<Bound>, random: &mut Random| {
                    bound
                        .and_then(|bound| Double::new(bound.value))
                        .map_or_else(String::new, |double| written(&Value::Number(double), random))
                };
                text::range(&format!(
                    "{}{},{}{}",
                    if min.is_some_and(|min| !min.inclusive) {
                        '('
                    } else {
                        '['
                    },
                    bound(min, random),
                    bound(max, random),
                    if max.is_some_and(|max| !max.inclusive) {
                        ')'
                    } else {
                        ']'
                    },
                ))
            }
            Self::OneOf(values) => text::one_of(&written_all(values, random)),
            Self::NotOneOf(values) => text::not_one_of(&written_all(values, random)),
            Self::Contains(values) => text::contains(&written_all(values, random)),
            Self::Subset(values) => text::subset(&written_all(values, random)),
            Self::Wildcard => text::wildcard(),
            Self::All(clauses) => text::all(&clauses.iter().map(|clause| clause.json(random)).collect::<Vec<_>>()),
            Self::Any(clauses) => text::any(&clauses.iter().map(|clause| clause.json(random)).collect::<Vec<_>>()),
        }
    }
}

fn accepts_number(min: Option<Bound>, max: Option<Bound>, number: f64) -> bool {
    let above = match min {
        None => true,
        Some(min) if min.inclusive => number >= min.value,
        Some(min) => number > min.value,
    };
    let below = match max {
        None => true,
        Some(max) if max.inclusive => number <= max.value,
        Some(max) => number < max.value,
    };
    above && below
}

fn is_scalar(value: &Value) -> bool {
    !matches!(value, Value::Array(_) | Value::Object(_))
}

/// Some text of the value: the canonical form is one of them.
fn written(value: &Value, random: &mut Random) -> String {
    match value {
        Value::Number(number) if number.value() == 0.0 => (*random.pick(&["0", "-0", "0.0", "0e7"])).to_owned(),
        Value::Number(number) if number.value().abs() < 1e16 && number.value().fract() == 0.0 => {
            format!("{}{}", number.value(), random.pick(&["", "", ".0", "e0", "E+00"]))
        }
        Value::Array(elements) => written_all(elements, random),
        Value::Object(members) => {
            let mut members: Vec<_> = members
                .iter()
                .map(|(name, value)| format!("{}:{}", Value::from(name).canonical(), written(value, random)))
                .collect();
            random.shuffle(&mut members);
            format!("{{{}}}", members.join(","))
        }
        _ => value.canonical(),
    }
}

fn written_all(values: &[Value], random: &mut Random) -> String {
    let texts: Vec<_> = values.iter().map(|value| written(value, random)).collect();
    format!("[{}]", texts.join(","))
}

// === What sketches are made of ===

/// The values of all worlds.
pub(crate) struct Universe {
    numbers: Vec<f64>,
    values: Vec<Value>,
}

impl Universe {
    pub(crate) fn new() -> Self {
        Self {
            numbers: NUMBERS.to_vec(),
            values: VALUES.iter().map(|text| value(text)).collect(),
        }
    }
}

/// The few values of one pair of constraints and its arguments.
pub(crate) struct World {
    numbers: Vec<f64>,
    values: Vec<Value>,
}

impl World {
    pub(crate) fn draw(universe: &Universe, random: &mut Random) -> Self {
        let numbers: Vec<f64> = (0..3).map(|_| *random.pick(&universe.numbers)).collect();
        let mut values: Vec<Value> = (0..3).map(|_| random.pick(&universe.values).clone()).collect();
        values.extend(numbers.iter().copied().filter_map(Double::new).map(Value::Number));
        Self { numbers, values }
    }

    /// A number of this world, or a neighbour of one.
    fn number(&self, random: &mut Random) -> f64 {
        let number = *random.pick(&self.numbers);
        if random.chance(15) {
            neighbour(number, random)
        } else {
            number
        }
    }

    /// The number as a value; a number of this world if it is not finite.
    fn number_value(&self, number: f64) -> Value {
        Double::new(number)
            .or_else(|| self.numbers.first().and_then(|number| Double::new(*number)))
            .map_or(Value::Null, Value::Number)
    }

    fn value(&self, random: &mut Random) -> Value {
        random.pick(&self.values).clone()
    }

    fn values(&self, random: &mut Random, at_least: usize, at_most: usize) -> Vec<Value> {
        let count = at_least + random.below(at_most - at_least + 1);
        (0..count).map(|_| self.value(random)).collect()
    }

    fn scalar(&self, random: &mut Random) -> Value {
        let value = random.pick(&self.values);
        if is_scalar(value) {
            value.clone()
        } else {
            self.number_value(self.number(random))
        }
    }

    /// A value, a number near one, or an array of values.
    pub(crate) fn argument(&self, random: &mut Random) -> Value {
        match random.below(4) {
            0 => self.number_value(self.number(random)),
            1 => Value::Array(self.values(random, 0, 4)),
            _ => self.value(random),
        }
    }
}

/// The next number up or down, if there is a finite one.
fn neighbour(number: f64, random: &mut Random) -> f64 {
    let next = if random.chance(50) {
        number.next_up()
    } else {
        number.next_down()
    };
    if next.is_finite() { next } else { number }
}

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): the same sequence for
/// the same seed on every machine, at a few instructions a number.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `end` - 1. The bias is far below what these tests can notice.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 32).expect("32 bits") % end
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// Difficult doubles, and simple ones.
const NUMBERS: [f64; 20] = [
    0.0,
    1.0,
    2.0,
    3.0,
    5.0,
    10.0,
    100.0,
    -1.0,
    -5.0,
    0.1,
    0.5,
    1.5,
    1e21,
    1e-7,
    9_007_199_254_740_991.0,
    9_007_199_254_740_992.0,
    -9_007_199_254_740_992.0,
    f64::MAX,
    f64::MIN,
    5e-324,
];

/// Similar values that are not equal.
const VALUES: [&str; 28] = [
    "null",
    "true",
    "false",
    r#""""#,
    r#""a""#,
    r#""A""#,
    r#""b""#,
    r#""1""#,
    r#""null""#,
    r#""é""#,
    r#""e\u0301""#,
    r#""\ud83d\ude00""#,
    r#""\ufb33""#,
    r#""\u0000""#,
    "[]",
    "[[]]",
    "[1]",
    "[1,1]",
    "[1,2]",
    "[2,1]",
    r#"["a"]"#,
    r#"["a",["b"]]"#,
    "[null]",
    "{}",
    r#"{"a":1}"#,
    r#"{"a":1,"b":2}"#,
    r#"{"b":[1]}"#,
    r#"{"\ud83d\ude00":1,"\ufb33":2}"#,
];
