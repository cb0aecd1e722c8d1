package main

import (
	"crypto/ed25519"
	"fmt"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
)

// golangJWT signs and verifies with golang-jwt. Keys are read with go-jose: golang-jwt does not read JWKs.
type golangJWT struct{}

func init() {
	// Lets the parser find the method by a token's "alg".
	jwt.RegisterSigningMethod("Ed25519", func() jwt.SigningMethod { return ed25519Method{} })
}

func (golangJWT) sign(claims map[string]any, key jose.JSONWebKey, algorithm, typ string) (string, error) {
	method := jwt.GetSigningMethod(algorithm)
	if method == nil {
		return "", fmt.Errorf("golang-jwt has no %s", algorithm)
	}
	token := jwt.NewWithClaims(method, jwt.MapClaims(claims))
	token.Header["typ"] = typ
	return token.SignedString(key.Key)
}

func (golangJWT) verify(compact string, key jose.JSONWebKey, algorithm, typ string) (map[string]any, error) {
	claims := jwt.MapClaims{}
	keyOf := func(*jwt.Token) (any, error) { return key.Key, nil }
	token, err := jwt.ParseWithClaims(compact, claims, keyOf, jwt.WithValidMethods([]string{algorithm}))
	if err != nil {
		return nil, err
	}
	if token.Header["typ"] != typ {
		return nil, fmt.Errorf("typ is %v, not %s", token.Header["typ"], typ)
	}
	return claims, nil
}

func (golangJWT) mint(issuer, holder jose.JSONWebKey) (string, error) {
	key, ok := issuer.Key.(ed25519.PrivateKey)
	if !ok {
		return "", fmt.Errorf("an Ed25519 key is needed, not a %T", issuer.Key)
	}
	jwk, err := holder.MarshalJSON()
	if err != nil {
		return "", err
	}
	return mintWithGolangJWT(key, jwk)
}
