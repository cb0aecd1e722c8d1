//! `credence derive`

use std::io::Write;

use credence_delegation::mint;
use credence_delegation::{Chain, Limits};

use crate::chain_text::{self, ChainText, Claimed};
use crate::failure::{Failure, Outcome};
use crate::grant::GrantOptions;
use crate::keys;

/// Delegate a narrower grant: derive a token from the last token of a chain.
///
/// The holder of that token signs. Prints the whole new chain.
#[derive(Debug, clap::Args)]
pub(crate) struct Derive {
    #[arg(long, value_name = "CHAIN", help = chain_text::HELP)]
    parent: String,

    #[command(flatten)]
    grant: GrantOptions,

    /// Grant all tools of the parent, with the same constraints. Narrower is better: prefer --tool.
    #[arg(long, conflicts_with_all = ["tools", "tools_file"])]
    same_tools: bool,

    /// How many chains to derive, which differ only in their ids. Prints one on each line. At most 1000000.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "id", hide_default_value = true,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,
}

impl Derive {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let limits = Limits::default();
        let chain = ChainText::read(&self.parent)?;
        let parent = Claimed::read(chain.leaf())?;
        parent.check_not_expired(self.grant.issued_at())?;
        parent.check_not_older(self.grant.issued_at, 0)?;
        let tools = match self.grant.tools()? {
            Some(tools) => tools,
            None if self.same_tools => parent
                .tools
                .clone()
                .ok_or_else(|| Failure::operation("the parent grants nothing: nothing can be derived from it"))?,
            None => {
                return Err(Failure::input(
                    "say what to grant: --tool NAME[=CONSTRAINTS] or --tools FILE, or --same-tools for everything that \
                     the parent grants",
                ));
            }
        };
        let key = keys::signing_key(&self.grant.key)?;
        for _ in 0..self.count {
            let grant = self.grant.grant(tools.clone(), Some(&parent))?;
            let token = mint::derive(chain.leaf(), &grant, &key, &limits)?;
            let joined = format!("{}~{token}", chain.joined);
            Chain::parse_joined(&joined, &limits)
                .map_err(|denial| Failure::operation(format!("the new chain would be denied: {denial}")))?;
            writeln!(out, "{joined}")?;
        }
        Ok(Outcome::Done)
    }
}
