// Fetches a module by the code by which Istio's agent does, and writes it to standard output:
//
//	fetch URL [SHA256]
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
	if len(arguments) != 1 && len(arguments) != 2 {
		return fmt.Errorf("use: fetch URL [SHA256]")
	}
	asked := wasm.GetOptions{ResourceName: "credence", ResourceVersion: "1", RequestTimeout: time.Minute}
	if len(arguments) == 2 {
		asked.Checksum = arguments[1]
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
	file, err := cache.Get(arguments[0], asked)
	if err != nil {
		return err
	}
	module, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(module)
	return err
}
