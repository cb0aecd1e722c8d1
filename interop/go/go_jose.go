package main

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// goJose signs and verifies with go-jose.
type goJose struct{}

func (goJose) sign(claims map[string]any, key jose.JSONWebKey, algorithm, typ string) (string, error) {
	signing := jose.SigningKey{Algorithm: jose.SignatureAlgorithm(algorithm), Key: key}
	if private, ok := key.Key.(ed25519.PrivateKey); ok && algorithm == ed25519Name {
		signing.Key = ed25519Signer{private}
	}
	signer, err := jose.NewSigner(signing, new(jose.SignerOptions).WithType(jose.ContentType(typ)))
	if err != nil {
		return "", err
	}
	return jwt.Signed(signer).Claims(claims).Serialize()
}

func (goJose) verify(compact string, key jose.JSONWebKey, algorithm, typ string) (map[string]any, error) {
	token, err := jwt.ParseSigned(compact, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(algorithm)})
	if err != nil {
		return nil, err
	}
	var verifier any = key
	if public, ok := key.Key.(ed25519.PublicKey); ok && algorithm == ed25519Name {
		verifier = ed25519Verifier(public)
	}
	var claims map[string]any
	var times jwt.Claims
	if err := token.Claims(verifier, &claims, &times); err != nil {
		return nil, err
	}
	if found := token.Headers[0].ExtraHeaders[jose.HeaderType]; found != typ {
		return nil, fmt.Errorf("typ is %v, not %s", found, typ)
	}
	return claims, times.Validate(jwt.Expected{Time: time.Now()})
}

func (goJose) mint(issuer, holder jose.JSONWebKey) (string, error) {
	return mintWithGoJose(issuer, holder)
}

// go-jose has Ed25519 only under its older name, EdDSA. For the current name (RFC 9864) it accepts our own signer and
// verifier, as it would a hardware module's.
const ed25519Name = "Ed25519"

type ed25519Signer struct{ key ed25519.PrivateKey }

func (s ed25519Signer) Public() *jose.JSONWebKey { return &jose.JSONWebKey{Key: s.key.Public()} }

func (ed25519Signer) Algs() []jose.SignatureAlgorithm { return []jose.SignatureAlgorithm{ed25519Name} }

func (s ed25519Signer) SignPayload(payload []byte, _ jose.SignatureAlgorithm) ([]byte, error) {
	return ed25519.Sign(s.key, payload), nil
}

type ed25519Verifier ed25519.PublicKey

func (v ed25519Verifier) VerifyPayload(payload, signature []byte, algorithm jose.SignatureAlgorithm) error {
	if algorithm != ed25519Name || !ed25519.Verify(ed25519.PublicKey(v), payload, signature) {
		return errors.New("the signature does not verify with this key")
	}
	return nil
}
