//! A chain on the command line: its tokens joined by `~`, root first, as in the `delegation` header.

use credence_delegation::json::{Json, Object};
use credence_delegation::{Denial, UnixTime, Value, inspect};

use crate::failure::Failure;
use crate::{clock, files};

/// The help of options that take a chain.
pub(crate) const HELP: &str = "The chain: its tokens joined by `~`, root first; or @FILE, or - for standard input";

/// An unverified chain of at least one token.
#[derive(Debug, Clone)]
pub(crate) struct ChainText {
    pub(crate) joined: String,
}

impl ChainText {
    /// Reads a chain from an argument.
    pub(crate) fn read(argument: &str) -> Result<Self, Failure> {
        let joined = files::read_argument(argument, "a delegation chain")?;
        if joined.is_empty() {
            return Err(Failure::input(
                "the chain is empty: give tokens joined by `~`, @FILE, or - for standard input; `credence mint` \
                 prints one",
            ));
        }
        Ok(Self { joined })
    }

    /// The tokens, root first.
    pub(crate) fn tokens(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.joined.split('~')
    }

    /// The last token.
    pub(crate) fn leaf(&self) -> &str {
        self.tokens().next_back().unwrap_or_default()
    }

    /// The first token.
    pub(crate) fn root(&self) -> &str {
        self.tokens().next().unwrap_or_default()
    }
}

/// Unverified claims of a token, as far as commands need them.
#[derive(Debug, Clone)]
pub(crate) struct Claimed {
    pub(crate) id: Option<String>,
    pub(crate) issuer: Option<String>,
    pub(crate) subject: Option<String>,
    pub(crate) issued_at: Option<UnixTime>,
    pub(crate) expires_at: Option<UnixTime>,
    pub(crate) depth: Option<u32>,
    pub(crate) tools: Option<Value>,
}

impl Claimed {
    /// Reads a token's claims.
    pub(crate) fn read(token: &str) -> Result<Self, Failure> {
        let unreadable = |problem: String| Failure::input(format!("the token cannot be read: {problem}"));
        let contents = inspect::contents(token).map_err(|denial: Denial| unreadable(denial.cause.to_string()))?;
        let json = Json::parse(&contents.claims).map_err(|error| unreadable(error.to_string()))?;
        let claims = json
            .as_object()
            .ok_or_else(|| unreadable("its claims are not a JSON object".to_owned()))?;
        let text = |name| claims.text(name).map(str::to_owned);
        let time = |name| claims.member(name).and_then(Json::as_integer).map(UnixTime);
        Ok(Self {
            id: text("jti"),
            issuer: text("iss"),
            subject: text("sub"),
            issued_at: time("iat"),
            expires_at: time("exp"),
            depth: claims
                .member("del_depth")
                .and_then(Json::as_integer)
                .and_then(|depth| u32::try_from(depth).ok()),
            tools: tools(claims).and_then(|tools| Value::from_json(tools).ok()),
        })
    }

    /// Refuses an expired token: verifiers would refuse anything made with it.
    pub(crate) fn check_not_expired(&self, now: UnixTime) -> Result<(), Failure> {
        match self.expires_at {
            Some(expires_at) if expires_at <= now => Err(Failure::operation(format!(
                "the chain's last token expired at {}; ask for a new one where you got it",
                clock::rfc3339(expires_at)
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses a time of issue that is earlier than the token's own by more than `skew` seconds: nothing made with the
    /// token can be older than the token. `option` is the value of `--issued-at`; without it, the time is the clock's.
    pub(crate) fn check_not_older(&self, option: Option<i64>, skew: u64) -> Result<(), Failure> {
        let made_at = option.map_or_else(clock::now, UnixTime);
        match self.issued_at {
            Some(issued_at) if issued_at > made_at.plus(skew) => Err(Failure::operation(format!(
                "the chain's last token was issued at {}, {}",
                clock::rfc3339(issued_at),
                match option {
                    Some(_) => format!(
                        "after the --issued-at {} ({}); give an --issued-at that is not before the token's, or \
                         leave it out",
                        made_at.0,
                        clock::rfc3339(made_at)
                    ),
                    None => format!(
                        "but by the clock of this machine it is {}; set the clock, or give the time as --issued-at",
                        clock::rfc3339(made_at)
                    ),
                }
            ))),
            _ => Ok(()),
        }
    }
}

/// The `tools` member of the claims' entry of type `attenuating_agent_token` (draft section 3.3).
pub(crate) fn tools<'a, 'j>(claims: &'a Object<'j>) -> Option<&'a Json<'j>> {
    claims
        .member("authorization_details")?
        .as_array()?
        .iter()
        .filter_map(Json::as_object)
        .find(|entry| entry.text("type") == Some("attenuating_agent_token"))?
        .member("tools")
}
