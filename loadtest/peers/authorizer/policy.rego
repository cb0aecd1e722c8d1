# What is nearest to what Credence decides: a signed token that names issuer, audience and expiry and grants a tool, for one
# route. No chain of hand-overs, no proof, no arguments, no revocation, and no record of the decision.
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
