//! Attenuation is sound: an argument that a child accepts, its parent accepts (draft section 4.1). Tested with as many
//! random pairs and arguments as the time allows.
//!
//! `CREDENCE_SEED=<number>` explores another part of the space; a failure names the seed, the pair and the argument.

use std::fmt;

use credence_delegation::Value;

use crate::generator::{Random, Sketch, Universe, World};
use crate::text::{TYPES, constraint, value};

#[test]
fn no_argument_passes_a_child_and_fails_its_parent() {
    let tally = explore(200_000);
    println!("{tally}");
    tally.assert_meaningful();
}

#[test]
#[ignore = "long: make soak runs it"]
fn no_argument_of_ten_million_passes_a_child_and_fails_its_parent() {
    let tally = explore(10_000_000);
    println!("{tally}");
    tally.assert_meaningful();
}

/// Tries random pairs until this many arguments were tried on pairs whose parent subsumes the child.
fn explore(cases: u64) -> Tally {
    let seed = seed();
    let universe = Universe::new();
    let mut random = Random::new(seed);
    let mut tally = Tally::new(seed);
    while tally.cases < cases {
        let world = World::draw(&universe, &mut random);
        try_pair(&world, &mut random, &mut tally);
    }
    tally
}

fn try_pair(world: &World, random: &mut Random, tally: &mut Tally) {
    let parent_sketch = Sketch::random(world, random, 3);
    let (child_sketch, must_be_within) = match random.below(100) {
        0..50 => (parent_sketch.narrowed(world, random), true),
        50..75 => (parent_sketch.narrowed(world, random).disturbed(world, random), false),
        75..90 => (parent_sketch.disturbed(world, random), false),
        _ => (Sketch::random(world, random, 2), false),
    };
    let (parent_text, child_text) = (parent_sketch.json(random), child_sketch.json(random));
    let (parent, child) = (constraint(&parent_text), constraint(&child_text));
    let seed = tally.seed;
    let pair = || format!("\nparent {parent_text}\nchild  {child_text}\nCREDENCE_SEED={seed}");

    assert!(parent.subsumes(&parent), "a constraint is not within itself{}", pair());
    let within = parent.subsumes(&child);
    assert!(
        within || !must_be_within,
        "the draft's rules allow this child (section 4.5), and it was refused{}",
        pair()
    );
    tally.pairs += 1;
    let sample = argument(&parent_sketch, &child_sketch, world, random);
    for (constraint, sketch) in [(&parent, &parent_sketch), (&child, &child_sketch)] {
        assert_eq!(
            constraint.check(&sample),
            sketch.accepts(&sample),
            "not what section 3.4 says\nargument {}{}",
            sample.canonical(),
            pair()
        );
    }
    assert_eq!(value(&sample.canonical()), sample, "another value when read back");
    if !within {
        return;
    }
    tally.within += 1;
    let kinds = &mut tally.passed_by_kinds[parent_sketch.kind()][child_sketch.kind()];
    for _ in 0..ARGUMENTS_PER_PAIR {
        let argument = argument(&parent_sketch, &child_sketch, world, random);
        let (passes_parent, passes_child) = (parent.check(&argument), child.check(&argument));
        assert!(
            passes_parent || !passes_child,
            "an argument passes the child and fails the parent\nargument {}{}",
            argument.canonical(),
            pair()
        );
        tally.cases += 1;
        tally.passed += u64::from(passes_child);
        tally.narrowed += u64::from(passes_parent && !passes_child);
        *kinds += u64::from(passes_child);
    }
}

/// An argument that shows a difference between the two, if possible.
fn argument(parent: &Sketch, child: &Sketch, world: &World, random: &mut Random) -> Value {
    match random.below(10) {
        0..6 => child.witness(world, random),
        6..8 => parent.witness(world, random),
        _ => world.argument(random),
    }
}

fn seed() -> u64 {
    match std::env::var("CREDENCE_SEED") {
        Ok(seed) => seed.parse().expect("CREDENCE_SEED is a number"),
        Err(_) => 3,
    }
}

const ARGUMENTS_PER_PAIR: usize = 16;

/// What was tried: shows that the test really tried the property.
struct Tally {
    seed: u64,
    /// Pairs generated.
    pairs: u64,
    /// Pairs whose parent subsumes the child.
    within: u64,
    /// Arguments tried on the latter.
    cases: u64,
    /// Arguments that passed the child.
    passed: u64,
    /// Arguments that passed the parent, but not the child.
    narrowed: u64,
    /// Arguments that passed the child, by the parent's and the child's type.
    passed_by_kinds: [[u64; TYPES.len()]; TYPES.len()],
}

impl Tally {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            pairs: 0,
            within: 0,
            cases: 0,
            passed: 0,
            narrowed: 0,
            passed_by_kinds: Default::default(),
        }
    }

    fn assert_meaningful(&self) {
        assert!(self.within * 3 > self.pairs, "too few pairs attenuate: {self}");
        assert!(self.within * 10 < self.pairs * 9, "too few pairs widen: {self}");
        assert!(self.passed * 3 > self.cases, "too few arguments pass the child: {self}");
        assert!(self.narrowed * 20 > self.cases, "too few children are narrower: {self}");
        for (parent, children) in TYPES.iter().zip(self.passed_by_kinds) {
            for (child, passed) in TYPES.iter().zip(children) {
                let listed = parent == child
                    || *parent == "wildcard"
                    || (["range", "one_of"].contains(parent) && *child == "exact");
                assert!(
                    !listed || passed * 2000 > self.cases,
                    "too few arguments pass a {child} under a {parent}: {self}"
                );
            }
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "attenuation: seed {}, {} pairs, of which {} attenuate; {} arguments on those, of which {} passed the child \
             and {} the parent only; passed by parent and child type:",
            self.seed, self.pairs, self.within, self.cases, self.passed, self.narrowed
        )?;
        for (parent, children) in TYPES.iter().zip(self.passed_by_kinds) {
            for (child, passed) in TYPES.iter().zip(children).filter(|(_, passed)| *passed > 0) {
                write!(f, " {parent}/{child} {passed}")?;
            }
        }
        Ok(())
    }
}
