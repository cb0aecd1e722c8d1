// Fetches a module with the code of Istio's agent, which logs to standard output, and writes it to a file:
//
//	fetch FILE URL [SHA256]
package main

import (
	"fmt"
	"os"
	"time"

	"istio.io/istio/pkg/wasm"
)

func main() {
	if err := fetch(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func fetch(arguments []string) error {
	if len(arguments) != 2 && len(arguments) != 3 {
		return fmt.Errorf("use: fetch FILE URL [SHA256]")
	}
	asked := wasm.GetOptions{ResourceName: "credence", ResourceVersion: "1", RequestTimeout: time.Minute}
	if len(arguments) == 3 {
		asked.Checksum = arguments[2]
	}
	folder, err := os.MkdirTemp("", "credence-fetch")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	cache := wasm.NewLocalFileCache(folder, wasm.Options{
		PurgeInterval:      wasm.DefaultPurgeInterval,
		ModuleExpiry:       wasm.DefaultModuleExpiry,
		HTTPRequestTimeout: wasm.DefaultHTTPRequestTimeout,
	})
	defer cache.Cleanup()
	file, err := cache.Get(arguments[1], asked)
	if err != nil {
		return err
	}
	module, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(arguments[0], module, 0o600)
}
