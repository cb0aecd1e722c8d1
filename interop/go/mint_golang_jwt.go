package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

type ed25519Method struct{ *jwt.SigningMethodEd25519 } // golang-jwt itself writes the older name, EdDSA

func (ed25519Method) Alg() string { return "Ed25519" }

func mintWithGolangJWT(issuer ed25519.PrivateKey, holderJWK json.RawMessage) (string, error) {
	details := json.RawMessage(`[{"type": "attenuating_agent_token", "tools": {"payments.charge": {
		"account": {"constraint_type": "exact", "value": "a1"}, "amount": {"constraint_type": "range", "max": 100}}}}]`)
	token := jwt.NewWithClaims(ed25519Method{}, jwt.MapClaims{
		"iss": "https://id.example.com", "sub": "ada", "rev_epoch": 0, "aud": "https://payments.example",
		"jti": rand.Text(), "iat": time.Now().Unix(), "exp": time.Now().Unix() + 3600, "del_depth": 0,
		"del_max_depth": 1, "cnf": map[string]any{"jwk": holderJWK}, "authorization_details": details})
	token.Header["typ"] = "aat+jwt"
	return token.SignedString(issuer)
}
