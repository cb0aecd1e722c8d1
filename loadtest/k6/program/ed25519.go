package main

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"

	"go.k6.io/k6/js/common"
	"go.k6.io/k6/js/modules"
)

// module is what a script imports with `import { ed25519 } from "k6/x/credence"`.
type module struct{}

// instance is the module of one virtual user.
type instance struct{ vu modules.VU }

// Signer is a private key. Scripts call its methods.
type Signer struct{ key ed25519.PrivateKey }

// NewModuleInstance is called once by each virtual user.
func (*module) NewModuleInstance(vu modules.VU) modules.Instance {
	return &instance{vu}
}

// Exports lists what scripts can import.
func (own *instance) Exports() modules.Exports {
	return modules.Exports{Named: map[string]any{"ed25519": own.ed25519}}
}

// ed25519 reads the member "d" of a private JWK (RFC 8037, section 2); throws if it is not a key.
func (own *instance) ed25519(d string) *Signer {
	seed, err := base64.RawURLEncoding.DecodeString(d)
	if err == nil && len(seed) != ed25519.SeedSize {
		err = fmt.Errorf("%d bytes, and a key has %d", len(seed), ed25519.SeedSize)
	}
	if err != nil {
		common.Throw(own.vu.Runtime(), fmt.Errorf("the private key cannot be read: %w", err))
	}
	return &Signer{ed25519.NewKeyFromSeed(seed)}
}

// Sign returns the signature over a text, in base64url: the last part of a JWS.
func (signer *Signer) Sign(text string) string {
	return base64.RawURLEncoding.EncodeToString(ed25519.Sign(signer.key, []byte(text)))
}
