//! Calls of an MCP server's tools: what the delegation grants, and for how long.

use std::io::Write;

use credence_e2e::agent_proxy::AgentProxy;
use credence_e2e::{Failure, ISSUER, Request, Stack};

use crate::evidence::Expectations;
use crate::screen::{Outcome, Screen};

/// The rule, before those of envoy-config/envoy.yaml.
pub(crate) const RULES: &str = r#"rules:
                              - name: weather
                                match: {path: /mcp}
                                proof: none
                                mcp:
                                  tools: {prefix: "weather."}
                                  methods: {tools/list: {open: true}}
"#;

const FORECASTS: &str = r#"weather.get_forecast={"city":{"constraint_type":"one_of","values":["Oslo","Bergen"]},
    "days":{"constraint_type":"range","min":1,"max":3}}"#;

/// Shows a conversation with a server, which ends with a revocation.
pub(crate) fn show(stack: &Stack, screen: &mut Screen<impl Write>, expected: &mut Expectations) -> Result<(), Failure> {
    screen.heading("Dora lets an agent ask an MCP server")?;
    let chain = stack.mint("dora", &["--id", "dora-weather", "--tool", FORECASTS])?;
    let client = format!(r#"listen: "127.0.0.1:0", service: "{}""#, stack.origin());
    let proxy = AgentProxy::start(stack, &chain, &client)?;
    let reply = proxy.send(message("tools/list", "", ""))?;
    screen.case("tools/list, through the agent's proxy", &reply, &Outcome::delegated())?;
    expected.decision("dora-weather", "delegated");
    let reply = proxy.send(forecast("Oslo"))?;
    screen.case("tools/call get_forecast, Oslo", &reply, &Outcome::delegated())?;
    expected.decision("dora-weather", "delegated");
    let denied = Outcome::denied("argument_not_allowed", 403);
    let reply = proxy.send(forecast("Rome"))?;
    screen.case("get_forecast, Rome: not sent by the proxy", &reply, &denied)?;
    let reply = stack.send(&forecast("Rome").delegation(&chain))?;
    screen.case("the same without the proxy", &reply, &denied)?;
    expected.decision("dora-weather", "argument_not_allowed");
    let error = reply.text();
    let is_rpc = error.starts_with(r#"{"jsonrpc":"2.0","id":1,"error":{"code":403,"#);
    screen.check(is_rpc, format_args!("its JSON-RPC error: {error}"))?;
    stack.revoke(&["principal", "--issuer", ISSUER, "--subject", "dora"])?;
    let reply = proxy.send(forecast("Oslo"))?;
    let revoked = Outcome::denied("revoked_principal", 401);
    screen.case("Oslo again, after Dora's revocation", &reply, &revoked)?;
    expected.decision("dora-weather", "revoked_principal");
    Ok(())
}

fn forecast(city: &str) -> Request {
    let call = format!(r#""name":"get_forecast","arguments":{{"city":"{city}","days":2}},"#);
    message("tools/call", "get_forecast", &call)
}

/// A message of MCP 2026-07-28.
fn message(method: &str, name: &str, params: &str) -> Request {
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
    let request = Request::new("POST", "/mcp")
        .json(format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}{meta}}}}}"#
        ))
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method);
    match name {
        "" => request,
        name => request.header("mcp-name", name),
    }
}
