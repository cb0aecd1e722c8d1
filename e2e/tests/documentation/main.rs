//! The pages that a newcomer goes by (docs/ and README.md): their commands run as printed, and what they say about the code
//! is so.

mod cluster;
mod links;
mod names;
mod page;
mod walk;
