#!/bin/bash
# The health check of Envoy in docker-compose.yml: requests reach the service, and the filter follows the revocation log.
set -eu

# get PORT PATH: prints the answer. Envoy's image has no curl.
get() {
    exec 3<>"/dev/tcp/127.0.0.1/$1"
    printf 'GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' "$2" >&3
    cat <&3
}

[[ $(get 8080 /healthz) == "HTTP/1.1 200 "* ]]
# In ms, and at most 5,000 while the filter answers. Before the first revocations arrive, it is 2^64 - 1.
[[ $(get 9901 "/stats?filter=credence_lease_age_ms") =~ lease_age_ms:\ [0-9]{1,4}[^0-9] ]]
