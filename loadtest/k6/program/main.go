// k6, with one addition that its WebCrypto lacks: signing with Ed25519, as holders of delegations do for each proof.
//
// scripts/setup-k6.sh builds it from the versions in go.mod and go.sum.
package main

import (
	"go.k6.io/k6/cmd"
	"go.k6.io/k6/js/modules"
)

func main() {
	modules.Register("k6/x/credence", new(module))
	cmd.Execute()
}
