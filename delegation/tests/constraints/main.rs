//! Argument constraints (draft sections 3.4 and 4.5): their syntax, what they accept, and which may follow which in a
//! chain.

mod checking;
mod generator;
mod pairs;
mod property;
mod reading;
mod text;
