// k6, and one thing that its WebCrypto cannot do: sign with Ed25519, which is what holders of delegations do for each proof.
//
// scripts/setup-k6.sh builds it from the versions that go.mod and go.sum pin.
package main

import (
	"go.k6.io/k6/cmd"
	"go.k6.io/k6/js/modules"
)

func main() {
	modules.Register("k6/x/credence", new(module))
	cmd.Execute()
}
