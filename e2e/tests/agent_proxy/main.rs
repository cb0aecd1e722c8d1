//! `credence proxy` between agents and a service behind the real filter.

mod attacks;
mod hostile;
mod keys;
mod lifecycle;
mod requests;

use std::sync::OnceLock;

use credence_e2e::grants::{CHARGE, READ};
use credence_e2e::{Request, Stack, StackOptions};

/// One service for all tests that change nothing about it.
fn stack() -> &'static Stack {
    static STACK: OnceLock<Stack> = OnceLock::new();
    STACK.get_or_init(|| {
        let stack = Stack::start(&StackOptions::quick().replacing("rules:\n", RULES)).unwrap();
        stack.wait_until_proofs_count().unwrap();
        stack
    })
}

/// A delegation of everything that the tests do.
fn delegation(stack: &Stack) -> String {
    stack
        .mint(
            "ada",
            &[
                "--tool",
                CHARGE,
                "--tool",
                READ,
                "--tool",
                "notes.write",
                "--max-depth",
                "1",
            ],
        )
        .unwrap()
}

fn charge(amount: &str) -> Request {
    Request::post(&format!("/v1/accounts/acme/charges?amount={amount}"))
}

/// A reverse proxy for the service of this stack.
fn reverse(stack: &Stack) -> String {
    format!(r#"listen: "127.0.0.1:0", service: "{}""#, stack.origin())
}

/// Rules for a body that is read, and for a proof with a nonce.
const RULES: &str = r#"rules:
                              - name: note
                                match: {methods: [POST], path: /v1/notes}
                                tool: notes.write
                                args: {text: {body: /text}}
                              - name: fresh
                                match: {methods: [POST], path: "/v1/fresh/{account}"}
                                tool: payments.charge
                                args: {account: {path: account}, amount: {query: amount, type: number}}
                                nonce: true
                              - name: upload
                                match: {methods: [PUT], path: "/v1/files/{item}"}
                                tool: catalog.read
                                args: {item: {path: item}}
                                ignore_body: true
"#;
