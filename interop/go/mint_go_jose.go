package main

import (
	"crypto/rand"
	"encoding/json"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

func mintWithGoJose(issuer, holder jose.JSONWebKey) (string, error) {
	key := jose.SigningKey{Algorithm: jose.EdDSA, Key: issuer} // go-jose has only the older name of Ed25519
	signer, err := jose.NewSigner(key, new(jose.SignerOptions).WithType("aat+jwt"))
	if err != nil {
		return "", err
	}
	details := json.RawMessage(`[{"type": "attenuating_agent_token", "tools": {"payments.charge": {
		"account": {"constraint_type": "exact", "value": "a1"}, "amount": {"constraint_type": "range", "max": 100}}}}]`)
	return jwt.Signed(signer).Claims(map[string]any{
		"iss": "https://id.example.com", "sub": "ada", "rev_epoch": 0, "aud": "https://payments.example",
		"jti": rand.Text(), "iat": time.Now().Unix(), "exp": time.Now().Unix() + 3600, "del_depth": 0,
		"del_max_depth": 1, "cnf": map[string]any{"jwk": holder.Public()}, "authorization_details": details}).Serialize()
}
