#!/bin/sh
# The first start of docker-compose.yml: creates the revocation log, the operator's token, and the keys of a demo issuer and
# its agent. Later starts change nothing. The image has no program besides credence and this shell.
set -eu
umask 022

# The last file of a first start. A volume that is lost later does not become a new log: the control plane says so.
if [ -s /run/settings/log_id ]; then
    echo "the log and the keys are there already" >&2
    exit
fi
if [ -e /var/lib/credence/log ]; then
    echo "error: there is a log, which stays as it is, but the volume settings has no log_id" >&2
    exit 1
fi
if issuer=$(credence keygen --out /run/issuer/issuer.jwk) &&
    credence keygen --out /run/issuer/agent.jwk >/run/issuer/agent.pub &&
    log_id=$(credence serve --init --fresh --init-only --data /var/lib/credence \
        --operator-token-file /run/operator/operator.token); then
    echo "$issuer" >/run/settings/issuer.pub
    echo "$log_id" >/run/settings/log_id
else
    echo "error: the first start failed; start again from nothing:  docker compose down --volumes" >&2
    exit 1
fi
