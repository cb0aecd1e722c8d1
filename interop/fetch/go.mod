// Built with the lock files of ../istio (go build -modfile). Go finds the folder by this file.
module credence.example/fetch
