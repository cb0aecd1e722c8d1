"""Executes requests with a library: one JSON object a line on standard input. ../README.md has the requests."""

import importlib
import json
import sys

import tokens


def generate_key(library, algorithm):
    return library.generate_key(algorithm)


def mint(library, algorithm, key, issuer, holder, tools):
    return library.sign(tokens.root(issuer, holder, tools), key, algorithm, tokens.TOKEN)


def derive(library, algorithm, key, parent, holder, tools):
    return library.sign(tokens.derived(parent, key, holder, tools), key, algorithm, tokens.TOKEN)


def prove(library, algorithm, key, leaf, tool, arguments, audience):
    return library.sign(tokens.proof(leaf, tool, arguments, audience), key, algorithm, tokens.PROOF)


def tamper(_library, token):
    return tokens.with_more_time(token)


def verify(library, algorithm, key, typ, token):
    return library.verify(token, tokens.public(key), algorithm, typ)


REQUESTS = {function.__name__: function for function in (generate_key, mint, derive, prove, tamper, verify)}


def main():
    library = importlib.import_module(f"with_{sys.argv[1]}")
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": REQUESTS[request.pop("do")](library, **request)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
