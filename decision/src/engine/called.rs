//! What a request calls under its rule. It is known without any credential, so agents compute it as the filter does.

use credence_delegation::Arguments;

use super::routing::Routed;
use crate::arguments::Arrived;
use crate::config::{Calls, Requirement};
use crate::decision::Denial;
use crate::mcp::{Call, MessageId, Source};
use crate::request::Request;

/// What a request calls.
#[derive(Debug)]
pub(crate) enum Called<'p> {
    /// The tool of its rule, with these arguments.
    Tool(&'p str, Arguments),
    /// What its MCP message says, or its headers.
    Mcp(Call),
}

impl<'p> Called<'p> {
    /// Reads the tool and its arguments. `id` becomes that of an MCP message as soon as it is known.
    ///
    /// # Errors
    /// The request is to be denied.
    pub(crate) fn read(
        requirement: &'p Requirement,
        routed: &Routed<'_, '_>,
        request: &Request<'_>,
        body: Option<&[u8]>,
        id: &mut Option<MessageId>,
    ) -> Result<Self, Denial> {
        let arguments = requirement.arguments.read(&Arrived {
            request,
            host: routed.host,
            target: &routed.target,
            captures: &routed.captures,
            body,
            awaits_body: false,
        })?;
        Ok(match &requirement.calls {
            Calls::Tool(tool) => Self::Tool(tool, arguments),
            Calls::Mcp(endpoint) if endpoint.source == Source::Headers => Self::Mcp(endpoint.call_in_headers(request)?),
            Calls::Mcp(endpoint) => Self::Mcp(endpoint.call(request, body, id)?),
        })
    }

    /// The tool that a delegation must grant; any valid delegation if there is none.
    pub(crate) fn needed(&self) -> Option<&str> {
        match self {
            Self::Tool(tool, _) => Some(tool),
            Self::Mcp(call) => call.tool.as_deref(),
        }
    }

    /// The tool that a proof names.
    pub(crate) fn proven(&self) -> &str {
        match self {
            Self::Tool(tool, _) => tool,
            Self::Mcp(call) => call.proven_tool(),
        }
    }

    pub(crate) fn into_arguments(self) -> Arguments {
        match self {
            Self::Tool(_, arguments) => arguments,
            Self::Mcp(call) => call.arguments,
        }
    }

    pub(crate) fn arguments(&self) -> &Arguments {
        match self {
            Self::Tool(_, arguments) => arguments,
            Self::Mcp(call) => &call.arguments,
        }
    }
}
