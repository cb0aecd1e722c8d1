#!/bin/sh
# Starts Envoy with /etc/envoy/envoy.yaml (envoy-config/envoy.yaml), in which it sets:
# - the address of the port that docker-compose.yml publishes: a published port has to listen beyond the container's loopback
#   interface
# - the log_id of the control plane
# - the demo issuer's public key, in place of the example key; other keys stay
set -eu
sed -E \
    -e 's/address: 127\.0\.0\.1, port_value: 8080\}/address: 0.0.0.0, port_value: 8080}/' \
    -e "s/log_id: [0-9a-f]+/$(cat /run/settings/log_id)/" \
    -e "s/jwk: \{.*yYBm-rE6VHWP5Wqf-hF5cS2bUSil1mkmgEUrOfsixqc\}/jwk: $(cat /run/settings/issuer.pub)/" \
    /etc/envoy/envoy.yaml >/tmp/envoy.yaml
exec envoy -c /tmp/envoy.yaml
