// Reads a log's tiles with Go's own tools for transparency logs, and verifies all of them:
//
//	tlog [-token FILE] [-since CHECKPOINT] URL VKEY
//
// It opens URL/checkpoint with VKEY. It checks every tile against the checkpoint's root, every available entry against
// its tile, a proof of each 97th entry, and that the checkpoint extends the older one. It prints one line of JSON.
package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// The findings.
type report struct {
	Origin     string `json:"origin"`
	Size       int64  `json:"size"`
	Root       string `json:"root"`
	Signatures int    `json:"signatures"`
	Held       int64  `json:"held"`
	Pruned     int64  `json:"pruned"`
	Proven     int64  `json:"proven"`
	Since      int64  `json:"since"`
}

var errPruned = errors.New("no longer held")

func main() {
	tokenFile := flag.String("token", "", "a file with a bearer token")
	since := flag.String("since", "", "a file with an older checkpoint of the log")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: tlog [-token FILE] [-since CHECKPOINT] URL VKEY")
		os.Exit(2)
	}
	found, err := check(flag.Arg(0), flag.Arg(1), *tokenFile, *since)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tlog:", err)
		os.Exit(1)
	}
	json.NewEncoder(os.Stdout).Encode(found)
}

func check(url, vkey, tokenFile, since string) (*report, error) {
	log, err := open(url, tokenFile)
	if err != nil {
		return nil, err
	}
	verifier, err := note.NewVerifier(vkey)
	if err != nil {
		return nil, err
	}
	signed, err := log.get("/checkpoint")
	if err != nil {
		return nil, err
	}
	found, tree, err := parse(signed, verifier)
	if err != nil {
		return nil, err
	}
	hashes := tlog.TileHashReader(tree, log)
	if tree.N > 0 {
		root, err := tlog.TreeHash(tree.N, hashes)
		if err != nil {
			return nil, err
		}
		if root != tree.Hash {
			return nil, fmt.Errorf("the tiles have the root %v, the checkpoint %v", root, tree.Hash)
		}
	}
	for first := int64(0); first < tree.N; first += 256 {
		if err := checkBundle(log, hashes, tree, first, found); err != nil {
			return nil, fmt.Errorf("entries from %d on: %w", first, err)
		}
	}
	if since == "" {
		return found, nil
	}
	text, err := os.ReadFile(since)
	if err != nil {
		return nil, err
	}
	_, old, err := parse(text, verifier)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", since, err)
	}
	found.Since = old.N
	if old.N == 0 {
		return found, nil
	}
	proof, err := tlog.ProveTree(tree.N, old.N, hashes)
	if err != nil {
		return nil, err
	}
	return found, tlog.CheckTree(proof, tree.N, tree.Hash, old.N, old.Hash)
}

// checkBundle compares up to 256 entries with their tile, and proves some of them.
func checkBundle(log *remote, hashes tlog.HashReader, tree tlog.Tree, first int64, found *report) error {
	count := min(256, tree.N-first)
	indexes := make([]int64, count)
	for i := range indexes {
		indexes[i] = tlog.StoredHashIndex(0, first+int64(i))
	}
	expected, err := hashes.ReadHashes(indexes)
	if err != nil {
		return err
	}
	for i := int64(0); i < count; i++ {
		if (first+i)%97 == 0 {
			proof, err := tlog.ProveRecord(tree.N, first+i, hashes)
			if err != nil {
				return err
			}
			if err := tlog.CheckRecord(proof, tree.N, tree.Hash, first+i, expected[i]); err != nil {
				return err
			}
			found.Proven++
		}
	}
	bundle, err := log.get("/" + path(tlog.Tile{H: 8, L: -1, N: first / 256, W: int(count)}))
	if errors.Is(err, errPruned) {
		found.Pruned += count
		return nil
	}
	if err != nil {
		return err
	}
	for i := int64(0); i < count; i++ {
		if len(bundle) < 2 || len(bundle)-2 < int(binary.BigEndian.Uint16(bundle)) {
			return fmt.Errorf("the bundle ends in entry %d", first+i)
		}
		entry := bundle[2 : 2+binary.BigEndian.Uint16(bundle)]
		bundle = bundle[2+len(entry):]
		if tlog.RecordHash(entry) != expected[i] {
			return fmt.Errorf("entry %d does not match the tree", first+i)
		}
		found.Held++
	}
	if len(bundle) > 0 {
		return fmt.Errorf("the bundle has %d bytes too many", len(bundle))
	}
	return nil
}

// parse opens a checkpoint: origin, size, root.
func parse(signed []byte, verifier note.Verifier) (*report, tlog.Tree, error) {
	opened, err := note.Open(signed, note.VerifierList(verifier))
	if err != nil {
		return nil, tlog.Tree{}, err
	}
	lines := strings.Split(opened.Text, "\n")
	if len(lines) < 4 || lines[0] != verifier.Name() {
		return nil, tlog.Tree{}, fmt.Errorf("no checkpoint of %s: %q", verifier.Name(), opened.Text)
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil {
		return nil, tlog.Tree{}, err
	}
	root, err := tlog.ParseHash(lines[2])
	if err != nil {
		return nil, tlog.Tree{}, err
	}
	found := &report{
		Origin:     lines[0],
		Size:       size,
		Root:       base64.StdEncoding.EncodeToString(root[:]),
		Signatures: len(opened.Sigs) + len(opened.UnverifiedSigs),
	}
	return found, tlog.Tree{N: size, Hash: root}, nil
}

// remote is a log's read API. It is a tlog.TileReader.
type remote struct {
	url, token string
}

func open(url, tokenFile string) (*remote, error) {
	log := &remote{url: strings.TrimSuffix(url, "/")}
	if tokenFile == "" {
		return log, nil
	}
	token, err := os.ReadFile(tokenFile)
	log.token = strings.TrimSpace(string(token))
	return log, err
}

func (log *remote) Height() int { return 8 }

func (log *remote) SaveTiles([]tlog.Tile, [][]byte) {}

func (log *remote) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	read := make([][]byte, len(tiles))
	for i, tile := range tiles {
		data, err := log.get("/" + path(tile))
		if err != nil {
			return nil, err
		}
		read[i] = data
	}
	return read, nil
}

// path is the tile's name in C2SP tlog-tiles, which leaves out the height that the checksum database has.
func path(tile tlog.Tile) string {
	path := strings.TrimPrefix(tile.Path(), "tile/8/")
	if rest, ok := strings.CutPrefix(path, "data/"); ok {
		path = "entries/" + rest
	}
	return "tile/" + path
}

func (log *remote) get(path string) ([]byte, error) {
	request, err := http.NewRequest("GET", log.url+path, nil)
	if err != nil {
		return nil, err
	}
	if log.token != "" {
		request.Header.Set("Authorization", "Bearer "+log.token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	switch response.StatusCode {
	case http.StatusOK:
		return body, nil
	case http.StatusGone:
		return nil, fmt.Errorf("%s: %w", path, errPruned)
	default:
		return nil, fmt.Errorf("%s: %s: %s", path, response.Status, body)
	}
}
