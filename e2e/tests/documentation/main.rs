//! The pages in docs/ and README.md: their commands run as printed, and what they say about the code is true. So is what the
//! alerts and the dashboard name.

mod cluster;
mod links;
mod names;
mod observability;
mod page;
mod walk;
