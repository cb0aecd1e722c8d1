"""Services: fetching rules, and what rules that lie cannot do."""

from __future__ import annotations

import gc
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wasmtime

import credence
from credence import module
from credence.fetch import DEFAULT_AGE, MAX_AGE, MAX_DOCUMENT, max_age

from .minting import AUDIENCE, mint
from .servers import RULES, Payments, Seen, Server, serving

CHARGE = credence.Request("POST", "/v1/accounts/a1/charges?amount=15")


def test_rules_say_what_a_request_presents(
    service: credence.Service, delegation: credence.Delegation, key: credence.Key
) -> None:
    rules = service.rules()
    assert rules.issuers == ("https://id.example.com",)
    assert not rules.reads_body(CHARGE)
    presented = rules.present(CHARGE, delegation, key)
    assert (presented.rule, presented.tool) == ("charge", "payments.charge")
    assert presented.arguments == {"account": "a1", "amount": 15}
    assert [name for name, _ in presented.headers] == ["delegation", "delegation-proof"]
    assert delegation.text not in repr(presented)
    nothing = rules.present(credence.Request("GET", "/healthz"), delegation, key)
    assert (nothing.rule, nothing.headers) == (None, ())


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (credence.Request("POST", "/v1/accounts/a1/charges?amount=101"), "argument_not_allowed"),
        (credence.Request("POST", "/v1/accounts/a1/charges"), "argument_missing"),
        (credence.Request("GET", "/nowhere"), "no_route"),
    ],
)
def test_a_denial_is_the_services_own(
    service: credence.Service,
    delegation: credence.Delegation,
    key: credence.Key,
    request_: credence.Request,
    reason: str,
) -> None:
    with pytest.raises(credence.Denied) as denied:
        service.rules().present(request_, delegation, key)
    assert denied.value.reason == reason
    assert denied.value.problem["status"] == denied.value.status


def test_a_delegation_of_another_issuer_is_denied(
    service: credence.Service, issuer: credence.Key, key: credence.Key
) -> None:
    foreign = credence.Delegation.parse(mint(issuer, key.public_jwk, iss="https://other.example"))
    with pytest.raises(credence.Denied) as denied:
        service.rules().present(CHARGE, foreign, key)
    assert denied.value.reason == "issuer_unknown"


def test_rules_come_from_a_document_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text(json.dumps(RULES))
    for service in (
        credence.Service.from_document(AUDIENCE, json.dumps(RULES)),
        credence.Service.from_file(f"{AUDIENCE}/", tmp_path / "rules.json"),
    ):
        assert service.is_fresh()
        assert service.rules().issuers == ("https://id.example.com",)
    with pytest.raises(credence.RulesError):
        credence.Service.from_document(AUDIENCE, "{}")


@pytest.mark.parametrize(
    "origin", ["payments.example", "https://", "ftp://a", "https://a/b", "https://a?b", "https://u@a", "https://a:x"]
)
def test_an_origin_has_no_path(origin: str) -> None:
    with pytest.raises(credence.InputError, match="not an origin"):
        credence.Service(origin)


def test_rules_for_another_audience_are_refused(server: Server) -> None:
    with pytest.raises(credence.RulesError, match=r"https://payments\.example"):
        credence.Service(server.origin).rules()
    with pytest.raises(credence.RulesError, match=r"https://other\.example"):
        credence.Service(server.origin, audience="https://other.example").rules()


def test_rules_cannot_ask_for_a_tool_that_is_not_granted(
    payments: Payments, service: credence.Service, delegation: credence.Delegation, key: credence.Key
) -> None:
    rule: dict[str, Any] = {**RULES["rules"][0], "tool": "payments.refund"}
    payments.rules = {**RULES, "rules": [rule]}
    with pytest.raises(credence.Denied) as denied:
        service.rules().present(CHARGE, delegation, key)
    assert (denied.value.reason, denied.value.argument) == ("tool_not_granted", "payments.refund")


def test_rules_are_fetched_again_when_they_are_old(
    payments: Payments, server: Server, service: credence.Service
) -> None:
    payments.rules_headers = {"cache-control": "no-store"}
    first = service.rules()
    assert service.rules() is first
    assert len(server.seen) == 1
    service._fresh_until = time.monotonic()
    assert service.rules() is not first
    assert len(server.seen) == 2


def test_old_rules_count_while_new_ones_cannot_be_had(
    payments: Payments, service: credence.Service, caplog: pytest.LogCaptureFixture
) -> None:
    first = service.rules()
    payments.rules = {"broken": True}
    service._fresh_until = time.monotonic()
    assert service.rules() is first
    assert "the rules are not refreshed" in caplog.text
    service._fresh_until, service._fetched_at = time.monotonic(), time.monotonic() - MAX_AGE - 1
    with pytest.raises(credence.RulesError):
        service.rules()


def test_a_failure_is_not_repeated_for_each_request(
    payments: Payments, server: Server, service: credence.Service
) -> None:
    payments.rules = {"broken": True}
    for _ in range(3):
        with pytest.raises(credence.RulesError, match="cannot be used"):
            service.rules()
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([], DEFAULT_AGE),
        (["max-age=60"], 60),
        (["public", "Max-Age=60, must-revalidate"], 60),
        (["max-age=99999999999"], MAX_AGE),
        (["max-age=-1"], DEFAULT_AGE),
        (["no-store, max-age=60"], 0),
    ],
)
def test_cache_control_says_how_long_rules_count(headers: list[str], seconds: int) -> None:
    assert max_age(headers) == seconds


