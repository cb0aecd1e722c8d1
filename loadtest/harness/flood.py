"""Sends many different requests, each once: more than wrk can take, as fast as one worker answers them."""

import socket
from collections.abc import Iterator

# Each has one request in flight.
CONNECTIONS = 32
LIMIT_SECONDS = 60


def send(port: int, requests: Iterator[bytes]) -> int:
    """Sends all of them, and returns how many were answered 200. While one answer is read, Envoy works on the other
    requests."""
    connections = [socket.create_connection(("127.0.0.1", port), LIMIT_SECONDS) for _ in range(CONNECTIONS)]
    waiting = [connection for connection in connections if send_next(connection, requests)]
    allowed = 0
    while waiting:
        for connection in waiting:
            allowed += answer(connection).startswith(b"HTTP/1.1 200 OK")
        waiting = [connection for connection in waiting if send_next(connection, requests)]
    for connection in connections:
        connection.close()
    return allowed


def send_next(connection: socket.socket, requests: Iterator[bytes]) -> bool:
    request = next(requests, None)
    if request is None:
        return False
    connection.sendall(request)
    return True


def answer(connection: socket.socket) -> bytes:
    """The next answer. Those that count have no body."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = connection.recv(4096)
        if not part:
            raise SystemExit(f"error: Envoy closed a connection after {received!r}")
        received += part
    return received
