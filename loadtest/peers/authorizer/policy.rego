# The policy closest to Credence's decision: a signed token with issuer, audience, expiry and a granted tool, for one
# route. It has no chain of delegations, no proof, no arguments, no revocation, and no record of the decision.
package authz

default allow := false

allow if {
	input.method == "GET"
	["", "v1", "catalog", _] = split(input.path, "/")
	startswith(input.authorization, "Bearer ")
	[true, _, claims] = io.jwt.decode_verify(substring(input.authorization, 7, -1), {
		"cert": data.settings.jwks,
		"iss": data.settings.issuer,
		"aud": data.settings.audience,
	})
	"catalog.read" in split(claims.scope, " ")
}
