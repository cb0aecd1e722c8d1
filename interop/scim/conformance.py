"""Runs scim2-tester's checks against a running service: conformance.py BASE_URL, with the token in SCIM_TOKEN.

Prints a line for each check that is not a success, and the count. Exits with 1 if a check failed, or if there were fewer
checks than expected: a tester that finds nothing to test finds no failure either.
"""

import os
import sys

from httpx2 import Client
from scim2_client.engines.httpx2 import SyncSCIMClient
from scim2_tester import Status, check_server

# Fewer checks would mean that discovery, users or PATCH were skipped.
FEWEST = 114


def main() -> int:
    headers = {"Authorization": f"Bearer {os.environ['SCIM_TOKEN']}"}
    with Client(base_url=sys.argv[1], headers=headers, trust_env=False) as http:
        results = check_server(SyncSCIMClient(http))
    good = [result for result in results if result.status == Status.SUCCESS]
    for result in results:
        if result.status != Status.SUCCESS:
            print(f"{result.status.name}: {result.title}: {result.reason}")
    print(f"{len(good)} of {len(results)} checks succeeded")
    return 0 if len(good) == len(results) >= FEWEST else 1


sys.exit(main())
