//! Prints distinct root tokens, one a line, as fast as one core signs them. The `credence` command needs a process for
//! each token, which is too slow for measurements with many tokens.

use std::env;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use credence_e2e::forge::{Claims, Forger};
use credence_e2e::{Failure, ISSUER};

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [issuer, holder, count] = &arguments[..] else {
        return Err(Failure::new("usage: mint-many ISSUER.jwk HOLDER.jwk COUNT"));
    };
    let (issuer, holder) = (
        Forger::from_file(Path::new(issuer))?,
        Forger::from_file(Path::new(holder))?,
    );
    let count: u64 = count.parse().map_err(Failure::of("reading COUNT"))?;
    let mut claims = Claims::root(ISSUER, "alice", &holder, TOOLS)?;
    let mut out = BufWriter::new(io::stdout().lock());
    for number in 0..count {
        // As long as a UUID.
        claims.jti = format!("{number:036}");
        writeln!(out, "{}", issuer.token(&claims)?).map_err(Failure::of("printing a token"))?;
    }
    out.flush().map_err(Failure::of("printing the last tokens"))
}

const TOOLS: &str = r#"{"catalog.read":{"item":{"constraint_type":"wildcard"}}}"#;