def test_rules_are_not_fetched_without_tls_or_from_a_redirect(payments: Payments, server: Server) -> None:
    with pytest.raises(credence.RulesError, match="over https only"):
        credence.Service("http://payments.example").rules()

    def redirect(_: Seen) -> tuple[int, dict[str, str], bytes]:
        return 302, {"location": f"{server.origin}/.well-known/credence-agent-rules"}, b""

    with serving(redirect) as other, pytest.raises(credence.RulesError, match="redirects are not followed"):
        credence.Service(other.origin, audience=AUDIENCE).rules()
    assert server.seen == []


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (200, b" " * (MAX_DOCUMENT + 1), "larger than 8388608 bytes"),
        (403, b"", "publishes no rules"),
        (404, b"", "publishes no rules"),
        (500, b"", "status 500"),
        (204, b"", "status 204"),
        (200, b"no json", "cannot be used"),
    ],
)
def test_an_answer_without_rules_is_an_error(status: int, body: bytes, message: str) -> None:
    with serving(lambda _: (status, {}, body)) as server, pytest.raises(credence.RulesError, match=message) as raised:
        credence.Service(server.origin, audience=AUDIENCE).rules()
    assert server.origin in str(raised.value)


@pytest.fixture
def slow_server() -> Iterator[str]:
    """Sends a header byte by byte, for longer than anyone should wait."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stop = threading.Event()

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nx: ")
                while not stop.wait(0.05):
                    connection.sendall(b"x")

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        stop.set()
        thread.join()


def test_a_slow_answer_is_given_up(slow_server: str) -> None:
    started, threads = time.monotonic(), threading.active_count()
    with pytest.raises(credence.RulesError, match=r"within 0\.3 seconds"):
        credence.Service(slow_server, audience=AUDIENCE, timeout=0.3).rules()
    assert time.monotonic() - started < 5
    while threading.active_count() > threads:
        assert time.monotonic() - started < 5


def test_an_answer_without_an_end_is_not_cut_to_rules() -> None:
    document = json.dumps(RULES).encode()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + document)
                connection.recv(1 << 16)
                connection.recv(1)

        threading.Thread(target=answer, daemon=True).start()
        origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(credence.RulesError, match=r"within 0\.3 seconds"):
            credence.Service(origin, audience=AUDIENCE, timeout=0.3).rules()


def test_certificates_are_checked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(5)
        port = listener.getsockname()[1]
        threading.Thread(target=lambda: listener.accept()[0].close(), daemon=True).start()
        with pytest.raises(credence.RulesError, match="cannot be fetched"):
            credence.Service(f"https://127.0.0.1:{port}", tls=ssl.create_default_context()).rules()


def test_services_outlive_an_instance_that_stopped(
    service: credence.Service, delegation: credence.Delegation, key: credence.Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = service.rules()
    # Fault injection: the module does not trap by itself.
    instance = module.shared._instance
    assert instance is not None
    monkeypatch.setattr(instance, "_memory", module.shared._running)
    monkeypatch.setattr(type(instance), "answer", _trap)
    with pytest.raises(credence.ModuleError, match="the next call starts a new one"):
        rules.present(CHARGE, delegation, key)
    monkeypatch.undo()
    # Another service gets the number that this one had.
    credence.Service.from_document(AUDIENCE, json.dumps({**RULES, "rules": RULES["rules"][2:]}))
    assert rules.present(CHARGE, delegation, key).rule == "charge"


def _trap(*_: object) -> bytes:
    raise wasmtime.Trap("unreachable")


def test_services_that_are_no_longer_used_are_closed(delegation: credence.Delegation, key: credence.Key) -> None:
    document = json.dumps(RULES)
    for _ in range(1_100):  # The module has at most 1,024 open.
        rules = credence.Service.from_document(AUDIENCE, document).rules()
        del rules
        gc.collect(0)
    kept = [credence.Service.from_document(AUDIENCE, document) for _ in range(10)]
    assert all(service.rules().present(CHARGE, delegation, key).rule for service in kept)


def test_threads_share_the_module(issuer: credence.Key, service: credence.Service) -> None:
    errors: list[Exception] = []

    def work() -> None:
        try:
            key = credence.Key.generate()
            delegation = credence.Delegation.parse(mint(issuer, key.public_jwk))
            for _ in range(50):
                presented = service.rules().present(CHARGE, delegation, key)
                assert dict(presented.headers)["delegation"] == delegation.text
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_its_own_module(
    service: credence.Service, delegation: credence.Delegation, key: credence.Key
) -> None:
    rules = service.rules()
    with module.shared._lock:  # As if another thread were in a call.
        child = os.fork()
        if child == 0:
            os._exit(0 if rules.present(CHARGE, delegation, key).rule == "charge" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_nonce_that_another_request_brought_is_worth_a_second_attempt() -> None:
    service = credence.Service(AUDIENCE)
    asked = {"delegation-nonce": "n"}
    assert service.remember_nonce(401, asked, used=None)
    assert service.remember_nonce(401, asked, used=None)  # A request that was sent at the same time.
    assert not service.remember_nonce(401, asked, used="n")
    assert not service.remember_nonce(200, {"dpop-nonce": "next"}, used="n")
    assert service.nonce == "next"
