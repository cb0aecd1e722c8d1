// Command interop executes requests with a library: one JSON object a line on standard input; ../README.md has the
// requests. With the arguments "mint FOLDER" it runs the mint function of Credence's docs/start/agents.md, with the
// keys in that folder.
package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/go-jose/go-jose/v4"
)

type library interface {
	sign(claims map[string]any, key jose.JSONWebKey, algorithm, typ string) (string, error)
	verify(compact string, key jose.JSONWebKey, algorithm, typ string) (map[string]any, error)
	mint(issuer, holder jose.JSONWebKey) (string, error)
}

var libraries = map[string]library{"golang-jwt": golangJWT{}, "go-jose": goJose{}}

func main() {
	asked := os.Args[1:]
	toMint := len(asked) == 3 && asked[1] == "mint"
	if (len(asked) != 1 && !toMint) || libraries[asked[0]] == nil {
		log.Fatal("usage: interop golang-jwt|go-jose [mint FOLDER]")
	}
	library := libraries[asked[0]]
	var err error
	if toMint {
		err = mintFromFiles(library, asked[2])
	} else {
		err = serve(library)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func mintFromFiles(library library, folder string) error {
	issuer, err := readKey(filepath.Join(folder, "issuer.jwk"))
	if err != nil {
		return err
	}
	holder, err := readKey(filepath.Join(folder, "planner.pub"))
	if err != nil {
		return err
	}
	token, err := library.mint(issuer, holder)
	if err != nil {
		return err
	}
	fmt.Println(token)
	return nil
}

func readKey(file string) (key jose.JSONWebKey, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return key, err
	}
	return key, json.Unmarshal(text, &key)
}

// serve answers each line of standard input with a line on standard output.
func serve(library library) error {
	answers := json.NewEncoder(os.Stdout)
	requests := json.NewDecoder(bufio.NewReader(os.Stdin))
	for {
		var request request
		if err := requests.Decode(&request); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		answer, err := request.answer(library)
		if err != nil {
			err = answers.Encode(map[string]string{"error": err.Error()})
		} else {
			err = answers.Encode(map[string]any{"ok": answer})
		}
		if err != nil {
			return err
		}
	}
}

type request struct {
	Do        string
	Algorithm string
	Key       jose.JSONWebKey
	Holder    jose.JSONWebKey
	Issuer    string
	Parent    string
	Leaf      string
	Token     string
	Typ       string
	Tool      string
	Audience  string
	Tools     json.RawMessage
	Arguments json.RawMessage
}

func (r *request) answer(library library) (any, error) {
	switch r.Do {
	case "generate_key":
		return generateKey(r.Algorithm)
	case "mint":
		return library.sign(rootClaims(r.Issuer, r.Holder, r.Tools), r.Key, r.Algorithm, tokenType)
	case "derive":
		claims, err := derivedClaims(r.Parent, r.Key, r.Holder, r.Tools)
		if err != nil {
			return nil, err
		}
		return library.sign(claims, r.Key, r.Algorithm, tokenType)
	case "prove":
		claims, err := proofClaims(r.Leaf, r.Tool, r.Arguments, r.Audience)
		if err != nil {
			return nil, err
		}
		return library.sign(claims, r.Key, r.Algorithm, proofType)
	case "tamper":
		return withMoreTime(r.Token)
	case "verify":
		return library.verify(r.Token, r.Key.Public(), r.Algorithm, r.Typ)
	default:
		return nil, fmt.Errorf("there is no request %q", r.Do)
	}
}

func generateKey(algorithm string) (jose.JSONWebKey, error) {
	switch algorithm {
	case "Ed25519", "EdDSA":
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return jose.JSONWebKey{Key: key}, err
	case "ES256":
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		return jose.JSONWebKey{Key: key}, err
	default:
		return jose.JSONWebKey{}, fmt.Errorf("Go has no keys for %s", algorithm)
	}
}
