// A peer that Envoy calls over gRPC: ext_authz, in three variants from one process.
//
//	allow       every request is allowed without a check: the cost of leaving the proxy
//	opa         Open Policy Agent's engine decides by policy.rego, which verifies a JWT
//	opa_cached  the same, with OPA's cache of verified JWTs
//
// OPA is embedded as in its plugin for Envoy: a prepared query, evaluated for each request. The plugin's other work is
// left out (decision logs, metrics, the request as JSON, of which this policy needs little), so this costs less than
// the plugin.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"os"

	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/topdown/cache"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

//go:embed policy.rego
var policy string

// As many as jwt_authn caches in the same comparison.
const cachedTokens = 1000

func main() {
	keys := flag.String("jwks", "", "file with the issuer's JWK set")
	issuer := flag.String("issuer", "", "the required issuer of a token")
	audience := flag.String("audience", "", "the required audience of a token")
	flag.Parse()
	jwks, err := os.ReadFile(*keys)
	if err != nil {
		log.Fatal(err)
	}
	settings := map[string]any{"jwks": string(jwks), "issuer": *issuer, "audience": *audience}

	services := map[string]auth.AuthorizationServer{
		"allow":      allowing{},
		"opa":        newDeciding(settings, 0),
		"opa_cached": newDeciding(settings, cachedTokens),
	}
	ports := map[string]int{}
	for name, service := range services {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			log.Fatal(err)
		}
		ports[name] = listener.Addr().(*net.TCPAddr).Port
		server := grpc.NewServer()
		auth.RegisterAuthorizationServer(server, service)
		go func() { log.Fatal(server.Serve(listener)) }()
	}
	announcement, err := json.Marshal(ports)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(announcement))
	select {}
}

type allowing struct {
	auth.UnimplementedAuthorizationServer
}

func (allowing) Check(context.Context, *auth.CheckRequest) (*auth.CheckResponse, error) {
	return answer(codes.OK), nil
}

type deciding struct {
	auth.UnimplementedAuthorizationServer
	query rego.PreparedEvalQuery
	cache cache.InterQueryValueCache
}

// newDeciding caches this many tokens. OPA caches keys in any case.
func newDeciding(settings map[string]any, tokens int) *deciding {
	background := context.Background()
	query, err := rego.New(
		rego.Query("data.authz.allow"),
		rego.Module("policy.rego", policy),
		rego.Store(inmem.NewFromObject(map[string]any{"settings": settings})),
	).PrepareForEval(background)
	if err != nil {
		log.Fatal(err)
	}
	disabled := tokens == 0
	config := &cache.Config{InterQueryBuiltinValueCache: cache.InterQueryBuiltinValueCacheConfig{
		NamedCacheConfigs: map[string]*cache.NamedValueCacheConfig{
			"io_jwt": {Disabled: &disabled, MaxNumEntries: &tokens},
		},
	}}
	return &deciding{query: query, cache: cache.NewInterQueryValueCache(background, config)}
}

func (service *deciding) Check(ctx context.Context, request *auth.CheckRequest) (*auth.CheckResponse, error) {
	asked := request.GetAttributes().GetRequest().GetHttp()
	input := ast.NewObject(
		[2]*ast.Term{ast.StringTerm("method"), ast.StringTerm(asked.GetMethod())},
		[2]*ast.Term{ast.StringTerm("path"), ast.StringTerm(asked.GetPath())},
		[2]*ast.Term{ast.StringTerm("authorization"), ast.StringTerm(asked.GetHeaders()["authorization"])},
	)
	results, err := service.query.Eval(ctx, rego.EvalParsedInput(input), rego.EvalInterQueryBuiltinValueCache(service.cache))
	if err != nil {
		return nil, err
	}
	if !results.Allowed() {
		return answer(codes.PermissionDenied), nil
	}
	return answer(codes.OK), nil
}

func answer(code codes.Code) *auth.CheckResponse {
	return &auth.CheckResponse{Status: &status.Status{Code: int32(code)}}
}
