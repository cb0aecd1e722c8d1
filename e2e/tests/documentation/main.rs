//! Checks the pages in docs/ and README.md: their commands run as printed, and their statements about the code are
//! true. Also checks the names in the alerts and the dashboard.

mod cluster;
mod links;
mod names;
mod observability;
mod page;
mod walk;
