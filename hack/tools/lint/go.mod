module github.com/fresh-kcm/fresh-kcm/hack/tools/lint

go 1.26.0

tool (
	github.com/golangci/misspell/cmd/misspell
	honnef.co/go/tools/cmd/staticcheck
	sigs.k8s.io/logtools/logcheck
)

require (
	golang.org/x/tools v0.51.0
	sigs.k8s.io/logtools v0.10.1
)

require (
	github.com/BurntSushi/toml v1.4.1-0.20240526193622-a339e1f7089c // indirect
	github.com/golangci/misspell v0.8.0 // indirect
	golang.org/x/exp v0.0.0-20240506185415-9bf2ced13842 // indirect
	golang.org/x/exp/typeparams v0.0.0-20231108232855-2478ac86f678 // indirect
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/sync v0.23.0 // indirect
	honnef.co/go/tools v0.8.2 // indirect
)
