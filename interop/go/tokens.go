package main

import (
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// The claims of tokens and proofs (draft-niyikiza-oauth-attenuating-agent-tokens-02), and their hashes.

const (
	tokenType = "aat+jwt"
	proofType = "aat-pop+jwt"
)

func rootClaims(issuer string, holder jose.JSONWebKey, tools json.RawMessage) map[string]any {
	claims := grantClaims(holder, tools, 0, 2)
	claims["iss"] = issuer
	return claims
}

// derivedClaims are those of section 6.2: signed by the parent's holder, named by the key's thumbprint, and bound to
// the parent by its hash.
func derivedClaims(parent string, signer, holder jose.JSONWebKey, tools json.RawMessage) (map[string]any, error) {
	var outer struct {
		Exp      int64
		Depth    int `json:"del_depth"`
		MaxDepth int `json:"del_max_depth"`
	}
	if err := decodeClaims(parent, &outer); err != nil {
		return nil, err
	}
	thumbprint, err := signer.Thumbprint(crypto.SHA256)
	if err != nil {
		return nil, err
	}
	claims := grantClaims(holder, tools, outer.Depth+1, outer.MaxDepth)
	claims["iss"] = "urn:ietf:params:oauth:jwk-thumbprint:sha-256:" + base64.RawURLEncoding.EncodeToString(thumbprint)
	claims["exp"] = outer.Exp
	claims["par_hash"] = tokenHash(parent)
	return claims, nil
}

// proofClaims are those of section 7: one use of the leaf, by its holder.
func proofClaims(leaf, tool string, arguments json.RawMessage, audience string) (map[string]any, error) {
	var token struct{ Jti string }
	if err := decodeClaims(leaf, &token); err != nil {
		return nil, err
	}
	return map[string]any{
		"jti":      rand.Text(),
		"iat":      time.Now().Unix(),
		"aat_id":   token.Jti,
		"aat_hash": tokenHash(leaf),
		"aat_tool": tool,
		"aat_aud":  audience,
		"hta":      arguments,
	}, nil
}

// withMoreTime is the same token with another exp and the same signature.
func withMoreTime(token string) (string, error) {
	var claims map[string]json.RawMessage
	if err := decodeClaims(token, &claims); err != nil {
		return "", err
	}
	claims["exp"] = json.RawMessage(fmt.Sprint(time.Now().Unix() + 7200))
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	parts := strings.Split(token, ".")
	parts[1] = base64.RawURLEncoding.EncodeToString(payload)
	return strings.Join(parts, "."), nil
}

func grantClaims(holder jose.JSONWebKey, tools json.RawMessage, depth, maxDepth int) map[string]any {
	now := time.Now().Unix()
	return map[string]any{
		"jti":           rand.Text(),
		"iat":           now,
		"exp":           now + 600,
		"cnf":           map[string]any{"jwk": holder.Public()},
		"del_depth":     depth,
		"del_max_depth": maxDepth,
		"authorization_details": []any{
			map[string]any{"type": "attenuating_agent_token", "tools": tools},
		},
	}
}

// tokenHash is that of section 4.6: of the JWS signing input, which is everything before the signature.
func tokenHash(token string) string {
	digest := sha256.Sum256([]byte(token[:strings.LastIndex(token, ".")]))
	return base64.RawURLEncoding.EncodeToString(digest[:])
}

func decodeClaims(token string, claims any) error {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return fmt.Errorf("a token has three parts, not %d", len(parts))
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return err
	}
	return json.Unmarshal(payload, claims)
}
