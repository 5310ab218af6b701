module github.com/fresh-kcm/fresh-kcm/hack/tools/build

go 1.26.0

require (
	github.com/vbauerster/mpb/v8 v8.9.3
	golang.org/x/term v0.45.0
)

require (
	github.com/VividCortex/ewma v1.2.0 // indirect
	github.com/acarl005/stripansi v0.0.0-20180116102854-5a71ef0e047d // indirect
	github.com/mattn/go-runewidth v0.0.16 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
