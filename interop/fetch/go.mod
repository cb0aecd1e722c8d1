// Built by the lock files of ../istio (go build -modfile): here is only what Go finds the folder by.
module credence.example/fetch
